/*
 * core.h - the sans-I/O heart: events in, actions out.
 *
 * The core owns sessions, ledgers, budgets, holds and puts over a slot table (pool/slots.h) and an index
 * (index/index.h). It has no thread, no lock, no clock, does no I/O and allocates nothing after init. Its caller
 * guards it with one lock, hands in the time with every call, and performs what comes out:
 *
 *   pulled   fby_core_next_query / next_reads / next_writes: a lane takes work when it can start it. What is not taken
 *            yet lies in the core's queues, where a stop can still recall it (claimed); taking it is *begun*.
 *   emitted  fby_core_event_t through config.emit, inside the call: answers, block events, fences, references to drop.
 *   timed    fby_core_next_deadline: when fby_core_tick wants to be called at the latest.
 *
 * Every call may leave work behind (walks, publication of a long graph, growth of a long chunk): then
 * fby_core_next_deadline() is 0 and fby_core_tick continues it. Publication goes in steps of FBY_STEP_BLOCKS blocks, a
 * claim in steps of 2,048; what ends a whole ledger at once (abort, gap, reset) is bounded by that ledger.
 *
 * Where to look: a session seals in session.c (fby_session_seal); a block becomes visible in ledger.c (publish_block)
 * when it was prefetched, in put.c (commit_block) when it was put, in lease.c (fby_private_free) when a private run ends;
 * a lease ends in lease.c (fby_lease_end); memory goes to quarantine in lanes.c (fby_quarantine).
 */
#ifndef FBY_CORE_H
#define FBY_CORE_H

#include "base/base.h"
#include "base/histogram.h"
#include "core/latch.h"
#include "forebay/forebay.h"
#include "index/index.h"
#include "pool/slots.h"

#define FBY_STEP_BLOCKS 256u /* blocks one critical section touches, about */

typedef struct fby_core fby_core_t;

/* A sequence as the core sees it: immutable while referenced. `ref` is handed back once, through FBY_CORE_UNREF. */
typedef struct fby_core_seq {
    const fby_hash_t *hashes; /* one per whole block */
    uint32_t blocks;
    uint64_t tokens;  /* may exceed blocks * block_tokens by a partial block */
    uint64_t epoch;   /* weights epoch it was made under */
    uint8_t *present; /* scratch, one byte per block, zeroed; needed by sessions when there are trailing groups */
    void *ref;
} fby_core_seq_t;

typedef enum fby_core_event_type {
    FBY_CORE_ANSWERED,   /* session: its answer is final (once) */
    FBY_CORE_TERMINAL,   /* session: its ledger is empty (once) */
    FBY_CORE_ENDED,      /* session: expired or forgotten; its waiters and descriptors can go (once) */
    FBY_CORE_PUBLISHED,  /* hash, block */
    FBY_CORE_REMOVED,    /* hash, block */
    FBY_CORE_FENCE,      /* part: a limit fired; make its operation end, then report it (read_done / write_done) */
    FBY_CORE_UNREF,      /* ref */
    FBY_CORE_PUT_STORED, /* put: no store write outstanding */
    FBY_CORE_RESET_DONE,
    FBY_CORE_QUARANTINE_OVER /* quarantined bytes passed quarantine_limit: open the breaker */
} fby_core_event_type_t;

typedef struct fby_core_event {
    fby_core_event_type_t type;
    uint64_t handle; /* session or put */
    uint32_t part;
    uint32_t block;
    fby_hash_t hash;
    void *ref;
    const fby_snapshot_t *result; /* ANSWERED, TERMINAL; valid during the call */
    fby_policy_t policy;          /* ANSWERED: the session's */
} fby_core_event_t;

typedef enum fby_write_mode { FBY_WRITE_OFF, FBY_WRITE_THROUGH, FBY_WRITE_BACK } fby_write_mode_t;

