/*
 * forebay.h - the contract for programs that embed Forebay.
 *
 * Forebay moves a request's KV cache from a remote store into CPU memory while the request waits in an engine's
 * queue, stops the moment the engine wants the request, and hands back a protected, contiguous, verified prefix.
 *
 * INTRODUCTION
 *   A *cache* owns a pool of CPU memory, an index over it, and one store. A *sequence* is a token string with a
 *   namespace, cut into blocks that are named by a hash of everything before them. A *session* prefetches a sequence;
 *   its result is protected by a *lease*, which fby_session_take() turns into a *hold*. A *put* publishes new blocks.
 *
 *        fby_config_create -> fby_cache_open
 *        fby_seq_create -> fby_session_start -> (queue...) -> fby_session_demand -> fby_session_wait
 *                       -> fby_session_take -> fby_hold_slots, copy -> fby_hold_release
 *        fby_put_begin -> fill fby_put_slots -> fby_put_commit -> fby_put_release
 *
 *   docs/README.md lists the overview pages: lifecycle, stopping, ownership, and one page per object.
 *
 * ERRORS
 *   Every call that can fail returns 0 or a negative code: -errno where one fits, else one of FBY_ERROR_MAP.
 *   fby_strerror() names it, fby_last_error() has the detail. Outputs are written on success only.
 *   Any call that takes a cache may answer, besides what stands at the call:
 *        -EINVAL         an argument is NULL or out of range, or a struct's `size` was not set
 *        FBY_E_CLOSED    the cache is closed or closing
 *        FBY_E_FORKED    the cache was opened by a parent process
 *        FBY_E_POISONED  an internal invariant broke: from then on nothing is published or freed and no call delivers a
 *                        token; only fby_cache_close, _model, _stats and _health still work
 *   Calls never abort the process of an engine.
 *
 * THREADS
 *   Every call may be made from any thread at any time unless it says otherwise. Calls marked *quick* do no I/O, never
 *   wait on a lock held across I/O, and cost about a microsecond. Only calls marked *blocks* wait.
 *   A child of fork() may not use the handles of its parent: it gets FBY_E_FORKED. It may open a cache of its own.
 *
 * HANDLES
 *   Sessions, holds and puts are 64-bit values with a type, a slot, a generation and an epoch: a stale, foreign or null
 *   one is an error (FBY_E_STALE), never somebody else's object. A reset makes all of them stale for new calls; holds
 *   and puts can still be released.
 *
 * STRUCTS
 *   A struct with a `size` member grows at its end only. The caller sets `size` to sizeof; the library writes or reads
 *   no more than that.
 *
 * UNITS
 *   Times are seconds as double at the API (monotonic clock), nanoseconds in snapshots. Sizes are bytes. Positions are
 *   tokens or blocks, as the name says.
 */
#ifndef FOREBAY_H
#define FOREBAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FBY_VERSION_MAJOR 0
#define FBY_VERSION_MINOR 1
#define FBY_VERSION_PATCH 0

/** Most groups a model may have. */
#define FBY_MAX_GROUPS 8

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

/*
 * Own codes. The first ten are also the per-key results of a store driver (store.h).
 * X(name, number, text)
 */
#define FBY_ERROR_MAP(X)                                                                                               \
    X(MISSING, 2001, "the store does not hold the key")                                                                \
    X(NOT_READY, 2002, "the object exists but its writer has not finished")                                            \
    X(SIZE, 2003, "the object has another length than expected")                                                       \
    X(CHECKSUM, 2004, "the object's trailer or checksum is wrong")                                                     \
    X(LEASE, 2005, "the store's lease ended before the read did")                                                      \
    X(TIMEOUT, 2006, "the store did not answer in time")                                                               \
    X(CONNECTION, 2007, "the store cannot be reached")                                                                 \
    X(FULL, 2008, "the store is full")                                                                                 \
    X(EXISTS, 2009, "the key exists already")                                                                          \
    X(INVALID, 2010, "the store refused the arguments")                                                                \
    X(RECALLED, 2011, "the read was withdrawn before it began")                                                        \
    X(STALE, 2020, "the handle or the sequence's weights epoch is stale")                                              \
    X(NOT_ENABLED, 2021, "prefetch.enabled is false: only whole-plan wait_complete sessions exist")                    \
    X(CLOSED, 2022, "the cache is closed or closing")                                                                  \
    X(FORKED, 2023, "the handle belongs to the parent process")                                                        \
    X(POISONED, 2024, "an internal invariant broke; the cache answers nothing any more")                               \
    X(STATE, 2025, "the call does not fit the object's state")                                                         \
    X(CONFIG, 2026, "the configuration is wrong")                                                                      \
    X(FORMAT, 2027, "the data is not in a format this version reads")                                                  \
    X(BUDGET, 2028, "the call would pass a configured budget")                                                         \
    X(ABANDONED, 2029, "the close limit passed; work that could not be proven ended was left behind")

