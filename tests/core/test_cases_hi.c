/* test_cases_hi.c - public failures of the field, families (h) performance and (i) usability, in virtual time. */
#include "sim/random.h"
#include "story.h"

static void roomy(rig_config_t *config, uint32_t blocks)
{
    rig_config_defaults(config);
    config->pool[0] = blocks;
    config->core.max_reserved_bytes = config->core.max_pinned_bytes = config->core.max_hold_bytes =
        (uint64_t)blocks * BLOCK;
    config->core.write_pinned_bytes = (uint64_t)blocks * BLOCK;
    config->full_every = 64;
}

static rig_seq_t *stored(rig_t *rig, uint64_t salt, uint32_t blocks)
{
    rig_seq_t *seq = rig_seq(rig, 0, salt, blocks * 16 + 1);
    rig_store_fill(rig, seq, 0, blocks);
    return seq;
}

static uint64_t alone(void)
{
    rig_config_t config;
    roomy(&config, 1200);
    config.read_lanes = 2;
    config.store.latency_ns[STORE_GET] = 5 * RIG_MS;
    rig_t *rig = rig_open(&config);
    fby_session_t a = rig_start(rig, stored(rig, 1, 1024), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, a, FBY_NEVER));
    uint64_t took = rig->now - RIG_S;
    story_quiesce(rig);
    rig_close(rig);
    return took;
}

static void h03_a_long_read_does_not_block_a_short_one(void **state)
{
    (void)state;
    uint64_t before = alone();
    rig_config_t config;
    roomy(&config, 1200);
    config.read_lanes = 2;
    config.store.latency_ns[STORE_GET] = 5 * RIG_MS;
    rig_t *rig = rig_open(&config);
    fby_session_t a = rig_start(rig, stored(rig, 1, 1024), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    rig_run_until(rig, rig->now + RIG_MS);
    uint64_t opened = rig->now;
    fby_session_t b = rig_start(rig, stored(rig, 2, 4), TIMEOUT, DRAIN, 50 * RIG_MS);
    assert_true(rig_run_answered(rig, b, FBY_NEVER));
    assert_snapshot(rig, b, delivered_blocks, 4);
    assert_true(rig->now - opened <= 20 * RIG_MS);
    assert_true(rig_run_answered(rig, a, FBY_NEVER));
    assert_snapshot(rig, a, delivered_blocks, 1024);
    assert_true((rig->now - RIG_S) * 100 < before * 105);
    story_quiesce(rig);
    rig_close(rig);
}

static void h03_sixty_four_sessions_share_fairly(void **state)
{
    (void)state;
    rig_config_t config;
    roomy(&config, 64 * 32);
    config.read_lanes = 4;
    config.store.latency_ns[STORE_GET] = 5 * RIG_MS;
    rig_t *rig = rig_open(&config);
    fby_session_t s[64];
    for (uint32_t i = 0; i < 64; i++)
        s[i] = rig_start(rig, stored(rig, i + 1, 32), TIMEOUT, DRAIN, 400 * RIG_MS);
    rig_run_until(rig, rig->now + RIG_S);
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < 64; i++) {
        double blocks = (double)rig_session_find(rig, s[i])->answer.delivered_blocks;
        assert_true(blocks > 0); /* nobody starved past its deadline */
        sum += blocks;
        squares += blocks * blocks;
    }
    assert_true(sum * sum / (64 * squares) >= 0.9); /* Jain's index */
    story_quiesce(rig);
    rig_close(rig);
}

