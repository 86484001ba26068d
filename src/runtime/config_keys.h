/*
 * config_keys.h - the one table of configuration keys: names, types, defaults, limits, help.
 *
 * X(id, key, type, field, default, low, high, names, help)
 *   field    member of fby_settings_t that the value is written to; `hash.secret` and the like for composite types
 *   default  as text, "" for a required key, "unset" for one that may have no value
 *   low/high limits of whole numbers and sizes; unused by the other types
 *   names    table of accepted words of an ENUM, else NULL
 *
 * docs/configuration.md has a row for every key with this default; a test compares them.
 */
#ifndef FBY_RUNTIME_CONFIG_KEYS_H
#define FBY_RUNTIME_CONFIG_KEYS_H

#define FBY_MOST_BYTES (UINT64_C(1) << 50)
#define FBY_MOST_TOKENS (UINT64_C(1) << 40)

/* Types:
 *   BOOL   true, false                          U32, U64  whole number
 *   SIZE   whole number with B, KiB, MiB, GiB or TiB
 *   TIME   seconds, 0 or more                   SPAN      seconds, above 0
 *   RATE   number above 0                       RATIO     number above 0, at most 1
 *   ENUM   one of `names`                       TEXT      one line of text
 *   SECRET text that is never shown             GROUPS, GROUP_BYTES: lists, see docs/configuration.md
 */
