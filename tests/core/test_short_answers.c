/* test_short_answers.c - an answer that is short says why; one that need not be short is not. */
#include "drive.h"

/* The only snapshot slot is held: the read can deliver nothing, and it was the pool that fell short. */
static void no_slot_for_a_snapshot_is_a_pool_that_is_short(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    story_trailing(&config, 1, 1);
    rig_t *rig = rig_open(&config);
    rig_seq_t *held = rig_seq(rig, 0, 1, 65), *seq = rig_seq(rig, 0, 2, 65);
    story_resident(rig, held, 4);
    fby_hold_t hold;
    uint64_t tokens;
    assert_int_equal(rig_lookup(rig, held, &hold, &tokens), 0);
    assert_int_equal(tokens, 64);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    drive_reads(rig);
    assert_answer(rig, s, 0, EMPTY, CAPACITY_POOL);
    story_quiesce(rig);
    rig_close(rig);
}

/* A take of 10 blocks must fit in max_hold; checkpoints are at 8 and 16. */
static void a_plan_cut_to_an_earlier_checkpoint_is_not_complete(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    story_trailing(&config, 1, 16);
    config.core.max_hold_bytes = 10 * BLOCK;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 16 * 16 + 1);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer_checkpoints(rig, 16, 1u << 7 | 1u << 15);
    drive_reads(rig);
    assert_answer(rig, s, 8, PARTIAL, CAPACITY_PINNED);
    story_quiesce(rig);
    rig_close(rig);
}

static void the_last_checkpoint_of_the_prompt_is_complete(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    story_trailing(&config, 1, 16);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 16 * 16 + 1);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer_checkpoints(rig, 16, 1u << 7); /* nothing was cut: the store has no more */
    drive_reads(rig);
    assert_answer(rig, s, 8, COMPLETE, COMPLETE);
    story_quiesce(rig);
    rig_close(rig);
}

/* Each of ten probes may be asked once more; two of them need that. */
static void a_retry_of_one_probe_does_not_use_up_the_next_one_s(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.query_batch_blocks = 4;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 32 * 16 + 1);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_core_query_t query;
    uint8_t present[4] = {1, 1, 1, 1};
    unsigned asked = 0;
    for (; rig_next_query(rig, &query); asked++) {
        bool fails = asked == 1 || asked == 4;
        rig_query_done(rig, &query, fails ? FBY_E_CONNECTION : 0, present, FBY_NEVER);
        story_settle(rig);
    }
    assert_int_equal(asked, 10);
    drive_reads(rig);
    assert_answer(rig, s, 32, COMPLETE, COMPLETE);
    assert_int_equal(story_stats(rig).query_errors, 2);
    story_quiesce(rig);
    rig_close(rig);
}

static void the_same_probe_is_not_asked_three_times(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.query_batch_blocks = 4;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 32 * 16 + 1);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_core_query_t query;
    uint8_t present[4] = {1, 1, 1, 1};
    unsigned asked = 0;
    for (; rig_next_query(rig, &query); asked++) {
        rig_query_done(rig, &query, asked ? FBY_E_CONNECTION : 0, present, FBY_NEVER);
        story_settle(rig);
    }
    assert_int_equal(asked, 3);
    drive_reads(rig);
    assert_answer(rig, s, 4, PARTIAL, QUERY_ERROR);
    assert_int_equal(drive_answer(rig, s).error, FBY_E_CONNECTION);
    story_quiesce(rig);
    rig_close(rig);
}

/* A had begun [4,8) before B published [0,4): now the whole prefix is resident, and A's put holds it. */
static void a_put_whose_gap_another_closed_holds_the_whole_prefix(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
    fby_put_t a, b;
    assert_int_equal(rig_put_begin(rig, seq, 4, 8, &a), 0);
    assert_int_equal(rig_put_begin(rig, seq, 0, 4, &b), 0);
    assert_int_equal(rig_put_commit(rig, b, 4).published, 4);
    rig_put_end(rig, b);
    fby_put_result_t result = rig_put_commit(rig, a, 8);
    assert_int_equal(result.published, 4);
    assert_int_equal(result.orphan, 0);
    assert_int_equal(result.resident_tokens, 8 * 16);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 8 * BLOCK);
    rig_put_end(rig, a);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 0);
    assert_int_equal(story_lookup(rig, seq), 8 * 16);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_stopped_session_has_nothing_to_take(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 0);
    assert_answer(rig, s, 0, EMPTY, COMPLETE);
    assert_int_equal(rig_stop(rig, s), 0);
    fby_hold_t hold = 0;
    assert_int_equal(rig_take(rig, s, &hold), FBY_E_STALE);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_slot_for_a_snapshot_is_a_pool_that_is_short),
        cmocka_unit_test(a_plan_cut_to_an_earlier_checkpoint_is_not_complete),
        cmocka_unit_test(the_last_checkpoint_of_the_prompt_is_complete),
        cmocka_unit_test(a_retry_of_one_probe_does_not_use_up_the_next_one_s),
        cmocka_unit_test(the_same_probe_is_not_asked_three_times),
        cmocka_unit_test(a_put_whose_gap_another_closed_holds_the_whole_prefix),
        cmocka_unit_test(a_stopped_session_has_nothing_to_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
