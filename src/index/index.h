/*
 * index.h - which blocks are resident, who protects them, and who goes first.
 *
 * A node is one block. Its key is the chain hash, unique for its whole prefix. *Indexed* means resident in every `all`
 * group; payloads of `trailing` groups attach to indexed nodes and leave with them.
 *
 * INVARIANTS
 *   V13  an indexed node's parent is indexed: only leaves are evicted, children are inserted under indexed parents only.
 *        So residency of a hash array is monotone, and a match gallops, then bisects, over the hash table.
 *   PIN  a pin is one count on the deepest block and protects all ancestors at once, since only unpinned leaves go.
 *        *Charging* ancestors is accounting: refs[class] = own pins + children charged in that class; a block is charged
 *        while refs > 0. 0 -> 1 and 1 -> 0 pass one step to the parent; everything else stops the walk. Walks move
 *        at most FBY_WALK_STEP blocks per call and rest as a cursor that protects the node it stands on; steps commute
 *        (refs are signed), so walks may overtake each other. What a pin has not walked yet counts as charged
 *        (provisional) and is given back when the walk stops early.
 *   LRU  `lru` keeps every uncharged node on a list, used last in front; parents are never older than children. A touch
 *        walks deepest first. Charged nodes are off the list and come back as used. What cannot go at the tail (a walk
 *        has not reached it yet, or stands there) is passed over. `cold` nodes lie on a list of their own that goes first.
 *        Other policies keep a heap over candidate leaves.
 *
 * Memory is sized at init and given by the caller; nothing is allocated and nothing is rehashed later. All calls are
 * made under the caller's one lock. Costs: find 1 probe sequence; match O(log n) probes; insert, evict, pin O(1)
 * amortised per block under `lru`, O(log n) for heap policies.
 */
#ifndef FBY_INDEX_H
#define FBY_INDEX_H

#include "base/base.h"
#include "forebay/forebay.h"
#include "pool/slots.h"

#define FBY_WALK_STEP 256u /* blocks that one critical section walks at most */

/* Who protects. S and H are charged with all ancestors, each block once; W is flat: the pinned block alone. */
typedef enum fby_pin_class { FBY_PIN_SESSION, FBY_PIN_HOLD, FBY_PIN_WRITE, FBY_PIN_CLASSES } fby_pin_class_t;

#define FBY_EVICTION_MAP(X) X(LRU, "lru") X(SLRU, "slru") X(LFU, "lfu") X(FIFO, "fifo") X(MRU, "mru") X(FILO, "filo")
typedef enum fby_eviction {
#define FBY_X(name, text) FBY_EVICT_##name,
    FBY_EVICTION_MAP(FBY_X)
#undef FBY_X
        FBY_EVICTION_COUNT
} fby_eviction_t;

typedef struct fby_index_config {
    uint32_t max_nodes; /* slots of the smallest `all` group */
    uint32_t groups;
    uint32_t trailing[FBY_MAX_GROUPS];   /* 0: all; n: trailing(n). Group 0 is `all`. */
    uint64_t slot_bytes[FBY_MAX_GROUPS]; /* for charging */
    fby_eviction_t eviction;
    fby_slots_t *slots; /* insert and attach: staging|private -> resident(node); evict: resident -> free */
    /* One call per publication and removal (published / removed). No call back. May be NULL. */
    void (*event)(void *arg, bool published, const fby_hash_t *hash, uint32_t block);
    void *event_arg;
} fby_index_config_t;

typedef struct fby_index fby_index_t;

size_t fby_index_bytes(const fby_index_config_t *config);
/* `memory` is zeroed, 64-aligned and fby_index_bytes() long; the index lives in it. */
fby_index_t *fby_index_init(const fby_index_config_t *config, void *memory);

/* ---- Finding ---- */
/* Node of a block of the current generation, or FBY_NONE. No recency change. */
uint32_t fby_index_find(const fby_index_t *index, const fby_hash_t *hash);
/* Length of the resident prefix of hashes[0..n), given that [0, known) is resident; *node is its last block's node (or
   FBY_NONE for length 0). Gallops from `known`. No recency change. */
uint32_t fby_index_match(const fby_index_t *index, const fby_hash_t *hashes, uint32_t known, uint32_t n,
                         uint32_t *node);
uint32_t fby_index_parent(const fby_index_t *index, uint32_t node); /* FBY_NONE at depth 0 */
uint32_t fby_index_block(const fby_index_t *index, uint32_t node);  /* position in its chain, 0-based */
const fby_hash_t *fby_index_hash(const fby_index_t *index, uint32_t node);
/* Slot of a group's payload, or FBY_NONE. */
uint32_t fby_index_slot(const fby_index_t *index, uint32_t node, uint32_t group);
/* Greatest checkpoint <= end, where `node` is the node of block end-1 (FBY_NONE for 0), over what is resident; *out_node
   is its last node. Each block is looked at once at most. With only `all` groups: end itself. */
uint32_t fby_index_checkpoint(const fby_index_t *index, uint32_t end, uint32_t node, uint32_t *out_node);

