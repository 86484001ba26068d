/* test_cases_b.c - public failures of the field, family (b): memory accounting, leaks, pins, eviction. */
#include "sim/random.h"
#include "story.h"

/* Stages at which a session can be left, in the order of its life. */
typedef enum stage { QUEUED, METADATA, ADMITTED, IN_FLIGHT, STOPPING, TERMINAL, LEASED, STAGES } stage_t;

/* Brings a new P32 session to the stage. */
static fby_session_t reach(rig_t *rig, const rig_seq_t *seq, stage_t stage)
{
    fby_session_t s = rig_start(rig, seq, BEST_EFFORT, DRAIN, FBY_NEVER);
    if (stage == QUEUED)
        return s;
    fby_core_query_t query;
    uint8_t present[32];
    memset(present, 0xff, sizeof(present));
    assert_true(rig_next_query(rig, &query));
    if (stage == METADATA)
        rig_stop(rig, s); /* the answer comes to a session that is gone */
    rig_query_done(rig, &query, 0, present, FBY_NEVER);
    story_settle(rig);
    if (stage <= ADMITTED)
        return s;
    story_begin(rig);
    if (stage == IN_FLIGHT)
        return s;
    rig_demand(rig, s);
    if (stage == STOPPING)
        return s;
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    fby_hold_t hold;
    if (stage == LEASED)
        assert_int_equal(rig_take(rig, s, &hold), 0);
    return s;
}

static void drain(rig_t *rig)
{
    while (rig->holds)
        rig_hold_release(rig, rig->hold[0].handle);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
}

static void forget(rig_t *rig)
{
    assert_int_equal(rig_reset(rig, false), 0);
    story_settle(rig);
    assert_false(fby_core_resetting(rig->core));
    rig->logged = 0;
}

static void b01_a_lease_ends_without_a_get(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0), *fill = rig_seq(rig, 1, 64, 1024);
    for (unsigned round = 0; round < 1000; round++) {
        fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        assert_true(rig_run_answered(rig, s, FBY_NEVER));
        assert_snapshot(rig, s, delivered_blocks, 32);
        uint64_t answered = rig->now;
        fby_hold_t hold;
        uint64_t tokens;
        switch (round % 3) {
        case 0: /* by release */
            rig_release(rig, s);
            break;
        case 1: /* by its time limit */
            assert_int_equal(story_stats(rig).pinned_bytes_gauge, 32 * BLOCK);
            rig_run_until(rig, answered + 60 * RIG_S);
            break;
        default: /* by use of a part */
            assert_int_equal(rig_take(rig, s, &hold), 0);
            rig_hold_verify(rig, rig_hold_find(rig, hold));
            assert_int_equal(rig_hold_trim(rig, hold, 16 * 16, &tokens), 0);
            assert_int_equal(tokens, 16 * 16);
            rig_hold_release(rig, hold);
        }
        story_settle(rig);
        assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
        assert_int_equal(story_stats(rig).hold_bytes_gauge, 0);
        story_resident(rig, fill, 64); /* everything else can go */
        rig->logged = 0;
    }
    story_quiesce(rig);
    rig_close(rig);
}

static void b02_b03_aborts_at_every_stage_leak_nothing(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.max_sessions = 4;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    uint64_t random = 2;
    for (unsigned i = 0; i < 1000; i++) {
        stage_t stage = i < STAGES ? (stage_t)i : (stage_t)sim_below(&random, STAGES);
        fby_session_t s = reach(rig, seq, stage);
        if (rig_session_find(rig, s) && !rig_session_find(rig, s)->ended)
            rig_stop(rig, s);
        drain(rig);
        rig_quiescent(rig);
        forget(rig);
        assert_int_equal(story_free(rig), 64); /* before = after */
    }
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_outcome(rig, s, COMPLETE);
    story_quiesce(rig);
    rig_close(rig);
}

