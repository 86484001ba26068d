/*
 * evict_lru.c - least recently used, exact, O(1).
 *
 * INVARIANT  every free (unprotected) node is on one of two lists: cold ones, which go first, and the others; both used
 * last in front. A parent is in front of its children on the same list, because every use runs from the deepest block
 * upwards and a new node is put right behind its parent. So the tail is a leaf, except where a pending walk has yet to
 * take off or move up what is in the way, or stands; such nodes are passed over when the tail is asked for.
 */
#include "index/evict.h"

static uint32_t head_of(const fby_index_t *index, uint32_t id)
{
    return index->config.max_nodes + ((index->nodes[id].flags & FBY_NODE_COLD) != 0 ? 0 : 1);
}

static void lru_init(fby_index_t *index)
{
    for (uint32_t i = 0; i < FBY_LISTS; i++) {
        fby_list_init(index->links, index->config.max_nodes + i);
    }
}

/* The parent, when the node would lie on the same list as it; otherwise the head of that list. */
static uint32_t before(const fby_index_t *index, uint32_t id)
{
    uint32_t parent = index->nodes[id].parent;
    uint32_t head = head_of(index, id);
    if (parent != FBY_NONE && !fby_node_is_protected(&index->nodes[parent]) && head_of(index, parent) == head) {
        return parent;
    }
    return head;
}

static void lru_insert(fby_index_t *index, uint32_t id)
{
    fby_list_init(index->links, id);
    fby_list_insert_after(index->links, before(index, id), id);
}

static void lru_leave(fby_index_t *index, uint32_t id)
{
    fby_list_remove(index->links, id);
}

static void lru_use(fby_index_t *index, uint32_t id)
{
    fby_list_remove(index->links, id);
    fby_list_push_front(index->links, head_of(index, id), id);
}

static void lru_place(fby_index_t *index, uint32_t id)
{
    fby_list_remove(index->links, id);
    if ((index->nodes[id].flags & FBY_NODE_COLD) != 0) {
        fby_list_push_back(index->links, head_of(index, id), id); /* next: what it was kept for is gone */
    } else {
        fby_list_insert_after(index->links, before(index, id), id);
    }
}

static void lru_refresh(fby_index_t *index, uint32_t id)
{
    (void)index;
    (void)id;
}

/* Its ancestors would be in the way if it moved alone. */
static void lru_spare(fby_index_t *index, uint32_t id)
{
    fby_index_touch(index, id);
    index->nodes[id].flags |= FBY_NODE_SPARED;
}

/* What cannot go stays where it is: moved, it would pass its parent, and a walk that only charges would not repair that.
   Looks at no more than *budget such nodes, which exist only while a walk is on its way. */
static uint32_t list_victim(const fby_index_t *index, uint32_t head, uint32_t *budget)
{
    for (uint32_t id = index->links[head].prev; id != head && *budget > 0; id = index->links[id].prev) {
        if (fby_node_is_candidate(&index->nodes[id])) {
            return id;
        }
        (*budget)--;
    }
    return FBY_NONE;
}

static uint32_t lru_victim(fby_index_t *index, uint32_t *budget)
{
    uint32_t id = FBY_NONE;
    for (uint32_t i = 0; i < FBY_LISTS && id == FBY_NONE; i++) {
        id = list_victim(index, index->config.max_nodes + i, budget);
    }
    return id;
}

const fby_evict_policy_t fby_evict_lru = {
    .list = true,
    .init = lru_init,
    .insert = lru_insert,
    .use = lru_use,
    .leave = lru_leave,
    .place = lru_place,
    .refresh = lru_refresh,
    .spare = lru_spare,
    .victim = lru_victim,
};