static void h06_one_read_per_key_for_many_sessions(void **state)
{
    (void)state;
    for (unsigned abort_owner = 0; abort_owner < 2; abort_owner++) {
        rig_config_t config;
        roomy(&config, 128);
        rig_t *rig = rig_open(&config);
        rig_seq_t *seq = story_p32(rig, 0), *other = story_p32(rig, 1);
        fby_session_t s[16];
        for (uint32_t i = 0; i < 16; i++)
            s[i] = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        fby_session_t apart = rig_start(rig, other, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        if (abort_owner) {
            while (rig_snapshot(rig, s[0]).committed_blocks < 4)
                rig_run_until(rig, rig->now + RIG_MS / 10);
            rig_stop(rig, s[0]);
        }
        rig_run_until(rig, rig->now + 200 * RIG_MS);
        for (uint32_t i = abort_owner; i < 16; i++)
            assert_snapshot(rig, s[i], delivered_blocks, 32);
        assert_snapshot(rig, apart, delivered_blocks, 32);
        uint32_t gets = story_calls(rig, seq, STORE_GET, 0, 32);
        assert_in_range(gets, 32, abort_owner ? 36 : 32);
        assert_int_equal(story_calls(rig, other, STORE_GET, 0, 32), 32); /* not shared */
        story_quiesce(rig);
        rig_close(rig);
    }
}

/* 32 clients over prompts of a Zipf-like popularity, a working set of one and a half pools. */
static void h10_leased_results_survive_a_full_pool(void **state)
{
    (void)state;
    enum { CLIENTS = 32, PROMPTS = 24, BLOCKS = 16 };
    rig_config_t config;
    roomy(&config, PROMPTS * BLOCKS * 2 / 3);
    config.core.max_hold_bytes = config.core.max_pinned_bytes / 2;
    config.core.max_reserved_bytes = config.core.max_pinned_bytes / 4;
    config.read_lanes = 8;
    rig_t *rig = rig_open(&config);
    rig_seq_t *prompt[PROMPTS];
    for (uint32_t i = 0; i < PROMPTS; i++)
        prompt[i] = stored(rig, i + 1, BLOCKS);
    fby_session_t client[CLIENTS] = {0};
    uint64_t random = 10, until = rig->now + 60 * RIG_S, done = 0;
    while (rig->now < until) {
        uint32_t c = sim_below(&random, CLIENTS);
        if (client[c] && rig_session_find(rig, client[c])->answered) {
            const fby_snapshot_t *answer = &rig_session_find(rig, client[c])->answer;
            assert_true(answer->answered_ns - answer->created_ns <= 600 * RIG_MS); /* no stall beyond the deadline */
            fby_hold_t hold;
            assert_int_equal(rig_take(rig, client[c], &hold), 0); /* whole, and every byte right */
            rig_hold_release(rig, hold);
            client[c] = 0;
            done++;
        } else if (!client[c]) {
            uint32_t which = sim_below(&random, 1 + sim_below(&random, PROMPTS));
            client[c] = rig_start(rig, prompt[which], TIMEOUT, DRAIN, 500 * RIG_MS);
        }
        rig_run_until(rig, rig->now + sim_below(&random, 8) * RIG_MS);
        rig->logged = 0;
    }
    assert_true(done > 2000);
    fby_stats_t stats = story_stats(rig);
    assert_true(stats.evicted_before_use * 20 < stats.blocks_published);
    rig_run_until(rig, rig->now + RIG_S);
    story_quiesce(rig);
    rig_close(rig);
}

static void i01_found_minus_consumed_is_explained(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.store.latency_ns[STORE_GET] = 10 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    /* pairs of chunks end at 10.1, 20.1, ... ms; five chunks are claimed before the deadline when the third pair is cut */
    story_script(rig, seq, STORE_GET, 16, 20, 1, FAULT_DELAY, 20 * RIG_MS);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, 25 * RIG_MS);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    fby_snapshot_t snapshot = rig_snapshot(rig, s);
    assert_int_equal(snapshot.found_tokens, 32 * 16);
    fby_hold_t hold;
    assert_int_equal(rig_take(rig, s, &hold), 0);
    fby_core_consumed(rig->core, 16);
    fby_stats_t stats = story_stats(rig);
    assert_int_equal(stats.tokens_found, 32 * 16);
    assert_int_equal(stats.tokens_loaded, snapshot.loaded_tokens);
    assert_int_equal(stats.tokens_delivered, snapshot.delivered_tokens);
    assert_int_equal(stats.tokens_consumed, 16 * 16);
    assert_int_equal(stats.sessions_by_reason[FBY_REASON_DEADLINE], 1);
    /* lost{deadline} and lost{unused} are what is left of each step */
    assert_int_equal((stats.tokens_found - stats.tokens_delivered) + (stats.tokens_delivered - stats.tokens_consumed),
                     stats.tokens_found - stats.tokens_consumed);
    story_quiesce(rig);
    rig_close(rig);
}

