/* test_pressure.c - when room is short: who gives way, who waits, who takes turns, and what is never taken away. */
#include "core/internal.h"
#include "drive.h"

/* A pool of `blocks`, every budget as large. */
static void small(rig_config_t *config, uint32_t blocks)
{
    rig_config_defaults(config);
    config->pool[0] = blocks;
    config->core.max_reserved_bytes = config->core.max_pinned_bytes = (uint64_t)blocks * BLOCK;
    config->core.max_hold_bytes = config->core.write_pinned_bytes = (uint64_t)blocks * BLOCK;
}

/* ---- Store writes ---- */

/* All 16 blocks are dirty and the write lane has not come: a claim drops writes, it does not wait for them. */
static void claims_against_dirty_blocks(fby_write_mode_t writes)
{
    rig_config_t config;
    small(&config, 16);
    config.core.writes = writes;
    rig_t *rig = rig_open(&config);
    rig_seq_t *dirty = rig_seq(rig, 0, 1, 16 * 16 + 1), *seq = rig_seq(rig, 0, 2, 4 * 16 + 1);
    story_resident(rig, dirty, 16);
    assert_int_equal(story_stats(rig).write_pinned_bytes_gauge, 16 * BLOCK);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, 20 * RIG_MS);
    story_answer(rig, 4);
    assert_int_equal(story_begin(rig), 1);
    assert_int_equal(story_stats(rig).writes_dropped, 4);
    assert_int_equal(story_stats(rig).blocks_evicted, 4);
    assert_int_equal(story_lookup(rig, dirty), 12 * 16); /* from the end */
    story_ok(rig, seq, 0);
    assert_answer(rig, s, 4, COMPLETE, COMPLETE);
    assert_int_equal(story_stats(rig).writes_failed, 4);
    drive_writes(rig);
    rig_seq_t *other = rig_seq(rig, 0, 3, 16 * 16 + 1);
    rig_release(rig, s);
    story_resident(rig, other, 16); /* makes the last writes of write-back due */
    drive_writes(rig);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_claim_never_waits_for_a_write_that_has_not_begun(void **state)
{
    (void)state;
    claims_against_dirty_blocks(FBY_WRITE_THROUGH);
}

static void nor_with_write_back(void **state)
{
    (void)state;
    claims_against_dirty_blocks(FBY_WRITE_BACK);
}

static void a_begun_write_is_waited_for(void **state)
{
    (void)state;
    rig_config_t config;
    small(&config, 16);
    config.core.writes = FBY_WRITE_THROUGH;
    rig_t *rig = rig_open(&config);
    rig_seq_t *dirty = rig_seq(rig, 0, 1, 16 * 16 + 1), *seq = rig_seq(rig, 0, 2, 4 * 16 + 1);
    story_resident(rig, dirty, 16);
    uint32_t part = rig_begin(rig, true, 16); /* all of it: the store reads this memory */
    assert_int_not_equal(part, FBY_NONE);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, 20 * RIG_MS);
    story_answer(rig, 4);
    assert_int_equal(story_begin(rig), 0);
    assert_snapshot(rig, s, answered, 0);
    rig_end(rig, part, NULL);
    drive_reads(rig);
    assert_answer(rig, s, 4, COMPLETE, COMPLETE);
    assert_int_equal(story_stats(rig).writes_dropped, 0);
    story_quiesce(rig);
    rig_close(rig);
}

/* ---- Turns ---- */

/* Room for two chunks, three equal sessions of 12 chunks: in which order are chunks begun? */
static void order_of_chunks(uint32_t first_turn, char *order, uint32_t count)
{
    rig_config_t config;
    small(&config, 256);
    config.core.max_inflight_chunks = 1;
    config.core.chunk_max_blocks = 2;
    config.core.max_reserved_bytes = 4 * BLOCK;
    rig_t *rig = rig_open(&config);
    rig->core->turn = first_turn;
    rig_seq_t *seq[3];
    for (unsigned i = 0; i < 3; i++) {
        seq[i] = rig_seq(rig, 0, i + 1, 24 * 16 + 1);
        rig_start(rig, seq[i], WAIT_COMPLETE, DRAIN, FBY_NEVER);
    }
    story_answer(rig, 24);
    uint32_t queue[64], n = 0;
    for (uint32_t ended = 0; n < count; ended++) {
        for (uint32_t part; (part = rig_begin(rig, false, 256)) != FBY_NONE; queue[n++] = part)
            for (unsigned i = 0; i < 3; i++)
                if (fby_hash_equal(&rig->part[part].io[0].hash, &seq[i]->hashes[rig->part[part].io[0].block]))
                    order[n] = (char)('A' + i);
        assert_true(ended < n);
        rig_end(rig, queue[ended], NULL);
        story_settle(rig);
    }
    order[count] = 0;
    drive_reads(rig);
    story_quiesce(rig);
    rig_close(rig);
}

