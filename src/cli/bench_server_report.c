/* bench_server_report.c - what `forebay bench server` prints: figures for people, one line of JSON for programs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "cli/bench_figure.h"
#include "cli/bench_server.h"

enum { FIGURES = 7 };

#define POLL_GOAL_US 0.2
#define CALL_GOAL_US 40.0
#define PYTHON_POLL_GOAL_US 2.0

typedef struct figures {
    fby_bench_figure_t figure[FIGURES];
    size_t count;
} figures_t;

static void add(figures_t *figures, const char *name, double value, const char *unit, const char *op, double goal)
{
    fby_bench_figure_t *figure = &figures->figure[figures->count++];
    *figure = (fby_bench_figure_t){.value = value, .lo = NAN, .hi = NAN, .unit = unit, .op = op, .goal = goal};
    snprintf(figure->name, sizeof(figure->name), "%s", name);
    fby_bench_figure_judge(figure);
}

static void add_interval(figures_t *figures, const char *name, const fby_bench_interval_t *interval, double goal)
{
    add(figures, name, interval->median, "us", "<=", goal);
    figures->figure[figures->count - 1].lo = interval->lo;
    figures->figure[figures->count - 1].hi = interval->hi;
}

/* Goals are for the numbers that the names say; with other numbers the names say those, and nothing is judged. */
static void make_figures(const fby_bench_server_t *bench, figures_t *out)
{
    const fby_bench_server_options_t *options = bench->options;
    char crowd[64], idle[64];
    bool is_goal = options->clients == FBY_BENCH_GOAL_CLIENTS && options->idle_ns == FBY_BENCH_GOAL_IDLE_S * FBY_SECOND;
    snprintf(crowd, sizeof(crowd), "calls_per_s_%" PRIu64 "_clients", options->clients);
    snprintf(idle, sizeof(idle), "idle_wakes_%gs", (double)options->idle_ns / (double)FBY_SECOND);
    out->count = 0;
    add_interval(out, "client_poll_p50_us", &bench->poll_us, POLL_GOAL_US);
    add_interval(out, "client_call_p50_us", &bench->call_us, CALL_GOAL_US);
    add(out, "client_call_p999_us", bench->call_p999_us, "us", NULL, 0);
    if (isfinite(bench->python_poll_us)) {
        add(out, "python_poll_p50_us", bench->python_poll_us, "us", "<=", PYTHON_POLL_GOAL_US);
        add(out, "python_start_p50_us", bench->python_start_us, "us", NULL, 0);
    }
    add(out, crowd, bench->crowd_calls_per_s, "1/s", NULL, 0);
    add(out, idle, (double)bench->idle_wakes, "wakes", is_goal ? "<=" : NULL, 0);
}

static void print_json(const fby_bench_server_t *bench, const char *machine, const figures_t *figures)
{
    fby_json_t json;
    fby_json_init(&json, stdout);
    fby_json_object(&json, NULL);
    fby_json_text(&json, "bench", "server");
    fby_json_text(&json, "machine", machine);
    fby_json_u64(&json, "rounds", bench->options->rounds);
    fby_json_u64(&json, "samples", bench->options->samples);
    fby_json_u64(&json, "clients", bench->options->clients);
    fby_json_u64(&json, "seed", bench->options->seed);
    if (*bench->python_note == '\0') {
        fby_json_null(&json, "python_note");
    } else {
        fby_json_text(&json, "python_note", bench->python_note);
    }
    fby_bench_figures_json(&json, figures->figure, figures->count);
    fby_json_end(&json);
}

void fby_bench_server_print(const fby_bench_server_t *bench)
{
    char machine[FBY_BENCH_MACHINE_BYTES];
    figures_t figures;
    make_figures(bench, &figures);
    fby_bench_machine(machine, sizeof(machine));
    if (bench->options->as_json) {
        print_json(bench, machine, &figures);
        return;
    }
    printf("Machine: %s\nClients: %" PRIu64 " processes that hold a prompt, and one that is timed: %" PRIu64
           " rounds of %" PRIu64 " calls and one to warm up.\n",
           machine, bench->options->clients, bench->options->rounds, bench->options->samples);
    if (*bench->python_note != '\0') {
        printf("Python: not measured: %s\n", bench->python_note);
    }
    printf("\n");
    fby_bench_figures_print(figures.figure, figures.count);
}
