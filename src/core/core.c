/* core.c - memory, the way in and out of every call, handles, timers, stats. */
#include <stdio.h>

#include "base/log.h"
#include "core/internal.h"

/* ---- Memory ---- */

void fby_core_config_defaults(fby_core_config_t *c)
{
    if (!c->session_slots)
        c->session_slots = FBY_MIN(FBY_MAX(4096, c->max_sessions * 4), 1u << 20);
    if (!c->hold_slots)
        c->hold_slots = FBY_MAX(4096, c->max_sessions * 4);
    if (!c->put_slots)
        c->put_slots = FBY_MAX(1024, c->max_sessions * 2);
    if (!c->part_slots)
        c->part_slots = 1024;
    if (!c->entry_slots)
        c->entry_slots = FBY_MAX(1024, c->session_slots * 2) + c->max_sessions * c->max_inflight_chunks * 2;
    if (!c->read_lanes)
        c->read_lanes = 1;
}

typedef struct fby_carver {
    uint8_t *at;
    size_t used;
} fby_carver_t;

static void *carve(fby_carver_t *carver, size_t count, size_t size)
{
    void *out = carver->at ? carver->at + carver->used : NULL;
    carver->used = (size_t)fby_align_up(carver->used + count * size, 64);
    return out;
}

/* One list of every array: sizes it (at == NULL) and hands it out. */
static void carve_all(fby_core_t *core, const fby_core_config_t *c, fby_carver_t *carver)
{
    const uint32_t slots = c->slots->total, entries = c->entry_slots, sessions = c->session_slots;
    core->entry_count = core->graph_count = entries;
    core->join_count = entries * 2;
    core->items = carve(carver, slots, sizeof(*core->items));
    core->own = carve(carver, (size_t)slots + entries + sessions + c->hold_slots + c->put_slots, sizeof(fby_link_t));
    core->io = carve(carver, (size_t)slots + entries + c->part_slots + 1, sizeof(fby_link_t));
    core->flight_mask = (uint32_t)fby_pow2_ceil(FBY_MIN(slots, 1u << 22)) - 1;
    core->flight = carve(carver, (size_t)core->flight_mask + 1, sizeof(uint32_t));
    core->entries = carve(carver, entries, sizeof(*core->entries));
    core->graphs = carve(carver, entries, sizeof(*core->graphs));
    core->joins = carve(carver, core->join_count, sizeof(*core->joins));
    core->ops = carve(carver, c->part_slots, sizeof(*core->ops));
    core->sessions = carve(carver, sessions, sizeof(*core->sessions));
    core->answers = carve(carver, sessions, sizeof(*core->answers));
    core->holds = carve(carver, c->hold_slots, sizeof(*core->holds));
    core->puts = carve(carver, c->put_slots, sizeof(*core->puts));
    core->entry_free = carve(carver, entries, 4);
    core->graph_free = carve(carver, entries, 4);
    core->join_free = carve(carver, core->join_count, 4);
    core->op_free = carve(carver, c->part_slots, 4);
    core->session_free = carve(carver, sessions, 4);
    core->hold_free = carve(carver, c->hold_slots, 4);
    core->put_free = carve(carver, c->put_slots, 4);
    core->dirty = carve(carver, (size_t)sessions + 1, sizeof(fby_link_t));
    core->changed = carve(carver, (size_t)sessions + 1, sizeof(fby_link_t));
    core->querying = carve(carver, (size_t)sessions + 1, sizeof(fby_link_t));
    core->tombs = carve(carver, (size_t)sessions + 1, sizeof(fby_link_t));
    core->lane = carve(carver, (size_t)entries + 1, sizeof(fby_link_t));
    core->negative = carve(carver, FBY_NEGATIVE_SLOTS, sizeof(*core->negative));
}

static size_t heap_memory(const fby_core_config_t *c)
{
    size_t sessions = (size_t)fby_align_up(fby_heap_bytes(c->session_slots), 64);
    return sessions * 4 + (size_t)fby_align_up(fby_heap_bytes(c->session_slots + c->part_slots), 64);
}

size_t fby_core_bytes(const fby_core_config_t *config)
{
    fby_core_t sizing = {0};
    fby_carver_t carver = {NULL, 0};
    carve_all(&sizing, config, &carver);
    return (size_t)fby_align_up(sizeof(fby_core_t), 64) + carver.used + heap_memory(config);
}