static void b03_the_engine_fails_the_request_after_the_lease(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    fby_session_t s = reach(rig, seq, TERMINAL);
    assert_snapshot(rig, s, lease_valid, 1);
    assert_int_equal(rig_stop(rig, s), 0);
    story_settle(rig);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
    assert_int_equal(rig_session_find(rig, s)->answer.outcome, FBY_OUTCOME_PARTIAL); /* reported figures stay */
    story_quiesce(rig);
    rig_close(rig);
}

/* Every order of stop against the last two completions. */
static void b04_a_block_is_freed_once_in_every_order(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    for (unsigned order = 0; order < 6; order++) {
        fby_session_t s = reach(rig, seq, IN_FLIGHT);
        uint32_t stop_at = order % 3, first = order / 3;
        for (uint32_t i = 0; i < 3; i++) {
            if (i == stop_at)
                rig_stop(rig, s);
            else
                rig_end(rig, rig->live[0][rig->live_count[0] == 2 ? first : 0], NULL);
        }
        drain(rig);
        rig_quiescent(rig);
        forget(rig);
        assert_int_equal(story_free(rig), 64);
        assert_int_equal(rig->slots.violations, 0);
    }
    /* A second free is refused, counted, and changes nothing. */
    uint32_t slot = fby_slot_take(&rig->slots, 0, 0);
    assert_true(fby_slot_move(&rig->slots, slot, FBY_SLOT_STAGING, FBY_SLOT_FREE, 0));
    assert_false(fby_slot_move(&rig->slots, slot, FBY_SLOT_STAGING, FBY_SLOT_FREE, 0));
    assert_int_equal(rig->slots.violations, 1);
    assert_int_equal(story_free(rig), 64);
    rig_close(rig);
}

static void b05_a_miss_evicts_nothing(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *useful = rig_seq(rig, 1, 64, 1024), *seq = rig_seq(rig, 0, 32, 513);
    story_resident(rig, useful, 64);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    rig_run_idle(rig, RIG_S * 2);
    assert_int_equal(rig_session_find(rig, s)->answer.outcome, FBY_OUTCOME_EMPTY);
    assert_int_equal(story_stats(rig).blocks_evicted, 0);
    assert_int_equal(rig->slots.in_state[0][FBY_SLOT_RESIDENT], 64);

    rig_store_fill(rig, seq, 0, 8);
    rig->now += 2 * RIG_S; /* beyond the negative memory */
    s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_blocks, 8);
    assert_int_equal(story_stats(rig).blocks_evicted, 8);
    story_quiesce(rig);
    rig_close(rig);
}

static void b09_release_unpins_what_was_pinned(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    story_trailing(&config, 4, 32);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0), *front = rig_seq(rig, 0, 32, 65);
    story_resident(rig, seq, 4);
    fby_hold_t other, mine;
    uint64_t tokens;
    assert_int_equal(rig_lookup(rig, front, &other, &tokens), 0); /* full 0..3 and window 0..3 */
    assert_int_equal(tokens, 64);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_int_equal(rig_take(rig, s, &mine), 0);
    assert_int_equal(rig_hold_find(rig, mine)->slots, 36); /* full 0..31 and window 28..31 */
    story_settle(rig);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, (36 + 4) * BLOCK);
    rig_hold_release(rig, mine);
    story_settle(rig);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 8 * BLOCK);
    rig_hold_verify(rig, rig_hold_find(rig, other));
    story_quiesce(rig);
    rig_close(rig);
}

static void b10_release_by_handle_in_any_namespace(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    for (uint32_t name_space = 0; name_space < 3; name_space++) {
        fby_session_t s = rig_start(rig, story_p32(rig, name_space), WAIT_COMPLETE, DRAIN, FBY_NEVER);
        assert_true(rig_run_answered(rig, s, FBY_NEVER));
        assert_snapshot(rig, s, delivered_blocks, 32);
        rig_release(rig, s);
        story_settle(rig);
        assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
    }
    story_quiesce(rig);
    rig_close(rig);
}

