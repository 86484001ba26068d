/* The file store as its users see it, through both engines, with and without direct I/O. */
#include "fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "stores/file.h"
#include "stores/stores.h"

#define BYTES (4096 + 64)
#define BATCH 32

typedef struct mode {
    const char *io, *direct;
} mode_t_;

static const fby_store_driver_t *const driver = &fby_store_file;
static const fby_store_driver_t *file; /* through which the stories call it: itself, or its host */
static mode_t_ mode;
static fby_store_spec_t spec;
static fby_store_t *store;
static char *directory;

static fby_store_t *open_with(const char *extra)
{
    return fixture_open(driver, &spec, fixture_dir_option(directory), mode.io, mode.direct, "capacity=64MiB", extra,
                        NULL);
}

static int setup(void **state)
{
    mode = *(const mode_t_ *)*state;
    file = fixture_host(driver);
    spec = fixture_spec(4096);
    directory = fixture_directory();
    store = open_with(NULL);
    return 0;
}

static int teardown(void **state)
{
    file->close(store);
    fixture_remove_directory(directory);
    return 0;
}

static void reopen(void)
{
    file->close(store);
    store = open_with(NULL);
}

/* One batch through the engine of the mode: submitted and reaped, or a blocking call. */
static void run(bool write, fby_store_op_t *ops, uint32_t n)
{
    fby_store_caps_t caps;
    uint64_t tag = 0;
    file->capabilities(store, &caps);
    if (!caps.async) {
        assert_int_equal(write ? file->put(store, ops, n) : file->get(store, ops, n), 0);
        return;
    }
    assert_int_equal(file->submit(store, write, ops, n, 77), 0);
    assert_int_equal(file->reap(store, &tag, 1, -1), 1);
    assert_int_equal(tag, 77);
}

static void run_all(bool write, uint64_t objects)
{
    uint8_t *buffer = fixture_buffer(&spec, BATCH);
    for (uint64_t first = 0; first < objects; first += BATCH / 2) {
        fby_store_op_t ops[BATCH];
        for (uint32_t k = 0; k < BATCH; k++) { /* both groups of each object */
            uint8_t *slot = buffer + k * spec.slot_bytes[0];
            ops[k] = fixture_op(&spec, first + k / 2, k % 2, slot);
            if (write) {
                fixture_fill(&spec, first + k / 2, k % 2, slot);
            } else {
                memset(slot, 0xEE, spec.slot_bytes[0]);
            }
        }
        run(write, ops, BATCH);
        for (uint32_t k = 0; k < BATCH; k++) {
            assert_int_equal(ops[k].result, spec.object_bytes[k % 2]);
            assert_true(fixture_holds(&spec, first + k / 2, k % 2, ops[k].buffer));
        }
    }
    free(buffer);
}

static void thousands_of_objects_survive_a_restart(void **state)
{
    run_all(true, 1600);
    run_all(false, 1600);
    reopen();
    run_all(false, 1600);
    assert_int_equal(fixture_exists(file, store, 1599), 1);
    assert_int_equal(fixture_exists(file, store, 1600), 0);
}

static void every_key_has_a_result_of_its_own(void **state)
{
    uint8_t *buffer = fixture_buffer(&spec, 6);
    uint8_t *slot[6];
    for (uint32_t i = 0; i < 6; i++) {
        slot[i] = buffer + i * spec.slot_bytes[0];
    }
    assert_int_equal(fixture_put(file, store, &spec, 1), BYTES);
    fby_store_op_t ops[6] = {
        fixture_op(&spec, 1, 0, slot[0]), fixture_op(&spec, 2, 0, slot[1]), fixture_op(&spec, 1, 0, slot[2]),
        fixture_op(&spec, 1, 0, slot[3]), fixture_op(&spec, 1, 0, slot[4]), fixture_op(&spec, 1, 1, slot[5]),
    };
    ops[3].bytes = 4096;
    ops[4].key[3] = 'G';
    ops[5].group = 0;
    run(false, ops, 6);
    assert_int_equal(ops[0].result, BYTES);
    assert_int_equal(ops[1].result, FBY_E_MISSING);
    assert_int_equal(ops[2].result, BYTES); /* the same key twice fills both buffers */
    assert_int_equal(ops[3].result, FBY_E_SIZE);
    assert_int_equal(ops[4].result, FBY_E_INVALID);
    assert_int_equal(ops[5].result, FBY_E_INVALID);
    assert_true(fixture_holds(&spec, 1, 0, slot[0]));
    assert_true(fixture_holds(&spec, 1, 0, slot[2]));
    for (uint32_t i = 1; i < 6; i += i == 1 ? 2 : 1) {
        assert_int_equal(slot[i][0], 0xEE);
    }
    free(buffer);
}

