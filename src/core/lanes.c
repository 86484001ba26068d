/*
 * lanes.c - the begun and ended side of reads and writes: one op per driver call, its limits, its physical end.
 *
 * An op's io list holds its slots in the order the lane was given them. Its logical end may come before its physical one
 * (a limit, a drain limit): then the slots wait in quarantine, still charged, until the lane reports the end.
 */
#include "core/internal.h"

static uint32_t op_new(fby_core_t *core, bool write)
{
    if (core->op_free_count == 0)
        return FBY_NONE;
    uint32_t id = core->op_free[--core->op_free_count];
    core->ops[id] = (fby_op_t){.begun_at = core->now, .graph = FBY_NONE, .used = 1, .write = write};
    fby_list_init(core->io, fby_io_op(core, id));
    return id;
}

/* The limit of one driver call: no progress, stretched for big calls on slow stores, and never beyond the whole limit. */
static void op_arm(fby_core_t *core, uint32_t id)
{
    fby_op_t *op = &core->ops[id];
    uint64_t slow = core->config.floor_bytes_per_s
                        ? (uint64_t)((double)op->bytes * 1e9 / (double)core->config.floor_bytes_per_s)
                        : 0;
    uint64_t progress = fby_add_sat(core->now, FBY_MAX(core->config.no_progress_ns, slow));
    uint64_t whole = fby_add_sat(op->begun_at, FBY_MAX(core->config.io_timeout_ns, slow));
    op->limit_at = FBY_MIN(progress, whole);
    if (op->limit_at == FBY_NEVER)
        fby_heap_remove(&core->timers, core->config.session_slots + id);
    else
        fby_heap_set(&core->timers, core->config.session_slots + id, op->limit_at);
}

static void op_take(fby_core_t *core, uint32_t id, uint32_t slot, fby_core_io_t *io)
{
    fby_op_t *op = &core->ops[id];
    fby_item_t *item = &core->items[slot];
    fby_list_remove(core->io, slot);
    fby_list_push_back(core->io, fby_io_op(core, id), slot);
    item->state = FBY_ITEM_BEGUN;
    io[op->count++] = (fby_core_io_t){item->hash, core->config.slots->slot[slot].group, slot, item->block};
    op->bytes += fby_slot_bytes(core, slot);
}

static void op_describe(const fby_core_t *core, uint32_t id, fby_core_part_t *part)
{
    const fby_op_t *op = &core->ops[id];
    *part = (fby_core_part_t){.id = id, .count = op->count, .bytes = op->bytes, .limit_at = op->limit_at};
}

/* A begun part sends its graph to the back: long graphs do not block short ones. */
bool fby_core_next_reads(fby_core_t *core, uint64_t now, uint32_t max, fby_core_part_t *part, fby_core_io_t *io)
{
    if (max == 0 || fby_core_enter(core, now))
        return false;
    uint32_t graph = fby_list_front(core->lane, core->graph_count);
    uint32_t op = graph == FBY_NONE ? FBY_NONE : op_new(core, false);
    if (op == FBY_NONE)
        return false;
    fby_graph_t *g = &core->graphs[graph];
    core->ops[op].graph = graph;
    core->ops[op].graph_generation = g->generation;
    if (!g->begun)
        g->begun_at = now;
    g->begun = 1;
    uint32_t head = fby_io_graph(core, graph);
    while (core->ops[op].count < max && !fby_list_empty(core->io, head))
        op_take(core, op, core->io[head].next, io);
    fby_list_remove(core->lane, graph);
    g->queued = 0;
    fby_graph_queue(core, graph);
    core->ops_reads++;
    op_arm(core, op);
    op_describe(core, op, part);
    fby_core_leave(core);
    return true;
}

static void op_free(fby_core_t *core, uint32_t id)
{
    fby_op_t *op = &core->ops[id];
    if (op->write)
        core->ops_writes--;
    else
        core->ops_reads--;
    op->used = 0;
    fby_heap_remove(&core->timers, core->config.session_slots + id);
    core->op_free[core->op_free_count++] = id;
}

