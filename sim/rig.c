#include "sim/rig.h"

#include <stdarg.h>
#include <string.h>

#include "sim/lanes.h"
#include "sim/memory.h"

void rig_config_defaults(rig_config_t *config)
{
    *config = (rig_config_t){
        .pool = {64},
        .query_lanes = 1,
        .read_lanes = 4,
        .write_lanes = 1,
        .part_blocks = 64,
        .fence_ns = FBY_NEVER,
        .full_every = 1,
        .model = true,
        .store = {.latency_ns = {RIG_MS / 10, RIG_MS, RIG_MS}},
    };
    fby_core_config_t *core = &config->core;
    core->block_tokens = 16;
    core->groups = 1;
    core->slot_bytes[0] = 4096;
    core->store = true;
    core->writes = FBY_WRITE_OFF;
    core->read_lanes = 4;
    core->chunk_runtime = true;
    core->policy = FBY_POLICY_WAIT_COMPLETE;
    core->stop_mode = FBY_STOP_DRAIN;
    core->chunk_max_blocks = 4;
    core->max_inflight_chunks = 2;
    core->timeout_base_ns = 2 * RIG_S;
    core->timeout_per_ki_token_ns = RIG_S / 10;
    core->timeout_max_ns = 30 * RIG_S;
    core->timeout_budget_ns = FBY_NEVER;
    core->max_sessions = 128;
    core->max_reserved_bytes = 64 * 4096;
    core->max_pinned_bytes = 64 * 4096;
    core->max_hold_bytes = 64 * 4096;
    core->write_pinned_bytes = 64 * 4096;
    core->result_ttl_ns = 60 * RIG_S;
    core->query_batch_blocks = 256;
    core->query_timeout_ns = 5 * RIG_S;
    core->io_timeout_ns = 30 * RIG_S;
    core->no_progress_ns = 5 * RIG_S;
    core->drain_limit_ns = 30 * RIG_S;
    core->negative_ttl_ns = RIG_S;
    core->floor_bytes_per_s = 1 << 20;
}

static void emit(void *arg, const fby_core_event_t *event)
{
    rig_t *rig = arg;
    rig->events[event->type]++;
    if (event->type == FBY_CORE_UNREF)
        rig_ref_drop(event->ref);
    else if (event->type == FBY_CORE_PUBLISHED || event->type == FBY_CORE_REMOVED)
        rig_model_event(rig, event);
    else if (event->type == FBY_CORE_FENCE)
        lanes_fence(rig, event->part);
    else
        rig_session_event(rig, event);
    if (rig->config.on_event)
        rig->config.on_event(rig->config.on_event_arg, event);
    if (rig->config.light)
        return;
    if (rig->logged == rig->log_capacity) {
        rig->log_capacity = rig->log_capacity ? rig->log_capacity * 2 : 256;
        rig->log = sim_resized(rig->log, rig->log_capacity, sizeof(*rig->log));
    }
    rig->log[rig->logged++] = (rig_log_t){event->type, rig->now, event->handle, event->part, event->block, event->hash};
}

static void open_index(rig_t *rig)
{
    const fby_core_config_t *core = &rig->config.core;
    fby_index_config_t index = {
        .groups = core->groups,
        .eviction = rig->config.eviction,
        .slots = &rig->slots,
        .event = fby_core_index_event,
        .event_arg = &rig->core,
        .max_nodes = UINT32_MAX,
    };
    for (uint32_t g = 0; g < core->groups; g++) {
        index.trailing[g] = core->trailing[g];
        index.slot_bytes[g] = core->slot_bytes[g];
        if (!core->trailing[g])
            index.max_nodes = FBY_MIN(index.max_nodes, rig->config.pool[g]);
    }
    rig->index = fby_index_init(&index, sim_aligned(fby_index_bytes(&index)));
}

static void open_core(rig_t *rig)
{
    fby_core_config_t *core = &rig->config.core;
    core->slots = &rig->slots;
    core->index = rig->index;
    core->emit = emit;
    core->emit_arg = rig;
    fby_core_config_defaults(core);
    rig->latches = sim_aligned(core->session_slots * sizeof(*rig->latches));
    core->latches = rig->latches;
    rig->core = fby_core_init(core, sim_aligned(fby_core_bytes(core)));
}

