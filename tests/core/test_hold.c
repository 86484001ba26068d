/* test_hold.c - protection in the caller's hands: lookup, take, trim, readers, release; budgets of holds. */
#include "story.h"

static rig_t *open_resident(rig_seq_t **seq, uint32_t blocks, uint32_t hold_blocks)
{
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.max_hold_bytes = (uint64_t)hold_blocks * BLOCK;
    rig_t *rig = rig_open(&config);
    *seq = rig_seq(rig, 0, 1, 32 * 16 + 1);
    story_resident(rig, *seq, blocks);
    return rig;
}

static void a_lookup_beyond_the_hold_budget_is_refused(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_resident(&seq, 8, 8);
    rig_seq_t *other = rig_seq(rig, 1, 2, 65);
    story_resident(rig, other, 4);
    fby_hold_t a, b, c;
    uint64_t tokens;
    assert_int_equal(rig_lookup(rig, seq, &a, &tokens), 0);
    assert_int_equal(rig_lookup(rig, seq, &b, &tokens), 0); /* the same blocks: charged once */
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 8 * BLOCK);
    assert_int_equal(rig_lookup(rig, other, &c, &tokens), FBY_E_BUDGET);
    assert_int_equal(story_stats(rig).budget_refused, 1);
    rig_hold_release(rig, a);
    assert_int_equal(rig_lookup(rig, other, &c, &tokens), FBY_E_BUDGET); /* b still holds them */
    rig_hold_release(rig, b);
    assert_int_equal(rig_lookup(rig, other, &c, &tokens), 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_trim_frees_the_tail_at_once(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_resident(&seq, 32, 64);
    fby_hold_t hold;
    uint64_t tokens;
    assert_int_equal(rig_lookup(rig, seq, &hold, &tokens), 0);
    assert_int_equal(rig_hold_trim(rig, hold, 10 * 16 + 7, &tokens), 0);
    assert_int_equal(tokens, 160); /* whole blocks */
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 10 * BLOCK);
    assert_int_equal(rig_hold_trim(rig, hold, 500, &tokens), 0);
    assert_int_equal(tokens, 160);                        /* never grows */
    story_resident(rig, rig_seq(rig, 1, 2, 54 * 16), 54); /* the tail can go */
    rig_hold_verify(rig, rig_hold_find(rig, hold));
    assert_int_equal(rig_hold_trim(rig, hold, 0, &tokens), 0);
    assert_int_equal(tokens, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_hold_ends_with_its_last_reader(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_resident(&seq, 8, 64);
    fby_hold_t hold;
    uint64_t tokens;
    assert_int_equal(rig_lookup(rig, seq, &hold, &tokens), 0);
    assert_int_equal(rig_hold_readers(rig, hold), 0);
    assert_int_equal(rig_hold_release(rig, hold), 0);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 8 * BLOCK);
    assert_int_equal(rig_hold_release(rig, hold), 0);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 0);
    assert_int_equal(fby_core_hold_release(rig->core, rig->now, hold), FBY_E_STALE); /* never twice */
    story_quiesce(rig);
    rig_close(rig);
}

static void a_resident_suffix_is_neither_pinned_nor_charged(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_resident(&seq, 32, 64);
    rig_seq_t *front = rig_seq_fork(rig, seq, 8, 5, 8 * 16 + 1);
    fby_hold_t hold;
    uint64_t tokens;
    assert_int_equal(rig_lookup(rig, front, &hold, &tokens), 0);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 8 * BLOCK);
    story_resident(rig, rig_seq(rig, 1, 2, 56 * 16), 56); /* 24 of the suffix go */
    assert_int_equal(story_lookup(rig, seq), 8 * 16);
    story_quiesce(rig);
    rig_close(rig);
}

/* Held GET: take, copy, release; the prefix is protected at every moment between. */
static void take_protects_without_a_gap(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_resident(&seq, 32, 64);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 32 * BLOCK);
    fby_hold_t hold, again;
    assert_int_equal(rig_take(rig, s, &hold), 0);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 32 * BLOCK);
    assert_int_equal(rig_take(rig, s, &again), FBY_E_STALE); /* once */
    assert_int_equal(rig_release(rig, s), 0);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 32 * BLOCK); /* the hold outlives its session */
    story_quiesce(rig);
    rig_close(rig);
}

static void taking_before_the_answer_is_an_error_and_nothing_delivered_an_empty_hold(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_hold_t hold;
    assert_int_equal(rig_take(rig, s, &hold), FBY_E_STATE);
    story_answer(rig, 0);
    assert_int_equal(rig_take(rig, s, &hold), 0);
    fby_core_hold_info_t info;
    assert_int_equal(fby_core_hold_info(rig->core, hold, &info), 0);
    assert_int_equal(info.tokens, 0);
    assert_int_equal(info.blocks, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void slots_are_asked_for_in_range(void **state)
{
    (void)state;
    rig_seq_t *seq;
    rig_t *rig = open_resident(&seq, 8, 64);
    fby_hold_t hold;
    uint64_t tokens;
    uint32_t out[16];
    assert_int_equal(rig_lookup(rig, seq, &hold, &tokens), 0);
    assert_int_equal(fby_core_hold_slots(rig->core, hold, 0, 0, 8, out), 0);
    assert_int_equal(fby_core_hold_slots(rig->core, hold, 0, 0, 9, out), -EINVAL);
    assert_int_equal(fby_core_hold_slots(rig->core, hold, 0, 5, 4, out), -EINVAL);
    assert_int_equal(fby_core_hold_slots(rig->core, hold, 1, 0, 8, out), -EINVAL);
    assert_int_equal(fby_core_hold_slots(rig->core, hold + 1, 0, 0, 8, out), FBY_E_STALE);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_private_hold_can_be_trimmed(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    fby_core_start_t start;
    fby_session_t s;
    rig_start_defaults(&start);
    start.have_blocks = 8;
    assert_int_equal(rig_start_with(rig, seq, &start, &s), 0);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    fby_hold_t hold;
    uint64_t tokens;
    assert_int_equal(rig_take(rig, s, &hold), 0);
    assert_int_equal(story_free(rig), 64 - 24);
    assert_int_equal(rig_hold_trim(rig, hold, 20 * 16, &tokens), 0);
    assert_int_equal(tokens, 20 * 16);
    assert_int_equal(story_free(rig), 64 - 12);
    assert_int_equal(rig_hold_trim(rig, hold, 8 * 16, &tokens), 0); /* nothing of ours is left below the device's own */
    assert_int_equal(tokens, 0);
    assert_int_equal(story_free(rig), 64);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lookup_beyond_the_hold_budget_is_refused),
        cmocka_unit_test(a_trim_frees_the_tail_at_once),
        cmocka_unit_test(a_hold_ends_with_its_last_reader),
        cmocka_unit_test(a_resident_suffix_is_neither_pinned_nor_charged),
        cmocka_unit_test(take_protects_without_a_gap),
        cmocka_unit_test(taking_before_the_answer_is_an_error_and_nothing_delivered_an_empty_hold),
        cmocka_unit_test(slots_are_asked_for_in_range),
        cmocka_unit_test(a_private_hold_can_be_trimmed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
