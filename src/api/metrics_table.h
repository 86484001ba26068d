/*
 * metrics_table.h - the one table of metrics. docs/metrics.md has a row for each; a test compares them.
 *
 * X(name, type, write, at, help)
 *   name   behind "forebay_"
 *   write  function of metrics.c that prints the samples; the first five are general
 *            number   the uint64_t at `at`
 *            seconds  likewise, of nanoseconds
 *            labelled the row's label and values of FBY_METRIC_LABELLED_MAP
 *            histogram, calls and so on: one of its own
 *   at     offset in fby_moment_t; 0 where `write` knows
 */
#ifndef FBY_API_METRICS_TABLE_H
#define FBY_API_METRICS_TABLE_H

#define FBY_METRIC_MAP(X)                                                                                              \
    X(build_info, GAUGE, build_info, 0, "1; the label is the library's version")                                       \
    X(healthy, GAUGE, number, AT(healthy), "0: poisoned, the breaker is not closed, or an operation is slow")          \
    X(poisoned, GAUGE, number, AT(poisoned), "1: an internal invariant broke")                                         \
    X(sessions_started_total, COUNTER, number, AT(stats.sessions), "Sessions started")                                 \
    X(sessions_total, COUNTER, sessions, 0, "Sessions answered")                                                       \
    X(sessions, GAUGE, labelled, 0, "Sessions started and not answered")                                               \
    X(session_seconds, HISTOGRAM, histogram, AT(counted.session), "From a session's start to its answer")              \
    X(session_drain_seconds, HISTOGRAM, histogram, AT(counted.drain), "From a session's last claim to its last read")  \
    X(leases, GAUGE, number, AT(stats.leases_gauge), "Results that nobody has taken yet")                              \
    X(holds, GAUGE, number, AT(stats.holds_gauge), "Holds of callers")                                                 \
    X(puts, GAUGE, number, AT(stats.puts_gauge), "Puts of callers")                                                    \
    X(tokens_found_total, COUNTER, number, AT(stats.tokens_found), "Tokens that index and store hold")                 \
    X(tokens_planned_total, COUNTER, number, AT(stats.tokens_planned), "Tokens up to the plan's end")                  \
    X(tokens_delivered_total, COUNTER, number, AT(stats.tokens_delivered), "Tokens delivered")                         \
    X(tokens_loaded_total, COUNTER, number, AT(stats.tokens_loaded), "Tokens delivered that came from the store")      \
    X(tokens_consumed_total, COUNTER, number, AT(stats.tokens_consumed), "Tokens of taken results that were used")     \
    X(tokens_lost_total, COUNTER, tokens_lost, 0, "Tokens found and not delivered")                                    \
    X(queries_total, COUNTER, number, AT(stats.queries), "Existence queries begun")                                    \
    X(query_errors_total, COUNTER, number, AT(stats.query_errors), "Existence queries that failed")                    \
    X(graphs_total, COUNTER, number, AT(stats.graphs), "Graphs ended, recalled ones included")                         \
    X(graphs_recalled_total, COUNTER, number, AT(stats.graphs_recalled), "Graphs withdrawn before the store began")    \
    X(graphs_inflight, GAUGE, number, AT(stats.inflight_graphs_gauge), "Graphs claimed and not ended")                 \
    X(graph_seconds, HISTOGRAM, histogram, AT(counted.graph), "From a graph's first read to its last")                 \
    X(joins_total, COUNTER, number, AT(stats.joins), "Claims that wait for other sessions' reads alone")               \
    X(takeovers_total, COUNTER, number, AT(stats.takeovers), "Payloads that a joiner took over from their owner")      \
    X(retries_total, COUNTER, number, AT(stats.retries), "Payloads read once more")                                    \
    X(duplicate_blocks_total, COUNTER, number, AT(stats.duplicates), "Blocks published by somebody else meanwhile")    \
    X(capacity_stops_total, COUNTER, labelled, 0, "Sessions that ended for want of room")                              \
    X(budget_refused_total, COUNTER, number, AT(stats.budget_refused), "Lookups, puts, parked sessions without room")  \
    X(budget_bytes, GAUGE, labelled, 0, "Bytes that count against a budget")                                           \
    X(budget_limit_bytes, GAUGE, labelled, 0, "The budget")                                                            \
    X(retired_bytes, GAUGE, number, AT(stats.retired_bytes_gauge), "Bytes of before a reset that somebody still uses") \
    X(payload_failures_total, COUNTER, labelled, 0, "Payloads whose read failed")                                      \
    X(verify_failures_total, COUNTER, verify_failures, 0, "Objects read that were not what they must be")              \
    X(unreadable_objects_total, COUNTER, number, AT(unreadable), "Writes that met a key that cannot be read")          \
    X(blocks_published_total, COUNTER, number, AT(stats.blocks_published), "Blocks that became resident")              \
    X(blocks_removed_total, COUNTER, number, AT(stats.blocks_removed), "Blocks that are resident no more")             \
    X(blocks_evicted_total, COUNTER, number, AT(stats.blocks_evicted), "Blocks removed for want of room")              \
    X(blocks_evicted_before_use_total, COUNTER, number, AT(stats.evicted_before_use),                                  \
      "Prefetched blocks removed before a hold covered them")                                                          \
    X(pool_slots, GAUGE, pool_slots, 0, "Slots of the pool")                                                           \
    X(pool_slot_bytes, GAUGE, pool_slot_bytes, 0, "Bytes of one slot")                                                 \
    X(store_calls_total, COUNTER, calls, 0, "Driver calls ended, and refused ones")                                    \
    X(store_call_seconds, HISTOGRAM, call_seconds, 0, "Duration of driver calls")                                      \
    X(store_calls_inflight, GAUGE, number, AT(calls), "Driver calls under way")                                        \
    X(store_bytes_total, COUNTER, labelled, 0, "Bytes read and verified, and bytes written")                           \
    X(store_wasted_bytes_total, COUNTER, number, AT(stats.bytes_wasted), "Bytes read, verified and thrown away")       \
    X(store_writes_total, COUNTER, labelled, 0, "Payloads of puts")                                                    \
    X(lanes, GAUGE, lanes, 0, "Threads that talk to the store")                                                        \
    X(queue_depth, GAUGE, labelled, 0, "What lanes have not taken yet")                                                \
    X(breaker_state, GAUGE, breaker_state, 0, "1 for the state the breaker is in")                                     \
    X(breaker_opened_total, COUNTER, number, AT(breaker_opened), "Times the breaker opened")                           \
    X(oldest_operation_seconds, GAUGE, seconds, AT(health.oldest_operation_ns), "Age of the oldest driver call")       \
    X(oldest_draining_seconds, GAUGE, seconds, AT(health.oldest_draining_ns), "Age of the oldest session that drains") \
    X(agents, GAUGE, number, AT(stats.agents_gauge), "Processes that serve the store")                                 \
    X(agent_starts_total, COUNTER, number, AT(stats.agent_starts), "Agents started")                                   \
    X(agent_kills_total, COUNTER, number, AT(stats.agent_kills), "Agents killed")                                      \
    X(agent_deaths_total, COUNTER, number, AT(stats.agent_deaths), "Agents that died by themselves")                   \
    X(agents_unproven, GAUGE, number, AT(stats.agents_unproven), "Dead agents that may still touch the pool")          \
    X(subscriptions, GAUGE, number, AT(subscriptions), "Subscriptions to events")                                      \
    X(events_total, COUNTER, number, AT(counted.events), "Events queued for subscribers")                              \
    X(events_dropped_total, COUNTER, number, AT(counted.events_dropped), "Events that did not fit")                    \
    X(server_clients, GAUGE, number, AT(server_clients), "Connections to server.listen")                               \
    X(server_accepted_total, COUNTER, number, AT(server.accepted), "Connections accepted")                             \
    X(server_refused_total, COUNTER, labelled, 0, "Connections refused")                                               \
    X(server_deaths_total, COUNTER, number, AT(server.deaths), "Connections that ended without saying so")             \
    X(server_violations_total, COUNTER, number, AT(server.violations), "Connections closed for traffic of no client")  \
    X(server_calls_total, COUNTER, number, AT(server.calls), "Calls of clients")                                       \
    X(server_limit_refused_total, COUNTER, number, AT(server.limit_refused), "Calls of clients over a limit")          \
    X(server_fenced_bytes, GAUGE, number, AT(server.fenced_bytes), "Slots of puts that await the end of a process")

