/* bench_run.c - the comparison from the first put to the last round. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/bench_compare.h"
#include "cli/bench_store.h"
#include "cli/progress.h"

#define X_TEXT(name, text, number) text,
const char *const fby_bench_arm_names[] = {FBY_BENCH_ARM_MAP(X_TEXT) NULL};
const char *const fby_bench_load_names[] = {FBY_BENCH_LOAD_MAP(X_TEXT) NULL};
#undef X_TEXT

enum { WINDOW = 2 };

volatile sig_atomic_t fby_bench_interrupted;

static int out_of_memory(void)
{
    fby_error_set("out of memory");
    return -ENOMEM;
}

/* ---- Preparing --------------------------------------------------------------------------------------------------- */

static int allocate(fby_bench_t *bench)
{
    size_t rounds = bench->options->rounds;
    bench->orders = calloc(rounds + 1, sizeof(*bench->orders));
    bool is_there = bench->orders != NULL;
    for (uint32_t arm = 0; arm < FBY_BENCH_ARM_COUNT; arm++) {
        bench->request_ms[arm] = calloc(rounds * bench->options->requests, sizeof(double));
        is_there = is_there && bench->request_ms[arm] != NULL;
        for (uint32_t load = 0; load < FBY_BENCH_LOAD_COUNT; load++) {
            bench->total[load][arm].bytes_per_s = calloc(rounds, sizeof(double));
            is_there = is_there && bench->total[load][arm].bytes_per_s != NULL;
        }
    }
    return is_there ? 0 : out_of_memory();
}

static int store_prompts(fby_bench_t *bench, fby_bench_cache_t *writer)
{
    const fby_bench_recipe_t recipe = {.writes = true, .policy = FBY_POLICY_WAIT_COMPLETE, .set = &bench->options->set};
    fby_progress_t progress;
    int status = fby_bench_cache_open(&bench->set, &bench->store, &recipe, writer);
    fby_progress_begin(&progress, "storing", bench->set.prompts);
    for (uint32_t i = 0; i < bench->set.prompts && status == 0; i++) {
        fby_progress_step(&progress, i);
        status = fby_bench_set_store(&bench->set, writer->cache, i);
    }
    fby_progress_end(&progress);
    return status;
}

static fby_bench_recipe_t recipe_of(const fby_bench_t *bench, uint32_t arm)
{
    static const uint32_t chunks[] = {
#define FBY_X(name, text, chunk) chunk,
        FBY_BENCH_ARM_MAP(FBY_X)
#undef FBY_X
    };
    bool is_whole = arm == FBY_BENCH_WHOLE;
    return (fby_bench_recipe_t){
        .has_chunks = !is_whole,
        .policy = is_whole ? FBY_POLICY_WAIT_COMPLETE : FBY_POLICY_TIMEOUT,
        .chunk = chunks[arm] > 0 ? chunks[arm] : bench->set.blocks,
        .window = WINDOW,
        .set = &bench->options->set,
    };
}

static int open_readers(fby_bench_t *bench)
{
    int status = 0;
    for (uint32_t arm = FBY_BENCH_NATIVE + 1; arm < FBY_BENCH_ARM_COUNT && status == 0; arm++) {
        const fby_bench_recipe_t recipe = recipe_of(bench, arm);
        if (fby_bench_has_arm(bench, arm)) {
            status = fby_bench_cache_open(&bench->set, &bench->store, &recipe, &bench->cache[arm]);
        }
    }
    if (status == 0 && fby_bench_has_arm(bench, FBY_BENCH_NATIVE)) {
        status =
            fby_bench_native_open(&bench->set, &bench->store, bench->options->native, FBY_BENCH_CAP, &bench->native);
    }
    return status;
}

/*
 * A directory has one writer and may then be read by many. What a process holds in memory lives as long as somebody has
 * it open, under a name.
 */
static int prepare(fby_bench_t *bench)
{
    fby_bench_cache_t writer = {0};
    bool is_directory = fby_bench_is_directory(&bench->store);
    int status = fby_bench_store_share(&bench->store);
    status = status == 0 ? store_prompts(bench, &writer) : status;
    if (status == 0 && is_directory) {
        fby_bench_cache_close(&writer);
        status = fby_bench_store_readonly(&bench->store);
    }
    status = status == 0 ? open_readers(bench) : status;
    fby_bench_cache_close(&writer);
    return status;
}

/* ---- Rounds ------------------------------------------------------------------------------------------------------ */