enum {
#define FBY_X(name, number, text) FBY_E_##name = -(number),
    FBY_ERROR_MAP(FBY_X)
#undef FBY_X
};

/** Text of a return value, for people. Never NULL; static storage. Knows -errno too. */
const char *fby_strerror(int code);
/** Short symbolic name: "MISSING", "EINVAL". Never NULL; static storage. */
const char *fby_errname(int code);
/** Detail of the last failing call in this thread: names the thing, the value and what is accepted. May be "". Valid
    until the next failing call in this thread; a call that succeeds does not clear it. */
const char *fby_last_error(void);
/** "0.1.0". */
const char *fby_version(void);

/* ---- Names that appear in snapshots, metrics and logs ----------------------------------------------------------- */

/* X(name, text): what a session may be doing. docs/sessions.md has the table of events. */
#define FBY_STATE_MAP(X)                                                                                               \
    X(PLANNING, "planning") /* nothing is claimed yet; parked sessions are here too */                                 \
    X(ACTIVE, "active")     /* may claim */                                                                            \
    X(DRAINING, "draining") /* sealed: claims nothing more, its graphs end */                                          \
    X(TERMINAL, "terminal") /* its ledger is empty; the lease may still be there */                                    \
    X(EXPIRED, "expired")   /* terminal and without a lease: a tombstone that answers polls until it is forgotten */

/* X(name, text): what an answer amounts to. */
#define FBY_OUTCOME_MAP(X)                                                                                             \
    X(NONE, "none")         /* not answered yet */                                                                     \
    X(COMPLETE, "complete") /* delivered up to a final plan, also when all of it was local */                          \
    X(PARTIAL, "partial")   /* something was delivered, but not all, or the plan was not final */                      \
    X(EMPTY, "empty")       /* nothing was delivered, and nothing failed */                                            \
    X(FAILED, "failed")     /* nothing was delivered, because the store failed */                                      \
    X(ABORTED, "aborted")   /* stop, release, reset or shutdown came before the answer */                              \
    X(EXPIRED, "expired")   /* reserved: an answer's outcome does not change; FBY_EXPIRED is the state */

/* X(name, text): why a session stopped claiming. A caller causes only `demand` and `abort`. */
#define FBY_REASON_MAP(X)                                                                                              \
    X(NONE, "none")         /* it has not stopped */                                                                   \
    X(COMPLETE, "complete") /* the plan was claimed to its end */                                                      \
    X(DEADLINE, "deadline") /* policy timeout: the budget is spent, or the next chunk would end after it */            \
    X(DEMAND, "demand")     /* policy best_effort: fby_session_demand */                                               \
    X(CAPACITY_RESERVED, "capacity_reserved") /* max_reserved_bytes is short and nothing can free it in time */        \
    X(CAPACITY_PINNED, "capacity_pinned")     /* max_pinned_bytes or max_hold_bytes is, likewise */                    \
    X(CAPACITY_POOL, "capacity_pool")         /* the pool is, likewise */                                              \
    X(BELOW_THRESHOLD, "below_threshold")     /* fewer candidate tokens than min_tokens */                             \
    X(PARTIAL_READ, "partial_read")           /* a block was missing, not ready, or not what it should be */           \
    X(QUERY_ERROR, "query_error")             /* the store could not say what it holds */                              \
    X(STORE_ERROR, "store_error")             /* a read failed in another way */                                       \
    X(IO_TIMEOUT, "io_timeout")               /* a read passed its limit */                                            \
    X(BREAK_EVEN, "break_even")               /* policy break_even: computing is faster than loading */                \
    X(ABORT, "abort")                         /* fby_session_stop or _release before the answer */                     \
    X(RESET, "reset")                                                                                                  \
    X(SHUTDOWN, "shutdown")

/* X(name, text): when a session stops claiming. docs/policies.md. */
#define FBY_POLICY_MAP(X)                                                                                              \
    X(WAIT_COMPLETE, "wait_complete") /* at the end of the plan */                                                     \
    X(TIMEOUT, "timeout")             /* when a budget since its start is spent */                                     \
    X(BEST_EFFORT, "best_effort")     /* when the scheduler wants the request */                                       \
    X(BREAK_EVEN, "break_even")       /* when loading the next chunk takes longer than computing it */

/* X(name, text): what a policy stop does with claimed work. docs/stopping.md. */
#define FBY_STOP_MODE_MAP(X)                                                                                           \
    X(DRAIN, "drain")   /* all of it runs, then the answer */                                                          \
    X(RECALL, "recall") /* what the store has not begun is withdrawn, the rest runs, then the answer */                \
    X(DETACH, "detach") /* the answer at once; all of it runs behind the answer, for the cache */

