/*
 * index_check.c - recomputes everything that is kept incrementally. For debug builds, tests and the simulator: it
 * allocates scratch memory and looks at every node.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "index/evict.h"
#include "index/internal.h"

/* What the nodes say about one node, put together again. */
typedef struct seen {
    int64_t refs[FBY_REFS];
    uint32_t children, walkers;
    uint32_t place; /* on its list, counted from the tail from 1; 0: on none */
} seen_t;

typedef struct check {
    const fby_index_t *index;
    seen_t *seen;
    char *why;
    size_t why_size;
} check_t;

static bool fail(const check_t *check, const char *format, ...) FBY_PRINTF(2, 3);
static bool fail(const check_t *check, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(check->why, check->why_size, format, args);
    va_end(args);
    return false;
}

/* ---- Nodes, their parents and their pins ---- */

static void gather_pins(const check_t *check, uint32_t id)
{
    const fby_index_t *index = check->index;
    seen_t *seen = &check->seen[id];
    for (uint32_t class_ = 0; class_ < FBY_PIN_CLASSES; class_++) {
        uint32_t pins = index->nodes[id].pins[class_];
        seen->refs[FBY_REF_PROTECT] += pins;
        if (class_ != FBY_PIN_WRITE) {
            seen->refs[class_] += pins;
        }
        for (uint32_t g = 0; g < index->config.groups; g++) {
            seen->refs[FBY_REF_PROTECT] += index->config.trailing[g] > 0 ? index->payloads[g].pins[id][class_] : 0;
        }
    }
}

static void gather(const check_t *check)
{
    const fby_index_t *index = check->index;
    for (uint32_t id = 0; id < index->fresh; id++) {
        const fby_node_t *node = &index->nodes[id];
        if (node->state == FBY_NODE_FREE) {
            continue;
        }
        gather_pins(check, id);
        if (node->parent == FBY_NONE || index->nodes[node->parent].generation != node->generation ||
            index->nodes[node->parent].state == FBY_NODE_FREE) {
            continue;
        }
        seen_t *above = &check->seen[node->parent];
        above->children++;
        for (uint32_t ref = 0; ref < FBY_REFS; ref++) {
            above->refs[ref] += node->refs[ref] > 0 ? 1 : 0;
        }
    }
    for (uint32_t i = 0; i < index->walk_count; i++) {
        const fby_walk_t *walk = &index->walks[(index->walk_head + i) % FBY_WALKS];
        check->seen[walk->node].walkers++;
        for (uint32_t ref = 0; ref < FBY_REFS; ref++) {
            check->seen[walk->node].refs[ref] -= ((uint32_t)walk->mask & (1u << ref)) != 0 ? walk->delta : 0;
        }
    }
}

static bool check_parent(const check_t *check, uint32_t id)
{
    const fby_index_t *index = check->index;
    const fby_node_t *node = &index->nodes[id];
    if (node->parent == FBY_NONE) {
        return node->block == 0 || fail(check, "node %u has block %u and no parent", id, node->block);
    }
    const fby_node_t *parent = &index->nodes[node->parent];
    bool needed = fby_node_is_current(index, node) || node->refs[FBY_REF_SESSION] > 0 || node->refs[FBY_REF_HOLD] > 0 ||
                  fby_node_is_protected(node);
    if (needed && (parent->state == FBY_NODE_FREE || parent->generation != node->generation)) {
        return fail(check, "V13: node %u lives but its parent %u does not", id, node->parent);
    }
    if (fby_node_is_current(index, node) && parent->block + 1 != node->block) {
        return fail(check, "node %u has block %u under block %u", id, node->block, parent->block);
    }
    return true;
}

