/* rig.h - a small index over real slot bookkeeping, with a record of its events, for the tests of src/index. */
#ifndef FBY_TESTS_INDEX_RIG_H
#define FBY_TESTS_INDEX_RIG_H

#include "unit.h"

#include "index/index.h"
#include "index/internal.h"

#define RIG_SLOT_BYTES 4096u

typedef struct rig {
    fby_slots_t slots;
    void *slot_memory, *memory;
    fby_index_config_t config;
    fby_index_t *index;
    uint32_t published, removed; /* events */
    fby_hash_t last_removed;
} rig_t;

/* One `all` group of `slots` slots; trailing groups may be added: {window, slots} pairs, ended by window 0. */
typedef struct rig_trailing {
    uint32_t window, slots;
} rig_trailing_t;
void rig_open(rig_t *rig, fby_eviction_t eviction, uint32_t slots, const rig_trailing_t *trailing);
void rig_close(rig_t *rig);
/* The index, the slots, and that nothing was refused. */
void rig_check(const rig_t *rig);

/* hashes[i] of a chain; chains with one name share everything, with different names nothing. */
void rig_chain(uint32_t name, fby_hash_t *hashes, uint32_t n);
/* The hash of a block with this token under `parent` (NULL: block 0). */
fby_hash_t rig_hash(const fby_hash_t *parent, uint64_t token);

/* A free slot, staging. Fails the test when there is none. */
uint32_t rig_take(rig_t *rig, uint32_t group);
/* Publishes one block; nothing is pinned. */
uint32_t rig_insert(rig_t *rig, uint32_t parent, const fby_hash_t *hash);
/* Publishes what is missing of a chain as a PUT does, under a moving pin, and lets go of it. Returns the last node. */
uint32_t rig_publish(rig_t *rig, const fby_hash_t *hashes, uint32_t n);
/* Adds a payload. */
void rig_attach(rig_t *rig, uint32_t node, uint32_t group);
/* Finishes all pending walks. */
void rig_walk(rig_t *rig);
/* Evicts one block of group 0, also while slots are free; rig->last_removed is its hash. */
bool rig_evict_one(rig_t *rig);
bool rig_has(const rig_t *rig, const fby_hash_t *hash);

#endif
