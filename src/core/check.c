/* check.c - V1-V15, recomputed. Slots (V7) and index (V13) check themselves; here is what ties them to sessions. */
#include <stdio.h>

#include "core/internal.h"

static bool broken(char *why, size_t size, const char *rule, uint64_t id, uint64_t a, uint64_t b)
{
    snprintf(why, size, "%s (id %llu: %llu, %llu)", rule, (unsigned long long)id, (unsigned long long)a,
             (unsigned long long)b);
    return false;
}

#define EXPECT(condition, rule, id, a, b)                                                                              \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return broken(why, why_size, rule, (uint64_t)(id), (uint64_t)(a), (uint64_t)(b));                          \
    } while (0)

/* V2: the ledger tiles [resolved, cursor); own items lie inside and are staging. */
static bool check_ledger(const fby_core_t *core, uint32_t id, char *why, size_t why_size)
{
    const fby_sess_t *s = &core->sessions[id];
    uint32_t at = s->resolved, windows = 0;
    uint64_t bytes = 0;
    for (uint32_t entry = s->ledger_head; entry != FBY_NONE; entry = core->entries[entry].next) {
        const fby_entry_t *e = &core->entries[entry];
        uint32_t pending = 0, head = fby_own_entry(core, entry);
        EXPECT(e->used && e->session == id, "V9 foreign ledger entry", id, entry, e->session);
        EXPECT(e->begin == at && e->end >= e->begin, "V2 the ledger has a hole", id, e->begin, at);
        for (uint32_t slot = core->own[head].next; slot != head; slot = core->own[slot].next) {
            const fby_item_t *item = &core->items[slot];
            EXPECT(item->entry == entry, "V9 an item has two owners", id, slot, item->entry);
            EXPECT(core->config.slots->slot[slot].state == FBY_SLOT_STAGING, "V7 an item is not staging", id, slot,
                   entry);
            pending += item->state != FBY_ITEM_ENDED;
            bytes += fby_slot_bytes(core, slot);
        }
        EXPECT(pending == e->pending, "V9 pending items", id, pending, e->pending);
        windows += e->graph != FBY_NONE;
        at = e->end;
    }
    EXPECT(at == s->cursor || s->reason != FBY_REASON_NONE, "V2 the ledger ends at the cursor", id, at, s->cursor);
    EXPECT(bytes == s->inflight_bytes, "V3 ledger bytes", id, bytes, s->inflight_bytes);
    EXPECT(windows == s->window, "window", id, windows, s->window);
    return true;
}

bool fby_check_session(const fby_core_t *core, uint32_t id, char *why, size_t why_size)
{
    const fby_sess_t *s = &core->sessions[id];
    if (!s->used || s->state == FBY_EXPIRED)
        return true;
    bool sealed = s->reason != FBY_REASON_NONE;
    EXPECT(!sealed || s->submitted == s->sealed_submitted, "V1 submitted after the seal", id, s->submitted,
           s->sealed_submitted);
    EXPECT(s->start <= s->committed && s->committed <= s->resolved && s->resolved <= s->cursor,
           "V2 start<=committed<=resolved<=cursor", id, s->committed, s->resolved);
    EXPECT(s->cursor <= s->target && s->target <= FBY_MAX(s->proven, s->have), "V2 cursor<=target<=proven", id,
           s->cursor, s->target);
    EXPECT(s->state != FBY_TERMINAL || s->ledger_head == FBY_NONE, "V5 terminal with a ledger", id, s->ledger_head, 0);
    EXPECT(s->state != FBY_TERMINAL || s->answered, "V5 terminal unanswered", id, s->state, 0);
    EXPECT(!s->lease || s->answered, "V6 lease before the answer", id, 0, 0);
    EXPECT(s->grant_end <= s->cursor || !sealed, "grant kept after the seal", id, s->grant_end, s->cursor);
    if (s->lease && !s->private_run) {
        const fby_index_t *index = core->config.index;
        EXPECT(s->lease_node != FBY_NONE && fby_index_block(index, s->lease_node) + 1 == s->lease_end, "V6 lease end",
               id, s->lease_node, s->lease_end);
        EXPECT(fby_index_pins(index, s->lease_node, FBY_PIN_SESSION) > 0, "V6 lease not pinned", id, s->lease_node, 0);
    }
    if (s->loaded_delivered > 0 && !s->discard) /* V12 */
        EXPECT(s->span_start >= s->start, "V12 span", id, s->span_start, s->start);
    return check_ledger(core, id, why, why_size);
}

