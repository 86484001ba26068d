/* test_policy.c - when to stop claiming: the pure rules, then each policy in a session. */
#include "core/policy.h"
#include "story.h"

static const fby_policy_estimate_t unmeasured = {false, 100, 1};
static const fby_policy_estimate_t slow = {true, 100, 99};
static const fby_policy_estimate_t even = {true, 100, 100};

static fby_reason_t on_tick(fby_policy_t policy, uint64_t now, uint64_t deadline, const fby_policy_estimate_t *estimate)
{
    return fby_policy_verdict(policy, FBY_POLICY_TICK, now, deadline, estimate);
}

static fby_reason_t on_demand(fby_policy_t policy, uint64_t now, uint64_t deadline)
{
    return fby_policy_verdict(policy, FBY_POLICY_DEMAND, now, deadline, &slow);
}

static void wait_complete_never_stops_by_itself(void **state)
{
    (void)state;
    assert_int_equal(on_tick(WAIT_COMPLETE, 10, FBY_NEVER, &slow), FBY_REASON_NONE);
    assert_int_equal(on_demand(WAIT_COMPLETE, 10, FBY_NEVER), FBY_REASON_NONE);
}

static void timeout_stops_once_its_budget_is_spent(void **state)
{
    (void)state;
    assert_int_equal(on_tick(TIMEOUT, 9, 10, &slow), FBY_REASON_NONE);
    assert_int_equal(on_tick(TIMEOUT, 10, 10, &slow), FBY_REASON_DEADLINE);
    assert_int_equal(on_demand(TIMEOUT, 9, 10), FBY_REASON_NONE);
    assert_int_equal(on_demand(TIMEOUT, 10, 10), FBY_REASON_DEADLINE);
}

static void best_effort_stops_on_demand_only(void **state)
{
    (void)state;
    assert_int_equal(on_tick(BEST_EFFORT, 10, FBY_NEVER, &slow), FBY_REASON_NONE);
    assert_int_equal(on_demand(BEST_EFFORT, 0, FBY_NEVER), FBY_REASON_DEMAND);
}

static void break_even_stops_when_the_gpu_is_faster(void **state)
{
    (void)state;
    assert_int_equal(on_tick(BREAK_EVEN, 10, FBY_NEVER, &unmeasured), FBY_REASON_NONE); /* not before one graph */
    assert_int_equal(on_tick(BREAK_EVEN, 10, FBY_NEVER, &even), FBY_REASON_NONE);
    assert_int_equal(on_tick(BREAK_EVEN, 10, FBY_NEVER, &slow), FBY_REASON_BREAK_EVEN);
    assert_int_equal(on_tick(BREAK_EVEN, 10, FBY_NEVER, NULL), FBY_REASON_NONE);
}

static rig_t *open_p32(rig_seq_t **seq, uint64_t get_ms)
{
    rig_config_t config;
    rig_config_defaults(&config);
    config.store.latency_ns[STORE_GET] = get_ms * RIG_MS;
    config.core.recompute_tokens_per_s = 64 * 1000.0 / 5; /* a chunk of 64 tokens: 5 ms */
    rig_t *rig = rig_open(&config);
    *seq = story_p32(rig, 0);
    return rig;
}

static void a_break_even_session_reads_from_a_fast_store_to_the_end(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_p32(&seq, 4);
    fby_session_t s = rig_start(rig, seq, BREAK_EVEN, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_reason(rig, s, COMPLETE);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_break_even_session_gives_up_on_a_slow_store_after_the_first_graphs(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_p32(&seq, 8);
    fby_session_t s = rig_start(rig, seq, BREAK_EVEN, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_reason(rig, s, BREAK_EVEN);
    assert_snapshot(rig, s, delivered_blocks, 8); /* the window claimed before anything was measured */
    assert_outcome(rig, s, PARTIAL);
    story_quiesce(rig);
    rig_close(rig);
}

static void break_even_needs_to_know_the_gpu(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    fby_core_start_t start;
    fby_session_t s;
    rig_start_defaults(&start);
    start.policy = BREAK_EVEN;
    assert_int_equal(rig_start_with(rig, story_p32(rig, 0), &start, &s), FBY_E_CONFIG);
    rig_close(rig);
}

static void a_predictive_session_claims_only_what_fits_before_its_deadline(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_p32(&seq, 10);
    fby_core_start_t start;
    fby_session_t s;
    rig_start_defaults(&start);
    start.policy = TIMEOUT;
    start.budget_ns = 25 * RIG_MS;
    start.predictive = 1;
    assert_int_equal(rig_start_with(rig, seq, &start, &s), 0);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_reason(rig, s, DEADLINE);
    assert_snapshot(rig, s, delivered_blocks, 16); /* pairs end at 10.1 and 20.1 ms; a third would end at 30.1 */
    assert_true(rig_snapshot(rig, s).answered_ns <= RIG_S + 25 * RIG_MS);
    story_quiesce(rig);
    rig_close(rig);
}

static void without_the_chunk_runtime_only_whole_plans_exist(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.chunk_runtime = false;
    config.part_blocks = FBY_STEP_BLOCKS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    fby_core_start_t start;
    fby_session_t s;
    rig_start_defaults(&start);
    start.policy = TIMEOUT;
    assert_int_equal(rig_start_with(rig, seq, &start, &s), FBY_E_NOT_ENABLED);
    s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, submitted, 1); /* one graph */
    assert_snapshot(rig, s, delivered_blocks, 32);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait_complete_never_stops_by_itself),
        cmocka_unit_test(timeout_stops_once_its_budget_is_spent),
        cmocka_unit_test(best_effort_stops_on_demand_only),
        cmocka_unit_test(break_even_stops_when_the_gpu_is_faster),
        cmocka_unit_test(a_break_even_session_reads_from_a_fast_store_to_the_end),
        cmocka_unit_test(a_break_even_session_gives_up_on_a_slow_store_after_the_first_graphs),
        cmocka_unit_test(break_even_needs_to_know_the_gpu),
        cmocka_unit_test(a_predictive_session_claims_only_what_fits_before_its_deadline),
        cmocka_unit_test(without_the_chunk_runtime_only_whole_plans_exist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
