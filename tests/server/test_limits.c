/* test_limits.c - what one client may have: limits name their key, and nothing else counts. */
#include "api/call.h"
#include "wire.h"

static void limits_are_per_client_and_name_their_key(void **state)
{
    served_t served;
    fby_hold_t hold, second;
    fby_session_t session, more;
    fby_put_t put;
    uint64_t tokens, from, end;
    SERVED_OPEN(&served, "server.client_sessions=1", "server.client_holds=1", "server.client_puts=1");
    wire_t *wire = wire_connect(served.path), *other = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_put_stored(&served.rig, seq, 32);
    assert_int_equal(wire_start(wire, seq, 1, 0, &session), 0);
    assert_int_equal(wire_start(wire, seq, 1, 0, &more), FBY_E_BUDGET);
    assert_memory_equal(wire->answer.text, "server.client_sessions is 1", 27);
    assert_int_equal(wire_start(other, seq, 1, 0, &more), 0);
    assert_int_equal(wire_lookup(wire, seq, 1, 0, &hold, &tokens), 0);
    assert_int_equal(wire_lookup(wire, seq, 1, 0, &second, &tokens), FBY_E_BUDGET);
    assert_int_equal(wire_object(wire, FBY_REQUEST_TAKE, session, 0, 0, 0), FBY_E_BUDGET);
    assert_int_equal(wire_put(wire, seq, 1, 32, &put, &from, &end), 0);
    assert_int_equal(wire_put(wire, seq, 1, 32, &put, &from, &end), FBY_E_BUDGET);
    assert_int_equal(wire_object(wire, FBY_REQUEST_HOLD_RELEASE, hold, 0, 0, 0), 0);
    assert_int_equal(wire_object(wire, FBY_REQUEST_TAKE, session, 0, 0, 0), 0); /* the lease waited */
    assert_int_equal(wire_start(wire, seq, 1, 0, &session), 0);
    assert_int_equal(served_info(&served).limit_refused, 4);
    fby_seq_unref(seq);
    wire_close(wire);
    wire_close(other);
    served_close(&served);
}

static void pinned_bytes_are_what_holds_cover(void **state)
{
    served_t served;
    fby_hold_t hold, second;
    uint64_t tokens;
    SERVED_OPEN(&served, "server.client_pinned_bytes=200000B"); /* 48 blocks */
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_put_stored(&served.rig, seq, 32);
    assert_int_equal(wire_lookup(wire, seq, 1, 0, &hold, &tokens), 0);
    assert_int_equal(wire_lookup(wire, seq, 1, 0, &second, &tokens), FBY_E_BUDGET);
    assert_int_equal(rig_stats(&served.rig).holds_gauge, 1);
    assert_int_equal(wire_object(wire, FBY_REQUEST_HOLD_TRIM, hold, 16 * 16, 0, 0), 0);
    assert_int_equal(((const fby_msg_numbers_t *)wire->answer.body)->number[0], 256);
    assert_int_equal(wire_lookup(wire, seq, 1, 0, &second, &tokens), 0);
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

static void sessions_that_ended_by_themselves_do_not_count(void **state)
{
    served_t served;
    fby_session_t session;
    SERVED_OPEN(&served, "server.client_sessions=4");
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    for (int i = 0; i < 1000; i++) { /* the store has nothing: each is over by itself */
        assert_int_equal(wire_start(wire, seq, 1, i == 0 ? 0 : 32, &session), 0);
        (void)wire_await_answer(wire, session);
    }
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

/* A reset makes the hold's handle stale for everything but this: each of its readers may still end. */
static void readers_of_before_a_reset_end_one_by_one(void **state)
{
    served_t served;
    fby_hold_t hold;
    uint64_t tokens;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_put_stored(&served.rig, seq, 32);
    assert_int_equal(wire_lookup(wire, seq, 1, 0, &hold, &tokens), 0);
    assert_int_equal(wire_object(wire, FBY_REQUEST_HOLD_READERS, hold, 1, 0, 0), 0);
    assert_true(fby_cache_reset(served.rig.cache, 0, 0) >= 0);
    assert_int_equal(wire_object(wire, FBY_REQUEST_HOLD_RELEASE, hold, 0, 0, 0), 0);
    assert_int_equal(served.rig.cache->runtime->holds.count, 1);
    assert_int_equal(rig_stats(&served.rig).holds_gauge, 1);
    assert_int_equal(wire_object(wire, FBY_REQUEST_HOLD_RELEASE, hold, 0, 0, 0), 0);
    assert_int_equal(wire_object(wire, FBY_REQUEST_HOLD_RELEASE, hold, 0, 0, 0), FBY_E_STALE);
    assert_int_equal(served.rig.cache->runtime->holds.count, 0);
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_per_client_and_name_their_key),
        cmocka_unit_test(pinned_bytes_are_what_holds_cover),
        cmocka_unit_test(sessions_that_ended_by_themselves_do_not_count),
        cmocka_unit_test(readers_of_before_a_reset_end_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
