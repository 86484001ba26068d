/* test_admit.c - budgets: grants before claims, waiting while room can come, giving way when it cannot. */
#include "story.h"

/* A pool of 16, every budget as large. */
static void small(rig_config_t *config)
{
    rig_config_defaults(config);
    config->pool[0] = 16;
    config->core.max_reserved_bytes = config->core.max_pinned_bytes = config->core.max_hold_bytes = 16 * BLOCK;
}

static rig_seq_t *stored(rig_t *rig, uint64_t salt, uint32_t blocks)
{
    rig_seq_t *seq = rig_seq(rig, 0, salt, blocks * 16 + 1);
    rig_store_fill(rig, seq, 0, blocks);
    return seq;
}

static void who_waits_for_its_first_grant_claims_nothing(void **state)
{
    (void)state;
    rig_config_t config;
    small(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *a = stored(rig, 1, 16), *b = stored(rig, 2, 8);
    fby_session_t sa = rig_start(rig, a, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 16);
    fby_session_t sb = rig_start(rig, b, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 8);
    assert_snapshot(rig, sa, submitted, 2);
    assert_snapshot(rig, sb, submitted, 0); /* though 8 slots are free: they are granted to A */
    assert_int_equal(story_free(rig), 8);
    assert_reason(rig, sb, NONE);
    rig_stop(rig, sa);
    assert_int_equal(rig_snapshot(rig, sb).submitted, 2); /* the unused grant was returned */
    rig_stop(rig, sb);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_small_plan_may_pass_a_waiting_large_one(void **state)
{
    (void)state;
    rig_config_t config;
    small(&config);
    config.core.result_ttl_ns = RIG_S;
    rig_t *rig = rig_open(&config);
    rig_seq_t *a = stored(rig, 1, 12), *large = stored(rig, 2, 16), *little = stored(rig, 3, 4);
    fby_session_t sa = rig_start(rig, a, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, sa, FBY_NEVER));
    fby_session_t sl = rig_start(rig, large, TIMEOUT, DRAIN, 10 * RIG_S);
    fby_session_t ss = rig_start(rig, little, TIMEOUT, DRAIN, 10 * RIG_S);
    rig_run_until(rig, rig->now + 100 * RIG_MS);
    assert_snapshot(rig, ss, delivered_blocks, 4);
    assert_snapshot(rig, sl, answered, 0);
    rig_release(rig, ss);
    rig_run_until(rig, rig->now + 3 * RIG_S); /* A's lease ends by its time limit */
    assert_snapshot(rig, sl, delivered_blocks, 16);
    assert_reason(rig, sl, COMPLETE);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_plan_larger_than_all_room_is_cut_at_once(void **state)
{
    (void)state;
    rig_config_t config;
    small(&config);
    rig_t *rig = rig_open(&config);
    fby_session_t s = rig_start(rig, stored(rig, 1, 40), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, RIG_S * 2));
    assert_snapshot(rig, s, delivered_blocks, 16);
    assert_in_range(rig_snapshot(rig, s).reason, FBY_REASON_CAPACITY_RESERVED, FBY_REASON_CAPACITY_POOL);
    assert_outcome(rig, s, PARTIAL);
    story_quiesce(rig);
    rig_close(rig);
}

static void holds_do_not_pass(void **state)
{
    (void)state;
    rig_config_t config;
    small(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *held = rig_seq(rig, 0, 9, 12 * 16 + 1);
    story_resident(rig, held, 12);
    fby_hold_t hold;
    uint64_t tokens;
    assert_int_equal(rig_lookup(rig, held, &hold, &tokens), 0);
    fby_session_t s = rig_start(rig, stored(rig, 1, 8), TIMEOUT, DRAIN, 10 * RIG_S);
    assert_true(rig_run_answered(rig, s, rig->now + RIG_S)); /* no use waiting for a hold */
    assert_snapshot(rig, s, delivered_blocks, 4);
    assert_reason(rig, s, CAPACITY_POOL);
    story_quiesce(rig);
    rig_close(rig);
}

static void two_that_wait_for_each_other_do_not_wait_for_ever(void **state)
{
    (void)state;
    rig_config_t config;
    small(&config);
    config.core.query_batch_blocks = 4; /* plans grow: neither knows at its first grant how long it gets */
    config.query_lanes = 2;
    config.core.result_ttl_ns = RIG_S / 10;
    rig_t *rig = rig_open(&config);
    fby_session_t a = rig_start(rig, stored(rig, 1, 12), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_session_t b = rig_start(rig, stored(rig, 2, 12), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    rig_run_until(rig, rig->now + 5 * RIG_S);
    const fby_snapshot_t *answers[] = {&rig_session_find(rig, a)->answer, &rig_session_find(rig, b)->answer};
    uint32_t complete = 0, capacity = 0;
    for (unsigned i = 0; i < 2; i++) {
        assert_true(answers[i]->answered_ns > 0);
        complete += answers[i]->reason == FBY_REASON_COMPLETE;
        capacity +=
            answers[i]->reason >= FBY_REASON_CAPACITY_RESERVED && answers[i]->reason <= FBY_REASON_CAPACITY_POOL;
    }
    assert_true(complete >= 1);
    assert_int_equal(complete + capacity, 2);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_plan_is_cut_at_what_a_take_may_hold(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.max_hold_bytes = 10 * BLOCK;
    rig_t *rig = rig_open(&config);
    fby_session_t s = rig_start(rig, story_p32(rig, 0), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_blocks, 10);
    assert_reason(rig, s, CAPACITY_PINNED);
    fby_hold_t hold;
    assert_int_equal(rig_take(rig, s, &hold), 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void pinned_counts_each_block_once(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    story_resident(rig, seq, 32);
    for (unsigned i = 0; i < 10; i++)
        rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_settle(rig);
    assert_int_equal(story_stats(rig).leases_gauge, 10);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 32 * BLOCK);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_for_its_first_grant_claims_nothing),
        cmocka_unit_test(a_small_plan_may_pass_a_waiting_large_one),
        cmocka_unit_test(a_plan_larger_than_all_room_is_cut_at_once),
        cmocka_unit_test(holds_do_not_pass),
        cmocka_unit_test(two_that_wait_for_each_other_do_not_wait_for_ever),
        cmocka_unit_test(a_plan_is_cut_at_what_a_take_may_hold),
        cmocka_unit_test(pinned_counts_each_block_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
