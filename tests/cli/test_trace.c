/* The reader refuses every broken line by name; what the generator makes is read back; hit ratios on traces done by hand. */
#include <errno.h>

#include "cli/trace.h"
#include "forebay/forebay.h"
#include "unit.h"

#define LINE(timestamp, input, output, ids)                                                                            \
    "{\"timestamp\": " timestamp ", \"input_length\": " input ", \"output_length\": " output ", \"hash_ids\": [" ids   \
    "]}\n"

static void parse_good(const char *text, fby_trace_t *trace)
{
    if (fby_trace_parse(text, strlen(text), "t.jsonl", trace) != 0) {
        fail_msg("refused: %s", fby_last_error());
    }
}

static void a_trace_is_read_as_a_forest(void **state)
{
    fby_trace_t trace;
    parse_good(LINE("0", "1030", "5", "0, 1, 2")
                   LINE("7", "512", "0", "0") "{\"hash_ids\":[3],\"extra\":[{}],\"input_length\":1,"
                                              "\"output_length\":2,\"timestamp\":7}\r\n",
               &trace);
    assert_int_equal(trace.requests, 3);
    assert_int_equal(trace.block_refs, 5);
    assert_int_equal(trace.unique_blocks, 4);
    assert_int_equal(trace.request[0].blocks, 3);
    assert_int_equal(trace.request[0].input_tokens, 1030);
    assert_int_equal(trace.request[1].timestamp_ms, 7);
    assert_int_equal(fby_trace_ids(&trace, 0)[2], 2);
    assert_int_equal(fby_trace_ids(&trace, 2)[0], 3);
    assert_true(trace.parent[0] == FBY_NONE);
    assert_int_equal(trace.parent[2], 1);
    assert_true(trace.parent[3] == FBY_NONE);
    fby_trace_free(&trace);
}

static void the_last_line_needs_no_newline(void **state)
{
    fby_trace_t trace;
    parse_good("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}", &trace);
    assert_int_equal(trace.requests, 1);
    fby_trace_free(&trace);
}

typedef struct bad_trace {
    const char *text, *message;
} bad_trace_t;

static const bad_trace_t bad_traces[] = {
    {"", "t.jsonl: has no requests; accepted: one JSON object per line"},
    {"\n", "t.jsonl:1: is not JSON from column 1 on; accepted: one JSON object per line"},
    {"{\"timestamp\": 0,\n", "t.jsonl:1: is not JSON from column 16 on; accepted: one JSON object per line"},
    {LINE("0", "1", "1", "0") "oops\n", "t.jsonl:2: is not JSON from column 1 on; accepted: one JSON object per line"},
    {"{} x\n", "t.jsonl:1: goes on after the object, at column 4; accepted: one JSON object per line"},
    {"[1]\n", "t.jsonl:1: is not an object; accepted: one JSON object per line"},
    {"{}\n", "t.jsonl:1: timestamp: is missing; accepted: timestamp, input_length, output_length and hash_ids"},
    {"{\"timestamp\": 0, \"timestamp\": 0}\n", "t.jsonl:1: timestamp: stands twice; accepted: once"},
    {LINE("-1", "1", "1", "0"),
     "t.jsonl:1: timestamp: -1 is negative; accepted: a whole number from 0 to 1099511627776"},
    {LINE("\"0\"", "1", "1", "0"),
     "t.jsonl:1: timestamp: \"0\" is not a number; accepted: a whole number from 0 to 1099511627776"},
    {LINE("1e300", "1", "1", "0"),
     "t.jsonl:1: timestamp: 1e+300 is too large; accepted: a whole number from 0 to 1099511627776"},
    {LINE("1e999", "1", "1", "0"),
     "t.jsonl:1: timestamp: null is too large; accepted: a whole number from 0 to 1099511627776"},
    {LINE("0.5", "1", "1", "0"),
     "t.jsonl:1: timestamp: 0.5 is not a whole number; accepted: a whole number from 0 to 1099511627776"},
    {LINE("0", "0", "1", ""), "t.jsonl:1: input_length: 0 is too small; accepted: a whole number from 1 to 16777216"},
    {LINE("0", "16777217", "1", "0"),
     "t.jsonl:1: input_length: 16777217 is too large; accepted: a whole number from 1 to 16777216"},
    {LINE("0", "1", "-2", "0"),
     "t.jsonl:1: output_length: -2 is negative; accepted: a whole number from 0 to 16777216"},
    {LINE("0", "1", "null", "0"),
     "t.jsonl:1: output_length: null is not a number; accepted: a whole number from 0 to 16777216"},
    {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": 0}\n",
     "t.jsonl:1: hash_ids: 0 is not a list; accepted: a list of whole numbers"},
    {LINE("5", "1", "1", "0") LINE("4", "1", "1", "0"),
     "t.jsonl:2: timestamp: 4 is earlier than the line before; accepted: 5 or more"},
    {LINE("0", "513", "1", "0"),
     "t.jsonl:1: hash_ids: has 1 ids for input_length 513; accepted: 2, one per 512 tokens"},
    {LINE("0", "512", "1", "0, 1"),
     "t.jsonl:1: hash_ids: has 2 ids for input_length 512; accepted: 1, one per 512 tokens"},
    {LINE("0", "513", "1", "0, -1"),
     "t.jsonl:1: hash_ids[1]: -1 is negative; accepted: a whole number from 0 to 2147483647"},
    {LINE("0", "513", "1", "0, 1.5"),
     "t.jsonl:1: hash_ids[1]: 1.5 is not a whole number; accepted: a whole number from 0 to 2147483647"},
    {LINE("0", "513", "1", "0, 2147483648"),
     "t.jsonl:1: hash_ids[1]: 2147483648 is too large; accepted: a whole number from 0 to 2147483647"},
    {LINE("0", "513", "1", "0, \"x\""),
     "t.jsonl:1: hash_ids[1]: \"x\" is not a number; accepted: a whole number from 0 to 2147483647"},
    {LINE("0", "513", "1", "0, 2"),
     "t.jsonl:1: hash_ids[1]: 2 skips ids, which are dense and numbered by first appearance; accepted: 0 to 1"},
    {LINE("0", "1", "1", "1"),
     "t.jsonl:1: hash_ids[0]: 1 skips ids, which are dense and numbered by first appearance; accepted: 0 to 0"},
    {LINE("0", "513", "1", "0, 0"), "t.jsonl:1: hash_ids[1]: 0 stands twice in this request; accepted: each id once"},
    {LINE("0", "1500", "1", "0, 1, 0"),
     "t.jsonl:1: hash_ids[2]: 0 stands twice in this request; accepted: each id once"},
    {LINE("0", "513", "1", "0, 1") LINE("0", "1", "1", "1"),
     "t.jsonl:2: hash_ids[0]: 1 follows the start here and followed 0 before; accepted: one parent for each id"},
    {LINE("0", "1", "1", "0") LINE("0", "1", "1", "1") LINE("0", "513", "1", "0, 1"),
     "t.jsonl:3: hash_ids[1]: 1 follows 0 here and followed the start before; accepted: one parent for each id"},
};

