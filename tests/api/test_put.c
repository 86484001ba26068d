/* test_put.c - puts through the public API: what is published, what reaches the store, what fails. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "api/rig.h"

static void a_put_is_published_and_stored(void **state)
{
    rig_needs_process();
    (void)state;
    rig_t rig;
    fby_put_result_t result;
    uint64_t stored, failed;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    fby_put_t put = rig_put(&rig, p32, 32, &result);
    assert_int_equal(result.published, 32);
    assert_int_equal(result.duplicate + result.discarded + result.orphan, 0);
    assert_int_equal(result.resident_tokens, 512);
    assert_int_equal(fby_put_wait_store(rig.cache, put, RIG_PATIENCE_S, &stored, &failed), 0);
    assert_int_equal(stored, 32);
    assert_int_equal(failed, 0);
    assert_int_equal(fby_mem_objects(rig.store), 32);
    assert_int_equal(fby_put_release(rig.cache, put), 0);
    fby_hold_t hold;
    assert_int_equal(fby_lookup(rig.cache, p32, 0, &hold, NULL), 0);
    rig_verify_hold(&rig, hold, p32, 32);
    fby_hold_release(rig.cache, hold);
    rig_quiet(&rig);
    fby_seq_unref(p32);
    rig_close(&rig);
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, timeout_ms) == 1;
}

static void a_descriptor_tells_of_the_last_store_write(void **state)
{
    rig_needs_process();
    (void)state;
    rig_t rig;
    uint64_t stored;
    RIG_OPEN(&rig, "store.host=thread", "store.write_lanes=1", "store.batch=4");
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_script_block(&rig, p32, 7, "put", "hang");
    fby_put_t put = rig_put(&rig, p32, 8, NULL);
    int fd = fby_put_event_fd(rig.cache, put), closed = fby_put_event_fd(rig.cache, put);
    assert_true(fd >= 0 && closed >= 0);
    close(closed);
    assert_true(fby_mem_await_hung(rig.store, 1, RIG_PATIENCE_NS));
    assert_false(is_readable(fd, 0));
    assert_int_equal(fby_put_wait_store(rig.cache, put, 0, NULL, NULL), -ETIMEDOUT);
    fby_mem_release(rig.store);
    assert_true(is_readable(fd, (int)(RIG_PATIENCE_S * 1000)));
    assert_int_equal(fby_put_wait_store(rig.cache, put, 0, &stored, NULL), 0);
    assert_int_equal(stored, 8);
    int late = fby_put_event_fd(rig.cache, put);
    assert_true(is_readable(late, 0)); /* nothing is outstanding */
    assert_int_equal(fby_put_release(rig.cache, put), 0);
    assert_int_equal(fby_put_event_fd(rig.cache, put), FBY_E_STALE);
    close(fd);
    close(late);
    fby_seq_unref(p32);
    rig_close(&rig);
}

/* The next cache over the same store reads back what this one wrote: written, lost, prefetched, exact. */
static void what_was_put_is_prefetched_by_another_cache(void **state)
{
    rig_needs_process();
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_put_stored(&rig, p32, 32);
    fby_seq_unref(p32);
    assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL), 0);
    rig_reopen(&rig, (const char *const[]){NULL});
    p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    assert_int_equal(rig_lookup(&rig, p32), 0);
    fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).loaded_tokens, 512);
    rig_take_and_verify(&rig, session, p32, 32);
    rig_quiet(&rig);
    fby_seq_unref(p32);
    rig_close(&rig);
}

