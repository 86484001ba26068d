/* test_metrics.c - the text of fby_cache_metrics: its form, its sums, its refusals. */
#include <errno.h>

#include "api/call.h"
#include "api/metrics_table.h"
#include "api/metrics_text.h"
#include "api/rig.h"

enum { PROMPTS = 12, SESSIONS = 200, AT_ONCE = 8, TEXT_BYTES = 256 * 1024 };

static metrics_text_t *scrape(rig_t *rig)
{
    static char text[TEXT_BYTES];
    size_t needed = 0;
    assert_int_equal(fby_cache_metrics(rig->cache, text, sizeof(text), &needed), 0);
    assert_int_equal(needed, strlen(text) + 1);
    return metrics_parse(text);
}

static const char *const names[] = {
#define FBY_X(name, type, write, at, help) "forebay_" #name,
    FBY_METRIC_MAP(FBY_X)
#undef FBY_X
};

static const char *const types[] = {
#define FBY_X(name, type, write, at, help) #type,
    FBY_METRIC_MAP(FBY_X)
#undef FBY_X
};

/* ---- Form ------------------------------------------------------------------------------------------------------- */

static void every_metric_of_the_table_comes_once_and_in_order(void **state)
{
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    metrics_text_t *text = scrape(&rig);
    assert_int_equal(text->families, FBY_ARRAY_LEN(names));
    for (size_t i = 0; i < FBY_ARRAY_LEN(names); i++) {
        assert_string_equal(text->family[i].name, names[i]);
        assert_int_equal(strcasecmp(text->family[i].type, types[i]), 0);
        /* sessions_total names what has been, so it has nothing to say yet */
        assert_int_equal(text->family[i].samples > 0, strcmp(names[i], "forebay_sessions_total") != 0);
    }
    for (uint32_t i = 0; i < text->samples; i++) {
        for (uint32_t j = 0; j < i; j++) {
            assert_true(strcmp(text->sample[i].name, text->sample[j].name) != 0 ||
                        strcmp(text->sample[i].labels, text->sample[j].labels) != 0);
        }
    }
    free(text);
    rig_close(&rig);
}

static void counters_and_only_counters_end_in_total(void **state)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(names); i++) {
        const char *ending = strrchr(names[i], '_');
        assert_int_equal(strcmp(ending, "_total") == 0, strcmp(types[i], "COUNTER") == 0);
    }
}

static void the_page_of_the_manual_has_a_row_for_each(void **state)
{
    char path[512];
    static char manual[TEXT_BYTES];
    const char *root = getenv("FOREBAY_SOURCE_ROOT");
    if (root == NULL) {
        print_message("FOREBAY_SOURCE_ROOT is not set: the manual is not looked at\n");
        skip();
    }
    snprintf(path, sizeof(path), "%s/docs/metrics.md", root);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(manual, 1, sizeof(manual) - 1, file);
    fclose(file);
    manual[bytes] = '\0';
    uint32_t rows = 0;
    for (const char *at = manual; (at = strstr(at, "\n| `forebay_")) != NULL; at++) {
        rows++;
    }
    assert_int_equal(rows, FBY_ARRAY_LEN(names));
    for (size_t i = 0; i < FBY_ARRAY_LEN(names); i++) {
        char row[128];
        char type[16];
        for (size_t c = 0; c <= strlen(types[i]); c++) {
            type[c] = (char)(types[i][c] | (types[i][c] != '\0' ? 0x20 : 0));
        }
        snprintf(row, sizeof(row), "\n| `%s` | %s |", names[i], type);
        if (strstr(manual, row) == NULL) {
            fail_msg("docs/metrics.md has no row%s", row);
        }
    }
}

