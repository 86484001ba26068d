/*
 * internal.h - the core's structures. Included by src/core only.
 *
 * OBJECTS AND WHO POINTS AT WHOM
 *   session --ledger (FIFO of entries)--> entry --own list--> staging slots (items)
 *   graph: the transfer of one chunk. Its items begin in parts (one driver call each) and end one by one.
 *   join: "this entry waits for blocks that this graph reads". Ordered by creation in the graph.
 *   An item's owner (item.entry) may change by take-over; its graph never does.
 *
 * ITEM LIFE    queued (in its graph's io list) -> begun (in its part's io list) -> ended(result)
 *   ended ok:      stays in its entry's own list and in the flight table until published, discarded or taken over
 *   ended failed:  leaves the flight table, its slot is freed at once (or quarantined when the end is not physical)
 *
 * CHARGES      reserved = staging of reads + quarantined reads; write_bytes = staging and quarantine of puts + write pins;
 *   pinned = index charge of class SESSION + private slots of sessions. Each changes next to the slot move that causes it.
 */
#ifndef FBY_CORE_INTERNAL_H
#define FBY_CORE_INTERNAL_H

#include <string.h>

#include "base/clock.h"
#include "base/heap.h"
#include "base/list.h"
#include "core/core.h"
#include "core/estimate.h"
#include "core/handle.h"
#include "core/policy.h"

typedef enum fby_item_state { FBY_ITEM_NONE, FBY_ITEM_QUEUED, FBY_ITEM_BEGUN, FBY_ITEM_ENDED } fby_item_state_t;

/* One per slot; meaningful while the slot is staging, quarantined, or being written to the store. */
typedef struct fby_item {
    fby_hash_t hash;
    uint32_t block;
    uint32_t entry; /* owner: ledger entry of a read; FBY_NONE: nobody waits any more, or not a read */
    uint32_t graph; /* read: its graph until settled */
    uint32_t put;   /* staging or store write of a put: its index */
    uint32_t put_generation;
    uint32_t node;        /* store write of a resident block: the W-pinned node */
    uint32_t flight_next; /* bucket chain of the flight table */
    int32_t result;       /* once ended */
    uint8_t state;        /* fby_item_state_t */
    uint8_t in_flight;    /* in the flight table: others may join */
    uint8_t retried;
    uint8_t orphan;
} fby_item_t;

typedef struct fby_graph {
    uint32_t items; /* claimed into it so far */
    uint32_t ended; /* of those */
    uint32_t live;  /* items not settled (published, discarded, freed): the graph exists while > 0 or growing */
    uint32_t begun;
    uint32_t first_join, last_join;
    uint32_t session; /* the claimer while its entry lives; FBY_NONE after */
    uint64_t begun_at, lease_until;
    uint32_t generation;
    uint8_t used, growing, queued, counted_end, failed, held; /* held: its blocks are being published */
} fby_graph_t;

typedef struct fby_entry {
    uint32_t session, next;
    uint32_t begin, end; /* blocks not resolved yet; begin moves as blocks publish */
    uint32_t first;      /* begin at the claim */
    uint32_t local_end;  /* blocks below were resident at the claim */
    uint32_t want;       /* while growing: where the chunk will end */
    uint32_t checkpoint; /* whose trailing payloads this entry carries; 0: none */
    uint32_t graph;      /* own graph, or FBY_NONE: joins only, or all resident */
    uint32_t pending;    /* own items not ended */
    uint32_t scan;       /* blocks below are known to be settled */
    uint32_t bad_block;  /* first block that failed; FBY_NONE: none */
    int32_t bad_code;
    uint32_t first_join;
    uint32_t pin_node; /* SESSION pin on the deepest resident block of this entry, or FBY_NONE */
    uint8_t used, growing;
} fby_entry_t;

typedef struct fby_join {
    uint32_t entry, graph;
    uint32_t next_in_graph, prev_in_graph, next_in_entry;
} fby_join_t;

typedef struct fby_op { /* a part: one driver call */
    uint32_t count;     /* slots in its io list */
    uint64_t begun_at, bytes, limit_at;
    uint32_t graph, graph_generation;
    uint8_t used, write, lapsed; /* lapsed: its limit fired, slots are in quarantine */
} fby_op_t;

#define FBY_LEASE_RING 8
typedef struct fby_probe_lease {
    uint32_t begin, end; /* blocks of one probe; a newer entry speaks for what both cover */
    uint64_t until;
} fby_probe_lease_t;

