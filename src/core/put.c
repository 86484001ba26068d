/*
 * put.c - insert-after: staging that the caller fills, published whole, written to the store behind it.
 *
 * A put owns its staging slots through its own list: payloads of `all` groups by block, then trailing ones. Commit is
 * total: every staged full block ends as published, duplicate, discarded or orphan. The put's HOLD pin on the resident
 * prefix moves in the same critical section. A store write pins its block (class WRITE) until it physically ended; an
 * orphan has no node and stays staging instead.
 */
#include <errno.h>

#include "core/internal.h"

#define FBY_PUT_STEP 4096u /* blocks staged by one begin at most */

static fby_put_obj_t *put_get(fby_core_t *core, fby_put_t handle, uint32_t *id)
{
    *id = fby_handle_id(core, handle, FBY_HANDLE_PUT, false);
    return *id == FBY_NONE || core->puts[*id].state == FBY_PUT_FENCED ? NULL : &core->puts[*id];
}

/* Fenced or not, of any generation. */
static uint32_t put_of_any_epoch(const fby_core_t *core, fby_put_t handle, bool fenced)
{
    uint32_t id = fby_handle_id(core, handle, FBY_HANDLE_PUT, true);
    return id == FBY_NONE || (core->puts[id].state == FBY_PUT_FENCED) != fenced ? FBY_NONE : id;
}

static uint32_t put_new(fby_core_t *core)
{
    if (core->put_free_count == 0)
        return FBY_NONE;
    uint32_t id = core->put_free[--core->put_free_count];
    fby_put_obj_t *p = &core->puts[id];
    uint32_t generation = p->generation + 1;
    *p = (fby_put_obj_t){.generation = generation,
                         .core_generation = core->generation,
                         .used = 1,
                         .state = FBY_PUT_COMMITTED,
                         .node = FBY_NONE};
    p->handle = fby_handle_make(core, FBY_HANDLE_PUT, id, generation);
    core->put_count++;
    return id;
}

static void put_pin(fby_core_t *core, fby_put_obj_t *p, uint32_t node, uint32_t prefix)
{
    uint32_t old = p->node;
    if (node == old)
        return;
    if (node != FBY_NONE)
        fby_index_pin(core->config.index, node, FBY_PIN_HOLD);
    if (old != FBY_NONE)
        fby_index_unpin(core->config.index, old, FBY_PIN_HOLD, false);
    p->node = node;
    p->prefix = prefix;
}

static bool put_stage(fby_core_t *core, uint32_t id, uint32_t block, uint32_t group)
{
    fby_put_obj_t *p = &core->puts[id];
    uint32_t slot = fby_slot_get(core, group, id);
    if (slot == FBY_NONE)
        return false;
    core->items[slot] = (fby_item_t){.hash = p->seq.hashes[block],
                                     .block = block,
                                     .entry = FBY_NONE,
                                     .graph = FBY_NONE,
                                     .put = id,
                                     .put_generation = p->generation,
                                     .node = FBY_NONE,
                                     .flight_next = FBY_NONE};
    fby_list_push_back(core->own, fby_own_put(core, id), slot);
    core->write_bytes += fby_slot_bytes(core, slot);
    p->staged++;
    core->put_staged += group == 0;
    return true;
}

static void put_unstage(fby_core_t *core, uint32_t slot)
{
    fby_slot_state_t state = (fby_slot_state_t)core->config.slots->slot[slot].state;
    fby_list_remove(core->own, slot);
    core->puts[core->items[slot].put].staged--;
    core->put_staged -= core->config.slots->slot[slot].group == 0 && state != FBY_SLOT_QUARANTINE;
    core->write_bytes -= fby_slot_bytes(core, slot);
    if (state != FBY_SLOT_RESIDENT)
        fby_slot_move(core->config.slots, slot, state, FBY_SLOT_FREE, 0);
    core->items[slot].put = FBY_NONE;
    fby_room_freed(core);
}

/* Full blocks that one begin may stage: write budget, hold budget, and room that is not granted to sessions. */
static uint64_t put_room(const fby_core_t *core)
{
    uint64_t write = fby_sub_sat(core->config.write_pinned_bytes, core->write_bytes) / core->block_bytes;
    uint64_t held =
        fby_hold_bytes(core) + core->put_staged * core->block_bytes; /* what is staged will be pinned by its put */
    uint64_t hold = fby_sub_sat(core->config.max_hold_bytes, held) / core->block_bytes;
    uint64_t room = FBY_MIN(FBY_MIN(write, hold), fby_room_blocks(core));
    return FBY_MIN(room, FBY_PUT_STEP);
}

