/* When copies of the CUDA back end end, and how, against a double of the driver: no GPU takes part. */
#include "cuda_rig.h"

#include <errno.h>
#include <poll.h>

enum { ILLEGAL_ADDRESS = 700 };

/* ---- Order and time --------------------------------------------------------------------------------------------- */

static void loads_and_saves_overtake_each_other_unharmed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        cuda_story_t story;
        fby_copy_t copy[6];
        uint64_t place[RIG_BLOCKS];
        cuda_open(&story, FBY_LAYOUT_SPLIT, seed, 3);
        /* Loads of the first blocks, saves of others to slots of their own, six in flight. */
        story.n = FBY_MIN(story.n, 4);
        story.list.blocks = story.n;
        fby_copy_list_t save = story.list;
        uint64_t from[1] = {story.block[story.n - 1]}, to[1];
        bool used[RIG_SLOTS] = {false};
        for (uint64_t i = 0; i < story.n; i++) {
            used[story.slot[i]] = true;
        }
        uint32_t unused = 0;
        while (used[unused]) {
            unused++;
        }
        to[0] = rig_place(&story.rig, unused);
        save.flags = 0;
        save.blocks = 1;
        save.place = to;
        while (true) { /* a device block that no load writes */
            bool loaded = false;
            for (uint64_t i = 0; i < story.n; i++) {
                loaded = loaded || story.block[i] == from[0];
            }
            if (!loaded) {
                break;
            }
            from[0] = (from[0] + 1) % RIG_BLOCKS;
        }
        save.device_block = from;
        memcpy(place, story.place, sizeof(place));
        for (uint32_t i = 0; i < 6; i++) {
            assert_int_equal(i % 2 ? fby_rank_save(story.rank, &save, &copy[i])
                                   : fby_rank_load(story.rank, &story.list, &copy[i]),
                             0);
        }
        memset(story.place, 0xFF, sizeof(story.place)); /* lists are read during the call only */
        for (uint32_t i = 6; i-- > 0;) {
            assert_int_equal(cuda_end_of(&story, copy[i]).error, 0);
        }
        memcpy(story.place, place, sizeof(place));
        cuda_model_load(&story);
        assert_memory_equal(story.engine.arena, story.engine.shadow, story.engine.bytes);
        for (uint64_t byte = 0; byte < rig_shard_bytes(&story.engine); byte++) {
            assert_int_equal(story.rig.region.base[to[0] + story.offset + byte],
                             *rig_device_byte(&story.engine, from[0], byte));
        }
        cuda_close(&story);
    }
}

static void a_slow_copy_is_under_way_until_its_last_row(void **state)
{
    (void)state;
    cuda_story_t story;
    fby_copy_t copy;
    fby_copy_status_t status = {.size = sizeof(status)};
    cuda_open(&story, FBY_LAYOUT_SPLIT, 21, 0); /* queries make no progress */
    struct pollfd ready = {.fd = fby_rank_event_fd(story.rank), .events = POLLIN};
    assert_int_equal(fby_rank_load(story.rank, &story.list, &copy), 0);
    assert_int_equal(fby_rank_wait(story.rank, copy, 0, &status), -ETIMEDOUT);
    assert_int_equal(cuda_double.control->rows_copied, 0);
    while (poll(&ready, 1, 0) == 0) {
        int rc = fby_rank_poll(story.rank, copy, &status);
        assert_true(rc == -EAGAIN || rc == 0);
        if (rc == 0) { /* the event may come just before the descriptor */
            cuda_model_load(&story);
            assert_memory_equal(story.engine.arena, story.engine.shadow, story.engine.bytes);
            copy = 0;
            break;
        }
        assert_int_equal(cuda_double.step(), 1);
    }
    if (copy != 0) {
        assert_int_equal(fby_rank_poll(story.rank, copy, &status), 0);
    }
    assert_int_equal(status.error, 0);
    while (cuda_double.step() != 0) {}
    assert_int_equal(poll(&ready, 1, 0), 1);
    cuda_close(&story);
}

static void a_copy_begins_behind_the_engines_event(void **state)
{
    (void)state;
    cuda_story_t story;
    fby_copy_t copy;
    fby_copy_status_t status = {.size = sizeof(status)};
    cuda_open(&story, FBY_LAYOUT_PACKED, 8, 50);
    void *gate = cuda_double.gate();
    story.list.after = gate;
    assert_int_equal(fby_rank_load(story.rank, &story.list, &copy), 0);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(fby_rank_poll(story.rank, copy, &status), -EAGAIN);
    }
    assert_int_equal(cuda_double.control->rows_copied, 0);
    cuda_double.fire(gate);
    assert_int_equal(cuda_end_of(&story, copy).error, 0);
    free(gate);
    cuda_close(&story);
}

/* ---- Failures --------------------------------------------------------------------------------------------------- */

