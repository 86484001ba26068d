/*
 * test_mooncake_client.c - a client of Mooncake's C interface comes to life, over the conformance double
 * (mooncake_double.c, which is not Mooncake).
 */
#include "mooncake_rig.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Life ---- */

static void set_up_gets_what_the_options_say(void **state)
{
    size_t number = 0;
    fby_store_t *store =
        fixture_open(rig_driver, &rig_spec, "backend=library", rig_library, rig_directory, "local_buffer=1MiB",
                     "hostname=10.1.2.3:7", "devices=mlx5_0,mlx5_1", "master=127.0.0.1:50077", NULL);
    assert_int_equal(
        rig_calls("setup 10.1.2.3:7 P2PHANDSHAKE tcp [mlx5_0,mlx5_1] 127.0.0.1:50077 segment 0", &number, 1), 1);
    assert_int_equal(number, 1 << 20);
    rig_driver->close(store);
    /* Without a name: the address from which the master is reached. */
    store = rig_open("master=127.0.0.1:50077");
    assert_int_equal(rig_calls("setup 127.0.0.1 P2PHANDSHAKE tcp [] 127.0.0.1:50077", NULL, 0), 1);
    rig_driver->close(store);
}

/* A child, since the environment is set before the library is loaded, which happens once in a process. */
static void the_environment_is_there_when_the_library_is_loaded(void **state)
{
    size_t slice = 0;
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fby_store_t *store = NULL;
        const char *const options[] = {"backend=library", rig_library, rig_directory, "env.MC_TCP_SLICE_SIZE=4242",
                                       NULL};
        char text[512];
        bool good = rig_driver->open(&rig_spec, options, &store, text, sizeof(text)) == 0 &&
                    strcmp(getenv("MC_TCP_ENABLE_CONNECTION_POOL"), "1") == 0 &&
                    strcmp(getenv("MC_STORE_CLIENT_SETUP_RETRIES"), "1") == 0 &&
                    strcmp(getenv("MC_RPC_TIMEOUT_MS"), "2000") == 0;
        _exit(good ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(rig_calls("loaded", &slice, 1), 1);
    assert_int_equal(slice, 4242);
}

static void signals_mean_what_they_did_before(void **state)
{
    sigset_t mask;
    fby_store_t *store = rig_open(NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_false(sigismember(&mask, SIGTERM));
    assert_false(sigismember(&mask, SIGINT));
    rig_driver->close(store);
}

static void a_failed_set_up_leaves_no_client_to_ask(void **state)
{
    rig_switch_on("down", "");
    fixture_refused(rig_driver, &rig_spec, FBY_E_CONNECTION, "set-up failed (-600) with master 127.0.0.1:50051",
                    "backend=library", rig_library, rig_directory, NULL);
    assert_int_equal(rig_calls("create", NULL, 0), 1);
    assert_int_equal(rig_calls("batch", NULL, 0) + rig_calls("register", NULL, 0), 0);
    rig_switch_off("down");
    fby_store_t *store = rig_open(NULL);
    assert_int_equal(fixture_put(rig_driver, store, &rig_spec, 1), 1024);
    rig_driver->close(store);
}

static void another_version_of_the_master_is_final(void **state)
{
    rig_switch_on("code", "-300");
    fixture_refused(rig_driver, &rig_spec, FBY_E_CONFIG, "accepted: a library of the master's version",
                    "backend=library", rig_library, rig_directory, NULL);
}

static void health_asks_the_master(void **state)
{
    char text[160];
    fby_store_t *store = rig_open(NULL);
    assert_int_equal(rig_driver->health(store, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "ok: library of "));
    rig_switch_on("down", "");
    assert_int_equal(rig_driver->health(store, text, sizeof(text)), FBY_E_CONNECTION);
    assert_string_equal(text, "Mooncake's master: the store cannot be reached");
    rig_switch_off("down");
    assert_int_equal(rig_driver->health(store, text, sizeof(text)), 0);
    rig_driver->close(store);
}

/* ---- Memory ---- */

static void the_region_is_registered_once_and_others_for_a_call(void **state)
{
    uint8_t *pool;
    size_t sizes[4];
    fby_store_t *store = rig_open_with_pool(&pool, 4);
    assert_int_equal(rig_driver->register_region(store, pool, RIG_SLOT), FBY_E_STATE);
    fby_store_op_t op = fixture_op(&rig_spec, 1, 0, pool + RIG_SLOT);
    fixture_fill(&rig_spec, 1, 0, op.buffer);
    assert_int_equal(rig_driver->put(store, &op, 1), 0);
    assert_int_equal(op.result, 1024);
    assert_int_equal(rig_calls("register", sizes, 4), 1);
    assert_int_equal(sizes[0], 4 * RIG_SLOT);
    for (size_t round = 2; round <= 3; round++) { /* twice: the first was taken back, or the second would overlap */
        uint8_t page[1024];
        op.buffer = page;
        assert_int_equal(rig_driver->get(store, &op, 1), 0);
        assert_int_equal(op.result, 1024);
        assert_true(fixture_holds(&rig_spec, 1, 0, page));
        assert_int_equal(rig_calls("register", sizes, 4), round);
        assert_int_equal(sizes[round - 1], 1024);
    }
    assert_int_equal(rig_driver->unregister_region(store, pool + 1), FBY_E_STATE);
    rig_close_with_pool(store, pool);
}

int main(void)
{
#define STORY(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        STORY(the_environment_is_there_when_the_library_is_loaded),
        STORY(set_up_gets_what_the_options_say),
        STORY(signals_mean_what_they_did_before),
        STORY(a_failed_set_up_leaves_no_client_to_ask),
        STORY(another_version_of_the_master_is_final),
        STORY(health_asks_the_master),
        STORY(the_region_is_registered_once_and_others_for_a_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
