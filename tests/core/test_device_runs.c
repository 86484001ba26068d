/* test_device_runs.c - private runs behind what the caller's device holds: windows, single reads, protection, budgets. */
#include "drive.h"

static fby_session_t start_behind(rig_t *rig, const rig_seq_t *seq, uint32_t have, fby_policy_t policy,
                                  fby_stop_mode_t mode, uint64_t budget_ns)
{
    fby_core_start_t start;
    rig_start_defaults(&start);
    start.have_blocks = have;
    start.policy = (int32_t)policy;
    start.stop_mode = (int32_t)mode;
    start.budget_ns = budget_ns;
    fby_session_t s = 0;
    assert_int_equal(rig_start_with(rig, seq, &start, &s), 0);
    return s;
}

static uint32_t payload_reads(const rig_t *rig, uint32_t part, uint32_t block)
{
    uint32_t reads = 0;
    for (uint32_t i = 0; i < rig->part[part].count; i++)
        reads += rig->part[part].io[i].group == 1 && rig->part[part].io[i].block == block;
    return reads;
}

/* The window of 4 before the end reaches back into what the device holds: that part needs no read. */
static void what_the_device_holds_counts_for_the_window(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    story_trailing(&config, 4, 32);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 10 * 16 + 1);
    fby_session_t s = start_behind(rig, seq, 8, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    assert_snapshot(rig, s, planned_tokens, 10 * 16);
    assert_int_equal(story_begin(rig), 1);
    assert_int_equal(rig->part[rig->live[0][0]].count, 4); /* blocks 8 and 9, full and payload */
    assert_int_equal(payload_reads(rig, rig->live[0][0], 7), 0);
    drive_reads(rig);
    assert_answer(rig, s, 10, COMPLETE, COMPLETE);
    fby_hold_t hold;
    assert_int_equal(rig_take(rig, s, &hold), 0);
    assert_int_equal(rig_hold_find(rig, hold)->first_block, 8);
    story_quiesce(rig);
    rig_close(rig);
}

/* Chunks of one block, windows of two: each payload lies in two windows and is read with the first one only. */
static void a_payload_in_two_windows_is_read_once(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.chunk_max_blocks = 1;
    story_trailing(&config, 2, 32);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 5 * 16 + 1);
    fby_session_t s = start_behind(rig, seq, 2, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 5);
    uint32_t reads[5] = {0};
    for (unsigned round = 0; story_begin(rig) || rig->live_count[0]; round++) {
        assert_true(round < 100);
        for (uint32_t block = 0; block < 5; block++)
            reads[block] += payload_reads(rig, rig->live[0][0], block);
        rig_end(rig, rig->live[0][0], NULL);
        story_settle(rig);
    }
    for (uint32_t block = 0; block < 5; block++)
        assert_int_equal(reads[block], block >= 2);
    assert_answer(rig, s, 5, COMPLETE, COMPLETE);
    assert_int_equal(rig->slots.in_state[0][FBY_SLOT_PRIVATE], 3);
    assert_int_equal(rig->slots.in_state[1][FBY_SLOT_PRIVATE], 3);
    fby_hold_t hold;
    uint64_t tokens;
    assert_int_equal(rig_take(rig, s, &hold), 0);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 6 * BLOCK);
    assert_int_equal(rig_hold_trim(rig, hold, 4 * 16, &tokens), 0);
    assert_int_equal(tokens, 4 * 16); /* block 3's window is there, too */
    assert_int_equal(rig_hold_release(rig, hold), 0);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 0);
    assert_int_equal(rig->slots.in_state[1][FBY_SLOT_PRIVATE], 0);
    story_quiesce(rig);
    rig_close(rig);
}

/* Detach answers with blocks [2,4) while the tail hangs: when the lease ends, so does the pin of what it covered. */
static rig_t *hanging_tail(fby_session_t *s)
{
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.chunk_max_blocks = 2;
    config.core.result_ttl_ns = 100 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
    *s = start_behind(rig, seq, 2, TIMEOUT, DETACH, 20 * RIG_MS);
    story_answer(rig, 8);
    story_begin(rig);
    story_ok(rig, seq, 2);
    story_begin(rig);
    story_at(rig, 20);
    assert_answer(rig, *s, 4, PARTIAL, DEADLINE);
    assert_snapshot(rig, *s, lease_valid, 1);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 2 * BLOCK);
    return rig;
}

static void the_time_limit_frees_a_private_run_although_its_tail_hangs(void **state)
{
    (void)state;
    fby_session_t s;
    rig_t *rig = hanging_tail(&s);
    story_at(rig, 119);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 2 * BLOCK);
    story_at(rig, 121);
    assert_snapshot(rig, s, lease_valid, 0);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
    drive_reads(rig); /* the tail ends at last */
    story_quiesce(rig);
    assert_int_equal(story_free(rig), 64);
    rig_close(rig);
}

static void so_does_a_release(void **state)
{
    (void)state;
    fby_session_t s;
    rig_t *rig = hanging_tail(&s);
    assert_int_equal(rig_release(rig, s), 0);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
    drive_reads(rig);
    story_quiesce(rig);
    assert_int_equal(story_free(rig), 64);
    rig_close(rig);
}

static void a_take_before_that_keeps_it(void **state)
{
    (void)state;
    fby_session_t s;
    rig_t *rig = hanging_tail(&s);
    fby_hold_t hold;
    assert_int_equal(rig_take(rig, s, &hold), 0);
    story_at(rig, 200);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 2 * BLOCK);
    drive_reads(rig);
    rig_hold_verify(rig, rig_hold_find(rig, hold));
    assert_int_equal(rig_hold_release(rig, hold), 0);
    story_quiesce(rig);
    assert_int_equal(story_free(rig), 64);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_device_holds_counts_for_the_window),
        cmocka_unit_test(a_payload_in_two_windows_is_read_once),
        cmocka_unit_test(the_time_limit_frees_a_private_run_although_its_tail_hangs),
        cmocka_unit_test(so_does_a_release),
        cmocka_unit_test(a_take_before_that_keeps_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
