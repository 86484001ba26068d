#include "cli/bench_figures.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* X(arm, base, judged on, goal): a goal of 0 is none. */
#define PAIR_MAP(X)                                                                                                    \
    X(ONE_GRAPH, WHOLE, true, 0.995)                                                                                   \
    X(CHUNK128, WHOLE, true, 0.99)                                                                                     \
    X(CHUNK32, WHOLE, true, 0.99)                                                                                      \
    X(WHOLE, NATIVE, false, 0.97)                                                                                      \
    X(ONE_GRAPH, NATIVE, false, 0)                                                                                     \
    X(CHUNK128, NATIVE, false, 0)                                                                                      \
    X(CHUNK32, NATIVE, false, 0)

#define FIRST_GOAL 0.9  /* best chunked time to usable prefix / the client's single batch call */
#define DETACH_GOAL 0.1 /* ms, p99 */
#define RECALL_GOAL 1.05

typedef struct pair {
    fby_bench_arm_t arm, base;
    bool on_lo; /* the goal holds for the lower end of the interval, not for the median */
    double goal;
} pair_t;

static const pair_t pairs[] = {
#define FBY_X(arm, base, on_lo, goal) {FBY_BENCH_##arm, FBY_BENCH_##base, on_lo, goal},
    PAIR_MAP(FBY_X)
#undef FBY_X
};

/* ---- Medians ----------------------------------------------------------------------------------------------------- */

static int median_of(const double *values, size_t n, double *out)
{
    double *copy = malloc(FBY_MAX(n, (size_t)1) * sizeof(*copy));
    if (copy == NULL) {
        fby_error_set("out of memory");
        return -ENOMEM;
    }
    memcpy(copy, values, n * sizeof(*copy));
    *out = fby_bench_quantile(copy, n, 0.5);
    free(copy);
    return 0;
}

static int make_medians(const fby_bench_t *bench, fby_bench_figures_t *out)
{
    int status = 0;
    for (uint32_t arm = 0; arm < FBY_BENCH_ARM_COUNT && status == 0; arm++) {
        status = median_of(bench->request_ms[arm], bench->request_count[arm], &out->first_ms[arm]);
        for (uint32_t load = 0; load < FBY_BENCH_LOAD_COUNT && status == 0; load++) {
            const fby_bench_total_t *total = &bench->total[load][arm];
            size_t rounds = total->bytes > 0 ? bench->options->rounds : 0;
            status = median_of(total->bytes_per_s, rounds, &out->bytes_per_s[load][arm]);
        }
    }
    return status;
}

/* ---- Ratios ------------------------------------------------------------------------------------------------------ */

static int make_ratio(const fby_bench_t *bench, const pair_t *pair, uint32_t load, fby_bench_ratio_t *out)
{
    const double *arm = bench->total[load][pair->arm].bytes_per_s, *base = bench->total[load][pair->base].bytes_per_s;
    size_t rounds = bench->options->rounds;
    double *within = malloc(rounds * sizeof(*within));
    if (within == NULL) {
        fby_error_set("out of memory");
        return -ENOMEM;
    }
    for (size_t i = 0; i < rounds; i++) {
        within[i] = arm[i] / base[i];
    }
    *out = (fby_bench_ratio_t){.arm = pair->arm, .base = pair->base, .load = (fby_bench_load_t)load};
    int status = fby_bench_bootstrap(within, rounds, bench->options->seed, &out->interval);
    free(within);
    return status;
}

static int make_ratios(const fby_bench_t *bench, fby_bench_figures_t *out)
{
    int status = 0;
    for (uint32_t load = 0; load < FBY_BENCH_LOAD_COUNT; load++) {
        for (size_t i = 0; i < FBY_ARRAY_LEN(pairs) && status == 0; i++) {
            bool is_measured = fby_bench_has_load(bench, load) && fby_bench_has_arm(bench, pairs[i].arm) &&
                               fby_bench_has_arm(bench, pairs[i].base);
            if (is_measured) {
                status = make_ratio(bench, &pairs[i], load, &out->ratio[out->ratios++]);
            }
        }
    }
    return status;
}

const fby_bench_ratio_t *fby_bench_ratio_find(const fby_bench_figures_t *figures, uint32_t arm, uint32_t base,
                                              uint32_t load)
{
    for (size_t i = 0; i < figures->ratios; i++) {
        const fby_bench_ratio_t *ratio = &figures->ratio[i];
        if (ratio->arm == arm && ratio->base == base && ratio->load == load) {
            return ratio;
        }
    }
    return NULL;
}