static bool check_node(const check_t *check, uint32_t id)
{
    const fby_index_t *index = check->index;
    const fby_node_t *node = &index->nodes[id];
    const seen_t *seen = &check->seen[id];
    for (uint32_t ref = 0; ref < FBY_REFS; ref++) {
        if (node->refs[ref] != seen->refs[ref]) {
            return fail(check, "node %u: refs[%u] is %d, recomputed %lld", id, ref, node->refs[ref],
                        (long long)seen->refs[ref]);
        }
    }
    if (node->children != seen->children || node->walkers != seen->walkers) {
        return fail(check, "node %u: %u children and %u walkers, recomputed %u and %u", id, node->children,
                    node->walkers, seen->children, seen->walkers);
    }
    if (node->state == FBY_NODE_RETIRED && !fby_node_is_awaited(node) && node->children == 0) {
        return fail(check, "node %u is retired and nobody uses it", id);
    }
    if (fby_node_is_current(index, node) && fby_table_find(index, &node->hash, true) != id) {
        return fail(check, "node %u is indexed and not found by its hash", id);
    }
    return check_parent(check, id);
}

/* ---- Slots ---- */

static bool check_slot(const check_t *check, uint32_t id, uint32_t group)
{
    const fby_index_t *index = check->index;
    uint32_t slot = index->slot_of[group][id];
    if (slot == FBY_NONE) {
        return index->config.trailing[group] > 0 || fail(check, "node %u has no slot in group %u", id, group);
    }
    uint8_t state = index->nodes[id].state == FBY_NODE_RETIRED ? FBY_SLOT_RETIRED : FBY_SLOT_RESIDENT;
    const fby_slots_t *slots = index->config.slots;
    if (slot >= slots->total || slots->slot[slot].group != group || slots->slot[slot].state != state ||
        slots->slot[slot].owner != id) {
        return fail(check, "node %u does not own slot %u of group %u as it should", id, slot, group);
    }
    return true;
}

static bool check_payload(const check_t *check, uint32_t id, uint32_t group, uint32_t *unpinned)
{
    const fby_payloads_t *payloads = &check->index->payloads[group];
    uint32_t pins = 0;
    for (uint32_t class_ = 0; class_ < FBY_PIN_CLASSES; class_++) {
        pins += payloads->pins[id][class_];
    }
    bool there = check->index->slot_of[group][id] != FBY_NONE;
    if (pins > 0 && !there) {
        return fail(check, "node %u: the payload of group %u is pinned and not there", id, group);
    }
    bool listed = fby_list_linked(payloads->links, id);
    *unpinned += listed ? 1 : 0;
    return listed == (there && pins == 0) ||
           fail(check, "node %u: the payload of group %u is on the wrong list", id, group);
}

static bool check_group(const check_t *check, uint32_t group)
{
    const fby_index_t *index = check->index;
    uint32_t resident = 0, retired = 0, unpinned = 0, current = 0;
    for (uint32_t id = 0; id < index->fresh; id++) {
        const fby_node_t *node = &index->nodes[id];
        if (node->state == FBY_NODE_FREE) {
            continue;
        }
        if (!check_slot(check, id, group) ||
            (index->config.trailing[group] > 0 && !check_payload(check, id, group, &unpinned))) {
            return false;
        }
        bool there = index->slot_of[group][id] != FBY_NONE;
        resident += there && node->state == FBY_NODE_INDEXED;
        retired += there && node->state == FBY_NODE_RETIRED;
        current += there && fby_node_is_current(index, node);
    }
    const uint32_t *in_state = index->config.slots->in_state[group];
    if (resident != in_state[FBY_SLOT_RESIDENT] || retired > in_state[FBY_SLOT_RETIRED]) {
        return fail(check, "group %u: nodes own %u resident and %u retired slots, there are %u and %u", group, resident,
                    retired, in_state[FBY_SLOT_RESIDENT], in_state[FBY_SLOT_RETIRED]);
    }
    if (current != index->stats.resident[group] || unpinned != index->payloads[group].unpinned) {
        return fail(check, "group %u: counters say %u resident, %u unpinned; recomputed %u, %u", group,
                    index->stats.resident[group], index->payloads[group].unpinned, current, unpinned);
    }
    return true;
}

/* ---- Counters ---- */

