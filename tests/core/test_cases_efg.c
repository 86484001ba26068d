/* test_cases_efg.c - public failures of the field, families (e) isolation, (f) hybrid models, (g) abort and reset. */
#include "sim/random.h"
#include "story.h"

/* A model with an `all` group and a snapshot (trailing 1) at some boundaries. */
static void hybrid(rig_config_t *config)
{
    rig_config_defaults(config);
    story_trailing(config, 1, 16);
}

static rig_seq_t *full_blocks(rig_t *rig, uint32_t blocks)
{
    rig_seq_t *seq = rig_seq(rig, 0, 32, blocks * 16 + 1);
    for (uint32_t b = 0; b < blocks; b++)
        store_hold(&rig->store, &seq->hashes[b], 0);
    return seq;
}

static void snapshot_at(rig_t *rig, const rig_seq_t *seq, uint32_t boundary)
{
    store_hold(&rig->store, &seq->hashes[boundary - 1], 1);
}

static const fby_snapshot_t *answer_of(rig_t *rig, fby_session_t s)
{
    rig_run_idle(rig, rig->now + RIG_S);
    assert_true(rig_session_find(rig, s)->answered);
    return &rig_session_find(rig, s)->answer;
}

static void e03_namespaces_never_share(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.writes = FBY_WRITE_THROUGH;
    config.pool[0] = 128;
    config.core.max_reserved_bytes = config.core.max_pinned_bytes = config.core.max_hold_bytes = 128 * BLOCK;
    config.core.write_pinned_bytes = 128 * BLOCK;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq[3];
    for (uint32_t i = 0; i < 3; i++) {
        seq[i] = rig_seq(rig, i, 32, 513);
        for (uint32_t j = 0; j < i; j++)
            for (uint32_t b = 0; b < 32; b++)
                assert_false(fby_hash_equal(&seq[i]->hashes[b], &seq[j]->hashes[b]));
        fby_session_t s = rig_start(rig, seq[i], WAIT_COMPLETE, DRAIN, FBY_NEVER);
        assert_int_equal(answer_of(rig, s)->delivered_blocks, 0); /* nobody else's */
        story_resident(rig, seq[i], 32);
        rig_run_idle(rig, rig->now + RIG_S);
    }
    assert_int_equal(rig_reset(rig, false), 0);
    story_settle(rig);
    rig_run_until(rig, rig->now + 2 * RIG_S);
    for (uint32_t i = 0; i < 3; i++) {
        fby_session_t s = rig_start(rig, seq[i], WAIT_COMPLETE, DRAIN, FBY_NEVER);
        assert_int_equal(answer_of(rig, s)->delivered_blocks, 32);
        assert_int_equal(answer_of(rig, s)->loaded_tokens, 512);
        rig_release(rig, s);
    }
    story_quiesce(rig);
    rig_close(rig);
}

