/*
 * rig.h - one core under a virtual clock, with every check that can be made from outside.
 *
 * The rig owns the memory of slots, index, core and latches, stands in for the bytes with one content word per slot,
 * and passes calls on. After each call it asks the core for its own step check, and checks by itself:
 *
 *   events    answered, terminal and ended come once and in order; a reference is dropped once
 *   set       PUBLISHED and REMOVED describe a prefix-closed set (the reference model); a published payload is right
 *   answer    frozen once answered; nothing is submitted after the seal; spans lie inside the delivered prefix
 *   latch     equals the authoritative snapshot, its version never goes back
 *   slots     no slot is freed, or handed to another read, while a part, a hold or a put may touch it
 *   limits    reserved, pinned + reserved and the others stay within what is configured
 *
 * Manual: nothing ends unless the caller says so (rig_begin_*, rig_end_*). Scheduled: lanes.h drives it.
 * A broken rule goes to rig_fail: it prints and aborts, or is kept in `failure` when config.collect is set.
 */
#ifndef FBY_SIM_RIG_H
#define FBY_SIM_RIG_H

#include "core/core.h"
#include "sim/chain.h"
#include "sim/script_store.h"

#define RIG_MS UINT64_C(1000000)
#define RIG_S UINT64_C(1000000000)
#define RIG_PAINT UINT64_C(0xEEEEEEEEEEEEEEEE) /* content of a free slot; never a right one */

#define RIG_DROPPED 64u /* references kept after their last drop */

typedef struct rig rig_t;

typedef struct rig_config {
    fby_core_config_t core; /* slots, index, latches and emit are the rig's */
    uint32_t pool[FBY_MAX_GROUPS];
    fby_eviction_t eviction;
    store_model_t store;
    uint32_t query_lanes, read_lanes, write_lanes;
    uint32_t part_blocks; /* most blocks of one driver call */
    uint64_t fence_ns;    /* from FENCE to the physical end; FBY_NEVER: the store is not isolated */
    uint32_t full_every;  /* full recomputation every so many calls; 0: never */
    bool model;           /* keep the registry and the reference model */
    bool light;           /* no checks of the rig's own: for replays, not for tests */
    bool collect;         /* keep the first failure instead of aborting */
    void (*on_event)(void *arg, const fby_core_event_t *event);
    void *on_event_arg;
} rig_config_t;

/* Tokens that were hashed. Owned by the rig until rig_close, or until rig_seq_free. */
typedef struct rig_seq {
    fby_hash_t *hashes;
    uint32_t *nodes; /* registry; NULL without the model */
    uint32_t blocks, name_space;
    uint64_t tokens, epoch;
    struct rig_seq *next, *previous;
} rig_seq_t;

/* What fby_core_seq_t.ref points at: an own copy of the hashes, spoilt at the last drop, so that a use after it shows. It
   is freed some drops later, so that a second drop shows too. */
typedef struct rig_ref {
    rig_t *rig;
    uint32_t count;
    fby_core_seq_t view;
} rig_ref_t;

typedef struct rig_part {
    bool live, write, fenced;
    bool hangs, lost;             /* scheduled: does not end by itself */
    uint32_t count, capacity, at; /* at: place in rig->live[write] */
    uint32_t generation;
    uint64_t begun_at, ends_at, order, bytes, limit_at;
    fby_core_io_t *io;
    int32_t *results;
    uint64_t *words; /* what lands in the slots at the physical end */
} rig_part_t;

typedef struct rig_session {
    fby_session_t handle;
    const rig_seq_t *seq;
    uint64_t version, sealed_submitted;
    uint64_t answer_by; /* the drain limit, counted from a stop; 0: not stopped */
    bool sealed, answered, terminal, ended;
    uint32_t have_blocks, generation;
    fby_snapshot_t answer, final; /* results of ANSWERED and TERMINAL */
} rig_session_t;

/* A live hold: the slots it protects are counted in rig->readers until its release. */
typedef struct rig_hold {
    fby_hold_t handle;
    const rig_seq_t *seq;
    uint32_t blocks, first_block, slots, capacity;
    uint32_t generation, readers;
    uint32_t *slot;  /* protected */
    uint32_t *block; /* of each slot */
} rig_hold_t;

