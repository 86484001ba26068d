/*
 * index_reset.c - generations.
 *
 * A reset makes every node old at once by counting the generation; nobody finds an old node any more. The sweep then
 * looks at each node once: free ones go, protected ones are retired (out of the table, slots retired) and go when their
 * last pin has been walked. Old nodes are freed in any order, parents before children too, but only while no walk is
 * parked: then a free node has no protected descendant, so nobody will walk through it.
 */
#include "index/internal.h"

void fby_index_reset(fby_index_t *index)
{
    /* Sixteen bits come round. Then no node may be left that only its generation tells from a current one. */
    while (index->generation == UINT16_MAX && index->sweeping) {
        fby_index_sweep(index);
    }
    index->generation++;
    index->old_nodes = index->in_use;
    index->stats.nodes = 0;
    for (uint32_t g = 0; g < index->config.groups; g++) {
        index->stats.resident[g] = 0;
    }
    index->sweeping = true;
    index->sweep_at = 0;
}

static void retire(fby_index_t *index, uint32_t id)
{
    fby_node_t *node = &index->nodes[id];
    if ((node->flags & FBY_NODE_HASHED) != 0) {
        fby_node_unhash(index, id);
    }
    fby_payloads_drop(index, id);
    for (uint32_t g = 0; g < index->config.groups; g++) {
        if (index->config.trailing[g] == 0) {
            fby_slot_move(index->config.slots, index->slot_of[g][id], FBY_SLOT_RESIDENT, FBY_SLOT_RETIRED, id);
        }
    }
    node->state = FBY_NODE_RETIRED;
}

static bool any_pending(const fby_index_t *index)
{
    for (uint32_t ref = 0; ref < FBY_REFS; ref++) {
        if (index->pending_blocks[ref] > 0) {
            return true;
        }
    }
    return false;
}

/* All counts must be gone, not protection alone: walks of one class may be behind those of another, and still have to
   pass here. A +1 of any class that rests below a child will come, too; only a leaf can be sure that there is none. */
static bool is_over(const fby_index_t *index, const fby_node_t *node)
{
    return !fby_node_is_awaited(node) && (node->children == 0 || !any_pending(index));
}

void fby_reset_settle(fby_index_t *index, uint32_t id)
{
    const fby_node_t *node = &index->nodes[id];
    while (is_over(index, node)) {
        uint32_t above = node->parent;
        uint16_t generation = node->generation;
        fby_node_free(index, id);
        if (above == FBY_NONE) {
            return;
        }
        /* A retired parent may have waited for its last child only. An unswept one waits for the sweep. */
        node = &index->nodes[above];
        if (node->state != FBY_NODE_RETIRED || node->generation != generation) {
            return;
        }
        id = above;
    }
}

bool fby_index_sweep(fby_index_t *index)
{
    if (!index->sweeping) {
        return false;
    }
    /* With no walk pending, protection is exact. */
    if (fby_index_walking(index)) {
        fby_index_walk(index);
        return true;
    }
    for (uint32_t i = 0; i < index->walk_step && index->sweep_at < index->fresh; i++) {
        uint32_t id = index->sweep_at++;
        const fby_node_t *node = &index->nodes[id];
        if (node->state == FBY_NODE_FREE || node->generation == index->generation) {
            continue;
        }
        if (fby_node_is_protected(node)) {
            if (node->state == FBY_NODE_INDEXED) {
                retire(index, id);
            }
        } else {
            fby_reset_settle(index, id);
        }
    }
    index->sweeping = index->sweep_at < index->fresh;
    return index->sweeping;
}

bool fby_index_clean(const fby_index_t *index)
{
    return !index->sweeping && index->old_nodes == 0;
}
