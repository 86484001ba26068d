/* test_seq.c - sequences: the same hashes however they grow; older views keep what they were given. */
#include <errno.h>

#include "keys/keys.h"
#include "runtime/seq.h"
#include "unit.h"

enum { BLOCK = 16, TOKENS = 3000 };

static fby_keyring_t *keyring_of(uint64_t epoch, uint32_t trailing)
{
    fby_keyring_t *keyring;
    fby_fingerprint_fields_t model = {
        .model_id = "m",
        .revision = "1",
        .kv_dtype = "f16",
        .layer_set = "all",
        .layout = "plain",
        .weights_epoch = epoch,
        .block_tokens = BLOCK,
        .tp_size = 1,
        .cp_size = 1,
        .pp_size = 1,
        .groups = trailing > 0 ? 2 : 1,
        .group = {{.name = "full", .payload_bytes = 4096},
                  {.name = "state", .payload_bytes = 64, .trailing = trailing}},
    };
    assert_int_equal(fby_keyring_create(&model, FBY_HASH_SHA256, NULL, 0, 1, &keyring), 0);
    return keyring;
}

static void fill(uint32_t *tokens)
{
    uint64_t seed = 5;
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (uint32_t)unit_random(&seed);
    }
}

static void growing_in_any_steps_gives_the_same_hashes(void **state)
{
    (void)state;
    uint32_t tokens[TOKENS];
    uint64_t seed = 9;
    fby_seq_t *whole, *grown;
    fby_core_seq_t a, b;
    fill(tokens);
    fby_keyring_t *keyring = keyring_of(1, 0);
    assert_int_equal(fby_seq_make(keyring, tokens, TOKENS, NULL, 0, &whole), 0);
    for (int round = 0; round < 50; round++) {
        assert_int_equal(fby_seq_make(keyring, NULL, 0, NULL, 0, &grown), 0);
        for (size_t at = 0; at < TOKENS;) {
            size_t step = unit_below(&seed, 90);
            step = FBY_MIN(step, (size_t)TOKENS - at);
            assert_int_equal(fby_seq_append(grown, tokens + at, step), 0);
            at += step;
        }
        assert_int_equal(fby_seq_tokens(grown), TOKENS);
        assert_int_equal(fby_seq_blocks(grown), TOKENS / BLOCK);
        fby_seq_view(whole, false, &a);
        fby_seq_view(grown, false, &b);
        assert_memory_equal(a.hashes, b.hashes, a.blocks * sizeof(fby_hash_t));
        fby_seq_data_unref(a.ref);
        fby_seq_data_unref(b.ref);
        fby_seq_unref(grown);
    }
    fby_seq_unref(whole);
    fby_keyring_unref(keyring);
}

static void a_view_keeps_its_hashes_while_the_sequence_grows_and_goes(void **state)
{
    (void)state;
    uint32_t tokens[TOKENS];
    fby_seq_t *seq;
    fby_core_seq_t view;
    fby_hash_t copy[4];
    fill(tokens);
    fby_keyring_t *keyring = keyring_of(7, 0);
    assert_int_equal(fby_seq_make(keyring, tokens, 4 * BLOCK + 3, NULL, 0, &seq), 0);
    fby_keyring_unref(keyring);
    assert_int_equal(fby_seq_view(seq, false, &view), 0);
    assert_int_equal(view.blocks, 4);
    assert_int_equal(view.tokens, 4 * BLOCK + 3);
    assert_int_equal(view.epoch, 7);
    memcpy(copy, view.hashes, sizeof(copy));
    assert_int_equal(fby_seq_append(seq, tokens + 4 * BLOCK + 3, TOKENS - 4 * BLOCK - 3), 0);
    fby_seq_unref(seq);
    assert_memory_equal(copy, view.hashes, sizeof(copy));
    fby_seq_data_unref(view.ref);
}

static void only_models_with_trailing_groups_get_scratch(void **state)
{
    (void)state;
    uint32_t tokens[TOKENS];
    fill(tokens);
    for (uint32_t trailing = 0; trailing < 2; trailing++) {
        fby_seq_t *seq;
        fby_core_seq_t session, hold;
        fby_keyring_t *keyring = keyring_of(1, trailing);
        assert_int_equal(fby_seq_make(keyring, tokens, 10 * BLOCK, NULL, 0, &seq), 0);
        assert_int_equal(fby_seq_view(seq, true, &session), 0);
        assert_int_equal(fby_seq_view(seq, false, &hold), 0);
        assert_null(hold.present);
        assert_int_equal(session.present != NULL, trailing > 0);
        assert_ptr_equal(session.hashes, hold.hashes);
        for (uint32_t i = 0; trailing > 0 && i < 10; i++) {
            assert_int_equal(session.present[i], 0);
        }
        fby_seq_unref(seq);
        fby_seq_data_unref(hold.ref);
        assert_false(session.hashes[0].w[0] == 0 && session.hashes[0].w[1] == 0); /* still there through its own view */
        fby_seq_data_unref(session.ref);
        fby_keyring_unref(keyring);
    }
}

