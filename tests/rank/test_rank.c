#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stores/object.h"

static fby_rank_config_t config_of(uint32_t rank, uint32_t ranks)
{
    return (fby_rank_config_t){.size = sizeof(fby_rank_config_t), .rank = rank, .ranks = ranks};
}

/* ---- Ranks as processes ----------------------------------------------------------------------------------------- */

enum { SHARED_SLOTS = 6 };

static fby_copy_list_t first_slots(const rig_pool_t *rig, uint64_t from, uint64_t *place, uint64_t *block)
{
    for (uint64_t i = 0; i < SHARED_SLOTS; i++) {
        place[i] = rig_place(rig, (uint32_t)(from + i));
        block[i] = (3 * i + 1) % RIG_BLOCKS;
    }
    return (fby_copy_list_t){.size = sizeof(fby_copy_list_t),
                             .blocks = SHARED_SLOTS,
                             .place = place,
                             .device_block = block,
                             .flags = FBY_COPY_VERIFY};
}

/* In a child: loads its shard of the first slots, compares, saves it to the next ones. Says what went wrong. */
static const char *be_a_rank(const rig_pool_t *rig, const rig_engine_t *engine, uint32_t rank, uint32_t ranks,
                             uint32_t threads, const uint8_t *content)
{
    fby_rank_t *attached = NULL;
    uint64_t place[SHARED_SLOTS], block[SHARED_SLOTS], bytes = rig_shard_bytes(engine);
    bool mla = engine->layout.kind == FBY_LAYOUT_MLA;
    uint64_t offset = mla ? 0 : rank * bytes;
    fby_rank_config_t config = config_of(rank, ranks);
    config.threads = threads;
    const fby_shard_t shard = {.size = sizeof(shard), .offset = offset, .bytes = bytes};
    if (fby_rank_attach(&rig->pool, &config, &attached) != 0 ||
        fby_rank_register(attached, &shard, &engine->layout) != 0) {
        return fby_last_error();
    }
    close(rig->pool.descriptor);
    fby_copy_list_t list = first_slots(rig, 0, place, block);
    if (fby_rank_load(attached, &list, NULL) != 0) {
        return fby_last_error();
    }
    for (uint64_t i = 0; i < SHARED_SLOTS; i++) {
        rig_model_load(engine, content + i * rig->pool.group[0].payload_bytes + offset, block[i]);
    }
    if (memcmp(engine->arena, engine->shadow, engine->bytes) != 0) {
        return "the tensors are not what the slots hold";
    }
    list = first_slots(rig, SHARED_SLOTS, place, block);
    list.flags = 0;
    if (fby_rank_save(attached, &list, NULL) != 0) {
        return fby_last_error();
    }
    return fby_rank_detach(attached, -1) == 0 ? NULL : fby_last_error();
}

static void processes_share_the_slots(fby_layout_kind_t kind, uint32_t ranks, uint64_t *random)
{
    rig_pool_t rig;
    rig_engine_t engine;
    pid_t child[8];
    rig_engine_random(&engine, kind, random);
    uint64_t payload = rig_shard_bytes(&engine) * (kind == FBY_LAYOUT_MLA ? 1 : ranks);
    rig_pool_open(&rig, (uint32_t)payload, 4096);
    uint8_t *content = malloc(payload * SHARED_SLOTS);
    for (uint32_t i = 0; i < SHARED_SLOTS; i++) {
        rig_fill_slot(&rig, i, i + ranks, 4096, true);
        memcpy(content + i * payload, rig.region.base + rig_place(&rig, i), payload);
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        child[rank] = fork();
        assert_true(child[rank] >= 0);
        if (child[rank] == 0) {
            const char *wrong = be_a_rank(&rig, &engine, rank, ranks, 1 + rank % 2, content);
            if (wrong != NULL) {
                fprintf(stderr, "rank %u of %u, %s: %s\n", rank, ranks, fby_layout_name(kind), wrong);
            }
            _exit(wrong == NULL ? 0 : 1);
        }
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        int status = 0;
        assert_int_equal(waitpid(child[rank], &status, 0), child[rank]);
        assert_int_equal(status, 0);
    }
    for (uint32_t i = 0; i < SHARED_SLOTS; i++) {
        assert_memory_equal(rig.region.base + rig_place(&rig, SHARED_SLOTS + i), content + i * payload, payload);
    }
    free(content);
    rig_engine_free(&engine);
    rig_pool_close(&rig);
}

static void ranks_share_the_slots(void **state)
{
    (void)state;
    uint64_t random = 5;
    for (uint32_t ranks = 1; ranks <= 8; ranks *= 2) {
        for (uint32_t kind = 0; kind < FBY_LAYOUT_COUNT; kind++) {
            processes_share_the_slots((fby_layout_kind_t)kind, ranks, &random);
        }
    }
}