typedef enum fby_state {
#define FBY_X(name, text) FBY_##name,
    FBY_STATE_MAP(FBY_X)
#undef FBY_X
        FBY_STATE_COUNT
} fby_state_t;
typedef enum fby_outcome {
#define FBY_X(name, text) FBY_OUTCOME_##name,
    FBY_OUTCOME_MAP(FBY_X)
#undef FBY_X
        FBY_OUTCOME_COUNT
} fby_outcome_t;
typedef enum fby_reason {
#define FBY_X(name, text) FBY_REASON_##name,
    FBY_REASON_MAP(FBY_X)
#undef FBY_X
        FBY_REASON_COUNT
} fby_reason_t;
typedef enum fby_policy {
#define FBY_X(name, text) FBY_POLICY_##name,
    FBY_POLICY_MAP(FBY_X)
#undef FBY_X
        FBY_POLICY_COUNT
} fby_policy_t;
typedef enum fby_stop_mode {
#define FBY_X(name, text) FBY_STOP_##name,
    FBY_STOP_MODE_MAP(FBY_X)
#undef FBY_X
        FBY_STOP_MODE_COUNT
} fby_stop_mode_t;

/** Texts of the tables above; never NULL, static storage. A value outside the table gives "unknown". */
const char *fby_state_name(fby_state_t state);
const char *fby_outcome_name(fby_outcome_t outcome);  /**< as fby_state_name */
const char *fby_reason_name(fby_reason_t reason);     /**< as fby_state_name */
const char *fby_policy_name(fby_policy_t policy);     /**< as fby_state_name */
const char *fby_stop_mode_name(fby_stop_mode_t mode); /**< as fby_state_name */

/* ---- Configuration ---------------------------------------------------------------------------------------------- */

/*
 * A configuration is a set of dotted keys ("prefetch.policy", "pool.bytes"); docs/configuration.md lists them.
 * Precedence: file > environment FOREBAY_* > default; fby_config_set() is "file" too (an explicit choice).
 * A configuration object is not thread-safe. It may be freed once a cache is open.
 */
typedef struct fby_config fby_config_t;

/** Defaults plus the environment. The caller frees it. Errors: -ENOMEM, FBY_E_CONFIG (a wrong environment variable). */
int fby_config_create(fby_config_t **out);
/** NULL is fine. */
void fby_config_free(fby_config_t *config);
/** Reads a YAML or JSON file. Errors: -errno of the file, FBY_E_CONFIG; fby_last_error() names key, value, accepted. */
int fby_config_load(fby_config_t *config, const char *path);
/** The same from memory; `name` stands in messages. */
int fby_config_parse(fby_config_t *config, const char *text, size_t length, const char *name);
/** Sets one key from text, as if it stood in the file. Copies both. Errors: FBY_E_CONFIG, -ENOMEM. */
int fby_config_set(fby_config_t *config, const char *key, const char *value);
/** The effective value as text, and where it came from ("file", "environment", "default"); either out may be NULL.
    A secret is shown as "(set)". Pointers live until the configuration changes. Errors: -ENOENT (no such key). */
int fby_config_get(const fby_config_t *config, const char *key, const char **value, const char **origin);
/** Checks what can be checked without allocating: missing model fields, contradictions. Also done by open.
    FBY_E_CONFIG. */
int fby_config_check(const fby_config_t *config);
/** Calls `row` for each key in order with effective value and origin. */
void fby_config_each(const fby_config_t *config,
                     void (*row)(void *arg, const char *key, const char *value, const char *origin), void *arg);

/* ---- Cache ------------------------------------------------------------------------------------------------------ */

typedef struct fby_cache fby_cache_t;

/** What close() could not prove ended. */
typedef struct fby_close_report {
    uint32_t size; /**< sizeof(fby_close_report_t), set by the caller */
    uint32_t sessions_aborted;
    uint32_t operations_abandoned;
    uint64_t bytes_abandoned; /**< memory that stays mapped until the process exits */
} fby_close_report_t;

/** Opens pool, index and store. *Blocks* while the store opens. The caller closes it with fby_cache_close. Threads are
    made when something first needs them; with prefetch.enabled the control thread at once.
    Errors: FBY_E_CONFIG, FBY_E_FORMAT (a store of a newer format), FBY_E_STALE (the store knows a higher weights
    epoch), -ENOMEM (the detail names what was asked and what there is), -EBUSY (the store's directory is in use),
    -errno. */
int fby_cache_open(const fby_config_t *config, fby_cache_t **out);
/** Seals every session, drains at most limit_s, frees. Wakes every waiting call. Idempotent and callable from several
    threads: all get the same result and report. A later call with the handle is FBY_E_CLOSED, not a crash; addresses of
    holds and puts are invalid; sequences and subscriptions may still be given back.
    *Blocks* up to limit_s. `report` may be NULL.
    Returns 0 or FBY_E_ABANDONED: operations did not end, what they may touch stays mapped, the report says how much. */
