#include "rig.h"

enum { SLOTS = 2048 };

static int setup(void **state)
{
    rig_t *rig = test_calloc(1, sizeof(*rig));
    rig_open(rig, FBY_EVICT_LRU, SLOTS, NULL);
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

static uint64_t probes(const rig_t *rig)
{
    fby_index_stats_t stats;
    fby_index_stats(rig->index, &stats);
    return stats.probes;
}

static void an_empty_index_matches_nothing(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[4];
    uint32_t node = 0;
    rig_chain(1, hashes, 4);
    assert_int_equal(fby_index_match(rig->index, hashes, 0, 4, &node), 0);
    assert_int_equal(node, FBY_NONE);
    assert_int_equal(fby_index_find(rig->index, &hashes[0]), FBY_NONE);
    rig_check(rig);
}

static void a_published_chain_can_be_walked_back(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[5];
    rig_chain(1, hashes, 5);
    uint32_t node = rig_publish(rig, hashes, 5);
    for (uint32_t i = 5; i-- > 0; node = fby_index_parent(rig->index, node)) {
        assert_int_equal(fby_index_block(rig->index, node), i);
        assert_true(fby_hash_equal(fby_index_hash(rig->index, node), &hashes[i]));
        assert_int_equal(fby_index_find(rig->index, &hashes[i]), node);
        uint32_t slot = fby_index_slot(rig->index, node, 0);
        assert_int_equal(rig->slots.slot[slot].state, FBY_SLOT_RESIDENT);
        assert_int_equal(rig->slots.slot[slot].owner, node);
    }
    assert_int_equal(node, FBY_NONE);
    rig_check(rig);
}

static void a_match_finds_the_length_for_every_length(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[65];
    uint32_t node;
    rig_chain(1, hashes, 65);
    for (uint32_t resident = 1; resident <= 64; resident++) {
        uint32_t last = rig_publish(rig, hashes, resident);
        for (uint32_t known = 0; known <= resident; known += 7) {
            assert_int_equal(fby_index_match(rig->index, hashes, known, 65, &node), resident);
            assert_int_equal(node, last);
        }
        assert_int_equal(fby_index_match(rig->index, hashes, resident, resident, &node), resident);
        assert_int_equal(node, last);
    }
}

static void a_match_gallops(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[SLOTS];
    uint32_t node;
    rig_chain(1, hashes, SLOTS);
    uint32_t published = 0;
    for (uint32_t n = 1; n <= 1024; n *= 2) {
        rig_publish(rig, hashes, n);
        published = n;
        uint64_t before = probes(rig);
        assert_int_equal(fby_index_match(rig->index, hashes, 0, SLOTS, &node), published);
        uint32_t log2 = (uint32_t)__builtin_ctz(n);
        assert_true(probes(rig) - before <= 2 * log2 + 3);
        /* With all but the last few known, the cost is of the new part only. */
        before = probes(rig);
        assert_int_equal(fby_index_match(rig->index, hashes, published - 1, SLOTS, &node), published);
        assert_true(probes(rig) - before <= 3);
    }
}

static void matches_of_random_trees_equal_a_walk(void **state)
{
    rig_t *rig = *state;
    uint64_t random = 5;
    for (uint32_t round = 0; round < 300; round++) {
        fby_hash_t hashes[24];
        for (uint32_t i = 0; i < 24; i++) {
            hashes[i] = rig_hash(i > 0 ? &hashes[i - 1] : NULL, unit_below(&random, 2));
        }
        uint32_t walk = 0, node;
        while (walk < 24 && rig_has(rig, &hashes[walk])) {
            walk++;
        }
        assert_int_equal(fby_index_match(rig->index, hashes, 0, 24, &node), walk);
        assert_int_equal(node, walk > 0 ? fby_index_find(rig->index, &hashes[walk - 1]) : FBY_NONE);
        if (fby_slots_free(&rig->slots, 0) >= 24) {
            rig_publish(rig, hashes, unit_below(&random, 24) + 1);
        }
    }
    rig_check(rig);
}

static void refuse_insert(rig_t *rig, uint32_t parent, const fby_hash_t *hash, uint32_t slot, const char *why)
{
    rig->slots.violations = 0;
    assert_int_equal(fby_index_insert(rig->index, parent, hash, &slot, false), FBY_NONE);
    assert_int_equal(rig->slots.violations, 1);
    assert_non_null(strstr(rig->slots.violation, why));
    rig->slots.violations = 0;
}

static void a_wrong_insert_is_refused_and_changes_nothing(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[2], other = rig_hash(NULL, 99);
    rig_chain(1, hashes, 2);
    uint32_t node = rig_publish(rig, hashes, 1), slot = rig_take(rig, 0);
    refuse_insert(rig, FBY_NONE, &hashes[0], slot, "a hash that is indexed");
    refuse_insert(rig, node + 1, &hashes[1], slot, "V13");
    refuse_insert(rig, node, &hashes[1], fby_index_slot(rig->index, node, 0), "neither staging nor private");
    refuse_insert(rig, node, &hashes[1], FBY_NONE, "neither staging nor private");
    fby_index_reset(rig->index);
    refuse_insert(rig, node, &other, slot, "V13");
    rig_check(rig);
}

static void a_private_slot_may_be_published(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hash = rig_hash(NULL, 1);
    uint32_t slot = rig_take(rig, 0);
    assert_true(fby_slot_move(&rig->slots, slot, FBY_SLOT_STAGING, FBY_SLOT_PRIVATE, 3));
    assert_int_not_equal(fby_index_insert(rig->index, FBY_NONE, &hash, &slot, false), FBY_NONE);
    rig_check(rig);
}

/* Case I08. */
static void every_publication_and_removal_is_one_event(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[40];
    rig_chain(1, hashes, 40);
    rig_publish(rig, hashes, 32);
    rig_publish(rig, hashes, 40);
    for (uint32_t i = 0; i < 10; i++) {
        assert_true(rig_evict_one(rig));
    }
    assert_int_equal(rig->published, 40);
    assert_int_equal(rig->removed, 10);
    for (uint32_t i = 0; i < 40; i++) {
        assert_int_equal(rig_has(rig, &hashes[i]), i < 30);
    }
    rig_check(rig);
}

static void count_node(void *arg, uint32_t node)
{
    uint64_t *sum = arg;
    *sum += 1 + ((uint64_t)node << 32);
}

static void each_visits_the_current_generation(void **state)
{
    rig_t *rig = *state;
    fby_hash_t hashes[5];
    uint64_t sum = 0;
    rig_chain(1, hashes, 5);
    rig_publish(rig, hashes, 5);
    fby_index_each(rig->index, count_node, &sum);
    assert_true(sum == 5 + (UINT64_C(10) << 32));
    fby_index_reset(rig->index);
    sum = 0;
    fby_index_each(rig->index, count_node, &sum);
    assert_true(sum == 0);
}

/* Spec: 96 bytes per block with one group, all in, 10 million blocks. */
static void ten_million_blocks_cost_at_most_96_bytes_each(void **state)
{
    (void)state;
    for (uint32_t eviction = 0; eviction < FBY_EVICTION_COUNT; eviction++) {
        fby_index_config_t config = {.max_nodes = 10000000, .groups = 1, .eviction = (fby_eviction_t)eviction};
        assert_true((double)fby_index_bytes(&config) / 10000000 <= 96.0);
    }
}

static void an_index_of_one_block_works(void **state)
{
    (void)state;
    rig_t rig;
    rig_open(&rig, FBY_EVICT_LRU, 1, NULL);
    fby_hash_t first = rig_hash(NULL, 1), second = rig_hash(NULL, 2);
    rig_publish(&rig, &first, 1);
    assert_true(fby_index_evict(rig.index, 0));
    rig_publish(&rig, &second, 1);
    assert_false(rig_has(&rig, &first));
    assert_true(rig_has(&rig, &second));
    rig_check(&rig);
    rig_close(&rig);
}

/* Removing from the middle of crowded buckets loses nobody. */
static void hashes_that_collide_are_told_apart(void **state)
{
    rig_t *rig = *state;
    uint32_t nodes[64];
    for (uint32_t i = 0; i < 64; i++) {
        fby_hash_t hash = {{12345, i}};
        nodes[i] = rig_insert(rig, FBY_NONE, &hash);
        fby_index_pin(rig->index, nodes[i], FBY_PIN_SESSION);
    }
    for (uint32_t i = 0; i < 64; i += 2) {
        fby_index_unpin(rig->index, nodes[i], FBY_PIN_SESSION, false);
        assert_true(rig_evict_one(rig));
    }
    for (uint32_t i = 0; i < 64; i++) {
        fby_hash_t hash = {{12345, i}};
        assert_int_equal(fby_index_find(rig->index, &hash), i % 2 == 1 ? nodes[i] : FBY_NONE);
    }
    rig_check(rig);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_empty_index_matches_nothing),
        TEST(a_published_chain_can_be_walked_back),
        TEST(a_match_finds_the_length_for_every_length),
        TEST(a_match_gallops),
        TEST(matches_of_random_trees_equal_a_walk),
        TEST(a_wrong_insert_is_refused_and_changes_nothing),
        TEST(a_private_slot_may_be_published),
        TEST(every_publication_and_removal_is_one_event),
        TEST(each_visits_the_current_generation),
        TEST(ten_million_blocks_cost_at_most_96_bytes_each),
        TEST(an_index_of_one_block_works),
        TEST(hashes_that_collide_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
