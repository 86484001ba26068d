#include "base/histogram.h"

#define FBY_X(ns, text) UINT64_C(ns),
static const uint64_t bounds[] = {FBY_HISTOGRAM_MAP(FBY_X)};
#undef FBY_X
#define FBY_X(ns, text) text,
static const char *const texts[] = {FBY_HISTOGRAM_MAP(FBY_X) "+Inf"};
#undef FBY_X

void fby_histogram_add(fby_histogram_t *histogram, uint64_t ns)
{
    unsigned at = 0;
    while (at < FBY_HISTOGRAM_BOUNDS && ns > bounds[at]) {
        at++;
    }
    histogram->bucket[at]++;
    histogram->sum_ns += ns;
}

uint64_t fby_histogram_count(const fby_histogram_t *histogram)
{
    uint64_t count = 0;
    for (unsigned at = 0; at <= FBY_HISTOGRAM_BOUNDS; at++) {
        count += histogram->bucket[at];
    }
    return count;
}

const char *fby_histogram_bound(unsigned at)
{
    return texts[FBY_MIN(at, (unsigned)FBY_HISTOGRAM_BOUNDS)];
}
