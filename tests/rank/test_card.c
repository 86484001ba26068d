#include "group_rig.h"

#include "rank/card.h"

enum { MOST = 8, TEXT = 8192 };

/* Cards in some order of arrival. */
typedef struct table {
    rig_message_t message[MOST];
    const void *card[MOST];
    size_t length[MOST];
    uint32_t n;
    char text[TEXT];
} table_t;

static fby_model_t model_of_engine(void)
{
    fby_model_t model = {.size = sizeof(model), .block_tokens = 16, .groups = 2};
    strcpy(model.fingerprint, "00112233445566778899aabbccddeeff");
    for (uint32_t g = 0; g < model.groups; g++) {
        strcpy(model.group[g].name, g == 0 ? "full" : "state");
        model.group[g].payload_bytes = 4096 * (g + 1);
        model.group[g].slot_bytes = 8192 * (g + 1);
        model.group[g].trailing = g;
    }
    return model;
}

static fby_pool_t pool_of_engine(void)
{
    fby_pool_t pool = {.size = sizeof(pool), .bytes = 1 << 20, .groups = 2, .fingerprint = {0xA5, 1}};
    for (uint32_t g = 0; g < pool.groups; g++) {
        pool.group[g].slot_bytes = 8192 * (g + 1);
        pool.group[g].payload_bytes = 4096 * (g + 1);
        pool.group[g].first = 32 * g;
        pool.group[g].slots = 32;
        pool.group[g].offset = 262144 * g;
    }
    return pool;
}

static fby_card_t *card_of(uint32_t rank, uint32_t ranks)
{
    static const uint32_t tokens[] = {1, 2, 3};
    fby_card_t *card = NULL;
    const fby_model_t model = model_of_engine();
    const fby_pool_t pool = pool_of_engine();
    assert_int_equal(fby_card_create(rank, ranks, 1000 + rank, &card), 0);
    assert_int_equal(fby_card_set_model(card, &model), 0);
    assert_int_equal(fby_card_set_pool(card, &pool), 0);
    assert_int_equal(fby_card_set(card, "model.id", "a model", 0), 0);
    assert_int_equal(fby_card_set(card, "model.kv_dtype", "bf16", 0), 0);
    assert_int_equal(fby_card_set(card, "model.layout", "split", 0), 0);
    assert_int_equal(fby_card_set_number(card, "parallel.tp", ranks, 0), 0);
    assert_int_equal(fby_card_set_number(card, "parallel.pp", 1, 0), 0);
    assert_int_equal(fby_card_set_number(card, "parallel.cp", 1, 0), 0);
    assert_int_equal(fby_card_set_number(card, "device.ordinal", rank, FBY_CARD_PER_RANK), 0);
    assert_int_equal(fby_card_set_digest(card, "tokens.digest", tokens, sizeof(tokens), 0), 0);
    return card;
}

static void table_set(table_t *table, uint32_t at, fby_card_t *card)
{
    rig_message_free(&table->message[at]);
    table->message[at] = rig_card_message(card);
    table->card[at] = table->message[at].bytes;
    table->length[at] = table->message[at].length;
    fby_card_free(card);
}

static void table_make(table_t *table, uint32_t n)
{
    *table = (table_t){.n = n};
    for (uint32_t i = 0; i < n; i++) {
        table_set(table, i, card_of(i, n));
    }
}

static void table_free(table_t *table)
{
    for (uint32_t i = 0; i < table->n; i++) {
        rig_message_free(&table->message[i]);
    }
}

static void table_turn(table_t *table)
{
    const void *card = table->card[0];
    const size_t length = table->length[0];
    memmove(&table->card[0], &table->card[1], (table->n - 1) * sizeof(table->card[0]));
    memmove(&table->length[0], &table->length[1], (table->n - 1) * sizeof(table->length[0]));
    table->card[table->n - 1] = card;
    table->length[table->n - 1] = length;
}

static void table_swap(table_t *table, uint32_t a, uint32_t b)
{
    const void *card = table->card[a];
    const size_t length = table->length[a];
    table->card[a] = table->card[b];
    table->length[a] = table->length[b];
    table->card[b] = card;
    table->length[b] = length;
}

