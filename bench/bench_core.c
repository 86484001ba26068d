/*
 * bench_core.c - what the core costs per call and per block, without store, lock or wake.
 *
 *   bench_core [BLOCKS [CHUNK]]      default: a table over plans of 1,024 and 65,536 blocks
 *
 * One session after the other reads its whole plan from a store that answers at once: query, claim, begin, end, publish,
 * take, release. "chunk" is everything between a chunk's begin and the next one's: its end, its publication, the claim of
 * the chunk behind it. The goal is 2 us + 0.1 us per block and chunk.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "core/core.h"

enum { SESSIONS = 30, READ_MAX = 4096, QUERY_BATCH = 256 };

typedef struct bench {
    fby_core_t *core;
    fby_slots_t slots;
    uint64_t start_ns, query_ns, chunk_ns, tail_ns, take_ns, release_ns, queries, parts;
} bench_t;

static uint64_t now(void)
{
    return fby_clock_now(&fby_clock_monotonic);
}

static void *pages(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("bench_core: mmap");
        exit(1);
    }
    return memory;
}

static void open_core(bench_t *bench, uint32_t blocks, uint32_t chunk)
{
    const uint32_t counts[1] = {blocks * 4};
    const uint64_t plenty = UINT64_C(1) << 40;
    fby_slots_init(&bench->slots, 1, counts, pages(fby_slots_bytes(counts[0])));
    fby_index_config_t index = {.max_nodes = counts[0],
                                .groups = 1,
                                .slot_bytes = {4096},
                                .slots = &bench->slots,
                                .event = fby_core_index_event,
                                .event_arg = &bench->core};
    fby_core_config_t config = {.block_tokens = 16,
                                .groups = 1,
                                .slot_bytes = {4096},
                                .store = true,
                                .writes = FBY_WRITE_OFF,
                                .chunk_runtime = true,
                                .chunk_max_blocks = chunk,
                                .max_inflight_chunks = 2,
                                .timeout_max_ns = 30 * FBY_SECOND,
                                .timeout_budget_ns = FBY_NEVER,
                                .max_sessions = 128,
                                .max_reserved_bytes = plenty,
                                .max_pinned_bytes = plenty,
                                .max_hold_bytes = plenty,
                                .write_pinned_bytes = plenty,
                                .quarantine_limit_bytes = plenty,
                                .result_ttl_ns = 60 * FBY_SECOND,
                                .query_batch_blocks = QUERY_BATCH,
                                .query_timeout_ns = 5 * FBY_SECOND,
                                .io_timeout_ns = 30 * FBY_SECOND,
                                .no_progress_ns = 5 * FBY_SECOND,
                                .drain_limit_ns = 30 * FBY_SECOND,
                                .slots = &bench->slots,
                                .index = fby_index_init(&index, pages(fby_index_bytes(&index)))};
    fby_core_config_defaults(&config);
    config.latches = pages(sizeof(fby_latch_t) * config.session_slots);
    bench->core = fby_core_init(&config, pages(fby_core_bytes(&config)));
}

/* What is left over is work that the control thread would do. */
static void finish(bench_t *bench)
{
    uint64_t from = now();
    while (fby_core_next_deadline(bench->core) == 0)
        fby_core_tick(bench->core, now());
    bench->tail_ns += now() - from;
}

static bool serve(bench_t *bench)
{
    static fby_core_io_t io[READ_MAX];
    static int32_t results[READ_MAX];
    static uint8_t present[QUERY_BATCH];
    fby_core_query_t query;
    fby_core_part_t part;
    memset(present, 1, sizeof(present));
    uint64_t from = now();
    if (fby_core_next_query(bench->core, from, &query)) {
        fby_core_query_done(bench->core, from, query.ticket, 0, present, FBY_NEVER);
        bench->query_ns += now() - from;
        bench->queries++;
        return true;
    }
    if (!fby_core_next_reads(bench->core, from, READ_MAX, &part, io))
        return false;
    fby_core_read_done(bench->core, from, part.id, results);
    bench->chunk_ns += now() - from;
    bench->parts++;
    return true;
}

