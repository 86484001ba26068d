/* test_hold.c - holds: lookup, ranges, trim, readers, and what counts as consumed. */
#include <errno.h>

#include "api/rig.h"

static void a_lookup_obeys_the_last_token_rule(void **state)
{
    (void)state;
    rig_t rig;
    uint64_t tokens, blocks, first;
    fby_hold_t hold;
    RIG_OPEN(&rig, NULL);
    /* 64 tokens are four whole blocks, but the engine computes the last token: three may be held */
    fby_seq_t *seq = rig_seq(&rig, 1, 64);
    rig_put_stored(&rig, seq, 4);
    assert_int_equal(fby_lookup(rig.cache, seq, 0, &hold, &tokens), 0);
    assert_int_equal(tokens, 48);
    assert_int_equal(fby_hold_info(rig.cache, hold, &tokens, &blocks, &first), 0);
    assert_int_equal(tokens, 48);
    assert_int_equal(blocks, 3);
    assert_int_equal(first, 0);
    assert_int_equal(fby_hold_release(rig.cache, hold), 0);
    assert_int_equal(fby_hold_release(rig.cache, hold), FBY_E_STALE);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    rig_close(&rig);
}

static void trimming_gives_up_the_tail(void **state)
{
    (void)state;
    rig_t rig;
    uint64_t tokens = 0;
    const void *slots[32];
    fby_hold_t hold;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_put_stored(&rig, p32, 32);
    assert_int_equal(fby_lookup(rig.cache, p32, 0, &hold, NULL), 0);
    uint64_t held = rig_stats(&rig).hold_bytes_gauge;
    assert_int_equal(fby_hold_trim(rig.cache, hold, 8 * 16 + 5, &tokens), 0);
    assert_int_equal(tokens, 128);
    RIG_AWAIT(rig_stats(&rig).hold_bytes_gauge == held / 4);
    assert_int_equal(fby_hold_slots(rig.cache, hold, 0, 0, 9, slots), -EINVAL);
    assert_int_equal(fby_hold_slots(rig.cache, hold, 1, 0, 1, slots), -EINVAL);
    assert_int_equal(fby_hold_slots(rig.cache, hold, 0, 0, 8, slots), 0);
    rig_verify_hold(&rig, hold, p32, 8);
    fby_hold_release(rig.cache, hold);
    rig_quiet(&rig);
    fby_seq_unref(p32);
    rig_close(&rig);
}

static void a_hold_lasts_until_its_last_reader(void **state)
{
    (void)state;
    rig_t rig;
    fby_hold_t hold;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 1, 100);
    rig_put_stored(&rig, seq, 6);
    assert_int_equal(fby_lookup(rig.cache, seq, 0, &hold, NULL), 0);
    assert_int_equal(fby_hold_readers(rig.cache, hold, 2), 0);
    assert_int_equal(fby_hold_release(rig.cache, hold), 0);
    assert_int_equal(fby_hold_release(rig.cache, hold), 0);
    rig_verify_hold(&rig, hold, seq, 6);
    assert_int_equal(fby_hold_release(rig.cache, hold), 0);
    assert_int_equal(fby_hold_info(rig.cache, hold, NULL, NULL, NULL), FBY_E_STALE);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* I01: found 32, the engine uses 16: found >= loaded >= delivered >= consumed, and each block counts once. */
static void consumed_is_what_was_asked_for_of_a_result(void **state)
{
    (void)state;
    rig_t rig;
    const void *slots[32];
    fby_hold_t hold;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&rig, p32, 0, 32);
    fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    rig_wait(&rig, session);
    assert_int_equal(fby_session_take(rig.cache, session, &hold), 0);
    assert_int_equal(fby_hold_slots(rig.cache, hold, 0, 0, 10, slots), 0);
    assert_int_equal(fby_hold_slots(rig.cache, hold, 0, 4, 16, slots), 0);
    assert_int_equal(fby_hold_slots(rig.cache, hold, 0, 0, 16, slots), 0);
    fby_hold_release(rig.cache, hold);
    /* a lookup is not a prefetch: what it gives is not counted against one */
    assert_int_equal(fby_lookup(rig.cache, p32, 0, &hold, NULL), 0);
    assert_int_equal(fby_hold_slots(rig.cache, hold, 0, 0, 32, slots), 0);
    fby_hold_release(rig.cache, hold);
    fby_stats_t stats = rig_stats(&rig);
    assert_int_equal(stats.tokens_found, 512);
    assert_int_equal(stats.tokens_loaded, 512);
    assert_int_equal(stats.tokens_delivered, 512);
    assert_int_equal(stats.tokens_consumed, 256);
    rig_quiet(&rig);
    fby_seq_unref(p32);
    rig_close(&rig);
}

static void a_hold_beyond_the_budget_is_refused(void **state)
{
    (void)state;
    rig_t rig;
    fby_hold_t hold = 5;
    RIG_OPEN(&rig, "pool.max_hold_bytes=16640B"); /* four blocks */
    fby_seq_t *seq = rig_seq(&rig, 1, 200);
    fby_put_t put = rig_put(&rig, seq, 4, NULL);
    fby_put_release(rig.cache, put);
    fby_seq_t *other = rig_seq(&rig, 2, 200);
    fby_put_release(rig.cache, rig_put(&rig, other, 4, NULL));
    fby_hold_t first;
    assert_int_equal(fby_lookup(rig.cache, seq, 0, &first, NULL), 0);
    assert_int_equal(fby_lookup(rig.cache, other, 0, &hold, NULL), FBY_E_BUDGET);
    assert_int_equal(hold, 5);
    assert_int_equal(rig_stats(&rig).budget_refused, 1);
    fby_hold_release(rig.cache, first);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    fby_seq_unref(other);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lookup_obeys_the_last_token_rule),
        cmocka_unit_test(trimming_gives_up_the_tail),
        cmocka_unit_test(a_hold_lasts_until_its_last_reader),
        cmocka_unit_test(consumed_is_what_was_asked_for_of_a_result),
        cmocka_unit_test(a_hold_beyond_the_budget_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
