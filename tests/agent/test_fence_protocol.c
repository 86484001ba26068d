/* Agents that break the protocol: an error of that lane, an end of that agent, and another one in its place. */
#include "fence_rig.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "agent/wire.h"

static fby_agent_stats_t stats_of(const fence_rig_t *rig)
{
    fby_agent_stats_t stats;
    fby_agent_stats(rig->host.store, &stats);
    return stats;
}

static bool is_back(const fby_agent_stats_t *stats, uint64_t starts)
{
    return stats->starts >= starts && stats->processes == FBY_AGENT_KINDS;
}

/* ---- Answers ---- */

/* The call ends, the agent is killed for `why`, queries and writes never notice, and there is another reader. */
static void a_liar_is_replaced(const char *act, const char *why)
{
    fence_rig_t rig;
    fence_rig_agent(&rig, act, true);
    assert_int_equal(host_rig_get(&rig.host, 1, 1), -ECANCELED);
    fby_agent_stats_t stats = stats_of(&rig);
    assert_int_equal(stats.kills, 1);
    assert_int_equal(stats.deaths, 0);
    assert_string_equal(stats.last, why);
    host_rig_await(&rig.host, is_back, FBY_AGENT_KINDS + 1);
    assert_int_equal(stats_of(&rig).starts, FBY_AGENT_KINDS + 1); /* the others were left alone */
    fence_rig_busy(&rig, 10);
    fence_rig_painted(&rig, 0xEE);
    fence_rig_close(&rig);
}

static void a_foreign_tag(void **state)
{
    a_liar_is_replaced("tag", "read agent: a malformed completion");
}

static void more_answers_than_questions(void **state)
{
    a_liar_is_replaced("count", "read agent: a malformed completion");
}

static void garbage_on_the_control_socket(void **state)
{
    a_liar_is_replaced("garbage", "read agent: a message that makes no sense");
}

static void ready_once_more(void **state)
{
    a_liar_is_replaced("again", "read agent: a message that makes no sense");
}

static void an_answer_to_no_ping(void **state)
{
    a_liar_is_replaced("unasked", "read agent: a message that makes no sense");
}

/* The two sides hang up on each other. */
static void a_control_socket_that_was_closed(void **state)
{
    fence_rig_t rig;
    fence_rig_agent(&rig, "mute", true);
    assert_int_equal(host_rig_get(&rig.host, 1, 1), -ECANCELED);
    assert_string_equal(stats_of(&rig).last, "read agent: it exited with status 0");
    host_rig_await(&rig.host, is_back, FBY_AGENT_KINDS + 1);
    fence_rig_close(&rig);
}

static void results_that_cannot_be_true_are_errors_of_their_keys(void **state)
{
    const char *const acts[] = {"large", "small"};
    for (size_t i = 0; i < 2; i++) {
        fence_rig_t rig;
        fence_rig_agent(&rig, acts[i], true);
        assert_int_equal(host_rig_get(&rig.host, 1, 1), FBY_E_INVALID);
        /* through the bounce area: no byte too many is copied out of it */
        uint8_t *buffer = fixture_buffer(&rig.host.spec, 2);
        fby_store_op_t op = fixture_op(&rig.host.spec, 1, 0, buffer);
        assert_int_equal(fby_store_agent.get(rig.host.store, &op, 1), 0);
        assert_int_equal(op.result, FBY_E_INVALID);
        for (uint32_t at = 0; at < 2 * rig.host.spec.slot_bytes[0]; at++) {
            assert_int_equal(buffer[at], 0xEE);
        }
        free(buffer);
        assert_int_equal(stats_of(&rig).kills, 0);
        fence_rig_close(&rig);
    }
}

/* ---- Deaths ---- */

static bool has_starts(const fby_agent_stats_t *stats, uint64_t starts)
{
    return stats->starts >= starts;
}

/* Each death is a start; soon the store answers at once that nobody is there, and sleeps longer and longer. */
static void an_agent_that_dies_of_every_call_backs_off(void **state)
{
    fence_rig_t rig;
    fence_rig_agent(&rig, "quit", true);
    assert_int_equal(host_rig_get(&rig.host, 1, 1), -ECANCELED);
    assert_int_equal(host_rig_get(&rig.host, 1, 1), -ECANCELED); /* the first death is followed by a start at once */
    int64_t result;
    uint32_t calls = 0;
    do {
        result = host_rig_get(&rig.host, 1, 1);
        assert_true(++calls < 10);
    } while (result == -ECANCELED);
    assert_int_equal(result, FBY_E_CONNECTION);
    fby_agent_stats_t stats = stats_of(&rig);
    assert_int_equal(stats.kills, 0);
    assert_in_range(stats.deaths, 3, 4);
    assert_string_equal(stats.last, "read agent: it exited with status 3");
    for (uint32_t i = 0; i < 1000; i++) { /* at once: no start is made for them */
        result = host_rig_get(&rig.host, 1, 1);
        assert_true(result == FBY_E_CONNECTION || result == -ECANCELED);
    }
    assert_in_range(stats_of(&rig).starts, FBY_AGENT_KINDS + 2, FBY_AGENT_KINDS + 8);
    fence_rig_busy(&rig, 10);
    host_rig_await(&rig.host, has_starts, stats.starts + 1);
    fence_rig_close(&rig);
}

