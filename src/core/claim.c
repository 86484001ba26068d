/*
 * claim.c - turning plan into obligation, one chunk per session and turn.
 *
 * Claimed = submitted: the ledger entry and the push on the read lane's queue happen here, together. A chunk skips what
 * is resident, joins what others read, and stages the rest. Long chunks grow over several critical sections; they count
 * as one submission, and a seal ends their growth.
 *
 * Turn order: first chunks before second ones, then the session served least lately, then the earliest deadline.
 */
#include "core/internal.h"

#define FBY_CLAIM_STEP 2048u /* blocks staged in one critical section */
#define FBY_CLAIM_TRIES 8u   /* sessions without room looked at per turn */

/* Key of the ready heap: 1 bit "has claimed", 19 bits of rounds since turn_base, 44 bits of deadline in units of 16 us. */
#define FBY_TURN_DEADLINE_BITS 44
#define FBY_TURN_DEADLINE_SHIFT 14
#define FBY_TURN_MAX ((UINT64_C(1) << 19) - 1)

typedef enum claim_result { CLAIMED, CLAIM_WAITS, CLAIM_NO_ROOM } claim_result_t;

static uint32_t plan_limit(const fby_sess_t *s)
{
    return FBY_MIN(s->target, s->clamp_end);
}

static bool growing(const fby_core_t *core, const fby_sess_t *s)
{
    return s->ledger_tail != FBY_NONE && core->entries[s->ledger_tail].growing;
}

/* Bytes of payloads that a chunk ending at `end` may carry; what rides on a claim. */
static uint64_t payload_bytes(const fby_core_t *core, uint32_t end)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < core->config.groups; g++)
        bytes += FBY_MIN(core->config.trailing[g], end) * core->config.slot_bytes[g];
    return bytes;
}

/* Blocks one chunk may have now: quarantine does not pass, so it shrinks what is possible. */
static uint32_t chunk_blocks(const fby_core_t *core, const fby_sess_t *s)
{
    uint64_t stuck = core->quarantined + payload_bytes(core, FBY_NONE);
    uint64_t possible = fby_sub_sat(core->config.max_reserved_bytes, stuck) / core->block_bytes;
    return (uint32_t)FBY_MIN(possible, s->whole ? (uint64_t)FBY_NONE - 1 : core->chunk_blocks);
}

/* ---- Who is ready ---- */

static bool claim_ready(const fby_core_t *core, uint32_t id)
{
    const fby_sess_t *s = &core->sessions[id];
    if (s->reason != FBY_REASON_NONE || s->parked || !s->used)
        return false;
    if (growing(core, s))
        return true;
    if ((fby_heap_has(&core->grow, id) || fby_heap_has(&core->first, id)) && s->grant_end <= s->cursor)
        return false; /* who waits for more goes on within the grant it has */
    uint32_t limit = plan_limit(s);
    if (s->cursor >= limit || s->window >= (s->whole ? 1 : core->config.max_inflight_chunks))
        return false;
    if (s->whole)
        return s->query_final && s->ledger_head == FBY_NONE;
    if (s->lease_wait && (s->query_out || s->query_wanted))
        return false;
    bool grows =
        s->query_out || s->query_wanted; /* a short chunk waits for the plan while that may still lengthen it */
    return !grows || limit == s->clamp_end || limit - s->cursor >= core->chunk_blocks;
}

static uint64_t turn_key(const fby_core_t *core, const fby_sess_t *s)
{
    uint64_t turn = FBY_MIN(fby_sub_sat(s->turn, core->turn_base), FBY_TURN_MAX);
    uint64_t deadline = FBY_MIN(s->deadline >> FBY_TURN_DEADLINE_SHIFT, (UINT64_C(1) << FBY_TURN_DEADLINE_BITS) - 1);
    return ((uint64_t)(s->submitted > 0) << 63) | (turn << FBY_TURN_DEADLINE_BITS) | deadline;
}

/* Rounds are counted for ever; keys only see the last half million. */
static void rebase_turns(fby_core_t *core)
{
    if (core->turn - core->turn_base <= FBY_TURN_MAX / 2)
        return;
    core->turn_base = core->turn;
    for (uint32_t i = 0; i < core->config.session_slots; i++)
        if (fby_heap_has(&core->ready, i))
            fby_heap_set(&core->ready, i, turn_key(core, fby_sess(core, i)));
}

