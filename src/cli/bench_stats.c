#include "cli/bench_stats.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define LOW_SHARE 0.025 /* of a 95 % interval */

uint64_t fby_bench_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

void fby_bench_shuffle(uint32_t *items, uint32_t n, uint64_t *state)
{
    for (uint32_t left = n; left > 1; left--) {
        uint32_t at = (uint32_t)(fby_bench_random(state) % left), moved = items[left - 1];
        items[left - 1] = items[at];
        items[at] = moved;
    }
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double quantile_of_sorted(const double *values, size_t n, double q)
{
    double place = q * (double)(n - 1);
    size_t below = (size_t)place, above = FBY_MIN(below + 1, n - 1);
    return values[below] + (place - (double)below) * (values[above] - values[below]);
}

double fby_bench_quantile(double *values, size_t n, double q)
{
    if (n == 0) {
        return NAN;
    }
    qsort(values, n, sizeof(*values), by_value);
    return quantile_of_sorted(values, n, q);
}

int fby_bench_bootstrap(const double *values, size_t n, uint64_t seed, fby_bench_interval_t *out)
{
    *out = (fby_bench_interval_t){NAN, NAN, NAN};
    if (n == 0) {
        return 0;
    }
    double *sample = malloc((n + FBY_BENCH_RESAMPLES) * sizeof(*sample)), *medians = sample + n;
    if (sample == NULL) {
        fby_error_set("out of memory");
        return -ENOMEM;
    }
    memcpy(sample, values, n * sizeof(*values));
    out->median = fby_bench_quantile(sample, n, 0.5);
    for (size_t i = 0; i < FBY_BENCH_RESAMPLES; i++) {
        for (size_t k = 0; k < n; k++) {
            sample[k] = values[fby_bench_random(&seed) % n];
        }
        medians[i] = fby_bench_quantile(sample, n, 0.5);
    }
    out->lo = fby_bench_quantile(medians, FBY_BENCH_RESAMPLES, LOW_SHARE);
    out->hi = fby_bench_quantile(medians, FBY_BENCH_RESAMPLES, 1 - LOW_SHARE);
    free(sample);
    return 0;
}
