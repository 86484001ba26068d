/* test_session.c - a session from start to forgotten: seals, stop modes, answers, tombstones. */
#include "story.h"

#define PROMPT 161u /* 10 usable blocks */

static rig_t *open_traces(rig_seq_t **seq)
{
    rig_config_t config;
    story_traces(&config);
    rig_t *rig = rig_open(&config);
    *seq = rig_seq(rig, 0, 1, PROMPT);
    return rig;
}

static void demand_seals_best_effort_even_while_planning(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_traces(&seq);
    story_resident(rig, seq, 3);
    fby_session_t s = rig_start(rig, seq, BEST_EFFORT, DRAIN, FBY_NEVER);
    assert_state(rig, s, PLANNING);
    assert_int_equal(rig_demand(rig, s), 0);
    assert_state(rig, s, TERMINAL);
    assert_reason(rig, s, DEMAND);
    assert_snapshot(rig, s, delivered_blocks, 3); /* what the CPU holds */
    story_quiesce(rig);
    rig_close(rig);
}

static void demand_is_idempotent_and_means_nothing_to_wait_complete(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_traces(&seq);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_int_equal(rig_demand(rig, s), 0);
    assert_int_equal(rig_demand(rig, s), 0);
    assert_reason(rig, s, NONE);
    story_answer(rig, 10);
    story_begin(rig);
    assert_int_equal(rig_demand(rig, s), 0);
    assert_state(rig, s, ACTIVE);
    story_ok(rig, seq, 0);
    story_ok(rig, seq, 2);
    story_quiesce(rig);
    rig_close(rig);
}

static void the_first_stop_reason_wins(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_traces(&seq);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, 20 * RIG_MS);
    story_answer(rig, 10);
    story_begin(rig);
    story_at(rig, 20);
    story_bad(rig, seq, 0, 1, FBY_E_CHECKSUM);
    story_ok(rig, seq, 2);
    assert_reason(rig, s, DEADLINE); /* not partial_read */
    assert_snapshot(rig, s, delivered_blocks, 1);
    assert_snapshot(rig, s, error, FBY_E_CHECKSUM);
    story_quiesce(rig);
    rig_close(rig);
}

static void complete_gives_way_to_a_later_gap(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_traces(&seq);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    assert_reason(rig, s, COMPLETE); /* claimed to the end */
    story_begin(rig);
    story_ok(rig, seq, 0);
    story_bad(rig, seq, 2, 3, FBY_E_SIZE);
    assert_reason(rig, s, PARTIAL_READ);
    assert_snapshot(rig, s, delivered_blocks, 3);
    assert_outcome(rig, s, PARTIAL);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_policy_stop_that_cuts_nothing_leaves_complete(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_traces(&seq);
    fby_session_t s = rig_start(rig, seq, BEST_EFFORT, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    story_begin(rig);
    rig_demand(rig, s);
    story_ok(rig, seq, 0);
    story_ok(rig, seq, 2);
    assert_reason(rig, s, COMPLETE);
    assert_outcome(rig, s, COMPLETE);
    story_quiesce(rig);
    rig_close(rig);
}

static void recall_withdraws_what_was_not_begun(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_traces(&seq);
    fby_session_t s = rig_start(rig, seq, BEST_EFFORT, RECALL, FBY_NEVER);
    story_answer(rig, 10);
    assert_int_not_equal(rig_begin(rig, false, 2), FBY_NONE); /* c0 begun, c1 queued */
    rig_demand(rig, s);
    assert_int_equal(story_begin(rig), 0);
    assert_int_equal(story_free(rig), 62);
    assert_snapshot(rig, s, inflight_bytes, 2 * BLOCK);
    story_ok(rig, seq, 0);
    assert_state(rig, s, TERMINAL);
    assert_snapshot(rig, s, delivered_blocks, 2);
    assert_snapshot(rig, s, submitted, 2);
    assert_reason(rig, s, DEMAND);
    assert_int_equal(story_stats(rig).graphs_recalled, 1);
    story_quiesce(rig);
    rig_close(rig);
}

static void drain_runs_what_is_still_queued(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_traces(&seq);
    fby_session_t s = rig_start(rig, seq, BEST_EFFORT, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    assert_int_not_equal(rig_begin(rig, false, 2), FBY_NONE);
    rig_demand(rig, s);
    assert_int_equal(story_begin(rig), 1); /* claimed is claimed */
    story_ok(rig, seq, 0);
    story_ok(rig, seq, 2);
    assert_snapshot(rig, s, delivered_blocks, 4);
    story_quiesce(rig);
    rig_close(rig);
}

static void the_mode_acts_when_demand_comes_while_a_complete_session_drains(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_traces(&seq);
    fby_session_t s = rig_start(rig, seq, BEST_EFFORT, DETACH, FBY_NEVER);
    story_answer(rig, 4);
    story_begin(rig);
    story_ok(rig, seq, 0);
    assert_reason(rig, s, COMPLETE);
    assert_snapshot(rig, s, answered, 0);
    rig_demand(rig, s);
    assert_snapshot(rig, s, answered, 1);
    assert_snapshot(rig, s, delivered_blocks, 2);
    assert_reason(rig, s, DEMAND); /* the stop left the answer short */
    story_ok(rig, seq, 2);
    assert_snapshot(rig, s, delivered_blocks, 2);
    story_quiesce(rig);
    rig_close(rig);
}

static void the_drain_limit_answers_with_what_is_contiguous(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.drain_limit_ns = 30 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, PROMPT);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, 20 * RIG_MS);
    story_answer(rig, 10);
    story_begin(rig);
    story_ok(rig, seq, 2); /* ended behind a stuck one */
    story_at(rig, 49);
    assert_snapshot(rig, s, answered, 0);
    story_at(rig, 50);
    assert_int_equal(story_events(rig, FBY_CORE_TERMINAL, s), 1);
    assert_int_equal(rig_session_find(rig, s)->answer.delivered_blocks, 0);
    assert_int_equal(rig->slots.in_state[0][FBY_SLOT_QUARANTINE], 2);
    assert_int_equal(story_free(rig), 62); /* c1 was recycled */
    story_ok(rig, seq, 0);
    assert_int_equal(rig->resident_count, 0); /* never published */
    story_quiesce(rig);
    rig_close(rig);
}

static void stop_after_the_answer_changes_no_figure(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_traces(&seq);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DETACH, 20 * RIG_MS);
    story_answer(rig, 10);
    story_begin(rig);
    story_ok(rig, seq, 0);
    story_begin(rig);
    story_at(rig, 20);
    assert_outcome(rig, s, PARTIAL);
    rig_stop(rig, s);
    assert_outcome(rig, s, PARTIAL);
    assert_reason(rig, s, DEADLINE);
    assert_snapshot(rig, s, lease_valid, 0);
    story_ok(rig, seq, 2);
    story_ok(rig, seq, 4);
    assert_int_equal(rig->resident_count, 2); /* the tail was discarded */
    story_quiesce(rig);
    rig_close(rig);
}