static void the_epoch_changes_every_key(void **state)
{
    (void)state;
    uint32_t tokens[TOKENS];
    fby_seq_t *old, *new;
    char a[40], b[40];
    fill(tokens);
    fby_keyring_t *first = keyring_of(1, 0), *second = keyring_of(2, 0);
    assert_int_equal(fby_seq_make(first, tokens, 5 * BLOCK, NULL, 0, &old), 0);
    assert_int_equal(fby_seq_make(second, tokens, 5 * BLOCK, NULL, 0, &new), 0);
    for (size_t block = 0; block < 5; block++) {
        assert_int_equal(fby_seq_key(old, block, 0, a, sizeof(a)), 0);
        assert_int_equal(fby_seq_key(new, block, 0, b, sizeof(b)), 0);
        assert_string_not_equal(a, b);
    }
    assert_int_equal(fby_seq_key(old, 5, 0, a, sizeof(a)), -EINVAL);
    assert_int_equal(fby_seq_key(old, 0, 1, a, sizeof(a)), -EINVAL);
    assert_int_equal(fby_seq_key(old, 0, 0, a, 10), -ENOSPC);
    fby_seq_unref(old);
    fby_seq_unref(new);
    fby_keyring_unref(first);
    fby_keyring_unref(second);
}

/* What a server keeps of a client's sequence: hashes, not tokens. */
static void hashes_from_elsewhere_make_the_same_sequence(void **state)
{
    (void)state;
    uint32_t tokens[TOKENS];
    fby_keyring_t *keyring = keyring_of(1, 0);
    fby_seq_t *theirs, *ours;
    fby_core_seq_t a, b;
    fill(tokens);
    assert_int_equal(fby_seq_make(keyring, tokens, TOKENS, NULL, 0, &theirs), 0);
    assert_int_equal(fby_seq_make_hashed(keyring, &ours), 0);
    assert_true(fby_seq_serial(ours) != fby_seq_serial(theirs));
    const fby_hash_t *hashes = fby_seq_hashes(theirs);
    size_t blocks = fby_seq_blocks(theirs);
    assert_int_equal(fby_seq_extend_hashed(ours, 1, hashes, 1, 2 * BLOCK), -EINVAL); /* a gap */
    assert_int_equal(fby_seq_extend_hashed(ours, 0, hashes, 10, 11 * BLOCK), -EINVAL);
    assert_int_equal(fby_seq_extend_hashed(ours, 0, hashes, 10, 10 * BLOCK + 3), 0);
    assert_int_equal(fby_seq_extend_hashed(ours, 4, hashes + 4, blocks - 4, TOKENS), 0); /* six of them once more */
    assert_int_equal(fby_seq_extend_hashed(ours, blocks, NULL, 0, TOKENS - 1), -EINVAL); /* it does not shrink */
    assert_int_equal(fby_seq_view(theirs, false, &a), 0);
    assert_int_equal(fby_seq_view(ours, false, &b), 0);
    assert_int_equal(a.blocks, b.blocks);
    assert_int_equal(a.tokens, b.tokens);
    assert_int_equal(a.epoch, b.epoch);
    assert_memory_equal(a.hashes, b.hashes, blocks * sizeof(fby_hash_t));
    fby_seq_data_unref(a.ref);
    fby_seq_data_unref(b.ref);
    fby_seq_unref(theirs);
    fby_seq_unref(ours);
    fby_keyring_unref(keyring);
}

static void count_gone(void *arg, uint64_t serial)
{
    *(uint64_t *)arg += serial;
}

static void whoever_asked_hears_of_the_last_reference(void **state)
{
    (void)state;
    uint64_t gone = 0;
    fby_keyring_t *keyring = keyring_of(1, 0);
    fby_seq_t *seq;
    keyring->gone = count_gone;
    keyring->gone_arg = &gone;
    assert_int_equal(fby_seq_make(keyring, NULL, 0, NULL, 0, &seq), 0);
    uint64_t serial = fby_seq_serial(seq);
    fby_seq_unref(fby_seq_ref(seq));
    assert_int_equal(gone, 0);
    fby_seq_unref(seq);
    assert_int_equal(gone, serial);
    fby_keyring_unref(keyring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_from_elsewhere_make_the_same_sequence),
        cmocka_unit_test(whoever_asked_hears_of_the_last_reference),
        cmocka_unit_test(growing_in_any_steps_gives_the_same_hashes),
        cmocka_unit_test(a_view_keeps_its_hashes_while_the_sequence_grows_and_goes),
        cmocka_unit_test(only_models_with_trailing_groups_get_scratch),
        cmocka_unit_test(the_epoch_changes_every_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