static bool check_budgets(const fby_core_t *core, char *why, size_t why_size)
{
    const fby_core_config_t *c = &core->config;
    EXPECT(core->reserved <= c->max_reserved_bytes, "V3 reserved over its limit", 0, core->reserved,
           c->max_reserved_bytes);
    EXPECT(fby_pinned(core) + core->reserved <= c->max_pinned_bytes, "V4 pinned + reserved over the limit", 0,
           fby_pinned(core), core->reserved);
    EXPECT(fby_pinned(core) + core->reserved + core->unused_blocks * core->block_bytes <= c->max_pinned_bytes,
           "V4 pinned + reserved + granted over the limit", core->unused_blocks, fby_pinned(core), core->reserved);
    EXPECT(core->write_bytes <= c->write_pinned_bytes, "write budget", 0, core->write_bytes, c->write_pinned_bytes);
    EXPECT(core->running <= c->max_sessions, "running sessions", 0, core->running, c->max_sessions);
    EXPECT(c->slots->violations == 0, "V7 a slot made an illegal move", 0, c->slots->violations, 0);
    return true;
}

bool fby_core_check_step(const fby_core_t *core, char *why, size_t why_size)
{
    if (!check_budgets(core, why, why_size))
        return false;
    for (uint32_t i = 0; i < core->touched_count; i++)
        if (!fby_check_session(core, core->touched[i], why, why_size))
            return false;
    return true;
}

static bool check_sums(const fby_core_t *core, char *why, size_t why_size)
{
    uint64_t reserved = core->quarantined, unused = 0;
    uint32_t running = 0, parked = 0, leases = 0, unsettled = 0, old = 0;
    for (uint32_t id = 0; id < core->config.session_slots; id++) {
        const fby_sess_t *s = &core->sessions[id];
        if (!s->used || s->state == FBY_EXPIRED)
            continue;
        reserved += s->inflight_bytes;
        unused += fby_sub_sat(s->grant_end, s->cursor);
        running += s->running;
        parked += s->parked;
        leases += s->lease;
        unsettled += s->ledger_head != FBY_NONE;
        old += s->old;
    }
    EXPECT(reserved == core->reserved, "V3 reserved is not the sum of ledgers and quarantine", 0, reserved,
           core->reserved);
    EXPECT(unused == core->unused_blocks, "unused grants", 0, unused, core->unused_blocks);
    EXPECT(running == core->running && parked == core->parked, "running and parked", 0, running, core->running);
    EXPECT(leases == core->leases && unsettled == core->unsettled, "leases and ledgers", 0, leases, unsettled);
    EXPECT(old == core->old_unsettled, "old ledgers", 0, old, core->old_unsettled);
    return true;
}

/* Staging and quarantine, counted from the slots, against what reads and puts are charged. */
static bool check_slots(const fby_core_t *core, char *why, size_t why_size)
{
    uint64_t reserved = 0, writes = 0, private_bytes = 0;
    for (uint32_t slot = 0; slot < core->config.slots->total; slot++) {
        const fby_item_t *item = &core->items[slot];
        uint64_t bytes = fby_slot_bytes(core, slot);
        bool written = item->state != FBY_ITEM_NONE; /* a resident block's item is its store write */
        switch (core->config.slots->slot[slot].state) {
        case FBY_SLOT_STAGING:
            *(item->entry != FBY_NONE ? &reserved : &writes) += bytes;
            break;
        case FBY_SLOT_QUARANTINE:
            *(item->orphan ? &writes : &reserved) += bytes;
            break;
        case FBY_SLOT_PRIVATE:
            private_bytes += bytes;
            break;
        case FBY_SLOT_RESIDENT:
            writes += written ? bytes : 0;
            break;
        case FBY_SLOT_RETIRED:
            writes +=
                written || (item->put != FBY_NONE && fby_list_linked(core->own, slot)) ? bytes : 0; /* else a hold's */
            break;
        default:
            break;
        }
    }
    EXPECT(reserved == core->reserved, "V3 reserved is not what the slots say", 0, reserved, core->reserved);
    EXPECT(writes == core->write_bytes, "write bytes are not what the slots say", 0, writes, core->write_bytes);
    EXPECT(private_bytes == core->private_pinned + core->private_hold, "private bytes", 0, private_bytes,
           core->private_pinned);
    return true;
}

bool fby_core_check(const fby_core_t *core, char *why, size_t why_size)
{
    if (core->poisoned) {
        snprintf(why, why_size, "poisoned: %s", core->poison);
        return false;
    }
    if (!fby_slots_check(core->config.slots, why, why_size) || !fby_index_check(core->config.index, why, why_size) ||
        !check_budgets(core, why, why_size) || !check_sums(core, why, why_size) || !check_slots(core, why, why_size))
        return false;
    for (uint32_t id = 0; id < core->config.session_slots; id++)
        if (!fby_check_session(core, id, why, why_size))
            return false;
    return true;
}
