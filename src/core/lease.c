/*
 * lease.c - the answer, what protects it, and how that ends.
 *
 * INVARIANTS
 *   answered: the answer's fields never change again. Outcome, delivered end, spans and the lease hang on it.
 *   The lease is a pin of its own on [0, delivered) and the trailing payloads that end needs. It ends exactly once, in
 *   fby_lease_end or fby_core_session_take: by take, release, stop, its time limit or a reset.
 *   The run pin on [0, committed) stays until the ledger is empty, whatever happened to the lease.
 */
#include "core/internal.h"

/* Trailing payloads that resuming at `end` needs; `node` is the node of block end-1. */
void fby_payload_pins(fby_core_t *core, uint32_t end, uint32_t node, fby_pin_class_t class_, bool pin)
{
    fby_index_t *index = core->config.index;
    uint32_t depth = FBY_MIN(core->trailing_max, end);
    for (uint32_t i = 0; i < depth && node != FBY_NONE; i++, node = fby_index_parent(index, node)) {
        for (uint32_t g = 0; g < core->config.groups; g++) {
            if (i >= core->config.trailing[g])
                continue;
            if (pin)
                fby_index_pin_payload(index, node, g, class_);
            else
                fby_index_unpin_payload(index, node, g, class_);
        }
    }
}

/* Payloads of a private run are private too: on its owner's list, or on the caller's device. */
bool fby_private_present(void *run_, uint32_t block, uint32_t group)
{
    const fby_private_run_t *run = run_;
    if (block < run->device_blocks)
        return true;
    for (uint32_t slot = run->core->own[run->head].next; slot != run->head; slot = run->core->own[slot].next)
        if (run->core->items[slot].block == block && run->core->config.slots->slot[slot].group == group)
            return true;
    return false;
}

static bool over_pinned(const fby_core_t *core)
{
    uint64_t granted =
        core->unused_blocks * core->block_bytes; /* claims within a grant do not look at max_pinned again */
    return fby_pinned(core) + core->reserved + granted > core->config.max_pinned_bytes;
}

/* Pins the payloads of a new delivered end instead of the old one's. Payloads that were resident or read by others bring
   a charge that nothing was kept for: when it does not fit, the older checkpoint stays the answer. */
static uint32_t payload_move(fby_core_t *core, fby_sess_t *s, uint32_t end, uint32_t node)
{
    if (end == s->payload_end)
        return end;
    fby_payload_pins(core, end, node, FBY_PIN_SESSION, true);
    if (over_pinned(core)) {
        fby_payload_pins(core, end, node, FBY_PIN_SESSION, false);
        s->short_reason = FBY_REASON_CAPACITY_PINNED;
        return s->payload_end;
    }
    fby_payload_pins(core, s->payload_end, s->payload_node, FBY_PIN_SESSION, false);
    s->payload_end = end;
    s->payload_node = node;
    return end;
}

/* The greatest checkpoint that is committed; its payloads are pinned while the session runs. */
void fby_delivered_update(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    uint32_t end = s->committed, node = s->run_node;
    if (s->private_run) {
        fby_private_run_t run = {core, fby_own_session(core, id), s->have};
        end = fby_checkpoint_below(core->config.trailing, core->config.groups, s->committed, fby_private_present, &run);
        end = end > s->have ? end : 0;
        node = FBY_NONE;
    } else if (core->trailing_groups) {
        end = fby_index_checkpoint(core->config.index, s->committed, s->run_node, &node);
        end = payload_move(core, s, end, node);
    }
    s->delivered = end;
    /* read from the store below the delivered end: all loaded ones but those beyond it; between the last resident run and
       the committed end every block was loaded */
    uint32_t beyond = s->committed - FBY_MIN(s->committed, FBY_MAX(end, s->skipped_end));
    uint32_t loaded = (uint32_t)fby_sub_sat(s->loaded_committed, beyond);
    s->loaded_delivered = FBY_MIN(loaded, (uint32_t)fby_sub_sat(end, s->start));
    fby_mark_changed(core, id);
}

static fby_outcome_t answer_outcome(const fby_sess_t *s)
{
    if (s->discard)
        return FBY_OUTCOME_ABORTED;
    bool failed = s->reason == FBY_REASON_QUERY_ERROR || s->reason == FBY_REASON_STORE_ERROR ||
                  s->reason == FBY_REASON_IO_TIMEOUT;
    bool cut = s->reason == FBY_REASON_CAPACITY_POOL || s->reason == FBY_REASON_CAPACITY_PINNED ||
               s->reason == FBY_REASON_CAPACITY_RESERVED;
    if (s->delivered > 0)
        return s->query_final && s->delivered >= s->target && !cut ? FBY_OUTCOME_COMPLETE : FBY_OUTCOME_PARTIAL;
    return failed ? FBY_OUTCOME_FAILED : FBY_OUTCOME_EMPTY;
}

