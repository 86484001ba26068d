#include "rig.h"

#include <sys/mman.h>

#include "stores/object.h"

void rig_pool_open(rig_pool_t *rig, uint32_t payload_bytes, uint32_t alignment)
{
    fby_region_config_t config = {.groups = 1, .slots = {RIG_SLOTS}, .alignment = alignment, .numa_node = -1};
    config.slot_bytes[0] = (uint32_t)fby_align_up((uint64_t)payload_bytes + FBY_TRAILER_BYTES, alignment);
    assert_int_equal(fby_region_open(&config, &rig->region), 0);
    rig->pool = (fby_pool_t){.size = sizeof(rig->pool),
                             .descriptor = rig->region.fd,
                             .bytes = rig->region.bytes,
                             .groups = 1,
                             .fingerprint = "rig of the ranks"};
    rig->pool.group[0].slot_bytes = config.slot_bytes[0];
    rig->pool.group[0].payload_bytes = payload_bytes;
    rig->pool.group[0].slots = RIG_SLOTS;
}

void rig_pool_close(rig_pool_t *rig)
{
    fby_region_close(&rig->region);
}

uint64_t rig_place(const rig_pool_t *rig, uint32_t slot)
{
    return (uint64_t)slot * rig->pool.group[0].slot_bytes;
}

void rig_fill_slot(const rig_pool_t *rig, uint32_t slot, uint64_t seed, uint32_t segment_bytes, bool checksum)
{
    uint8_t *at = rig->region.base + rig_place(rig, slot);
    fby_object_id_t id = {.payload_bytes = rig->pool.group[0].payload_bytes, .segment_bytes = segment_bytes};
    memcpy(id.fingerprint, rig->pool.fingerprint, sizeof(id.fingerprint));
    for (uint32_t i = 0; i < id.payload_bytes; i++) {
        at[i] = (uint8_t)unit_random(&seed);
    }
    fby_object_seal(at, &id, checksum);
}

/* ---- Engines ---------------------------------------------------------------------------------------------------- */

static uint64_t or_more(uint64_t *random, uint64_t least)
{
    return unit_below(random, 2) == 0 ? least : least + unit_below(random, 200);
}

static void place_split(rig_engine_t *engine, uint64_t *random)
{
    const fby_layout_t *layout = &engine->layout;
    uint64_t at = 64 + unit_below(random, 64);
    for (uint32_t layer = 0; layer < layout->layers; layer++) {
        fby_tensor_t *k = &engine->tensor[layer], *v = &engine->tensor[layout->layers + layer];
        uint32_t how = unit_below(random, 3); /* 0: apart, 1: V behind K in each block, 2: V behind K in each row */
        uint64_t row = or_more(random, layout->row_bytes * (how == 2 ? 2 : 1));
        uint64_t rows = (layout->rows - 1) * row + layout->row_bytes;
        uint64_t v_at = how == 2 ? layout->row_bytes : how == 1 ? rows : 0;
        uint64_t block = how == 2 ? layout->rows * row : or_more(random, layout->rows * row * (how == 1 ? 2 : 1));
        uint64_t bytes = (layout->blocks - 1) * block + rows;
        *k = (fby_tensor_t){engine->arena + at, bytes, block, row};
        at += how == 0 ? bytes + unit_below(random, 64) : 0;
        *v = (fby_tensor_t){engine->arena + at + v_at, bytes, block, row};
        at += bytes + v_at + unit_below(random, 64);
    }
}

static void place_layers(rig_engine_t *engine, uint64_t *random)
{
    const fby_layout_t *layout = &engine->layout;
    uint64_t at = 64 + unit_below(random, 64);
    for (uint32_t layer = 0; layer < layout->layers; layer++) {
        uint64_t row = or_more(random, layout->row_bytes);
        uint64_t block = or_more(random, layout->rows * row);
        uint64_t bytes = (layout->blocks - 1) * block + (layout->rows - 1) * row + layout->row_bytes;
        engine->tensor[layer] = (fby_tensor_t){engine->arena + at, bytes, block, row};
        at += bytes + unit_below(random, 64);
    }
}

static void place_block_first(rig_engine_t *engine, uint64_t *random)
{
    fby_layout_t *layout = &engine->layout;
    bool inside = unit_below(random, 2) == 0; /* all layers of a token together */
    uint64_t layer = inside ? or_more(random, layout->row_bytes) : 0;
    uint64_t row = inside ? or_more(random, layer * layout->layers) : or_more(random, layout->row_bytes);
    layer = inside ? layer : or_more(random, layout->rows * row);
    uint64_t span = (layout->layers - 1) * layer + (layout->rows - 1) * row + layout->row_bytes;
    uint64_t block = or_more(random, span);
    layout->layer_stride = layer;
    engine->tensor[0] =
        (fby_tensor_t){engine->arena + 64 + unit_below(random, 64), (layout->blocks - 1) * block + span, block, row};
}

