#include "sim/rig.h"

#include <string.h>

#include "sim/memory.h"

void rig_start_defaults(fby_core_start_t *start)
{
    *start = (fby_core_start_t){
        .policy = FBY_UNSET,
        .stop_mode = FBY_UNSET,
        .predictive = FBY_UNSET,
        .budget_ns = FBY_NEVER,
        .min_tokens = UINT64_MAX,
    };
}

static bool has_trailing(const rig_t *rig)
{
    for (uint32_t g = 0; g < rig->config.core.groups; g++)
        if (rig->config.core.trailing[g])
            return true;
    return false;
}

rig_session_t *rig_session_find(rig_t *rig, fby_session_t session)
{
    uint32_t slot;
    if (!fby_core_session_slot(rig->core, session, &slot) || slot >= rig->config.core.session_slots)
        return NULL;
    return rig->session[slot].handle == session ? &rig->session[slot] : NULL;
}

/* Shadow of a session that start is making. It may be answered before start has returned its handle. */
static rig_session_t *enter(rig_t *rig, fby_session_t handle)
{
    uint32_t slot;
    if (!rig->starting || !fby_core_session_slot(rig->core, handle, &slot)) {
        rig_fail(rig, "an unknown session has events, or a new one has no slot");
        return NULL;
    }
    rig_session_t *session = &rig->session[slot];
    if (session->handle && !session->ended)
        rig_fail(rig, "a session's slot was reused before it ended");
    *session = (rig_session_t){
        .handle = handle, .seq = rig->starting, .have_blocks = rig->starting_have, .generation = rig->generation};
    rig->have_sessions += session->have_blocks > 0;
    return session;
}

int rig_start_with(rig_t *rig, const rig_seq_t *seq, const fby_core_start_t *options, fby_session_t *out)
{
    fby_core_start_t start = *options;
    rig_ref_t *ref = rig_ref_new(rig, seq, has_trailing(rig));
    start.seq = ref->view;
    rig->starting = seq;
    rig->starting_have = start.have_blocks;
    int status = fby_core_session_start(rig->core, rig->now, &start, out);
    if (status)
        rig_ref_drop(ref);
    else if (!rig_session_find(rig, *out))
        enter(rig, *out);
    rig->starting = NULL;
    rig_checked(rig, status ? 0 : *out);
    return status;
}

fby_session_t rig_start(rig_t *rig, const rig_seq_t *seq, fby_policy_t policy, fby_stop_mode_t mode, uint64_t budget_ns)
{
    fby_core_start_t start;
    rig_start_defaults(&start);
    start.policy = (int32_t)policy;
    start.stop_mode = (int32_t)mode;
    start.budget_ns = budget_ns;
    fby_session_t session = 0;
    int status = rig_start_with(rig, seq, &start, &session);
    if (status)
        rig_fail(rig, "start failed: %s", fby_errname(status));
    return session;
}

/* What must hold once a call that stops the session has returned (V14): later growth of `submitted` is an error. */
static void stopped(rig_t *rig, fby_session_t handle)
{
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    if (fby_core_session_snapshot(rig->core, handle, &snapshot))
        return;
    if (snapshot.reason == FBY_REASON_NONE)
        rig_fail(rig, "a stopped session is not sealed");
}

int rig_demand(rig_t *rig, fby_session_t session)
{
    int status = fby_core_session_demand(rig->core, rig->now, session);
    rig_checked(rig, session);
    return status;
}

int rig_stop(rig_t *rig, fby_session_t session)
{
    int status = fby_core_session_stop(rig->core, rig->now, session);
    if (!status)
        stopped(rig, session);
    rig_checked(rig, session);
    return status;
}

int rig_release(rig_t *rig, fby_session_t session)
{
    int status = fby_core_session_release(rig->core, rig->now, session);
    if (!status)
        stopped(rig, session);
    rig_checked(rig, session);
    return status;
}

int rig_take(rig_t *rig, fby_session_t handle, fby_hold_t *out)
{
    rig_session_t *session = rig_session_find(rig, handle);
    fby_hold_t hold = 0;
    int status = fby_core_session_take(rig->core, rig->now, handle, &hold);
    if (!status && !session)
        rig_fail(rig, "take succeeded on a handle that is not live");
    if (!status) {
        uint64_t delivered = session->answer.delivered_blocks;
        uint32_t blocks = (uint32_t)rig_hold_add(rig, hold, session->seq);
        if (blocks != delivered)
            rig_fail(rig, "a hold of %u blocks was taken from an answer of %llu", blocks,
                     (unsigned long long)delivered);
        *out = hold;
    }
    rig_checked(rig, handle);
    return status;
}

fby_snapshot_t rig_snapshot(rig_t *rig, fby_session_t session)
{
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    int status = fby_core_session_snapshot(rig->core, session, &snapshot);
    if (status)
        rig_fail(rig, "snapshot failed: %s", fby_errname(status));
    return snapshot;
}