int fby_cache_close(fby_cache_t *cache, double limit_s, fby_close_report_t *report);

enum { FBY_RESET_DONE = 0, FBY_RESET_BUSY = 1 };
/** Forgets every resident block. From the call on lookups are 0, handles from before are stale, and new calls work on
    the new generation at once. Waits up to wait_s (*blocks*; 0: not at all) for what is in flight, held or being
    written. bump_epoch != 0 also raises the weights epoch: sequences from before are stale, and the store's old objects
    cannot be reached. A persistent store keeps the new epoch first (*blocks* for its I/O); if it cannot, that is the
    error and nothing has changed. Returns FBY_RESET_DONE, FBY_RESET_BUSY (under way, completes by itself) or an
    error. */
int fby_cache_reset(fby_cache_t *cache, double wait_s, int bump_epoch);
/** The weights epoch in force; 0 when the cache cannot be asked. *Quick*. */
uint64_t fby_cache_epoch(fby_cache_t *cache);

typedef struct fby_model {
    uint32_t size;
    uint32_t block_tokens;
    uint32_t groups;
    struct {
        char name[32];
        uint32_t payload_bytes; /**< bytes of one block */
        uint32_t slot_bytes;    /**< payload, trailer and padding */
        uint32_t trailing;      /**< 0: rule `all`; n: rule `trailing(n)` */
    } group[FBY_MAX_GROUPS];
    char fingerprint[33]; /**< hex digest of all that makes bytes incompatible */
} fby_model_t;
/** The model as configured. Set model->size first. *Quick*. */
int fby_cache_model(fby_cache_t *cache, fby_model_t *model);

/*
 * Counters, which only grow, and gauges (named so). Tokens and reasons are counted when a session is answered.
 * Pool and resident blocks are those of group 0.
 */
#define FBY_STAT_MAP(X)                                                                                                \
    X(sessions) /* started */                                                                                          \
    X(sessions_running_gauge)                                                                                          \
    X(sessions_parked_gauge) /* started beyond max_sessions */                                                         \
    X(leases_gauge)                                                                                                    \
    X(holds_gauge)                                                                                                     \
    X(puts_gauge)                                                                                                      \
    X(tokens_found)                                                                                                    \
    X(tokens_planned)                                                                                                  \
    X(tokens_loaded)                                                                                                   \
    X(tokens_delivered)                                                                                                \
    X(tokens_consumed) /* of taken results, asked for with fby_hold_slots */                                           \
    X(graphs)          /* ended, recalled ones included */                                                             \
    X(graphs_recalled)                                                                                                 \
    X(joins)      /* ledger entries that wait for other sessions' reads alone */                                       \
    X(takeovers)  /* payloads that a joiner took over from their owner */                                              \
    X(duplicates) /* blocks that somebody else had published meanwhile */                                              \
    X(retries)                                                                                                         \
    X(blocks_published)                                                                                                \
    X(blocks_removed) /* by eviction and resets */                                                                     \
    X(blocks_evicted)                                                                                                  \
    X(evicted_before_use) /* prefetched, and gone before a hold covered them */                                        \
    X(reserved_bytes_gauge)                                                                                            \
    X(pinned_bytes_gauge)                                                                                              \
    X(hold_bytes_gauge)                                                                                                \
    X(write_pinned_bytes_gauge)                                                                                        \
    X(quarantine_bytes_gauge)                                                                                          \
    X(retired_bytes_gauge)                                                                                             \
    X(inflight_graphs_gauge)                                                                                           \
    X(capacity_reserved) /* sessions that ended for each shortage */                                                   \
    X(capacity_pinned)                                                                                                 \
    X(capacity_pool)                                                                                                   \
    X(below_threshold)                                                                                                 \
    X(budget_refused) /* lookups and puts over max_hold_bytes; sessions whose time ran out parked */                   \
    X(fail_missing)   /* payloads, by what was wrong with their read */                                                \
    X(fail_not_ready)                                                                                                  \
    X(fail_size)                                                                                                       \
    X(fail_checksum)                                                                                                   \
    X(fail_lease)                                                                                                      \
    X(fail_timeout)                                                                                                    \
    X(fail_connection)                                                                                                 \
    X(fail_other)                                                                                                      \
    X(writes) /* payloads that the store took or had already */                                                        \
    X(writes_failed)                                                                                                   \
    X(writes_dropped) /* for want of room: never given to the store; in writes_failed too */                           \
    X(queries)                                                                                                         \
    X(query_errors)                                                                                                    \
    X(bytes_read)   /* verified */                                                                                     \
    X(bytes_wasted) /* verified and thrown away */                                                                     \
    X(bytes_written)                                                                                                   \
    X(pool_blocks_gauge)                                                                                               \
    X(free_blocks_gauge)                                                                                               \
    X(resident_blocks_gauge)                                                                                           \
    X(agents_gauge) /* host agent: processes that serve the store */                                                   \
    X(agent_starts)                                                                                                    \
    X(agent_kills)     /* fences: a limit fired, or the process did not keep to the protocol */                        \
    X(agent_deaths)    /* by itself, or by others' hands */                                                            \
    X(agents_unproven) /* dead, but what else held the pool is not known: its slots stay in quarantine */
