/* test_call.c - every call with handles that are null, stale, foreign; on a closed cache; in a child of fork(). */
#include <errno.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/call.h"
#include "api/rig.h"

typedef struct handles {
    fby_session_t session;
    fby_hold_t hold;
    fby_put_t put;
} handles_t;

/* Each call with these handles must give this code. */
static void every_handle_call_gives(fby_cache_t *cache, handles_t h, int code)
{
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    fby_put_result_t result = {.size = sizeof(result)};
    fby_hold_t hold = 77;
    uint64_t number = 77;
    const void *address = NULL;
    void *slot = NULL;
    assert_int_equal(fby_session_poll(cache, h.session, &snapshot), code);
    assert_int_equal(fby_session_demand(cache, h.session), code);
    assert_int_equal(fby_session_stop(cache, h.session), code);
    assert_int_equal(fby_session_wait(cache, h.session, 0, &snapshot), code);
    assert_int_equal(fby_session_take(cache, h.session, &hold), code);
    assert_int_equal(fby_session_release(cache, h.session), code);
    assert_int_equal(fby_session_event_fd(cache, h.session), code);
    assert_int_equal(fby_hold_info(cache, h.hold, &number, NULL, NULL), code);
    assert_int_equal(fby_hold_slots(cache, h.hold, 0, 0, 1, &address), code);
    assert_int_equal(fby_hold_trim(cache, h.hold, 0, &number), code);
    assert_int_equal(fby_hold_readers(cache, h.hold, 1), code);
    assert_int_equal(fby_hold_release(cache, h.hold), code);
    assert_int_equal(fby_put_slots(cache, h.put, 0, 0, 1, &slot), code);
    assert_int_equal(fby_put_commit(cache, h.put, 16, &result), code);
    assert_int_equal(fby_put_wait_store(cache, h.put, 0, &number, &number), code);
    assert_int_equal(fby_put_abort(cache, h.put), code);
    assert_int_equal(fby_put_release(cache, h.put), code);
    /* outputs are written on success only */
    assert_int_equal(hold, 77);
    assert_int_equal(number, 77);
    assert_null(address);
    assert_null(slot);
}

/* Each call that needs no handle of an object. */
static void every_cache_call_gives(fby_cache_t *cache, fby_seq_t *seq, int code)
{
    fby_model_t model = {.size = sizeof(model)};
    fby_stats_t stats = {.size = sizeof(stats)};
    fby_health_t health = {.size = sizeof(health)};
    fby_session_t session = 77;
    fby_put_t put = 77;
    fby_hold_t hold = 77;
    fby_seq_t *made = NULL;
    fby_subscription_t *subscription = NULL;
    uint32_t token = 1;
    assert_int_equal(fby_cache_reset(cache, 0, 0), code);
    assert_int_equal(fby_cache_epoch(cache), 0);
    assert_int_equal(fby_cache_model(cache, &model), code);
    assert_int_equal(fby_cache_stats(cache, &stats), code);
    assert_int_equal(fby_cache_health(cache, &health), code);
    assert_int_equal(fby_cache_check(cache), code);
    assert_int_equal(fby_seq_create(cache, &token, 1, NULL, 0, &made), code);
    assert_int_equal(fby_session_start(cache, seq, NULL, &session), code);
    assert_int_equal(fby_session_progress(cache, NULL, NULL, 0, NULL), code);
    assert_int_equal(fby_lookup(cache, seq, 0, &hold, NULL), code);
    assert_int_equal(fby_put_begin(cache, seq, 0, 1, &put, NULL, NULL, NULL), code);
    assert_int_equal(fby_put_next(cache, 5, seq, 0, 1, NULL, NULL, NULL), code);
    assert_int_equal(fby_subscribe(cache, 1, &subscription), code);
    assert_null(made);
    assert_null(subscription);
    assert_int_equal(session, 77);
    assert_int_equal(put, 77);
    assert_int_equal(hold, 77);
}