static bool check_counts(const check_t *check)
{
    const fby_index_t *index = check->index;
    uint32_t in_use = 0, unprotected = 0, current = 0, charged[FBY_REFS] = {0};
    for (uint32_t id = 0; id < index->fresh; id++) {
        const fby_node_t *node = &index->nodes[id];
        if (node->state == FBY_NODE_FREE) {
            continue;
        }
        in_use++;
        unprotected += node->state == FBY_NODE_INDEXED && !fby_node_is_protected(node);
        current += fby_node_is_current(index, node);
        for (uint32_t ref = 0; ref < FBY_REF_PROTECT; ref++) {
            charged[ref] += node->refs[ref] > 0;
        }
    }
    if (in_use != index->in_use || unprotected != index->unprotected || current != index->stats.nodes ||
        in_use - current != index->old_nodes) {
        return fail(check, "counters: %u nodes, %u unprotected, %llu current, %u old; recomputed %u, %u, %u, %u",
                    index->in_use, index->unprotected, (unsigned long long)index->stats.nodes, index->old_nodes, in_use,
                    unprotected, current, in_use - current);
    }
    for (uint32_t ref = 0; ref < FBY_REF_PROTECT; ref++) {
        if (charged[ref] != index->charged[ref]) {
            return fail(check, "class %u: %u blocks charged, recomputed %u", ref, index->charged[ref], charged[ref]);
        }
    }
    uint32_t listed = 0;
    for (uint32_t id = index->free_head; id != FBY_NONE; id = index->nodes[id].parent) {
        if (id >= index->fresh || index->nodes[id].state != FBY_NODE_FREE || ++listed > index->fresh) {
            return fail(check, "the free nodes run into node %u", id);
        }
    }
    return listed == index->fresh - in_use || fail(check, "%u free nodes, expected %u", listed, index->fresh - in_use);
}

static bool check_bytes(const check_t *check)
{
    const fby_index_t *index = check->index;
    uint64_t flat[FBY_PIN_CLASSES] = {0}, pending[FBY_REFS] = {0};
    for (uint32_t id = 0; id < index->fresh; id++) {
        if (index->nodes[id].state == FBY_NODE_FREE) {
            continue;
        }
        flat[FBY_PIN_WRITE] += index->nodes[id].pins[FBY_PIN_WRITE] > 0 ? index->all_bytes : 0;
        for (uint32_t g = 0; g < index->config.groups; g++) {
            for (uint32_t class_ = 0; index->config.trailing[g] > 0 && class_ < FBY_PIN_CLASSES; class_++) {
                flat[class_] += index->payloads[g].pins[id][class_] > 0 ? index->config.slot_bytes[g] : 0;
            }
        }
    }
    for (uint32_t i = 0; i < index->walk_count; i++) {
        const fby_walk_t *walk = &index->walks[(index->walk_head + i) % FBY_WALKS];
        for (uint32_t ref = 0; ref < FBY_REFS; ref++) {
            bool may_charge = walk->delta > 0 && ((uint32_t)walk->mask & (1u << ref)) != 0;
            pending[ref] += may_charge ? (uint64_t)index->nodes[walk->node].block + 1 : 0;
        }
    }
    for (uint32_t i = 0; i < FBY_REFS; i++) {
        if (flat[i] != index->flat_bytes[i] || pending[i] != index->pending_blocks[i]) {
            return fail(check, "class %u: %llu flat bytes, %llu provisional blocks; recomputed %llu, %llu", i,
                        (unsigned long long)index->flat_bytes[i], (unsigned long long)index->pending_blocks[i],
                        (unsigned long long)flat[i], (unsigned long long)pending[i]);
        }
    }
    return true;
}

/* ---- Table, lists, heap ---- */

static bool check_table(const check_t *check)
{
    const fby_index_t *index = check->index;
    uint32_t hashed = 0, linked = 0;
    for (uint32_t id = 0; id < index->fresh; id++) {
        hashed += (index->nodes[id].flags & FBY_NODE_HASHED) != 0;
    }
    for (uint64_t bucket = 0; bucket < index->bucket_count; bucket++) {
        for (uint32_t link = index->buckets[bucket]; link != 0; link = index->nodes[link - 1].chain) {
            if (link > index->fresh || (index->nodes[link - 1].flags & FBY_NODE_HASHED) == 0 || ++linked > hashed ||
                fby_table_bucket(index, &index->nodes[link - 1].hash) != bucket) {
                return fail(check, "bucket %llu holds a wrong node, or runs in a circle", (unsigned long long)bucket);
            }
        }
    }
    return linked == hashed || fail(check, "%u nodes in the table, %u say so", linked, hashed);
}

