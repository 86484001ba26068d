/* test_put.c - insert-after: exact partitions, orphans, write-through, budgets of staging, chained ranges. */
#include "story.h"

static rig_t *open_writes(fby_write_mode_t writes, uint32_t write_blocks)
{
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.writes = writes;
    config.core.write_pinned_bytes = (uint64_t)write_blocks * BLOCK;
    return rig_open(&config);
}

static void nothing_is_visible_before_the_commit(void **state)
{
    (void)state;
    rig_t *rig = open_writes(FBY_WRITE_OFF, 64);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, seq, 0, 10, &put), 0);
    assert_int_equal(rig_put_find(rig, put)->info.staged_to, 10);
    rig_put_fill(rig, put, 10);
    assert_int_equal(story_lookup(rig, seq), 0);
    assert_int_equal(story_stats(rig).write_pinned_bytes_gauge, 10 * BLOCK);
    fby_put_result_t result = rig_put_commit(rig, put, 10);
    assert_int_equal(result.published, 10);
    assert_int_equal(result.resident_tokens, 160);
    assert_int_equal(story_lookup(rig, seq), 160);
    assert_int_equal(story_stats(rig).write_pinned_bytes_gauge, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void only_whole_valid_blocks_are_published(void **state)
{
    (void)state;
    rig_t *rig = open_writes(FBY_WRITE_OFF, 64);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, seq, 0, 10, &put), 0);
    fby_put_result_t result = rig_put_commit(rig, put, 7);
    assert_int_equal(result.published, 7);
    assert_int_equal(result.discarded, 3);
    assert_int_equal(story_free(rig), 57);
    story_quiesce(rig);
    rig_close(rig);
}

static void the_first_to_complete_owns(void **state)
{
    (void)state;
    rig_t *rig = open_writes(FBY_WRITE_OFF, 64);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_put_t a, b;
    assert_int_equal(rig_put_begin(rig, seq, 0, 10, &a), 0);
    assert_int_equal(rig_put_begin(rig, seq, 0, 10, &b), 0);
    assert_int_equal(rig_put_commit(rig, b, 6).published, 6);
    fby_put_result_t result = rig_put_commit(rig, a, 10);
    assert_int_equal(result.duplicate, 6);
    assert_int_equal(result.published, 4);
    assert_int_equal(story_stats(rig).duplicates, 6);
    assert_int_equal(rig->resident_count, 10);
    assert_int_equal(story_free(rig), 54);
    story_quiesce(rig);
    rig_close(rig);
}

static void blocks_without_a_parent_go_to_the_store_only(void **state)
{
    (void)state;
    rig_t *rig = open_writes(FBY_WRITE_THROUGH, 64);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, seq, 4, 10, &put), 0);
    assert_int_equal(rig_put_find(rig, put)->info.first_missing, 0);
    fby_put_result_t result = rig_put_commit(rig, put, 10);
    assert_int_equal(result.orphan, 6);
    assert_int_equal(result.resident_tokens, 0);
    assert_int_equal(rig->resident_count, 0);
    assert_int_equal(rig->slots.in_state[0][FBY_SLOT_STAGING], 6); /* until their write ended */
    rig_run_idle(rig, rig->now + RIG_S);
    assert_int_equal(story_free(rig), 64);
    assert_int_equal(story_events(rig, FBY_CORE_PUT_STORED, put), 1);
    for (uint32_t b = 4; b < 10; b++)
        assert_true(store_at(&rig->store, &seq->hashes[b], 0)->present);
    story_quiesce(rig);
    rig_close(rig);
}

static void without_a_store_orphans_are_freed(void **state)
{
    (void)state;
    rig_t *rig = open_writes(FBY_WRITE_OFF, 64);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, seq, 4, 10, &put), 0);
    assert_int_equal(rig_put_commit(rig, put, 10).orphan, 6);
    assert_int_equal(story_free(rig), 64);
    story_quiesce(rig);
    rig_close(rig);
}

static void blocks_stay_pinned_until_their_write_ended(void **state)
{
    (void)state;
    rig_t *rig = open_writes(FBY_WRITE_THROUGH, 64);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 129), *fill = rig_seq(rig, 1, 2, 1024);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, seq, 0, 8, &put), 0);
    rig_put_commit(rig, put, 8);
    rig_put_end(rig, put);
    assert_int_equal(story_stats(rig).write_pinned_bytes_gauge, 8 * BLOCK);
    assert_int_not_equal(rig_begin(rig, true, 8), FBY_NONE);
    assert_int_equal(rig_put_begin(rig, fill, 0, 64, &put), 0);
    assert_int_equal(rig_put_find(rig, put)->info.staged_to, 56); /* the 8 cannot go */
    rig_put_end(rig, put);
    rig_end(rig, rig->live[1][0], NULL);
    assert_int_equal(story_stats(rig).write_pinned_bytes_gauge, 0);
    assert_int_equal(rig_put_begin(rig, fill, 0, 64, &put), 0);
    assert_int_equal(rig_put_find(rig, put)->info.staged_to, 64);
    story_quiesce(rig);
    rig_close(rig);
}