/* The same search over any predicate. present(arg, block, group) is asked only for trailing groups, from end-1 downwards,
   each (block, group) once at most. Pure. */
typedef bool fby_present_fn(void *arg, uint32_t block, uint32_t group);
uint32_t fby_checkpoint_below(const uint32_t *trailing, uint32_t groups, uint32_t end, fby_present_fn *present,
                              void *arg);

/* ---- Changing ---- */
/* Publishes one block under `parent` (FBY_NONE: block 0). slots[g] for each `all` group, FBY_NONE elsewhere; each is
   staging or private and becomes resident. The hash must not be indexed yet. The node is new, used, unpinned: pin it in
   the same critical section. `prefetched` counts an eviction before its first hold. FBY_NONE when out of nodes (cannot
   happen while max_nodes == slots of the group: nodes are bounded by slots). */
uint32_t fby_index_insert(fby_index_t *index, uint32_t parent, const fby_hash_t *hash, const uint32_t *slots,
                          bool prefetched);
/* Adds a trailing payload: staging|private -> resident. false when the node has one (the caller keeps the slot). */
bool fby_index_attach(fby_index_t *index, uint32_t node, uint32_t group, uint32_t slot);
/* Evicts until `group` has a free slot: one leaf (all its groups), or, for a trailing group, its least recently used
   unpinned payload first. Blocks beyond a checkpoint go first; a leaf that is a checkpoint gets one second chance while
   other victims exist. true when a slot is free now. false: nothing evictable now (or only behind a pending walk). */
bool fby_index_evict(fby_index_t *index, uint32_t group);
/* One victim goes, whether slots are free or not: for watermarks. */
bool fby_index_evict_one(fby_index_t *index, uint32_t group);
/* Slots of the group that eviction could free, less what pending charges may take. */
uint32_t fby_index_evictable(const fby_index_t *index, uint32_t group);

/* ---- Protecting ---- */
/* +1 on the node for the class. Walks <= FBY_WALK_STEP now. Returns a ticket: the charge is complete once
   fby_index_charged(ticket). */
uint64_t fby_index_pin(fby_index_t *index, uint32_t node, fby_pin_class_t class_);
bool fby_index_charged(const fby_index_t *index, uint64_t ticket);
/* -1. cold: the blocks that come free go first among victims (blocks beyond a delivered checkpoint). A node of an older
   generation is freed when its last use ends. */
void fby_index_unpin(fby_index_t *index, uint32_t node, fby_pin_class_t class_, bool cold);
/* One trailing payload; flat. Pinning needs it to be resident. */
void fby_index_pin_payload(fby_index_t *index, uint32_t node, uint32_t group, fby_pin_class_t class_);
void fby_index_unpin_payload(fby_index_t *index, uint32_t node, uint32_t group, fby_pin_class_t class_);
/* Continues pending walks by at most FBY_WALK_STEP blocks; true when more remain. */
bool fby_index_walk(fby_index_t *index);
bool fby_index_walking(const fby_index_t *index);
/* Bytes charged to a class, each block once, provisional ones included. */
uint64_t fby_index_charged_bytes(const fby_index_t *index, fby_pin_class_t class_);
/* Bytes that pinning `node` (end = its block + 1) would add to the class: exact for the first FBY_WALK_STEP blocks, the
   rest counts as new. */
uint64_t fby_index_charge_estimate(const fby_index_t *index, uint32_t node, fby_pin_class_t class_);
/* Marks [.., node] as used, deepest first, in steps like a charge. */
void fby_index_touch(fby_index_t *index, uint32_t node);

/* ---- Reset ---- */
/* A new generation: find and match see nothing of the old one from now on. Sweeping frees what is unused and retires
   what is pinned (slot: resident -> retired; freed at the last unpin). */
void fby_index_reset(fby_index_t *index);
/* <= FBY_WALK_STEP nodes; true when more remain. Waits for pending walks by doing them first. */
bool fby_index_sweep(fby_index_t *index);
/* Sweep done and no node of an older generation left. */
bool fby_index_clean(const fby_index_t *index);

/* ---- Looking ---- */
typedef struct fby_index_stats {
    uint64_t nodes, published, removed, evicted, evicted_before_use, payload_evicted, probes;
    uint32_t resident[FBY_MAX_GROUPS], payload_evictable[FBY_MAX_GROUPS];
} fby_index_stats_t;
void fby_index_stats(const fby_index_t *index, fby_index_stats_t *stats);
/* Pins of a class on this very node. */
uint32_t fby_index_pins(const fby_index_t *index, uint32_t node, fby_pin_class_t class_);
bool fby_index_is_charged(const fby_index_t *index, uint32_t node, fby_pin_class_t class_);
/* Recomputes refs, lists, heap, counters, parents, slots: false with the reason. O(nodes). Pending walks are accounted
   for. */
bool fby_index_check(const fby_index_t *index, char *why, size_t why_size);
/* Calls visit for every node of the current generation. */
void fby_index_each(const fby_index_t *index, void (*visit)(void *arg, uint32_t node), void *arg);

#endif