static void ended(rig_t *rig, rig_session_t *session)
{
    if (!session->answered || !session->terminal)
        rig_fail(rig, "a session ended before it was %s", session->answered ? "terminal" : "answered");
    rig->have_sessions -= session->have_blocks > 0;
    session->ended = true;
}

/* A short answer says why, and does not blame a store that answered well. */
static void check_answer(rig_t *rig, const fby_snapshot_t *answer)
{
    uint64_t start = answer->start_blocks * rig->config.core.block_tokens;
    if (answer->outcome == FBY_OUTCOME_ABORTED)
        return;
    if (answer->reason == FBY_REASON_COMPLETE && answer->delivered_tokens < answer->planned_tokens &&
        answer->planned_tokens > start)
        rig_fail(rig, "complete, but %llu of %llu tokens, error %s", (unsigned long long)answer->delivered_tokens,
                 (unsigned long long)answer->planned_tokens, fby_errname(answer->error));
    if (answer->error == FBY_E_MISSING && !rig->missing_reads && !rig->events[FBY_CORE_FENCE])
        rig_fail(rig, "MISSING is reported, but no read missed");
}

void rig_session_event(rig_t *rig, const fby_core_event_t *event)
{
    if (event->type != FBY_CORE_ANSWERED && event->type != FBY_CORE_TERMINAL && event->type != FBY_CORE_ENDED)
        return;
    rig_session_t *session = rig_session_find(rig, event->handle);
    if (!session)
        session = enter(rig, event->handle);
    if (!session)
        return;
    bool *flag = event->type == FBY_CORE_ANSWERED   ? &session->answered
                 : event->type == FBY_CORE_TERMINAL ? &session->terminal
                                                    : &session->ended;
    if (*flag)
        rig_fail(rig, "event %d came twice for one session", (int)event->type);
    if (event->type == FBY_CORE_ENDED)
        ended(rig, session);
    *flag = true;
    if (event->type != FBY_CORE_ENDED && !event->result)
        rig_fail(rig, "event %d carries no result", (int)event->type);
    else if (event->type == FBY_CORE_TERMINAL)
        session->final = *event->result;
    else if (event->type == FBY_CORE_ANSWERED) {
        session->answer = *event->result;
        check_answer(rig, event->result);
    }
}

#define FROZEN(X)                                                                                                      \
    X(reason)                                                                                                          \
    X(error)                                                                                                           \
    X(planned_final)                                                                                                   \
    X(found_tokens)                                                                                                    \
    X(planned_tokens)                                                                                                  \
    X(loaded_tokens)                                                                                                   \
    X(delivered_tokens)                                                                                                \
    X(delivered_blocks) X(start_blocks) X(span_start_block) X(span_end_block) X(created_ns) X(sealed_ns) X(answered_ns)

static void check_frozen(rig_t *rig, const rig_session_t *session, const fby_snapshot_t *now)
{
    const fby_snapshot_t *then = &session->answer;
#define X(field)                                                                                                       \
    if (now->field != then->field)                                                                                     \
        rig_fail(rig, "answer changed: " #field " was %llu, is %llu", (unsigned long long)then->field,                 \
                 (unsigned long long)now->field);
    FROZEN(X)
#undef X
    if (now->outcome != then->outcome && now->outcome != FBY_OUTCOME_EXPIRED)
        rig_fail(rig, "answer changed: outcome was %s, is %s", fby_outcome_name(then->outcome),
                 fby_outcome_name(now->outcome));
    if (!now->answered)
        rig_fail(rig, "an answered session is not answered any more");
}

static void check_figures(rig_t *rig, const fby_snapshot_t *now)
{
    uint32_t tokens = rig->config.core.block_tokens;
    if (now->delivered_tokens != now->delivered_blocks * tokens)
        rig_fail(rig, "%llu delivered tokens in %llu blocks", (unsigned long long)now->delivered_tokens,
                 (unsigned long long)now->delivered_blocks);
    if (now->delivered_tokens > now->planned_tokens || now->planned_tokens > now->found_tokens)
        rig_fail(rig, "delivered %llu, planned %llu, found %llu", (unsigned long long)now->delivered_tokens,
                 (unsigned long long)now->planned_tokens, (unsigned long long)now->found_tokens);
    if (now->loaded_tokens > now->delivered_tokens)
        rig_fail(rig, "loaded %llu of %llu delivered", (unsigned long long)now->loaded_tokens,
                 (unsigned long long)now->delivered_tokens);
    bool spans = now->span_end_block > now->span_start_block;
    if (spans && (now->span_start_block < now->start_blocks || now->span_end_block > now->delivered_blocks))
        rig_fail(rig, "V12: spans [%llu,%llu) outside [%llu,%llu)", (unsigned long long)now->span_start_block,
                 (unsigned long long)now->span_end_block, (unsigned long long)now->start_blocks,
                 (unsigned long long)now->delivered_blocks);
    if (now->reason != FBY_REASON_NONE && now->submitted != now->sealed_submit_seq)
        rig_fail(rig, "V1: submitted %llu, sealed at %llu", (unsigned long long)now->submitted,
                 (unsigned long long)now->sealed_submit_seq);
    if (now->outcome == FBY_OUTCOME_COMPLETE && (now->delivered_tokens != now->planned_tokens || !now->planned_final))
        rig_fail(rig, "complete with %llu of %llu", (unsigned long long)now->delivered_tokens,
                 (unsigned long long)now->planned_tokens);
}

