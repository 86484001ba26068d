/*
 * ledger.c - ordered publication.
 *
 * Graphs end in any order; the ledger resolves its head first. A head entry whose items have all ended publishes its
 * longest run of verified blocks, in steps of FBY_STEP_BLOCKS; the first failed block closes the prefix and everything
 * behind it is dropped. A block becomes visible in publish_block, and for private runs when they end in lease.c.
 */
#include "core/internal.h"

static bool entry_owns(const fby_core_t *core, uint32_t entry, uint32_t slot)
{
    return slot != FBY_NONE && core->items[slot].entry == entry;
}

static bool entry_joined(const fby_core_t *core, uint32_t entry, uint32_t graph)
{
    for (uint32_t j = core->entries[entry].first_join; j != FBY_NONE; j = core->joins[j].next_in_entry)
        if (core->joins[j].graph == graph)
            return true;
    return false;
}

/*
 * Must the head entry wait for another entry's payload? What has ended well with an owner that waits itself may be taken
 * over, or each could wait for what the other one owns. An owner that counts on a block already (scan) keeps it: of
 * entries that wait in a circle, the one that has come furthest finds the next one's free.
 */
static bool must_wait(const fby_core_t *core, uint32_t entry, uint32_t slot)
{
    if (slot == FBY_NONE || entry_owns(core, entry, slot))
        return false;
    const fby_item_t *item = &core->items[slot];
    const fby_entry_t *owner = &core->entries[item->entry];
    bool waits = owner->first_join != FBY_NONE || core->sessions[owner->session].ledger_head != item->entry;
    bool counted = fby_is_all(core, core->config.slots->slot[slot].group) && item->block < owner->scan;
    bool can_join = core->join_free_count > 0 || entry_joined(core, item->entry, item->graph);
    return item->state != FBY_ITEM_ENDED || item->result != 0 || !waits || counted || !can_join;
}

/* After must_wait said no. The former owner joins, so that it waits for the publication like anybody else. */
static void take_if_foreign(fby_core_t *core, uint32_t entry, uint32_t slot)
{
    if (slot == FBY_NONE || entry_owns(core, entry, slot))
        return;
    fby_join_add(core, core->items[slot].entry, core->items[slot].graph);
    fby_join_take_over(core, slot, entry);
}

/* Trailing payloads that the entry needs and another session still reads. Takes over all or none. */
static bool payloads_in_flight(fby_core_t *core, uint32_t entry)
{
    const fby_entry_t *e = &core->entries[entry];
    const fby_sess_t *s = &core->sessions[e->session];
    for (unsigned take = 0; take < 2; take++) {
        for (uint32_t g = 0; g < core->config.groups && e->checkpoint; g++) {
            uint32_t n = core->config.trailing[g];
            for (uint32_t block = e->checkpoint > n ? e->checkpoint - n : 0; n && block < e->checkpoint; block++) {
                uint32_t slot = fby_flight_find(core, &s->seq.hashes[block], g);
                if (slot == FBY_NONE || !entry_joined(core, entry, core->items[slot].graph))
                    continue;
                if (take)
                    take_if_foreign(core, entry, slot);
                else if (must_wait(core, entry, slot))
                    return true;
            }
        }
    }
    return false;
}

/* All of one block is here, ended and this entry's, or resident. A block comes as a whole: all groups or none. */
static bool block_settled(fby_core_t *core, uint32_t entry, uint32_t block)
{
    fby_entry_t *e = &core->entries[entry];
    const fby_hash_t *hash = &core->sessions[e->session].seq.hashes[block];
    uint32_t slots[FBY_MAX_GROUPS] = {0};
    bool there = false;
    for (uint32_t g = 0; g < core->config.groups; g++) {
        slots[g] = fby_is_all(core, g) ? fby_flight_find(core, hash, g) : FBY_NONE;
        if (must_wait(core, entry, slots[g]))
            return false;
        there |= slots[g] != FBY_NONE;
    }
    for (uint32_t g = 0; g < core->config.groups; g++)
        take_if_foreign(core, entry, slots[g]);
    if (!there && fby_index_find(core->config.index, hash) == FBY_NONE) {
        e->bad_block = block; /* published and evicted again, or given up by an owner we could not inherit from */
        e->bad_code = FBY_E_MISSING;
    }
    return true;
}