static void a_child_may_not_use_its_parents_rank(void **state)
{
    (void)state;
    rig_pool_t rig;
    fby_rank_t *rank = NULL;
    fby_rank_config_t config = config_of(0, 1);
    rig_pool_open(&rig, 4096, 4096);
    assert_int_equal(fby_rank_attach(&rig.pool, &config, &rank), 0);
    pid_t child = fork();
    if (child == 0) {
        uint64_t segments;
        bool refused = fby_rank_segments(rank, 0, &segments) == FBY_E_FORKED &&
                       fby_rank_load(rank, NULL, NULL) == FBY_E_FORKED && fby_rank_event_fd(rank) == FBY_E_FORKED &&
                       fby_rank_detach(rank, 0) == FBY_E_FORKED;
        _exit(refused ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(fby_rank_detach(rank, -1), 0);
    rig_pool_close(&rig);
}

/* ---- What is refused -------------------------------------------------------------------------------------------- */

static void refused(const fby_pool_t *pool, const fby_rank_config_t *config, int code, const char *text)
{
    fby_rank_t *rank = NULL;
    int rc = fby_rank_attach(pool, config, &rank);
    assert_int_equal(rc, code);
    assert_null(rank);
    if (strstr(fby_last_error(), text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", fby_last_error(), text);
    }
}

static void wrong_configurations_are_refused_by_name(void **state)
{
    (void)state;
    rig_pool_t rig;
    fby_rank_config_t config = config_of(0, 1);
    rig_pool_open(&rig, 4096, 4096);
    config.size = 4;
    refused(&rig.pool, &config, -EINVAL, "config.size is 4");
    config = config_of(2, 2);
    refused(&rig.pool, &config, -EINVAL, "config.rank is 2");
    config = config_of(0, 0);
    refused(&rig.pool, &config, -EINVAL, "config.ranks is 0");
    config = config_of(0, 1);
    config.threads = 257;
    refused(&rig.pool, &config, -EINVAL, "config.threads is 257");
    config.threads = 1;
    config.device = "rocm";
    refused(&rig.pool, &config, -EINVAL, "config.device is rocm; accepted: host, cuda");
    fby_device_driver_t future = {.abi = 2, .size = sizeof(future)};
    config.driver = &future;
    refused(&rig.pool, &config, -EINVAL, "config.driver.abi is 2");
    rig_pool_close(&rig);
}

static void wrong_pools_are_refused_by_name(void **state)
{
    (void)state;
    rig_pool_t rig;
    const fby_rank_config_t config = config_of(0, 1);
    rig_pool_open(&rig, 4096, 4096);
    fby_pool_t pool = rig.pool;
    pool.size = 0;
    refused(&pool, &config, -EINVAL, "pool.size is 0");
    pool = rig.pool;
    pool.groups = 9;
    refused(&pool, &config, -EINVAL, "pool.groups is 9");
    pool = rig.pool;
    pool.group[0].payload_bytes = 8192 - 63;
    refused(&pool, &config, -EINVAL, "pool.group.slot_bytes is 8192");
    pool = rig.pool;
    pool.group[0].slots++;
    refused(&pool, &config, -EINVAL, "pool.group.offset is 0");
    pool = rig.pool;
    pool.descriptor = -1;
    refused(&pool, &config, -EBADF, "pool.descriptor is -1");
    pool.descriptor = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    refused(&pool, &config, FBY_E_FORMAT, "0 bytes long; accepted: the pool's, 196608 bytes");
    assert_int_equal(ftruncate(pool.descriptor, (off_t)pool.bytes), 0);
    refused(&pool, &config, FBY_E_FORMAT, "which may shrink");
    close(pool.descriptor);
    rig_pool_close(&rig);
}

static void the_descriptor_may_be_closed_after_attaching(void **state)
{
    (void)state;
    rig_pool_t rig;
    rig_engine_t engine;
    fby_rank_t *rank = NULL;
    uint64_t random = 3, place = 0, block = 2, segments = 9;
    const fby_rank_config_t config = config_of(0, 1);
    rig_engine_random(&engine, FBY_LAYOUT_SPLIT, &random);
    rig_pool_open(&rig, (uint32_t)rig_shard_bytes(&engine), 4096);
    fby_pool_t pool = rig.pool;
    pool.descriptor = dup(rig.pool.descriptor);
    assert_int_equal(fby_rank_attach(&pool, &config, &rank), 0);
    close(pool.descriptor);
    assert_int_equal(fby_rank_segments(rank, 0, &segments), -EINVAL);
    rig_register(rank, &engine, 0, 0);
    assert_int_equal(fby_rank_segments(rank, 0, &segments), 0);
    assert_int_equal(segments, 0);
    const fby_shard_t again = {.size = sizeof(again), .bytes = rig_shard_bytes(&engine)};
    assert_int_equal(fby_rank_register(rank, &again, &engine.layout), -EEXIST);
    rig_fill_slot(&rig, 0, 1, 4096, true);
    const fby_copy_list_t list = {.size = sizeof(list), .blocks = 1, .place = &place, .device_block = &block};
    assert_int_equal(fby_rank_load(rank, &list, NULL), 0);
    rig_model_load(&engine, rig.region.base, 2);
    assert_memory_equal(engine.arena, engine.shadow, engine.bytes);
    assert_int_equal(fby_rank_detach(rank, -1), 0);
    assert_int_equal(fby_rank_detach(NULL, -1), 0);
    rig_engine_free(&engine);
    rig_pool_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_the_slots),
        cmocka_unit_test(a_child_may_not_use_its_parents_rank),
        cmocka_unit_test(wrong_configurations_are_refused_by_name),
        cmocka_unit_test(wrong_pools_are_refused_by_name),
        cmocka_unit_test(the_descriptor_may_be_closed_after_attaching),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
