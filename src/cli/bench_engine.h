/*
 * bench_engine.h - `forebay bench engine`: the package's `python -m forebay.engines.bench` measures inside an engine,
 * and prints lines of fields between tabs. Here it is started, and what it says is read and judged.
 *
 *   fact NAME TEXT                               what was run
 *   note TEXT                                    why a figure is missing or has no goal
 *   figure NAME VALUE UNIT OP GOAL LO HI         numbers; "-": none. OP is ">=", "<=" or "-"
 *   end                                          the last line
 */
#ifndef FBY_CLI_BENCH_ENGINE_H
#define FBY_CLI_BENCH_ENGINE_H

#include "cli/bench_figure.h"
#include "forebay/forebay.h"

enum { FBY_BENCH_ENGINE_FIGURES = 32, FBY_BENCH_ENGINE_TEXTS = 16, FBY_BENCH_ENGINE_BYTES = 64 << 10 };

typedef struct fby_bench_engine_options {
    const char *python; /* a program's name or path */
    const char *model;  /* a directory; NULL: the tiny model */
    const char *dtype;  /* NULL: the model's */
    uint64_t rounds, tokens, block_tokens, threads, seed;
    bool is_tiny, as_json;
} fby_bench_engine_options_t;

typedef struct fby_bench_fact {
    const char *name, *text;
} fby_bench_fact_t;

/* All texts point into `said`. */
typedef struct fby_bench_engine {
    fby_bench_figure_t figure[FBY_BENCH_ENGINE_FIGURES];
    fby_bench_fact_t fact[FBY_BENCH_ENGINE_TEXTS];
    const char *note[FBY_BENCH_ENGINE_TEXTS];
    size_t figures, facts, notes;
    char said[FBY_BENCH_ENGINE_BYTES];
} fby_bench_engine_t;

/* Runs the interpreter and reads what it says. Negative errno, with fby_last_error(): what lacks, or what failed. */
int fby_bench_engine_run(const fby_bench_engine_options_t *options, fby_bench_engine_t *out);
/* Takes `said` apart, in place. -EPROTO: it is not of that form; the message has the line. */
int fby_bench_engine_parse(fby_bench_engine_t *bench);
void fby_bench_engine_print(const fby_bench_engine_options_t *options, const fby_bench_engine_t *bench);

#endif
