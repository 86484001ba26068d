/* test_close.c - G10: a cache closes from any state, in time, once; what it could not prove ended it says. */
#include <errno.h>
#include <pthread.h>

#include "api/rig.h"
#include "base/base.h"

static unsigned threads_before;

static void *do_nothing(void *arg)
{
    return arg;
}

/* A sanitizer starts a thread of its own with the first one: let it. */
static int start_one_thread(void **state)
{
    (void)state;
    pthread_t thread;
    return pthread_create(&thread, NULL, do_nothing, NULL) != 0 || pthread_join(thread, NULL) != 0;
}

static int remember_threads(void **state)
{
    (void)state;
    threads_before = rig_threads();
    return 0;
}

static void an_idle_cache_closes_at_once(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    fby_close_report_t report = {.size = sizeof(report)};
    assert_int_equal(fby_cache_close(rig.cache, 0, &report), 0);
    assert_int_equal(report.sessions_aborted, 0);
    assert_int_equal(report.operations_abandoned, 0);
    assert_int_equal(rig_threads(), threads_before);
    fby_store_mem.close(rig.store);
}

static void sessions_in_flight_are_answered_with_shutdown(void **state)
{
    (void)state;
    for (int host = 0; host < 2; host++) {
        rig_t rig;
        fby_session_t sessions[16];
        fby_close_report_t report = {.size = sizeof(report)};
        RIG_OPEN(&rig, host == 0 ? "store.host=thread" : "store.host=inline");
        for (uint64_t i = 0; i < 16; i++) {
            fby_seq_t *seq = rig_seq(&rig, i, 65);
            rig_store_blocks(&rig, seq, 0, 4);
            fby_seq_unref(seq);
        }
        rig_script(&rig, "get:*:delay(5)");
        for (uint64_t i = 0; i < 16; i++) {
            fby_seq_t *seq = rig_seq(&rig, i, 65);
            sessions[i] = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
            fby_seq_unref(seq);
        }
        assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, &report), 0);
        assert_int_equal(report.operations_abandoned, 0);
        assert_int_equal(rig_threads(), threads_before);
        assert_int_equal(fby_session_poll(rig.cache, sessions[0], NULL), FBY_E_CLOSED);
        fby_store_mem.close(rig.store);
    }
}

/* On the inline host a hanging read is cancelled: the cache closes clean although nobody lets the read go. */
static void a_hanging_read_is_cancelled(void **state)
{
    (void)state;
    rig_t rig;
    fby_close_report_t report = {.size = sizeof(report)};
    RIG_OPEN(&rig, "store.host=inline");
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&rig, p32, 0, 32);
    rig_script(&rig, "get:*:hang");
    rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    fby_seq_unref(p32);
    assert_true(fby_mem_await_hung(rig.store, 8, RIG_PATIENCE_NS));
    assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, &report), 0);
    assert_int_equal(report.sessions_aborted, 1);
    assert_int_equal(rig_threads(), threads_before);
    fby_store_mem.close(rig.store);
}

/* The same for a put that hangs: it has the limit to end, then it is cancelled. */
static void a_hanging_put_is_cancelled(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, "store.host=inline");
    fby_seq_t *seq = rig_seq(&rig, 1, 65);
    rig_script(&rig, "put:*:hang");
    fby_put_release(rig.cache, rig_put(&rig, seq, 4, NULL));
    fby_seq_unref(seq);
    assert_true(fby_mem_await_hung(rig.store, 4, RIG_PATIENCE_NS));
    assert_int_equal(fby_cache_close(rig.cache, 3.0, NULL), 0); /* a tenth of the limit is left for the cancel */
    assert_int_equal(rig_threads(), threads_before);
    fby_store_mem.close(rig.store);
}

/* On the thread host it cannot be cancelled: close says what it left, and the late write does no harm. */
static void a_hanging_call_is_abandoned_and_said(void **state)
{
    (void)state;
    rig_t rig;
    fby_close_report_t report = {.size = sizeof(report)};
    RIG_OPEN(&rig, "store.host=thread");
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&rig, p32, 0, 32);
    rig_script(&rig, "get:*:hang");
    rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    fby_seq_unref(p32);
    assert_true(fby_mem_await_hung(rig.store, 8, RIG_PATIENCE_NS));
    assert_int_equal(fby_cache_close(rig.cache, 0.05, &report), FBY_E_ABANDONED);
    assert_int_equal(report.operations_abandoned, 2);
    assert_true(report.bytes_abandoned >= 8 * RIG_PAYLOAD);
    assert_int_equal(fby_cache_close(rig.cache, 0.05, &report), FBY_E_ABANDONED);
    fby_mem_release(rig.store);
    RIG_AWAIT(rig_threads() == threads_before);
    fby_store_mem.close(rig.store);
}

