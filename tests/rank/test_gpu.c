/*
 * test_gpu.c - rank copies through a CUDA driver library: every layout with random strides, each byte compared.
 *
 * `make gpu` runs it on the machine's own driver and GPU ($FOREBAY_GPU, 0: which), and it skips where there is none. The
 * suite runs the same stories over the double ($FOREBAY_CUDA_LIBRARY), so that they are known to work.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "cuda_driver_double.h"
#include "rank/cuda_library.h"
#include "rig.h"

enum { SEEDS = 60, SKIPPED = 77 };
#define PATIENCE_S 60.0

/* What the back end does without: the engine's part. X(member, symbol, parameters) */
#define GPU_MAP(X)                                                                                                     \
    X(allocate, "cuMemAlloc_v2", (fby_cu_pointer_t * memory, size_t bytes))                                            \
    X(release, "cuMemFree_v2", (fby_cu_pointer_t memory))                                                              \
    X(upload, "cuMemcpyHtoD_v2", (fby_cu_pointer_t to, const void *from, size_t bytes))                                \
    X(download, "cuMemcpyDtoH_v2", (void *to, fby_cu_pointer_t from, size_t bytes))

static struct gpu {
    fby_cu_library_t library;
    const char *path; /* NULL: the machine's */
    int ordinal;
    fby_cu_device_t device;
    fby_cu_context_t context;
#define FBY_X(member, symbol, parameters) fby_cu_result_t(*member) parameters;
    GPU_MAP(FBY_X)
#undef FBY_X
} gpu;

static bool gpu_find(char *why, size_t size)
{
    if (fby_cu_open(gpu.path, &gpu.library, why, size) != 0) {
        return false;
    }
    double_control_fn *get = (double_control_fn *)dlsym(gpu.library.handle, DOUBLE_CONTROL);
    if (get != NULL) {
        get()->ordinal = gpu.ordinal;
        get()->most_steps = 1000; /* it moves while somebody asks */
    }
#define FBY_X(member, symbol, parameters)                                                                              \
    gpu.member = (fby_cu_result_t(*) parameters)dlsym(gpu.library.handle, symbol);                                     \
    if (gpu.member == NULL) {                                                                                          \
        snprintf(why, size, "the driver has no %s", symbol);                                                           \
        return false;                                                                                                  \
    }
    GPU_MAP(FBY_X)
#undef FBY_X
    int rc = fby_cu_code(&gpu.library, gpu.library.init(0), "cuInit", why, size);
    rc = rc == 0 ? fby_cu_code(&gpu.library, gpu.library.device_get(&gpu.device, gpu.ordinal), "cuDeviceGet", why, size)
                 : rc;
    return rc == 0;
}

/* As an engine's thread has it: current while memory is made and looked at. */
static void gpu_enter(void)
{
    assert_int_equal(gpu.library.context_retain(&gpu.context, gpu.device), 0);
    assert_int_equal(gpu.library.context_push(gpu.context), 0);
}

static void gpu_leave(void)
{
    fby_cu_context_t popped;
    assert_int_equal(gpu.library.context_pop(&popped), 0);
    assert_int_equal(gpu.library.context_release(gpu.device), 0);
}

/* The rig's tensors lie in its arena; on the device they lie as far from `memory`. */
static void move_tensors(rig_engine_t *engine, const uint8_t *from, const uint8_t *to)
{
    for (uint32_t i = 0; i < engine->layout.tensors; i++) {
        uintptr_t at = (uintptr_t)engine->tensor[i].base - (uintptr_t)from;
        engine->tensor[i].base = (void *)((uintptr_t)to + at);
    }
}

typedef struct story {
    rig_pool_t pool;
    rig_engine_t engine;
    fby_rank_t *rank;
    fby_cu_pointer_t memory;
    uint64_t offset, shard, n;
    uint64_t slot[RIG_SLOTS], block[RIG_BLOCKS], place[RIG_SLOTS];
} story_t;

