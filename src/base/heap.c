#include "base/heap.h"

#include <string.h>

static bool heap_before(const fby_heap_t *heap, uint32_t a, uint32_t b)
{
    return heap->keys[a] != heap->keys[b] ? heap->keys[a] < heap->keys[b] : a < b;
}

static void heap_place(fby_heap_t *heap, uint32_t at, uint32_t id)
{
    heap->ids[at] = id;
    heap->pos[id] = at;
}

/* Moves the entry at `at` towards the root until its parent comes before it; returns where it ended. */
static uint32_t heap_up(fby_heap_t *heap, uint32_t at)
{
    uint32_t id = heap->ids[at];
    while (at > 0) {
        uint32_t parent = (at - 1) / 2;
        if (!heap_before(heap, id, heap->ids[parent])) {
            break;
        }
        heap_place(heap, at, heap->ids[parent]);
        at = parent;
    }
    heap_place(heap, at, id);
    return at;
}

static void heap_down(fby_heap_t *heap, uint32_t at)
{
    uint32_t id = heap->ids[at];
    for (;;) {
        size_t child = 2 * (size_t)at + 1;
        if (child >= heap->count) {
            break;
        }
        if (child + 1 < heap->count && heap_before(heap, heap->ids[child + 1], heap->ids[child])) {
            child++;
        }
        if (!heap_before(heap, heap->ids[child], id)) {
            break;
        }
        heap_place(heap, at, heap->ids[child]);
        at = (uint32_t)child;
    }
    heap_place(heap, at, id);
}

static void heap_settle(fby_heap_t *heap, uint32_t at)
{
    heap_down(heap, heap_up(heap, at));
}

size_t fby_heap_bytes(uint32_t n)
{
    return (size_t)n * (sizeof(uint64_t) + 2 * sizeof(uint32_t));
}

void fby_heap_init(fby_heap_t *heap, uint32_t n, void *memory)
{
    /* Keys first: they need the 8-byte alignment that `memory` has. */
    heap->keys = memory;
    heap->ids = (uint32_t *)(heap->keys + n);
    heap->pos = heap->ids + n;
    heap->count = 0;
    heap->capacity = n;
    if (n > 0) {
        memset(heap->pos, 0xFF, n * sizeof(*heap->pos)); /* FBY_NONE */
    }
}

void fby_heap_set(fby_heap_t *heap, uint32_t id, uint64_t key)
{
    heap->keys[id] = key;
    if (heap->pos[id] == FBY_NONE) {
        heap_place(heap, heap->count++, id);
    }
    heap_settle(heap, heap->pos[id]);
}

void fby_heap_remove(fby_heap_t *heap, uint32_t id)
{
    uint32_t at = heap->pos[id];
    if (at == FBY_NONE) {
        return;
    }
    heap->pos[id] = FBY_NONE;
    uint32_t last = heap->ids[--heap->count];
    if (last != id) {
        heap_place(heap, at, last);
        heap_settle(heap, at);
    }
}