typedef struct fby_core_config {
    /* model */
    uint32_t block_tokens, groups;
    uint32_t trailing[FBY_MAX_GROUPS];
    uint64_t slot_bytes[FBY_MAX_GROUPS];
    uint64_t epoch;
    /* store */
    bool store; /* false: sessions deliver what is resident */
    fby_write_mode_t writes;
    uint64_t probe_lease_ns; /* 0: a probe costs nothing */
    uint32_t read_lanes;     /* reads that run at once: for estimates */
    /* prefetch */
    bool chunk_runtime; /* prefetch.enabled; false: whole-plan wait_complete sessions only */
    fby_policy_t policy;
    fby_stop_mode_t stop_mode;
    bool predictive;
    uint32_t chunk_max_blocks, max_inflight_chunks;
    uint64_t timeout_base_ns, timeout_per_ki_token_ns, timeout_max_ns, timeout_budget_ns; /* budget: FBY_NEVER unset */
    uint64_t min_tokens;
    uint32_t max_sessions;
    uint64_t max_reserved_bytes, max_pinned_bytes, max_hold_bytes, write_pinned_bytes, quarantine_limit_bytes;
    uint64_t result_ttl_ns;
    double recompute_tokens_per_s; /* 0: unset */
    uint32_t query_batch_blocks;
    uint64_t query_timeout_ns, io_timeout_ns, no_progress_ns, drain_limit_ns, negative_ttl_ns;
    uint64_t floor_bytes_per_s; /* slower is "no progress" */
    double evict_start,
        evict_ratio; /* used share of a pool above which blocks are evicted ahead, and how much; 0: on demand */
    /* table sizes */
    uint32_t session_slots; /* running, parked, answered and tombstones: at least max_sessions */
    uint32_t hold_slots, put_slots, part_slots, entry_slots;
    /* given */
    fby_slots_t *slots;
    fby_index_t *index;
    uint32_t handle_seed;                                   /* where handles begin: any number */
    fby_latch_t *latches;                                   /* session_slots of them */
    fby_histogram_t *graph_time;                            /* of graphs, from begun to ended; NULL: not kept */
    void (*emit)(void *arg, const fby_core_event_t *event); /* must not call back into the core */
    void *emit_arg;
} fby_core_config_t;

/* Fills table sizes and limits that are 0 from the others: what the runtime and the simulator share. */
void fby_core_config_defaults(fby_core_config_t *config);
size_t fby_core_bytes(const fby_core_config_t *config);
/* `memory`: zeroed, 64-aligned, fby_core_bytes() long. The core lives in it. The index was made with
   fby_core_index_event as its event. */
fby_core_t *fby_core_init(const fby_core_config_t *config, void *memory);

/* ---- Time ---- */
/* Timers and left-over work. Call when now >= fby_core_next_deadline(). */
void fby_core_tick(fby_core_t *core, uint64_t now);
/* 0: at once (work is left over); FBY_NEVER: nothing to wait for (V15). */
uint64_t fby_core_next_deadline(const fby_core_t *core);

/* ---- Sessions (errors as in forebay.h) ---- */
typedef struct fby_core_start {
    fby_core_seq_t seq;
    int32_t policy, stop_mode, predictive; /* FBY_UNSET: configured */
    uint64_t budget_ns;                    /* FBY_NEVER: configured budget or formula */
    uint64_t candidate_start_token;
    uint32_t have_blocks;
    uint64_t min_tokens; /* UINT64_MAX: configured */
} fby_core_start_t;
/* On success the core owns one reference of start->seq.ref. */
int fby_core_session_start(fby_core_t *core, uint64_t now, const fby_core_start_t *start, fby_session_t *out);
int fby_core_session_demand(fby_core_t *core, uint64_t now, fby_session_t session);
int fby_core_session_stop(fby_core_t *core, uint64_t now, fby_session_t session);
int fby_core_session_release(fby_core_t *core, uint64_t now, fby_session_t session);
int fby_core_session_take(fby_core_t *core, uint64_t now, fby_session_t session, fby_hold_t *out);
/* The authoritative snapshot, under the lock (poll reads the latch instead). */
int fby_core_session_snapshot(fby_core_t *core, fby_session_t session, fby_snapshot_t *out);
/* Index of the session's latch, for a lock-free poll; false when the handle cannot be one of this core's. */
bool fby_core_session_slot(const fby_core_t *core, fby_session_t session, uint32_t *slot);