typedef struct fby_stats {
    uint32_t size;
    uint32_t reserved0;
#define FBY_X(name) uint64_t name;
    FBY_STAT_MAP(FBY_X)
#undef FBY_X
    uint64_t sessions_by_reason[FBY_REASON_COUNT];
} fby_stats_t;
/** Fills all of it, from one moment. Set stats->size first. Takes the lock for a walk over the graph table: not for
    every scheduling step. Also answered by a poisoned cache. */
int fby_cache_stats(fby_cache_t *cache, fby_stats_t *stats);

typedef struct fby_health {
    uint32_t size;
    uint32_t healthy;             /**< 0: poisoned, or a breaker is open, or an operation is over half its limit */
    uint64_t oldest_operation_ns; /**< age of the oldest store operation outstanding; 0: none */
    uint64_t oldest_draining_ns;  /**< age of the oldest session that drains; 0: none */
    uint64_t quarantined_bytes;
    uint64_t last_completion_ns; /**< age of the last store completion; 0: none yet */
    uint32_t breaker;            /**< 0 closed, 1 open, 2 probing */
    uint64_t breaker_retry_ns;   /**< time to the next probe; 0: closed */
    char message[160];           /**< what is wrong, or "" */
} fby_health_t;
/** What an operator's probe asks. Set health->size first. Takes the lock for a walk over the session table. Also
    answered by a poisoned cache. */
int fby_cache_health(fby_cache_t *cache, fby_health_t *health);
/** All metrics of this cache as Prometheus text (format 0.0.4), NUL-terminated: what `metrics.listen` serves, and
    docs/metrics.md explains. *needed (may be NULL) becomes the bytes that all of it takes now, the NUL included, also with
    -ENOSPC; leave some room, since figures grow. text may be NULL when capacity is 0. Takes the lock for walks over the
    graph and the session table; prints outside of it. Also answered by a poisoned cache. -ENOSPC: nothing is written to
    text. */
int fby_cache_metrics(fby_cache_t *cache, char *text, size_t capacity, size_t *needed);
/** Recomputes every counter from the slots and checks every invariant. *Blocks* for O(pool), and everybody else with
    it: for tests and post-mortems. 0, or FBY_E_POISONED with the broken invariant as detail. */
int fby_cache_check(fby_cache_t *cache);

/* ---- Sequences -------------------------------------------------------------------------------------------------- */

typedef struct fby_seq fby_seq_t;

/** Kinds of namespace parts. Each part is type-tagged and length-prefixed before it is hashed. */
typedef enum fby_ns_type { FBY_NS_ADAPTER = 1, FBY_NS_SALT = 2, FBY_NS_TENANT = 3, FBY_NS_TEXT = 4 } fby_ns_type_t;
typedef struct fby_ns_part {
    fby_ns_type_t type;
    const void *data; /**< any bytes */
    size_t length;    /**< an empty salt means "unset"; an empty part of another type is a value of its own */
} fby_ns_part_t;

/** Hashes n tokens (each as little-endian 32-bit) in the calling thread: the one costly step, outside every lock.
    Copies what it needs. Tokens beyond the last whole block are kept for append and count for the last-token rule.
    The sequence is bound to the weights epoch in force: after a bump calls on it answer FBY_E_STALE.
    One reference belongs to the caller. ns may be NULL when ns_parts is 0. Errors: -EINVAL, -ENOMEM. */
int fby_seq_create(fby_cache_t *cache, const uint32_t *tokens, size_t n, const fby_ns_part_t *ns, size_t ns_parts,
                   fby_seq_t **out);
/** Grows the sequence; hashes only what is new. Not while another thread uses the same sequence. Sessions, holds and
    puts made before see the length they were made with. Errors: -EINVAL, -ENOMEM; then nothing has changed. */
int fby_seq_append(fby_seq_t *seq, const uint32_t *tokens, size_t n);
/** One more reference; returns seq. Sessions, holds and puts keep what they need by themselves. */
fby_seq_t *fby_seq_ref(fby_seq_t *seq);
void fby_seq_unref(fby_seq_t *seq);          /**< NULL is fine */
size_t fby_seq_tokens(const fby_seq_t *seq); /**< all of them, those beyond the last whole block too */
size_t fby_seq_blocks(const fby_seq_t *seq); /**< whole blocks */
/** The store key of block i for a group: NUL-terminated lower-case hex and group suffix. -EINVAL, -ENOSPC. */
int fby_seq_key(const fby_seq_t *seq, size_t block, uint32_t group, char *out, size_t capacity);

