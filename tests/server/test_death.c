/* test_death.c - clients that are killed, or close their socket and live on: what they had goes once, and slots that they
   could still write to stay out of use for exactly as long. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "api/call.h"
#include "wire.h"

enum { PUT_BLOCKS = 8, PUT_TOKENS = 16 * PUT_BLOCKS + 1, SLOT = RIG_PAYLOAD + 64 };

/* ---- What the other processes do -------------------------------------------------------------------------------- */

/* Two holds, one of them with three readers, sessions that hang in the store, one that is answered and not taken. Where
   others came before and are not over yet some of it is refused, which the test sees. */
static void have_sessions_and_holds(wire_t *wire)
{
    fby_seq_t *resident = wire_own_seq(wire, 1, RIG_P32_TOKENS), *absent = wire_own_seq(wire, 2, RIG_P32_TOKENS);
    fby_session_t session;
    fby_hold_t hold = 0;
    uint64_t tokens;
    (void)wire_lookup(wire, resident, 1, 0, &hold, &tokens);
    (void)wire_lookup(wire, resident, 1, 0, &hold, &tokens);
    (void)wire_object(wire, FBY_REQUEST_HOLD_READERS, hold, 2, 0, 0);
    assert_int_equal(wire_start(wire, resident, 1, 0, &session), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(wire_start(wire, absent, 2, 0, &session), 0);
    }
    assert_int_equal(wire_object(wire, FBY_REQUEST_SUBSCRIBE, 0, 10, 0, 0), 0);
    wire_say("r", 1);
}

static void have_a_put(wire_t *wire)
{
    fby_seq_t *seq = wire_own_seq(wire, 3, PUT_TOKENS);
    fby_put_t put = 0;
    uint64_t from, end;
    (void)wire_put(wire, seq, 3, PUT_BLOCKS, &put, &from, &end);
    wire_say(&put, sizeof(put));
}

/* The socket is closed; the mapping, and the process, stay. */
static void have_a_put_and_hang_up(wire_t *wire)
{
    fby_seq_t *seq = wire_own_seq(wire, 3, PUT_TOKENS);
    fby_put_t put = 0;
    uint64_t from, end;
    (void)wire_put(wire, seq, 3, PUT_BLOCKS, &put, &from, &end);
    close(wire->socket);
    wire_say(&put, sizeof(put));
}

/* Comes back and says that it writes no more: with its secret, and before that without. */
static void come_back_and_end_the_put(wire_t *wire)
{
    fby_seq_t *seq = wire_own_seq(wire, 3, PUT_TOKENS);
    fby_put_t put;
    uint64_t from, end;
    assert_int_equal(wire_put(wire, seq, 3, PUT_BLOCKS, &put, &from, &end), 0);
    close(wire->socket);
    char path[96];
    snprintf(path, sizeof(path), "%s", getenv("FBY_TEST_PATH"));
    wire_t *liar = wire_open(path);
    liar->welcome.client = wire->welcome.client;
    liar->welcome.secret = wire->welcome.secret + 1;
    assert_int_equal(wire_hello(liar), 0);
    uint64_t who = wire->welcome.client, secret = wire->welcome.secret;
    assert_int_equal(wire_object(liar, FBY_REQUEST_PUT_END, put, who, secret + 1, 0), FBY_E_STALE);
    wire_t *again = wire_open(path);
    again->welcome.client = wire->welcome.client;
    again->welcome.secret = wire->welcome.secret;
    assert_int_equal(wire_hello(again), 0);
    assert_int_equal(wire_object(again, FBY_REQUEST_PUT_END, put, who, secret, 0), 0);
    assert_int_equal(wire_object(again, FBY_REQUEST_PUT_END, put, who, secret, 0), FBY_E_STALE);
    wire_say("e", 1);
}

static void do_nothing(wire_t *wire)
{
    wire_say("n", 1);
}

static const wire_story_t stories[] = {
    {"sessions_and_holds", have_sessions_and_holds},
    {"put", have_a_put},
    {"put_and_hang_up", have_a_put_and_hang_up},
    {"come_back", come_back_and_end_the_put},
    {"nothing", do_nothing},
};

/* ---- Tests ------------------------------------------------------------------------------------------------------ */

