/* Random operations on the index and on the naive model: everything that can be counted is equal after each. */
#include "rig.h"

#include "support/naive_index.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_UNDEFINED__)
#define SLOWER 20
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define SLOWER 20
#endif
#endif
#ifndef SLOWER
#define SLOWER 1
#endif

enum { OPERATIONS = 1000000 / SLOWER, SLOTS = 40, MOST_PINS = 12, DEPTH = 12 };

/* A pin of either kind, known to both sides. */
typedef struct pin {
    uint32_t node, naive;
    fby_pin_class_t class_;
    uint32_t group; /* FBY_NONE: the block, not a payload */
} pin_t;

typedef struct world {
    rig_t rig;
    naive_index_t *naive;
    uint64_t random;
    pin_t pins[MOST_PINS];
    uint32_t pin_count;
    uint32_t removed_checked; /* events */
    bool exact;               /* walks are complete after each call: the order is the model's, too */
} world_t;

/* ---- Comparing ---- */

static void compare_counters(world_t *world)
{
    fby_index_stats_t is;
    fby_index_stats(world->rig.index, &is);
    const fby_index_stats_t *should = &world->naive->stats;
    if (world->rig.index->sweeping) {
        return; /* the model sweeps at once */
    }
    assert_int_equal(is.nodes, should->nodes);
    assert_int_equal(is.published, should->published);
    assert_int_equal(is.removed, should->removed);
    assert_int_equal(is.evicted, should->evicted);
    /* A hold that ends before its walk has come to a block leaves no trace there. */
    assert_true(world->exact ? is.evicted_before_use == should->evicted_before_use
                             : is.evicted_before_use >= should->evicted_before_use);
    assert_int_equal(is.payload_evicted, should->payload_evicted);
    assert_int_equal(world->rig.published, should->published);
    assert_int_equal(world->rig.removed, should->removed);
    for (uint32_t g = 0; g < world->rig.config.groups; g++) {
        const uint32_t *in_state = world->rig.slots.in_state[g];
        assert_int_equal(is.resident[g], should->resident[g]);
        assert_int_equal(in_state[FBY_SLOT_RESIDENT], should->resident[g]);
        uint32_t retired = naive_retired(world->naive, g);
        bool on_the_way = fby_index_walking(world->rig.index);
        assert_true(on_the_way ? in_state[FBY_SLOT_RETIRED] >= retired : in_state[FBY_SLOT_RETIRED] == retired);
        assert_int_equal(in_state[FBY_SLOT_FREE] + should->resident[g] + in_state[FBY_SLOT_RETIRED],
                         world->rig.slots.count[g]);
    }
}

static void compare_charges(world_t *world)
{
    bool settled = !fby_index_walking(world->rig.index);
    for (uint32_t class_ = 0; class_ < FBY_PIN_CLASSES; class_++) {
        uint64_t is = fby_index_charged_bytes(world->rig.index, (fby_pin_class_t)class_);
        uint64_t should = naive_charged_bytes(world->naive, (fby_pin_class_t)class_);
        assert_true(is >= should);
        assert_true(!settled || is == should);
    }
    for (uint32_t g = 0; g < world->rig.config.groups && !world->rig.index->sweeping; g++) {
        uint32_t is = fby_index_evictable(world->rig.index, g), should = naive_evictable(world->naive, g);
        assert_true(is <= should);
        assert_true(!settled || is == should);
    }
}

/* ---- Operations ---- */

static bool chance(world_t *world, uint32_t one_in)
{
    return unit_below(&world->random, one_in) == 0;
}

static uint32_t random_block(world_t *world)
{
    uint32_t start = unit_below(&world->random, SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++) {
        const naive_block_t *block = &world->naive->blocks[(start + i) % SLOTS];
        if (block->used && !block->old) {
            return (start + i) % SLOTS;
        }
    }
    return FBY_NONE;
}

static uint32_t node_of(world_t *world, uint32_t naive)
{
    uint32_t node = fby_index_find(world->rig.index, &world->naive->blocks[naive].hash);
    assert_int_not_equal(node, FBY_NONE);
    return node;
}

static void pin(world_t *world, uint32_t naive, fby_pin_class_t class_)
{
    uint32_t node = node_of(world, naive);
    if (world->pin_count == MOST_PINS) {
        return;
    }
    if (world->exact) {
        assert_int_equal(fby_index_charge_estimate(world->rig.index, node, class_),
                         naive_charge_estimate(world->naive, naive, class_));
    }
    fby_index_pin(world->rig.index, node, class_);
    naive_pin(world->naive, naive, class_);
    world->pins[world->pin_count++] = (pin_t){node, naive, class_, FBY_NONE};
}

static void unpin(world_t *world, uint32_t at, bool cold)
{
    pin_t pin = world->pins[at];
    world->pins[at] = world->pins[--world->pin_count];
    if (pin.group == FBY_NONE) {
        fby_index_unpin(world->rig.index, pin.node, pin.class_, cold);
        naive_unpin(world->naive, pin.naive, pin.class_, cold);
    } else {
        fby_index_unpin_payload(world->rig.index, pin.node, pin.group, pin.class_);
        naive_unpin_payload(world->naive, pin.naive, pin.group, pin.class_);
    }
}