static bool stage_full_block(fby_core_t *core, uint32_t id, uint32_t block)
{
    uint32_t head = fby_own_put(core, id), last = core->own[head].prev;
    for (uint32_t g = 0; g < core->config.groups; g++) {
        if (!fby_is_all(core, g) || put_stage(core, id, block, g))
            continue;
        while (core->own[head].prev != last)
            put_unstage(core, core->own[head].prev);
        return false;
    }
    return true;
}

/* Payloads that make `end` a checkpoint and are not there: with the full blocks, or alone when only they are lost. */
static void stage_payloads(fby_core_t *core, uint32_t id, uint32_t end)
{
    fby_put_obj_t *p = &core->puts[id];
    for (uint32_t g = 0; g < core->config.groups; g++) {
        uint32_t n = core->config.trailing[g];
        for (uint32_t block = end > n ? end - n : 0; n && block < end; block++) {
            uint32_t node = fby_index_find(core->config.index, &p->seq.hashes[block]);
            bool there = node != FBY_NONE ? fby_index_slot(core->config.index, node, g) != FBY_NONE
                                          : block < p->from || block >= p->to;
            if (there || core->write_bytes + core->config.slot_bytes[g] > core->config.write_pinned_bytes)
                continue;
            put_stage(core, id, block, g);
        }
    }
}

/* 0: a new put may be made, or the next range of this one begun. */
static int put_ready(fby_core_t *core, fby_put_t put)
{
    uint32_t id;
    if (put == 0)
        return core->put_free_count ? 0 : -EBUSY;
    const fby_put_obj_t *p = put_get(core, put, &id);
    if (!p)
        return FBY_E_STALE;
    return p->state == FBY_PUT_COMMITTED ? 0 : FBY_E_STATE;
}

static void put_attach(fby_core_t *core, const fby_core_seq_t *seq, fby_put_t put, uint32_t *id)
{
    if (put == 0)
        *id = put_new(core);
    else
        fby_core_unref(core, &put_get(core, put, id)->seq);
    core->puts[*id].seq = *seq;
}

int fby_core_put_begin(fby_core_t *core, uint64_t now, const fby_core_seq_t *seq, uint32_t from, uint32_t to,
                       fby_put_t *put, fby_core_put_info_t *out)
{
    int rc = fby_core_enter(core, now);
    if (rc || core->closed)
        return rc ? rc : FBY_E_CLOSED;
    if (from > to || to > seq->blocks)
        return -EINVAL;
    if (seq->epoch != core->epoch)
        return FBY_E_STALE;
    rc = put_ready(core, *put);
    if (rc)
        return rc;
    uint32_t node, id, resident = fby_index_match(core->config.index, seq->hashes, 0, seq->blocks, &node);
    uint32_t prefix = FBY_MIN(resident, to);
    if (prefix != resident)
        node = prefix ? fby_index_find(core->config.index, &seq->hashes[prefix - 1]) : FBY_NONE;
    if (prefix && fby_hold_bytes(core) + fby_index_charge_estimate(core->config.index, node, FBY_PIN_HOLD) >
                      core->config.max_hold_bytes) {
        core->stats.budget_refused++;
        return FBY_E_BUDGET;
    }
    put_attach(core, seq, *put, &id);
    fby_put_obj_t *p = &core->puts[id];
    put_pin(core, p, prefix ? node : FBY_NONE, prefix);
    p->state = FBY_PUT_STAGED;
    p->from = p->to = FBY_MAX(from, prefix);
    for (uint64_t room = put_room(core); p->to < to && room > 0 && stage_full_block(core, id, p->to); room--)
        p->to++;
    if (core->trailing_groups)
        stage_payloads(core, id, p->to > p->from ? p->to : prefix);
    *out = (fby_core_put_info_t){.first_missing = resident, .staged_from = p->from, .staged_to = p->to};
    *put = p->handle;
    fby_core_leave(core);
    return 0;
}

