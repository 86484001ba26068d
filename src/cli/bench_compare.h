/*
 * bench_compare.h - `forebay bench compare`: what chunks and stops cost, against the same reads without Forebay.
 *
 * The same prompts are read from one store in several ways (arms) under several loads. A round runs every arm once per
 * load, in an order drawn anew; arms are compared within a round only, so that what changes slowly on the machine hits
 * all of them. docs/bench.md says how to read the output.
 */
#ifndef FBY_CLI_BENCH_COMPARE_H
#define FBY_CLI_BENCH_COMPARE_H

#include <signal.h>

#include "cli/args.h"
#include "cli/bench_cache.h"
#include "cli/bench_native.h"
#include "cli/bench_set.h"
#include "cli/bench_stats.h"
#include "cli/bench_usage.h"
#include "cli/store_text.h"

/* X(name, text, chunk): blocks of a graph, 0: the whole plan. */
#define FBY_BENCH_ARM_MAP(X)                                                                                           \
    X(NATIVE, "native", 0)       /* the store's own client, no Forebay: not verified, not published */                 \
    X(WHOLE, "whole", 0)         /* wait_complete without the chunk runtime: one graph */                              \
    X(ONE_GRAPH, "one_graph", 0) /* the chunk runtime with a chunk that holds the plan, a budget that never ends */    \
    X(CHUNK128, "chunk128", 128)                                                                                       \
    X(CHUNK32, "chunk32", 32)

/* X(name, text, requests): 0: one after the other, as many as --requests says. */
#define FBY_BENCH_LOAD_MAP(X) X(SERIAL, "serial", 0) X(EIGHT, "8", 8) X(THIRTY_TWO, "32", 32)

typedef enum fby_bench_arm {
#define FBY_X(name, text, chunk) FBY_BENCH_##name,
    FBY_BENCH_ARM_MAP(FBY_X)
#undef FBY_X
        FBY_BENCH_ARM_COUNT
} fby_bench_arm_t;

typedef enum fby_bench_load {
#define FBY_X(name, text, requests) FBY_BENCH_LOAD_##name,
    FBY_BENCH_LOAD_MAP(FBY_X)
#undef FBY_X
        FBY_BENCH_LOAD_COUNT
} fby_bench_load_t;

extern const char *const fby_bench_arm_names[FBY_BENCH_ARM_COUNT + 1];   /* NULL-terminated */
extern const char *const fby_bench_load_names[FBY_BENCH_LOAD_COUNT + 1]; /* likewise */

/* Set by a signal handler: the run ends after the measurement under way. */
extern volatile sig_atomic_t fby_bench_interrupted;

/* Requests that may be at work at once. */
#define FBY_BENCH_CAP 4u

typedef struct fby_bench_options {
    const char *store, *native, *slow; /* native, slow: NULL when not given */
    uint32_t loads, arms;              /* a bit each */
    uint64_t rounds, requests, tokens, block_tokens, block_bytes, stops, seed;
    fby_texts_t set; /* KEY=VALUE for every cache */
    bool as_json;
} fby_bench_options_t;

/* One arm under one load in one round. */
typedef struct fby_bench_cell {
    uint64_t ns; /* serial: of all requests together; else from the first start to the last end */
    uint64_t bytes, requests;
    uint64_t graphs; /* as the cache counted them; 0 for the native arm */
    uint64_t wrong_blocks;
    fby_bench_usage_t usage;
} fby_bench_cell_t;

/* Sums over rounds, and what is compared within them. The first round warms up and checks every byte: not in here. */
typedef struct fby_bench_total {
    double *bytes_per_s; /* per round */
    uint64_t bytes;
    fby_bench_usage_t usage;
} fby_bench_total_t;

typedef struct fby_bench_stop_result {
    fby_stop_mode_t mode;
    uint64_t stops;
    double p50_ms, p99_ms; /* from the caller's demand to its answer */
    double begun_ms;       /* recall, median: what was left of the reads that the store had begun */
    double begun_ratio;    /* recall: all times to the answer / all of those */
} fby_bench_stop_result_t;

typedef struct fby_bench {
    const fby_bench_options_t *options;
    fby_store_text_t store;
    fby_bench_set_t set;
    fby_bench_cache_t cache[FBY_BENCH_ARM_COUNT]; /* open for every arm but native */
    fby_bench_native_t native;
    uint32_t next_prompt;
    uint64_t order_state;                                         /* random stream of the orders */
    uint8_t (*orders)[FBY_BENCH_LOAD_COUNT][FBY_BENCH_ARM_COUNT]; /* per round, the first included: arms as they ran */
    fby_bench_total_t total[FBY_BENCH_LOAD_COUNT][FBY_BENCH_ARM_COUNT];
    double *request_ms[FBY_BENCH_ARM_COUNT]; /* serial: time to usable prefix of every request */
    size_t request_count[FBY_BENCH_ARM_COUNT];
    uint64_t graphs_expected[FBY_BENCH_ARM_COUNT], graphs_counted[FBY_BENCH_ARM_COUNT]; /* all rounds */
    uint64_t wrong_blocks, checked_bytes;
    fby_bench_stop_result_t stop[FBY_STOP_MODE_COUNT]; /* stops 0: not run */
} fby_bench_t;

static inline bool fby_bench_has_arm(const fby_bench_t *bench, uint32_t arm)
{
    return (bench->options->arms >> arm & 1) != 0;
}

static inline bool fby_bench_has_load(const fby_bench_t *bench, uint32_t load)
{
    return (bench->options->loads >> load & 1) != 0;
}

/* All of it. A code with the detail set: the measurement could not be made. Wrong bytes and graph counts are no such
   failure: they stand in the totals. Close in every case. */
int fby_bench_run(const fby_bench_options_t *options, fby_bench_t *bench);
void fby_bench_close(fby_bench_t *bench);
/* One cell. The requests' times go to request_ms when that is not NULL. */
int fby_bench_cell_run(fby_bench_t *bench, uint32_t arm, uint32_t load, bool checks_all, fby_bench_cell_t *cell,
                       double *request_ms);
/* The stop experiment on the slowed store. */
int fby_bench_stops_run(fby_bench_t *bench);
/* Whether everything delivered was right and every graph was counted; says on stderr what is not. */
bool fby_bench_is_right(const fby_bench_t *bench, const char *command);
/* Errors are -ENOMEM only. */
int fby_bench_print(const fby_bench_t *bench);

#endif
