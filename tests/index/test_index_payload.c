#include "rig.h"

#define B ((uint64_t)RIG_SLOT_BYTES)
#define P ((uint64_t)RIG_SLOT_BYTES / 4)

enum { SLOTS = 64, WINDOW = 1, STATE = 2, WINDOW_SLOTS = 48, STATE_SLOTS = 4 };

static int setup(void **state)
{
    static const rig_trailing_t trailing[] = {{4, WINDOW_SLOTS}, {1, STATE_SLOTS}, {0, 0}};
    rig_t *rig = test_calloc(1, sizeof(*rig));
    rig_open(rig, FBY_EVICT_LRU, SLOTS, trailing);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_t *rig = *state;
    rig_close(rig);
    test_free(rig);
    return 0;
}

static uint32_t node_at(const rig_t *rig, const fby_hash_t *hashes, uint32_t block)
{
    uint32_t node = fby_index_find(rig->index, &hashes[block]);
    assert_int_not_equal(node, FBY_NONE);
    return node;
}

/* A chain with window payloads on [from, n) and a state at the end of each block named, ended by 0. */
static void publish(rig_t *rig, uint32_t name, fby_hash_t *hashes, uint32_t n, uint32_t from, const uint32_t *ends)
{
    rig_chain(name, hashes, n);
    uint32_t last = rig_publish(rig, hashes, n);
    fby_index_pin(rig->index, last, FBY_PIN_SESSION);
    for (uint32_t b = from; b < n; b++) {
        rig_attach(rig, node_at(rig, hashes, b), WINDOW);
    }
    for (; *ends > 0; ends++) {
        rig_attach(rig, node_at(rig, hashes, *ends - 1), STATE);
    }
    fby_index_unpin(rig->index, last, FBY_PIN_SESSION, false);
}

static void a_payload_attaches_once(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[2];
    rig_chain(1, hashes, 2);
    uint32_t node = rig_publish(rig, hashes, 2);
    rig_attach(rig, node, STATE);
    uint32_t slot = fby_index_slot(rig->index, node, STATE), spare = rig_take(rig, STATE);
    assert_int_equal(rig->slots.slot[slot].state, FBY_SLOT_RESIDENT);
    assert_false(fby_index_attach(rig->index, node, STATE, spare));
    assert_int_equal(rig->slots.slot[spare].state, FBY_SLOT_STAGING);
    assert_int_equal(fby_index_slot(rig->index, node, STATE), slot);
    assert_false(fby_index_attach(rig->index, node, 0, spare)); /* `all` payloads come with the block */
    rig_check(rig);
}

static void a_checkpoint_needs_every_group(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[32];
    static const uint32_t ends[] = {16, 32, 0};
    publish(rig, 1, hashes, 32, 12, ends);
    uint32_t node, last;
    assert_int_equal(fby_index_match(rig->index, hashes, 0, 32, &node), 32);
    assert_int_equal(fby_index_checkpoint(rig->index, 32, node, &last), 32);
    assert_int_equal(last, node);
    uint32_t parent = fby_index_parent(rig->index, node);
    assert_int_equal(fby_index_checkpoint(rig->index, 31, parent, &last), 16);
    assert_int_equal(last, node_at(rig, hashes, 15));
    assert_int_equal(fby_index_checkpoint(rig->index, 15, node_at(rig, hashes, 14), &last), 0);
    assert_int_equal(last, FBY_NONE);
}

static void random_residency_equals_brute_force(void **state)
{
    (void)state;
    static const rig_trailing_t trailing[] = {{3, 32}, {1, 32}, {0, 0}};
    uint64_t random = 11;
    for (uint32_t round = 0; round < 10000; round++) {
        rig_t rig;
        fby_hash_t hashes[12];
        bool have[3][12] = {{false}};
        uint32_t n = 1 + unit_below(&random, 12), density = 1 + unit_below(&random, 9), last;
        rig_open(&rig, FBY_EVICT_LRU, 16, trailing);
        rig_chain(round, hashes, n);
        uint32_t node = rig_publish(&rig, hashes, n);
        for (uint32_t i = 0; i < 2 * n; i++) {
            uint32_t g = 1 + i % 2, b = i / 2;
            have[g][b] = unit_below(&random, 10) < density;
            if (have[g][b]) {
                rig_attach(&rig, node_at(&rig, hashes, b), g);
            }
        }
        uint32_t expected = n;
        for (; expected > 0; expected--) {
            bool whole = have[2][expected - 1];
            for (uint32_t b = expected > 3 ? expected - 3 : 0; b < expected; b++) {
                whole = whole && have[1][b];
            }
            if (whole) {
                break;
            }
        }
        assert_int_equal(fby_index_checkpoint(rig.index, n, node, &last), expected);
        assert_int_equal(last, expected > 0 ? node_at(&rig, hashes, expected - 1) : FBY_NONE);
        rig_close(&rig);
    }
}

