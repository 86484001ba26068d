/* test_join.c - one read per block at a time: joining, taking over, leaving, own reads after a failure. */
#include "story.h"

static rig_t *open_rig(rig_seq_t **seq, uint32_t blocks)
{
    rig_config_t config;
    story_traces(&config);
    rig_t *rig = rig_open(&config);
    *seq = rig_seq(rig, 0, 1, blocks * 16 + 1);
    return rig;
}

/* A owns the reads of the plan, B has joined them. */
static void owner_and_joiner(rig_t *rig, rig_seq_t *seq, fby_session_t *a, fby_session_t *b, fby_stop_mode_t mode_of_b)
{
    *a = rig_start(rig, seq, BEST_EFFORT, DRAIN, FBY_NEVER);
    story_answer(rig, 32);
    *b = rig_start(rig, seq, BEST_EFFORT, mode_of_b, FBY_NEVER);
    story_answer(rig, 32);
}

static void both_get_what_one_read(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_rig(&seq, 4);
    fby_session_t a, b;
    owner_and_joiner(rig, seq, &a, &b, DRAIN);
    assert_int_equal(story_begin(rig), 2);
    assert_snapshot(rig, b, submitted, 2); /* cut at its own chunk bounds */
    assert_snapshot(rig, b, inflight_chunks, 0);
    assert_snapshot(rig, b, inflight_bytes, 0);
    assert_int_equal(story_stats(rig).joins, 2);
    assert_int_equal(story_stats(rig).reserved_bytes_gauge, 4 * BLOCK);
    story_ok(rig, seq, 2);
    story_ok(rig, seq, 0);
    assert_snapshot(rig, a, delivered_blocks, 4);
    assert_snapshot(rig, b, delivered_blocks, 4);
    assert_int_equal(rig->events[FBY_CORE_PUBLISHED], 4);             /* once */
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 4 * BLOCK); /* each block once */
    story_quiesce(rig);
    rig_close(rig);
}

static void a_sealed_joiner_inherits_too(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_rig(&seq, 2);
    fby_session_t a, b;
    owner_and_joiner(rig, seq, &a, &b, DRAIN);
    story_begin(rig);
    rig_demand(rig, b);
    rig_stop(rig, a);
    assert_int_equal(story_stats(rig).takeovers, 2);
    story_ok(rig, seq, 0);
    assert_snapshot(rig, b, delivered_blocks, 2);
    story_quiesce(rig);
    rig_close(rig);
}

static void sealing_alone_gives_nothing_up(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_rig(&seq, 4);
    fby_session_t a, b;
    owner_and_joiner(rig, seq, &a, &b, DRAIN);
    story_begin(rig);
    rig_demand(rig, a);
    assert_int_equal(story_stats(rig).takeovers, 0);
    story_ok(rig, seq, 0);
    story_ok(rig, seq, 2);
    assert_snapshot(rig, a, delivered_blocks, 4);
    assert_snapshot(rig, b, delivered_blocks, 4);
    story_quiesce(rig);
    rig_close(rig);
}

static void queued_blocks_of_an_aborted_owner_pass_to_the_joiner_unqueued(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_rig(&seq, 2);
    fby_session_t a, b;
    owner_and_joiner(rig, seq, &a, &b, DRAIN);
    rig_stop(rig, a); /* nothing begun yet */
    assert_int_equal(story_begin(rig), 1);
    story_ok(rig, seq, 0);
    assert_snapshot(rig, b, delivered_blocks, 2);
    assert_snapshot(rig, b, submitted, 1);
    story_quiesce(rig);
    rig_close(rig);
}

