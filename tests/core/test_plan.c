/* test_plan.c - what a session may read: proofs, batches, the last-token rule, leases of probes, private runs. */
#include "story.h"

static void the_last_token_is_always_left_to_the_engine(void **state)
{
    (void)state;
    const struct {
        uint64_t tokens, blocks;
    } rows[] = {{1, 0}, {16, 0}, {17, 1}, {32, 1}, {33, 2}, {160, 9}, {161, 10}};
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        rig_config_t config;
        rig_config_defaults(&config);
        rig_t *rig = rig_open(&config);
        rig_seq_t *seq = rig_seq(rig, 0, 1, rows[i].tokens);
        rig_store_fill(rig, seq, 0, seq->blocks);
        fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        rig_run_idle(rig, rig->now + RIG_S);
        assert_int_equal(rig_session_find(rig, s)->answer.delivered_blocks, rows[i].blocks);
        assert_int_equal(story_lookup(rig, seq), rows[i].blocks * 16); /* one rule for lookup and plan */
        story_quiesce(rig);
        rig_close(rig);
    }
}

static void claims_start_after_the_first_batch(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.query_batch_blocks = 4;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_core_query_t query;
    uint8_t present[4] = {1, 1, 1, 1};
    assert_true(rig_next_query(rig, &query));
    assert_int_equal(query.from, 0);
    assert_int_equal(query.to, 4);
    rig_query_done(rig, &query, 0, present, FBY_NEVER);
    story_settle(rig);
    assert_int_equal(story_begin(rig), 2);
    assert_snapshot(rig, s, planned_final, 0);
    assert_snapshot(rig, s, planned_tokens, 64);
    assert_true(rig_next_query(rig, &query)); /* goes on meanwhile */
    assert_int_equal(query.from, 4);
    assert_int_equal(query.to, 8);
    present[2] = 0;
    rig_query_done(rig, &query, 0, present, FBY_NEVER);
    story_settle(rig);
    assert_snapshot(rig, s, planned_tokens, 96);
    assert_snapshot(rig, s, planned_final, 1);
    assert_false(rig_next_query(rig, &query)); /* a hole ends the plan */
    rig_stop(rig, s);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_query_that_takes_too_long_is_an_error_and_its_late_answer_nothing(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.query_timeout_ns = 10 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    story_resident(rig, seq, 2);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_core_query_t query;
    uint8_t present[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    assert_true(rig_next_query(rig, &query));
    assert_int_equal(query.deadline, rig->now + 10 * RIG_MS);
    story_at(rig, 10);
    assert_reason(rig, s, QUERY_ERROR);
    assert_snapshot(rig, s, delivered_blocks, 2); /* what the CPU holds */
    assert_snapshot(rig, s, error, FBY_E_TIMEOUT);
    rig_query_done(rig, &query, 0, present, FBY_NEVER);
    assert_int_equal(story_begin(rig), 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void one_stuck_query_holds_up_nobody_else(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.query_lanes = 2;
    rig_t *rig = rig_open(&config);
    rig_seq_t *stuck = story_p32(rig, 0), *other = story_p32(rig, 1);
    story_script(rig, stuck, STORE_EXISTS, 0, 1, 1, FAULT_HANG, 0);
    rig_start(rig, stuck, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_session_t s = rig_start(rig, other, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, rig->now + RIG_S));
    assert_snapshot(rig, s, delivered_blocks, 32);
    rig_run_until(rig, rig->now + 6 * RIG_S);
    rig_unhang(rig);
    rig_run_until(rig, rig->now + RIG_MS);
    story_quiesce(rig);
    rig_close(rig);
}

static void the_index_bridges_a_hole_of_the_store(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.max_inflight_chunks = 5;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_core_query_t query;
    uint8_t present[10] = {0, 0, 0, 1, 1, 1, 1, 1, 1, 1}; /* the store lost the first three */
    assert_true(rig_next_query(rig, &query));
    story_resident(rig, seq, 3); /* but somebody has just published them here */
    rig_query_done(rig, &query, 0, present, FBY_NEVER);
    story_answer(rig, 10);
    story_begin(rig);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    assert_snapshot(rig, s, delivered_blocks, 10);
    assert_snapshot(rig, s, loaded_tokens, 7 * 16);
    story_quiesce(rig);
    rig_close(rig);
}

static void probes_of_a_leasing_store_look_no_further_than_what_is_read_soon(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.probe_lease_ns = 100 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 1025);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_core_query_t query;
    assert_true(rig_next_query(rig, &query));
    assert_int_equal(query.to, 6); /* two chunks in flight and the next one */
    uint8_t present[6] = {1, 1, 1, 1, 1, 1};
    rig_query_done(rig, &query, 0, present, rig->now + 100 * RIG_MS);
    story_settle(rig);
    assert_true(rig_next_query(rig, &query));
    assert_int_equal(query.from, 6);
    assert_true(query.to <= 10);
    rig_query_done(rig, &query, 0, present, rig->now + 100 * RIG_MS);
    rig_stop(rig, s);
    story_quiesce(rig);
    rig_close(rig);
}

static void below_the_threshold_nothing_is_asked(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.min_tokens = 256;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 255);
    story_resident(rig, seq, 3);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_reason(rig, s, BELOW_THRESHOLD);
    assert_snapshot(rig, s, delivered_blocks, 3);
    assert_int_equal(fby_core_wants(rig->core), 0);
    assert_int_equal(story_stats(rig).below_threshold, 1);
    story_quiesce(rig);
    rig_close(rig);
}

/* ---- have_blocks ---- */

static fby_session_t start_with_have(rig_t *rig, const rig_seq_t *seq, uint32_t have)
{
    fby_core_start_t start;
    rig_start_defaults(&start);
    start.have_blocks = have;
    fby_session_t s = 0;
    assert_int_equal(rig_start_with(rig, seq, &start, &s), 0);
    return s;
}

static void what_the_device_holds_is_not_read(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    fby_session_t s = start_with_have(rig, seq, 8);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_blocks, 32);
    assert_int_equal(story_calls(rig, seq, STORE_GET, 0, 8), 0);
    assert_int_equal(story_calls(rig, seq, STORE_GET, 8, 32), 24);
    assert_int_equal(rig->resident_count, 0); /* a private run: nobody else sees it */
    assert_int_equal(rig->slots.in_state[0][FBY_SLOT_PRIVATE], 24);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 24 * BLOCK);
    fby_hold_t hold;
    assert_int_equal(rig_take(rig, s, &hold), 0);
    assert_int_equal(rig_hold_find(rig, hold)->first_block, 8);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 24 * BLOCK);
    rig_hold_release(rig, hold);
    assert_int_equal(story_free(rig), 64); /* their parents are not resident */
    story_quiesce(rig);
    rig_close(rig);
}

