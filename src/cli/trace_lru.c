/* trace_lru.c - how much of a trace a cache of a given size would answer, on Forebay's own index under `lru`. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/trace.h"
#include "index/index.h"
#include "pool/slots.h"

typedef struct cache {
    fby_slots_t slots;
    fby_index_t *index;
    void *slot_memory, *index_memory;
} cache_t;

static void cache_close(cache_t *cache)
{
    free(cache->slot_memory);
    free(cache->index_memory);
}

static int cache_open(cache_t *cache, uint32_t capacity)
{
    fby_index_config_t config = {
        .max_nodes = capacity, .groups = 1, .slot_bytes = {1}, .eviction = FBY_EVICT_LRU, .slots = &cache->slots};
    size_t slot_bytes = fby_slots_bytes(capacity), index_bytes = fby_index_bytes(&config);
    cache->slot_memory = aligned_alloc(64, fby_align_up(slot_bytes, 64));
    cache->index_memory = aligned_alloc(64, fby_align_up(index_bytes, 64));
    if (cache->slot_memory == NULL || cache->index_memory == NULL) {
        cache_close(cache);
        return -ENOMEM;
    }
    memset(cache->slot_memory, 0, slot_bytes);
    memset(cache->index_memory, 0, index_bytes);
    fby_slots_init(&cache->slots, 1, &capacity, cache->slot_memory);
    cache->index = fby_index_init(&config, cache->index_memory);
    return 0;
}

/* A trace's ids name prefixes already, so an id spread over the hash's bits is a chain hash. */
static fby_hash_t hash_of(uint32_t id)
{
    uint64_t z = id + UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    return (fby_hash_t){{z ^ (z >> 27), id}};
}

static void finish_walks(fby_index_t *index)
{
    while (fby_index_walk(index)) {}
}

/* FBY_NONE when nothing can be evicted: the request alone fills the cache. */
static uint32_t take_slot(cache_t *cache)
{
    uint32_t slot = fby_slot_take(&cache->slots, 0, 0);
    if (slot == FBY_NONE && fby_index_evict(cache->index, 0)) {
        slot = fby_slot_take(&cache->slots, 0, 0);
    }
    return slot;
}

/* Publishes blocks [from, n) under `node`, the last one that is there and pinned; the pin moves on with each. */
static void publish(cache_t *cache, const fby_hash_t *hashes, uint32_t from, uint32_t n, uint32_t node)
{
    for (uint32_t b = from; b < n; b++) {
        uint32_t slot = take_slot(cache);
        if (slot == FBY_NONE) {
            break;
        }
        uint32_t child = fby_index_insert(cache->index, node, &hashes[b], &slot, false);
        fby_index_pin(cache->index, child, FBY_PIN_HOLD);
        if (node != FBY_NONE) {
            fby_index_unpin(cache->index, node, FBY_PIN_HOLD, false);
        }
        finish_walks(cache->index);
        node = child;
    }
    if (node != FBY_NONE) {
        fby_index_unpin(cache->index, node, FBY_PIN_HOLD, false);
        finish_walks(cache->index);
    }
}

/* Matches, protects what matched, publishes the rest. The matched length. */
static uint32_t serve(cache_t *cache, const fby_hash_t *hashes, uint32_t n)
{
    uint32_t node = FBY_NONE;
    uint32_t hit = fby_index_match(cache->index, hashes, 0, n, &node);
    if (node != FBY_NONE) {
        fby_index_pin(cache->index, node, FBY_PIN_HOLD);
        finish_walks(cache->index);
    }
    publish(cache, hashes, hit, n, node);
    return hit;
}

int fby_trace_lru_hits(const fby_trace_t *trace, uint32_t capacity, fby_trace_hits_t *out)
{
    cache_t cache = {0};
    fby_trace_hits_t hits = {0};
    uint32_t longest = 1;
    for (uint32_t i = 0; i < trace->requests; i++) {
        longest = FBY_MAX(longest, trace->request[i].blocks);
    }
    fby_hash_t *hashes = malloc(longest * sizeof(*hashes));
    int status = hashes == NULL ? -ENOMEM : cache_open(&cache, capacity);
    for (uint32_t i = 0; i < trace->requests && status == 0; i++) {
        const uint32_t *ids = fby_trace_ids(trace, i);
        uint32_t blocks = trace->request[i].blocks;
        for (uint32_t b = 0; b < blocks; b++) {
            hashes[b] = hash_of(ids[b]);
        }
        fby_trace_count_hit(&trace->request[i], serve(&cache, hashes, blocks), &hits);
    }
    if (status == 0) {
        cache_close(&cache);
        *out = hits;
    }
    free(hashes);
    return status;
}
