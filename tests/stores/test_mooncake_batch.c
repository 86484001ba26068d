/*
 * test_mooncake_batch.c - the C back end as a store, over the conformance double (mooncake_double.c, which is not
 * Mooncake). What ends a process is tried in a child.
 */
#include "mooncake_rig.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

enum { SLOT = RIG_SLOT };

/* ---- Calls ---- */

static void objects_come_back_as_they_were(void **state)
{
    fby_store_t *store = rig_open("env.MOONCAKE_DOUBLE_LEASE_MS=0");
    assert_int_equal(fixture_exists(rig_driver, store, 1), 0);
    assert_int_equal(fixture_get(rig_driver, store, &rig_spec, 1), FBY_E_MISSING);
    assert_int_equal(fixture_remove(rig_driver, store, 1), FBY_E_MISSING);
    assert_int_equal(fixture_put(rig_driver, store, &rig_spec, 1), 1024);
    assert_int_equal(fixture_exists(rig_driver, store, 1), 1);
    assert_int_equal(fixture_get(rig_driver, store, &rig_spec, 1), 1024);
    assert_int_equal(fixture_remove(rig_driver, store, 1), 1);
    assert_int_equal(fixture_exists(rig_driver, store, 1), 0);
    rig_driver->close(store);
}

static void the_first_put_wins_and_the_second_succeeds(void **state)
{
    uint8_t page[1024] = {0};
    fby_store_t *store = rig_open(NULL);
    assert_int_equal(fixture_put(rig_driver, store, &rig_spec, 1), 1024);
    fby_store_op_t other = fixture_op(&rig_spec, 1, 0, page);
    assert_int_equal(rig_driver->put(store, &other, 1), 0);
    assert_int_equal(other.result, 1024);
    assert_int_equal(fixture_get(rig_driver, store, &rig_spec, 1), 1024); /* and has the first's bytes */
    rig_driver->close(store);
}

static void another_length_is_an_error(void **state)
{
    uint8_t page[4096];
    fby_store_t *store = rig_open(NULL);
    assert_int_equal(fixture_put(rig_driver, store, &rig_spec, 1), 1024);
    fby_store_op_t op = fixture_op(&rig_spec, 1, 0, page);
    op.bytes = 4096;
    assert_int_equal(rig_driver->get(store, &op, 1), 0);
    assert_int_equal(op.result, FBY_E_SIZE);
    op.bytes = 1023;
    assert_int_equal(rig_driver->get(store, &op, 1), 0);
    assert_int_equal(op.result, FBY_E_SIZE); /* -600 of the interface */
    rig_driver->close(store);
}

/* A damaged object is known by reading it, and that is a lease: without force it could not be removed then. */
static void an_object_is_removed_in_spite_of_a_lease(void **state)
{
    char key[FBY_KEY_BYTES];
    fby_mooncake_abi_t abi;
    fby_store_t *store = rig_open("env.MOONCAKE_DOUBLE_LEASE_MS=60000");
    assert_int_equal(fixture_put(rig_driver, store, &rig_spec, 1), 1024);
    assert_int_equal(fixture_get(rig_driver, store, &rig_spec, 1), 1024);
    void *client = rig_bare_client(&abi);
    fixture_key(1, 0, key);
    assert_int_equal(abi.remove(client, key, 0), -706); /* the lease is there */
    abi.destroy(client);
    assert_int_equal(fixture_remove(rig_driver, store, 1), 1);
    assert_int_equal(fixture_exists(rig_driver, store, 1), 0);
    rig_driver->close(store);
}

