/* bench_report.c - what `forebay bench compare` prints: tables for people, one line of JSON for programs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bench_figures.h"
#include "cli/json.h"
#include "cli/table.h"

#define MIB 1048576.0
#define GIB 1073741824.0
#define LONG_TOKENS 16384 /* the length that the published study reports its times for */

static double per_gib(double amount, uint64_t bytes)
{
    return bytes > 0 ? amount * GIB / (double)bytes : NAN;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void json_ratios(fby_json_t *json, const fby_bench_figures_t *figures)
{
    fby_json_array(json, "ratios");
    for (size_t i = 0; i < figures->ratios; i++) {
        const fby_bench_ratio_t *ratio = &figures->ratio[i];
        fby_json_object(json, NULL);
        fby_json_text(json, "arm", fby_bench_arm_names[ratio->arm]);
        fby_json_text(json, "base", fby_bench_arm_names[ratio->base]);
        fby_json_text(json, "load", fby_bench_load_names[ratio->load]);
        fby_json_real(json, "median", ratio->interval.median);
        fby_json_real(json, "lo", ratio->interval.lo);
        fby_json_real(json, "hi", ratio->interval.hi);
        fby_json_end(json);
    }
    fby_json_end(json);
}

static void json_orders(fby_json_t *json, const fby_bench_t *bench)
{
    uint32_t arms = (uint32_t)__builtin_popcount(bench->options->arms);
    fby_json_object(json, "orders");
    for (uint32_t load = 0; load < FBY_BENCH_LOAD_COUNT; load++) {
        if (!fby_bench_has_load(bench, load)) {
            continue;
        }
        fby_json_array(json, fby_bench_load_names[load]);
        for (uint64_t round = 0; round <= bench->options->rounds; round++) {
            fby_json_array(json, NULL);
            for (uint32_t i = 0; i < arms; i++) {
                fby_json_text(json, NULL, fby_bench_arm_names[bench->orders[round][load][i]]);
            }
            fby_json_end(json);
        }
        fby_json_end(json);
    }
    fby_json_end(json);
}

static void json_graphs(fby_json_t *json, const fby_bench_t *bench)
{
    fby_json_object(json, "graphs");
    for (uint32_t arm = FBY_BENCH_NATIVE + 1; arm < FBY_BENCH_ARM_COUNT; arm++) {
        if (fby_bench_has_arm(bench, arm)) {
            fby_json_object(json, fby_bench_arm_names[arm]);
            fby_json_u64(json, "expected", bench->graphs_expected[arm]);
            fby_json_u64(json, "counted", bench->graphs_counted[arm]);
            fby_json_end(json);
        }
    }
    fby_json_end(json);
}

typedef double per_cell_fn(const fby_bench_t *bench, const fby_bench_figures_t *figures, uint32_t load, uint32_t arm);

static double cpu_s_per_gib(const fby_bench_t *bench, const fby_bench_figures_t *figures, uint32_t load, uint32_t arm)
{
    const fby_bench_total_t *total = &bench->total[load][arm];
    (void)figures;
    return per_gib((double)total->usage.cpu_ns / (double)FBY_SECOND, total->bytes);
}

static double switches_per_gib(const fby_bench_t *bench, const fby_bench_figures_t *figures, uint32_t load,
                               uint32_t arm)
{
    (void)figures;
    return per_gib((double)bench->total[load][arm].usage.switches, bench->total[load][arm].bytes);
}

static double wakes_per_gib(const fby_bench_t *bench, const fby_bench_figures_t *figures, uint32_t load, uint32_t arm)
{
    (void)figures;
    return per_gib((double)bench->total[load][arm].usage.wakes, bench->total[load][arm].bytes);
}

static double mib_per_s(const fby_bench_t *bench, const fby_bench_figures_t *figures, uint32_t load, uint32_t arm)
{
    (void)bench;
    return figures->bytes_per_s[load][arm] / MIB;
}

/* {ARM: {LOAD: number}} */
static void json_cells(fby_json_t *json, const char *name, const fby_bench_t *bench, const fby_bench_figures_t *figures,
                       per_cell_fn *number)
{
    fby_json_object(json, name);
    for (uint32_t arm = 0; arm < FBY_BENCH_ARM_COUNT; arm++) {
        if (!fby_bench_has_arm(bench, arm)) {
            continue;
        }
        fby_json_object(json, fby_bench_arm_names[arm]);
        for (uint32_t load = 0; load < FBY_BENCH_LOAD_COUNT; load++) {
            if (fby_bench_has_load(bench, load)) {
                fby_json_real(json, fby_bench_load_names[load], number(bench, figures, load, arm));
            }
        }
        fby_json_end(json);
    }
    fby_json_end(json);
}

static void json_first(fby_json_t *json, const fby_bench_t *bench, const fby_bench_figures_t *figures)
{
    fby_json_object(json, bench->options->tokens == LONG_TOKENS ? "ttft_16k_ms" : "ttft_ms");
    for (uint32_t arm = 0; arm < FBY_BENCH_ARM_COUNT; arm++) {
        if (bench->request_count[arm] > 0) {
            fby_json_real(json, fby_bench_arm_names[arm], figures->first_ms[arm]);
        }
    }
    fby_json_end(json);
}

static void json_stops(fby_json_t *json, const fby_bench_t *bench)
{
    fby_json_object(json, "stops");
    for (uint32_t mode = 0; mode < FBY_STOP_MODE_COUNT; mode++) {
        const fby_bench_stop_result_t *stop = &bench->stop[mode];
        if (stop->stops == 0) {
            continue;
        }
        fby_json_object(json, fby_stop_mode_name(stop->mode));
        fby_json_u64(json, "stops", stop->stops);
        fby_json_real(json, "p50_ms", stop->p50_ms);
        fby_json_real(json, "p99_ms", stop->p99_ms);
        if (mode == FBY_STOP_RECALL) {
            fby_json_real(json, "begun_p50_ms", stop->begun_ms);
            fby_json_real(json, "begun_ratio", stop->begun_ratio);
        }
        fby_json_end(json);
    }
    fby_json_end(json);
}

static void print_json(const fby_bench_t *bench, const fby_bench_figures_t *figures)
{
    fby_json_t json;
    char machine[FBY_BENCH_MACHINE_BYTES];
    fby_bench_machine(machine, sizeof(machine));
    fby_json_init(&json, stdout);
    fby_json_object(&json, NULL);
    fby_json_text(&json, "bench", "compare");
    fby_json_text(&json, "machine", machine);
    fby_json_text(&json, "store", bench->store.text);
    fby_json_array(&json, "load");
    for (uint32_t load = 0; load < FBY_BENCH_LOAD_COUNT; load++) {
        if (fby_bench_has_load(bench, load)) {
            fby_json_text(&json, NULL, fby_bench_load_names[load]);
        }
    }
    fby_json_end(&json);
    fby_json_u64(&json, "rounds", bench->options->rounds);
    fby_json_u64(&json, "tokens", bench->options->tokens);
    fby_json_u64(&json, "blocks", bench->set.blocks);
    fby_json_u64(&json, "block_bytes", bench->set.object_bytes);
    fby_json_u64(&json, "seed", bench->options->seed);
    if (bench->native.client != NULL) {
        fby_json_text(&json, "native", bench->native.client->what);
    }
    json_ratios(&json, figures);
    json_first(&json, bench, figures);
    json_graphs(&json, bench);
    fby_json_u64(&json, "wrong_blocks", bench->wrong_blocks);
    fby_json_u64(&json, "checked_bytes", bench->checked_bytes);
    json_cells(&json, "mib_per_s", bench, figures, mib_per_s);
    json_cells(&json, "cpu_s_per_gib", bench, figures, cpu_s_per_gib);
    json_cells(&json, "context_switches_per_gib", bench, figures, switches_per_gib);
    json_cells(&json, "wakes_per_gib", bench, figures, wakes_per_gib);
    json_stops(&json, bench);
    json_orders(&json, bench);
    fby_bench_figures_json(&json, figures->figure, figures->figures);
    fby_json_end(&json);
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

static void cell_ratio(fby_table_t *table, const fby_bench_figures_t *figures, uint32_t arm, uint32_t base,
                       uint32_t load)
{
    const fby_bench_ratio_t *ratio = fby_bench_ratio_find(figures, arm, base, load);
    if (ratio == NULL) {
        fby_table_cell(table, "-");
        return;
    }
    fby_table_cell(table, "%.3f [%.3f, %.3f]", ratio->interval.median, ratio->interval.lo, ratio->interval.hi);
}

static void cell_first(fby_table_t *table, const fby_bench_figures_t *figures, uint32_t arm, uint32_t load)
{
    char text[32];
    snprintf(text, sizeof(text), "%.2f", figures->first_ms[arm]);
    fby_table_cell(table, "%s", load == FBY_BENCH_LOAD_SERIAL ? text : "");
}

static void print_loads(const fby_bench_t *bench, const fby_bench_figures_t *figures)
{
    static const char *const titles[] = {"load",     "arm",       "MiB/s",        "/ whole [95 %]", "/ native [95 %]",
                                         "ms alone", "CPU s/GiB", "switches/GiB", "wakes/GiB"};
    static const bool right[] = {false, false, true, true, true, true, true, true, true};
    fby_table_t table;
    fby_table_init(&table, FBY_ARRAY_LEN(titles), titles, right);
    for (uint32_t load = 0; load < FBY_BENCH_LOAD_COUNT; load++) {
        for (uint32_t arm = 0; arm < FBY_BENCH_ARM_COUNT; arm++) {
            if (!fby_bench_has_load(bench, load) || !fby_bench_has_arm(bench, arm)) {
                continue;
            }
            fby_table_cell(&table, "%s", fby_bench_load_names[load]);
            fby_table_cell(&table, "%s", fby_bench_arm_names[arm]);
            fby_table_cell(&table, "%.0f", mib_per_s(bench, figures, load, arm));
            cell_ratio(&table, figures, arm, FBY_BENCH_WHOLE, load);
            cell_ratio(&table, figures, arm, FBY_BENCH_NATIVE, load);
            cell_first(&table, figures, arm, load);
            fby_table_cell(&table, "%.3f", cpu_s_per_gib(bench, figures, load, arm));
            fby_table_cell(&table, "%.0f", switches_per_gib(bench, figures, load, arm));
            fby_table_cell(&table, "%.0f", wakes_per_gib(bench, figures, load, arm));
        }
    }
    fby_table_print(&table, stdout);
    fby_table_free(&table);
}

static void print_graphs(const fby_bench_t *bench)
{
    printf("\nGraphs, counted of expected:");
    for (uint32_t arm = FBY_BENCH_NATIVE + 1; arm < FBY_BENCH_ARM_COUNT; arm++) {
        if (fby_bench_has_arm(bench, arm)) {
            printf(" %s %" PRIu64 " of %" PRIu64 ";", fby_bench_arm_names[arm], bench->graphs_counted[arm],
                   bench->graphs_expected[arm]);
        }
    }
    printf(" wrong blocks: %" PRIu64 "\n\n", bench->wrong_blocks);
}

static void print_text(const fby_bench_t *bench, const fby_bench_figures_t *figures)
{
    char machine[FBY_BENCH_MACHINE_BYTES];
    fby_bench_machine(machine, sizeof(machine));
    printf("Store: %s\nMachine: %s\n", bench->store.text, machine);
    if (bench->native.client != NULL) {
        printf("Native: %s\n", bench->native.client->what);
    }
    printf("Prompts of %" PRIu64 " tokens: %" PRIu32 " blocks of %" PRIu32 " bytes, %.1f MiB. %" PRIu64
           " rounds and one to warm up, seed %" PRIu64 ".\n\n",
           bench->options->tokens, bench->set.blocks, bench->set.object_bytes,
           (double)bench->set.blocks * bench->set.object_bytes / MIB, bench->options->rounds, bench->options->seed);
    print_loads(bench, figures);
    print_graphs(bench);
    fby_bench_figures_print(figures->figure, figures->figures);
}

int fby_bench_print(const fby_bench_t *bench)
{
    fby_bench_figures_t figures;
    int status = fby_bench_figures_make(bench, &figures);
    if (status == 0 && bench->options->as_json) {
        print_json(bench, &figures);
    } else if (status == 0) {
        print_text(bench, &figures);
    }
    return status;
}

bool fby_bench_is_right(const fby_bench_t *bench, const char *command)
{
    bool is_right = bench->wrong_blocks == 0;
    if (!is_right) {
        fprintf(stderr, "%s: %" PRIu64 " blocks are not what was stored\n", command, bench->wrong_blocks);
    }
    for (uint32_t arm = FBY_BENCH_NATIVE + 1; arm < FBY_BENCH_ARM_COUNT; arm++) {
        if (bench->graphs_counted[arm] != bench->graphs_expected[arm]) {
            fprintf(stderr, "%s: arm %s: %" PRIu64 " graphs were counted, %" PRIu64 " were expected\n", command,
                    fby_bench_arm_names[arm], bench->graphs_counted[arm], bench->graphs_expected[arm]);
            is_right = false;
        }
    }
    return is_right;
}