void fby_claim_consider(fby_core_t *core, uint32_t id)
{
    if (claim_ready(core, id))
        fby_heap_set(&core->ready, id, turn_key(core, fby_sess(core, id)));
    else
        fby_heap_remove(&core->ready, id);
}

/* ---- Parts of a claim ---- */

static void ledger_append(fby_core_t *core, uint32_t id, uint32_t entry)
{
    fby_sess_t *s = fby_sess(core, id);
    if (s->ledger_tail == FBY_NONE) {
        s->ledger_head = entry;
        core->unsettled++;
    } else {
        core->entries[s->ledger_tail].next = entry;
    }
    s->ledger_tail = entry;
}

/* The entry's range grew to `end`: cursor and grant follow. */
static void advance_cursor(fby_core_t *core, uint32_t id, uint32_t entry, uint32_t end)
{
    fby_sess_t *s = fby_sess(core, id);
    uint32_t blocks = end - s->cursor;
    core->entries[entry].end = s->cursor = end;
    fby_admit_use(core, id, blocks);
    fby_mark_changed(core, id);
}

#define FBY_RESIDENT_STEP (FBY_WALK_STEP - 1) /* one pin's walk charges that many and then meets what is charged */

/* Resident blocks at the cursor: pinned and charged now, never more than one walk does at once, so that nothing counts as
   charged twice and a claim costs no more than its grant. False when their charge does not fit yet. */
static bool claim_resident(fby_core_t *core, uint32_t id, uint32_t entry, uint32_t end, uint32_t *upto)
{
    fby_sess_t *s = fby_sess(core, id);
    fby_index_t *index = core->config.index;
    end = FBY_MIN(end, s->cursor + FBY_RESIDENT_STEP);
    uint32_t block = s->cursor, last = FBY_NONE;
    for (uint32_t node; block < end && !s->private_run; block++, last = node)
        if ((node = fby_index_find(index, &s->seq.hashes[block])) == FBY_NONE)
            break;
    *upto = block;
    if (last == FBY_NONE)
        return true;
    uint64_t granted = fby_sub_sat(FBY_MIN(s->grant_end, block), s->cursor);
    uint64_t fresh = fby_index_charge_estimate(index, last, FBY_PIN_SESSION);
    if (fresh > fby_room_bytes(core) + granted * core->block_bytes ||
        fresh > (fby_room_blocks(core) + granted) * core->block_bytes)
        return false;
    s->charge_ticket = fby_index_pin(index, last, FBY_PIN_SESSION);
    core->entries[entry].pin_node = last;
    core->entries[entry].local_end = block;
    return true;
}

/* Groups in which somebody else reads the block. */
static uint32_t groups_in_flight(const fby_core_t *core, const fby_sess_t *s, uint32_t block)
{
    uint32_t count = 0;
    for (uint32_t g = 0; g < core->config.groups; g++)
        count += fby_is_all(core, g) && fby_flight_find(core, &s->seq.hashes[block], g) != FBY_NONE;
    return count;
}

/* Others read the block in every `all` group. (In some only: the rest of it failed there and is staged here.) */
static bool joinable(const fby_core_t *core, const fby_sess_t *s, uint32_t block)
{
    return !s->private_run && groups_in_flight(core, s, block) == core->all_groups;
}

static bool join_block(fby_core_t *core, const fby_sess_t *s, uint32_t entry, uint32_t block)
{
    for (uint32_t g = 0; g < core->config.groups; g++) {
        uint32_t slot = fby_is_all(core, g) ? fby_flight_find(core, &s->seq.hashes[block], g) : FBY_NONE;
        if (slot != FBY_NONE && !fby_join_add(core, entry, core->items[slot].graph))
            return false;
    }
    return true;
}

/* The run of blocks from `from` that others read: waits for their graphs. Returns its end. */
static uint32_t claim_joins(fby_core_t *core, uint32_t id, uint32_t entry, uint32_t from, uint32_t end)
{
    const fby_sess_t *s = fby_sess(core, id);
    while (from < end && joinable(core, s, from) && join_block(core, s, entry, from))
        from++;
    return from;
}