/* ---- Sessions --------------------------------------------------------------------------------------------------- */

typedef uint64_t fby_session_t; /**< 0 is never a handle */
typedef uint64_t fby_hold_t;
typedef uint64_t fby_put_t;

#define FBY_UNSET (-1)
/** Initialise with FBY_SESSION_OPTIONS_INIT, then change what you mean to. */
typedef struct fby_session_options {
    uint32_t size;
    int32_t policy;          /**< fby_policy_t, or FBY_UNSET: prefetch.policy */
    int32_t stop_mode;       /**< fby_stop_mode_t, or FBY_UNSET: prefetch.stop_mode */
    int32_t predictive;      /**< 0, 1, or FBY_UNSET: prefetch.predictive */
    double timeout_budget_s; /**< >= 0, or < 0: prefetch.timeout_budget_s, else the formula of docs/policies.md */
    uint64_t candidate_start_token; /**< first token not on the device already; for the formula and min_tokens */
    uint64_t have_blocks; /**< blocks the caller's device already holds; nothing before is read from the store */
    uint64_t min_tokens;  /**< UINT64_MAX: prefetch.min_tokens */
    const char *label;    /**< request id for logs; copied, at most 47 bytes; never part of a key. NULL: none */
} fby_session_options_t;
#define FBY_SESSION_OPTIONS_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(fby_session_options_t), FBY_UNSET, FBY_UNSET, FBY_UNSET, -1.0, 0, 0, UINT64_MAX, NULL                   \
    }

/** A consistent picture of a session. Once `answered` is 1, the fields from outcome to span_end_block (lease_valid
    apart) do not change any more. */
typedef struct fby_snapshot {
    uint32_t size;
    fby_state_t state;
    fby_session_t handle;
    uint64_t version; /**< grows with every change */
    uint32_t answered;
    fby_outcome_t outcome;
    fby_reason_t reason;
    int32_t error; /**< the failure behind the reason, or 0 */
    uint32_t lease_valid;
    uint32_t planned_final;    /**< the plan will not grow; a store lease that runs out before a claim may reopen it */
    uint64_t found_tokens;     /**< proven by index and store, last-token rule applied */
    uint64_t planned_tokens;   /**< end of the plan */
    uint64_t loaded_tokens;    /**< read from the store, verified and published, inside the delivered prefix */
    uint64_t delivered_tokens; /**< protected, contiguous, verified prefix (a checkpoint) */
    uint64_t start_blocks, committed_blocks, cursor_blocks, delivered_blocks;
    uint64_t span_start_block; /**< with span_end_block the hull of what was loaded from the store and delivered */
    uint64_t span_end_block;
    uint64_t inflight_chunks, inflight_bytes;
    uint64_t submitted;         /**< graphs and joins claimed so far */
    uint64_t sealed_submit_seq; /**< `submitted` at the seal; meaningful once reason != none */
    uint64_t created_ns, sealed_ns, answered_ns, terminal_ns; /**< monotonic; 0: not yet */
} fby_snapshot_t;

/** Starts a prefetch. *Quick*. Takes its own reference on seq. options may be NULL. Beyond prefetch.max_sessions the
    session is parked: its deadline runs, it begins when a place comes free.
    Errors: -EBUSY (handle table full), FBY_E_STALE (older weights epoch), FBY_E_NOT_ENABLED (another policy than
    wait_complete without prefetch.enabled), FBY_E_CONFIG (break_even without prefetch.recompute_tokens_per_s), -EINVAL,
    -ENOMEM. */
int fby_session_start(fby_cache_t *cache, fby_seq_t *seq, const fby_session_options_t *options, fby_session_t *out);
/** Latest snapshot. Lock-free, no system call, never blocks. Set snapshot->size first. Never signals demand.
    FBY_E_STALE: the handle is not known any more. */
int fby_session_poll(fby_cache_t *cache, fby_session_t session, fby_snapshot_t *snapshot);
/** One scheduling pass: for each of n sessions, signal demand where demand[i] != 0, then poll. demand may be NULL.
    snapshots[i].size must be set; a handle that is not known gets state FBY_EXPIRED and error FBY_E_STALE.
    *Quick* per session. */
int fby_session_progress(fby_cache_t *cache, const fby_session_t *sessions, const uint8_t *demand, size_t n,
                         fby_snapshot_t *snapshots);
/** The scheduler wants the request. best_effort: seals; timeout: as its deadline if spent; others: nothing.
    Idempotent. After it returns a sealed session submits nothing more. *Quick*. FBY_E_STALE. */
int fby_session_demand(fby_cache_t *cache, fby_session_t session);
/** Aborts: outcome `aborted`, no lease. After the answer: drops a lease that nobody took and discards what still
    drains; the answer stands. Idempotent. After it returns nothing more is submitted. *Quick*. FBY_E_STALE. */
