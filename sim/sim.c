#include "sim/sim.h"

#include <string.h>

#include "sim/memory.h"
#include "sim/random.h"

/* Rounds of fair scheduling after which a session that has not ended never will. */
#define SETTLE_ROUNDS 200000u

uint32_t sim_full_every = 64;

static const char *const event_names[] = {
#define FBY_X(name, weight, text) text,
    SIM_EVENT_MAP(FBY_X)
#undef FBY_X
};
static void (*const event_functions[])(sim_t *, uint64_t) = {
#define FBY_X(name, weight, text) sim_event_##name,
    SIM_EVENT_MAP(FBY_X)
#undef FBY_X
};
static const uint32_t event_weights[] = {
#define FBY_X(name, weight, text) weight,
    SIM_EVENT_MAP(FBY_X)
#undef FBY_X
};

const char *sim_event_name(uint32_t event)
{
    return event_names[event];
}

static uint32_t rarely(uint64_t *random, uint32_t often)
{
    switch (sim_below(random, 3)) {
    case 0:
        return 0;
    case 1:
        return often * 8;
    default:
        return often;
    }
}

static void choose_mood(sim_mood_t *mood, uint64_t *random)
{
    mood->query_error = rarely(random, 8);
    mood->query_short = rarely(random, 4);
    mood->read_fault = rarely(random, 4);
    mood->write_fault = rarely(random, 4);
    mood->stuck = rarely(random, 6);
    mood->reset = rarely(random, 2);
    mood->have = rarely(random, 4);
    mood->trailing_hole = rarely(random, 3);
    mood->lease = rarely(random, 20);
}

sim_t *sim_open(uint64_t seed, uint32_t kind)
{
    sim_t *sim = sim_zeroed(1, sizeof(*sim));
    sim->seed = seed;
    sim->random = sim_mix(seed + 1);
    rig_config_t config;
    rig_config_defaults(&config);
    config.full_every = sim_full_every;
    config.collect = true;
    sim_kinds[kind].set(&config, &sim->random);
    choose_mood(&sim->mood, &sim->random);
    if (sim->mood.lease)
        config.core.probe_lease_ns = RIG_MS * sim->mood.lease;
    sim->rig = rig_open(&config);
    uint32_t pool = config.pool[0];
    sim->longest = pool / 2 + sim_below(&sim->random, pool);
    sim->longest = FBY_MIN(sim->longest, 1400u);
    sim->session = sim_zeroed(sim->rig->config.core.session_slots, sizeof(*sim->session));
    sim->most_holds = FBY_MIN(1 + sim_below(&sim->random, 12), sim->rig->config.core.hold_slots);
    sim->most_puts = FBY_MIN(1 + sim_below(&sim->random, 6), sim->rig->config.core.put_slots);
    sim_make_seqs(sim);
    return sim;
}

void sim_close(sim_t *sim)
{
    rig_close(sim->rig);
    free(sim->session);
    free(sim);
}

void sim_schedule(uint64_t seed, sim_step_t *steps, uint32_t count)
{
    uint64_t random = sim_mix(seed ^ UINT64_C(0x5eed));
    uint32_t total = 0;
    for (uint32_t event = 0; event < SIM_EVENT_COUNT; event++)
        total += event_weights[event];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = sim_below(&random, total), event = 0;
        while (at >= event_weights[event])
            at -= event_weights[event++];
        steps[i] = (sim_step_t){sim_random(&random), event};
    }
}

void sim_do(sim_t *sim, const sim_step_t *step)
{
    event_functions[step->event](sim, step->random);
}

/* ---- The end of an episode ---- */

static void give_up_handles(sim_t *sim, bool sessions)
{
    rig_t *rig = sim->rig;
    while (rig->holds && !sim_failed(sim))
        rig_hold_release(rig, rig->hold[0].handle);
    while (rig->puts && !sim_failed(sim))
        rig->put[0].abandoned ? rig_put_fenced(rig, rig->put[0].handle) : rig_put_end(rig, rig->put[0].handle);
    for (uint32_t i = 0; sessions && i < sim->sessions && !sim_failed(sim); i++) {
        const rig_session_t *session = rig_session_find(rig, sim->session[i]);
        if (session && !session->ended && session->generation == rig->generation)
            rig_release(rig, sim->session[i]);
    }
}

