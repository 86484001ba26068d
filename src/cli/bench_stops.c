/*
 * bench_stops.c - how long a stop takes to be answered, on a slowed store.
 *
 * A session is stopped somewhere in the middle of its plan, under each stop mode in turn. What the store had begun by
 * then is known by count; how long that takes is measured right after it, as the time of a session that reads just so
 * many graphs to their end. So the allowance of `recall` rests on nothing that the stop itself reports.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/bench_compare.h"
#include "cli/bench_store.h"
#include "cli/progress.h"

#define LIMIT_S 120.0
#define PLAN_S 0.4   /* the whole plan takes a derived slow store that long */
#define EARLIEST 0.3 /* of the plan's time */
#define LATEST 0.7
/* One graph with the store at a time and more behind it: what recall can take back. */
enum { GRAPHS = 8, WINDOW = 4, LANES = 1, PLANS = 3 };

typedef struct stopper {
    fby_bench_t *bench;
    fby_bench_cache_t cache;
    const void **addresses;
    double plan_ms; /* a session that nobody stops, from its start to its answer */
    double *times_ms[FBY_STOP_MODE_COUNT];
    double *left_ms; /* recall: what the store still had to do */
    uint64_t random;
} stopper_t;

static uint64_t now_ns(void)
{
    return fby_clock_now(&fby_clock_monotonic);
}

static double ms(uint64_t ns)
{
    return (double)ns / (double)FBY_MS;
}

static uint32_t next_prompt(stopper_t *stopper)
{
    fby_bench_t *bench = stopper->bench;
    bench->next_prompt = (bench->next_prompt + 1) % bench->set.prompts;
    return bench->next_prompt;
}

static int start(stopper_t *stopper, fby_seq_t *seq, fby_stop_mode_t mode, fby_session_t *session)
{
    fby_session_options_t options = FBY_SESSION_OPTIONS_INIT;
    options.policy = FBY_POLICY_BEST_EFFORT;
    options.stop_mode = (int32_t)mode;
    return fby_session_start(stopper->cache.cache, seq, &options, session);
}

/* ---- What reads take that nobody stops --------------------------------------------------------------------------- */

static int time_graphs(stopper_t *stopper, uint32_t graphs, double *took_ms)
{
    fby_seq_t *seq = NULL;
    fby_session_t session;
    uint32_t blocks = FBY_MIN(graphs * stopper->cache.recipe.chunk, stopper->bench->set.blocks);
    int status = fby_bench_cache_forget(&stopper->cache);
    status = status == 0 ? fby_bench_set_sequence(&stopper->bench->set, stopper->cache.cache, next_prompt(stopper),
                                                  blocks, &seq)
                         : status;
    uint64_t begun = now_ns();
    status = status == 0 ? start(stopper, seq, FBY_STOP_DRAIN, &session) : status;
    status = status == 0 ? fby_session_wait(stopper->cache.cache, session, LIMIT_S, NULL) : status;
    *took_ms = ms(now_ns() - begun);
    status = status == 0 ? fby_session_release(stopper->cache.cache, session) : status;
    fby_seq_unref(seq);
    return status;
}

static int time_plan(stopper_t *stopper)
{
    double took[PLANS];
    int status = 0;
    for (size_t i = 0; i < PLANS && status == 0; i++) {
        status = time_graphs(stopper, GRAPHS, &took[i]);
    }
    stopper->plan_ms = status == 0 ? fby_bench_quantile(took, PLANS, 0.5) : 0;
    return status;
}

/* ---- Stops ------------------------------------------------------------------------------------------------------- */