static void too_little_room_says_how_much_is_needed_and_writes_nothing(void **state)
{
    rig_t rig;
    size_t needed = 0, again = 0;
    RIG_OPEN(&rig, NULL);
    assert_int_equal(fby_cache_metrics(rig.cache, NULL, 0, &needed), -ENOSPC);
    assert_in_range(needed, 1000, TEXT_BYTES);
    char *text = malloc(needed);
    assert_non_null(text);
    memset(text, 'x', needed);
    assert_int_equal(fby_cache_metrics(rig.cache, text, needed - 1, &again), -ENOSPC);
    assert_int_equal(again, needed);
    assert_int_equal(text[0], 'x');
    assert_non_null(strstr(fby_last_error(), "capacity is "));
    assert_int_equal(fby_cache_metrics(rig.cache, text, needed, NULL), 0);
    assert_int_equal(strlen(text), needed - 1);
    assert_int_equal(fby_cache_metrics(rig.cache, NULL, 1, &needed), -EINVAL);
    assert_int_equal(fby_cache_metrics(NULL, text, needed, NULL), -EINVAL);
    assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL), 0);
    assert_int_equal(fby_cache_metrics(rig.cache, text, needed, NULL), FBY_E_CLOSED);
    free(text);
    rig_close(&rig);
}

/* ---- What single events count ----------------------------------------------------------------------------------- */

static double sessions(const metrics_text_t *text, const char *policy, const char *reason, const char *outcome)
{
    char labels[160];
    snprintf(labels, sizeof(labels), "policy=\"%s\",reason=\"%s\",outcome=\"%s\"", policy, reason, outcome);
    return metrics_value(text, "forebay_sessions_total", labels);
}

/* All of it is local, so each is answered before its start returns. */
static void a_session_counts_under_its_own_policy(void **state)
{
    rig_t rig;
    RIG_OPEN(&rig, "prefetch.recompute_tokens_per_s=1000");
    fby_seq_t *seq = rig_seq(&rig, 1, 65);
    rig_put_stored(&rig, seq, 4);
    for (int policy = 0; policy < FBY_POLICY_COUNT; policy++) {
        for (int times = 0; times <= policy; times++) {
            fby_session_t session = rig_start(&rig, seq, (fby_policy_t)policy, FBY_STOP_DRAIN, 5.0);
            assert_int_equal(rig_wait(&rig, session).outcome, FBY_OUTCOME_COMPLETE);
            assert_int_equal(fby_session_release(rig.cache, session), 0);
        }
    }
    metrics_text_t *text = scrape(&rig);
    for (int policy = 0; policy < FBY_POLICY_COUNT; policy++) {
        assert_int_equal(sessions(text, fby_policy_name((fby_policy_t)policy), "complete", "complete"), policy + 1);
    }
    assert_int_equal(metrics_value(text, "forebay_tokens_found_total", ""), 10 * 64);
    assert_int_equal(metrics_value(text, "forebay_tokens_delivered_total", ""), 10 * 64);
    assert_int_equal(metrics_value(text, "forebay_tokens_loaded_total", ""), 0);
    assert_int_equal(metrics_value(text, "forebay_store_writes_total", "result=\"stored\""), 4);
    free(text);
    fby_seq_unref(seq);
    rig_close(&rig);
}

static void a_damaged_object_is_a_verify_failure_of_its_kind(void **state)
{
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 65);
    rig_store_blocks(&rig, seq, 0, 4);
    char key[FBY_KEY_BYTES];
    assert_int_equal(fby_seq_key(seq, 1, 0, key, sizeof(key)), 0);
    assert_int_equal(fby_mem_corrupt(rig.store, key, 77), 0);
    fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).delivered_blocks, 1);
    assert_int_equal(fby_session_release(rig.cache, session), 0);
    rig_quiet(&rig);
    metrics_text_t *text = scrape(&rig);
    assert_int_equal(metrics_value(text, "forebay_verify_failures_total", "kind=\"checksum\""),
                     metrics_sum(text, "forebay_verify_failures_total", ""));
    assert_true(metrics_value(text, "forebay_verify_failures_total", "kind=\"checksum\"") >= 1);
    assert_int_equal(metrics_value(text, "forebay_payload_failures_total", "kind=\"checksum\""), 1);
    assert_int_equal(metrics_value(text, "forebay_tokens_lost_total", "reason=\"partial_read\""), 48);
    assert_int_equal(sessions(text, "wait_complete", "partial_read", "partial"), 1);
    free(text);
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* The store has the blocks but no state to resume from: found, and not in any plan. */
static void what_no_checkpoint_reaches_is_lost_to_checkpoints(void **state)
{
    rig_t rig;
    RIG_OPEN(&rig, "model.groups=full:4096:all,state:1024:trailing(1)");
    fby_seq_t *seq = rig_seq(&rig, 1, 65);
    rig_store_blocks(&rig, seq, 0, 4);
    fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).outcome, FBY_OUTCOME_EMPTY);
    metrics_text_t *text = scrape(&rig);
    assert_int_equal(metrics_value(text, "forebay_tokens_found_total", ""), 64);
    assert_int_equal(metrics_value(text, "forebay_tokens_planned_total", ""), 0);
    assert_int_equal(metrics_value(text, "forebay_tokens_lost_total", "reason=\"checkpoint\""), 64);
    assert_int_equal(metrics_sum(text, "forebay_tokens_lost_total", ""), 64);
    assert_int_equal(metrics_value(text, "forebay_pool_slot_bytes", "group=\"1\""), 1024 + 64);
    free(text);
    fby_seq_unref(seq);
    rig_close(&rig);
}

