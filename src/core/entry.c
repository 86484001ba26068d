/*
 * entry.c - the material of ledgers: entries, graphs, items, and the flight table that lets others join a read.
 *
 * The flight table maps (hash, group) to the staging slot that reads it, from the claim until the block is published,
 * discarded or has failed. Reads of private runs and stagings of puts are not in it: nobody may join those.
 */
#include <errno.h>

#include "core/internal.h"

/* ---- Entries ---- */

uint32_t fby_entry_new(fby_core_t *core, uint32_t session, uint32_t begin)
{
    if (core->entry_free_count == 0)
        return FBY_NONE;
    uint32_t id = core->entry_free[--core->entry_free_count];
    core->entries[id] = (fby_entry_t){.session = session,
                                      .next = FBY_NONE,
                                      .begin = begin,
                                      .end = begin,
                                      .first = begin,
                                      .local_end = begin,
                                      .graph = FBY_NONE,
                                      .scan = begin,
                                      .bad_block = FBY_NONE,
                                      .first_join = FBY_NONE,
                                      .pin_node = FBY_NONE,
                                      .used = 1};
    fby_list_init(core->own, fby_own_entry(core, id));
    return id;
}

/* The entry owns nothing any more: its window place, joins and pin end with it. */
void fby_entry_free(fby_core_t *core, uint32_t id)
{
    fby_entry_t *e = &core->entries[id];
    FBY_REQUIRE(core, fby_list_empty(core->own, fby_own_entry(core, id)) && e->pending == 0, "V9 entry ends empty");
    fby_join_remove_entry(core, id);
    if (e->graph != FBY_NONE) {
        fby_graph_t *g = &core->graphs[e->graph];
        g->growing = 0;
        g->session = FBY_NONE;
        fby_sess(core, e->session)->window--;
        fby_graph_settle(core, e->graph);
    }
    if (e->pin_node != FBY_NONE)
        fby_index_unpin(core->config.index, e->pin_node, FBY_PIN_SESSION, false);
    e->used = 0;
    core->entry_free[core->entry_free_count++] = id;
}

/* ---- Graphs ---- */

uint32_t fby_graph_new(fby_core_t *core, uint32_t session)
{
    if (core->graph_free_count == 0)
        return FBY_NONE;
    uint32_t id = core->graph_free[--core->graph_free_count];
    uint32_t generation = core->graphs[id].generation + 1;
    core->graphs[id] = (fby_graph_t){.first_join = FBY_NONE,
                                     .last_join = FBY_NONE,
                                     .session = session,
                                     .lease_until = FBY_NEVER,
                                     .generation = generation,
                                     .used = 1,
                                     .growing = 1};
    fby_list_init(core->io, fby_io_graph(core, id));
    return id;
}

/* Queues the graph on the read lane when it has items that are not begun. */
void fby_graph_queue(fby_core_t *core, uint32_t id)
{
    fby_graph_t *g = &core->graphs[id];
    if (!g->queued && !fby_list_empty(core->io, fby_io_graph(core, id))) {
        g->queued = 1;
        fby_list_push_back(core->lane, core->graph_count, id);
    }
}

static void graph_unqueue(fby_core_t *core, uint32_t id)
{
    if (core->graphs[id].queued && fby_list_empty(core->io, fby_io_graph(core, id))) {
        core->graphs[id].queued = 0;
        fby_list_remove(core->lane, id);
    }
}

/* The one logical end of a graph: every item it will ever have has ended. */
static void graph_end_if_due(fby_core_t *core, uint32_t id)
{
    fby_graph_t *g = &core->graphs[id];
    if (g->growing || g->counted_end || g->ended < g->items)
        return;
    g->counted_end = 1;
    core->stats.graphs++;
    fby_join_wake(core, id); /* who waits for it may take over what its owner cannot publish yet */
    core->stats.graphs_recalled += !g->begun;
    if (g->begun && core->config.graph_time)
        fby_histogram_add(core->config.graph_time, fby_sub_sat(core->now, g->begun_at));
    if (g->begun && !g->failed && core->now > g->begun_at)
        fby_estimate_add(&core->estimate, g->items, core->now - g->begun_at, core->now);
    if (g->session != FBY_NONE) {
        fby_sess(core, g->session)->measured += g->begun && !g->failed;
        fby_mark_dirty(core, g->session);
    }
}

/* A graph that got no item: as if it had not been made. Its window place was not taken yet. */
void fby_graph_unmake(fby_core_t *core, uint32_t id)
{
    fby_graph_t *g = &core->graphs[id];
    g->counted_end = 1;
    g->growing = 0;
    g->session = FBY_NONE;
    fby_graph_settle(core, id);
}