static void nothing_is_asked_of_the_library_without_key_bytes_or_buffer(void **state)
{
    uint8_t *pool;
    fby_store_t *store = rig_open_with_pool(&pool, 4);
    fby_store_op_t ops[3] = {fixture_op(&rig_spec, 1, 0, pool), fixture_op(&rig_spec, 2, 0, NULL),
                             fixture_op(&rig_spec, 3, 0, pool)};
    ops[0].bytes = 0;
    ops[2].key[0] = '\0';
    rig_forget_calls();
    for (int write = 0; write < 2; write++) {
        assert_int_equal((write ? rig_driver->put : rig_driver->get)(store, ops, 3), 0);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(ops[i].result, FBY_E_INVALID);
        }
    }
    assert_int_equal(rig_driver->exists(store, &ops[2], 1), 0);
    assert_int_equal(ops[2].result, FBY_E_INVALID);
    assert_int_equal(rig_driver->remove(store, &ops[2], 1), 0);
    assert_int_equal(ops[2].result, FBY_E_INVALID);
    assert_int_equal(rig_calls("batch", NULL, 0), 0);
    rig_close_with_pool(store, pool);
}

static void keys_stand_behind_the_prefix(void **state)
{
    char path[512], key[FBY_KEY_BYTES], name[128];
    fby_store_t *store = rig_open("prefix=team/a:");
    assert_int_equal(fixture_put(rig_driver, store, &rig_spec, 1), 1024);
    fixture_key(1, 0, key);
    snprintf(name, sizeof(name), "objects/team%%a:%s", key);
    rig_path(name, path);
    assert_int_equal(access(path, F_OK), 0);
    rig_driver->close(store);
    store = rig_open(NULL);
    assert_int_equal(fixture_exists(rig_driver, store, 1), 0);
    rig_driver->close(store);
}

static void expect_pieces(const char *call)
{
    size_t sizes[4] = {0};
    assert_int_equal(rig_calls(call, sizes, 4), 3);
    assert_int_equal(sizes[0], 1024);
    assert_int_equal(sizes[1], 1024);
    assert_int_equal(sizes[2], 952);
}

/* More than 1,024 keys in one call break the double for ever, as they did the real one. */
static void a_large_batch_is_passed_on_in_pieces(void **state)
{
    enum { MANY = 3000 };
    uint8_t *pool;
    fby_store_op_t *ops = calloc(MANY, sizeof(*ops));
    fby_store_t *store = rig_open_with_pool(&pool, MANY);
    assert_non_null(ops);
    rig_ops(ops, pool, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        fixture_fill(&rig_spec, i, 0, ops[i].buffer);
    }
    assert_int_equal(rig_driver->put(store, ops, MANY), 0);
    memset(pool, 0, (size_t)MANY * SLOT);
    assert_int_equal(rig_driver->get(store, ops, MANY), 0);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(ops[i].result, 1024);
        assert_true(fixture_holds(&rig_spec, i, 0, ops[i].buffer));
    }
    assert_int_equal(rig_driver->exists(store, ops, MANY), 0);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(ops[i].result, 1);
    }
    expect_pieces("batch_put_from");
    expect_pieces("batch_get_into");
    expect_pieces("batch_is_exist");
    assert_int_equal(fixture_get(rig_driver, store, &rig_spec, 2999), 1024);
    rig_close_with_pool(store, pool);
    free(ops);
}

/* Of equal keys in one call only the last buffer would be filled, by the double as by the real one. */
static void equal_keys_are_read_once_and_copied(void **state)
{
    uint8_t *pool;
    size_t keys = 0;
    fby_store_t *store = rig_open_with_pool(&pool, 8);
    const uint32_t numbers[] = {1, 2, 1, 3, 1, 3};
    fby_store_op_t ops[6];
    assert_int_equal(fixture_put(rig_driver, store, &rig_spec, 1), 1024);
    assert_int_equal(fixture_put(rig_driver, store, &rig_spec, 2), 1024);
    for (size_t i = 0; i < 6; i++) {
        ops[i] = fixture_op(&rig_spec, numbers[i], 0, pool + i * SLOT);
    }
    ops[4].bytes = 512; /* the same key, expected with another length */
    assert_int_equal(rig_driver->get(store, ops, 6), 0);
    assert_int_equal(rig_calls("batch_get_into", &keys, 1), 1);
    assert_int_equal(keys, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ops[i].result, 1024);
        assert_true(fixture_holds(&rig_spec, numbers[i], 0, ops[i].buffer));
    }
    assert_int_equal(ops[3].result, FBY_E_MISSING);
    assert_int_equal(ops[4].result, FBY_E_SIZE);
    assert_int_equal(ops[5].result, FBY_E_MISSING);
    assert_int_equal(pool[4 * SLOT], 0xEE); /* nothing was copied there */
    rig_close_with_pool(store, pool);
}