static void a_breaker_that_opened_is_seen_and_refused_calls_have_no_duration(void **state)
{
    rig_t rig;
    RIG_OPEN(&rig, "store.breaker_failures=1", "store.breaker_backoff_s=60");
    fby_seq_t *seq = rig_seq(&rig, 1, 65);
    rig_script(&rig, "exists:*:err(CONNECTION)");
    for (int i = 0; i < 2; i++) {
        fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        (void)rig_wait(&rig, session);
    }
    metrics_text_t *text = scrape(&rig);
    assert_int_equal(metrics_value(text, "forebay_breaker_state", "state=\"open\""), 1);
    assert_int_equal(metrics_value(text, "forebay_breaker_state", "state=\"closed\""), 0);
    assert_int_equal(metrics_value(text, "forebay_breaker_opened_total", ""), 1);
    assert_int_equal(metrics_value(text, "forebay_healthy", ""), 0);
    assert_int_equal(metrics_value(text, "forebay_store_calls_total", "operation=\"query\",result=\"unreached\""), 1);
    assert_true(metrics_value(text, "forebay_store_calls_total", "operation=\"query\",result=\"refused\"") >= 1);
    assert_int_equal(metrics_value(text, "forebay_store_call_seconds_count", "operation=\"query\""), 1);
    free(text);
    fby_seq_unref(seq);
    rig_close(&rig);
}

static void dropped_events_are_counted(void **state)
{
    rig_t rig;
    fby_subscription_t *subscription;
    RIG_OPEN(&rig, NULL);
    assert_int_equal(fby_subscribe(rig.cache, 3, &subscription), 0);
    fby_seq_t *seq = rig_seq(&rig, 1, 161);
    rig_put_stored(&rig, seq, 10);
    metrics_text_t *text = scrape(&rig);
    assert_int_equal(metrics_value(text, "forebay_subscriptions", ""), 1);
    assert_int_equal(metrics_value(text, "forebay_events_total", ""), 10);
    assert_int_equal(metrics_value(text, "forebay_events_dropped_total", ""), 7);
    free(text);
    fby_unsubscribe(subscription);
    fby_seq_unref(seq);
    rig_close(&rig);
}

static void a_poisoned_cache_still_tells(void **state)
{
    rig_t rig;
    fby_actions_t actions;
    RIG_OPEN(&rig, NULL);
    fby_runtime_t *runtime = rig_real(&rig)->runtime;
    (void)fby_enter(runtime, &actions);
    fby_runtime_poison(runtime, "V0 for the test");
    fby_leave(runtime, &actions);
    metrics_text_t *text = scrape(&rig);
    assert_int_equal(metrics_value(text, "forebay_poisoned", ""), 1);
    assert_int_equal(metrics_value(text, "forebay_healthy", ""), 0);
    free(text);
    rig_close(&rig);
}

/* ---- Sums over a random mix ------------------------------------------------------------------------------------- */