#define LATCHED(X)                                                                                                     \
    X(version)                                                                                                         \
    X(state)                                                                                                           \
    X(answered)                                                                                                        \
    X(outcome)                                                                                                         \
    X(reason)                                                                                                          \
    X(error)                                                                                                           \
    X(lease_valid)                                                                                                     \
    X(planned_final)                                                                                                   \
    X(found_tokens)                                                                                                    \
    X(planned_tokens)                                                                                                  \
    X(loaded_tokens)                                                                                                   \
    X(delivered_tokens)                                                                                                \
    X(start_blocks)                                                                                                    \
    X(committed_blocks)                                                                                                \
    X(cursor_blocks)                                                                                                   \
    X(delivered_blocks)                                                                                                \
    X(span_start_block)                                                                                                \
    X(span_end_block)                                                                                                  \
    X(inflight_chunks)                                                                                                 \
    X(inflight_bytes) X(submitted) X(sealed_submit_seq) X(created_ns) X(sealed_ns) X(answered_ns) X(terminal_ns)

static void check_latch(rig_t *rig, const rig_session_t *session, uint32_t slot, const fby_snapshot_t *now)
{
    fby_snapshot_t polled;
    fby_latch_read(&rig->latches[slot], &polled);
    if (memcmp(&polled, now, sizeof(polled)) == 0)
        return;
#define X(field)                                                                                                       \
    if (polled.field != now->field)                                                                                    \
        rig_fail(rig, "V11: " #field " of session %llx is %lld, its latch says %lld",                                  \
                 (unsigned long long)session->handle, (long long)now->field, (long long)polled.field);
    LATCHED(X)
#undef X
    rig_fail(rig, "V11: the latch of session %llx is not its snapshot", (unsigned long long)session->handle);
}

static bool is_stop(fby_reason_t reason)
{
    return reason == FBY_REASON_DEADLINE || reason == FBY_REASON_DEMAND || reason == FBY_REASON_BREAK_EVEN ||
           reason == FBY_REASON_ABORT || reason == FBY_REASON_SHUTDOWN;
}

void rig_session_checked(rig_t *rig, fby_session_t handle)
{
    uint32_t slot;
    rig_session_t *session = rig_session_find(rig, handle);
    if (!session || session->ended || session->generation != rig->generation ||
        !fby_core_session_slot(rig->core, handle, &slot))
        return;
    fby_snapshot_t now = {.size = sizeof(now)};
    if (fby_core_session_snapshot(rig->core, handle, &now)) {
        rig_fail(rig, "a live session has no snapshot");
        return;
    }
    check_latch(rig, session, slot, &now);
    if (now.version < session->version)
        rig_fail(rig, "V11: version went from %llu to %llu", (unsigned long long)session->version,
                 (unsigned long long)now.version);
    session->version = now.version;
    if (session->sealed && now.submitted != session->sealed_submitted)
        rig_fail(rig, "V14: %llu submitted after the seal at %llu", (unsigned long long)now.submitted,
                 (unsigned long long)session->sealed_submitted);
    if (now.reason != FBY_REASON_NONE && !session->sealed) {
        session->sealed = true;
        session->sealed_submitted = now.submitted;
        /* from now, not from the seal: a stop may have come upon a session that was sealed as complete before */
        if (is_stop(now.reason))
            session->answer_by = fby_add_sat(rig->now, rig->config.core.drain_limit_ns);
    }
    check_figures(rig, &now);
    if ((now.answered != 0) != session->answered)
        rig_fail(rig, "answered is %u, but the event %s", now.answered, session->answered ? "came" : "did not come");
    if ((now.state >= FBY_TERMINAL) != session->terminal)
        rig_fail(rig, "state is %s, but TERMINAL %s", fby_state_name(now.state),
                 session->terminal ? "came" : "did not");
    if (session->terminal && now.inflight_chunks)
        rig_fail(rig, "V5: %llu chunks in flight at TERMINAL", (unsigned long long)now.inflight_chunks);
    if (session->answered)
        check_frozen(rig, session, &now);
    else if (session->answer_by && rig->now > session->answer_by && fby_core_next_deadline(rig->core) > rig->now)
        rig_fail(rig, "a stopped session is not answered at its drain limit, %llu ns ago",
                 (unsigned long long)(rig->now - session->answer_by));
}