static void the_code_of_every_key_is_translated(void **state)
{
    uint8_t *pool;
    fby_store_t *store = rig_open_with_pool(&pool, 2);
    fby_store_op_t ops[2];
#define FBY_X(number, name, late)                                                                                      \
    rig_switch_on("code", #number);                                                                                    \
    rig_ops(ops, pool, 2);                                                                                             \
    if (FBY_MOONCAKE_##late != FBY_MOONCAKE_ALWAYS) {                                                                  \
        int expected = number == -600 ? FBY_E_SIZE : FBY_E_##name;                                                     \
        assert_int_equal(rig_driver->get(store, ops, 2), 0);                                                           \
        assert_true(ops[0].result == expected && ops[1].result == expected);                                           \
        assert_int_equal(rig_driver->put(store, ops, 2), 0);                                                           \
        assert_true(ops[0].result == FBY_E_##name && ops[1].result == FBY_E_##name);                                   \
    }                                                                                                                  \
    assert_int_equal(rig_driver->exists(store, ops, 2), 0);                                                            \
    assert_true(ops[0].result == FBY_E_##name && ops[1].result == FBY_E_##name);                                       \
    assert_int_equal(rig_driver->remove(store, ops, 2), 0);                                                            \
    assert_true(ops[0].result == FBY_E_##name && ops[1].result == FBY_E_##name);
    FBY_MOONCAKE_CODE_MAP(FBY_X)
#undef FBY_X
    rig_close_with_pool(store, pool);
}

static void the_code_of_a_call_stands_for_its_keys(void **state)
{
    uint8_t *pool;
    fby_store_t *store = rig_open_with_pool(&pool, 2);
    fby_store_op_t ops[2];
    rig_ops(ops, pool, 2);
    rig_switch_on("call", "-900");
    assert_int_equal(rig_driver->get(store, ops, 2), 0);
    assert_int_equal(ops[1].result, FBY_E_CONNECTION);
    assert_int_equal(rig_driver->put(store, ops, 2), 0);
    assert_int_equal(ops[1].result, FBY_E_CONNECTION);
    assert_int_equal(rig_driver->exists(store, ops, 2), 0);
    assert_int_equal(ops[1].result, FBY_E_CONNECTION);
    rig_switch_on("call", "7"); /* not of the interface: an error all the same */
    assert_int_equal(rig_driver->exists(store, ops, 2), 0);
    assert_int_equal(ops[1].result, FBY_E_INVALID);
    rig_close_with_pool(store, pool);
}

/* ---- What ends a process ---- */

/* A child that gets or puts objects 0 and 1 in shared memory; it leaves with 0 when the call returned. */
static pid_t start_call(uint8_t *shared, bool write)
{
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fby_store_t *store = NULL;
        const char *const options[] = {"backend=library", rig_library, rig_directory, NULL};
        char text[512];
        fby_store_op_t ops[2];
        rig_ops(ops, shared, 2);
        if (rig_driver->open(&rig_spec, options, &store, text, sizeof(text)) != 0 ||
            rig_driver->register_region(store, shared, 2 * SLOT) != 0) {
            _exit(1);
        }
        _exit((write ? rig_driver->put : rig_driver->get)(store, ops, 2) == 0 ? 0 : 1);
    }
    return child;
}

static uint8_t *make_shared(void)
{
    uint8_t *shared = mmap(NULL, 2 * SLOT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    return shared;
}

static void expect_silence(uint8_t *shared)
{
    memset(shared, 0xA5, 2 * SLOT);
    for (int round = 0; round < 50; round++) {
        sched_yield();
        for (size_t i = 0; i < 2 * SLOT; i++) {
            assert_int_equal(shared[i], 0xA5);
        }
    }
}

static void expect_end(uint8_t *shared, bool write)
{
    int status;
    pid_t child = start_call(shared, write);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EX_IOERR);
    expect_silence(shared); /* the writing thread of the double ended with it */
}

static void a_transfer_that_may_go_on_ends_the_process(void **state)
{
    uint8_t *shared = make_shared();
    rig_switch_on("late", "-1");
    expect_end(shared, false);
    rig_switch_on("late", "-800");
    rig_switch_on("slow", "1500");
    expect_end(shared, false);
    rig_switch_on("call", "-1");
    expect_end(shared, true);
    munmap(shared, 2 * SLOT);
}

/* A node that is gone refuses connections: nothing is under way then, and no process has to end. */
static void a_transfer_that_fails_at_once_is_only_an_error(void **state)
{
    fby_store_t *store = rig_open(NULL);
    assert_int_equal(fixture_put(rig_driver, store, &rig_spec, 1), 1024);
    rig_switch_on("code", "-800");
    assert_int_equal(fixture_get(rig_driver, store, &rig_spec, 1), FBY_E_CONNECTION);
    rig_switch_off("code");
    assert_int_equal(fixture_get(rig_driver, store, &rig_spec, 1), 1024);
    rig_driver->close(store);
}

static void the_end_of_a_process_ends_a_get_that_hangs(void **state)
{
    uint8_t *shared = make_shared();
    int status;
    rig_switch_on("hang", "");
    pid_t child = start_call(shared, false);
    rig_await_write(shared, 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    expect_silence(shared);
    munmap(shared, 2 * SLOT);
}

/* That the double does what this file relies on: more than 1,024 keys, or a batch before set-up. */
static void the_double_breaks_where_the_real_one_does(void **state)
{
    enum { MANY = 1025 };
    static const char *keys[MANY];
    static int results[MANY];
    fby_mooncake_abi_t abi;
    fby_store_t *store = rig_open(NULL); /* for the environment */
    void *client = rig_bare_client(&abi);
    for (size_t i = 0; i < MANY; i++) {
        keys[i] = "key";
    }
    assert_int_equal(abi.batch_is_exist(client, keys, 1024, results), 0);
    assert_int_equal(results[0], 0);
    assert_int_equal(abi.batch_is_exist(client, keys, MANY, results), 0);
    assert_int_equal(abi.batch_is_exist(client, keys, 1, results), 0);
    assert_int_equal(results[0], -800);
    abi.destroy(client);
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        abi.batch_is_exist(abi.create(), keys, 1, results);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    rig_driver->close(store);
}

int main(void)
{
#define STORY(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        STORY(objects_come_back_as_they_were),
        STORY(the_first_put_wins_and_the_second_succeeds),
        STORY(another_length_is_an_error),
        STORY(an_object_is_removed_in_spite_of_a_lease),
        STORY(nothing_is_asked_of_the_library_without_key_bytes_or_buffer),
        STORY(keys_stand_behind_the_prefix),
        STORY(a_large_batch_is_passed_on_in_pieces),
        STORY(equal_keys_are_read_once_and_copied),
        STORY(the_code_of_every_key_is_translated),
        STORY(the_code_of_a_call_stands_for_its_keys),
        STORY(a_transfer_that_may_go_on_ends_the_process),
        STORY(a_transfer_that_fails_at_once_is_only_an_error),
        STORY(the_end_of_a_process_ends_a_get_that_hangs),
        STORY(the_double_breaks_where_the_real_one_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
