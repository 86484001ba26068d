/* The asynchronous engine of the file store. */
#include "fixture.h"

#include <pthread.h>

#include "base/clock.h"
#include "stores/file.h"
#include "stores/stores.h"

#define BYTES (4096 + 64)
#define DEPTH 16

static const fby_store_driver_t *const file = &fby_store_file;
static fby_store_spec_t spec;
static fby_store_t *store;
static char *directory;
static uint8_t *buffer;
static fby_store_op_t ops[DEPTH];

static void open_store(void)
{
    store =
        fixture_open(file, &spec, fixture_dir_option(directory), "capacity=16MiB", "io=uring", "queue_depth=16", NULL);
}

static int setup(void **state)
{
    spec = fixture_spec(4096);
    directory = fixture_directory();
    buffer = fixture_buffer(&spec, DEPTH);
    open_store();
    for (uint64_t i = 0; i < DEPTH; i++) {
        assert_int_equal(fixture_put(file, store, &spec, i), BYTES);
        ops[i] = fixture_op(&spec, i, 0, buffer + i * spec.slot_bytes[0]);
    }
    return 0;
}

static int teardown(void **state)
{
    file->close(store);
    fixture_remove_directory(directory);
    free(buffer);
    return 0;
}

static void a_full_queue_starts_nothing(void **state)
{
    uint64_t tags[4];
    assert_int_equal(file->submit(store, 0, ops, DEPTH - 2, 1), 0);
    assert_int_equal(file->submit(store, 0, ops, 3, 2), -EAGAIN);
    assert_int_equal(file->submit(store, 0, ops, DEPTH + 1, 2), -EINVAL);
    assert_int_equal(file->reap(store, tags, 4, -1), 1);
    assert_int_equal(tags[0], 1);
    assert_int_equal(file->submit(store, 0, ops, 3, 2), 0);
    assert_int_equal(file->reap(store, tags, 4, -1), 1);
    assert_int_equal(tags[0], 2);
}

static void a_batch_without_any_io_completes_too(void **state)
{
    uint64_t tag;
    fby_store_op_t missing = fixture_op(&spec, 1000, 0, buffer);
    assert_int_equal(file->submit(store, 0, &missing, 1, 9), 0);
    assert_int_equal(file->reap(store, &tag, 1, -1), 1);
    assert_int_equal(tag, 9);
    assert_int_equal(missing.result, FBY_E_MISSING);
    assert_int_equal(file->submit(store, 0, NULL, 0, 10), 0);
    assert_int_equal(file->reap(store, &tag, 1, -1), 1);
    assert_int_equal(tag, 10);
}

static void more_tags_than_the_caller_takes_wait_for_the_next_call(void **state)
{
    uint64_t tag;
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(file->submit(store, 0, &ops[i], 1, i), 0);
    }
    uint64_t seen = 0;
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(file->reap(store, &tag, 1, -1), 1);
        seen |= UINT64_C(1) << tag;
    }
    assert_int_equal(seen, 15);
    assert_int_equal(file->reap(store, &tag, 1, 0), 0);
    assert_int_equal(file->reap(store, &tag, 1, (int64_t)FBY_MS), 0);
}

static void a_cancelled_batch_completes_exactly_once(void **state)
{
    uint64_t tag;
    for (int round = 0; round < 200; round++) {
        assert_int_equal(file->submit(store, 0, ops, DEPTH, 5), 0);
        int status = file->cancel(store, 5);
        assert_true(status == 0 || status == -ENOENT); /* it may have ended already */
        assert_int_equal(file->reap(store, &tag, 1, -1), 1);
        assert_int_equal(tag, 5);
        for (uint32_t i = 0; i < DEPTH; i++) {
            assert_true(ops[i].result == BYTES || ops[i].result == FBY_E_TIMEOUT);
        }
        assert_int_equal(file->reap(store, &tag, 1, 0), 0);
    }
    assert_int_equal(file->cancel(store, 5), -ENOENT);
}

