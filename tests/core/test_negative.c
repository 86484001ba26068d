/* test_negative.c - keys that were promised and not delivered: believed absent for a while, by group, until they are seen. */
#include "core/internal.h"
#include "drive.h"

static rig_t *open_default(uint64_t ttl_ns)
{
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.negative_ttl_ns = ttl_ns;
    return rig_open(&config);
}

/* The memory reads the core's clock. */
static bool absent_at(rig_t *rig, const fby_hash_t *hash, uint32_t group, uint64_t ns)
{
    rig->core->now = ns;
    return fby_negative_has(rig->core, hash, group);
}

static void a_key_is_absent_until_its_time_is_over(void **state)
{
    (void)state;
    rig_t *rig = open_default(RIG_S);
    const fby_hash_t hash = {{1, 2}}, other = {{2, 3}};
    rig->core->now = 5 * RIG_S;
    assert_false(fby_negative_has(rig->core, &hash, 0));
    fby_negative_add(rig->core, &hash, 0);
    assert_true(absent_at(rig, &hash, 0, 6 * RIG_S - 1));
    assert_false(absent_at(rig, &hash, 1, 6 * RIG_S - 1)); /* another payload of the block */
    assert_false(absent_at(rig, &other, 0, 6 * RIG_S - 1));
    assert_false(absent_at(rig, &hash, 0, 6 * RIG_S));
    rig_close(rig);
}

static void a_key_that_was_seen_is_not_absent(void **state)
{
    (void)state;
    rig_t *rig = open_default(RIG_S);
    const fby_hash_t hash = {{1, 2}};
    fby_negative_add(rig->core, &hash, 1);
    fby_negative_clear(rig->core, &hash, 0); /* says nothing about group 1 */
    assert_true(fby_negative_has(rig->core, &hash, 1));
    fby_negative_clear(rig->core, &hash, 1);
    assert_false(fby_negative_has(rig->core, &hash, 1));
    rig_close(rig);
}

static void of_two_keys_with_one_place_the_newer_is_remembered(void **state)
{
    (void)state;
    rig_t *rig = open_default(RIG_S);
    const fby_hash_t older = {{1, 7}}, newer = {{2, 7 + FBY_NEGATIVE_SLOTS}};
    fby_negative_add(rig->core, &older, 0);
    fby_negative_add(rig->core, &newer, 0);
    assert_false(fby_negative_has(rig->core, &older, 0));
    assert_true(fby_negative_has(rig->core, &newer, 0));
    fby_negative_clear(rig->core, &older, 0); /* not the newer one's */
    assert_true(fby_negative_has(rig->core, &newer, 0));
    rig_close(rig);
}

static void without_a_time_nothing_is_remembered(void **state)
{
    (void)state;
    rig_t *rig = open_default(0);
    const fby_hash_t hash = {{1, 2}};
    fby_negative_add(rig->core, &hash, 0);
    assert_false(fby_negative_has(rig->core, &hash, 0));
    rig_close(rig);
}

/* ---- In sessions ---- */

/* Reads 4 blocks of `seq`, of which the third ends with `code`. */
static void read_badly(rig_t *rig, rig_seq_t *seq, int32_t code)
{
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    assert_int_equal(story_begin(rig), 1);
    story_bad(rig, seq, 0, 2, code);
    assert_answer(rig, s, 2, PARTIAL, PARTIAL_READ);
    rig_release(rig, s);
}

static uint64_t found(rig_t *rig, const rig_seq_t *seq)
{
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    fby_snapshot_t snapshot = rig_snapshot(rig, s);
    rig_stop(rig, s);
    story_settle(rig);
    return snapshot.found_tokens;
}

static void each_code_that_names_the_object_is_remembered(void **state)
{
    (void)state;
    const int32_t codes[] = {FBY_E_MISSING, FBY_E_NOT_READY, FBY_E_SIZE, FBY_E_CHECKSUM};
    for (unsigned i = 0; i < FBY_ARRAY_LEN(codes); i++) {
        rig_t *rig = open_default(RIG_S);
        rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
        read_badly(rig, seq, codes[i]);
        assert_int_equal(found(rig, seq), 2 * 16);
        rig->now += RIG_S;
        assert_int_equal(found(rig, seq), 4 * 16);
        story_quiesce(rig);
        rig_close(rig);
    }
}

static void a_write_of_the_key_ends_the_doubt(void **state)
{
    (void)state;
    rig_config_t config;
    rig_config_defaults(&config);
    config.core.writes = FBY_WRITE_THROUGH;
    config.core.negative_ttl_ns = 60 * RIG_S;
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 65);
    read_badly(rig, seq, FBY_E_MISSING);
    assert_true(fby_negative_has(rig->core, &seq->hashes[2], 0));
    story_resident(rig, seq, 4);
    assert_true(fby_negative_has(rig->core, &seq->hashes[2], 0)); /* not in the store yet */
    assert_int_equal(drive_writes(rig), 1);
    assert_false(fby_negative_has(rig->core, &seq->hashes[2], 0));
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_is_absent_until_its_time_is_over),
        cmocka_unit_test(a_key_that_was_seen_is_not_absent),
        cmocka_unit_test(of_two_keys_with_one_place_the_newer_is_remembered),
        cmocka_unit_test(without_a_time_nothing_is_remembered),
        cmocka_unit_test(each_code_that_names_the_object_is_remembered),
        cmocka_unit_test(a_write_of_the_key_ends_the_doubt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