/* ---- Lanes ---- */
typedef struct fby_core_query {
    uint64_t ticket;
    const fby_hash_t *hashes; /* of blocks [from, to): hashes[0] is block `from` */
    uint32_t from, to;
    uint64_t deadline; /* the query times out then, by the core's own timer */
    void *ref;         /* keep a reference while the query runs (the core may drop its own) */
    bool again;        /* the same blocks failed once: an answer from no store would hide that */
} fby_core_query_t;
/* Takes the next batch to ask the store for; false when none. */
bool fby_core_next_query(fby_core_t *core, uint64_t now, fby_core_query_t *out);
/* status 0: present[i] has bit g set when the store holds group g of block from+i; lease_until: FBY_NEVER or when the
   store's probe lease ends. status < 0: the query failed. A late or unknown ticket is ignored. */
void fby_core_query_done(fby_core_t *core, uint64_t now, uint64_t ticket, int status, const uint8_t *present,
                         uint64_t lease_until);

typedef struct fby_core_io {
    fby_hash_t hash;
    uint32_t group, slot, block;
} fby_core_io_t;
/* One driver call. ids are small and are reused after done. */
typedef struct fby_core_part {
    uint32_t id, count;
    uint64_t bytes;
    uint64_t limit_at; /* when its limit fires, for the driver's own time limit; FBY_NEVER: none */
} fby_core_part_t;
/* Begins at most max blocks of one graph; false when nothing is queued. io has room for max. */
bool fby_core_next_reads(fby_core_t *core, uint64_t now, uint32_t max, fby_core_part_t *part, fby_core_io_t *io);
/* The physical end: results[i] is 0 (exact bytes, verified) or a negative code, in the order of io. After it the driver
   never touches the slots again. Exactly once per part, also after a FENCE. */
void fby_core_read_done(fby_core_t *core, uint64_t now, uint32_t part, const int32_t *results);
/* Bytes moved: restarts the no-progress limit. Harmless when late. */
void fby_core_progress(fby_core_t *core, uint64_t now, uint32_t part);
bool fby_core_next_writes(fby_core_t *core, uint64_t now, uint32_t max, fby_core_part_t *part, fby_core_io_t *io);
/* results[i]: 0 stored, FBY_E_EXISTS (readable already), or a failure. */
void fby_core_write_done(fby_core_t *core, uint64_t now, uint32_t part, const int32_t *results);

enum { FBY_WANT_QUERY = 1, FBY_WANT_READ = 2, FBY_WANT_WRITE = 4 };
/* Which lanes have something to take: for coalesced wakes. */
unsigned fby_core_wants(const fby_core_t *core);
typedef struct fby_core_queued {
    uint32_t queries; /* sessions that wait to ask the store */
    uint32_t graphs;  /* with blocks that no lane has begun */
    uint32_t writes;  /* payloads */
} fby_core_queued_t;
/* What lanes have not taken yet. O(queries + graphs). */
void fby_core_queued(const fby_core_t *core, fby_core_queued_t *out);

/* ---- Holds ---- */
/* Takes the reference of seq->ref on success when *hold is made (not with advisory). */
int fby_core_lookup(fby_core_t *core, uint64_t now, const fby_core_seq_t *seq, unsigned flags, fby_hold_t *hold,
                    uint64_t *tokens);
typedef struct fby_core_hold_info {
    uint64_t tokens;
    uint32_t blocks, first_block, readers;
} fby_core_hold_info_t;
int fby_core_hold_info(fby_core_t *core, fby_hold_t hold, fby_core_hold_info_t *out);
/* Slot ids of blocks [from, to), to - from <= FBY_STEP_BLOCKS; FBY_NONE where the hold's end needs none. */
int fby_core_hold_slots(fby_core_t *core, fby_hold_t hold, uint32_t group, uint32_t from, uint32_t to, uint32_t *out);
int fby_core_hold_trim(fby_core_t *core, uint64_t now, fby_hold_t hold, uint64_t tokens, uint64_t *now_tokens);
int fby_core_hold_readers(fby_core_t *core, fby_hold_t hold, uint32_t add);
/* `fewer` readers less, of which at least one stays: for who has many. Of an older generation, too. -EINVAL. */
int fby_core_hold_fewer(fby_core_t *core, fby_hold_t hold, uint32_t fewer);
/* Works on holds of an older generation too: that is how their slots come free. */
int fby_core_hold_release(fby_core_t *core, uint64_t now, fby_hold_t hold);

