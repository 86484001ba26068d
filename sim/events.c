/* events.c - what callers do: sessions, holds, puts, resets. One function per line of SIM_EVENT_MAP. */
#include <errno.h>
#include <stdarg.h>

#include "sim/random.h"
#include "sim/sim.h"

void sim_say(sim_t *sim, const char *format, ...)
{
    if (!sim->trace)
        return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(sim->trace, format, arguments);
    va_end(arguments);
}

static void expect(sim_t *sim, const char *call, int status, const int *allowed, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (status == allowed[i])
            return;
    if (sim->closed && status == FBY_E_CLOSED)
        return;
    rig_fail(sim->rig, "%s answered %s", call, fby_errname(status));
}
#define EXPECT(sim, call, status, ...)                                                                                 \
    expect((sim), (call), (status), (const int[]){__VA_ARGS__}, (uint32_t)FBY_ARRAY_LEN(((const int[]){__VA_ARGS__})))

/* Sequences that share prefixes: every other one forks from an earlier one. */
void sim_make_seqs(sim_t *sim)
{
    rig_t *rig = sim->rig;
    uint64_t *r = &sim->random;
    sim->seqs = 4 + sim_below(r, SIM_SEQS - 4);
    uint64_t salt = sim_random(r) >> 40;
    for (uint32_t i = 0; i < sim->seqs; i++) {
        uint64_t tokens = 1 + sim_below(r, sim->longest * rig->config.core.block_tokens);
        if (i && sim_one_in(r, 2)) {
            const rig_seq_t *base = sim->seq[sim_below(r, i)];
            sim->seq[i] = rig_seq_fork(rig, base, sim_below(r, base->blocks + 1), salt + i, tokens);
        } else {
            sim->seq[i] = rig_seq(rig, sim_below(r, 3), salt + i, tokens);
        }
    }
}

static const rig_seq_t *pick_seq(sim_t *sim, uint64_t *r)
{
    return sim->seq[sim_below(r, sim->seqs)];
}

static void bury(sim_t *sim, uint32_t index)
{
    sim->grave[sim->graves++ % SIM_GRAVES] = sim->session[index];
    sim->session[index] = sim->session[--sim->sessions];
}

/* A session that has not ended, or 0. */
static fby_session_t pick_session(sim_t *sim, uint64_t *r)
{
    while (sim->sessions) {
        uint32_t index = sim_below(r, sim->sessions);
        const rig_session_t *session = rig_session_find(sim->rig, sim->session[index]);
        if (session && !session->ended && session->generation == sim->rig->generation)
            return sim->session[index];
        bury(sim, index);
    }
    sim->idle_steps++;
    return 0;
}

void sim_event_START(sim_t *sim, uint64_t random)
{
    rig_t *rig = sim->rig;
    if (sim->sessions == rig->config.core.session_slots)
        return;
    uint64_t r = random;
    const rig_seq_t *seq = pick_seq(sim, &r);
    fby_core_start_t start;
    rig_start_defaults(&start);
    start.policy = (int32_t)sim_below(&r, FBY_POLICY_BREAK_EVEN + 1);
    start.stop_mode = (int32_t)sim_below(&r, FBY_STOP_DETACH + 1);
    start.predictive = (int32_t)sim_below(&r, 2);
    if (!rig->config.core.chunk_runtime && !sim_one_in(&r, 8))
        start.policy = start.predictive = FBY_UNSET;
    static const uint64_t budgets[] = {0, RIG_MS, 5 * RIG_MS, 20 * RIG_MS, 100 * RIG_MS, FBY_NEVER};
    start.budget_ns = budgets[sim_below(&r, FBY_ARRAY_LEN(budgets))];
    start.candidate_start_token = sim_one_in(&r, 4) ? sim_below(&r, (uint32_t)seq->tokens + 1) : 0;
    if (sim->mood.have && sim_one_in(&r, sim->mood.have))
        start.have_blocks = sim_below(&r, seq->blocks + 1);
    if (sim_one_in(&r, 16))
        start.min_tokens = sim_below(&r, 400);
    fby_session_t session = 0;
    int status = rig_start_with(rig, seq, &start, &session);
    EXPECT(sim, "start", status, 0, -EBUSY, FBY_E_STALE, FBY_E_NOT_ENABLED);
    if (!status)
        sim->session[sim->sessions++] = session;
    sim_say(sim, "%llx = start(seq %u of %u blocks %llu tokens, %s, %s, predictive %d, budget %.1f ms, have %u): %s\n",
            (unsigned long long)session, seq->name_space, seq->blocks, (unsigned long long)seq->tokens,
            start.policy < 0 ? "configured" : fby_policy_name((fby_policy_t)start.policy),
            fby_stop_mode_name((fby_stop_mode_t)start.stop_mode), start.predictive,
            start.budget_ns == FBY_NEVER ? -1.0 : (double)start.budget_ns / (double)RIG_MS, start.have_blocks,
            fby_errname(status));
}

