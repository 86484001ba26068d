/* totals.c - what a run of the simulator reached. */
#include <inttypes.h>
#include <string.h>

#include "sim/sim.h"

static const char *const event_texts[] = {"answered", "terminal", "ended",      "published",  "removed",
                                          "fence",    "unref",    "put_stored", "reset_done", "quarantine_over"};

void sim_totals_add(sim_totals_t *totals, const sim_t *sim, uint32_t steps)
{
    fby_stats_t stats = {.size = sizeof(stats)};
    fby_core_stats(sim->rig->core, &stats);
    totals->episodes++;
    totals->steps += steps;
    totals->calls += sim->rig->calls;
    totals->private_holds += sim->rig->private_holds;
    totals->resets += sim->rig->resets;
    for (uint32_t i = 0; i < FBY_ARRAY_LEN(totals->events); i++)
        totals->events[i] += sim->rig->events[i];
#define FBY_X(name) totals->stats.name += stats.name;
    FBY_STAT_MAP(FBY_X)
#undef FBY_X
    for (uint32_t i = 0; i < FBY_REASON_COUNT; i++)
        totals->stats.sessions_by_reason[i] += stats.sessions_by_reason[i];
}

static void row(FILE *out, const char *name, uint64_t value)
{
    if (!strstr(name, "_gauge"))
        fprintf(out, "%-28s %12" PRIu64 "%s\n", name, value, value ? "" : "   never reached");
}

void sim_totals_print(const sim_totals_t *totals, FILE *out)
{
    for (uint32_t i = 0; i < FBY_ARRAY_LEN(totals->events); i++) {
        char name[40];
        snprintf(name, sizeof(name), "event %s", event_texts[i]);
        row(out, name, totals->events[i]);
    }
    row(out, "private holds", totals->private_holds);
    row(out, "resets", totals->resets);
#define FBY_X(name) row(out, #name, totals->stats.name);
    FBY_STAT_MAP(FBY_X)
#undef FBY_X
    for (uint32_t i = FBY_REASON_NONE + 1; i < FBY_REASON_COUNT; i++) {
        char name[40];
        snprintf(name, sizeof(name), "reason %s", fby_reason_name((fby_reason_t)i));
        row(out, name, totals->stats.sessions_by_reason[i]);
    }
}