int fby_core_put_slots(fby_core_t *core, fby_put_t put, uint32_t group, uint32_t from, uint32_t to, uint32_t *out)
{
    uint32_t id;
    const fby_put_obj_t *p = put_get(core, put, &id);
    if (core->poisoned || !p)
        return core->poisoned ? FBY_E_POISONED : FBY_E_STALE;
    if (p->state != FBY_PUT_STAGED)
        return FBY_E_STATE;
    if (group >= core->config.groups || from > to || to > p->seq.blocks)
        return -EINVAL;
    for (uint32_t block = from; block < to; block++)
        out[block - from] = FBY_NONE;
    uint32_t head = fby_own_put(core, id);
    for (uint32_t slot = core->own[head].next; slot != head; slot = core->own[slot].next) {
        uint32_t block = core->items[slot].block;
        if (core->config.slots->slot[slot].group == group && block >= from && block < to)
            out[block - from] = slot;
    }
    return 0;
}

/* ---- Store writes ---- */

static void write_failed(fby_core_t *core, const fby_item_t *item)
{
    core->stats.writes_failed++;
    fby_put_obj_t *p = &core->puts[item->put];
    if (p->used && p->generation == item->put_generation)
        p->failed++;
}

/* A store write reads this very payload: pinning the node alone would let a trailing payload go. */
static void write_pin(fby_core_t *core, uint32_t slot, uint32_t node, bool pin)
{
    fby_index_t *index = core->config.index;
    uint32_t group = core->config.slots->slot[slot].group;
    if (fby_is_all(core, group) && pin)
        fby_index_pin(index, node, FBY_PIN_WRITE);
    else if (fby_is_all(core, group))
        fby_index_unpin(index, node, FBY_PIN_WRITE, false);
    else if (pin)
        fby_index_pin_payload(index, node, group, FBY_PIN_WRITE);
    else
        fby_index_unpin_payload(index, node, group, FBY_PIN_WRITE);
}

/* Queues one slot for the store. `node` is FBY_NONE for an orphan, whose staging charge stays. */
static bool write_queue(fby_core_t *core, uint32_t slot, uint32_t put, uint32_t node)
{
    fby_item_t *item = &core->items[slot];
    uint64_t bytes = fby_slot_bytes(core, slot);
    item->put = put;
    item->put_generation = core->puts[put].generation;
    item->node = node;
    item->orphan = node == FBY_NONE;
    if (!core->config.store || core->config.writes == FBY_WRITE_OFF)
        return false;
    if (core->write_bytes + (item->orphan ? 0 : bytes) > core->config.write_pinned_bytes) {
        core->stats.writes_dropped++;
        write_failed(core, item);
        return false;
    }
    if (!item->orphan) {
        write_pin(core, slot, node, true);
        core->write_bytes += bytes;
    }
    item->state = FBY_ITEM_QUEUED;
    fby_list_push_back(core->io, fby_io_writes(core), slot);
    core->write_queue++;
    core->writes_queued[core->config.slots->slot[slot].group] += !item->orphan;
    core->puts[put].writes++;
    return true;
}

void fby_put_write_leaves(fby_core_t *core, uint32_t slot)
{
    core->write_queue--;
    core->writes_queued[core->config.slots->slot[slot].group] -= !core->items[slot].orphan;
}

bool fby_put_drop_write(fby_core_t *core)
{
    uint32_t head = fby_io_writes(core);
    if (fby_list_empty(core->io, head))
        return false;
    uint32_t slot = core->io[head].prev; /* the newest: of one put the deepest, which may go first */
    fby_put_write_leaves(core, slot);
    fby_list_remove(core->io, slot);
    core->stats.writes_dropped++;
    fby_put_write_ended(core, slot, FBY_E_RECALLED, true);
    return true;
}

/* The end of one slot's write: logical when a limit fired (physical == false), then once more when it is over. */
void fby_put_write_ended(fby_core_t *core, uint32_t slot, int32_t code, bool physical)
{
    fby_item_t *item = &core->items[slot];
    fby_put_obj_t *p = &core->puts[item->put];
    bool mine = p->used && p->generation == item->put_generation;
    if (item->state != FBY_ITEM_ENDED) {
        item->state = FBY_ITEM_ENDED;
        item->result = code;
        if (code == 0 || code == FBY_E_EXISTS) {
            core->stats.writes++;
            core->stats.bytes_written += code == 0 ? fby_slot_bytes(core, slot) : 0;
            fby_negative_clear(core, &item->hash, core->config.slots->slot[slot].group);
            p->stored += mine;
        } else {
            write_failed(core, item);
        }
        if (mine && --p->writes == 0)
            fby_core_emit(core, &(fby_core_event_t){.type = FBY_CORE_PUT_STORED, .handle = p->handle});
        if (!physical && item->orphan)
            fby_slot_move(core->config.slots, slot, (fby_slot_state_t)core->config.slots->slot[slot].state,
                          FBY_SLOT_QUARANTINE, 0);
    }
    if (!physical)
        return;
    item->state = FBY_ITEM_NONE;
    core->write_bytes -= fby_slot_bytes(core, slot);
    if (item->orphan)
        fby_slot_move(core->config.slots, slot, (fby_slot_state_t)core->config.slots->slot[slot].state, FBY_SLOT_FREE,
                      0);
    else
        write_pin(core, slot, item->node, false);
    item->put = FBY_NONE;
    fby_room_freed(core);
}

