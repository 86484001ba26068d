/*
 * index_evict.c - who goes, whatever the policy: candidates, cold blocks, the second chance, removal.
 *
 * With trailing groups a chain can be resumed at checkpoints only. A leaf that ends no checkpoint is cold from the
 * moment it comes to lie free, and so, one after the other, are its parents up to the last checkpoint. A leaf that is
 * the sole checkpoint of its chain is passed over once between two uses, at most FBY_SECOND_CHANCES leaves between two
 * evictions, so the search ends.
 */
#include "index/evict.h"
#include "index/internal.h"

void fby_node_use(fby_index_t *index, uint32_t id, bool cold)
{
    fby_node_t *node = &index->nodes[id];
    node->flags &= (uint8_t) ~(FBY_NODE_SPARED | FBY_NODE_COLD);
    node->flags |= cold || fby_node_ends_nothing(index, id) ? FBY_NODE_COLD : 0;
    index->policy->use(index, id);
}

void fby_node_refresh(fby_index_t *index, uint32_t id)
{
    fby_node_t *node = &index->nodes[id];
    if (!fby_node_is_current(index, node) || fby_node_is_protected(node)) {
        return;
    }
    if ((node->flags & FBY_NODE_COLD) == 0 && fby_node_ends_nothing(index, id)) {
        node->flags |= FBY_NODE_COLD;
        index->policy->place(index, id);
    } else {
        index->policy->refresh(index, id);
    }
}

void fby_node_warm(fby_index_t *index, uint32_t id)
{
    fby_node_t *node = &index->nodes[id];
    if (fby_node_is_protected(node) || (node->flags & FBY_NODE_COLD) == 0 || fby_node_ends_nothing(index, id)) {
        return;
    }
    if (node->parent != FBY_NONE && (index->nodes[node->parent].flags & FBY_NODE_COLD) != 0) {
        return;
    }
    node->flags &= (uint8_t)~FBY_NODE_COLD;
    index->policy->place(index, id);
}

/* Payloads in every trailing group: see fby_node_ends_nothing. */
static bool has_all_payloads(const fby_index_t *index, uint32_t id)
{
    for (uint32_t g = 0; g < index->config.groups; g++) {
        if (index->config.trailing[g] > 0 && index->slot_of[g][id] == FBY_NONE) {
            return false;
        }
    }
    return true;
}

bool fby_node_is_sole_checkpoint(const fby_index_t *index, uint32_t id)
{
    const fby_node_t *node = &index->nodes[id];
    if (!index->has_trailing || node->children > 0 || (node->flags & (FBY_NODE_SPARED | FBY_NODE_COLD)) != 0 ||
        !has_all_payloads(index, id)) {
        return false;
    }
    uint32_t above = node->parent;
    for (uint32_t i = 0; i < FBY_SOLE_DISTANCE && above != FBY_NONE; i++) {
        if (has_all_payloads(index, above)) {
            return false;
        }
        above = index->nodes[above].parent;
    }
    return true;
}

/* Sparing only helps when something lies free beside the victim's own chain. */
static bool deserves_second_chance(const fby_index_t *index, uint32_t id)
{
    return index->chances > 0 && index->unprotected > (uint64_t)index->nodes[id].block + 1 &&
           fby_node_is_sole_checkpoint(index, id);
}

void fby_node_unhash(fby_index_t *index, uint32_t id)
{
    fby_node_t *node = &index->nodes[id];
    fby_table_remove(index, id);
    index->stats.removed++;
    if (index->config.event != NULL) {
        index->config.event(index->config.event_arg, false, &node->hash, node->block);
    }
}

static void free_slots(fby_index_t *index, uint32_t id)
{
    fby_slot_state_t from = index->nodes[id].state == FBY_NODE_RETIRED ? FBY_SLOT_RETIRED : FBY_SLOT_RESIDENT;
    bool current = fby_node_is_current(index, &index->nodes[id]);
    fby_payloads_drop(index, id);
    for (uint32_t g = 0; g < index->config.groups; g++) {
        if (index->config.trailing[g] > 0) {
            continue;
        }
        fby_slot_move(index->config.slots, index->slot_of[g][id], from, FBY_SLOT_FREE, FBY_NONE);
        index->slot_of[g][id] = FBY_NONE;
        index->stats.resident[g] -= current ? 1 : 0;
    }
}

/* The parent of an old node may have been swept, and its id given to another block, before the node is. */
static void leave_parent(fby_index_t *index, const fby_node_t *node)
{
    if (node->parent == FBY_NONE) {
        return;
    }
    fby_node_t *parent = &index->nodes[node->parent];
    if (parent->state != FBY_NODE_FREE && parent->generation == node->generation) {
        parent->children--;
        fby_node_refresh(index, node->parent);
    }
}

void fby_node_free(fby_index_t *index, uint32_t id)
{
    fby_node_t *node = &index->nodes[id];
    if (node->state == FBY_NODE_INDEXED) {
        index->unprotected--;
        index->policy->leave(index, id);
    }
    free_slots(index, id);
    if ((node->flags & FBY_NODE_HASHED) != 0) {
        fby_node_unhash(index, id);
    }
    leave_parent(index, node);
    if (fby_node_is_current(index, node)) {
        index->stats.nodes--;
    } else {
        index->old_nodes--;
    }
    index->in_use--;
    node->state = FBY_NODE_FREE;
    node->flags = 0;
    node->parent = index->free_head;
    index->free_head = id;
}

/* Only a pending walk makes a policy meet nodes that cannot go; then its moves are bounded like a walk's. */
static uint32_t move_budget(const fby_index_t *index, uint32_t left)
{
    return fby_index_walking(index) ? FBY_MIN(left, index->walk_step) : left;
}

static bool evict_leaf(fby_index_t *index)
{
    uint32_t budget = move_budget(index, UINT32_MAX);
    uint32_t id;
    while ((id = index->policy->victim(index, &budget)) != FBY_NONE) {
        if (deserves_second_chance(index, id)) {
            index->chances--;
            index->policy->spare(index, id);
            budget = move_budget(index, budget);
            continue;
        }
        index->chances = FBY_SECOND_CHANCES;
        index->stats.evicted++;
        index->stats.evicted_before_use += (index->nodes[id].flags & FBY_NODE_PREFETCHED) != 0;
        fby_node_free(index, id);
        return true;
    }
    return false;
}

bool fby_index_evict_one(fby_index_t *index, uint32_t group)
{
    return index->config.trailing[group] > 0 ? fby_payload_evict(index, group) : evict_leaf(index);
}

bool fby_index_evict(fby_index_t *index, uint32_t group)
{
    const fby_slots_t *slots = index->config.slots;
    /* Blocks of an older generation are nobody's: they go first, and the policy never sees one. */
    while (index->sweeping && fby_slots_free(slots, group) == 0) {
        fby_index_sweep(index);
    }
    while (fby_slots_free(slots, group) == 0) {
        if (!fby_index_evict_one(index, group)) {
            return false;
        }
    }
    return true;
}
