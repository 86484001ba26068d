/* bench_figures.h - a comparison's totals as ratios and as figures with goals: what the outputs print. */
#ifndef FBY_CLI_BENCH_FIGURES_H
#define FBY_CLI_BENCH_FIGURES_H

#include "cli/bench_compare.h"
#include "cli/bench_figure.h"

enum { FBY_BENCH_RATIOS_MOST = 7 * FBY_BENCH_LOAD_COUNT, FBY_BENCH_FIGURES_MOST = FBY_BENCH_RATIOS_MOST + 8 };

/* Bytes per second of `arm` over those of `base`, round by round. */
typedef struct fby_bench_ratio {
    fby_bench_arm_t arm, base;
    fby_bench_load_t load;
    fby_bench_interval_t interval;
} fby_bench_ratio_t;

typedef struct fby_bench_figures {
    fby_bench_ratio_t ratio[FBY_BENCH_RATIOS_MOST];
    size_t ratios;
    fby_bench_figure_t figure[FBY_BENCH_FIGURES_MOST];
    size_t figures;
    double first_ms[FBY_BENCH_ARM_COUNT]; /* median time to usable prefix, serial; NaN: not measured */
    double bytes_per_s[FBY_BENCH_LOAD_COUNT][FBY_BENCH_ARM_COUNT]; /* medians; NaN likewise */
} fby_bench_figures_t;

/* Needs totals of at least one round. -ENOMEM. */
int fby_bench_figures_make(const fby_bench_t *bench, fby_bench_figures_t *out);
/* NULL when that pair was not measured. */
const fby_bench_ratio_t *fby_bench_ratio_find(const fby_bench_figures_t *figures, uint32_t arm, uint32_t base,
                                              uint32_t load);

#endif
