#include "unit.h"

#include <errno.h>
#include <malloc.h>
#include <regex.h>

#include "base/log.h"
#include "keys/keys.h"
#include "keys/sha256.h"

#define PART(type, text)                                                                                               \
    {                                                                                                                  \
        type, text, sizeof(text) - 1                                                                                   \
    }

static const uint8_t fingerprint[16] = {1, 2, 3};
static const char secret[] = "0123456789abcdef";

static fby_hasher_t hasher_of(fby_hash_kind_t kind, const char *with_secret)
{
    fby_hasher_t hasher;
    assert_int_equal(fby_hasher_init(&hasher, kind, fingerprint, with_secret, with_secret ? strlen(with_secret) : 0),
                     0);
    return hasher;
}

static fby_hash_t root_of(const fby_hasher_t *hasher, const fby_ns_part_t *parts, size_t n)
{
    fby_hash_t root;
    assert_int_equal(fby_chain_root(hasher, parts, n, &root), 0);
    return root;
}

/* The hash of block 7 of tokens 0, 1, 2...: what a namespace must reach. */
static fby_hash_t block_seven(const fby_hasher_t *hasher, const fby_ns_part_t *parts, size_t n)
{
    uint32_t tokens[8 * 16];
    fby_hash_t root = root_of(hasher, parts, n), hashes[8];
    for (uint32_t i = 0; i < FBY_ARRAY_LEN(tokens); i++) {
        tokens[i] = i;
    }
    fby_chain_extend(hasher, &root, tokens, 16, 8, hashes);
    return hashes[7];
}

static void names_that_look_alike_are_different_namespaces(void **state)
{
    static const struct {
        fby_ns_part_t parts[2];
        size_t n;
    } names[] = {
        {{{0}}, 0},
        {{PART(FBY_NS_ADAPTER, "")}, 1},
        {{PART(FBY_NS_TENANT, "")}, 1},
        {{PART(FBY_NS_TEXT, "")}, 1},
        {{PART(FBY_NS_ADAPTER, "X")}, 1},
        {{PART(FBY_NS_SALT, "X")}, 1},
        {{PART(FBY_NS_TENANT, "X")}, 1},
        {{PART(FBY_NS_TEXT, "X")}, 1},
        {{PART(FBY_NS_ADAPTER, "X"), PART(FBY_NS_SALT, "X")}, 2},
        {{PART(FBY_NS_ADAPTER, "ab"), PART(FBY_NS_SALT, "c")}, 2},
        {{PART(FBY_NS_ADAPTER, "a"), PART(FBY_NS_SALT, "bc")}, 2},
        {{PART(FBY_NS_TEXT, "forebay-root-1")}, 1},
        {{PART(FBY_NS_TEXT, "forebay-fingerprint-1")}, 1},
        {{PART(FBY_NS_TEXT, "\2\1\0\0\0X")}, 1}, /* the encoding of (salt = X) */
        {{PART(FBY_NS_ADAPTER, "X\2\1\0\0\0X")}, 1},
        {{PART(FBY_NS_TEXT, "a"), PART(FBY_NS_TEXT, "b")}, 2},
        {{PART(FBY_NS_TEXT, "ab")}, 1},
    };
    for (int kind = FBY_HASH_SHA256; kind <= FBY_HASH_XXH3; kind++) {
        fby_hasher_t hasher = hasher_of((fby_hash_kind_t)kind, secret);
        for (size_t i = 0; i < FBY_ARRAY_LEN(names); i++) {
            fby_hash_t one = block_seven(&hasher, names[i].parts, names[i].n);
            for (size_t k = i + 1; k < FBY_ARRAY_LEN(names); k++) {
                fby_hash_t other = block_seven(&hasher, names[k].parts, names[k].n);
                assert_false(fby_hash_equal(&one, &other));
            }
        }
    }
}

