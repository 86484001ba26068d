#include "unit.h"

#include <openssl/sha.h>

#include "keys/sha256.h"

enum { LONGEST = 600 };

/* One message in pieces of random sizes. */
static void digest_in_pieces(const fby_sha256_backend_t *backend, const uint8_t *data, size_t n, uint64_t *seed,
                             uint8_t out[32])
{
    fby_sha256_t sha;
    fby_sha256_begin(&sha, backend);
    for (size_t at = 0; at < n;) {
        size_t drawn = unit_below(seed, 150), piece = FBY_MIN(drawn, n - at);
        fby_sha256_add(&sha, data + at, piece);
        at += piece;
    }
    fby_sha256_end(&sha, out);
}

/* Every length to LONGEST, so that each position of the padding occurs, against OpenSSL's own one-shot call. */
static void check_backend(const fby_sha256_backend_t *backend)
{
    uint64_t seed = 7;
    uint8_t data[LONGEST] = {0}, want[32], got[32];
    for (size_t n = 0; n < LONGEST; n++) {
        for (size_t i = 0; i < n; i++) {
            data[i] = (uint8_t)unit_random(&seed);
        }
        SHA256(data, n, want);
        digest_in_pieces(backend, data, n, &seed, got);
        assert_memory_equal(got, want, sizeof(want));
    }
}

static void the_openssl_backend_makes_sha256(void **state)
{
    check_backend(fby_sha256_openssl());
}

static void the_sha_ni_backend_makes_the_same(void **state)
{
    if (fby_sha256_shani() == NULL) {
        print_message("this CPU has no SHA extensions\n");
        skip();
    }
    check_backend(fby_sha256_shani());
}

static void the_known_digest_of_abc(void **state)
{
    static const uint8_t want[32] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
                                     0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
                                     0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    uint8_t got[32], half[16];
    fby_sha256_t sha;
    fby_sha256_begin(&sha, fby_sha256_best());
    fby_sha256_add(&sha, "abc", 3);
    fby_sha256_end(&sha, got);
    assert_memory_equal(got, want, 32);
    fby_sha256_begin(&sha, fby_sha256_best());
    fby_sha256_add(&sha, "abc", 3);
    fby_sha256_end128(&sha, half);
    assert_memory_equal(half, want, 16);
}

static void the_best_backend_is_the_extension_when_there_is_one(void **state)
{
    const fby_sha256_backend_t *shani = fby_sha256_shani();
    assert_ptr_equal(fby_sha256_best(), shani != NULL ? shani : fby_sha256_openssl());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_openssl_backend_makes_sha256),
        cmocka_unit_test(the_sha_ni_backend_makes_the_same),
        cmocka_unit_test(the_known_digest_of_abc),
        cmocka_unit_test(the_best_backend_is_the_extension_when_there_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
