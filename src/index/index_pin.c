/*
 * index_pin.c - pins, what they charge, and the walks that carry both up the chain.
 *
 * A walk applies the same step to a node, its parent, and so on: +1 or -1 to some of the node's refs. A count that does
 * not pass between 0 and 1 ends its part of the walk. Steps only add, so the order in which walks pass a node does not
 * matter for the counts in the end; on the way a count may be below what it will be, even below 0, never above.
 *
 * Recency is repaired where orders cross: a -1 that overtakes the +1 of the same branch stops at a node that was never
 * taken off its list. When the +1 arrives it finds 0 instead of 1 and goes on as a touch, so that the blocks count as
 * used all the same.
 *
 * PROVISIONAL  a parked +1 walk may still reach every block from its node to block 0: they count as charged (and as not
 * evictable) until the walk moves on.
 */
#include "index/evict.h"
#include "index/internal.h"

#define PROTECT_BIT (1u << FBY_REF_PROTECT)

bool fby_pin_allowed(fby_index_t *index, uint32_t id)
{
    if (id >= index->fresh || index->nodes[id].state == FBY_NODE_FREE) {
        return fby_index_violation(index, "pin of a node that is not there", id);
    }
    const fby_node_t *node = &index->nodes[id];
    if (!fby_node_is_current(index, node) && !fby_node_is_protected(node)) {
        return fby_index_violation(index, "pin of a block of an older generation", id);
    }
    return true;
}

/* ---- Steps ---- */

static bool carries(const fby_walk_t *walk, uint32_t ref)
{
    return ((uint32_t)walk->mask & (1u << ref)) != 0;
}

static bool comes_free_cold(const fby_index_t *index, uint32_t id, const fby_walk_t *walk)
{
    const fby_node_t *node = &index->nodes[id];
    if (!walk->cold || node->children == 0) {
        return walk->cold;
    }
    /* The only child must be cold, too. `child` may be another node by now; then it has to be the one that we need. */
    if (node->children > 1 || walk->child == FBY_NONE) {
        return false;
    }
    const fby_node_t *child = &index->nodes[walk->child];
    return child->state == FBY_NODE_INDEXED && child->parent == id && (child->flags & FBY_NODE_COLD) != 0;
}

static void protection_changed(fby_index_t *index, uint32_t id, const fby_walk_t *walk)
{
    fby_node_t *node = &index->nodes[id];
    if (node->state != FBY_NODE_INDEXED) {
        return;
    }
    if (fby_node_is_protected(node)) {
        index->unprotected--;
        index->policy->leave(index, id);
        node->flags &= (uint8_t)~FBY_NODE_COLD;
    } else {
        index->unprotected++;
        fby_node_use(index, id, comes_free_cold(index, id, walk));
    }
}

/* True when the node's status changed, so that the parent must learn of it. */
static bool apply_ref(fby_index_t *index, uint32_t id, fby_walk_t *walk, uint32_t ref)
{
    fby_node_t *node = &index->nodes[id];
    bool before = node->refs[ref] > 0;
    node->refs[ref] += walk->delta;
    bool after = node->refs[ref] > 0;
    if (before == after) {
        if (ref == FBY_REF_PROTECT && walk->delta > 0 && node->refs[ref] == 0) {
            walk->mask |= FBY_WALK_TOUCH; /* overtaken, see above */
        }
        return false;
    }
    if (ref == FBY_REF_PROTECT) {
        protection_changed(index, id, walk);
    } else if (after) {
        index->charged[ref]++;
        if (ref == FBY_REF_HOLD) {
            node->flags &= (uint8_t)~FBY_NODE_PREFETCHED;
        }
    } else {
        index->charged[ref]--;
    }
    return true;
}

/* A protected node, and all above it, will come back as used anyway. */
static bool apply_touch(fby_index_t *index, uint32_t id, const fby_walk_t *walk)
{
    fby_node_t *node = &index->nodes[id];
    if (fby_node_is_protected(node) || !fby_node_is_current(index, node)) {
        return false;
    }
    fby_node_use(index, id, false);
    fby_payloads_touch(index, id, walk->end);
    return true;
}

static void walk_step(fby_index_t *index, fby_walk_t *walk)
{
    uint32_t id = walk->node;
    fby_node_t *node = &index->nodes[id];
    uint8_t goes_on = 0;
    for (uint32_t ref = 0; ref < FBY_REFS; ref++) {
        if (carries(walk, ref) && apply_ref(index, id, walk, ref)) {
            goes_on |= (uint8_t)(1u << ref);
        }
    }
    if ((walk->mask & FBY_WALK_TOUCH) != 0 && apply_touch(index, id, walk)) {
        goes_on |= FBY_WALK_TOUCH;
    }
    walk->mask = goes_on;
    walk->child = id;
    walk->node = node->parent;
    if (walk->node == FBY_NONE) {
        walk->mask = 0;
    }
    if (fby_node_is_current(index, node)) {
        fby_node_refresh(index, id);
    } else {
        fby_reset_settle(index, id); /* the parent stays: it still has our count, or we are its walker */
    }
}

/* ---- Parked walks ---- */

static fby_walk_t *walk_at(const fby_index_t *index, uint32_t place)
{
    return &index->walks[(index->walk_head + place) % FBY_WALKS];
}

