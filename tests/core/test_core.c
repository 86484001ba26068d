/* test_core.c - the way in and out: handles, tables, the clock, bounded timers, memory, what health and stats see. */
#include "drive.h"

static rig_t *open_default(void)
{
    rig_config_t config;
    rig_config_defaults(&config);
    return rig_open(&config);
}

static void table_sizes_follow_from_the_limits_unless_given(void **state)
{
    (void)state;
    fby_core_config_t config = {.max_sessions = 2000, .max_inflight_chunks = 2};
    fby_core_config_defaults(&config);
    assert_int_equal(config.session_slots, 8000);
    assert_int_equal(config.hold_slots, 8000);
    assert_int_equal(config.put_slots, 4000);
    assert_int_equal(config.part_slots, 1024);
    assert_int_equal(config.entry_slots, 16000 + 8000);
    assert_int_equal(config.read_lanes, 1);
    fby_core_config_t given = {.max_sessions = 4,
                               .session_slots = 5,
                               .hold_slots = 6,
                               .put_slots = 7,
                               .part_slots = 8,
                               .entry_slots = 9,
                               .read_lanes = 10};
    fby_core_config_t expected = given;
    fby_core_config_defaults(&given);
    assert_memory_equal(&given, &expected, sizeof(given));
}

/* Under a sanitizer this fails when a table is longer than what fby_core_bytes asked for. */
static void a_core_lives_in_the_bytes_it_asked_for(void **state)
{
    (void)state;
    for (uint32_t sessions = 1; sessions < 40; sessions += 13) {
        rig_config_t config;
        rig_config_defaults(&config);
        config.pool[0] = 16 + sessions;
        config.core.max_sessions = config.core.session_slots = sessions;
        config.core.hold_slots = config.core.put_slots = config.core.part_slots = 1;
        config.core.entry_slots = 2 * sessions;
        rig_t *rig = rig_open(&config);
        rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
        for (uint32_t i = 0; i < sessions; i++)
            rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        story_answer(rig, 8);
        drive_reads(rig);
        assert_int_equal(rig->events[FBY_CORE_TERMINAL], sessions);
        story_quiesce(rig);
        rig_close(rig);
    }
}

static void a_handle_means_one_object_of_one_kind(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
    story_resident(rig, seq, 4);
    fby_hold_t hold;
    fby_put_t put;
    uint64_t tokens;
    fby_session_t session = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_int_equal(rig_lookup(rig, seq, &hold, &tokens), 0);
    assert_int_equal(rig_put_begin(rig, seq, 0, 4, &put), 0);
    fby_core_t *core = rig->core;
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    fby_core_hold_info_t info;
    const uint64_t wrong[] = {
        0, UINT64_MAX, hold, put, session + 1, session ^ (UINT64_C(1) << 20), session ^ (UINT64_C(1) << 48)};
    for (unsigned i = 0; i < FBY_ARRAY_LEN(wrong); i++) {
        assert_int_equal(fby_core_session_release(core, rig->now, wrong[i]), FBY_E_STALE);
        assert_int_equal(fby_core_session_snapshot(core, wrong[i], &snapshot), FBY_E_STALE);
    }
    assert_int_equal(fby_core_hold_release(core, rig->now, session), FBY_E_STALE);
    assert_int_equal(fby_core_hold_release(core, rig->now, put), FBY_E_STALE);
    assert_int_equal(fby_core_hold_info(core, hold ^ (UINT64_C(1) << 20), &info), FBY_E_STALE);
    assert_int_equal(fby_core_put_end(core, rig->now, hold), FBY_E_STALE);
    assert_int_equal(fby_core_put_end(core, rig->now, session), FBY_E_STALE);
    uint32_t slot;
    assert_false(fby_core_session_slot(core, hold, &slot));
    assert_false(fby_core_session_slot(core, session | 0xfffff, &slot)); /* no such slot */
    story_quiesce(rig);
    assert_int_equal(fby_core_hold_release(core, rig->now, hold), FBY_E_STALE); /* once */
    assert_int_equal(fby_core_put_end(core, rig->now, put), FBY_E_STALE);
    rig_close(rig);
}

