/* test_groups.c - several groups: checkpoints in plans, which payloads a chunk carries, pins of payloads, repairs. */
#include "story.h"

static rig_t *open_hybrid(uint32_t trailing, uint32_t chunk)
{
    rig_config_t config;
    rig_config_defaults(&config);
    story_trailing(&config, trailing, 32);
    config.core.chunk_max_blocks = chunk;
    config.core.max_reserved_bytes = 96 * BLOCK;
    return rig_open(&config);
}

static uint32_t payload_reads(const rig_t *rig, uint32_t part)
{
    uint32_t n = 0;
    for (uint32_t i = 0; part != FBY_NONE && i < rig->part[part].count; i++)
        n += rig->part[part].io[i].group == 1;
    return n;
}

static void a_target_is_a_checkpoint(void **state)
{
    (void)state;
    rig_t *rig = open_hybrid(1, 4);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer_checkpoints(rig, 10, 1u << 5);
    assert_snapshot(rig, s, found_tokens, 160);
    assert_snapshot(rig, s, planned_tokens, 96);
    rig_stop(rig, s);
    story_quiesce(rig);
    rig_close(rig);
}

static void without_any_checkpoint_nothing_is_read(void **state)
{
    (void)state;
    rig_t *rig = open_hybrid(1, 4);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer_checkpoints(rig, 10, 0);
    assert_int_equal(story_begin(rig), 0);
    assert_int_equal(rig_session_find(rig, s)->answer.delivered_blocks, 0);
    assert_int_equal(rig_session_find(rig, s)->answer.outcome, FBY_OUTCOME_EMPTY);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_chunk_carries_the_payloads_of_its_last_checkpoint_only(void **state)
{
    (void)state;
    rig_t *rig = open_hybrid(1, 4);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
    rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 8); /* a snapshot at every boundary */
    assert_int_equal(story_begin(rig), 2);
    for (uint32_t block = 0; block < 8; block += 4) {
        uint32_t part = story_part(rig, seq, block);
        assert_int_equal(rig->part[part].count, 5);
        assert_int_equal(rig->part[part].io[4].group, 1);
        assert_int_equal(rig->part[part].io[4].block, block + 3);
    }
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_window_that_crosses_chunks_is_read_once(void **state)
{
    (void)state;
    rig_t *rig = open_hybrid(4, 2);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
    rig_store_fill(rig, seq, 0, 8);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_blocks, 8);
    for (uint32_t b = 0; b < 8; b++)
        assert_in_range(store_calls(&rig->store, STORE_GET, &seq->hashes[b], 1), b >= 4 ? 1 : 0, 1);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, (8 + 4) * BLOCK); /* the window of the delivered end alone */
    story_quiesce(rig);
    rig_close(rig);
}

/* A window that covers the prompt makes every boundary a checkpoint: what was read before the bad block is delivered. */
static void a_bad_block_leaves_the_checkpoints_before_it(void **state)
{
    (void)state;
    for (uint32_t chunk = 1; chunk <= 8; chunk++) {
        for (uint32_t bad = 0; bad < 8; bad++) {
            rig_t *rig = open_hybrid(8, chunk);
            rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
            fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
            story_answer(rig, 8);
            story_begin(rig);
            while (rig->live_count[0]) {
                const rig_part_t *part = &rig->part[rig->live[0][0]];
                int32_t results[32] = {0};
                for (uint32_t i = 0; i < part->count; i++)
                    if (part->io[i].group == 0 && part->io[i].block == bad)
                        results[i] = FBY_E_CHECKSUM;
                rig_end(rig, rig->live[0][0], results);
                story_settle(rig);
                story_begin(rig);
            }
            assert_int_equal(rig_session_find(rig, s)->answer.delivered_blocks, bad);
            story_quiesce(rig);
            rig_close(rig);
        }
    }
}