static void an_empty_salt_is_the_same_as_none(void **state)
{
    const fby_ns_part_t empty[] = {PART(FBY_NS_SALT, "")};
    fby_hasher_t hasher = hasher_of(FBY_HASH_SHA256, NULL);
    fby_hash_t with = block_seven(&hasher, empty, 1), without = block_seven(&hasher, NULL, 0);
    assert_true(fby_hash_equal(&with, &without));
}

static void a_secret_changes_the_keys_of_both_hashes(void **state)
{
    fby_hasher_t sha_none = hasher_of(FBY_HASH_SHA256, NULL), sha_one = hasher_of(FBY_HASH_SHA256, secret);
    fby_hasher_t sha_two = hasher_of(FBY_HASH_SHA256, "0123456789abcdeg");
    fby_hasher_t xxh_one = hasher_of(FBY_HASH_XXH3, secret), xxh_two = hasher_of(FBY_HASH_XXH3, "0123456789abcdeg");
    const fby_hash_t keys[] = {
        block_seven(&sha_none, NULL, 0), block_seven(&sha_one, NULL, 0), block_seven(&sha_two, NULL, 0),
        block_seven(&xxh_one, NULL, 0),  block_seven(&xxh_two, NULL, 0),
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(keys); i++) {
        for (size_t k = i + 1; k < FBY_ARRAY_LEN(keys); k++) {
            assert_false(fby_hash_equal(&keys[i], &keys[k]));
        }
    }
}

static void another_fingerprint_changes_every_key(void **state)
{
    static const uint8_t other[16] = {1, 2, 4};
    fby_hasher_t a = hasher_of(FBY_HASH_SHA256, NULL), b;
    assert_int_equal(fby_hasher_init(&b, FBY_HASH_SHA256, other, NULL, 0), 0);
    fby_hash_t one = block_seven(&a, NULL, 0), two = block_seven(&b, NULL, 0);
    assert_false(fby_hash_equal(&one, &two));
}