static void answer_counters(fby_core_t *core, const fby_sess_t *s)
{
    const uint64_t bt = core->config.block_tokens;
    fby_stats_t *t = &core->stats;
    t->sessions_by_reason[s->reason]++;
    t->tokens_found += FBY_MIN(s->proven, s->cap) * bt;
    t->tokens_planned += s->target * bt;
    t->tokens_delivered += s->delivered * bt;
    t->tokens_loaded += s->loaded_delivered * bt;
    t->capacity_reserved += s->reason == FBY_REASON_CAPACITY_RESERVED;
    t->capacity_pinned += s->reason == FBY_REASON_CAPACITY_PINNED;
    t->capacity_pool += s->reason == FBY_REASON_CAPACITY_POOL;
}

/* The answer leaves the target short although the plan had been claimed to its end: say what cut it. */
static void settle_reason(fby_sess_t *s)
{
    if (s->reason != FBY_REASON_COMPLETE || s->delivered >= s->target)
        return;
    if (s->late_reason != FBY_REASON_NONE)
        s->reason = s->late_reason;
    else if (s->error != 0)
        s->reason = fby_gap_reason(s->error);
    else
        s->reason = s->short_reason != FBY_REASON_NONE ? s->short_reason : FBY_REASON_PARTIAL_READ;
}

static void take_lease(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    s->lease_end = s->delivered;
    if (s->delivered == 0)
        return; /* nothing to protect: a take still gives an empty hold */
    s->lease = 1;
    core->leases++;
    s->ttl_at = fby_add_sat(core->now, core->config.result_ttl_ns);
    if (s->private_run) {
        s->lease_node = s->run_node; /* the resident part in front; the private slots are the session's already */
        if (s->lease_node != FBY_NONE)
            fby_index_pin(core->config.index, s->lease_node, FBY_PIN_SESSION);
        return;
    }
    uint32_t node = s->run_node;
    if (s->delivered != s->committed)
        node = fby_index_find(core->config.index, &s->seq.hashes[s->delivered - 1]);
    s->lease_node = node;
    fby_index_pin(core->config.index, node, FBY_PIN_SESSION);
    fby_payload_pins(core, s->lease_end, node, FBY_PIN_SESSION, true);
}

void fby_session_answer(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    if (s->answered)
        return;
    if (s->discard)
        s->delivered = s->loaded_delivered = 0;
    settle_reason(s);
    s->outcome = answer_outcome(s);
    s->answered_at = core->now;
    fby_snapshot_freeze(core, id);
    s->answered = 1;
    if (!s->discard)
        take_lease(core, id);
    if (s->running) {
        s->running = 0;
        core->running--;
    }
    answer_counters(core, s);
    fby_timer_refresh(core, id);
    fby_mark_changed(core, id);
    fby_mark_dirty(core, id);
    fby_snapshot_t result;
    fby_snapshot_fill(core, id, &result);
    fby_core_emit(core, &(fby_core_event_t){
                            .type = FBY_CORE_ANSWERED, .handle = s->handle, .result = &result, .policy = s->policy});
    uint32_t next = fby_heap_top(&core->park);
    if (next != FBY_NONE && core->running < core->config.max_sessions)
        fby_session_begin(core, next);
}

/* Drops the run pin; blocks beyond a delivered checkpoint go first among victims. */
void fby_session_unpin_run(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    fby_payload_pins(core, s->payload_end, s->payload_node, FBY_PIN_SESSION, false);
    s->payload_end = 0;
    s->payload_node = FBY_NONE;
    if (s->run_node != FBY_NONE)
        fby_index_unpin(core->config.index, s->run_node, FBY_PIN_SESSION,
                        core->trailing_groups && s->delivered < s->committed);
    s->run_node = FBY_NONE;
    fby_room_freed(core);
}

/* One block: indexed if its parent is resident and it is not; what the index did not take is free. */
static void private_index(fby_core_t *core, const fby_core_seq_t *seq, uint32_t block, const uint32_t *slots,
                          bool whole)
{
    fby_index_t *index = core->config.index;
    uint32_t node = fby_index_find(index, &seq->hashes[block]);
    uint32_t parent = block && node == FBY_NONE ? fby_index_find(index, &seq->hashes[block - 1]) : FBY_NONE;
    if (parent != FBY_NONE && whole)
        node = fby_index_insert(index, parent, &seq->hashes[block], slots, true);
    for (uint32_t g = 0; g < core->config.groups && node != FBY_NONE; g++)
        if (slots[g] != FBY_NONE && !fby_is_all(core, g))
            fby_index_attach(index, node, g, slots[g]);
}