static void a_resident_payload_is_not_read_again(void **state)
{
    (void)state;
    rig_t *rig = open_hybrid(1, 4);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
    story_resident(rig, seq, 4); /* with the snapshot of 4 */
    rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 8);
    assert_int_equal(story_begin(rig), 1);
    assert_int_equal(payload_reads(rig, story_part(rig, seq, 4)), 1);
    rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_lost_snapshot_is_repaired_by_a_put(void **state)
{
    (void)state;
    rig_t *rig = open_hybrid(1, 4);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer_checkpoints(rig, 8, 1u << 7);
    story_begin(rig);
    story_ok(rig, seq, 0);
    uint32_t part = story_part(rig, seq, 4);
    int32_t results[5] = {0};
    results[4] = FBY_E_CHECKSUM; /* the snapshot of 8 */
    rig_end(rig, part, results);
    story_settle(rig);
    assert_int_equal(rig_session_find(rig, s)->answer.delivered_blocks, 0);
    assert_int_equal(rig->resident_count, 8);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, seq, 0, 8, &put), 0);
    const rig_put_t *made = rig_put_find(rig, put);
    assert_int_equal(made->info.first_missing, 8);
    assert_int_equal(made->info.staged_to - made->info.staged_from, 0);
    fby_put_result_t result = rig_put_commit(rig, put, 8);
    assert_int_equal(result.published + result.duplicate + result.discarded + result.orphan, 0);
    assert_int_equal(story_lookup(rig, seq), 128);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_hold_keeps_the_window_of_its_end(void **state)
{
    (void)state;
    rig_t *rig = open_hybrid(4, 4);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 16 * 16 + 1);
    story_resident(rig, seq, 8);
    story_resident(rig, seq, 16);
    fby_hold_t hold;
    uint64_t tokens;
    assert_int_equal(rig_lookup(rig, seq, &hold, &tokens), 0);
    assert_int_equal(tokens, 256);
    assert_int_equal(rig_hold_find(rig, hold)->slots, 16 + 4);
    assert_int_equal(rig_hold_trim(rig, hold, 10 * 16, &tokens), 0);
    assert_int_equal(tokens, 128); /* 9 and 10 have no whole window: the greatest checkpoint below */
    assert_int_equal(story_stats(rig).hold_bytes_gauge, (8 + 4) * BLOCK);
    story_quiesce(rig);
    rig_close(rig);
}

static void full_blocks_beyond_the_delivered_end_go_first(void **state)
{
    (void)state;
    rig_t *rig = open_hybrid(1, 4);
    rig_seq_t *old = rig_seq(rig, 1, 2, 40 * 16), *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
    story_resident(rig, old, 40);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer_checkpoints(rig, 8, 1u << 3 | 1u << 7);
    story_begin(rig);
    story_ok(rig, seq, 0);
    uint32_t part = story_part(rig, seq, 4);
    int32_t results[5] = {0};
    results[4] = FBY_E_MISSING;
    rig_end(rig, part, results);
    story_settle(rig);
    assert_snapshot(rig, s, delivered_blocks, 4);
    assert_int_equal(rig->resident_count, 48);
    story_resident(rig, rig_seq(rig, 2, 3, 20 * 16), 20); /* 16 are free: four must go */
    assert_int_equal(rig->resident[seq->nodes[3]], 1);
    for (uint32_t b = 4; b < 8; b++)
        assert_int_equal(rig->resident[seq->nodes[b]], 0);
    assert_int_equal(rig->resident[old->nodes[39]], 1);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_is_a_checkpoint),
        cmocka_unit_test(without_any_checkpoint_nothing_is_read),
        cmocka_unit_test(a_chunk_carries_the_payloads_of_its_last_checkpoint_only),
        cmocka_unit_test(a_window_that_crosses_chunks_is_read_once),
        cmocka_unit_test(a_bad_block_leaves_the_checkpoints_before_it),
        cmocka_unit_test(a_resident_payload_is_not_read_again),
        cmocka_unit_test(a_lost_snapshot_is_repaired_by_a_put),
        cmocka_unit_test(a_hold_keeps_the_window_of_its_end),
        cmocka_unit_test(full_blocks_beyond_the_delivered_end_go_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
