/* bench_copy_set.c - a pool whose words say where they belong, and the tensors that they are copied to. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "cli/bench_copy.h"
#include "stores/object.h"

enum { SLOT_ALIGNMENT = 4096, WORD = 8 };

typedef struct shape {
    fby_layout_kind_t kind;
    uint32_t row_bytes;
} shape_t;

static const shape_t shapes[] = {
#define FBY_X(layout, text, row_bytes) {FBY_LAYOUT_##layout, row_bytes},
    FBY_BENCH_COPY_MAP(FBY_X)
#undef FBY_X
};

/* ---- Words ------------------------------------------------------------------------------------------------------- */

/* What stands at that offset of that block's payload. */
static uint64_t word_of(uint64_t block, uint64_t offset)
{
    uint64_t z = (block << 32 | offset) * UINT64_C(0x9E3779B97F4A7C15) + 1;
    return z ^ (z >> 29);
}

static uint8_t *slot(const fby_bench_copy_set_t *set, uint64_t block)
{
    return set->region.base + set->place[block];
}

/* Where that piece of the block lies in the tensors: written down once more, from the words of device.h alone. In the
   slot pieces are layer by layer, K before V; tensors are K of all layers, then V of all layers. */
static uint8_t *piece_in_tensors(const fby_bench_copy_set_t *set, uint64_t block, uint32_t piece)
{
    uint64_t tensor_bytes = set->blocks * set->piece_bytes;
    uint64_t tensor = piece;
    if (set->kind == FBY_LAYOUT_SPLIT) {
        tensor = piece / 2 + (piece % 2) * FBY_BENCH_COPY_LAYERS;
    }
    return set->memory + tensor * tensor_bytes + set->device_block[block] * set->piece_bytes;
}

static uint8_t *word_in_tensors(const fby_bench_copy_set_t *set, uint64_t block, uint64_t offset)
{
    uint32_t piece = (uint32_t)(offset / set->piece_bytes);
    return piece_in_tensors(set, block, piece) + offset % set->piece_bytes;
}

static bool is_word(const uint8_t *at, uint64_t block, uint64_t offset)
{
    uint64_t word = word_of(block, offset);
    return memcmp(at, &word, WORD) == 0;
}

static void fill(const fby_bench_copy_set_t *set)
{
    for (uint64_t block = 0; block < set->blocks; block++) {
        for (uint64_t offset = 0; offset < set->payload_bytes; offset += WORD) {
            uint64_t word = word_of(block, offset);
            memcpy(slot(set, block) + offset, &word, WORD);
        }
    }
}

uint64_t fby_bench_copy_set_wrong(const fby_bench_copy_set_t *set)
{
    uint64_t wrong = 0;
    for (uint64_t block = 0; block < set->blocks; block++) {
        for (uint32_t piece = 0; piece < set->pieces; piece++) {
            const uint8_t *at = piece_in_tensors(set, block, piece);
            uint64_t first = (uint64_t)piece * set->piece_bytes;
            for (uint32_t i = 0; i < set->piece_bytes; i += WORD) {
                wrong += is_word(at + i, block, first + i) ? 0 : WORD;
            }
        }
    }
    return wrong;
}

static uint64_t drawn_offset(const fby_bench_copy_set_t *set, uint64_t *random)
{
    return fby_bench_random(random) % (set->payload_bytes / WORD) * WORD;
}

void fby_bench_copy_set_spoil(const fby_bench_copy_set_t *set, uint64_t random)
{
    for (uint64_t block = 0; block < set->blocks; block++) {
        memset(word_in_tensors(set, block, drawn_offset(set, &random)), 0, WORD);
    }
}

uint64_t fby_bench_copy_set_sample(const fby_bench_copy_set_t *set, uint64_t random)
{
    uint64_t wrong = 0;
    for (uint64_t block = 0; block < set->blocks; block++) {
        uint64_t offset = drawn_offset(set, &random);
        wrong += is_word(word_in_tensors(set, block, offset), block, offset) ? 0 : WORD;
    }
    return wrong;
}

uint64_t fby_bench_copy_set_wrong_sums(const fby_bench_copy_set_t *set)
{
    uint32_t segment_bytes = set->payload_bytes / FBY_BENCH_COPY_LAYERS;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < set->blocks * FBY_BENCH_COPY_LAYERS; i++) {
        const uint8_t *at = slot(set, i / FBY_BENCH_COPY_LAYERS) + i % FBY_BENCH_COPY_LAYERS * segment_bytes;
        wrong += set->sums[i] != fby_checksum_segment(at, segment_bytes);
    }
    return wrong;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static int out_of_memory(void)
{
    fby_error_set("out of memory");
    return -ENOMEM;
}