static void fail_next(const char *symbol, uint32_t call, int result)
{
    snprintf(cuda_double.control->fail_symbol, sizeof(cuda_double.control->fail_symbol), "%s", symbol);
    cuda_double.control->fail_call = call;
    cuda_double.control->fail_result = result;
    cuda_double.control->failures = 0;
}

/* Whichever call fails while attaching, nothing is left of it, and the text names the call. */
static void a_failure_of_any_call_at_attach_leaves_nothing(void **state)
{
    (void)state;
    static const char *const symbols[] = {
        "cuInit",         "cuDeviceGet",         "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2",
        "cuStreamCreate", "cuMemHostRegister_v2"};
    for (size_t i = 0; i < FBY_ARRAY_LEN(symbols); i++) {
        for (uint32_t call = 1; call <= (i == 4 ? 2u : 1u); call++) {
            cuda_story_t story;
            const fby_rank_config_t config = cuda_rank_config();
            cuda_prepare(&story, FBY_LAYOUT_SPLIT, 3, 5);
            fail_next(symbols[i], call, 2);
            assert_int_equal(fby_rank_attach(&story.rig.pool, &config, &story.rank), -ENOMEM);
            assert_int_equal(cuda_double.control->failures, 1);
            char name[40] = "";
            memcpy(name, symbols[i], strcspn(symbols[i], "_"));
            assert_non_null(strstr(fby_last_error(), name));
            assert_non_null(strstr(fby_last_error(), "(2)"));
            cuda_nothing_is_left();
            cuda_dismantle(&story);
        }
    }
}

/* The failed copy is reported once, as failed for every block, and afterwards no byte changes. */
static void one_failure(const char *symbol, uint32_t call, bool load, uint64_t seed)
{
    cuda_story_t story;
    fby_copy_t copy = 0;
    int32_t results[RIG_BLOCKS];
    cuda_open(&story, FBY_LAYOUT_SPLIT, seed, 4);
    story.list.flags = 0;
    story.list.results = results;
    fail_next(symbol, call, 999);
    assert_int_equal(
        load ? fby_rank_load(story.rank, &story.list, &copy) : fby_rank_save(story.rank, &story.list, &copy), 0);
    fby_copy_status_t status = cuda_end_of(&story, copy);
    if (cuda_double.control->failures > 0 && strcmp(symbol, "cuEventDestroy_v2") != 0 &&
        strcmp(symbol, "cuCtxPopCurrent_v2") != 0) {
        assert_int_equal(status.error, -EIO);
        assert_int_equal(status.blocks_failed, story.n);
        assert_int_equal(status.bytes, 0);
        assert_int_equal(status.settled, 1);
        assert_int_equal(results[story.n - 1], -EIO);
    }
    cuda_double.control->fail_call = 0; /* some never came to it */
    memcpy(story.engine.shadow, story.engine.arena, story.engine.bytes);
    uint8_t *pool = malloc(story.rig.region.bytes);
    memcpy(pool, story.rig.region.base, story.rig.region.bytes);
    while (cuda_double.step() != 0) {}
    assert_memory_equal(story.engine.arena, story.engine.shadow, story.engine.bytes);
    assert_memory_equal(story.rig.region.base, pool, story.rig.region.bytes);
    free(pool);
    cuda_double.control->most_steps = 1000;
    assert_int_equal(fby_rank_load(story.rank, &story.list, NULL), 0); /* the next one is not harmed */
    cuda_double.control->events = 0;
    cuda_double.control->depth = 0; /* a failed pop or destroy leaves them */
    cuda_close(&story);
}

static void a_failed_call_fails_one_copy_once(void **state)
{
    (void)state;
    static const char *const symbols[] = {"cuEventCreate",      "cuEventRecord",        "cuEventQuery",
                                          "cuLaunchHostFunc",   "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
                                          "cuMemcpy2DAsync_v2", "cuEventDestroy_v2",    "cuCtxPopCurrent_v2"};
    for (uint64_t seed = 1; seed <= 12; seed++) {
        for (size_t i = 0; i < FBY_ARRAY_LEN(symbols); i++) {
            for (uint32_t call = 1; call <= 3; call++) {
                one_failure(symbols[i], call, seed % 2 == 0, seed);
            }
        }
    }
}

static void a_failed_wait_for_the_engine_copies_nothing(void **state)
{
    (void)state;
    cuda_story_t story;
    fby_copy_t copy;
    cuda_open(&story, FBY_LAYOUT_PACKED, 8, 5);
    void *gate = cuda_double.gate();
    story.list.after = gate;
    fail_next("cuStreamWaitEvent", 1, 999);
    assert_int_equal(fby_rank_load(story.rank, &story.list, &copy), 0);
    assert_int_equal(cuda_end_of(&story, copy).error, -EIO);
    assert_int_equal(cuda_double.control->copies_queued, 0);
    free(gate);
    cuda_close(&story);
}

