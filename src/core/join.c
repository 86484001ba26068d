/*
 * join.c - one read per block at a time: waiting for another session's graph, and taking its blocks over.
 *
 * A join says "entry E waits for blocks that graph G reads". It costs no byte and no window place. When the owner of a
 * block gives it up, the earliest joiner that covers it and has not discarded becomes the owner: slot, charge and
 * obligation move, nothing is queued again. Global sums do not change.
 */
#include "core/internal.h"

bool fby_join_add(fby_core_t *core, uint32_t entry, uint32_t graph)
{
    fby_entry_t *e = &core->entries[entry];
    for (uint32_t j = e->first_join; j != FBY_NONE; j = core->joins[j].next_in_entry)
        if (core->joins[j].graph == graph)
            return true;
    if (core->join_free_count == 0)
        return false;
    uint32_t id = core->join_free[--core->join_free_count];
    fby_graph_t *g = &core->graphs[graph];
    core->joins[id] = (fby_join_t){.entry = entry,
                                   .graph = graph,
                                   .next_in_graph = FBY_NONE,
                                   .prev_in_graph = g->last_join,
                                   .next_in_entry = e->first_join};
    if (g->last_join != FBY_NONE)
        core->joins[g->last_join].next_in_graph = id;
    else
        g->first_join = id;
    g->last_join = id;
    e->first_join = id;
    return true;
}

void fby_join_remove_entry(fby_core_t *core, uint32_t entry)
{
    fby_entry_t *e = &core->entries[entry];
    while (e->first_join != FBY_NONE) {
        uint32_t id = e->first_join;
        fby_join_t *j = &core->joins[id];
        fby_graph_t *g = &core->graphs[j->graph];
        e->first_join = j->next_in_entry;
        if (j->prev_in_graph != FBY_NONE)
            core->joins[j->prev_in_graph].next_in_graph = j->next_in_graph;
        else
            g->first_join = j->next_in_graph;
        if (j->next_in_graph != FBY_NONE)
            core->joins[j->next_in_graph].prev_in_graph = j->prev_in_graph;
        else
            g->last_join = j->prev_in_graph;
        core->join_free[core->join_free_count++] = id;
    }
}

/* The graph is over: nobody waits for it any more. Joins of the same entries to other graphs stay. */
void fby_join_remove_graph(fby_core_t *core, uint32_t graph)
{
    fby_graph_t *g = &core->graphs[graph];
    while (g->first_join != FBY_NONE) {
        uint32_t id = g->first_join;
        uint32_t *at = &core->entries[core->joins[id].entry].first_join;
        while (*at != id)
            at = &core->joins[*at].next_in_entry;
        *at = core->joins[id].next_in_entry;
        g->first_join = core->joins[id].next_in_graph;
        core->join_free[core->join_free_count++] = id;
    }
    g->last_join = FBY_NONE;
}

/* Does the entry need the block and group that this slot reads? */
bool fby_join_covers(const fby_core_t *core, uint32_t entry, uint32_t slot)
{
    const fby_entry_t *e = &core->entries[entry];
    const fby_item_t *item = &core->items[slot];
    const fby_sess_t *s = &core->sessions[e->session];
    uint32_t trailing = core->config.trailing[core->config.slots->slot[slot].group];
    uint32_t from = e->begin, to = e->end;
    if (trailing != 0) {
        from = e->checkpoint > trailing ? e->checkpoint - trailing : 0;
        to = e->checkpoint;
    }
    return item->block >= from && item->block < to && item->block < e->bad_block && item->block < s->seq.blocks &&
           fby_hash_equal(&s->seq.hashes[item->block], &item->hash);
}

uint32_t fby_join_heir(const fby_core_t *core, uint32_t slot)
{
    const fby_item_t *item = &core->items[slot];
    if (!item->in_flight)
        return FBY_NONE;
    for (uint32_t j = core->graphs[item->graph].first_join; j != FBY_NONE; j = core->joins[j].next_in_graph) {
        uint32_t entry = core->joins[j].entry;
        if (entry != item->entry && !core->sessions[core->entries[entry].session].discard &&
            fby_join_covers(core, entry, slot))
            return entry;
    }
    return FBY_NONE;
}