/* Stages what nobody reads of one block. All of it or nothing. */
static bool stage_block(fby_core_t *core, uint32_t id, uint32_t entry, uint32_t graph, uint32_t block, bool shared)
{
    fby_sess_t *s = fby_sess(core, id);
    uint32_t slots[FBY_MAX_GROUPS] = {0};
    if (shared && !join_block(core, s, entry, block))
        return false;
    for (uint32_t g = 0; g < core->config.groups; g++) {
        slots[g] = FBY_NONE;
        if (!fby_is_all(core, g) || (shared && fby_flight_find(core, &s->seq.hashes[block], g) != FBY_NONE) ||
            (slots[g] = fby_slot_get(core, g, entry)) != FBY_NONE)
            continue;
        for (uint32_t back = 0; back < g; back++)
            if (slots[back] != FBY_NONE)
                fby_slot_move(core->config.slots, slots[back], FBY_SLOT_STAGING, FBY_SLOT_FREE, 0);
        return false;
    }
    for (uint32_t g = 0; g < core->config.groups; g++)
        if (slots[g] != FBY_NONE)
            fby_item_add(core, slots[g], entry, graph, &s->seq.hashes[block], block, !s->private_run);
    return true;
}

/* Stages [from, end) up to the first block that is in flight or finds no slot. Returns where it stopped. Residency is
   prefix-closed: behind a block that is not resident no other is. */
static uint32_t stage_run(fby_core_t *core, uint32_t id, uint32_t entry, uint32_t graph, uint32_t from, uint32_t end)
{
    const fby_sess_t *s = fby_sess(core, id);
    if (from < end && !s->private_run && fby_index_find(core->config.index, &s->seq.hashes[from]) != FBY_NONE)
        return from;
    for (; from < end; from++) {
        uint32_t others = s->private_run ? 0 : groups_in_flight(core, s, from);
        if (others == core->all_groups)
            break;
        uint64_t until = fby_plan_lease_until(core, s, from);
        if (!stage_block(core, id, entry, graph, from, others > 0))
            break;
        core->graphs[graph].lease_until = FBY_MIN(core->graphs[graph].lease_until, until);
    }
    return from;
}

/* ---- Trailing payloads ---- */

static bool payload_missing(const fby_core_t *core, const fby_sess_t *s, uint32_t block, uint32_t group)
{
    uint32_t node = fby_index_find(core->config.index, &s->seq.hashes[block]);
    if (node != FBY_NONE && fby_index_slot(core->config.index, node, group) != FBY_NONE)
        return false;
    if (s->private_run && (block < s->have || block < s->payload_claimed))
        return false; /* on the device, or claimed with the window before: windows only move forward */
    return s->seq.present != NULL && (s->seq.present[block] >> group & 1);
}

/* Slots for those payloads can be had, or nothing that passes would ever bring them. */
static bool payload_room(const fby_core_t *core, uint32_t end)
{
    for (uint32_t g = 0; g < core->config.groups; g++) {
        uint32_t need = FBY_MIN(core->config.trailing[g], end);
        if (need > fby_slots_free(core->config.slots, g) + fby_index_evictable(core->config.index, g))
            return false;
    }
    return true;
}

/* The trailing payloads of the last checkpoint that the entry contains: read, joined, or there already. */
static void claim_payloads(fby_core_t *core, uint32_t id, uint32_t entry)
{
    fby_sess_t *s = fby_sess(core, id);
    fby_entry_t *e = &core->entries[entry];
    if (core->trailing_groups == 0)
        return;
    uint32_t checkpoint = fby_plan_checkpoint(core, s, e->end);
    if (checkpoint <= e->first)
        return;
    e->checkpoint = checkpoint;
    for (uint32_t g = 0; g < core->config.groups; g++) {
        uint32_t n = core->config.trailing[g];
        for (uint32_t block = checkpoint > n ? checkpoint - n : 0; n && block < checkpoint; block++) {
            if (!payload_missing(core, s, block, g))
                continue;
            uint32_t other = s->private_run ? FBY_NONE : fby_flight_find(core, &s->seq.hashes[block], g);
            if (other != FBY_NONE) {
                if (core->items[other].entry != entry)
                    fby_join_add(core, entry, core->items[other].graph);
                continue;
            }
            if (e->graph == FBY_NONE && (e->graph = fby_graph_new(core, id)) == FBY_NONE)
                return;
            uint32_t slot = fby_slot_get(core, g, entry);
            if (slot == FBY_NONE)
                s->short_reason = FBY_REASON_CAPACITY_POOL;
            else
                fby_item_add(core, slot, entry, e->graph, &s->seq.hashes[block], block, !s->private_run);
        }
    }
    s->payload_claimed = checkpoint;
}

