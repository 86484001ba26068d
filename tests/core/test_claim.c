/* test_claim.c - turning plan into obligation: chunks, windows, what is resident or read already, the stop boundary. */
#include "story.h"

#define PROMPT 161u

static rig_t *open_traces(rig_seq_t **seq)
{
    rig_config_t config;
    story_traces(&config);
    rig_t *rig = rig_open(&config);
    *seq = rig_seq(rig, 0, 1, PROMPT);
    return rig;
}

static void claimed_is_submitted_before_any_lane_comes(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_traces(&seq);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    assert_snapshot(rig, s, submitted, 2);
    assert_snapshot(rig, s, cursor_blocks, 4);
    assert_snapshot(rig, s, inflight_chunks, 2);
    assert_int_equal(story_stats(rig).reserved_bytes_gauge, 4 * BLOCK);
    assert_int_equal(fby_core_wants(rig->core), FBY_WANT_READ);
    rig_stop(rig, s);
    assert_int_equal(fby_core_wants(rig->core), 0); /* withdrawn before it began */
    story_quiesce(rig);
    rig_close(rig);
}

static void nothing_is_allocated_before_the_store_has_answered(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_traces(&seq);
    rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_settle(rig);
    assert_int_equal(story_free(rig), 64);
    story_answer(rig, 1);
    assert_int_equal(story_free(rig), 63); /* for what the store holds, not for the plan's wish */
    story_begin(rig);
    story_ok(rig, seq, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void resident_blocks_inside_the_plan_are_skipped_and_pinned(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_traces(&seq);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_core_query_t query;
    uint8_t present[10];
    memset(present, 1, sizeof(present));
    assert_true(rig_next_query(rig, &query));
    story_resident(rig, seq, 3); /* published while the query was out */
    rig_query_done(rig, &query, 0, present, FBY_NEVER);
    story_settle(rig);
    assert_snapshot(rig, s, start_blocks, 3);
    assert_int_equal(story_begin(rig), 2);
    assert_int_equal(story_part(rig, seq, 2), FBY_NONE);
    assert_int_not_equal(story_part(rig, seq, 3), FBY_NONE);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 3 * BLOCK);
    rig_stop(rig, s);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_chunk_is_clamped_below_the_reserved_budget(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.chunk_max_blocks = 128;
    config.core.max_reserved_bytes = 16 * BLOCK; /* window 2: chunks of 16 / (2 * 2) */
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 32);
    assert_snapshot(rig, s, cursor_blocks, 8);
    assert_int_equal(story_begin(rig), 2);
    rig_stop(rig, s);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_quiesce(rig);
    rig_close(rig);
}

static void first_chunks_come_before_anybody_s_second(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.max_reserved_bytes = 8 * BLOCK; /* room for four chunks in all */
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq[5];
    fby_session_t s[5];
    for (uint32_t i = 0; i < 5; i++) { /* the first two take all the room and need no more */
        seq[i] = rig_seq(rig, 0, i + 1, i < 2 ? 65 : 161);
        s[i] = rig_start(rig, seq[i], WAIT_COMPLETE, DRAIN, FBY_NEVER);
    }
    story_answer(rig, 10);
    assert_int_equal(story_begin(rig), 4);
    for (uint32_t i = 2; i < 5; i++)
        assert_snapshot(rig, s[i], submitted, 0);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    uint64_t claimed = 0;
    for (uint32_t i = 2; i < 5; i++) {
        assert_true(rig_snapshot(rig, s[i]).submitted >= 1);
        claimed += rig_snapshot(rig, s[i]).submitted;
    }
    assert_int_equal(claimed, 4);
    for (uint32_t i = 0; i < 5; i++)
        rig_stop(rig, s[i]);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_whole_plan_is_one_graph_in_parts_that_fit(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.chunk_runtime = false;
    config.core.max_reserved_bytes = 12 * BLOCK; /* a plan of 32 goes in parts of 12, one at a time */
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 32);
    const uint32_t ends[] = {12, 24, 32};
    for (uint32_t i = 0; i < 3; i++) {
        assert_snapshot(rig, s, submitted, i + 1);
        assert_snapshot(rig, s, cursor_blocks, ends[i]);
        assert_int_equal(story_begin(rig), 1);
        rig_end(rig, rig->live[0][0], NULL);
        story_settle(rig);
    }
    assert_snapshot(rig, s, delivered_blocks, 32);
    assert_outcome(rig, s, COMPLETE);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_long_chunk_grows_in_steps_and_counts_once(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    const uint32_t blocks = 5000;
    config.pool[0] = blocks;
    config.core.chunk_runtime = false;
    config.core.max_reserved_bytes = config.core.max_pinned_bytes = config.core.max_hold_bytes =
        (uint64_t)blocks * BLOCK;
    config.core.query_batch_blocks = blocks;
    config.part_blocks = 256;
    config.full_every = 256;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, (uint64_t)blocks * 16 + 1);
    rig_store_fill(rig, seq, 0, blocks);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_blocks, blocks);
    assert_snapshot(rig, s, submitted, 1);
    assert_int_equal(rig->store.calls[STORE_GET], blocks);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_stop_ends_the_growth_of_a_chunk(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    const uint32_t blocks = 5000;
    config.pool[0] = blocks;
    config.core.chunk_runtime = false;
    config.core.max_reserved_bytes = config.core.max_pinned_bytes = config.core.max_hold_bytes =
        (uint64_t)blocks * BLOCK;
    config.core.query_batch_blocks = blocks;
    config.full_every = 256;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, (uint64_t)blocks * 16 + 1);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_core_query_t query;
    static uint8_t present[5000];
    memset(present, 1, sizeof(present));
    assert_true(rig_next_query(rig, &query));
    rig_query_done(rig, &query, 0, present, FBY_NEVER);
    uint64_t cursor = rig_snapshot(rig, s).cursor_blocks;
    assert_in_range(cursor, 1, blocks - 1); /* under way */
    assert_int_equal(fby_core_next_deadline(rig->core), 0);
    rig_stop(rig, s);
    story_settle(rig);
    assert_int_equal(rig_session_find(rig, s)->answer.submitted, 1);
    assert_int_equal(story_begin(rig), 0);
    assert_int_equal(story_free(rig), blocks);
    story_quiesce(rig);
    rig_close(rig);
}