static void staging_fits_in_its_budget_from_the_front(void **state)
{
    (void)state;
    rig_t *rig = open_writes(FBY_WRITE_THROUGH, 6);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_put_t a, b;
    assert_int_equal(rig_put_begin(rig, seq, 0, 10, &a), 0);
    assert_int_equal(rig_put_find(rig, a)->info.staged_to, 6);
    assert_int_equal(rig_put_begin(rig, seq, 0, 10, &b), 0);
    assert_int_equal(rig_put_find(rig, b)->info.staged_to, 0); /* possibly nothing */
    rig_put_commit(rig, a, 6);
    rig_run_idle(rig, rig->now + RIG_S);
    story_quiesce(rig);
    rig_close(rig);
}

static void puts_leave_room_that_is_granted_to_sessions(void **state)
{
    (void)state;
    rig_t *rig = open_writes(FBY_WRITE_OFF, 64);
    rig_seq_t *read = rig_seq(rig, 0, 1, 48 * 16 + 1), *written = rig_seq(rig, 0, 2, 40 * 16);
    fby_session_t s = rig_start(rig, read, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 48);
    assert_int_equal(story_free(rig), 56);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, written, 0, 40, &put), 0);
    assert_int_equal(rig_put_find(rig, put)->info.staged_to, 16); /* 64 - 48 granted */
    rig_put_end(rig, put);
    rig_stop(rig, s);
    story_quiesce(rig);
    rig_close(rig);
}

/* Chunked prefill: the prefix stays pinned from one commit to the next begin. */
static void a_chain_of_ranges_keeps_its_pin(void **state)
{
    (void)state;
    rig_t *rig = open_writes(FBY_WRITE_OFF, 64);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 32 * 16), *fill = rig_seq(rig, 1, 2, 64 * 16);
    fby_put_t put, other;
    assert_int_equal(rig_put_begin(rig, seq, 0, 8, &put), 0);
    assert_int_equal(rig_put_next(rig, put, 8, 16), FBY_E_STATE); /* not committed yet */
    rig_put_commit(rig, put, 8);
    assert_int_equal(rig_put_begin(rig, fill, 0, 64, &other), 0); /* pressure between the ranges */
    rig_put_commit(rig, other, 64);
    rig_put_end(rig, other);
    assert_int_equal(story_lookup(rig, seq), 8 * 16);
    assert_int_equal(rig_put_next(rig, put, 8, 16), 0);
    assert_int_equal(rig_put_find(rig, put)->info.staged_from, 8);
    assert_int_equal(rig_put_commit(rig, put, 16).published, 8);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 16 * BLOCK);
    story_quiesce(rig);
    rig_close(rig);
}

static void an_abort_returns_everything(void **state)
{
    (void)state;
    rig_t *rig = open_writes(FBY_WRITE_THROUGH, 64);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, seq, 0, 10, &put), 0);
    rig_put_end(rig, put);
    assert_int_equal(story_free(rig), 64);
    assert_int_equal(fby_core_put_end(rig->core, rig->now, put), FBY_E_STALE);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_write_whose_limit_fires_fails_but_keeps_its_pin(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.writes = FBY_WRITE_THROUGH;
    config.core.io_timeout_ns = config.core.no_progress_ns = 10 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
    fby_put_t put;
    uint64_t outstanding, stored, failed;
    assert_int_equal(rig_put_begin(rig, seq, 0, 4, &put), 0);
    rig_put_commit(rig, put, 4);
    assert_int_not_equal(rig_begin(rig, true, 4), FBY_NONE);
    story_at(rig, 20);
    assert_int_equal(rig->events[FBY_CORE_FENCE], 1);
    assert_int_equal(fby_core_put_writes(rig->core, put, &outstanding, &stored, &failed), 0);
    assert_int_equal(outstanding, 0);
    assert_int_equal(failed, 4);
    assert_int_equal(story_stats(rig).write_pinned_bytes_gauge, 4 * BLOCK); /* it may still read the memory */
    rig_end(rig, rig->live[1][0], NULL);
    assert_int_equal(story_stats(rig).write_pinned_bytes_gauge, 0);
    assert_int_equal(story_lookup(rig, seq), 64); /* never unpublished */
    story_quiesce(rig);
    rig_close(rig);
}

