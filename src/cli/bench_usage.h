/*
 * bench_usage.h - what this process and every process below it (agents, a native client) have used so far.
 *
 * Stores that others started (a server) are not below us and do not count: this is the client's side.
 */
#ifndef FBY_CLI_BENCH_USAGE_H
#define FBY_CLI_BENCH_USAGE_H

#include "base/base.h"

typedef struct fby_bench_usage {
    uint64_t cpu_ns;
    uint64_t wakes;    /* voluntary switches: a thread slept and was woken */
    uint64_t switches; /* all of them */
} fby_bench_usage_t;

/* Reads /proc: about a millisecond, so outside of what is timed. What cannot be read counts as 0. */
void fby_bench_usage_now(fby_bench_usage_t *out);
/* to - from, never below 0: a process that ended in between takes its share along. */
fby_bench_usage_t fby_bench_usage_since(const fby_bench_usage_t *from, const fby_bench_usage_t *to);
void fby_bench_usage_add(fby_bench_usage_t *sum, const fby_bench_usage_t *more);

#endif