static void invalid_tokens_are_not_published(void **state)
{
    (void)state;
    rig_t rig;
    fby_put_t put;
    fby_put_result_t result = {.size = sizeof(result)};
    uint64_t missing, from, to;
    void *slots[8];
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 200);
    assert_int_equal(fby_put_begin(rig.cache, seq, 0, 8, &put, &missing, &from, &to), 0);
    assert_int_equal(missing, 0);
    assert_int_equal(from, 0);
    assert_int_equal(to, 8);
    assert_int_equal(fby_put_slots(rig.cache, put, 0, 0, 8, slots), 0);
    for (size_t i = 0; i < 8; i++) {
        rig_content(seq, i, 0, slots[i], RIG_PAYLOAD);
    }
    assert_int_equal(rig_lookup(&rig, seq), 0);
    assert_int_equal(fby_put_commit(rig.cache, put, 5 * RIG_BLOCK_TOKENS + 15, &result), 0);
    assert_int_equal(result.published, 5);
    assert_int_equal(result.discarded, 3);
    assert_int_equal(rig_lookup(&rig, seq), 5);
    assert_int_equal(fby_put_commit(rig.cache, put, 80, &result), FBY_E_STATE);
    /* the same blocks once more: from the first missing one */
    assert_int_equal(fby_put_next(rig.cache, put, seq, 0, 8, &missing, &from, &to), 0);
    assert_int_equal(missing, 5);
    assert_int_equal(from, 5);
    assert_int_equal(fby_put_abort(rig.cache, put), 0);
    assert_int_equal(fby_put_abort(rig.cache, put), FBY_E_STALE);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    rig_close(&rig);
}

static void the_first_of_two_puts_wins(void **state)
{
    (void)state;
    rig_t rig;
    fby_put_t slow;
    fby_put_result_t result = {.size = sizeof(result)};
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 200);
    assert_int_equal(fby_put_begin(rig.cache, seq, 0, 4, &slow, NULL, NULL, NULL), 0);
    rig_put_stored(&rig, seq, 4);
    assert_int_equal(fby_put_commit(rig.cache, slow, 64, &result), 0);
    assert_int_equal(result.duplicate, 4);
    assert_int_equal(result.published, 0);
    assert_int_equal(fby_put_release(rig.cache, slow), 0);
    fby_hold_t hold;
    assert_int_equal(fby_lookup(rig.cache, seq, 0, &hold, NULL), 0);
    rig_verify_hold(&rig, hold, seq, 4);
    fby_hold_release(rig.cache, hold);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* C21: each tier publishes on its own. A store that hangs, then fails, costs the CPU copy nothing. */
static void a_failing_store_write_keeps_the_cpu_copy(void **state)
{
    rig_needs_process();
    (void)state;
    rig_t rig;
    uint64_t stored, failed;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 100);
    rig_script(&rig, "put:*:hang+err(CONNECTION)");
    fby_put_t put = rig_put(&rig, seq, 4, NULL);
    assert_true(fby_mem_await_hung(rig.store, 4, RIG_PATIENCE_NS));
    assert_int_equal(rig_lookup(&rig, seq), 4);
    assert_int_equal(fby_put_wait_store(rig.cache, put, 0, &stored, &failed), -ETIMEDOUT);
    fby_mem_release(rig.store);
    assert_int_equal(fby_put_wait_store(rig.cache, put, RIG_PATIENCE_S, &stored, &failed), 0);
    assert_int_equal(stored, 0);
    assert_int_equal(failed, 4);
    assert_int_equal(rig_lookup(&rig, seq), 4);
    assert_int_equal(rig_stats(&rig).writes_failed, 4);
    fby_put_release(rig.cache, put);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* C13: a key that exists and cannot be read is not our data being readable. */
static void an_existing_key_counts_only_if_it_is_readable(void **state)
{
    rig_needs_process();
    (void)state;
    rig_t rig;
    uint64_t stored, failed;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 200);
    rig_store_blocks(&rig, seq, 0, 2);
    rig_script_block(&rig, seq, 1, "*", "processing");
    fby_put_t put = rig_put(&rig, seq, 4, NULL);
    assert_int_equal(fby_put_wait_store(rig.cache, put, RIG_PATIENCE_S, &stored, &failed), 0);
    assert_int_equal(stored, 3);
    assert_int_equal(failed, 1);
    fby_put_release(rig.cache, put);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* B07: nobody ticks, nobody waits: what 40 puts hold is let go when their writes have ended. */
