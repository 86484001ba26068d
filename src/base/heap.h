/*
 * heap.h - a binary heap of small integer ids with caller-owned keys and positions.
 *
 * Memory is given by the caller and never grows. pos[id] is FBY_NONE while id is not in the heap.
 * push, remove, update are O(log n); top is O(1). Order is by key, then by id, so that equal keys are deterministic.
 */
#ifndef FBY_BASE_HEAP_H
#define FBY_BASE_HEAP_H

#include "base/base.h"

typedef struct fby_heap {
    uint32_t *ids;  /* capacity */
    uint32_t *pos;  /* one per possible id */
    uint64_t *keys; /* one per possible id */
    uint32_t count, capacity;
} fby_heap_t;

/* Bytes for n ids (all of ids, pos and keys), multiple of 8. */
size_t fby_heap_bytes(uint32_t n);
/* `memory` is 8-aligned and fby_heap_bytes(n) long. */
void fby_heap_init(fby_heap_t *heap, uint32_t n, void *memory);
/* Inserts, or changes the key of an id that is already there. */
void fby_heap_set(fby_heap_t *heap, uint32_t id, uint64_t key);
/* Harmless when absent. */
void fby_heap_remove(fby_heap_t *heap, uint32_t id);
/* Smallest, or FBY_NONE. */
static inline uint32_t fby_heap_top(const fby_heap_t *heap)
{
    return heap->count ? heap->ids[0] : FBY_NONE;
}
static inline uint64_t fby_heap_top_key(const fby_heap_t *heap)
{
    return heap->count ? heap->keys[heap->ids[0]] : FBY_NEVER;
}
static inline bool fby_heap_has(const fby_heap_t *heap, uint32_t id)
{
    return heap->pos[id] != FBY_NONE;
}

#endif