typedef struct closer {
    fby_cache_t *cache;
    int result;
} closer_t;

static void *close_it(void *arg)
{
    closer_t *closer = arg;
    closer->result = fby_cache_close(closer->cache, RIG_PATIENCE_S, NULL);
    return NULL;
}

static void closing_twice_and_from_many_threads_is_one_close(void **state)
{
    (void)state;
    rig_t rig;
    pthread_t threads[4];
    closer_t closers[4];
    RIG_OPEN(&rig, NULL);
    for (int i = 0; i < 4; i++) {
        closers[i] = (closer_t){rig.cache, -1};
        assert_int_equal(pthread_create(&threads[i], NULL, close_it, &closers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(closers[i].result, 0);
    }
    assert_int_equal(fby_cache_close(rig.cache, 0, NULL), 0);
    assert_int_equal(rig_threads(), threads_before);
    fby_store_mem.close(rig.store);
}

typedef struct waiter {
    rig_t *rig;
    fby_session_t session;
    fby_put_t put;
    int rc;
} waiter_t;

static void *wait_for_session(void *arg)
{
    waiter_t *waiter = arg;
    waiter->rc = fby_session_wait(waiter->rig->cache, waiter->session, -1, NULL);
    return NULL;
}

static void *wait_for_put(void *arg)
{
    waiter_t *waiter = arg;
    waiter->rc = fby_put_wait_store(waiter->rig->cache, waiter->put, -1, NULL, NULL);
    return NULL;
}

/* Whoever waits for ever is woken by a close from another thread. */
static void close_wakes_whoever_waits(void **state)
{
    (void)state;
    rig_t rig;
    pthread_t threads[2];
    RIG_OPEN(&rig, "store.host=inline");
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS), *other = rig_seq(&rig, 2, 65);
    rig_store_blocks(&rig, p32, 0, 32);
    rig_script(&rig, "get:*:hang;put:*:hang");
    waiter_t session = {.rig = &rig, .session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1)};
    waiter_t put = {.rig = &rig, .put = rig_put(&rig, other, 4, NULL)};
    assert_int_equal(pthread_create(&threads[0], NULL, wait_for_session, &session), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, wait_for_put, &put), 0);
    assert_true(fby_mem_await_hung(rig.store, 12, RIG_PATIENCE_NS));
    fby_seq_unref(p32);
    fby_seq_unref(other);
    assert_int_equal(fby_cache_close(rig.cache, 3.0, NULL), 0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    /* answered by the shutdown if it saw that in time, closed if it came too late to ask */
    assert_true(session.rc == 0 || session.rc == FBY_E_CLOSED);
    assert_true(put.rc == FBY_E_CLOSED || put.rc == 0);
    fby_store_mem.close(rig.store);
}

static void open_and_close_leave_nothing(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(fby_cache_close(rig.cache, 0, NULL), 0);
        rig_reopen(&rig, (const char *const[]){i % 2 == 0 ? "store.host=thread" : "store.host=inline", NULL});
    }
    rig_close(&rig);
    assert_int_equal(rig_threads(), threads_before);
}

static void a_wrong_limit_is_refused(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    assert_int_equal(fby_cache_close(rig.cache, -1, NULL), -EINVAL);
    assert_int_equal(fby_cache_close(rig.cache, __builtin_nan(""), NULL), -EINVAL);
    assert_int_equal(fby_cache_close(NULL, 0, NULL), -EINVAL);
    rig_close(&rig);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, remember_threads)
    const struct CMUnitTest tests[] = {
        TEST(an_idle_cache_closes_at_once),
        TEST(sessions_in_flight_are_answered_with_shutdown),
        TEST(a_hanging_read_is_cancelled),
        TEST(a_hanging_put_is_cancelled),
        TEST(a_hanging_call_is_abandoned_and_said),
        TEST(closing_twice_and_from_many_threads_is_one_close),
        TEST(close_wakes_whoever_waits),
        TEST(open_and_close_leave_nothing),
        TEST(a_wrong_limit_is_refused),
    };
    return cmocka_run_group_tests(tests, start_one_thread, NULL);
}