static void every_broken_line_is_named(void **state)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(bad_traces); i++) {
        fby_trace_t trace = {0};
        int status = fby_trace_parse(bad_traces[i].text, strlen(bad_traces[i].text), "t.jsonl", &trace);
        if (status != FBY_E_FORMAT || strcmp(fby_last_error(), bad_traces[i].message) != 0) {
            fail_msg("%s\ngot %d: %s\nexpected: %s", bad_traces[i].text, status, fby_last_error(),
                     bad_traces[i].message);
        }
        assert_null(trace.request);
    }
}

static void a_nul_byte_is_named(void **state)
{
    static const char text[] = "{\"timestamp\": 0}\0\n";
    fby_trace_t trace;
    assert_int_equal(fby_trace_parse(text, sizeof(text) - 1, "t.jsonl", &trace), FBY_E_FORMAT);
    assert_string_equal(fby_last_error(), "t.jsonl:1: has a NUL byte; accepted: one JSON object per line");
}

static void what_cannot_be_opened_is_named(void **state)
{
    fby_trace_t trace;
    assert_int_equal(fby_trace_load("/nowhere/t.jsonl", &trace), -ENOENT);
    assert_string_equal(fby_last_error(),
                        "/nowhere/t.jsonl: cannot be read: No such file or directory; accepted: a file of JSON lines");
    assert_int_equal(fby_trace_load("/tmp", &trace), -EISDIR);
}

/* Three prompts of four blocks under one first block: 0 1 2 3, 0 4 5 6, then the first again, partial at its end. */
static const char three_prompts[] =
    LINE("0", "2000", "1", "0, 1, 2, 3") LINE("1", "2048", "1", "0, 4, 5, 6") LINE("2", "2000", "1", "0, 1, 2, 3");

static void an_infinite_cache_hits_what_was_there_before(void **state)
{
    fby_trace_t trace;
    fby_trace_hits_t hits;
    parse_good(three_prompts, &trace);
    fby_trace_infinite_hits(&trace, &hits);
    assert_int_equal(hits.blocks, 0 + 1 + 4);
    assert_int_equal(hits.tokens, 512 + 2000);
    assert_int_equal(hits.total_blocks, 12);
    assert_int_equal(hits.total_tokens, 6048);
    fby_trace_free(&trace);
}