/* X(metric, label, value, at): samples in this order. */
#define FBY_METRIC_LABELLED_MAP(X)                                                                                     \
    X(sessions, "state", "running", AT(stats.sessions_running_gauge))                                                  \
    X(sessions, "state", "parked", AT(stats.sessions_parked_gauge))                                                    \
    X(capacity_stops_total, "resource", "reserved", AT(stats.capacity_reserved))                                       \
    X(capacity_stops_total, "resource", "pinned", AT(stats.capacity_pinned))                                           \
    X(capacity_stops_total, "resource", "pool", AT(stats.capacity_pool))                                               \
    X(budget_bytes, "budget", "reserved", AT(stats.reserved_bytes_gauge))                                              \
    X(budget_bytes, "budget", "pinned", AT(stats.pinned_bytes_gauge))                                                  \
    X(budget_bytes, "budget", "hold", AT(stats.hold_bytes_gauge))                                                      \
    X(budget_bytes, "budget", "write_pinned", AT(stats.write_pinned_bytes_gauge))                                      \
    X(budget_bytes, "budget", "quarantine", AT(stats.quarantine_bytes_gauge))                                          \
    X(budget_limit_bytes, "budget", "reserved", AT(limit.reserved))                                                    \
    X(budget_limit_bytes, "budget", "pinned", AT(limit.pinned))                                                        \
    X(budget_limit_bytes, "budget", "hold", AT(limit.hold))                                                            \
    X(budget_limit_bytes, "budget", "write_pinned", AT(limit.write_pinned))                                            \
    X(budget_limit_bytes, "budget", "quarantine", AT(limit.quarantine))                                                \
    X(payload_failures_total, "kind", "missing", AT(stats.fail_missing))                                               \
    X(payload_failures_total, "kind", "not_ready", AT(stats.fail_not_ready))                                           \
    X(payload_failures_total, "kind", "size", AT(stats.fail_size))                                                     \
    X(payload_failures_total, "kind", "checksum", AT(stats.fail_checksum))                                             \
    X(payload_failures_total, "kind", "lease", AT(stats.fail_lease))                                                   \
    X(payload_failures_total, "kind", "timeout", AT(stats.fail_timeout))                                               \
    X(payload_failures_total, "kind", "connection", AT(stats.fail_connection))                                         \
    X(payload_failures_total, "kind", "other", AT(stats.fail_other))                                                   \
    X(store_bytes_total, "operation", "read", AT(stats.bytes_read))                                                    \
    X(store_bytes_total, "operation", "write", AT(stats.bytes_written))                                                \
    X(store_writes_total, "result", "stored", AT(stats.writes))                                                        \
    X(store_writes_total, "result", "failed", AT(writes_failed))                                                       \
    X(store_writes_total, "result", "dropped", AT(stats.writes_dropped))                                               \
    X(queue_depth, "operation", "query", AT(queue.queries))                                                            \
    X(queue_depth, "operation", "read", AT(queue.graphs))                                                              \
    X(queue_depth, "operation", "write", AT(queue.writes))                                                             \
    X(server_refused_total, "reason", "user", AT(server_refused[FBY_SERVER_REFUSED_USER]))                             \
    X(server_refused_total, "reason", "version", AT(server_refused[FBY_SERVER_REFUSED_VERSION]))                       \
    X(server_refused_total, "reason", "number", AT(server_refused[FBY_SERVER_REFUSED_NUMBER]))

#endif
