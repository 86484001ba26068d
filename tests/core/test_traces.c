/* test_traces.c - the worked traces a-k of the prefetch design, told with their exact numbers. */
#include "story.h"

#define PROMPT 161u /* tokens: 10 whole blocks and one token more, so all 10 may be delivered */
#define BUDGET (20 * RIG_MS)

static void a_deadline_drains_what_was_claimed(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, PROMPT);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, BUDGET);
    story_answer(rig, 10);
    assert_int_equal(story_begin(rig), 2); /* c0[0,2) c1[2,4) */
    story_at(rig, 20);
    assert_state(rig, s, DRAINING);
    assert_reason(rig, s, DEADLINE);

    story_ok(rig, seq, 2);
    assert_snapshot(rig, s, committed_blocks, 0);
    assert_int_equal(rig->resident_count, 0);
    assert_int_equal(story_stats(rig).reserved_bytes_gauge, 4 * BLOCK); /* both still charged */

    story_ok(rig, seq, 0);
    assert_state(rig, s, TERMINAL);
    assert_outcome(rig, s, PARTIAL);
    assert_snapshot(rig, s, delivered_tokens, 64);
    assert_snapshot(rig, s, submitted, 2);
    assert_snapshot(rig, s, sealed_submit_seq, 2);
    assert_int_equal(story_begin(rig), 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void b_gap_closes_the_prefix(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, PROMPT);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    assert_int_equal(story_begin(rig), 2);
    story_bad(rig, seq, 0, 1, FBY_E_MISSING);
    story_ok(rig, seq, 2);
    assert_state(rig, s, TERMINAL);
    assert_snapshot(rig, s, delivered_blocks, 1);
    assert_int_equal(story_free(rig), 63); /* one block of c0 and two of c1 came back */
    assert_reason(rig, s, PARTIAL_READ);
    assert_snapshot(rig, s, error, FBY_E_MISSING);
    story_quiesce(rig);
    rig_close(rig);
}

static void c_a_put_wins_the_race(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.max_inflight_chunks = 1;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, PROMPT);
    story_resident(rig, seq, 2);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, BUDGET);
    story_answer(rig, 10);
    assert_int_equal(story_begin(rig), 1); /* c0[2,4) */
    story_at(rig, 20);

    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, seq, 0, 10, &put), 0);
    assert_int_equal(rig_put_find(rig, put)->info.first_missing, 2);
    assert_int_equal(rig_put_commit(rig, put, 10).published, 8);
    rig_put_end(rig, put);
    assert_int_equal(rig->resident_count, 10);
    uint32_t free_before = story_free(rig);

    story_ok(rig, seq, 2);
    assert_state(rig, s, TERMINAL);
    assert_int_equal(story_free(rig), free_before + 2); /* staging recycled */
    assert_snapshot(rig, s, delivered_blocks, 4);
    assert_snapshot(rig, s, span_start_block, 2);
    assert_snapshot(rig, s, span_end_block, 4);
    assert_int_equal(story_stats(rig).duplicates, 2);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 4 * BLOCK); /* the lease covers 4, not 10 */
    story_quiesce(rig);
    rig_close(rig);
}

