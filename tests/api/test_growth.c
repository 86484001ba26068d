/* test_growth.c - B22: what a session costs comes back; B01 and B02 over a thousand rounds. */
#include <malloc.h>

#include "api/rig.h"
#include "base/base.h"

/* Half miss, a quarter partial, a quarter full; answers taken, released, dropped, aborted. */
static void one_session(rig_t *rig, uint64_t *seed)
{
    uint32_t kind = unit_below(seed, 4);
    fby_hold_t hold;
    fby_seq_t *seq = rig_seq(rig, kind < 2 ? 1000 + unit_below(seed, 100) : kind, 8 * 16 + 1);
    fby_session_t session = rig_start(rig, seq, FBY_POLICY_BEST_EFFORT, (fby_stop_mode_t)unit_below(seed, 3), -1);
    switch (unit_below(seed, 4)) {
    case 0:
        fby_session_stop(rig->cache, session);
        break;
    case 1:
        fby_session_demand(rig->cache, session);
        rig_wait(rig, session);
        break;
    default:
        rig_wait(rig, session);
        if (fby_session_take(rig->cache, session, &hold) == 0) {
            fby_hold_release(rig->cache, hold);
        }
    }
    fby_session_release(rig->cache, session);
    fby_seq_unref(seq);
}

static size_t allocated(void)
{
    return mallinfo2().uordblks;
}

static void sessions_leave_no_memory_behind(void **state)
{
    (void)state;
    const char *asked = getenv("FOREBAY_SESSIONS");
    int sessions = asked != NULL ? atoi(asked) : 4000;
    rig_t rig;
    uint64_t seed = 22;
    RIG_OPEN(&rig, NULL);
    for (uint64_t kind = 2; kind < 4; kind++) {
        fby_seq_t *seq = rig_seq(&rig, kind, 8 * 16 + 1);
        rig_store_blocks(&rig, seq, 0, kind == 2 ? 3 : 8);
        fby_seq_unref(seq);
    }
    for (int i = 0; i < sessions / 4; i++) {
        one_session(&rig, &seed);
    }
    rig_quiet(&rig);
    size_t before = allocated();
    for (int i = 0; i < sessions; i++) {
        one_session(&rig, &seed);
    }
    rig_quiet(&rig);
    size_t after = allocated();
    assert_true(after <= before + 64 * 1024);
    rig_close(&rig);
}

/* Over a thousand random sessions the sums agree: found >= loaded, delivered >= consumed, reasons add up. */
static void the_sums_agree(void **state)
{
    (void)state;
    rig_t rig;
    uint64_t seed = 1, by_reason = 0;
    fby_stats_t last = {0};
    RIG_OPEN(&rig, NULL);
    for (uint64_t kind = 2; kind < 4; kind++) {
        fby_seq_t *seq = rig_seq(&rig, kind, 8 * 16 + 1);
        rig_store_blocks(&rig, seq, 0, kind == 2 ? 3 : 8);
        fby_seq_unref(seq);
    }
    for (int i = 0; i < 1000; i++) {
        one_session(&rig, &seed);
        fby_stats_t stats = rig_stats(&rig);
        /* I02: a counter never goes back */
        assert_true(stats.tokens_found >= last.tokens_found && stats.tokens_loaded >= last.tokens_loaded);
        assert_true(stats.tokens_delivered >= last.tokens_delivered && stats.graphs >= last.graphs);
        assert_true(stats.bytes_read >= last.bytes_read && stats.blocks_published >= last.blocks_published);
        last = stats;
    }
    rig_quiet(&rig);
    fby_stats_t stats = rig_stats(&rig);
    for (int reason = 0; reason < FBY_REASON_COUNT; reason++) {
        by_reason += stats.sessions_by_reason[reason];
    }
    assert_int_equal(stats.sessions, 1000);
    assert_int_equal(by_reason, 1000);
    assert_true(stats.tokens_found >= stats.tokens_delivered);
    assert_true(stats.tokens_delivered >= stats.tokens_loaded);
    assert_true(stats.tokens_delivered >= stats.tokens_consumed);
    rig_close(&rig);
}

/* B01: a thousand leases, ended each in its way; afterwards the whole pool can be filled. */
static void ended_leases_leave_the_pool_free(void **state)
{
    (void)state;
    rig_t rig;
    uint64_t seed = 1;
    RIG_OPEN(&rig, "store.write=off");
    for (uint64_t kind = 2; kind < 4; kind++) {
        fby_seq_t *seq = rig_seq(&rig, kind, 8 * 16 + 1);
        rig_store_blocks(&rig, seq, 0, 8);
        fby_seq_unref(seq);
    }
    for (int i = 0; i < 1000; i++) {
        one_session(&rig, &seed);
    }
    rig_quiet(&rig);
    fby_seq_t *filler = rig_seq(&rig, 77, RIG_POOL_BLOCKS * 16 + 1);
    fby_put_result_t result;
    fby_put_release(rig.cache, rig_put(&rig, filler, RIG_POOL_BLOCKS, &result));
    assert_int_equal(result.published, RIG_POOL_BLOCKS);
    assert_int_equal(rig_lookup(&rig, filler), RIG_POOL_BLOCKS);
    fby_seq_unref(filler);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_leave_no_memory_behind),
        cmocka_unit_test(the_sums_agree),
        cmocka_unit_test(ended_leases_leave_the_pool_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