static void init_lists(fby_core_t *core)
{
    const fby_core_config_t *c = &core->config;
    const uint32_t slots = c->slots->total;
    for (uint32_t i = 0; i < slots + core->entry_count + c->session_slots + c->hold_slots + c->put_slots; i++)
        fby_list_init(core->own, i);
    for (uint32_t i = 0; i < slots + core->graph_count + c->part_slots + 1; i++)
        fby_list_init(core->io, i);
    fby_link_t *lists[] = {core->dirty, core->changed, core->querying, core->tombs};
    for (uint32_t list = 0; list < FBY_ARRAY_LEN(lists); list++)
        for (uint32_t i = 0; i <= c->session_slots; i++)
            fby_list_init(lists[list], i);
    for (uint32_t i = 0; i <= core->graph_count; i++)
        fby_list_init(core->lane, i);
    for (uint32_t i = 0; i <= core->flight_mask; i++)
        core->flight[i] = FBY_NONE;
}

/* Lowest ids come first off a stack of free ids. */
static uint32_t fill_stack(uint32_t *stack, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        stack[i] = count - 1 - i;
    return count;
}

static void init_heaps(fby_core_t *core, uint8_t *memory)
{
    fby_heap_t *heaps[] = {&core->ready, &core->grow, &core->first, &core->park};
    size_t bytes = (size_t)fby_align_up(fby_heap_bytes(core->config.session_slots), 64);
    for (uint32_t i = 0; i < FBY_ARRAY_LEN(heaps); i++)
        fby_heap_init(heaps[i], core->config.session_slots, memory + i * bytes);
    fby_heap_init(&core->timers, core->config.session_slots + core->config.part_slots,
                  memory + FBY_ARRAY_LEN(heaps) * bytes);
}

static void init_model(fby_core_t *core)
{
    const fby_core_config_t *c = &core->config;
    for (uint32_t g = 0; g < c->groups; g++) {
        if (c->trailing[g] == 0) {
            core->all_groups++;
            core->block_bytes += c->slot_bytes[g];
        } else {
            core->trailing_groups++;
            core->trailing_max = FBY_MAX(core->trailing_max, c->trailing[g]);
        }
    }
    uint64_t window = FBY_MAX(c->max_inflight_chunks, 1);
    uint64_t most = c->max_reserved_bytes / (2 * window) / core->block_bytes;
    core->chunk_blocks = (uint32_t)FBY_MAX(FBY_MIN((uint64_t)c->chunk_max_blocks, most), 1);
}

fby_core_t *fby_core_init(const fby_core_config_t *config, void *memory)
{
    fby_core_t *core = memory;
    size_t head = (size_t)fby_align_up(sizeof(*core), 64);
    core->config = *config;
    core->epoch = config->epoch;
    core->generation = config->handle_seed;
    init_model(core);
    fby_carver_t carver = {(uint8_t *)memory + head, 0};
    carve_all(core, config, &carver);
    init_heaps(core, (uint8_t *)memory + head + carver.used);
    init_lists(core);
    core->entry_free_count = fill_stack(core->entry_free, core->entry_count);
    core->graph_free_count = fill_stack(core->graph_free, core->graph_count);
    core->join_free_count = fill_stack(core->join_free, core->join_count);
    core->op_free_count = fill_stack(core->op_free, config->part_slots);
    core->session_free_count = fill_stack(core->session_free, config->session_slots);
    core->hold_free_count = fill_stack(core->hold_free, config->hold_slots);
    core->put_free_count = fill_stack(core->put_free, config->put_slots);
    return core;
}

/* ---- Handles: their layout is in internal.h ---- */

uint64_t fby_handle_make(const fby_core_t *core, unsigned type, uint32_t id, uint32_t generation)
{
    uint64_t epoch = core->generation & FBY_HANDLE_EPOCH_MASK,
             object = (generation + core->config.handle_seed) & FBY_HANDLE_GENERATION_MASK;
    return ((uint64_t)type << FBY_HANDLE_TYPE_SHIFT) | (epoch << FBY_HANDLE_EPOCH_SHIFT) |
           (object << FBY_HANDLE_GENERATION_SHIFT) | id;
}