int fby_session_stop(fby_cache_t *cache, fby_session_t session);
/** *Blocks* until answered or timeout_s passed (negative: for ever). A timeout returns -ETIMEDOUT and stops nothing.
    snapshot may be NULL. FBY_E_STALE: not known, also after a reset; FBY_E_CLOSED: the cache closed meanwhile. */
int fby_session_wait(fby_cache_t *cache, fby_session_t session, double timeout_s, fby_snapshot_t *snapshot);
/** Turns the lease into a hold of the caller, atomically. Nothing delivered gives an empty hold, which is released like
    any other. A tail that detach left goes on. *Quick*.
    Errors: FBY_E_STATE (not answered), FBY_E_STALE (expired, released, stopped, taken), -EBUSY (hold table full). */
int fby_session_take(fby_cache_t *cache, fby_session_t session, fby_hold_t *out);
/** Ends the caller's interest: as stop before the answer; after it, drops the lease and lets what still drains go on.
    Not needed after take. Idempotent; an unknown or stale handle is FBY_E_STALE and harmless. *Quick*. */
int fby_session_release(fby_cache_t *cache, fby_session_t session);
/** A descriptor that becomes readable when the session is answered or its handle ends; readable at once when it is
    answered already. A new one with each call, the caller's to close at any time. -errno, FBY_E_STALE. */
int fby_session_event_fd(fby_cache_t *cache, fby_session_t session);

/* ---- Holds ------------------------------------------------------------------------------------------------------ */

enum { FBY_LOOKUP_ADVISORY = 1 /**< no hold: only the length, as a promise of nothing */ };
/** Longest usable resident checkpoint under the last-token rule. Never asks the store. The hold may be empty (0
    tokens); it is the caller's to release. *Quick*. hold may be NULL with FBY_LOOKUP_ADVISORY; tokens may be NULL.
    Errors: FBY_E_BUDGET (max_hold_bytes, or room granted to sessions), FBY_E_STALE (older weights epoch), -EBUSY (hold
    table full). */
int fby_lookup(fby_cache_t *cache, fby_seq_t *seq, unsigned flags, fby_hold_t *hold, uint64_t *tokens);
/** Tokens and blocks the hold protects, and its first block: not 0 only after a session with have_blocks whose device
    prefix was not resident. Any out may be NULL. *Quick*. FBY_E_STALE. */
int fby_hold_info(fby_cache_t *cache, fby_hold_t hold, uint64_t *tokens, uint64_t *blocks, uint64_t *first_block);
/** Addresses of the payloads of blocks [from, to) of a group, into out[to - from]. For a trailing group only the blocks
    the hold's end needs are there; others are NULL. Valid until the hold's release or trim. Read only.
    Blocks of a taken result whose group 0 is asked for count as consumed, once. *Quick* per 256 blocks.
    -EINVAL (outside [first_block, blocks)), FBY_E_STALE. */
int fby_hold_slots(fby_cache_t *cache, fby_hold_t hold, uint32_t group, uint64_t from, uint64_t to, const void **out);
/** Gives up all beyond the greatest checkpoint <= tokens; it is free at once. Returns the new length in *now_tokens
    (may be NULL). Never grows. Of a private run (first_block > 0) what goes is freed, not indexed, and a trim to its
    first block or below leaves nothing. *Quick*. FBY_E_STALE. */
int fby_hold_trim(fby_cache_t *cache, fby_hold_t hold, uint64_t tokens, uint64_t *now_tokens);
/** Adds readers; the hold ends when release was called once per reader (1 at creation). *Quick*. FBY_E_STALE. */
int fby_hold_readers(fby_cache_t *cache, fby_hold_t hold, uint32_t add);
/** One reader less; with the last one the protection ends and addresses are invalid. Works on holds from before a reset
    too: that is how their memory comes free. *Quick*. FBY_E_STALE. */
int fby_hold_release(fby_cache_t *cache, fby_hold_t hold);

/* ---- Puts ------------------------------------------------------------------------------------------------------- */

typedef struct fby_put_result {
    uint32_t size;
    uint32_t published;       /**< these four are an exact partition of the staged full blocks: visible from now on, */
    uint32_t duplicate;       /**< somebody else had published it meanwhile, */
    uint32_t discarded;       /**< not valid, */
    uint32_t orphan;          /**< its parent is not resident: it goes to the store only */
    uint64_t resident_tokens; /**< contiguous resident prefix that the put now pins */
} fby_put_result_t;

