/* What the CUDA back end copies, against a double of the driver: no GPU takes part. */
#include "cuda_rig.h"

#include "stores/object.h"

static void every_layout_copies_exactly_its_bytes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 160; seed++) {
        cuda_story_t story;
        fby_copy_t copy;
        cuda_open(&story, (fby_layout_kind_t)(seed % FBY_LAYOUT_COUNT), seed, 5);
        assert_int_equal(fby_rank_load(story.rank, &story.list, &copy), 0);
        fby_copy_status_t status = cuda_end_of(&story, copy);
        assert_int_equal(status.error, 0);
        assert_int_equal(status.bytes, story.n * rig_shard_bytes(&story.engine));
        cuda_model_load(&story);
        assert_memory_equal(story.engine.arena, story.engine.shadow, story.engine.bytes);

        memset(story.rig.region.base, 0x33, story.rig.region.bytes);
        story.list.flags = 0;
        cuda_double.control->most_steps = 1000;
        assert_int_equal(fby_rank_save(story.rank, &story.list, NULL), 0);
        for (uint64_t i = 0; i < story.n; i++) {
            uint8_t *shard = story.rig.region.base + story.place[i] + story.offset;
            for (uint64_t byte = 0; byte < rig_shard_bytes(&story.engine); byte++) {
                assert_int_equal(shard[byte], *rig_device_byte(&story.engine, story.block[i], byte));
                shard[byte] = 0x33;
            }
        }
        for (uint64_t i = 0; i < story.rig.region.bytes; i++) {
            assert_int_equal(story.rig.region.base[i], 0x33); /* and nothing else was written */
        }
        cuda_close(&story);
    }
}

static void neighbours_go_as_one_copy(void **state)
{
    (void)state;
    cuda_story_t story;
    cuda_prepare(&story, FBY_LAYOUT_PACKED, 4, 5);
    story.engine.layout.rows = 1; /* contiguous blocks of as many bytes as one row had */
    story.engine.layout.layers = 1;
    story.engine.layout.tensors = 1;
    rig_pool_close(&story.rig);
    rig_pool_open(&story.rig, 10000, 4096);
    story.offset = 0;
    cuda_attach(&story);
    for (uint64_t i = 0; i < 6; i++) {
        story.place[i] = rig_place(&story.rig, (uint32_t)i + 3);
        story.block[i] = i + 2;
    }
    story.list.flags = 0;
    story.list.blocks = story.n = 6;
    assert_int_equal(fby_rank_load(story.rank, &story.list, NULL), 0);
    assert_int_equal(cuda_double.control->copies_queued, 1);
    story.block[3] = 0; /* 2 3 4 | 0 | 6 7 */
    assert_int_equal(fby_rank_load(story.rank, &story.list, NULL), 0);
    assert_int_equal(cuda_double.control->copies_queued, 4);
    cuda_close(&story);
}

static void sums_and_checks_read_the_slots(void **state)
{
    (void)state;
    cuda_story_t story;
    fby_copy_t copy;
    uint64_t sums[RIG_BLOCKS * RIG_MOST_TENSORS];
    cuda_prepare(&story, FBY_LAYOUT_PACKED, 12, 3);
    story.offset = 0;
    uint32_t bytes = (uint32_t)rig_shard_bytes(&story.engine);
    rig_pool_close(&story.rig);
    rig_pool_open(&story.rig, bytes, 4096);
    const fby_rank_config_t config = cuda_rank_config();
    assert_int_equal(fby_rank_attach(&story.rig.pool, &config, &story.rank), 0);
    rig_register(story.rank, &story.engine, 0, bytes);
    for (uint32_t i = 0; i < 2; i++) {
        story.place[i] = rig_place(&story.rig, i);
        story.block[i] = i;
        rig_fill_slot(&story.rig, i, i, bytes, true);
    }
    story.list.blocks = story.n = 2;
    story.list.sums = sums;
    int32_t results[2];
    story.list.results = results;
    story.rig.region.base[story.place[1]] ^= 1;
    assert_int_equal(fby_rank_load(story.rank, &story.list, &copy), 0);
    fby_copy_status_t status = cuda_end_of(&story, copy);
    assert_int_equal(status.error, FBY_E_CHECKSUM);
    assert_int_equal(status.blocks_failed, 1);
    assert_int_equal(results[1], FBY_E_CHECKSUM);
    assert_true(sums[0] == fby_checksum_segment(story.rig.region.base, bytes));
    memset(sums, 0, sizeof(sums));
    story.list.flags = 0;
    rig_paint(&story.engine, 77);
    assert_int_equal(fby_rank_save(story.rank, &story.list, NULL), 0);
    assert_true(sums[1] == fby_checksum_segment(story.rig.region.base + story.place[1], bytes));
    cuda_close(&story);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_copies_exactly_its_bytes),
        cmocka_unit_test(neighbours_go_as_one_copy),
        cmocka_unit_test(sums_and_checks_read_the_slots),
    };
    return cmocka_run_group_tests(tests, cuda_find_double, NULL);
}