rig_t *rig_open(const rig_config_t *config)
{
    rig_t *rig = sim_zeroed(1, sizeof(*rig));
    rig->config = *config;
    rig->now = RIG_S;
    uint32_t total = 0;
    for (uint32_t g = 0; g < config->core.groups; g++)
        total += config->pool[g];
    fby_slots_init(&rig->slots, config->core.groups, rig->config.pool, sim_aligned(fby_slots_bytes(total)));
    rig->slots.on_free = rig_slot_freed;
    rig->slots.on_free_arg = rig;
    rig->content = sim_zeroed(total, sizeof(*rig->content));
    rig->writer = sim_zeroed(total, sizeof(*rig->writer));
    rig->readers = sim_zeroed(total, sizeof(*rig->readers));
    for (uint32_t i = 0; i < total; i++)
        rig->content[i] = RIG_PAINT;
    store_init(&rig->store, &config->store);
    open_index(rig);
    open_core(rig);
    const fby_core_config_t *core = &rig->config.core;
    rig->session = sim_zeroed(core->session_slots, sizeof(*rig->session));
    rig->part = sim_zeroed(core->part_slots, sizeof(*rig->part));
    rig->live[0] = sim_zeroed(core->part_slots, sizeof(uint32_t));
    rig->live[1] = sim_zeroed(core->part_slots, sizeof(uint32_t));
    rig->hold = sim_zeroed(core->hold_slots, sizeof(*rig->hold));
    rig->put = sim_zeroed(core->put_slots, sizeof(*rig->put));
    lanes_open(rig);
    return rig;
}

static void free_objects(rig_t *rig)
{
    for (uint32_t i = 0; i < rig->config.core.part_slots; i++) {
        free(rig->part[i].io);
        free(rig->part[i].results);
        free(rig->part[i].words);
    }
    for (uint32_t i = 0; i < rig->config.core.hold_slots; i++) {
        free(rig->hold[i].slot);
        free(rig->hold[i].block);
    }
    for (uint32_t i = 0; i < rig->config.core.put_slots; i++)
        free(rig->put[i].slot);
    free(rig->part);
    free(rig->live[0]);
    free(rig->live[1]);
    free(rig->hold);
    free(rig->put);
    free(rig->session);
}

void rig_close(rig_t *rig)
{
    lanes_close(rig);
    free_objects(rig);
    while (rig->seqs)
        rig_seq_free(rig, rig->seqs);
    for (uint32_t i = 0; i < RIG_DROPPED; i++)
        free(rig->dropped[i]);
    store_free(&rig->store);
    chain_registry_free(&rig->registry);
    free(rig->resident);
    free(rig->old);
    free(rig->children);
    free(rig->reading);
    free(rig->published);
    free(rig->log);
    free(rig->content);
    free(rig->writer);
    free(rig->readers);
    free(rig->slots.slot);
    free(rig->latches);
    free(rig->index);
    free(rig->core);
    free(rig);
}

