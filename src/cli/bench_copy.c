/* bench_copy.c - rounds of loads and plain copies in an order drawn anew, timed and checked. */
#include "cli/bench_copy.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/progress.h"
#include "rank/stream.h"

enum { LINE_BYTES = 64 };

#define FBY_X(layout, text, row_bytes) text,
const char *const fby_bench_copy_names[] = {FBY_BENCH_COPY_MAP(FBY_X) NULL};
#undef FBY_X

/* ---- The plain copy ---------------------------------------------------------------------------------------------- */

struct team;
typedef struct helper {
    pthread_t thread;
    struct team *team;
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
} helper_t;

/* Threads live through all rounds, as a rank's helpers do: making them is not measured. */
typedef struct team {
    pthread_mutex_t gate; /* closed until all threads are there: a barrier that lacks one would never open */
    pthread_barrier_t begin, end;
    fby_stream_fn *copy;
    bool is_over; /* written before `gate` or `begin` opens by the thread of the rounds, read behind it */
    uint32_t threads, started;
    helper_t helper[]; /* [0] is the thread of the rounds itself */
} team_t;

static void copy_part(const helper_t *helper)
{
    helper->team->copy(helper->to, helper->from, helper->bytes);
    fby_stream_end();
}

static void *helper_main(void *arg)
{
    helper_t *helper = arg;
    team_t *team = helper->team;
    pthread_mutex_lock(&team->gate);
    bool is_over = team->is_over;
    pthread_mutex_unlock(&team->gate);
    while (!is_over) {
        pthread_barrier_wait(&team->begin);
        is_over = team->is_over;
        if (!is_over) {
            copy_part(helper);
            pthread_barrier_wait(&team->end);
        }
    }
    return NULL;
}

static void team_copy(team_t *team)
{
    pthread_barrier_wait(&team->begin);
    copy_part(&team->helper[0]);
    pthread_barrier_wait(&team->end);
}

static void team_free(team_t *team)
{
    for (uint32_t i = 1; i < team->started; i++) {
        pthread_join(team->helper[i].thread, NULL);
    }
    pthread_barrier_destroy(&team->begin);
    pthread_barrier_destroy(&team->end);
    pthread_mutex_destroy(&team->gate);
    free(team);
}

static void team_close(team_t *team)
{
    if (team != NULL) {
        team->is_over = true;
        pthread_barrier_wait(&team->begin);
        team_free(team);
    }
}

/* Contiguous parts, whole cache lines but the last. */
static void share_out(team_t *team, const fby_bench_copy_set_t *set)
{
    size_t part = set->bytes / team->threads / LINE_BYTES * LINE_BYTES;
    for (uint32_t i = 0; i < team->threads; i++) {
        size_t first = i * part, bytes = i + 1 == team->threads ? set->bytes - first : part;
        team->helper[i] =
            (helper_t){.team = team, .to = set->memory + first, .from = set->region.base + first, .bytes = bytes};
    }
}

static int start_helpers(team_t *team)
{
    for (team->started = 1; team->started < team->threads; team->started++) {
        helper_t *helper = &team->helper[team->started];
        int failed = pthread_create(&helper->thread, NULL, helper_main, helper);
        if (failed != 0) {
            fby_error_set("thread %u of %u cannot be made: %s", team->started + 1, team->threads, strerror(failed));
            return -failed;
        }
    }
    return 0;
}

static int team_open(const fby_bench_copy_set_t *set, uint32_t threads, team_t **out)
{
    team_t *team = calloc(1, sizeof(*team) + threads * sizeof(team->helper[0]));
    if (team == NULL) {
        fby_error_set("out of memory");
        return -ENOMEM;
    }
    team->copy = fby_stream_best();
    team->threads = threads;
    share_out(team, set);
    pthread_mutex_init(&team->gate, NULL);
    pthread_barrier_init(&team->begin, NULL, threads);
    pthread_barrier_init(&team->end, NULL, threads);
    pthread_mutex_lock(&team->gate);
    int status = start_helpers(team);
    team->is_over = status != 0;
    pthread_mutex_unlock(&team->gate);
    if (status != 0) {
        team_free(team);
        return status;
    }
    *out = team;
    return 0;
}

/* ---- Rounds ------------------------------------------------------------------------------------------------------ */

typedef struct measure {
    fby_bench_copy_set_t set;
    team_t *team;
    fby_bench_copy_result_t *result;
    uint64_t random;
} measure_t;

static int run_arm(measure_t *measure, uint32_t arm, double *seconds)
{
    uint64_t begun_ns = fby_clock_now(&fby_clock_monotonic);
    int status = 0;
    if (arm == FBY_BENCH_COPY_PLAIN) {
        team_copy(measure->team);
    } else {
        uint64_t *sums = arm == FBY_BENCH_COPY_SUMMED ? measure->set.sums : NULL;
        status = fby_bench_copy_set_load(&measure->set, sums);
    }
    *seconds = (double)(fby_clock_now(&fby_clock_monotonic) - begun_ns) / (double)FBY_SECOND;
    return status;
}