void sim_event_DEMAND(sim_t *sim, uint64_t random)
{
    fby_session_t session = pick_session(sim, &random);
    if (!session)
        return;
    int status = rig_demand(sim->rig, session);
    EXPECT(sim, "demand", status, 0);
    sim_say(sim, "demand(%llx): %s\n", (unsigned long long)session, fby_errname(status));
}

void sim_event_STOP(sim_t *sim, uint64_t random)
{
    fby_session_t session = pick_session(sim, &random);
    if (!session)
        return;
    int status = rig_stop(sim->rig, session);
    EXPECT(sim, "stop", status, 0);
    sim_say(sim, "stop(%llx): %s\n", (unsigned long long)session, fby_errname(status));
}

void sim_event_RELEASE(sim_t *sim, uint64_t random)
{
    fby_session_t session = pick_session(sim, &random);
    if (!session)
        return;
    if (!rig_session_find(sim->rig, session)->answered && !sim_one_in(&random, 8))
        return; /* mostly what is answered, or few would ever be */
    int status = rig_release(sim->rig, session);
    EXPECT(sim, "release", status, 0);
    sim_say(sim, "release(%llx): %s\n", (unsigned long long)session, fby_errname(status));
}

void sim_event_TAKE(sim_t *sim, uint64_t random)
{
    rig_t *rig = sim->rig;
    fby_session_t session = pick_session(sim, &random);
    if (!session || rig->holds == sim->most_holds)
        return;
    bool answered = rig_session_find(rig, session)->answered;
    fby_hold_t hold = 0;
    int status = rig_take(rig, session, &hold);
    if (answered)
        EXPECT(sim, "take", status, 0, FBY_E_STALE, FBY_E_BUDGET, -EBUSY);
    else
        EXPECT(sim, "take before the answer", status, FBY_E_STATE);
    sim_say(sim, "%llx = take(%llx): %s\n", (unsigned long long)hold, (unsigned long long)session, fby_errname(status));
}

void sim_event_LOOKUP(sim_t *sim, uint64_t random)
{
    rig_t *rig = sim->rig;
    if (rig->holds == sim->most_holds)
        return;
    fby_hold_t hold = 0;
    uint64_t tokens = 0;
    int status = rig_lookup(rig, pick_seq(sim, &random), &hold, &tokens);
    EXPECT(sim, "lookup", status, 0, -EBUSY, FBY_E_BUDGET, FBY_E_STALE);
    sim_say(sim, "%llx = lookup: %s, %llu tokens\n", (unsigned long long)hold, fby_errname(status),
            (unsigned long long)tokens);
}

void sim_event_PROBE(sim_t *sim, uint64_t random)
{
    uint64_t tokens = 0;
    int status = rig_probe(sim->rig, pick_seq(sim, &random), &tokens);
    EXPECT(sim, "probe", status, 0, -EBUSY, FBY_E_STALE);
    sim_say(sim, "probe: %s, %llu tokens\n", fby_errname(status), (unsigned long long)tokens);
}

static rig_hold_t *pick_hold(sim_t *sim, uint64_t *r)
{
    if (!sim->rig->holds)
        sim->idle_steps++;
    return sim->rig->holds ? &sim->rig->hold[sim_below(r, sim->rig->holds)] : NULL;
}

