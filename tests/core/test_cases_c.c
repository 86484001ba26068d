/* test_cases_c.c - public failures of the field, family (c): partial and failed reads, wrong bytes. */
#include "sim/random.h"
#include "story.h"

static rig_t *open_default(rig_config_t *config)
{
    rig_config_defaults(config);
    return rig_open(config);
}

static void c01_only_the_verified_unbroken_prefix(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.negative_ttl_ns = 0;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    story_script(rig, seq, STORE_GET, 5, 6, 1, FAULT_MISS, 0);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    while (!rig_snapshot(rig, s).answered) {
        uint64_t seen = story_lookup(rig, seq) / 16;
        assert_true(seen == 0 || seen == 5);
        rig_run_until(rig, rig->now + RIG_MS / 10);
    }
    assert_snapshot(rig, s, delivered_blocks, 5);
    assert_reason(rig, s, PARTIAL_READ);
    assert_int_equal(story_free(rig), 64 - 5);
    rig_release(rig, s);

    uint64_t gets = rig->store.calls[STORE_GET];
    s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_blocks, 32);
    assert_int_equal(rig->store.calls[STORE_GET] - gets, 27);
    story_quiesce(rig);
    rig_close(rig);
}

static void c02_what_was_not_read_is_not_a_hit(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.chunk_max_blocks = 8;
    config.core.max_inflight_chunks = 1;
    config.core.result_ttl_ns = 5 * RIG_S;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 129), *other = rig_seq(rig, 1, 2, 33), *fill = rig_seq(rig, 2, 3, 59 * 16 + 1);
    rig_store_fill(rig, seq, 0, 8);
    rig_store_fill(rig, other, 0, 2);
    story_resident(rig, fill, 59);
    fby_hold_t hold;
    uint64_t tokens;
    assert_int_equal(rig_lookup(rig, fill, &hold, &tokens), 0); /* 5 slots are left of 64 */
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, 100 * RIG_MS);
    rig_run_until(rig, RIG_S + 200 * RIG_MS);
    assert_true(rig_snapshot(rig, s).delivered_blocks <= 5);
    if (rig_snapshot(rig, s).delivered_blocks) {
        fby_hold_t mine;
        assert_int_equal(rig_take(rig, s, &mine), 0); /* compares every word: never 0xEE */
        rig_hold_release(rig, mine);
    }
    fby_session_t t = rig_start(rig, other, TIMEOUT, DRAIN, 100 * RIG_MS);
    rig_run_until(rig, RIG_S + 400 * RIG_MS);
    assert_snapshot(rig, t, delivered_blocks, 2); /* no lock was left behind */
    story_quiesce(rig);
    rig_close(rig);
}

static void c03_a_read_ends_inside_its_lease(void **state)
{
    (void)state;
    for (unsigned store_says_ok = 0; store_says_ok < 2; store_says_ok++) {
        rig_config_t config;
        rig_config_defaults(&config);
        config.core.probe_lease_ns = 50 * RIG_MS;
        config.core.chunk_max_blocks = 1;
        config.core.max_inflight_chunks = 8;
        config.read_lanes = 8;
        rig_t *rig = rig_open(&config);
        rig_seq_t *seq = rig_seq(rig, 0, 1, 129);
        rig_store_fill(rig, seq, 0, 8);
        story_script(rig, seq, STORE_GET, 6, 7, STORE_EVERY, store_says_ok ? FAULT_DELAY : FAULT_LEASE, 60 * RIG_MS);
        fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, 55 * RIG_MS);
        assert_true(rig_run_answered(rig, s, RIG_S * 2));
        assert_snapshot(rig, s, delivered_blocks, 6); /* our own check cuts there too */
        assert_int_equal(story_stats(rig).fail_lease, 1);
        story_quiesce(rig);
        rig_close(rig);
    }
}

