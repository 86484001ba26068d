/* Who goes: the order of every policy, deepest first, cold first, the second chance. */
#include "rig.h"

enum { SLOTS = 64, MOST = 16 };

typedef struct order {
    rig_t rig;
    fby_hash_t named[MOST];
    char names[MOST + 1]; /* names[i] is what named[i] is called */
} order_t;

static void order_open(order_t *order, fby_eviction_t eviction, const rig_trailing_t *trailing)
{
    *order = (order_t){.names = ""};
    rig_open(&order->rig, eviction, SLOTS, trailing);
}

static void order_close(order_t *order)
{
    rig_check(&order->rig);
    rig_close(&order->rig);
}

static void name(order_t *order, const fby_hash_t *hash, char called)
{
    size_t n = strlen(order->names);
    order->named[n] = *hash;
    order->names[n] = called;
}

/* A chain whose blocks are called by the letters of `text`, in order. */
static uint32_t publish(order_t *order, const char *text, fby_hash_t *hashes)
{
    uint32_t n = (uint32_t)strlen(text);
    rig_chain((uint32_t)text[0], hashes, n);
    for (uint32_t i = 0; i < n; i++) {
        name(order, &hashes[i], text[i]);
    }
    return rig_publish(&order->rig, hashes, n);
}

static uint32_t publish_one(order_t *order, char called)
{
    fby_hash_t hash;
    char text[2] = {called, '\0'};
    return publish(order, text, &hash);
}

static void use(order_t *order, uint32_t node)
{
    fby_index_pin(order->rig.index, node, FBY_PIN_HOLD);
    fby_index_unpin(order->rig.index, node, FBY_PIN_HOLD, false);
}

/* Evicts all that can go and expects this order. */
static void expect_order(order_t *order, const char *expected)
{
    char was[MOST + 1] = "";
    for (size_t n = 0; rig_evict_one(&order->rig); n++) {
        for (size_t i = 0; i < strlen(order->names); i++) {
            if (fby_hash_equal(&order->named[i], &order->rig.last_removed)) {
                was[n] = order->names[i];
            }
        }
        rig_check(&order->rig);
    }
    assert_string_equal(was, expected);
}

/* P, Q, R, S published in this order; then Q used twice and P once. */
static void expect_policy(fby_eviction_t eviction, const char *expected)
{
    order_t order;
    order_open(&order, eviction, NULL);
    uint32_t p = publish_one(&order, 'P'), q = publish_one(&order, 'Q');
    publish_one(&order, 'R');
    publish_one(&order, 'S');
    use(&order, q);
    use(&order, q);
    use(&order, p);
    expect_order(&order, expected);
    order_close(&order);
}

static void lru_evicts_what_was_used_longest_ago(void **state)
{
    (void)state;
    expect_policy(FBY_EVICT_LRU, "RSQP");
}

static void mru_evicts_what_was_used_last(void **state)
{
    (void)state;
    expect_policy(FBY_EVICT_MRU, "PQSR");
}

static void fifo_evicts_in_order_of_publication(void **state)
{
    (void)state;
    expect_policy(FBY_EVICT_FIFO, "PQRS");
}

static void filo_evicts_against_the_order_of_publication(void **state)
{
    (void)state;
    expect_policy(FBY_EVICT_FILO, "SRQP");
}

static void lfu_evicts_what_was_used_least(void **state)
{
    (void)state;
    expect_policy(FBY_EVICT_LFU, "RSPQ");
}

static void slru_keeps_what_was_used_twice(void **state)
{
    (void)state;
    order_t order;
    order_open(&order, FBY_EVICT_SLRU, NULL);
    uint32_t p = publish_one(&order, 'P');
    publish_one(&order, 'Q');
    publish_one(&order, 'R');
    use(&order, p);
    publish_one(&order, 'S'); /* used after P, but once only */
    expect_order(&order, "QRSP");
    order_close(&order);
}