/* ---- Puts ---- */
typedef struct fby_core_put_info {
    uint32_t first_missing;          /* from block 0 */
    uint32_t staged_from, staged_to; /* full blocks to fill */
} fby_core_put_info_t;
/* *put == 0: a new put; else the next range of a committed one. Takes a reference of seq->ref on success. */
int fby_core_put_begin(fby_core_t *core, uint64_t now, const fby_core_seq_t *seq, uint32_t from, uint32_t to,
                       fby_put_t *put, fby_core_put_info_t *out);
int fby_core_put_slots(fby_core_t *core, fby_put_t put, uint32_t group, uint32_t from, uint32_t to, uint32_t *out);
/* Publishes up to FBY_STEP_BLOCKS blocks; -EAGAIN: call again (result accumulates). valid_blocks must not change between.
   The trailers of the valid blocks must have been sealed before the first call. */
int fby_core_put_commit(fby_core_t *core, uint64_t now, fby_put_t put, uint32_t valid_blocks, fby_put_result_t *result);
int fby_core_put_writes(fby_core_t *core, fby_put_t put, uint64_t *outstanding, uint64_t *stored, uint64_t *failed);
/* The put's owner is gone, but its process, or a rank's, could still write: the handle ends and the pin is dropped, as with
   put_end, while staged slots go to quarantine and stay charged until fby_core_put_fenced. *bytes becomes what that is; 0:
   there is nothing to fence, and the put is over. FBY_E_STALE. */
int fby_core_put_abandon(fby_core_t *core, uint64_t now, fby_put_t put, uint64_t *bytes);
/* Nobody can write any more: the slots come free. Once per abandoned put, by the handle it had. FBY_E_STALE. */
int fby_core_put_fenced(fby_core_t *core, uint64_t now, fby_put_t put);
/* abort and release: both end the handle. */
int fby_core_put_end(fby_core_t *core, uint64_t now, fby_put_t put);

/* ---- Whole ---- */
/* A new generation at the call. bump: raises the weights epoch too. */
int fby_core_reset(fby_core_t *core, uint64_t now, bool bump);
bool fby_core_resetting(const fby_core_t *core);
/* Grows with every reset; handles of another generation are stale. */
uint32_t fby_core_generation(const fby_core_t *core);
uint64_t fby_core_epoch(const fby_core_t *core);
/* Seals and discards everything; new calls answer FBY_E_CLOSED. */
void fby_core_shutdown(fby_core_t *core, uint64_t now);
/* Nothing in flight, no ledger, no operation outstanding. */
bool fby_core_idle(const fby_core_t *core);
/* Operations begun and not physically ended, and the bytes of their slots. */
void fby_core_outstanding(const fby_core_t *core, uint32_t *operations, uint64_t *bytes);
void fby_core_stats(const fby_core_t *core, fby_stats_t *stats);
/* oldest_operation_ns, oldest_draining_ns, quarantined_bytes, last_completion_ns of health; others untouched. */
void fby_core_health(const fby_core_t *core, uint64_t now, fby_health_t *health);
/* Consumption, for the metrics' sums: the caller used this many blocks of a hold. */
void fby_core_consumed(fby_core_t *core, uint32_t blocks);
/* NULL, or which invariant broke and where. Once poisoned a core answers FBY_E_POISONED and changes nothing. */
const char *fby_core_poisoned(const fby_core_t *core);
/* All of V1-V15 recomputed from scratch: false with the reason. O(everything). */
bool fby_core_check(const fby_core_t *core, char *why, size_t why_size);
/* What one step can have broken (touched sessions, counters): what a debug build asserts after every call. */
bool fby_core_check_step(const fby_core_t *core, char *why, size_t why_size);
/* For fby_index_config_t.event, with the address of a `fby_core_t *` variable as its argument: the index is made before the core. */
void fby_core_index_event(void *core_pointer, bool published, const fby_hash_t *hash, uint32_t block);

#endif