static void sleep_until(uint64_t at_ns)
{
    struct timespec at = {.tv_sec = (time_t)(at_ns / FBY_SECOND), .tv_nsec = (long)(at_ns % FBY_SECOND)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {}
}

static int recalled_graphs(const stopper_t *stopper, uint64_t *graphs)
{
    fby_stats_t stats = {.size = sizeof(stats)};
    int status = fby_cache_stats(stopper->cache.cache, &stats);
    *graphs = stats.graphs_recalled;
    return status;
}

typedef struct stopped {
    fby_snapshot_t answer;
    fby_session_t session;
    uint64_t begun_ns, asked_ns, answered_ns, recalled;
} stopped_t;

static int stop_one(stopper_t *stopper, fby_seq_t *seq, fby_stop_mode_t mode, stopped_t *out)
{
    double share = EARLIEST + (LATEST - EARLIEST) * ((double)(fby_bench_random(&stopper->random) >> 11) * 0x1p-53);
    uint64_t before = 0, after = 0;
    int status = recalled_graphs(stopper, &before);
    out->begun_ns = now_ns();
    status = status == 0 ? start(stopper, seq, mode, &out->session) : status;
    if (status != 0) {
        return status;
    }
    sleep_until(out->begun_ns + (uint64_t)(share * stopper->plan_ms * (double)FBY_MS));
    out->asked_ns = now_ns();
    out->answer = (fby_snapshot_t){.size = sizeof(out->answer)};
    status = fby_session_demand(stopper->cache.cache, out->session);
    status = status == 0 ? fby_session_wait(stopper->cache.cache, out->session, LIMIT_S, &out->answer) : status;
    out->answered_ns = now_ns();
    status = status == 0 ? recalled_graphs(stopper, &after) : status;
    out->recalled = after - before;
    return status;
}

/* What the store still had to do at the stop, for what it had begun by then. */
static int time_left(stopper_t *stopper, const stopped_t *stopped, double *left_ms)
{
    uint64_t begun = stopped->answer.submitted - stopped->recalled;
    double took_ms = 0;
    int status = begun > 0 ? time_graphs(stopper, (uint32_t)begun, &took_ms) : 0;
    *left_ms = FBY_MAX(took_ms - ms(stopped->asked_ns - stopped->begun_ns), 0);
    return status;
}

static int take_times(stopper_t *stopper, const stopped_t *stopped, fby_bench_stop_result_t *result)
{
    int status = 0;
    if (stopped->answer.answered_ns < stopped->asked_ns) {
        return 0; /* it was quicker than ever before: nothing was stopped */
    }
    stopper->times_ms[result->mode][result->stops] = ms(stopped->answered_ns - stopped->asked_ns);
    if (result->mode == FBY_STOP_RECALL) {
        status = time_left(stopper, stopped, &stopper->left_ms[result->stops]);
    }
    result->stops++;
    return status;
}

static int stop_and_check(stopper_t *stopper, fby_stop_mode_t mode)
{
    fby_bench_t *bench = stopper->bench;
    uint32_t prompt = next_prompt(stopper);
    uint64_t wrong = 0;
    stopped_t stopped = {.recalled = 0};
    int status = fby_bench_cache_forget(&stopper->cache);
    status = status == 0 ? stop_one(stopper, stopper->cache.seq[prompt], mode, &stopped) : status;
    status = status == 0 ? fby_bench_cache_take(&stopper->cache, &bench->set, prompt, stopped.session,
                                                stopped.answer.delivered_blocks, true, stopper->addresses, NULL, &wrong)
                         : status;
    if (status == 0) {
        bench->wrong_blocks += wrong;
        bench->checked_bytes += stopped.answer.delivered_blocks * bench->set.object_bytes;
        status = take_times(stopper, &stopped, &bench->stop[mode]);
    }
    return status;
}

/* A round stops under every mode, in an order of its own. */
static int stop_all(stopper_t *stopper)
{
    fby_progress_t progress;
    uint64_t rounds = stopper->bench->options->stops;
    uint32_t modes[FBY_STOP_MODE_COUNT];
    int status = 0;
    fby_progress_begin(&progress, "stopping", rounds);
    for (uint64_t round = 0; round < rounds && status == 0 && !fby_bench_interrupted; round++) {
        fby_progress_step(&progress, round);
        for (uint32_t i = 0; i < FBY_STOP_MODE_COUNT; i++) {
            modes[i] = i;
        }
        fby_bench_shuffle(modes, FBY_STOP_MODE_COUNT, &stopper->random);
        for (uint32_t i = 0; i < FBY_STOP_MODE_COUNT && status == 0; i++) {
            status = stop_and_check(stopper, (fby_stop_mode_t)modes[i]);
        }
    }
    fby_progress_end(&progress);
    return status;
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

static double sum(const double *values, uint64_t n)
{
    double all = 0;
    for (uint64_t i = 0; i < n; i++) {
        all += values[i];
    }
    return all;
}

static void sum_up(stopper_t *stopper)
{
    for (uint32_t mode = 0; mode < FBY_STOP_MODE_COUNT; mode++) {
        fby_bench_stop_result_t *result = &stopper->bench->stop[mode];
        double *times = stopper->times_ms[mode], all = sum(times, result->stops);
        result->p50_ms = fby_bench_quantile(times, result->stops, 0.5);
        result->p99_ms = fby_bench_quantile(times, result->stops, 0.99);
        if (mode == FBY_STOP_RECALL) {
            result->begun_ratio = all / sum(stopper->left_ms, result->stops);
            result->begun_ms = fby_bench_quantile(stopper->left_ms, result->stops, 0.5);
        }
    }
}

static int allocate(stopper_t *stopper)
{
    uint64_t stops = stopper->bench->options->stops;
    stopper->addresses = calloc(stopper->bench->set.blocks, sizeof(*stopper->addresses));
    stopper->left_ms = calloc(stops, sizeof(double));
    bool is_there = stopper->addresses != NULL && stopper->left_ms != NULL;
    for (uint32_t mode = 0; mode < FBY_STOP_MODE_COUNT; mode++) {
        stopper->bench->stop[mode] = (fby_bench_stop_result_t){.mode = (fby_stop_mode_t)mode};
        stopper->times_ms[mode] = calloc(stops, sizeof(double));
        is_there = is_there && stopper->times_ms[mode] != NULL;
    }
    if (!is_there) {
        fby_error_set("out of memory");
    }
    return is_there ? 0 : -ENOMEM;
}

int fby_bench_stops_run(fby_bench_t *bench)
{
    stopper_t stopper = {.bench = bench, .random = bench->options->seed};
    fby_bench_slow_store_t slow;
    const fby_bench_recipe_t recipe = {
        .has_chunks = true,
        .policy = FBY_POLICY_BEST_EFFORT,
        .chunk = (bench->set.blocks + GRAPHS - 1) / GRAPHS,
        .window = WINDOW,
        .read_lanes = LANES,
        .set = &bench->options->set,
    };
    uint64_t bytes_per_s = (uint64_t)((double)bench->set.blocks * bench->set.object_bytes / PLAN_S);
    int status = fby_bench_slow_open(&bench->store, bench->options->slow, bytes_per_s, &slow);
    status = status == 0 ? allocate(&stopper) : status;
    status = status == 0 ? fby_bench_cache_open(&bench->set, &slow.text, &recipe, &stopper.cache) : status;
    status = status == 0 ? time_plan(&stopper) : status;
    status = status == 0 ? stop_all(&stopper) : status;
    if (status == 0) {
        sum_up(&stopper);
    }
    fby_bench_cache_close(&stopper.cache);
    fby_bench_slow_close(&slow);
    for (uint32_t mode = 0; mode < FBY_STOP_MODE_COUNT; mode++) {
        free(stopper.times_ms[mode]);
    }
    free(stopper.addresses);
    free(stopper.left_ms);
    return status;
}
