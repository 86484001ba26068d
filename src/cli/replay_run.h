/* replay_run.h - what `forebay replay` was asked for, the two ways of doing it, and what comes out. */
#ifndef FBY_CLI_REPLAY_RUN_H
#define FBY_CLI_REPLAY_RUN_H

#include <stdio.h>

#include "cli/json.h"
#include "cli/progress.h"
#include "cli/replay_engine.h"
#include "cli/table.h"
#include "cli/trace.h"
#include "forebay/forebay.h"

typedef struct fby_replay_options {
    const fby_trace_t *trace;
    uint32_t requests; /* of the trace, from the front */
    /* engine */
    uint32_t slots;
    bool serial;
    double prefill_tokens_per_s, decode_ms;
    /* cache */
    uint32_t block_tokens; /* divides 512 */
    uint32_t token_bytes;
    uint64_t pool_blocks;
    uint64_t budget_ns; /* of the timeout policy; FBY_NEVER: the formula's */
    double recompute_tokens_per_s;
    /* virtual: the model of the store */
    uint64_t latency_ns, bandwidth, seed;
    uint32_t jitter_percent;
    /* real */
    const char *store; /* text; NULL: a file store in a new directory for each configuration */
    double speed;
} fby_replay_options_t;

typedef struct fby_replay_case {
    fby_policy_t policy;
    fby_stop_mode_t stop_mode;
    uint32_t chunk; /* blocks */
} fby_replay_case_t;

/* Nearest rank. */
typedef struct fby_percentiles {
    uint64_t p50, p95, p99;
} fby_percentiles_t;

typedef struct fby_replay_result {
    fby_replay_case_t which;
    uint32_t requests;
    uint64_t found, planned, loaded, delivered, consumed; /* tokens of all requests */
    uint64_t wasted_bytes, graphs, verify_failures;
    fby_percentiles_t ttft_ns, stop_ns;
} fby_replay_result_t;

/* What a run gets beside its options. */
typedef struct fby_replay_run {
    const fby_replay_options_t *options;
    fby_replay_case_t which;
    FILE *details; /* one JSON line per request that is done; NULL: none */
    fby_progress_t *progress;
} fby_replay_run_t;

/* Each runs one configuration. 0, or a code with the detail set. */
int fby_replay_virtual(const fby_replay_run_t *run, fby_replay_result_t *result);
int fby_replay_real(const fby_replay_run_t *run, fby_replay_result_t *result);

/* ---- For the two hosts: replay_report.c ---- */

void fby_replay_engine_config(const fby_replay_run_t *run, const fby_engine_host_t *host, void *arg,
                              fby_engine_config_t *out);
/* Whole blocks of a request's prompt. */
uint32_t fby_replay_blocks(const fby_replay_options_t *options, uint32_t request);
/* Bytes of a payload with its trailer, as large as any driver needs it. */
uint64_t fby_replay_slot_bytes(const fby_replay_options_t *options);
/* Notes a final answer; asked_ns as for fby_stop_to_answer_ns(). */
void fby_replay_answer(fby_engine_request_t *request, const fby_snapshot_t *answer, uint64_t asked_ns);
/* The request is done: tells the engine, the details and the progress bar. */
void fby_replay_done(const fby_replay_run_t *run, fby_engine_t *engine, uint32_t request);
/* Sums and percentiles; wasted_bytes and graphs are the host's to fill. -ENOMEM. */
int fby_replay_summarize(const fby_replay_run_t *run, const fby_engine_t *engine, fby_replay_result_t *result);

/* ---- Output ---- */

void fby_replay_json(const char *trace, const fby_replay_result_t *results, size_t n);
void fby_replay_text(const fby_replay_options_t *options, const fby_replay_result_t *results, size_t n);

#endif
