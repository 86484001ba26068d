/*
 * naive_index.h - the index as a model: arrays, full recomputation, nothing clever. For tests and the simulator.
 *
 * Every question is answered by looking at all blocks: who is protected, what is charged, who goes next. Walks do not
 * exist: a charge is complete at once, a sweep too. Order is by time stamps of publication and last use.
 *
 * Two things it does not model, so callers do not do them: publishing under a parent that nobody protects without
 * pinning the new block at once, and attaching a payload to a block that nobody protects.
 */
#ifndef FBY_TESTS_NAIVE_INDEX_H
#define FBY_TESTS_NAIVE_INDEX_H

#include "index/index.h"

typedef struct naive_block {
    bool used, old; /* old: of an earlier generation, still pinned */
    bool cold, spared, prefetched;
    fby_hash_t hash;
    uint32_t parent, block;
    uint32_t pins[FBY_PIN_CLASSES];
    bool payload[FBY_MAX_GROUPS];
    uint32_t payload_pins[FBY_MAX_GROUPS][FBY_PIN_CLASSES];
    uint64_t published_at, used_at, uses;
    uint64_t demoted_at; /* not 0: went to the very end of the cold ones then */
    uint64_t payload_used_at[FBY_MAX_GROUPS];
} naive_block_t;

typedef struct naive_index {
    fby_index_config_t config; /* slots and event are not used */
    naive_block_t *blocks;     /* config.max_nodes */
    bool *protected_;          /* scratch of naive_protect */
    uint64_t now;
    uint32_t chances;
    fby_index_stats_t stats; /* probes stay 0 */
    fby_hash_t last_removed;
} naive_index_t;

naive_index_t *naive_create(const fby_index_config_t *config);
void naive_destroy(naive_index_t *naive);

/* Finding. Blocks are known by their place in `blocks`; FBY_NONE: not there. */
uint32_t naive_find(const naive_index_t *naive, const fby_hash_t *hash);
uint32_t naive_match(const naive_index_t *naive, const fby_hash_t *hashes, uint32_t n);
uint32_t naive_checkpoint(const naive_index_t *naive, const fby_hash_t *hashes, uint32_t end);

/* Changing: as the calls of index.h. */
uint32_t naive_insert(naive_index_t *naive, uint32_t parent, const fby_hash_t *hash, bool prefetched);
void naive_attach(naive_index_t *naive, uint32_t id, uint32_t group);
void naive_pin(naive_index_t *naive, uint32_t id, fby_pin_class_t class_);
void naive_unpin(naive_index_t *naive, uint32_t id, fby_pin_class_t class_, bool cold);
void naive_pin_payload(naive_index_t *naive, uint32_t id, uint32_t group, fby_pin_class_t class_);
void naive_unpin_payload(naive_index_t *naive, uint32_t id, uint32_t group, fby_pin_class_t class_);
void naive_touch(naive_index_t *naive, uint32_t id);
void naive_reset(naive_index_t *naive);
/* One leaf, or one payload of a trailing group. false: nobody may go. */
bool naive_evict(naive_index_t *naive, uint32_t group);
/* Takes out the block that somebody else chose. */
void naive_remove(naive_index_t *naive, uint32_t id);

/* Looking. */
bool naive_is_protected(naive_index_t *naive, uint32_t id);
bool naive_is_leaf(const naive_index_t *naive, uint32_t id);
bool naive_is_charged(const naive_index_t *naive, uint32_t id, fby_pin_class_t class_);
uint64_t naive_charged_bytes(const naive_index_t *naive, fby_pin_class_t class_);
uint64_t naive_charge_estimate(const naive_index_t *naive, uint32_t id, fby_pin_class_t class_);
uint32_t naive_evictable(naive_index_t *naive, uint32_t group);
uint32_t naive_retired(const naive_index_t *naive, uint32_t group);

#endif
