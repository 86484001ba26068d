/*
 * admit.c - budgets: who may claim how much.
 *
 *   pinned + reserved <= max_pinned      room for staging to become pinned is kept in advance
 *   reserved          <= max_reserved
 *
 * A session asks for its planned blocks before its first claim and whenever its plan grows; it claims within its grant.
 * Room is what is free or evictable less what is granted and not claimed yet. Grants go by deadline with ageing; growth
 * before first requests; smaller ones may pass until the first in line has aged.
 */
#include "core/internal.h"

#define FBY_AGE_NS (10 * FBY_SECOND) /* after that long nobody passes the first in line */
#define FBY_EVICT_STEP 64u           /* blocks evicted ahead of the watermark in one critical section */
#define FBY_ADMIT_TRIES 16u          /* requests looked at per queue and turn */

uint64_t fby_pinned(const fby_core_t *core)
{
    return fby_index_charged_bytes(core->config.index, FBY_PIN_SESSION) + core->private_pinned;
}

uint64_t fby_room_blocks(const fby_core_t *core)
{
    uint64_t room = UINT64_MAX;
    for (uint32_t g = 0; g < core->config.groups; g++) {
        if (!fby_is_all(core, g))
            continue;
        uint64_t can = (uint64_t)fby_slots_free(core->config.slots, g) + fby_index_evictable(core->config.index, g);
        can += core->writes_queued[g]; /* dropped when there is nothing else */
        room = FBY_MIN(room, can);
    }
    return fby_sub_sat(room, core->unused_blocks);
}

uint64_t fby_room_bytes(const fby_core_t *core)
{
    uint64_t used = fby_pinned(core) + core->reserved + core->unused_blocks * core->block_bytes;
    return fby_sub_sat(core->config.max_pinned_bytes, used);
}

/* Staging in flight, leases, store writes, walks, sessions that may claim, and queries can free room by themselves. */
bool fby_can_pass(const fby_core_t *core)
{
    bool claims = core->ready.count > 0 && !core->claims_stuck;
    bool asks = core->queries_out > 0 || !fby_list_empty(core->querying, core->config.session_slots);
    return core->unsettled > 0 || core->leases > 0 || core->ops_writes > 0 || core->write_queue > 0 || claims || asks ||
           fby_index_walking(core->config.index) || core->old_unsettled > 0 || core->sweeping;
}

void fby_room_freed(fby_core_t *core)
{
    core->room_changed = true;
    core->claims_stuck = false;
}

uint32_t fby_slot_get(fby_core_t *core, uint32_t group, uint32_t owner)
{
    uint32_t slot = fby_slot_take(core->config.slots, group, owner);
    while (slot == FBY_NONE) {
        if (fby_index_evict(core->config.index, group))
            slot = fby_slot_take(core->config.slots, group, owner);
        else if (!fby_put_drop_write(core)) /* dirty victims: a claim never waits for a write that has not begun */
            break;
    }
    return slot;
}

/* New blocks that could be had if every session, lease and staging ended: holds, quarantine, retired do not pass. */
static uint64_t cap_blocks(const fby_core_t *core, const fby_sess_t *s, fby_reason_t *reason)
{
    const fby_slots_t *slots = core->config.slots;
    uint64_t held = (fby_hold_bytes(core) + core->block_bytes - 1) / core->block_bytes, pool = UINT64_MAX;
    bool start_held = s->run_node != FBY_NONE && fby_index_is_charged(core->config.index, s->run_node, FBY_PIN_HOLD);
    for (uint32_t g = 0; g < core->config.groups; g++) {
        if (!fby_is_all(core, g))
            continue;
        uint64_t stuck = (uint64_t)slots->in_state[g][FBY_SLOT_QUARANTINE] + slots->in_state[g][FBY_SLOT_RETIRED];
        pool = FBY_MIN(pool, fby_sub_sat(slots->count[g], stuck));
    }
    uint32_t start = s->private_run ? 0 : s->start;
    pool = fby_sub_sat(pool, held + (start_held ? 0 : start));
    uint64_t pinned = fby_sub_sat(core->config.max_pinned_bytes, core->quarantined) / core->block_bytes;
    pinned = fby_sub_sat(pinned, start);
    *reason = pinned < pool ? FBY_REASON_CAPACITY_PINNED : FBY_REASON_CAPACITY_POOL;
    return FBY_MIN(pool, pinned);
}

static uint32_t plan_end(const fby_sess_t *s)
{
    return FBY_MIN(s->target, s->clamp_end);
}

bool fby_admit_covers(const fby_sess_t *s)
{
    return s->grant_end > s->cursor && s->grant_end >= plan_end(s);
}

/* Which limit is short for that many more blocks. */
fby_reason_t fby_short_reason(const fby_core_t *core, uint64_t blocks)
{
    if (fby_room_blocks(core) < blocks)
        return FBY_REASON_CAPACITY_POOL;
    return fby_room_bytes(core) < blocks * core->block_bytes ? FBY_REASON_CAPACITY_PINNED
                                                             : FBY_REASON_CAPACITY_RESERVED;
}

