/* test_session.c - a session's life through the public API, over both hosts. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <unistd.h>

#include "api/rig.h"
#include "base/base.h"

static const char *const hosts[] = {"store.host=thread", "store.host=inline"};

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, timeout_ms) == 1;
}

static void a_whole_prefix_comes_back(void **state)
{
    rig_needs_process();
    (void)state;
    for (size_t host = 0; host < FBY_ARRAY_LEN(hosts); host++) {
        rig_t rig;
        RIG_OPEN(&rig, hosts[host]);
        fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
        rig_store_blocks(&rig, p32, 0, 32);

        fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        fby_snapshot_t result = rig_wait(&rig, session);
        assert_int_equal(result.outcome, FBY_OUTCOME_COMPLETE);
        assert_int_equal(result.reason, FBY_REASON_COMPLETE);
        assert_int_equal(result.delivered_tokens, 512);
        assert_int_equal(result.loaded_tokens, 512);
        rig_take_and_verify(&rig, session, p32, 32);
        assert_int_equal(fby_mem_calls(rig.store, FBY_VERB_GET, NULL), 32);
        rig_quiet(&rig);
        fby_seq_unref(p32);
        rig_close(&rig);
    }
}

/* Every policy with every stop mode: a store that answers at once delivers all of it, exact. */
static void every_policy_and_stop_mode_delivers(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, "prefetch.recompute_tokens_per_s=1");
    for (int policy = 0; policy < FBY_POLICY_COUNT; policy++) {
        for (int mode = 0; mode < FBY_STOP_MODE_COUNT; mode++) {
            fby_seq_t *seq = rig_seq(&rig, (uint64_t)(policy * 10 + mode), RIG_P32_TOKENS);
            rig_store_blocks(&rig, seq, 0, 32);
            fby_session_t session = rig_start(&rig, seq, (fby_policy_t)policy, (fby_stop_mode_t)mode, RIG_PATIENCE_S);
            assert_int_equal(rig_wait(&rig, session).delivered_tokens, 512);
            rig_take_and_verify(&rig, session, seq, 32);
            rig_quiet(&rig);
            fby_seq_unref(seq);
        }
    }
    rig_close(&rig);
}

/* A deadline while a chunk hangs: what is contiguous is delivered, the rest drains behind (A01). */
static void a_deadline_delivers_what_is_contiguous(void **state)
{
    rig_needs_process();
    (void)state;
    static const struct {
        fby_stop_mode_t mode;
        bool answered_while_hung;
    } rows[] = {{FBY_STOP_DRAIN, false}, {FBY_STOP_RECALL, false}, {FBY_STOP_DETACH, true}};
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        rig_t rig;
        fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
        RIG_OPEN(&rig, "store.host=thread");
        fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
        rig_store_blocks(&rig, p32, 0, 32);
        rig_script_block(&rig, p32, 8, "get", "hang");

        fby_session_t session = rig_start(&rig, p32, FBY_POLICY_BEST_EFFORT, rows[i].mode, -1);
        assert_true(fby_mem_await_hung(rig.store, 1, RIG_PATIENCE_NS));
        RIG_AWAIT(rig_poll(&rig, session).committed_blocks == 8);
        assert_int_equal(fby_session_demand(rig.cache, session), 0);
        if (rows[i].answered_while_hung) {
            assert_int_equal(rig_wait(&rig, session).delivered_tokens, 8 * RIG_BLOCK_TOKENS);
        } else {
            assert_int_equal(fby_session_wait(rig.cache, session, 0, &snapshot), -ETIMEDOUT);
        }
        uint64_t submitted = rig_poll(&rig, session).submitted;
        fby_mem_release(rig.store);
        snapshot = rig_wait(&rig, session);
        assert_int_equal(snapshot.reason, FBY_REASON_DEMAND);
        uint64_t delivered = snapshot.delivered_tokens / RIG_BLOCK_TOKENS;
        if (rows[i].answered_while_hung) {
            assert_int_equal(delivered, 8);
        } else {
            assert_true(delivered == 12 || delivered == 16);
        }
        RIG_AWAIT(rig_poll(&rig, session).state == FBY_TERMINAL);
        assert_int_equal(rig_poll(&rig, session).submitted, submitted);
        assert_int_equal(rig_poll(&rig, session).sealed_submit_seq, submitted);
        rig_take_and_verify(&rig, session, p32, delivered);
        rig_quiet(&rig);
        fby_seq_unref(p32);
        rig_close(&rig);
    }
}

