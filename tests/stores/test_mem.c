#include "fixture.h"

#include "stores/mem.h"
#include "stores/stores.h"

#define BYTES (4096 + 64)

static fby_store_spec_t spec;
static fby_store_t *store;
static const fby_store_driver_t *mem; /* through which the stories call it: itself, or its host */

static int setup(void **state)
{
    mem = fixture_host(&fby_store_mem);
    spec = fixture_spec(4096);
    store = fixture_open(&fby_store_mem, &spec, NULL);
    return 0;
}

static int teardown(void **state)
{
    mem->close(store);
    return 0;
}

static void reopen(const char *option)
{
    mem->close(store);
    store = fixture_open(&fby_store_mem, &spec, option, NULL);
}

static void what_is_put_is_found_and_read(void **state)
{
    assert_int_equal(fixture_exists(&fby_store_mem, store, 1), 0);
    assert_int_equal(fixture_get(&fby_store_mem, store, &spec, 1), FBY_E_MISSING);
    assert_int_equal(fixture_put(&fby_store_mem, store, &spec, 1), BYTES);
    assert_int_equal(fixture_exists(&fby_store_mem, store, 1), 1);
    assert_int_equal(fixture_get(&fby_store_mem, store, &spec, 1), BYTES);
    assert_int_equal(fixture_remove(&fby_store_mem, store, 1), 1);
    assert_int_equal(fixture_remove(&fby_store_mem, store, 1), FBY_E_MISSING);
    assert_int_equal(fixture_get(&fby_store_mem, store, &spec, 1), FBY_E_MISSING);
}

static void another_length_is_an_error_of_its_own(void **state)
{
    char key[FBY_KEY_BYTES];
    fixture_needs_process();
    fixture_key(1, 0, key);
    assert_int_equal(fby_mem_put(store, key, "short", 5), 0);
    assert_int_equal(fixture_get(&fby_store_mem, store, &spec, 1), FBY_E_SIZE);
}

static void each_key_of_a_batch_has_its_own_result_duplicates_too(void **state)
{
    uint8_t *buffer = fixture_buffer(&spec, 3);
    fixture_put(&fby_store_mem, store, &spec, 1);
    fby_store_op_t ops[] = {
        fixture_op(&spec, 1, 0, buffer),
        fixture_op(&spec, 2, 0, buffer + spec.slot_bytes[0]),
        fixture_op(&spec, 1, 0, buffer + spec.slot_bytes[0] * 2),
    };
    assert_int_equal(mem->get(store, ops, 3), 0);
    assert_int_equal(ops[0].result, BYTES);
    assert_int_equal(ops[1].result, FBY_E_MISSING);
    assert_int_equal(ops[2].result, BYTES);
    assert_true(fixture_holds(&spec, 1, 0, buffer));
    assert_true(fixture_holds(&spec, 1, 0, buffer + spec.slot_bytes[0] * 2));
    free(buffer);
}

static void a_named_store_outlives_a_handle_while_another_is_open(void **state)
{
    fixture_needs_process();
    fby_store_t *first = fixture_open(&fby_store_mem, &spec, "name=shared", NULL);
    fby_store_t *second = fixture_open(&fby_store_mem, &spec, "name=shared", NULL);
    fixture_put(&fby_store_mem, first, &spec, 1);
    mem->close(first);
    assert_int_equal(fixture_get(&fby_store_mem, second, &spec, 1), BYTES);
    assert_int_equal(fby_mem_calls(second, FBY_VERB_PUT, NULL), 1);
    assert_int_equal(fixture_exists(&fby_store_mem, store, 1), 0);
    mem->close(second);
    second = fixture_open(&fby_store_mem, &spec, "name=shared", NULL);
    assert_int_equal(fixture_exists(&fby_store_mem, second, 1), 0);
    mem->close(second);
}

static void calls_are_counted_per_key_and_operation(void **state)
{
    char one[FBY_KEY_BYTES], two[FBY_KEY_BYTES];
    fixture_needs_process();
    fixture_key(1, 0, one);
    fixture_key(2, 0, two);
    fixture_put(&fby_store_mem, store, &spec, 1);
    fixture_get(&fby_store_mem, store, &spec, 1);
    fixture_get(&fby_store_mem, store, &spec, 1);
    fixture_get(&fby_store_mem, store, &spec, 2);
    assert_int_equal(fby_mem_calls(store, FBY_VERB_GET, one), 2);
    assert_int_equal(fby_mem_calls(store, FBY_VERB_GET, two), 1);
    assert_int_equal(fby_mem_calls(store, FBY_VERB_PUT, one), 1);
    assert_int_equal(fby_mem_calls(store, FBY_VERB_EXISTS, one), 0);
    assert_int_equal(fby_mem_calls(store, FBY_VERB_GET, NULL), 3);
    assert_int_equal(fby_mem_batches(store, FBY_VERB_GET), 3);
    assert_int_equal(fby_mem_outstanding(store), 0);
}

