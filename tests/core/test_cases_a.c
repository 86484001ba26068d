/* test_cases_a.c - public failures of the field, family (a): stop, deadline, drain. */
#include "core/policy.h"
#include "sim/random.h"
#include "story.h"

static void a01_a_stalled_read_does_not_hold_the_answer(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.drain_limit_ns = 50 * RIG_MS;
    config.core.chunk_max_blocks = 4;
    config.core.max_inflight_chunks = 2;
    config.core.no_progress_ns = 10 * RIG_S;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    story_script(rig, seq, STORE_GET, 8, 12, 1, FAULT_HANG, 0);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, 20 * RIG_MS);
    rig_run_until(rig, RIG_S + 69 * RIG_MS);
    assert_snapshot(rig, s, answered, 0);
    rig_run_until(rig, RIG_S + 70 * RIG_MS);
    assert_outcome(rig, s, PARTIAL);
    assert_reason(rig, s, DEADLINE);
    assert_snapshot(rig, s, delivered_blocks, 8);
    assert_snapshot(rig, s, submitted, 4);
    assert_int_equal(story_calls(rig, seq, STORE_GET, 0, 32), 16);
    assert_int_equal(story_stats(rig).reserved_bytes_gauge, 4 * BLOCK); /* chunk 2; chunk 3 is free again */
    assert_int_equal(story_free(rig), 64 - 8 - 4);
    uint32_t operations;
    uint64_t bytes;
    fby_core_outstanding(rig->core, &operations, &bytes);
    assert_int_equal(operations, 1); /* shown as draining */

    fby_hold_t hold;
    assert_int_equal(rig_take(rig, s, &hold), 0);
    rig_run_until(rig, RIG_S + 500 * RIG_MS);
    rig_unhang(rig);
    rig_run_until(rig, RIG_S + 501 * RIG_MS);
    assert_int_equal(rig->resident_count, 8);
    assert_int_equal(story_stats(rig).reserved_bytes_gauge, 0);
    rig_hold_verify(rig, rig_hold_find(rig, hold));
    story_quiesce(rig);
    rig_close(rig);
}

typedef struct a02_row {
    fby_policy_t policy;
    bool main_pending, side_pending;
    uint32_t blocks;
    const char *reason;
} a02_row_t;

static void a02_row(const a02_row_t *row)
{
    rig_config_t config;
    rig_config_defaults(&config);
    story_trailing(&config, 1, 8);
    config.part_blocks = 4; /* the state is a call of its own */
    config.read_lanes = 8;
    config.store.latency_ns[STORE_GET] = 4 * RIG_MS;
    config.core.drain_limit_ns = 50 * RIG_MS;
    config.core.io_timeout_ns = config.core.no_progress_ns = 200 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 32, 513);
    for (uint32_t b = 0; b < 32; b++)
        store_hold(&rig->store, &seq->hashes[b], 0);
    store_hold(&rig->store, &seq->hashes[15], 1);
    store_hold(&rig->store, &seq->hashes[31], 1);
    if (row->main_pending)
        story_script(rig, seq, STORE_GET, 28, 32, 1, FAULT_HANG, 0);
    if (row->side_pending)
        store_script(&rig->store, &(store_fault_t){STORE_GET, seq->hashes[31], 1, 1, FAULT_HANG, 0});
    fby_session_t s = rig_start(rig, seq, row->policy, DRAIN, row->policy == TIMEOUT ? 20 * RIG_MS : FBY_NEVER);
    rig_run_until(rig, RIG_S + 20 * RIG_MS);
    rig_demand(rig, s);
    rig_run_until(rig, RIG_S + 70 * RIG_MS);
    if (row->policy != WAIT_COMPLETE)
        assert_snapshot(rig, s, answered, 1); /* at the drain bound at the latest */
    rig_run_until(rig, RIG_S + 300 * RIG_MS);
    assert_snapshot(rig, s, answered, 1);
    assert_snapshot(rig, s, delivered_blocks, row->blocks);
    assert_string_equal(fby_reason_name(rig_snapshot(rig, s).reason), row->reason);
    rig_unhang(rig);
    rig_run_until(rig, RIG_S + 301 * RIG_MS);
    story_quiesce(rig);
    rig_close(rig);
}

static void a02_each_pool_pending_under_each_policy(void **state)
{
    (void)state;
    const a02_row_t rows[] = {
        {TIMEOUT, true, false, 16, "deadline"},         {TIMEOUT, false, true, 16, "deadline"},
        {TIMEOUT, false, false, 32, "complete"},        {TIMEOUT, true, true, 16, "deadline"},
        {BEST_EFFORT, true, false, 16, "demand"},       {BEST_EFFORT, false, true, 16, "demand"},
        {BEST_EFFORT, false, false, 32, "complete"},    {BEST_EFFORT, true, true, 16, "demand"},
        {WAIT_COMPLETE, true, false, 16, "io_timeout"}, {WAIT_COMPLETE, false, true, 16, "io_timeout"},
        {WAIT_COMPLETE, false, false, 32, "complete"},  {WAIT_COMPLETE, true, true, 16, "io_timeout"},
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++)
        a02_row(&rows[i]);
}

