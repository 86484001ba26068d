/*
 * evict_heap.c - policies that rank: a heap over candidate leaves, smallest key first, O(log n).
 *
 * Key: bit 63 not cold, bit 62 spared, below them the policy's stamp. The key of a node that is not in the heap keeps
 * its stamp until it becomes a candidate. `now` counts publications and uses: ties need a saturated stamp.
 */
#include "index/evict.h"

#define KEY_WARM (UINT64_C(1) << 63)
#define KEY_SPARED (UINT64_C(1) << 62)

static fby_evict_stamp_fn *const stamps[FBY_EVICTION_COUNT] = {
    [FBY_EVICT_SLRU] = fby_evict_stamp_slru, [FBY_EVICT_LFU] = fby_evict_stamp_lfu,
    [FBY_EVICT_FIFO] = fby_evict_stamp_fifo, [FBY_EVICT_MRU] = fby_evict_stamp_mru,
    [FBY_EVICT_FILO] = fby_evict_stamp_filo,
};

const fby_evict_policy_t *fby_evict_policy(fby_eviction_t eviction)
{
    return stamps[eviction] == NULL ? &fby_evict_lru : &fby_evict_heap;
}

static void heap_refresh(fby_index_t *index, uint32_t id)
{
    const fby_node_t *node = &index->nodes[id];
    uint64_t key = index->heap.keys[id] & FBY_STAMP_MASK;
    key |= (node->flags & FBY_NODE_COLD) != 0 ? 0 : KEY_WARM;
    key |= (node->flags & FBY_NODE_SPARED) != 0 ? KEY_SPARED : 0;
    if (fby_node_is_candidate(node)) {
        fby_heap_set(&index->heap, id, key);
    } else {
        fby_heap_remove(&index->heap, id);
        index->heap.keys[id] = key;
    }
}

static void stamp(fby_index_t *index, uint32_t id, bool fresh)
{
    uint64_t old = index->heap.keys[id] & FBY_STAMP_MASK;
    fby_heap_remove(&index->heap, id);
    index->heap.keys[id] = stamps[index->config.eviction](old, ++index->uses, fresh);
    heap_refresh(index, id);
}

static void heap_init(fby_index_t *index)
{
    (void)index; /* the layout has done it */
}

static void heap_insert(fby_index_t *index, uint32_t id)
{
    stamp(index, id, true);
}

static void heap_use(fby_index_t *index, uint32_t id)
{
    stamp(index, id, false);
}

static void heap_leave(fby_index_t *index, uint32_t id)
{
    fby_heap_remove(&index->heap, id);
}

static void heap_spare(fby_index_t *index, uint32_t id)
{
    index->nodes[id].flags |= FBY_NODE_SPARED;
    heap_refresh(index, id);
}

static uint32_t heap_victim(fby_index_t *index, uint32_t *budget)
{
    (void)budget; /* everybody in the heap may go */
    return fby_heap_top(&index->heap);
}

const fby_evict_policy_t fby_evict_heap = {
    .list = false,
    .init = heap_init,
    .insert = heap_insert,
    .use = heap_use,
    .leave = heap_leave,
    .place = heap_refresh,
    .refresh = heap_refresh,
    .spare = heap_spare,
    .victim = heap_victim,
};
