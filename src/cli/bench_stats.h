/* bench_stats.h - the arithmetic of a comparison: seeded order, quantiles, bootstrap intervals. Pure. */
#ifndef FBY_CLI_BENCH_STATS_H
#define FBY_CLI_BENCH_STATS_H

#include "base/base.h"

enum { FBY_BENCH_RESAMPLES = 10000 };

typedef struct fby_bench_interval {
    double median, lo, hi; /* NaN without values */
} fby_bench_interval_t;

/* SplitMix64: the same stream on every machine for one seed. */
uint64_t fby_bench_random(uint64_t *state);
/* Uniform over all orders, as far as 64 random bits go. */
void fby_bench_shuffle(uint32_t *items, uint32_t n, uint64_t *state);
/* Sorts the values. q from 0 to 1, linear between neighbours; NaN without values. */
double fby_bench_quantile(double *values, size_t n, double q);
/* Median and its 95 % percentile-bootstrap interval; leaves the values as they are. -ENOMEM. */
int fby_bench_bootstrap(const double *values, size_t n, uint64_t seed, fby_bench_interval_t *out);

#endif