static int open_pool(fby_bench_copy_set_t *set)
{
    fby_region_config_t config = {.groups = 1, .alignment = SLOT_ALIGNMENT, .numa_node = -1, .prefault = true};
    config.slot_bytes[0] = (uint32_t)fby_align_up(set->payload_bytes + FBY_TRAILER_BYTES, SLOT_ALIGNMENT);
    config.slots[0] = (uint32_t)set->blocks;
    int status = fby_region_open(&config, &set->region);
    if (status != 0) {
        return status;
    }
    set->pool =
        (fby_pool_t){.size = sizeof(set->pool), .descriptor = set->region.fd, .bytes = set->region.bytes, .groups = 1};
    set->pool.group[0].payload_bytes = set->payload_bytes;
    set->pool.group[0].slot_bytes = config.slot_bytes[0];
    set->pool.group[0].slots = config.slots[0];
    return 0;
}

static int allocate(fby_bench_copy_set_t *set)
{
    void *memory = mmap(NULL, set->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    set->memory = memory == MAP_FAILED ? NULL : memory;
    set->place = malloc(set->blocks * sizeof(*set->place));
    set->device_block = malloc(set->blocks * sizeof(*set->device_block));
    set->sums = calloc(set->blocks * FBY_BENCH_COPY_LAYERS, sizeof(*set->sums));
    if (set->memory == NULL || set->place == NULL || set->device_block == NULL || set->sums == NULL) {
        return out_of_memory();
    }
    /* Blocks of the device in another order than the slots: a table of an engine, not a plain copy. */
    for (uint64_t i = 0; i < set->blocks; i++) {
        set->place[i] = i * set->pool.group[0].slot_bytes;
        set->device_block[i] = set->blocks - 1 - i;
    }
    return 0;
}

static int attach(const fby_bench_copy_options_t *options, uint32_t row_bytes, fby_bench_copy_set_t *set)
{
    fby_tensor_t tensor[2 * FBY_BENCH_COPY_LAYERS];
    const fby_layout_t layout = {
        .size = sizeof(layout),
        .kind = set->kind,
        .layers = FBY_BENCH_COPY_LAYERS,
        .tensors = set->pieces,
        .tensor = tensor,
        .blocks = set->blocks,
        .row_bytes = row_bytes,
        .rows = FBY_BENCH_COPY_ROWS,
    };
    const fby_shard_t shard = {
        .size = sizeof(shard),
        .bytes = set->payload_bytes,
        .segment_bytes = set->payload_bytes / FBY_BENCH_COPY_LAYERS,
    };
    const fby_rank_config_t config = {.size = sizeof(config), .ranks = 1, .threads = (uint32_t)options->threads};
    uint64_t tensor_bytes = set->bytes / set->pieces;
    for (uint32_t i = 0; i < set->pieces; i++) {
        tensor[i] = (fby_tensor_t){.base = set->memory + i * tensor_bytes, .bytes = tensor_bytes};
    }
    int status = fby_rank_attach(&set->pool, &config, &set->rank);
    return status == 0 ? fby_rank_register(set->rank, &shard, &layout) : status;
}

int fby_bench_copy_set_open(const fby_bench_copy_options_t *options, uint32_t layout, fby_bench_copy_set_t *set)
{
    const shape_t *shape = &shapes[layout];
    *set = (fby_bench_copy_set_t){.kind = shape->kind, .region = {.fd = -1}};
    set->pieces = shape->kind == FBY_LAYOUT_SPLIT ? 2 * FBY_BENCH_COPY_LAYERS : FBY_BENCH_COPY_LAYERS;
    set->piece_bytes = FBY_BENCH_COPY_ROWS * shape->row_bytes;
    set->payload_bytes = set->pieces * set->piece_bytes;
    set->blocks = options->bytes / set->payload_bytes;
    set->bytes = set->blocks * set->payload_bytes;
    int status = open_pool(set);
    status = status == 0 ? allocate(set) : status;
    status = status == 0 ? attach(options, shape->row_bytes, set) : status;
    if (status == 0) {
        fill(set);
    }
    return status;
}

void fby_bench_copy_set_close(fby_bench_copy_set_t *set)
{
    (void)fby_rank_detach(set->rank, -1);
    if (set->memory != NULL) {
        munmap(set->memory, set->bytes);
    }
    free(set->sums);
    free(set->device_block);
    free(set->place);
    fby_region_close(&set->region);
}

int fby_bench_copy_set_load(fby_bench_copy_set_t *set, uint64_t *sums)
{
    const fby_copy_list_t list = {
        .size = sizeof(list),
        .blocks = set->blocks,
        .place = set->place,
        .device_block = set->device_block,
        .sums = sums,
    };
    return fby_rank_load(set->rank, &list, NULL);
}