static void the_first_to_write_a_key_wins(void **state)
{
    uint8_t *buffer = fixture_buffer(&spec, 1);
    fixture_fill(&spec, 1, 0, buffer);
    fby_store_op_t ops[2] = {fixture_op(&spec, 1, 0, buffer), fixture_op(&spec, 1, 0, buffer)};
    run(true, ops, 2);
    assert_int_equal(ops[0].result, BYTES);
    assert_true(ops[1].result == FBY_E_EXISTS || ops[1].result == FBY_E_NOT_READY); /* the first may be under way */
    run(true, ops, 1);
    assert_int_equal(ops[0].result, FBY_E_EXISTS);
    assert_int_equal(fixture_get(file, store, &spec, 1), BYTES);
    free(buffer);
}

/* What could not be found again after a restart is not taken. */
static void only_sealed_objects_of_the_right_key_and_length_are_taken(void **state)
{
    uint8_t *buffer = fixture_buffer(&spec, 1);
    fixture_fill(&spec, 1, 0, buffer);
    fby_store_op_t op = fixture_op(&spec, 2, 0, buffer);
    run(true, &op, 1);
    assert_int_equal(op.result, FBY_E_INVALID);
    op = fixture_op(&spec, 1, 0, buffer);
    op.bytes = 4096;
    run(true, &op, 1);
    assert_int_equal(op.result, FBY_E_INVALID);
    memset(buffer, 0, spec.slot_bytes[0]);
    op = fixture_op(&spec, 1, 0, buffer);
    run(true, &op, 1);
    assert_int_equal(op.result, FBY_E_INVALID);
    assert_int_equal(fixture_exists(file, store, 1), 0);
    free(buffer);
}

static void buffers_of_any_alignment_work(void **state)
{
    uint8_t *buffer = fixture_buffer(&spec, 3);
    fixture_fill(&spec, 1, 0, buffer + 1);
    fby_store_op_t op = fixture_op(&spec, 1, 0, buffer + 1);
    run(true, &op, 1);
    assert_int_equal(op.result, BYTES);
    memset(buffer, 0xEE, spec.slot_bytes[0] * 3);
    op = fixture_op(&spec, 1, 0, buffer + 3);
    run(false, &op, 1);
    assert_int_equal(op.result, BYTES);
    assert_true(fixture_holds(&spec, 1, 0, buffer + 3));
    assert_int_equal(buffer[2], 0xEE);
    assert_int_equal(buffer[3 + BYTES], 0xEE); /* not a byte more than the object */
    free(buffer);
}

static void what_is_removed_stays_removed(void **state)
{
    fixture_put(file, store, &spec, 1);
    fixture_put(file, store, &spec, 2);
    assert_int_equal(fixture_remove(file, store, 1), 1);
    assert_int_equal(fixture_remove(file, store, 1), FBY_E_MISSING);
    assert_int_equal(fixture_get(file, store, &spec, 1), FBY_E_MISSING);
    reopen();
    assert_int_equal(fixture_exists(file, store, 1), 0);
    assert_int_equal(fixture_exists(file, store, 2), 1);
    assert_int_equal(fixture_put(file, store, &spec, 1), BYTES);
    assert_int_equal(fixture_get(file, store, &spec, 1), BYTES);
}

static void synced_writes_are_the_same_objects(void **state)
{
    file->close(store);
    store = open_with("sync=data");
    run_all(true, 16);
    reopen();
    run_all(false, 16);
}

/* ---- Eviction under readers ---- */

enum { HOT = 400, ROUNDS = 1500 };

static atomic_bool stop_reading;
static _Atomic uint64_t reader_hits;

static void *read_anything(void *arg)
{
    uint64_t random = (uint64_t)(uintptr_t)arg, *hits = malloc(sizeof(*hits));
    *hits = 0;
    while (!atomic_load(&stop_reading)) {
        int64_t result = fixture_get(file, store, &spec, unit_below(&random, HOT)); /* checks the bytes of a hit */
        if (result != BYTES && result != FBY_E_MISSING && result != FBY_E_NOT_READY) {
            fail_msg("a get gave %lld", (long long)result);
        }
        *hits += result == BYTES;
        atomic_fetch_add(&reader_hits, result == BYTES);
    }
    return hits;
}