static void d_abort_while_planning(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, PROMPT);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    fby_core_query_t query;
    assert_true(rig_next_query(rig, &query));
    assert_int_equal(rig_stop(rig, s), 0);
    assert_int_equal(story_events(rig, FBY_CORE_TERMINAL, s), 1); /* at once */
    assert_int_equal(rig_session_find(rig, s)->answer.outcome, FBY_OUTCOME_ABORTED);
    assert_int_equal(rig_session_find(rig, s)->answer.reason, FBY_REASON_ABORT);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 0);
    uint8_t present[10];
    memset(present, 1, sizeof(present));
    rig_query_done(rig, &query, 0, present, FBY_NEVER);
    story_settle(rig);
    assert_int_equal(story_begin(rig), 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void e_reset_with_two_in_flight(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, PROMPT);
    story_resident(rig, seq, 3);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    assert_int_equal(story_begin(rig), 2);
    assert_int_equal(rig_reset(rig, false), 0);
    uint64_t tokens = 99;
    int status = rig_probe(rig, seq, &tokens);
    assert_true(status == -EBUSY || (status == 0 && tokens == 0));
    story_settle(rig);
    assert_true(fby_core_resetting(rig->core));
    assert_int_equal(rig->events[FBY_CORE_RESET_DONE], 0);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    assert_int_equal(rig->events[FBY_CORE_RESET_DONE], 1);
    assert_false(fby_core_resetting(rig->core));
    assert_int_equal(story_lookup(rig, seq), 0);
    assert_int_equal(story_free(rig), 64);
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    assert_int_equal(fby_core_session_snapshot(rig->core, s, &snapshot), FBY_E_STALE);
    assert_int_equal(rig_demand(rig, s), FBY_E_STALE);
    assert_int_equal(rig_session_find(rig, s)->answer.reason, FBY_REASON_RESET);
    assert_int_equal(rig_session_find(rig, s)->answer.delivered_tokens, 0);
    fby_session_t next = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER); /* callers resume */
    story_answer(rig, 2);
    assert_int_equal(story_begin(rig), 1);
    story_ok(rig, seq, 0);
    assert_outcome(rig, next, COMPLETE);
    story_quiesce(rig);
    rig_close(rig);
}

static void f_budget_zero(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, PROMPT);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, 0);
    story_settle(rig);
    assert_int_equal(rig_session_find(rig, s)->answer.reason, FBY_REASON_DEADLINE);
    assert_int_equal(rig_session_find(rig, s)->answer.outcome, FBY_OUTCOME_EMPTY);
    assert_int_equal(rig_session_find(rig, s)->answer.delivered_tokens, 0);
    assert_int_equal(rig_session_find(rig, s)->answer.submitted, 0);

    story_resident(rig, seq, 3);
    s = rig_start(rig, seq, TIMEOUT, DRAIN, 0);
    story_settle(rig);
    assert_reason(rig, s, DEADLINE);
    assert_outcome(rig, s, PARTIAL);
    assert_snapshot(rig, s, delivered_blocks, 3);
    story_quiesce(rig);
    rig_close(rig);
}

/* Snapshots at blocks 4 and 8. Demand comes after c2[4,6) was claimed. */
static void checkpoints(int32_t snapshot_of_4, uint32_t delivered)
{
    rig_config_t config;
    story_traces(&config);
    story_trailing(&config, 1, 8);
    config.part_blocks = 2;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, PROMPT);
    fby_session_t s = rig_start(rig, seq, BEST_EFFORT, DRAIN, FBY_NEVER);
    story_answer_checkpoints(rig, 10, 1u << 3 | 1u << 7);
    assert_snapshot(rig, s, planned_tokens, 8 * 16);
    assert_int_equal(story_begin(rig), 2);
    story_ok(rig, seq, 0);
    assert_int_equal(story_begin(rig), 1); /* c2[4,6) */
    assert_int_equal(rig_demand(rig, s), 0);

    uint32_t part = story_part(rig, seq, 2);
    int32_t results[FBY_STEP_BLOCKS] = {0};
    assert_int_equal(rig->part[part].count, 3); /* two blocks and the snapshot of 4 */
    for (uint32_t i = 0; i < rig->part[part].count; i++)
        if (rig->part[part].io[i].group == 1) {
            assert_int_equal(rig->part[part].io[i].block, 3);
            results[i] = snapshot_of_4;
        }
    rig_end(rig, part, results);
    story_settle(rig);
    story_ok(rig, seq, 4);
    assert_int_equal(story_events(rig, FBY_CORE_TERMINAL, s), 1);
    assert_int_equal(rig_session_find(rig, s)->answer.committed_blocks, 6);
    assert_int_equal(rig_session_find(rig, s)->answer.delivered_blocks, delivered);
    assert_int_equal(rig->resident_count, 6); /* full blocks stay indexed */
    story_quiesce(rig);
    rig_close(rig);
}