/* ---- One claim ---- */

static uint64_t completion_estimate(const fby_core_t *core, uint32_t blocks)
{
    uint64_t ahead = 0;
    for (uint32_t g = fby_list_front(core->lane, core->graph_count); g != FBY_NONE && ahead < 64; ahead++)
        g = core->lane[g].next == core->graph_count ? FBY_NONE : core->lane[g].next;
    uint64_t rounds = 1 + ahead / FBY_MAX(core->config.read_lanes, 1);
    return fby_mul_sat(rounds, fby_estimate_ns(&core->estimate, blocks * core->all_groups));
}

/* The policy and the predictive rule, looked at right before the claim. True: sealed instead. */
static bool stops_before(fby_core_t *core, uint32_t id, uint32_t blocks)
{
    fby_sess_t *s = fby_sess(core, id);
    fby_policy_estimate_t estimate = {.measured = s->measured > 0, /* its own: a store that got better is noticed */
                                      .transfer_ns = fby_estimate_ns(&core->estimate, blocks * core->all_groups)};
    if (core->config.recompute_tokens_per_s > 0)
        estimate.saved_ns =
            (uint64_t)((double)blocks * core->config.block_tokens * 1e9 / core->config.recompute_tokens_per_s);
    fby_reason_t reason = fby_policy_verdict(s->policy, FBY_POLICY_TICK, core->now, s->deadline, &estimate);
    if (reason == FBY_REASON_NONE && s->predictive && s->deadline != FBY_NEVER &&
        fby_estimate_fresh(&core->estimate, core->now) &&
        fby_add_sat(core->now, completion_estimate(core, blocks)) > s->deadline)
        reason = FBY_REASON_DEADLINE;
    if (reason != FBY_REASON_NONE)
        fby_session_seal(core, id, reason);
    return reason != FBY_REASON_NONE;
}

/* A block whose store lease may end before its read does is probed again first. */
static bool probe_first(fby_core_t *core, uint32_t id, uint32_t end)
{
    fby_sess_t *s = fby_sess(core, id);
    uint64_t needs = fby_add_sat(core->now, completion_estimate(core, end - s->cursor));
    if (core->config.probe_lease_ns == 0 || needs < fby_plan_lease_until(core, s, s->cursor))
        return false;
    if (s->lease_wait && core->now - s->probed_at < core->config.probe_lease_ns)
        return false; /* probed a moment ago: once more would not give it longer */
    s->probed_at = core->now;
    s->lease_wait = 1;
    s->query_final = 0;
    s->query_next = s->cursor;
    fby_plan_want_query(core, id);
    fby_mark_changed(core, id);
    return true;
}

/* What rides on a claim fits beside what is reserved: payloads and, for a read, `blocks` blocks. */
static bool rides(const fby_core_t *core, uint32_t end, uint64_t blocks)
{
    uint64_t riding = payload_bytes(core, end);
    return core->reserved + riding + blocks * core->block_bytes <= core->config.max_reserved_bytes &&
           riding <= fby_room_bytes(core) && (payload_room(core, end) || !fby_can_pass(core));
}

/* Everything that a read must have besides slots. A chunk is cut at the grant. */
static claim_result_t may_read(fby_core_t *core, uint32_t id, uint32_t *end)
{
    fby_sess_t *s = fby_sess(core, id);
    if (!fby_admit_covers(s)) {
        fby_admit_ask(core, id);
        if (s->reason != FBY_REASON_NONE || s->grant_end <= s->cursor || (s->whole && !fby_admit_covers(s)))
            return CLAIM_WAITS; /* queued for admission, or sealed */
        *end = FBY_MIN(*end, s->grant_end);
    }
    uint64_t blocks = *end - s->cursor;
    return rides(core, *end, s->whole ? blocks : FBY_MIN(blocks, FBY_CLAIM_STEP)) ? CLAIMED : CLAIM_NO_ROOM;
}