/* An entry's own list: payloads of `all` groups by block, then trailing ones. Publication takes from its front. */
static uint64_t own_order(const fby_core_t *core, uint32_t slot)
{
    bool trailing = !fby_is_all(core, core->config.slots->slot[slot].group);
    return ((uint64_t)trailing << 32) | core->items[slot].block;
}

/* Takers come in order, so the walk is short. */
static void own_insert_sorted(fby_core_t *core, uint32_t entry, uint32_t slot)
{
    uint32_t head = fby_own_entry(core, entry), at = core->own[head].prev;
    while (at != head && own_order(core, at) > own_order(core, slot))
        at = core->own[at].prev;
    fby_list_insert_after(core->own, at, slot);
}

void fby_join_take_over(fby_core_t *core, uint32_t slot, uint32_t heir)
{
    fby_item_t *item = &core->items[slot];
    fby_entry_t *from = &core->entries[item->entry], *to = &core->entries[heir];
    uint64_t bytes = fby_slot_bytes(core, slot);
    fby_list_remove(core->own, slot);
    own_insert_sorted(core, heir, slot);
    fby_slot_move(core->config.slots, slot, FBY_SLOT_STAGING, FBY_SLOT_STAGING, heir);
    if (item->state != FBY_ITEM_ENDED) {
        from->pending--;
        to->pending++;
    }
    fby_sess(core, from->session)->inflight_bytes -= bytes;
    fby_sess(core, to->session)->inflight_bytes += bytes;
    item->entry = heir;
    core->stats.takeovers++;
    fby_mark_dirty(core, from->session);
    fby_mark_changed(core, from->session);
    fby_mark_dirty(core, to->session);
    fby_mark_changed(core, to->session);
}

/* Something that the graph read was published, dropped or failed: whoever waits for it looks again. */
void fby_join_wake(fby_core_t *core, uint32_t graph)
{
    for (uint32_t j = core->graphs[graph].first_join; j != FBY_NONE; j = core->joins[j].next_in_graph)
        fby_mark_dirty(core, core->entries[core->joins[j].entry].session);
}

/* After TIMEOUT and CONNECTION an unsealed joiner reads the block once itself: a claim, under a claim's conditions. */
static bool joiner_reads_itself(fby_core_t *core, uint32_t entry, uint32_t failed)
{
    fby_entry_t *e = &core->entries[entry];
    fby_sess_t *s = fby_sess(core, e->session);
    uint32_t group = core->config.slots->slot[failed].group;
    const fby_hash_t hash = core->items[failed].hash;
    uint32_t block = core->items[failed].block;
    uint64_t bytes = core->config.slot_bytes[group];
    if (s->reason != FBY_REASON_NONE || e->growing || core->closed)
        return false;
    uint32_t other = fby_flight_find(core, &hash, group);
    if (other != FBY_NONE)
        return fby_join_add(core, entry, core->items[other].graph); /* an earlier joiner reads it already */
    bool fresh = e->graph == FBY_NONE;
    if ((!fresh && (core->graphs[e->graph].counted_end || !core->graphs[e->graph].used)) ||
        core->reserved + bytes > core->config.max_reserved_bytes || bytes > fby_room_bytes(core) ||
        (fresh && s->window >= core->config.max_inflight_chunks))
        return false;
    uint32_t graph = fresh ? fby_graph_new(core, e->session) : e->graph;
    uint32_t slot = graph == FBY_NONE ? FBY_NONE : fby_slot_get(core, group, entry);
    if (slot == FBY_NONE) {
        if (fresh && graph != FBY_NONE)
            fby_graph_unmake(core, graph);
        return false;
    }
    fby_item_add(core, slot, entry, graph, &hash, block, true);
    fby_list_remove(core->own, slot);
    own_insert_sorted(core, entry, slot);
    core->items[slot].retried = 1; /* this read is the retry */
    if (fresh) {
        e->graph = graph;
        core->graphs[graph].growing = 0;
        s->window++;
        s->graphs++;
        s->submitted++;
    }
    fby_graph_queue(core, graph);
    fby_mark_changed(core, e->session);
    return true;
}

