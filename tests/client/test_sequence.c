/* test_sequence.c - hashes go over once, in pieces where they are many, again where the server let them go. */
#include <errno.h>

#include "client/served.h"
#include "forebay/store.h"

enum { LONG_BLOCKS = 10000 };

static fby_server_client_t only_client(rig_t *rig)
{
    fby_server_info_t info = {.size = sizeof(info)};
    fby_server_client_t client;
    size_t count;
    assert_int_equal(fby_server_info(rig->cache, &info, &client, 1, &count), 0);
    assert_int_equal(count, 1);
    return client;
}

static void hashes_go_over_once(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    fby_seq_t *seq = rig_seq(&rig, 1, LONG_BLOCKS * RIG_BLOCK_TOKENS + 5);
    uint64_t before = only_client(&rig).calls;
    assert_int_equal(rig_lookup(&rig, seq), 0);
    /* four messages of 2,048 hashes, and the lookup with the rest */
    assert_int_equal(only_client(&rig).calls - before, 5 + 1);
    before = only_client(&rig).calls;
    assert_int_equal(rig_lookup(&rig, seq), 0);
    assert_int_equal(only_client(&rig).calls - before, 1 + 1);
    assert_int_equal(only_client(&rig).sequences, 1);
    /* what is appended goes with the next call; a token that completes no block, too */
    assert_int_equal(fby_seq_append(seq, (const uint32_t[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 12), 0);
    assert_int_equal(fby_seq_blocks(seq), LONG_BLOCKS + 1);
    assert_int_equal(rig_lookup(&rig, seq), 0);
    assert_int_equal(fby_seq_append(seq, (const uint32_t[]){1}, 1), 0);
    assert_int_equal(rig_lookup(&rig, seq), 0);
    fby_seq_unref(seq);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

/* The last-token rule needs the length in tokens, not only in blocks. */
static void a_token_more_is_known(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    fby_seq_t *seq = rig_seq(&rig, 1, 64);
    rig_put_stored(&rig, seq, 4);
    assert_int_equal(rig_lookup(&rig, seq), 3);
    assert_int_equal(fby_seq_append(seq, (const uint32_t[]){9}, 1), 0);
    assert_int_equal(rig_lookup(&rig, seq), 4);
    fby_seq_unref(seq);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

/* Room for the hashes of two such prompts: the third drives out the first, which is sent again when it is needed. */
static void what_the_server_let_go_is_sent_again(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    fby_seq_t *seq[3];
    SERVED_OPEN(&served, "server.client_sequence_bytes=1MiB");
    served_connect(&served, &rig, RIG_PATIENCE_S);
    for (uint64_t i = 0; i < 3; i++) {
        seq[i] = rig_seq(&rig, i + 1, 25000 * RIG_BLOCK_TOKENS + 1);
        rig_put_stored(&rig, seq[i], 4);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++) {
            assert_int_equal(rig_lookup(&rig, seq[i]), 4);
        }
    }
    assert_true(only_client(&rig).sequence_bytes <= 1 << 20);
    for (int i = 0; i < 3; i++) {
        fby_seq_unref(seq[i]);
    }
    /* more than there is room for at all */
    fby_seq_t *huge = rig_seq(&rig, 9, 70000 * RIG_BLOCK_TOKENS);
    uint64_t tokens;
    assert_int_equal(fby_lookup(rig.cache, huge, FBY_LOOKUP_ADVISORY, NULL, &tokens), FBY_E_BUDGET);
    assert_non_null(strstr(fby_last_error(), "server.client_sequence_bytes"));
    fby_seq_unref(huge);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

static void sequences_that_are_gone_are_dropped(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    for (uint64_t i = 0; i < 500; i++) {
        fby_seq_t *seq = rig_seq(&rig, i, 3 * RIG_BLOCK_TOKENS);
        assert_int_equal(rig_lookup(&rig, seq), 0);
        fby_seq_unref(seq);
    }
    assert_in_range(only_client(&rig).sequences, 0, 20);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

/* Another client raises the epoch: keys of before are stale, those made from then on are of the new epoch. */
static void a_new_epoch_is_noticed(void **state)
{
    (void)state;
    served_t served;
    rig_t rig, other;
    uint64_t tokens;
    char before[FBY_KEY_BYTES], after[FBY_KEY_BYTES];
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    served_connect(&served, &other, RIG_PATIENCE_S);
    fby_seq_t *old = rig_seq(&rig, 1, 40);
    rig_put_stored(&rig, old, 2);
    assert_int_equal(fby_cache_reset(other.cache, RIG_PATIENCE_S, 1), FBY_RESET_DONE);
    assert_int_equal(fby_cache_epoch(rig.cache), 2);
    assert_int_equal(fby_lookup(rig.cache, old, FBY_LOOKUP_ADVISORY, NULL, &tokens), FBY_E_STALE);
    fby_seq_t *fresh = rig_seq(&rig, 1, 40), *theirs = rig_seq(&other, 1, 40);
    assert_int_equal(fby_seq_key(old, 0, 0, before, sizeof(before)), 0);
    assert_int_equal(fby_seq_key(fresh, 0, 0, after, sizeof(after)), 0);
    assert_string_not_equal(before, after);
    rig_put_stored(&rig, fresh, 2);
    assert_int_equal(rig_lookup(&other, theirs), 2);
    fby_model_t ours = {.size = sizeof(ours)}, its = {.size = sizeof(its)};
    assert_int_equal(fby_cache_model(rig.cache, &ours), 0);
    assert_int_equal(fby_cache_model(other.cache, &its), 0);
    assert_memory_equal(&ours, &its, sizeof(ours));
    fby_seq_unref(old);
    fby_seq_unref(fresh);
    fby_seq_unref(theirs);
    fby_cache_close(rig.cache, 0, NULL);
    fby_cache_close(other.cache, 0, NULL);
    served_close(&served);
}

static void a_sequence_outlives_its_cache(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    fby_seq_t *seq = rig_seq(&rig, 1, 40);
    assert_int_equal(rig_lookup(&rig, seq), 0);
    fby_cache_close(rig.cache, 0, NULL);
    assert_int_equal(fby_seq_append(seq, (const uint32_t[]){1, 2}, 2), 0);
    fby_seq_unref(seq);
    served_close(&served);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_go_over_once),
        cmocka_unit_test(a_token_more_is_known),
        cmocka_unit_test(what_the_server_let_go_is_sent_again),
        cmocka_unit_test(sequences_that_are_gone_are_dropped),
        cmocka_unit_test(a_new_epoch_is_noticed),
        cmocka_unit_test(a_sequence_outlives_its_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
