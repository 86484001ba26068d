/*
 * plan.c - what a session may read: index first, then the store, in batches.
 *
 *   proven  end of the contiguous prefix that index and store hold (over the `all` groups)
 *   target  greatest checkpoint <= min(proven, last-token cap)
 *   start   greatest checkpoint <= target that is resident in every group
 * proven and target only grow; start is fixed by the first claim.
 */
#include "core/internal.h"

/* An engine computes at least one token: the plan ends below the last one. Shared with lookup. */
uint32_t fby_last_token_blocks(uint64_t tokens, uint32_t block_tokens)
{
    uint64_t blocks = tokens == 0 ? 0 : (tokens - 1) / block_tokens;
    return (uint32_t)FBY_MIN(blocks, (uint64_t)FBY_NONE - 1);
}

/* Blocks of [0, k) that fit under max_pinned and leave the granted room alone. */
static uint32_t pin_room(const fby_core_t *core, uint32_t node, uint32_t blocks)
{
    uint64_t fresh = fby_index_charge_estimate(core->config.index, node, FBY_PIN_SESSION);
    uint64_t room = FBY_MIN(fby_room_bytes(core), fby_mul_sat(fby_room_blocks(core), core->block_bytes));
    if (fresh <= room)
        return blocks;
    uint64_t lacking = (fresh - room + core->block_bytes - 1) / core->block_bytes;
    return (uint32_t)fby_sub_sat(blocks, lacking);
}

/* Moves the run pin forward to the greatest resident checkpoint <= blocks that fits, before anything is claimed. True
   when all of it fitted. */
bool fby_plan_pin(fby_core_t *core, uint32_t id, uint32_t blocks)
{
    fby_sess_t *s = fby_sess(core, id);
    fby_index_t *index = core->config.index;
    uint32_t node = FBY_NONE, end = blocks;
    if (end)
        node = fby_index_find(index, &s->seq.hashes[end - 1]);
    uint32_t fits = node == FBY_NONE ? 0 : pin_room(core, node, end);
    if (fits < end) {
        node = fits ? fby_index_find(index, &s->seq.hashes[fits - 1]) : FBY_NONE;
        end = fby_index_checkpoint(index, fits, node, &node);
    }
    if (end < s->start)
        return false; /* keeps what it has */
    uint32_t old = s->run_node, moved = end - s->start;
    if (node != FBY_NONE)
        s->charge_ticket = fby_index_pin(index, node, FBY_PIN_SESSION);
    if (old != FBY_NONE)
        fby_index_unpin(index, old, FBY_PIN_SESSION, false);
    s->run_node = node;
    if (!s->private_run) {
        s->start = s->committed = s->resolved = s->cursor = end;
        fby_admit_use(core, id, moved);
        fby_delivered_update(core, id);
    }
    return end == blocks;
}

/* A device prefix that is not indexed: what is read behind it cannot be indexed yet and stays private. */
static void make_private_run(fby_core_t *core, uint32_t id, uint32_t resident)
{
    fby_sess_t *s = fby_sess(core, id);
    fby_plan_pin(core, id, resident);
    s->private_run = 1;
    s->start = s->committed = s->resolved = s->cursor = s->grant_end = s->have;
    s->proven = s->target = s->have;
    s->delivered = 0;
}

void fby_plan_probe(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    uint32_t node = FBY_NONE, n = FBY_MIN(s->cap, s->seq.blocks);
    uint32_t resident = fby_index_match(core->config.index, s->seq.hashes, 0, n, &node);
    uint32_t start = fby_index_checkpoint(core->config.index, resident, node, &node);
    if (s->have > resident) {
        make_private_run(core, id, resident);
        s->query_next = s->have;
    } else {
        bool whole = fby_plan_pin(core, id, start);
        s->proven = s->target = s->start;
        s->query_next = whole && core->trailing_groups == 0
                            ? resident
                            : s->start; /* what is not pinned may go: the store is asked about it too */
    }
    fby_mark_changed(core, id);
}

static bool plan_present(void *arg, uint32_t block, uint32_t group)
{
    const fby_core_t *core = ((void **)arg)[0];
    const fby_sess_t *s = ((void **)arg)[1];
    if ((s->private_run && block < s->have) || (s->seq.present && (s->seq.present[block] >> group & 1)))
        return true; /* on the caller's device, or in the store */
    uint32_t node = fby_index_find(core->config.index, &s->seq.hashes[block]);
    return node != FBY_NONE && fby_index_slot(core->config.index, node, group) != FBY_NONE;
}

