#include "rig.h"

#define B ((uint64_t)RIG_SLOT_BYTES)

enum { SLOTS = 64, LONG = 65536 };

static int open_with(void **state, uint32_t slots)
{
    rig_t *rig = test_calloc(1, sizeof(*rig));
    rig_open(rig, FBY_EVICT_LRU, slots, NULL);
    *state = rig;
    return 0;
}

static int setup(void **state)
{
    return open_with(state, SLOTS);
}

static int setup_long(void **state)
{
    return open_with(state, LONG);
}

static int teardown(void **state)
{
    rig_t *rig = *state;
    rig_close(rig);
    test_free(rig);
    return 0;
}

static uint64_t charged(const rig_t *rig, fby_pin_class_t class_)
{
    return fby_index_charged_bytes(rig->index, class_);
}

static uint32_t publish(rig_t *rig, uint32_t name, uint32_t n)
{
    fby_hash_t *hashes = test_calloc(n, sizeof(*hashes));
    rig_chain(name, hashes, n);
    uint32_t node = rig_publish(rig, hashes, n);
    test_free(hashes);
    return node;
}

static void a_pin_protects_all_ancestors_and_nothing_below(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[8];
    rig_chain(1, hashes, 8);
    rig_publish(rig, hashes, 8);
    fby_index_pin(rig->index, fby_index_find(rig->index, &hashes[4]), FBY_PIN_HOLD);
    assert_int_equal(charged(rig, FBY_PIN_HOLD), 5 * B);
    assert_int_equal(fby_index_evictable(rig->index, 0), 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(rig_evict_one(rig));
    }
    assert_false(rig_evict_one(rig));
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(rig_has(rig, &hashes[i]), i <= 4);
    }
    rig_check(rig);
}

static void overlapping_pins_charge_each_block_once_per_class(void **state)
{
    rig_t *rig = *state;
    fby_hash_t left[6], right[6];
    rig_chain(1, left, 6);
    memcpy(right, left, 3 * sizeof(*left));
    for (uint32_t i = 3; i < 6; i++) {
        right[i] = rig_hash(&right[i - 1], 77); /* shares blocks 0..2 */
    }
    uint32_t a = rig_publish(rig, left, 6), b = rig_publish(rig, right, 6);
    for (uint32_t i = 0; i < 10; i++) {
        fby_index_pin(rig->index, a, FBY_PIN_SESSION);
        fby_index_pin(rig->index, b, FBY_PIN_SESSION);
        fby_index_pin(rig->index, b, FBY_PIN_HOLD);
    }
    assert_int_equal(charged(rig, FBY_PIN_SESSION), 9 * B);
    assert_int_equal(charged(rig, FBY_PIN_HOLD), 6 * B);
    assert_int_equal(fby_index_pins(rig->index, a, FBY_PIN_SESSION), 10);
    for (uint32_t i = 0; i < 10; i++) {
        fby_index_unpin(rig->index, a, FBY_PIN_SESSION, false);
    }
    assert_int_equal(charged(rig, FBY_PIN_SESSION), 6 * B);
    assert_int_equal(fby_index_evictable(rig->index, 0), 3);
    assert_true(fby_index_is_charged(rig->index, b, FBY_PIN_SESSION));
    assert_false(fby_index_is_charged(rig->index, a, FBY_PIN_SESSION));
    rig_check(rig);
}

static void a_write_pin_charges_its_block_alone_and_still_protects_the_chain(void **state)
{
    rig_t *rig = *state;
    uint32_t node = publish(rig, 1, 8);
    fby_index_pin(rig->index, node, FBY_PIN_WRITE);
    fby_index_pin(rig->index, node, FBY_PIN_WRITE);
    assert_int_equal(charged(rig, FBY_PIN_WRITE), B);
    assert_int_equal(charged(rig, FBY_PIN_SESSION), 0);
    assert_int_equal(fby_index_evictable(rig->index, 0), 0);
    assert_false(rig_evict_one(rig));
    fby_index_unpin(rig->index, node, FBY_PIN_WRITE, false);
    assert_false(rig_evict_one(rig));
    fby_index_unpin(rig->index, node, FBY_PIN_WRITE, false);
    assert_int_equal(charged(rig, FBY_PIN_WRITE), 0);
    assert_true(rig_evict_one(rig));
    rig_check(rig);
}