/* Every block is resident, owned and ended, or known to be bad. Blocks below e->scan were found so before. */
static bool entry_settled(fby_core_t *core, uint32_t entry, uint32_t *budget)
{
    fby_entry_t *e = &core->entries[entry];
    if (e->growing || e->pending > 0)
        return false;
    if (e->first_join == FBY_NONE)
        return true;
    for (; e->scan < e->end && e->scan < e->bad_block; e->scan++) {
        if (*budget == 0 || !block_settled(core, entry, e->scan))
            return false;
        (*budget)--;
    }
    /* a checkpoint behind a bad block is lost: waiting for its payloads could be waiting for whoever waits for us */
    return e->checkpoint > e->bad_block || !payloads_in_flight(core, entry);
}

static void make_private(fby_core_t *core, uint32_t session, uint32_t slot)
{
    fby_slot_move(core->config.slots, slot, FBY_SLOT_STAGING, FBY_SLOT_PRIVATE, session);
    fby_item_drop(core, slot);
    fby_list_push_back(core->own, fby_own_session(core, session), slot);
    core->private_pinned += fby_slot_bytes(core, slot);
}

/* Payloads of the `all` groups at the front of the entry's list that belong to `block`. */
static uint32_t own_slots(const fby_core_t *core, uint32_t entry, uint32_t block, uint32_t *slots)
{
    uint32_t found = 0, head = fby_own_entry(core, entry);
    for (uint32_t g = 0; g < core->config.groups; g++)
        slots[g] = FBY_NONE;
    for (uint32_t slot = core->own[head].next; slot != head; slot = core->own[slot].next) {
        uint32_t group = core->config.slots->slot[slot].group;
        if (!fby_is_all(core, group) || core->items[slot].block != block)
            break;
        slots[group] = slot;
        found++;
    }
    return found;
}

/* Makes one verified block visible (or private). *node: its node, in: its parent's. false: the block is not there. */
static bool publish_block(fby_core_t *core, uint32_t session, uint32_t entry, uint32_t block, uint32_t *node,
                          uint64_t *unpinned)
{
    fby_sess_t *s = fby_sess(core, session);
    fby_index_t *index = core->config.index;
    uint32_t slots[FBY_MAX_GROUPS] = {0};
    uint32_t found = own_slots(core, entry, block, slots);
    if (s->private_run) {
        if (found < core->all_groups)
            return false;
        for (uint32_t g = 0; g < core->config.groups; g++)
            if (slots[g] != FBY_NONE)
                make_private(core, session, slots[g]);
        return true;
    }
    const fby_hash_t *hash = &s->seq.hashes[block];
    uint32_t there = fby_index_find(index, hash);
    if (there == FBY_NONE) {
        if (found < core->all_groups)
            return false;
        there = fby_index_insert(index, *node, hash, slots, true);
        if (!FBY_REQUIRE(core, there != FBY_NONE, "V7 nodes are bounded by slots"))
            return false;
    } else if (found) {
        core->stats.duplicates++;
    } else if (!fby_index_is_charged(index, there, FBY_PIN_SESSION)) {
        /* others published what we waited for, and it is nobody's charge by now: it needs room of its own */
        if (fby_room_bytes(core) < *unpinned + core->block_bytes)
            return false;
        *unpinned += core->block_bytes;
    }
    if (found)
        *unpinned += core->block_bytes;
    for (uint32_t g = 0; g < core->config.groups; g++)
        if (slots[g] != FBY_NONE)
            fby_item_drop(core, slots[g]);
    *node = there;
    return true;
}

static void count_block(fby_sess_t *s, const fby_entry_t *e, uint32_t block)
{
    if (block < e->local_end) {
        s->skipped_end = block + 1;
        return;
    }
    if (s->loaded_committed++ == 0)
        s->span_start = block;
    s->span_end = block + 1;
}