/* ---- Commit ---- */

static void write_or_free_orphan(fby_core_t *core, uint32_t id, uint32_t slot)
{
    fby_list_remove(core->own, slot);
    core->puts[id].staged--;
    core->put_staged -= core->config.slots->slot[slot].group == 0;
    if (write_queue(core, slot, id, FBY_NONE))
        return;
    core->write_bytes -= fby_slot_bytes(core, slot);
    fby_slot_move(core->config.slots, slot, FBY_SLOT_STAGING, FBY_SLOT_FREE, 0);
    fby_room_freed(core);
}

/* One full block: every staged slot of it leaves the put's list. */
static void commit_block(fby_core_t *core, uint32_t id, uint32_t valid, fby_put_result_t *result)
{
    fby_put_obj_t *p = &core->puts[id];
    fby_index_t *index = core->config.index;
    uint32_t head = fby_own_put(core, id), block = core->items[core->own[head].next].block, slots[FBY_MAX_GROUPS];
    for (uint32_t g = 0; g < core->config.groups; g++)
        slots[g] = FBY_NONE;
    for (uint32_t slot = core->own[head].next; slot != head; slot = core->own[slot].next) {
        if (core->items[slot].block != block || !fby_is_all(core, core->config.slots->slot[slot].group))
            break;
        slots[core->config.slots->slot[slot].group] = slot;
    }
    const fby_hash_t *hash = &p->seq.hashes[block];
    uint32_t node = fby_index_find(index, hash),
             parent = block ? fby_index_find(index, &p->seq.hashes[block - 1]) : FBY_NONE;
    bool publish = block < valid && node == FBY_NONE && (block == 0 || parent != FBY_NONE);
    bool orphan = block < valid && node == FBY_NONE && !publish;
    if (publish)
        node = fby_index_insert(index, parent, hash, slots, false);
    for (uint32_t g = 0; g < core->config.groups; g++) {
        if (slots[g] == FBY_NONE)
            continue;
        if (orphan) {
            write_or_free_orphan(core, id, slots[g]);
            continue;
        }
        put_unstage(core, slots[g]);
        if (publish)
            write_queue(core, slots[g], id, node);
    }
    if (node != FBY_NONE && block < valid && block >= p->prefix)
        put_pin(core, p, node, block + 1); /* what lies before it is resident, too: others may have closed a gap */
    if (block >= valid)
        result->discarded++;
    else if (orphan)
        result->orphan++;
    else if (publish)
        result->published++;
    else {
        result->duplicate++;
        core->stats.duplicates++;
    }
}

static void commit_payload(fby_core_t *core, uint32_t id, uint32_t slot, uint32_t valid)
{
    fby_put_obj_t *p = &core->puts[id];
    uint32_t block = core->items[slot].block, group = core->config.slots->slot[slot].group;
    uint32_t node = block < valid ? fby_index_find(core->config.index, &p->seq.hashes[block]) : FBY_NONE;
    bool attached = node != FBY_NONE && fby_index_attach(core->config.index, node, group, slot);
    if (node == FBY_NONE && block < valid) {
        write_or_free_orphan(core, id, slot);
        return;
    }
    put_unstage(core, slot);
    if (attached)
        write_queue(core, slot, id, node);
}