typedef struct rig_put {
    fby_put_t handle;
    const rig_seq_t *seq;
    fby_core_put_info_t info;
    uint32_t valid, generation;
    uint32_t from, to; /* blocks that may have staged slots: a lost snapshot lies before the staged full blocks */
    uint32_t *slot;    /* groups x (to - from), FBY_NONE where nothing is staged */
    bool filling, committing, committed;
    bool abandoned; /* its handle ended; somebody may still fill its slots until rig_put_fenced */
    fby_put_result_t result;
} rig_put_t;

typedef struct rig_log {
    fby_core_event_type_t type;
    uint64_t at, handle;
    uint32_t part, block;
    fby_hash_t hash;
} rig_log_t;

struct rig {
    rig_config_t config;
    fby_core_t *core;
    fby_index_t *index;
    fby_slots_t slots;
    fby_latch_t *latches;
    script_store_t store;
    uint64_t now, calls, order;
    uint32_t generation; /* grows with each reset */
    bool closed;
    /* bytes */
    uint64_t *content;
    uint32_t *writer;  /* read part + 1 that may write the slot */
    uint16_t *readers; /* holds, puts and store writes that look at it */
    /* model */
    chain_registry_t registry;
    uint8_t *resident;  /* by registry node */
    uint8_t *old;       /* resident before a reset, not announced as removed yet */
    uint32_t *children; /* resident children */
    uint32_t *reading;  /* by node and group: part + 1 */
    uint32_t model_capacity, resident_count, old_count;
    uint32_t *published; /* nodes of this call, for the content check */
    uint32_t published_count, published_capacity;
    /* objects */
    rig_session_t *session;    /* by latch slot */
    const rig_seq_t *starting; /* inside fby_core_session_start */
    uint32_t starting_have;
    uint32_t rolling; /* next session to compare besides the touched one */
    rig_part_t *part;
    uint32_t *live[2], live_count[2]; /* outstanding parts: [0] reads, [1] writes */
    rig_hold_t *hold;
    uint32_t holds;
    rig_put_t *put;
    uint32_t puts;
    rig_seq_t *seqs;
    uint32_t refs; /* live references */
    rig_ref_t *dropped[RIG_DROPPED];
    uint32_t dropped_count;
    uint32_t have_sessions;
    uint64_t private_holds, resets, missing_reads;
    /* events */
    rig_log_t *log;
    uint32_t logged, log_capacity;
    uint64_t events[FBY_CORE_QUARANTINE_OVER + 1];
    /* scheduled */
    struct lanes *lanes;
    char failure[320];
};

/* The rig of cases.md: block = 16 tokens = 4096 bytes, chunk 4, window 2, pool 64, full checks after every call. */
void rig_config_defaults(rig_config_t *config);
rig_t *rig_open(const rig_config_t *config);
void rig_close(rig_t *rig);
void rig_fail(rig_t *rig, const char *format, ...) FBY_PRINTF(2, 3);
/* Also made after each call that goes through the rig. session may be 0. */
void rig_checked(rig_t *rig, fby_session_t session);
void rig_check_full(rig_t *rig);
/* Q of cases.md: nothing reserved, pinned, in flight, running, leased or outstanding; each slot free or resident. */
void rig_quiescent(rig_t *rig);

/* ---- Sequences: rig_seq.c ---- */
/* One id per block; tokens may exceed blocks * block_tokens. */
rig_seq_t *rig_seq_ids(rig_t *rig, uint32_t name_space, const uint64_t *ids, uint32_t blocks, uint64_t tokens);
/* As many whole blocks as `tokens` has; different salts share nothing. */
rig_seq_t *rig_seq(rig_t *rig, uint32_t name_space, uint64_t salt, uint64_t tokens);
/* The first `shared` blocks of `base`, then others. */
rig_seq_t *rig_seq_fork(rig_t *rig, const rig_seq_t *base, uint32_t shared, uint64_t salt, uint64_t tokens);
void rig_seq_free(rig_t *rig, rig_seq_t *seq);
rig_ref_t *rig_ref_new(rig_t *rig, const rig_seq_t *seq, bool present);
void rig_ref_drop(rig_ref_t *ref);
/* The store holds blocks [from, to) in every group (trailing groups: at every boundary). */
void rig_store_fill(rig_t *rig, const rig_seq_t *seq, uint32_t from, uint32_t to);

