/* test_probe_lease.c - stores whose probes lease: long plans are read within their leases, late reads are worth nothing. */
#include "drive.h"

#define LEASE (5 * RIG_S)

static void roomy(rig_config_t *config, uint32_t blocks)
{
    rig_config_defaults(config);
    config->pool[0] = blocks;
    config->core.max_reserved_bytes = config->core.max_pinned_bytes = config->core.max_hold_bytes =
        (uint64_t)blocks * BLOCK;
    config->core.probe_lease_ns = LEASE;
    config->part_blocks = 512;
    config->full_every = 64;
}

static void answer_leased(rig_t *rig, uint64_t lease)
{
    static uint8_t present[4096];
    memset(present, 1, sizeof(present));
    fby_core_query_t query;
    story_settle(rig);
    while (rig_next_query(rig, &query)) {
        rig_query_done(rig, &query, 0, present, rig->now + lease);
        story_settle(rig);
    }
}

/* The store answers at once and reads take a millisecond each. */
static void run(rig_t *rig, fby_session_t session)
{
    for (unsigned round = 0; round < 1000 && !rig_session_find(rig, session)->answered; round++) {
        answer_leased(rig, LEASE);
        while (rig_begin(rig, false, FBY_STEP_BLOCKS) != FBY_NONE) {
            rig->now += RIG_MS;
            rig_end(rig, rig->live[0][0], NULL);
        }
        story_settle(rig);
    }
}

static void a_whole_plan_of_many_batches_is_read(void **state)
{
    (void)state;
    rig_config_t config;
    roomy(&config, 4096);
    config.core.chunk_runtime = false;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 3000 * 16 + 1); /* 12 batches */
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    run(rig, s);
    assert_answer(rig, s, 3000, COMPLETE, COMPLETE);
    assert_int_equal(story_stats(rig).fail_lease, 0);
    assert_int_equal(story_stats(rig).retries, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_chunk_of_eight_batches_is_read(void **state)
{
    (void)state;
    rig_config_t config;
    roomy(&config, 1024);
    config.core.query_batch_blocks = 16;
    config.core.chunk_max_blocks = 128;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 1000 * 16 + 1);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    run(rig, s);
    assert_answer(rig, s, 1000, COMPLETE, COMPLETE);
    assert_int_equal(story_stats(rig).fail_lease, 0);
    assert_int_equal(story_stats(rig).retries, 0);
    story_quiesce(rig);
    rig_close(rig);
}

/* S reads its first 4 blocks and lets the lease run out meanwhile; it is unsealed, its second batch is out. */
static rig_t *late_read(rig_seq_t **seq, fby_session_t *s, fby_core_query_t *second)
{
    rig_config_t config;
    roomy(&config, 64);
    config.core.probe_lease_ns = 50 * RIG_MS;
    config.core.query_batch_blocks = 4;
    rig_t *rig = rig_open(&config);
    *seq = rig_seq(rig, 0, 1, 8 * 16 + 1);
    *s = rig_start(rig, *seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_core_query_t first;
    uint8_t present[4] = {1, 1, 1, 1};
    assert_true(rig_next_query(rig, &first));
    rig_query_done(rig, &first, 0, present, rig->now + 50 * RIG_MS);
    story_settle(rig);
    assert_true(rig_next_query(rig, second));
    assert_int_equal(story_begin(rig), 1);
    rig->now += 60 * RIG_MS;
    return rig;
}

static void behind_its_lease_a_read_is_not_tried_again(void **state)
{
    (void)state;
    rig_seq_t *seq;
    fby_session_t s;
    fby_core_query_t second;
    rig_t *rig = late_read(&seq, &s, &second);
    rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    assert_int_equal(story_begin(rig), 0);
    assert_answer(rig, s, 0, EMPTY, PARTIAL_READ);
    assert_int_equal(drive_answer(rig, s).error, FBY_E_LEASE);
    assert_int_equal(story_stats(rig).fail_lease, 4);
    assert_int_equal(story_stats(rig).retries, 0);
    rig_query_done(rig, &second, FBY_E_CONNECTION, NULL, FBY_NEVER);
    story_quiesce(rig);
    rig_close(rig);
}

static void a_late_read_says_nothing_about_the_key(void **state)
{
    (void)state;
    rig_seq_t *seq;
    fby_session_t s;
    fby_core_query_t second;
    rig_t *rig = late_read(&seq, &s, &second);
    rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    fby_session_t next =
        rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER); /* well within the negative memory's time */
    rig_query_done(rig, &second, FBY_E_CONNECTION, NULL, FBY_NEVER);
    answer_leased(rig, LEASE);
    assert_snapshot(rig, next, found_tokens, 8 * 16);
    drive_reads(rig);
    assert_answer(rig, next, 8, COMPLETE, COMPLETE);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_plan_of_many_batches_is_read),
        cmocka_unit_test(a_chunk_of_eight_batches_is_read),
        cmocka_unit_test(behind_its_lease_a_read_is_not_tried_again),
        cmocka_unit_test(a_late_read_says_nothing_about_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
