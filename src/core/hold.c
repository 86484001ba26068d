/*
 * hold.c - protection in the caller's hands: lookup, trim, readers, release.
 *
 * A hold is a HOLD pin on its deepest block, pins on the trailing payloads its end needs, and, for a private run, the
 * slots themselves. Release acts on what the hold recorded, never on something computed again.
 */
#include <errno.h>

#include "core/internal.h"

uint64_t fby_hold_bytes(const fby_core_t *core)
{
    return fby_index_charged_bytes(core->config.index, FBY_PIN_HOLD) + core->private_hold;
}

static uint32_t hold_new(fby_core_t *core)
{
    if (core->hold_free_count == 0)
        return FBY_NONE;
    uint32_t id = core->hold_free[--core->hold_free_count];
    fby_hold_obj_t *h = &core->holds[id];
    uint32_t generation = h->generation + 1;
    *h = (fby_hold_obj_t){.generation = generation,
                          .core_generation = core->generation,
                          .used = 1,
                          .readers = 1,
                          .node = FBY_NONE,
                          .borrows = FBY_NONE};
    h->handle = fby_handle_make(core, FBY_HANDLE_HOLD, id, generation);
    core->hold_count++;
    return id;
}

static void hold_pin(fby_core_t *core, fby_hold_obj_t *h, uint32_t end, uint32_t node)
{
    h->node = node;
    h->blocks = h->payload_end = end;
    if (node == FBY_NONE)
        return;
    fby_index_pin(core->config.index, node, FBY_PIN_HOLD);
    fby_payload_pins(core, end, node, FBY_PIN_HOLD, true);
}

static void hold_unpin(fby_core_t *core, uint32_t end, uint32_t node)
{
    if (node == FBY_NONE)
        return;
    fby_payload_pins(core, end, node, FBY_PIN_HOLD, false);
    fby_index_unpin(core->config.index, node, FBY_PIN_HOLD, false);
    fby_room_freed(core);
}

int fby_core_lookup(fby_core_t *core, uint64_t now, const fby_core_seq_t *seq, unsigned flags, fby_hold_t *hold,
                    uint64_t *tokens)
{
    int rc = fby_core_enter(core, now);
    if (rc || core->closed)
        return rc ? rc : FBY_E_CLOSED;
    if (seq->epoch != core->epoch)
        return FBY_E_STALE;
    const fby_index_t *index = core->config.index;
    uint32_t cap = fby_last_token_blocks(seq->tokens, core->config.block_tokens), node;
    uint32_t end = fby_index_match(index, seq->hashes, 0, FBY_MIN(cap, seq->blocks), &node);
    end = fby_index_checkpoint(index, end, node, &node);
    if (end == 0)
        node = FBY_NONE;
    if (!(flags & FBY_LOOKUP_ADVISORY)) {
        uint64_t fresh = node == FBY_NONE ? 0 : fby_index_charge_estimate(index, node, FBY_PIN_HOLD);
        bool granted =
            core->unused_blocks > 0 && fresh > fby_room_blocks(core) * core->block_bytes; /* sessions' room stays */
        if (granted || fby_hold_bytes(core) + fresh > core->config.max_hold_bytes) {
            core->stats.budget_refused++;
            return FBY_E_BUDGET;
        }
        uint32_t id = hold_new(core);
        if (id == FBY_NONE)
            return -EBUSY;
        fby_hold_obj_t *h = &core->holds[id];
        h->seq = *seq;
        h->tokens = (uint64_t)end * core->config.block_tokens;
        hold_pin(core, h, end, node);
        *hold = h->handle;
    }
    *tokens = (uint64_t)end * core->config.block_tokens;
    fby_core_leave(core);
    return 0;
}

/* The private slots below `end` change hands; what lies beyond stays the session's. */
static void move_private(fby_core_t *core, uint32_t session, uint32_t hold, uint32_t end)
{
    uint32_t from = fby_own_session(core, session), to = fby_own_hold(core, hold);
    for (uint32_t slot = core->own[from].next, next; slot != from; slot = next) {
        next = core->own[slot].next;
        if (core->items[slot].block >= end)
            continue;
        fby_list_remove(core->own, slot);
        fby_list_push_back(core->own, to, slot);
        fby_slot_move(core->config.slots, slot, FBY_SLOT_PRIVATE, FBY_SLOT_PRIVATE, hold);
        core->private_pinned -= fby_slot_bytes(core, slot);
        core->private_hold += fby_slot_bytes(core, slot);
    }
}