/* Greatest checkpoint of the plan (store or index) at or below `end`. */
uint32_t fby_plan_checkpoint(const fby_core_t *core, const fby_sess_t *s, uint32_t end)
{
    if (core->trailing_groups == 0)
        return end;
    void *arg[2] = {(void *)core, (void *)s};
    return fby_checkpoint_below(core->config.trailing, core->config.groups, end, plan_present, arg);
}

static void grow_target(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    uint32_t target = fby_plan_checkpoint(core, s, FBY_MIN(s->proven, s->cap));
    s->target = FBY_MAX(s->target, target);
    fby_mark_changed(core, id);
}

/* After an answer the index is probed again: somebody may have published meanwhile. */
static void probe_again(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    uint32_t node, n = FBY_MIN(s->cap, s->seq.blocks);
    if (s->private_run) {
        grow_target(core, id);
        return;
    }
    uint32_t resident = fby_index_match(core->config.index, s->seq.hashes, s->committed, n, &node);
    s->proven = FBY_MAX(s->proven, resident);
    grow_target(core, id);
    if (s->cursor == s->start) { /* nothing claimed, not even a resident run */
        uint32_t end = FBY_MIN(resident, s->target);
        if (end > s->start)
            node = fby_index_find(core->config.index, &s->seq.hashes[end - 1]);
        uint32_t start = end > s->start ? fby_index_checkpoint(core->config.index, end, node, &node) : s->start;
        if (start > s->start)
            fby_plan_pin(core, id, start);
    }
}

/* Nothing to ask: no store, or everything is proven by the index. */
void fby_plan_without_query(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    if (core->config.store && s->query_next < FBY_MIN(s->cap, s->seq.blocks))
        return;
    s->query_final = 1;
    probe_again(core, id);
}

/* ---- Queries ---- */

/* How far ahead a probe may look: everything, or what will be read soon when probing leases objects. */
static uint32_t query_horizon(const fby_core_t *core, const fby_sess_t *s)
{
    uint32_t end = FBY_MIN(s->cap, s->seq.blocks);
    if (core->config.probe_lease_ns == 0 || s->whole)
        return end;
    uint64_t ahead = (uint64_t)s->cursor + (uint64_t)core->chunk_blocks * (core->config.max_inflight_chunks + 1);
    if (ahead <= s->query_next &&
        s->target <= s->cursor) /* what is resident could not be pinned as far: nothing else moves it */
        ahead = (uint64_t)s->query_next + core->chunk_blocks;
    return (uint32_t)FBY_MIN((uint64_t)end, ahead);
}

void fby_plan_want_query(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    if (s->reason != FBY_REASON_NONE || s->query_final || s->query_out || s->query_wanted || s->parked)
        return;
    if (s->query_next >= query_horizon(core, s))
        return;
    s->query_wanted = 1;
    fby_list_push_back(core->querying, core->config.session_slots, id);
}

bool fby_core_next_query(fby_core_t *core, uint64_t now, fby_core_query_t *out)
{
    if (fby_core_enter(core, now))
        return false;
    uint32_t id = fby_list_front(core->querying, core->config.session_slots);
    if (id == FBY_NONE)
        return false;
    fby_sess_t *s = fby_sess(core, id);
    fby_list_remove(core->querying, id);
    uint32_t to =
        (uint32_t)FBY_MIN((uint64_t)query_horizon(core, s), (uint64_t)s->query_next + core->config.query_batch_blocks);
    s->query_wanted = 0;
    s->query_out = 1;
    core->queries_out++;
    s->query_to = to;
    s->query_ticket = (++core->ticket << FBY_HANDLE_INDEX_BITS) | id;
    s->query_limit_at = fby_add_sat(core->now, core->config.query_timeout_ns);
    *out = (fby_core_query_t){.ticket = s->query_ticket,
                              .hashes = &s->seq.hashes[s->query_next],
                              .from = s->query_next,
                              .to = to,
                              .deadline = s->query_limit_at,
                              .ref = s->seq.ref,
                              .again = s->query_retried};
    core->stats.queries++;
    fby_timer_refresh(core, id);
    return true; /* no settling here: it could end the session, and drop the reference, before the caller takes its own */
}

static void query_failed(fby_core_t *core, uint32_t id, int32_t status)
{
    fby_sess_t *s = fby_sess(core, id);
    core->stats.query_errors++;
    if (!s->query_retried && core->now < s->deadline) {
        s->query_retried = 1; /* an errored probe is "unknown", not "absent": asked once more */
        fby_plan_want_query(core, id);
        return;
    }
    s->error = status;
    fby_mark_changed(core, id);
    fby_session_seal(core, id, FBY_REASON_QUERY_ERROR);
}

