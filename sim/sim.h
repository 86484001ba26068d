/*
 * sim.h - the simulator: seeded schedules over one rig, in any legal order, with faults.
 *
 * A schedule is an array of (event, random word): what an event does to what depends only on the word and on the rig's
 * state, so any subset of a schedule is a schedule. That is what makes a failure shrink.
 */
#ifndef FBY_SIM_SIM_H
#define FBY_SIM_SIM_H

#include <stdio.h>

#include "sim/rig.h"

/* X(event, weight, text): one line here and one function in events*.c make a new event. */
#define SIM_EVENT_MAP(X)                                                                                               \
    X(START, 8, "start")                                                                                               \
    X(DEMAND, 5, "demand")                                                                                             \
    X(STOP, 2, "stop")                                                                                                 \
    X(RELEASE, 4, "release")                                                                                           \
    X(TAKE, 5, "take")                                                                                                 \
    X(LOOKUP, 3, "lookup")                                                                                             \
    X(PROBE, 5, "probe")                                                                                               \
    X(TRIM, 2, "trim")                                                                                                 \
    X(READERS, 1, "readers")                                                                                           \
    X(COPY, 3, "copy")                                                                                                 \
    X(DROP, 6, "drop_hold")                                                                                            \
    X(PUT_BEGIN, 4, "put_begin")                                                                                       \
    X(PUT_COMMIT, 6, "put_commit")                                                                                     \
    X(PUT_NEXT, 2, "put_next")                                                                                         \
    X(PUT_END, 4, "put_end")                                                                                           \
    X(PUT_ABANDON, 1, "put_abandon")                                                                                   \
    X(PUT_FENCED, 2, "put_fenced")                                                                                     \
    X(QUERY_BEGIN, 10, "query_begin")                                                                                  \
    X(QUERY_END, 10, "query_end")                                                                                      \
    X(READ_BEGIN, 22, "read_begin")                                                                                    \
    X(READ_END, 22, "read_end")                                                                                        \
    X(PROGRESS, 2, "progress")                                                                                         \
    X(WRITE_BEGIN, 6, "write_begin")                                                                                   \
    X(WRITE_END, 6, "write_end")                                                                                       \
    X(TICK, 12, "tick")                                                                                                \
    X(TIME, 14, "time")                                                                                                \
    X(STALE, 2, "stale")                                                                                               \
    X(LOOK, 2, "look")                                                                                                 \
    X(RESET, 1, "reset")

typedef enum sim_event {
#define FBY_X(name, weight, text) SIM_##name,
    SIM_EVENT_MAP(FBY_X)
#undef FBY_X
        SIM_EVENT_COUNT
} sim_event_t;

typedef struct sim_step {
    uint64_t random;
    uint32_t event; /* sim_event_t */
} sim_step_t;

typedef struct sim_kind {
    const char *name, *what;
    void (*set)(rig_config_t *config, uint64_t *random);
} sim_kind_t;
extern const sim_kind_t sim_kinds[];
extern const uint32_t sim_kind_count;

/* What goes wrong how often in one episode: one in so many, 0: never. */
typedef struct sim_mood {
    uint32_t query_error, query_short, read_fault, write_fault, stuck, reset, have, trailing_hole, lease;
} sim_mood_t;

#define SIM_SEQS 24
#define SIM_QUERIES 16
#define SIM_GRAVES 32

typedef struct sim {
    rig_t *rig;
    sim_mood_t mood;
    uint64_t seed, random;
    rig_seq_t *seq[SIM_SEQS];
    uint32_t seqs, longest, most_holds, most_puts;
    fby_core_query_t query[SIM_QUERIES];
    uint32_t queries;
    fby_session_t *session; /* started, not seen to end */
    uint32_t sessions;
    fby_session_t grave[SIM_GRAVES]; /* handles that must be errors, or tombstones */
    uint32_t graves;
    uint32_t bumps;
    bool closed;
    FILE *trace; /* each event in words; NULL: none */
    uint64_t idle_steps;
} sim_t;

extern uint32_t sim_full_every; /* calls between two full recomputations; 64 */

sim_t *sim_open(uint64_t seed, uint32_t kind);
void sim_close(sim_t *sim);
/* The schedule that a seed stands for. */
void sim_schedule(uint64_t seed, sim_step_t *steps, uint32_t count);
void sim_do(sim_t *sim, const sim_step_t *step);
/* Ends the episode: fair scheduling without faults until everything has ended, and Q. */
void sim_settle(sim_t *sim, bool shutdown_first);
/* True when the rig has found a broken rule. */
static inline bool sim_failed(const sim_t *sim)
{
    return sim->rig->failure[0] != 0;
}

/* ---- events.c, events_work.c ---- */
void sim_say(sim_t *sim, const char *format, ...) FBY_PRINTF(2, 3);
void sim_make_seqs(sim_t *sim);
const char *sim_event_name(uint32_t event);
#define FBY_X(name, weight, text) void sim_event_##name(sim_t *sim, uint64_t random);
SIM_EVENT_MAP(FBY_X)
#undef FBY_X

/* ---- shrink.c ---- */
typedef struct sim_failure {
    uint32_t step; /* the step at which the rule broke; count: while settling */
    char rule[320];
} sim_failure_t;
/* What was reached, over all episodes: a rule that is never put to the test holds trivially. */
typedef struct sim_totals {
    uint64_t episodes, steps, calls, private_holds, resets;
    uint64_t events[FBY_CORE_QUARANTINE_OVER + 1];
    fby_stats_t stats; /* sums of the counters; gauges mean nothing here */
} sim_totals_t;
void sim_totals_add(sim_totals_t *totals, const sim_t *sim, uint32_t steps);
void sim_totals_print(const sim_totals_t *totals, FILE *out);

/* Runs a schedule on a fresh rig. True when a rule broke. trace and totals may be NULL. */
bool sim_run(uint64_t seed, uint32_t kind, const sim_step_t *steps, uint32_t count, FILE *trace, sim_failure_t *failure,
             sim_totals_t *totals);
/* Removes what is not needed for a failure of the same rule, for at most so many runs. Returns the new count. */
uint32_t sim_shrink(uint64_t seed, uint32_t kind, sim_step_t *steps, uint32_t count, uint32_t runs,
                    sim_failure_t *failure);

#endif