void fby_graph_settle(fby_core_t *core, uint32_t id)
{
    fby_graph_t *g = &core->graphs[id];
    graph_unqueue(core, id);
    graph_end_if_due(core, id);
    if (!g->used || g->growing || g->live > 0 || g->ended < g->items || g->held || g->session != FBY_NONE)
        return;
    fby_join_wake(core, id);
    fby_join_remove_graph(core, id);
    g->used = 0;
    core->graph_free[core->graph_free_count++] = id;
}

/* ---- Flight table ---- */

static uint32_t flight_bucket(const fby_core_t *core, const fby_hash_t *hash, uint32_t group)
{
    /* chain hashes are uniform already; the group only needs to spread */
    return (uint32_t)(hash->w[0] + group * UINT64_C(0x9e3779b97f4a7c15)) & core->flight_mask;
}

uint32_t fby_flight_find(const fby_core_t *core, const fby_hash_t *hash, uint32_t group)
{
    uint32_t slot = core->flight[flight_bucket(core, hash, group)];
    while (slot != FBY_NONE) {
        if (fby_hash_equal(&core->items[slot].hash, hash) && core->config.slots->slot[slot].group == group)
            return slot;
        slot = core->items[slot].flight_next;
    }
    return FBY_NONE;
}

void fby_flight_add(fby_core_t *core, uint32_t slot)
{
    fby_item_t *item = &core->items[slot];
    uint32_t bucket = flight_bucket(core, &item->hash, core->config.slots->slot[slot].group);
    item->flight_next = core->flight[bucket];
    core->flight[bucket] = slot;
    item->in_flight = 1;
}

void fby_flight_remove(fby_core_t *core, uint32_t slot)
{
    fby_item_t *item = &core->items[slot];
    if (!item->in_flight)
        return;
    uint32_t *at = &core->flight[flight_bucket(core, &item->hash, core->config.slots->slot[slot].group)];
    while (*at != slot)
        at = &core->items[*at].flight_next;
    *at = item->flight_next;
    item->in_flight = 0;
}

/* ---- Items ---- */

/* Claims a staging slot into an entry and its graph; reserved was not charged yet. */
void fby_item_add(fby_core_t *core, uint32_t slot, uint32_t entry, uint32_t graph, const fby_hash_t *hash,
                  uint32_t block, bool joinable)
{
    fby_entry_t *e = &core->entries[entry];
    core->items[slot] = (fby_item_t){.hash = *hash,
                                     .block = block,
                                     .entry = entry,
                                     .graph = graph,
                                     .put = FBY_NONE,
                                     .node = FBY_NONE,
                                     .flight_next = FBY_NONE,
                                     .state = FBY_ITEM_QUEUED};
    fby_list_push_back(core->own, fby_own_entry(core, entry), slot);
    fby_list_push_back(core->io, fby_io_graph(core, graph), slot);
    if (joinable)
        fby_flight_add(core, slot);
    e->pending++;
    core->graphs[graph].items++;
    core->graphs[graph].live++;
    core->reserved += fby_slot_bytes(core, slot);
    fby_sess(core, e->session)->inflight_bytes += fby_slot_bytes(core, slot);
}

/* Takes the item out of its owner's hands; the caller has moved the slot or does so next. */
static void item_release_owner(fby_core_t *core, uint32_t slot)
{
    fby_item_t *item = &core->items[slot];
    fby_list_remove(core->own, slot);
    if (item->entry != FBY_NONE) {
        fby_sess_t *s = fby_sess(core, core->entries[item->entry].session);
        s->inflight_bytes -= fby_slot_bytes(core, slot);
        fby_mark_changed(core, core->entries[item->entry].session);
        item->entry = FBY_NONE;
    }
    fby_flight_remove(core, slot);
}

static void item_settled(fby_core_t *core, uint32_t slot)
{
    uint32_t graph = core->items[slot].graph;
    core->items[slot].graph = FBY_NONE;
    core->items[slot].state = FBY_ITEM_NONE;
    fby_join_wake(core, graph);
    fby_graph_t *g = &core->graphs[graph];
    g->live--;
    /* not for every block that publishes: only when something can follow */
    if (g->live == 0 || g->queued || (g->ended == g->items && !g->counted_end))
        fby_graph_settle(core, graph);
}

/* An ended item that nobody wants: its slot is free again. Published items come here too, after their slot moved. */
void fby_item_drop(fby_core_t *core, uint32_t slot)
{
    FBY_REQUIRE(core, core->items[slot].state == FBY_ITEM_ENDED, "V9 only ended items settle");
    item_release_owner(core, slot);
    core->reserved -= fby_slot_bytes(core, slot);
    if (core->config.slots->slot[slot].state == FBY_SLOT_STAGING) {
        if (core->items[slot].result == 0)
            core->stats.bytes_wasted += fby_slot_bytes(core, slot);
        fby_slot_move(core->config.slots, slot, FBY_SLOT_STAGING, FBY_SLOT_FREE, 0);
        fby_room_freed(core);
    }
    item_settled(core, slot);
}