static void c03_leases_are_taken_per_window(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.pool[0] = 1100;
    config.core.probe_lease_ns = 50 * RIG_MS;
    config.core.query_batch_blocks = 8;
    config.core.max_inflight_chunks = 2;
    config.core.max_reserved_bytes = config.core.max_pinned_bytes = config.core.max_hold_bytes = 1100 * BLOCK;
    config.store.latency_ns[STORE_GET] = 4 * RIG_MS; /* a chunk of 4: a block a millisecond */
    config.full_every = 64;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 1024 * 16 + 1);
    rig_store_fill(rig, seq, 0, 1024);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, RIG_S * 20));
    assert_snapshot(rig, s, delivered_blocks, 1024);
    assert_int_equal(story_stats(rig).fail_lease, 0);
    story_quiesce(rig);
    rig_close(rig);
}

static void c04_bytes_of_another_object_fail_the_checksum(void **state)
{
    (void)state;
    rig_config_t config;
    rig_t *rig = open_default(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    story_script(rig, seq, STORE_GET, 3, 4, 1, FAULT_CORRUPT, 0);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_blocks, 3);
    assert_int_equal(story_stats(rig).fail_checksum, 1);
    rig_run_idle(rig, rig->now + RIG_S);
    story_quiesce(rig);
    rig_close(rig);
}

static void c07_only_what_failed_is_retried_once(void **state)
{
    (void)state;
    rig_config_t config;
    rig_t *rig = open_default(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    story_script(rig, seq, STORE_GET, 5, 6, 1, FAULT_ERROR, FBY_E_TIMEOUT);
    story_script(rig, seq, STORE_GET, 9, 10, 1, FAULT_ERROR, FBY_E_CONNECTION);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_blocks, 32);
    assert_int_equal(story_calls(rig, seq, STORE_GET, 5, 6), 2);
    assert_int_equal(story_calls(rig, seq, STORE_GET, 9, 10), 2);
    assert_int_equal(story_calls(rig, seq, STORE_GET, 0, 32), 34);
    assert_int_equal(story_stats(rig).retries, 2);
    story_quiesce(rig);
    rig_close(rig);
}

static void c07_a_failed_probe_is_unknown_not_absent(void **state)
{
    (void)state;
    rig_config_t config;
    rig_t *rig = open_default(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    story_script(rig, seq, STORE_EXISTS, 0, 1, 1, FAULT_ERROR, FBY_E_CONNECTION);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_blocks, 32);
    assert_int_equal(story_calls(rig, seq, STORE_EXISTS, 0, 1), 2);

    rig_seq_t *dead = story_p32(rig, 1);
    story_script(rig, dead, STORE_EXISTS, 0, 1, STORE_EVERY, FAULT_ERROR, FBY_E_CONNECTION);
    s = rig_start(rig, dead, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    rig_run_idle(rig, rig->now + RIG_S);
    assert_int_equal(rig_session_find(rig, s)->answer.reason, FBY_REASON_QUERY_ERROR);
    assert_int_equal(rig_session_find(rig, s)->answer.error, FBY_E_CONNECTION);
    story_quiesce(rig);
    rig_close(rig);
}

static void c07_no_retry_that_would_pass_the_deadline(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.store.latency_ns[STORE_GET] = 8 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    story_script(rig, seq, STORE_GET, 9, 10, 1, FAULT_ERROR, FBY_E_TIMEOUT);
    fby_session_t s = rig_start(rig, seq, TIMEOUT, DRAIN, 18 * RIG_MS);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_blocks, 9);
    assert_int_equal(story_calls(rig, seq, STORE_GET, 9, 10), 1);
    story_quiesce(rig);
    rig_close(rig);
}

