#include "rig.h"

static void on_event(void *arg, bool published, const fby_hash_t *hash, uint32_t block)
{
    rig_t *rig = arg;
    (void)block;
    rig->published += published;
    rig->removed += !published;
    if (!published) {
        rig->last_removed = *hash;
    }
}

void rig_open(rig_t *rig, fby_eviction_t eviction, uint32_t slots, const rig_trailing_t *trailing)
{
    uint32_t counts[FBY_MAX_GROUPS] = {slots};
    *rig = (rig_t){.config = {.max_nodes = slots,
                              .groups = 1,
                              .slot_bytes = {RIG_SLOT_BYTES},
                              .eviction = eviction,
                              .event = on_event,
                              .event_arg = rig,
                              .slots = &rig->slots}};
    for (; trailing != NULL && trailing->window > 0; trailing++) {
        uint32_t g = rig->config.groups++;
        rig->config.trailing[g] = trailing->window;
        rig->config.slot_bytes[g] = RIG_SLOT_BYTES / 4;
        counts[g] = trailing->slots;
    }
    uint32_t total = 0;
    for (uint32_t g = 0; g < rig->config.groups; g++) {
        total += counts[g];
    }
    rig->slot_memory = test_calloc(1, fby_slots_bytes(total));
    fby_slots_init(&rig->slots, rig->config.groups, counts, rig->slot_memory);
    size_t bytes = fby_index_bytes(&rig->config);
    rig->memory = aligned_alloc(64, bytes);
    assert_non_null(rig->memory);
    memset(rig->memory, 0, bytes);
    rig->index = fby_index_init(&rig->config, rig->memory);
}

void rig_close(rig_t *rig)
{
    free(rig->memory);
    test_free(rig->slot_memory);
}

void rig_check(const rig_t *rig)
{
    char why[256] = "";
    if (!fby_index_check(rig->index, why, sizeof(why)) || !fby_slots_check(&rig->slots, why, sizeof(why))) {
        fail_msg("%s", why);
    }
    if (rig->slots.violations > 0) {
        fail_msg("%s", rig->slots.violation);
    }
}

fby_hash_t rig_hash(const fby_hash_t *parent, uint64_t token)
{
    uint64_t state = (parent != NULL ? parent->w[0] ^ (parent->w[1] << 1) : 1) + token * 0x10001;
    fby_hash_t hash;
    hash.w[0] = unit_random(&state);
    hash.w[1] = unit_random(&state);
    return hash;
}

void rig_chain(uint32_t name, fby_hash_t *hashes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        hashes[i] = rig_hash(i > 0 ? &hashes[i - 1] : NULL, name + 1);
    }
}

uint32_t rig_take(rig_t *rig, uint32_t group)
{
    uint32_t slot = fby_slot_take(&rig->slots, group, 7);
    assert_int_not_equal(slot, FBY_NONE);
    return slot;
}

uint32_t rig_insert(rig_t *rig, uint32_t parent, const fby_hash_t *hash)
{
    uint32_t slots[FBY_MAX_GROUPS];
    for (uint32_t g = 0; g < FBY_MAX_GROUPS; g++) {
        slots[g] = FBY_NONE;
    }
    slots[0] = rig_take(rig, 0);
    uint32_t node = fby_index_insert(rig->index, parent, hash, slots, false);
    assert_int_not_equal(node, FBY_NONE);
    return node;
}

uint32_t rig_publish(rig_t *rig, const fby_hash_t *hashes, uint32_t n)
{
    uint32_t node, at = fby_index_match(rig->index, hashes, 0, n, &node);
    if (node != FBY_NONE) {
        fby_index_pin(rig->index, node, FBY_PIN_SESSION);
    }
    for (; at < n; at++) {
        uint32_t next = rig_insert(rig, node, &hashes[at]);
        fby_index_pin(rig->index, next, FBY_PIN_SESSION);
        if (node != FBY_NONE) {
            fby_index_unpin(rig->index, node, FBY_PIN_SESSION, false);
        }
        node = next;
    }
    fby_index_unpin(rig->index, node, FBY_PIN_SESSION, false);
    rig_walk(rig);
    return node;
}

void rig_attach(rig_t *rig, uint32_t node, uint32_t group)
{
    assert_true(fby_index_attach(rig->index, node, group, rig_take(rig, group)));
}

void rig_walk(rig_t *rig)
{
    while (fby_index_walk(rig->index)) {}
}

bool rig_evict_one(rig_t *rig)
{
    uint32_t taken[70000], n = 0;
    while (fby_slots_free(&rig->slots, 0) > 0) {
        taken[n++] = rig_take(rig, 0);
    }
    bool evicted = fby_index_evict(rig->index, 0);
    while (n > 0) {
        fby_slot_move(&rig->slots, taken[--n], FBY_SLOT_STAGING, FBY_SLOT_FREE, FBY_NONE);
    }
    return evicted;
}

bool rig_has(const rig_t *rig, const fby_hash_t *hash)
{
    return fby_index_find(rig->index, hash) != FBY_NONE;
}