#define FBY_CONFIG_MAP(X)                                                                                              \
    X(PREFETCH_ENABLED, "prefetch.enabled", BOOL, prefetch.enabled, "false", 0, 0, NULL,                               \
      "runs chunked sessions; off: only whole-plan wait_complete sessions and no control thread")                      \
    X(PREFETCH_POLICY, "prefetch.policy", ENUM, prefetch.policy, "wait_complete", 0, 0, policy_names,                  \
      "when a session stops claiming")                                                                                 \
    X(PREFETCH_STOP_MODE, "prefetch.stop_mode", ENUM, prefetch.stop_mode, "drain", 0, 0, stop_mode_names,              \
      "what a policy stop does with claimed work")                                                                     \
    X(PREFETCH_PREDICTIVE, "prefetch.predictive", BOOL, prefetch.predictive, "false", 0, 0, NULL,                      \
      "claims a chunk only if its estimated completion fits before the deadline")                                      \
    X(PREFETCH_CHUNK_MAX_BLOCKS, "prefetch.chunk_max_blocks", U32, prefetch.chunk_max_blocks, "128", 1, 65536, NULL,   \
      "most blocks of one graph")                                                                                      \
    X(PREFETCH_MAX_INFLIGHT_CHUNKS, "prefetch.max_inflight_chunks", U32, prefetch.max_inflight_chunks, "2", 1, 64,     \
      NULL, "window of each session, in chunks")                                                                       \
    X(PREFETCH_TIMEOUT_BASE_S, "prefetch.timeout_base_s", TIME, prefetch.timeout_base_ns, "2", 0, 0, NULL,             \
      "constant part of the timeout policy's budget")                                                                  \
    X(PREFETCH_TIMEOUT_PER_KI_TOKEN_S, "prefetch.timeout_per_ki_token_s", TIME, prefetch.timeout_per_ki_token_ns,      \
      "0.1", 0, 0, NULL, "part of the budget per 1,024 candidate tokens")                                              \
    X(PREFETCH_TIMEOUT_MAX_S, "prefetch.timeout_max_s", TIME, prefetch.timeout_max_ns, "30", 0, 0, NULL,               \
      "upper limit of the budget that the formula gives")                                                              \
    X(PREFETCH_TIMEOUT_BUDGET_S, "prefetch.timeout_budget_s", TIME, prefetch.timeout_budget_ns, "unset", 0, 0, NULL,   \
      "fixed budget in place of the formula; 0 is legal")                                                              \
    X(PREFETCH_MIN_TOKENS, "prefetch.min_tokens", U64, prefetch.min_tokens, "0", 0, FBY_MOST_TOKENS, NULL,             \
      "fewer candidate tokens end at once with below_threshold")                                                       \
    X(PREFETCH_MAX_SESSIONS, "prefetch.max_sessions", U32, prefetch.max_sessions, "128", 1, 65536, NULL,               \
      "running sessions; more are parked")                                                                             \
    X(PREFETCH_MAX_RESERVED_BYTES, "prefetch.max_reserved_bytes", SIZE, prefetch.max_reserved_bytes, "512MiB", 1,      \
      FBY_MOST_BYTES, NULL, "staging of claimed chunks, and quarantined reads")                                        \
    X(PREFETCH_MAX_PINNED_BYTES, "prefetch.max_pinned_bytes", SIZE, prefetch.max_pinned_bytes, "2GiB", 1,              \
      FBY_MOST_BYTES, NULL, "blocks that sessions and leases protect")                                                 \
    X(PREFETCH_RESULT_TTL_S, "prefetch.result_ttl_s", SPAN, prefetch.result_ttl_ns, "60", 0, 0, NULL,                  \
      "life of a lease that nobody takes")                                                                             \
    X(PREFETCH_QUARANTINE_LIMIT, "prefetch.quarantine_limit", SIZE, prefetch.quarantine_limit_bytes, "derived", 1,     \
      FBY_MOST_BYTES, NULL, "quarantined bytes above which the breaker opens")                                         \
    X(PREFETCH_RECOMPUTE_TOKENS_PER_S, "prefetch.recompute_tokens_per_s", RATE, prefetch.recompute_tokens_per_s,       \
      "unset", 0, 0, NULL, "speed of computing in place of loading; needed by break_even")                             \
    X(PREFETCH_QUERY_BATCH_BLOCKS, "prefetch.query_batch_blocks", U32, prefetch.query_batch_blocks, "256", 1, 4096,    \
      NULL, "blocks of one existence query")                                                                           \
    X(PREFETCH_QUERY_TIMEOUT_S, "prefetch.query_timeout_s", SPAN, prefetch.query_timeout_ns, "5", 0, 0, NULL,          \
      "limit of one existence query")                                                                                  \
    X(PREFETCH_IO_TIMEOUT_S, "prefetch.io_timeout_s", SPAN, prefetch.io_timeout_ns, "30", 0, 0, NULL,                  \
      "limit of one graph")                                                                                            \
    X(PREFETCH_NO_PROGRESS_TIMEOUT_S, "prefetch.no_progress_timeout_s", SPAN, prefetch.no_progress_timeout_ns, "5", 0, \
      0, NULL, "limit of one driver call, at least")                                                                   \
    X(PREFETCH_DRAIN_LIMIT_S, "prefetch.drain_limit_s", TIME, prefetch.drain_limit_ns, "30", 0, 0, NULL,               \
      "longest drain after a stop")                                                                                    \
    X(PREFETCH_FLOOR_BANDWIDTH, "prefetch.floor_bandwidth", SIZE, prefetch.floor_bandwidth, "16MiB", 1,                \
      FBY_MOST_BYTES, NULL, "bytes per second below which a driver call counts as stuck")                              \
    X(MODEL_ID, "model.id", TEXT, model.model_id, "", 0, 0, NULL, "name of the model, in the fingerprint")             \
    X(MODEL_REVISION, "model.revision", TEXT, model.revision, "", 0, 0, NULL, "revision of its weights")               \
    X(MODEL_KV_DTYPE, "model.kv_dtype", TEXT, model.kv_dtype, "", 0, 0, NULL, "element type of the KV cache")          \
    X(MODEL_BLOCK_TOKENS, "model.block_tokens", U32, model.block_tokens, "", 1, 65536, NULL, "tokens of one block")    \
    X(MODEL_LAYER_SET, "model.layer_set", TEXT, model.layer_set, "", 0, 0, NULL, "which layers a payload holds")       \
    X(MODEL_LAYOUT, "model.layout", TEXT, model.layout, "", 0, 0, NULL, "order of the bytes of a payload")             \
    X(MODEL_WEIGHTS_EPOCH, "model.weights_epoch", U64, model.weights_epoch, "", 0, INT64_MAX, NULL,                    \
      "raised when weights change under the same revision")                                                            \
    X(MODEL_TP_SIZE, "model.tp_size", U32, model.tp_size, "", 1, 65536, NULL, "tensor-parallel ranks")                 \
    X(MODEL_CP_SIZE, "model.cp_size", U32, model.cp_size, "", 1, 65536, NULL, "context-parallel ranks; only 1 works")  \
    X(MODEL_PP_SIZE, "model.pp_size", U32, model.pp_size, "", 1, 65536, NULL, "pipeline-parallel ranks")               \
    X(MODEL_GROUPS, "model.groups", GROUPS, model.group, "", 0, 0, NULL, "payload groups with size and need rule")     \
    X(HASH, "hash", ENUM, hash.kind, "sha256", 0, 0, hash_names, "the chain hash")                                     \
    X(SECRET, "secret", SECRET, hash.secret, "unset", 0, 0, NULL, "deployment secret that enters every key")           \
    X(POOL_BYTES, "pool.bytes", SIZE, pool.bytes, "1GiB", 4096, FBY_MOST_BYTES, NULL, "the pool, all groups together") \
    X(POOL_GROUP_BYTES, "pool.group_bytes", GROUP_BYTES, pool.group_bytes, "unset", 0, 0, NULL,                        \
      "the pool by group, in place of pool.bytes")                                                                     \
    X(POOL_HUGE_PAGES, "pool.huge_pages", BOOL, pool.huge_pages, "false", 0, 0, NULL, "2 MiB pages from the reserve")  \
    X(POOL_NUMA_NODE, "pool.numa_node", U32, pool.numa_node, "unset", 0, 1023, NULL, "NUMA node of the pool")          \
    X(POOL_LOCK, "pool.lock", BOOL, pool.lock, "false", 0, 0, NULL, "locks the pool in memory")                        \
    X(POOL_PREFAULT, "pool.prefault", BOOL, pool.prefault, "true", 0, 0, NULL, "touches every page at start")          \
    X(POOL_MAX_HOLD_BYTES, "pool.max_hold_bytes", SIZE, pool.max_hold_bytes, "derived", 1, FBY_MOST_BYTES, NULL,       \
      "blocks that callers' holds protect")                                                                            \
    X(POOL_WRITE_PINNED_BYTES, "pool.write_pinned_bytes", SIZE, pool.write_pinned_bytes, "derived", 1, FBY_MOST_BYTES, \
      NULL, "staging of puts and pins of store writes")                                                                \
    X(POOL_EVICTION, "pool.eviction", ENUM, pool.eviction, "lru", 0, 0, eviction_names,                                \
      "which unpinned leaf goes first")                                                                                \
    X(POOL_EVICT_START, "pool.evict_start", RATIO, pool.evict_start, "unset", 0, 0, NULL,                              \
      "used share of the pool at which eviction runs ahead of need")                                                   \
    X(POOL_EVICT_RATIO, "pool.evict_ratio", RATIO, pool.evict_ratio, "0.05", 0, 0, NULL,                               \
      "share of the pool that such a run frees")                                                                       \
    X(POOL_PAINT, "pool.paint", BOOL, pool.paint, "false", 0, 0, NULL, "overwrites freed slots; for debugging")        \
    X(STORE_DRIVER, "store.driver", TEXT, store.driver, "file", 0, 0, NULL,                                            \
      "mem, file, redis, mooncake, fault:NAME, or the path of a shared object")                                        \
    X(STORE_HOST, "store.host", ENUM, store.host, "auto", 0, 0, host_names, "where the driver runs")                   \
    X(STORE_AGENT_DIR, "store.agent_dir", TEXT, store.agent_dir, "unset", 0, 0, NULL,                                  \
      "directory of the agents' programs; unset: found beside the library")                                            \
    X(STORE_QUERY_LANES, "store.query_lanes", U32, store.query_lanes, "unset", 1, 64, NULL,                            \
      "lanes for queries; unset: from the driver's capabilities")                                                      \
    X(STORE_READ_LANES, "store.read_lanes", U32, store.read_lanes, "unset", 1, 64, NULL,                               \
      "lanes for session reads; likewise")                                                                             \
    X(STORE_WRITE_LANES, "store.write_lanes", U32, store.write_lanes, "unset", 1, 64, NULL,                            \
      "lanes for writes; likewise")                                                                                    \
    X(STORE_BATCH, "store.batch", U32, store.batch, "unset", 1, 4096, NULL,                                            \
      "keys of one driver call; unset: as many as make 8 MiB, 8 to 128; 128 with one read lane")                       \
    X(STORE_VERIFY, "store.verify", ENUM, store.verify, "on", 0, 0, verify_names, "checksums of what is read")         \
    X(STORE_WRITE, "store.write", ENUM, store.write, "through", 0, 0, write_names, "when puts reach the store")        \
    X(STORE_BREAKER_FAILURES, "store.breaker_failures", U32, store.breaker_failures, "3", 1, 1000000, NULL,            \
      "failures in a row that open the breaker")                                                                       \
    X(STORE_BREAKER_BACKOFF_S, "store.breaker_backoff_s", SPAN, store.breaker_backoff_ns, "1", 0, 0, NULL,             \
      "time to the first probe of an open breaker")                                                                    \
    X(STORE_BREAKER_BACKOFF_MAX_S, "store.breaker_backoff_max_s", SPAN, store.breaker_backoff_max_ns, "60", 0, 0,      \
      NULL, "longest time between probes")                                                                             \
    X(STORE_NEGATIVE_TTL_S, "store.negative_ttl_s", TIME, store.negative_ttl_ns, "5", 0, 0, NULL,                      \
      "how long a key that was promised and failed is not asked for again")                                            \
    X(SERVER_LISTEN, "server.listen", TEXT, server.listen, "off", 0, 0, NULL,                                          \
      "path of a Unix socket on which this cache answers other processes")                                             \
    X(SERVER_MODE, "server.mode", TEXT, server.mode, "0600", 0, 0, NULL, "mode of that socket, in octal digits")       \
    X(SERVER_ALLOW_UIDS, "server.allow_uids", TEXT, server.allow_uids, "own", 0, 0, NULL,                              \
      "users that may connect: own (this one and root), any, or numbers separated by commas")                          \
    X(SERVER_MAX_CLIENTS, "server.max_clients", U32, server.max_clients, "1024", 1, 65536, NULL,                       \
      "connections at once")                                                                                           \
    X(SERVER_CLIENT_SESSIONS, "server.client_sessions", U32, server.client_sessions, "4096", 1, 1048576, NULL,         \
      "sessions of one connection that have not ended")                                                                \
    X(SERVER_CLIENT_HOLDS, "server.client_holds", U32, server.client_holds, "4096", 1, 1048576, NULL,                  \
      "holds of one connection")                                                                                       \
    X(SERVER_CLIENT_PUTS, "server.client_puts", U32, server.client_puts, "1024", 1, 1048576, NULL,                     \
      "puts of one connection")                                                                                        \
    X(SERVER_CLIENT_PINNED_BYTES, "server.client_pinned_bytes", SIZE, server.client_pinned_bytes, "1TiB", 1,           \
      FBY_MOST_BYTES, NULL, "what the holds of one connection may cover, each counted in full")                        \
    X(SERVER_CLIENT_SEQUENCE_BYTES, "server.client_sequence_bytes", SIZE, server.client_sequence_bytes, "64MiB",       \
      1048576, FBY_MOST_BYTES, NULL, "hashes that are kept for one connection; the least recently used go first")      \
    X(SERVER_STOP_LIMIT_S, "server.stop_limit_s", TIME, server.stop_limit_ns, "10", 0, 0, NULL,                        \
      "how long a graceful stop waits for sessions under way")                                                         \
    X(SERVER_ALLOW_CHECK, "server.allow_check", BOOL, server.allow_check, "false", 0, 0, NULL,                         \
      "clients may ask for fby_cache_check, which stops everybody; for tests")                                         \
    X(METRICS_LISTEN, "metrics.listen", TEXT, metrics.listen, "off", 0, 0, NULL,                                       \
      "HOST:PORT of the pages /metrics and /health")                                                                   \
    X(LOG_LEVEL, "log.level", ENUM, log.level, "info", 0, 0, log_level_names, "least severe line that is written")     \
    X(LOG_FORMAT, "log.format", ENUM, log.format, "logfmt", 0, 0, log_format_names, "shape of a log line")

typedef enum fby_key_id {
#define FBY_X(id, key, type, field, text, low, high, names, help) FBY_KEY_##id,
    FBY_CONFIG_MAP(FBY_X)
#undef FBY_X
        FBY_KEY_COUNT
} fby_key_id_t;

#endif