void sim_event_TRIM(sim_t *sim, uint64_t random)
{
    rig_hold_t *hold = pick_hold(sim, &random);
    if (!hold)
        return;
    bool stale = hold->generation != sim->rig->generation;
    fby_hold_t handle = hold->handle;
    uint64_t tokens = sim_below(&random, (hold->blocks + 1) * sim->rig->config.core.block_tokens), now = 0;
    int status = rig_hold_trim(sim->rig, handle, tokens, &now);
    EXPECT(sim, "trim", status, stale ? FBY_E_STALE : 0);
    sim_say(sim, "trim(%llx, %llu): %s, %llu tokens\n", (unsigned long long)handle, (unsigned long long)tokens,
            fby_errname(status), (unsigned long long)now);
}

void sim_event_READERS(sim_t *sim, uint64_t random)
{
    rig_hold_t *hold = pick_hold(sim, &random);
    if (!hold)
        return;
    bool stale = hold->generation != sim->rig->generation;
    int status = rig_hold_readers(sim->rig, hold->handle);
    EXPECT(sim, "readers", status, stale ? FBY_E_STALE : 0);
    sim_say(sim, "readers(%llx): %s\n", (unsigned long long)hold->handle, fby_errname(status));
}

void sim_event_COPY(sim_t *sim, uint64_t random)
{
    rig_hold_t *hold = pick_hold(sim, &random);
    if (!hold)
        return;
    rig_hold_verify(sim->rig, hold);
    fby_core_consumed(sim->rig->core, sim_below(&random, hold->blocks + 1));
    rig_checked(sim->rig, 0);
    sim_say(sim, "copy(%llx)\n", (unsigned long long)hold->handle);
}

void sim_event_DROP(sim_t *sim, uint64_t random)
{
    rig_hold_t *hold = pick_hold(sim, &random);
    if (!hold)
        return;
    fby_hold_t handle = hold->handle;
    int status = rig_hold_release(sim->rig, handle);
    EXPECT(sim, "hold release", status, 0);
    sim_say(sim, "drop(%llx): %s\n", (unsigned long long)handle, fby_errname(status));
}

static rig_put_t *pick_put(sim_t *sim, uint64_t *r)
{
    if (!sim->rig->puts)
        sim->idle_steps++;
    return sim->rig->puts ? &sim->rig->put[sim_below(r, sim->rig->puts)] : NULL;
}

void sim_event_PUT_BEGIN(sim_t *sim, uint64_t random)
{
    rig_t *rig = sim->rig;
    const rig_seq_t *seq = pick_seq(sim, &random);
    if (rig->puts == sim->most_puts)
        return;
    uint32_t from = sim_one_in(&random, 3) ? sim_below(&random, seq->blocks + 1) : 0;
    uint32_t to = from + sim_below(&random, seq->blocks - from + 1);
    fby_put_t put = 0;
    int status = rig_put_begin(rig, seq, from, to, &put);
    EXPECT(sim, "put begin", status, 0, -EBUSY, FBY_E_BUDGET, FBY_E_STALE);
    const rig_put_t *made = rig_put_find(rig, put);
    sim_say(sim, "%llx = put_begin([%u,%u)): %s, staged [%u,%u)\n", (unsigned long long)put, from, to,
            fby_errname(status), made ? made->info.staged_from : 0, made ? made->info.staged_to : 0);
}

void sim_event_PUT_COMMIT(sim_t *sim, uint64_t random)
{
    rig_t *rig = sim->rig;
    rig_put_t *put = pick_put(sim, &random);
    if (!put || put->committed || put->abandoned)
        return;
    bool stale = put->generation != rig->generation;
    fby_put_t handle = put->handle;
    uint32_t valid = put->committing ? put->valid : sim_below(&random, put->seq->blocks + 2);
    if (!put->committing && sim_one_in(&random, 2))
        valid = put->info.staged_to;
    if (!put->committing)
        rig_put_fill(rig, handle, valid);
    int status = rig_put_commit_step(rig, handle, valid);
    if (stale)
        EXPECT(sim, "stale commit", status, FBY_E_STALE);
    else
        EXPECT(sim, "commit", status, 0, -EAGAIN);
    sim_say(sim, "put_commit(%llx, %u blocks): %s\n", (unsigned long long)handle, valid, fby_errname(status));
}

