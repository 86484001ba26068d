/* A store in agents: calls cross, fences end them, deaths are survived. */
#include "host_rig.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static bool calls_are_lost(const fby_agent_stats_t *stats, uint64_t deaths)
{
    return stats->deaths >= deaths && stats->processes > 0;
}

static bool killed_and_back(const fby_agent_stats_t *stats, uint64_t kills)
{
    return stats->kills >= kills && stats->processes > 0;
}

static void bytes_go_to_an_agent_and_come_back_exact(void **state)
{
    host_rig_t rig;
    host_rig_open(&rig, 8192, "mem", NULL);
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(host_rig_put(&rig, i, 0), rig.spec.object_bytes[0]);
    }
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(host_rig_exists(&rig, i), 1);
        assert_int_equal(host_rig_get(&rig, i, (uint32_t)i + 1), rig.spec.object_bytes[0]);
    }
    assert_int_equal(host_rig_exists(&rig, 99), 0);
    assert_int_equal(host_rig_get(&rig, 99, 5), FBY_E_MISSING);
    host_rig_close(&rig);
}

static void a_batch_has_a_result_per_key(void **state)
{
    host_rig_t rig;
    fby_store_op_t ops[HOST_RIG_SLOTS];
    host_rig_open(&rig, 4096, "mem", NULL);
    for (uint64_t i = 0; i < HOST_RIG_SLOTS; i += 2) {
        assert_int_equal(host_rig_put(&rig, i, 0), rig.spec.object_bytes[0]);
    }
    for (uint32_t i = 0; i < HOST_RIG_SLOTS; i++) {
        ops[i] = fixture_op(&rig.spec, i, 0, host_rig_slot(&rig, 0, i));
    }
    assert_int_equal(fby_store_agent.get(rig.store, ops, HOST_RIG_SLOTS), 0);
    for (uint32_t i = 0; i < HOST_RIG_SLOTS; i++) {
        assert_int_equal(ops[i].result, i % 2 == 0 ? (int64_t)rig.spec.object_bytes[0] : FBY_E_MISSING);
        assert_true(i % 2 != 0 || fixture_holds(&rig.spec, i, 0, ops[i].buffer));
    }
    host_rig_close(&rig);
}

static void a_batch_larger_than_the_ring_goes_in_pieces(void **state)
{
    enum { KEYS = 1000 };
    static fby_store_op_t ops[KEYS];
    host_rig_t rig;
    host_rig_open(&rig, 4096, "mem", NULL);
    assert_int_equal(host_rig_put(&rig, 999, 0), rig.spec.object_bytes[0]);
    for (uint32_t i = 0; i < KEYS; i++) {
        ops[i] = fixture_op(&rig.spec, i, 0, NULL);
    }
    assert_int_equal(fby_store_agent.exists(rig.store, ops, KEYS), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_int_equal(ops[i].result, i == 999);
    }
    host_rig_close(&rig);
}

static void a_buffer_outside_the_pool_goes_through_the_bounce_area(void **state)
{
    host_rig_t rig;
    host_rig_open(&rig, 4096, "mem", NULL);
    assert_int_equal(fixture_put(&fby_store_agent, rig.store, &rig.spec, 3), rig.spec.object_bytes[0]);
    assert_int_equal(fixture_get(&fby_store_agent, rig.store, &rig.spec, 3), rig.spec.object_bytes[0]);
    host_rig_close(&rig);
}

static void a_fenced_call_ends_and_its_agent_comes_back(void **state)
{
    host_rig_t rig;
    host_rig_call_t call;
    host_rig_open(&rig, 4096, "fault:mem", "script=get:*:hang", NULL);
    host_rig_begin_get(&call, &rig, 1, 1);
    /* it hangs: nothing but the fence ends it. Asked again until it is there, since the thread may not have begun */
    while (true) {
        fby_agent_stats_t stats;
        fby_agent_fence(rig.store, &call);
        fby_agent_stats(rig.store, &stats);
        if (stats.kills > 0) {
            break;
        }
    }
    assert_int_equal(host_rig_end(&call), FBY_E_TIMEOUT);
    host_rig_await(&rig, killed_and_back, 1);
    assert_int_equal(host_rig_exists(&rig, 1), 0);
    host_rig_close(&rig);
}

static void an_agent_that_dies_is_replaced(void **state)
{
    host_rig_t rig;
    pid_t pids[8];
    host_rig_open(&rig, 4096, "mem", NULL);
    assert_int_equal(host_rig_put(&rig, 1, 0), rig.spec.object_bytes[0]);
    assert_int_equal(host_rig_agents(pids, 8), 1);
    assert_int_equal(kill(pids[0], SIGKILL), 0);
    host_rig_await(&rig, calls_are_lost, 1);
    assert_int_equal(host_rig_get(&rig, 1, 1), FBY_E_MISSING); /* memory went with it */
    assert_int_equal(host_rig_put(&rig, 1, 0), rig.spec.object_bytes[0]);
    host_rig_close(&rig);
}

static void what_cannot_work_is_refused_by_name(void **state)
{
    host_rig_refused("nothing", FBY_E_CONFIG, "there is no store driver 'nothing'", NULL);
    host_rig_refused("mem", FBY_E_CONFIG, "colour", "colour=red", NULL);
    setenv("FOREBAY_LIBEXEC", "/nowhere", 1);
    host_rig_refused("mem", FBY_E_CONFIG, "/nowhere", NULL);
    unsetenv("FOREBAY_LIBEXEC");
}

static void health_has_the_drivers_words_and_the_agents(void **state)
{
    host_rig_t rig;
    char text[256];
    host_rig_open(&rig, 4096, "mem", NULL);
    assert_int_equal(fby_store_agent.health(rig.store, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "objects"));
    assert_non_null(strstr(text, "1 agents, 1 starts, 0 kills, 0 deaths"));
    host_rig_close(&rig);
}

static void closing_leaves_no_process(void **state)
{
    host_rig_t rig;
    pid_t pids[8];
    host_rig_open(&rig, 4096, "mem", NULL);
    host_rig_close(&rig);
    assert_int_equal(host_rig_agents(pids, 8), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_to_an_agent_and_come_back_exact),
        cmocka_unit_test(a_batch_has_a_result_per_key),
        cmocka_unit_test(a_batch_larger_than_the_ring_goes_in_pieces),
        cmocka_unit_test(a_buffer_outside_the_pool_goes_through_the_bounce_area),
        cmocka_unit_test(a_fenced_call_ends_and_its_agent_comes_back),
        cmocka_unit_test(an_agent_that_dies_is_replaced),
        cmocka_unit_test(what_cannot_work_is_refused_by_name),
        cmocka_unit_test(health_has_the_drivers_words_and_the_agents),
        cmocka_unit_test(closing_leaves_no_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
