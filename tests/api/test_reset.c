/* test_reset.c - trace e, E09, G09: a new generation at the call, done by itself, old data never again. */
#include <errno.h>

#include "api/rig.h"

static void done_means_the_next_lookup_is_nothing(void **state)
{
    (void)state;
    rig_t rig;
    uint64_t seed = 9;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 65);
    for (int i = 0; i < 100; i++) {
        rig_put_stored(&rig, seq, 4);
        fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        if (unit_below(&seed, 2) == 0) {
            rig_wait(&rig, session);
        }
        int rc = fby_cache_reset(rig.cache, unit_below(&seed, 2) == 0 ? 0 : RIG_PATIENCE_S, 0);
        assert_true(rc == FBY_RESET_DONE || rc == FBY_RESET_BUSY);
        assert_int_equal(rig_lookup(&rig, seq), 0);
        rig_quiet(&rig);
    }
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* Trace e: reset with two graphs in flight: BUSY, lookup 0, both discarded, then done by itself. */
static void reads_in_flight_are_discarded(void **state)
{
    rig_needs_process();
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, "store.host=thread");
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&rig, p32, 0, 32);
    rig_script(&rig, "get:*:hang");
    fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_true(fby_mem_await_hung(rig.store, 8, RIG_PATIENCE_NS));
    assert_int_equal(fby_cache_reset(rig.cache, 0.01, 0), FBY_RESET_BUSY);
    assert_int_equal(fby_session_demand(rig.cache, session), FBY_E_STALE);
    assert_int_equal(rig_lookup(&rig, p32), 0);
    rig_script(&rig, "");
    fby_mem_release(rig.store);
    rig_quiet(&rig);
    assert_int_equal(rig_lookup(&rig, p32), 0);
    assert_int_equal(rig_stats(&rig).free_blocks_gauge, RIG_POOL_BLOCKS);
    session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).delivered_tokens, 512);
    rig_take_and_verify(&rig, session, p32, 32);
    fby_seq_unref(p32);
    rig_close(&rig);
}

/* E09: after a bump the store's old objects have other keys; what was begun under the old epoch cannot publish. */
static void a_new_epoch_reaches_nothing_old(void **state)
{
    (void)state;
    rig_t rig;
    fby_put_t put;
    fby_put_result_t result = {.size = sizeof(result)};
    fby_session_t session = 0;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *old = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_put_stored(&rig, old, 32);
    assert_int_equal(fby_put_begin(rig.cache, old, 0, 32, &put, NULL, NULL, NULL), 0);
    assert_int_equal(fby_cache_epoch(rig.cache), 1);
    assert_true(fby_cache_reset(rig.cache, 0, 1) >= 0);
    assert_int_equal(fby_cache_epoch(rig.cache), 2);
    assert_int_equal(fby_put_commit(rig.cache, put, 512, &result), FBY_E_STALE);
    assert_int_equal(fby_put_release(rig.cache, put), 0);
    assert_int_equal(fby_session_start(rig.cache, old, NULL, &session), FBY_E_STALE);
    assert_int_equal(fby_lookup(rig.cache, old, FBY_LOOKUP_ADVISORY, NULL, NULL), FBY_E_STALE);
    fby_seq_t *fresh = rig_seq(&rig, 1, RIG_P32_TOKENS);
    session = rig_start(&rig, fresh, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).delivered_tokens, 0);
    fby_session_release(rig.cache, session);
    /* what is written now is read back under the new epoch */
    rig_put_stored(&rig, fresh, 32);
    assert_int_equal(fby_cache_reset(rig.cache, RIG_PATIENCE_S, 0), FBY_RESET_DONE);
    session = rig_start(&rig, fresh, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).loaded_tokens, 512);
    rig_take_and_verify(&rig, session, fresh, 32);
    rig_quiet(&rig);
    fby_seq_unref(old);
    fby_seq_unref(fresh);
    rig_close(&rig);
}

static void a_wrong_wait_is_refused(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, NULL);
    assert_int_equal(fby_cache_reset(rig.cache, -1, 0), -EINVAL);
    assert_int_equal(fby_cache_reset(rig.cache, __builtin_nan(""), 0), -EINVAL);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(done_means_the_next_lookup_is_nothing),
        cmocka_unit_test(reads_in_flight_are_discarded),
        cmocka_unit_test(a_new_epoch_reaches_nothing_old),
        cmocka_unit_test(a_wrong_wait_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
