/* test_redis.c - the driver against a real server: what every store has to do, and what this one promises. */
#include "redis_server.h"

#include <pthread.h>

#define DRIVER (&fby_store_redis)
#define BYTES (4096 + 64)

static redis_server_t server;
static fby_store_spec_t spec;
static fby_store_t *store;

static int setup(void **state)
{
    spec = fixture_spec(4096);
    redis_server_ask(&server, "FLUSHALL");
    store = fixture_open(DRIVER, &spec, redis_port(&server), NULL);
    return 0;
}

static int teardown(void **state)
{
    fixture_host(DRIVER)->close(store);
    return 0;
}

static void what_is_put_is_found_and_read(void **state)
{
    assert_int_equal(fixture_exists(DRIVER, store, 1), 0);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_MISSING);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    assert_int_equal(fixture_exists(DRIVER, store, 1), 1);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), BYTES);
    assert_int_equal(fixture_remove(DRIVER, store, 1), 1);
    assert_int_equal(fixture_remove(DRIVER, store, 1), FBY_E_MISSING);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_MISSING);
}

static void the_value_in_the_server_is_the_object_as_it_is(void **state)
{
    char key[FBY_KEY_BYTES];
    fixture_key(1, 0, key);
    fixture_put(DRIVER, store, &spec, 1);
    assert_int_equal(redis_server_ask(&server, "STRLEN fby:%s", key), BYTES);
    assert_int_equal(redis_server_ask(&server, "TTL fby:%s", key), -1);
    assert_int_equal(redis_server_ask(&server, "DBSIZE"), 1);
}

static void the_first_put_wins(void **state)
{
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), FBY_E_EXISTS);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), BYTES);
}

static void another_length_is_an_error_and_nothing_is_written_beyond(void **state)
{
    uint8_t long_value[BYTES + 100], *buffer = fixture_buffer(&spec, 2);
    memset(long_value, 0x55, sizeof(long_value));
    redis_server_set(&server, 1, long_value, sizeof(long_value));
    redis_server_set(&server, 2, "short", 5);
    fixture_put(DRIVER, store, &spec, 3);
    fby_store_op_t ops[] = {
        fixture_op(&spec, 1, 0, buffer),
        fixture_op(&spec, 2, 0, buffer),
        fixture_op(&spec, 3, 0, buffer + spec.slot_bytes[0]),
    };
    assert_int_equal(fixture_host(DRIVER)->get(store, ops, 3), 0);
    assert_int_equal(ops[0].result, FBY_E_SIZE);
    assert_int_equal(ops[1].result, FBY_E_SIZE);
    assert_int_equal(ops[2].result, BYTES); /* the connection is still in step */
    assert_true(fixture_holds(&spec, 3, 0, buffer + spec.slot_bytes[0]));
    for (uint32_t i = 0; i < spec.slot_bytes[0]; i++) {
        assert_int_equal(buffer[i], 0xEE);
    }
    assert_int_equal(fixture_exists(DRIVER, store, 2), 1); /* so that a read finds out, and it is repaired */
    free(buffer);
}

static void each_key_of_a_batch_has_its_own_result_duplicates_too(void **state)
{
    uint8_t *buffer = fixture_buffer(&spec, 4);
    fixture_put(DRIVER, store, &spec, 1);
    fby_store_op_t ops[] = {
        fixture_op(&spec, 1, 0, buffer),
        fixture_op(&spec, 2, 0, buffer + spec.slot_bytes[0]),
        fixture_op(&spec, 1, 0, buffer + spec.slot_bytes[0] * 2),
        fixture_op(&spec, 1, 1, buffer + spec.slot_bytes[0] * 3),
    };
    assert_int_equal(fixture_host(DRIVER)->get(store, ops, 4), 0);
    assert_int_equal(ops[0].result, BYTES);
    assert_int_equal(ops[1].result, FBY_E_MISSING);
    assert_int_equal(ops[2].result, BYTES);
    assert_int_equal(ops[3].result, FBY_E_MISSING);
    assert_true(fixture_holds(&spec, 1, 0, buffer));
    assert_true(fixture_holds(&spec, 1, 0, buffer + spec.slot_bytes[0] * 2));
    fixture_fill(&spec, 5, 0, buffer);
    ops[0] = ops[1] = fixture_op(&spec, 5, 0, buffer);
    assert_int_equal(fixture_host(DRIVER)->put(store, ops, 2), 0);
    assert_int_equal(ops[0].result, BYTES);
    assert_int_equal(ops[1].result, FBY_E_EXISTS);
    free(buffer);
}

