/*
 * evict.h - what an eviction policy is: one table of functions.
 *
 * The index tells a policy what happens to unprotected nodes and asks it for a victim. A policy decides the order only;
 * who may go at all (leaves that nobody protects and no walk stands on) and the second chance of a sole checkpoint are
 * the index's business. No function may call back into pins or removal, but for `spare` of the list policy.
 *
 * To add a policy: a file with a stamp function and its row in evict_heap.c, or a file with a table of its own; and its
 * name in FBY_EVICTION_MAP.
 */
#ifndef FBY_INDEX_EVICT_H
#define FBY_INDEX_EVICT_H

#include "index/internal.h"

typedef struct fby_evict_policy {
    bool list; /* keeps index->links; otherwise index->heap */
    void (*init)(fby_index_t *index);
    /* A new node, unprotected and a leaf, its COLD flag set. */
    void (*insert)(fby_index_t *index, uint32_t id);
    /* Comes free, or is touched while it is free: used now. Its COLD flag is set. */
    void (*use)(fby_index_t *index, uint32_t id);
    /* Becomes protected, or is removed. */
    void (*leave)(fby_index_t *index, uint32_t id);
    /* The COLD flag of a free node changed without a use. */
    void (*place)(fby_index_t *index, uint32_t id);
    /* A free node became a candidate, or is none any more. */
    void (*refresh)(fby_index_t *index, uint32_t id);
    /* The victim offered gets a second chance: sets SPARED, others first. */
    void (*spare)(fby_index_t *index, uint32_t id);
    /* Who goes next: a candidate, or FBY_NONE. Moves at most *budget nodes that cannot go yet out of the way. */
    uint32_t (*victim)(fby_index_t *index, uint32_t *budget);
} fby_evict_policy_t;

/* Policies that rank: the stamp of a node that is published (fresh) or used at `now`; the smallest goes first. */
#define FBY_STAMP_MASK ((UINT64_C(1) << 62) - 1)
typedef uint64_t fby_evict_stamp_fn(uint64_t old, uint64_t now, bool fresh);
fby_evict_stamp_fn fby_evict_stamp_slru, fby_evict_stamp_lfu, fby_evict_stamp_fifo, fby_evict_stamp_mru,
    fby_evict_stamp_filo;

const fby_evict_policy_t *fby_evict_policy(fby_eviction_t eviction);
extern const fby_evict_policy_t fby_evict_lru;
extern const fby_evict_policy_t fby_evict_heap;

#endif