static void every_policy_evicts_the_deepest_block_first(void **state)
{
    (void)state;
    for (uint32_t eviction = 0; eviction < FBY_EVICTION_COUNT; eviction++) {
        order_t order;
        fby_hash_t hashes[6];
        order_open(&order, (fby_eviction_t)eviction, NULL);
        publish(&order, "abcdef", hashes);
        expect_order(&order, "fedcba");
        order_close(&order);
    }
}

static void a_shared_prefix_outlives_its_branches(void **state)
{
    (void)state;
    order_t order;
    fby_hash_t left[3], right[3];
    order_open(&order, FBY_EVICT_LRU, NULL);
    publish(&order, "abc", left);
    memcpy(right, left, sizeof(*left));
    right[1] = rig_hash(&left[0], 50);
    right[2] = rig_hash(&right[1], 50);
    name(&order, &right[1], 'y');
    name(&order, &right[2], 'z');
    rig_publish(&order.rig, right, 3);
    expect_order(&order, "cbzya");
    order_close(&order);
}

/* Published without a pin under a block that nobody protects: not newer than it. */
static void an_unpinned_child_never_outlives_its_parents_turn(void **state)
{
    (void)state;
    order_t order;
    fby_hash_t hashes[2], child;
    order_open(&order, FBY_EVICT_LRU, NULL);
    uint32_t parent = publish(&order, "ab", hashes);
    publish_one(&order, 'X');
    child = rig_hash(&hashes[1], 3);
    name(&order, &child, 'c');
    rig_insert(&order.rig, parent, &child);
    expect_order(&order, "cbaX");
    order_close(&order);
}

static void a_touch_counts_as_a_use_of_the_whole_chain(void **state)
{
    (void)state;
    order_t order;
    fby_hash_t hashes[3];
    order_open(&order, FBY_EVICT_LRU, NULL);
    uint32_t node = publish(&order, "abc", hashes);
    publish_one(&order, 'X');
    fby_index_touch(order.rig.index, node);
    expect_order(&order, "Xcba");
    order_close(&order);
}

static void finding_is_not_a_use(void **state)
{
    (void)state;
    order_t order;
    fby_hash_t hashes[3];
    uint32_t node;
    order_open(&order, FBY_EVICT_LRU, NULL);
    publish(&order, "abc", hashes);
    publish_one(&order, 'X');
    fby_index_match(order.rig.index, hashes, 0, 3, &node);
    expect_order(&order, "cbaX");
    order_close(&order);
}

static void cold_blocks_go_first(void **state)
{
    (void)state;
    for (uint32_t eviction = 0; eviction < FBY_EVICTION_COUNT; eviction++) {
        order_t order;
        fby_hash_t hashes[4];
        order_open(&order, (fby_eviction_t)eviction, NULL);
        uint32_t node = publish(&order, "abcd", hashes);
        uint32_t delivered = fby_index_find(order.rig.index, &hashes[1]);
        fby_index_pin(order.rig.index, delivered, FBY_PIN_HOLD);
        fby_index_pin(order.rig.index, node, FBY_PIN_SESSION);
        fby_index_unpin(order.rig.index, node, FBY_PIN_SESSION, true); /* meets the hold at b */
        publish_one(&order, 'X');
        fby_index_unpin(order.rig.index, delivered, FBY_PIN_HOLD, false);
        assert_true(rig_evict_one(&order.rig));
        assert_true(fby_hash_equal(&order.rig.last_removed, &hashes[3]));
        assert_true(rig_evict_one(&order.rig));
        assert_true(fby_hash_equal(&order.rig.last_removed, &hashes[2]));
        order_close(&order);
    }
}