/* The same answer in the order of ranks, turned round, and upside down. */
static void compare_in_orders(table_t *table, int expected, const char *text)
{
    for (uint32_t order = 0; order < table->n + 1; order++) {
        memset(table->text, 'x', sizeof(table->text));
        assert_int_equal(
            fby_cards_compare(table->card, table->length, table->n, NULL, table->text, sizeof(table->text)), expected);
        assert_string_equal(table->text, text);
        table_turn(table);
        if (order == table->n - 1) {
            for (uint32_t i = 0; i < table->n / 2; i++) {
                table_swap(table, i, table->n - 1 - i);
            }
        }
    }
}

static const char *value_in(const fby_card_t *card, const char *name)
{
    for (uint32_t i = 0; i < card->fields; i++) {
        if (strcmp(card->field[i].name, name) == 0) {
            return card->field[i].value;
        }
    }
    return NULL;
}

/* "name: rank 0 value, rank 1 value, ..." */
static void expected_text(char *out, const char *name, const char *value, uint32_t ranks, uint32_t odd,
                          const char *odd_value)
{
    size_t used = (size_t)sprintf(out, "%s:", name);
    for (uint32_t i = 0; i < ranks; i++) {
        used += (size_t)sprintf(out + used, "%s rank %u %s", i > 0 ? "," : "", i, i == odd ? odd_value : value);
    }
}

static void test_equal_cards_give_all_ranks_the_same_group(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MOST; n *= 2) {
        table_t table;
        fby_ranks_t group = {.size = sizeof(group), .rank = 77, .window = 5}, again = group;
        table_make(&table, n);
        compare_in_orders(&table, 0, "");
        assert_int_equal(fby_cards_compare(table.card, table.length, n, &group, NULL, 0), 0);
        assert_int_equal(group.ranks, n);
        assert_int_not_equal(group.incarnation, 0);
        assert_int_equal(group.rank, 77);
        assert_int_equal(group.window, 5);
        table_turn(&table);
        assert_int_equal(fby_cards_compare(table.card, table.length, n, &again, NULL, 0), 0);
        assert_int_equal(again.incarnation, group.incarnation);
        table_free(&table);
    }
}

static void test_a_restarted_rank_gives_the_group_another_incarnation(void **state)
{
    (void)state;
    table_t table;
    fby_ranks_t before = {.size = sizeof(before)}, after = before;
    table_make(&table, 4);
    assert_int_equal(fby_cards_compare(table.card, table.length, 4, &before, NULL, 0), 0);
    fby_card_t *card = card_of(2, 4);
    card->incarnation = 5;
    table_set(&table, 2, card);
    assert_int_equal(fby_cards_compare(table.card, table.length, 4, &after, NULL, 0), 0);
    assert_int_not_equal(before.incarnation, after.incarnation);
    table_free(&table);
}

static void test_every_field_that_differs_is_named_with_all_values(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= MOST; n *= 2) {
        fby_card_t *pattern = card_of(0, n);
        for (uint32_t odd = 0; odd < n; odd++) {
            for (uint32_t i = 0; i < pattern->fields; i++) {
                char text[TEXT];
                const char *name = pattern->field[i].name, *value = value_in(pattern, name);
                table_t table;
                table_make(&table, n);
                fby_card_t *card = card_of(odd, n);
                assert_int_equal(fby_card_set(card, name, "another", pattern->field[i].flags), 0);
                table_set(&table, odd, card);
                expected_text(text, name, value, n, odd, "another");
                const bool may_differ = (pattern->field[i].flags & FBY_CARD_PER_RANK) != 0;
                compare_in_orders(&table, may_differ ? 0 : FBY_E_CONFIG, may_differ ? "" : text);
                table_free(&table);
            }
        }
        fby_card_free(pattern);
    }
}

