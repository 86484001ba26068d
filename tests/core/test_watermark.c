/* test_watermark.c - eviction ahead of need: src/core/admit.c, fby_evict_ahead. */
#include "story.h"

static void blocks_go_from_the_upper_mark_down_to_the_lower_one(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.pool[0] = 64;
    config.core.evict_start = 0.75;
    config.core.evict_ratio = 0.25;
    rig_t *rig = rig_open(&config);
    story_resident(rig, rig_seq(rig, 0, 1, 32 * 16 + 1), 32);
    story_resident(rig, rig_seq(rig, 0, 2, 16 * 16 + 1), 16);
    assert_int_equal(story_free(rig), 16); /* 48 of 64 used: at the mark, not above it */
    story_resident(rig, rig_seq(rig, 0, 3, 16 + 1), 1);
    assert_int_equal(story_free(rig), 32); /* 49 was above: down to half */
    assert_int_equal(story_stats(rig).blocks_evicted, 17);
    story_quiesce(rig);
    rig_close(rig);
}

static void what_is_held_stays(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.pool[0] = 64;
    config.core.evict_start = 0.5;
    config.core.evict_ratio = 0.5;
    config.core.max_hold_bytes = 64 * BLOCK;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 32 * 16 + 1);
    story_resident(rig, seq, 32);
    fby_hold_t hold;
    uint64_t tokens;
    assert_int_equal(rig_lookup(rig, seq, &hold, &tokens), 0);
    assert_int_equal(tokens, 32 * 16);
    story_resident(rig, rig_seq(rig, 0, 2, 16 + 1), 1);
    assert_int_equal(story_free(rig),
                     32); /* the new block went, the held ones did not; nothing is left to do for ever */
    assert_int_equal(fby_core_next_deadline(rig->core), FBY_NEVER);
    rig_hold_verify(rig, rig_hold_find(rig, hold));
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_go_from_the_upper_mark_down_to_the_lower_one),
        cmocka_unit_test(what_is_held_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