static void payload_pins_are_flat_and_by_class(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[8];
    static const uint32_t ends[] = {8, 0};
    publish(rig, 1, hashes, 8, 4, ends);
    uint32_t node = node_at(rig, hashes, 7);
    fby_index_pin_payload(rig->index, node, STATE, FBY_PIN_SESSION);
    fby_index_pin_payload(rig->index, node, STATE, FBY_PIN_SESSION);
    fby_index_pin_payload(rig->index, node, STATE, FBY_PIN_HOLD);
    assert_int_equal(fby_index_charged_bytes(rig->index, FBY_PIN_SESSION), P);
    assert_int_equal(fby_index_charged_bytes(rig->index, FBY_PIN_HOLD), P);
    assert_int_equal(fby_index_evictable(rig->index, STATE), 0);
    assert_int_equal(fby_index_evictable(rig->index, 0), 0);
    fby_index_unpin_payload(rig->index, node, STATE, FBY_PIN_SESSION);
    fby_index_unpin_payload(rig->index, node, STATE, FBY_PIN_SESSION);
    assert_int_equal(fby_index_charged_bytes(rig->index, FBY_PIN_SESSION), 0);
    assert_int_equal(fby_index_evictable(rig->index, STATE), 0);
    fby_index_unpin_payload(rig->index, node, STATE, FBY_PIN_HOLD);
    assert_int_equal(fby_index_evictable(rig->index, STATE), 1);
    fby_index_unpin_payload(rig->index, node, STATE, FBY_PIN_HOLD);
    assert_int_equal(rig->slots.violations, 1);
    rig->slots.violations = 0;
    rig_check(rig);
}

/* Case B09: exactly the recorded set is released. */
static void releasing_one_reader_leaves_the_others_pins(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[32];
    static const uint32_t ends[] = {32, 0};
    publish(rig, 1, hashes, 32, 0, ends);
    uint32_t last = node_at(rig, hashes, 31);
    fby_index_pin(rig->index, last, FBY_PIN_SESSION);
    for (uint32_t b = 28; b < 32; b++) {
        fby_index_pin_payload(rig->index, node_at(rig, hashes, b), WINDOW, FBY_PIN_SESSION);
    }
    for (uint32_t b = 0; b < 4; b++) {
        fby_index_pin_payload(rig->index, node_at(rig, hashes, b), WINDOW, FBY_PIN_SESSION);
    }
    assert_int_equal(fby_index_charged_bytes(rig->index, FBY_PIN_SESSION), 32 * B + 8 * P);
    fby_index_unpin(rig->index, last, FBY_PIN_SESSION, false);
    for (uint32_t b = 28; b < 32; b++) {
        fby_index_unpin_payload(rig->index, node_at(rig, hashes, b), WINDOW, FBY_PIN_SESSION);
    }
    /* 32 blocks and 4 payloads less: 36 unpins. */
    assert_int_equal(fby_index_charged_bytes(rig->index, FBY_PIN_SESSION), 4 * P);
    assert_int_equal(fby_index_evictable(rig->index, WINDOW), 28);
    assert_int_equal(fby_index_evictable(rig->index, 0), 28);
    assert_int_equal(rig->slots.violations, 0);
    rig_check(rig);
}

/* Case F07: a block goes only when nothing of it is in use. */
static void a_pinned_state_keeps_its_block(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[16];
    static const uint32_t ends[] = {8, 16, 0};
    publish(rig, 1, hashes, 16, 4, ends);
    fby_index_pin_payload(rig->index, node_at(rig, hashes, 7), STATE, FBY_PIN_HOLD);
    uint32_t evicted = 0;
    while (rig_evict_one(rig)) {
        evicted++;
    }
    assert_int_equal(evicted, 8);
    assert_true(rig_has(rig, &hashes[7]));
    fby_index_unpin_payload(rig->index, node_at(rig, hashes, 7), STATE, FBY_PIN_HOLD);
    while (rig_evict_one(rig)) {
        evicted++;
    }
    assert_int_equal(evicted, 16);
    assert_int_equal(fby_slots_free(&rig->slots, STATE), STATE_SLOTS);
    assert_int_equal(fby_slots_free(&rig->slots, WINDOW), WINDOW_SLOTS);
    rig_check(rig);
}

