#include "cuda_rig.h"

#include <dlfcn.h>
#include <errno.h>

enum { STEPS_MOST = 100000 };

cuda_double_t cuda_double;
static char library[4096];

int cuda_find_double(void **state)
{
    (void)state;
    const char *path = getenv("FOREBAY_CUDA_DOUBLE"), *root = getenv("FOREBAY_BUILD_ROOT");
    if (path != NULL) {
        snprintf(library, sizeof(library), "%s", path);
    } else {
        snprintf(library, sizeof(library), "%s/cuda_driver_double.so", root != NULL ? root : ".");
    }
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL); /* kept open: its state outlives each rank */
    if (handle == NULL) {
        print_error("%s\n", dlerror());
        return -1;
    }
    double_control_fn *get = (double_control_fn *)dlsym(handle, DOUBLE_CONTROL);
    cuda_double.step = (double_step_fn *)dlsym(handle, DOUBLE_STEP);
    cuda_double.gate = (double_gate_fn *)dlsym(handle, DOUBLE_GATE);
    cuda_double.fire = (double_fire_fn *)dlsym(handle, DOUBLE_FIRE);
    cuda_double.control = get();
    return 0;
}

static void fresh_double(const rig_engine_t *engine, uint64_t seed, uint32_t most_steps)
{
    memset(cuda_double.control, 0, sizeof(*cuda_double.control));
    cuda_double.control->seed = seed;
    cuda_double.control->most_steps = most_steps;
    cuda_double.control->memory = engine->arena;
    cuda_double.control->memory_bytes = engine->bytes;
    cuda_double.control->ordinal = CUDA_ORDINAL;
}

fby_rank_config_t cuda_rank_config(void)
{
    return (fby_rank_config_t){
        .size = sizeof(fby_rank_config_t), .ranks = 1, .device = "cuda", .library = library, .ordinal = CUDA_ORDINAL};
}

void cuda_prepare(cuda_story_t *story, fby_layout_kind_t kind, uint64_t seed, uint32_t most_steps)
{
    memset(story, 0, sizeof(*story));
    story->random = seed;
    rig_engine_random(&story->engine, kind, &story->random);
    story->offset = kind == FBY_LAYOUT_MLA ? 0 : unit_below(&story->random, 100);
    rig_pool_open(&story->rig, (uint32_t)(story->offset + rig_shard_bytes(&story->engine)),
                  unit_below(&story->random, 2) ? 64 : 4096);
    fresh_double(&story->engine, seed, most_steps);
    story->n = rig_pairs(&story->random, RIG_BLOCKS, story->slot, story->block);
    for (uint64_t i = 0; i < story->n; i++) {
        story->place[i] = rig_place(&story->rig, (uint32_t)story->slot[i]);
        rig_fill_slot(&story->rig, (uint32_t)story->slot[i], i, 4096, true);
    }
    story->list = (fby_copy_list_t){.size = sizeof(fby_copy_list_t),
                                    .blocks = story->n,
                                    .place = story->place,
                                    .device_block = story->block,
                                    .flags = FBY_COPY_VERIFY};
}

void cuda_attach(cuda_story_t *story)
{
    const fby_rank_config_t config = cuda_rank_config();
    if (fby_rank_attach(&story->rig.pool, &config, &story->rank) != 0) {
        fail_msg("attach: %s", fby_last_error());
    }
    rig_register(story->rank, &story->engine, story->offset, 0);
}

void cuda_open(cuda_story_t *story, fby_layout_kind_t kind, uint64_t seed, uint32_t most_steps)
{
    cuda_prepare(story, kind, seed, most_steps);
    cuda_attach(story);
}

void cuda_nothing_is_left(void)
{
    assert_int_equal(cuda_double.control->contexts, 0);
    assert_int_equal(cuda_double.control->depth, 0);
    assert_int_equal(cuda_double.control->streams, 0);
    assert_int_equal(cuda_double.control->events, 0);
    assert_int_equal(cuda_double.control->regions, 0);
}

void cuda_dismantle(cuda_story_t *story)
{
    rig_engine_free(&story->engine);
    rig_pool_close(&story->rig);
}

void cuda_close(cuda_story_t *story)
{
    assert_int_equal(fby_rank_detach(story->rank, -1), 0);
    cuda_nothing_is_left();
    cuda_dismantle(story);
}

fby_copy_status_t cuda_end_of(cuda_story_t *story, fby_copy_t copy)
{
    fby_copy_status_t status = {.size = sizeof(status)};
    int rc = -EAGAIN;
    for (uint32_t turn = 0; rc == -EAGAIN; turn++) {
        assert_in_range(turn, 0, STEPS_MOST);
        rc = fby_rank_poll(story->rank, copy, &status);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(fby_rank_poll(story->rank, copy, &status), FBY_E_STALE); /* reported once */
    return status;
}

void cuda_model_load(cuda_story_t *story)
{
    for (uint64_t i = 0; i < story->n; i++) {
        rig_model_load(&story->engine, story->rig.region.base + story->place[i] + story->offset, story->block[i]);
    }
}