typedef struct fby_sess {
    fby_session_t handle;
    uint32_t generation;
    uint8_t used, parked, running, answered, discard, released, lease, whole, private_run, predictive, gap;
    uint8_t taken;
    uint8_t old;           /* drains since before a reset */
    uint8_t lease_wait;    /* a block must be probed again before its claim */
    uint8_t deadline_done; /* the deadline acted already */
    uint8_t query_wanted, query_out, query_final, query_retried;
    fby_state_t state;
    fby_policy_t policy;
    fby_stop_mode_t stop_mode;
    fby_reason_t reason, late_reason, clamp_reason;
    fby_outcome_t outcome;
    int32_t error;
    fby_core_seq_t seq;
    uint64_t deadline, drain_at, ttl_at, query_limit_at;
    uint64_t probed_at; /* the last probe made because a lease was short */
    uint64_t created, sealed_at, answered_at, terminal_at, asked_at;
    uint64_t min_tokens, candidate_start;
    uint32_t cap;  /* last-token rule and hold budget */
    uint32_t have; /* on the caller's device */
    uint32_t start, committed, resolved, cursor, target, proven, delivered;
    uint32_t clamp_end;            /* the plan may not pass this; FBY_NONE: no clamp */
    uint32_t grant_end;            /* room granted for [cursor, grant_end) */
    uint32_t query_next, query_to; /* next block to ask for; end of the batch that is out */
    uint64_t query_ticket;
    fby_probe_lease_t probe_lease[FBY_LEASE_RING]; /* oldest first */
    uint32_t run_node;                             /* SESSION pin that protects [0, committed) while it runs */
    uint64_t charge_ticket;
    uint32_t lease_node, lease_end;     /* the lease's own pin */
    uint32_t payload_end, payload_node; /* trailing payloads pinned for this checkpoint */
    uint32_t ledger_head, ledger_tail;
    uint32_t window;   /* ledger entries with a graph of their own: a place is kept until the entry is resolved */
    uint32_t graphs;   /* own graphs claimed */
    uint32_t measured; /* own graphs that were begun and ended */
    uint64_t inflight_bytes;
    uint64_t submitted, sealed_submitted;
    uint64_t turn;             /* round in which it may claim next */
    fby_reason_t short_reason; /* why a checkpoint's payload was not claimed or could not be pinned */
    uint32_t payload_claimed;  /* last checkpoint whose payloads were claimed */
    uint32_t core_generation;
    uint32_t loaded_committed, loaded_delivered, span_start, span_end, skipped_end;
    uint32_t lent; /* hold that uses this session's sequence reference */
    uint64_t version;
} fby_sess_t;

typedef struct fby_hold_obj {
    fby_hold_t handle;
    uint32_t generation, core_generation;
    uint8_t used;
    uint32_t readers, blocks, first_block, node;
    uint32_t payload_end;
    uint64_t tokens;
    uint32_t private_blocks;
    uint32_t borrows; /* session whose sequence reference it uses, or FBY_NONE */
    fby_core_seq_t seq;
} fby_hold_obj_t;

/* FENCED: its handle ended, its slots wait in quarantine until nobody can write to them. */
typedef enum fby_put_state { FBY_PUT_STAGED, FBY_PUT_COMMITTING, FBY_PUT_COMMITTED, FBY_PUT_FENCED } fby_put_state_t;
typedef struct fby_put_obj {
    fby_put_t handle;
    uint32_t generation, core_generation;
    uint8_t used, state;   /* fby_put_state_t */
    uint32_t from, to;     /* staged full blocks */
    uint32_t node, prefix; /* HOLD pin on the resident prefix [0, prefix) */
    uint32_t staged;       /* slots in its own list */
    uint64_t writes, stored, failed;
    fby_core_seq_t seq;
} fby_put_obj_t;

typedef struct fby_negative {
    fby_hash_t hash;
    uint64_t until;
    uint8_t group, used;
} fby_negative_t;
#define FBY_NEGATIVE_SLOTS 4096u
#define FBY_TOUCHED_MAX 64u

struct fby_core {
    fby_core_config_t config;
    uint64_t block_bytes; /* one block over the `all` groups */
    uint32_t all_groups, trailing_groups, trailing_max;
    uint32_t chunk_blocks; /* effective chunk */
    uint32_t generation;   /* resets */
    uint64_t epoch;
    uint64_t now;
    bool closed, resetting, sweeping, evicting, work_left, room_changed, claims_stuck;
    char poison[160];
    bool poisoned;

