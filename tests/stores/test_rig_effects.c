/* What each effect does to one key, through the blocking calls of a mem store. */
#include "fixture.h"

#include "stores/mem.h"
#include "stores/stores.h"

#define BYTES (4096 + 64)

static const fby_store_driver_t *const mem = &fby_store_mem;
static fby_store_spec_t spec;
static fby_store_t *store;

static int setup(void **state)
{
    spec = fixture_spec(4096);
    store = fixture_open(mem, &spec, NULL);
    fixture_put(mem, store, &spec, 1);
    fixture_put(mem, store, &spec, 2);
    return 0;
}

static int teardown(void **state)
{
    assert_int_equal(fby_mem_outstanding(store), 0);
    mem->close(store);
    return 0;
}

static void script(const char *text)
{
    char error[256] = "";
    if (fby_mem_script(store, text, error, sizeof(error)) != 0) {
        fail_msg("%s", error);
    }
}

/* Gets object 1 into a painted buffer that the caller frees. */
static int64_t get_one(uint8_t **buffer)
{
    *buffer = fixture_buffer(&spec, 1);
    fby_store_op_t op = fixture_op(&spec, 1, 0, *buffer);
    assert_int_equal(mem->get(store, &op, 1), 0);
    return op.result;
}

static void ok_and_no_rule_let_it_through(void **state)
{
    script("get:*:ok;get:*:miss");
    assert_int_equal(fixture_get(mem, store, &spec, 1), BYTES);
    script("put:*:miss");
    assert_int_equal(fixture_get(mem, store, &spec, 1), BYTES);
}

static void a_miss_is_absent_to_every_operation(void **state)
{
    script("*:*:miss");
    assert_int_equal(fixture_get(mem, store, &spec, 1), FBY_E_MISSING);
    assert_int_equal(fixture_exists(mem, store, 1), 0);
    assert_int_equal(fixture_remove(mem, store, 1), FBY_E_MISSING);
    script("");
    assert_int_equal(fixture_exists(mem, store, 1), 1);
}

static void errors_are_the_keys_own(void **state)
{
    uint8_t *buffer = fixture_buffer(&spec, 2);
    char text[128], key[FBY_KEY_BYTES];
    fixture_key(1, 0, key);
    snprintf(text, sizeof(text), "get:%s:err(CONNECTION)", key);
    script(text);
    fby_store_op_t ops[] = {fixture_op(&spec, 1, 0, buffer), fixture_op(&spec, 2, 0, buffer + spec.slot_bytes[0])};
    assert_int_equal(mem->get(store, ops, 2), 0);
    assert_int_equal(ops[0].result, FBY_E_CONNECTION);
    assert_int_equal(ops[1].result, BYTES);
    assert_int_equal(buffer[0], 0xEE);
    free(buffer);
}

static void a_refused_call_fails_as_a_whole_and_is_counted(void **state)
{
    uint8_t *buffer = fixture_buffer(&spec, 1);
    fby_store_op_t op = fixture_op(&spec, 1, 0, buffer);
    script("get:*:call=2:refuse(ENOMEM)");
    assert_int_equal(mem->get(store, &op, 1), 0);
    assert_int_equal(mem->get(store, &op, 1), -ENOMEM);
    assert_int_equal(mem->get(store, &op, 1), 0);
    assert_int_equal(fby_mem_calls(store, FBY_VERB_GET, op.key), 3);
    free(buffer);
}

static void a_short_read_leaves_the_rest_of_the_buffer(void **state)
{
    uint8_t *buffer;
    script("get:*:short(100)");
    assert_int_equal(get_one(&buffer), 100);
    assert_int_equal(buffer[100], 0xEE);
    assert_int_not_equal(buffer[99], 0xEE); /* object 1 holds another byte there */
    free(buffer);
}

static void a_short_write_keeps_nothing(void **state)
{
    script("put:*:short(100)");
    assert_int_equal(fixture_put(mem, store, &spec, 3), 100);
    assert_int_equal(fixture_exists(mem, store, 3), 0);
}

static void zero_reads_zeros_and_claims_to_have_written(void **state)
{
    uint8_t *buffer;
    script("*:*:zero");
    assert_int_equal(get_one(&buffer), BYTES);
    for (uint32_t i = 0; i < BYTES; i++) {
        assert_int_equal(buffer[i], 0);
    }
    free(buffer);
    assert_int_equal(fixture_put(mem, store, &spec, 3), BYTES);
    script("");
    assert_int_equal(fixture_exists(mem, store, 3), 0);
}

