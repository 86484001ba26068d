/* bench_engine_report.c - the interpreter's lines become figures, which are printed as those of every benchmark. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/bench_engine.h"

enum { FIELDS_MOST = 8, FIGURE_FIELDS = 8 };

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static size_t split(char *line, char *field[FIELDS_MOST])
{
    size_t count = 0;
    for (char *next = line; next != NULL && count < FIELDS_MOST;) {
        field[count++] = strsep(&next, "\t");
    }
    return count;
}

/* "-" is NaN. */
static bool read_number(const char *text, double *out)
{
    char *end;
    *out = NAN;
    if (strcmp(text, "-") == 0) {
        return true;
    }
    *out = strtod(text, &end);
    return end != text && *end == '\0';
}

static bool read_figure(char *field[FIELDS_MOST], fby_bench_figure_t *out)
{
    *out = (fby_bench_figure_t){.unit = field[3]};
    bool is_number = read_number(field[2], &out->value) && read_number(field[5], &out->goal) &&
                     read_number(field[6], &out->lo) && read_number(field[7], &out->hi);
    bool has_goal = strcmp(field[4], "-") != 0;
    if (!is_number || strlen(field[1]) >= sizeof(out->name) ||
        (has_goal && strcmp(field[4], ">=") != 0 && strcmp(field[4], "<=") != 0)) {
        return false;
    }
    snprintf(out->name, sizeof(out->name), "%s", field[1]);
    out->op = has_goal && isfinite(out->value) && isfinite(out->goal) ? field[4] : NULL; /* nothing is not judged */
    fby_bench_figure_judge(out);
    return true;
}

static bool read_line(fby_bench_engine_t *bench, char *line)
{
    char *field[FIELDS_MOST];
    size_t count = split(line, field);
    if (strcmp(field[0], "figure") == 0 && count == FIGURE_FIELDS && bench->figures < FBY_BENCH_ENGINE_FIGURES) {
        return read_figure(field, &bench->figure[bench->figures++]);
    }
    if (strcmp(field[0], "fact") == 0 && count == 3 && bench->facts < FBY_BENCH_ENGINE_TEXTS) {
        bench->fact[bench->facts++] = (fby_bench_fact_t){field[1], field[2]};
        return true;
    }
    if (strcmp(field[0], "note") == 0 && count == 2 && bench->notes < FBY_BENCH_ENGINE_TEXTS) {
        bench->note[bench->notes++] = field[1];
        return true;
    }
    return false;
}

int fby_bench_engine_parse(fby_bench_engine_t *bench)
{
    size_t number = 0;
    bench->figures = bench->facts = bench->notes = 0;
    for (char *next = bench->said, *line; (line = strsep(&next, "\n")) != NULL && next != NULL;) {
        if (strcmp(line, "end") == 0) {
            return 0;
        }
        number++;
        if (!read_line(bench, line)) { /* its tabs are gone: what stands there is its first field */
            fby_error_set("line %zu of what the interpreter printed is none of a benchmark's: \"%.100s\"", number,
                          line);
            return -EPROTO;
        }
    }
    fby_error_set("the interpreter printed no end: it is not known whether it has measured everything");
    return -EPROTO;
}

/* ---- Printing ---------------------------------------------------------------------------------------------------- */

static void print_json(const fby_bench_engine_t *bench, const char *machine, const fby_bench_engine_options_t *options)
{
    fby_json_t json;
    fby_json_init(&json, stdout);
    fby_json_object(&json, NULL);
    fby_json_text(&json, "bench", "engine");
    fby_json_text(&json, "machine", machine);
    fby_json_u64(&json, "rounds", options->rounds);
    fby_json_u64(&json, "seed", options->seed);
    for (size_t i = 0; i < bench->facts; i++) {
        fby_json_text(&json, bench->fact[i].name, bench->fact[i].text);
    }
    fby_json_array(&json, "notes");
    for (size_t i = 0; i < bench->notes; i++) {
        fby_json_text(&json, NULL, bench->note[i]);
    }
    fby_json_end(&json);
    fby_bench_figures_json(&json, bench->figure, bench->figures);
    fby_json_end(&json);
}

/* What was not measured is no row: its note says why. */
static void print_table(const fby_bench_engine_t *bench)
{
    fby_bench_figure_t measured[FBY_BENCH_ENGINE_FIGURES];
    size_t count = 0;
    for (size_t i = 0; i < bench->figures; i++) {
        if (isfinite(bench->figure[i].value)) {
            measured[count++] = bench->figure[i];
        }
    }
    printf("\n");
    fby_bench_figures_print(measured, count);
}

/* In the same order as the figures; the common table has no room for intervals. */
static void print_intervals(const fby_bench_engine_t *bench)
{
    bool is_first = true;
    for (size_t i = 0; i < bench->figures; i++) {
        const fby_bench_figure_t *figure = &bench->figure[i];
        if (isfinite(figure->lo) && isfinite(figure->hi)) {
            printf("%s%s [%.4g, %.4g]", is_first ? "\n95 % intervals: " : ", ", figure->name, figure->lo, figure->hi);
            is_first = false;
        }
    }
    printf("%s", is_first ? "" : "\n");
}

void fby_bench_engine_print(const fby_bench_engine_options_t *options, const fby_bench_engine_t *bench)
{
    char machine[FBY_BENCH_MACHINE_BYTES];
    fby_bench_machine(machine, sizeof(machine));
    if (options->as_json) {
        print_json(bench, machine, options);
        return;
    }
    printf("Machine: %s\nRounds: %" PRIu64 ", and one to warm up\n", machine, options->rounds);
    for (size_t i = 0; i < bench->facts; i++) {
        printf("%c%s: %s\n", bench->fact[i].name[0] & ~0x20, bench->fact[i].name + 1, bench->fact[i].text);
    }
    for (size_t i = 0; i < bench->notes; i++) {
        printf("Note: %s\n", bench->note[i]);
    }
    print_table(bench);
    print_intervals(bench);
}