    fby_item_t *items;
    fby_link_t *own;  /* slots, then heads of entries, sessions, holds, puts */
    fby_link_t *io;   /* slots, then heads of graphs, ops, one write queue */
    uint32_t *flight; /* buckets */
    uint32_t flight_mask;
    fby_entry_t *entries;
    fby_graph_t *graphs;
    fby_join_t *joins;
    uint32_t *entry_free, *graph_free, *join_free, *op_free; /* stacks */
    uint32_t entry_free_count, graph_free_count, join_free_count, op_free_count;
    fby_op_t *ops;
    fby_sess_t *sessions;
    fby_snapshot_t *answers; /* frozen at `answered` */
    fby_hold_obj_t *holds;
    fby_put_obj_t *puts;
    uint32_t *session_free, *hold_free, *put_free;
    uint32_t session_free_count, hold_free_count, put_free_count;
    uint32_t entry_count, graph_count, join_count; /* capacities */

    fby_link_t *dirty;      /* sessions to step; head at session_slots */
    fby_link_t *changed;    /* sessions whose snapshot changed */
    fby_link_t *querying;   /* sessions that want a query batch */
    fby_link_t *tombs;      /* expired, oldest first */
    fby_link_t *lane;       /* graphs with queued items, head at graph_count */
    fby_heap_t timers;      /* sessions, then ops */
    fby_heap_t ready;       /* sessions that may claim, by turn and deadline */
    fby_heap_t grow, first; /* admission queues */
    fby_heap_t park;
    fby_negative_t *negative;
    bool negative_seen; /* something was remembered once: a healthy store costs no look-ups */

    fby_estimate_t estimate;
    uint64_t reserved, quarantined, write_bytes, private_pinned, private_hold;
    uint32_t evict_group;   /* bit g: group g is above its watermark and not yet down to the lower one */
    uint64_t unused_blocks; /* granted, not claimed */
    uint32_t running, parked, leases, unsettled; /* unsettled: sessions with a non-empty ledger */
    uint32_t ops_reads, ops_writes, write_queue, queries_out;
    uint64_t turn, turn_base; /* rounds of claims; keys of the ready heap count from turn_base */
    uint32_t hold_count, put_count;
    uint64_t put_staged;                    /* full blocks staged by puts and not committed */
    uint32_t writes_queued[FBY_MAX_GROUPS]; /* slots in the write queue that are indexed, by group */
    uint32_t old_unsettled;                 /* sessions from before a reset whose ledger is not empty */
    uint64_t ticket;
    uint64_t last_completion;
    uint32_t touched[FBY_TOUCHED_MAX], touched_count; /* sessions of the last call, for the step check */
    bool quarantine_over;
    fby_stats_t stats;
};

/* ---- Small helpers ---- */
static inline fby_sess_t *fby_sess(fby_core_t *core, uint32_t id)
{
    return &core->sessions[id];
}
static inline uint32_t fby_own_entry(const fby_core_t *core, uint32_t entry)
{
    return core->config.slots->total + entry;
}
static inline uint32_t fby_own_session(const fby_core_t *core, uint32_t id)
{
    return core->config.slots->total + core->entry_count + id;
}
static inline uint32_t fby_own_hold(const fby_core_t *core, uint32_t id)
{
    return fby_own_session(core, core->config.session_slots) + id;
}
static inline uint32_t fby_own_put(const fby_core_t *core, uint32_t id)
{
    return fby_own_hold(core, core->config.hold_slots) + id;
}
static inline uint32_t fby_io_graph(const fby_core_t *core, uint32_t graph)
{
    return core->config.slots->total + graph;
}
static inline uint32_t fby_io_op(const fby_core_t *core, uint32_t op)
{
    return core->config.slots->total + core->graph_count + op;
}
static inline uint32_t fby_io_writes(const fby_core_t *core)
{
    return fby_io_op(core, core->config.part_slots);
}
static inline bool fby_is_all(const fby_core_t *core, uint32_t group)
{
    return core->config.trailing[group] == 0;
}
static inline uint64_t fby_slot_bytes(const fby_core_t *core, uint32_t slot)
{
    return core->config.slot_bytes[core->config.slots->slot[slot].group];
}

/* Breaks loudly in debug builds; poisons the core in release builds. True when the condition holds. */
bool fby_core_require(fby_core_t *core, bool condition, const char *rule, const char *where);
#define FBY_STRING2(x) #x
#define FBY_STRING(x) FBY_STRING2(x)
#define FBY_REQUIRE(core, condition, rule)                                                                             \
    fby_core_require((core), (condition), (rule), __FILE__ ":" FBY_STRING(__LINE__))

