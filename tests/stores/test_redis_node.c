/* test_redis_node.c - how many connections a store has, and that callers share them. */
#include "redis_fake.h"
#include "redis_server.h"

#define DRIVER (&fby_store_redis)
#define BYTES (4096 + 64)

enum { THREADS = 8, ROUNDS = 50 };

static redis_server_t server;
static fby_store_spec_t spec;
static fby_store_t *store;

static void *read_often(void *arg)
{
    uintptr_t wrong = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        wrong += fixture_get(DRIVER, store, &spec, 1) != BYTES;
    }
    return (void *)wrong;
}

static void callers_beyond_the_limit_wait_for_their_turn(void **state)
{
    pthread_t threads[THREADS];
    char text[256];
    redis_server_ask(&server, "CONFIG RESETSTAT");
    store = fixture_open(DRIVER, &spec, redis_port(&server), "connections=2", NULL);
    fixture_put(DRIVER, store, &spec, 1);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_often, NULL), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    assert_int_equal(DRIVER->health(store, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "of 2 connections open"));
    const char *made = strstr(redis_server_text(&server, "INFO stats"), "total_connections_received:");
    assert_non_null(made);
    assert_in_range(strtol(strchr(made, ':') + 1, NULL, 10), 1, 4); /* ours: at most 2; two of the test */
    DRIVER->close(store);
}

static void one_caller_uses_one_connection_again_and_again(void **state)
{
    char text[256];
    store = fixture_open(DRIVER, &spec, redis_port(&server), NULL);
    for (uint64_t i = 0; i < 20; i++) {
        fixture_put(DRIVER, store, &spec, i);
    }
    assert_int_equal(DRIVER->health(store, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "1 of 16 connections open"));
    DRIVER->close(store);
}

static void *read_once(void *arg)
{
    *(int64_t *)arg = fixture_get(DRIVER, store, &spec, 1);
    return NULL;
}

static void a_caller_does_not_wait_for_ever_for_a_connection(void **state)
{
    const fake_step_t steps[] = {
        FAKE_TEXT(":0\r\n"),
        {.bytes = "", .length = 0, .stalls = true},
        {.bytes = "", .length = 0, .stalls = true},
        {.bytes = NULL},
    };
    fake_t fake;
    fake_start(&fake, steps);
    store = fixture_open(DRIVER, &spec, redis_port(&fake), "connections=1", "timeout_ms=200", NULL);
    pthread_t threads[2];
    int64_t results[2] = {0};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_once, &results[i]), 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(results[i], FBY_E_TIMEOUT);
    }
    DRIVER->close(store);
    fake_stop(&fake);
}

static int start(void **state)
{
    spec = fixture_spec(4096);
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
        cmocka_unit_test(callers_beyond_the_limit_wait_for_their_turn),
        cmocka_unit_test(one_caller_uses_one_connection_again_and_again),
        cmocka_unit_test(a_caller_does_not_wait_for_ever_for_a_connection),
    };
    redis_server_needed();
    return cmocka_run_group_tests(tests, start, stop);
}