static void b13_four_plans_of_a_whole_pool_all_end(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.pool[0] = 16;
    config.core.max_reserved_bytes = config.core.max_pinned_bytes = config.core.max_hold_bytes = 16 * BLOCK;
    config.core.result_ttl_ns = 100 * RIG_MS;
    rig_t *rig = rig_open(&config);
    fby_session_t s[4];
    uint32_t whole = 0;
    for (uint32_t i = 0; i < 4; i++) {
        rig_seq_t *seq = rig_seq(rig, 0, i + 1, 257);
        rig_store_fill(rig, seq, 0, 16);
        s[i] = rig_start(rig, seq, TIMEOUT, DRAIN, RIG_S);
    }
    rig_run_until(rig, RIG_S + 2 * RIG_S);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(rig_session_find(rig, s[i])->terminal);
        whole += rig_session_find(rig, s[i])->answer.delivered_blocks == 16;
    }
    assert_true(whole >= 1);
    story_quiesce(rig);
    rig_close(rig);
}

static void b14_small_plans_wait_for_room(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.pool[0] = 16;
    config.core.max_reserved_bytes = config.core.max_pinned_bytes = config.core.max_hold_bytes = 16 * BLOCK;
    rig_t *rig = rig_open(&config);
    rig_seq_t *a = rig_seq(rig, 0, 1, 257), *b = rig_seq(rig, 0, 2, 65), *c = rig_seq(rig, 0, 3, 65);
    rig_seq_t *d = rig_seq(rig, 0, 4, 1601);
    rig_store_fill(rig, a, 0, 16);
    rig_store_fill(rig, b, 0, 4);
    rig_store_fill(rig, c, 0, 4);
    rig_store_fill(rig, d, 0, 100);
    fby_session_t sa = rig_start(rig, a, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    rig_run_until(rig, RIG_S + 5 * RIG_MS);
    fby_session_t sb = rig_start(rig, b, TIMEOUT, DRAIN, 100 * RIG_MS);
    fby_session_t sc = rig_start(rig, c, TIMEOUT, DRAIN, 100 * RIG_MS);
    rig_run_until(rig, RIG_S + 30 * RIG_MS);
    assert_snapshot(rig, sa, delivered_blocks, 16);
    assert_snapshot(rig, sb, answered, 0);
    rig_release(rig, sa);
    rig_run_until(rig, RIG_S + 60 * RIG_MS);
    assert_snapshot(rig, sb, delivered_blocks, 4);
    assert_snapshot(rig, sc, delivered_blocks, 4);
    assert_reason(rig, sb, COMPLETE);
    rig_release(rig, sb);
    rig_release(rig, sc);
    fby_session_t sd = rig_start(rig, d, TIMEOUT, DRAIN, 100 * RIG_MS);
    rig_run_until(rig, RIG_S + 90 * RIG_MS); /* well before its deadline */
    assert_snapshot(rig, sd, delivered_blocks, 16);
    assert_in_range(rig_snapshot(rig, sd).reason, FBY_REASON_CAPACITY_RESERVED, FBY_REASON_CAPACITY_POOL);
    story_quiesce(rig);
    rig_close(rig);
}

static void b16_over_budget_waits_then_says_so(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.max_sessions = 3;
    config.pool[0] = 128;
    config.core.max_reserved_bytes = config.core.max_pinned_bytes = config.core.max_hold_bytes = 128 * BLOCK;
    rig_t *rig = rig_open(&config);
    fby_session_t s[4];
    for (uint32_t i = 0; i < 4; i++)
        s[i] = rig_start(rig, story_p32(rig, i), TIMEOUT, DRAIN, RIG_S);
    assert_int_equal(story_stats(rig).sessions_parked_gauge, 1);
    rig_run_until(rig, RIG_S + 500 * RIG_MS);
    for (uint32_t i = 0; i < 4; i++)
        assert_snapshot(rig, s[i], delivered_blocks, 32); /* the 4th started when the first ended */
    for (uint32_t i = 0; i < 4; i++)
        rig_release(rig, s[i]);

    for (uint32_t i = 0; i < 3; i++)
        s[i] = rig_start(rig, story_p32(rig, 10 + i), TIMEOUT, DRAIN, RIG_S);
    s[3] = rig_start(rig, story_p32(rig, 20), TIMEOUT, DRAIN, 0);
    story_settle(rig);
    assert_int_equal(rig_session_find(rig, s[3])->answer.reason, FBY_REASON_DEADLINE);
    assert_int_equal(rig_session_find(rig, s[3])->answer.delivered_blocks, 0);
    assert_int_equal(story_stats(rig).budget_refused, 1);
    rig_run_until(rig, RIG_S * 3);
    story_quiesce(rig);
    rig_close(rig);
}

static void b17_a_hold_keeps_a_promise_an_advisory_does_not(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 32, 513), *fill = rig_seq(rig, 1, 64, 1024);
    story_resident(rig, seq, 32);
    assert_int_equal(story_lookup(rig, seq), 512);
    story_resident(rig, fill, 64); /* evicts all */
    fby_hold_t hold;
    uint64_t tokens = 1;
    assert_int_equal(rig_lookup(rig, seq, &hold, &tokens), 0);
    assert_int_equal(tokens, 0);
    while (rig->holds)
        rig_hold_release(rig, rig->hold[0].handle);

    story_resident(rig, seq, 32);
    assert_int_equal(rig_lookup(rig, seq, &hold, &tokens), 0);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, fill, 0, 64, &put), 0);
    rig_put_commit(rig, put, 64);
    rig_put_end(rig, put);
    assert_int_equal(story_lookup(rig, seq), 512);
    rig_hold_verify(rig, rig_hold_find(rig, hold));
    story_quiesce(rig);
    rig_close(rig);
}