static void readers_get_their_own_bytes_or_none_while_slots_are_reused(void **state)
{
    pthread_t readers[2];
    uint64_t random = 5, hits = 0;
    file->close(store);
    store = fixture_open(driver, &spec, fixture_dir_option(directory), mode.io, mode.direct, "capacity=400KiB", NULL);
    atomic_store(&stop_reading, false);
    atomic_store(&reader_hits, 0);
    for (uintptr_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&readers[i], NULL, read_anything, (void *)(i + 1)), 0);
    }
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t object = unit_below(&random, HOT);
        int64_t result = fixture_put(file, store, &spec, object);
        assert_true(result == BYTES || result == FBY_E_EXISTS);
        if (i % 16 == 0) {
            result = fixture_remove(file, store, unit_below(&random, HOT));
            assert_true(result == 1 || result == FBY_E_MISSING);
        }
    }
    while (atomic_load(&reader_hits) == 0) {
        (void)fixture_put(file, store, &spec, unit_below(&random, HOT)); /* readers that got no time yet get it now */
        sched_yield();
    }
    atomic_store(&stop_reading, true);
    for (int i = 0; i < 2; i++) {
        void *seen;
        assert_int_equal(pthread_join(readers[i], &seen), 0);
        hits += *(uint64_t *)seen;
        free(seen);
    }
    assert_true(hits > 0);
}

static void capabilities_say_what_the_mode_can_do(void **state)
{
    fby_store_caps_t caps;
    fixture_needs_process();
    file->capabilities(store, &caps);
    assert_int_equal(caps.async, ((fby_file_t *)store)->uring != NULL);
    assert_int_equal(caps.cancellable, caps.async);
    assert_int_equal(caps.zero_copy, ((fby_file_t *)store)->dirs[0].direct);
    assert_true(caps.persistent && caps.read_after_write && !caps.overwrite && !caps.needs_isolation);
    assert_int_equal(caps.max_batch, 256);
    if (strcmp(mode.io, "io=sync") == 0) {
        assert_false(caps.async);
    }
    if (strcmp(mode.direct, "direct=off") == 0) {
        assert_false(caps.zero_copy);
    }
}

static const mode_t_ modes[] = {
    {"io=sync", "direct=off"}, {"io=sync", "direct=auto"}, {"io=auto", "direct=off"}, {"io=auto", "direct=auto"}};

#define STORY(name, at)                                                                                                \
    {                                                                                                                  \
#name "[" #at "]", name, setup, teardown, (void *)(uintptr_t)&modes[at]                                        \
    }
#define STORIES(at)                                                                                                    \
    STORY(thousands_of_objects_survive_a_restart, at), STORY(every_key_has_a_result_of_its_own, at),                   \
        STORY(the_first_to_write_a_key_wins, at),                                                                      \
        STORY(only_sealed_objects_of_the_right_key_and_length_are_taken, at),                                          \
        STORY(buffers_of_any_alignment_work, at), STORY(what_is_removed_stays_removed, at),                            \
        STORY(synced_writes_are_the_same_objects, at),                                                                 \
        STORY(readers_get_their_own_bytes_or_none_while_slots_are_reused, at),                                         \
        STORY(capabilities_say_what_the_mode_can_do, at)

/* ---- Options ---- */

static void options_that_contradict_or_are_wrong_are_refused(void **state)
{
    fby_store_spec_t one = fixture_spec(4096);
    char *path = fixture_directory();
    const char *dir = fixture_dir_option(path);
    fixture_refused(driver, &one, FBY_E_CONFIG, "exactly one of the options dir=", NULL);
    fixture_refused(driver, &one, FBY_E_CONFIG, "exactly one of the options dir=", dir, "dirs=/a:/b", NULL);
    fixture_refused(driver, &one, FBY_E_CONFIG, "option dirs is '/a::/b'", "dirs=/a::/b", "readonly=1", NULL);
    fixture_refused(driver, &one, FBY_E_CONFIG, "option io is 'fast'; accepted: auto, uring, sync", dir, "io=fast",
                    NULL);
    fixture_refused(driver, &one, FBY_E_CONFIG, "option sync is 'all'; accepted: none, data", dir, "sync=all", NULL);
    fixture_refused(driver, &one, FBY_E_CONFIG, "option capacity is '0'", dir, "capacity=0", NULL);
    fixture_refused(driver, &one, FBY_E_CONFIG, "option capacity is '4KiB'; accepted: at least", dir, "capacity=4KiB",
                    NULL);
    fixture_refused(driver, &one, FBY_E_CONFIG, "option queue_depth is '0'", dir, "queue_depth=0", NULL);
    fixture_refused(driver, &one, FBY_E_CONFIG, "'cap=1' is not an option", dir, "cap=1", NULL);
    fixture_remove_directory(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {STORIES(0), STORIES(1), STORIES(2), STORIES(3),
                                       cmocka_unit_test(options_that_contradict_or_are_wrong_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