static void story_open(story_t *story, fby_layout_kind_t kind, uint64_t seed)
{
    uint64_t random = seed;
    const fby_rank_config_t config = {
        .size = sizeof(config), .ranks = 1, .device = "cuda", .library = gpu.path, .ordinal = (uint32_t)gpu.ordinal};
    memset(story, 0, sizeof(*story));
    rig_engine_random(&story->engine, kind, &random);
    story->shard = rig_shard_bytes(&story->engine);
    story->offset = kind == FBY_LAYOUT_MLA ? 0 : unit_below(&random, 100);
    rig_pool_open(&story->pool, (uint32_t)(story->offset + story->shard), 4096);
    story->n = rig_pairs(&random, RIG_BLOCKS, story->slot, story->block);
    for (uint64_t i = 0; i < story->n; i++) {
        story->place[i] = rig_place(&story->pool, (uint32_t)story->slot[i]);
        rig_fill_slot(&story->pool, (uint32_t)story->slot[i], seed * RIG_SLOTS + i, 4096, true);
    }
    gpu_enter();
    assert_int_equal(gpu.allocate(&story->memory, story->engine.bytes), 0);
    assert_int_equal(gpu.upload(story->memory, story->engine.arena, story->engine.bytes), 0);
    if (fby_rank_attach(&story->pool.pool, &config, &story->rank) != 0) {
        fail_msg("attach: %s", fby_last_error());
    }
    const uint8_t *device = (const uint8_t *)(uintptr_t)story->memory;
    move_tensors(&story->engine, story->engine.arena, device);
    rig_register(story->rank, &story->engine, story->offset, 0);
    move_tensors(&story->engine, device, story->engine.arena);
}

static void story_close(story_t *story)
{
    assert_int_equal(fby_rank_detach(story->rank, -1), 0);
    assert_int_equal(gpu.release(story->memory), 0);
    gpu_leave();
    rig_engine_free(&story->engine);
    rig_pool_close(&story->pool);
}

static void load_is_exact(story_t *story)
{
    fby_copy_t copy;
    fby_copy_status_t status = {.size = sizeof(status)};
    const fby_copy_list_t list = {.size = sizeof(list),
                                  .blocks = story->n,
                                  .place = story->place,
                                  .device_block = story->block,
                                  .flags = FBY_COPY_VERIFY};
    assert_int_equal(fby_rank_load(story->rank, &list, &copy), 0);
    assert_int_equal(fby_rank_wait(story->rank, copy, PATIENCE_S, &status), 0);
    assert_int_equal(status.error, 0);
    assert_int_equal(status.bytes, story->n * story->shard);
    for (uint64_t i = 0; i < story->n; i++) {
        rig_model_load(&story->engine, story->pool.region.base + story->place[i] + story->offset, story->block[i]);
    }
    assert_int_equal(gpu.download(story->engine.arena, story->memory, story->engine.bytes), 0);
    assert_memory_equal(story->engine.arena, story->engine.shadow, story->engine.bytes);
}

static void save_is_exact(story_t *story)
{
    uint8_t *base = story->pool.region.base;
    const fby_copy_list_t list = {
        .size = sizeof(list), .blocks = story->n, .place = story->place, .device_block = story->block};
    memset(base, 0x33, story->pool.region.bytes);
    assert_int_equal(fby_rank_save(story->rank, &list, NULL), 0);
    for (uint64_t i = 0; i < story->n; i++) {
        uint8_t *shard = base + story->place[i] + story->offset;
        for (uint64_t byte = 0; byte < story->shard; byte++) {
            assert_int_equal(shard[byte], *rig_device_byte(&story->engine, story->block[i], byte));
            shard[byte] = 0x33;
        }
    }
    for (uint64_t i = 0; i < story->pool.region.bytes; i++) {
        assert_int_equal(base[i], 0x33); /* and nothing else was written */
    }
}

static void every_layout_goes_there_and_back(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        story_t story;
        story_open(&story, (fby_layout_kind_t)(seed % FBY_LAYOUT_COUNT), seed);
        load_is_exact(&story);
        save_is_exact(&story);
        story_close(&story);
    }
}

static void memory_that_is_not_the_devices_is_refused(void **state)
{
    (void)state;
    story_t story;
    story_open(&story, FBY_LAYOUT_PACKED, 1);
    fby_rank_t *rank;
    const fby_rank_config_t config = {
        .size = sizeof(config), .ranks = 1, .device = "cuda", .library = gpu.path, .ordinal = (uint32_t)gpu.ordinal};
    assert_int_equal(fby_rank_detach(story.rank, -1), 0);
    assert_int_equal(fby_rank_attach(&story.pool.pool, &config, &rank), 0);
    const fby_shard_t shard = {.size = sizeof(shard), .offset = story.offset, .bytes = story.shard};
    assert_int_equal(fby_rank_register(rank, &shard, &story.engine.layout), -EFAULT); /* of this process */
    story.rank = rank;
    story_close(&story);
}

int main(void)
{
    char why[256] = "";
    const char *ordinal = getenv("FOREBAY_GPU");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_goes_there_and_back),
        cmocka_unit_test(memory_that_is_not_the_devices_is_refused),
    };
    gpu.path = getenv("FOREBAY_CUDA_LIBRARY");
    gpu.ordinal = ordinal != NULL ? atoi(ordinal) : 0;
    if (!gpu_find(why, sizeof(why))) {
        printf("skipped: no GPU to be used: %s\n", why);
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
