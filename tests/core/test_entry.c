/* test_entry.c - the material of ledgers: the flight table, retries, how failures and wasted reads are counted. */
#include "core/internal.h"
#include "drive.h"

static rig_t *open_default(void)
{
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.query_batch_blocks = 8;
    return rig_open(&config);
}

/* 8 of 16 blocks are claimed and begun; the second query keeps the session unsealed. */
static fby_session_t unsealed(rig_t *rig, const rig_seq_t *seq, fby_policy_t policy, uint64_t budget_ns,
                              fby_core_query_t *out)
{
    fby_core_query_t first;
    uint8_t present[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    fby_session_t s = rig_start(rig, seq, policy, DRAIN, budget_ns);
    assert_true(rig_next_query(rig, &first));
    rig_query_done(rig, &first, 0, present, FBY_NEVER);
    story_settle(rig);
    assert_true(rig_next_query(rig, out));
    assert_int_equal(story_begin(rig), 2);
    return s;
}

static uint32_t in_flight(rig_t *rig, const rig_seq_t *seq)
{
    uint32_t n = 0;
    for (uint32_t block = 0; block < seq->blocks; block++) {
        uint32_t slot = fby_flight_find(rig->core, &seq->hashes[block], 0);
        if (slot == FBY_NONE)
            continue;
        assert_true(fby_hash_equal(&rig->core->items[slot].hash, &seq->hashes[block]));
        n++;
    }
    return n;
}

/* As many reads as the table has buckets: many share one, and each can leave it without the others. */
static void a_read_can_be_found_from_its_claim_to_its_publication(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.chunk_max_blocks = 4;
    config.core.max_inflight_chunks = 8;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq[2];
    for (unsigned i = 0; i < 2; i++) {
        seq[i] = rig_seq(rig, 0, i + 1, 32 * 16 + 1);
        rig_start(rig, seq[i], WAIT_COMPLETE, DRAIN, FBY_NEVER);
        story_answer(rig, 32);
    }
    assert_int_equal(in_flight(rig, seq[0]), 32); /* claimed, not begun */
    assert_int_equal(story_begin(rig), 16);
    for (uint32_t chunk = 0; chunk < 8; chunk++)
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(in_flight(rig, seq[i]), 32 - 4 * chunk);
            story_ok(rig, seq[i], 4 * chunk);
        }
    assert_int_equal(in_flight(rig, seq[0]), 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void reads_behind_a_device_prefix_are_nobody_s_to_join(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
    fby_core_start_t start;
    rig_start_defaults(&start);
    start.have_blocks = 4;
    fby_session_t s;
    assert_int_equal(rig_start_with(rig, seq, &start, &s), 0);
    story_answer(rig, 8);
    assert_int_equal(story_begin(rig), 1);
    assert_int_equal(in_flight(rig, seq), 0);
    drive_reads(rig);
    assert_answer(rig, s, 8, COMPLETE, COMPLETE);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_key_is_read_twice_at_most(void **state)
{
    (void)state;
    const int32_t codes[] = {FBY_E_CONNECTION, FBY_E_TIMEOUT, -EAGAIN};
    for (unsigned i = 0; i < FBY_ARRAY_LEN(codes); i++) {
        rig_t *rig = open_default();
        rig_seq_t *seq = rig_seq(rig, 0, 1, 16 * 16 + 1);
        fby_core_query_t query;
        fby_session_t s = unsealed(rig, seq, WAIT_COMPLETE, FBY_NEVER, &query);
        story_bad(rig, seq, 0, 1, codes[i]);
        assert_int_equal(story_stats(rig).retries, 1); /* that block only */
        assert_int_equal(story_begin(rig), 1);
        uint32_t again = story_part(rig, seq, 1);
        assert_int_equal(rig->part[again].count, 1);
        story_bad(rig, seq, 1, 1, codes[i]);
        assert_int_equal(story_begin(rig), 0);
        assert_int_equal(story_stats(rig).retries, 1);
        drive_reads(rig);
        if (codes[i] == FBY_E_TIMEOUT)
            assert_answer(rig, s, 1, PARTIAL, IO_TIMEOUT);
        else
            assert_answer(rig, s, 1, PARTIAL, STORE_ERROR);
        rig_query_done(rig, &query, FBY_E_CONNECTION, NULL, FBY_NEVER);
        story_quiesce(rig);
        rig_close(rig);
    }
}

static void a_second_read_may_well_succeed(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    rig_seq_t *seq = rig_seq(rig, 0, 1, 16 * 16 + 1);
    fby_core_query_t query;
    fby_session_t s = unsealed(rig, seq, WAIT_COMPLETE, FBY_NEVER, &query);
    story_bad(rig, seq, 0, 1, FBY_E_CONNECTION);
    assert_int_equal(story_begin(rig), 1);
    story_ok(rig, seq, 1);
    uint8_t present[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    rig_query_done(rig, &query, 0, present, FBY_NEVER);
    drive_reads(rig);
    assert_answer(rig, s, 16, COMPLETE, COMPLETE);
    assert_int_equal(drive_answer(rig, s).error, 0);
    story_quiesce(rig);
    rig_close(rig);
}

/* The store needs 10 ms a block; with 5 ms left a second read would come too late. */
static void no_retry_that_cannot_end_in_time(void **state)
{
    (void)state;
    for (unsigned left_ms = 5; left_ms <= 15; left_ms += 10) {
        rig_t *rig = open_default();
        rig_seq_t *seq = rig_seq(rig, 0, 1, 16 * 16 + 1), *first = rig_seq(rig, 0, 2, 65);
        rig_start(rig, first, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        story_answer(rig, 4);
        story_begin(rig);
        rig->now += 40 * RIG_MS;
        rig_end(rig, rig->live[0][0], NULL);
        story_settle(rig);
        fby_core_query_t query;
        fby_session_t s = unsealed(rig, seq, TIMEOUT, 100 * RIG_MS, &query);
        rig->now += (100 - left_ms) * RIG_MS;
        story_bad(rig, seq, 0, 0, FBY_E_CONNECTION);
        assert_int_equal(story_stats(rig).retries, left_ms > 10);
        drive_reads(rig);
        rig_query_done(rig, &query, FBY_E_CONNECTION, NULL, FBY_NEVER);
        rig_release(rig, s);
        story_quiesce(rig);
        rig_close(rig);
    }
}

static uint64_t failures_of(const fby_stats_t *stats, int32_t code)
{
    switch (code) {
    case FBY_E_MISSING:
        return stats->fail_missing;
    case FBY_E_NOT_READY:
        return stats->fail_not_ready;
    case FBY_E_SIZE:
        return stats->fail_size;
    case FBY_E_CHECKSUM:
        return stats->fail_checksum;
    case FBY_E_LEASE:
        return stats->fail_lease;
    case FBY_E_TIMEOUT:
        return stats->fail_timeout;
    case FBY_E_CONNECTION:
        return stats->fail_connection;
    default:
        return stats->fail_other;
    }
}

static void each_failure_is_counted_once_under_its_name(void **state)
{
    (void)state;
    const int32_t codes[] = {FBY_E_MISSING, FBY_E_NOT_READY, FBY_E_SIZE,       FBY_E_CHECKSUM,
                             FBY_E_LEASE,   FBY_E_TIMEOUT,   FBY_E_CONNECTION, -EIO};
    for (unsigned i = 0; i < FBY_ARRAY_LEN(codes); i++) {
        rig_t *rig = open_default();
        rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
        rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        story_answer(rig, 4);
        story_begin(rig);
        story_bad(rig, seq, 0, 3, codes[i]);
        fby_stats_t stats = story_stats(rig);
        for (unsigned k = 0; k < FBY_ARRAY_LEN(codes); k++)
            assert_int_equal(failures_of(&stats, codes[k]), k == i);
        story_quiesce(rig);
        rig_close(rig);
    }
}

/* Aborted, two reads on their way: what comes in after that was read for nothing. */
static void what_is_read_for_nobody_is_wasted(void **state)
{
    (void)state;
    rig_t *rig = open_default();
    rig_seq_t *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 8);
    assert_int_equal(rig_begin(rig, false, 4) != FBY_NONE, 1); /* the other chunk stays queued */
    rig_stop(rig, s);
    drive_reads(rig);
    assert_answer(rig, s, 0, ABORTED, ABORT);
    assert_int_equal(story_stats(rig).bytes_read, 4 * BLOCK);
    assert_int_equal(story_stats(rig).bytes_wasted, 4 * BLOCK);
    assert_int_equal(story_stats(rig).graphs, 2);
    assert_int_equal(story_stats(rig).graphs_recalled, 1);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_can_be_found_from_its_claim_to_its_publication),
        cmocka_unit_test(reads_behind_a_device_prefix_are_nobody_s_to_join),
        cmocka_unit_test(a_key_is_read_twice_at_most),
        cmocka_unit_test(a_second_read_may_well_succeed),
        cmocka_unit_test(no_retry_that_cannot_end_in_time),
        cmocka_unit_test(each_failure_is_counted_once_under_its_name),
        cmocka_unit_test(what_is_read_for_nobody_is_wasted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
