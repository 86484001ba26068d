/* The wheel's agent with a real master and a real storage node: run by story_agent.py inside with-store, whose lease is
   LEASE_MS. */
#include "rig.h"

#include <errno.h>
#include <signal.h>

enum { SMALL = 4096, LARGE = 256 << 10, LEASE_MS = 2000 };

static uint64_t next_object = 1; /* every test has objects of its own */

static uint64_t objects(uint32_t n)
{
    uint64_t first = next_object;
    next_object += n;
    return first;
}

static int rig_setup(void **state)
{
    static mooncake_rig_t rig;
    mooncake_rig_open(&rig, SMALL, MOONCAKE_RIG_MOST);
    *state = &rig;
    return 0;
}

static int rig_teardown(void **state)
{
    mooncake_rig_close(*state);
    return 0;
}

/* ---- Calls ---- */

static void what_the_client_can_do_is_said(void **state)
{
    mooncake_rig_t *rig = *state;
    fby_store_caps_t caps = {.size = sizeof(caps)};
    fby_store_agent.capabilities(rig->store, &caps);
    assert_int_equal(caps.zero_copy, 1);
    assert_int_equal(caps.needs_isolation, 0); /* in agents it has what it needs */
    assert_int_equal(caps.overwrite, 0);
    assert_int_equal(caps.read_after_write, 1);
    assert_int_equal(caps.max_batch, 1024);
    assert_int_equal(caps.preferred_bytes, 256 << 10);
    assert_true(caps.read_lanes == 1 || caps.read_lanes == 2); /* by the cores */
    assert_int_equal(caps.probe_lease_ns, LEASE_MS * UINT64_C(1000000));
}

static void bytes_come_back_exact(void **state)
{
    mooncake_rig_t *rig = *state;
    uint64_t first = objects(20);
    mooncake_rig_store(rig, first, 20);
    mooncake_rig_paint(rig);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(mooncake_rig_one(rig, fby_store_agent.exists, first + i, 0), 1);
        assert_int_equal(mooncake_rig_one(rig, fby_store_agent.get, first + i, i), rig->spec.object_bytes[0]);
        assert_true(fixture_holds(&rig->spec, first + i, 0, mooncake_rig_slot(rig, i)));
    }
    assert_true(mooncake_rig_is_painted(rig, 20, MOONCAKE_RIG_MOST));
}

static void a_batch_may_have_1024_keys(void **state)
{
    mooncake_rig_t *rig = *state;
    uint64_t first = objects(1024);
    mooncake_rig_store(rig, first, 1024);
    mooncake_rig_paint(rig);
    mooncake_rig_ops(rig, first, 1024, 0);
    mooncake_rig_call(rig, fby_store_agent.get, 1024);
    for (uint32_t i = 0; i < 1024; i++) {
        assert_int_equal(rig->ops[i].result, rig->spec.object_bytes[0]);
        assert_true(fixture_holds(&rig->spec, first + i, 0, rig->ops[i].buffer));
    }
}

static void a_key_that_stands_twice_fills_every_buffer(void **state)
{
    mooncake_rig_t *rig = *state;
    uint64_t first = objects(2);
    mooncake_rig_store(rig, first, 2);
    mooncake_rig_paint(rig);
    mooncake_rig_ops(rig, first, 2, 0);
    rig->ops[2] = fixture_op(&rig->spec, first, 0, mooncake_rig_slot(rig, 2));
    rig->ops[3] = fixture_op(&rig->spec, first + 1, 0, mooncake_rig_slot(rig, 3));
    rig->ops[4] = fixture_op(&rig->spec, first, 0, mooncake_rig_slot(rig, 4));
    rig->ops[4].bytes -= 64; /* the same key, another length */
    mooncake_rig_call(rig, fby_store_agent.get, 5);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(rig->ops[i].result, rig->spec.object_bytes[0]);
        assert_true(fixture_holds(&rig->spec, first + i % 2, 0, rig->ops[i].buffer));
    }
    assert_int_equal(rig->ops[4].result, FBY_E_SIZE);
}

static void a_key_that_stands_twice_is_stored_once(void **state)
{
    mooncake_rig_t *rig = *state;
    uint64_t i = objects(1);
    fixture_fill(&rig->spec, i, 0, mooncake_rig_slot(rig, 0));
    mooncake_rig_ops(rig, i, 1, 0);
    rig->ops[1] = rig->ops[0];
    rig->ops[1].buffer = memset(mooncake_rig_slot(rig, 1), 0x11, rig->spec.slot_bytes[0]);
    mooncake_rig_call(rig, fby_store_agent.put, 2);
    assert_int_equal(rig->ops[0].result, rig->spec.object_bytes[0]);
    assert_int_equal(rig->ops[1].result, rig->spec.object_bytes[0]);
    assert_int_equal(mooncake_rig_one(rig, fby_store_agent.get, i, 2), rig->spec.object_bytes[0]);
    assert_true(fixture_holds(&rig->spec, i, 0, mooncake_rig_slot(rig, 2)));
}