static void a03_nothing_planned_is_not_done(void **state)
{
    (void)state;
    static const uint32_t present_blocks[] = {32, 0};
    for (size_t run = 0; run < 2; run++) {
        rig_config_t config;
        rig_config_defaults(&config);
        config.store.latency_ns[STORE_EXISTS] = 50 * RIG_MS;
        rig_t *rig = rig_open(&config);
        rig_seq_t *seq = rig_seq(rig, 0, 32, 513);
        rig_store_fill(rig, seq, 0, present_blocks[run]);
        fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        static const uint64_t looks[] = {0, 10, 49};
        for (size_t i = 0; i < FBY_ARRAY_LEN(looks); i++) {
            rig_run_until(rig, RIG_S + looks[i] * RIG_MS);
            assert_state(rig, s, PLANNING);
        }
        rig_run_until(rig, RIG_S + 50 * RIG_MS);
        if (!present_blocks[run]) {
            assert_int_equal(rig_session_find(rig, s)->answer.outcome, FBY_OUTCOME_EMPTY);
            assert_int_equal(rig_session_find(rig, s)->final.terminal_ns, RIG_S + 50 * RIG_MS);
        }
        rig_run_until(rig, RIG_S + 100 * RIG_MS);
        assert_int_equal(rig_session_find(rig, s)->answer.delivered_blocks, present_blocks[run]);
        story_quiesce(rig);
        rig_close(rig);
    }
}

static void a05_late_bytes_never_land_in_somebody_elses_memory(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.pool[0] = 8;
    config.core.drain_limit_ns = 5 * RIG_MS;
    config.core.max_reserved_bytes = config.core.max_pinned_bytes = config.core.max_hold_bytes = 16 * BLOCK;
    rig_t *rig = rig_open(&config);
    rig_seq_t *a = rig_seq(rig, 0, 1, 65), *b = rig_seq(rig, 0, 2, 129);
    rig_store_fill(rig, a, 0, 4);
    rig_store_fill(rig, b, 0, 8);
    story_script(rig, a, STORE_GET, 0, 4, 1, FAULT_HANG, 0);
    fby_session_t sa = rig_start(rig, a, TIMEOUT, DRAIN, 10 * RIG_MS);
    rig_run_until(rig, RIG_S + 20 * RIG_MS);
    assert_int_equal(rig_session_find(rig, sa)->answer.delivered_blocks, 0);
    fby_session_t sb = rig_start(rig, b, TIMEOUT, DRAIN, 100 * RIG_MS);
    rig_run_until(rig, RIG_S + 200 * RIG_MS);
    assert_snapshot(rig, sb, delivered_blocks, 4);
    assert_reason(rig, sb, CAPACITY_POOL);
    fby_hold_t hold;
    assert_int_equal(rig_take(rig, sb, &hold), 0);
    assert_int_equal(story_free(rig), 0);
    rig_unhang(rig); /* A's bytes arrive now */
    rig_run_until(rig, RIG_S + 201 * RIG_MS);
    assert_int_equal(story_free(rig), 4);
    rig_hold_verify(rig, rig_hold_find(rig, hold));
    story_quiesce(rig);
    rig_close(rig);
}

static void a06_releasing_a_session_while_its_reads_run(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    uint64_t random = 6;
    for (unsigned i = 0; i < 10000; i++) {
        fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        story_answer(rig, 32);
        assert_int_equal(story_begin(rig), 2);
        if (sim_one_in(&random, 2))
            rig_end(rig, rig->live[0][sim_below(&random, 2)], NULL);
        assert_int_equal(rig_release(rig, s), 0);
        while (rig->live_count[0])
            rig_end(rig, rig->live[0][sim_below(&random, rig->live_count[0])], NULL);
        story_settle(rig);
        assert_int_equal(story_stats(rig).reserved_bytes_gauge, 0);
        assert_int_equal(rig_reset(rig, false), 0);
        story_settle(rig);
        rig->logged = 0;
    }
    story_quiesce(rig);
    rig_close(rig);
}

static void a08_the_budget_formula(void **state)
{
    (void)state;
    const struct {
        uint64_t tokens, ms;
    } rows[] = {{0, 2000},          {1024, 2100}, {102400, 12000}, {1048576, 30000}, {UINT64_C(1) << 40, 30000},
                {UINT64_MAX, 30000}};
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++)
        assert_int_equal(fby_policy_budget(2 * RIG_S, RIG_S / 10, 30 * RIG_S, rows[i].tokens), rows[i].ms * RIG_MS);
    assert_int_equal(fby_policy_budget(2 * RIG_S, RIG_S / 10, 200 * RIG_S, 1048576), 104400 * RIG_MS);
    assert_int_equal(fby_policy_budget(UINT64_MAX, UINT64_MAX, UINT64_MAX - 1, UINT64_MAX), UINT64_MAX - 1);
}

