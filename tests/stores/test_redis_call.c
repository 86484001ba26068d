/* test_redis_call.c - servers that die, stop, come back and hang up, under a handle that stays open. */
#include "redis_server.h"

#include <pthread.h>
#include <signal.h>

#define DRIVER (&fby_store_redis)
#define BYTES (4096 + 64)

static redis_server_t server;
static fby_store_spec_t spec;
static fby_store_t *store;

static int setup(void **state)
{
    spec = fixture_spec(4096);
    redis_server_ask(&server, "FLUSHALL");
    store = fixture_open(DRIVER, &spec, redis_port(&server), "timeout_ms=400", "connect_timeout_ms=400", NULL);
    return 0;
}

static int teardown(void **state)
{
    DRIVER->close(store);
    return 0;
}

static void a_server_that_died_is_used_again_when_it_is_back(void **state)
{
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    redis_server_kill(&server);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_CONNECTION);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 2), FBY_E_CONNECTION);
    redis_server_again(&server);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_MISSING); /* it kept nothing */
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), BYTES);
}

static void a_restart_between_two_calls_is_not_noticed(void **state)
{
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    redis_server_kill(&server);
    redis_server_again(&server);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
}

static void a_hang_up_on_an_idle_connection_is_not_noticed(void **state)
{
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    redis_server_ask(&server, "CLIENT KILL TYPE normal SKIPME yes");
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), BYTES);
}

static void a_stopped_server_is_a_timeout_and_works_again_later(void **state)
{
    uint8_t *buffer = fixture_buffer(&spec, 3);
    fby_store_op_t ops[3];
    for (uint32_t i = 0; i < 3; i++) {
        ops[i] = fixture_op(&spec, i, 0, buffer + (size_t)i * spec.slot_bytes[0]);
        fixture_put(DRIVER, store, &spec, i);
    }
    redis_server_signal(&server, SIGSTOP);
    assert_int_equal(DRIVER->get(store, ops, 3), 0);
    memset(buffer, 0xAA, (size_t)spec.slot_bytes[0] * 3); /* the call is over: nothing writes here any more */
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(ops[i].result, FBY_E_TIMEOUT);
    }
    redis_server_signal(&server, SIGCONT);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), BYTES);
    for (uint32_t i = 0; i < spec.slot_bytes[0] * 3; i++) {
        assert_int_equal(buffer[i], 0xAA);
    }
    free(buffer);
}

enum { READERS = 4, BATCH = 64 };

static void *read_until_told(void *arg)
{
    const bool *stop = arg;
    uint8_t *buffer = fixture_buffer(&spec, BATCH);
    fby_store_op_t ops[BATCH];
    uintptr_t wrong = 0;
    while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
        for (uint32_t i = 0; i < BATCH; i++) {
            ops[i] = fixture_op(&spec, i, 0, buffer + (size_t)i * spec.slot_bytes[0]);
        }
        wrong += DRIVER->get(store, ops, BATCH) != 0;
        for (uint32_t i = 0; i < BATCH; i++) {
            int64_t result = ops[i].result;
            wrong += result == BYTES ? !fixture_holds(&spec, i, 0, ops[i].buffer)
                                     : result != FBY_E_CONNECTION && result != FBY_E_TIMEOUT && result != FBY_E_MISSING;
        }
    }
    free(buffer);
    return (void *)wrong;
}

static void no_byte_is_wrong_while_connections_are_cut_under_load(void **state)
{
    bool stop = false;
    pthread_t threads[READERS];
    for (uint32_t i = 0; i < BATCH; i++) {
        fixture_put(DRIVER, store, &spec, i);
    }
    for (uint32_t i = 0; i < READERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_until_told, &stop), 0);
    }
    for (uint32_t i = 0; i < 50; i++) {
        redis_server_ask(&server, "CLIENT KILL TYPE normal SKIPME yes");
    }
    redis_server_kill(&server);
    redis_server_again(&server);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < READERS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static int start(void **state)
{
    redis_server_start(&server, NULL);
    return 0;
}

static int stop(void **state)
{
    redis_server_stop(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(a_server_that_died_is_used_again_when_it_is_back),
        STORY(a_restart_between_two_calls_is_not_noticed),
        STORY(a_hang_up_on_an_idle_connection_is_not_noticed),
        STORY(a_stopped_server_is_a_timeout_and_works_again_later),
        STORY(no_byte_is_wrong_while_connections_are_cut_under_load),
    };
    redis_server_needed();
    return cmocka_run_group_tests(tests, start, stop);
}
