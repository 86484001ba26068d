/*
 * keys.h - fingerprint, namespace, chain hash, key text.
 *
 *   root = H(tag "forebay-root-1", secret?, fingerprint, namespace)          (h[-1] of the spec)
 *   h[i] = H(h[i-1], tokens of block i as little-endian 32-bit), 128 bit
 *
 * sha256: H is SHA-256 truncated to its first 16 bytes; hardware SHA when the CPU has it, else OpenSSL.
 * xxh3:   H is XXH3-128 with a secret derived from the deployment secret; only for trusted, single-tenant use.
 * docs/keys.md specifies every byte; tests/vectors/keys.txt holds published vectors.
 */
#ifndef FBY_KEYS_H
#define FBY_KEYS_H

#include "base/base.h"
#include "forebay/forebay.h"

#define FBY_FORMAT_VERSION 1u /* of objects and keys: part of the fingerprint */
#define FBY_KEY_TEXT_BYTES 40

typedef enum fby_hash_kind { FBY_HASH_SHA256, FBY_HASH_XXH3 } fby_hash_kind_t;

typedef struct fby_fp_group {
    char name[32];
    uint32_t payload_bytes; /* per block, > 0 */
    uint32_t trailing;      /* 0: all; n: trailing(n) */
} fby_fp_group_t;

/* Everything that makes bytes incompatible. Text fields are NUL-terminated; an empty mandatory one is an error. */
typedef struct fby_fingerprint_fields {
    char model_id[256], revision[128], kv_dtype[32], layer_set[128], layout[64];
    uint64_t weights_epoch;
    uint32_t block_tokens;
    uint32_t tp_size, cp_size, pp_size; /* >= 1; cp_size > 1 is refused: no layout of ours supports it yet */
    uint32_t groups;
    fby_fp_group_t group[FBY_MAX_GROUPS];
} fby_fingerprint_fields_t;

/* 16-byte digest; every field is tagged and length-prefixed. FBY_E_CONFIG names the missing or wrong field. */
int fby_fingerprint(const fby_fingerprint_fields_t *fields, uint8_t out[16]);

/* Canonical namespace bytes: count, then (type u8, length u32 LE, bytes) per part; parts of type salt with length 0 are
   dropped first. -EINVAL for a type that is not one of fby_ns_type_t or NULL data with a length. Appends nothing else. */
int fby_namespace_encode(const fby_ns_part_t *parts, size_t n, uint8_t *out, size_t capacity, size_t *length);

typedef struct fby_hasher {
    fby_hash_kind_t kind;
    uint8_t fingerprint[16];
    uint8_t secret[64];
    size_t secret_length;     /* 0: none */
    uint8_t xxh3_secret[192]; /* derived from `secret` at init */
} fby_hasher_t;

/* secret may be NULL with length 0; at most 64 bytes; xxh3 requires at least 16 (FBY_E_CONFIG). */
int fby_hasher_init(fby_hasher_t *hasher, fby_hash_kind_t kind, const uint8_t fingerprint[16], const void *secret,
                    size_t secret_length);
/* h[-1]. Same errors as fby_namespace_encode. Allocates nothing beyond one temporary buffer. */
int fby_chain_root(const fby_hasher_t *hasher, const fby_ns_part_t *parts, size_t n, fby_hash_t *root);
/* out[i] for `blocks` blocks of block_tokens tokens, continuing from *previous. No allocation; thread-safe. */
void fby_chain_extend(const fby_hasher_t *hasher, const fby_hash_t *previous, const uint32_t *tokens,
                      uint32_t block_tokens, size_t blocks, fby_hash_t *out);
/* "sha-ni", "openssl", "xxh3": what fby_chain_extend runs on. */
const char *fby_hasher_backend(const fby_hasher_t *hasher);

/* 32 lower-case hex digits, '-', 'g', group number, NUL. The one key function for exists, get and put. */
void fby_key_text(const fby_hash_t *hash, uint32_t group, char out[FBY_KEY_TEXT_BYTES]);
/* Back again; false unless the text is exactly what fby_key_text writes. */
bool fby_key_parse(const char *text, fby_hash_t *hash, uint32_t *group);

#endif
