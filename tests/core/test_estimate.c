/* test_estimate.c - the measured service time: least squares, one size only, fading, freshness, and what leans on it. */
#include "core/estimate.h"
#include "drive.h"

/* Sums are floating point: the last nanosecond may fall either way. */
static void assert_takes(const fby_estimate_t *e, uint32_t blocks, uint64_t ns)
{
    assert_in_range(fby_estimate_ns(e, blocks), ns ? ns - 1 : 0, ns + 1);
}

static void nothing_measured_is_nothing(void **state)
{
    (void)state;
    fby_estimate_t e = {0};
    assert_int_equal(fby_estimate_ns(&e, 100), 0);
    assert_false(fby_estimate_fresh(&e, 0));
}

static void two_sizes_tell_the_parts_apart(void **state)
{
    (void)state;
    fby_estimate_t e = {0};
    fby_estimate_add(&e, 4, 500000 + 4 * 20000, 1);
    fby_estimate_add(&e, 32, 500000 + 32 * 20000, 2);
    assert_takes(&e, 4, 580000);
    assert_takes(&e, 32, 1140000);
    assert_takes(&e, 128, 3060000); /* beyond what was seen */
    assert_takes(&e, 0, 500000);
    fby_estimate_add(&e, 16, 500000 + 16 * 20000, 3); /* on the line: changes nothing */
    assert_takes(&e, 128, 3060000);
}

static void one_size_counts_as_per_block(void **state)
{
    (void)state;
    fby_estimate_t e = {0};
    for (unsigned i = 0; i < 50; i++)
        fby_estimate_add(&e, 8, 4000000, i);
    assert_takes(&e, 8, 4000000);
    assert_takes(&e, 1, 500000);
    assert_takes(&e, 64, 32000000);
}

/* A line that says "more blocks take less time", or that nothing costs less than nothing, is noise. */
static void lines_that_cannot_be_are_averages(void **state)
{
    (void)state;
    fby_estimate_t falling = {0}, negative = {0};
    fby_estimate_add(&falling, 10, 1000000, 1);
    fby_estimate_add(&falling, 20, 500000, 2);
    /* (0.9 * 1,000,000 + 500,000) / (0.9 * 10 + 20) per block */
    assert_takes(&falling, 29, 1400000);
    fby_estimate_add(&negative, 10, 100000, 1);
    fby_estimate_add(&negative, 20, 1000000, 2);
    assert_takes(&negative, 29, 1090000);
    assert_int_equal(fby_estimate_ns(&negative, 0), 0);
}

static void a_store_that_got_faster_is_believed_within_a_few_dozen_graphs(void **state)
{
    (void)state;
    fby_estimate_t e = {0};
    for (unsigned i = 0; i < 1000; i++)
        fby_estimate_add(&e, 4, 40000000, i);
    for (unsigned i = 0; i < 7; i++)
        fby_estimate_add(&e, 4, 4000000, i);
    assert_in_range(fby_estimate_ns(&e, 4), 4000000, 22000000); /* the new one weighs more: 0.9^7 < 1/2 */
    for (unsigned i = 7; i < 50; i++)
        fby_estimate_add(&e, 4, 4000000, i);
    assert_in_range(fby_estimate_ns(&e, 4), 4000000, 4200000);
}

static void a_measurement_is_fresh_for_ten_seconds(void **state)
{
    (void)state;
    fby_estimate_t e = {0};
    fby_estimate_add(&e, 4, 1000000, 5 * RIG_S);
    assert_true(fby_estimate_fresh(&e, 5 * RIG_S));
    assert_true(fby_estimate_fresh(&e, 15 * RIG_S - 1));
    assert_false(fby_estimate_fresh(&e, 15 * RIG_S));
    fby_estimate_add(&e, 4, 1000000, 15 * RIG_S);
    assert_true(fby_estimate_fresh(&e, 20 * RIG_S));
    assert_int_equal(e.graphs, 2);
}