/* ---- Starts that fail ---- */

static bool has_failed_starts(const fby_agent_stats_t *stats, uint64_t failed)
{
    return stats->failed_starts >= failed;
}

/* The agents that served the store die, and none of those after them starts. */
static void agents_that_do_not_start_any_more_are_tried_less_and_less(void **state)
{
    fence_rig_t rig;
    pid_t agents[FBY_AGENT_KINDS + 1];
    fence_rig_agent(&rig, "spoilt", true);
    fence_rig_busy(&rig, 1);
    fence_rig_leave(&rig, "spoil");
    assert_int_equal(host_rig_agents(agents, FBY_AGENT_KINDS + 1), FBY_AGENT_KINDS);
    for (uint32_t i = 0; i < FBY_AGENT_KINDS; i++) {
        kill(agents[i], SIGKILL);
    }
    host_rig_await(&rig.host, has_failed_starts, 3 * FBY_AGENT_KINDS);
    unsigned long sleeps = fence_rig_sleeps(getpid(), "fby-agents");
    uint64_t starts = stats_of(&rig).starts;
    assert_true(sleeps > 0);
    assert_true(sleeps < 20 * starts);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(host_rig_exists(&rig.host, 1), FBY_E_CONNECTION);
    }
    assert_true(stats_of(&rig).starts <= starts + FBY_AGENT_KINDS);
    assert_int_equal(stats_of(&rig).processes, 0);
    fence_rig_unmark(&rig, "spoil");
    host_rig_await(&rig.host, is_back, starts);
    fence_rig_busy(&rig, 10);
    fence_rig_close(&rig);
}

/* What such a driver can do is not known, so that nothing can be opened. */
static void agent_refused(const char *act, int code, const char *part)
{
    char option[64];
    pid_t pids[4];
    snprintf(option, sizeof(option), "act=%s", act);
    setenv("FOREBAY_LIBEXEC", getenv("FOREBAY_EVIL_AGENT"), 1);
    host_rig_refused("evil", code, part, option, NULL);
    unsetenv("FOREBAY_LIBEXEC");
    assert_int_equal(host_rig_agents(pids, 4), 0);
}

static void an_agent_of_another_version_is_refused_with_both_numbers(void **state)
{
    char part[64];
    snprintf(part, sizeof(part), "its agent speaks version %u; accepted: %u", FBY_WIRE_VERSION + 1, FBY_WIRE_VERSION);
    agent_refused("version", FBY_E_CONFIG, part);
}

static void an_agent_that_exits_says_how(void **state)
{
    agent_refused("exit", FBY_E_CONNECTION, "its agent did not start: it exited with status 3");
}

static void a_ready_that_is_cut_short_is_no_ready(void **state)
{
    agent_refused("short", FBY_E_CONNECTION, "its agent did not start: a message that makes no sense");
}

static void an_agent_that_hangs_up_and_lives_on_is_killed(void **state)
{
    agent_refused("deaf", FBY_E_CONNECTION, "its agent did not start: it closed its control socket");
}

static void an_agent_that_never_says_ready_is_given_up(void **state)
{
    agent_refused("silent", FBY_E_CONNECTION, "its agent did not say READY within 30 s");
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_foreign_tag),
        cmocka_unit_test(more_answers_than_questions),
        cmocka_unit_test(garbage_on_the_control_socket),
        cmocka_unit_test(ready_once_more),
        cmocka_unit_test(an_answer_to_no_ping),
        cmocka_unit_test(a_control_socket_that_was_closed),
        cmocka_unit_test(results_that_cannot_be_true_are_errors_of_their_keys),
        cmocka_unit_test(an_agent_that_dies_of_every_call_backs_off),
        cmocka_unit_test(agents_that_do_not_start_any_more_are_tried_less_and_less),
        cmocka_unit_test(an_agent_of_another_version_is_refused_with_both_numbers),
        cmocka_unit_test(an_agent_that_exits_says_how),
        cmocka_unit_test(a_ready_that_is_cut_short_is_no_ready),
        cmocka_unit_test(an_agent_that_hangs_up_and_lives_on_is_killed),
        cmocka_unit_test(an_agent_that_never_says_ready_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
