/* test_job.c - what a store answers becomes one of our codes, block by block; what is wrong never becomes visible. */
#include <errno.h>

#include "api/rig.h"
#include "base/base.h"
#include "runtime/job.h"

static void codes_of_a_driver_are_ours_or_invalid(void **state)
{
    (void)state;
    static const struct {
        int64_t result;
        int code;
    } rows[] = {{FBY_E_MISSING, FBY_E_MISSING},
                {FBY_E_INVALID, FBY_E_INVALID},
                {FBY_E_LEASE, FBY_E_LEASE},
                {-ETIMEDOUT, FBY_E_TIMEOUT},
                {-ECONNRESET, FBY_E_CONNECTION},
                {-EAGAIN, FBY_E_CONNECTION},
                {-ENOSPC, FBY_E_FULL},
                {-EINVAL, FBY_E_INVALID},
                {FBY_E_STALE, FBY_E_INVALID},
                {INT64_MIN, FBY_E_INVALID},
                {-1, FBY_E_INVALID}};
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        assert_int_equal(fby_store_code(rows[i].result), rows[i].code);
    }
}

/* Block 11 of 32 goes wrong in each way: 11 blocks are delivered exact, the reason and the counter say why. */
static void one_bad_block_cuts_the_prefix_there(void **state)
{
    (void)state;
    static const struct {
        const char *effect;
        fby_reason_t reason;
        int error;
        size_t counter;
    } rows[] = {
        {"miss", FBY_REASON_PARTIAL_READ, FBY_E_MISSING, offsetof(fby_stats_t, fail_missing)},
        {"not_ready", FBY_REASON_PARTIAL_READ, FBY_E_NOT_READY, offsetof(fby_stats_t, fail_not_ready)},
        {"short(100)", FBY_REASON_PARTIAL_READ, FBY_E_SIZE, offsetof(fby_stats_t, fail_size)},
        {"corrupt(12345)", FBY_REASON_PARTIAL_READ, FBY_E_CHECKSUM, offsetof(fby_stats_t, fail_checksum)},
        {"corrupt(32900)", FBY_REASON_PARTIAL_READ, FBY_E_CHECKSUM, offsetof(fby_stats_t, fail_checksum)},
        {"zero", FBY_REASON_PARTIAL_READ, FBY_E_CHECKSUM, offsetof(fby_stats_t, fail_checksum)},
        {"err(LEASE)", FBY_REASON_PARTIAL_READ, FBY_E_LEASE, offsetof(fby_stats_t, fail_lease)},
        {"err(INVALID)", FBY_REASON_STORE_ERROR, FBY_E_INVALID, offsetof(fby_stats_t, fail_other)},
        {"err(TIMEOUT)", FBY_REASON_IO_TIMEOUT, FBY_E_TIMEOUT, offsetof(fby_stats_t, fail_timeout)},
        {"err(CONNECTION)", FBY_REASON_STORE_ERROR, FBY_E_CONNECTION, offsetof(fby_stats_t, fail_connection)},
    };
    for (int host = 0; host < 2; host++) {
        for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
            rig_t rig;
            RIG_OPEN(&rig, host == 0 ? "store.host=thread" : "store.host=inline", "store.breaker_failures=1000");
            fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
            rig_store_blocks(&rig, p32, 0, 32);
            rig_script_block(&rig, p32, 11, "get", rows[i].effect);
            fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
            fby_snapshot_t result = rig_wait(&rig, session);
            assert_int_equal(result.delivered_tokens, 11 * RIG_BLOCK_TOKENS);
            assert_int_equal(result.reason, rows[i].reason);
            assert_int_equal(result.error, rows[i].error);
            rig_take_and_verify(&rig, session, p32, 11);
            fby_stats_t stats = rig_stats(&rig);
            uint64_t counted;
            memcpy(&counted, (const char *)&stats + rows[i].counter, sizeof(counted));
            assert_true(counted >= 1);
            rig_quiet(&rig);
            fby_seq_unref(p32);
            rig_close(&rig);
        }
    }
}

/* C07: two keys fail once: they alone are read again, once. */
static void only_what_failed_is_read_again(void **state)
{
    (void)state;
    rig_t rig;
    char script[200], five[FBY_KEY_BYTES], nine[FBY_KEY_BYTES];
    RIG_OPEN(&rig, "store.breaker_failures=1000");
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&rig, p32, 0, 32);
    fby_seq_key(p32, 5, 0, five, sizeof(five));
    fby_seq_key(p32, 9, 0, nine, sizeof(nine));
    snprintf(script, sizeof(script), "get:%s:nth=1:err(TIMEOUT);get:%s:nth=1:err(TIMEOUT)", five, nine);
    rig_script(&rig, script);
    fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).delivered_tokens, 512);
    rig_take_and_verify(&rig, session, p32, 32);
    assert_int_equal(fby_mem_calls(rig.store, FBY_VERB_GET, five), 2);
    assert_int_equal(fby_mem_calls(rig.store, FBY_VERB_GET, nine), 2);
    assert_int_equal(fby_mem_calls(rig.store, FBY_VERB_GET, NULL), 34);
    rig_quiet(&rig);
    fby_seq_unref(p32);
    rig_close(&rig);
}

