/*
 * top_view.h - what `forebay stat` and `forebay top` know of a server at one moment, and how they show it.
 *
 * A figure is one row of FBY_VIEW_MAP: text, JSON and rates come from it.
 */
#ifndef FBY_CLI_TOP_VIEW_H
#define FBY_CLI_TOP_VIEW_H

#include <stdio.h>

#include "base/base.h"
#include "cli/json.h"
#include "forebay/server.h"

enum { FBY_VIEW_CLIENTS = 256, FBY_VIEW_LEAST_WIDTH = 44, FBY_VIEW_STAT_WIDTH = 114 };

typedef struct fby_view_limits {
    uint64_t reserved, pinned, hold, write_pinned, quarantine; /* bytes; 0: not known */
} fby_view_limits_t;

typedef struct fby_view {
    uint64_t taken_ns; /* monotonic */
    fby_model_t model;
    fby_stats_t stats;
    fby_health_t health;
    fby_server_info_t server;
    fby_view_limits_t limit;
    size_t clients;
    fby_server_client_t client[FBY_VIEW_CLIENTS]; /* those that pin most first */
} fby_view_t;

/*
 * X(section, name, label, kind, number, of): section and name are those of the JSON; `v` is the view.
 *   COUNTER, VOLUME   grow; a number, bytes. A live view has their rate
 *   GAUGE, BYTES      move; a number, bytes
 *   PART, PART_BYTES  likewise, of the most there can be: `of`; 0 where that is not known
 *   SHARE             number / of
 */
#define FBY_VIEW_MAP(X)                                                                                                \
    X(sessions, running, "running", GAUGE, v->stats.sessions_running_gauge, 0)                                         \
    X(sessions, parked, "parked", GAUGE, v->stats.sessions_parked_gauge, 0)                                            \
    X(sessions, started, "started", COUNTER, v->stats.sessions, 0)                                                     \
    X(sessions, leases, "leases", GAUGE, v->stats.leases_gauge, 0)                                                     \
    X(sessions, holds, "holds", GAUGE, v->stats.holds_gauge, 0)                                                        \
    X(sessions, puts, "puts", GAUGE, v->stats.puts_gauge, 0)                                                           \
    X(tokens, found, "found", COUNTER, v->stats.tokens_found, 0)                                                       \
    X(tokens, delivered, "delivered", COUNTER, v->stats.tokens_delivered, 0)                                           \
    X(tokens, loaded, "loaded", COUNTER, v->stats.tokens_loaded, 0)                                                    \
    X(tokens, consumed, "consumed", COUNTER, v->stats.tokens_consumed, 0)                                              \
    X(hits, delivered_ratio, "delivered/found", SHARE, v->stats.tokens_delivered, v->stats.tokens_found)               \
    X(hits, memory_ratio, "from memory", SHARE, fby_sub_sat(v->stats.tokens_delivered, v->stats.tokens_loaded),        \
      v->stats.tokens_delivered)                                                                                       \
    X(budgets, reserved, "reserved", PART_BYTES, v->stats.reserved_bytes_gauge, v->limit.reserved)                     \
    X(budgets, pinned, "pinned", PART_BYTES, v->stats.pinned_bytes_gauge, v->limit.pinned)                             \
    X(budgets, hold, "holds", PART_BYTES, v->stats.hold_bytes_gauge, v->limit.hold)                                    \
    X(budgets, write_pinned, "writes", PART_BYTES, v->stats.write_pinned_bytes_gauge, v->limit.write_pinned)           \
    X(budgets, quarantine, "quarantine", PART_BYTES, v->stats.quarantine_bytes_gauge, v->limit.quarantine)             \
    X(budgets, retired, "retired", BYTES, v->stats.retired_bytes_gauge, 0)                                             \
    X(pool, resident, "resident", PART, v->stats.resident_blocks_gauge, v->stats.pool_blocks_gauge)                    \
    X(pool, free, "free", PART, v->stats.free_blocks_gauge, v->stats.pool_blocks_gauge)                                \
    X(pool, published, "published", COUNTER, v->stats.blocks_published, 0)                                             \
    X(pool, evicted, "evicted", COUNTER, v->stats.blocks_evicted, 0)                                                   \
    X(store, read, "read", VOLUME, v->stats.bytes_read, 0)                                                             \
    X(store, written, "written", VOLUME, v->stats.bytes_written, 0)                                                    \
    X(store, graphs, "graphs", COUNTER, v->stats.graphs, 0)                                                            \
    X(store, inflight, "in flight", GAUGE, v->stats.inflight_graphs_gauge, 0)                                          \
    X(store, failed_reads, "failed reads", COUNTER, fby_view_failures(&v->stats), 0)                                   \
    X(store, failed_writes, "failed writes", COUNTER, v->stats.writes_failed, 0)                                       \
    X(traffic, calls, "calls", COUNTER, v->server.calls, 0)                                                            \
    X(traffic, over_limit, "over a limit", COUNTER, v->server.limit_refused, 0)                                        \
    X(traffic, refused, "refused", COUNTER, v->server.refused, 0)                                                      \
    X(traffic, violations, "violations", COUNTER, v->server.violations, 0)                                             \
    X(traffic, deaths, "deaths", COUNTER, v->server.deaths, 0)                                                         \
    X(traffic, fenced, "fenced", BYTES, v->server.fenced_bytes, 0)

/* Payloads that could not be read, whatever was wrong. */
uint64_t fby_view_failures(const fby_stats_t *stats);

/* Asks the server. Errors: of the calls of forebay.h; -ENOTCONN: it is away. */
int fby_view_take(fby_cache_t *cache, const fby_view_limits_t *limit, fby_view_t *out);
/* The budgets, from the server's metrics; once per connection, since they do not change. As above. */
int fby_view_limits_read(fby_cache_t *cache, fby_view_limits_t *out);

/* Lines for people, none wider than `width` where that is at least FBY_VIEW_LEAST_WIDTH, but for names of clients, which
   stand last. `before` gives rates; NULL: none. At most `clients` rows of clients are shown. */
void fby_view_print(FILE *out, const char *path, const fby_view_t *view, const fby_view_t *before, size_t width,
                    size_t clients);
/* One object; NULL: nobody answers at this path. */
void fby_view_json(fby_json_t *json, const char *path, const fby_view_t *view);

/* "17", "1.5GiB", "2 min": into out, which is returned. */
const char *fby_view_age(uint64_t ns, char out[32]);
const char *fby_view_bytes(uint64_t bytes, char out[32]);
/* What a client or a server wrote, without what a terminal would obey. */
const char *fby_view_clean(const char *text, size_t capacity, char *out);

#endif