/* Does what lanes can do; true when something was done. */
static bool serve(sim_t *sim)
{
    rig_t *rig = sim->rig;
    uint64_t before = rig->calls;
    bool some = false;
    while (sim->queries && !sim_failed(sim)) {
        sim_event_QUERY_END(sim, sim_random(&sim->random));
        some = true;
    }
    fby_core_query_t *query = &sim->query[0];
    if (rig_next_query(rig, query)) {
        sim->queries = 1;
        some = true;
    }
    for (unsigned write = 0; write < 2; write++) {
        while (rig->live_count[write] && !sim_failed(sim)) {
            rig_end(rig, rig->live[write][0], NULL);
            some = true;
        }
        some |= rig_begin(rig, write != 0, rig->config.part_blocks) != FBY_NONE;
    }
    return some && rig->calls > before && !sim_failed(sim);
}

/* Serves and ticks until nothing is left to do now and no timer is armed. */
static void run_out(sim_t *sim)
{
    rig_t *rig = sim->rig;
    uint32_t rounds = 0;
    while (!sim_failed(sim)) {
        uint64_t deadline = fby_core_next_deadline(rig->core);
        if (deadline <= rig->now)
            rig_tick(rig);
        else if (!serve(sim) && deadline == FBY_NEVER)
            return;
        else if (!rig->live_count[0] && !rig->live_count[1] && !sim->queries && !fby_core_wants(rig->core) &&
                 deadline != FBY_NEVER)
            rig->now = FBY_MAX(rig->now, deadline);
        if (++rounds > SETTLE_ROUNDS) {
            rig_fail(rig, "something is left to do for ever: next deadline %llu, now %llu, wants %u",
                     (unsigned long long)deadline, (unsigned long long)rig->now, fby_core_wants(rig->core));
            return;
        }
    }
}

static void all_answered(sim_t *sim)
{
    rig_t *rig = sim->rig;
    for (uint32_t i = 0; i < sim->sessions && !sim_failed(sim); i++) {
        const rig_session_t *session = rig_session_find(rig, sim->session[i]);
        if (!session || session->handle != sim->session[i] || (session->answered && session->terminal))
            continue;
        fby_snapshot_t now = {.size = sizeof(now)};
        fby_core_session_snapshot(rig->core, session->handle, &now);
        rig_fail(rig, "session %llx is %s%s although nothing is left to do: reason %s, cursor %llu of %llu tokens",
                 (unsigned long long)session->handle, fby_state_name(now.state),
                 session->answered ? "" : ", unanswered", fby_reason_name(now.reason),
                 (unsigned long long)now.cursor_blocks, (unsigned long long)now.planned_tokens);
    }
}

void sim_settle(sim_t *sim, bool shutdown_first)
{
    rig_t *rig = sim->rig;
    sim->mood = (sim_mood_t){0};
    if (shutdown_first && !sim_failed(sim)) {
        sim->closed = true;
        sim_say(sim, "shutdown\n");
        rig_shutdown(rig);
    }
    sim_say(sim, "settle\n");
    give_up_handles(sim, false);
    run_out(sim);
    all_answered(sim);
    give_up_handles(sim, true);
    run_out(sim);
    if (!sim_failed(sim) && fby_core_resetting(rig->core))
        rig_fail(rig, "a reset is not done although nothing is left to do");
    if (!sim_failed(sim) && !sim->closed) {
        sim->closed = true;
        rig_shutdown(rig);
        run_out(sim);
    }
    if (!sim_failed(sim))
        rig_quiescent(rig);
    for (uint32_t i = 0; i < rig->config.core.session_slots && !sim_failed(sim); i++)
        if (rig->session[i].handle && !rig->session[i].ended)
            rig_fail(rig, "session %llx never ended", (unsigned long long)rig->session[i].handle);
    while (sim->queries)
        rig_ref_drop(sim->query[--sim->queries].ref);
}
