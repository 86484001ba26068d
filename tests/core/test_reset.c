/* test_reset.c - generations and the end: what a reset retires, when it is done, what shutdown leaves. */
#include "story.h"

static rig_t *open_default(void)
{
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.writes = FBY_WRITE_THROUGH;
    return rig_open(&config);
}

static void an_idle_reset_is_done_at_once(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    story_resident(rig, seq, 10);
    rig_run_idle(rig, rig->now + RIG_S);
    assert_int_equal(rig_reset(rig, false), 0);
    assert_int_equal(story_lookup(rig, seq), 0);
    story_settle(rig);
    assert_false(fby_core_resetting(rig->core));
    assert_int_equal(rig->events[FBY_CORE_RESET_DONE], 1);
    assert_int_equal(story_free(rig), 64);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_held_block_retires_until_its_reader_is_done(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    story_resident(rig, seq, 10);
    rig_run_idle(rig, rig->now + RIG_S);
    fby_hold_t hold;
    uint64_t tokens;
    fby_core_hold_info_t info;
    assert_int_equal(rig_lookup(rig, seq, &hold, &tokens), 0);
    assert_int_equal(rig_reset(rig, false), 0);
    story_settle(rig);
    assert_true(fby_core_resetting(rig->core));
    assert_int_equal(story_stats(rig).retired_bytes_gauge, 10 * BLOCK);
    assert_int_equal(fby_core_hold_info(rig->core, hold, &info), FBY_E_STALE);
    rig_hold_verify(rig, rig_hold_find(rig, hold)); /* its bytes stand */
    assert_int_equal(rig_hold_release(rig, hold), 0);
    story_settle(rig);
    assert_int_equal(story_stats(rig).retired_bytes_gauge, 0);
    assert_int_equal(rig->events[FBY_CORE_RESET_DONE], 1);
    story_quiesce(rig);
    rig_close(rig);
}

static void put_staging_retires_and_its_commit_is_stale(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, seq, 0, 10, &put), 0);
    assert_int_equal(rig_reset(rig, false), 0);
    story_settle(rig);
    assert_int_equal(rig->slots.in_state[0][FBY_SLOT_RETIRED], 10); /* the caller may still fill it */
    rig_put_fill(rig, put, 10);
    assert_int_equal(rig_put_commit_step(rig, put, 10), FBY_E_STALE);
    assert_true(fby_core_resetting(rig->core));
    assert_int_equal(rig_put_end(rig, put), 0);
    story_settle(rig);
    assert_false(fby_core_resetting(rig->core));
    assert_int_equal(story_free(rig), 64);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_store_write_retires_its_block(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
    story_resident(rig, seq, 4);
    assert_int_not_equal(rig_begin(rig, true, 4), FBY_NONE);
    assert_int_equal(rig_reset(rig, false), 0);
    story_settle(rig);
    assert_int_equal(rig->slots.in_state[0][FBY_SLOT_RETIRED], 4);
    assert_true(fby_core_resetting(rig->core));
    rig_end(rig, rig->live[1][0], NULL);
    story_settle(rig);
    assert_false(fby_core_resetting(rig->core));
    assert_int_equal(story_free(rig), 64);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_private_hold_retires_too(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    rig_seq_t *seq = story_p32(rig, 0);
    fby_core_start_t start;
    fby_session_t s;
    fby_hold_t hold;
    rig_start_defaults(&start);
    start.have_blocks = 30;
    assert_int_equal(rig_start_with(rig, seq, &start, &s), 0);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_int_equal(rig_take(rig, s, &hold), 0);
    assert_int_equal(rig_reset(rig, false), 0);
    story_settle(rig);
    assert_int_equal(rig->slots.in_state[0][FBY_SLOT_RETIRED], 2);
    assert_true(fby_core_resetting(rig->core));
    assert_int_equal(rig_hold_release(rig, hold), 0);
    story_settle(rig);
    assert_false(fby_core_resetting(rig->core));
    assert_int_equal(rig->resident_count, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void every_session_is_answered_once_and_its_lease_dropped(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    story_resident(rig, seq, 10);
    rig_run_idle(rig, rig->now + RIG_S);
    fby_session_t leased = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_session_t planning = rig_start(rig, rig_seq(rig, 0, 2, 161), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_int_equal(rig_reset(rig, false), 0);
    story_settle(rig);
    assert_int_equal(story_events(rig, FBY_CORE_ENDED, leased), 1);
    assert_int_equal(story_events(rig, FBY_CORE_ANSWERED, planning), 1);
    assert_int_equal(rig_session_find(rig, leased)->answer.delivered_blocks, 10); /* what was answered stays */
    assert_int_equal(story_stats(rig).leases_gauge, 0);
    assert_int_equal(story_free(rig), 64);
    story_quiesce(rig);
    rig_close(rig);
}

static void the_epoch_only_rises(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    uint64_t epoch = fby_core_epoch(rig->core);
    assert_int_equal(rig_reset(rig, false), 0);
    assert_int_equal(fby_core_epoch(rig->core), epoch);
    assert_int_equal(rig_reset(rig, true), 0);
    assert_int_equal(fby_core_epoch(rig->core), epoch + 1);
    story_settle(rig);
    story_quiesce(rig);
    rig_close(rig);
}

static void after_a_shutdown_everything_new_is_closed(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    rig_seq_t *seq = story_p32(rig, 0);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 32);
    story_begin(rig);
    rig_shutdown(rig);
    rig_shutdown(rig); /* idempotent */
    assert_false(fby_core_idle(rig->core));
    fby_core_start_t start;
    fby_session_t other;
    fby_hold_t hold;
    fby_put_t put;
    uint64_t tokens;
    rig_start_defaults(&start);
    assert_int_equal(rig_start_with(rig, seq, &start, &other), FBY_E_CLOSED);
    assert_int_equal(rig_lookup(rig, seq, &hold, &tokens), FBY_E_CLOSED);
    assert_int_equal(rig_put_begin(rig, seq, 0, 4, &put), FBY_E_CLOSED);
    assert_int_equal(rig_reset(rig, false), FBY_E_CLOSED);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    assert_true(fby_core_idle(rig->core));
    assert_int_equal(rig_session_find(rig, s)->answer.reason, FBY_REASON_SHUTDOWN);
    assert_int_equal(rig->events[FBY_CORE_PUBLISHED], 0);
    rig_quiescent(rig);
    rig_close(rig);
}

static void a_shutdown_ends_at_the_drain_limit_and_reports_what_is_left(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.drain_limit_ns = 50 * RIG_MS;
    rig_t *rig = rig_open(&config);
    fby_session_t s = rig_start(rig, story_p32(rig, 0), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 32);
    story_begin(rig);
    rig_shutdown(rig);
    story_at(rig, 60);
    assert_int_equal(story_events(rig, FBY_CORE_TERMINAL, s), 1);
    uint32_t operations;
    uint64_t bytes;
    fby_core_outstanding(rig->core, &operations, &bytes);
    assert_int_equal(operations, 2);
    assert_int_equal(bytes, 8 * BLOCK); /* memory that must stay mapped */
    assert_int_equal(rig->slots.in_state[0][FBY_SLOT_QUARANTINE], 8);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    rig_quiescent(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_reset_is_done_at_once),
        cmocka_unit_test(a_held_block_retires_until_its_reader_is_done),
        cmocka_unit_test(put_staging_retires_and_its_commit_is_stale),
        cmocka_unit_test(a_store_write_retires_its_block),
        cmocka_unit_test(a_private_hold_retires_too),
        cmocka_unit_test(every_session_is_answered_once_and_its_lease_dropped),
        cmocka_unit_test(the_epoch_only_rises),
        cmocka_unit_test(after_a_shutdown_everything_new_is_closed),
        cmocka_unit_test(a_shutdown_ends_at_the_drain_limit_and_reports_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