static void every_key_has_its_own_result(void **state)
{
    mooncake_rig_t *rig = *state;
    uint64_t first = objects(4);
    mooncake_rig_store(rig, first, 3);
    mooncake_rig_ops(rig, first, 4, 0);
    rig->ops[1].bytes -= 64;                     /* shorter than the object */
    rig->ops[2].bytes = rig->spec.slot_bytes[0]; /* longer */
    mooncake_rig_call(rig, fby_store_agent.get, 4);
    assert_int_equal(rig->ops[0].result, rig->spec.object_bytes[0]);
    assert_int_equal(rig->ops[1].result, FBY_E_SIZE);
    assert_int_equal(rig->ops[2].result, FBY_E_SIZE);
    assert_int_equal(rig->ops[3].result, FBY_E_MISSING);
    mooncake_rig_ops(rig, first, 4, 0);
    mooncake_rig_call(rig, fby_store_agent.exists, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(rig->ops[i].result, i < 3);
    }
}

static void the_first_put_of_a_key_wins(void **state)
{
    mooncake_rig_t *rig = *state;
    uint64_t i = objects(1);
    mooncake_rig_store(rig, i, 1);
    memset(mooncake_rig_slot(rig, 1), 0x11, rig->spec.slot_bytes[0]);
    assert_int_equal(mooncake_rig_one(rig, fby_store_agent.put, i, 1), rig->spec.object_bytes[0]);
    assert_int_equal(mooncake_rig_one(rig, fby_store_agent.get, i, 2), rig->spec.object_bytes[0]);
    assert_true(fixture_holds(&rig->spec, i, 0, mooncake_rig_slot(rig, 2)));
}

static void what_was_just_probed_is_removed_all_the_same(void **state)
{
    mooncake_rig_t *rig = *state;
    uint64_t i = objects(1);
    mooncake_rig_store(rig, i, 1);
    assert_int_equal(mooncake_rig_one(rig, fby_store_agent.exists, i, 0), 1); /* leases it */
    assert_int_equal(mooncake_rig_one(rig, fby_store_agent.remove, i, 0), 0);
    assert_int_equal(mooncake_rig_one(rig, fby_store_agent.exists, i, 0), 0);
    assert_int_equal(mooncake_rig_one(rig, fby_store_agent.get, i, 0), FBY_E_MISSING);
    assert_int_equal(mooncake_rig_one(rig, fby_store_agent.remove, i, 0), FBY_E_MISSING);
}

static void a_buffer_outside_of_the_pool_works_too(void **state)
{
    mooncake_rig_t *rig = *state;
    uint64_t i = objects(1);
    assert_int_equal(fixture_put(&fby_store_agent, rig->store, &rig->spec, i), rig->spec.object_bytes[0]);
    assert_int_equal(fixture_get(&fby_store_agent, rig->store, &rig->spec, i), rig->spec.object_bytes[0]);
    assert_int_equal(fixture_get(&fby_store_agent, rig->store, &rig->spec, i), rig->spec.object_bytes[0]);
}

static void health_asks_the_master(void **state)
{
    mooncake_rig_t *rig = *state;
    char text[256];
    assert_int_equal(fby_store_agent.health(rig->store, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "3 agents"));
}

static void an_epoch_needs_no_keeping(void **state)
{
    mooncake_rig_t *rig = *state;
    assert_int_equal(fby_store_agent.raise_epoch(rig->store, 7), 0);
}

static void stores_with_different_prefixes_do_not_meet(void **state)
{
    static mooncake_rig_t other;
    char error[512];
    mooncake_rig_t *rig = *state;
    uint64_t i = objects(2);
    assert_int_equal(mooncake_rig_try(&other, SMALL, 8, error, "prefix=other/", NULL), 0);
    mooncake_rig_store(rig, i, 2);
    mooncake_rig_ops(&other, i, 2, 0);
    mooncake_rig_call(&other, fby_store_agent.exists, 2);
    assert_int_equal(other.ops[0].result, 0);
    assert_int_equal(other.ops[1].result, 0);
    mooncake_rig_store(&other, i + 1, 1);
    mooncake_rig_ops(&other, i, 2, 0);
    mooncake_rig_call(&other, fby_store_agent.exists, 2);
    assert_int_equal(other.ops[0].result, 0);
    assert_int_equal(other.ops[1].result, 1);
    mooncake_rig_close(&other);
}

/* ---- Starts that fail ---- */