static void a_test_can_act_behind_the_stores_back(void **state)
{
    uint8_t bytes[BYTES];
    char key[FBY_KEY_BYTES];
    fixture_needs_process();
    fixture_key(1, 0, key);
    fixture_put(&fby_store_mem, store, &spec, 1);
    assert_int_equal(fby_mem_read(store, key, bytes, sizeof(bytes)), BYTES);
    assert_true(fixture_holds(&spec, 1, 0, bytes));
    assert_int_equal(fby_mem_corrupt(store, key, 3), 0);
    assert_int_equal(fby_mem_read(store, key, bytes, sizeof(bytes)), BYTES);
    bytes[0] ^= 8;
    assert_true(fixture_holds(&spec, 1, 0, bytes));
    assert_int_equal(fby_mem_remove(store, key), 0);
    assert_int_equal(fby_mem_objects(store), 0);
    assert_int_equal(fby_mem_remove(store, key), FBY_E_MISSING);
    assert_int_equal(fby_mem_corrupt(store, key, 3), FBY_E_MISSING);
    assert_int_equal(fby_mem_calls(store, FBY_VERB_GET, NULL), 0);
}

static void first_wins_when_overwriting_is_off(void **state)
{
    assert_int_equal(fixture_put(&fby_store_mem, store, &spec, 1), BYTES);
    assert_int_equal(fixture_put(&fby_store_mem, store, &spec, 1), BYTES);
    reopen("overwrite=0");
    assert_int_equal(fixture_put(&fby_store_mem, store, &spec, 1), BYTES);
    assert_int_equal(fixture_put(&fby_store_mem, store, &spec, 1), FBY_E_EXISTS);
}

static void a_full_store_says_so(void **state)
{
    reopen("capacity=10000");
    assert_int_equal(fixture_put(&fby_store_mem, store, &spec, 1), BYTES);
    assert_int_equal(fixture_put(&fby_store_mem, store, &spec, 2), BYTES);
    assert_int_equal(fixture_put(&fby_store_mem, store, &spec, 3), FBY_E_FULL);
    assert_int_equal(fixture_put(&fby_store_mem, store, &spec, 2), BYTES);
}

static void capabilities_follow_the_options(void **state)
{
    fby_store_caps_t caps;
    fixture_needs_process();
    mem->capabilities(store, &caps);
    assert_true(caps.async && caps.cancellable && caps.read_after_write && caps.overwrite && !caps.persistent);
    assert_int_equal(caps.probe_lease_ns, 0);
    mem->close(store);
    store = fixture_open(&fby_store_mem, &spec, "async=0", "max_batch=8", "max_concurrency=2",
                         "script=exists:*:lease(50)", NULL);
    mem->capabilities(store, &caps);
    assert_false(caps.async || caps.cancellable);
    assert_int_equal(caps.max_batch, 8);
    assert_int_equal(caps.max_concurrency, 2);
    assert_int_equal(caps.probe_lease_ns, 50000000);
}

static void wrong_options_are_refused(void **state)
{
    fixture_refused(&fby_store_mem, &spec, FBY_E_CONFIG, "'nome=x'", "nome=x", NULL);
    fixture_refused(&fby_store_mem, &spec, FBY_E_CONFIG, "option capacity is 'lots'", "capacity=lots", NULL);
    fixture_refused(&fby_store_mem, &spec, FBY_E_CONFIG, "option script: script item 'get:*:nope'", "script=get:*:nope",
                    NULL);
}

static int count_visit(void *arg, const char *key, uint32_t bytes, const void *trailer)
{
    assert_int_equal(bytes, BYTES);
    assert_memory_equal(trailer, "FBY1", 4);
    assert_int_equal(fixture_exists(&fby_store_mem, store, 1), 1); /* the store may be called meanwhile */
    return ++*(int *)arg == 3;
}

static void a_visit_sees_objects_and_may_end_early(void **state)
{
    int seen = 0;
    fixture_needs_process();
    for (uint64_t i = 0; i < 5; i++) {
        fixture_put(&fby_store_mem, store, &spec, i);
    }
    assert_int_equal(mem->visit(store, count_visit, &seen), 1);
    assert_int_equal(seen, 3);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(what_is_put_is_found_and_read),
        STORY(another_length_is_an_error_of_its_own),
        STORY(each_key_of_a_batch_has_its_own_result_duplicates_too),
        STORY(a_named_store_outlives_a_handle_while_another_is_open),
        STORY(calls_are_counted_per_key_and_operation),
        STORY(a_test_can_act_behind_the_stores_back),
        STORY(first_wins_when_overwriting_is_off),
        STORY(a_full_store_says_so),
        STORY(capabilities_follow_the_options),
        STORY(wrong_options_are_refused),
        STORY(a_visit_sees_objects_and_may_end_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