static void a_cold_unpin_leaves_blocks_with_other_children_warm(void **state)
{
    (void)state;
    order_t order;
    fby_hash_t hashes[3], branch;
    order_open(&order, FBY_EVICT_LRU, NULL);
    uint32_t node = publish(&order, "abc", hashes);
    branch = rig_hash(&hashes[1], 3);
    name(&order, &branch, 'x');
    fby_hash_t other[3] = {hashes[0], hashes[1], branch};
    rig_publish(&order.rig, other, 3);
    publish_one(&order, 'Y');
    fby_index_pin(order.rig.index, node, FBY_PIN_SESSION);
    fby_index_unpin(order.rig.index, node, FBY_PIN_SESSION, true);
    expect_order(&order, "cxYba"); /* c alone is cold; a and b were just used */
    order_close(&order);
}

static void a_cold_block_that_is_used_again_is_warm(void **state)
{
    (void)state;
    order_t order;
    order_open(&order, FBY_EVICT_LRU, NULL);
    uint32_t p = publish_one(&order, 'P');
    fby_index_pin(order.rig.index, p, FBY_PIN_SESSION);
    fby_index_unpin(order.rig.index, p, FBY_PIN_SESSION, true);
    publish_one(&order, 'Q');
    use(&order, p);
    expect_order(&order, "QP");
    order_close(&order);
}

static void a_prefetched_block_that_no_hold_covered_is_counted(void **state)
{
    (void)state;
    order_t order;
    order_open(&order, FBY_EVICT_LRU, NULL);
    fby_hash_t a = rig_hash(NULL, 1), b = rig_hash(&a, 1);
    uint32_t slot = rig_take(&order.rig, 0);
    uint32_t first = fby_index_insert(order.rig.index, FBY_NONE, &a, &slot, true);
    slot = rig_take(&order.rig, 0);
    fby_index_insert(order.rig.index, first, &b, &slot, true);
    use(&order, first); /* a hold on a, not on b */
    while (rig_evict_one(&order.rig)) {}
    assert_int_equal(order.rig.index->stats.evicted, 2);
    assert_int_equal(order.rig.index->stats.evicted_before_use, 1);
    order_close(&order);
}

static void eviction_stops_as_soon_as_a_slot_is_free(void **state)
{
    (void)state;
    order_t order;
    order_open(&order, FBY_EVICT_LRU, NULL);
    fby_hash_t hashes[SLOTS];
    rig_chain(1, hashes, SLOTS);
    rig_publish(&order.rig, hashes, SLOTS);
    assert_true(fby_index_evict(order.rig.index, 0));
    assert_true(fby_index_evict(order.rig.index, 0)); /* there is one already */
    assert_int_equal(order.rig.removed, 1);
    order_close(&order);
}

/* ---- Checkpoints ---- */

static const rig_trailing_t snapshots[] = {{1, 16}, {0, 0}};

/* A chain with a snapshot at the end of each block whose letter is upper case. */
static uint32_t publish_checkpoints(order_t *order, const char *text)
{
    fby_hash_t hashes[MOST];
    uint32_t node = publish(order, text, hashes);
    fby_index_pin(order->rig.index, node, FBY_PIN_SESSION);
    for (uint32_t i = 0; text[i] != '\0'; i++) {
        if (text[i] >= 'A' && text[i] <= 'Z') {
            rig_attach(&order->rig, fby_index_find(order->rig.index, &hashes[i]), 1);
        }
    }
    fby_index_unpin(order->rig.index, node, FBY_PIN_SESSION, false);
    return node;
}

static void blocks_beyond_the_last_checkpoint_go_first(void **state)
{
    (void)state;
    for (uint32_t eviction = 0; eviction < FBY_EVICTION_COUNT; eviction++) {
        order_t order;
        order_open(&order, (fby_eviction_t)eviction, snapshots);
        uint32_t kept = publish_checkpoints(&order, "aB");
        publish_checkpoints(&order, "cDef");
        fby_index_pin(order.rig.index, kept, FBY_PIN_HOLD); /* what the policy prefers is not the question here */
        rig_evict_one(&order.rig);
        assert_false(rig_has(&order.rig, &order.named[5]));
        rig_evict_one(&order.rig);
        assert_false(rig_has(&order.rig, &order.named[4]));
        assert_true(rig_has(&order.rig, &order.named[3]));
        order_close(&order);
    }
}

