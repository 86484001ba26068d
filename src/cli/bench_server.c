/* bench_server.c - one run: a server, its crowd, one client that is timed among them, silence, and everybody at once. */
#include "cli/bench_server.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/bench_compare.h"
#include "cli/progress.h"

#define SETTLE_NS (FBY_SECOND / 2)

static void pause_ns(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / FBY_SECOND), (long)(ns % FBY_SECOND)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR && !fby_bench_interrupted) {}
}

/* ---- One client among them --------------------------------------------------------------------------------------- */

typedef struct rounds {
    double *poll, *call;       /* medians of rounds */
    double *poll_us, *call_us; /* of one round; calls of all rounds, one after the other */
} rounds_t;

static int measure_round(fby_bench_server_t *bench, fby_cache_t *cache, fby_seq_t *seq, rounds_t *rounds,
                         uint64_t round)
{
    uint64_t samples = bench->options->samples;
    double *calls = rounds->call_us + round * samples;
    int status = fby_bench_client_measure(cache, seq, samples, rounds->poll_us, calls);
    if (status != 0) {
        return status;
    }
    rounds->poll[round] = fby_bench_quantile(rounds->poll_us, samples, 0.5);
    rounds->call[round] = fby_bench_quantile(calls, samples, 0.5);
    return 0;
}

static int measure_rounds(fby_bench_server_t *bench, rounds_t *rounds)
{
    const fby_bench_server_options_t *options = bench->options;
    fby_progress_t progress;
    fby_cache_t *cache;
    fby_seq_t *seq;
    int status = fby_bench_client_connect(bench->process.socket, &cache, &seq);
    if (status != 0) {
        return status;
    }
    fby_progress_begin(&progress, "bench server", options->rounds);
    status = measure_round(bench, cache, seq, rounds, 0); /* warms up; the first round writes over it */
    for (uint64_t round = 0; round < options->rounds && status == 0; round++) {
        fby_progress_step(&progress, round);
        status = fby_bench_interrupted ? -EINTR : measure_round(bench, cache, seq, rounds, round);
    }
    fby_progress_end(&progress);
    fby_seq_unref(seq);
    fby_cache_close(cache, 0, NULL);
    if (status == -EINTR) {
        fby_error_set("interrupted");
    }
    return status;
}

static int measure_client(fby_bench_server_t *bench)
{
    const fby_bench_server_options_t *options = bench->options;
    rounds_t rounds = {
        .poll = calloc(options->rounds, sizeof(double)),
        .call = calloc(options->rounds, sizeof(double)),
        .poll_us = calloc(options->samples, sizeof(double)),
        .call_us = calloc(options->rounds * options->samples, sizeof(double)),
    };
    bool has_room = rounds.poll != NULL && rounds.call != NULL && rounds.poll_us != NULL && rounds.call_us != NULL;
    int status = has_room ? measure_rounds(bench, &rounds) : -ENOMEM;
    if (status == 0) {
        bench->call_p999_us = fby_bench_quantile(rounds.call_us, options->rounds * options->samples, 0.999);
        status = fby_bench_bootstrap(rounds.poll, options->rounds, options->seed, &bench->poll_us);
    }
    status = status == 0 ? fby_bench_bootstrap(rounds.call, options->rounds, options->seed, &bench->call_us) : status;
    if (status == -ENOMEM) {
        fby_error_set("out of memory");
    }
    free(rounds.poll);
    free(rounds.call);
    free(rounds.poll_us);
    free(rounds.call_us);
    return status;
}

/* ---- Nobody, everybody ------------------------------------------------------------------------------------------- */

static int measure_idle(fby_bench_server_t *bench)
{
    uint64_t before, after;
    pause_ns(SETTLE_NS);
    int status = fby_bench_process_switches(bench->process.pid, &before);
    pause_ns(bench->options->idle_ns);
    status = status == 0 ? fby_bench_process_switches(bench->process.pid, &after) : status;
    if (status == 0) {
        bench->idle_wakes = fby_sub_sat(after, before);
    }
    return status;
}

static int measure_crowd(fby_bench_server_t *bench)
{
    uint64_t calls = 0;
    int status = fby_bench_crowd_go(&bench->crowd, &calls);
    bench->crowd_calls_per_s = (double)calls * (double)FBY_SECOND / (double)bench->options->load_ns;
    return status;
}

int fby_bench_server_run(const fby_bench_server_options_t *options, fby_bench_server_t *out)
{
    *out = (fby_bench_server_t){.options = options, .python_poll_us = NAN, .python_start_us = NAN};
    int status = fby_bench_process_start(&out->process);
    status = status == 0 ? fby_bench_client_prepare(out->process.socket) : status;
    if (status == 0) {
        status = fby_bench_crowd_start(&out->crowd, out->process.socket, options->clients, options->load_ns);
    }
    status = status == 0 ? measure_client(out) : status;
    status = status == 0 ? measure_idle(out) : status;
    status = status == 0 ? measure_crowd(out) : status;
    if (status == 0) {
        fby_bench_python(out);
    }
    return status;
}

void fby_bench_server_close(fby_bench_server_t *bench)
{
    fby_bench_crowd_stop(&bench->crowd);
    fby_bench_process_stop(&bench->process);
}
