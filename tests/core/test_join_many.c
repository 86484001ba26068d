/* test_join_many.c - one entry that waits for several reads of others: each of them counts, alone and to its end. */
#include "drive.h"

/* A reads [0,2); B joins that and reads [2,6) or so; C joins both with its first chunk of 4. */
static rig_t *three_in_a_chain(rig_seq_t **seq, fby_session_t *s)
{
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    seq[2] = rig_seq(rig, 0, 1, 8 * 16 + 1);
    seq[0] = rig_seq_fork(rig, seq[2], 2, 9, 2 * 16 + 1);
    seq[1] = rig_seq_fork(rig, seq[2], 8, 9, 8 * 16 + 1);
    for (unsigned i = 0; i < 3; i++) {
        s[i] = rig_start(rig, seq[i], WAIT_COMPLETE, DRAIN, FBY_NEVER);
        story_answer(rig, seq[i]->blocks);
        story_begin(rig);
    }
    return rig;
}

static void the_end_of_one_read_leaves_the_other_joined(void **state)
{
    (void)state;
    rig_seq_t *seq[3];
    fby_session_t s[3];
    rig_t *rig = three_in_a_chain(seq, s);
    story_ok(rig, seq[0], 0); /* A's graph is over */
    assert_answer(rig, s[0], 2, COMPLETE, COMPLETE);
    assert_snapshot(rig, s[2], answered, 0);
    assert_snapshot(rig, s[2], error, 0);
    drive_reads(rig);
    assert_answer(rig, s[1], 8, COMPLETE, COMPLETE);
    assert_answer(rig, s[2], 8, COMPLETE, COMPLETE);
    assert_int_equal(rig->events[FBY_CORE_PUBLISHED], 8); /* each block was read once */
    assert_int_equal(story_stats(rig).bytes_read, 8 * BLOCK);
    story_quiesce(rig);
    rig_close(rig);
}

static void it_stays_heir_of_the_second_read_after_the_first_ended(void **state)
{
    (void)state;
    rig_seq_t *seq[3];
    fby_session_t s[3];
    rig_t *rig = three_in_a_chain(seq, s);
    story_ok(rig, seq[0], 0);
    rig_stop(rig, s[1]);
    story_settle(rig);
    assert_snapshot(rig, s[2], answered, 0);
    drive_reads(rig);
    assert_answer(rig, s[2], 8, COMPLETE, COMPLETE);
    assert_int_equal(story_stats(rig).bytes_read, 8 * BLOCK); /* inherited, not read again */
    story_quiesce(rig);
    rig_close(rig);
}

static void a_gap_in_the_second_read_is_still_a_gap(void **state)
{
    (void)state;
    rig_seq_t *seq[3];
    fby_session_t s[3];
    rig_t *rig = three_in_a_chain(seq, s);
    story_ok(rig, seq[0], 0);
    story_bad(rig, seq[1], 3, 3, FBY_E_MISSING);
    drive_reads(rig);
    assert_answer(rig, s[2], 3, PARTIAL, PARTIAL_READ);
    assert_int_equal(drive_answer(rig, s[2]).error, FBY_E_MISSING);
    story_quiesce(rig);
    rig_close(rig);
}

/* B is unsealed: its second query batch is out. What A failed to read it reads once itself. */
static void a_joiner_s_own_read_is_not_retried_again(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.query_batch_blocks = 2;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 33), *longer = rig_seq_fork(rig, seq, 2, 9, 65);
    fby_session_t a = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 2);
    assert_int_equal(story_begin(rig), 1);
    fby_session_t b = rig_start(rig, longer, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_core_query_t first, second;
    uint8_t present[2] = {1, 1};
    assert_true(rig_next_query(rig, &first));
    rig_query_done(rig, &first, 0, present, FBY_NEVER);
    story_settle(rig);
    assert_true(rig_next_query(rig, &second));
    drive_fail(rig, FBY_E_CONNECTION); /* A is sealed; its read is tried again for B's sake */
    assert_int_equal(story_stats(rig).retries, 2);
    assert_int_equal(story_begin(rig), 1);
    drive_fail(rig, FBY_E_CONNECTION);
    assert_answer(rig, a, 0, FAILED, STORE_ERROR);
    assert_snapshot(rig, b, answered, 0);
    assert_int_equal(story_begin(rig), 1); /* B's own */
    drive_fail(rig, FBY_E_CONNECTION);
    assert_int_equal(story_begin(rig), 0);
    assert_int_equal(story_stats(rig).retries, 2);
    assert_answer(rig, b, 0, FAILED, STORE_ERROR);
    rig_query_done(rig, &second, 0, present, FBY_NEVER);
    story_quiesce(rig);
    rig_close(rig);
}

/*
 * S joins X's begun read with its first chunk. Its second chunk has a graph of its own, not begun, whose trailing window
 * of 4 reaches back into what X reads: joining that must not keep the own graph from being recalled.
 */
static void recall_decides_by_the_own_graph(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    story_trailing(&config, 4, 32);
    config.core.max_reserved_bytes += 32 * BLOCK;
    rig_t *rig = rig_open(&config);
    rig_seq_t *longer = rig_seq(rig, 0, 1, 6 * 16 + 1), *seq = rig_seq_fork(rig, longer, 4, 9, 4 * 16 + 1);
    fby_session_t x = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    assert_int_equal(story_begin(rig), 1);
    fby_session_t s = rig_start(rig, longer, BEST_EFFORT, RECALL, FBY_NEVER);
    story_answer(rig, 6);
    assert_snapshot(rig, s, inflight_bytes, 4 * BLOCK); /* blocks 4 and 5, full and payload */
    rig_demand(rig, s);
    story_settle(rig);
    assert_int_equal(story_begin(rig), 0); /* withdrawn */
    assert_snapshot(rig, s, inflight_bytes, 0);
    drive_reads(rig);
    assert_answer(rig, x, 4, COMPLETE, COMPLETE);
    assert_answer(rig, s, 4, PARTIAL, DEMAND);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_of_one_read_leaves_the_other_joined),
        cmocka_unit_test(it_stays_heir_of_the_second_read_after_the_first_ended),
        cmocka_unit_test(a_gap_in_the_second_read_is_still_a_gap),
        cmocka_unit_test(a_joiner_s_own_read_is_not_retried_again),
        cmocka_unit_test(recall_decides_by_the_own_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