static void null_and_invented_handles_are_stale(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    static const uint64_t invented[] = {
        0, 1, 0x5555555555555555, UINT64_MAX, UINT64_C(1) << 62, UINT64_C(2) << 62, UINT64_C(3) << 62};
    for (size_t i = 0; i < FBY_ARRAY_LEN(invented); i++) {
        every_handle_call_gives(rig.cache, (handles_t){invented[i], invented[i], invented[i]}, FBY_E_STALE);
    }
    assert_true(strlen(fby_last_error()) > 0);
    rig_quiet(&rig);
    rig_close(&rig);
}

/* A handle of one kind is not one of another. */
static void handles_of_another_kind_are_stale(void **state)
{
    (void)state;
    rig_t rig;
    handles_t right;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 100);
    right.put = rig_put(&rig, seq, 4, NULL);
    right.session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(fby_lookup(rig.cache, seq, 0, &right.hold, NULL), 0);
    every_handle_call_gives(rig.cache, (handles_t){right.hold, right.put, right.session}, FBY_E_STALE);
    every_handle_call_gives(rig.cache, (handles_t){right.put, right.session, right.hold}, FBY_E_STALE);
    rig_wait(&rig, right.session);
    assert_int_equal(fby_session_release(rig.cache, right.session), 0);
    assert_int_equal(fby_hold_release(rig.cache, right.hold), 0);
    assert_int_equal(fby_put_release(rig.cache, right.put), 0);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* After a reset the handles of before fail, but for the releases that let their memory go. */
static void handles_from_before_a_reset_are_stale(void **state)
{
    (void)state;
    rig_t rig;
    fby_hold_t hold;
    uint64_t blocks;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 100);
    rig_put_stored(&rig, seq, 4);
    fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    rig_wait(&rig, session);
    assert_int_equal(fby_lookup(rig.cache, seq, 0, &hold, NULL), 0);
    assert_int_equal(fby_cache_reset(rig.cache, 0, 0), FBY_RESET_BUSY);
    assert_int_equal(rig_lookup(&rig, seq), 0);
    assert_int_equal(fby_session_take(rig.cache, session, &hold), FBY_E_STALE);
    assert_int_equal(fby_hold_info(rig.cache, hold, NULL, &blocks, NULL), FBY_E_STALE);
    assert_int_equal(fby_hold_release(rig.cache, hold), 0);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    rig_close(&rig);
}

static void objects_of_another_cache_are_refused(void **state)
{
    (void)state;
    rig_t rig, other;
    fby_session_t session;
    RIG_OPEN(&rig, NULL);
    RIG_OPEN(&other, NULL);
    fby_seq_t *foreign = rig_seq(&other, 1, 100);
    assert_int_equal(fby_session_start(rig.cache, foreign, NULL, &session), -EINVAL);
    assert_non_null(strstr(fby_last_error(), "another cache"));
    assert_int_equal(fby_lookup(rig.cache, foreign, FBY_LOOKUP_ADVISORY, NULL, NULL), -EINVAL);
    fby_seq_unref(foreign);
    rig_close(&rig);
    rig_close(&other);
}

static void null_arguments_are_named(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 100);
    every_cache_call_gives(NULL, seq, -EINVAL);
    every_handle_call_gives(NULL, (handles_t){1, 1, 1}, -EINVAL);
    assert_int_equal(fby_session_start(rig.cache, NULL, NULL, &(fby_session_t){0}), -EINVAL);
    assert_string_equal(fby_last_error(), "seq is NULL");
    assert_int_equal(fby_session_start(rig.cache, seq, NULL, NULL), -EINVAL);
    assert_int_equal(fby_lookup(rig.cache, seq, 0, NULL, NULL), -EINVAL);
    assert_int_equal(fby_lookup(rig.cache, seq, 64, NULL, NULL), -EINVAL);
    assert_int_equal(fby_put_begin(rig.cache, seq, 0, 1, NULL, NULL, NULL, NULL), -EINVAL);
    assert_int_equal(fby_put_begin(rig.cache, seq, 0, 7, &(fby_put_t){0}, NULL, NULL, NULL), -EINVAL);
    assert_int_equal(fby_put_begin(rig.cache, seq, 3, 2, &(fby_put_t){0}, NULL, NULL, NULL), -EINVAL);
    assert_int_equal(fby_cache_open(NULL, NULL), -EINVAL);
    fby_seq_unref(NULL);
    fby_seq_unref(seq);
    rig_close(&rig);
}

