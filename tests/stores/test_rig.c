/* Waiting, hanging, losing and closing in the blocking calls of a scripted store. */
#include "fixture.h"

#include <pthread.h>

#include "base/clock.h"
#include "stores/mem.h"
#include "stores/stores.h"

#define BYTES (4096 + 64)
#define LONG (30 * FBY_SECOND) /* no test waits that long unless it fails */

static const fby_store_driver_t *const mem = &fby_store_mem;
static fby_store_spec_t spec;
static fby_store_t *store;

static int setup(void **state)
{
    spec = fixture_spec(4096);
    store = fixture_open(mem, &spec, "name=rig", NULL);
    fixture_put(mem, store, &spec, 1);
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

/* A get of object 1 in a thread of its own. */
typedef struct reader {
    pthread_t thread;
    fby_store_t *store;
    fby_store_op_t op;
    uint8_t *buffer;
} reader_t;

static void *read_one(void *arg)
{
    reader_t *reader = arg;
    assert_int_equal(mem->get(reader->store, &reader->op, 1), 0);
    return NULL;
}

static void reader_start(reader_t *reader, fby_store_t *from)
{
    reader->store = from;
    reader->buffer = fixture_buffer(&spec, 1);
    reader->op = fixture_op(&spec, 1, 0, reader->buffer);
    assert_int_equal(pthread_create(&reader->thread, NULL, read_one, reader), 0);
}

static int64_t reader_end(reader_t *reader)
{
    assert_int_equal(pthread_join(reader->thread, NULL), 0);
    return reader->op.result;
}

static void a_delay_ends_no_sooner(void **state)
{
    script("get:*:delay(20)");
    uint64_t before = fby_clock_now(&fby_clock_monotonic);
    assert_int_equal(fixture_get(mem, store, &spec, 1), BYTES);
    assert_true(fby_clock_now(&fby_clock_monotonic) - before >= 20 * FBY_MS);
}

static void the_modelled_link_carries_bytes_one_after_the_other(void **state)
{
    script("bandwidth(416000);latency(5)"); /* an object takes 10 ms, its reply 5 more */
    uint64_t before = fby_clock_now(&fby_clock_monotonic);
    assert_int_equal(fixture_get(mem, store, &spec, 1), BYTES);
    assert_int_equal(fixture_get(mem, store, &spec, 1), BYTES);
    assert_true(fby_clock_now(&fby_clock_monotonic) - before >= 25 * FBY_MS);
}

static void a_hang_goes_on_when_it_is_released(void **state)
{
    reader_t reader;
    script("get:*:hang");
    reader_start(&reader, store);
    assert_true(fby_mem_await_hung(store, 1, LONG));
    assert_int_equal(fby_mem_outstanding(store), 1);
    assert_int_equal(reader.buffer[0], 0xEE); /* nothing is written before the release */
    fby_mem_release(store);
    assert_int_equal(reader_end(&reader), BYTES);
    assert_true(fixture_holds(&spec, 1, 0, reader.buffer));
    assert_int_equal(fby_rig_hung(store), 0);
    free(reader.buffer);
}

static void closing_ends_what_hangs_or_is_lost(void **state)
{
    static const char *const scripts[] = {"get:*:hang", "get:*:lost", "get:*:drop_reply", "get:*:delay(1000000)"};
    for (size_t i = 0; i < FBY_ARRAY_LEN(scripts); i++) {
        reader_t reader;
        fby_store_t *other = fixture_open(mem, &spec, "name=rig", NULL);
        uint64_t calls = fby_mem_calls(store, FBY_VERB_GET, NULL);
        script(scripts[i]);
        reader_start(&reader, other);
        assert_true(fby_mem_await_calls(store, FBY_VERB_GET, NULL, calls + 1, LONG));
        mem->close(other);
        assert_int_equal(reader_end(&reader), FBY_E_CONNECTION);
        assert_int_equal(fby_mem_outstanding(store), 0);
        free(reader.buffer);
    }
}

static void a_dropped_reply_did_happen(void **state)
{
    fby_store_t *other = fixture_open(mem, &spec, "name=rig", NULL);
    reader_t reader;
    script("get:*:drop_reply");
    reader_start(&reader, other);
    assert_true(fby_mem_await_calls(store, FBY_VERB_GET, NULL, 1, LONG));
    mem->close(other);
    assert_int_equal(reader_end(&reader), FBY_E_CONNECTION);
    free(reader.buffer);
}

static void waiting_for_an_event_is_bounded(void **state)
{
    assert_false(fby_mem_await_calls(store, FBY_VERB_GET, NULL, 1, FBY_MS));
    assert_false(fby_mem_await_hung(store, 1, FBY_MS));
    assert_true(fby_mem_await_calls(store, FBY_VERB_PUT, NULL, 1, FBY_MS));
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(a_delay_ends_no_sooner),
        STORY(the_modelled_link_carries_bytes_one_after_the_other),
        STORY(a_hang_goes_on_when_it_is_released),
        STORY(closing_ends_what_hangs_or_is_lost),
        STORY(a_dropped_reply_did_happen),
        STORY(waiting_for_an_event_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