static void a_block_depends_on_every_token_before_it(void **state)
{
    fby_hasher_t hasher = hasher_of(FBY_HASH_SHA256, NULL);
    fby_hash_t root = root_of(&hasher, NULL, 0), before[4], after[4];
    uint32_t tokens[16] = {0};
    fby_chain_extend(&hasher, &root, tokens, 4, 4, before);
    tokens[7] = 1;
    fby_chain_extend(&hasher, &root, tokens, 4, 4, after);
    assert_true(fby_hash_equal(&before[0], &after[0]));
    for (size_t i = 1; i < 4; i++) {
        assert_false(fby_hash_equal(&before[i], &after[i]));
    }
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void any_bytes_make_a_plain_key_and_no_two_collide(void **state)
{
    enum { NAMES = 10000 };
    static char keys[NAMES][FBY_KEY_TEXT_BYTES];
    static uint8_t name[4096];
    uint64_t seed = 8;
    regex_t form;
    assert_int_equal(regcomp(&form, "^[0-9a-f]{32}-g[0-9]+$", REG_EXTENDED | REG_NOSUB), 0);
    fby_hasher_t hasher = hasher_of(FBY_HASH_SHA256, NULL);
    for (size_t i = 0; i < NAMES; i++) {
        size_t length = i % 100 == 0 ? sizeof(name) : sizeof(i) + unit_below(&seed, 64);
        for (size_t k = 0; k < length; k++) {
            name[k] = i % 3 == 0 ? (uint8_t) "\0/.\n"[unit_below(&seed, 4)] : (uint8_t)unit_random(&seed);
        }
        memcpy(name, &i, sizeof(i)); /* no two alike */
        const fby_ns_part_t part = {FBY_NS_TEXT, name, length};
        fby_hash_t root = root_of(&hasher, &part, 1);
        fby_key_text(&root, (uint32_t)(i % FBY_MAX_GROUPS), keys[i]);
        assert_int_equal(regexec(&form, keys[i], 0, NULL, 0), 0);
        keys[i][32] = '\0'; /* the hashes must differ, not only the groups */
    }
    regfree(&form);
    qsort(keys, NAMES, sizeof(keys[0]), compare_keys);
    for (size_t i = 1; i < NAMES; i++) {
        assert_string_not_equal(keys[i - 1], keys[i]);
    }
}

static void a_namespace_that_is_wrong_has_no_root(void **state)
{
    const fby_ns_part_t wrong[] = {PART((fby_ns_type_t)9, "a")};
    fby_hasher_t hasher = hasher_of(FBY_HASH_SHA256, NULL);
    fby_hash_t root = {{7, 7}};
    assert_int_equal(fby_chain_root(&hasher, wrong, 1, &root), -EINVAL);
    assert_int_equal(root.w[0], 7);
}

static void secrets_of_the_wrong_length_are_refused(void **state)
{
    fby_hasher_t hasher;
    char longer[65];
    memset(longer, 'x', sizeof(longer));
    assert_int_equal(fby_hasher_init(&hasher, FBY_HASH_SHA256, fingerprint, longer, 65), FBY_E_CONFIG);
    assert_string_equal(fby_error_get(), "the deployment secret has 65 bytes; at most 64 are accepted");
    assert_int_equal(fby_hasher_init(&hasher, FBY_HASH_XXH3, fingerprint, longer, 15), FBY_E_CONFIG);
    assert_string_equal(fby_error_get(),
                        "hash xxh3 is keyed: the deployment secret has 15 bytes; 16 to 64 are accepted");
    assert_int_equal(fby_hasher_init(&hasher, FBY_HASH_XXH3, fingerprint, NULL, 0), FBY_E_CONFIG);
    assert_int_equal(fby_hasher_init(&hasher, FBY_HASH_SHA256, fingerprint, NULL, 1), -EINVAL);
    assert_int_equal(fby_hasher_init(&hasher, FBY_HASH_XXH3, fingerprint, longer, 64), 0);
    assert_int_equal(fby_hasher_init(&hasher, FBY_HASH_XXH3, fingerprint, longer, 16), 0);
}

static void extending_a_chain_allocates_nothing(void **state)
{
    static uint32_t tokens[4096];
    static fby_hash_t hashes[256];
    for (int kind = FBY_HASH_SHA256; kind <= FBY_HASH_XXH3; kind++) {
        fby_hasher_t hasher = hasher_of((fby_hash_kind_t)kind, secret);
        fby_hash_t root = root_of(&hasher, NULL, 0);
        size_t before = mallinfo2().uordblks;
        fby_chain_extend(&hasher, &root, tokens, 16, 256, hashes);
        fby_chain_extend(&hasher, &root, tokens, 4096, 1, hashes);
        assert_int_equal(mallinfo2().uordblks, before);
    }
}

static void the_backend_is_named(void **state)
{
    fby_hasher_t sha = hasher_of(FBY_HASH_SHA256, NULL), xxh = hasher_of(FBY_HASH_XXH3, secret);
    assert_string_equal(fby_hasher_backend(&xxh), "xxh3");
    assert_string_equal(fby_hasher_backend(&sha), fby_sha256_shani() != NULL ? "sha-ni" : "openssl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_look_alike_are_different_namespaces),
        cmocka_unit_test(an_empty_salt_is_the_same_as_none),
        cmocka_unit_test(a_secret_changes_the_keys_of_both_hashes),
        cmocka_unit_test(another_fingerprint_changes_every_key),
        cmocka_unit_test(a_block_depends_on_every_token_before_it),
        cmocka_unit_test(any_bytes_make_a_plain_key_and_no_two_collide),
        cmocka_unit_test(a_namespace_that_is_wrong_has_no_root),
        cmocka_unit_test(secrets_of_the_wrong_length_are_refused),
        cmocka_unit_test(extending_a_chain_allocates_nothing),
        cmocka_unit_test(the_backend_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
