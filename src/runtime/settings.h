/*
 * settings.h - a configuration resolved to plain values: what the runtime reads.
 *
 * Durations are nanoseconds, sizes are bytes, fractions are doubles. A setting that has no value says so with the mark
 * that its comment names. Texts that the settings point to belong to them: free with fby_settings_free().
 */
#ifndef FBY_RUNTIME_SETTINGS_H
#define FBY_RUNTIME_SETTINGS_H

#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "forebay/forebay.h"
#include "index/index.h"
#include "keys/keys.h"

#define FBY_SECRET_BYTES 64 /* most bytes of a deployment secret */

/* X(name, text) */
#define FBY_STORE_HOST_MAP(X) X(AUTO, "auto") X(INLINE, "inline") X(THREAD, "thread") X(AGENT, "agent")
#define FBY_VERIFY_MAP(X) X(ON, "on") X(OFF, "off") X(ON_LOAD, "on_load")
#define FBY_STORE_WRITE_MAP(X) X(THROUGH, "through") X(BACK, "back") X(OFF, "off")

#define FBY_X_HOST(name, text) FBY_HOST_##name,
#define FBY_X_VERIFY(name, text) FBY_VERIFY_##name,
#define FBY_X_WRITE(name, text) FBY_STORE_WRITE_##name,
typedef enum fby_store_host { FBY_STORE_HOST_MAP(FBY_X_HOST) FBY_HOST_COUNT } fby_store_host_t;
typedef enum fby_store_verify { FBY_VERIFY_MAP(FBY_X_VERIFY) FBY_VERIFY_COUNT } fby_store_verify_t;
typedef enum fby_store_write { FBY_STORE_WRITE_MAP(FBY_X_WRITE) FBY_STORE_WRITE_COUNT } fby_store_write_t;
#undef FBY_X_HOST
#undef FBY_X_VERIFY
#undef FBY_X_WRITE

typedef struct fby_settings {
    struct {
        bool enabled;
        fby_policy_t policy;
        fby_stop_mode_t stop_mode;
        bool predictive;
        uint32_t chunk_max_blocks, max_inflight_chunks;
        uint64_t timeout_base_ns, timeout_per_ki_token_ns, timeout_max_ns;
        uint64_t timeout_budget_ns; /* FBY_NEVER: unset, the formula decides; 0 is a legal budget */
        uint64_t min_tokens;
        uint32_t max_sessions;
        uint64_t max_reserved_bytes, max_pinned_bytes, result_ttl_ns, quarantine_limit_bytes;
        double recompute_tokens_per_s; /* 0: unset */
        uint32_t query_batch_blocks;
        uint64_t query_timeout_ns, io_timeout_ns, no_progress_timeout_ns, drain_limit_ns;
        uint64_t floor_bandwidth; /* bytes per second */
    } prefetch;
    fby_fingerprint_fields_t model;
    struct {
        fby_hash_kind_t kind;
        uint8_t secret[FBY_SECRET_BYTES];
        uint32_t secret_length; /* 0: unset */
    } hash;
    struct {
        uint64_t bytes;                       /* all groups together */
        uint64_t group_bytes[FBY_MAX_GROUPS]; /* by group of the model; all 0 unless pool.group_bytes is set */
        bool huge_pages, lock, prefault, paint;
        uint32_t numa_node; /* FBY_NONE: any */
        uint64_t max_hold_bytes, write_pinned_bytes;
        fby_eviction_t eviction;
        double evict_start; /* 0: unset, eviction on demand only */
        double evict_ratio;
    } pool;
    struct {
        char driver[256];
        char **options; /* "key=value", NULL-terminated, never NULL */
        fby_store_host_t host;
        char agent_dir[256];                                  /* "": unset */
        uint32_t query_lanes, read_lanes, write_lanes, batch; /* 0: from the driver's capabilities */
        fby_store_verify_t verify;
        fby_store_write_t write;
        uint32_t breaker_failures;
        uint64_t breaker_backoff_ns, breaker_backoff_max_ns, negative_ttl_ns;
    } store;
    struct {
        char listen[128]; /* "off", or shorter than a socket's path may be */
        char mode[8], allow_uids[256];
        uint32_t max_clients, client_sessions, client_holds, client_puts;
        uint64_t client_pinned_bytes, client_sequence_bytes, stop_limit_ns;
        bool allow_check;
    } server;
    struct {
        char listen[128];
    } metrics;
    struct {
        fby_log_level_t level;
        fby_log_format_t format;
    } log;
} fby_settings_t;

/* A socket is made under a longer name first and then renamed: what fits in sockaddr_un less that. */
enum { FBY_MOST_SOCKET_PATH = 91, FBY_MOST_UIDS = 16 };
/* config_check.c: the numbers of server.allow_uids. */
bool fby_uids_parse(const char *text, uint32_t *uids, uint32_t most, uint32_t *count);

/* Checks the configuration as fby_config_check() does and resolves it. FBY_E_CONFIG, -ENOMEM; nothing to free then. */
int fby_settings_resolve(const fby_config_t *config, fby_settings_t *out);
void fby_settings_free(fby_settings_t *settings);

/*
 * The effective policy: explicit in the configuration (file or environment) > the engine's argument > wait_complete.
 * engine_argument is a fby_policy_t or FBY_UNSET. *origin (may be NULL): "file", "environment", "argument", "default".
 */
fby_policy_t fby_settings_policy(const fby_config_t *config, int32_t engine_argument, const char **origin);

/* Bytes of one slot of a group: payload and trailer, rounded up to `alignment` (a power of two). */
uint64_t fby_settings_slot_bytes(const fby_settings_t *settings, uint32_t group, uint32_t alignment);

#endif