/* The lease's protection, as a hold: taken before the lease is let go, in one critical section. */
int fby_hold_from_session(fby_core_t *core, uint32_t session, fby_hold_t *out)
{
    fby_sess_t *s = fby_sess(core, session);
    uint32_t id = hold_new(core);
    if (id == FBY_NONE)
        return -EBUSY;
    fby_hold_obj_t *h = &core->holds[id]; /* what was answered: a detached tail may have been published since */
    h->tokens = (uint64_t)s->lease_end * core->config.block_tokens;
    if (s->lease_end > 0) {
        h->seq = s->seq;
        h->seq.ref = NULL; /* the reference stays the session's until it ends */
        h->borrows = session;
        s->lent = id;
    }
    if (s->private_run && s->lease_end > 0) {
        h->first_block = s->have;
        move_private(core, session, id, s->lease_end);
        h->private_blocks = s->lease_end - s->have;
        if (s->lease_node != FBY_NONE)
            fby_index_pin(core->config.index, s->lease_node, FBY_PIN_HOLD);
        h->node = s->lease_node;
        h->blocks = s->lease_end;
    } else {
        hold_pin(core, h, s->lease_end, s->lease_node);
    }
    *out = h->handle;
    return 0;
}

int fby_core_hold_info(fby_core_t *core, fby_hold_t hold, fby_core_hold_info_t *out)
{
    uint32_t id = fby_handle_id(core, hold, FBY_HANDLE_HOLD, false);
    if (core->poisoned || id == FBY_NONE)
        return core->poisoned ? FBY_E_POISONED : FBY_E_STALE;
    const fby_hold_obj_t *h = &core->holds[id];
    *out = (fby_core_hold_info_t){
        .tokens = h->tokens, .blocks = h->blocks, .first_block = h->first_block, .readers = h->readers};
    return 0;
}

int fby_core_hold_slots(fby_core_t *core, fby_hold_t hold, uint32_t group, uint32_t from, uint32_t to, uint32_t *out)
{
    uint32_t id = fby_handle_id(core, hold, FBY_HANDLE_HOLD, false);
    if (core->poisoned || id == FBY_NONE)
        return core->poisoned ? FBY_E_POISONED : FBY_E_STALE;
    const fby_hold_obj_t *h = &core->holds[id];
    if (group >= core->config.groups || from > to || to > h->blocks || to - from > FBY_STEP_BLOCKS)
        return -EINVAL;
    uint32_t n = core->config.trailing[group], needed = n && h->blocks > n ? h->blocks - n : 0;
    for (uint32_t block = from; block < to; block++) {
        uint32_t node = block < needed ? FBY_NONE : fby_index_find(core->config.index, &h->seq.hashes[block]);
        out[block - from] = node == FBY_NONE ? FBY_NONE : fby_index_slot(core->config.index, node, group);
    }
    uint32_t head = fby_own_hold(core, id);
    for (uint32_t slot = core->own[head].next; slot != head; slot = core->own[slot].next) {
        uint32_t block = core->items[slot].block;
        if (core->config.slots->slot[slot].group == group && block >= from && block < to && block >= needed)
            out[block - from] = slot;
    }
    return 0;
}

/* A private run of an older generation: its hold may still be read, nobody else gets it. */
void fby_hold_reset(fby_core_t *core, uint32_t id)
{
    uint32_t head = fby_own_hold(core, id);
    for (uint32_t slot = core->own[head].next; slot != head; slot = core->own[slot].next) {
        if (core->config.slots->slot[slot].state != FBY_SLOT_PRIVATE)
            continue;
        core->private_hold -= fby_slot_bytes(core, slot);
        fby_slot_move(core->config.slots, slot, FBY_SLOT_PRIVATE, FBY_SLOT_RETIRED, id);
    }
}