enum { MANY = 1000 };

/* The ops of objects first .. first + n, one slot each. */
static fby_store_op_t *many_ops(uint32_t first, uint32_t n, uint8_t *buffer)
{
    fby_store_op_t *ops = calloc(n, sizeof(*ops));
    assert_non_null(ops);
    for (uint32_t i = 0; i < n; i++) {
        ops[i] = fixture_op(&spec, first + i, 0, buffer + (size_t)i * spec.slot_bytes[0]);
    }
    return ops;
}

static void a_thousand_keys_go_in_one_call(void **state)
{
    uint8_t *buffer = fixture_buffer(&spec, MANY);
    fby_store_op_t *ops = many_ops(0, MANY, buffer);
    for (uint32_t i = 0; i < MANY; i++) {
        fixture_fill(&spec, i, 0, ops[i].buffer);
    }
    assert_int_equal(fixture_host(DRIVER)->put(store, ops, MANY), 0);
    memset(buffer, 0xEE, (size_t)spec.slot_bytes[0] * MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(ops[i].result, BYTES);
    }
    assert_int_equal(fixture_host(DRIVER)->exists(store, ops, MANY), 0);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(ops[i].result, 1);
    }
    assert_int_equal(fixture_host(DRIVER)->get(store, ops, MANY), 0);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(ops[i].result, BYTES);
        assert_true(fixture_holds(&spec, i, 0, ops[i].buffer));
        assert_int_equal(((uint8_t *)ops[i].buffer)[BYTES], 0xEE);
    }
    free(ops);
    free(buffer);
}

static void large_objects_come_whole(void **state)
{
    const fby_store_spec_t large = fixture_spec(3 * 1024 * 1024 + 17);
    uint8_t *buffer = fixture_buffer(&large, 4);
    fby_store_op_t ops[4];
    fixture_host(DRIVER)->close(store);
    store = fixture_open(DRIVER, &large, redis_port(&server), NULL);
    for (uint32_t i = 0; i < 4; i++) {
        ops[i] = fixture_op(&large, i, 0, buffer + (size_t)i * large.slot_bytes[0]);
        fixture_fill(&large, i, 0, ops[i].buffer);
    }
    assert_int_equal(fixture_host(DRIVER)->put(store, ops, 4), 0);
    memset(buffer, 0xEE, (size_t)large.slot_bytes[0] * 4);
    assert_int_equal(fixture_host(DRIVER)->get(store, ops, 4), 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(ops[i].result, large.object_bytes[0]);
        assert_true(fixture_holds(&large, i, 0, ops[i].buffer));
        assert_int_equal(((uint8_t *)ops[i].buffer)[large.object_bytes[0]], 0xEE);
    }
    free(buffer);
}

enum { THREADS = 8, ROUNDS = 20, BATCH = 16 };

static void *use_from_a_thread(void *arg)
{
    uint32_t first = (uint32_t)(uintptr_t)arg * BATCH;
    uint8_t *buffer = fixture_buffer(&spec, BATCH);
    fby_store_op_t *ops = many_ops(first, BATCH, buffer);
    uintptr_t wrong = 0;
    for (uint32_t i = 0; i < BATCH; i++) {
        fixture_fill(&spec, first + i, 0, ops[i].buffer);
    }
    wrong += fixture_host(DRIVER)->put(store, ops, BATCH) != 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        memset(buffer, 0xEE, (size_t)spec.slot_bytes[0] * BATCH);
        wrong += fixture_host(DRIVER)->get(store, ops, BATCH) != 0;
        for (uint32_t i = 0; i < BATCH; i++) {
            wrong += ops[i].result != BYTES || !fixture_holds(&spec, first + i, 0, ops[i].buffer);
        }
    }
    free(ops);
    free(buffer);
    return (void *)wrong;
}