/* A graph whose blocks are being published stays until its joiners are protected, also when its last item goes. */
static void hold_graph(fby_core_t *core, uint32_t graph, bool hold, uint32_t published_end)
{
    if (graph == FBY_NONE)
        return;
    core->graphs[graph].held = hold;
    if (hold)
        return;
    fby_join_protect(core, graph, published_end);
    fby_graph_settle(core, graph);
}

/* The run pin moves to the last block that was published. */
static void move_run_pin(fby_core_t *core, fby_sess_t *s, uint32_t node)
{
    if (s->private_run || node == s->run_node)
        return;
    fby_index_pin(core->config.index, node, FBY_PIN_SESSION);
    if (s->run_node != FBY_NONE)
        fby_index_unpin(core->config.index, s->run_node, FBY_PIN_SESSION, false);
    s->run_node = node;
}

/* Publishes from the entry's begin on; moves the run pin to what was published. */
static void publish_run(fby_core_t *core, uint32_t session, uint32_t entry, uint32_t *budget)
{
    fby_sess_t *s = fby_sess(core, session);
    fby_entry_t *e = &core->entries[entry];
    uint32_t node = s->run_node, graph = FBY_NONE;
    uint64_t unpinned = 0; /* out of reserved, or new, and not charged as pinned before the run's end */
    while (*budget > 0 && e->begin < e->end && e->begin < e->bad_block) {
        uint32_t head = fby_own_entry(core, entry), front = core->own[head].next;
        uint32_t from = front == head ? FBY_NONE : core->items[front].graph;
        if (graph != from) {
            hold_graph(core, graph, false, e->begin);
            hold_graph(core, from, true, 0);
        }
        graph = from;
        if (!publish_block(core, session, entry, e->begin, &node, &unpinned)) {
            e->bad_block = e->begin;
            e->bad_code = FBY_E_MISSING;
            break;
        }
        count_block(s, e, e->begin);
        e->begin++;
        (*budget)--;
    }
    hold_graph(core, graph, false, e->begin);
    move_run_pin(core, s, node);
    s->committed = s->resolved = e->begin;
    e->scan = FBY_MAX(e->scan, e->begin);
    fby_mark_changed(core, session);
}

/* The trailing payloads that came with the entry: they attach to blocks that are indexed by now. */
static void attach_payloads(fby_core_t *core, uint32_t session, uint32_t entry)
{
    fby_sess_t *s = fby_sess(core, session);
    uint32_t head = fby_own_entry(core, entry);
    for (uint32_t slot = core->own[head].next, next; slot != head; slot = next) {
        next = core->own[slot].next;
        const fby_item_t *item = &core->items[slot];
        uint32_t group = core->config.slots->slot[slot].group;
        if (fby_is_all(core, group))
            continue;
        if (s->private_run && item->block >= s->have) {
            make_private(core, session, slot);
            continue;
        }
        uint32_t node = fby_index_find(core->config.index, &item->hash);
        if (node != FBY_NONE)
            fby_index_attach(core->config.index, node, group, slot);
        fby_item_drop(core, slot); /* frees the slot unless it was attached */
    }
}

static void ledger_pop(fby_core_t *core, uint32_t session)
{
    fby_sess_t *s = fby_sess(core, session);
    uint32_t entry = s->ledger_head;
    s->resolved = core->entries[entry].end;
    s->ledger_head = core->entries[entry].next;
    if (s->ledger_head == FBY_NONE) {
        s->ledger_tail = FBY_NONE;
        core->unsettled--;
        if (s->old) {
            s->old = 0;
            core->old_unsettled--;
        }
        fby_room_freed(core);
    }
    fby_entry_free(core, entry);
    fby_mark_changed(core, session);
}

/* Behind a gap or of a discarded session: gone as soon as nothing of it is being read. */
static bool drop_head(fby_core_t *core, uint32_t session)
{
    uint32_t entry = fby_sess(core, session)->ledger_head;
    fby_entry_t *e = &core->entries[entry];
    if (e->growing)
        fby_claim_close(core, session);
    fby_join_remove_entry(core, entry);
    fby_entry_give_up(core, entry, 0, true);
    if (e->pending > 0)
        return false;
    ledger_pop(core, session);
    return true;
}