static void a_long_commit_goes_in_steps(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.pool[0] = 700;
    config.core.max_hold_bytes = config.core.write_pinned_bytes = 700 * BLOCK;
    config.full_every = 8;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 600 * 16 + 1);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, seq, 0, 600, &put), 0);
    rig_put_fill(rig, put, 600);
    unsigned steps = 1;
    while (rig_put_commit_step(rig, put, 600) == -EAGAIN)
        steps++;
    assert_int_equal(steps, 3); /* 256 blocks each */
    assert_int_equal(rig_put_find(rig, put)->result.published, 600);
    story_settle(rig);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 600 * BLOCK);
    story_quiesce(rig);
    rig_close(rig);
}

static void an_abandoned_put_keeps_its_slots_until_the_fence(void **state)
{
    (void)state;
    rig_t *rig = open_writes(FBY_WRITE_OFF, 16);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 321);
    fby_put_t put, other;
    assert_int_equal(rig_put_begin(rig, seq, 0, 10, &put), 0);
    assert_int_equal(rig_put_abandon(rig, put), 0);
    assert_int_equal(story_stats(rig).puts_gauge, 0);
    assert_int_equal(story_stats(rig).write_pinned_bytes_gauge, 10 * BLOCK);
    assert_int_equal(story_free(rig), 54);
    fby_put_result_t result = {.size = sizeof(result)};
    assert_int_equal(fby_core_put_commit(rig->core, rig->now, put, 10, &result), FBY_E_STALE);
    /* What is fenced counts against the budget of writes. */
    assert_int_equal(rig_put_begin(rig, seq, 0, 10, &other), 0);
    assert_int_equal(rig_put_find(rig, other)->info.staged_to, 6);
    assert_int_equal(rig_put_fenced(rig, put), 0);
    assert_int_equal(fby_core_put_fenced(rig->core, rig->now, put), FBY_E_STALE);
    assert_int_equal(fby_core_put_fenced(rig->core, rig->now, other), FBY_E_STALE);
    assert_int_equal(story_free(rig), 58);
    story_quiesce(rig);
    rig_close(rig);
}

static void an_abandoned_put_outlives_a_reset(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        rig_t *rig = open_writes(FBY_WRITE_OFF, 64);
        rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
        fby_put_t put;
        assert_int_equal(rig_put_begin(rig, seq, 0, 10, &put), 0);
        for (int step = 0; step < 2; step++)
            assert_int_equal(step == first ? rig_put_abandon(rig, put) : rig_reset(rig, false), 0);
        assert_int_equal(story_free(rig), 54);
        assert_int_equal(rig_put_fenced(rig, put), 0);
        assert_int_equal(story_free(rig), 64);
        story_quiesce(rig);
        rig_close(rig);
    }
}

static void an_abandoned_put_with_nothing_staged_is_over(void **state)
{
    (void)state;
    rig_t *rig = open_writes(FBY_WRITE_OFF, 64);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, seq, 0, 10, &put), 0);
    assert_int_equal(rig_put_commit(rig, put, 10).published, 10);
    assert_int_equal(rig_put_abandon(rig, put), 0);
    assert_int_equal(fby_core_put_fenced(rig->core, rig->now, put), FBY_E_STALE);
    assert_int_equal(story_lookup(rig, seq), 160);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_visible_before_the_commit),
        cmocka_unit_test(an_abandoned_put_keeps_its_slots_until_the_fence),
        cmocka_unit_test(an_abandoned_put_outlives_a_reset),
        cmocka_unit_test(an_abandoned_put_with_nothing_staged_is_over),
        cmocka_unit_test(only_whole_valid_blocks_are_published),
        cmocka_unit_test(the_first_to_complete_owns),
        cmocka_unit_test(blocks_without_a_parent_go_to_the_store_only),
        cmocka_unit_test(without_a_store_orphans_are_freed),
        cmocka_unit_test(blocks_stay_pinned_until_their_write_ended),
        cmocka_unit_test(staging_fits_in_its_budget_from_the_front),
        cmocka_unit_test(puts_leave_room_that_is_granted_to_sessions),
        cmocka_unit_test(a_chain_of_ranges_keeps_its_pin),
        cmocka_unit_test(an_abort_returns_everything),
        cmocka_unit_test(a_write_whose_limit_fires_fails_but_keeps_its_pin),
        cmocka_unit_test(a_long_commit_goes_in_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