/* The end of a private run. keep: its blocks may be indexed now; not those of a discarded session or an older generation. */
void fby_private_free(fby_core_t *core, uint32_t head, const fby_core_seq_t *seq, uint64_t *bytes, bool keep)
{
    while (!fby_list_empty(core->own, head)) {
        uint32_t slot = core->own[head].next, block = core->items[slot].block, slots[FBY_MAX_GROUPS], found = 0;
        for (uint32_t g = 0; g < core->config.groups; g++)
            slots[g] = FBY_NONE;
        for (uint32_t at = slot; at != head && core->items[at].block == block; at = core->own[head].next) {
            if (slots[core->config.slots->slot[at].group] != FBY_NONE)
                break; /* a window that two chunks shared was read twice: the next round takes the copy */
            slots[core->config.slots->slot[at].group] = at;
            found += fby_is_all(core, core->config.slots->slot[at].group);
            if (core->config.slots->slot[at].state == FBY_SLOT_PRIVATE)
                *bytes -= fby_slot_bytes(core, at);
            fby_list_remove(core->own, at);
        }
        if (keep)
            private_index(core, seq, block, slots, found == core->all_groups);
        for (uint32_t g = 0; g < core->config.groups; g++) {
            fby_slot_state_t state =
                slots[g] == FBY_NONE ? FBY_SLOT_RESIDENT : (fby_slot_state_t)core->config.slots->slot[slots[g]].state;
            if (state != FBY_SLOT_RESIDENT)
                fby_slot_move(core->config.slots, slots[g], state, FBY_SLOT_FREE, 0);
        }
    }
    fby_room_freed(core);
}

void fby_session_terminal(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    if (s->state == FBY_TERMINAL || s->state == FBY_EXPIRED)
        return;
    FBY_REQUIRE(core, s->ledger_head == FBY_NONE && s->window == 0 && s->inflight_bytes == 0, "V5 terminal with work");
    FBY_REQUIRE(core, s->submitted == s->sealed_submitted, "V1 submitted after the seal");
    s->state = FBY_TERMINAL;
    s->terminal_at = core->now;
    s->drain_at = FBY_NEVER;
    fby_session_unpin_run(core, id);
    fby_mark_changed(core, id);
    fby_timer_refresh(core, id);
    fby_snapshot_t result;
    fby_snapshot_fill(core, id, &result);
    fby_core_emit(core, &(fby_core_event_t){.type = FBY_CORE_TERMINAL, .handle = s->handle, .result = &result});
    if (!s->lease)
        fby_lease_end(core, id);
}

/* Ends the lease once: the prefix is no longer protected by this session. TERMINAL without a lease is EXPIRED. */
void fby_lease_end(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    if (s->lease) {
        s->lease = 0;
        core->leases--;
        s->ttl_at = FBY_NEVER;
        if (!s->private_run)
            fby_payload_pins(core, s->lease_end, s->lease_node, FBY_PIN_SESSION, false);
        if (s->lease_node != FBY_NONE)
            fby_index_unpin(core->config.index, s->lease_node, FBY_PIN_SESSION, false);
        s->lease_node = FBY_NONE;
        fby_private_free(core, fby_own_session(core, id), &s->seq, &core->private_pinned,
                         !s->discard && !core->resetting);
        fby_room_freed(core);
    }
    fby_mark_changed(core, id);
    fby_timer_refresh(core, id);
    if (s->state != FBY_TERMINAL)
        return;
    s->state = FBY_EXPIRED;
    fby_private_free(core, fby_own_session(core, id), &s->seq, &core->private_pinned, !s->discard && !core->resetting);
    if (s->lent != FBY_NONE) {
        core->holds[s->lent].seq.ref = s->seq.ref;
        core->holds[s->lent].borrows = FBY_NONE;
        s->lent = FBY_NONE;
    } else {
        fby_core_unref(core, &s->seq);
    }
    s->seq = (fby_core_seq_t){0};
    fby_list_push_back(core->tombs, core->config.session_slots, id);
    fby_core_emit(core, &(fby_core_event_t){.type = FBY_CORE_ENDED, .handle = s->handle});
}

/* A tombstone's slot is used again: older handles are unknown from now on. */
void fby_session_forget(fby_core_t *core, uint32_t id)
{
    fby_list_remove(core->tombs, id);
    fby_list_remove(core->dirty, id);
    fby_list_remove(core->changed, id);
    fby_sess(core, id)->used = 0;
    core->session_free[core->session_free_count++] = id;
}

int fby_core_session_take(fby_core_t *core, uint64_t now, fby_session_t handle, fby_hold_t *out)
{
    int rc = fby_core_enter(core, now);
    uint32_t id = fby_handle_id(core, handle, FBY_HANDLE_SESSION, false);
    if (rc || id == FBY_NONE)
        return rc ? rc : FBY_E_STALE;
    fby_sess_t *s = fby_sess(core, id);
    if (!s->answered)
        return FBY_E_STATE;
    if (s->taken || s->released || s->discard || (s->lease_end > 0 && !s->lease))
        return FBY_E_STALE;
    rc = fby_hold_from_session(core, id, out);
    if (rc)
        return rc;
    s->taken = 1;
    if (s->lease)
        fby_lease_end(core, id);
    fby_core_leave(core);
    return 0;
}