uint32_t fby_handle_id(const fby_core_t *core, uint64_t handle, unsigned type, bool any_epoch)
{
    uint32_t id = fby_handle_index(handle);
    if (fby_handle_type(handle) != type || (!any_epoch && !fby_handle_is_of(handle, core->generation)))
        return FBY_NONE;
    switch (type) {
    case FBY_HANDLE_SESSION:
        return id < core->config.session_slots && core->sessions[id].used && core->sessions[id].handle == handle &&
                       core->sessions[id].core_generation == core->generation
                   ? id
                   : FBY_NONE;
    case FBY_HANDLE_HOLD:
        return id < core->config.hold_slots && core->holds[id].used && core->holds[id].handle == handle &&
                       (any_epoch || core->holds[id].core_generation == core->generation)
                   ? id
                   : FBY_NONE;
    default:
        return id < core->config.put_slots && core->puts[id].used && core->puts[id].handle == handle &&
                       (any_epoch || core->puts[id].core_generation == core->generation)
                   ? id
                   : FBY_NONE;
    }
}

/* ---- The way in and out ---- */

void fby_core_emit(fby_core_t *core, const fby_core_event_t *event)
{
    if (core->config.emit)
        core->config.emit(core->config.emit_arg, event);
}

void fby_core_index_event(void *core_pointer, bool published, const fby_hash_t *hash, uint32_t block)
{
    fby_core_t *core = *(fby_core_t **)core_pointer;
    /* A sweep comes to blocks of the old generation that were published again meanwhile: those are not gone. */
    if (!published && core->resetting && fby_index_find(core->config.index, hash) != FBY_NONE)
        return;
    fby_core_emit(core, &(fby_core_event_t){
                            .type = published ? FBY_CORE_PUBLISHED : FBY_CORE_REMOVED, .hash = *hash, .block = block});
}

void fby_core_unref(fby_core_t *core, fby_core_seq_t *seq)
{
    if (seq->ref)
        fby_core_emit(core, &(fby_core_event_t){.type = FBY_CORE_UNREF, .ref = seq->ref});
    seq->ref = NULL;
}

bool fby_core_require(fby_core_t *core, bool condition, const char *rule, const char *where)
{
    if (FBY_LIKELY(condition))
        return true;
#if FBY_DEBUG
    fby_log_broken(rule, where);
#endif
    if (!core->poisoned)
        snprintf(core->poison, sizeof(core->poison), "%s at %s", rule, where);
    core->poisoned = true;
    return false;
}

const char *fby_core_poisoned(const fby_core_t *core)
{
    return core->poisoned ? core->poison : NULL;
}

void fby_mark_dirty(fby_core_t *core, uint32_t session)
{
    if (!fby_list_linked(core->dirty, session))
        fby_list_push_back(core->dirty, core->config.session_slots, session);
}

void fby_mark_changed(fby_core_t *core, uint32_t session)
{
    if (!fby_list_linked(core->changed, session))
        fby_list_push_back(core->changed, core->config.session_slots, session);
}

int fby_core_enter(fby_core_t *core, uint64_t now)
{
    if (core->poisoned)
        return FBY_E_POISONED;
    core->now = FBY_MAX(core->now, now);
    return 0;
}

static void step_dirty(fby_core_t *core, uint32_t *budget)
{
    for (uint32_t id; *budget > 0 && (id = fby_list_front(core->dirty, core->config.session_slots)) != FBY_NONE;) {
        fby_list_remove(core->dirty, id);
        (*budget)--;
        fby_session_step(core, id, budget);
    }
}

/* Bounded settling: ledgers, grants, claims; what does not fit is left to the next tick. */
static void settle(fby_core_t *core)
{
    uint32_t budget = FBY_STEP_BLOCKS, claims = FBY_STEP_BLOCKS;
    uint32_t head = core->config.session_slots;
    core->work_left = false;
    do {
        step_dirty(core, &budget);
        fby_admit_run(core);
        fby_claim_turn(core, &claims);
    } while (budget > 0 && claims > 0 && !fby_list_empty(core->dirty, head));
    fby_reset_continue(core);
    fby_evict_ahead(core);
    /* nobody can bring room any more: the next turn makes one give way */
    bool waiting = (core->grow.count || core->first.count) && (core->room_changed || !fby_can_pass(core));
    if (!fby_list_empty(core->dirty, head) || (core->ready.count && !core->claims_stuck) || waiting || core->sweeping ||
        core->evicting || fby_index_walking(core->config.index))
        core->work_left = true;
}

void fby_core_leave(fby_core_t *core)
{
    settle(core);
    fby_snapshots_publish(core);
    FBY_REQUIRE(core, core->config.slots->violations == 0, "V7 a slot made an illegal move");
#if FBY_DEBUG
    char why[200];
    if (!fby_core_check_step(core, why, sizeof(why)))
        fby_core_require(core, false, why, "fby_core_leave");
#endif
}