static bool check_list(const check_t *check, uint32_t head, bool cold, uint32_t *listed)
{
    const fby_index_t *index = check->index;
    for (uint32_t id = index->links[head].prev; id != head; id = index->links[id].prev) {
        const fby_node_t *node = &index->nodes[id];
        if (id >= index->fresh || node->state != FBY_NODE_INDEXED || fby_node_is_protected(node) ||
            ((node->flags & FBY_NODE_COLD) != 0) != cold || check->seen[id].place != 0 ||
            index->links[index->links[id].next].prev != id) {
            return fail(check, "node %u does not belong where it is listed", id);
        }
        check->seen[id].place = ++*listed;
    }
    return true;
}

static bool check_order(const check_t *check, uint32_t id)
{
    const fby_index_t *index = check->index;
    const fby_node_t *node = &index->nodes[id];
    if (check->seen[id].place == 0 || node->parent == FBY_NONE || !fby_node_is_current(index, node)) {
        return true;
    }
    const fby_node_t *parent = &index->nodes[node->parent];
    bool cold = (node->flags & FBY_NODE_COLD) != 0, parent_cold = (parent->flags & FBY_NODE_COLD) != 0;
    if (fby_node_is_protected(parent)) {
        return true;
    }
    if ((parent_cold && !cold) || (cold == parent_cold && check->seen[node->parent].place < check->seen[id].place)) {
        return fail(check, "LRU: node %u goes after its parent %u", id, node->parent);
    }
    return true;
}

static bool check_lists(const check_t *check)
{
    const fby_index_t *index = check->index;
    uint32_t listed = 0;
    for (uint32_t i = 0; i < FBY_LISTS; i++) {
        if (!check_list(check, index->config.max_nodes + i, i == 0, &listed)) {
            return false;
        }
    }
    if (listed != index->unprotected) {
        return fail(check, "%u nodes listed, %u are unprotected", listed, index->unprotected);
    }
    /* While walks are on their way, nodes may lie where their next step will not leave them. */
    for (uint32_t id = 0; !fby_index_walking(index) && id < index->fresh; id++) {
        if (!check_order(check, id)) {
            return false;
        }
    }
    return true;
}

static bool check_heap(const check_t *check)
{
    const fby_heap_t *heap = &check->index->heap;
    for (uint32_t id = 0; id < check->index->fresh; id++) {
        const fby_node_t *node = &check->index->nodes[id];
        bool in = fby_heap_has(heap, id);
        bool belongs = node->state == FBY_NODE_INDEXED && fby_node_is_candidate(node);
        if (fby_node_is_current(check->index, node) ? in != belongs : in && !belongs) {
            return fail(check, "node %u: candidate and heap disagree", id);
        }
    }
    for (uint32_t at = 0; at < heap->count; at++) {
        uint32_t id = heap->ids[at], up = heap->ids[at > 0 ? (at - 1) / 2 : 0];
        if (id >= check->index->fresh || heap->pos[id] != at || heap->keys[up] > heap->keys[id]) {
            return fail(check, "the heap is out of order at %u", at);
        }
    }
    return true;
}

static bool check_all(const check_t *check)
{
    const fby_index_t *index = check->index;
    gather(check);
    for (uint32_t id = 0; id < index->fresh; id++) {
        if (index->nodes[id].state != FBY_NODE_FREE && !check_node(check, id)) {
            return false;
        }
    }
    for (uint32_t g = 0; g < index->config.groups; g++) {
        if (!check_group(check, g)) {
            return false;
        }
    }
    return check_counts(check) && check_bytes(check) && check_table(check) &&
           (index->policy->list ? check_lists(check) : check_heap(check));
}

bool fby_index_check(const fby_index_t *index, char *why, size_t why_size)
{
    check_t check = {.index = index, .why = why, .why_size = why_size};
    check.seen = calloc((size_t)index->fresh + 1, sizeof(*check.seen));
    if (check.seen == NULL) {
        return fail(&check, "no memory to check with");
    }
    bool good = check_all(&check);
    free(check.seen);
    return good;
}