static void g_answer_is_cut_at_a_checkpoint(void **state)
{
    (void)state;
    checkpoints(0, 4);
}

static void g_without_its_snapshot_nothing_is_usable(void **state)
{
    (void)state;
    checkpoints(FBY_E_CHECKSUM, 0);
}

static rig_t *stuck_read(fby_session_t *s, rig_seq_t **seq)
{
    rig_config_t config;
    story_traces(&config);
    config.core.max_inflight_chunks = 1;
    config.core.no_progress_ns = 50 * RIG_MS;
    config.core.io_timeout_ns = 100 * RIG_MS;
    rig_t *rig = rig_open(&config);
    *seq = rig_seq(rig, 0, 1, PROMPT);
    story_resident(rig, *seq, 1);
    *s = rig_start(rig, *seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    assert_int_equal(story_begin(rig), 1);
    return rig;
}

static void h_stuck_read_of_an_isolated_store_is_fenced(void **state)
{
    (void)state;
    fby_session_t s;
    rig_seq_t *seq;
    rig_t *rig = stuck_read(&s, &seq);
    story_at(rig, 100);
    assert_int_equal(rig->events[FBY_CORE_FENCE], 1);
    assert_int_equal(rig->live_count[0], 1);
    int32_t killed[2] = {FBY_E_TIMEOUT, FBY_E_TIMEOUT};
    rig_end(rig, rig->live[0][0], killed);
    story_settle(rig);
    assert_state(rig, s, TERMINAL);
    assert_reason(rig, s, IO_TIMEOUT);
    assert_snapshot(rig, s, delivered_blocks, 1); /* start */
    assert_int_equal(story_free(rig), 63);
    assert_int_equal(story_begin(rig), 0); /* the limit ends that graph: no retry */
    story_quiesce(rig);
    rig_close(rig);
}

static void h_stuck_read_without_isolation_keeps_its_slots(void **state)
{
    (void)state;
    fby_session_t s;
    rig_seq_t *seq;
    rig_t *rig = stuck_read(&s, &seq);
    story_at(rig, 100);
    assert_state(rig, s, TERMINAL);
    assert_reason(rig, s, IO_TIMEOUT);
    assert_snapshot(rig, s, delivered_blocks, 1);
    assert_int_equal(rig->slots.in_state[0][FBY_SLOT_QUARANTINE], 2);
    assert_int_equal(story_stats(rig).quarantine_bytes_gauge, 2 * BLOCK);
    assert_int_equal(story_stats(rig).reserved_bytes_gauge, 2 * BLOCK);

    rig_seq_t *other = rig_seq(rig, 0, 2, 33);
    fby_session_t t = rig_start(rig, other, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 2);
    assert_int_equal(story_begin(rig), 1);
    story_ok(rig, other, 0);
    assert_outcome(rig, t, COMPLETE);

    story_ok(rig, seq, 1); /* the late physical end never publishes */
    assert_snapshot(rig, s, delivered_blocks, 1);
    assert_int_equal(rig->resident_count, 3);
    assert_int_equal(story_stats(rig).reserved_bytes_gauge, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void i_detach_answers_at_the_policy_stop(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.result_ttl_ns = 100 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, PROMPT);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DETACH, BUDGET);
    story_answer(rig, 10);
    assert_int_equal(story_begin(rig), 2);
    story_ok(rig, seq, 0);
    assert_int_equal(story_begin(rig), 1); /* c2 */
    story_at(rig, 20);
    assert_int_equal(story_events(rig, FBY_CORE_ANSWERED, s), 1);
    assert_snapshot(rig, s, delivered_blocks, 2);
    assert_snapshot(rig, s, lease_valid, 1);
    assert_state(rig, s, DRAINING);

    story_ok(rig, seq, 2);
    assert_snapshot(rig, s, delivered_blocks, 2);
    assert_int_equal(story_lookup(rig, seq), 4 * 16);

    story_at(rig, 120); /* the TTL runs from the answer, while c2 hangs */
    assert_snapshot(rig, s, lease_valid, 0);
    fby_hold_t hold;
    assert_int_equal(rig_take(rig, s, &hold), FBY_E_STALE);
    story_ok(rig, seq, 4);
    assert_int_equal(story_events(rig, FBY_CORE_TERMINAL, s), 1);
    assert_int_equal(rig->resident_count, 6);
    story_quiesce(rig);
    rig_close(rig);
}

static void j_a_joiner_takes_over(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    config.core.max_inflight_chunks = 1;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 33); /* one chunk */
    fby_session_t a = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 2);
    assert_int_equal(story_begin(rig), 1);
    fby_session_t b = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 2);
    assert_int_equal(story_begin(rig), 0); /* joined, not read twice */
    assert_snapshot(rig, b, submitted, 1);
    assert_int_equal(rig_stop(rig, a), 0);
    assert_int_equal(story_stats(rig).takeovers, 2);
    assert_int_equal(story_stats(rig).reserved_bytes_gauge, 2 * BLOCK);
    assert_int_equal(story_events(rig, FBY_CORE_TERMINAL, a), 1); /* the owner's entry ended */
    story_ok(rig, seq, 0);
    assert_outcome(rig, b, COMPLETE);
    assert_snapshot(rig, b, delivered_blocks, 2);
    assert_int_equal(story_begin(rig), 0);
    story_quiesce(rig);
    rig_close(rig);
}