/* Blocks of a private run beyond its new end are nobody else's: free at once. */
static uint32_t trim_private(fby_core_t *core, uint32_t id, uint32_t end)
{
    fby_hold_obj_t *h = &core->holds[id];
    fby_private_run_t run = {core, fby_own_hold(core, id), h->first_block};
    end = fby_checkpoint_below(core->config.trailing, core->config.groups, end, fby_private_present, &run);
    if (end <= h->first_block)
        end = 0;
    uint32_t head = fby_own_hold(core, id);
    for (uint32_t slot = core->own[head].next, next; slot != head; slot = next) {
        next = core->own[slot].next;
        if (core->items[slot].block < end)
            continue;
        fby_list_remove(core->own, slot);
        core->private_hold -= fby_slot_bytes(core, slot);
        fby_slot_move(core->config.slots, slot, FBY_SLOT_PRIVATE, FBY_SLOT_FREE, 0);
    }
    h->blocks = end;
    h->private_blocks = fby_list_empty(core->own, head) ? 0 : end - h->first_block;
    fby_room_freed(core);
    return end;
}

static uint32_t trim_resident(fby_core_t *core, uint32_t id, uint32_t end)
{
    fby_hold_obj_t *h = &core->holds[id];
    uint32_t old_end = h->payload_end, old = h->node, node = FBY_NONE;
    if (end)
        node = fby_index_find(core->config.index, &h->seq.hashes[end - 1]);
    end = fby_index_checkpoint(core->config.index, end, node, &node);
    hold_pin(core, h, end, end ? node : FBY_NONE);
    hold_unpin(core, old_end, old);
    return end;
}

int fby_core_hold_trim(fby_core_t *core, uint64_t now, fby_hold_t hold, uint64_t tokens, uint64_t *now_tokens)
{
    int rc = fby_core_enter(core, now);
    uint32_t id = fby_handle_id(core, hold, FBY_HANDLE_HOLD, false);
    if (rc || id == FBY_NONE)
        return rc ? rc : FBY_E_STALE;
    fby_hold_obj_t *h = &core->holds[id];
    uint64_t blocks = tokens / core->config.block_tokens;
    if (blocks < h->blocks) {
        uint32_t end =
            h->private_blocks ? trim_private(core, id, (uint32_t)blocks) : trim_resident(core, id, (uint32_t)blocks);
        h->tokens = (uint64_t)end * core->config.block_tokens;
    }
    *now_tokens = h->tokens;
    fby_core_leave(core);
    return 0;
}

int fby_core_hold_readers(fby_core_t *core, fby_hold_t hold, uint32_t add)
{
    uint32_t id = fby_handle_id(core, hold, FBY_HANDLE_HOLD, false);
    if (core->poisoned || id == FBY_NONE)
        return core->poisoned ? FBY_E_POISONED : FBY_E_STALE;
    if (add > UINT32_MAX - core->holds[id].readers)
        return -EINVAL;
    core->holds[id].readers += add;
    return 0;
}

int fby_core_hold_fewer(fby_core_t *core, fby_hold_t hold, uint32_t fewer)
{
    uint32_t id = fby_handle_id(core, hold, FBY_HANDLE_HOLD, true);
    if (core->poisoned || id == FBY_NONE)
        return core->poisoned ? FBY_E_POISONED : FBY_E_STALE;
    if (fewer >= core->holds[id].readers)
        return -EINVAL;
    core->holds[id].readers -= fewer;
    return 0;
}

int fby_core_hold_release(fby_core_t *core, uint64_t now, fby_hold_t hold)
{
    int rc = fby_core_enter(core, now);
    uint32_t id = fby_handle_id(core, hold, FBY_HANDLE_HOLD, true);
    if (rc || id == FBY_NONE)
        return rc ? rc : FBY_E_STALE;
    fby_hold_obj_t *h = &core->holds[id];
    if (--h->readers > 0)
        return 0;
    hold_unpin(core, h->payload_end, h->node);
    fby_private_free(core, fby_own_hold(core, id), &h->seq, &core->private_hold,
                     h->core_generation == core->generation);
    if (h->borrows != FBY_NONE)
        fby_sess(core, h->borrows)->lent = FBY_NONE;
    else
        fby_core_unref(core, &h->seq);
    h->used = 0;
    core->hold_count--;
    core->hold_free[core->hold_free_count++] = id;
    fby_core_leave(core);
    return 0;
}
