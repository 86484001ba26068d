#include "api/moment.h"

static void copy_store(const fby_runtime_t *runtime, fby_moment_t *moment)
{
    for (uint32_t kind = 0; kind < FBY_OBJECT_FAULT_COUNT; kind++) {
        moment->object_faults[kind] = runtime->object_faults[kind];
    }
    moment->unreadable = runtime->unreadable;
    moment->calls = runtime->calls;
    moment->breaker_opened = runtime->breaker.opened;
    for (unsigned kind = 0; kind < FBY_LANE_KINDS; kind++) {
        moment->lanes[kind].alive = runtime->pool[kind].alive;
        moment->lanes[kind].idle = runtime->pool[kind].idle;
        moment->lanes[kind].stuck = runtime->pool[kind].stuck;
    }
}

static void copy_pool(const fby_runtime_t *runtime, fby_moment_t *moment)
{
    moment->groups = runtime->slots.groups;
    for (uint32_t g = 0; g < moment->groups; g++) {
        memcpy(moment->slots[g], runtime->slots.in_state[g], sizeof(moment->slots[g]));
        moment->slot_bytes[g] = runtime->region.slot_bytes[g];
    }
}

static void copy_limits(const fby_settings_t *settings, fby_moment_t *moment)
{
    moment->limit.reserved = settings->prefetch.max_reserved_bytes;
    moment->limit.pinned = settings->prefetch.max_pinned_bytes;
    moment->limit.hold = settings->pool.max_hold_bytes;
    moment->limit.write_pinned = settings->pool.write_pinned_bytes;
    moment->limit.quarantine = settings->prefetch.quarantine_limit_bytes;
}

void fby_moment_take(fby_runtime_t *runtime, fby_moment_t *moment)
{
    fby_core_queued_t queued;
    *moment = (fby_moment_t){.stats.size = sizeof(moment->stats), .health.size = sizeof(moment->health)};
    copy_limits(&runtime->settings, moment);
    pthread_mutex_lock(&runtime->lock);
    fby_core_stats(runtime->core, &moment->stats);
    fby_health_fill(runtime, fby_clock_now(&fby_clock_monotonic), &moment->health);
    fby_core_queued(runtime->core, &queued);
    moment->counted = runtime->metrics;
    moment->subscriptions = runtime->subscriptions;
    moment->poisoned = fby_is_poisoned(runtime);
    copy_store(runtime, moment);
    copy_pool(runtime, moment);
    pthread_mutex_unlock(&runtime->lock);
    fby_stats_add_agents(runtime, &moment->stats);
    moment->healthy = moment->health.healthy;
    moment->writes_failed = fby_sub_sat(moment->stats.writes_failed, moment->stats.writes_dropped);
    moment->queue.queries = queued.queries;
    moment->queue.graphs = queued.graphs;
    moment->queue.writes = queued.writes;
}