typedef struct mix {
    rig_t rig;
    uint64_t random;
    fby_seq_t *seq[PROMPTS];
    /* what the snapshots said */
    uint64_t found, planned, delivered, loaded, consumed, put_blocks;
    uint64_t lost[FBY_REASON_COUNT];
    uint64_t count[FBY_POLICY_COUNT][FBY_REASON_COUNT][FBY_OUTCOME_COUNT];
} mix_t;

typedef struct one {
    fby_session_t session;
    fby_policy_t policy;
} one_t;

static one_t mix_start(mix_t *mix)
{
    one_t one = {.policy = (fby_policy_t)unit_below(&mix->random, FBY_POLICY_COUNT)};
    fby_seq_t *seq = mix->seq[unit_below(&mix->random, PROMPTS)];
    fby_stop_mode_t mode = (fby_stop_mode_t)unit_below(&mix->random, FBY_STOP_MODE_COUNT);
    one.session = rig_start(&mix->rig, seq, one.policy, mode, 0.001 * unit_below(&mix->random, 6));
    return one;
}

static void mix_take(mix_t *mix, fby_session_t session, uint64_t blocks)
{
    fby_hold_t hold;
    const void *address;
    int rc = fby_session_take(mix->rig.cache, session, &hold);
    if (rc == FBY_E_STALE) {
        return; /* aborted */
    }
    assert_int_equal(rc, 0);
    uint64_t used = unit_below(&mix->random, (uint32_t)blocks + 1);
    for (uint64_t block = 0; block < used; block++) {
        assert_int_equal(fby_hold_slots(mix->rig.cache, hold, 0, block, block + 1, &address), 0);
    }
    mix->consumed += used * RIG_BLOCK_TOKENS;
    assert_int_equal(fby_hold_release(mix->rig.cache, hold), 0);
}

static void mix_end(mix_t *mix, one_t one)
{
    fby_snapshot_t snapshot = rig_wait(&mix->rig, one.session);
    mix->found += snapshot.found_tokens;
    mix->planned += snapshot.planned_tokens;
    mix->delivered += snapshot.delivered_tokens;
    mix->loaded += snapshot.loaded_tokens;
    mix->lost[snapshot.reason] += snapshot.planned_tokens - snapshot.delivered_tokens;
    mix->count[one.policy][snapshot.reason][snapshot.outcome]++;
    if (unit_below(&mix->random, 2) == 0) {
        mix_take(mix, one.session, snapshot.delivered_blocks);
    } else {
        (void)fby_session_release(mix->rig.cache, one.session); /* stale when it was stopped */
    }
}

static void mix_open(mix_t *mix)
{
    *mix = (mix_t){.random = 42};
    RIG_OPEN(&mix->rig, "store.write=through", "store.negative_ttl_s=0", "prefetch.recompute_tokens_per_s=100000",
             "store.breaker_backoff_s=0.001", "prefetch.max_sessions=6");
    for (uint32_t i = 0; i < PROMPTS; i++) {
        uint32_t blocks = 1 + unit_below(&mix->random, 20);
        mix->seq[i] = rig_seq(&mix->rig, i, blocks * RIG_BLOCK_TOKENS + 1);
        if (i % 4 == 0) {
            rig_put_stored(&mix->rig, mix->seq[i], blocks);
            mix->put_blocks += blocks;
        } else {
            rig_store_blocks(&mix->rig, mix->seq[i], 0, unit_below(&mix->random, blocks + 1));
        }
    }
    rig_script(&mix->rig, "get:*:p=0.02:miss ; get:*:p=0.02:corrupt(99) ; get:*:p=0.01:err(CONNECTION) ;"
                          "exists:*:p=0.005:err(TIMEOUT) ; latency(0.5)");
}

static void mix_close(mix_t *mix)
{
    for (uint32_t i = 0; i < PROMPTS; i++) {
        fby_seq_unref(mix->seq[i]);
    }
    rig_close(&mix->rig);
}