static void test_a_field_that_one_rank_lacks_is_named(void **state)
{
    (void)state;
    for (uint32_t odd = 0; odd < 4; odd++) {
        table_t table;
        char text[TEXT];
        table_make(&table, 4);
        fby_card_t *card = card_of(odd, 4);
        assert_int_equal(fby_card_set(card, "engine.flag", "on", 0), 0);
        table_set(&table, odd, card);
        expected_text(text, "engine.flag", "(not set)", 4, odd, "on");
        compare_in_orders(&table, FBY_E_CONFIG, text);
        table_free(&table);
    }
}

static void test_the_first_of_several_differences_is_named(void **state)
{
    (void)state;
    table_t table;
    table_make(&table, 2);
    fby_card_t *card = card_of(1, 2);
    assert_int_equal(fby_card_set(card, "tokens.digest", "0", 0), 0);
    assert_int_equal(fby_card_set(card, "model.kv_dtype", "f16", 0), 0);
    table_set(&table, 1, card);
    compare_in_orders(&table, FBY_E_CONFIG, "model.kv_dtype: rank 0 bf16, rank 1 f16");
    assert_string_equal(fby_last_error(), "model.kv_dtype: rank 0 bf16, rank 1 f16");
    table_free(&table);
}

static void test_the_first_name_counts_and_not_the_first_rank(void **state)
{
    (void)state;
    for (uint32_t early = 1; early <= 2; early++) {
        table_t table;
        table_make(&table, 3);
        for (uint32_t rank = 1; rank <= 2; rank++) {
            fby_card_t *card = card_of(rank, 3);
            assert_int_equal(fby_card_set(card, rank == early ? "model.id" : "tokens.digest", "x", 0), 0);
            table_set(&table, rank, card);
        }
        compare_in_orders(&table, FBY_E_CONFIG,
                          early == 1 ? "model.id: rank 0 a model, rank 1 x, rank 2 a model"
                                     : "model.id: rank 0 a model, rank 1 a model, rank 2 x");
        table_free(&table);
    }
}

static void test_a_field_is_compared_unless_both_say_it_may_differ(void **state)
{
    (void)state;
    table_t table;
    table_make(&table, 2);
    fby_card_t *card = card_of(1, 2);
    assert_int_equal(fby_card_set(card, "host.name", "b", FBY_CARD_PER_RANK), 0); /* only here, and it may */
    assert_int_equal(fby_card_set(card, "device.ordinal", "1", 0), 0);            /* rank 0 says it may */
    table_set(&table, 1, card);
    compare_in_orders(&table, FBY_E_CONFIG, "device.ordinal: rank 0 0, rank 1 1");
    table_free(&table);
}

static void test_cards_that_did_not_come_are_named_by_rank(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MOST; n *= 2) {
        for (uint32_t absent = 0; absent < n; absent++) {
            char text[TEXT];
            table_t table;
            table_make(&table, n);
            table.card[absent] = NULL;
            table.length[absent] = 0;
            sprintf(text, "no readable card of rank %u: 1 missing", absent);
            compare_in_orders(&table, FBY_E_CONFIG, text);
            table_free(&table);
        }
    }
}