/* The slot's operation is over for everybody but the store, which may still touch it. */
void fby_quarantine(fby_core_t *core, uint32_t slot)
{
    core->quarantined += fby_slot_bytes(core, slot);
    fby_slot_move(core->config.slots, slot, FBY_SLOT_STAGING, FBY_SLOT_QUARANTINE, 0);
    if (core->quarantined > core->config.quarantine_limit_bytes && !core->quarantine_over) {
        core->quarantine_over = true;
        fby_core_emit(core, &(fby_core_event_t){.type = FBY_CORE_QUARANTINE_OVER});
    }
}

static void unquarantine(fby_core_t *core, uint32_t slot)
{
    uint64_t bytes = fby_slot_bytes(core, slot);
    core->reserved -= bytes;
    core->quarantined -= bytes;
    if (core->quarantined <= core->config.quarantine_limit_bytes)
        core->quarantine_over = false;
    fby_slot_move(core->config.slots, slot, FBY_SLOT_QUARANTINE, FBY_SLOT_FREE, 0);
    fby_room_freed(core);
}

/* A read that ended after the store's lease is worth nothing, whatever the store says. */
static int32_t read_verdict(const fby_core_t *core, uint32_t slot, int32_t result)
{
    const fby_item_t *item = &core->items[slot];
    if (result == 0 && item->graph != FBY_NONE && core->now > core->graphs[item->graph].lease_until)
        return FBY_E_LEASE;
    return result;
}

void fby_core_read_done(fby_core_t *core, uint64_t now, uint32_t part, const int32_t *results)
{
    if (fby_core_enter(core, now) == FBY_E_POISONED || part >= core->config.part_slots)
        return;
    if (!FBY_REQUIRE(core, core->ops[part].used && !core->ops[part].write, "V9 a part ends once"))
        return;
    uint32_t head = fby_io_op(core, part), i = 0;
    while (!fby_list_empty(core->io, head)) {
        uint32_t slot = core->io[head].next;
        int32_t code = results[i++];
        if (core->config.slots->slot[slot].state == FBY_SLOT_QUARANTINE) {
            fby_list_remove(core->io, slot);
            unquarantine(core, slot);
        } else {
            fby_item_ended(core, slot, read_verdict(core, slot, code), true);
        }
    }
    FBY_REQUIRE(core, i == core->ops[part].count, "V9 every slot of a part ends with it");
    op_free(core, part);
    core->last_completion = now;
    fby_core_leave(core);
}

void fby_core_progress(fby_core_t *core, uint64_t now, uint32_t part)
{
    if (fby_core_enter(core, now) || part >= core->config.part_slots || !core->ops[part].used || core->ops[part].lapsed)
        return;
    op_arm(core, part);
    fby_core_leave(core);
}

/* What lapses is not passed on: a joiner that inherited it would inherit the end too, instead of reading it itself. */
static void close_flight(fby_core_t *core, uint32_t head)
{
    for (uint32_t slot = core->io[head].next; slot != head; slot = core->io[slot].next)
        if (core->items[slot].state != FBY_ITEM_ENDED)
            fby_flight_remove(core, slot);
}

/* A queued slot of the graph whose owner is sealed by now: no lane need ever come for it. Heirs go on. */
static uint32_t first_lapsed(const fby_core_t *core, uint32_t graph)
{
    uint32_t head = fby_io_graph(core, graph);
    for (uint32_t slot = core->io[head].next; slot != head; slot = core->io[slot].next)
        if (core->sessions[core->entries[core->items[slot].entry].session].reason != FBY_REASON_NONE)
            return slot;
    return FBY_NONE;
}

/* What of a graph was not begun when its limit fired ends with it. */
static void graph_lapse(fby_core_t *core, uint32_t graph, uint32_t generation)
{
    while (core->graphs[graph].used && core->graphs[graph].generation == generation) {
        uint32_t slot = first_lapsed(core, graph);
        if (slot == FBY_NONE)
            return;
        core->items[slot].retried = 1; /* without a fence nothing uncertain is retried */
        fby_item_ended(core, slot, FBY_E_TIMEOUT, true);
    }
}

static uint32_t first_unended(const fby_core_t *core, uint32_t part)
{
    uint32_t head = fby_io_op(core, part);
    for (uint32_t slot = core->io[head].next; slot != head; slot = core->io[slot].next)
        if (core->items[slot].state == FBY_ITEM_BEGUN)
            return slot;
    return FBY_NONE;
}

