/* test_quarantine.c - A05 with bytes: a read that outlives its limit never lands in memory that was given to others. */
#include "api/rig.h"

/* Pool of 8 blocks. A reads 4 that hang; its limits pass: its answer is final, its slots are quarantined. B wants 8 and
   gets the 4 that are left. Then A's read ends late, with its own bytes: B's are untouched and A's come free only now. */
static void a_late_read_lands_in_nobodys_memory(void **state)
{
    (void)state;
    rig_t rig;
    uint8_t expected[RIG_PAYLOAD];
    const void *slots[4];
    fby_hold_t hold;
    RIG_OPEN(&rig, "store.host=thread", "pool.bytes=33280B", "pool.max_hold_bytes=33280B",
             "pool.write_pinned_bytes=33280B", "prefetch.drain_limit_s=0.05", "store.breaker_failures=1000");
    fby_seq_t *a = rig_seq(&rig, 1, 4 * 16 + 1), *b = rig_seq(&rig, 2, 8 * 16 + 1);
    rig_store_blocks(&rig, a, 0, 4);
    rig_store_blocks(&rig, b, 0, 8);
    rig_script_block(&rig, a, 0, "get", "hang");
    fby_session_t first = rig_start(&rig, a, FBY_POLICY_TIMEOUT, FBY_STOP_DRAIN, 0.05);
    assert_true(fby_mem_await_hung(rig.store, 1, RIG_PATIENCE_NS));
    fby_snapshot_t result = rig_wait(&rig, first);
    assert_int_equal(result.reason, FBY_REASON_DEADLINE);
    assert_int_equal(result.delivered_tokens, 0);
    fby_stats_t stats = rig_stats(&rig);
    assert_int_equal(stats.quarantine_bytes_gauge, 4 * 4160);
    assert_int_equal(stats.reserved_bytes_gauge, 4 * 4160);

    fby_session_t second = rig_start(&rig, b, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    result = rig_wait(&rig, second);
    assert_int_equal(result.delivered_tokens, 64);
    assert_int_equal(result.reason, FBY_REASON_CAPACITY_POOL);
    assert_int_equal(fby_session_take(rig.cache, second, &hold), 0);
    assert_int_equal(rig_stats(&rig).free_blocks_gauge, 0);

    fby_mem_release(rig.store);
    RIG_AWAIT(rig_stats(&rig).quarantine_bytes_gauge == 0);
    assert_int_equal(rig_stats(&rig).free_blocks_gauge, 4);
    assert_int_equal(fby_hold_slots(rig.cache, hold, 0, 0, 4, slots), 0);
    for (size_t block = 0; block < 4; block++) {
        rig_content(b, block, 0, expected, sizeof(expected));
        assert_memory_equal(slots[block], expected, sizeof(expected));
    }
    assert_int_equal(rig_lookup(&rig, a), 0);
    fby_hold_release(rig.cache, hold);
    fby_session_release(rig.cache, first);
    rig_quiet(&rig);
    fby_seq_unref(a);
    fby_seq_unref(b);
    rig_close(&rig);
}

/* The same on the inline host: the driver can cancel, so that the fence ends the quarantine without anybody's help. */
static void the_inline_host_fences_by_itself(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, "store.host=inline", "prefetch.no_progress_timeout_s=0.05", "prefetch.io_timeout_s=0.05",
             "store.breaker_failures=1000");
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&rig, p32, 0, 32);
    rig_script_block(&rig, p32, 8, "get", "hang");
    fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    fby_snapshot_t result = rig_wait(&rig, session);
    assert_int_equal(result.reason, FBY_REASON_IO_TIMEOUT);
    assert_int_equal(result.delivered_tokens, 128);
    rig_take_and_verify(&rig, session, p32, 8);
    rig_quiet(&rig);
    fby_seq_unref(p32);
    rig_close(&rig);
}

/* A10: the reply of one chunk is lost; others finish, this one ends at its limit, and health shows its age meanwhile. */
static void a_lost_reply_ends_one_session_only(void **state)
{
    (void)state;
    rig_t rig;
    fby_session_t others[8];
    fby_health_t health = {.size = sizeof(health)};
    RIG_OPEN(&rig, "store.host=thread", "prefetch.no_progress_timeout_s=0.3", "prefetch.io_timeout_s=0.3",
             "store.breaker_failures=1000");
    fby_seq_t *p12 = rig_seq(&rig, 100, 12 * 16 + 1);
    rig_store_blocks(&rig, p12, 0, 12);
    rig_script_block(&rig, p12, 8, "get", "lost");
    fby_session_t session = rig_start(&rig, p12, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    for (uint64_t i = 0; i < 8; i++) {
        fby_seq_t *seq = rig_seq(&rig, i, 3 * 16 + 1);
        rig_store_blocks(&rig, seq, 0, 3);
        others[i] = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        fby_seq_unref(seq);
    }
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(rig_wait(&rig, others[i]).delivered_tokens, 48);
        fby_session_release(rig.cache, others[i]);
    }
    for (int turn = 0; turn < 20000 && !rig_poll(&rig, session).answered; turn++) {
        assert_int_equal(fby_cache_health(rig.cache, &health), 0);
        if (!health.healthy) {
            break;
        }
        rig_pause();
    }
    assert_int_equal(health.healthy, 0);
    assert_true(health.oldest_operation_ns > 0);
    fby_snapshot_t result = rig_wait(&rig, session);
    assert_int_equal(result.reason, FBY_REASON_IO_TIMEOUT);
    assert_int_equal(result.delivered_tokens, 128);
    assert_true(rig_stats(&rig).quarantine_bytes_gauge > 0);
    fby_session_release(rig.cache, session);
    fby_seq_unref(p12);
    /* a lost reply never comes: the call is abandoned at close, and said */
    assert_int_equal(fby_cache_close(rig.cache, 0.05, NULL), FBY_E_ABANDONED);
    fby_store_mem.close(rig.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_read_lands_in_nobodys_memory),
        cmocka_unit_test(the_inline_host_fences_by_itself),
        cmocka_unit_test(a_lost_reply_ends_one_session_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