static void forty_puts_let_go_by_themselves(void **state)
{
    rig_needs_process();
    (void)state;
    for (int host = 0; host < 2; host++) {
        rig_t rig;
        RIG_OPEN(&rig, host == 0 ? "store.host=thread" : "store.host=inline", "prefetch.enabled=false");
        for (uint64_t i = 0; i < 40; i++) {
            fby_seq_t *seq = rig_seq(&rig, i, 20);
            assert_int_equal(fby_put_release(rig.cache, rig_put(&rig, seq, 1, NULL)), 0);
            fby_seq_unref(seq);
        }
        rig_quiet(&rig);
        assert_int_equal(rig_stats(&rig).writes + rig_stats(&rig).writes_dropped, 40);
        rig_close(&rig);
    }
}

/* G16: a get, then a put of the same request, a hundred times: every put is done. */
static void a_put_after_a_get_always_runs(void **state)
{
    rig_needs_process();
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    for (uint64_t i = 0; i < 100; i++) {
        fby_seq_t *seq = rig_seq(&rig, i, 4 * RIG_BLOCK_TOKENS + 1);
        rig_store_blocks(&rig, seq, 0, 2);
        fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        rig_wait(&rig, session);
        rig_take_and_verify(&rig, session, seq, 2);
        rig_put_stored(&rig, seq, 4);
        fby_seq_unref(seq);
    }
    assert_int_equal(fby_mem_objects(rig.store), 400);
    rig_quiet(&rig);
    rig_close(&rig);
}

/* A snapshot group: the put of a boundary carries its snapshot; a session restores both, exact. */
static void a_snapshot_rides_with_its_boundary(void **state)
{
    rig_needs_process();
    (void)state;
    rig_t rig;
    fby_put_t put;
    void *slot;
    uint8_t expected[RIG_PAYLOAD];
    RIG_OPEN(&rig, "model.groups=full:4096:all,state:1024:trailing(1)", "store.host=thread");
    fby_seq_t *seq = rig_seq(&rig, 1, 8 * RIG_BLOCK_TOKENS + 1);
    assert_int_equal(fby_put_begin(rig.cache, seq, 0, 8, &put, NULL, NULL, NULL), 0);
    for (uint64_t block = 0; block < 8; block++) {
        assert_int_equal(fby_put_slots(rig.cache, put, 0, block, block + 1, &slot), 0);
        rig_content(seq, block, 0, slot, RIG_PAYLOAD);
        assert_int_equal(fby_put_slots(rig.cache, put, 1, block, block + 1, &slot), 0);
        assert_int_equal(slot != NULL, block == 7);
    }
    rig_content(seq, 7, 1, slot, 1024);
    assert_int_equal(fby_put_commit(rig.cache, put, 128, NULL), 0);
    assert_int_equal(fby_put_wait_store(rig.cache, put, RIG_PATIENCE_S, NULL, NULL), 0);
    assert_int_equal(fby_put_release(rig.cache, put), 0);
    assert_int_equal(fby_mem_objects(rig.store), 9);
    assert_int_equal(fby_cache_reset(rig.cache, RIG_PATIENCE_S, 0), FBY_RESET_DONE);

    fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).delivered_tokens, 128);
    fby_hold_t hold;
    const void *state_slot;
    assert_int_equal(fby_session_take(rig.cache, session, &hold), 0);
    rig_verify_hold(&rig, hold, seq, 8);
    assert_int_equal(fby_hold_slots(rig.cache, hold, 1, 7, 8, &state_slot), 0);
    rig_content(seq, 7, 1, expected, 1024);
    assert_memory_equal(state_slot, expected, 1024);
    fby_hold_release(rig.cache, hold);
    fby_seq_unref(seq);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_put_is_published_and_stored),
        cmocka_unit_test(a_descriptor_tells_of_the_last_store_write),
        cmocka_unit_test(what_was_put_is_prefetched_by_another_cache),
        cmocka_unit_test(invalid_tokens_are_not_published),
        cmocka_unit_test(the_first_of_two_puts_wins),
        cmocka_unit_test(a_failing_store_write_keeps_the_cpu_copy),
        cmocka_unit_test(an_existing_key_counts_only_if_it_is_readable),
        cmocka_unit_test(forty_puts_let_go_by_themselves),
        cmocka_unit_test(a_put_after_a_get_always_runs),
        cmocka_unit_test(a_snapshot_rides_with_its_boundary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