static void moving_a_pin_down_by_one_block_never_uncovers_the_prefix(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[6];
    rig_chain(1, hashes, 6);
    uint32_t node = rig_insert(rig, FBY_NONE, &hashes[0]);
    fby_index_pin(rig->index, node, FBY_PIN_SESSION);
    for (uint32_t i = 1; i < 6; i++) {
        uint32_t child = rig_insert(rig, node, &hashes[i]);
        fby_index_pin(rig->index, child, FBY_PIN_SESSION);
        fby_index_unpin(rig->index, node, FBY_PIN_SESSION, false);
        node = child;
        assert_int_equal(charged(rig, FBY_PIN_SESSION), (i + 1) * B);
        assert_int_equal(fby_index_evictable(rig->index, 0), 0);
        rig_check(rig);
    }
}

static void the_estimate_is_what_a_pin_would_add(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[8];
    rig_chain(1, hashes, 8);
    uint32_t node = rig_publish(rig, hashes, 8);
    assert_int_equal(fby_index_charge_estimate(rig->index, node, FBY_PIN_HOLD), 8 * B);
    fby_index_pin(rig->index, fby_index_find(rig->index, &hashes[2]), FBY_PIN_HOLD);
    assert_int_equal(fby_index_charge_estimate(rig->index, node, FBY_PIN_HOLD), 5 * B);
    assert_int_equal(fby_index_charge_estimate(rig->index, node, FBY_PIN_SESSION), 8 * B);
    assert_int_equal(fby_index_charge_estimate(rig->index, node, FBY_PIN_WRITE), B);
    fby_index_pin(rig->index, node, FBY_PIN_HOLD);
    assert_int_equal(charged(rig, FBY_PIN_HOLD), 8 * B);
    assert_int_equal(fby_index_charge_estimate(rig->index, node, FBY_PIN_HOLD), 0);
}

static void an_unpin_without_a_pin_is_refused(void **state)
{
    rig_t *rig = *state;
    uint32_t node = publish(rig, 1, 2);
    fby_index_unpin(rig->index, node, FBY_PIN_HOLD, false);
    assert_int_equal(rig->slots.violations, 1);
    fby_index_pin(rig->index, SLOTS, FBY_PIN_HOLD);
    assert_int_equal(rig->slots.violations, 2);
    rig->slots.violations = 0;
    assert_int_equal(charged(rig, FBY_PIN_HOLD), 0);
    rig_check(rig);
}

/* ---- A million tokens ---- */

static void a_long_pin_walks_256_blocks_a_call_and_is_charged_in_full_at_once(void **state)
{
    rig_t *rig = *state;
    uint32_t node = publish(rig, 1, LONG);
    uint64_t ticket = fby_index_pin(rig->index, node, FBY_PIN_SESSION);
    uint32_t walked = rig->index->charged[FBY_PIN_SESSION];
    assert_int_equal(walked, FBY_WALK_STEP);
    while (fby_index_walking(rig->index)) {
        assert_false(fby_index_charged(rig->index, ticket));
        assert_int_equal(charged(rig, FBY_PIN_SESSION), LONG * B);
        assert_int_equal(fby_index_evictable(rig->index, 0), 0);
        fby_index_walk(rig->index);
        uint32_t now = rig->index->charged[FBY_PIN_SESSION];
        assert_int_equal(now - walked, FBY_WALK_STEP);
        walked = now;
    }
    assert_int_equal(walked, LONG);
    assert_true(fby_index_charged(rig->index, ticket));
    rig_check(rig);
}

static void a_walk_that_meets_charged_blocks_gives_the_rest_back(void **state)
{
    rig_t *rig = *state;
    fby_hash_t *hashes = test_calloc(LONG, sizeof(*hashes));
    rig_chain(1, hashes, LONG);
    uint32_t node = rig_publish(rig, hashes, 2000);
    fby_index_pin(rig->index, fby_index_find(rig->index, &hashes[999]), FBY_PIN_SESSION);
    rig_walk(rig);
    assert_int_equal(charged(rig, FBY_PIN_SESSION), 1000 * B);
    fby_index_pin(rig->index, node, FBY_PIN_SESSION);
    /* 256 walked, 1,744 may follow. */
    assert_int_equal(charged(rig, FBY_PIN_SESSION), (1000 + 256 + 1744) * B);
    assert_int_equal(fby_index_charge_estimate(rig->index, node, FBY_PIN_HOLD), 2000 * B);
    rig_walk(rig);
    assert_int_equal(charged(rig, FBY_PIN_SESSION), 2000 * B);
    rig_check(rig);
    test_free(hashes);
}