static void a_closed_cache_says_so(void **state)
{
    rig_needs_process();
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 100);
    fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL), 0);
    every_cache_call_gives(rig.cache, seq, FBY_E_CLOSED);
    every_handle_call_gives(rig.cache, (handles_t){session, session, session}, FBY_E_CLOSED);
    /* a sequence is memory of its own */
    assert_int_equal(fby_seq_append(seq, (const uint32_t[]){1, 2, 3}, 3), 0);
    assert_int_equal(fby_seq_tokens(seq), 103);
    fby_seq_unref(seq);
    rig_close(&rig);
}

static void a_child_of_fork_gets_an_error(void **state)
{
    (void)state;
    rig_t rig;
    int status;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 100);
    fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    rig_wait(&rig, session);
    pid_t child = fork();
    if (child == 0) {
        every_cache_call_gives(rig.cache, seq, FBY_E_FORKED);
        every_handle_call_gives(rig.cache, (handles_t){session, session, session}, FBY_E_FORKED);
        assert_int_equal(fby_cache_close(rig.cache, 0, NULL), FBY_E_FORKED);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(fby_session_release(rig.cache, session), 0);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* A poisoned cache gives back no reference: kept here, so that no leak checker minds. */
static fby_seq_t *kept;

/* The server's copy of it cannot be kept from here. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:fby_sequences_add\n";
}

static void *wait_for_ever(void *arg)
{
    rig_t *rig = arg;
    kept = rig_seq(rig, 1, 65);
    fby_session_t session = rig_start(rig, kept, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    return (void *)(intptr_t)fby_session_wait(rig->cache, session, -1, NULL);
}

/* A broken invariant ends the cache, never the process: waiters wake, calls say so, close works. */
static void a_poisoned_cache_answers_nothing(void **state)
{
    rig_needs_process();
    (void)state;
    rig_t rig;
    pthread_t waiter;
    void *result;
    fby_actions_t actions;
    fby_health_t health = {.size = sizeof(health)};
    fby_stats_t stats = {.size = sizeof(stats)};
    RIG_OPEN(&rig, "store.host=inline", "log.level=off");
    fby_seq_t *seq = rig_seq(&rig, 1, 65);
    rig_store_blocks(&rig, seq, 0, 4);
    rig_script(&rig, "get:*:hang");
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_ever, &rig), 0);
    assert_true(fby_mem_await_hung(rig.store, 4, RIG_PATIENCE_NS));
    fby_session_t other = rig_start(&rig, kept, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    struct pollfd descriptor = {.fd = fby_session_event_fd(rig.cache, other), .events = POLLIN};
    assert_int_equal(poll(&descriptor, 1, 0), 0);
    fby_runtime_t *runtime = rig_real(&rig)->runtime;
    fby_enter(runtime, &actions);
    fby_runtime_poison(runtime, "V0 for the test");
    fby_leave(runtime, &actions);
    pthread_join(waiter, &result);
    assert_int_equal((intptr_t)result, FBY_E_POISONED);
    assert_int_equal(poll(&descriptor, 1, (int)(RIG_PATIENCE_S * 1000)), 1);
    close(descriptor.fd);
    every_handle_call_gives(rig.cache, (handles_t){1, 1, 1}, FBY_E_POISONED);
    assert_int_equal(fby_cache_check(rig.cache), FBY_E_POISONED);
    assert_int_equal(fby_cache_stats(rig.cache, &stats), 0);
    assert_int_equal(fby_cache_health(rig.cache, &health), 0);
    assert_int_equal(health.healthy, 0);
    assert_non_null(strstr(health.message, "V0 for the test"));
    fby_seq_unref(seq);
    assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL), 0);
    assert_int_equal(fby_seq_tokens(kept), 65);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_and_invented_handles_are_stale),
        cmocka_unit_test(handles_of_another_kind_are_stale),
        cmocka_unit_test(handles_from_before_a_reset_are_stale),
        cmocka_unit_test(objects_of_another_cache_are_refused),
        cmocka_unit_test(null_arguments_are_named),
        cmocka_unit_test(a_closed_cache_says_so),
        cmocka_unit_test(a_child_of_fork_gets_an_error),
        cmocka_unit_test(a_poisoned_cache_answers_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