static void mix_run(mix_t *mix)
{
    for (uint32_t done = 0; done < SESSIONS; done += AT_ONCE) {
        one_t one[AT_ONCE];
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            one[i] = mix_start(mix);
            if (i % 4 == 1) {
                (void)fby_session_demand(mix->rig.cache, one[i].session);
            } else if (i % 8 == 2) {
                (void)fby_session_stop(mix->rig.cache, one[i].session);
            }
        }
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            mix_end(mix, one[i]);
        }
    }
    rig_quiet(&mix->rig);
}

static void sums_of_tokens_agree(const mix_t *mix, const metrics_text_t *text)
{
    double found = metrics_value(text, "forebay_tokens_found_total", "");
    double planned = metrics_value(text, "forebay_tokens_planned_total", "");
    double delivered = metrics_value(text, "forebay_tokens_delivered_total", "");
    double loaded = metrics_value(text, "forebay_tokens_loaded_total", "");
    double consumed = metrics_value(text, "forebay_tokens_consumed_total", "");
    double lost = metrics_sum(text, "forebay_tokens_lost_total", "");
    double checkpoint = metrics_value(text, "forebay_tokens_lost_total", "reason=\"checkpoint\"");
    assert_int_equal(found, mix->found);
    assert_int_equal(planned, mix->planned);
    assert_int_equal(delivered, mix->delivered);
    assert_int_equal(loaded, mix->loaded);
    assert_int_equal(consumed, mix->consumed);
    assert_int_equal(found, delivered + lost);
    assert_int_equal(found, planned + checkpoint);
    assert_int_equal(metrics_value(text, "forebay_tokens_lost_total", "reason=\"complete\""), 0);
    assert_true(loaded <= delivered && consumed <= delivered);
    assert_true(delivered > 0 && lost > 0 && loaded > 0 && consumed > 0);
    for (unsigned reason = FBY_REASON_NONE + 1; reason < FBY_REASON_COUNT; reason++) {
        char label[64];
        snprintf(label, sizeof(label), "reason=\"%s\"", fby_reason_name((fby_reason_t)reason));
        assert_int_equal(metrics_value(text, "forebay_tokens_lost_total", label), mix->lost[reason]);
    }
}

static void sums_of_sessions_agree(const mix_t *mix, const metrics_text_t *text)
{
    for (unsigned i = 0; i < FBY_POLICY_COUNT * FBY_REASON_COUNT * FBY_OUTCOME_COUNT; i++) {
        unsigned outcome = i % FBY_OUTCOME_COUNT, reason = i / FBY_OUTCOME_COUNT % FBY_REASON_COUNT;
        unsigned policy = i / FBY_OUTCOME_COUNT / FBY_REASON_COUNT;
        if (mix->count[policy][reason][outcome] > 0) {
            assert_int_equal(sessions(text, fby_policy_name((fby_policy_t)policy),
                                      fby_reason_name((fby_reason_t)reason), fby_outcome_name((fby_outcome_t)outcome)),
                             mix->count[policy][reason][outcome]);
        }
    }
    assert_int_equal(metrics_sum(text, "forebay_sessions_total", ""), SESSIONS);
    assert_int_equal(metrics_value(text, "forebay_sessions_started_total", ""), SESSIONS);
    assert_int_equal(metrics_value(text, "forebay_session_seconds_count", ""), SESSIONS);
    assert_int_equal(metrics_value(text, "forebay_session_drain_seconds_count", ""), SESSIONS);
    assert_true(metrics_sum(text, "forebay_sessions_total", "outcome=\"aborted\"") > 0);
    assert_int_equal(metrics_sum(text, "forebay_capacity_stops_total", ""),
                     metrics_sum(text, "forebay_sessions_total", "reason=\"capacity_"));
}

