/*
 * bench_index - what the index costs: bench_index [blocks] [policy]
 *
 * Fills an index with chains of 1,024 blocks (default 10,000,000 blocks, lru), then matches, pins and evicts. Prints
 * bytes per block, probes per match and nanoseconds per operation.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "index/index.h"

enum { CHAIN = 1024, ROUNDS = 20000 };

typedef struct bench {
    fby_slots_t slots;
    fby_index_t *index;
    void *slot_memory, *memory;
    uint32_t blocks;
    fby_hash_t hashes[CHAIN];
} bench_t;

static double now_s(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static void name_chain(bench_t *bench, uint64_t chain)
{
    for (uint64_t i = 0; i < CHAIN; i++) {
        uint64_t id = chain * CHAIN + i + 1;
        bench->hashes[i] = (fby_hash_t){{mix(id * UINT64_C(0x9E3779B97F4A7C15)), mix(id)}};
    }
}

static bool bench_open(bench_t *bench, uint32_t blocks, fby_eviction_t eviction)
{
    fby_index_config_t config = {
        .max_nodes = blocks, .groups = 1, .slot_bytes = {4096}, .eviction = eviction, .slots = &bench->slots};
    size_t bytes = fby_index_bytes(&config), slot_bytes = fby_slots_bytes(blocks);
    bench->blocks = blocks;
    bench->memory = aligned_alloc(64, bytes);
    bench->slot_memory = malloc(slot_bytes);
    if (bench->memory == NULL || bench->slot_memory == NULL) {
        return false;
    }
    memset(bench->memory, 0, bytes);
    memset(bench->slot_memory, 0, slot_bytes);
    fby_slots_init(&bench->slots, 1, &blocks, bench->slot_memory);
    bench->index = fby_index_init(&config, bench->memory);
    printf("index bytes per block   %8.2f\n", (double)bytes / blocks);
    printf("slot bytes per block    %8.2f\n", (double)slot_bytes / blocks);
    return true;
}

/* As a session publishes: each block is pinned, the pin of its parent let go. Returns the seconds inside the index. */
static double publish_chain(bench_t *bench, uint64_t chain)
{
    uint32_t node = FBY_NONE;
    name_chain(bench, chain);
    double start = now_s();
    for (uint32_t i = 0; i < CHAIN; i++) {
        if (!fby_index_evict(bench->index, 0)) {
            fprintf(stderr, "bench_index: nothing to evict\n");
            exit(1);
        }
        uint32_t slot = fby_slot_take(&bench->slots, 0, 0);
        uint32_t child = fby_index_insert(bench->index, node, &bench->hashes[i], &slot, false);
        fby_index_pin(bench->index, child, FBY_PIN_SESSION);
        if (node != FBY_NONE) {
            fby_index_unpin(bench->index, node, FBY_PIN_SESSION, false);
        }
        node = child;
    }
    fby_index_unpin(bench->index, node, FBY_PIN_SESSION, false);
    while (fby_index_walk(bench->index)) {}
    return now_s() - start;
}

static uint64_t fill(bench_t *bench)
{
    uint64_t chains = bench->blocks / CHAIN;
    double spent = 0;
    for (uint64_t chain = 0; chain < chains; chain++) {
        spent += publish_chain(bench, chain);
    }
    printf("publish, ns per block   %8.1f  (insert, pin, unpin)\n", spent * 1e9 / (double)(chains * CHAIN));
    return chains;
}

static void match(bench_t *bench, uint64_t chains)
{
    fby_index_stats_t before, after;
    double spent = 0;
    fby_index_stats(bench->index, &before);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t node;
        name_chain(bench, mix(round) % chains);
        uint32_t n = 1 + (uint32_t)(mix(round + 7) % CHAIN);
        memset(&bench->hashes[n - 1], 0xA5, sizeof(*bench->hashes)); /* the prefix ends anywhere */
        double start = now_s();
        fby_index_match(bench->index, bench->hashes, 0, CHAIN, &node);
        spent += now_s() - start;
    }
    fby_index_stats(bench->index, &after);
    printf("match, ns               %8.1f  (chain of %d blocks)\n", spent * 1e9 / ROUNDS, CHAIN);
    printf("match, probes           %8.1f\n", (double)(after.probes - before.probes) / ROUNDS);
}

static void pin(bench_t *bench, uint64_t chains)
{
    double spent = 0;
    uint32_t rounds = ROUNDS / 20;
    for (uint64_t round = 0; round < rounds; round++) {
        uint32_t node;
        name_chain(bench, mix(round) % chains);
        fby_index_match(bench->index, bench->hashes, 0, CHAIN, &node);
        double start = now_s();
        fby_index_pin(bench->index, node, FBY_PIN_HOLD);
        while (fby_index_walk(bench->index)) {}
        fby_index_unpin(bench->index, node, FBY_PIN_HOLD, false);
        while (fby_index_walk(bench->index)) {}
        spent += now_s() - start;
    }
    printf("pin and unpin, ns/block %8.1f  (whole chain, charged and given back)\n", spent * 1e9 / rounds / CHAIN);
}

static void evict(bench_t *bench, uint64_t chains)
{
    double spent = 0;
    uint32_t rounds = 200;
    for (uint64_t round = 0; round < rounds; round++) {
        spent += publish_chain(bench, chains + round);
    }
    printf("replace, ns per block   %8.1f  (evict, insert, pin, unpin)\n", spent * 1e9 / rounds / CHAIN);
}

static bool parse_policy(const char *name, fby_eviction_t *eviction)
{
    static const char *const names[] = {
#define FBY_X(name, text) text,
        FBY_EVICTION_MAP(FBY_X)
#undef FBY_X
    };
    for (uint32_t i = 0; i < FBY_EVICTION_COUNT; i++) {
        if (strcmp(names[i], name) == 0) {
            *eviction = (fby_eviction_t)i;
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    static bench_t bench;
    unsigned long blocks = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000000;
    fby_eviction_t eviction = FBY_EVICT_LRU;
    if (blocks < 2 * CHAIN || blocks >= UINT32_MAX || (argc > 2 && !parse_policy(argv[2], &eviction))) {
        fprintf(stderr, "usage: bench_index [blocks, at least %d] [lru|slru|lfu|fifo|mru|filo]\n", 2 * CHAIN);
        return 2;
    }
    if (!bench_open(&bench, (uint32_t)blocks, eviction)) {
        fprintf(stderr, "bench_index: no memory for %lu blocks\n", blocks);
        return 1;
    }
    uint64_t chains = fill(&bench);
    match(&bench, chains);
    pin(&bench, chains);
    evict(&bench, chains);
    free(bench.memory);
    free(bench.slot_memory);
    return 0;
}