void fby_join_failed(fby_core_t *core, uint32_t slot, int32_t code)
{
    const uint32_t owner = core->items[slot].entry, block = core->items[slot].block;
    const bool full = fby_is_all(core, core->config.slots->slot[slot].group);
    bool again = code == FBY_E_TIMEOUT || code == FBY_E_CONNECTION;
    for (uint32_t j = core->graphs[core->items[slot].graph].first_join, next; j != FBY_NONE; j = next) {
        next = core->joins[j].next_in_graph;
        uint32_t entry = core->joins[j].entry;
        fby_entry_t *e = &core->entries[entry];
        if (entry == owner || !fby_join_covers(core, entry, slot))
            continue;
        fby_mark_dirty(core, e->session);
        fby_mark_changed(core, e->session);
        if (again && joiner_reads_itself(core, entry, slot))
            continue;
        if (full) {
            e->bad_block = block;
            e->bad_code = code;
            fby_session_gap(core, e->session, code);
        } else if (fby_sess(core, e->session)->error == 0) {
            fby_sess(core, e->session)->error = code;
        }
    }
}

/* Blocks below `end` were published by another session: they must not be evicted before the joiner's ledger gets there. */
void fby_join_protect(fby_core_t *core, uint32_t graph, uint32_t end)
{
    fby_index_t *index = core->config.index;
    for (uint32_t j = core->graphs[graph].first_join; j != FBY_NONE; j = core->joins[j].next_in_graph) {
        fby_entry_t *e = &core->entries[core->joins[j].entry];
        const fby_sess_t *s = &core->sessions[e->session];
        uint32_t upto = FBY_MIN(end, e->end);
        if (upto <= e->begin || s->discard)
            continue;
        uint32_t deepest = fby_index_find(index, &s->seq.hashes[upto - 1]);
        if (deepest == FBY_NONE || deepest == e->pin_node)
            continue;
        fby_index_pin(index, deepest, FBY_PIN_SESSION);
        if (e->pin_node != FBY_NONE)
            fby_index_unpin(index, e->pin_node, FBY_PIN_SESSION, false);
        e->pin_node = deepest;
    }
}

/* Does the owner still want the item when its prefix ends at block `from`? Trailing payloads before it may be all that a
   checkpoint inside the same chunk needs; those of later chunks serve later checkpoints only. */
static bool wanted_before(const fby_entry_t *e, const fby_item_t *item, bool full, uint32_t from)
{
    bool here = e->first <= from && from < e->end;
    return full || here ? item->block < from : e->checkpoint < from;
}

/*
 * The owner gives up what the entry still owns from block `from` on: joined blocks pass on, blocks not begun are
 * withdrawn, begun ones stay its obligation, ended ones are dropped when drop_ended. The prefix is closed at the first
 * block given up.
 */
void fby_entry_give_up(fby_core_t *core, uint32_t entry, uint32_t from, bool drop_ended)
{
    const int32_t code = FBY_E_RECALLED;
    fby_entry_t *e = &core->entries[entry];
    uint32_t head = fby_own_entry(core, entry);
    for (uint32_t slot = core->own[head].next, next; slot != head; slot = next) {
        next = core->own[slot].next;
        fby_item_t *item = &core->items[slot];
        bool full = fby_is_all(core, core->config.slots->slot[slot].group);
        bool ended = item->state == FBY_ITEM_ENDED;
        if (wanted_before(e, item, full, from) || (ended && !drop_ended))
            continue;
        uint32_t heir = fby_join_heir(core, slot);
        if (heir == FBY_NONE && item->state == FBY_ITEM_BEGUN)
            continue;
        if (full && item->block < e->bad_block) {
            e->bad_block = item->block;
            e->bad_code = code;
        }
        if (heir != FBY_NONE)
            fby_join_take_over(core, slot, heir);
        else if (ended)
            fby_item_drop(core, slot);
        else
            fby_item_ended(core, slot, code, true);
    }
}
