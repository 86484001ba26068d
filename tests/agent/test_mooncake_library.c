/*
 * Mooncake's C back end in agents: what a client that hangs, or that writes after its answer, costs the runtime. Over
 * the conformance double of tests/stores (mooncake_double.c, which is not Mooncake).
 */
#include "host_rig.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "../stores/mooncake_rig.h"

enum { PROCESSES = 3 };

static int set_up(void **state)
{
    rig_set_up(state);
    fby_store_isolated = false; /* this process is the runtime */
    return 0;
}

static void open_agents(host_rig_t *rig)
{
    host_rig_open(rig, 4096 - FBY_TRAILER_BYTES, "mooncake", "backend=library", rig_library, rig_directory, NULL);
}

static bool has_processes(const fby_agent_stats_t *stats, uint64_t processes)
{
    return stats->processes >= processes && stats->unproven == 0;
}

/* Nothing writes into the pool any more. */
static void expect_silence(host_rig_t *rig)
{
    host_rig_paint(rig);
    const uint8_t *bytes = rig->region.base;
    for (int round = 0; round < 20; round++) {
        sched_yield();
        for (size_t i = 0; i < rig->region.bytes; i++) {
            if (bytes[i] != 0xEE) {
                fail_msg("byte %zu of the pool changed", i);
            }
        }
    }
}

static void objects_cross_three_processes(void **state)
{
    host_rig_t rig;
    pid_t pids[8];
    char text[256];
    open_agents(&rig);
    assert_int_equal(host_rig_agents(pids, 8), PROCESSES);
    assert_int_equal(rig_calls("setup", NULL, 0), PROCESSES);
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(host_rig_put(&rig, i, 0), 4096);
    }
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(host_rig_exists(&rig, i), 1);
        assert_int_equal(host_rig_get(&rig, i, (uint32_t)i + 1), 4096);
    }
    assert_int_equal(host_rig_exists(&rig, 99), 0);
    assert_int_equal(host_rig_get(&rig, 99, 5), FBY_E_MISSING);
    assert_int_equal(fby_store_agent.health(rig.store, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "3 agents"));
    host_rig_close(&rig);
    assert_int_equal(host_rig_agents(pids, 8), 0);
}

static void a_buffer_outside_of_the_pool_works_too(void **state)
{
    host_rig_t rig;
    open_agents(&rig);
    assert_int_equal(fixture_put(&fby_store_agent, rig.store, &rig.spec, 3), 4096);
    assert_int_equal(fixture_get(&fby_store_agent, rig.store, &rig.spec, 3), 4096);
    assert_int_equal(fixture_get(&fby_store_agent, rig.store, &rig.spec, 4), FBY_E_MISSING);
    host_rig_close(&rig);
}

static void a_read_that_hangs_is_fenced_and_writes_no_more(void **state)
{
    host_rig_t rig;
    host_rig_call_t call;
    open_agents(&rig);
    assert_int_equal(host_rig_put(&rig, 1, 0), 4096);
    rig_switch_on("hang", "");
    host_rig_begin_get(&call, &rig, 1, 7);
    rig_await_write(host_rig_slot(&rig, 0, 7), 0xEE);
    assert_int_equal(host_rig_exists(&rig, 1), 1); /* queries and puts go on beside it */
    assert_int_equal(host_rig_put(&rig, 2, 0), 4096);
    fby_agent_fence(rig.store, &call);
    assert_int_equal(host_rig_end(&call), FBY_E_TIMEOUT);
    expect_silence(&rig);
    rig_switch_off("hang");
    host_rig_await(&rig, has_processes, PROCESSES);
    assert_int_equal(host_rig_get(&rig, 1, 8), 4096);
    assert_int_equal(host_rig_get(&rig, 2, 9), 4096);
    host_rig_close(&rig);
}

static void a_read_that_was_given_up_is_answered_after_its_process_ended(void **state)
{
    host_rig_t rig;
    fby_agent_stats_t stats;
    open_agents(&rig);
    assert_int_equal(host_rig_put(&rig, 1, 0), 4096);
    rig_switch_on("late", "-1");
    assert_int_equal(host_rig_get(&rig, 1, 7), -ECANCELED);
    fby_agent_stats(rig.store, &stats);
    assert_int_equal(stats.deaths, 1);
    expect_silence(&rig);
    rig_switch_off("late");
    host_rig_await(&rig, has_processes, PROCESSES);
    assert_int_equal(host_rig_get(&rig, 1, 8), 4096);
    host_rig_close(&rig);
}

static void a_master_that_comes_later_is_found(void **state)
{
    host_rig_t rig;
    rig_switch_on("down", "");
    open_agents(&rig);
    assert_int_equal(host_rig_exists(&rig, 1), FBY_E_CONNECTION);
    assert_int_equal(rig_calls("batch", NULL, 0), 0); /* no client was made to crash */
    rig_switch_off("down");
    host_rig_await(&rig, has_processes, PROCESSES);
    assert_int_equal(host_rig_put(&rig, 1, 0), 4096);
    assert_int_equal(host_rig_get(&rig, 1, 1), 4096);
    host_rig_close(&rig);
}

static void what_is_wrong_with_the_library_reaches_the_runtime(void **state)
{
    char option[600];
    const char *plugins = getenv("FOREBAY_PLUGINS");
    snprintf(option, sizeof(option), "library=%s/mooncake_conformance_double_lacks_1.so", plugins);
    host_rig_refused("mooncake", FBY_E_CONFIG, "lacks 2 of 19 mooncake_store_*: get_size, remove_all",
                     "backend=library", option, NULL);
    host_rig_refused("mooncake", FBY_E_CONFIG, "option library is '/no/such.so'", "backend=library",
                     "library=/no/such.so", NULL);
}

int main(void)
{
#define STORY(name) cmocka_unit_test_setup_teardown(name, set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        STORY(objects_cross_three_processes),
        STORY(a_buffer_outside_of_the_pool_works_too),
        STORY(a_read_that_hangs_is_fenced_and_writes_no_more),
        STORY(a_read_that_was_given_up_is_answered_after_its_process_ended),
        STORY(a_master_that_comes_later_is_found),
        STORY(what_is_wrong_with_the_library_reaches_the_runtime),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
