#include "cli/bench_figure.h"

#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/table.h"

#define GIB 1073741824.0

void fby_bench_figure_judge(fby_bench_figure_t *figure)
{
    if (figure->op != NULL) {
        figure->met = figure->op[0] == '>' ? figure->value >= figure->goal : figure->value <= figure->goal;
    }
}

void fby_bench_figures_json(fby_json_t *json, const fby_bench_figure_t *figures, size_t n)
{
    fby_json_array(json, "figures");
    for (size_t i = 0; i < n; i++) {
        const fby_bench_figure_t *figure = &figures[i];
        fby_json_object(json, NULL);
        fby_json_text(json, "name", figure->name);
        fby_json_real(json, "value", figure->value);
        fby_json_text(json, "unit", figure->unit);
        if (figure->op != NULL) {
            fby_json_text(json, "op", figure->op);
            fby_json_real(json, "goal", figure->goal);
            fby_json_bool(json, "met", figure->met);
        } else {
            fby_json_null(json, "op");
            fby_json_null(json, "goal");
            fby_json_null(json, "met");
        }
        fby_json_real(json, "lo", figure->lo);
        fby_json_real(json, "hi", figure->hi);
        fby_json_end(json);
    }
    fby_json_end(json);
}

void fby_bench_figures_print(const fby_bench_figure_t *figures, size_t n)
{
    static const char *const titles[] = {"figure", "value", "unit", "goal", ""};
    static const bool right[] = {false, true, false, true, false};
    fby_table_t table;
    char goal[48];
    fby_table_init(&table, FBY_ARRAY_LEN(titles), titles, right);
    for (size_t i = 0; i < n; i++) {
        const fby_bench_figure_t *figure = &figures[i];
        fby_table_cell(&table, "%s", figure->name);
        fby_table_cell(&table, "%.4f", figure->value);
        fby_table_cell(&table, "%s", figure->unit);
        snprintf(goal, sizeof(goal), "%s %g", figure->op != NULL ? figure->op : "", figure->goal);
        fby_table_cell(&table, "%s", figure->op == NULL ? "" : goal);
        fby_table_cell(&table, "%s", figure->op == NULL ? "" : figure->met ? "met" : "NOT MET");
    }
    fby_table_print(&table, stdout);
    fby_table_free(&table);
}

void fby_bench_machine(char *out, size_t capacity)
{
    char line[256], model[128] = "unknown processor";
    struct utsname system = {.machine = ""};
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "model name : %127[^\n]", model) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    uname(&system);
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    snprintf(out, capacity, "%s, %ld cores, %.0f GiB, %s %s, %s", model, sysconf(_SC_NPROCESSORS_ONLN), memory / GIB,
             system.sysname, system.release, system.machine);
}
