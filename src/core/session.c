/*
 * session.c - a session from start to seal.
 *
 *   start -> PLANNING -> ACTIVE -> seal(reason) -> DRAINING -> TERMINAL -> EXPIRED
 *
 * `seal_reason` (reason), gap, discard, released and answered are set once each. Nothing is claimed, retried or queued
 * after the seal. What a policy stop does with claimed work is the stop mode's (policy_stop); every other seal drains.
 */
#include <errno.h>

#include "core/internal.h"

bool fby_reason_is_policy(fby_reason_t reason)
{
    return reason == FBY_REASON_DEADLINE || reason == FBY_REASON_DEMAND || reason == FBY_REASON_BREAK_EVEN;
}

fby_reason_t fby_gap_reason(int32_t code)
{
    switch (code) {
    case FBY_E_MISSING:
    case FBY_E_NOT_READY:
    case FBY_E_SIZE:
    case FBY_E_CHECKSUM:
    case FBY_E_LEASE:
        return FBY_REASON_PARTIAL_READ;
    case FBY_E_TIMEOUT:
        return FBY_REASON_IO_TIMEOUT;
    default:
        return FBY_REASON_STORE_ERROR;
    }
}

/* ---- Start ---- */

static uint64_t session_budget(const fby_core_t *core, const fby_core_start_t *start)
{
    if (start->budget_ns != FBY_NEVER)
        return start->budget_ns;
    if (core->config.timeout_budget_ns != FBY_NEVER)
        return core->config.timeout_budget_ns;
    return fby_policy_budget(core->config.timeout_base_ns, core->config.timeout_per_ki_token_ns,
                             core->config.timeout_max_ns, fby_sub_sat(start->seq.tokens, start->candidate_start_token));
}

static uint32_t session_slot(fby_core_t *core)
{
    if (core->session_free_count == 0) {
        uint32_t oldest = fby_list_front(core->tombs, core->config.session_slots);
        if (oldest == FBY_NONE)
            return FBY_NONE;
        fby_session_forget(core, oldest);
    }
    return core->session_free[--core->session_free_count];
}

static void session_init(fby_core_t *core, uint32_t id, const fby_core_start_t *start)
{
    fby_sess_t *s = fby_sess(core, id);
    uint32_t generation = s->generation + 1;
    uint64_t version = s->version + 1;
    *s = (fby_sess_t){.generation = generation, .version = version, .used = 1, .seq = start->seq};
    s->handle = fby_handle_make(core, FBY_HANDLE_SESSION, id, generation);
    s->policy = start->policy < 0 ? core->config.policy : (fby_policy_t)start->policy;
    s->stop_mode = start->stop_mode < 0 ? core->config.stop_mode : (fby_stop_mode_t)start->stop_mode;
    s->predictive = start->predictive < 0 ? core->config.predictive : start->predictive != 0;
    s->whole = !core->config.chunk_runtime;
    s->created = core->now;
    s->deadline = s->policy == FBY_POLICY_TIMEOUT ? fby_add_sat(core->now, session_budget(core, start)) : FBY_NEVER;
    s->drain_at = s->ttl_at = s->query_limit_at = s->asked_at = FBY_NEVER;
    s->min_tokens = start->min_tokens == UINT64_MAX ? core->config.min_tokens : start->min_tokens;
    s->candidate_start = start->candidate_start_token;
    uint64_t hold_blocks = core->config.max_hold_bytes / core->block_bytes;
    s->cap = (uint32_t)FBY_MIN(fby_last_token_blocks(s->seq.tokens, core->config.block_tokens), hold_blocks);
    s->have = FBY_MIN(start->have_blocks, s->cap);
    s->clamp_end = FBY_NONE;
    if (s->cap < fby_last_token_blocks(s->seq.tokens, core->config.block_tokens)) {
        s->clamp_end = s->cap; /* a take must fit into max_hold_bytes */
        s->clamp_reason = FBY_REASON_CAPACITY_PINNED;
    }
    s->run_node = s->lease_node = s->payload_node = FBY_NONE;
    s->ledger_head = s->ledger_tail = s->lent = FBY_NONE;
    s->turn = core->turn;
    s->core_generation = core->generation;
}

static int start_check(const fby_core_t *core, const fby_core_start_t *start)
{
    fby_policy_t policy = start->policy < 0 ? core->config.policy : (fby_policy_t)start->policy;
    if (core->closed)
        return FBY_E_CLOSED;
    if (start->policy >= FBY_POLICY_COUNT || start->stop_mode >= FBY_STOP_MODE_COUNT)
        return -EINVAL;
    if (start->seq.epoch != core->epoch)
        return FBY_E_STALE;
    if (!core->config.chunk_runtime && policy != FBY_POLICY_WAIT_COMPLETE)
        return FBY_E_NOT_ENABLED;
    if (policy == FBY_POLICY_BREAK_EVEN && core->config.recompute_tokens_per_s <= 0)
        return FBY_E_CONFIG;
    return 0;
}