/* Stages the first part of [upto, end) into a graph of its own. */
static claim_result_t claim_read(fby_core_t *core, uint32_t id, uint32_t entry, uint32_t upto, uint32_t end)
{
    fby_entry_t *e = &core->entries[entry];
    claim_result_t result = may_read(core, id, &end);
    if (result != CLAIMED)
        return result;
    e->graph = fby_graph_new(core, id);
    if (e->graph == FBY_NONE)
        return CLAIM_NO_ROOM;
    uint32_t step = FBY_MIN(end, upto + FBY_CLAIM_STEP);
    uint32_t staged = stage_run(core, id, entry, e->graph, upto, step);
    if (staged == upto) {
        fby_graph_unmake(core, e->graph);
        e->graph = FBY_NONE;
        return CLAIM_NO_ROOM;
    }
    e->growing = staged == step && step < end;
    e->want = end;
    advance_cursor(core, id, entry, staged);
    return CLAIMED;
}

/* What the entry becomes: resident blocks first, then either the run that others read or a read of our own. */
static claim_result_t claim_into(fby_core_t *core, uint32_t id, uint32_t entry, uint32_t end)
{
    fby_sess_t *s = fby_sess(core, id);
    uint32_t upto;
    if (!claim_resident(core, id, entry, end, &upto)) {
        claim_result_t room = may_read(core, id, &end);
        if (room != CLAIMED || !claim_resident(core, id, entry, end, &upto))
            return room == CLAIMED ? CLAIM_NO_ROOM : room;
    }
    if (upto - s->cursor == FBY_RESIDENT_STEP)
        end = upto;
    if (core->trailing_groups && !rides(core, end, 0))
        return CLAIM_NO_ROOM;
    uint32_t joined = claim_joins(core, id, entry, upto, end);
    bool nothing_to_read = joined > upto || upto == end || (upto > s->cursor && joinable(core, s, upto));
    if (nothing_to_read) {
        advance_cursor(core, id, entry, joined);
        return CLAIMED;
    }
    claim_result_t result = claim_read(core, id, entry, upto, end);
    if (s->reason != FBY_REASON_NONE)
        return CLAIM_WAITS; /* asking for room sealed it */
    /* The resident part alone is worth an entry; what rides on it is looked at again: a grant may just have been made. */
    if (result != CLAIMED && upto > s->cursor && (core->trailing_groups == 0 || rides(core, upto, 0))) {
        advance_cursor(core, id, entry, upto);
        return CLAIMED;
    }
    return result;
}

/* The entry takes its place: graph queued, counted as submitted. */
static void commit_claim(fby_core_t *core, uint32_t id, uint32_t entry)
{
    fby_sess_t *s = fby_sess(core, id);
    fby_entry_t *e = &core->entries[entry];
    ledger_append(core, id, entry);
    if (!e->growing)
        claim_payloads(core, id, entry);
    if (e->graph != FBY_NONE) {
        core->graphs[e->graph].growing = e->growing;
        s->window++;
        s->graphs++;
        fby_graph_queue(core, e->graph);
    } else if (e->first_join != FBY_NONE) {
        core->stats.joins++;
    }
    if (e->graph != FBY_NONE || e->first_join != FBY_NONE)
        s->submitted++;
    s->turn = FBY_MAX(core->turn, s->turn) + 1;
    core->turn = s->turn - 1;
    rebase_turns(core);
    s->state = FBY_ACTIVE;
    fby_mark_dirty(core, id);
    fby_mark_changed(core, id);
}