/* ---- Time ---- */

void fby_timer_refresh(fby_core_t *core, uint32_t id)
{
    const fby_sess_t *s = &core->sessions[id];
    uint64_t at = FBY_NEVER;
    if (!s->answered && !s->deadline_done)
        at = s->deadline;
    if (s->query_out)
        at = FBY_MIN(at, s->query_limit_at);
    if (s->ledger_head != FBY_NONE)
        at = FBY_MIN(at, s->drain_at);
    if (s->lease)
        at = FBY_MIN(at, s->ttl_at);
    if (at == FBY_NEVER || !s->used)
        fby_heap_remove(&core->timers, id);
    else
        fby_heap_set(&core->timers, id, at);
}

#define FBY_TIMERS_PER_TICK 64

void fby_core_tick(fby_core_t *core, uint64_t now)
{
    if (fby_core_enter(core, now))
        return;
    bool walked = fby_index_walking(core->config.index);
    if (walked && !fby_index_walk(core->config.index))
        fby_room_freed(core);
    for (uint32_t i = 0; i < FBY_TIMERS_PER_TICK && fby_heap_top_key(&core->timers) <= core->now; i++) {
        uint32_t id = fby_heap_top(&core->timers);
        if (id < core->config.session_slots)
            fby_session_timer(core, id);
        else
            fby_op_lapse(core, id - core->config.session_slots);
    }
    if (core->grow.count || core->first.count)
        core->room_changed = true; /* ages are read against the clock */
    fby_core_leave(core);
}

uint64_t fby_core_next_deadline(const fby_core_t *core)
{
    if (core->poisoned)
        return FBY_NEVER;
    return core->work_left ? 0 : fby_heap_top_key(&core->timers);
}

/* ---- Looking ---- */

void fby_core_consumed(fby_core_t *core, uint32_t blocks)
{
    core->stats.tokens_consumed += (uint64_t)blocks * core->config.block_tokens;
}

void fby_core_stats(const fby_core_t *core, fby_stats_t *out)
{
    const fby_slots_t *slots = core->config.slots;
    fby_index_stats_t index;
    fby_index_stats(core->config.index, &index);
    uint32_t size = out->size;
    *out = core->stats;
    out->size = size;
    out->sessions_running_gauge = core->running;
    out->sessions_parked_gauge = core->parked;
    out->leases_gauge = core->leases;
    out->holds_gauge = core->hold_count;
    out->puts_gauge = core->put_count;
    out->blocks_published = index.published;
    out->blocks_removed = index.removed;
    out->blocks_evicted = index.evicted;
    out->evicted_before_use = index.evicted_before_use;
    out->reserved_bytes_gauge = core->reserved;
    out->pinned_bytes_gauge = fby_pinned(core);
    out->hold_bytes_gauge = fby_hold_bytes(core);
    out->write_pinned_bytes_gauge = core->write_bytes;
    out->quarantine_bytes_gauge = core->quarantined;
    for (uint32_t g = 0; g < core->config.groups; g++)
        out->retired_bytes_gauge += slots->in_state[g][FBY_SLOT_RETIRED] * core->config.slot_bytes[g];
    for (uint32_t id = 0; id < core->graph_count; id++)
        out->inflight_graphs_gauge += core->graphs[id].used && !core->graphs[id].counted_end;
    out->pool_blocks_gauge = slots->count[0];
    out->free_blocks_gauge = fby_slots_free(slots, 0);
    out->resident_blocks_gauge = slots->in_state[0][FBY_SLOT_RESIDENT];
}

void fby_core_health(const fby_core_t *core, uint64_t now, fby_health_t *health)
{
    uint64_t oldest = now, draining = now;
    for (uint32_t id = 0; id < core->config.part_slots; id++)
        if (core->ops[id].used)
            oldest = FBY_MIN(oldest, core->ops[id].begun_at);
    for (uint32_t id = 0; id < core->config.session_slots; id++)
        if (core->sessions[id].used && core->sessions[id].state == FBY_DRAINING)
            draining = FBY_MIN(draining, core->sessions[id].sealed_at);
    health->oldest_operation_ns = now - oldest;
    health->oldest_draining_ns = now - draining;
    health->quarantined_bytes = core->quarantined;
    health->last_completion_ns = core->last_completion ? now - FBY_MIN(now, core->last_completion) : 0;
}