/* Both evict; in exact mode the model chooses the same block, else it checks that the choice was legal. */
static bool evict(world_t *world, uint32_t group)
{
    rig_t *rig = &world->rig;
    while (fby_index_sweep(rig->index)) {}
    if (fby_slots_free(&rig->slots, group) > 0) {
        return true;
    }
    uint32_t removed = rig->removed;
    uint64_t payloads = rig->index->stats.payload_evicted;
    bool is = fby_index_evict(rig->index, group);
    if (world->exact) {
        assert_int_equal(is, naive_evict(world->naive, group));
        if (rig->removed > removed) {
            assert_memory_equal(&rig->last_removed, &world->naive->last_removed, sizeof(fby_hash_t));
        }
        return is;
    }
    assert_int_equal(rig->index->stats.payload_evicted, payloads);
    if (is) {
        uint32_t naive = naive_find(world->naive, &rig->last_removed);
        assert_int_equal(rig->removed, removed + 1);
        assert_true(naive_is_leaf(world->naive, naive));
        assert_false(naive_is_protected(world->naive, naive));
        naive_remove(world->naive, naive);
    } else {
        assert_true(fby_index_walking(rig->index) || naive_evictable(world->naive, group) == 0);
    }
    return is;
}

static uint32_t slot_for(world_t *world, uint32_t group)
{
    if (fby_slots_free(&world->rig.slots, group) == 0 && !evict(world, group)) {
        return FBY_NONE;
    }
    return rig_take(&world->rig, group);
}

/* Publishes or finds a child of a pinned block (or a first block) and moves the pin to it. */
static void extend(world_t *world)
{
    uint32_t at = world->pin_count > 0 ? unit_below(&world->random, world->pin_count) : 0;
    bool first = world->pin_count == 0 || chance(world, 4);
    const naive_block_t *parent = first ? NULL : &world->naive->blocks[world->pins[at].naive];
    if (world->pin_count == MOST_PINS || (!first && (parent->old || parent->block + 1 >= DEPTH))) {
        return;
    }
    fby_hash_t hash = rig_hash(first ? NULL : &parent->hash, unit_below(&world->random, 3));
    uint32_t naive = naive_find(world->naive, &hash);
    if (naive == FBY_NONE) {
        uint32_t slots[FBY_MAX_GROUPS] = {slot_for(world, 0), FBY_NONE, FBY_NONE};
        if (slots[0] == FBY_NONE) {
            return;
        }
        bool prefetched = chance(world, 2);
        uint32_t above = first ? FBY_NONE : world->pins[at].node;
        assert_int_not_equal(fby_index_insert(world->rig.index, above, &hash, slots, prefetched), FBY_NONE);
        naive = naive_insert(world->naive, first ? FBY_NONE : world->pins[at].naive, &hash, prefetched);
    }
    pin(world, naive, chance(world, 2) ? FBY_PIN_SESSION : FBY_PIN_HOLD);
    if (!first) {
        unpin(world, at, chance(world, 4));
    }
}

static void attach(world_t *world)
{
    uint32_t at = unit_below(&world->random, world->pin_count);
    uint32_t group = 1 + unit_below(&world->random, world->rig.config.groups - 1);
    pin_t *pin = &world->pins[at];
    naive_block_t *block = &world->naive->blocks[pin->naive];
    if (block->old) {
        return;
    }
    if (!block->payload[group]) {
        uint32_t slot = slot_for(world, group);
        if (slot == FBY_NONE) {
            return;
        }
        assert_true(fby_index_attach(world->rig.index, pin->node, group, slot));
        naive_attach(world->naive, pin->naive, group);
    }
    if (world->pin_count < MOST_PINS && chance(world, 2)) {
        fby_pin_class_t class_ = (fby_pin_class_t)unit_below(&world->random, FBY_PIN_CLASSES);
        fby_index_pin_payload(world->rig.index, pin->node, group, class_);
        naive_pin_payload(world->naive, pin->naive, group, class_);
        world->pins[world->pin_count++] = (pin_t){pin->node, pin->naive, class_, group};
    }
}

static void lookup(world_t *world)
{
    fby_hash_t hashes[DEPTH];
    for (uint32_t i = 0; i < DEPTH; i++) {
        hashes[i] = rig_hash(i > 0 ? &hashes[i - 1] : NULL, unit_below(&world->random, 3));
    }
    uint32_t known = naive_match(world->naive, hashes, DEPTH), node, last;
    uint32_t hint = unit_below(&world->random, known + 1);
    assert_int_equal(fby_index_match(world->rig.index, hashes, hint, DEPTH, &node), known);
    uint32_t end = fby_index_checkpoint(world->rig.index, known, node, &last);
    assert_int_equal(end, naive_checkpoint(world->naive, hashes, known));
    if (end == 0) {
        assert_int_equal(last, FBY_NONE);
        return;
    }
    assert_int_equal(last, fby_index_find(world->rig.index, &hashes[end - 1]));
    pin(world, naive_find(world->naive, &hashes[end - 1]), FBY_PIN_HOLD);
}

