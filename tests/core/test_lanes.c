/* test_lanes.c - begun and ended: limits of a driver call, progress, fences, quarantine, retries, one turn per graph. */
#include "story.h"

static rig_t *open_limits(rig_seq_t **seq, uint64_t progress_ms, uint64_t whole_ms)
{
    rig_config_t config;
    story_traces(&config);
    config.core.no_progress_ns = progress_ms * RIG_MS;
    config.core.io_timeout_ns = whole_ms * RIG_MS;
    config.core.max_inflight_chunks = 1;
    rig_t *rig = rig_open(&config);
    *seq = rig_seq(rig, 0, 1, 161);
    return rig;
}

static void progress_moves_the_limit_but_not_beyond_the_whole_one(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_limits(&seq, 20, 50);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    story_begin(rig);
    uint32_t part = rig->live[0][0];
    assert_int_equal(rig->part[part].limit_at, rig->now + 20 * RIG_MS);
    for (uint64_t ms = 15; ms <= 45; ms += 15) {
        story_at(rig, ms);
        rig_progress(rig, part);
        assert_int_equal(rig->events[FBY_CORE_FENCE], 0);
    }
    story_at(rig, 49);
    assert_int_equal(rig->events[FBY_CORE_FENCE], 0);
    story_at(rig, 50);
    assert_int_equal(rig->events[FBY_CORE_FENCE], 1);
    assert_int_equal(rig_session_find(rig, s)->answer.reason, FBY_REASON_IO_TIMEOUT);
    rig_progress(rig, part); /* harmless when late */
    rig_end(rig, part, NULL);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_big_call_on_a_slow_store_gets_the_time_its_bytes_take(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.no_progress_ns = config.core.io_timeout_ns = RIG_MS;
    config.core.floor_bytes_per_s = 4 * BLOCK * 10; /* a chunk of 4 may take 100 ms */
    rig_t *rig = rig_open(&config);
    rig_start(rig, story_p32(rig, 0), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 32);
    story_begin(rig);
    assert_int_equal(rig->part[rig->live[0][0]].limit_at, rig->now + 100 * RIG_MS);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], (int32_t[4]){FBY_E_MISSING, FBY_E_MISSING, FBY_E_MISSING, FBY_E_MISSING});
    story_settle(rig);
    story_quiesce(rig);
    rig_close(rig);
}

static void graphs_take_turns_part_by_part(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *a = story_p32(rig, 0), *b = story_p32(rig, 1);
    rig_start(rig, a, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    rig_start(rig, b, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    const rig_seq_t *turn[] = {a, b, a, b};
    for (unsigned i = 0; i < 4; i++) {
        uint32_t part = rig_begin(rig, false, 2);
        assert_int_equal(rig->part[part].count, 2);
        assert_true(fby_hash_equal(&rig->part[part].io[0].hash, &turn[i]->hashes[i / 2 * 2]));
    }
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_killed_agent_s_other_reads_begin_once_more(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_core_query_t query;
    uint8_t present[4] = {1, 1, 1, 0};
    assert_true(rig_next_query(rig, &query));
    rig_query_done(rig, &query, 0, present, FBY_NEVER);
    (void)s;
    rig_seq_t *other = rig_seq(rig, 1, 2, 161);
    fby_session_t t = rig_start(rig, other, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    story_begin(rig);
    uint32_t part = story_part(rig, other, 0), slot = rig->part[part].io[0].slot;
    uint64_t submitted = rig_snapshot(rig, t).submitted;
    rig_end(rig, part, (int32_t[2]){FBY_E_CONNECTION, FBY_E_CONNECTION});
    story_settle(rig);
    assert_int_equal(story_begin(rig), 1);
    part = story_part(rig, other, 0);
    assert_int_equal(rig->part[part].io[0].slot, slot); /* the same slots */
    assert_snapshot(rig, t, submitted, submitted);      /* not counted */
    rig_end(rig, part, (int32_t[2]){FBY_E_CONNECTION, FBY_E_CONNECTION});
    story_settle(rig);
    assert_reason(rig, t, STORE_ERROR); /* once */
    assert_snapshot(rig, t, error, FBY_E_CONNECTION);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_sealed_session_retries_nothing(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_limits(&seq, 1000, 1000);
    fby_session_t s = rig_start(rig, seq, BEST_EFFORT, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    story_begin(rig);
    rig_demand(rig, s);
    rig_end(rig, rig->live[0][0], (int32_t[2]){0, FBY_E_CONNECTION});
    story_settle(rig);
    assert_int_equal(story_begin(rig), 0);
    assert_snapshot(rig, s, delivered_blocks, 1);
    assert_int_equal(story_stats(rig).retries, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void too_much_in_quarantine_opens_the_breaker(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.no_progress_ns = config.core.io_timeout_ns = 10 * RIG_MS;
    config.core.quarantine_limit_bytes = 3 * BLOCK;
    rig_t *rig = rig_open(&config);
    rig_start(rig, rig_seq(rig, 0, 1, 161), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    assert_int_equal(story_begin(rig), 2);
    story_at(rig, 20);
    assert_int_equal(story_stats(rig).quarantine_bytes_gauge, 4 * BLOCK);
    assert_int_equal(rig->events[FBY_CORE_QUARANTINE_OVER], 1);
    fby_health_t health = {.size = sizeof(health)};
    fby_core_health(rig->core, rig->now, &health);
    assert_int_equal(health.quarantined_bytes, 4 * BLOCK);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_quiesce(rig);
    rig_close(rig);
}

static void an_idle_core_wants_nothing(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.result_ttl_ns = 10 * RIG_S;
    rig_t *rig = rig_open(&config);
    assert_int_equal(fby_core_next_deadline(rig->core), FBY_NEVER);
    assert_int_equal(fby_core_wants(rig->core), 0);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    story_resident(rig, seq, 10);
    for (unsigned i = 0; i < 100; i++) {
        rig->now += RIG_MS;
        rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER); /* 100 retained results */
    }
    story_settle(rig);
    assert_int_equal(fby_core_next_deadline(rig->core), RIG_S + RIG_MS + 10 * RIG_S); /* one timer, the earliest TTL */
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_moves_the_limit_but_not_beyond_the_whole_one),
        cmocka_unit_test(a_big_call_on_a_slow_store_gets_the_time_its_bytes_take),
        cmocka_unit_test(graphs_take_turns_part_by_part),
        cmocka_unit_test(a_killed_agent_s_other_reads_begin_once_more),
        cmocka_unit_test(a_sealed_session_retries_nothing),
        cmocka_unit_test(too_much_in_quarantine_opens_the_breaker),
        cmocka_unit_test(an_idle_core_wants_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