/* ---- What leans on it ---- */

static fby_session_t one_read(rig_t *rig, uint64_t salt, uint64_t takes_ns)
{
    fby_session_t s = rig_start(rig, rig_seq(rig, 0, salt, 65), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    assert_int_equal(story_begin(rig), 1);
    rig->now += takes_ns;
    rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    return s;
}

static fby_session_t hurried(rig_t *rig, uint64_t salt)
{
    fby_session_t s = rig_start(rig, rig_seq(rig, 0, salt, 65), TIMEOUT, DRAIN, 2 * RIG_S);
    story_answer(rig, 4);
    return s;
}

/* One read of 4.9 s: predictive sessions with 2 s read nothing for a while, then try, and find a healthy store. */
static void one_slow_read_does_not_lock_predictive_sessions_out(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.predictive = true;
    rig_t *rig = rig_open(&config);
    one_read(rig, 1, RIG_MS);
    one_read(rig, 2, 4900 * RIG_MS);
    fby_session_t at_once = hurried(rig, 3);
    assert_answer(rig, at_once, 0, EMPTY, DEADLINE);
    assert_int_equal(drive_answer(rig, at_once).submitted, 0);
    story_at(rig, (rig->now - RIG_S) / RIG_MS + 10000);
    fby_session_t tries = hurried(rig, 4);
    assert_snapshot(rig, tries, submitted, 1);
    story_begin(rig);
    rig->now += RIG_MS;
    rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    assert_answer(rig, tries, 4, COMPLETE, COMPLETE);
    fby_session_t next = hurried(rig, 5); /* at once: (0.81 + 0.9 * 4900 + 1) / 2.71 ms is below 2 s */
    assert_snapshot(rig, next, submitted, 1);
    drive_reads(rig);
    story_quiesce(rig);
    rig_close(rig);
}

/* Nobody would ever measure again if the estimate of a bad hour could stop a session's first chunk. */
static void break_even_measures_with_each_session_s_first_chunk(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.recompute_tokens_per_s = 1000; /* 4 blocks of 16 tokens: 64 ms */
    config.core.max_inflight_chunks = 1;
    rig_t *rig = rig_open(&config);
    one_read(rig, 1, 4000 * RIG_MS);
    fby_session_t s = rig_start(rig, rig_seq(rig, 0, 2, 12 * 16 + 1), BREAK_EVEN, DRAIN, FBY_NEVER);
    story_answer(rig, 12);
    assert_int_equal(story_begin(rig), 1);
    rig->now += 100 * RIG_MS; /* slower than computing, again */
    rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    assert_answer(rig, s, 4, PARTIAL, BREAK_EVEN);
    story_quiesce(rig);
    rig_close(rig);
}

static void failed_reads_measure_nothing(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.predictive = true;
    rig_t *rig = rig_open(&config);
    one_read(rig, 1, RIG_MS);
    fby_session_t s = rig_start(rig, rig_seq(rig, 0, 2, 65), WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    story_begin(rig);
    rig->now += 4900 * RIG_MS;
    drive_fail(rig, FBY_E_MISSING);
    assert_answer(rig, s, 0, EMPTY, PARTIAL_READ);
    fby_session_t next = hurried(rig, 3);
    assert_snapshot(rig, next, submitted, 1);
    drive_reads(rig);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_measured_is_nothing),
        cmocka_unit_test(two_sizes_tell_the_parts_apart),
        cmocka_unit_test(one_size_counts_as_per_block),
        cmocka_unit_test(lines_that_cannot_be_are_averages),
        cmocka_unit_test(a_store_that_got_faster_is_believed_within_a_few_dozen_graphs),
        cmocka_unit_test(a_measurement_is_fresh_for_ten_seconds),
        cmocka_unit_test(one_slow_read_does_not_lock_predictive_sessions_out),
        cmocka_unit_test(break_even_measures_with_each_session_s_first_chunk),
        cmocka_unit_test(failed_reads_measure_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