static uint32_t subscriptions(const served_t *served)
{
    fby_runtime_t *runtime = served->rig.cache->runtime;
    pthread_mutex_lock(&runtime->lock);
    uint32_t count = runtime->subscriptions;
    pthread_mutex_unlock(&runtime->lock);
    return count;
}

static void sessions_and_holds_go_with_their_client_once(void **state)
{
    served_t served;
    char ready;
    SERVED_OPEN(&served, NULL);
    fby_seq_t *resident = rig_seq(&served.rig, 1, RIG_P32_TOKENS), *absent = rig_seq(&served.rig, 2, RIG_P32_TOKENS);
    rig_put_stored(&served.rig, resident, 32);
    rig_store_blocks(&served.rig, absent, 0, 32);
    rig_script(&served.rig, "get:*:hang");
    wire_child_t child = wire_child(served.path, "sessions_and_holds");
    wire_child_hear(&child, &ready, 1);
    assert_int_equal(rig_stats(&served.rig).holds_gauge, 2);
    assert_int_equal(subscriptions(&served), 1);
    wire_child_kill(&child);
    RIG_AWAIT(rig_stats(&served.rig).holds_gauge == 0);
    RIG_AWAIT(subscriptions(&served) == 0);
    served_unhang(&served);
    rig_quiet(&served.rig);
    fby_stats_t stats = rig_stats(&served.rig);
    assert_int_equal(stats.sessions_by_reason[FBY_REASON_ABORT], 4);
    assert_int_equal(served_info(&served).deaths, 1);
    assert_int_equal(served_info(&served).clients, 0);
    assert_int_equal(served_info(&served).fenced_bytes, 0);
    fby_seq_unref(resident);
    fby_seq_unref(absent);
    served_close(&served);
}

static void slots_of_a_killed_client_come_free(void **state)
{
    served_t served;
    fby_put_t put;
    SERVED_OPEN(&served, NULL);
    wire_child_t child = wire_child(served.path, "put");
    wire_child_hear(&child, &put, sizeof(put));
    assert_int_equal(rig_stats(&served.rig).free_blocks_gauge, RIG_POOL_BLOCKS - PUT_BLOCKS);
    wire_child_kill(&child);
    rig_quiet(&served.rig);
    RIG_AWAIT(served_info(&served).deaths == 1);
    assert_int_equal(rig_stats(&served.rig).free_blocks_gauge, RIG_POOL_BLOCKS);
    assert_int_equal(served_info(&served).fenced_bytes, 0);
    assert_int_equal(fby_cache_check(served.rig.cache), 0);
    served_close(&served);
}