void fby_plan_query_over(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    if (s->query_out)
        core->queries_out--;
    s->query_out = 0;
    s->query_ticket = 0; /* a late answer is ignored */
    s->query_limit_at = FBY_NEVER;
    if (core->grow.count || core->first.count || core->claims_stuck)
        fby_room_freed(core); /* whoever waits for everybody may have to give way now */
}

void fby_plan_query_lapsed(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    fby_plan_query_over(core, id);
    core->stats.query_errors++;
    s->error = FBY_E_TIMEOUT;
    fby_mark_changed(core, id);
    fby_session_seal(core, id, FBY_REASON_QUERY_ERROR);
}

static void remember_lease(fby_sess_t *s, uint32_t begin, uint32_t end, uint64_t until)
{
    fby_probe_lease_t *oldest = &s->probe_lease[0], *next = &s->probe_lease[1];
    if (oldest->end == next->begin &&
        oldest->end > oldest->begin) { /* forgetting one would make its blocks unreadable */
        next->begin = oldest->begin;
        next->until = FBY_MIN(next->until, oldest->until);
    }
    memmove(oldest, next, sizeof(s->probe_lease) - sizeof(s->probe_lease[0]));
    s->probe_lease[FBY_LEASE_RING - 1] = (fby_probe_lease_t){begin, end, until};
}

/* When the store's lease on a block ends; FBY_NEVER without leases, 0 when nobody remembers. */
uint64_t fby_plan_lease_until(const fby_core_t *core, const fby_sess_t *s, uint32_t block)
{
    if (core->config.probe_lease_ns == 0)
        return FBY_NEVER;
    for (unsigned i = FBY_LEASE_RING; i-- > 0;)
        if (block >= s->probe_lease[i].begin && block < s->probe_lease[i].end)
            return s->probe_lease[i].until;
    return 0;
}

/* Blocks from s->query_next on that the store holds in every `all` group and that nobody saw fail lately. */
static uint32_t proven_run(fby_core_t *core, fby_sess_t *s, uint32_t to, const uint8_t *present)
{
    uint32_t from = s->query_next, block = from;
    for (; block < to; block++) {
        uint8_t bits = present[block - from];
        for (uint32_t g = 0; g < core->config.groups; g++)
            if ((bits >> g & 1) && fby_negative_has(core, &s->seq.hashes[block], g))
                bits = (uint8_t)(bits & ~(1u << g));
        if (s->seq.present)
            s->seq.present[block] = bits;
        for (uint32_t g = 0; g < core->config.groups; g++)
            if (fby_is_all(core, g) && !(bits >> g & 1))
                return block;
    }
    return block;
}

void fby_core_query_done(fby_core_t *core, uint64_t now, uint64_t ticket, int status, const uint8_t *present,
                         uint64_t lease_until)
{
    uint32_t id = fby_handle_index(ticket);
    if (fby_core_enter(core, now) || id >= core->config.session_slots)
        return;
    fby_sess_t *s = fby_sess(core, id);
    if (!s->used || !s->query_out || s->query_ticket != ticket)
        return;
    uint32_t to = s->query_to;
    fby_plan_query_over(core, id);
    if (status < 0) {
        query_failed(core, id, status);
    } else {
        s->query_retried = 0;
        uint32_t end = proven_run(core, s, to, present);
        s->proven = FBY_MAX(s->proven, end);
        if (core->config.probe_lease_ns)
            remember_lease(s, s->query_next, end, lease_until);
        probe_again(core, id);
        s->query_next = FBY_MAX(to, s->proven);
        if (end < to) {
            s->query_final = s->proven <= end; /* the index may bridge a hole of the store */
            s->query_next = s->proven;
        }
        if (s->query_next >= FBY_MIN(s->cap, s->seq.blocks))
            s->query_final = 1;
        if (s->target > s->cursor)
            s->state = FBY_ACTIVE;
        fby_plan_finish_check(core, id);
        fby_plan_want_query(core, id);
    }
    fby_mark_dirty(core, id);
    fby_mark_changed(core, id);
    fby_timer_refresh(core, id);
    fby_core_leave(core);
}

/* cursor == target and the query is final: the plan is claimed to its end. */
void fby_plan_finish_check(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    if (s->reason != FBY_REASON_NONE || s->parked)
        return;
    uint32_t entry = s->ledger_tail;
    if (entry != FBY_NONE && core->entries[entry].growing)
        return;
    bool cut = s->clamp_end != FBY_NONE && (s->cursor >= s->clamp_end || (s->query_final && s->cursor >= s->target &&
                                                                          FBY_MIN(s->proven, s->cap) >= s->clamp_end));
    if (cut)
        fby_session_seal(core, id, s->clamp_reason);
    else if (s->query_final && s->cursor >= s->target)
        fby_session_seal(core, id, FBY_REASON_COMPLETE);
}
