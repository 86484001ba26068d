#include "base/clock.h"

#include <time.h>

#include "base/base.h"

static uint64_t monotonic_now_ns(void *arg)
{
    (void)arg;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * FBY_SECOND + (uint64_t)now.tv_nsec;
}

const fby_clock_t fby_clock_monotonic = {.now_ns = monotonic_now_ns, .arg = NULL};

uint64_t fby_ns_from_s(double seconds)
{
    /* Written so that NaN counts as 0: every comparison with it is false. */
    if (!(seconds > 0.0)) {
        return 0;
    }
    double ns = seconds * 1e9;
    /* 2^64 is the first double out of range; the largest below it converts exactly and is under FBY_NEVER. */
    return ns >= 0x1p64 ? FBY_NEVER - 1 : (uint64_t)ns;
}
