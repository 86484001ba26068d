/*
 * sha256.h - SHA-256 over small messages, without allocation.
 *
 * OpenSSL's one-shot and EVP calls allocate; a chain hash is made for every block of every prompt. So the padding is ours
 * and only the compression function comes from elsewhere: the CPU's SHA extensions through intrinsics, else OpenSSL (whose
 * own code uses the extensions of other CPUs, ARMv8's for one).
 */
#ifndef FBY_KEYS_SHA256_H
#define FBY_KEYS_SHA256_H

#include "base/base.h"

/* Mixes n blocks of 64 bytes into the state. */
typedef void fby_sha256_compress_fn(uint32_t state[8], const uint8_t *data, size_t n);

typedef struct fby_sha256_backend {
    const char *name;
    fby_sha256_compress_fn *compress;
} fby_sha256_backend_t;

/* NULL when this CPU has no SHA extensions (or is no x86-64). */
const fby_sha256_backend_t *fby_sha256_shani(void);
const fby_sha256_backend_t *fby_sha256_openssl(void);
/* The faster of the two that exist. */
const fby_sha256_backend_t *fby_sha256_best(void);

typedef struct fby_sha256 {
    fby_sha256_compress_fn *compress;
    uint32_t state[8];
    uint8_t block[64]; /* the first `used` bytes wait for the rest of their block */
    size_t used;
    uint64_t total; /* bytes so far */
} fby_sha256_t;

void fby_sha256_begin(fby_sha256_t *sha, const fby_sha256_backend_t *backend);
void fby_sha256_add(fby_sha256_t *sha, const void *data, size_t bytes);
/* The first 16 bytes of the digest. The object is spent. */
void fby_sha256_end128(fby_sha256_t *sha, uint8_t out[16]);
/* All 32. */
void fby_sha256_end(fby_sha256_t *sha, uint8_t out[32]);

#endif