static void a10_a_lost_completion_parks_one_session_only(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.pool[0] = 512;
    config.read_lanes = 32;
    config.fence_ns = RIG_MS;
    config.core.max_reserved_bytes = config.core.max_pinned_bytes = config.core.max_hold_bytes = 512 * BLOCK;
    config.core.no_progress_ns = config.core.io_timeout_ns = 100 * RIG_MS;
    rig_t *rig = rig_open(&config);
    fby_session_t s[9];
    for (uint32_t i = 0; i < 9; i++) {
        rig_seq_t *seq = story_p32(rig, i);
        if (i == 4)
            story_script(rig, seq, STORE_GET, 8, 12, 1, FAULT_LOST, 0);
        s[i] = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    }
    rig_run_until(rig, RIG_S + 50 * RIG_MS);
    for (uint32_t i = 0; i < 9; i++)
        assert_snapshot(rig, s[i], answered, i != 4);
    fby_health_t health = {.size = sizeof(health)};
    fby_core_health(rig->core, rig->now, &health);
    assert_in_range(health.oldest_operation_ns, 40 * RIG_MS, 50 * RIG_MS);
    rig_run_until(rig, RIG_S + 200 * RIG_MS);
    assert_snapshot(rig, s[4], delivered_blocks, 8);
    assert_reason(rig, s[4], IO_TIMEOUT);
    assert_int_equal(story_events(rig, FBY_CORE_ANSWERED, s[4]), 1);
    fby_core_health(rig->core, rig->now, &health);
    assert_int_equal(health.oldest_operation_ns, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void a11_a_joiner_keeps_its_own_deadline(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.drain_limit_ns = 10 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
    rig_store_fill(rig, seq, 0, 4);
    story_script(rig, seq, STORE_GET, 0, 4, 1, FAULT_HANG, 0);
    fby_session_t a = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    rig_run_until(rig, RIG_S + RIG_MS);
    fby_session_t b = rig_start(rig, seq, TIMEOUT, DRAIN, 20 * RIG_MS);
    rig_run_until(rig, RIG_S + 31 * RIG_MS);
    const rig_session_t *joiner = rig_session_find(rig, b);
    assert_true(joiner->answered);
    assert_int_equal(joiner->answer.delivered_blocks, 0);
    assert_int_equal(joiner->answer.submitted, 1);
    assert_snapshot(rig, a, answered, 0);
    assert_snapshot(rig, a, inflight_chunks, 1);
    rig_unhang(rig);
    rig_run_until(rig, RIG_S + 32 * RIG_MS);
    assert_outcome(rig, a, COMPLETE);
    assert_int_equal(rig->events[FBY_CORE_PUBLISHED], 4); /* once */
    assert_int_equal(story_calls(rig, seq, STORE_GET, 0, 4), 4);
    story_quiesce(rig);
    rig_close(rig);
}

static void a14_at(uint64_t stop_ns, bool exact)
{
    rig_config_t config;
    rig_config_defaults(&config);
    config.store.latency_ns[STORE_GET] = 10 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    fby_session_t s = rig_start(rig, seq, BEST_EFFORT, DRAIN, FBY_NEVER);
    rig_run_until(rig, RIG_S + stop_ns);
    rig_demand(rig, s);
    uint64_t gets = rig->store.calls[STORE_GET];
    fby_snapshot_t stopped = {.size = sizeof(stopped)};
    bool live = fby_core_session_snapshot(rig->core, s, &stopped) == 0;
    rig_run_until(rig, RIG_S + 500 * RIG_MS);
    assert_int_equal(rig->store.calls[STORE_GET], gets);
    const fby_snapshot_t *answer = &rig_session_find(rig, s)->answer;
    if (live)
        assert_int_equal(answer->delivered_blocks, stopped.cursor_blocks);
    assert_int_equal(answer->delivered_blocks, answer->submitted * 4);
    if (exact)
        assert_int_equal(answer->delivered_blocks, 16); /* c0 c1 ended at 10.1 ms, c2 c3 were claimed then */
    story_quiesce(rig);
    rig_close(rig);
}

static void a14_a_stop_starts_no_more_work(void **state)
{
    (void)state;
    a14_at(15 * RIG_MS, true);
    uint64_t random = 14;
    for (unsigned i = 0; i < 1000; i++)
        a14_at(sim_below(&random, 60000) * (RIG_MS / 1000), false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a01_a_stalled_read_does_not_hold_the_answer),
        cmocka_unit_test(a02_each_pool_pending_under_each_policy),
        cmocka_unit_test(a03_nothing_planned_is_not_done),
        cmocka_unit_test(a05_late_bytes_never_land_in_somebody_elses_memory),
        cmocka_unit_test(a06_releasing_a_session_while_its_reads_run),
        cmocka_unit_test(a08_the_budget_formula),
        cmocka_unit_test(a10_a_lost_completion_parks_one_session_only),
        cmocka_unit_test(a11_a_joiner_keeps_its_own_deadline),
        cmocka_unit_test(a14_a_stop_starts_no_more_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
