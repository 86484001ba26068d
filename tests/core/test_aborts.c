/* test_aborts.c - an abort at any moment gives everything back, by the completions alone. */
#include "story.h"

/* F04: all groups of a session share one lifetime, wherever the abort falls. */
static void every_group_comes_back_together(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < 4; moment++) {
        rig_config_t config;
        story_traces(&config);
        story_trailing(&config, 1, 8);
        rig_t *rig = rig_open(&config);
        rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
        fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        if (moment >= 1) /* planned and claimed, nothing begun */
            story_answer(rig, 10);
        if (moment >= 2) /* the full blocks of one graph are being read, its snapshot is not */
            rig_begin(rig, false, 2);
        if (moment >= 3) /* the snapshot, too */
            rig_begin(rig, false, 2);
        assert_int_equal(rig_stop(rig, s), 0);
        assert_int_equal(rig_begin(rig, false, 8), FBY_NONE); /* what was not begun is withdrawn */
        while (rig->live_count[0])
            rig_end(rig, rig->live[0][0], NULL);
        story_settle(rig);
        assert_int_equal(rig_session_find(rig, s)->answer.outcome, FBY_OUTCOME_ABORTED);
        assert_int_equal(rig->slots.in_state[0][FBY_SLOT_FREE], rig->slots.count[0]);
        assert_int_equal(rig->slots.in_state[1][FBY_SLOT_FREE], rig->slots.count[1]);
        story_quiesce(rig);
        rig_close(rig);
    }
}

/* G05: clean-up is driven by the completion itself; no later call is needed. */
static void the_completion_cleans_up(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    story_begin(rig);
    rig_stop(rig, s);
    assert_int_equal(story_stats(rig).reserved_bytes_gauge, 4 * BLOCK);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    fby_stats_t stats = story_stats(rig);
    assert_int_equal(stats.reserved_bytes_gauge, 0);
    assert_int_equal(stats.pinned_bytes_gauge, 0);
    assert_int_equal(fby_core_next_deadline(rig->core), FBY_NEVER);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_group_comes_back_together),
        cmocka_unit_test(the_completion_cleans_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