static void test_a_damaged_card_is_named_wherever_it_was_damaged(void **state)
{
    (void)state;
    table_t table;
    table_make(&table, 2);
    rig_message_t *message = &table.message[1];
    for (size_t cut = 1; cut < message->length; cut++) {
        table.length[1] = cut;
        assert_int_equal(fby_cards_compare(table.card, table.length, 2, NULL, table.text, TEXT), FBY_E_CONFIG);
        assert_string_equal(table.text, "no readable card of rank 1: 1 not a whole card");
    }
    table.length[1] = message->length;
    for (size_t bit = 0; bit < 8 * message->length; bit++) {
        message->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(fby_cards_compare(table.card, table.length, 2, NULL, table.text, TEXT), FBY_E_CONFIG);
        assert_memory_equal(table.text, "no readable card of rank 1: 1 ", 30);
        message->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    message->bytes[message->length - 20] ^= 1;
    table.card[0] = NULL;
    compare_in_orders(&table, FBY_E_CONFIG, "no readable card of rank 0, rank 1: 1 missing, 1 with a wrong checksum");
    table_free(&table);
}

static void test_contents_that_no_card_has_are_refused(void **state)
{
    (void)state;
    fby_card_t *card = NULL, *out = calloc(1, sizeof(*out));
    uint8_t protocol;
    assert_int_equal(fby_card_create(0, 1, 1, &card), 0);
    assert_int_equal(fby_card_set(card, "a", "1", 0), 0);
    assert_int_equal(fby_card_set(card, "b", "2", 0), 0);
    rig_message_t good = rig_card_message(card);
    assert_int_equal(fby_card_decode(good.bytes, good.length, out, &protocol), 0);
    /* Behind 40 bytes of header: flags, 1, a, 1, '1', flags, 1, b, 1, '2'. */
    static const struct {
        size_t at;
        uint8_t value;
    } changes[] = {{5, FBY_MESSAGE_REPORT},
                   {6, 1},
                   {20, 1},
                   {20, 3},
                   {24, 0},
                   {32, 1},
                   {40, 2},
                   {41, 0},
                   {41, 64},
                   {42, '\n'},
                   {42, 0},
                   {43, 255},
                   {44, 31},
                   {44, 0},
                   {47, 'a'},
                   {47, 'A'}};
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        rig_message_t bad = rig_message_copy(good.bytes, good.length);
        bad.bytes[changes[i].at] = changes[i].value;
        rig_message_seal(&bad);
        assert_int_equal(fby_card_decode(bad.bytes, bad.length, out, &protocol), FBY_E_FORMAT);
        rig_message_free(&bad);
    }
    rig_message_free(&good);
    fby_card_free(card);
    free(out);
}

static void test_another_protocol_is_named(void **state)
{
    (void)state;
    table_t table;
    table_make(&table, 2);
    table.message[1].bytes[4] = 2;
    rig_message_seal(&table.message[1]);
    compare_in_orders(&table, FBY_E_CONFIG, "protocol: rank 0 1, rank 1 2; this library speaks 1");
    table_free(&table);
}

static void test_wrong_rank_numbers_are_named(void **state)
{
    (void)state;
    table_t table;
    table_make(&table, 2);
    table_set(&table, 1, card_of(1, 4));
    compare_in_orders(&table, FBY_E_CONFIG, "ranks: rank 0 2, rank 1 4; accepted: 2");
    table_set(&table, 0, card_of(0, 2));
    table_set(&table, 1, card_of(3, 4));
    table.card[0] = table.message[0].bytes;
    table.card[1] = table.message[1].bytes;
    table.length[0] = table.message[0].length;
    table.length[1] = table.message[1].length;
    compare_in_orders(&table, FBY_E_CONFIG, "a card of rank 3 of 4 came; this group has ranks 0 to 1");
    table_free(&table);
    table_make(&table, 2);
    table_set(&table, 1, card_of(0, 2));
    compare_in_orders(&table, FBY_E_CONFIG, "rank 0 has two cards");
    table_free(&table);
}

static void test_a_long_text_is_cut_and_ends(void **state)
{
    (void)state;
    table_t table;
    table_make(&table, 2);
    fby_card_t *card = card_of(1, 2);
    assert_int_equal(fby_card_set(card, "model.kv_dtype", "f16", 0), 0);
    table_set(&table, 1, card);
    memset(table.text, 'x', sizeof(table.text));
    assert_int_equal(fby_cards_compare(table.card, table.length, 2, NULL, table.text, 10), FBY_E_CONFIG);
    assert_string_equal(table.text, "model.kv_");
    assert_int_equal(table.text[10], 'x');
    assert_int_equal(fby_cards_compare(table.card, table.length, 2, NULL, NULL, 0), FBY_E_CONFIG);
    table_free(&table);
}