static void an_lru_cache_drops_the_deepest_of_the_oldest_first(void **state)
{
    static const struct {
        uint32_t capacity;
        uint64_t hit_blocks;
    } rows[] = {
        {7, 0 + 1 + 4}, /* all seven fit */
        {6, 0 + 1 + 3}, /* block 3, the deepest of the first prompt, makes room for 6 */
        {5, 0 + 1 + 2}, /* 3 and 2 */
        {4, 0 + 1 + 1}, /* 3, 2 and 1 */
        {1, 0 + 1 + 1}, /* only the first block fits, and stays */
    };
    fby_trace_t trace;
    parse_good(three_prompts, &trace);
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        fby_trace_hits_t hits;
        assert_int_equal(fby_trace_lru_hits(&trace, rows[i].capacity, &hits), 0);
        assert_int_equal(hits.blocks, rows[i].hit_blocks);
        assert_int_equal(hits.total_blocks, 12);
    }
    fby_trace_free(&trace);
}

static bool requests_are_equal(const fby_trace_t *a, const fby_trace_t *b)
{
    bool equal = a->requests == b->requests && a->block_refs == b->block_refs && a->unique_blocks == b->unique_blocks;
    for (uint32_t i = 0; equal && i < a->requests; i++) {
        const fby_trace_request_t *x = &a->request[i], *y = &b->request[i];
        equal = x->timestamp_ms == y->timestamp_ms && x->input_tokens == y->input_tokens &&
                x->output_tokens == y->output_tokens && x->first_id == y->first_id && x->blocks == y->blocks;
    }
    return equal;
}

static void what_is_generated_is_read_back_the_same(void **state)
{
    fby_trace_recipe_t recipe = FBY_TRACE_RECIPE_INIT;
    recipe.requests = 500;
    recipe.most_input_tokens = 9000;
    for (recipe.seed = 0; recipe.seed < 20; recipe.seed++) {
        fby_trace_t made, read;
        char *text = NULL;
        size_t length = 0;
        assert_int_equal(fby_trace_generate(&recipe, &made), 0);
        FILE *out = open_memstream(&text, &length);
        fby_trace_write(&made, out);
        fclose(out);
        parse_good(text, &read);
        assert_int_equal(read.requests, 500);
        assert_true(requests_are_equal(&read, &made));
        assert_memory_equal(read.ids, made.ids, made.block_refs * sizeof(*made.ids));
        free(text);
        fby_trace_free(&made);
        fby_trace_free(&read);
    }
}

static void one_seed_makes_one_trace(void **state)
{
    fby_trace_recipe_t recipe = FBY_TRACE_RECIPE_INIT;
    fby_trace_t first, again, other;
    assert_int_equal(fby_trace_generate(&recipe, &first), 0);
    assert_int_equal(fby_trace_generate(&recipe, &again), 0);
    recipe.seed = 2;
    assert_int_equal(fby_trace_generate(&recipe, &other), 0);
    assert_true(requests_are_equal(&first, &again));
    assert_false(requests_are_equal(&first, &other));
    fby_trace_free(&first);
    fby_trace_free(&again);
    fby_trace_free(&other);
}

static void the_recipe_is_followed(void **state)
{
    fby_trace_recipe_t recipe = FBY_TRACE_RECIPE_INIT;
    fby_trace_t trace;
    recipe.requests = 400;
    recipe.turns = 1; /* strangers: nothing is shared but the system prompt of two blocks */
    assert_int_equal(fby_trace_generate(&recipe, &trace), 0);
    fby_trace_hits_t hits;
    fby_trace_infinite_hits(&trace, &hits);
    assert_int_equal(hits.blocks, 2 * 399);
    fby_trace_free(&trace);

    recipe.shared_tokens = 0;
    assert_int_equal(fby_trace_generate(&recipe, &trace), 0);
    fby_trace_infinite_hits(&trace, &hits);
    assert_int_equal(hits.blocks, 0);
    fby_trace_free(&trace);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(a_trace_is_read_as_a_forest),
        cmocka_unit_test(the_last_line_needs_no_newline),
        cmocka_unit_test(every_broken_line_is_named),
        cmocka_unit_test(a_nul_byte_is_named),
        cmocka_unit_test(what_cannot_be_opened_is_named),
        cmocka_unit_test(an_infinite_cache_hits_what_was_there_before),
        cmocka_unit_test(an_lru_cache_drops_the_deepest_of_the_oldest_first),
        cmocka_unit_test(what_is_generated_is_read_back_the_same),
        cmocka_unit_test(one_seed_makes_one_trace),
        cmocka_unit_test(the_recipe_is_followed),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
