/*
 * internal.h - what the files of the index share.
 *
 *   index.c          layout, finding, inserting, looking
 *   index_table.c    hash -> node
 *   index_pin.c      pins, charges, walks, touching
 *   index_payload.c  payloads of trailing groups
 *   index_evict.c    who goes: second chance, removal;  evict.h, evict_*.c: the policies
 *   index_reset.c    generations
 *   index_check.c    recomputation
 *   checkpoint.c     the pure search for a resume boundary
 *
 * INVARIANTS of a node (index_check.c recomputes each)
 *   refs   refs[c] = own + children with refs[c] > 0, less the steps of class c that pending walks still owe this node.
 *          For SESSION and HOLD own is pins[c]: the charge. For PROTECT own is every pin of any class and every payload
 *          pin: what eviction asks. A node is *protected* while refs[PROTECT] > 0 and then so are all its ancestors, at
 *          the latest when the pending walks are done.
 *   alive  a node with a charged or protected child is never freed: the child's count is in its refs, or a walk that
 *          will bring it stands on the node (`walkers`). Eviction takes leaves without walkers; an old node, which may
 *          go before its unprotected children do, goes when no refs and no walkers are left and none can be under way.
 *   gen    a node is current (generation == index generation, state INDEXED), old and unswept (another generation,
 *          INDEXED) or RETIRED (swept, unhashed, still in use). `children` counts children of the same generation.
 *   cold   all children of a cold node are cold, so the cold list never waits for a node that is not on it.
 */
#ifndef FBY_INDEX_INTERNAL_H
#define FBY_INDEX_INTERNAL_H

#include "base/base.h"
#include "base/heap.h"
#include "base/list.h"
#include "index/index.h"

#define FBY_BUCKETS_PER_NODE 2u /* a probe that finds nothing looks at half a node on average when the index is full */
#define FBY_LISTS 2u            /* heads of a list policy, after the nodes' links */
#define FBY_WALKS 1024u         /* pending walks that are remembered; one more is completed on the spot */
#define FBY_SECOND_CHANCES 4u   /* checkpoints spared between two evictions */
#define FBY_SOLE_DISTANCE 64u   /* a checkpoint is not sole when another lies at most this many blocks above it */

/* What a walk may carry: the two charged classes under their own numbers, then protection, then recency. */
enum { FBY_REF_SESSION = FBY_PIN_SESSION, FBY_REF_HOLD = FBY_PIN_HOLD, FBY_REF_PROTECT, FBY_REFS };
#define FBY_WALK_TOUCH (1u << FBY_REFS)

enum { FBY_NODE_FREE, FBY_NODE_INDEXED, FBY_NODE_RETIRED };
enum {
    FBY_NODE_HASHED = 1u << 0,     /* in the hash table: published, not yet removed */
    FBY_NODE_PREFETCHED = 1u << 1, /* came by prefetch and no hold has covered it yet */
    FBY_NODE_COLD = 1u << 2,       /* goes before everything that is not cold */
    FBY_NODE_SPARED = 1u << 3,     /* had its second chance since its last use */
};

/* One cache line. */
typedef struct fby_node {
    fby_hash_t hash;
    uint32_t parent; /* FBY_NONE: block 0. Free nodes: next free node */
    uint32_t chain;  /* next node of the hash bucket, as id + 1; 0 ends */
    uint32_t block;
    uint32_t children;
    int32_t refs[FBY_REFS];
    uint32_t pins[FBY_PIN_CLASSES];
    uint16_t generation;
    uint16_t walkers; /* pending walks that stand here */
    uint8_t state, flags;
} fby_node_t;
_Static_assert(sizeof(fby_node_t) <= 64, "a node is one cache line");

/* A walk upwards. `node` is where its next step will be applied; parked walks count in that node's walkers. */
typedef struct fby_walk {
    uint64_t ticket;
    uint32_t node;
    uint32_t child; /* the node of the last step, FBY_NONE before the first; may be freed or another by now */
    uint32_t end;   /* of a touch: which trailing payloads it marks; FBY_NONE: none */
    uint8_t mask;   /* 1 << FBY_REF_*, FBY_WALK_TOUCH: what still goes on; 0: ended */
    int8_t delta;   /* of the FBY_REF_* bits */
    bool cold;      /* what comes free is cold, as long as nothing else hangs on it */
} fby_walk_t;

/* Payloads of one trailing group, by node. Unpinned ones are on a list, used last in front; its head is max_nodes. */
typedef struct fby_payloads {
    uint32_t (*pins)[FBY_PIN_CLASSES];
    fby_link_t *links;
    uint32_t unpinned;
} fby_payloads_t;

struct fby_evict_policy;

/* What const calls may change, too. */
typedef struct fby_index_counters {
    uint64_t probes;
} fby_index_counters_t;

struct fby_index {
    fby_index_config_t config;
    uint64_t all_bytes; /* slot bytes of a block over the `all` groups: what a pin of it charges */
    bool has_trailing;

    fby_node_t *nodes;
    uint64_t bucket_count;
    uint32_t *buckets; /* id + 1 of the first node; 0: empty, so that zeroed memory is an empty table */
    uint32_t *slot_of[FBY_MAX_GROUPS];
    fby_payloads_t payloads[FBY_MAX_GROUPS]; /* trailing groups only */
    uint32_t fresh;                          /* nodes [fresh, max_nodes) were never used */
    uint32_t free_head;
    uint32_t in_use;
    uint16_t generation;