/* Hashes as good as a chain's: distinct and spread. */
static void fill(fby_hash_t *hashes, uint32_t blocks, uint64_t session)
{
    for (uint32_t i = 0; i < blocks; i++) {
        uint64_t x = (session << 32 | i) * UINT64_C(0x9e3779b97f4a7c15);
        hashes[i].w[0] = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
        hashes[i].w[1] = x;
    }
}

static void one_session(bench_t *bench, fby_hash_t *hashes, uint32_t blocks, uint64_t number)
{
    fill(hashes, blocks, number);
    fby_core_start_t start = {.seq = {.hashes = hashes, .blocks = blocks, .tokens = (uint64_t)blocks * 16 + 1},
                              .policy = FBY_POLICY_BEST_EFFORT,
                              .stop_mode = FBY_UNSET,
                              .predictive = FBY_UNSET,
                              .budget_ns = FBY_NEVER,
                              .min_tokens = UINT64_MAX};
    fby_session_t session = 0;
    fby_hold_t hold = 0;
    fby_snapshot_t snapshot;
    uint64_t from = now();
    int rc = fby_core_session_start(bench->core, from, &start, &session);
    bench->start_ns += now() - from;
    do
        finish(bench);
    while (serve(bench));
    if (rc == 0)
        rc = fby_core_session_snapshot(bench->core, session, &snapshot);
    if (rc != 0 || snapshot.delivered_blocks != blocks) {
        fprintf(stderr, "bench_core: a session did not deliver its %u blocks: %s\n", blocks, fby_strerror(rc));
        exit(1);
    }
    from = now();
    fby_core_session_take(bench->core, from, session, &hold);
    bench->take_ns += now() - from;
    finish(bench);
    from = now();
    fby_core_hold_release(bench->core, from, hold);
    bench->release_ns += now() - from;
    finish(bench);
}

static void run(uint32_t blocks, uint32_t chunk)
{
    bench_t bench = {0};
    fby_hash_t *hashes = pages(sizeof(*hashes) * blocks);
    open_core(&bench, blocks, chunk);
    one_session(&bench, hashes, blocks, 0); /* warm */
    bench_t warm = bench;
    bench = (bench_t){.core = warm.core, .slots = warm.slots};
    for (uint64_t i = 1; i <= SESSIONS; i++)
        one_session(&bench, hashes, blocks, i);
    double parts = (double)bench.parts, each = (double)bench.chunk_ns / parts / 1000;
    double size = (double)blocks * SESSIONS / parts;
    printf("%8u %6u %9.2f %9.2f %9.2f %9.3f %9.2f %9.2f %9.2f\n", blocks, chunk,
           (double)bench.start_ns / SESSIONS / 1000, (double)bench.query_ns / (double)bench.queries / 1000, each,
           each / size, 2 + 0.1 * size, (double)bench.take_ns / SESSIONS / 1000,
           (double)bench.release_ns / SESSIONS / 1000);
}

int main(int argc, char **argv)
{
    printf("  blocks  chunk  start_us  query_us  chunk_us  us/block   goal_us   take_us release_us\n");
    if (argc > 1) {
        int blocks = atoi(argv[1]), chunk = argc > 2 ? atoi(argv[2]) : 128;
        if (blocks < 1 || blocks > 1 << 22 || chunk < 1 || chunk > READ_MAX) {
            fprintf(stderr, "bench_core: BLOCKS is 1..4194304 and CHUNK 1..4096\n");
            return 2;
        }
        run((uint32_t)blocks, (uint32_t)chunk);
        return 0;
    }
    run(1024, 32);
    run(1024, 128);
    run(65536, 32);
    run(65536, 128);
    return 0;
}