/** Stages slots for the missing blocks of [from_block, to_block), from the front only, as many as there is room for (at
    most 4,096). Pins the resident prefix. *first_missing is the first block, counted from 0, that is not resident;
    *staged_from, *staged_to bound the run of blocks to fill (possibly empty: all resident, or no room). Any of the
    three may be NULL. The put is the caller's to release. *Quick* per 256 blocks.
    Errors: FBY_E_STALE (older weights epoch), FBY_E_BUDGET (the prefix does not fit in max_hold_bytes), -EINVAL (beyond
    the sequence's whole blocks), -EBUSY (put table full), -ENOMEM. */
int fby_put_begin(fby_cache_t *cache, fby_seq_t *seq, uint64_t from_block, uint64_t to_block, fby_put_t *out,
                  uint64_t *first_missing, uint64_t *staged_from, uint64_t *staged_to);
/** The next range of the same request: as begin, keeping the pin without a gap. FBY_E_STATE: the previous range is not
    committed. */
int fby_put_next(fby_cache_t *cache, fby_put_t put, fby_seq_t *seq, uint64_t from_block, uint64_t to_block,
                 uint64_t *first_missing, uint64_t *staged_from, uint64_t *staged_to);
/** Addresses to fill for blocks [from, to) of a group; NULL where nothing is staged. A trailing group may have payloads
    staged before staged_from. Writable until commit, abort or release. FBY_E_STATE (committed), FBY_E_STALE, -EINVAL.
    */
int fby_put_slots(fby_cache_t *cache, fby_put_t put, uint32_t group, uint64_t from, uint64_t to, void **out);
/** Publishes the whole blocks below valid_tokens (counted from the sequence's start), checksums computed in the calling
    thread, outside the lock; store writes follow on their own. Total: every staged block ends in exactly one class.
    The put keeps its pin until next, abort or release. result may be NULL.
    FBY_E_STATE: committed already, or another thread is at it. FBY_E_STALE: not known, also after a reset. */
int fby_put_commit(fby_cache_t *cache, fby_put_t put, uint64_t valid_tokens, fby_put_result_t *result);
/** *Blocks* until the put's store writes ended, or timeout_s passed (negative: for ever). Over all ranges of the put,
    *stored counts objects (one per block and group) that the store now holds, *failed the others; either may be NULL.
    -ETIMEDOUT changes nothing. With store.write back a write may wait as long as the pool has room. */
int fby_put_wait_store(fby_cache_t *cache, fby_put_t put, double timeout_s, uint64_t *stored, uint64_t *failed);
/** A descriptor that becomes readable when no store write of the put is outstanding, or its handle ends; readable at once
    when none is. Otherwise as fby_session_event_fd: fby_put_wait_store with timeout 0 has the figures. */
int fby_put_event_fd(fby_cache_t *cache, fby_put_t put);
/** Returns uncommitted slots; drops the pin. Both names end the handle; what was published and its store writes stay.
    Works on puts from before a reset too. *Quick*. FBY_E_STALE; FBY_E_STATE: another thread is committing it. */
int fby_put_abort(fby_cache_t *cache, fby_put_t put);
int fby_put_release(fby_cache_t *cache, fby_put_t put); /**< as fby_put_abort */

/* ---- Events ----------------------------------------------------------------------------------------------------- */

typedef enum fby_event_type {
    FBY_EVENT_PUBLISHED = 1, /**< a block became resident: hash, block */
    FBY_EVENT_REMOVED = 2,   /**< a block is resident no more: hash, block */
    FBY_EVENT_SESSION = 3,   /**< a session is TERMINAL (with detach later than its answer): session, result */
    FBY_EVENT_RESET = 4,     /**< comes before any event of the new generation; REMOVED ones follow, in any order */
    FBY_EVENT_LOST = 5       /**< events were dropped here: block says how many */
} fby_event_type_t;
typedef struct fby_event {
    uint32_t size;
    fby_event_type_t type;
    uint8_t hash[16];      /**< published, removed: chain hash of the block */
    uint64_t block;        /**< its position; lost: how many events did not fit */
    fby_session_t session; /**< session ended */
    fby_snapshot_t result; /**< session ended */
} fby_event_t;
typedef struct fby_subscription fby_subscription_t;
/** A bounded queue of events (1 to 2^20 entries). When it overflows the oldest are dropped and one LOST event says how
    many. The caller ends it with fby_unsubscribe. -EBUSY: there are 32 already. -ENOMEM, -errno. */
int fby_subscribe(fby_cache_t *cache, uint32_t capacity, fby_subscription_t **out);
/** Next event; -EAGAIN when none. Set event->size first. *Quick*. */
int fby_subscription_next(fby_subscription_t *subscription, fby_event_t *event);
/** Readable while events wait. Owned by the subscription: do not close or read it. */
int fby_subscription_fd(fby_subscription_t *subscription);
/** Ends and frees it, also after the cache was closed. Not while another thread uses it. NULL is fine. */
void fby_unsubscribe(fby_subscription_t *subscription);

#ifdef __cplusplus
}
#endif
#endif