void rig_fail(rig_t *rig, const char *format, ...)
{
    if (rig->failure[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rig->failure, sizeof(rig->failure), format, arguments);
    va_end(arguments);
    if (rig->config.collect)
        return;
    fprintf(stderr, "rig: %s (call %llu, %.3f ms)\n", rig->failure, (unsigned long long)rig->calls,
            (double)(rig->now - RIG_S) / (double)RIG_MS);
    abort();
}

static void check_limits(rig_t *rig)
{
    const fby_core_config_t *core = &rig->config.core;
    fby_stats_t stats = {.size = sizeof(stats)};
    fby_core_stats(rig->core, &stats);
    if (stats.reserved_bytes_gauge > core->max_reserved_bytes)
        rig_fail(rig, "V3: reserved %llu > %llu", (unsigned long long)stats.reserved_bytes_gauge,
                 (unsigned long long)core->max_reserved_bytes);
    if (stats.pinned_bytes_gauge + stats.reserved_bytes_gauge > core->max_pinned_bytes)
        rig_fail(rig, "V4: pinned %llu + reserved %llu > %llu", (unsigned long long)stats.pinned_bytes_gauge,
                 (unsigned long long)stats.reserved_bytes_gauge, (unsigned long long)core->max_pinned_bytes);
    if (stats.write_pinned_bytes_gauge > core->write_pinned_bytes)
        rig_fail(rig, "write_pinned %llu > %llu", (unsigned long long)stats.write_pinned_bytes_gauge,
                 (unsigned long long)core->write_pinned_bytes);
    if (stats.sessions_running_gauge > core->max_sessions)
        rig_fail(rig, "%llu sessions run, limit %u", (unsigned long long)stats.sessions_running_gauge,
                 core->max_sessions);
}

void rig_check_full(rig_t *rig)
{
    char why[200] = "";
    if (!fby_core_check(rig->core, why, sizeof(why)))
        rig_fail(rig, "core: %s", why);
    if (!fby_index_check(rig->index, why, sizeof(why)))
        rig_fail(rig, "index: %s", why);
    if (!fby_slots_check(&rig->slots, why, sizeof(why)))
        rig_fail(rig, "slots: %s", why);
    if (rig->config.model)
        rig_model_check(rig);
    check_limits(rig);
    for (uint32_t i = 0; i < rig->config.core.session_slots; i++)
        if (rig->session[i].handle && !rig->session[i].ended)
            rig_session_checked(rig, rig->session[i].handle);
}

void rig_checked(rig_t *rig, fby_session_t session)
{
    rig->calls++;
    if (rig->config.light)
        return;
    char why[200] = "";
    if (fby_core_poisoned(rig->core))
        rig_fail(rig, "poisoned: %s", fby_core_poisoned(rig->core));
    if (!fby_core_check_step(rig->core, why, sizeof(why)))
        rig_fail(rig, "step: %s", why);
    if (rig->slots.violations)
        rig_fail(rig, "V7: %s", rig->slots.violation);
    for (uint32_t i = 0; i < rig->published_count; i++) {
        const chain_node_t *block = &rig->registry.node[rig->published[i]];
        uint32_t node = fby_index_find(rig->index, &block->hash);
        for (uint32_t g = 0; node != FBY_NONE && g < rig->config.core.groups; g++) {
            uint32_t slot = fby_index_slot(rig->index, node, g);
            if (slot != FBY_NONE && rig->content[slot] != chain_content(&block->hash, g))
                rig_fail(rig, "published block %u has wrong bytes in group %u", block->block, g);
        }
    }
    rig->published_count = 0;
    if (session)
        rig_session_checked(rig, session);
    const rig_session_t *other = &rig->session[rig->rolling];
    if (other->handle && !other->ended)
        rig_session_checked(rig, other->handle);
    rig->rolling = rig->rolling + 1 < rig->config.core.session_slots ? rig->rolling + 1 : 0;
    if (rig->config.full_every && rig->calls % rig->config.full_every == 0)
        rig_check_full(rig);
}

static void expect_zero(rig_t *rig, const char *name, uint64_t value)
{
    if (value)
        rig_fail(rig, "Q: %s is %llu", name, (unsigned long long)value);
}

void rig_quiescent(rig_t *rig)
{
    fby_stats_t stats = {.size = sizeof(stats)};
    fby_core_stats(rig->core, &stats);
    expect_zero(rig, "reserved bytes", stats.reserved_bytes_gauge);
    expect_zero(rig, "pinned bytes", stats.pinned_bytes_gauge);
    expect_zero(rig, "hold bytes", stats.hold_bytes_gauge);
    expect_zero(rig, "write-pinned bytes", stats.write_pinned_bytes_gauge);
    expect_zero(rig, "quarantined bytes", stats.quarantine_bytes_gauge);
    expect_zero(rig, "retired bytes", stats.retired_bytes_gauge);
    expect_zero(rig, "graphs in flight", stats.inflight_graphs_gauge);
    expect_zero(rig, "running sessions", stats.sessions_running_gauge);
    expect_zero(rig, "parked sessions", stats.sessions_parked_gauge);
    expect_zero(rig, "leases", stats.leases_gauge);
    expect_zero(rig, "holds", stats.holds_gauge);
    expect_zero(rig, "puts", stats.puts_gauge);
    uint32_t operations;
    uint64_t bytes;
    fby_core_outstanding(rig->core, &operations, &bytes);
    expect_zero(rig, "outstanding operations", operations);
    expect_zero(rig, "outstanding bytes", bytes);
    expect_zero(rig, "references", rig->refs);
    if (!fby_core_idle(rig->core))
        rig_fail(rig, "Q: the core is not idle");
    if (fby_core_next_deadline(rig->core) != FBY_NEVER)
        rig_fail(rig, "V15: nothing is active, yet a timer is armed");
    for (uint32_t g = 0; g < rig->config.core.groups; g++)
        for (uint32_t state = 0; state < FBY_SLOT_STATE_COUNT; state++)
            if (state != FBY_SLOT_FREE && state != FBY_SLOT_RESIDENT && rig->slots.in_state[g][state])
                rig_fail(rig, "Q: %u slots of group %u are %s", rig->slots.in_state[g][state], g,
                         fby_slot_state_name((fby_slot_state_t)state));
    rig_check_full(rig);
}