/* ---- Figures ----------------------------------------------------------------------------------------------------- */

static void add_figure(fby_bench_figures_t *out, const fby_bench_figure_t *figure, const char *format, ...)
    FBY_PRINTF(3, 4);

static void add_figure(fby_bench_figures_t *out, const fby_bench_figure_t *figure, const char *format, ...)
{
    fby_bench_figure_t *added = &out->figure[out->figures++];
    va_list arguments;
    *added = *figure;
    va_start(arguments, format);
    vsnprintf(added->name, sizeof(added->name), format, arguments);
    va_end(arguments);
    fby_bench_figure_judge(added);
}

static void add_ratio_figures(fby_bench_figures_t *out)
{
    for (size_t i = 0; i < out->ratios; i++) {
        const fby_bench_ratio_t *ratio = &out->ratio[i];
        const pair_t *pair = &pairs[0];
        while (pair->arm != ratio->arm || pair->base != ratio->base) {
            pair++;
        }
        const fby_bench_figure_t figure = {
            .value = pair->on_lo ? ratio->interval.lo : ratio->interval.median,
            .lo = ratio->interval.lo,
            .hi = ratio->interval.hi,
            .unit = "ratio",
            .op = ">=",
            .goal = pair->goal,
        };
        if (pair->goal > 0) {
            add_figure(out, &figure, "%s/%s %s %s", fby_bench_arm_names[pair->arm], fby_bench_arm_names[pair->base],
                       fby_bench_load_names[ratio->load], pair->on_lo ? "lower end" : "median");
        }
    }
}

/* Times are the inverse of what was compared within rounds. */
static void add_first_figure(fby_bench_figures_t *out)
{
    const fby_bench_ratio_t *best = NULL;
    for (uint32_t arm = FBY_BENCH_CHUNK128; arm <= FBY_BENCH_CHUNK32; arm++) {
        const fby_bench_ratio_t *ratio = fby_bench_ratio_find(out, arm, FBY_BENCH_NATIVE, FBY_BENCH_LOAD_SERIAL);
        if (ratio != NULL && (best == NULL || ratio->interval.median > best->interval.median)) {
            best = ratio;
        }
    }
    if (best != NULL) {
        const fby_bench_figure_t figure = {
            .value = 1 / best->interval.median,
            .lo = 1 / best->interval.hi,
            .hi = 1 / best->interval.lo,
            .unit = "ratio",
            .op = "<=",
            .goal = FIRST_GOAL,
        };
        add_figure(out, &figure, "time to usable prefix, %s/native", fby_bench_arm_names[best->arm]);
    }
}

static void add_stop_figures(const fby_bench_t *bench, fby_bench_figures_t *out)
{
    for (uint32_t mode = 0; mode < FBY_STOP_MODE_COUNT; mode++) {
        const fby_bench_stop_result_t *stop = &bench->stop[mode];
        const char *name = fby_stop_mode_name(stop->mode);
        bool is_detach = mode == FBY_STOP_DETACH;
        fby_bench_figure_t figure = {.value = stop->p50_ms, .lo = NAN, .hi = NAN, .unit = "ms"};
        if (stop->stops == 0) {
            continue;
        }
        add_figure(out, &figure, "stop to answer, %s, p50", name);
        figure.value = stop->p99_ms;
        figure.op = is_detach ? "<=" : NULL;
        figure.goal = is_detach ? DETACH_GOAL : 0;
        add_figure(out, &figure, "stop to answer, %s, p99", name);
        if (mode == FBY_STOP_RECALL) {
            figure = (fby_bench_figure_t){
                .value = stop->begun_ratio, .lo = NAN, .hi = NAN, .unit = "ratio", .op = "<=", .goal = RECALL_GOAL};
            add_figure(out, &figure, "stop to answer, recall/what was begun");
        }
    }
}

int fby_bench_figures_make(const fby_bench_t *bench, fby_bench_figures_t *out)
{
    *out = (fby_bench_figures_t){.ratios = 0};
    int status = make_medians(bench, out);
    status = status == 0 ? make_ratios(bench, out) : status;
    if (status == 0) {
        add_ratio_figures(out);
        add_first_figure(out);
        add_stop_figures(bench, out);
    }
    return status;
}