/* Earliest deadline first; sessions without one come after, in order of arrival. */
static uint64_t park_key(const fby_sess_t *s)
{
    return s->deadline != FBY_NEVER ? s->deadline : (UINT64_C(1) << 63) | s->created;
}

int fby_core_session_start(fby_core_t *core, uint64_t now, const fby_core_start_t *start, fby_session_t *out)
{
    int rc = fby_core_enter(core, now);
    if (rc == 0)
        rc = start_check(core, start);
    if (rc)
        return rc;
    uint32_t id = session_slot(core);
    if (id == FBY_NONE)
        return -EBUSY;
    session_init(core, id, start);
    fby_sess_t *s = fby_sess(core, id);
    core->stats.sessions++;
    if (core->running >= core->config.max_sessions) {
        s->parked = 1;
        core->parked++;
        fby_heap_set(&core->park, id, park_key(s));
        fby_timer_refresh(core, id);
        if (s->deadline <= now)
            fby_session_timer(core, id);
    } else {
        fby_session_begin(core, id);
    }
    fby_mark_changed(core, id);
    *out = s->handle;
    fby_core_leave(core);
    return 0;
}

static void leave_park(fby_core_t *core, uint32_t id, bool runs)
{
    fby_sess_t *s = fby_sess(core, id);
    if (!s->parked)
        return;
    s->parked = 0;
    core->parked--;
    fby_heap_remove(&core->park, id);
    s->running = runs;
    core->running += runs;
}

/* Leaves the parked state (or never was in it): probes the index, pins, and asks the store. */
void fby_session_begin(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    if (s->parked) {
        leave_park(core, id, true);
    } else {
        s->running = 1;
        core->running++;
    }
    fby_plan_probe(core, id);
    fby_mark_dirty(core, id);
    if (s->seq.tokens - FBY_MIN(s->seq.tokens, s->candidate_start) < s->min_tokens) {
        core->stats.below_threshold++;
        fby_session_seal(core, id, FBY_REASON_BELOW_THRESHOLD);
        return;
    }
    fby_plan_without_query(core, id);
    fby_plan_finish_check(core, id);
    if (s->reason == FBY_REASON_NONE && core->now >= s->deadline)
        fby_session_timer(core, id);
    if (s->reason == FBY_REASON_NONE)
        fby_plan_want_query(core, id);
    fby_timer_refresh(core, id);
}

/* ---- Seal ---- */

/* What the stop mode does with claimed work at a policy stop. */
static void policy_stop(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    if (s->drain_at == FBY_NEVER)
        s->drain_at = fby_add_sat(core->now, core->config.drain_limit_ns);
    if (s->stop_mode == FBY_STOP_RECALL)
        fby_ledger_recall(core, id);
    else if (s->stop_mode == FBY_STOP_DETACH && s->ledger_head != FBY_NONE)
        fby_session_answer(core, id);
}

void fby_session_seal(fby_core_t *core, uint32_t id, fby_reason_t reason)
{
    fby_sess_t *s = fby_sess(core, id);
    if (s->reason != FBY_REASON_NONE)
        return;
    if (s->parked) {
        leave_park(core, id, false);               /* it only answers: no place is taken */
        core->stats.budget_refused += !s->discard; /* its time ran out before a session place came */
        if (!s->discard)
            fby_plan_probe(core, id);
    }
    s->reason = reason;
    s->sealed_at = core->now;
    s->sealed_submitted = s->submitted;
    s->state = FBY_DRAINING;
    s->query_wanted = 0;
    fby_plan_query_over(core, id);
    fby_list_remove(core->querying, id);
    fby_claim_close(core, id);
    fby_claim_consider(core, id);
    fby_admit_return(core, id);
    if (fby_reason_is_policy(reason))
        policy_stop(core, id);
    fby_mark_dirty(core, id);
    fby_mark_changed(core, id);
    fby_timer_refresh(core, id);
}

/* A policy's deadline or demand: seals, or the mode acts on a session that drains unanswered. */
static void policy_event(fby_core_t *core, uint32_t id, fby_reason_t reason)
{
    fby_sess_t *s = fby_sess(core, id);
    if (reason == FBY_REASON_NONE || s->answered)
        return;
    if (s->reason == FBY_REASON_NONE) {
        fby_session_seal(core, id, reason);
    } else if (s->late_reason == FBY_REASON_NONE && !fby_reason_is_policy(s->reason) && !s->discard) {
        s->late_reason = reason;
        policy_stop(core, id);
        fby_mark_dirty(core, id);
        fby_timer_refresh(core, id);
    }
}