static void count_provisional(fby_index_t *index, const fby_walk_t *walk, bool add)
{
    uint64_t blocks = (uint64_t)index->nodes[walk->node].block + 1;
    for (uint32_t ref = 0; ref < FBY_REFS; ref++) {
        if (walk->delta > 0 && carries(walk, ref)) {
            index->pending_blocks[ref] += add ? blocks : 0 - blocks;
        }
    }
}

static void walk_park(fby_index_t *index, const fby_walk_t *walk)
{
    count_provisional(index, walk, true);
    index->nodes[walk->node].walkers++;
    fby_node_refresh(index, walk->node);
}

static void walk_unpark(fby_index_t *index, const fby_walk_t *walk)
{
    count_provisional(index, walk, false);
    index->nodes[walk->node].walkers--;
}

static void walk_run(fby_index_t *index, fby_walk_t *walk, uint32_t *budget)
{
    while (walk->mask != 0 && *budget > 0) {
        (*budget)--;
        walk_step(index, walk);
    }
}

uint64_t fby_walk_start(fby_index_t *index, fby_walk_t walk)
{
    uint32_t budget = index->walk_count < FBY_WALKS ? index->walk_step : UINT32_MAX;
    walk_run(index, &walk, &budget);
    if (walk.mask == 0) {
        return 0;
    }
    walk.ticket = index->next_ticket++;
    *walk_at(index, index->walk_count++) = walk;
    walk_park(index, &walk);
    return walk.ticket;
}

bool fby_index_walking(const fby_index_t *index)
{
    return index->walk_count > 0;
}

bool fby_index_walk(fby_index_t *index)
{
    uint32_t budget = index->walk_step;
    while (index->walk_count > 0 && budget > 0) {
        fby_walk_t *walk = walk_at(index, 0);
        walk_unpark(index, walk);
        walk_run(index, walk, &budget);
        if (walk->mask != 0) {
            walk_park(index, walk);
        } else {
            index->walk_head = (index->walk_head + 1) % FBY_WALKS;
            index->walk_count--;
        }
    }
    return index->walk_count > 0;
}

/* Walks are finished in the order of their tickets. */
bool fby_index_charged(const fby_index_t *index, uint64_t ticket)
{
    return index->walk_count == 0 || ticket < walk_at(index, 0)->ticket;
}

/* ---- Pins ---- */

static uint8_t class_mask(fby_pin_class_t class_)
{
    return (uint8_t)(class_ == FBY_PIN_WRITE ? PROTECT_BIT : PROTECT_BIT | 1u << class_);
}

uint64_t fby_index_pin(fby_index_t *index, uint32_t node, fby_pin_class_t class_)
{
    if (!fby_pin_allowed(index, node)) {
        return 0;
    }
    if (index->nodes[node].pins[class_]++ == 0 && class_ == FBY_PIN_WRITE) {
        index->flat_bytes[class_] += index->all_bytes;
    }
    return fby_walk_start(
        index, (fby_walk_t){.node = node, .child = FBY_NONE, .end = FBY_NONE, .mask = class_mask(class_), .delta = 1});
}

void fby_index_unpin(fby_index_t *index, uint32_t node, fby_pin_class_t class_, bool cold)
{
    if (node >= index->fresh || index->nodes[node].state == FBY_NODE_FREE || index->nodes[node].pins[class_] == 0) {
        fby_index_violation(index, "unpin without a pin", node);
        return;
    }
    if (--index->nodes[node].pins[class_] == 0 && class_ == FBY_PIN_WRITE) {
        index->flat_bytes[class_] -= index->all_bytes;
    }
    fby_walk_start(
        index,
        (fby_walk_t){
            .node = node, .child = FBY_NONE, .end = FBY_NONE, .mask = class_mask(class_), .delta = -1, .cold = cold});
}

void fby_index_touch(fby_index_t *index, uint32_t node)
{
    fby_walk_start(
        index,
        (fby_walk_t){.node = node, .child = FBY_NONE, .end = index->nodes[node].block + 1, .mask = FBY_WALK_TOUCH});
}

/* ---- What is charged ---- */

uint32_t fby_index_pins(const fby_index_t *index, uint32_t node, fby_pin_class_t class_)
{
    return index->nodes[node].pins[class_];
}

bool fby_index_is_charged(const fby_index_t *index, uint32_t node, fby_pin_class_t class_)
{
    const fby_node_t *entry = &index->nodes[node];
    return class_ == FBY_PIN_WRITE ? entry->pins[class_] > 0 : entry->refs[class_] > 0;
}

uint64_t fby_index_charged_bytes(const fby_index_t *index, fby_pin_class_t class_)
{
    if (class_ == FBY_PIN_WRITE) {
        return index->flat_bytes[class_];
    }
    return index->flat_bytes[class_] + (index->charged[class_] + index->pending_blocks[class_]) * index->all_bytes;
}

uint64_t fby_index_charge_estimate(const fby_index_t *index, uint32_t node, fby_pin_class_t class_)
{
    if (class_ == FBY_PIN_WRITE) {
        return index->nodes[node].pins[class_] > 0 ? 0 : index->all_bytes;
    }
    uint64_t blocks = 0;
    for (uint32_t at = node; at != FBY_NONE && index->nodes[at].refs[class_] <= 0; at = index->nodes[at].parent) {
        if (++blocks == index->walk_step) {
            /* the pin's walk will have no step left to learn that the next block is charged: it parks there */
            blocks = (uint64_t)index->nodes[node].block + 1;
            break;
        }
    }
    return blocks * index->all_bytes;
}