/* Every byte of a load with checksums and of one without, into tensors that held something else. */
static int check_all(measure_t *measure)
{
    double ignored;
    int status = 0;
    for (uint32_t arm = FBY_BENCH_COPY_LOAD; arm < FBY_BENCH_COPY_ARM_COUNT && status == 0; arm++) {
        memset(measure->set.memory, 0, measure->set.bytes);
        status = run_arm(measure, arm, &ignored);
        measure->result->wrong_bytes += fby_bench_copy_set_wrong(&measure->set);
        measure->result->checked_bytes += measure->set.bytes;
    }
    measure->result->wrong_sums += fby_bench_copy_set_wrong_sums(&measure->set);
    return status;
}

/* A word of each block is spoilt before a load and looked at behind it, beside what is timed. */
static int run_round(measure_t *measure, uint64_t round)
{
    uint32_t order[FBY_BENCH_COPY_ARM_COUNT];
    int status = 0;
    for (uint32_t i = 0; i < FBY_BENCH_COPY_ARM_COUNT; i++) {
        order[i] = i;
    }
    fby_bench_shuffle(order, FBY_BENCH_COPY_ARM_COUNT, &measure->random);
    for (uint32_t i = 0; i < FBY_BENCH_COPY_ARM_COUNT && status == 0; i++) {
        uint64_t words = fby_bench_random(&measure->random);
        fby_bench_copy_set_spoil(&measure->set, words);
        status = run_arm(measure, order[i], &measure->result->seconds[order[i]][round]);
        if (order[i] != FBY_BENCH_COPY_PLAIN) {
            measure->result->wrong_bytes += fby_bench_copy_set_sample(&measure->set, words);
            measure->result->checked_bytes += measure->set.blocks * sizeof(uint64_t);
        }
    }
    return status;
}

static int run_rounds(measure_t *measure, uint64_t rounds, const char *label)
{
    fby_progress_t progress;
    double ignored;
    int status = check_all(measure);
    fby_progress_begin(&progress, label, rounds);
    if (status == 0) {
        (void)run_arm(measure, FBY_BENCH_COPY_PLAIN, &ignored); /* warms up what check_all did not use */
    }
    for (uint64_t round = 0; round < rounds && status == 0; round++) {
        fby_progress_step(&progress, round);
        status = run_round(measure, round);
    }
    fby_progress_end(&progress);
    return status;
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static int allocate(fby_bench_copy_result_t *result, uint64_t rounds)
{
    for (uint32_t arm = 0; arm < FBY_BENCH_COPY_ARM_COUNT; arm++) {
        result->seconds[arm] = calloc(rounds, sizeof(double));
        if (result->seconds[arm] == NULL) {
            fby_error_set("out of memory");
            return -ENOMEM;
        }
    }
    return 0;
}

/* Ratios first: medians sort the times. */
static int sum_up(fby_bench_copy_result_t *result, uint64_t rounds, uint64_t seed)
{
    const double *plain = result->seconds[FBY_BENCH_COPY_PLAIN];
    int status = 0;
    double *within = malloc(rounds * sizeof(*within));
    if (within == NULL) {
        fby_error_set("out of memory");
        return -ENOMEM;
    }
    for (uint32_t arm = FBY_BENCH_COPY_LOAD; arm < FBY_BENCH_COPY_ARM_COUNT && status == 0; arm++) {
        for (uint64_t i = 0; i < rounds; i++) {
            within[i] = plain[i] / result->seconds[arm][i];
        }
        status = fby_bench_bootstrap(within, rounds, seed, &result->ratio[arm]);
    }
    for (uint32_t arm = 0; arm < FBY_BENCH_COPY_ARM_COUNT; arm++) {
        result->median_s[arm] = fby_bench_quantile(result->seconds[arm], rounds, 0.5);
    }
    free(within);
    return status;
}

static int run_layout(const fby_bench_copy_options_t *options, uint32_t layout, fby_bench_copy_result_t *result)
{
    measure_t measure = {.result = result, .random = options->seed};
    int status = fby_bench_copy_set_open(options, layout, &measure.set);
    status = status == 0 ? allocate(result, options->rounds) : status;
    status = status == 0 ? team_open(&measure.set, (uint32_t)options->threads, &measure.team) : status;
    status = status == 0 ? run_rounds(&measure, options->rounds, fby_bench_copy_names[layout]) : status;
    status = status == 0 ? sum_up(result, options->rounds, options->seed) : status;
    result->blocks = measure.set.blocks;
    result->block_bytes = measure.set.payload_bytes;
    result->is_measured = status == 0;
    team_close(measure.team);
    fby_bench_copy_set_close(&measure.set);
    return status;
}

int fby_bench_copy_run(const fby_bench_copy_options_t *options, fby_bench_copy_t *bench)
{
    uint32_t layouts = options->all_layouts ? FBY_BENCH_COPY_COUNT : 1;
    int status = 0;
    *bench = (fby_bench_copy_t){.options = options};
    for (uint32_t layout = 0; layout < layouts && status == 0; layout++) {
        status = run_layout(options, layout, &bench->result[layout]);
    }
    return status;
}

void fby_bench_copy_close(fby_bench_copy_t *bench)
{
    for (uint32_t layout = 0; layout < FBY_BENCH_COPY_COUNT; layout++) {
        for (uint32_t arm = 0; arm < FBY_BENCH_COPY_ARM_COUNT; arm++) {
            free(bench->result[layout].seconds[arm]);
        }
    }
}