/* A block of the plan failed: the prefix ends there whatever comes later. */
void fby_session_gap(fby_core_t *core, uint32_t id, int32_t code)
{
    fby_sess_t *s = fby_sess(core, id);
    if (s->discard)
        return;
    if (s->error == 0)
        s->error = code;
    uint32_t bad = FBY_NONE;
    for (uint32_t e = s->ledger_head; e != FBY_NONE && bad == FBY_NONE; e = core->entries[e].next)
        bad = core->entries[e].bad_block;
    if (s->reason == FBY_REASON_NONE)
        fby_session_seal(core, id, fby_gap_reason(code));
    else if (s->reason == FBY_REASON_COMPLETE && !s->answered)
        s->reason = s->late_reason != FBY_REASON_NONE ? s->late_reason : fby_gap_reason(code);
    if (bad != FBY_NONE)
        fby_ledger_give_up(core, id, bad);
    fby_mark_changed(core, id);
}

/* Abort, reset, shutdown, and the tail of a released detach: nothing of it will be published. */
void fby_session_discard(fby_core_t *core, uint32_t id, fby_reason_t reason)
{
    fby_sess_t *s = fby_sess(core, id);
    if (s->discard || s->state == FBY_TERMINAL || s->state == FBY_EXPIRED)
        return;
    s->discard = 1;
    if (s->late_reason == FBY_REASON_NONE)
        s->late_reason = reason; /* sealed `complete` before: its answer is not short because of the store */
    fby_session_seal(core, id, reason);
    if (s->drain_at == FBY_NEVER)
        s->drain_at = fby_add_sat(core->now, core->config.drain_limit_ns);
    fby_claim_close(core, id);
    for (uint32_t e = s->ledger_head; e != FBY_NONE; e = core->entries[e].next)
        fby_join_remove_entry(core, e);
    fby_ledger_give_up(core, id, 0);
    fby_mark_changed(core, id);
    fby_timer_refresh(core, id);
}

/* ---- Steps and timers ---- */

void fby_session_step(fby_core_t *core, uint32_t id, uint32_t *budget)
{
    fby_sess_t *s = fby_sess(core, id);
    if (!s->used || s->parked || s->state == FBY_TERMINAL || s->state == FBY_EXPIRED)
        return;
    if (fby_ledger_advance(core, id, budget)) {
        fby_mark_dirty(core, id);
        return;
    }
    if (s->reason == FBY_REASON_NONE) {
        fby_plan_finish_check(core, id);
        fby_plan_want_query(core, id);
        fby_claim_consider(core, id);
    }
    if (s->reason != FBY_REASON_NONE && s->ledger_head == FBY_NONE) {
        fby_session_answer(core, id);
        fby_session_terminal(core, id);
    }
}

void fby_session_timer(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    if (!s->answered && !s->deadline_done && core->now >= s->deadline) {
        s->deadline_done = 1;
        policy_event(core, id, fby_policy_verdict(s->policy, FBY_POLICY_TICK, core->now, s->deadline, NULL));
    }
    if (s->query_out && core->now >= s->query_limit_at)
        fby_plan_query_lapsed(core, id);
    if (core->now >= s->drain_at && s->ledger_head != FBY_NONE) {
        s->drain_at = FBY_NEVER;
        fby_ledger_limit(core, id);
    }
    if (s->lease && core->now >= s->ttl_at)
        fby_lease_end(core, id);
    fby_timer_refresh(core, id);
}

/* ---- Calls ---- */

int fby_core_session_demand(fby_core_t *core, uint64_t now, fby_session_t handle)
{
    int rc = fby_core_enter(core, now);
    uint32_t id = fby_handle_id(core, handle, FBY_HANDLE_SESSION, false);
    if (rc || id == FBY_NONE)
        return rc ? rc : FBY_E_STALE;
    const fby_sess_t *s = fby_sess(core, id);
    policy_event(core, id, fby_policy_verdict(s->policy, FBY_POLICY_DEMAND, now, s->deadline, NULL));
    fby_core_leave(core);
    return 0;
}

int fby_core_session_stop(fby_core_t *core, uint64_t now, fby_session_t handle)
{
    int rc = fby_core_enter(core, now);
    uint32_t id = fby_handle_id(core, handle, FBY_HANDLE_SESSION, false);
    if (rc || id == FBY_NONE)
        return rc ? rc : FBY_E_STALE;
    fby_sess(core, id)->released = 1; /* nothing to take any more */
    fby_session_discard(core, id, FBY_REASON_ABORT);
    if (fby_sess(core, id)->lease)
        fby_lease_end(core, id);
    fby_core_leave(core);
    return 0;
}

int fby_core_session_release(fby_core_t *core, uint64_t now, fby_session_t handle)
{
    int rc = fby_core_enter(core, now);
    uint32_t id = fby_handle_id(core, handle, FBY_HANDLE_SESSION, false);
    if (rc || id == FBY_NONE)
        return rc ? rc : FBY_E_STALE;
    fby_sess_t *s = fby_sess(core, id);
    s->released = 1;
    if (!s->answered)
        fby_session_discard(core, id, FBY_REASON_ABORT); /* a detached tail drains on and is published */
    if (s->lease)
        fby_lease_end(core, id);
    fby_core_leave(core);
    return 0;
}