static void i01_the_sums_agree_over_random_sessions(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.full_every = 64;
    rig_t *rig = rig_open(&config);
    uint64_t random = 1, found = 0, loaded = 0, delivered = 0, by_reason[FBY_REASON_COUNT] = {0};
    for (unsigned i = 0; i < 1000; i++) {
        rig_seq_t *seq = stored(rig, 1 + sim_below(&random, 16), 1 + sim_below(&random, 32));
        fby_session_t s = rig_start(rig, seq, (fby_policy_t)sim_below(&random, 3),
                                    (fby_stop_mode_t)sim_below(&random, 3), sim_below(&random, 20) * RIG_MS);
        rig_run_until(rig, rig->now + sim_below(&random, 10) * RIG_MS);
        rig_demand(rig, s);
        rig_run_until(rig, rig->now + 100 * RIG_MS);
        const rig_session_t *session = rig_session_find(rig, s);
        assert_true(session->answered);
        found += session->answer.found_tokens;
        loaded += session->answer.loaded_tokens;
        delivered += session->answer.delivered_tokens;
        by_reason[session->answer.reason]++;
        assert_true(session->answer.found_tokens >= session->answer.delivered_tokens);
        assert_true(session->answer.delivered_tokens >= session->answer.loaded_tokens);
        rig_release(rig, s);
        rig->logged = 0;
    }
    fby_stats_t stats = story_stats(rig);
    assert_int_equal(stats.tokens_found, found);
    assert_int_equal(stats.tokens_loaded, loaded);
    assert_int_equal(stats.tokens_delivered, delivered);
    for (uint32_t r = 0; r < FBY_REASON_COUNT; r++)
        assert_int_equal(stats.sessions_by_reason[r], by_reason[r]);
    assert_int_equal(stats.sessions, 1000);
    story_quiesce(rig);
    rig_close(rig);
}

/* ---- I04: each reason, forced once ---- */

static fby_reason_t answered_reason(rig_t *rig, fby_session_t s)
{
    rig_run_until(rig, rig->now + 10 * RIG_S);
    assert_true(rig_session_find(rig, s)->answered);
    return rig_session_find(rig, s)->answer.reason;
}

static void start_reason(rig_t *rig, fby_reason_t reason)
{
    rig_seq_t *seq = stored(rig, 100 + reason, 16); /* twice a window: a stop finds work left to claim */
    fby_core_start_t start;
    rig_start_defaults(&start);
    start.min_tokens = reason == FBY_REASON_BELOW_THRESHOLD ? 4096 : 0;
    start.policy = reason == FBY_REASON_DEADLINE ? TIMEOUT : reason == FBY_REASON_DEMAND ? BEST_EFFORT : WAIT_COMPLETE;
    start.policy = reason == FBY_REASON_BREAK_EVEN ? BREAK_EVEN : start.policy;
    start.budget_ns = RIG_MS / 2;
    if (reason == FBY_REASON_PARTIAL_READ)
        story_script(rig, seq, STORE_GET, 0, 1, STORE_EVERY, FAULT_MISS, 0);
    if (reason == FBY_REASON_STORE_ERROR)
        story_script(rig, seq, STORE_GET, 0, 1, STORE_EVERY, FAULT_ERROR, -EIO);
    if (reason == FBY_REASON_IO_TIMEOUT)
        story_script(rig, seq, STORE_GET, 0, 1, STORE_EVERY, FAULT_LOST, 0);
    if (reason == FBY_REASON_QUERY_ERROR)
        story_script(rig, seq, STORE_EXISTS, 0, 1, STORE_EVERY, FAULT_ERROR, -EIO);
    fby_session_t s;
    assert_int_equal(rig_start_with(rig, seq, &start, &s), 0);
    if (reason == FBY_REASON_DEMAND)
        rig_demand(rig, s);
    if (reason == FBY_REASON_ABORT)
        rig_stop(rig, s);
    assert_string_equal(fby_reason_name(answered_reason(rig, s)), fby_reason_name(reason));
    assert_int_equal(story_stats(rig).sessions_by_reason[reason], 1);
}