/* H08: one call per chunk, and few probes. */
static void a_chunk_is_one_call(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, "prefetch.chunk_max_blocks=8");
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&rig, p32, 0, 32);
    fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).delivered_tokens, 512);
    assert_int_equal(fby_mem_batches(rig.store, FBY_VERB_GET), 4);
    assert_int_equal(fby_mem_batches(rig.store, FBY_VERB_EXISTS), 1);
    fby_session_release(rig.cache, session);
    fby_seq_unref(p32);
    rig_close(&rig);
}

/* Calls of 8 MiB, so that one is verified while the next is read; with one lane nothing goes on meanwhile, so one call. */
static void large_blocks_are_read_in_calls_by_bytes(void **state)
{
    static const struct {
        const char *lanes;
        uint64_t calls;
    } rows[] = {{"store.read_lanes=2", 2}, {"store.read_lanes=1", 1}};
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        rig_t rig;
        RIG_OPEN(&rig, "model.groups=full:1048576:all", "pool.bytes=40MiB", "pool.max_hold_bytes=40MiB",
                 "pool.write_pinned_bytes=40MiB", "pool.paint=false", "prefetch.chunk_max_blocks=16",
                 "prefetch.max_inflight_chunks=1", "store.host=thread", rows[i].lanes);
        fby_seq_t *seq = rig_seq(&rig, 1, 16 * RIG_BLOCK_TOKENS + 1);
        rig_put_stored(&rig, seq, 16);
        assert_int_equal(fby_cache_reset(rig.cache, RIG_PATIENCE_S, 0), FBY_RESET_DONE);
        fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        fby_snapshot_t result = rig_wait(&rig, session);
        assert_int_equal(result.delivered_blocks, 16);
        assert_int_equal(result.submitted, 1);
        assert_int_equal(fby_mem_batches(rig.store, FBY_VERB_GET), rows[i].calls);
        fby_session_release(rig.cache, session);
        fby_seq_unref(seq);
        rig_close(&rig);
    }
}

/* verify: off takes what it gets; the trailer is looked at all the same. */
static void without_verification_only_the_trailer_counts(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, "store.verify=off");
    fby_seq_t *seq = rig_seq(&rig, 1, 65);
    rig_store_blocks(&rig, seq, 0, 4);
    rig_script_block(&rig, seq, 1, "get", "corrupt(100)");
    fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).delivered_tokens, 64);
    fby_session_release(rig.cache, session);
    fby_cache_reset(rig.cache, RIG_PATIENCE_S, 0);
    rig_script_block(&rig, seq, 1, "get", "zero");
    session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).delivered_tokens, 16);
    fby_session_release(rig.cache, session);
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* An object that is there and cannot be read is written again where the store allows it. */
static void an_unreadable_object_is_repaired(void **state)
{
    (void)state;
    rig_t rig;
    uint64_t stored, failed;
    char key[FBY_KEY_BYTES];
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 65);
    rig_store_blocks(&rig, seq, 0, 4);
    fby_seq_key(seq, 2, 0, key, sizeof(key));
    assert_int_equal(fby_mem_corrupt(rig.store, key, 77), 0);
    fby_put_t put = rig_put(&rig, seq, 4, NULL);
    assert_int_equal(fby_put_wait_store(rig.cache, put, RIG_PATIENCE_S, &stored, &failed), 0);
    assert_int_equal(stored, 4);
    assert_int_equal(fby_mem_calls(rig.store, FBY_VERB_PUT, NULL), 1);
    fby_put_release(rig.cache, put);
    fby_cache_reset(rig.cache, RIG_PATIENCE_S, 0);
    fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).delivered_tokens, 64);
    rig_take_and_verify(&rig, session, seq, 4);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_of_a_driver_are_ours_or_invalid),
        cmocka_unit_test(one_bad_block_cuts_the_prefix_there),
        cmocka_unit_test(only_what_failed_is_read_again),
        cmocka_unit_test(a_chunk_is_one_call),
        cmocka_unit_test(large_blocks_are_read_in_calls_by_bytes),
        cmocka_unit_test(without_verification_only_the_trailer_counts),
        cmocka_unit_test(an_unreadable_object_is_repaired),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