/* B is older, but the only checkpoint of its chain; D lies right above F. */
static void a_sole_checkpoint_gets_one_second_chance(void **state)
{
    (void)state;
    order_t order;
    order_open(&order, FBY_EVICT_LRU, snapshots);
    publish_checkpoints(&order, "aB");
    publish_checkpoints(&order, "cDeF");
    /* F goes though B is older; then e, which ends nothing. Now D is a sole checkpoint and has its own chance. */
    expect_order(&order, "FeBaDc");
    order_close(&order);
}

static void chances_end_when_every_leaf_is_a_sole_checkpoint(void **state)
{
    (void)state;
    for (uint32_t eviction = 0; eviction < FBY_EVICTION_COUNT; eviction++) {
        order_t order;
        order_open(&order, (fby_eviction_t)eviction, snapshots);
        publish_checkpoints(&order, "aB");
        publish_checkpoints(&order, "cD");
        publish_checkpoints(&order, "eF");
        uint32_t evicted = 0;
        while (rig_evict_one(&order.rig)) {
            evicted++;
        }
        assert_int_equal(evicted, 6);
        order_close(&order);
    }
}

static void at_most_four_are_spared_between_two_evictions(void **state)
{
    (void)state;
    for (uint32_t eviction = 0; eviction < FBY_EVICTION_COUNT; eviction++) {
        if (eviction == FBY_EVICT_MRU || eviction == FBY_EVICT_FILO) {
            continue; /* the same from the other end */
        }
        order_t order;
        order_open(&order, (fby_eviction_t)eviction, snapshots);
        static const char *const chains[] = {"aB", "cD", "eF", "gH", "iJ", "kL"};
        for (uint32_t i = 0; i < FBY_ARRAY_LEN(chains); i++) {
            publish_checkpoints(&order, chains[i]);
        }
        assert_true(rig_evict_one(&order.rig));
        assert_false(rig_has(&order.rig, &order.named[9])); /* J */
        order_close(&order);
    }
}

/* Sparing moves a long chain out of the way in steps: the call that began it answers in time, with false. */
static void sparing_a_long_chain_takes_steps(void **state)
{
    (void)state;
    rig_t rig;
    fby_hash_t *hashes = test_calloc(1000, sizeof(*hashes)), other = rig_hash(NULL, 77);
    rig_open(&rig, FBY_EVICT_LRU, 1100, snapshots);
    rig_chain(1, hashes, 1000);
    uint32_t node = rig_publish(&rig, hashes, 1000);
    fby_index_pin(rig.index, node, FBY_PIN_SESSION);
    rig_attach(&rig, node, 1);
    fby_index_unpin(rig.index, node, FBY_PIN_SESSION, false);
    rig_walk(&rig);
    rig_publish(&rig, &other, 1);
    rig_attach(&rig, fby_index_find(rig.index, &other), 1);
    assert_false(rig_evict_one(&rig));
    assert_true(fby_index_walking(rig.index));
    rig_check(&rig);
    rig_walk(&rig);
    assert_true(rig_evict_one(&rig));
    assert_true(rig_has(&rig, &hashes[999]) != rig_has(&rig, &other));
    rig_check(&rig);
    rig_close(&rig);
    test_free(hashes);
}

static void the_last_chain_gets_no_chance_against_itself(void **state)
{
    (void)state;
    order_t order;
    order_open(&order, FBY_EVICT_LRU, snapshots);
    publish_checkpoints(&order, "abC");
    expect_order(&order, "Cba");
    assert_int_equal(order.rig.index->chances, FBY_SECOND_CHANCES);
    order_close(&order);
}