static void c11_keys_do_not_depend_on_what_is_resident(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 32; k++) {
        rig_config_t config;
        rig_t *rig = open_default(&config);
        rig_seq_t *seq = story_p32(rig, 0);
        story_resident(rig, seq, k);
        fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        assert_true(rig_run_answered(rig, s, FBY_NEVER));
        assert_snapshot(rig, s, delivered_blocks, 32);
        assert_snapshot(rig, s, loaded_tokens, (32 - k) * 16);
        assert_int_equal(story_calls(rig, seq, STORE_GET, 0, k), 0);
        assert_int_equal(story_calls(rig, seq, STORE_GET, k, 32), 32 - k);
        story_quiesce(rig);
        rig_close(rig);
    }
}

static void c13_half_written_objects(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.writes = FBY_WRITE_THROUGH;
    config.core.negative_ttl_ns = 10 * RIG_MS;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    store_object_t *half = store_at(&rig->store, &seq->hashes[9], 0);
    half->present = false;
    half->not_ready = true;
    story_script(rig, seq, STORE_EXISTS, 9, 10, 1, FAULT_NOT_READY, 0); /* this store's probe says yes */
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_blocks, 9);
    assert_true(story_calls(rig, seq, STORE_GET, 9, 10) <= 1);
    rig_run_idle(rig, rig->now + RIG_S);
    rig_release(rig, s);

    fby_put_t put;
    uint64_t outstanding, stored, failed;
    assert_int_equal(rig_put_begin(rig, seq, 0, 32, &put), 0);
    rig_put_commit(rig, put, 32);
    rig_run_idle(rig, rig->now + RIG_S);
    assert_int_equal(fby_core_put_writes(rig->core, put, &outstanding, &stored, &failed), 0);
    assert_int_equal(outstanding, 0);
    assert_int_equal(failed, 1); /* {9: exists, not readable} is not ours to count as stored */
    rig_put_end(rig, put);
    story_settle(rig);

    assert_int_equal(rig_reset(rig, false), 0);
    story_settle(rig);
    store_at(&rig->store, &seq->hashes[9], 0)->not_ready = false; /* the store discards it */
    assert_int_equal(rig_put_begin(rig, seq, 0, 32, &put), 0);
    rig_put_commit(rig, put, 32);
    rig_run_idle(rig, rig->now + RIG_S);
    assert_int_equal(fby_core_put_writes(rig->core, put, &outstanding, &stored, &failed), 0);
    assert_int_equal(stored, 32);
    rig_put_end(rig, put);
    assert_int_equal(rig_reset(rig, false), 0);
    story_settle(rig);
    s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_blocks, 32);
    story_quiesce(rig);
    rig_close(rig);
}

static void c17_a_block_is_seen_whole_or_not_at_all(void **state)
{
    (void)state;
    uint64_t random = 17;
    for (unsigned i = 0; i < 1000; i++) {
        rig_config_t config;
        rig_t *rig = open_default(&config);
        rig_seq_t *seq = rig_seq(rig, 0, 32, 513);
        rig_store_fill(rig, seq, 0, 3);
        rig_store_fill(rig, seq, 4, 32);
        fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        rig_run_until(rig, rig->now + sim_below(&random, 300) * (RIG_MS / 1000));
        store_hold(&rig->store, &seq->hashes[3], 0); /* its writer commits at a random moment */
        assert_true(rig_run_answered(rig, s, FBY_NEVER));
        uint64_t blocks = rig_snapshot(rig, s).delivered_blocks;
        assert_true(blocks == 3 || blocks == 32);
        fby_hold_t hold;
        assert_int_equal(rig_take(rig, s, &hold), 0); /* bytes exact */
        story_quiesce(rig);
        rig_close(rig);
    }
}

static void c19_a_flipped_bit_is_a_miss_and_forgotten(void **state)
{
    (void)state;
    rig_config_t config;
    rig_t *rig = open_default(&config);
    rig_seq_t *seq = story_p32(rig, 0);
    story_script(rig, seq, STORE_GET, 11, 12, STORE_EVERY, FAULT_CORRUPT, 0);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, s, FBY_NEVER));
    assert_snapshot(rig, s, delivered_blocks, 11);
    assert_snapshot(rig, s, error, FBY_E_CHECKSUM);
    assert_int_equal(story_stats(rig).fail_checksum, 1);
    rig_run_idle(rig, rig->now + RIG_MS * 10);
    rig_release(rig, s);

    fby_session_t again = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    assert_true(rig_run_answered(rig, again, FBY_NEVER));
    assert_snapshot(rig, again, delivered_blocks, 11);
    assert_int_equal(story_calls(rig, seq, STORE_GET, 11, 12), 1); /* the belief is gone for a while */
    story_quiesce(rig);
    rig_close(rig);
}