static void quarantine_shrinks_what_one_chunk_may_have(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.max_reserved_bytes = 8 * BLOCK;
    config.core.max_inflight_chunks = 1;
    config.core.drain_limit_ns = RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *stuck = rig_seq(rig, 0, 1, 65), *next = rig_seq(rig, 0, 2, 161);
    fby_session_t s = rig_start(rig, stuck, BEST_EFFORT, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    story_begin(rig);
    rig_demand(rig, s);
    story_at(rig, 5);
    assert_int_equal(story_stats(rig).quarantine_bytes_gauge, 4 * BLOCK);
    s = rig_start(rig, next, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    assert_snapshot(rig, s, inflight_bytes, 4 * BLOCK);
    assert_int_equal(story_stats(rig).reserved_bytes_gauge, 8 * BLOCK);
    rig_stop(rig, s);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claimed_is_submitted_before_any_lane_comes),
        cmocka_unit_test(nothing_is_allocated_before_the_store_has_answered),
        cmocka_unit_test(resident_blocks_inside_the_plan_are_skipped_and_pinned),
        cmocka_unit_test(a_chunk_is_clamped_below_the_reserved_budget),
        cmocka_unit_test(first_chunks_come_before_anybody_s_second),
        cmocka_unit_test(a_whole_plan_is_one_graph_in_parts_that_fit),
        cmocka_unit_test(a_long_chunk_grows_in_steps_and_counts_once),
        cmocka_unit_test(a_stop_ends_the_growth_of_a_chunk),
        cmocka_unit_test(quarantine_shrinks_what_one_chunk_may_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