static void e09_old_weights_are_out_of_reach_at_once(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *old = story_p32(rig, 0);
    fby_session_t s = rig_start(rig, old, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 32);
    assert_int_equal(story_begin(rig), 2);
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, old, 0, 4, &put), 0);
    assert_int_equal(rig_reset(rig, true), 0); /* bump while in flight */
    assert_int_equal(fby_core_epoch(rig->core), old->epoch + 1);
    rig_put_fill(rig, put, 4);
    assert_int_equal(rig_put_commit_step(rig, put, 4), FBY_E_STALE); /* a late commit too */
    rig_put_end(rig, put);
    while (rig->live_count[0])
        rig_end(rig, rig->live[0][0], NULL);
    story_settle(rig);
    assert_int_equal(rig_session_find(rig, s)->answer.delivered_blocks, 0);
    assert_int_equal(rig->events[FBY_CORE_PUBLISHED], 0);
    assert_int_equal(rig_probe(rig, old, NULL), FBY_E_STALE);
    fby_core_start_t start;
    rig_start_defaults(&start);
    assert_int_equal(rig_start_with(rig, old, &start, &s), FBY_E_STALE);

    rig_seq_t *now = rig_seq(rig, 0, 32, 513); /* same tokens, new epoch: other keys */
    s = rig_start(rig, now, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_int_equal(answer_of(rig, s)->delivered_blocks, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void f01_every_all_group_covers_what_is_published(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.groups = 2; /* a second `all` group */
    config.core.slot_bytes[1] = BLOCK;
    config.pool[1] = 64;
    config.core.max_reserved_bytes = config.core.max_pinned_bytes = config.core.max_hold_bytes = 128 * BLOCK;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    store_script(&rig->store, &(store_fault_t){STORE_GET, seq->hashes[20], 1, STORE_EVERY, FAULT_MISS, 0});
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_int_equal(answer_of(rig, s)->delivered_blocks, 20);
    assert_int_equal(answer_of(rig, s)->reason, FBY_REASON_PARTIAL_READ);
    assert_int_equal(fby_slots_free(&rig->slots, 0), 64 - 20);
    assert_int_equal(fby_slots_free(&rig->slots, 1), 64 - 20);
    story_quiesce(rig);
    rig_close(rig);
}

/* A window group and a state group, each present at some boundaries of three full blocks. */
static uint32_t end_point(unsigned window, unsigned state_at, uint32_t blocks, unsigned all_cut)
{
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.groups = 4;
    config.core.trailing[1] = config.core.trailing[2] = 1;
    for (uint32_t g = 1; g < 4; g++) {
        config.core.slot_bytes[g] = BLOCK;
        config.pool[g] = 64;
    }
    config.full_every = 16;
    config.core.max_reserved_bytes = config.core.max_pinned_bytes = config.core.max_hold_bytes = 256 * BLOCK;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = full_blocks(rig, blocks);
    for (uint32_t b = 0; b < blocks; b++) {
        if (b < all_cut)
            store_hold(&rig->store, &seq->hashes[b], 3);
        if (window >> (b + 1) & 1)
            store_hold(&rig->store, &seq->hashes[b], 1);
        if (state_at >> (b + 1) & 1)
            store_hold(&rig->store, &seq->hashes[b], 2);
    }
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    uint32_t end = (uint32_t)answer_of(rig, s)->delivered_blocks;
    story_quiesce(rig);
    rig_close(rig);
    return end;
}

static void f02_the_end_point_is_an_intersection(void **state)
{
    (void)state;
    assert_int_equal(end_point(1u << 3, 1u << 3, 3, 3), 3);
    assert_int_equal(end_point(1u << 3, 1u << 2, 3, 3), 0);
    assert_int_equal(end_point(1u << 1 | 1u << 3, 1u << 1 | 1u << 2, 3, 3), 1);
    uint64_t random = 2;
    for (unsigned i = 0; i < 2000; i++) {
        uint32_t blocks = 1 + sim_below(&random, 8), cut = sim_below(&random, blocks + 1), expected = cut;
        unsigned window = sim_below(&random, 512), at = sim_below(&random, 512);
        while (expected && !(window >> expected & at >> expected & 1))
            expected--;
        assert_int_equal(end_point(window, at, blocks, cut), expected);
    }
}

static void f05_a_lost_snapshot_falls_back(void **state)
{
    (void)state;
    rig_config_t config;
    hybrid(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = full_blocks(rig, 32);
    for (uint32_t at = 8; at <= 32; at += 8)
        snapshot_at(rig, seq, at);
    store_script(&rig->store, &(store_fault_t){STORE_GET, seq->hashes[31], 1, STORE_EVERY, FAULT_MISS, 0});
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    const fby_snapshot_t *answer = answer_of(rig, s);
    assert_int_equal(answer->delivered_blocks, 24);
    assert_int_equal(answer->reason, FBY_REASON_PARTIAL_READ);
    assert_int_equal(answer->planned_tokens, 512);
    assert_int_equal(answer->loaded_tokens, 24 * 16); /* the 8 beyond were read for nothing */
    assert_int_equal(story_stats(rig).reserved_bytes_gauge, 0);
    assert_int_equal(story_stats(rig).pinned_bytes_gauge, 25 * BLOCK); /* 24 blocks and the snapshot of 24 */
    story_quiesce(rig);
    rig_close(rig);
}

static void f10_a_state_belongs_to_one_chain(void **state)
{
    (void)state;
    rig_config_t config;
    hybrid(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *a = full_blocks(rig, 32);
    snapshot_at(rig, a, 16);
    snapshot_at(rig, a, 32);
    rig_seq_t *b = rig_seq_fork(rig, a, 16, 77, 513);
    fby_session_t s = rig_start(rig, a, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    store_script(&rig->store, &(store_fault_t){STORE_GET, a->hashes[31], 1, 1, FAULT_DELAY, 50 * RIG_MS});
    config.part_blocks = 4;
    rig_run_until(rig, rig->now + 40 * RIG_MS);
    uint64_t tokens = story_lookup(rig, a);
    assert_true(tokens == 0 || tokens == 256); /* before its own copy has ended: the previous checkpoint */
    assert_int_equal(answer_of(rig, s)->delivered_blocks, 32);
    fby_session_t t = rig_start(rig, b, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_int_equal(answer_of(rig, t)->delivered_blocks, 16);
    fby_hold_t hold;
    assert_int_equal(rig_take(rig, t, &hold), 0); /* compares the bytes of state-16 */
    assert_int_equal(rig_hold_find(rig, hold)->slots, 17);
    story_quiesce(rig);
    rig_close(rig);
}

static uint32_t window_gets(rig_t *rig, const rig_seq_t *seq, uint32_t from, uint32_t to)
{
    uint32_t gets = 0;
    for (uint32_t b = from; b < to; b++)
        gets += store_calls(&rig->store, STORE_GET, &seq->hashes[b], 1);
    return gets;
}

static void f11_only_the_trailing_window_is_touched(void **state)
{
    (void)state;
    for (unsigned shorter = 0; shorter < 2; shorter++) {
        rig_config_t config;
        rig_config_defaults(&config);
        config.core.chunk_runtime = false; /* one graph: reads only the final window */
        story_trailing(&config, 4, 16);
        config.core.max_reserved_bytes = 64 * BLOCK;
        rig_t *rig = rig_open(&config);
        rig_seq_t *seq = story_p32(rig, 0);
        if (shorter) /* E falls to 24 before the claim */
            story_script(rig, seq, STORE_EXISTS, 24, 25, 1, FAULT_MISS, 0);
        fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        uint32_t end = shorter ? 24 : 32;
        assert_int_equal(answer_of(rig, s)->delivered_blocks, end);
        assert_int_equal(window_gets(rig, seq, 0, 32), 4);
        assert_int_equal(window_gets(rig, seq, end - 4, end), 4);
        assert_int_equal(story_stats(rig).pinned_bytes_gauge, (end + 4) * BLOCK);
        story_quiesce(rig);
        rig_close(rig);
    }
}

static void g01_late_completions_of_an_aborted_session_free_its_memory(void **state)
{
    (void)state;
    uint64_t random = 1;
    rig_config_t config;
    rig_config_defaults(&config);
    config.full_every = 16;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    for (unsigned i = 0; i < 10000; i++) {
        fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        rig_run_until(rig, rig->now + sim_below(&random, 5000) * (RIG_MS / 1000));
        uint64_t published = rig->events[FBY_CORE_PUBLISHED];
        if (!rig_session_find(rig, s)->ended)
            rig_stop(rig, s);
        rig_run_idle(rig, rig->now + RIG_S);
        assert_int_equal(rig->events[FBY_CORE_PUBLISHED], published);
        assert_int_equal(story_stats(rig).sessions_running_gauge, 0);
        rig_quiescent(rig);
        assert_int_equal(rig_reset(rig, false), 0);
        story_settle(rig);
        rig->logged = 0;
    }
    rig_close(rig);
}

/* The six orders of: the read completes, the caller consumes the answer, the caller aborts. */
static void g02_complete_consume_abort_in_any_order(void **state)
{
    (void)state;
    const char *const orders[] = {"CTA", "CAT", "TCA", "TAC", "ACT", "ATC"};
    for (size_t i = 0; i < FBY_ARRAY_LEN(orders); i++) {
        rig_config_t config;
        rig_config_defaults(&config);
        rig_t *rig = rig_open(&config);
        rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
        fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        story_answer(rig, 4);
        assert_int_equal(story_begin(rig), 1);
        fby_hold_t hold;
        for (const char *step = orders[i]; *step; step++) {
            if (*step == 'C')
                rig_end(rig, rig->live[0][0], NULL);
            else if (*step == 'T')
                rig_take(rig, s, &hold);
            else
                rig_stop(rig, s);
            story_settle(rig);
        }
        story_quiesce(rig);
        rig_close(rig);
    }
}

static void g03_a_lost_connection_completes_its_reads(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    story_script(rig, seq, STORE_GET, 4, 32, STORE_EVERY, FAULT_ERROR, FBY_E_CONNECTION);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_int_equal(answer_of(rig, s)->delivered_blocks, 4);
    assert_int_equal(answer_of(rig, s)->reason, FBY_REASON_STORE_ERROR);
    assert_int_equal(answer_of(rig, s)->error, FBY_E_CONNECTION);
    story_quiesce(rig);
    rig_close(rig);
}

static void g07_a_new_attempt_is_another_session(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.session_slots = config.core.max_sessions = 1; /* the slot is reused */
    rig_t *rig = rig_open(&config);
    rig_seq_t *a = rig_seq(rig, 0, 1, 65), *b = story_p32(rig, 1);
    rig_store_fill(rig, a, 0, 4);
    story_script(rig, a, STORE_GET, 0, 4, 1, FAULT_HANG, 0);
    fby_session_t first = rig_start(rig, a, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    rig_run_until(rig, rig->now + 5 * RIG_MS);
    rig_stop(rig, first);
    fby_core_start_t start;
    rig_start_defaults(&start);
    fby_session_t second = 0;
    int status = rig_start_with(rig, b, &start, &second);
    if (status == -EBUSY) { /* its ledger is not empty yet */
        rig_unhang(rig);
        rig_run_until(rig, rig->now + RIG_MS);
        assert_int_equal(rig_start_with(rig, b, &start, &second), 0);
    }
    rig_unhang(rig);
    assert_int_equal(answer_of(rig, second)->delivered_blocks, 32);
    assert_int_equal(answer_of(rig, second)->loaded_tokens, 512);
    assert_int_not_equal(first, second);
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    assert_int_equal(fby_core_session_snapshot(rig->core, first, &snapshot), FBY_E_STALE);
    assert_int_equal(rig_demand(rig, first), FBY_E_STALE);
    assert_int_equal(rig_release(rig, first), FBY_E_STALE);
    assert_snapshot(rig, second, delivered_blocks, 32); /* untouched by the old handle */
    story_quiesce(rig);
    rig_close(rig);
}

static void g09_reset_is_done_or_busy_never_old_data(void **state)
{
    (void)state;
    uint64_t random = 9;
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    for (unsigned i = 0; i < 100; i++) {
        fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        rig_run_until(rig, rig->now + sim_below(&random, 12) * RIG_MS);
        fby_hold_t hold;
        if (rig_session_find(rig, s)->answered && sim_one_in(&random, 2))
            rig_take(rig, s, &hold);
        assert_int_equal(rig_reset(rig, false), 0);
        uint64_t tokens = 99;
        int status = rig_probe(rig, seq, &tokens);
        assert_true(status == -EBUSY || (status == 0 && tokens == 0));
        while (rig->holds)
            rig_hold_release(rig, rig->hold[0].handle);
        rig_run_idle(rig, rig->now + RIG_S);
        assert_false(fby_core_resetting(rig->core));
        assert_int_equal(story_lookup(rig, seq), 0);
        assert_int_equal(story_free(rig), 64);
        rig->logged = 0;
    }
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e03_namespaces_never_share),
        cmocka_unit_test(e09_old_weights_are_out_of_reach_at_once),
        cmocka_unit_test(f01_every_all_group_covers_what_is_published),
        cmocka_unit_test(f02_the_end_point_is_an_intersection),
        cmocka_unit_test(f05_a_lost_snapshot_falls_back),
        cmocka_unit_test(f10_a_state_belongs_to_one_chain),
        cmocka_unit_test(f11_only_the_trailing_window_is_touched),
        cmocka_unit_test(g01_late_completions_of_an_aborted_session_free_its_memory),
        cmocka_unit_test(g02_complete_consume_abort_in_any_order),
        cmocka_unit_test(g03_a_lost_connection_completes_its_reads),
        cmocka_unit_test(g07_a_new_attempt_is_another_session),
        cmocka_unit_test(g09_reset_is_done_or_busy_never_old_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