/* core.c */
int fby_core_enter(fby_core_t *core, uint64_t now); /* 0 or FBY_E_POISONED */
void fby_core_leave(fby_core_t *core);              /* bounded settling, snapshots, debug checks */
void fby_core_emit(fby_core_t *core, const fby_core_event_t *event);
void fby_core_unref(fby_core_t *core, fby_core_seq_t *seq);
uint64_t fby_handle_make(const fby_core_t *core, unsigned type, uint32_t id, uint32_t generation);
/* Index of a live object or FBY_NONE; any_epoch accepts handles from before a reset. */
uint32_t fby_handle_id(const fby_core_t *core, uint64_t handle, unsigned type, bool any_epoch);
void fby_timer_refresh(fby_core_t *core, uint32_t session);
void fby_mark_dirty(fby_core_t *core, uint32_t session);
void fby_mark_changed(fby_core_t *core, uint32_t session);

/* snapshot.c */
void fby_snapshot_fill(const fby_core_t *core, uint32_t session, fby_snapshot_t *out);
void fby_snapshot_freeze(fby_core_t *core, uint32_t session);
void fby_snapshots_publish(fby_core_t *core);

/* reset.c */
void fby_reset_continue(fby_core_t *core);

/* session.c */
void fby_session_begin(fby_core_t *core, uint32_t session); /* leaves the parked state: probes and pins */
void fby_session_seal(fby_core_t *core, uint32_t session, fby_reason_t reason);
void fby_session_gap(fby_core_t *core, uint32_t session, int32_t code);
void fby_session_step(fby_core_t *core, uint32_t session, uint32_t *budget);
void fby_session_timer(fby_core_t *core, uint32_t session);
void fby_session_discard(fby_core_t *core, uint32_t session, fby_reason_t reason);
bool fby_reason_is_policy(fby_reason_t reason);
fby_reason_t fby_gap_reason(int32_t code);

/* plan.c */
void fby_plan_probe(fby_core_t *core, uint32_t session); /* index match, start, pins */
void fby_plan_without_query(fby_core_t *core, uint32_t session);
void fby_plan_want_query(fby_core_t *core, uint32_t session);
void fby_plan_query_over(fby_core_t *core, uint32_t session); /* its answer came, lapsed, or is not wanted any more */
void fby_plan_query_lapsed(fby_core_t *core, uint32_t session);
void fby_plan_finish_check(fby_core_t *core, uint32_t session);
uint32_t fby_last_token_blocks(uint64_t tokens, uint32_t block_tokens);
bool fby_plan_pin(fby_core_t *core, uint32_t session, uint32_t blocks); /* moves the run pin to [0, blocks) */
uint64_t fby_plan_lease_until(const fby_core_t *core, const fby_sess_t *s, uint32_t block);
uint32_t fby_plan_checkpoint(const fby_core_t *core, const fby_sess_t *s, uint32_t end);

/* claim.c */
void fby_claim_consider(fby_core_t *core, uint32_t session); /* (re)enters or leaves the ready heap */
void fby_claim_turn(fby_core_t *core, uint32_t *budget);
void fby_claim_close(fby_core_t *core, uint32_t session); /* stops a growing chunk */

/* entry.c: ledger entries, graphs, items, flight table */
uint32_t fby_entry_new(fby_core_t *core, uint32_t session, uint32_t begin);
void fby_entry_free(fby_core_t *core, uint32_t entry);
uint32_t fby_graph_new(fby_core_t *core, uint32_t session);
void fby_graph_unmake(fby_core_t *core, uint32_t graph);
void fby_graph_settle(fby_core_t *core, uint32_t graph); /* frees it when nothing is left */
uint32_t fby_flight_find(const fby_core_t *core, const fby_hash_t *hash, uint32_t group);
void fby_flight_add(fby_core_t *core, uint32_t slot);
void fby_flight_remove(fby_core_t *core, uint32_t slot);
void fby_item_add(fby_core_t *core, uint32_t slot, uint32_t entry, uint32_t graph, const fby_hash_t *hash,
                  uint32_t block, bool joinable);
void fby_item_drop(fby_core_t *core, uint32_t slot); /* unlinks from owner, flight table and graph; frees the slot */
void fby_item_ended(fby_core_t *core, uint32_t slot, int32_t code, bool physical);
void fby_graph_queue(fby_core_t *core, uint32_t graph);

