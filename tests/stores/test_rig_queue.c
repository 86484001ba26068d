/* The asynchronous side of a scripted store: over mem (instant) and through fault over the io_uring file store. */
#include "fixture.h"

#include <pthread.h>

#include "base/clock.h"
#include "stores/mem.h"
#include "stores/stores.h"

#define BYTES (4096 + 64)
#define OBJECTS 8
#define LONG_NS ((int64_t)(30 * FBY_SECOND)) /* no test waits that long unless it fails */

static const fby_store_driver_t *driver;
static fby_store_spec_t spec;
static fby_store_t *store;
static char *directory;
static uint8_t *buffer;
static fby_store_op_t ops[OBJECTS];

static void open_store(const char *script)
{
    char option[512];
    snprintf(option, sizeof(option), "script=%s", script);
    store = driver == &fby_store_mem ? fixture_open(driver, &spec, "name=queue", option, NULL)
                                     : fixture_open(driver, &spec, "inner=file", fixture_dir_option(directory), option,
                                                    "capacity=16MiB", NULL);
}

static fby_store_t *keeper; /* keeps the named mem store alive while it is reopened */

static int setup(void **state)
{
    driver = *state;
    spec = fixture_spec(4096);
    directory = fixture_directory();
    buffer = fixture_buffer(&spec, OBJECTS);
    keeper = fixture_open(&fby_store_mem, &spec, "name=queue", NULL);
    open_store("");
    for (uint64_t i = 0; i < OBJECTS; i++) {
        assert_int_equal(fixture_put(driver, store, &spec, i), BYTES);
        ops[i] = fixture_op(&spec, i, 0, buffer + i * spec.slot_bytes[0]);
    }
    driver->close(store);
    return 0;
}

static int teardown(void **state)
{
    driver->close(store);
    fby_store_mem.close(keeper);
    fixture_remove_directory(directory);
    free(buffer);
    return 0;
}

static void expect_tags(uint32_t n, const uint64_t *expected)
{
    uint64_t tags[OBJECTS];
    uint32_t got = 0;
    while (got < n) {
        int now = driver->reap(store, tags + got, n - got, LONG_NS);
        assert_true(now > 0);
        got += (uint32_t)now;
    }
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(tags[i], expected[i]);
    }
}

static void nothing_more(void)
{
    uint64_t tag;
    assert_int_equal(driver->reap(store, &tag, 1, 0), 0);
}

static void a_batch_completes_once_with_its_bytes(void **state)
{
    open_store("latency(1)");
    assert_int_equal(driver->submit(store, 0, ops, OBJECTS, 42), 0);
    expect_tags(1, (uint64_t[]){42});
    for (uint64_t i = 0; i < OBJECTS; i++) {
        assert_int_equal(ops[i].result, BYTES);
        assert_true(fixture_holds(&spec, i, 0, ops[i].buffer));
    }
    nothing_more();
}

static void a_write_is_visible_when_it_completed(void **state)
{
    open_store("latency(1)");
    uint8_t *source = fixture_buffer(&spec, 1);
    fixture_fill(&spec, 100, 0, source);
    fby_store_op_t op = fixture_op(&spec, 100, 0, source);
    assert_int_equal(driver->submit(store, 1, &op, 1, 1), 0);
    expect_tags(1, (uint64_t[]){1});
    assert_int_equal(op.result, BYTES);
    assert_int_equal(fixture_get(driver, store, &spec, 100), BYTES);
    free(source);
}

static void the_shorter_delay_ends_first(void **state)
{
    open_store("get:*:nth=1:call=1:delay(60);get:*:delay(1)");
    assert_int_equal(driver->submit(store, 0, &ops[0], 1, 1), 0);
    assert_int_equal(driver->submit(store, 0, &ops[1], 1, 2), 0);
    expect_tags(2, (uint64_t[]){2, 1});
}

static void a_hang_completes_after_its_release(void **state)
{
    open_store("get:*:call=1:hang");
    assert_int_equal(driver->submit(store, 0, &ops[0], 1, 1), 0);
    assert_int_equal(driver->submit(store, 0, &ops[1], 1, 2), 0);
    expect_tags(1, (uint64_t[]){2});
    nothing_more();
    assert_int_equal(buffer[0], 0xEE);
    assert_int_equal(fby_mem_outstanding(store), 1);
    fby_mem_release(store);
    expect_tags(1, (uint64_t[]){1});
    assert_int_equal(ops[0].result, BYTES);
    assert_true(fixture_holds(&spec, 0, 0, buffer));
}

