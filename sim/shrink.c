/*
 * shrink.c - from a failing schedule to a short one.
 *
 * Delta debugging: drop whole events by kind first, then ever smaller runs of steps, and keep what still breaks the
 * same rule (the words before the first digit or colon-separated detail agree). Bounded by a number of runs.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "sim/memory.h"
#include "sim/sim.h"

/* In builds that assert, the core itself aborts at the first broken invariant, and a broken core may crash: both are
   caught, so that they shrink like any other failure. What the abandoned rig owned is lost. */
static sigjmp_buf aborted;

static void on_abort(int signal_number)
{
    siglongjmp(aborted, signal_number);
}

static uint32_t run_steps(sim_t *sim, const sim_step_t *steps, uint32_t count, volatile uint32_t *at)
{
    for (*at = 0; *at < count && !sim_failed(sim); (*at)++)
        sim_do(sim, &steps[*at]);
    if (sim_failed(sim))
        return *at - 1;
    sim_settle(sim, sim->seed % 3 == 0);
    return count;
}

bool sim_run(uint64_t seed, uint32_t kind, const sim_step_t *steps, uint32_t count, FILE *trace, sim_failure_t *failure,
             sim_totals_t *totals)
{
    sim_t *sim = sim_open(seed, kind);
    volatile uint32_t at = 0;
    bool failed = true;
    void (*before_abort)(int) = signal(SIGABRT, on_abort), (*before_fault)(int) = signal(SIGSEGV, on_abort);
    sim->trace = trace;
    int signal_number = sigsetjmp(aborted, 1);
    if (signal_number == 0) {
        uint32_t step = run_steps(sim, steps, count, &at);
        failed = sim_failed(sim);
        if (failed && failure) {
            failure->step = step;
            snprintf(failure->rule, sizeof(failure->rule), "%s", sim->rig->failure);
        }
        if (totals && !failed)
            sim_totals_add(totals, sim, count);
        sim_close(sim);
    } else if (failure) {
        failure->step = at;
        snprintf(failure->rule, sizeof(failure->rule),
                 signal_number == SIGABRT ? "the core asserted (see above)" : "the core crashed");
    }
    signal(SIGABRT, before_abort);
    signal(SIGSEGV, before_fault);
    return failed;
}

/* The rule without its figures. */
static bool same_rule(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        if (strchr("0123456789", *a) && strchr("0123456789", *b))
            return true;
        if (*a != *b)
            return false;
    }
    return *a == *b;
}

typedef struct shrink {
    uint64_t seed;
    uint32_t kind, runs;
    sim_step_t *try;
    sim_failure_t *failure;
} shrink_t;

/* Keeps `try` as the new schedule when it fails in the same way; the steps behind the failure go too. */
static bool keep(shrink_t *shrink, sim_step_t *steps, uint32_t *count, uint32_t tried)
{
    sim_failure_t failure;
    if (shrink->runs == 0)
        return false;
    shrink->runs--;
    if (!sim_run(shrink->seed, shrink->kind, shrink->try, tried, NULL, &failure, NULL) ||
        !same_rule(failure.rule, shrink->failure->rule))
        return false;
    *count = FBY_MIN(tried, failure.step + 1);
    memcpy(steps, shrink->try, *count * sizeof(*steps));
    *shrink->failure = failure;
    return true;
}

static void drop_kinds(shrink_t *shrink, sim_step_t *steps, uint32_t *count)
{
    for (uint32_t event = 0; event < SIM_EVENT_COUNT; event++) {
        uint32_t tried = 0;
        for (uint32_t i = 0; i < *count; i++)
            if (steps[i].event != event)
                shrink->try[tried++] = steps[i];
        if (tried < *count)
            keep(shrink, steps, count, tried);
    }
}

static void drop_runs(shrink_t *shrink, sim_step_t *steps, uint32_t *count, uint32_t length)
{
    for (uint32_t at = 0; at < *count;) {
        uint32_t gone = FBY_MIN(length, *count - at);
        memcpy(shrink->try, steps, at * sizeof(*steps));
        memcpy(shrink->try + at, steps + at + gone, (*count - at - gone) * sizeof(*steps));
        if (!keep(shrink, steps, count, *count - gone))
            at += length;
    }
}

/* Hundreds of runs that assert would print as many lines. */
static int hush(void)
{
    int kept = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDERR_FILENO);
        close(null);
    }
    return kept;
}

static void unhush(int kept)
{
    if (kept >= 0) {
        dup2(kept, STDERR_FILENO);
        close(kept);
    }
}

uint32_t sim_shrink(uint64_t seed, uint32_t kind, sim_step_t *steps, uint32_t count, uint32_t runs,
                    sim_failure_t *failure)
{
    shrink_t shrink = {seed, kind, runs, sim_zeroed(count, sizeof(*steps)), failure};
    if (failure->step < count)
        count = failure->step + 1;
    int kept = hush();
    drop_kinds(&shrink, steps, &count);
    uint32_t before;
    do {
        before = count;
        for (uint32_t length = FBY_MAX(count / 2, 1u);; length /= 2) {
            drop_runs(&shrink, steps, &count, length);
            if (length == 1)
                break;
        }
    } while (count < before && shrink.runs);
    unhush(kept);
    free(shrink.try);
    return count;
}