int fby_core_put_commit(fby_core_t *core, uint64_t now, fby_put_t put, uint32_t valid_blocks, fby_put_result_t *result)
{
    int rc = fby_core_enter(core, now);
    uint32_t id;
    fby_put_obj_t *p = put_get(core, put, &id);
    if (rc || !p)
        return rc ? rc : FBY_E_STALE;
    if (p->state == FBY_PUT_COMMITTED)
        return FBY_E_STATE;
    if (core->closed)
        valid_blocks = 0;
    p->state = FBY_PUT_COMMITTING;
    uint32_t head = fby_own_put(core, id);
    for (uint32_t step = 0; step < FBY_STEP_BLOCKS && !fby_list_empty(core->own, head); step++) {
        uint32_t slot = core->own[head].next;
        if (fby_is_all(core, core->config.slots->slot[slot].group))
            commit_block(core, id, valid_blocks, result);
        else
            commit_payload(core, id, slot, valid_blocks);
    }
    result->resident_tokens = (uint64_t)p->prefix * core->config.block_tokens;
    bool more = !fby_list_empty(core->own, head);
    if (!more)
        p->state = FBY_PUT_COMMITTED;
    fby_core_leave(core);
    return more ? -EAGAIN : 0;
}

int fby_core_put_writes(fby_core_t *core, fby_put_t put, uint64_t *outstanding, uint64_t *stored, uint64_t *failed)
{
    uint32_t id;
    const fby_put_obj_t *p = put_get(core, put, &id);
    if (core->poisoned || !p)
        return core->poisoned ? FBY_E_POISONED : FBY_E_STALE;
    *outstanding = p->writes;
    *stored = p->stored;
    *failed = p->failed;
    return 0;
}

/* The object's place is free; its slots and references went before. */
static void put_forget(fby_core_t *core, uint32_t id)
{
    core->puts[id].used = 0;
    core->put_free[core->put_free_count++] = id;
    fby_room_freed(core);
}

static void put_unstage_all(fby_core_t *core, uint32_t id)
{
    uint32_t head = fby_own_put(core, id);
    while (!fby_list_empty(core->own, head))
        put_unstage(core, core->own[head].next);
}

int fby_core_put_end(fby_core_t *core, uint64_t now, fby_put_t put)
{
    int rc = fby_core_enter(core, now);
    uint32_t id = put_of_any_epoch(core, put, false);
    if (rc || id == FBY_NONE)
        return rc ? rc : FBY_E_STALE;
    fby_put_obj_t *p = &core->puts[id];
    put_unstage_all(core, id);
    put_pin(core, p, FBY_NONE, 0);
    fby_core_unref(core, &p->seq);
    core->put_count--;
    put_forget(core, id);
    fby_core_leave(core);
    return 0;
}

/* ---- Fence ---- */

int fby_core_put_abandon(fby_core_t *core, uint64_t now, fby_put_t put, uint64_t *bytes)
{
    int rc = fby_core_enter(core, now);
    uint32_t id = put_of_any_epoch(core, put, false);
    if (rc || id == FBY_NONE)
        return rc ? rc : FBY_E_STALE;
    fby_put_obj_t *p = &core->puts[id];
    uint32_t head = fby_own_put(core, id);
    uint64_t total = 0;
    for (uint32_t slot = core->own[head].next; slot != head; slot = core->own[slot].next) {
        total += fby_slot_bytes(core, slot);
        if (core->config.slots->slot[slot].state != FBY_SLOT_STAGING)
            continue; /* of before a reset: retired, which nobody gets either */
        core->put_staged -= core->config.slots->slot[slot].group == 0;
        core->items[slot].orphan = true;
        fby_slot_move(core->config.slots, slot, FBY_SLOT_STAGING, FBY_SLOT_QUARANTINE, id);
    }
    put_pin(core, p, FBY_NONE, 0);
    fby_core_unref(core, &p->seq);
    core->put_count--;
    p->state = FBY_PUT_FENCED;
    if (total == 0)
        put_forget(core, id);
    fby_core_leave(core);
    *bytes = total;
    return 0;
}

int fby_core_put_fenced(fby_core_t *core, uint64_t now, fby_put_t put)
{
    int rc = fby_core_enter(core, now);
    uint32_t id = put_of_any_epoch(core, put, true);
    if (rc || id == FBY_NONE)
        return rc ? rc : FBY_E_STALE;
    put_unstage_all(core, id);
    put_forget(core, id);
    fby_core_leave(core);
    return 0;
}

void fby_put_reset(fby_core_t *core, uint32_t id)
{
    uint32_t head = fby_own_put(core, id);
    for (uint32_t slot = core->own[head].next; slot != head; slot = core->own[slot].next)
        if (core->config.slots->slot[slot].state == FBY_SLOT_STAGING)
            fby_slot_move(core->config.slots, slot, FBY_SLOT_STAGING, FBY_SLOT_RETIRED, id);
}
