#include "rig.h"

#define B ((uint64_t)RIG_SLOT_BYTES)

enum { SLOTS = 1024, STATE_SLOTS = 8 };

static int setup(void **state)
{
    static const rig_trailing_t trailing[] = {{1, STATE_SLOTS}, {0, 0}};
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

static void sweep(rig_t *rig)
{
    while (fby_index_sweep(rig->index)) {
        rig_check(rig);
    }
    rig_check(rig);
}

static uint32_t in_state(const rig_t *rig, uint32_t group, fby_slot_state_t slot_state)
{
    return rig->slots.in_state[group][slot_state];
}

static void nothing_old_is_found_from_the_call_on(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[10];
    uint32_t node;
    rig_chain(1, hashes, 10);
    rig_publish(rig, hashes, 10);
    fby_index_reset(rig->index);
    assert_int_equal(fby_index_match(rig->index, hashes, 0, 10, &node), 0);
    assert_int_equal(fby_index_find(rig->index, &hashes[0]), FBY_NONE);
    assert_int_equal(rig->index->stats.nodes, 0);
    assert_false(fby_index_clean(rig->index));
    rig_check(rig);
    sweep(rig);
    assert_true(fby_index_clean(rig->index));
    assert_int_equal(fby_slots_free(&rig->slots, 0), SLOTS);
    assert_int_equal(rig->removed, 10);
}

static void a_sweep_looks_at_256_nodes_a_call(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[1000];
    rig_chain(1, hashes, 1000);
    rig_publish(rig, hashes, 1000);
    fby_index_reset(rig->index);
    for (uint32_t freed = FBY_WALK_STEP; freed < 1000; freed += FBY_WALK_STEP) {
        assert_true(fby_index_sweep(rig->index));
        assert_int_equal(fby_slots_free(&rig->slots, 0), SLOTS - 1000 + freed);
        rig_check(rig);
    }
    assert_false(fby_index_sweep(rig->index));
    assert_true(fby_index_clean(rig->index));
}

static void a_pinned_prefix_is_retired_and_freed_at_the_unpin(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[8];
    rig_chain(1, hashes, 8);
    rig_publish(rig, hashes, 8);
    uint32_t node = fby_index_find(rig->index, &hashes[4]);
    fby_index_pin(rig->index, node, FBY_PIN_HOLD);
    fby_index_reset(rig->index);
    sweep(rig);
    assert_false(fby_index_clean(rig->index));
    assert_int_equal(in_state(rig, 0, FBY_SLOT_RETIRED), 5);
    assert_int_equal(in_state(rig, 0, FBY_SLOT_RESIDENT), 0);
    assert_int_equal(fby_slots_free(&rig->slots, 0), SLOTS - 5);
    assert_int_equal(rig->removed, 8);
    /* The reader still has its bytes and its charge. */
    assert_int_equal(rig->slots.slot[fby_index_slot(rig->index, node, 0)].state, FBY_SLOT_RETIRED);
    assert_int_equal(fby_index_charged_bytes(rig->index, FBY_PIN_HOLD), 5 * B);
    assert_int_equal(fby_index_evictable(rig->index, 0), 0);
    fby_index_unpin(rig->index, node, FBY_PIN_HOLD, false);
    assert_int_equal(fby_slots_free(&rig->slots, 0), SLOTS);
    assert_int_equal(fby_index_charged_bytes(rig->index, FBY_PIN_HOLD), 0);
    assert_true(fby_index_clean(rig->index));
    rig_check(rig);
}

static void an_unpin_before_the_sweep_frees_at_once(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[4];
    rig_chain(1, hashes, 4);
    uint32_t node = rig_publish(rig, hashes, 4);
    fby_index_pin(rig->index, node, FBY_PIN_HOLD);
    fby_index_reset(rig->index);
    fby_index_unpin(rig->index, node, FBY_PIN_HOLD, false);
    assert_int_equal(fby_slots_free(&rig->slots, 0), SLOTS);
    assert_int_equal(rig->removed, 4);
    sweep(rig);
    assert_true(fby_index_clean(rig->index));
}

static void a_payload_in_use_is_retired_an_unused_one_is_freed(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[4];
    rig_chain(1, hashes, 4);
    uint32_t node = rig_publish(rig, hashes, 4), middle = fby_index_find(rig->index, &hashes[1]);
    rig_attach(rig, node, 1);
    rig_attach(rig, middle, 1);
    fby_index_pin_payload(rig->index, node, 1, FBY_PIN_HOLD);
    fby_index_reset(rig->index);
    sweep(rig);
    assert_int_equal(in_state(rig, 1, FBY_SLOT_RETIRED), 1);
    assert_int_equal(fby_slots_free(&rig->slots, 1), STATE_SLOTS - 1);
    assert_int_equal(fby_index_slot(rig->index, middle, 1), FBY_NONE);
    fby_index_unpin_payload(rig->index, node, 1, FBY_PIN_HOLD);
    assert_int_equal(fby_slots_free(&rig->slots, 1), STATE_SLOTS);
    assert_true(fby_index_clean(rig->index));
    rig_check(rig);
}

static void the_same_chain_can_be_published_again_beside_its_old_self(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[6];
    rig_chain(1, hashes, 6);
    uint32_t old = rig_publish(rig, hashes, 6);
    fby_index_pin(rig->index, old, FBY_PIN_SESSION);
    fby_index_reset(rig->index);
    /* Not swept yet: the old block's removal must still be told before the new one's publication. */
    uint32_t fresh = rig_publish(rig, hashes, 6);
    assert_int_equal(rig->published, 12);
    assert_int_equal(rig->removed, 6);
    assert_int_not_equal(fresh, old);
    sweep(rig);
    assert_int_equal(rig->removed, 6);
    assert_int_equal(fby_index_find(rig->index, &hashes[5]), fresh);
    fby_index_unpin(rig->index, old, FBY_PIN_SESSION, false);
    assert_true(fby_index_clean(rig->index));
    assert_int_equal(rig->index->stats.nodes, 6);
    rig_check(rig);
}

static void a_reset_with_walks_under_way_finishes_them_first(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[1000];
    rig_chain(1, hashes, 1000);
    uint32_t node = rig_publish(rig, hashes, 1000);
    fby_index_pin(rig->index, node, FBY_PIN_SESSION);
    fby_index_reset(rig->index);
    assert_true(fby_index_walking(rig->index));
    sweep(rig);
    assert_int_equal(in_state(rig, 0, FBY_SLOT_RETIRED), 1000);
    fby_index_unpin(rig->index, node, FBY_PIN_SESSION, false);
    assert_false(fby_index_clean(rig->index)); /* the walk frees 256 blocks a call */
    assert_int_equal(fby_slots_free(&rig->slots, 0), SLOTS - 1000 + FBY_WALK_STEP);
    rig_walk(rig);
    assert_true(fby_index_clean(rig->index));
    assert_int_equal(fby_slots_free(&rig->slots, 0), SLOTS);
    rig_check(rig);
}

/* Protection may be gone from a block that a walk of another class has still to pass. */
static void a_retired_block_waits_for_every_walk(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[401];
    rig_chain(1, hashes, 401);
    uint32_t node = rig_publish(rig, hashes, 401), middle = fby_index_find(rig->index, &hashes[200]);
    fby_index_pin(rig->index, node, FBY_PIN_SESSION);
    fby_index_pin(rig->index, middle, FBY_PIN_HOLD);
    fby_index_reset(rig->index);
    sweep(rig);
    fby_index_unpin(rig->index, node, FBY_PIN_SESSION, false); /* rests at 144, below the hold's end */
    assert_true(fby_index_walking(rig->index));
    fby_index_unpin(rig->index, middle, FBY_PIN_HOLD, false); /* walks up to 0 */
    rig_check(rig);
    rig_walk(rig);
    rig_check(rig);
    assert_true(fby_index_clean(rig->index));
    assert_int_equal(fby_slots_free(&rig->slots, 0), SLOTS);
}

static void eviction_takes_what_the_sweep_has_not_reached(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[SLOTS], fresh = rig_hash(NULL, 9);
    rig_chain(1, hashes, SLOTS);
    rig_publish(rig, hashes, SLOTS);
    fby_index_reset(rig->index);
    assert_int_equal(fby_index_evictable(rig->index, 0), SLOTS);
    assert_true(fby_index_evict(rig->index, 0));
    assert_int_equal(rig->index->stats.evicted, 0); /* swept, not evicted */
    rig_publish(rig, &fresh, 1);
    sweep(rig);
    assert_true(rig_has(rig, &fresh));
    assert_int_equal(fby_slots_free(&rig->slots, 0), SLOTS - 1);
}

static void resets_may_follow_each_other_before_any_sweep(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[5];
    uint32_t nodes[3];
    rig_chain(1, hashes, 5);
    for (uint32_t i = 0; i < 3; i++) {
        nodes[i] = rig_publish(rig, hashes, 5);
        fby_index_pin(rig->index, nodes[i], FBY_PIN_HOLD);
        fby_index_reset(rig->index);
        rig_check(rig);
    }
    sweep(rig);
    assert_int_equal(in_state(rig, 0, FBY_SLOT_RETIRED), 15);
    for (uint32_t i = 0; i < 3; i++) {
        fby_index_unpin(rig->index, nodes[i], FBY_PIN_HOLD, false);
        rig_check(rig);
    }
    assert_true(fby_index_clean(rig->index));
    assert_int_equal(fby_slots_free(&rig->slots, 0), SLOTS);
}

static void an_old_block_takes_no_new_pin_unless_it_is_in_use(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[2];
    rig_chain(1, hashes, 2);
    uint32_t node = rig_publish(rig, hashes, 2);
    fby_index_reset(rig->index);
    fby_index_pin(rig->index, node, FBY_PIN_HOLD);
    assert_int_equal(rig->slots.violations, 1);
    rig->slots.violations = 0;
    assert_false(fby_index_attach(rig->index, node, 1, rig_take(rig, 1)));
    sweep(rig);
    assert_true(fby_index_clean(rig->index));
}

/* The generation is 16 bits wide. */
static void generations_may_come_round(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[3];
    rig_chain(1, hashes, 3);
    uint32_t held = rig_publish(rig, hashes, 3);
    fby_index_pin(rig->index, held, FBY_PIN_HOLD);
    for (uint32_t i = 0; i < 65536 + 2; i++) {
        fby_index_reset(rig->index);
        if (i % 1000 == 0) {
            rig_publish(rig, hashes, 3);
        }
    }
    assert_int_equal(fby_index_find(rig->index, &hashes[0]), FBY_NONE);
    sweep(rig);
    assert_int_equal(in_state(rig, 0, FBY_SLOT_RETIRED), 3);
    fby_index_unpin(rig->index, held, FBY_PIN_HOLD, false);
    assert_true(fby_index_clean(rig->index));
    rig_check(rig);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(nothing_old_is_found_from_the_call_on),
        TEST(a_sweep_looks_at_256_nodes_a_call),
        TEST(a_pinned_prefix_is_retired_and_freed_at_the_unpin),
        TEST(an_unpin_before_the_sweep_frees_at_once),
        TEST(a_payload_in_use_is_retired_an_unused_one_is_freed),
        TEST(the_same_chain_can_be_published_again_beside_its_old_self),
        TEST(a_reset_with_walks_under_way_finishes_them_first),
        TEST(a_retired_block_waits_for_every_walk),
        TEST(eviction_takes_what_the_sweep_has_not_reached),
        TEST(resets_may_follow_each_other_before_any_sweep),
        TEST(an_old_block_takes_no_new_pin_unless_it_is_in_use),
        TEST(generations_may_come_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