static claim_result_t claim_grow(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    uint32_t entry = s->ledger_tail;
    fby_entry_t *e = &core->entries[entry];
    uint32_t step = FBY_MIN(e->want, s->cursor + FBY_CLAIM_STEP);
    uint64_t bytes = (uint64_t)(step - s->cursor) * core->block_bytes + payload_bytes(core, e->want);
    uint32_t end = s->cursor;
    if (core->reserved + bytes <= core->config.max_reserved_bytes)
        end = stage_run(core, id, entry, e->graph, s->cursor, step);
    bool more = end == step && step < e->want;
    if (end > s->cursor)
        advance_cursor(core, id, entry, end);
    if (!more) {
        claim_payloads(core, id, entry);
        fby_claim_close(core, id);
    }
    fby_graph_queue(core, e->graph);
    fby_mark_dirty(core, id);
    return CLAIMED;
}

void fby_claim_close(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    if (!growing(core, s))
        return;
    fby_entry_t *e = &core->entries[s->ledger_tail];
    e->growing = 0;
    core->graphs[e->graph].growing = 0;
    fby_graph_settle(core, e->graph);
    fby_mark_dirty(core, id);
}

static claim_result_t claim_one(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    if (growing(core, s))
        return claim_grow(core, id);
    uint32_t chunk = chunk_blocks(core, s), limit = plan_limit(s);
    if (chunk == 0) {
        fby_session_seal(core, id, FBY_REASON_CAPACITY_RESERVED);
        return CLAIM_WAITS;
    }
    uint32_t end = s->cursor + FBY_MIN(chunk, limit - s->cursor);
    if (stops_before(core, id, end - s->cursor) || probe_first(core, id, end))
        return CLAIM_WAITS;
    if (!fby_index_charged(core->config.index, s->charge_ticket))
        return CLAIM_NO_ROOM;
    uint32_t entry = fby_entry_new(core, id, s->cursor);
    if (entry == FBY_NONE)
        return CLAIM_NO_ROOM; /* queue room: entries end with the graphs in flight */
    claim_result_t result = claim_into(core, id, entry, end);
    if (result == CLAIMED) {
        s->lease_wait = 0;
        commit_claim(core, id, entry);
    } else {
        fby_entry_free(core, entry);
    }
    return result;
}

/* Nothing that passes can bring the room these sessions were granted: one gives way, the others try again. */
static void seal_stuck(fby_core_t *core, const uint32_t *ids, uint32_t count)
{
    if (fby_can_pass(core))
        return;
    uint32_t victim = fby_admit_victim(core, ids, count);
    const fby_sess_t *s = fby_sess(core, victim);
    fby_session_seal(core, victim, fby_short_reason(core, fby_sub_sat(plan_limit(s), s->cursor)));
    fby_room_freed(core);
}

/* Resident or read by others already: a claim of it takes no room that is short. */
static bool starts_without_room(const fby_core_t *core, const fby_sess_t *s)
{
    if (s->private_run || growing(core, s) || s->cursor >= s->seq.blocks)
        return false;
    return joinable(core, s, s->cursor) || fby_index_find(core->config.index, &s->seq.hashes[s->cursor]) != FBY_NONE;
}

/* After FBY_CLAIM_TRIES sessions without room only those are tried that need none. The budget bounds the look at the others. */
void fby_claim_turn(fby_core_t *core, uint32_t *budget)
{
    uint32_t aside[FBY_STEP_BLOCKS], count = 0;
    bool claimed = false;
    while (*budget > 0 && core->ready.count && count < FBY_STEP_BLOCKS && !core->claims_stuck) {
        uint32_t id = fby_heap_top(&core->ready);
        fby_heap_remove(&core->ready, id);
        if (!claim_ready(core, id))
            continue;
        bool tries = count < FBY_CLAIM_TRIES || starts_without_room(core, fby_sess(core, id));
        uint32_t before = fby_sess(core, id)->cursor;
        claim_result_t result = tries ? claim_one(core, id) : CLAIM_NO_ROOM;
        uint32_t blocks = fby_sess(core, id)->cursor - before + 1;
        *budget -= FBY_MIN(*budget, blocks);
        if (result == CLAIMED) {
            claimed = true;
            fby_claim_consider(core, id);
        } else if (result == CLAIM_NO_ROOM) {
            aside[count++] = id;
        }
    }
    if (count && !claimed) {
        core->claims_stuck = true;
        seal_stuck(core, aside, FBY_MIN(count, FBY_CLAIM_TRIES));
    }
    for (uint32_t i = 0; i < count; i++)
        fby_claim_consider(core, aside[i]);
}