static void a_stop_during_a_hang_answers_aborted(void **state)
{
    rig_needs_process();
    (void)state;
    for (size_t host = 0; host < FBY_ARRAY_LEN(hosts); host++) {
        rig_t rig;
        RIG_OPEN(&rig, hosts[host]);
        fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
        rig_store_blocks(&rig, p32, 0, 32);
        rig_script(&rig, "get:*:hang");

        fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        assert_true(fby_mem_await_hung(rig.store, 8, RIG_PATIENCE_NS));
        assert_int_equal(fby_session_stop(rig.cache, session), 0);
        assert_int_equal(fby_session_stop(rig.cache, session), 0);
        uint64_t gets = fby_mem_calls(rig.store, FBY_VERB_GET, NULL);
        fby_mem_release(rig.store);
        assert_int_equal(rig_wait(&rig, session).outcome, FBY_OUTCOME_ABORTED);
        fby_session_release(rig.cache, session);
        rig_quiet(&rig);
        assert_int_equal(fby_mem_calls(rig.store, FBY_VERB_GET, NULL), gets);
        assert_int_equal(rig_lookup(&rig, p32), 0);
        fby_seq_unref(p32);
        rig_close(&rig);
    }
}

/* Budget 0 with nothing resident is an empty answer at once; with three blocks resident it is those. */
static void a_budget_of_nothing_gives_what_is_resident(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, "store.write=off");
    fby_seq_t *seq = rig_seq(&rig, 1, RIG_P32_TOKENS);
    fby_session_t session = rig_start(&rig, seq, FBY_POLICY_TIMEOUT, FBY_STOP_DRAIN, 0);
    fby_snapshot_t result = rig_wait(&rig, session);
    assert_int_equal(result.reason, FBY_REASON_DEADLINE);
    assert_int_equal(result.outcome, FBY_OUTCOME_EMPTY);
    assert_int_equal(result.delivered_tokens, 0);
    rig_take_and_verify(&rig, session, seq, 0);

    assert_int_equal(fby_put_release(rig.cache, rig_put(&rig, seq, 3, NULL)), 0);
    session = rig_start(&rig, seq, FBY_POLICY_TIMEOUT, FBY_STOP_DRAIN, 0);
    result = rig_wait(&rig, session);
    assert_int_equal(result.outcome, FBY_OUTCOME_PARTIAL);
    assert_int_equal(result.delivered_tokens, 48);
    rig_take_and_verify(&rig, session, seq, 3);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    rig_close(&rig);
}

static void a_miss_is_empty_and_costs_nothing(void **state)
{
    rig_needs_process();
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    fby_snapshot_t result = rig_wait(&rig, session);
    assert_int_equal(result.outcome, FBY_OUTCOME_EMPTY);
    assert_int_equal(result.delivered_tokens, 0);
    assert_int_equal(fby_mem_calls(rig.store, FBY_VERB_GET, NULL), 0);
    fby_session_release(rig.cache, session);
    rig_quiet(&rig);
    fby_seq_unref(p32);
    rig_close(&rig);
}

static void a_descriptor_becomes_readable_with_the_answer(void **state)
{
    rig_needs_process();
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&rig, p32, 0, 32);
    rig_script(&rig, "get:*:hang");
    fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_true(fby_mem_await_hung(rig.store, 1, RIG_PATIENCE_NS));
    int first = fby_session_event_fd(rig.cache, session), closed = fby_session_event_fd(rig.cache, session);
    assert_true(first >= 0 && closed >= 0);
    close(closed);
    assert_false(is_readable(first, 0));
    rig_script(&rig, "");
    fby_mem_release(rig.store);
    assert_true(is_readable(first, 20000));
    int late = fby_session_event_fd(rig.cache, session);
    assert_true(is_readable(late, 0));
    close(first);
    close(late);
    fby_session_release(rig.cache, session);
    rig_quiet(&rig);
    fby_seq_unref(p32);
    rig_close(&rig);
}