static void eight_threads_may_use_one_handle(void **state)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, use_from_a_thread, (void *)i), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

static void objects_end_when_a_life_is_given(void **state)
{
    char key[FBY_KEY_BYTES];
    fixture_key(1, 0, key);
    fixture_host(DRIVER)->close(store);
    store = fixture_open(DRIVER, &spec, redis_port(&server), "ttl_s=1000", "prefix=", NULL);
    fixture_put(DRIVER, store, &spec, 1);
    assert_in_range(redis_server_ask(&server, "TTL %s", key), 900, 1000);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), BYTES);
}

static void a_full_server_says_so_and_still_reads(void **state)
{
    fixture_put(DRIVER, store, &spec, 1);
    redis_server_ask(&server, "CONFIG SET maxmemory 1");
    assert_int_equal(fixture_put(DRIVER, store, &spec, 2), FBY_E_FULL);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), BYTES);
    redis_server_ask(&server, "CONFIG SET maxmemory 0");
    assert_int_equal(fixture_put(DRIVER, store, &spec, 2), BYTES);
}

static void what_is_evicted_after_the_probe_is_missing(void **state)
{
    fixture_put(DRIVER, store, &spec, 1);
    assert_int_equal(fixture_exists(DRIVER, store, 1), 1);
    redis_server_ask(&server, "CONFIG SET maxmemory-policy allkeys-lru");
    redis_server_ask(&server, "CONFIG SET maxmemory 1");
    redis_server_text(&server, "SET other value"); /* a write evicts */
    redis_server_ask(&server, "CONFIG SET maxmemory 0");
    redis_server_ask(&server, "CONFIG SET maxmemory-policy noeviction");
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_MISSING);
}

static void a_value_of_another_type_is_refused_not_read(void **state)
{
    char key[FBY_KEY_BYTES];
    fixture_key(1, 0, key);
    redis_server_ask(&server, "LPUSH fby:%s x", key);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_INVALID);
    assert_int_equal(fixture_exists(DRIVER, store, 1), FBY_E_INVALID);
    assert_int_equal(fixture_remove(DRIVER, store, 1), 1);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
}

static void it_says_what_it_can(void **state)
{
    fby_store_caps_t caps;
    char text[256] = "";
    fixture_needs_process();
    fixture_host(DRIVER)->capabilities(store, &caps);
    assert_true(caps.zero_copy && caps.persistent && caps.read_after_write);
    assert_false(caps.async || caps.cancellable || caps.overwrite || caps.needs_isolation || caps.one_process);
    assert_int_equal(caps.max_batch, 1024);
    assert_int_equal(caps.max_concurrency, 0);
    assert_int_equal(fixture_host(DRIVER)->register_region(store, text, sizeof(text)), 0);
    assert_int_equal(fixture_host(DRIVER)->unregister_region(store, text), 0);
    assert_int_equal(fixture_host(DRIVER)->get(store, NULL, 0), 0);
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
        STORY(what_is_put_is_found_and_read),
        STORY(the_value_in_the_server_is_the_object_as_it_is),
        STORY(the_first_put_wins),
        STORY(another_length_is_an_error_and_nothing_is_written_beyond),
        STORY(each_key_of_a_batch_has_its_own_result_duplicates_too),
        STORY(a_thousand_keys_go_in_one_call),
        STORY(large_objects_come_whole),
        STORY(eight_threads_may_use_one_handle),
        STORY(objects_end_when_a_life_is_given),
        STORY(a_full_server_says_so_and_still_reads),
        STORY(what_is_evicted_after_the_probe_is_missing),
        STORY(a_value_of_another_type_is_refused_not_read),
        STORY(it_says_what_it_can),
    };
    redis_server_needed();
    return cmocka_run_group_tests(tests, start, stop);
}