static void take_cell(fby_bench_t *bench, uint32_t load, uint32_t arm, uint64_t round, const fby_bench_cell_t *cell)
{
    fby_bench_total_t *total = &bench->total[load][arm];
    bench->wrong_blocks += cell->wrong_blocks;
    bench->graphs_counted[arm] += cell->graphs;
    bench->graphs_expected[arm] += cell->requests * bench->cache[arm].graphs;
    if (round == 0) { /* the warm-up: all bytes were checked beside it */
        bench->checked_bytes += cell->bytes;
        return;
    }
    total->bytes_per_s[round - 1] = (double)cell->bytes * 1e9 / (double)FBY_MAX(cell->ns, UINT64_C(1));
    total->bytes += cell->bytes;
    fby_bench_usage_add(&total->usage, &cell->usage);
}

static int run_cell(fby_bench_t *bench, uint32_t load, uint32_t arm, uint64_t round)
{
    fby_bench_cell_t cell;
    bool keeps_times = load == FBY_BENCH_LOAD_SERIAL && round > 0;
    double *times = keeps_times ? bench->request_ms[arm] + bench->request_count[arm] : NULL;
    int status = fby_bench_cell_run(bench, arm, load, round == 0, &cell, times);
    if (status == 0) {
        bench->request_count[arm] += keeps_times ? cell.requests : 0;
        take_cell(bench, load, arm, round, &cell);
    }
    return status;
}

/* Every arm once, in an order of this round and load. */
static int run_load(fby_bench_t *bench, uint32_t load, uint64_t round, fby_progress_t *progress, uint64_t *done)
{
    uint32_t order[FBY_BENCH_ARM_COUNT], count = 0;
    int status = 0;
    for (uint32_t arm = 0; arm < FBY_BENCH_ARM_COUNT; arm++) {
        order[arm] = arm;
        count += fby_bench_has_arm(bench, arm);
    }
    fby_bench_shuffle(order, FBY_BENCH_ARM_COUNT, &bench->order_state);
    for (uint32_t i = 0, at = 0; i < FBY_BENCH_ARM_COUNT && at < count && status == 0 && !fby_bench_interrupted; i++) {
        if (fby_bench_has_arm(bench, order[i])) {
            bench->orders[round][load][at++] = (uint8_t)order[i];
            fby_progress_step(progress, (*done)++);
            status = run_cell(bench, load, order[i], round);
        }
    }
    return status;
}

static int run_rounds(fby_bench_t *bench)
{
    fby_progress_t progress;
    uint64_t rounds = bench->options->rounds + 1, done = 0;
    uint64_t arms = (uint64_t)__builtin_popcount(bench->options->arms);
    uint64_t cells = arms * (uint64_t)__builtin_popcount(bench->options->loads);
    int status = 0;
    fby_progress_begin(&progress, "comparing", rounds * cells);
    for (uint64_t round = 0; round < rounds && status == 0; round++) {
        for (uint32_t load = 0; load < FBY_BENCH_LOAD_COUNT && status == 0; load++) {
            if (fby_bench_has_load(bench, load)) {
                status = run_load(bench, load, round, &progress, &done);
            }
        }
    }
    fby_progress_end(&progress);
    if (status == 0 && fby_bench_interrupted) {
        fby_error_set("interrupted after %" PRIu64 " of %" PRIu64 " measurements", done, rounds * cells);
        status = -EINTR;
    }
    return status;
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

int fby_bench_run(const fby_bench_options_t *options, fby_bench_t *bench)
{
    *bench = (fby_bench_t){.options = options, .order_state = options->seed, .native = {.memory_fd = -1}};
    int status = fby_store_text_parse(options->store, &bench->store);
    status = status == 0 ? fby_bench_set_init(&bench->set, (uint32_t)(options->tokens / options->block_tokens),
                                              (uint32_t)options->block_tokens, (uint32_t)options->block_bytes)
                         : status;
    status = status == 0 ? allocate(bench) : status;
    status = status == 0 ? prepare(bench) : status;
    status = status == 0 ? run_rounds(bench) : status;
    return status == 0 && options->stops > 0 ? fby_bench_stops_run(bench) : status;
}

void fby_bench_close(fby_bench_t *bench)
{
    for (uint32_t arm = 0; arm < FBY_BENCH_ARM_COUNT; arm++) {
        fby_bench_cache_close(&bench->cache[arm]);
        free(bench->request_ms[arm]);
        for (uint32_t load = 0; load < FBY_BENCH_LOAD_COUNT; load++) {
            free(bench->total[load][arm].bytes_per_s);
        }
    }
    fby_bench_native_close(&bench->native);
    fby_bench_set_free(&bench->set);
    fby_store_text_free(&bench->store);
    free(bench->orders);
    *bench = (fby_bench_t){.native = {.memory_fd = -1}};
}