static void test_a_full_card_fits_and_no_more(void **state)
{
    (void)state;
    fby_card_t *card = NULL;
    char name[FBY_CARD_NAME_BYTES + 2], value[FBY_CARD_VALUE_BYTES + 2];
    memset(value, 'v', sizeof(value));
    value[FBY_CARD_VALUE_BYTES] = '\0';
    assert_int_equal(fby_card_create(0, 1, 1, &card), 0);
    for (uint32_t i = 0; i < FBY_CARD_FIELDS; i++) {
        snprintf(name, sizeof(name), "%063u", i);
        assert_int_equal(fby_card_set(card, name, value, 0), 0);
    }
    assert_int_equal(fby_card_set(card, "one-more", "", 0), -ENOSPC);
    assert_int_equal(fby_card_set(card, name, "", 0), 0); /* again is fine */
    assert_int_equal(fby_card_set(card, name, value, 0), 0);
    rig_message_t message = rig_card_message(card);
    assert_true(message.length <= FBY_CARD_BYTES);
    fby_message_t about = {.size = sizeof(about)};
    assert_int_equal(fby_message_parse(message.bytes, message.length, &about), 0);
    assert_int_equal(about.type, FBY_MESSAGE_CARD);
    assert_int_equal(about.count, FBY_CARD_FIELDS);
    assert_int_equal(about.incarnation, 1);
    rig_message_free(&message);
    fby_card_free(card);
}

static void test_wrong_arguments_are_named(void **state)
{
    (void)state;
    fby_card_t *card = NULL;
    char text[FBY_CARD_VALUE_BYTES + 2];
    fby_model_t model = model_of_engine();
    fby_pool_t pool = pool_of_engine();
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(fby_card_create(2, 2, 1, &card), -EINVAL);
    assert_string_equal(fby_last_error(), "rank is 2; accepted: below ranks");
    assert_int_equal(fby_card_create(0, 0, 1, &card), -EINVAL);
    assert_int_equal(fby_card_create(0, 1, 0, &card), -EINVAL);
    assert_int_equal(fby_card_create(0, 1, 1, NULL), -EINVAL);
    assert_int_equal(fby_card_create(0, 1, 1, &card), 0);
    assert_int_equal(fby_card_set(card, "", "", 0), -EINVAL);
    assert_int_equal(fby_card_set(card, "a b", "", 0), -EINVAL);
    assert_int_equal(fby_card_set(card, text, "", 0), -EINVAL);
    rig_assert_detail("accepted: 1 to 63");
    assert_int_equal(fby_card_set(card, "a", text, 0), -EINVAL);
    assert_int_equal(fby_card_set(card, "a", "line\n", 0), -EINVAL);
    rig_assert_detail("value of a;");
    assert_int_equal(fby_card_set(card, "a", NULL, 0), -EINVAL);
    assert_int_equal(fby_card_set(card, "a", "", 2), -EINVAL);
    assert_int_equal(fby_card_set_digest(card, "a", NULL, 1, 0), -EINVAL);
    model.size = 0;
    assert_int_equal(fby_card_set_model(card, &model), -EINVAL);
    pool.groups = 9;
    assert_int_equal(fby_card_set_pool(card, &pool), -EINVAL);
    assert_int_equal(fby_card_encode(card, NULL, 1, NULL), -EINVAL);
    assert_int_equal(fby_cards_compare(NULL, NULL, 1, NULL, NULL, 0), -EINVAL);
    fby_card_free(card);
    fby_card_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_cards_give_all_ranks_the_same_group),
        cmocka_unit_test(test_a_restarted_rank_gives_the_group_another_incarnation),
        cmocka_unit_test(test_every_field_that_differs_is_named_with_all_values),
        cmocka_unit_test(test_a_field_that_one_rank_lacks_is_named),
        cmocka_unit_test(test_the_first_of_several_differences_is_named),
        cmocka_unit_test(test_the_first_name_counts_and_not_the_first_rank),
        cmocka_unit_test(test_a_field_is_compared_unless_both_say_it_may_differ),
        cmocka_unit_test(test_cards_that_did_not_come_are_named_by_rank),
        cmocka_unit_test(test_a_damaged_card_is_named_wherever_it_was_damaged),
        cmocka_unit_test(test_contents_that_no_card_has_are_refused),
        cmocka_unit_test(test_another_protocol_is_named),
        cmocka_unit_test(test_wrong_rank_numbers_are_named),
        cmocka_unit_test(test_a_long_text_is_cut_and_ends),
        cmocka_unit_test(test_a_full_card_fits_and_no_more),
        cmocka_unit_test(test_wrong_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