static void i04_every_session_says_why_it_ended(void **state)
{
    (void)state;
    static const fby_reason_t reasons[] = {
        FBY_REASON_COMPLETE,     FBY_REASON_DEADLINE,    FBY_REASON_DEMAND,      FBY_REASON_BELOW_THRESHOLD,
        FBY_REASON_PARTIAL_READ, FBY_REASON_QUERY_ERROR, FBY_REASON_STORE_ERROR, FBY_REASON_IO_TIMEOUT,
        FBY_REASON_ABORT,        FBY_REASON_BREAK_EVEN,
    };
    rig_config_t config;
    rig_config_defaults(&config);
    config.fence_ns = RIG_MS;
    config.core.io_timeout_ns = config.core.no_progress_ns = RIG_S;
    config.core.recompute_tokens_per_s = 1e9; /* the GPU is faster than any store here */
    config.core.result_ttl_ns = RIG_S;
    rig_t *rig = rig_open(&config);
    for (size_t i = 0; i < FBY_ARRAY_LEN(reasons); i++)
        start_reason(rig, reasons[i]);
    story_quiesce(rig);
    rig_close(rig);
}

static void i04_capacity_reset_and_shutdown_too(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.pool[0] = 8;
    config.core.max_reserved_bytes = config.core.max_pinned_bytes = config.core.max_hold_bytes = 64 * BLOCK;
    rig_t *rig = rig_open(&config);
    fby_session_t s = rig_start(rig, stored(rig, 1, 16), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    rig_run_until(rig, rig->now + 100 * RIG_MS);
    assert_reason(rig, s, CAPACITY_POOL);
    assert_snapshot(rig, s, delivered_blocks, 8);
    assert_outcome(rig, s, PARTIAL);
    assert_int_equal(story_stats(rig).capacity_pool, 1);
    rig_release(rig, s);

    s = rig_start(rig, stored(rig, 2, 8), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_int_equal(rig_reset(rig, false), 0);
    story_settle(rig);
    assert_int_equal(rig_session_find(rig, s)->answer.reason, FBY_REASON_RESET);
    rig_run_idle(rig, rig->now + RIG_S);
    s = rig_start(rig, stored(rig, 3, 8), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    rig_shutdown(rig);
    story_settle(rig);
    assert_int_equal(rig_session_find(rig, s)->answer.reason, FBY_REASON_SHUTDOWN);
    rig_run_idle(rig, rig->now + RIG_S);
    rig_quiescent(rig);
    rig_close(rig);
}

static void i08_every_block_is_announced_once(void **state)
{
    (void)state;
    rig_config_t config;
    roomy(&config, 40);
    rig_t *rig = rig_open(&config);
    fby_session_t s = rig_start(rig, story_p32(rig, 0), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    rig_release(rig, s);
    story_settle(rig);
    story_resident(rig, rig_seq(rig, 1, 2, 128), 8);
    assert_int_equal(rig->events[FBY_CORE_PUBLISHED], 40);
    assert_int_equal(rig->events[FBY_CORE_REMOVED], 0);
    story_resident(rig, rig_seq(rig, 1, 3, 160), 10); /* evicts 10 */
    assert_int_equal(rig->events[FBY_CORE_PUBLISHED], 50);
    assert_int_equal(rig->events[FBY_CORE_REMOVED], 10);
    assert_int_equal(rig->resident_count, 40); /* and the set equals the index: checked after every call */
    story_quiesce(rig);
    rig_close(rig);
}

static void i11_local_and_remote_are_told_apart(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    story_resident(rig, seq, 16);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_tokens - rig_snapshot(rig, s).loaded_tokens, 16 * 16);
    assert_snapshot(rig, s, loaded_tokens, 16 * 16);
    assert_snapshot(rig, s, span_start_block, 16);
    assert_snapshot(rig, s, span_end_block, 32);
    rig_release(rig, s);
    rig_run_until(rig, rig->now + 10 * RIG_S);
    fby_stats_t stats = story_stats(rig);
    assert_int_equal(stats.inflight_graphs_gauge, 0);
    assert_int_equal(stats.reserved_bytes_gauge, 0);
    assert_int_equal(stats.pinned_bytes_gauge, 0);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h03_a_long_read_does_not_block_a_short_one),
        cmocka_unit_test(h03_sixty_four_sessions_share_fairly),
        cmocka_unit_test(h06_one_read_per_key_for_many_sessions),
        cmocka_unit_test(h10_leased_results_survive_a_full_pool),
        cmocka_unit_test(i01_found_minus_consumed_is_explained),
        cmocka_unit_test(i01_the_sums_agree_over_random_sessions),
        cmocka_unit_test(i04_every_session_says_why_it_ended),
        cmocka_unit_test(i04_capacity_reset_and_shutdown_too),
        cmocka_unit_test(i08_every_block_is_announced_once),
        cmocka_unit_test(i11_local_and_remote_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
