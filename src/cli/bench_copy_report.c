/* bench_copy_report.c - what `forebay bench copy` prints: tables for people, one line of JSON for programs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/bench_copy.h"
#include "cli/bench_figure.h"
#include "cli/table.h"
#include "rank/stream.h"

#define MIB 1048576.0
#define GIGABYTE 1e9
#define RATIO_GOAL 0.85

enum { FIGURES_MOST = 5 * FBY_BENCH_COPY_COUNT };

static const char *kernel_name(void)
{
    size_t n;
    const fby_stream_kernel_t *kernel = fby_stream_kernels(&n);
    fby_stream_fn *best = fby_stream_best();
    while (kernel->copy != best) {
        kernel++;
    }
    return kernel->name;
}

static double gigabytes_per_s(const fby_bench_copy_result_t *result, uint32_t arm)
{
    return (double)result->blocks * result->block_bytes / GIGABYTE / result->median_s[arm];
}

/* ---- Figures ----------------------------------------------------------------------------------------------------- */

static void add_ratio(fby_bench_figure_t *figure, const fby_bench_interval_t *ratio, bool has_goal)
{
    figure->value = ratio->median;
    figure->lo = ratio->lo;
    figure->hi = ratio->hi;
    figure->unit = "ratio";
    figure->op = has_goal ? ">=" : NULL;
    figure->goal = has_goal ? RATIO_GOAL : 0;
    fby_bench_figure_judge(figure);
}

static void add_speed(fby_bench_figure_t *figure, double gigabytes)
{
    figure->value = gigabytes;
    figure->lo = figure->hi = NAN;
    figure->unit = "GB/s";
}

/* The goal is one for two threads: one thread is slower than memory, many are all as fast as it. */
static size_t make_figures(const fby_bench_copy_t *bench, fby_bench_figure_t *out)
{
    bool has_goal = bench->options->threads == FBY_BENCH_COPY_GOAL_THREADS;
    size_t n = 0;
    for (uint32_t layout = 0; layout < FBY_BENCH_COPY_COUNT; layout++) {
        const fby_bench_copy_result_t *result = &bench->result[layout];
        const char *name = fby_bench_copy_names[layout];
        if (!result->is_measured) {
            continue;
        }
        for (size_t i = 0; i < 5; i++) {
            static const char *const tails[] = {"ratio", "summed_ratio", "plain_speed", "speed", "summed_speed"};
            out[n + i] = (fby_bench_figure_t){.value = 0};
            snprintf(out[n + i].name, sizeof(out->name), "copy_%s_%s", name, tails[i]);
        }
        add_ratio(&out[n++], &result->ratio[FBY_BENCH_COPY_LOAD], has_goal);
        add_ratio(&out[n++], &result->ratio[FBY_BENCH_COPY_SUMMED], false);
        add_speed(&out[n++], gigabytes_per_s(result, FBY_BENCH_COPY_PLAIN));
        add_speed(&out[n++], gigabytes_per_s(result, FBY_BENCH_COPY_LOAD));
        add_speed(&out[n++], gigabytes_per_s(result, FBY_BENCH_COPY_SUMMED));
    }
    return n;
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

static void print_json(const fby_bench_copy_t *bench, const char *machine, const fby_bench_figure_t *figures, size_t n)
{
    fby_json_t json;
    fby_json_init(&json, stdout);
    fby_json_object(&json, NULL);
    fby_json_text(&json, "bench", "copy");
    fby_json_text(&json, "machine", machine);
    fby_json_text(&json, "kernel", kernel_name());
    fby_json_u64(&json, "threads", bench->options->threads);
    fby_json_u64(&json, "rounds", bench->options->rounds);
    fby_json_u64(&json, "seed", bench->options->seed);
    fby_json_array(&json, "layouts");
    for (uint32_t layout = 0; layout < FBY_BENCH_COPY_COUNT; layout++) {
        const fby_bench_copy_result_t *result = &bench->result[layout];
        if (result->is_measured) {
            fby_json_object(&json, NULL);
            fby_json_text(&json, "layout", fby_bench_copy_names[layout]);
            fby_json_u64(&json, "blocks", result->blocks);
            fby_json_u64(&json, "block_bytes", result->block_bytes);
            fby_json_u64(&json, "checked_bytes", result->checked_bytes);
            fby_json_u64(&json, "wrong_bytes", result->wrong_bytes);
            fby_json_u64(&json, "wrong_sums", result->wrong_sums);
            fby_json_end(&json);
        }
    }
    fby_json_end(&json);
    fby_bench_figures_json(&json, figures, n);
    fby_json_end(&json);
}

static void print_table(const fby_bench_copy_t *bench)
{
    static const char *const titles[] = {"layout",         "blocks",      "plain GB/s",    "load GB/s",
                                         "/ plain [95 %]", "summed GB/s", "/ plain [95 %]"};
    static const bool right[] = {false, true, true, true, true, true, true};
    fby_table_t table;
    fby_table_init(&table, FBY_ARRAY_LEN(titles), titles, right);
    for (uint32_t layout = 0; layout < FBY_BENCH_COPY_COUNT; layout++) {
        const fby_bench_copy_result_t *result = &bench->result[layout];
        if (!result->is_measured) {
            continue;
        }
        fby_table_cell(&table, "%s", fby_bench_copy_names[layout]);
        fby_table_cell(&table, "%" PRIu64 " x %.2f MiB", result->blocks, result->block_bytes / MIB);
        fby_table_cell(&table, "%.2f", gigabytes_per_s(result, FBY_BENCH_COPY_PLAIN));
        for (uint32_t arm = FBY_BENCH_COPY_LOAD; arm < FBY_BENCH_COPY_ARM_COUNT; arm++) {
            const fby_bench_interval_t *ratio = &result->ratio[arm];
            fby_table_cell(&table, "%.2f", gigabytes_per_s(result, arm));
            fby_table_cell(&table, "%.3f [%.3f, %.3f]", ratio->median, ratio->lo, ratio->hi);
        }
    }
    fby_table_print(&table, stdout);
    fby_table_free(&table);
}

void fby_bench_copy_print(const fby_bench_copy_t *bench)
{
    fby_bench_figure_t figures[FIGURES_MOST];
    char machine[FBY_BENCH_MACHINE_BYTES];
    size_t n = make_figures(bench, figures);
    fby_bench_machine(machine, sizeof(machine));
    if (bench->options->as_json) {
        print_json(bench, machine, figures, n);
        return;
    }
    printf("Machine: %s\nThreads: %" PRIu64 "; stores: %s; %" PRIu64 " rounds and one to warm up, seed %" PRIu64
           ".\n\n",
           machine, bench->options->threads, kernel_name(), bench->options->rounds, bench->options->seed);
    print_table(bench);
    printf("\n");
    fby_bench_figures_print(figures, n);
}

bool fby_bench_copy_is_right(const fby_bench_copy_t *bench, const char *command)
{
    bool is_right = true;
    for (uint32_t layout = 0; layout < FBY_BENCH_COPY_COUNT; layout++) {
        const fby_bench_copy_result_t *result = &bench->result[layout];
        if (result->wrong_bytes > 0 || result->wrong_sums > 0) {
            fprintf(stderr, "%s: layout %s: %" PRIu64 " bytes and %" PRIu64 " checksums are not those of the slots\n",
                    command, fby_bench_copy_names[layout], result->wrong_bytes, result->wrong_sums);
            is_right = false;
        }
    }
    return is_right;
}