static void sessions_take_turns_however_long_the_process_runs(void **state)
{
    (void)state;
    const uint32_t turns[] = {0, (1u << 19) - 8, (1u << 19) + 100, UINT32_MAX - 3};
    for (unsigned i = 0; i < FBY_ARRAY_LEN(turns); i++) {
        char order[40];
        order_of_chunks(turns[i], order, 30);
        for (unsigned first = 0; first + 3 <= 30; first += 3) { /* each of them once in every three */
            char seen[4] = {0};
            for (unsigned k = 0; k < 3; k++)
                seen[order[first + k] - 'A'] = order[first + k];
            assert_string_equal(seen, "ABC");
        }
    }
}

/* Two reads fill max_reserved. Eight sessions need room; a ninth wants what is being read and must not wait for them. */
static void sessions_without_room_do_not_stop_one_that_needs_none(void **state)
{
    (void)state;
    rig_config_t config;
    small(&config, 64);
    config.core.max_inflight_chunks = 1;
    config.core.chunk_max_blocks = 2;
    config.core.max_reserved_bytes = 4 * BLOCK;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq[10];
    fby_session_t s[11];
    for (unsigned i = 0; i < 10; i++) {
        seq[i] = rig_seq(rig, 0, i + 1, 2 * 16 + 1);
        s[i] = rig_start(rig, seq[i], TIMEOUT, DRAIN, RIG_S);
        story_answer(rig, 2);
    }
    s[10] = rig_start(rig, seq[0], WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 2);
    assert_int_equal(story_begin(rig), 2);
    for (unsigned i = 2; i < 10; i++)
        assert_snapshot(rig, s[i], submitted, 0);
    assert_snapshot(rig, s[10], submitted, 1); /* a join */
    drive_reads(rig);
    for (unsigned i = 0; i < 11; i++)
        assert_answer(rig, s[i], 2, COMPLETE, COMPLETE);
    assert_int_equal(story_stats(rig).bytes_read, 20 * BLOCK);
    story_quiesce(rig);
    rig_close(rig);
}

/* ---- Places ---- */

/* A long publication has used up the step when a parked session with no budget at all asks for its answer. */
static void a_parked_session_takes_no_place_to_be_answered(void **state)
{
    (void)state;
    rig_config_t config;
    small(&config, 2048);
    config.core.max_sessions = 1;
    config.core.chunk_max_blocks = 600;
    config.core.max_inflight_chunks = 1;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 600 * 16 + 1);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 600);
    assert_int_equal(story_begin(rig), 3);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL); /* 600 to publish, 256 a step */
    assert_snapshot(rig, s, answered, 0);
    fby_session_t parked = rig_start(rig, rig_seq(rig, 0, 2, 65), TIMEOUT, DRAIN, 0);
    assert_in_range(story_stats(rig).sessions_running_gauge, 0, 1);
    story_settle(rig);
    assert_answer(rig, s, 600, COMPLETE, COMPLETE);
    assert_answer(rig, parked, 0, EMPTY, DEADLINE);
    story_quiesce(rig);
    rig_close(rig);
}

/* ---- Limits ---- */

static void the_drain_limit_s_quarantine_opens_the_breaker(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.drain_limit_ns = 50 * RIG_MS;
    config.core.quarantine_limit_bytes = 4 * BLOCK;
    rig_t *rig = rig_open(&config);
    for (unsigned i = 0; i < 6; i++) {
        rig_start(rig, rig_seq(rig, 0, i + 1, 8 * 16 + 1), TIMEOUT, DRAIN, 10 * RIG_MS);
        story_answer(rig, 8);
        story_begin(rig);
    }
    story_at(rig, 59);
    assert_int_equal(rig->events[FBY_CORE_QUARANTINE_OVER], 0);
    story_at(rig, 100);
    assert_int_equal(story_stats(rig).quarantine_bytes_gauge, 48 * BLOCK);
    assert_int_equal(rig->events[FBY_CORE_QUARANTINE_OVER], 1); /* at the fifth block, once */
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    assert_int_equal(story_stats(rig).quarantine_bytes_gauge, 0);
    story_quiesce(rig);
    rig_close(rig);
}