static void refused(const char *part, const char *option)
{
    static mooncake_rig_t rig;
    char error[512];
    assert_int_equal(mooncake_rig_try(&rig, SMALL, 8, error, option, NULL), FBY_E_CONFIG);
    if (strstr(error, part) == NULL) {
        fail_msg("'%s' does not contain '%s'", error, part);
    }
}

static void what_cannot_work_is_refused_by_name(void **state)
{
    refused("/usr/bin/python3 has no Mooncake: install mooncake-transfer-engine", "python=/usr/bin/python3");
    refused("/nonexistent/python", "python=/nonexistent/python");
    refused("colour", "colour=red");
    refused("option protocol is 'smoke'", "protocol=smoke");
    refused("option replicas is '99'", "replicas=99");
}

static void a_master_that_is_not_there_is_tried_again(void **state)
{
    static mooncake_rig_t rig;
    char error[512];
    fby_agent_stats_t stats;
    assert_int_equal(mooncake_rig_try(&rig, SMALL, 8, error, "master=127.0.0.1:1", NULL), 0);
    assert_int_equal(mooncake_rig_one(&rig, fby_store_agent.exists, 1, 0), FBY_E_CONNECTION);
    MOONCAKE_RIG_AWAIT((fby_agent_stats(rig.store, &stats), stats.failed_starts > FBY_AGENT_KINDS));
    assert_non_null(strstr(stats.last, "Mooncake's master at 127.0.0.1:1 cannot be reached: Connection refused"));
    mooncake_rig_close(&rig);
}

/* ---- Reads that do not end ---- */

/* 40 large objects are stored; a read of them is on its way when the storage node stops. */
static uint64_t begin_stuck_read(mooncake_rig_t *rig, mooncake_reader_t *reader)
{
    uint64_t first = objects(40);
    mooncake_rig_open(rig, LARGE, 80);
    mooncake_rig_store(rig, first, 40);
    mooncake_rig_paint(rig);
    mooncake_rig_ops(rig, first, 40, 0);
    assert_int_equal(kill(mooncake_rig_pid("NODE_PID"), SIGSTOP), 0);
    mooncake_reader_begin(reader, rig, 40);
    return first;
}

/* The node goes on; what was read before is read again, elsewhere. Where the broken read was, nothing is written. */
static void check_nothing_comes_late(mooncake_rig_t *rig, uint64_t first)
{
    mooncake_rig_paint(rig);
    assert_int_equal(kill(mooncake_rig_pid("NODE_PID"), SIGCONT), 0);
    MOONCAKE_RIG_AWAIT(mooncake_rig_one(rig, fby_store_agent.get, first, 79) == rig->spec.object_bytes[0]);
    mooncake_rig_ops(rig, first, 39, 40);
    mooncake_rig_call(rig, fby_store_agent.get, 39);
    for (uint32_t i = 0; i < 39; i++) {
        assert_int_equal(rig->ops[i].result, rig->spec.object_bytes[0]);
        assert_true(fixture_holds(&rig->spec, first + i, 0, rig->ops[i].buffer));
    }
    assert_true(mooncake_rig_is_painted(rig, 0, 40));
    mooncake_rig_close(rig);
}

static void a_read_from_a_node_that_hangs_is_fenced_and_queries_go_on(void **state)
{
    static mooncake_rig_t rig;
    mooncake_reader_t reader;
    fby_agent_stats_t stats;
    uint64_t first = begin_stuck_read(&rig, &reader);
    fby_store_op_t probe = fixture_op(&rig.spec, first, 0, NULL);
    assert_int_equal(fby_store_agent.exists(rig.store, &probe, 1), 0);
    assert_int_equal(probe.result, 1);
    MOONCAKE_RIG_AWAIT((fby_agent_fence(rig.store, &reader), fby_agent_stats(rig.store, &stats), stats.kills > 0));
    assert_int_equal(mooncake_reader_end(&reader), FBY_E_TIMEOUT);
    check_nothing_comes_late(&rig, first);
}

/* Reads until one of them was cut while its bytes arrived; what it returned. */
static int64_t cut_moving_read(mooncake_rig_t *rig, uint64_t first, void (*cut)(mooncake_reader_t *reader))
{
    for (uint32_t tries = 0; tries < 100; tries++) { /* it may be over before the cut */
        mooncake_reader_t reader;
        pid_t agents[FBY_AGENT_KINDS + 1];
        MOONCAKE_RIG_AWAIT(mooncake_rig_agents(agents, FBY_AGENT_KINDS + 1) == FBY_AGENT_KINDS);
        MOONCAKE_RIG_AWAIT(mooncake_rig_one(rig, fby_store_agent.get, first, 79) == rig->spec.object_bytes[0]);
        mooncake_rig_paint(rig);
        mooncake_rig_ops(rig, first, 40, 0);
        mooncake_reader_begin(&reader, rig, 40);
        while (mooncake_rig_is_painted(rig, 0, 1) && !atomic_load(&reader.done)) { /* until bytes arrive */
        }
        cut(&reader);
        int64_t result = mooncake_reader_end(&reader);
        if (result < 0) {
            return result;
        }
    }
    fail_msg("no read of 100 was cut");
    return 0;
}