/* The driver knows nothing any more: the copy is not settled, and the pool stays. Runs last: the rank's memory is kept. */
static void a_broken_device_keeps_the_memory(void **state)
{
    (void)state;
    static cuda_story_t story;
    fby_copy_t copy;
    cuda_open(&story, FBY_LAYOUT_SPLIT, 31, 1);
    assert_int_equal(fby_rank_load(story.rank, &story.list, &copy), 0);
    cuda_double.control->broken = ILLEGAL_ADDRESS;
    fby_copy_status_t status = {.size = sizeof(status)};
    assert_int_equal(fby_rank_poll(story.rank, copy, &status), 0);
    assert_int_equal(status.error, -EIO);
    assert_int_equal(status.settled, 0);
    assert_int_equal(status.blocks_failed, story.n);
    assert_non_null(strstr(fby_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
    assert_int_equal(fby_rank_load(story.rank, &story.list, &copy), -EIO);
    assert_non_null(strstr(fby_last_error(), "broke in an earlier copy"));
    uint32_t regions = cuda_double.control->regions;
    assert_int_equal(fby_rank_detach(story.rank, -1), FBY_E_ABANDONED);
    assert_int_equal(cuda_double.control->regions, regions);
    while (cuda_double.step() != 0) { /* what the device still does finds its memory */
    }
}

static void a_hung_device_does_not_hold_the_caller(void **state)
{
    (void)state;
    static cuda_story_t story;
    fby_copy_t copy;
    cuda_open(&story, FBY_LAYOUT_SPLIT, 32, 0);
    assert_int_equal(fby_rank_load(story.rank, &story.list, &copy), 0);
    assert_int_equal(fby_rank_detach(story.rank, 0.01), FBY_E_ABANDONED);
    while (cuda_double.step() != 0) {}
}

static void foreign_pointers_are_refused_by_name(void **state)
{
    (void)state;
    cuda_story_t story;
    cuda_prepare(&story, FBY_LAYOUT_PACKED, 5, 5);
    const fby_rank_config_t config = cuda_rank_config();
    assert_int_equal(fby_rank_attach(&story.rig.pool, &config, &story.rank), 0);
    const fby_shard_t shard = {.size = sizeof(shard), .bytes = rig_shard_bytes(&story.engine)};
    uint32_t last = story.engine.layout.tensors - 1;
    cuda_double.control->memory_bytes =
        (size_t)((uint8_t *)story.engine.tensor[last].base - story.engine.arena) + story.engine.tensor[last].bytes - 1;
    assert_int_equal(fby_rank_register(story.rank, &shard, &story.engine.layout), -EFAULT);
    assert_non_null(strstr(fby_last_error(), "its last byte is not memory of device 3; accepted: device memory"));
    cuda_double.control->memory = NULL;
    assert_int_equal(fby_rank_register(story.rank, &shard, &story.engine.layout), -EFAULT);
    assert_non_null(strstr(fby_last_error(), "layout.tensor[0].base is "));
    cuda_close(&story);
}

static void libraries_that_are_no_driver_are_refused(void **state)
{
    (void)state;
    cuda_story_t story;
    cuda_prepare(&story, FBY_LAYOUT_SPLIT, 2, 5);
    fby_rank_config_t config = cuda_rank_config();
    config.library = "/nonexistent/libcuda.so.1";
    assert_int_equal(fby_rank_attach(&story.rig.pool, &config, &story.rank), -ENODEV);
    assert_non_null(strstr(fby_last_error(), "/nonexistent/libcuda.so.1"));
    config.library = "libm.so.6";
    assert_int_equal(fby_rank_attach(&story.rig.pool, &config, &story.rank), -ENOSYS);
    assert_non_null(strstr(fby_last_error(), "without cuInit"));
    config = cuda_rank_config();
    config.ordinal = 7;
    assert_int_equal(fby_rank_attach(&story.rig.pool, &config, &story.rank), -ENODEV);
    assert_non_null(strstr(fby_last_error(), "cuDeviceGet"));
    cuda_nothing_is_left();
    cuda_dismantle(&story);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_and_saves_overtake_each_other_unharmed),
        cmocka_unit_test(a_slow_copy_is_under_way_until_its_last_row),
        cmocka_unit_test(a_copy_begins_behind_the_engines_event),
        cmocka_unit_test(a_failure_of_any_call_at_attach_leaves_nothing),
        cmocka_unit_test(a_failed_call_fails_one_copy_once),
        cmocka_unit_test(a_failed_wait_for_the_engine_copies_nothing),
        cmocka_unit_test(a_broken_device_keeps_the_memory),
        cmocka_unit_test(a_hung_device_does_not_hold_the_caller),
        cmocka_unit_test(foreign_pointers_are_refused_by_name),
        cmocka_unit_test(libraries_that_are_no_driver_are_refused),
    };
    return cmocka_run_group_tests(tests, cuda_find_double, NULL);
}