/* The limit of an op fired: the answer becomes final, the memory does not come back yet. */
void fby_op_lapse(fby_core_t *core, uint32_t part)
{
    fby_op_t *op = &core->ops[part];
    fby_heap_remove(&core->timers, core->config.session_slots + part);
    op->limit_at = FBY_NEVER;
    op->lapsed = 1;
    if (op->write) {
        uint32_t head = fby_io_op(core, part);
        for (uint32_t slot = core->io[head].next; slot != head; slot = core->io[slot].next)
            fby_put_write_ended(core, slot, FBY_E_TIMEOUT, false);
    } else {
        close_flight(core, fby_io_op(core, part));
        for (uint32_t slot; (slot = first_unended(core, part)) != FBY_NONE;)
            fby_item_ended(core, slot, FBY_E_TIMEOUT, false);
        graph_lapse(core, op->graph, op->graph_generation);
    }
    fby_core_emit(core, &(fby_core_event_t){.type = FBY_CORE_FENCE, .part = part});
}

/* ---- Writes ---- */

/* Write-back waits until the pool runs short or somebody waits for room; what waits is bounded by write_pinned_bytes,
   beyond it writes are dropped. */
static bool writes_due(const fby_core_t *core)
{
    if (core->write_queue == 0 || core->op_free_count == 0)
        return false;
    const fby_slots_t *slots = core->config.slots;
    bool waiting = core->grow.count || core->first.count || core->claims_stuck || core->resetting;
    return core->config.writes != FBY_WRITE_BACK || waiting || core->closed ||
           fby_slots_free(slots, 0) < slots->count[0] / 4;
}

bool fby_core_next_writes(fby_core_t *core, uint64_t now, uint32_t max, fby_core_part_t *part, fby_core_io_t *io)
{
    if (max == 0 || fby_core_enter(core, now))
        return false;
    uint32_t head = fby_io_writes(core);
    uint32_t op = writes_due(core) ? op_new(core, true) : FBY_NONE;
    if (op == FBY_NONE)
        return false;
    while (core->ops[op].count < max && !fby_list_empty(core->io, head)) {
        fby_put_write_leaves(core, core->io[head].next);
        op_take(core, op, core->io[head].next, io);
    }
    core->ops_writes++;
    op_arm(core, op);
    op_describe(core, op, part);
    fby_core_leave(core);
    return true;
}

void fby_core_write_done(fby_core_t *core, uint64_t now, uint32_t part, const int32_t *results)
{
    if (fby_core_enter(core, now) == FBY_E_POISONED || part >= core->config.part_slots)
        return;
    if (!FBY_REQUIRE(core, core->ops[part].used && core->ops[part].write, "V9 a part ends once"))
        return;
    uint32_t head = fby_io_op(core, part), i = 0;
    while (!fby_list_empty(core->io, head)) {
        uint32_t slot = core->io[head].next;
        fby_list_remove(core->io, slot);
        fby_put_write_ended(core, slot, results[i++], true);
    }
    op_free(core, part);
    core->last_completion = now;
    fby_core_leave(core);
}

unsigned fby_core_wants(const fby_core_t *core)
{
    unsigned wants = 0;
    if (core->poisoned)
        return 0;
    if (!fby_list_empty(core->querying, core->config.session_slots))
        wants |= FBY_WANT_QUERY;
    if (!fby_list_empty(core->lane, core->graph_count) && core->op_free_count)
        wants |= FBY_WANT_READ;
    if (writes_due(core))
        wants |= FBY_WANT_WRITE;
    return wants;
}

static uint32_t list_length(const fby_link_t *links, uint32_t head)
{
    uint32_t length = 0;
    for (uint32_t id = links[head].next; id != head; id = links[id].next)
        length++;
    return length;
}

void fby_core_queued(const fby_core_t *core, fby_core_queued_t *out)
{
    *out = (fby_core_queued_t){.queries = list_length(core->querying, core->config.session_slots),
                               .graphs = list_length(core->lane, core->graph_count),
                               .writes = core->write_queue};
}

void fby_core_outstanding(const fby_core_t *core, uint32_t *operations, uint64_t *bytes)
{
    *operations = core->ops_reads + core->ops_writes;
    *bytes = 0;
    for (uint32_t id = 0; id < core->config.part_slots; id++)
        if (core->ops[id].used)
            *bytes += core->ops[id].bytes;
}
