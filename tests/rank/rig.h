/*
 * rig.h - a pool, engines' tensors of every layout with random strides, and a naive model of what a copy must do.
 *
 * The model knows nothing of plans: it walks layers, K and V, rows, and bytes, and says for each byte of a shard where it
 * lies in the device. Device memory is one arena; a shadow of it gets the model's copies, and the whole arena must equal
 * the shadow afterwards, so that a byte written elsewhere is seen.
 */
#ifndef FBY_TESTS_RANK_RIG_H
#define FBY_TESTS_RANK_RIG_H

#include "forebay/rank.h"
#include "pool/region.h"
#include "unit.h"

enum { RIG_SLOTS = 24, RIG_BLOCKS = 10, RIG_MOST_TENSORS = 16 };

typedef struct rig_pool {
    fby_region_t region;
    fby_pool_t pool;
} rig_pool_t;

/* One group of RIG_SLOTS slots. alignment 64 or 4096. Aborts the test when it cannot. */
void rig_pool_open(rig_pool_t *rig, uint32_t payload_bytes, uint32_t alignment);
void rig_pool_close(rig_pool_t *rig);
/* A place of the slot with this number. */
uint64_t rig_place(const rig_pool_t *rig, uint32_t slot);
/* Fills payload with a stream of its own, and the trailer. */
void rig_fill_slot(const rig_pool_t *rig, uint32_t slot, uint64_t seed, uint32_t segment_bytes, bool checksum);

typedef struct rig_engine {
    fby_layout_t layout;
    fby_tensor_t tensor[RIG_MOST_TENSORS];
    uint8_t *arena, *shadow;
    size_t bytes;
} rig_engine_t;

/* A layout of the kind with random counts, sizes and strides. */
void rig_engine_random(rig_engine_t *engine, fby_layout_kind_t kind, uint64_t *random);
/* Tensors for a layout whose header is set, with strides of its own choice. */
void rig_engine_make(rig_engine_t *engine, uint64_t *random);
void rig_engine_free(rig_engine_t *engine);
/* Bytes of one block of this rank. */
uint64_t rig_shard_bytes(const rig_engine_t *engine);
/* Where byte i of a block's shard lies. */
uint8_t *rig_device_byte(const rig_engine_t *engine, uint64_t block, uint64_t i);
/* The model's load into the shadow. */
void rig_model_load(const rig_engine_t *engine, const uint8_t *shard, uint64_t block);
void rig_paint(const rig_engine_t *engine, uint64_t seed); /* arena and shadow alike */

/* Registers the shard; fails the test when refused. */
void rig_register(fby_rank_t *rank, const rig_engine_t *engine, uint64_t offset, uint32_t segment_bytes);
/* Some distinct slots and blocks in random order; returns how many. */
uint64_t rig_pairs(uint64_t *random, uint64_t device_blocks, uint64_t *slot, uint64_t *block);

#endif