static void a_private_run_is_indexed_at_its_release_where_parents_are(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    fby_session_t s = start_with_have(rig, seq, 8);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    story_resident(rig, seq, 8); /* the caller saved its own prefix meanwhile */
    rig_release(rig, s);
    story_settle(rig);
    assert_int_equal(rig->resident_count, 32);
    assert_int_equal(story_lookup(rig, seq), 512);
    story_quiesce(rig);
    rig_close(rig);
}

static void with_its_prefix_indexed_a_run_is_not_private(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    story_resident(rig, seq, 8);
    fby_session_t s = start_with_have(rig, seq, 8);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_int_equal(rig->resident_count, 32);
    assert_snapshot(rig, s, delivered_blocks, 32);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_token_is_always_left_to_the_engine),
        cmocka_unit_test(claims_start_after_the_first_batch),
        cmocka_unit_test(a_query_that_takes_too_long_is_an_error_and_its_late_answer_nothing),
        cmocka_unit_test(one_stuck_query_holds_up_nobody_else),
        cmocka_unit_test(the_index_bridges_a_hole_of_the_store),
        cmocka_unit_test(probes_of_a_leasing_store_look_no_further_than_what_is_read_soon),
        cmocka_unit_test(below_the_threshold_nothing_is_asked),
        cmocka_unit_test(what_the_device_holds_is_not_read),
        cmocka_unit_test(a_private_run_is_indexed_at_its_release_where_parents_are),
        cmocka_unit_test(with_its_prefix_indexed_a_run_is_not_private),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