static void sums_of_store_calls_agree(const mix_t *mix, const metrics_text_t *text)
{
    static const char *const operations[] = {"operation=\"query\"", "operation=\"read\"", "operation=\"write\""};
    for (size_t i = 0; i < FBY_ARRAY_LEN(operations); i++) {
        char refused[64];
        snprintf(refused, sizeof(refused), "%s,result=\"refused\"", operations[i]);
        assert_int_equal(metrics_sum(text, "forebay_store_calls_total", operations[i]) -
                             metrics_value(text, "forebay_store_calls_total", refused),
                         metrics_value(text, "forebay_store_call_seconds_count", operations[i]));
    }
    assert_int_equal(metrics_sum(text, "forebay_store_calls_total", operations[0]),
                     metrics_value(text, "forebay_queries_total", ""));
    assert_int_equal(metrics_value(text, "forebay_store_calls_inflight", ""), 0);
    assert_int_equal(metrics_sum(text, "forebay_queue_depth", ""), 0);
    assert_int_equal(metrics_value(text, "forebay_graph_seconds_count", ""),
                     metrics_value(text, "forebay_graphs_total", "") -
                         metrics_value(text, "forebay_graphs_recalled_total", ""));
    assert_true(metrics_value(text, "forebay_graphs_total", "") > 0);
    assert_true(metrics_value(text, "forebay_store_bytes_total", "operation=\"read\"") > 0);
    assert_int_equal(metrics_sum(text, "forebay_store_writes_total", ""), mix->put_blocks);
}

static void sums_of_blocks_agree(const metrics_text_t *text)
{
    assert_int_equal(metrics_sum(text, "forebay_pool_slots", "group=\"0\""), RIG_POOL_BLOCKS);
    assert_int_equal(metrics_value(text, "forebay_blocks_published_total", "") -
                         metrics_value(text, "forebay_blocks_removed_total", ""),
                     metrics_value(text, "forebay_pool_slots", "group=\"0\",state=\"resident\""));
    assert_true(metrics_value(text, "forebay_blocks_evicted_total", "") <=
                metrics_value(text, "forebay_blocks_removed_total", ""));
}

/* Buckets never fall, and the last one is the count. */
static void histograms_are_cumulative(const metrics_text_t *text)
{
    double before = 0;
    for (uint32_t i = 0; i < text->samples; i++) {
        const metrics_sample_t *sample = &text->sample[i];
        size_t length = strlen(sample->name);
        if (length < 7 || strcmp(sample->name + length - 7, "_bucket") != 0) {
            continue;
        }
        assert_true(strstr(sample->labels, "le=\"0.0001\"") != NULL || sample->value >= before);
        before = sample->value;
        if (strstr(sample->labels, "le=\"+Inf\"") != NULL) {
            const metrics_sample_t *sum = &text->sample[i + 1], *count = &text->sample[i + 2];
            assert_non_null(strstr(sum->name, "_seconds_sum"));
            assert_non_null(strstr(count->name, "_seconds_count"));
            assert_int_equal(count->value, sample->value);
            assert_int_equal(sum->value > 0, count->value > 0);
        }
    }
}

static void all_sums_agree_over_a_random_mix_of_sessions(void **state)
{
    mix_t mix;
    mix_open(&mix);
    mix_run(&mix);
    metrics_text_t *text = scrape(&mix.rig);
    sums_of_tokens_agree(&mix, text);
    sums_of_sessions_agree(&mix, text);
    sums_of_store_calls_agree(&mix, text);
    sums_of_blocks_agree(text);
    histograms_are_cumulative(text);
    free(text);
    mix_close(&mix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_metric_of_the_table_comes_once_and_in_order),
        cmocka_unit_test(counters_and_only_counters_end_in_total),
        cmocka_unit_test(the_page_of_the_manual_has_a_row_for_each),
        cmocka_unit_test(too_little_room_says_how_much_is_needed_and_writes_nothing),
        cmocka_unit_test(a_session_counts_under_its_own_policy),
        cmocka_unit_test(a_damaged_object_is_a_verify_failure_of_its_kind),
        cmocka_unit_test(what_no_checkpoint_reaches_is_lost_to_checkpoints),
        cmocka_unit_test(a_breaker_that_opened_is_seen_and_refused_calls_have_no_duration),
        cmocka_unit_test(dropped_events_are_counted),
        cmocka_unit_test(a_poisoned_cache_still_tells),
        cmocka_unit_test(all_sums_agree_over_a_random_mix_of_sessions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