/* S was granted 12 of 16 blocks and has claimed 4; a lookup that would pin another 12 is refused. */
static void a_lookup_does_not_take_the_room_that_was_granted(void **state)
{
    (void)state;
    rig_config_t config;
    small(&config, 16);
    config.core.max_inflight_chunks = 1;
    rig_t *rig = rig_open(&config);
    rig_seq_t *old = rig_seq(rig, 0, 1, 16 * 16 + 1), *seq = rig_seq(rig, 0, 2, 12 * 16 + 1);
    story_resident(rig, old, 16);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, 10 * RIG_S);
    story_answer(rig, 12);
    assert_int_equal(story_begin(rig), 1);
    fby_hold_t hold;
    uint64_t tokens;
    assert_int_equal(rig_lookup(rig, old, &hold, &tokens), FBY_E_BUDGET);
    assert_int_equal(story_stats(rig).budget_refused, 1);
    drive_reads(rig);
    assert_answer(rig, s, 12, COMPLETE, COMPLETE);
    assert_int_equal(rig_lookup(rig, old, &hold, &tokens), 0); /* what is left of it */
    assert_int_equal(tokens, 4 * 16);
    story_quiesce(rig);
    rig_close(rig);
}

static void without_a_store_too_a_shortage_that_can_pass_is_waited_for(void **state)
{
    (void)state;
    rig_config_t config;
    small(&config, 16);
    config.pool[0] = 64;
    config.core.store = false;
    config.core.max_reserved_bytes = 8 * BLOCK;
    config.core.result_ttl_ns = 50 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *first = rig_seq(rig, 0, 1, 16 * 16 + 1), *second = rig_seq(rig, 0, 2, 16 * 16 + 1);
    story_resident(rig, first, 16);
    story_resident(rig, second, 16);
    fby_session_t a = rig_start(rig, first, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_settle(rig);
    assert_answer(rig, a, 16, COMPLETE, COMPLETE); /* leased: all that may be pinned */
    fby_session_t b = rig_start(rig, second, TIMEOUT, DRAIN, RIG_S);
    story_settle(rig);
    assert_snapshot(rig, b, answered, 0);
    story_at(rig, 49);
    assert_snapshot(rig, b, answered, 0);
    story_at(rig, 51); /* A's lease is over */
    assert_answer(rig, b, 16, COMPLETE, COMPLETE);
    assert_int_equal(drive_answer(rig, b).loaded_tokens, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void staged_puts_count_as_what_they_will_hold(void **state)
{
    (void)state;
    rig_config_t config;
    small(&config, 64);
    config.core.max_hold_bytes = 16 * BLOCK;
    rig_t *rig = rig_open(&config);
    fby_put_t put[2];
    assert_int_equal(rig_put_begin(rig, rig_seq(rig, 0, 1, 16 * 16 + 1), 0, 12, &put[0]), 0);
    assert_int_equal(rig_put_begin(rig, rig_seq(rig, 0, 2, 16 * 16 + 1), 0, 12, &put[1]), 0);
    assert_int_equal(rig_put_find(rig, put[0])->info.staged_to, 12);
    assert_int_equal(rig_put_find(rig, put[1])->info.staged_to, 4);
    assert_int_equal(rig_put_commit(rig, put[0], 12).published, 12);
    assert_int_equal(rig_put_commit(rig, put[1], 4).published, 4);
    assert_int_equal(story_stats(rig).hold_bytes_gauge, 16 * BLOCK);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claim_never_waits_for_a_write_that_has_not_begun),
        cmocka_unit_test(nor_with_write_back),
        cmocka_unit_test(a_begun_write_is_waited_for),
        cmocka_unit_test(sessions_take_turns_however_long_the_process_runs),
        cmocka_unit_test(sessions_without_room_do_not_stop_one_that_needs_none),
        cmocka_unit_test(a_parked_session_takes_no_place_to_be_answered),
        cmocka_unit_test(the_drain_limit_s_quarantine_opens_the_breaker),
        cmocka_unit_test(a_lookup_does_not_take_the_room_that_was_granted),
        cmocka_unit_test(without_a_store_too_a_shortage_that_can_pass_is_waited_for),
        cmocka_unit_test(staged_puts_count_as_what_they_will_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