static bool admit_try(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    fby_reason_t reason;
    uint64_t cap = cap_blocks(core, s, &reason);
    if (plan_end(s) - s->start > cap) {
        s->clamp_end = s->start + (uint32_t)cap;
        s->clamp_reason = reason;
        if (s->clamp_end <= s->cursor) {
            fby_session_seal(core, id, reason);
            return true;
        }
    }
    uint32_t end = plan_end(s), from = FBY_MAX(s->grant_end, s->cursor);
    uint64_t need = fby_sub_sat(end, from);
    if (need > fby_room_blocks(core) || need > fby_room_bytes(core) / core->block_bytes)
        return false;
    core->unused_blocks += need;
    s->grant_end = FBY_MAX(end, s->grant_end);
    return true;
}

/* Grants at once when nobody waits before it; else queues. */
void fby_admit_ask(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    if (fby_heap_has(&core->grow, id) || fby_heap_has(&core->first, id))
        return;
    bool growth = s->graphs > 0;
    fby_heap_t *queue = growth ? &core->grow : &core->first;
    bool someone = core->grow.count > 0 || (!growth && core->first.count > 0);
    if (!someone && admit_try(core, id))
        return;
    if (s->asked_at == FBY_NEVER)
        s->asked_at = core->now;
    fby_heap_set(queue, id, FBY_MIN(s->deadline, fby_add_sat(s->asked_at, FBY_AGE_NS)));
    core->room_changed = true; /* this turn looks at the queue once */
}

/* The room of [cursor, grant_end) goes back. */
void fby_admit_return(fby_core_t *core, uint32_t id)
{
    fby_sess_t *s = fby_sess(core, id);
    fby_heap_remove(&core->grow, id);
    fby_heap_remove(&core->first, id);
    if (s->grant_end > s->cursor) {
        core->unused_blocks -= s->grant_end - s->cursor;
        fby_room_freed(core);
    }
    s->grant_end = s->cursor;
}

/* The cursor moved over `blocks` blocks: their part of the grant is used, or not needed any more. */
void fby_admit_use(fby_core_t *core, uint32_t id, uint32_t blocks)
{
    fby_sess_t *s = fby_sess(core, id);
    uint32_t before = s->cursor - blocks;
    if (s->grant_end > before)
        core->unused_blocks -= FBY_MIN(s->grant_end, s->cursor) - before;
    if (s->grant_end < s->cursor)
        s->grant_end = s->cursor;
}

/* Grants what fits, in order; true when anything was granted. */
static bool admit_queue(fby_core_t *core, fby_heap_t *queue)
{
    uint32_t aside[FBY_ADMIT_TRIES], count = 0;
    uint64_t keys[FBY_ADMIT_TRIES];
    bool granted = false;
    while (queue->count && count < FBY_ADMIT_TRIES) {
        uint32_t id = fby_heap_top(queue);
        uint64_t key = fby_heap_top_key(queue);
        fby_heap_remove(queue, id);
        if (fby_sess(core, id)->reason != FBY_REASON_NONE)
            continue;
        if (admit_try(core, id)) {
            fby_claim_consider(core, id);
            granted = true;
            continue;
        }
        aside[count] = id;
        keys[count++] = key;
        if (core->now >= key)
            break; /* aged: nobody passes */
    }
    for (uint32_t i = 0; i < count; i++)
        fby_heap_set(queue, aside[i], keys[i]);
    return granted;
}

/* The one to give way when everybody waits for everybody: latest deadline, then the youngest. count > 0. */
uint32_t fby_admit_victim(const fby_core_t *core, const uint32_t *ids, uint32_t count)
{
    uint32_t victim = ids[0];
    for (uint32_t i = 1; i < count; i++) {
        const fby_sess_t *s = &core->sessions[ids[i]], *v = &core->sessions[victim];
        if (s->deadline != v->deadline ? s->deadline > v->deadline
                                       : s->created > v->created || (s->created == v->created && ids[i] > victim))
            victim = ids[i];
    }
    return victim;
}

void fby_admit_run(fby_core_t *core)
{
    if (core->grow.count == 0 && core->first.count == 0) {
        core->room_changed = false;
        return;
    }
    if (!core->room_changed && fby_can_pass(core))
        return;
    core->room_changed = false;
    bool granted = admit_queue(core, &core->grow);
    if (core->grow.count == 0 || core->now < fby_heap_top_key(&core->grow))
        granted |= admit_queue(core, &core->first);
    if (granted || fby_can_pass(core))
        return;
    const fby_heap_t *queue = core->grow.count ? &core->grow : &core->first;
    if (queue->count == 0)
        return;
    uint32_t victim = fby_admit_victim(core, queue->ids, queue->count);
    const fby_sess_t *s = fby_sess(core, victim);
    fby_session_seal(core, victim, fby_short_reason(core, FBY_MAX(plan_end(s) - s->cursor, 1)));
    core->room_changed = true;
}

/* Watermarks: once a group's used share passes evict_start, blocks go until evict_ratio less is used. A step per call. */
void fby_evict_ahead(fby_core_t *core)
{
    const fby_core_config_t *c = &core->config;
    core->evicting = false;
    if (c->evict_start <= 0)
        return;
    for (uint32_t g = 0; g < c->groups; g++) {
        double total = c->slots->count[g], used = total - fby_slots_free(c->slots, g);
        if (used > c->evict_start * total)
            core->evict_group |= 1u << g;
        uint32_t steps = FBY_EVICT_STEP;
        for (; (core->evict_group >> g & 1) && steps; steps--) {
            if (used <= (c->evict_start - c->evict_ratio) * total || !fby_index_evict_one(core->config.index, g))
                core->evict_group &= ~(1u << g);
            else
                used--;
        }
        core->evicting |= steps == 0;
    }
}