static void a_cancelled_write_is_whole_or_absent(void **state)
{
    uint64_t tag;
    for (uint64_t round = 0; round < 100; round++) {
        for (uint64_t i = 0; i < DEPTH; i++) {
            uint64_t object = 100 + round * DEPTH + i;
            ops[i] = fixture_op(&spec, object, 0, buffer + i * spec.slot_bytes[0]);
            fixture_fill(&spec, object, 0, ops[i].buffer);
        }
        assert_int_equal(file->submit(store, 1, ops, DEPTH, 5), 0);
        file->cancel(store, 5);
        assert_int_equal(file->reap(store, &tag, 1, -1), 1);
        for (uint64_t i = 0; i < DEPTH; i++) {
            int64_t found = fixture_get(file, store, &spec, 100 + round * DEPTH + i);
            assert_int_equal(found, ops[i].result == BYTES ? BYTES : FBY_E_MISSING);
        }
    }
}

static void *wake_it(void *arg)
{
    file->wake(store);
    return arg;
}

static void wake_ends_a_reap_that_waits_and_one_that_is_yet_to_come(void **state)
{
    pthread_t thread;
    uint64_t tag;
    assert_int_equal(pthread_create(&thread, NULL, wake_it, NULL), 0);
    assert_int_equal(file->reap(store, &tag, 1, -1), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    file->wake(store);
    assert_int_equal(file->reap(store, &tag, 1, -1), 0);
}

static void *submit_and_leave(void *arg)
{
    assert_int_equal(file->submit(store, 0, ops, DEPTH, 3), 0);
    return arg;
}

static void a_batch_outlives_the_thread_that_submitted_it(void **state)
{
    pthread_t thread;
    uint64_t tag;
    for (int round = 0; round < 50; round++) {
        memset(buffer, 0xEE, spec.slot_bytes[0] * DEPTH);
        assert_int_equal(pthread_create(&thread, NULL, submit_and_leave, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(file->reap(store, &tag, 1, -1), 1);
        for (uint64_t i = 0; i < DEPTH; i++) {
            assert_int_equal(ops[i].result, BYTES);
            assert_true(fixture_holds(&spec, i, 0, ops[i].buffer));
        }
    }
}

static void close_waits_for_what_is_in_flight(void **state)
{
    for (int round = 0; round < 20; round++) {
        uint8_t *memory = fixture_buffer(&spec, DEPTH);
        for (uint64_t i = 0; i < DEPTH; i++) {
            ops[i] = fixture_op(&spec, i, 0, memory + i * spec.slot_bytes[0]);
        }
        assert_int_equal(file->submit(store, 0, ops, DEPTH, 1), 0);
        file->close(store);
        free(memory); /* nobody writes there any more */
        open_store();
    }
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static bool uring_is_refused(void)
{
    const char *path = fixture_dir_option(directory = fixture_directory()), *options[] = {path, "io=uring", NULL};
    char error[256];
    fby_store_t *probe;
    spec = fixture_spec(4096);
    bool refused = file->open(&spec, options, &probe, error, sizeof(error)) < 0;
    if (refused) {
        printf("skipped: %s\n", error);
    } else {
        file->close(probe);
    }
    fixture_remove_directory(directory);
    return refused;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(a_full_queue_starts_nothing),
        STORY(a_batch_without_any_io_completes_too),
        STORY(more_tags_than_the_caller_takes_wait_for_the_next_call),
        STORY(a_cancelled_batch_completes_exactly_once),
        STORY(a_cancelled_write_is_whole_or_absent),
        STORY(wake_ends_a_reap_that_waits_and_one_that_is_yet_to_come),
        STORY(a_batch_outlives_the_thread_that_submitted_it),
        STORY(close_waits_for_what_is_in_flight),
    };
    if (uring_is_refused()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