static void corrupt_flips_one_bit_on_the_way(void **state)
{
    uint8_t *buffer;
    script("get:*:corrupt(13)");
    assert_int_equal(get_one(&buffer), BYTES);
    buffer[1] ^= 32;
    assert_true(fixture_holds(&spec, 1, 0, buffer));
    free(buffer);
    script("");
    assert_int_equal(fixture_get(mem, store, &spec, 1), BYTES);
}

static void a_corrupt_write_leaves_its_source_alone(void **state)
{
    uint8_t *source = fixture_buffer(&spec, 1), *buffer;
    fby_store_op_t op = fixture_op(&spec, 1, 0, source);
    fixture_fill(&spec, 1, 0, source);
    script("put:*:corrupt(0)");
    assert_int_equal(mem->put(store, &op, 1), 0);
    assert_int_equal(op.result, BYTES);
    assert_true(fixture_holds(&spec, 1, 0, source));
    assert_int_equal(get_one(&buffer), BYTES);
    assert_false(fixture_holds(&spec, 1, 0, buffer));
    buffer[0] ^= 1;
    assert_true(fixture_holds(&spec, 1, 0, buffer));
    free(buffer);
    free(source);
}

static void processing_exists_but_can_neither_be_read_nor_written(void **state)
{
    script("*:*:processing");
    assert_int_equal(fixture_exists(mem, store, 1), 1);
    assert_int_equal(fixture_get(mem, store, &spec, 1), FBY_E_NOT_READY);
    assert_int_equal(fixture_put(mem, store, &spec, 1), FBY_E_NOT_READY);
    script("*:*:not_ready");
    assert_int_equal(fixture_exists(mem, store, 1), FBY_E_NOT_READY);
}

static void a_lease_that_ended_before_the_read_did_is_an_error(void **state)
{
    uint8_t *buffer;
    script("exists:*:lease(1);get:*:delay(20)");
    assert_int_equal(fixture_exists(mem, store, 1), 1);
    assert_int_equal(get_one(&buffer), FBY_E_LEASE);
    assert_false(fixture_holds(&spec, 1, 0, buffer));
    free(buffer);
    assert_int_equal(fixture_get(mem, store, &spec, 2), BYTES); /* was never leased */
}

static void a_lease_that_holds_is_no_trouble(void **state)
{
    script("exists:*:lease(60000);get:*:delay(1)");
    assert_int_equal(fixture_exists(mem, store, 1), 1);
    assert_int_equal(fixture_get(mem, store, &spec, 1), BYTES);
}

static void a_silent_lease_gives_junk_as_if_it_were_good(void **state)
{
    uint8_t *buffer;
    script("exists:*:lease_silent(1);get:*:delay(20)");
    assert_int_equal(fixture_exists(mem, store, 1), 1);
    assert_int_equal(get_one(&buffer), BYTES);
    assert_false(fixture_holds(&spec, 1, 0, buffer));
    free(buffer);
}

static void nth_counts_from_the_scripts_beginning(void **state)
{
    fixture_get(mem, store, &spec, 1);
    script("get:*:nth=2:err(TIMEOUT)");
    assert_int_equal(fixture_get(mem, store, &spec, 1), BYTES);
    assert_int_equal(fixture_get(mem, store, &spec, 2), BYTES);
    assert_int_equal(fixture_get(mem, store, &spec, 1), FBY_E_TIMEOUT);
    assert_int_equal(fixture_get(mem, store, &spec, 1), BYTES);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(ok_and_no_rule_let_it_through),
        STORY(a_miss_is_absent_to_every_operation),
        STORY(errors_are_the_keys_own),
        STORY(a_refused_call_fails_as_a_whole_and_is_counted),
        STORY(a_short_read_leaves_the_rest_of_the_buffer),
        STORY(a_short_write_keeps_nothing),
        STORY(zero_reads_zeros_and_claims_to_have_written),
        STORY(corrupt_flips_one_bit_on_the_way),
        STORY(a_corrupt_write_leaves_its_source_alone),
        STORY(processing_exists_but_can_neither_be_read_nor_written),
        STORY(a_lease_that_ended_before_the_read_did_is_an_error),
        STORY(a_lease_that_holds_is_no_trouble),
        STORY(a_silent_lease_gives_junk_as_if_it_were_good),
        STORY(nth_counts_from_the_scripts_beginning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