static void a_chain_that_lost_its_checkpoint_goes_next(void **state)
{
    (void)state;
    order_t order;
    order_open(&order, FBY_EVICT_LRU, snapshots);
    publish_checkpoints(&order, "pQ");
    publish_checkpoints(&order, "aBcD");
    uint32_t taken[16], n = 0;
    while (fby_slots_free(&order.rig.slots, 1) > 0) {
        taken[n++] = rig_take(&order.rig, 1);
    }
    /* Q is a sole checkpoint and is spared; B is the oldest of the others: its chain still ends in D. */
    assert_true(fby_index_evict(order.rig.index, 1));
    assert_int_equal(fby_index_slot(order.rig.index, fby_index_find(order.rig.index, &order.named[3]), 1), FBY_NONE);
    taken[n++] = rig_take(&order.rig, 1);
    /* Now D would be a sole checkpoint: spared, too; Q has had its chance. p and Q end nothing any more. */
    assert_true(fby_index_evict(order.rig.index, 1));
    assert_int_equal(fby_index_slot(order.rig.index, fby_index_find(order.rig.index, &order.named[1]), 1), FBY_NONE);
    expect_order(&order, "QpDcBa");
    while (n > 0) {
        fby_slot_move(&order.rig.slots, taken[--n], FBY_SLOT_STAGING, FBY_SLOT_FREE, FBY_NONE);
    }
    order_close(&order);
}

static void a_payload_for_a_cold_leaf_makes_it_warm(void **state)
{
    (void)state;
    order_t order;
    fby_hash_t hashes[2];
    order_open(&order, FBY_EVICT_LRU, snapshots);
    uint32_t node = publish(&order, "ab", hashes); /* ends nothing */
    publish_checkpoints(&order, "xYzZ");
    rig_attach(&order.rig, node, 1);
    rig_check(&order.rig);
    assert_int_equal(order.rig.index->nodes[node].flags & FBY_NODE_COLD, 0);
    order_close(&order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lru_evicts_what_was_used_longest_ago),
        cmocka_unit_test(mru_evicts_what_was_used_last),
        cmocka_unit_test(fifo_evicts_in_order_of_publication),
        cmocka_unit_test(filo_evicts_against_the_order_of_publication),
        cmocka_unit_test(lfu_evicts_what_was_used_least),
        cmocka_unit_test(slru_keeps_what_was_used_twice),
        cmocka_unit_test(every_policy_evicts_the_deepest_block_first),
        cmocka_unit_test(a_shared_prefix_outlives_its_branches),
        cmocka_unit_test(an_unpinned_child_never_outlives_its_parents_turn),
        cmocka_unit_test(a_touch_counts_as_a_use_of_the_whole_chain),
        cmocka_unit_test(finding_is_not_a_use),
        cmocka_unit_test(cold_blocks_go_first),
        cmocka_unit_test(a_cold_unpin_leaves_blocks_with_other_children_warm),
        cmocka_unit_test(a_cold_block_that_is_used_again_is_warm),
        cmocka_unit_test(a_prefetched_block_that_no_hold_covered_is_counted),
        cmocka_unit_test(eviction_stops_as_soon_as_a_slot_is_free),
        cmocka_unit_test(blocks_beyond_the_last_checkpoint_go_first),
        cmocka_unit_test(a_sole_checkpoint_gets_one_second_chance),
        cmocka_unit_test(chances_end_when_every_leaf_is_a_sole_checkpoint),
        cmocka_unit_test(at_most_four_are_spared_between_two_evictions),
        cmocka_unit_test(sparing_a_long_chain_takes_steps),
        cmocka_unit_test(the_last_chain_gets_no_chance_against_itself),
        cmocka_unit_test(a_chain_that_lost_its_checkpoint_goes_next),
        cmocka_unit_test(a_payload_for_a_cold_leaf_makes_it_warm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
