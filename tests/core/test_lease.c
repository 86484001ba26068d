/* test_lease.c - what protects an answer: one lease, one end of it, whoever brings that. */
#include "drive.h"

/* 4 blocks read, answered and leased; a pool of 8 that only evicts what nobody protects. */
static rig_t *leased(rig_seq_t **seq, fby_session_t *s)
{
    rig_config_t config;
    rig_config_defaults(&config);
    config.pool[0] = 8;
    config.core.max_pinned_bytes = config.core.max_reserved_bytes = config.core.max_hold_bytes = 8 * BLOCK;
    rig_t *rig = rig_open(&config);
    *seq = rig_seq(rig, 0, 1, 65);
    *s = rig_start(rig, *seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    drive_reads(rig);
    assert_answer(rig, *s, 4, COMPLETE, COMPLETE);
    assert_snapshot(rig, *s, lease_valid, 1);
    assert_int_equal(story_stats(rig).leases_gauge, 1);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 4 * BLOCK);
    return rig;
}

static void ended_once(rig_t *rig, fby_session_t s)
{
    fby_hold_t hold = 0;
    assert_int_equal(story_stats(rig).leases_gauge, 0);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
    assert_int_equal(story_events(rig, FBY_CORE_ENDED, s), 1);
    assert_int_equal(rig_take(rig, s, &hold), FBY_E_STALE);
    story_quiesce(rig);
    assert_int_equal(story_events(rig, FBY_CORE_ENDED, s), 1);
    rig_close(rig);
}

static void its_time_limit_ends_it(void **state)
{
    (void)state;
    rig_seq_t *seq;
    fby_session_t s;
    rig_t *rig = leased(&seq, &s);
    story_at(rig, 59999);
    assert_snapshot(rig, s, lease_valid, 1);
    story_at(rig, 60000);
    assert_snapshot(rig, s, lease_valid, 0);
    assert_snapshot(rig, s, delivered_blocks, 4); /* the answer stays */
    assert_state(rig, s, EXPIRED);
    ended_once(rig, s);
}

static void a_release_ends_it(void **state)
{
    (void)state;
    rig_seq_t *seq;
    fby_session_t s;
    rig_t *rig = leased(&seq, &s);
    assert_int_equal(rig_release(rig, s), 0);
    assert_int_equal(rig_release(rig, s), 0);
    ended_once(rig, s);
}

static void a_stop_ends_it(void **state)
{
    (void)state;
    rig_seq_t *seq;
    fby_session_t s;
    rig_t *rig = leased(&seq, &s);
    assert_int_equal(rig_stop(rig, s), 0);
    assert_snapshot(rig, s, delivered_blocks, 4);
    ended_once(rig, s);
}

static void a_take_turns_it_into_a_hold(void **state)
{
    (void)state;
    rig_seq_t *seq;
    fby_session_t s;
    rig_t *rig = leased(&seq, &s);
    fby_hold_t hold = 0;
    assert_int_equal(rig_take(rig, s, &hold), 0);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 4 * BLOCK);
    story_at(rig, 120000); /* holds have no time limit */
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 4 * BLOCK);
    ended_once(rig, s);
}

static void a_reset_ends_it(void **state)
{
    (void)state;
    rig_seq_t *seq;
    fby_session_t s;
    rig_t *rig = leased(&seq, &s);
    rig_reset(rig, false);
    story_settle(rig);
    assert_int_equal(story_events(rig, FBY_CORE_ENDED, s), 1);
    assert_int_equal(story_stats(rig).leases_gauge, 0);
    assert_int_equal(story_free(rig), 8);
    story_quiesce(rig);
    rig_close(rig);
}

/* A put of 8 needs the whole pool: it gets what is not leased. */
static void nothing_evicts_what_it_covers(void **state)
{
    (void)state;
    rig_seq_t *seq;
    fby_session_t s;
    rig_t *rig = leased(&seq, &s);
    rig_seq_t *big = rig_seq(rig, 0, 2, 8 * 16 + 1);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, big, 0, 8, &put), 0);
    assert_int_equal(rig_put_find(rig, put)->info.staged_to, 4);
    rig_put_end(rig, put);
    assert_int_equal(story_lookup(rig, seq), 64);
    rig_release(rig, s);
    assert_int_equal(rig_put_begin(rig, big, 0, 8, &put), 0);
    assert_int_equal(rig_put_find(rig, put)->info.staged_to, 8);
    rig_put_end(rig, put);
    assert_int_equal(story_lookup(rig, seq), 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void two_leases_of_one_prefix_are_charged_once_and_end_apart(void **state)
{
    (void)state;
    rig_seq_t *seq;
    fby_session_t s;
    rig_t *rig = leased(&seq, &s);
    fby_session_t second = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_settle(rig);
    assert_answer(rig, second, 4, COMPLETE, COMPLETE);
    assert_int_equal(story_stats(rig).leases_gauge, 2);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 4 * BLOCK);
    rig_release(rig, s);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 4 * BLOCK);
    rig_release(rig, second);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
    story_quiesce(rig);
    rig_close(rig);
}

/* Detach answered with 2 blocks; its tail brings 6 more. They are resident, but the answer and its hold stay at 2. */
static void a_detached_tail_lengthens_neither_answer_nor_hold(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
    fby_session_t s = rig_start(rig, seq, BEST_EFFORT, DETACH, FBY_NEVER);
    story_answer(rig, 8);
    story_begin(rig);
    story_ok(rig, seq, 0);
    story_begin(rig);
    rig_demand(rig, s);
    assert_answer(rig, s, 2, PARTIAL, DEMAND);
    drive_reads(rig);
    assert_state(rig, s, TERMINAL);
    assert_int_equal(story_lookup(rig, seq), 6 * 16); /* what was claimed at the demand */
    assert_snapshot(rig, s, delivered_blocks, 2);
    fby_hold_t hold = 0;
    assert_int_equal(rig_take(rig, s, &hold), 0);
    assert_int_equal(rig_hold_find(rig, hold)->blocks, 2);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 2 * BLOCK);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
    story_quiesce(rig);
    rig_close(rig);
}

/* A snapshot of the delivered end is protected; those of earlier checkpoints may go. */
static void it_covers_the_payloads_of_its_end_only(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    story_trailing(&config, 1, 2);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1), *other = rig_seq(rig, 0, 2, 65);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer_checkpoints(rig, 8, 1u << 3 | 1u << 7);
    drive_reads(rig);
    assert_answer(rig, s, 8, COMPLETE, COMPLETE);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 9 * BLOCK); /* 8 full, one snapshot */
    story_resident(rig, other, 4);                                    /* takes the other snapshot's slot */
    rig_seq_t *third = rig_seq(rig, 0, 3, 65);
    story_resident(rig, third, 4);
    assert_int_equal(story_lookup(rig, third), 64);
    assert_int_equal(story_lookup(rig, other), 0); /* of two slots one is leased */
    assert_int_equal(story_lookup(rig, seq), 8 * 16);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_time_limit_ends_it),
        cmocka_unit_test(a_release_ends_it),
        cmocka_unit_test(a_stop_ends_it),
        cmocka_unit_test(a_take_turns_it_into_a_hold),
        cmocka_unit_test(a_reset_ends_it),
        cmocka_unit_test(nothing_evicts_what_it_covers),
        cmocka_unit_test(two_leases_of_one_prefix_are_charged_once_and_end_apart),
        cmocka_unit_test(a_detached_tail_lengthens_neither_answer_nor_hold),
        cmocka_unit_test(it_covers_the_payloads_of_its_end_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