/* ---- Sessions: rig_session.c ---- */
void rig_start_defaults(fby_core_start_t *start);
int rig_start_with(rig_t *rig, const rig_seq_t *seq, const fby_core_start_t *options, fby_session_t *out);
/* Must succeed. budget_ns FBY_NEVER: the formula. */
fby_session_t rig_start(rig_t *rig, const rig_seq_t *seq, fby_policy_t policy, fby_stop_mode_t mode,
                        uint64_t budget_ns);
int rig_demand(rig_t *rig, fby_session_t session);
int rig_stop(rig_t *rig, fby_session_t session);
int rig_release(rig_t *rig, fby_session_t session);
/* The hold's content is compared with what was stored. */
int rig_take(rig_t *rig, fby_session_t session, fby_hold_t *out);
rig_session_t *rig_session_find(rig_t *rig, fby_session_t session); /* NULL: never known, or its slot was reused */
fby_snapshot_t rig_snapshot(rig_t *rig, fby_session_t session);     /* must be known */
void rig_session_event(rig_t *rig, const fby_core_event_t *event);
void rig_session_checked(rig_t *rig, fby_session_t session);

/* ---- Holds and puts: rig_hold.c, rig_put.c ---- */
int rig_lookup(rig_t *rig, const rig_seq_t *seq, fby_hold_t *hold, uint64_t *tokens);
/* Advisory; compared with the model. */
int rig_probe(rig_t *rig, const rig_seq_t *seq, uint64_t *tokens);
rig_hold_t *rig_hold_find(rig_t *rig, fby_hold_t hold);
int rig_hold_trim(rig_t *rig, fby_hold_t hold, uint64_t tokens, uint64_t *now_tokens);
int rig_hold_readers(rig_t *rig, fby_hold_t hold);
int rig_hold_release(rig_t *rig, fby_hold_t hold);
void rig_hold_verify(rig_t *rig, const rig_hold_t *hold);
int rig_hold_add(rig_t *rig, fby_hold_t handle, const rig_seq_t *seq);

rig_put_t *rig_put_find(rig_t *rig, fby_put_t put);
int rig_put_begin(rig_t *rig, const rig_seq_t *seq, uint32_t from, uint32_t to, fby_put_t *put);
int rig_put_next(rig_t *rig, fby_put_t put, uint32_t from, uint32_t to);
/* Writes the payloads of the blocks below `valid`, garbage elsewhere. */
void rig_put_fill(rig_t *rig, fby_put_t put, uint32_t valid);
/* One step: 0, -EAGAIN or an error. */
int rig_put_commit_step(rig_t *rig, fby_put_t put, uint32_t valid);
/* Fills and commits; must succeed. */
fby_put_result_t rig_put_commit(rig_t *rig, fby_put_t put, uint32_t valid);
int rig_put_end(rig_t *rig, fby_put_t put);
int rig_put_abandon(rig_t *rig, fby_put_t put);
int rig_put_fenced(rig_t *rig, fby_put_t put);

/* ---- Work: rig_part.c ---- */
void rig_tick(rig_t *rig);
int rig_reset(rig_t *rig, bool bump);
void rig_shutdown(rig_t *rig);
bool rig_next_query(rig_t *rig, fby_core_query_t *query); /* takes a reference: hand it back with rig_query_done */
void rig_query_done(rig_t *rig, const fby_core_query_t *query, int status, const uint8_t *present,
                    uint64_t lease_until);
/* The part, or FBY_NONE. */
uint32_t rig_begin(rig_t *rig, bool write, uint32_t max);
/* The physical end. results NULL: all well. */
void rig_end(rig_t *rig, uint32_t part, const int32_t *results);
/* The same with part->results and part->words: what a script said. */
void rig_end_scripted(rig_t *rig, uint32_t part);
void rig_progress(rig_t *rig, uint32_t part);
void rig_slot_freed(void *arg, uint32_t slot);

/* ---- Model: rig_model.c ---- */
void rig_model_event(rig_t *rig, const fby_core_event_t *event);
/* Longest usable resident checkpoint, block by block. */
uint32_t rig_model_lookup(rig_t *rig, const rig_seq_t *seq);
void rig_model_reset(rig_t *rig);
/* The model's arrays cover every registry node. */
void rig_model_cover(rig_t *rig);
/* The set equals the index, is prefix-closed, and every resident payload is right. */
void rig_model_check(rig_t *rig);
uint32_t rig_last_token_cap(const rig_t *rig, const rig_seq_t *seq);

#endif