    const struct fby_evict_policy *policy;
    fby_link_t *links; /* list policies; heads at max_nodes + ..., see evict_lru.c */
    fby_heap_t heap;   /* heap policies */
    uint64_t uses;     /* logical time: one per publication or use */
    uint32_t chances;  /* second chances left until the next eviction */

    uint32_t unprotected;                 /* INDEXED nodes with refs[PROTECT] <= 0, of any generation */
    uint32_t charged[FBY_REFS];           /* nodes with refs > 0, of any generation; unused for PROTECT */
    uint64_t pending_blocks[FBY_REFS];    /* blocks that parked +1 walks may still reach */
    uint64_t flat_bytes[FBY_PIN_CLASSES]; /* W pins, payload pins */

    fby_walk_t *walks; /* ring: the first is at walk_head, tickets ascend */
    uint32_t walk_head, walk_count;
    uint32_t walk_step; /* FBY_WALK_STEP; tests make it small */
    uint64_t next_ticket;

    bool sweeping;
    uint32_t sweep_at;
    uint32_t old_nodes; /* nodes in use of older generations */

    fby_index_stats_t stats;
    fby_index_counters_t *counters;
};

static inline bool fby_node_is_current(const fby_index_t *index, const fby_node_t *node)
{
    return node->state == FBY_NODE_INDEXED && node->generation == index->generation;
}
static inline bool fby_node_is_protected(const fby_node_t *node)
{
    return node->refs[FBY_REF_PROTECT] > 0;
}
/* Somebody protects the node, or a walk stands here or will come by from a child. */
static inline bool fby_node_is_awaited(const fby_node_t *node)
{
    return node->refs[FBY_REF_SESSION] > 0 || node->refs[FBY_REF_HOLD] > 0 || node->refs[FBY_REF_PROTECT] > 0 ||
           node->walkers > 0;
}
/* May go now, if a policy wants it to. */
static inline bool fby_node_is_candidate(const fby_node_t *node)
{
    return !fby_node_is_protected(node) && node->children == 0 && node->walkers == 0;
}
/* The deepest block of a chain that cannot be resumed at its end: nobody misses it. Looks at the block's own payloads
   only: exact for trailing(1), a good sign for windows. */
static inline bool fby_node_ends_nothing(const fby_index_t *index, uint32_t id)
{
    if (!index->has_trailing || index->nodes[id].children > 0) {
        return false;
    }
    for (uint32_t g = 0; g < index->config.groups; g++) {
        if (index->config.trailing[g] > 0 && index->slot_of[g][id] == FBY_NONE) {
            return true;
        }
    }
    return false;
}

/* index_table.c */
uint32_t fby_table_bucket(const fby_index_t *index, const fby_hash_t *hash);
/* Node with this hash, of the current generation or of an older one, or FBY_NONE. */
uint32_t fby_table_find(const fby_index_t *index, const fby_hash_t *hash, bool current);
void fby_table_add(fby_index_t *index, uint32_t id);
void fby_table_remove(fby_index_t *index, uint32_t id);

/* index.c */
/* Records a broken rule with the slots' violations, where one reader sees all of them. Returns false. */
bool fby_index_violation(fby_index_t *index, const char *what, uint32_t id);
/* staging|private -> resident(id). */
bool fby_index_slot_usable(const fby_index_t *index, uint32_t group, uint32_t slot);
void fby_index_slot_adopt(fby_index_t *index, uint32_t slot, uint32_t id);

/* index_pin.c */
/* A pin may be added to the node: it is current, or old and in use already. Otherwise a violation. */
bool fby_pin_allowed(fby_index_t *index, uint32_t id);
/* Does what one call may do at once and parks the rest. Returns the ticket; 0: nothing is left. */
uint64_t fby_walk_start(fby_index_t *index, fby_walk_t walk);

/* index_payload.c */
/* Frees the unpinned payloads of a node that goes or grows old; pinned ones stay and are retired. */
void fby_payloads_drop(fby_index_t *index, uint32_t id);
/* Marks as used the unpinned payloads of a node that a resume at `end` needs. */
void fby_payloads_touch(fby_index_t *index, uint32_t id, uint32_t end);
bool fby_payload_evict(fby_index_t *index, uint32_t group);

/* index_evict.c */
/* An unprotected node was used: comes free or is touched. */
void fby_node_use(fby_index_t *index, uint32_t id, bool cold);
/* Children, payloads or walkers of a node changed without a use. */
void fby_node_refresh(fby_index_t *index, uint32_t id);
/* A cold node got a payload: it may be a checkpoint now. */
void fby_node_warm(fby_index_t *index, uint32_t id);
/* A leaf, and the only checkpoint of its chain as far as a short look tells. */
bool fby_node_is_sole_checkpoint(const fby_index_t *index, uint32_t id);
/* Takes a node out of the table, with the event. */
void fby_node_unhash(fby_index_t *index, uint32_t id);
/* Back to the free nodes, slots too. Nobody protects the node and no walk stands on it. */
void fby_node_free(fby_index_t *index, uint32_t id);

/* index_reset.c */
/* Frees an old node if its last use has ended, and retired ancestors that only waited for it. */
void fby_reset_settle(fby_index_t *index, uint32_t id);

#endif
