/* moment.h - all that the metrics of a cache say, as of one moment. */
#ifndef FBY_API_MOMENT_H
#define FBY_API_MOMENT_H

#include "forebay/forebay.h"
#include "runtime/runtime.h"
#include "server/server.h"

typedef struct fby_moment {
    fby_stats_t stats;
    fby_health_t health;
    fby_metrics_t counted;
    uint64_t healthy, poisoned;
    uint64_t object_faults[FBY_OBJECT_FAULT_COUNT], unreadable;
    uint64_t writes_failed; /* by the store: without those that were dropped */
    uint64_t calls, subscriptions, breaker_opened;
    struct {
        uint64_t queries, graphs, writes;
    } queue;
    struct {
        uint64_t reserved, pinned, hold, write_pinned, quarantine;
    } limit;
    struct {
        uint32_t alive, idle, stuck;
    } lanes[FBY_LANE_KINDS];
    fby_server_info_t server; /* its counters */
    uint64_t server_clients, server_refused[FBY_SERVER_REFUSED_COUNT];
    uint32_t groups;
    uint32_t slots[FBY_MAX_GROUPS][FBY_SLOT_STATE_COUNT], slot_bytes[FBY_MAX_GROUPS];
} fby_moment_t;

/* Takes the lock, for walks over the tables of graphs and sessions. */
void fby_moment_take(fby_runtime_t *runtime, fby_moment_t *moment);

/* cache.c: the server's part; zeros when there is none. */
void fby_cache_server_counters(fby_cache_t *cache, fby_moment_t *moment);
/* cache.c: all of fby_cache_health, under the lock. */
void fby_health_fill(fby_runtime_t *runtime, uint64_t now, fby_health_t *health);
/* cache.c: the agents' part of fby_cache_stats, outside the lock. */
void fby_stats_add_agents(fby_runtime_t *runtime, fby_stats_t *stats);

#endif