static void release_is_idempotent_until_the_handle_is_forgotten(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.max_sessions = config.core.session_slots = 2;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, PROMPT);
    fby_session_t s = rig_start(rig, seq, BEST_EFFORT, DRAIN, FBY_NEVER);
    assert_int_equal(rig_release(rig, s), 0);
    assert_int_equal(rig_release(rig, s), 0);
    for (unsigned i = 0; i < 2; i++) {
        fby_session_t other = rig_start(rig, seq, BEST_EFFORT, DRAIN, FBY_NEVER);
        rig_release(rig, other);
    }
    assert_int_equal(rig_release(rig, s), FBY_E_STALE); /* the oldest tombstone went first */
    story_quiesce(rig);
    rig_close(rig);
}

static void a_full_handle_table_is_busy(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.max_sessions = 1;
    config.core.session_slots = 2;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, PROMPT);
    fby_session_t running = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_session_t parked = rig_start(rig, seq, TIMEOUT, DRAIN, RIG_S);
    assert_state(rig, parked, PLANNING);
    assert_int_equal(story_stats(rig).sessions_parked_gauge, 1);
    fby_core_start_t start;
    fby_session_t third;
    rig_start_defaults(&start);
    assert_int_equal(rig_start_with(rig, seq, &start, &third), -EBUSY);
    rig_stop(rig, running);
    story_settle(rig);
    assert_int_equal(story_stats(rig).sessions_parked_gauge, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_parked_session_still_delivers_what_is_resident_at_its_deadline(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.max_sessions = 1;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, PROMPT), *other = rig_seq(rig, 0, 2, PROMPT);
    story_resident(rig, seq, 5);
    rig_start(rig, other, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_session_t parked = rig_start(rig, seq, TIMEOUT, DRAIN, 10 * RIG_MS);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
    story_at(rig, 10);
    assert_reason(rig, parked, DEADLINE);
    assert_snapshot(rig, parked, delivered_blocks, 5);
    story_quiesce(rig);
    rig_close(rig);
}

static void an_expired_result_is_a_tombstone(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.result_ttl_ns = 100 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, PROMPT);
    story_resident(rig, seq, 10);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_state(rig, s, TERMINAL); /* all of it was local */
    assert_outcome(rig, s, COMPLETE);
    story_at(rig, 99);
    assert_snapshot(rig, s, lease_valid, 1);
    story_at(rig, 100);
    assert_state(rig, s, EXPIRED);
    assert_snapshot(rig, s, lease_valid, 0);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
    fby_hold_t hold;
    assert_int_equal(rig_take(rig, s, &hold), FBY_E_STALE);
    assert_int_equal(rig_lookup(rig, seq, &hold, &(uint64_t){0}), 0); /* still resident: acquired again */
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demand_seals_best_effort_even_while_planning),
        cmocka_unit_test(demand_is_idempotent_and_means_nothing_to_wait_complete),
        cmocka_unit_test(the_first_stop_reason_wins),
        cmocka_unit_test(complete_gives_way_to_a_later_gap),
        cmocka_unit_test(a_policy_stop_that_cuts_nothing_leaves_complete),
        cmocka_unit_test(recall_withdraws_what_was_not_begun),
        cmocka_unit_test(drain_runs_what_is_still_queued),
        cmocka_unit_test(the_mode_acts_when_demand_comes_while_a_complete_session_drains),
        cmocka_unit_test(the_drain_limit_answers_with_what_is_contiguous),
        cmocka_unit_test(stop_after_the_answer_changes_no_figure),
        cmocka_unit_test(release_is_idempotent_until_the_handle_is_forgotten),
        cmocka_unit_test(a_full_handle_table_is_busy),
        cmocka_unit_test(a_parked_session_still_delivers_what_is_resident_at_its_deadline),
        cmocka_unit_test(an_expired_result_is_a_tombstone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