static bool code_retries(int32_t code)
{
    return code == FBY_E_CONNECTION || code == FBY_E_TIMEOUT || code == FBY_E_LEASE || code == -EAGAIN;
}

/* One retry per key, only for somebody who is not sealed, only when it can end before the deadline. */
static bool retry_allowed(const fby_core_t *core, uint32_t slot)
{
    const fby_item_t *item = &core->items[slot];
    if (item->retried || core->closed || core->now > core->graphs[item->graph].lease_until)
        return false; /* behind the lease a retry could only fail again */
    uint64_t ends = fby_add_sat(core->now, fby_estimate_ns(&core->estimate, 1));
    const fby_sess_t *s = &core->sessions[core->entries[item->entry].session];
    if (s->reason == FBY_REASON_NONE && ends < s->deadline)
        return true;
    for (uint32_t j = core->graphs[item->graph].first_join; j != FBY_NONE; j = core->joins[j].next_in_graph) {
        s = &core->sessions[core->entries[core->joins[j].entry].session];
        if (fby_join_covers(core, core->joins[j].entry, slot) && s->reason == FBY_REASON_NONE && ends < s->deadline)
            return true;
    }
    return false;
}

static void count_failure(fby_core_t *core, int32_t code)
{
    fby_stats_t *t = &core->stats;
    switch (code) {
    case FBY_E_MISSING:
        t->fail_missing++;
        break;
    case FBY_E_NOT_READY:
        t->fail_not_ready++;
        break;
    case FBY_E_SIZE:
        t->fail_size++;
        break;
    case FBY_E_CHECKSUM:
        t->fail_checksum++;
        break;
    case FBY_E_LEASE:
        t->fail_lease++;
        break;
    case FBY_E_TIMEOUT:
        t->fail_timeout++;
        break;
    case FBY_E_CONNECTION:
        t->fail_connection++;
        break;
    case FBY_E_RECALLED:
        break;
    default:
        t->fail_other++;
    }
}

static void item_failed(fby_core_t *core, uint32_t slot, int32_t code, bool physical)
{
    fby_item_t *item = &core->items[slot];
    uint32_t group = core->config.slots->slot[slot].group, entry = item->entry;
    count_failure(core, code);
    if (code != FBY_E_RECALLED && code != FBY_E_TIMEOUT && code != FBY_E_CONNECTION && code != FBY_E_LEASE)
        fby_negative_add(core, &item->hash, group);
    fby_flight_remove(core, slot);
    fby_join_failed(core, slot, code);
    item_release_owner(core, slot);
    if (physical) {
        core->reserved -= fby_slot_bytes(core, slot);
        fby_slot_move(core->config.slots, slot, FBY_SLOT_STAGING, FBY_SLOT_FREE, 0);
        fby_room_freed(core);
    } else {
        fby_quarantine(core, slot);
    }
    fby_entry_t *e = &core->entries[entry];
    uint32_t session = e->session, block = item->block;
    if (fby_is_all(core, group) && block < e->bad_block) {
        e->bad_block = block;
        e->bad_code = code;
    }
    item_settled(core, slot);
    if (code != FBY_E_RECALLED && fby_is_all(core, group))
        fby_session_gap(core, session, code);
    else if (code != FBY_E_RECALLED && fby_sess(core, session)->error == 0)
        fby_sess(core, session)->error = code; /* a lost checkpoint: told if the answer is short */
    fby_mark_changed(core, session);
}

/* The item's logical end, once. physical: the store will not touch the slot again. */
void fby_item_ended(fby_core_t *core, uint32_t slot, int32_t code, bool physical)
{
    fby_item_t *item = &core->items[slot];
    fby_graph_t *g = &core->graphs[item->graph];
    if (code != 0 && physical && code_retries(code) && retry_allowed(core, slot)) {
        item->retried = 1;
        item->state = FBY_ITEM_QUEUED;
        fby_list_remove(core->io, slot);
        fby_list_push_back(core->io, fby_io_graph(core, item->graph), slot);
        core->stats.retries++;
        fby_graph_queue(core, item->graph);
        return;
    }
    if (physical || item->state == FBY_ITEM_QUEUED)
        fby_list_remove(core->io, slot); /* a lapsed one stays on its op's list until the physical end */
    if (item->state == FBY_ITEM_QUEUED)
        graph_unqueue(core, item->graph);
    item->state = FBY_ITEM_ENDED;
    item->result = code;
    g->ended++;
    g->failed |= code != 0; /* then what it took says nothing about the store's service time */
    graph_end_if_due(core, item->graph);
    core->entries[item->entry].pending--;
    fby_mark_dirty(core, core->entries[item->entry].session);
    if (code != 0) {
        item_failed(core, slot, code, physical);
        return;
    }
    core->stats.bytes_read += fby_slot_bytes(core, slot);
    fby_negative_clear(core, &item->hash, core->config.slots->slot[slot].group);
}