static void a_cancelled_hang_ends_and_writes_nothing(void **state)
{
    open_store("get:*:nth=1:hang");
    assert_int_equal(driver->submit(store, 0, ops, 2, 1), 0);
    nothing_more();
    assert_int_equal(driver->cancel(store, 1), 0);
    expect_tags(1, (uint64_t[]){1});
    assert_int_equal(ops[0].result, FBY_E_TIMEOUT);
    assert_int_equal(ops[1].result, FBY_E_TIMEOUT);
    fby_mem_release(store);
    nothing_more();
    assert_int_equal(buffer[0], 0xEE);
    assert_int_equal(driver->cancel(store, 1), -ENOENT);
}

static void keys_beside_a_cancelled_hang_keep_their_results(void **state)
{
    open_store("get:*:at=first:hang");
    assert_int_equal(driver->submit(store, 0, ops, 2, 1), 0);
    while (ops[1].result != BYTES) {
        uint64_t tag;
        assert_int_equal(driver->reap(store, &tag, 1, (int64_t)FBY_MS), 0);
    }
    assert_int_equal(driver->cancel(store, 1), 0);
    expect_tags(1, (uint64_t[]){1});
    assert_int_equal(ops[0].result, FBY_E_TIMEOUT);
    assert_int_equal(ops[1].result, BYTES);
}

static void lost_and_dropped_replies_end_only_by_cancel(void **state)
{
    open_store("get:*:call=1:lost;get:*:call=2:drop_reply");
    assert_int_equal(driver->submit(store, 0, &ops[0], 1, 1), 0);
    assert_int_equal(driver->submit(store, 0, &ops[1], 1, 2), 0);
    assert_int_equal(driver->submit(store, 0, &ops[2], 1, 3), 0);
    expect_tags(1, (uint64_t[]){3});
    fby_mem_release(store);
    nothing_more();
    assert_int_equal(driver->cancel(store, 2), 0);
    expect_tags(1, (uint64_t[]){2});
    assert_int_equal(ops[1].result, FBY_E_TIMEOUT);
    assert_int_equal(driver->cancel(store, 1), 0);
    expect_tags(1, (uint64_t[]){1});
}

static void a_delay_is_cancelled_before_its_end(void **state)
{
    open_store("get:*:delay(1000000)");
    assert_int_equal(driver->submit(store, 0, ops, OBJECTS, 5), 0);
    nothing_more();
    assert_int_equal(driver->cancel(store, 5), 0);
    expect_tags(1, (uint64_t[]){5});
    assert_int_equal(ops[0].result, FBY_E_TIMEOUT);
}

static void a_reordered_reply_waits_for_a_slower_one(void **state)
{
    open_store("get:*:call=1:delay(20);get:*:call=2:reorder");
    assert_int_equal(driver->submit(store, 0, &ops[0], 1, 1), 0);
    assert_int_equal(driver->submit(store, 0, &ops[1], 1, 2), 0);
    expect_tags(2, (uint64_t[]){1, 2});
}

static void a_duplicate_reply_is_reported_twice(void **state)
{
    open_store("get:*:duplicate_reply");
    assert_int_equal(driver->submit(store, 0, ops, 1, 9), 0);
    expect_tags(2, (uint64_t[]){9, 9});
    nothing_more();
}

static void a_refused_submit_starts_nothing(void **state)
{
    open_store("get:*:call=1:refuse(EAGAIN);get:*:call=2:refuse(EINVAL)");
    assert_int_equal(driver->submit(store, 0, ops, 1, 1), -EAGAIN);
    assert_int_equal(driver->submit(store, 0, ops, 1, 1), -EINVAL);
    assert_int_equal(fby_mem_outstanding(store), 0);
    assert_int_equal(driver->submit(store, 0, ops, 1, 1), 0);
    expect_tags(1, (uint64_t[]){1});
    assert_int_equal(fby_mem_calls(store, FBY_VERB_GET, ops[0].key), 3);
}

static void effects_apply_to_submitted_keys(void **state)
{
    open_store("get:*:at=first:corrupt(0);get:*:call=2:short(64);get:*:call=3:miss");
    assert_int_equal(driver->submit(store, 0, ops, 2, 1), 0);
    expect_tags(1, (uint64_t[]){1});
    buffer[0] ^= 1;
    assert_true(fixture_holds(&spec, 0, 0, buffer));
    assert_true(fixture_holds(&spec, 1, 0, ops[1].buffer));
    assert_int_equal(driver->submit(store, 0, &ops[1], 2, 2), 0);
    expect_tags(1, (uint64_t[]){2});
    assert_int_equal(ops[2].result, 64);
    assert_int_equal(driver->submit(store, 0, &ops[1], 2, 3), 0);
    expect_tags(1, (uint64_t[]){3});
    assert_int_equal(ops[2].result, FBY_E_MISSING);
}

static void *wake_it(void *arg)
{
    driver->wake(store);
    return arg;
}