static void one_pass_signals_demand_and_polls(void **state)
{
    rig_needs_process();
    (void)state;
    enum { N = 40 };
    rig_t rig;
    fby_session_t sessions[N + 1];
    uint8_t demand[N + 1] = {0};
    fby_snapshot_t snapshots[N + 1];
    RIG_OPEN(&rig, NULL);
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&rig, p32, 0, 32);
    rig_script(&rig, "exists:*:hang");
    for (int i = 0; i < N; i++) {
        sessions[i] = rig_start(&rig, p32, FBY_POLICY_BEST_EFFORT, FBY_STOP_DRAIN, -1);
        demand[i] = i % 2 == 0;
    }
    sessions[N] = 12345;
    for (int i = 0; i <= N; i++) {
        snapshots[i].size = sizeof(snapshots[i]);
    }
    assert_int_equal(fby_session_progress(rig.cache, sessions, demand, N + 1, snapshots), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(snapshots[i].handle, sessions[i]);
        assert_int_equal(snapshots[i].answered, i % 2 == 0);
    }
    assert_int_equal(snapshots[N].state, FBY_EXPIRED);
    assert_int_equal(snapshots[N].error, FBY_E_STALE);
    for (int i = 0; i < N; i++) {
        fby_session_release(rig.cache, sessions[i]);
    }
    rig_script(&rig, "");
    fby_mem_release(rig.store);
    rig_quiet(&rig);
    fby_seq_unref(p32);
    rig_close(&rig);
}

/* An older caller's smaller structs are filled as far as they go; one byte behind them is not touched. */
static void smaller_structs_are_filled_as_far_as_they_go(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 100);
    fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    rig_wait(&rig, session);
    fby_snapshot_t snapshot;
    memset(&snapshot, 0x55, sizeof(snapshot));
    snapshot.size = offsetof(fby_snapshot_t, outcome);
    assert_int_equal(fby_session_poll(rig.cache, session, &snapshot), 0);
    assert_int_equal(snapshot.answered, 1);
    assert_int_equal(snapshot.outcome, 0x55555555);
    snapshot.size = 0;
    assert_int_equal(fby_session_poll(rig.cache, session, &snapshot), -EINVAL);
    fby_session_release(rig.cache, session);
    fby_seq_unref(seq);
    rig_close(&rig);
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    rig_t rig;
    fby_session_t session = 7;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 100);
    fby_session_options_t options = FBY_SESSION_OPTIONS_INIT;
    options.policy = 9;
    assert_int_equal(fby_session_start(rig.cache, seq, &options, &session), -EINVAL);
    assert_non_null(strstr(fby_last_error(), "policy is 9"));
    options = (fby_session_options_t)FBY_SESSION_OPTIONS_INIT;
    options.timeout_budget_s = (double)NAN;
    assert_int_equal(fby_session_start(rig.cache, seq, &options, &session), -EINVAL);
    assert_non_null(strstr(fby_last_error(), "timeout_budget_s"));
    assert_int_equal(session, 7);
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* prefetch.enabled=false: whole-plan sessions run all the same, other policies say NOT_ENABLED, on both hosts. */
static void without_the_chunk_runtime_whole_plans_run(void **state)
{
    (void)state;
    for (size_t host = 0; host < FBY_ARRAY_LEN(hosts); host++) {
        rig_t rig;
        fby_session_t session = 0;
        RIG_OPEN(&rig, "prefetch.enabled=false", hosts[host], "prefetch.result_ttl_s=0.02");
        fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
        rig_store_blocks(&rig, p32, 0, 32);
        fby_session_options_t options = FBY_SESSION_OPTIONS_INIT;
        options.policy = FBY_POLICY_BEST_EFFORT;
        assert_int_equal(fby_session_start(rig.cache, p32, &options, &session), FBY_E_NOT_ENABLED);
        session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        fby_snapshot_t result = rig_wait(&rig, session);
        assert_int_equal(result.delivered_tokens, 512);
        assert_int_equal(result.submitted, 1);
        /* nobody takes it: the lane keeps the time and the lease ends by itself */
        rig_quiet(&rig);
        assert_int_equal(rig_lookup(&rig, p32), 32);
        fby_seq_unref(p32);
        rig_close(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_prefix_comes_back),
        cmocka_unit_test(every_policy_and_stop_mode_delivers),
        cmocka_unit_test(a_deadline_delivers_what_is_contiguous),
        cmocka_unit_test(a_stop_during_a_hang_answers_aborted),
        cmocka_unit_test(a_budget_of_nothing_gives_what_is_resident),
        cmocka_unit_test(a_miss_is_empty_and_costs_nothing),
        cmocka_unit_test(a_descriptor_becomes_readable_with_the_answer),
        cmocka_unit_test(one_pass_signals_demand_and_polls),
        cmocka_unit_test(smaller_structs_are_filled_as_far_as_they_go),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(without_the_chunk_runtime_whole_plans_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
