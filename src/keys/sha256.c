#define OPENSSL_SUPPRESS_DEPRECATED /* SHA256_Transform: the calls that replace it allocate */
#include "keys/sha256.h"

#include <openssl/sha.h>
#include <string.h>

static const uint32_t initial_state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/* ---- OpenSSL ---------------------------------------------------------------------------------------------------- */

static void compress_openssl(uint32_t state[8], const uint8_t *data, size_t n)
{
    SHA256_CTX context;
    memset(&context, 0, sizeof(context));
    _Static_assert(sizeof(context.h) == 8 * sizeof(uint32_t), "the state of OpenSSL is 8 words of 32 bits");
    memcpy(context.h, state, sizeof(context.h));
    for (size_t i = 0; i < n; i++) {
        SHA256_Transform(&context, data + 64 * i);
    }
    memcpy(state, context.h, sizeof(context.h));
}

const fby_sha256_backend_t *fby_sha256_openssl(void)
{
    static const fby_sha256_backend_t backend = {"openssl", compress_openssl};
    return &backend;
}

/* ---- SHA extensions of x86 -------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

static const uint32_t round_constants[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#define SHA_TARGET __attribute__((target("sha,sse4.1,ssse3")))

/* The instructions keep the eight words as ABEF and CDGH. */
SHA_TARGET static void state_load(const uint32_t state[8], __m128i *abef, __m128i *cdgh)
{
    __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)&state[0]), 0xB1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)&state[4]), 0x1B);
    *abef = _mm_alignr_epi8(cdab, efgh, 8);
    *cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
}

SHA_TARGET static void state_store(uint32_t state[8], __m128i abef, __m128i cdgh)
{
    __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
    __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)&state[0], _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128((__m128i *)&state[4], _mm_alignr_epi8(dchg, feba, 8));
}

SHA_TARGET static void compress_shani(uint32_t state[8], const uint8_t *data, size_t n)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    __m128i abef, cdgh;
    state_load(state, &abef, &cdgh);
    for (; n > 0; n--, data += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i words[4]; /* the last 16 words of the schedule; four more replace the oldest four each step */
        for (int i = 0; i < 4; i++) {
            words[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), big_endian);
        }
#pragma GCC unroll 16
        for (int step = 0; step < 16; step++) {
            __m128i *now = &words[step % 4];
            if (step >= 4) {
                const __m128i before = words[(step + 3) % 4];
                __m128i sum = _mm_sha256msg1_epu32(*now, words[(step + 1) % 4]);
                sum = _mm_add_epi32(sum, _mm_alignr_epi8(before, words[(step + 2) % 4], 4));
                *now = _mm_sha256msg2_epu32(sum, before);
            }
            __m128i keyed = _mm_add_epi32(*now, _mm_load_si128((const __m128i *)&round_constants[4 * step]));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, keyed);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(keyed, 0x0E));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    state_store(state, abef, cdgh);
}

static bool cpu_has_sha(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_SSSE3) == 0 || (c & bit_SSE4_1) == 0) {
        return false;
    }
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 29)) != 0;
}

const fby_sha256_backend_t *fby_sha256_shani(void)
{
    static const fby_sha256_backend_t backend = {"sha-ni", compress_shani};
    return cpu_has_sha() ? &backend : NULL;
}
#else
const fby_sha256_backend_t *fby_sha256_shani(void)
{
    return NULL;
}
#endif

const fby_sha256_backend_t *fby_sha256_best(void)
{
    /* cpuid traps under a hypervisor, so it is asked once; two threads that both ask write the same answer. */
    static const fby_sha256_backend_t *best;
    const fby_sha256_backend_t *known = __atomic_load_n(&best, __ATOMIC_RELAXED);
    if (FBY_UNLIKELY(known == NULL)) {
        const fby_sha256_backend_t *shani = fby_sha256_shani();
        known = shani != NULL ? shani : fby_sha256_openssl();
        __atomic_store_n(&best, known, __ATOMIC_RELAXED);
    }
    return known;
}

/* ---- Messages --------------------------------------------------------------------------------------------------- */

void fby_sha256_begin(fby_sha256_t *sha, const fby_sha256_backend_t *backend)
{
    sha->compress = backend->compress;
    memcpy(sha->state, initial_state, sizeof(sha->state));
    sha->used = 0;
    sha->total = 0;
}

void fby_sha256_add(fby_sha256_t *sha, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    sha->total += bytes;
    if (sha->used > 0) {
        size_t part = FBY_MIN(bytes, sizeof(sha->block) - sha->used);
        memcpy(sha->block + sha->used, at, part);
        sha->used += part;
        at += part;
        bytes -= part;
        if (sha->used < sizeof(sha->block)) {
            return;
        }
        sha->compress(sha->state, sha->block, 1);
        sha->used = 0;
    }
    size_t whole = bytes / 64;
    if (whole > 0) {
        sha->compress(sha->state, at, whole);
    }
    sha->used = bytes % 64;
    if (sha->used > 0) {
        memcpy(sha->block, at + 64 * whole, sha->used);
    }
}

static void put_be32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

static void sha256_pad(fby_sha256_t *sha)
{
    uint8_t *block = sha->block;
    block[sha->used++] = 0x80;
    if (sha->used > 56) {
        memset(block + sha->used, 0, 64 - sha->used);
        sha->compress(sha->state, block, 1);
        sha->used = 0;
    }
    memset(block + sha->used, 0, 56 - sha->used);
    uint64_t bits = sha->total * 8;
    put_be32(block + 56, (uint32_t)(bits >> 32));
    put_be32(block + 60, (uint32_t)bits);
    sha->compress(sha->state, block, 1);
}

void fby_sha256_end128(fby_sha256_t *sha, uint8_t out[16])
{
    sha256_pad(sha);
    for (size_t i = 0; i < 4; i++) {
        put_be32(out + 4 * i, sha->state[i]);
    }
}

void fby_sha256_end(fby_sha256_t *sha, uint8_t out[32])
{
    sha256_pad(sha);
    for (size_t i = 0; i < 8; i++) {
        put_be32(out + 4 * i, sha->state[i]);
    }
}