/* join.c */
bool fby_join_add(fby_core_t *core, uint32_t entry, uint32_t graph);
void fby_join_remove_entry(fby_core_t *core, uint32_t entry);
void fby_join_remove_graph(fby_core_t *core, uint32_t graph);
bool fby_join_covers(const fby_core_t *core, uint32_t entry, uint32_t slot);
uint32_t fby_join_heir(const fby_core_t *core, uint32_t slot); /* earliest joiner that has not discarded, or FBY_NONE */
void fby_join_take_over(fby_core_t *core, uint32_t slot, uint32_t heir);
void fby_join_wake(fby_core_t *core, uint32_t graph);
void fby_join_failed(fby_core_t *core, uint32_t slot, int32_t code);
void fby_join_protect(fby_core_t *core, uint32_t graph, uint32_t end);
void fby_entry_give_up(fby_core_t *core, uint32_t entry, uint32_t from, bool drop_ended);

/* ledger.c */
bool fby_ledger_advance(fby_core_t *core, uint32_t session, uint32_t *budget); /* true when more could be done */
void fby_ledger_give_up(fby_core_t *core, uint32_t session,
                        uint32_t from);                     /* all that lies at or behind block `from` */
void fby_ledger_recall(fby_core_t *core, uint32_t session); /* graphs not begun, joins of such graphs */
void fby_ledger_limit(fby_core_t *core, uint32_t session);  /* the drain limit */

/* lease.c */
typedef struct fby_private_run {
    const fby_core_t *core;
    uint32_t head;          /* of the owner's list */
    uint32_t device_blocks; /* on the caller's device */
} fby_private_run_t;
bool fby_private_present(void *run, uint32_t block, uint32_t group); /* fby_present_fn; run: fby_private_run_t */
void fby_session_answer(fby_core_t *core, uint32_t session);
void fby_session_terminal(fby_core_t *core, uint32_t session);
void fby_lease_end(fby_core_t *core, uint32_t session); /* unpin once; then EXPIRED when terminal */
void fby_session_forget(fby_core_t *core, uint32_t session);
void fby_payload_pins(fby_core_t *core, uint32_t end, uint32_t node, fby_pin_class_t class_, bool pin);
void fby_private_free(fby_core_t *core, uint32_t head, const fby_core_seq_t *seq, uint64_t *bytes, bool keep);
void fby_session_unpin_run(fby_core_t *core, uint32_t session);
void fby_delivered_update(fby_core_t *core, uint32_t session);

/* admit.c */
bool fby_admit_covers(const fby_sess_t *s);
void fby_admit_ask(fby_core_t *core, uint32_t session);
void fby_admit_return(fby_core_t *core, uint32_t session);
void fby_admit_use(fby_core_t *core, uint32_t session, uint32_t blocks);
void fby_admit_run(fby_core_t *core);
uint32_t fby_admit_victim(const fby_core_t *core, const uint32_t *ids, uint32_t count);
uint64_t fby_room_blocks(const fby_core_t *core); /* free + evictable - unused grants */
uint64_t fby_room_bytes(const fby_core_t *core);  /* under max_pinned */
uint64_t fby_pinned(const fby_core_t *core);
bool fby_can_pass(const fby_core_t *core); /* something in flight, leased or being written may free room */
fby_reason_t fby_short_reason(const fby_core_t *core, uint64_t blocks);
uint32_t fby_slot_get(fby_core_t *core, uint32_t group, uint32_t owner); /* free or evicted; FBY_NONE */
void fby_room_freed(fby_core_t *core);
void fby_evict_ahead(fby_core_t *core);

/* negative.c */
bool fby_negative_has(const fby_core_t *core, const fby_hash_t *hash, uint32_t group);
void fby_negative_add(fby_core_t *core, const fby_hash_t *hash, uint32_t group);
void fby_negative_clear(fby_core_t *core, const fby_hash_t *hash, uint32_t group);

/* hold.c */
int fby_hold_from_session(fby_core_t *core, uint32_t session, fby_hold_t *out);
uint64_t fby_hold_bytes(const fby_core_t *core);
void fby_hold_reset(fby_core_t *core, uint32_t hold);

/* lanes.c */
void fby_quarantine(fby_core_t *core, uint32_t slot);
void fby_op_lapse(fby_core_t *core, uint32_t part);

/* check.c */
bool fby_check_session(const fby_core_t *core, uint32_t session, char *why, size_t why_size);

/* put.c */
void fby_put_write_leaves(fby_core_t *core, uint32_t slot); /* it leaves the write queue */
bool fby_put_drop_write(fby_core_t *core);                  /* the newest store write that has not begun; false: none */
void fby_put_write_ended(fby_core_t *core, uint32_t slot, int32_t code, bool physical);
void fby_put_reset(fby_core_t *core, uint32_t put); /* its staging retires */

#endif