bool fby_ledger_advance(fby_core_t *core, uint32_t session, uint32_t *budget)
{
    fby_sess_t *s = fby_sess(core, session);
    while (s->ledger_head != FBY_NONE) {
        uint32_t entry = s->ledger_head;
        fby_entry_t *e = &core->entries[entry];
        if (*budget == 0)
            return true;
        if (s->discard || s->gap) {
            if (!drop_head(core, session))
                return false;
            continue;
        }
        if (!entry_settled(core, entry, budget))
            return *budget == 0;
        publish_run(core, session, entry, budget);
        if (e->begin >= e->bad_block) {
            int32_t code = e->bad_code;
            s->gap = 1;
            attach_payloads(core, session, entry);
            fby_delivered_update(core, session);
            if (code != FBY_E_RECALLED)
                fby_session_gap(core, session, code);
        } else if (e->begin == e->end) {
            attach_payloads(core, session, entry);
            ledger_pop(core, session);
            fby_delivered_update(core, session);
        }
    }
    return false;
}

void fby_ledger_give_up(fby_core_t *core, uint32_t session, uint32_t from)
{
    fby_sess_t *s = fby_sess(core, session);
    for (uint32_t entry = s->ledger_head; entry != FBY_NONE; entry = core->entries[entry].next)
        if (core->entries[entry].end > from || core->entries[entry].checkpoint > from)
            fby_entry_give_up(core, entry, from, true);
    fby_mark_dirty(core, session);
}

/* Leaves what it joined: the prefix ends at the first block that is not its own or resident. */
static void leave_joins(fby_core_t *core, uint32_t entry)
{
    fby_entry_t *e = &core->entries[entry];
    const fby_sess_t *s = &core->sessions[e->session];
    if (e->first_join == FBY_NONE)
        return;
    for (uint32_t block = e->scan; block < e->end && block < e->bad_block; block++) {
        uint32_t slot = fby_flight_find(core, &s->seq.hashes[block], 0);
        if (slot != FBY_NONE && !entry_owns(core, entry, slot)) {
            e->bad_block = block;
            e->bad_code = FBY_E_RECALLED;
        }
    }
    e->checkpoint = 0;
    fby_join_remove_entry(core, entry);
}

void fby_ledger_recall(fby_core_t *core, uint32_t session)
{
    fby_sess_t *s = fby_sess(core, session);
    for (uint32_t entry = s->ledger_head; entry != FBY_NONE; entry = core->entries[entry].next) {
        fby_entry_t *e = &core->entries[entry];
        bool joined_begun = false;
        for (uint32_t j = e->first_join; j != FBY_NONE; j = core->joins[j].next_in_entry)
            joined_begun |= core->graphs[core->joins[j].graph].begun != 0;
        if (!joined_begun)
            leave_joins(core, entry);
        if (e->graph != FBY_NONE && !core->graphs[e->graph].begun)
            fby_entry_give_up(core, entry, 0, false);
    }
    fby_mark_dirty(core, session);
}

static uint32_t first_begun(const fby_core_t *core, uint32_t entry)
{
    uint32_t head = fby_own_entry(core, entry);
    for (uint32_t slot = core->own[head].next; slot != head; slot = core->own[slot].next)
        if (core->items[slot].state == FBY_ITEM_BEGUN)
            return slot;
    return FBY_NONE;
}

/* The drain limit: stuck reads end logically (their slots go to quarantine), what was not begun is recalled. */
void fby_ledger_limit(fby_core_t *core, uint32_t session)
{
    fby_sess_t *s = fby_sess(core, session);
    fby_claim_close(core, session);
    for (uint32_t entry = s->ledger_head; entry != FBY_NONE; entry = core->entries[entry].next) {
        leave_joins(core, entry);
        fby_entry_give_up(core, entry, 0, false);
        for (uint32_t slot; (slot = first_begun(core, entry)) != FBY_NONE;)
            fby_item_ended(core, slot, FBY_E_TIMEOUT, false);
    }
    fby_mark_dirty(core, session);
}