static void reset(world_t *world)
{
    fby_index_reset(world->rig.index);
    uint32_t naive = random_block(world);
    if (naive != FBY_NONE) {
        assert_false(rig_has(&world->rig, &world->naive->blocks[naive].hash));
    }
    naive_reset(world->naive);
    while (world->exact && fby_index_sweep(world->rig.index)) {}
}

static void squeeze(world_t *world, uint32_t group)
{
    uint32_t taken[SLOTS], n = 0;
    while (fby_slots_free(&world->rig.slots, group) > 0) {
        taken[n++] = rig_take(&world->rig, group);
    }
    evict(world, group);
    while (n > 0) {
        fby_slot_move(&world->rig.slots, taken[--n], FBY_SLOT_STAGING, FBY_SLOT_FREE, FBY_NONE);
    }
}

static void operation(world_t *world)
{
    uint32_t kind = unit_below(&world->random, 100), naive = random_block(world);
    if (kind < 40) {
        extend(world);
    } else if (kind < 60 && world->pin_count > 0) {
        unpin(world, unit_below(&world->random, world->pin_count), chance(world, 3));
    } else if (kind < 75) {
        lookup(world);
    } else if (kind < 80 && naive != FBY_NONE) {
        pin(world, naive, (fby_pin_class_t)unit_below(&world->random, FBY_PIN_CLASSES));
    } else if (kind < 85 && naive != FBY_NONE) {
        fby_index_touch(world->rig.index, node_of(world, naive));
        naive_touch(world->naive, naive);
    } else if (kind < 92 && world->pin_count > 0 && world->rig.config.groups > 1) {
        attach(world);
    } else if (kind < 98) {
        squeeze(world, world->exact ? unit_below(&world->random, world->rig.config.groups) : 0);
    } else if (chance(world, 10)) {
        reset(world);
    }
}

static void run(fby_eviction_t eviction, const rig_trailing_t *trailing, uint32_t walk_step, uint32_t operations)
{
    world_t *world = test_calloc(1, sizeof(*world));
    rig_open(&world->rig, eviction, SLOTS, trailing);
    world->naive = naive_create(&world->rig.config);
    world->random = 20240601 + (uint64_t)eviction;
    world->exact = walk_step == FBY_WALK_STEP;
    world->rig.index->walk_step = walk_step;
    for (uint32_t i = 0; i < operations; i++) {
        operation(world);
        compare_charges(world);
        if (!world->exact && chance(world, 3)) {
            fby_index_walk(world->rig.index);
            fby_index_sweep(world->rig.index);
        }
        compare_counters(world);
        if (i % 16 == 0 || !world->exact) {
            rig_check(&world->rig);
        }
    }
    while (world->pin_count > 0) {
        unpin(world, 0, false);
    }
    while (fby_index_walk(world->rig.index) || fby_index_sweep(world->rig.index)) {}
    rig_check(&world->rig);
    compare_charges(world);
    compare_counters(world);
    assert_true(fby_index_clean(world->rig.index));
    assert_int_equal(fby_index_charged_bytes(world->rig.index, FBY_PIN_SESSION), 0);
    naive_destroy(world->naive);
    rig_close(&world->rig);
    test_free(world);
}

/* ---- Tests ---- */

static const rig_trailing_t snapshots[] = {{1, 12}, {3, 24}, {0, 0}};
static const rig_trailing_t roomy_snapshots[] = {{1, SLOTS}, {3, SLOTS}, {0, 0}};

static void equals_the_model_with_one_group(void **state)
{
    (void)state;
    for (uint32_t eviction = 0; eviction < FBY_EVICTION_COUNT; eviction++) {
        run((fby_eviction_t)eviction, NULL, FBY_WALK_STEP, OPERATIONS / 12);
    }
}

static void equals_the_model_with_trailing_groups(void **state)
{
    (void)state;
    for (uint32_t eviction = 0; eviction < FBY_EVICTION_COUNT; eviction++) {
        run((fby_eviction_t)eviction, snapshots, FBY_WALK_STEP, OPERATIONS / 12);
    }
}

/* With walks of one block each call, charges are provisional most of the time; nothing illegal is evicted, nothing is
   charged too little, and the figures meet when the walks are done. */
static void walks_that_rest_stay_on_the_safe_side(void **state)
{
    (void)state;
    for (uint32_t eviction = 0; eviction < FBY_EVICTION_COUNT; eviction++) {
        run((fby_eviction_t)eviction, NULL, 1, OPERATIONS / 24);
        run((fby_eviction_t)eviction, roomy_snapshots, 1, OPERATIONS / 24);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_model_with_one_group),
        cmocka_unit_test(equals_the_model_with_trailing_groups),
        cmocka_unit_test(walks_that_rest_stay_on_the_safe_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