static void b21_a_failed_submission_is_a_failed_read(void **state)
{
    (void)state;
    const int errors[] = {-EAGAIN, -ENOMEM, -EINVAL};
    for (size_t i = 0; i < FBY_ARRAY_LEN(errors); i++) {
        rig_config_t config;
        rig_config_defaults(&config);
        rig_t *rig = rig_open(&config);
        rig_seq_t *seq = story_p32(rig, 0);
        story_script(rig, seq, STORE_GET, 8, 12, STORE_EVERY, FAULT_ERROR, errors[i]);
        fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, RIG_S);
        rig_run_until(rig, RIG_S + 500 * RIG_MS);
        assert_snapshot(rig, s, delivered_blocks, 8);
        assert_reason(rig, s, STORE_ERROR);
        assert_snapshot(rig, s, error, errors[i]);
        assert_int_equal(story_calls(rig, seq, STORE_GET, 8, 12), errors[i] == -EAGAIN ? 8 : 4);
        story_quiesce(rig);
        rig_close(rig);
    }
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    story_script(rig, seq, STORE_GET, 8, 12, 1, FAULT_ERROR, -EAGAIN);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, RIG_S);
    rig_run_until(rig, RIG_S + 500 * RIG_MS);
    assert_snapshot(rig, s, delivered_blocks, 32);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b01_a_lease_ends_without_a_get),
        cmocka_unit_test(b02_b03_aborts_at_every_stage_leak_nothing),
        cmocka_unit_test(b03_the_engine_fails_the_request_after_the_lease),
        cmocka_unit_test(b04_a_block_is_freed_once_in_every_order),
        cmocka_unit_test(b05_a_miss_evicts_nothing),
        cmocka_unit_test(b09_release_unpins_what_was_pinned),
        cmocka_unit_test(b10_release_by_handle_in_any_namespace),
        cmocka_unit_test(b13_four_plans_of_a_whole_pool_all_end),
        cmocka_unit_test(b14_small_plans_wait_for_room),
        cmocka_unit_test(b16_over_budget_waits_then_says_so),
        cmocka_unit_test(b17_a_hold_keeps_a_promise_an_advisory_does_not),
        cmocka_unit_test(b21_a_failed_submission_is_a_failed_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