/* Case F11: the end moves from 32 to 24, the pins with it. */
static void pins_move_with_the_end(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[32];
    static const uint32_t ends[] = {24, 32, 0};
    publish(rig, 1, hashes, 32, 20, ends);
    for (uint32_t b = 28; b < 32; b++) {
        fby_index_pin_payload(rig->index, node_at(rig, hashes, b), WINDOW, FBY_PIN_SESSION);
    }
    for (uint32_t b = 20; b < 24; b++) {
        fby_index_pin_payload(rig->index, node_at(rig, hashes, b), WINDOW, FBY_PIN_SESSION);
    }
    for (uint32_t b = 28; b < 32; b++) {
        fby_index_unpin_payload(rig->index, node_at(rig, hashes, b), WINDOW, FBY_PIN_SESSION);
    }
    assert_int_equal(fby_index_charged_bytes(rig->index, FBY_PIN_SESSION), 4 * P);
    assert_int_equal(fby_index_evictable(rig->index, 0), 8);
    for (uint32_t b = 20; b < 24; b++) {
        fby_index_unpin_payload(rig->index, node_at(rig, hashes, b), WINDOW, FBY_PIN_SESSION);
    }
    assert_int_equal(fby_index_charged_bytes(rig->index, FBY_PIN_SESSION), 0);
    rig_check(rig);
}

static void the_least_recently_used_payload_goes_alone(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[16];
    static const uint32_t ends[] = {4, 8, 12, 16, 0};
    publish(rig, 1, hashes, 16, 16, ends);
    /* Used again: the state at 4. */
    fby_index_pin_payload(rig->index, node_at(rig, hashes, 3), STATE, FBY_PIN_HOLD);
    fby_index_unpin_payload(rig->index, node_at(rig, hashes, 3), STATE, FBY_PIN_HOLD);
    assert_true(fby_index_evict(rig->index, STATE));
    assert_int_equal(fby_index_slot(rig->index, node_at(rig, hashes, 7), STATE), FBY_NONE);
    assert_int_equal(rig->index->stats.payload_evicted, 1);
    assert_int_equal(rig->removed, 0);
    rig_check(rig);
}

static void no_payload_goes_while_all_are_pinned(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[16];
    static const uint32_t ends[] = {4, 8, 12, 16, 0};
    publish(rig, 1, hashes, 16, 16, ends);
    for (uint32_t b = 3; b < 16; b += 4) {
        fby_index_pin_payload(rig->index, node_at(rig, hashes, b), STATE, FBY_PIN_SESSION);
    }
    assert_false(fby_index_evict(rig->index, STATE));
    assert_int_equal(rig->index->stats.payload_evicted, 0);
    rig_check(rig);
}

static void touching_uses_the_payloads_that_the_end_needs(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[16];
    static const uint32_t ends[] = {4, 8, 12, 16, 0};
    publish(rig, 1, hashes, 16, 16, ends);
    fby_index_touch(rig->index, node_at(rig, hashes, 3)); /* the state at 4 was the oldest */
    assert_true(fby_index_evict(rig->index, STATE));
    assert_int_not_equal(fby_index_slot(rig->index, node_at(rig, hashes, 3), STATE), FBY_NONE);
    assert_int_equal(fby_index_slot(rig->index, node_at(rig, hashes, 7), STATE), FBY_NONE);
    rig_check(rig);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_payload_attaches_once),
        TEST(a_checkpoint_needs_every_group),
        TEST(random_residency_equals_brute_force),
        TEST(payload_pins_are_flat_and_by_class),
        TEST(releasing_one_reader_leaves_the_others_pins),
        TEST(a_pinned_state_keeps_its_block),
        TEST(pins_move_with_the_end),
        TEST(the_least_recently_used_payload_goes_alone),
        TEST(no_payload_goes_while_all_are_pinned),
        TEST(touching_uses_the_payloads_that_the_end_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