static void c21_the_cpu_copy_does_not_wait_for_the_store(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.writes = FBY_WRITE_THROUGH;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
    story_script(rig, seq, STORE_PUT, 0, 4, 1, FAULT_HANG, 0);
    fby_put_t put;
    uint64_t outstanding, stored, failed;
    assert_int_equal(rig_put_begin(rig, seq, 0, 4, &put), 0);
    rig_put_commit(rig, put, 4);
    rig_run_until(rig, rig->now + 10 * RIG_MS);
    assert_int_equal(story_lookup(rig, seq), 64);
    assert_int_equal(fby_core_put_writes(rig->core, put, &outstanding, &stored, &failed), 0);
    assert_int_equal(outstanding, 4);
    int32_t errors[4] = {FBY_E_CONNECTION, FBY_E_CONNECTION, FBY_E_CONNECTION, FBY_E_CONNECTION};
    while (rig->live_count[1]) {
        assert_true(rig->part[rig->live[1][0]].count <= 4);
        rig_end(rig, rig->live[1][0], errors);
    }
    rig_run_idle(rig, rig->now + RIG_S);
    assert_int_equal(story_lookup(rig, seq), 64);
    assert_int_equal(fby_core_put_writes(rig->core, put, &outstanding, &stored, &failed), 0);
    assert_int_equal(failed, 4);
    assert_int_equal(story_stats(rig).writes_failed, 4);
    story_quiesce(rig);
    rig_close(rig);
}

static void c22_vanished_objects_shorten_the_answer(void **state)
{
    (void)state;
    uint64_t random = 22;
    for (unsigned i = 0; i < 1000; i++) {
        rig_config_t config;
        rig_config_defaults(&config);
        config.full_every = 16;
        rig_t *rig = rig_open(&config);
        rig_seq_t *seq = story_p32(rig, 0);
        uint32_t first = 32;
        for (uint32_t b = 32; b-- > 0;)
            if (sim_one_in(&random, 2)) {
                story_script(rig, seq, STORE_EXISTS, b, b + 1, 1, FAULT_DROP, 0);
                first = b;
            }
        fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
        rig_run_idle(rig, rig->now + RIG_S);
        assert_int_equal(rig_session_find(rig, s)->answer.delivered_blocks, first);
        story_quiesce(rig);
        rig_close(rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c01_only_the_verified_unbroken_prefix),
        cmocka_unit_test(c02_what_was_not_read_is_not_a_hit),
        cmocka_unit_test(c03_a_read_ends_inside_its_lease),
        cmocka_unit_test(c03_leases_are_taken_per_window),
        cmocka_unit_test(c04_bytes_of_another_object_fail_the_checksum),
        cmocka_unit_test(c07_only_what_failed_is_retried_once),
        cmocka_unit_test(c07_a_failed_probe_is_unknown_not_absent),
        cmocka_unit_test(c07_no_retry_that_would_pass_the_deadline),
        cmocka_unit_test(c11_keys_do_not_depend_on_what_is_resident),
        cmocka_unit_test(c13_half_written_objects),
        cmocka_unit_test(c17_a_block_is_seen_whole_or_not_at_all),
        cmocka_unit_test(c19_a_flipped_bit_is_a_miss_and_forgotten),
        cmocka_unit_test(c21_the_cpu_copy_does_not_wait_for_the_store),
        cmocka_unit_test(c22_vanished_objects_shorten_the_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