static void an_owner_that_recalls_leaves_joined_blocks_alone(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_rig(&seq, 4);
    fby_session_t a = rig_start(rig, seq, BEST_EFFORT, RECALL, FBY_NEVER);
    story_answer(rig, 4);
    fby_session_t b = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    rig_demand(rig, a); /* none of it begun: all of it passes on */
    assert_int_equal(story_begin(rig), 2);
    story_ok(rig, seq, 0);
    story_ok(rig, seq, 2);
    assert_snapshot(rig, b, delivered_blocks, 4);
    assert_int_equal(rig->store.calls[STORE_GET], 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_joiner_that_leaves_changes_nothing_for_the_owner(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_rig(&seq, 4);
    fby_session_t a, b;
    owner_and_joiner(rig, seq, &a, &b, DRAIN);
    story_begin(rig);
    rig_stop(rig, b);
    assert_int_equal(story_events(rig, FBY_CORE_TERMINAL, b), 1);
    story_ok(rig, seq, 0);
    story_ok(rig, seq, 2);
    assert_snapshot(rig, a, delivered_blocks, 4);
    story_quiesce(rig);
    rig_close(rig);
}

static void what_is_missing_is_missing_for_both(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_rig(&seq, 2);
    fby_session_t a, b;
    owner_and_joiner(rig, seq, &a, &b, DRAIN);
    story_begin(rig);
    story_bad(rig, seq, 0, 1, FBY_E_MISSING);
    assert_int_equal(story_begin(rig), 0); /* not asked again */
    assert_snapshot(rig, a, delivered_blocks, 1);
    assert_snapshot(rig, b, delivered_blocks, 1);
    assert_reason(rig, b, PARTIAL_READ);
    story_quiesce(rig);
    rig_close(rig);
}

/* The drain limit of the owner: the joiner takes the stuck read over and lives on its own limits. */
static void the_owner_s_drain_limit_hands_the_read_over(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.drain_limit_ns = 20 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 33);
    fby_session_t a = rig_start(rig, seq, TIMEOUT, DRAIN, 10 * RIG_MS);
    story_answer(rig, 2);
    fby_session_t b = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 2);
    story_begin(rig);
    story_at(rig, 40);
    assert_int_equal(story_events(rig, FBY_CORE_ANSWERED, a), 1);
    assert_int_equal(rig_session_find(rig, a)->answer.delivered_blocks, 0);
    assert_int_equal(rig->slots.in_state[0][FBY_SLOT_QUARANTINE], 0);
    assert_snapshot(rig, b, inflight_bytes, 2 * BLOCK);
    story_ok(rig, seq, 0);
    assert_snapshot(rig, b, delivered_blocks, 2);
    story_quiesce(rig);
    rig_close(rig);
}

/* B is unsealed because its second query batch is still out, and has its whole window left. */
static void after_a_timeout_an_unsealed_joiner_may_read_once_itself(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.io_timeout_ns = config.core.no_progress_ns = 50 * RIG_MS;
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
    assert_snapshot(rig, b, submitted, 1); /* the join */
    assert_int_equal(story_begin(rig), 0);

    story_at(rig, 50); /* A's read lapses: its slots go to quarantine */
    assert_reason(rig, a, IO_TIMEOUT);
    assert_int_equal(rig->slots.in_state[0][FBY_SLOT_QUARANTINE], 2);
    uint32_t stuck = rig->live[0][0];
    assert_int_equal(story_begin(rig), 1); /* both blocks, as one graph */
    assert_snapshot(rig, b, submitted, 2); /* counted */
    assert_snapshot(rig, b, inflight_bytes, 2 * BLOCK);
    rig_end(rig, rig->live[0][1], NULL);
    rig_query_done(rig, &second, 0, present, FBY_NEVER);
    story_settle(rig);
    assert_int_equal(story_begin(rig), 1);
    rig_end(rig, rig->live[0][1], NULL);
    story_settle(rig);
    assert_snapshot(rig, b, delivered_blocks, 4);
    rig_end(rig, stuck, NULL);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_get_what_one_read),
        cmocka_unit_test(a_sealed_joiner_inherits_too),
        cmocka_unit_test(sealing_alone_gives_nothing_up),
        cmocka_unit_test(queued_blocks_of_an_aborted_owner_pass_to_the_joiner_unqueued),
        cmocka_unit_test(an_owner_that_recalls_leaves_joined_blocks_alone),
        cmocka_unit_test(a_joiner_that_leaves_changes_nothing_for_the_owner),
        cmocka_unit_test(what_is_missing_is_missing_for_both),
        cmocka_unit_test(the_owner_s_drain_limit_hands_the_read_over),
        cmocka_unit_test(after_a_timeout_an_unsealed_joiner_may_read_once_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