static void an_unpin_may_overtake_its_own_pin(void **state)
{
    rig_t *rig = *state;
    uint32_t node = publish(rig, 1, LONG);
    for (uint32_t walks = 0; walks < 4; walks++) {
        fby_index_pin(rig->index, node, FBY_PIN_SESSION);
        for (uint32_t i = 0; i < walks; i++) {
            fby_index_walk(rig->index);
        }
        fby_index_unpin(rig->index, node, FBY_PIN_SESSION, false);
        uint64_t before = charged(rig, FBY_PIN_SESSION);
        while (fby_index_walk(rig->index)) {
            assert_true(charged(rig, FBY_PIN_SESSION) <= before); /* given back, never taken again */
            before = charged(rig, FBY_PIN_SESSION);
        }
        assert_int_equal(charged(rig, FBY_PIN_SESSION), 0);
        assert_int_equal(fby_index_evictable(rig->index, 0), LONG);
        rig_check(rig);
    }
    /* Overtaken or not, the whole chain counts as used: the tail is the deepest block. */
    fby_hash_t last = *fby_index_hash(rig->index, node);
    assert_true(rig_evict_one(rig));
    assert_false(rig_has(rig, &last));
}

/* The -1 comes up by a short branch before the +1, which rests at block 743, has passed: the count goes below zero, and
   what the +1 would have taken off the list and the -1 put back in front is used all the same. */
static void an_overtaken_charge_counts_as_a_use(void **state)
{
    rig_t *rig = *state;
    fby_hash_t *hashes = test_calloc(1000, sizeof(*hashes));
    rig_chain(1, hashes, 1000);
    uint32_t node = rig_publish(rig, hashes, 1000);
    fby_hash_t branch = rig_hash(&hashes[744], 5);
    publish(rig, 2, 1); /* used later than the chain so far */
    uint32_t low = fby_index_find(rig->index, &hashes[743]);
    fby_index_pin(rig->index, node, FBY_PIN_SESSION);
    uint32_t child = rig_insert(rig, fby_index_find(rig->index, &hashes[744]), &branch);
    fby_index_pin(rig->index, child, FBY_PIN_SESSION);
    fby_index_unpin(rig->index, node, FBY_PIN_SESSION, false);
    fby_index_unpin(rig->index, child, FBY_PIN_SESSION, false);
    assert_int_equal(rig->index->nodes[low].refs[FBY_REF_SESSION], -1);
    rig_check(rig);
    rig_walk(rig);
    assert_int_equal(rig->index->nodes[low].refs[FBY_REF_SESSION], 0);
    assert_int_equal(charged(rig, FBY_PIN_SESSION), 0);
    rig_check(rig); /* no parent is older than its child */
    test_free(hashes);
}

/* The blocks that a pending walk has not reached lie on the list without being leaves, or are even leaves when their
   child went: the walk's place stays. */
static void eviction_goes_around_a_pending_walk(void **state)
{
    rig_t *rig = *state;
    fby_hash_t *hashes = test_calloc(1000, sizeof(*hashes));
    rig_chain(1, hashes, 1000);
    uint32_t node = rig_publish(rig, hashes, 1000), other = publish(rig, 2, 1);
    fby_hash_t victim = *fby_index_hash(rig->index, other);
    fby_index_pin(rig->index, node, FBY_PIN_SESSION); /* 256 blocks */
    uint32_t evictions = 0;
    while (fby_index_walking(rig->index)) {
        /* 744 blocks are in the way of the only victim; each call moves at most 256 of them. */
        evictions += rig_evict_one(rig);
        fby_index_walk(rig->index);
    }
    evictions += evictions == 0 && rig_evict_one(rig);
    assert_int_equal(evictions, 1);
    assert_false(rig_has(rig, &victim));
    assert_false(rig_evict_one(rig));
    assert_int_equal(charged(rig, FBY_PIN_SESSION), 1000 * B);
    rig_check(rig);
    test_free(hashes);
}

/* A call moves no more blocks out of the way than a walk may pass; the next call goes on. */
static bool evict_patiently(rig_t *rig)
{
    bool evicted = false;
    for (uint32_t i = 0; i < 16 && !evicted; i++) {
        evicted = rig_evict_one(rig);
    }
    return evicted;
}

static void a_walk_keeps_the_block_that_it_stands_on(void **state)
{
    rig_t *rig = *state;
    rig->index->walk_step = 2;
    fby_hash_t older[2], hashes[8];
    rig_chain(2, older, 2);
    rig_publish(rig, older, 2);
    rig_chain(1, hashes, 8);
    uint32_t node = rig_publish(rig, hashes, 8);
    fby_index_pin(rig->index, node, FBY_PIN_SESSION);          /* blocks 7, 6; stands on 5 */
    fby_index_unpin(rig->index, node, FBY_PIN_SESSION, false); /* 7, 6; then behind the first, on 5 */
    assert_true(evict_patiently(rig));
    assert_true(evict_patiently(rig));
    assert_false(rig_has(rig, &older[0]));
    assert_false(evict_patiently(rig)); /* 5 to 0 lie at the tail, and nobody goes past them */
    assert_true(rig_has(rig, &hashes[5]));
    rig_walk(rig);
    assert_int_equal(fby_index_evictable(rig->index, 0), 8);
    assert_true(rig_evict_one(rig));
    assert_false(rig_has(rig, &hashes[7]));
    rig_check(rig);
}

