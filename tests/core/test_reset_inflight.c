/* test_reset_inflight.c - a reset while things move: old reads, dirty blocks, orphans, parked sessions, old handles. */
#include "core/handle.h"
#include "drive.h"

static rig_t *open_writing(fby_write_mode_t writes)
{
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.writes = writes;
    return rig_open(&config);
}

static void dirty_blocks_of_write_back_do_not_hold_it_up(void **state)
{
    (void)state;
    rig_t *rig = open_writing(FBY_WRITE_BACK);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
    story_resident(rig, seq, 4); /* dirty; nothing is short, so no write is due */
    assert_int_equal(rig_begin(rig, true, 64), FBY_NONE);
    assert_int_equal(rig_reset(rig, false), 0);
    drive_writes(rig);
    assert_false(fby_core_resetting(rig->core));
    assert_int_equal(rig->events[FBY_CORE_RESET_DONE], 1);
    assert_int_equal(story_free(rig), 64);
    assert_int_equal(story_stats(rig).write_pinned_bytes_gauge, 0);
    story_quiesce(rig);
    rig_close(rig);
}

/* The reset may be there because the store was written anew: bytes asked for before it are old bytes. */
static void nobody_new_joins_a_read_that_began_before(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 4 * 16 + 1);
    rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    assert_int_equal(story_begin(rig), 1);
    uint32_t old = rig->live[0][0];
    rig_reset(rig, false);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    assert_int_equal(story_begin(rig), 1); /* a read of its own */
    rig_end(rig, old, NULL);
    story_settle(rig);
    assert_int_equal(rig->events[FBY_CORE_PUBLISHED], 0);
    assert_int_equal(rig->events[FBY_CORE_RESET_DONE], 1);
    assert_snapshot(rig, s, answered, 0);
    drive_reads(rig);
    assert_answer(rig, s, 4, COMPLETE, COMPLETE);
    assert_int_equal(rig->events[FBY_CORE_PUBLISHED], 4);
    story_quiesce(rig);
    rig_close(rig);
}

static void orphans_that_wait_for_their_write_count(void **state)
{
    (void)state;
    rig_t *rig = open_writing(FBY_WRITE_THROUGH);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, seq, 2, 6, &put), 0);
    assert_int_equal(rig_put_commit(rig, put, 6).orphan, 4);
    rig_put_end(rig, put);
    rig_reset(rig, true);
    story_settle(rig);
    assert_true(fby_core_resetting(rig->core)); /* their slots are in use */
    assert_int_equal(rig->events[FBY_CORE_RESET_DONE], 0);
    assert_int_equal(story_stats(rig).retired_bytes_gauge, 4 * BLOCK);
    drive_writes(rig);
    assert_int_equal(rig->events[FBY_CORE_RESET_DONE], 1);
    assert_int_equal(story_free(rig), 64);
    story_quiesce(rig);
    rig_close(rig);
}

static void parked_sessions_are_answered_without_a_place(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.max_sessions = 1;
    config.core.session_slots = 600;
    config.full_every = 16;
    rig_t *rig = rig_open(&config);
    for (unsigned i = 0; i < 400; i++)
        rig_start(rig, rig_seq(rig, 0, i + 1, 65), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_int_equal(story_stats(rig).sessions_running_gauge, 1);
    assert_int_equal(story_stats(rig).sessions_parked_gauge, 399);
    rig_reset(rig, false); /* more than one step's work is left over */
    assert_in_range(story_stats(rig).sessions_running_gauge, 0, 1);
    story_settle(rig);
    assert_int_equal(story_stats(rig).sessions_running_gauge, 0);
    assert_int_equal(story_stats(rig).sessions_parked_gauge, 0);
    assert_int_equal(story_stats(rig).sessions_by_reason[FBY_REASON_RESET], 400);
    assert_int_equal(rig->events[FBY_CORE_ENDED], 400);
    story_quiesce(rig);
    rig_close(rig);
}

/* A hold keeps the reset from finishing; sessions of the new generation lead a normal life meanwhile. */
static void retries_of_the_new_generation_go_on(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.query_batch_blocks = 4;
    rig_t *rig = rig_open(&config);
    rig_seq_t *held = rig_seq(rig, 0, 1, 65), *seq = rig_seq(rig, 0, 2, 8 * 16 + 1);
    story_resident(rig, held, 4);
    fby_hold_t hold;
    uint64_t tokens;
    assert_int_equal(rig_lookup(rig, held, &hold, &tokens), 0);
    rig_reset(rig, false);
    story_settle(rig);
    assert_true(fby_core_resetting(rig->core));
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_core_query_t query;
    uint8_t present[4] = {1, 1, 1, 1};
    assert_true(rig_next_query(rig, &query)); /* the first batch; the second keeps the session unsealed */
    rig_query_done(rig, &query, 0, present, FBY_NEVER);
    story_settle(rig);
    assert_int_equal(story_begin(rig), 1);
    drive_fail(rig, FBY_E_CONNECTION);
    assert_int_equal(story_stats(rig).retries, 4);
    assert_int_equal(story_begin(rig), 1);
    story_answer(rig, 8);
    drive_reads(rig);
    assert_answer(rig, s, 8, COMPLETE, COMPLETE);
    assert_int_equal(rig_hold_release(rig, hold), 0);
    story_settle(rig);
    assert_int_equal(rig->events[FBY_CORE_RESET_DONE], 1);
    story_quiesce(rig);
    rig_close(rig);
}

/* Handles carry 14 bits of the generation: an old one must not come alive when those come round. */
static void a_handle_stays_stale_after_sixteen_thousand_resets(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.light = true;
    config.model = false;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
    story_resident(rig, seq, 4);
    fby_hold_t hold;
    uint64_t tokens;
    assert_int_equal(rig_lookup(rig, seq, &hold, &tokens), 0);
    fby_core_hold_info_t info;
    uint32_t slot;
    for (unsigned i = 0; i < (1u << 14); i++) {
        assert_int_equal(fby_core_reset(rig->core, rig->now, false), 0);
        assert_int_equal(fby_core_hold_info(rig->core, hold, &info), FBY_E_STALE);
    }
    assert_int_equal(fby_core_generation(rig->core), 1u << 14);
    assert_int_equal(fby_core_hold_slots(rig->core, hold, 0, 0, 1, &slot), FBY_E_STALE);
    assert_int_equal(rig_hold_release(rig, hold), 0); /* that always works */
    story_settle(rig);
    assert_int_equal(story_free(rig), 64);
    rig_close(rig);
}

static void a_lock_free_poll_can_tell_an_old_handle(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(fby_handle_is_of(s, fby_core_generation(rig->core)));
    rig_reset(rig, false);
    assert_false(fby_handle_is_of(s, fby_core_generation(rig->core)));
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    assert_int_equal(fby_core_session_snapshot(rig->core, s, &snapshot), FBY_E_STALE);
    story_settle(rig);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dirty_blocks_of_write_back_do_not_hold_it_up),
        cmocka_unit_test(nobody_new_joins_a_read_that_began_before),
        cmocka_unit_test(orphans_that_wait_for_their_write_count),
        cmocka_unit_test(parked_sessions_are_answered_without_a_place),
        cmocka_unit_test(retries_of_the_new_generation_go_on),
        cmocka_unit_test(a_handle_stays_stale_after_sixteen_thousand_resets),
        cmocka_unit_test(a_lock_free_poll_can_tell_an_old_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