static void cut_by_fence(mooncake_reader_t *reader)
{
    fby_agent_fence(reader->rig->store, reader);
}

static void cut_by_kill(mooncake_reader_t *reader)
{
    pid_t agents[FBY_AGENT_KINDS + 1];
    assert_int_equal(mooncake_rig_agents(agents, FBY_AGENT_KINDS + 1), FBY_AGENT_KINDS);
    for (uint32_t i = 0; i < FBY_AGENT_KINDS; i++) {
        assert_int_equal(kill(agents[i], SIGKILL), 0);
    }
}

static void a_fenced_read_writes_nothing_after_it_returned(void **state)
{
    static mooncake_rig_t rig;
    uint64_t first = objects(40);
    mooncake_rig_open(&rig, LARGE, 80);
    mooncake_rig_store(&rig, first, 40);
    assert_int_equal(cut_moving_read(&rig, first, cut_by_fence), FBY_E_TIMEOUT);
    check_nothing_comes_late(&rig, first);
}

static void killed_agents_write_nothing_more_and_come_back(void **state)
{
    static mooncake_rig_t rig;
    fby_agent_stats_t stats;
    uint64_t first = objects(40);
    mooncake_rig_open(&rig, LARGE, 80);
    mooncake_rig_store(&rig, first, 40);
    assert_int_equal(cut_moving_read(&rig, first, cut_by_kill), -ECANCELED);
    MOONCAKE_RIG_AWAIT((fby_agent_stats(rig.store, &stats), stats.processes == FBY_AGENT_KINDS));
    assert_true(stats.deaths >= FBY_AGENT_KINDS);
    check_nothing_comes_late(&rig, first);
}

static int node_continue(void **state)
{
    return kill(mooncake_rig_pid("NODE_PID"), SIGCONT);
}

static void closing_leaves_no_process(void **state)
{
    pid_t agents[1];
    assert_int_equal(mooncake_rig_agents(agents, 1), 0);
}

/* ---- A lease that is too short: with-store gives 1 ms ---- */

static void a_lease_that_ends_during_a_read_fails_the_block(void **state)
{
    static mooncake_rig_t rig;
    uint64_t first = objects(64);
    mooncake_rig_open(&rig, LARGE, 64);
    mooncake_rig_store(&rig, first, 64);
    mooncake_rig_ops(&rig, first, 64, 0);
    mooncake_rig_call(&rig, fby_store_agent.get, 64);
    assert_int_equal(rig.ops[63].result, FBY_E_LEASE);
    mooncake_rig_close(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest calls[] = {
        cmocka_unit_test(what_the_client_can_do_is_said),
        cmocka_unit_test(bytes_come_back_exact),
        cmocka_unit_test(a_batch_may_have_1024_keys),
        cmocka_unit_test(a_key_that_stands_twice_fills_every_buffer),
        cmocka_unit_test(a_key_that_stands_twice_is_stored_once),
        cmocka_unit_test(every_key_has_its_own_result),
        cmocka_unit_test(the_first_put_of_a_key_wins),
        cmocka_unit_test(what_was_just_probed_is_removed_all_the_same),
        cmocka_unit_test(a_buffer_outside_of_the_pool_works_too),
        cmocka_unit_test(health_asks_the_master),
        cmocka_unit_test(an_epoch_needs_no_keeping),
        cmocka_unit_test(stores_with_different_prefixes_do_not_meet),
    };
    const struct CMUnitTest processes[] = {
        cmocka_unit_test(closing_leaves_no_process),
        cmocka_unit_test(what_cannot_work_is_refused_by_name),
        cmocka_unit_test(a_master_that_is_not_there_is_tried_again),
        cmocka_unit_test_teardown(a_read_from_a_node_that_hangs_is_fenced_and_queries_go_on, node_continue),
        cmocka_unit_test(a_fenced_read_writes_nothing_after_it_returned),
        cmocka_unit_test(killed_agents_write_nothing_more_and_come_back),
        cmocka_unit_test(closing_leaves_no_process),
    };
    const struct CMUnitTest lease[] = {cmocka_unit_test(a_lease_that_ends_during_a_read_fails_the_block)};
    if (argc > 1 && strcmp(argv[1], "lease") == 0) {
        return cmocka_run_group_tests(lease, NULL, NULL);
    }
    return cmocka_run_group_tests(calls, rig_setup, rig_teardown) + cmocka_run_group_tests(processes, NULL, NULL);
}