static void a_block_published_under_a_pending_charge_charges_ahead_of_it(void **state)
{
    rig_t *rig = *state;
    rig->index->walk_step = 2;
    fby_hash_t hashes[8];
    rig_chain(1, hashes, 8);
    uint32_t node = rig_publish(rig, hashes, 7);
    uint64_t first = fby_index_pin(rig->index, node, FBY_PIN_SESSION);
    uint32_t middle = fby_index_parent(rig->index, fby_index_parent(rig->index, node));
    fby_hash_t branch = rig_hash(fby_index_hash(rig->index, middle), 5);
    uint32_t child = rig_insert(rig, middle, &branch); /* its parent's charge is on the way */
    fby_index_pin(rig->index, child, FBY_PIN_SESSION);
    rig_check(rig);
    rig_walk(rig);
    assert_true(fby_index_charged(rig->index, first));
    assert_int_equal(charged(rig, FBY_PIN_SESSION), 8 * B);
    fby_index_unpin(rig->index, node, FBY_PIN_SESSION, false);
    rig_walk(rig);
    assert_int_equal(charged(rig, FBY_PIN_SESSION), 6 * B);
    rig_check(rig);
}

static void more_walks_than_can_rest_are_finished_on_the_spot(void **state)
{
    rig_t *rig = *state;
    uint32_t node = publish(rig, 1, 600), chains = 0;
    for (; chains < FBY_WALKS + 50; chains++) {
        /* Pin and unpin leave a pair of walks behind, until there is no place left. */
        fby_index_pin(rig->index, node, FBY_PIN_SESSION);
        fby_index_unpin(rig->index, node, FBY_PIN_SESSION, false);
        assert_true(rig->index->walk_count <= FBY_WALKS);
    }
    assert_int_equal(rig->index->walk_count, FBY_WALKS);
    rig_check(rig);
    rig_walk(rig);
    assert_int_equal(charged(rig, FBY_PIN_SESSION), 0);
    rig_check(rig);
}

static void tickets_are_honoured_in_order(void **state)
{
    rig_t *rig = *state;
    uint32_t a = publish(rig, 1, 700), b = publish(rig, 2, 700), c = publish(rig, 3, 10);
    uint64_t first = fby_index_pin(rig->index, a, FBY_PIN_SESSION);
    uint64_t second = fby_index_pin(rig->index, b, FBY_PIN_SESSION);
    assert_true(fby_index_charged(rig->index, fby_index_pin(rig->index, c, FBY_PIN_SESSION))); /* short: at once */
    fby_index_walk(rig->index);
    fby_index_walk(rig->index);
    assert_true(fby_index_charged(rig->index, first));
    assert_false(fby_index_charged(rig->index, second));
    rig_walk(rig);
    assert_true(fby_index_charged(rig->index, second));
}

int main(void)
{
#define SHORT(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define LONG_CHAIN(name) cmocka_unit_test_setup_teardown(name, setup_long, teardown)
    const struct CMUnitTest tests[] = {
        SHORT(a_pin_protects_all_ancestors_and_nothing_below),
        SHORT(overlapping_pins_charge_each_block_once_per_class),
        SHORT(a_write_pin_charges_its_block_alone_and_still_protects_the_chain),
        SHORT(moving_a_pin_down_by_one_block_never_uncovers_the_prefix),
        SHORT(the_estimate_is_what_a_pin_would_add),
        SHORT(an_unpin_without_a_pin_is_refused),
        LONG_CHAIN(a_long_pin_walks_256_blocks_a_call_and_is_charged_in_full_at_once),
        LONG_CHAIN(a_walk_that_meets_charged_blocks_gives_the_rest_back),
        LONG_CHAIN(an_unpin_may_overtake_its_own_pin),
        LONG_CHAIN(an_overtaken_charge_counts_as_a_use),
        LONG_CHAIN(eviction_goes_around_a_pending_walk),
        SHORT(a_walk_keeps_the_block_that_it_stands_on),
        SHORT(a_block_published_under_a_pending_charge_charges_ahead_of_it),
        LONG_CHAIN(more_walks_than_can_rest_are_finished_on_the_spot),
        LONG_CHAIN(tickets_are_honoured_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