static void wake_ends_a_reap_that_waits_and_one_that_is_yet_to_come(void **state)
{
    pthread_t thread;
    uint64_t tag;
    open_store("get:*:lost");
    assert_int_equal(driver->submit(store, 0, ops, 1, 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, wake_it, NULL), 0);
    assert_int_equal(driver->reap(store, &tag, 1, -1), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    driver->wake(store);
    assert_int_equal(driver->reap(store, &tag, 1, -1), 0);
}

static void close_with_batches_outstanding_leaves_their_buffers_alone(void **state)
{
    open_store("get:*:call=1:hang;get:*:call=2:delay(1000000)+short(5);get:*:call=3:lost;put:*:corrupt(1)");
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(driver->submit(store, 0, &ops[i], 1, i), 0);
    }
    nothing_more();
    driver->close(store);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(*(uint8_t *)ops[i].buffer, 0xEE);
    }
    open_store("");
}

/* A submitter and a reaper run together; every tag comes back once. */
enum { RACE_BATCHES = 2000 };

static void *submit_many(void *arg)
{
    static fby_store_op_t race_ops[RACE_BATCHES];
    uint8_t *memory = arg;
    for (uint64_t i = 0; i < RACE_BATCHES; i++) {
        race_ops[i] = fixture_op(&spec, i % OBJECTS, 0, memory + i % 64 * spec.slot_bytes[0]);
        int status;
        while ((status = driver->submit(store, 0, &race_ops[i], 1, i)) == -EAGAIN) {
            sched_yield();
        }
        assert_int_equal(status, 0);
        if (i % 7 == 0) {
            driver->cancel(store, i);
        }
    }
    return NULL;
}

static void submitting_and_reaping_race_without_loss(void **state)
{
    static uint8_t seen[RACE_BATCHES];
    pthread_t thread;
    uint8_t *memory = fixture_buffer(&spec, 64);
    memset(seen, 0, sizeof(seen));
    open_store("seed(3);get:*:p=0.3:delay(0.2);get:*:p=0.1:err(CONNECTION)");
    assert_int_equal(pthread_create(&thread, NULL, submit_many, memory), 0);
    for (uint32_t left = RACE_BATCHES; left > 0;) {
        uint64_t tags[16];
        int n = driver->reap(store, tags, 16, LONG_NS);
        assert_true(n > 0);
        for (int i = 0; i < n; i++) {
            assert_true(tags[i] < RACE_BATCHES);
            assert_int_equal(seen[tags[i]]++, 0);
        }
        left -= (uint32_t)n;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(fby_mem_outstanding(store), 0);
    free(memory);
}

#define STORY(name, over)                                                                                              \
    {                                                                                                                  \
#name " over " #over, name, setup, teardown, (void *)(uintptr_t)&fby_store_##over                              \
    }
#define STORIES(over)                                                                                                  \
    STORY(a_batch_completes_once_with_its_bytes, over), STORY(a_write_is_visible_when_it_completed, over),             \
        STORY(the_shorter_delay_ends_first, over), STORY(a_hang_completes_after_its_release, over),                    \
        STORY(a_cancelled_hang_ends_and_writes_nothing, over),                                                         \
        STORY(keys_beside_a_cancelled_hang_keep_their_results, over),                                                  \
        STORY(lost_and_dropped_replies_end_only_by_cancel, over), STORY(a_delay_is_cancelled_before_its_end, over),    \
        STORY(a_reordered_reply_waits_for_a_slower_one, over), STORY(a_duplicate_reply_is_reported_twice, over),       \
        STORY(a_refused_submit_starts_nothing, over), STORY(effects_apply_to_submitted_keys, over),                    \
        STORY(wake_ends_a_reap_that_waits_and_one_that_is_yet_to_come, over),                                          \
        STORY(close_with_batches_outstanding_leaves_their_buffers_alone, over),                                        \
        STORY(submitting_and_reaping_race_without_loss, over)

static bool file_is_async(void)
{
    fby_store_caps_t caps;
    spec = fixture_spec(4096);
    directory = fixture_directory();
    store = fixture_open(&fby_store_file, &spec, fixture_dir_option(directory), NULL);
    fby_store_file.capabilities(store, &caps);
    fby_store_file.close(store);
    fixture_remove_directory(directory);
    return caps.async;
}

int main(void)
{
    const struct CMUnitTest over_mem[] = {STORIES(mem)}, over_file[] = {STORIES(fault)};
    int failed = cmocka_run_group_tests(over_mem, NULL, NULL);
    if (!file_is_async()) {
        puts("skipped over file: the kernel refuses io_uring");
        return failed;
    }
    return failed + cmocka_run_group_tests(over_file, NULL, NULL);
}
