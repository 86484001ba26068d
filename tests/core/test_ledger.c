/* test_ledger.c - ordered publication: heads first, longest verified run, nothing behind a gap. */
#include "story.h"

#define PROMPT 161u

static rig_t *open_window(rig_seq_t **seq, uint32_t window)
{
    rig_config_t config;
    story_traces(&config);
    config.core.max_inflight_chunks = window;
    rig_t *rig = rig_open(&config);
    *seq = rig_seq(rig, 0, 1, PROMPT);
    return rig;
}

static void nothing_is_visible_before_its_predecessors(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_window(&seq, 5);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    assert_int_equal(story_begin(rig), 5);
    const uint32_t order[] = {8, 2, 6, 4};
    for (size_t i = 0; i < FBY_ARRAY_LEN(order); i++) {
        story_ok(rig, seq, order[i]);
        assert_int_equal(rig->resident_count, 0);
        assert_int_equal(story_stats(rig).reserved_bytes_gauge, 10 * BLOCK); /* slots and credit are kept */
        assert_snapshot(rig, s, inflight_chunks, 5);                         /* and the window place */
    }
    story_ok(rig, seq, 0);
    assert_int_equal(rig->resident_count, 10);
    assert_outcome(rig, s, COMPLETE);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_late_chunk_keeps_the_window_shut(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_window(&seq, 2);
    rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    assert_int_equal(story_begin(rig), 2);
    story_ok(rig, seq, 2);
    assert_int_equal(story_begin(rig), 0);
    story_ok(rig, seq, 0);
    assert_int_equal(story_begin(rig), 2);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    story_begin(rig);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    story_quiesce(rig);
    rig_close(rig);
}

static void results_are_per_block(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_window(&seq, 1);
    rig->config.part_blocks = 1;
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 2);
    uint32_t first = rig_begin(rig, false, 1), second = rig_begin(rig, false, 1);
    assert_int_not_equal(second, FBY_NONE); /* one graph, two driver calls */
    rig_end(rig, second, NULL);
    story_settle(rig);
    assert_int_equal(rig->resident_count, 0);
    int32_t bad = FBY_E_MISSING;
    rig_end(rig, first, &bad);
    story_settle(rig);
    assert_int_equal(rig_session_find(rig, s)->answer.delivered_blocks, 0);
    assert_int_equal(rig_session_find(rig, s)->answer.outcome, FBY_OUTCOME_EMPTY);
    assert_int_equal(story_free(rig), 64);
    story_quiesce(rig);
    rig_close(rig);
}

/* After a gap the chunks behind it that were not begun are withdrawn, those begun are drained and recycled. */
static void a_gap_withdraws_what_was_not_begun(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_window(&seq, 3);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    rig_begin(rig, false, 2);
    rig_begin(rig, false, 2); /* c0 and c1 begun, c2 queued */
    story_bad(rig, seq, 0, 0, FBY_E_NOT_READY);
    assert_int_equal(story_begin(rig), 0);
    assert_int_equal(story_free(rig), 62); /* only c1 is out */
    assert_reason(rig, s, PARTIAL_READ);
    story_ok(rig, seq, 2);
    assert_int_equal(story_free(rig), 64);
    assert_int_equal(rig->resident_count, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_failure_in_a_later_chunk_lets_the_earlier_ones_publish(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_window(&seq, 3);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    assert_int_equal(story_begin(rig), 3);
    story_bad(rig, seq, 4, 5, FBY_E_SIZE);
    assert_reason(rig, s, PARTIAL_READ); /* sealed at once: nothing behind can count */
    story_ok(rig, seq, 2);
    story_ok(rig, seq, 0);
    assert_snapshot(rig, s, delivered_blocks, 5);
    assert_snapshot(rig, s, submitted, 3);
    story_quiesce(rig);
    rig_close(rig);
}

static void each_gap_code_has_its_reason(void **state)
{
    (void)state;
    const struct {
        int32_t code;
        const char *reason;
    } rows[] = {
        {FBY_E_MISSING, "partial_read"},  {FBY_E_NOT_READY, "partial_read"}, {FBY_E_SIZE, "partial_read"},
        {FBY_E_CHECKSUM, "partial_read"}, {FBY_E_INVALID, "store_error"},    {-EINVAL, "store_error"},
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        rig_seq_t *seq;
        rig_t *rig = open_window(&seq, 1);
        fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        story_answer(rig, 2);
        story_begin(rig);
        story_bad(rig, seq, 0, 1, rows[i].code);
        assert_string_equal(fby_reason_name(rig_snapshot(rig, s).reason), rows[i].reason);
        assert_snapshot(rig, s, error, rows[i].code);
        story_quiesce(rig);
        rig_close(rig);
    }
}

static void a_discarded_session_publishes_nothing(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_window(&seq, 2);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    story_begin(rig);
    story_ok(rig, seq, 2);
    rig_stop(rig, s);
    assert_int_equal(story_free(rig), 62); /* the ended chunk is free at once */
    story_ok(rig, seq, 0);
    assert_int_equal(rig->resident_count, 0);
    assert_int_equal(story_free(rig), 64);
    assert_int_equal(rig_session_find(rig, s)->answer.outcome, FBY_OUTCOME_ABORTED);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_racing_put_makes_duplicates_that_count_as_delivered(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_window(&seq, 1);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    story_begin(rig);
    story_resident(rig, seq, 1); /* block 0 of c0 */
    story_ok(rig, seq, 0);
    assert_int_equal(story_stats(rig).duplicates, 1);
    story_begin(rig);
    story_ok(rig, seq, 2);
    assert_snapshot(rig, s, delivered_blocks, 4);
    assert_snapshot(rig, s, loaded_tokens, 64);
    assert_snapshot(rig, s, span_start_block, 0);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_visible_before_its_predecessors),
        cmocka_unit_test(a_late_chunk_keeps_the_window_shut),
        cmocka_unit_test(results_are_per_block),
        cmocka_unit_test(a_gap_withdraws_what_was_not_begun),
        cmocka_unit_test(a_failure_in_a_later_chunk_lets_the_earlier_ones_publish),
        cmocka_unit_test(each_gap_code_has_its_reason),
        cmocka_unit_test(a_discarded_session_publishes_nothing),
        cmocka_unit_test(a_racing_put_makes_duplicates_that_count_as_delivered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
