/* clock.h - the injected clock. Everything above base that needs the time is handed one of these. */
#ifndef FBY_BASE_CLOCK_H
#define FBY_BASE_CLOCK_H

#include <stdint.h>

#define FBY_MS UINT64_C(1000000)
#define FBY_SECOND UINT64_C(1000000000)

typedef struct fby_clock {
    uint64_t (*now_ns)(void *arg); /* monotonic; never goes back; never 0 */
    void *arg;
} fby_clock_t;

static inline uint64_t fby_clock_now(const fby_clock_t *clock)
{
    return clock->now_ns(clock->arg);
}

/* CLOCK_MONOTONIC. */
extern const fby_clock_t fby_clock_monotonic;

/* Seconds (>= 0, finite) to nanoseconds, saturating at FBY_NEVER - 1. */
uint64_t fby_ns_from_s(double seconds);

#endif