static void slots_of_a_client_that_hung_up_wait_for_its_process(void **state)
{
    served_t served;
    fby_put_t put;
    fby_server_client_t client;
    size_t count;
    SERVED_OPEN(&served, NULL);
    wire_child_t child = wire_child(served.path, "put_and_hang_up");
    wire_child_hear(&child, &put, sizeof(put));
    RIG_AWAIT(served_info(&served).fenced_bytes == PUT_BLOCKS * SLOT);
    fby_server_info_t info = {.size = sizeof(info)};
    assert_int_equal(fby_server_describe(served.server, &info, &client, 1, &count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(client.ended, 1);
    assert_int_equal(client.pid, child.pid);
    assert_int_equal(client.fenced_bytes, PUT_BLOCKS * SLOT);
    assert_int_equal(info.clients, 0);
    /* everybody else has the rest of the pool, and no more: 64 blocks are asked for, 56 are there */
    fby_seq_t *seq = rig_seq(&served.rig, 9, 16 * 64 + 1);
    fby_put_result_t result = {.size = sizeof(result)};
    fby_put_t other = rig_put(&served.rig, seq, 64, &result);
    assert_int_equal(result.published, RIG_POOL_BLOCKS - PUT_BLOCKS);
    assert_int_equal(fby_put_release(served.rig.cache, other), 0);
    assert_int_equal(fby_cache_check(served.rig.cache), 0);
    wire_child_kill(&child);
    RIG_AWAIT(served_info(&served).fenced_bytes == 0);
    rig_quiet(&served.rig);
    assert_int_equal(rig_stats(&served.rig).free_blocks_gauge, PUT_BLOCKS);
    RIG_AWAIT(fby_server_describe(served.server, &info, &client, 1, &count) == 0 && count == 0);
    fby_seq_unref(seq);
    served_close(&served);
}

static void a_reset_does_not_free_what_is_fenced(void **state)
{
    served_t served;
    fby_put_t put;
    SERVED_OPEN(&served, NULL);
    wire_child_t child = wire_child(served.path, "put_and_hang_up");
    wire_child_hear(&child, &put, sizeof(put));
    RIG_AWAIT(served_info(&served).fenced_bytes == PUT_BLOCKS * SLOT);
    (void)fby_cache_reset(served.rig.cache, 0, 0);
    assert_int_equal(rig_stats(&served.rig).free_blocks_gauge, RIG_POOL_BLOCKS - PUT_BLOCKS);
    wire_child_kill(&child);
    RIG_AWAIT(rig_stats(&served.rig).free_blocks_gauge == RIG_POOL_BLOCKS);
    assert_int_equal(fby_cache_reset(served.rig.cache, RIG_PATIENCE_S, 0), FBY_RESET_DONE);
    rig_quiet(&served.rig);
    served_close(&served);
}

static void who_comes_back_may_end_its_put(void **state)
{
    served_t served;
    char ended;
    SERVED_OPEN(&served, NULL);
    setenv("FBY_TEST_PATH", served.path, 1);
    wire_child_t child = wire_child(served.path, "come_back");
    wire_child_hear(&child, &ended, 1);
    assert_int_equal(ended, 'e');
    rig_quiet(&served.rig);
    assert_int_equal(served_info(&served).fenced_bytes, 0);
    wire_child_kill(&child);
    served_close(&served);
}

static void what_is_fenced_does_not_keep_the_server_from_closing(void **state)
{
    served_t served;
    fby_put_t put;
    SERVED_OPEN(&served, NULL);
    wire_child_t child = wire_child(served.path, "put_and_hang_up");
    wire_child_hear(&child, &put, sizeof(put));
    RIG_AWAIT(served_info(&served).fenced_bytes == PUT_BLOCKS * SLOT);
    served_close(&served);
    wire_child_kill(&child);
}

/* Killed at any moment: 40 clients that begin, are in the middle, or have it all. */
static void killed_at_any_moment_all_comes_back(void **state)
{
    served_t served;
    uint64_t random = 7;
    SERVED_OPEN(&served, NULL);
    fby_seq_t *resident = rig_seq(&served.rig, 1, RIG_P32_TOKENS), *absent = rig_seq(&served.rig, 2, RIG_P32_TOKENS);
    rig_put_stored(&served.rig, resident, 32);
    rig_store_blocks(&served.rig, absent, 0, 32);
    for (int i = 0; i < 40; i++) {
        static const char *const which[] = {"sessions_and_holds", "put", "put_and_hang_up", "nothing"};
        wire_child_t child = wire_child(served.path, which[unit_below(&random, 4)]);
        if (unit_below(&random, 2) == 0) {
            char said;
            wire_child_hear(&child, &said, 1);
        } else {
            for (uint32_t turn = unit_below(&random, 20); turn > 0; turn--) {
                rig_pause();
            }
        }
        wire_child_kill(&child);
    }
    rig_quiet(&served.rig);
    RIG_AWAIT(served_info(&served).clients == 0);
    assert_int_equal(served_info(&served).fenced_bytes, 0);
    assert_int_equal(served_info(&served).violations, 0);
    assert_int_equal(fby_cache_check(served.rig.cache), 0);
    fby_seq_unref(resident);
    fby_seq_unref(absent);
    served_close(&served);
}

int main(int argc, char **argv)
{
    wire_main(argc, argv, stories, FBY_ARRAY_LEN(stories));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_and_holds_go_with_their_client_once),
        cmocka_unit_test(slots_of_a_killed_client_come_free),
        cmocka_unit_test(slots_of_a_client_that_hung_up_wait_for_its_process),
        cmocka_unit_test(a_reset_does_not_free_what_is_fenced),
        cmocka_unit_test(who_comes_back_may_end_its_put),
        cmocka_unit_test(what_is_fenced_does_not_keep_the_server_from_closing),
        cmocka_unit_test(killed_at_any_moment_all_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