void sim_event_PUT_NEXT(sim_t *sim, uint64_t random)
{
    rig_t *rig = sim->rig;
    rig_put_t *put = pick_put(sim, &random);
    if (!put)
        return;
    bool stale = put->generation != rig->generation, committed = put->committed;
    fby_put_t handle = put->handle;
    uint32_t from = sim_one_in(&random, 2) ? put->info.staged_to : sim_below(&random, put->seq->blocks + 1);
    uint32_t to = from + sim_below(&random, put->seq->blocks - from + 1);
    if (!committed || put->abandoned)
        return;
    int status = rig_put_next(rig, handle, from, to);
    if (stale)
        EXPECT(sim, "stale put next", status, FBY_E_STALE);
    else
        EXPECT(sim, "put next", status, 0, FBY_E_BUDGET, -EBUSY);
    sim_say(sim, "put_next(%llx, [%u,%u)): %s\n", (unsigned long long)handle, from, to, fby_errname(status));
}

void sim_event_PUT_END(sim_t *sim, uint64_t random)
{
    rig_put_t *put = pick_put(sim, &random);
    if (!put || put->abandoned)
        return;
    fby_put_t handle = put->handle;
    int status = rig_put_end(sim->rig, handle);
    EXPECT(sim, "put end", status, 0);
    sim_say(sim, "put_end(%llx): %s\n", (unsigned long long)handle, fby_errname(status));
}

void sim_event_PUT_ABANDON(sim_t *sim, uint64_t random)
{
    rig_put_t *put = pick_put(sim, &random);
    if (!put || put->abandoned || put->committing)
        return;
    fby_put_t handle = put->handle;
    int status = rig_put_abandon(sim->rig, handle);
    EXPECT(sim, "put abandon", status, 0);
    sim_say(sim, "put_abandon(%llx): %s\n", (unsigned long long)handle, fby_errname(status));
}

void sim_event_PUT_FENCED(sim_t *sim, uint64_t random)
{
    rig_put_t *put = pick_put(sim, &random);
    if (!put)
        return;
    fby_put_t handle = put->handle;
    if (!put->abandoned) {
        EXPECT(sim, "a fence of a put with an owner", fby_core_put_fenced(sim->rig->core, sim->rig->now, handle),
               FBY_E_STALE);
        return;
    }
    int status = rig_put_fenced(sim->rig, handle);
    EXPECT(sim, "put fenced", status, 0);
    sim_say(sim, "put_fenced(%llx): %s\n", (unsigned long long)handle, fby_errname(status));
}

void sim_event_STALE(sim_t *sim, uint64_t random)
{
    rig_t *rig = sim->rig;
    uint64_t handle = sim_random(&random);
    if (sim->graves && rig->holds < sim->most_holds && sim_one_in(&random, 2)) {
        /* An answer of nothing still gives an empty hold, once, also from a tombstone. */
        fby_hold_t hold;
        handle = sim->grave[sim_below(&random, FBY_MIN(sim->graves, SIM_GRAVES))];
        const rig_session_t *session = rig_session_find(rig, handle);
        int status = rig_take(rig, handle, &hold);
        if (session && session->answer.delivered_blocks == 0)
            EXPECT(sim, "take of an ended session", status, FBY_E_STALE, 0, -EBUSY);
        else
            EXPECT(sim, "take of an ended session", status, FBY_E_STALE);
        return;
    }
    if (rig_session_find(rig, handle) || rig_hold_find(rig, handle) || rig_put_find(rig, handle))
        return;
    EXPECT(sim, "demand of noise", fby_core_session_demand(rig->core, rig->now, handle), FBY_E_STALE);
    EXPECT(sim, "release of noise", fby_core_session_release(rig->core, rig->now, handle), FBY_E_STALE);
    EXPECT(sim, "hold release of noise", fby_core_hold_release(rig->core, rig->now, handle), FBY_E_STALE);
    EXPECT(sim, "put end of noise", fby_core_put_end(rig->core, rig->now, handle), FBY_E_STALE);
    rig_checked(rig, 0);
}

void sim_event_RESET(sim_t *sim, uint64_t random)
{
    rig_t *rig = sim->rig;
    if (!sim->mood.reset || !sim_one_in(&random, sim->mood.reset))
        return;
    bool bump = sim->bumps < 3 && sim_one_in(&random, 3);
    int status = rig_reset(rig, bump);
    EXPECT(sim, "reset", status, 0, -EBUSY);
    if (bump && !status) {
        sim->bumps++;
        sim_make_seqs(sim);
    }
    sim_say(sim, "reset(bump %d): %s\n", bump, fby_errname(status));
}
