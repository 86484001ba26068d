/*
 * histogram.h - durations in fixed buckets: bounded, nothing allocated, O(buckets) to add. The caller guards it.
 */
#ifndef FBY_BASE_HISTOGRAM_H
#define FBY_BASE_HISTOGRAM_H

#include "base/base.h"

/* X(nanoseconds, seconds as text): upper bounds, inclusive. One more bucket takes what is longer than the last. */
#define FBY_HISTOGRAM_MAP(X)                                                                                           \
    X(100000, "0.0001")                                                                                                \
    X(250000, "0.00025")                                                                                               \
    X(500000, "0.0005")                                                                                                \
    X(1000000, "0.001")                                                                                                \
    X(2500000, "0.0025")                                                                                               \
    X(5000000, "0.005")                                                                                                \
    X(10000000, "0.01")                                                                                                \
    X(25000000, "0.025")                                                                                               \
    X(50000000, "0.05")                                                                                                \
    X(100000000, "0.1")                                                                                                \
    X(250000000, "0.25")                                                                                               \
    X(500000000, "0.5")                                                                                                \
    X(1000000000, "1")                                                                                                 \
    X(2500000000, "2.5")                                                                                               \
    X(5000000000, "5")                                                                                                 \
    X(10000000000, "10")                                                                                               \
    X(30000000000, "30")                                                                                               \
    X(60000000000, "60")

#define FBY_X(ns, text) +1
enum { FBY_HISTOGRAM_BOUNDS = 0 FBY_HISTOGRAM_MAP(FBY_X) };
#undef FBY_X

typedef struct fby_histogram {
    uint64_t bucket[FBY_HISTOGRAM_BOUNDS + 1]; /* not cumulative; their sum is the count */
    uint64_t sum_ns;
} fby_histogram_t;

void fby_histogram_add(fby_histogram_t *histogram, uint64_t ns);
uint64_t fby_histogram_count(const fby_histogram_t *histogram);
/* Bound `at` in seconds, as text; the one behind the last is "+Inf". */
const char *fby_histogram_bound(unsigned at);

#endif
