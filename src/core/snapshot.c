/* snapshot.c - what poll sees. Written once per call and changed session, after all of the call's changes. */
#include "core/internal.h"

static void fill_lengths(const fby_core_t *core, const fby_sess_t *s, fby_snapshot_t *out)
{
    const uint64_t bt = core->config.block_tokens;
    out->found_tokens = FBY_MIN(s->proven, s->cap) * bt;
    out->planned_tokens = s->target * bt;
    out->loaded_tokens = s->loaded_delivered * bt;
    out->delivered_tokens = s->delivered * bt;
    out->start_blocks = s->start;
    out->committed_blocks = s->committed;
    out->cursor_blocks = s->cursor;
    out->delivered_blocks = s->delivered;
    if (s->loaded_delivered > 0) {
        out->span_start_block = s->span_start;
        out->span_end_block = FBY_MIN(s->span_end, s->delivered);
    }
}

void fby_snapshot_fill(const fby_core_t *core, uint32_t id, fby_snapshot_t *out)
{
    const fby_sess_t *s = &core->sessions[id];
    if (s->answered) { /* frozen fields come from the answer */
        *out = core->answers[id];
    } else {
        *out = (fby_snapshot_t){.size = sizeof(*out), .handle = s->handle};
        fill_lengths(core, s, out);
        out->outcome = s->outcome;
        out->error = s->error;
        out->reason = s->reason;
        out->planned_final = s->query_final;
    }
    out->state = s->state;
    out->version = s->version;
    out->answered = s->answered;
    out->lease_valid = s->lease;
    out->inflight_chunks = s->window;
    out->inflight_bytes = s->inflight_bytes;
    out->submitted = s->submitted;
    out->sealed_submit_seq = s->sealed_submitted;
    out->created_ns = s->created;
    out->sealed_ns = s->sealed_at;
    out->answered_ns = s->answered_at;
    out->terminal_ns = s->terminal_at;
}

/* Freezes the answer: called once, before `answered` is set. */
void fby_snapshot_freeze(fby_core_t *core, uint32_t id)
{
    fby_snapshot_t answer;
    fby_snapshot_fill(core, id, &answer);
    core->answers[id] = answer;
}

void fby_snapshots_publish(fby_core_t *core)
{
    core->touched_count = 0;
    for (uint32_t id; (id = fby_list_front(core->changed, core->config.session_slots)) != FBY_NONE;) {
        fby_list_remove(core->changed, id);
        core->sessions[id].version++;
        fby_snapshot_t snapshot;
        fby_snapshot_fill(core, id, &snapshot);
        fby_latch_write(&core->config.latches[id], &snapshot);
        if (core->touched_count < FBY_TOUCHED_MAX)
            core->touched[core->touched_count++] = id;
    }
}

int fby_core_session_snapshot(fby_core_t *core, fby_session_t session, fby_snapshot_t *out)
{
    uint32_t id = fby_handle_id(core, session, FBY_HANDLE_SESSION, false);
    if (id == FBY_NONE)
        return FBY_E_STALE;
    fby_snapshot_fill(core, id, out);
    return 0;
}

bool fby_core_session_slot(const fby_core_t *core, fby_session_t session, uint32_t *slot)
{
    uint32_t id = fby_handle_index(session);
    if (fby_handle_type(session) != FBY_HANDLE_SESSION || id >= core->config.session_slots)
        return false;
    *slot = id;
    return true;
}