static void full_tables_are_busy_and_come_free(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.hold_slots = config.core.put_slots = 1;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
    story_resident(rig, seq, 4);
    fby_hold_t hold, second;
    fby_put_t put, other;
    uint64_t tokens;
    for (unsigned round = 0; round < 3; round++) {
        assert_int_equal(rig_lookup(rig, seq, &hold, &tokens), 0);
        assert_int_equal(rig_lookup(rig, seq, &second, &tokens), -EBUSY);
        assert_int_equal(rig_hold_release(rig, hold), 0);
        assert_int_equal(rig_put_begin(rig, seq, 0, 4, &put), 0);
        assert_int_equal(rig_put_begin(rig, seq, 0, 4, &other), -EBUSY);
        assert_int_equal(rig_put_end(rig, put), 0);
    }
    story_quiesce(rig);
    rig_close(rig);
}

/* 200 deadlines at one moment: a tick takes 64 of them and says at once that there is more. */
static void a_tick_fires_a_bounded_number_of_timers(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.max_sessions = 200;
    config.full_every = 32;
    rig_t *rig = rig_open(&config);
    for (unsigned i = 0; i < 200; i++)
        rig_start(rig, rig_seq(rig, 0, i + 1, 65), TIMEOUT, DRAIN, 10 * RIG_MS);
    story_settle(rig);
    assert_int_equal(fby_core_next_deadline(rig->core), rig->now + 10 * RIG_MS);
    rig->now += 10 * RIG_MS;
    const uint64_t answered[] = {64, 128, 192, 200};
    for (unsigned i = 0; i < FBY_ARRAY_LEN(answered); i++) {
        assert_true(fby_core_next_deadline(rig->core) <= rig->now);
        rig_tick(rig);
        assert_int_equal(rig->events[FBY_CORE_ANSWERED], answered[i]);
    }
    assert_true(fby_core_next_deadline(rig->core) > rig->now);
    story_quiesce(rig);
    assert_int_equal(fby_core_next_deadline(rig->core), FBY_NEVER);
    rig_close(rig);
}

/* Calls of several threads may bring their times in the wrong order. */
static void time_does_not_go_back(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
    fby_core_tick(rig->core, rig->now + 500 * RIG_MS);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, 10 * RIG_MS);
    assert_snapshot(rig, s, created_ns, rig->now + 500 * RIG_MS);
    story_at(rig, 505);
    assert_snapshot(rig, s, answered, 0);
    story_at(rig, 510);
    assert_snapshot(rig, s, answered, 1);
    story_quiesce(rig);
    rig_close(rig);
}

static void health_names_the_oldest_that_is_stuck(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
    fby_health_t health = {.size = sizeof(health)};
    uint32_t operations;
    uint64_t bytes;
    fby_core_health(rig->core, rig->now, &health);
    assert_int_equal(health.oldest_operation_ns, 0);
    assert_int_equal(health.oldest_draining_ns, 0);
    assert_true(fby_core_idle(rig->core));
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, 30 * RIG_MS);
    story_answer(rig, 4);
    story_at(rig, 10);
    story_begin(rig);
    story_at(rig, 50);
    assert_state(rig, s, DRAINING);
    fby_core_health(rig->core, rig->now, &health);
    assert_int_equal(health.oldest_operation_ns, 40 * RIG_MS);
    assert_int_equal(health.oldest_draining_ns, 50 * RIG_MS); /* sealed when its plan was claimed */
    fby_core_outstanding(rig->core, &operations, &bytes);
    assert_int_equal(operations, 1);
    assert_int_equal(bytes, 4 * BLOCK);
    assert_false(fby_core_idle(rig->core));
    drive_reads(rig);
    rig->now += 5 * RIG_MS;
    fby_core_health(rig->core, rig->now, &health);
    assert_int_equal(health.oldest_operation_ns, 0);
    assert_int_equal(health.oldest_draining_ns, 0);
    assert_int_equal(health.last_completion_ns, 5 * RIG_MS);
    fby_core_outstanding(rig->core, &operations, &bytes);
    assert_int_equal(operations, 0);
    assert_int_equal(bytes, 0);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_sizes_follow_from_the_limits_unless_given),
        cmocka_unit_test(a_core_lives_in_the_bytes_it_asked_for),
        cmocka_unit_test(a_handle_means_one_object_of_one_kind),
        cmocka_unit_test(full_tables_are_busy_and_come_free),
        cmocka_unit_test(a_tick_fires_a_bounded_number_of_timers),
        cmocka_unit_test(time_does_not_go_back),
        cmocka_unit_test(health_names_the_oldest_that_is_stuck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