void rig_engine_make(rig_engine_t *engine, uint64_t *random)
{
    fby_layout_t *layout = &engine->layout;
    uint64_t pieces = (uint64_t)layout->layers * (layout->kind == FBY_LAYOUT_SPLIT ? 2 : 1);
    layout->size = sizeof(*layout);
    layout->tensors = layout->kind == FBY_LAYOUT_BLOCK_FIRST ? 1 : (uint32_t)pieces;
    layout->tensor = engine->tensor;
    engine->bytes = 8192 + pieces * (layout->blocks + 1) * layout->rows * (2 * layout->row_bytes + 1000);
    engine->arena = malloc(engine->bytes);
    engine->shadow = malloc(engine->bytes);
    assert_non_null(engine->arena);
    assert_non_null(engine->shadow);
    if (layout->kind == FBY_LAYOUT_SPLIT) {
        place_split(engine, random);
    } else if (layout->kind == FBY_LAYOUT_BLOCK_FIRST) {
        place_block_first(engine, random);
    } else {
        place_layers(engine, random);
    }
    for (uint32_t i = 0; i < layout->tensors; i++) {
        uint8_t *end = (uint8_t *)engine->tensor[i].base + engine->tensor[i].bytes;
        assert_true(end <= engine->arena + engine->bytes);
    }
    rig_paint(engine, 1);
}

void rig_engine_random(rig_engine_t *engine, fby_layout_kind_t kind, uint64_t *random)
{
    memset(engine, 0, sizeof(*engine));
    engine->layout.kind = kind;
    engine->layout.layers = 1 + unit_below(random, 4);
    engine->layout.blocks = RIG_BLOCKS;
    engine->layout.rows = 1 + unit_below(random, 5);
    engine->layout.row_bytes = 1 + unit_below(random, unit_below(random, 3) == 0 ? 3000 : 300);
    rig_engine_make(engine, random);
}

void rig_engine_free(rig_engine_t *engine)
{
    free(engine->arena);
    free(engine->shadow);
}

void rig_paint(const rig_engine_t *engine, uint64_t seed)
{
    for (size_t i = 0; i < engine->bytes; i++) {
        engine->arena[i] = (uint8_t)unit_random(&seed);
    }
    memcpy(engine->shadow, engine->arena, engine->bytes);
}

uint64_t rig_shard_bytes(const rig_engine_t *engine)
{
    uint64_t parts = engine->layout.kind == FBY_LAYOUT_SPLIT ? 2 : 1;
    return engine->layout.layers * parts * engine->layout.rows * engine->layout.row_bytes;
}

uint8_t *rig_device_byte(const rig_engine_t *engine, uint64_t block, uint64_t i)
{
    const fby_layout_t *layout = &engine->layout;
    uint64_t parts = layout->kind == FBY_LAYOUT_SPLIT ? 2 : 1;
    uint64_t byte = i % layout->row_bytes, row = i / layout->row_bytes % layout->rows;
    uint64_t piece = i / layout->row_bytes / layout->rows, part = piece % parts, layer = piece / parts;
    bool one = layout->kind == FBY_LAYOUT_BLOCK_FIRST;
    const fby_tensor_t *tensor = &engine->tensor[one ? 0 : part * layout->layers + layer];
    return (uint8_t *)tensor->base + block * tensor->block_stride + row * tensor->row_stride + byte +
           (one ? layer * layout->layer_stride : 0);
}

void rig_model_load(const rig_engine_t *engine, const uint8_t *shard, uint64_t block)
{
    for (uint64_t i = 0; i < rig_shard_bytes(engine); i++) {
        engine->shadow[rig_device_byte(engine, block, i) - engine->arena] = shard[i];
    }
}

/* ---- Ranks ------------------------------------------------------------------------------------------------------ */

void rig_register(fby_rank_t *rank, const rig_engine_t *engine, uint64_t offset, uint32_t segment_bytes)
{
    const fby_shard_t shard = {
        .size = sizeof(shard), .offset = offset, .bytes = rig_shard_bytes(engine), .segment_bytes = segment_bytes};
    int rc = fby_rank_register(rank, &shard, &engine->layout);
    if (rc != 0) {
        fail_msg("register: %s", fby_last_error());
    }
}

uint64_t rig_pairs(uint64_t *random, uint64_t device_blocks, uint64_t *slot, uint64_t *block)
{
    uint64_t n = 1 + unit_below(random, (uint32_t)FBY_MIN(device_blocks, RIG_SLOTS));
    bool used_slot[RIG_SLOTS] = {false}, used_block[RIG_BLOCKS] = {false};
    bool follow = unit_below(random, 2) == 0; /* runs of neighbours */
    for (uint64_t i = 0; i < n; i++) {
        slot[i] = follow && i > 0 && slot[i - 1] + 1 < RIG_SLOTS ? slot[i - 1] + 1 : unit_below(random, RIG_SLOTS);
        block[i] = follow && i > 0 && block[i - 1] + 1 < device_blocks ? block[i - 1] + 1
                                                                       : unit_below(random, (uint32_t)device_blocks);
        while (used_slot[slot[i]]) {
            slot[i] = (slot[i] + 1) % RIG_SLOTS;
        }
        while (used_block[block[i]]) {
            block[i] = (block[i] + 1) % device_blocks;
        }
        used_slot[slot[i]] = used_block[block[i]] = true;
    }
    return n;
}
