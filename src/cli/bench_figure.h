/* bench_figure.h - one figure of a benchmark with its goal, and how every kind of benchmark prints its figures. */
#ifndef FBY_CLI_BENCH_FIGURE_H
#define FBY_CLI_BENCH_FIGURE_H

#include "base/base.h"
#include "cli/json.h"

enum { FBY_BENCH_MACHINE_BYTES = 256 };

typedef struct fby_bench_figure {
    char name[64];
    double value, lo, hi; /* lo, hi: NaN where there is no interval */
    const char *unit;
    const char *op; /* ">=" or "<="; NULL: no goal, reported beside the others */
    double goal;
    bool met;
} fby_bench_figure_t;

/* Sets `met` from value, op and goal. A value that is no number meets nothing. */
void fby_bench_figure_judge(fby_bench_figure_t *figure);
/* The member "figures": an array of name, value, unit, op, goal, met, lo, hi. */
void fby_bench_figures_json(fby_json_t *json, const fby_bench_figure_t *figures, size_t n);
/* The table of the same on stdout. */
void fby_bench_figures_print(const fby_bench_figure_t *figures, size_t n);
/* Processor, cores, memory and system of this machine, NUL-terminated. */
void fby_bench_machine(char *out, size_t capacity);

#endif
