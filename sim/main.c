/*
 * forebay-sim - runs seeded schedules against the core until one breaks a rule.
 *
 * Exit status: 0 all held, 1 a rule broke (the shortest schedule found, and the command that repeats it, are printed),
 * 2 wrong usage.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "sim/memory.h"
#include "sim/sim.h"

typedef struct arguments {
    uint64_t steps, seed, episode;
    double seconds;
    int32_t kind; /* -1: all in turn */
    uint32_t shrink_runs;
    bool trace, quiet, coverage;
} arguments_t;

static void usage(FILE *out)
{
    fputs("usage: forebay-sim [--steps N] [--seed S] [--episode N] [--config NAME] [--seconds T] [--full N]\n"
          "                   [--trace] [--coverage] [--quiet]\n"
          "\n"
          "Runs seeded schedules of every event against the core and checks every invariant.\n"
          "\n"
          "  --steps N     events in all (default 1000000)\n"
          "  --seed S      first episode's seed; the next episodes use S+1, S+2, ... (default 1)\n"
          "  --episode N   events per episode (default 4000)\n"
          "  --config NAME one configuration only; --configs lists them\n"
          "  --seconds T   stop after T seconds of real time, whatever --steps says\n"
          "  --full N      calls between two full recomputations (default 64; 1: to see at once where it breaks)\n"
          "  --shrink N    most runs spent on shortening a failing schedule (default 3000; 0: none)\n"
          "  --coverage    print what was reached: events, graphs, failures, reasons\n"
          "  --trace       print every event of the first episode\n"
          "  --quiet       print failures only\n"
          "\n"
          "examples:\n"
          "  forebay-sim --steps 10000000\n"
          "  forebay-sim --seed 17 --steps 4000 --config state --trace\n",
          out);
}

static void list_kinds(void)
{
    for (uint32_t i = 0; i < sim_kind_count; i++)
        printf("%-8s %s\n", sim_kinds[i].name, sim_kinds[i].what);
}

static int32_t kind_by_name(const char *name)
{
    for (uint32_t i = 0; i < sim_kind_count; i++)
        if (strcmp(sim_kinds[i].name, name) == 0)
            return (int32_t)i;
    return -1;
}

static bool number(const char *text, uint64_t *out)
{
    char *end;
    *out = strtoull(text, &end, 0);
    return *text && *text != '-' && !*end;
}

static int wrong(const char *option, const char *value)
{
    fprintf(stderr, "forebay-sim: %s %s is not accepted; see --help\n", option, value ? value : "without a value");
    return 2;
}

/* -1: run; otherwise the exit status. */
static int parse(int argc, char **argv, arguments_t *a)
{
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        uint64_t n = 0;
        if (strcmp(option, "--help") == 0)
            return usage(stdout), 0;
        if (strcmp(option, "--configs") == 0)
            return list_kinds(), 0;
        bool *flag = strcmp(option, "--trace") == 0      ? &a->trace
                     : strcmp(option, "--quiet") == 0    ? &a->quiet
                     : strcmp(option, "--coverage") == 0 ? &a->coverage
                                                         : NULL;
        if (flag) {
            *flag = true;
            continue;
        }
        i++;
        if (strcmp(option, "--config") == 0) {
            a->kind = value ? kind_by_name(value) : -1;
            if (a->kind < 0)
                return wrong(option, value);
            continue;
        }
        if (!value || !number(value, &n))
            return wrong(option, value);
        if (strcmp(option, "--steps") == 0)
            a->steps = n;
        else if (strcmp(option, "--seed") == 0)
            a->seed = n;
        else if (strcmp(option, "--episode") == 0 && n > 0 && n <= 10000000)
            a->episode = n;
        else if (strcmp(option, "--seconds") == 0)
            a->seconds = (double)n;
        else if (strcmp(option, "--full") == 0 && n > 0 && n <= UINT32_MAX)
            sim_full_every = (uint32_t)n;
        else if (strcmp(option, "--shrink") == 0 && n <= UINT32_MAX)
            a->shrink_runs = (uint32_t)n;
        else
            return wrong(option, value);
    }
    return -1;
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void report(const arguments_t *a, uint64_t seed, uint32_t kind, sim_step_t *steps, uint32_t count,
                   sim_failure_t *failure)
{
    printf("FAILED: %s\n  seed %" PRIu64 ", config %s, step %u of %u\n", failure->rule, seed, sim_kinds[kind].name,
           failure->step, count);
    printf("  again: forebay-sim --seed %" PRIu64 " --steps %u --episode %u --config %s\n", seed, count, count,
           sim_kinds[kind].name);
    fflush(stdout);
    if (!a->shrink_runs)
        return;
    uint32_t left = sim_shrink(seed, kind, steps, count, a->shrink_runs, failure);
    printf("  shortest schedule found: %u events\n", left);
    sim_run(seed, kind, steps, left, stdout, failure, NULL);
    printf("  => %s\n", failure->rule);
}

static void summary(const arguments_t *a, const sim_totals_t *totals, double spent)
{
    if (a->coverage)
        sim_totals_print(totals, stdout);
    if (!a->quiet)
        printf("%" PRIu64 " episodes, %" PRIu64 " events, %" PRIu64 " checked core calls in %.2f s: %.0f events/s, "
               "%.0f calls/s\n",
               totals->episodes, totals->steps, totals->calls, spent, (double)totals->steps / spent,
               (double)totals->calls / spent);
}

static int run(const arguments_t *a)
{
    sim_step_t *steps = sim_zeroed(a->episode, sizeof(*steps));
    sim_totals_t totals = {0};
    double begin = seconds_now();
    int status = 0;
    while (totals.steps < a->steps && (a->seconds <= 0 || seconds_now() - begin < a->seconds)) {
        uint64_t seed = a->seed + totals.episodes;
        uint32_t kind = a->kind >= 0 ? (uint32_t)a->kind : (uint32_t)(seed % sim_kind_count);
        uint32_t count = (uint32_t)FBY_MIN(a->episode, a->steps - totals.steps);
        sim_failure_t failure;
        sim_schedule(seed, steps, count);
        if (sim_run(seed, kind, steps, count, a->trace && !totals.episodes ? stdout : NULL, &failure, &totals)) {
            report(a, seed, kind, steps, count, &failure);
            status = 1;
            break;
        }
    }
    summary(a, &totals, seconds_now() - begin);
    free(steps);
    return status;
}

int main(int argc, char **argv)
{
    arguments_t a = {.steps = 1000000, .seed = 1, .episode = 4000, .kind = -1, .shrink_runs = 3000};
    int status = parse(argc, argv, &a);
    return status >= 0 ? status : run(&a);
}