typedef struct release_at_answer {
    fby_session_t waiting[8];
    uint32_t count;
} release_at_answer_t;

static void note_answer(void *arg, const fby_core_event_t *event)
{
    release_at_answer_t *note = arg;
    if (event->type == FBY_CORE_ANSWERED)
        note->waiting[note->count++] = event->handle;
}

static void k_plans_that_fill_the_pool_go_one_after_the_other(void **state)
{
    (void)state;
    release_at_answer_t note = {{0}, 0};
    rig_config_t config;
    story_traces(&config);
    config.pool[0] = 16;
    config.core.chunk_max_blocks = 4;
    config.core.max_hold_bytes = config.core.max_pinned_bytes = config.core.max_reserved_bytes = 16 * BLOCK;
    config.on_event = note_answer;
    config.on_event_arg = &note;
    rig_t *rig = rig_open(&config);
    for (uint32_t i = 0; i < 4; i++) {
        rig_seq_t *seq = rig_seq(rig, 0, i + 1, 257);
        rig_store_fill(rig, seq, 0, 16);
        rig_start(rig, seq, TIMEOUT, DRAIN, RIG_S);
    }
    for (uint32_t done = 0; done < 4; done++) {
        while (note.count == done)
            rig_run_until(rig, rig->now + RIG_MS / 10);
        assert_int_equal(note.count, done + 1); /* not two at once */
        const fby_snapshot_t *answer = &rig_session_find(rig, note.waiting[done])->answer;
        assert_string_equal(fby_reason_name(answer->reason), "complete");
        assert_int_equal(answer->delivered_blocks, 16);
        rig_release(rig, note.waiting[done]);
    }
    assert_true(rig->now < 2 * RIG_S);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_drains_what_was_claimed),
        cmocka_unit_test(b_gap_closes_the_prefix),
        cmocka_unit_test(c_a_put_wins_the_race),
        cmocka_unit_test(d_abort_while_planning),
        cmocka_unit_test(e_reset_with_two_in_flight),
        cmocka_unit_test(f_budget_zero),
        cmocka_unit_test(g_answer_is_cut_at_a_checkpoint),
        cmocka_unit_test(g_without_its_snapshot_nothing_is_usable),
        cmocka_unit_test(h_stuck_read_of_an_isolated_store_is_fenced),
        cmocka_unit_test(h_stuck_read_without_isolation_keeps_its_slots),
        cmocka_unit_test(i_detach_answers_at_the_policy_stop),
        cmocka_unit_test(j_a_joiner_takes_over),
        cmocka_unit_test(k_plans_that_fill_the_pool_go_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
