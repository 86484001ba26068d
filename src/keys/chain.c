/* chain.c - the root of a namespace and the hash of each block behind it; docs/keys.md has the bytes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL /* a state on the stack is only safe when its size is not the shared library's affair */
#include <xxhash.h>

#include "base/log.h"
#include "keys/bytes.h"
#include "keys/keys.h"
#include "keys/sha256.h"

#define ROOT_TAG "forebay-root-1"
#define XXH3_SECRET_TAG "forebay-xxh3-secret-1"
#define TAG_BYTES(tag) (sizeof(tag) - 1)

enum { XXH3_MIN_SECRET = 16, SHORT_BLOCK_TOKENS = 256 };

_Static_assert(sizeof(((fby_hasher_t *)0)->xxh3_secret) >= XXH3_SECRET_SIZE_MIN, "XXH3 takes no shorter secret");

/* SHA-256 in counter mode: any deployment secret becomes 192 bytes that look random, the same in every version of xxHash
   (whose own generator is not a stable interface). */
static void xxh3_secret_derive(fby_hasher_t *hasher)
{
    for (uint32_t i = 0; i < sizeof(hasher->xxh3_secret) / 32; i++) {
        uint8_t counter[4];
        fby_put_le32(counter, i);
        fby_sha256_t sha;
        fby_sha256_begin(&sha, fby_sha256_best());
        fby_sha256_add(&sha, XXH3_SECRET_TAG, TAG_BYTES(XXH3_SECRET_TAG));
        fby_sha256_add(&sha, counter, sizeof(counter));
        fby_sha256_add(&sha, hasher->secret, hasher->secret_length);
        fby_sha256_end(&sha, hasher->xxh3_secret + (size_t)32 * i);
    }
}

int fby_hasher_init(fby_hasher_t *hasher, fby_hash_kind_t kind, const uint8_t fingerprint[16], const void *secret,
                    size_t secret_length)
{
    if (secret_length > sizeof(hasher->secret)) {
        fby_error_set("the deployment secret has %zu bytes; at most %zu are accepted", secret_length,
                      sizeof(hasher->secret));
        return FBY_E_CONFIG;
    }
    if (kind == FBY_HASH_XXH3 && secret_length < XXH3_MIN_SECRET) {
        fby_error_set("hash xxh3 is keyed: the deployment secret has %zu bytes; %d to %zu are accepted", secret_length,
                      XXH3_MIN_SECRET, sizeof(hasher->secret));
        return FBY_E_CONFIG;
    }
    if (secret == NULL && secret_length > 0) {
        return -EINVAL;
    }
    memset(hasher, 0, sizeof(*hasher));
    hasher->kind = kind;
    memcpy(hasher->fingerprint, fingerprint, sizeof(hasher->fingerprint));
    hasher->secret_length = secret_length;
    if (secret_length > 0) {
        memcpy(hasher->secret, secret, secret_length);
    }
    if (kind == FBY_HASH_XXH3) {
        xxh3_secret_derive(hasher);
    }
    return 0;
}

/* Digest bytes are xxHash's canonical form, which is big-endian on every machine. */
static void xxh3_digest(XXH128_hash_t hash, fby_hash_t *out)
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(out->w, canonical.digest, sizeof(out->w));
}

static void xxh3_128(const fby_hasher_t *hasher, const void *data, size_t bytes, fby_hash_t *out)
{
    xxh3_digest(XXH3_128bits_withSecret(data, bytes, hasher->xxh3_secret, sizeof(hasher->xxh3_secret)), out);
}

static void sha256_128(const void *data, size_t bytes, fby_hash_t *out)
{
    uint8_t digest[16];
    fby_sha256_t sha;
    fby_sha256_begin(&sha, fby_sha256_best());
    fby_sha256_add(&sha, data, bytes);
    fby_sha256_end128(&sha, digest);
    memcpy(out->w, digest, sizeof(digest));
}

int fby_chain_root(const fby_hasher_t *hasher, const fby_ns_part_t *parts, size_t n, fby_hash_t *root)
{
    size_t namespace_bytes;
    int error = fby_namespace_encode(parts, n, NULL, 0, &namespace_bytes);
    if (error != 0) {
        return error;
    }
    size_t head = TAG_BYTES(ROOT_TAG) + 4 + hasher->secret_length + sizeof(hasher->fingerprint);
    uint8_t *message = malloc(head + namespace_bytes);
    if (message == NULL) {
        return -ENOMEM;
    }
    uint8_t *at = message;
    memcpy(at, ROOT_TAG, TAG_BYTES(ROOT_TAG));
    at += TAG_BYTES(ROOT_TAG);
    fby_put_le32(at, (uint32_t)hasher->secret_length);
    at += 4;
    memcpy(at, hasher->secret, hasher->secret_length);
    at += hasher->secret_length;
    memcpy(at, hasher->fingerprint, sizeof(hasher->fingerprint));
    at += sizeof(hasher->fingerprint);
    error = fby_namespace_encode(parts, n, at, namespace_bytes, &namespace_bytes);
    if (error == 0 && hasher->kind == FBY_HASH_XXH3) {
        xxh3_128(hasher, message, head + namespace_bytes, root);
    } else if (error == 0) {
        sha256_128(message, head + namespace_bytes, root);
    }
    explicit_bzero(message, head); /* the secret was in it */
    free(message);
    return error;
}

/* Feeds tokens as little-endian bytes: as they lie in memory where the machine is little-endian. */
static void sha256_add_tokens(fby_sha256_t *sha, const uint32_t *tokens, size_t n)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    fby_sha256_add(sha, tokens, n * 4);
#else
    for (size_t i = 0; i < n; i++) {
        uint8_t bytes[4];
        fby_put_le32(bytes, tokens[i]);
        fby_sha256_add(sha, bytes, sizeof(bytes));
    }
#endif
}

static void extend_sha256(const fby_hash_t *previous, const uint32_t *tokens, uint32_t block_tokens, size_t blocks,
                          fby_hash_t *out)
{
    const fby_sha256_backend_t *backend = fby_sha256_best();
    uint8_t chain[16];
    memcpy(chain, previous->w, sizeof(chain));
    for (size_t i = 0; i < blocks; i++) {
        fby_sha256_t sha;
        fby_sha256_begin(&sha, backend);
        fby_sha256_add(&sha, chain, sizeof(chain));
        sha256_add_tokens(&sha, tokens + i * block_tokens, block_tokens);
        fby_sha256_end128(&sha, chain);
        memcpy(out[i].w, chain, sizeof(chain));
    }
}

/* XXH3 is fastest over one contiguous message. */
static void xxh3_short_block(const fby_hasher_t *hasher, const fby_hash_t *previous, const uint32_t *tokens, uint32_t n,
                             fby_hash_t *out)
{
    uint8_t message[16 + 4 * SHORT_BLOCK_TOKENS];
    memcpy(message, previous->w, 16);
    for (uint32_t i = 0; i < n; i++) {
        fby_put_le32(message + 16 + (size_t)4 * i, tokens[i]);
    }
    xxh3_128(hasher, message, 16 + (size_t)4 * n, out);
}

static void xxh3_long_block(const fby_hasher_t *hasher, const fby_hash_t *previous, const uint32_t *tokens, uint32_t n,
                            fby_hash_t *out)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset_withSecret(&state, hasher->xxh3_secret, sizeof(hasher->xxh3_secret));
    XXH3_128bits_update(&state, previous->w, sizeof(previous->w));
    for (uint32_t i = 0; i < n; i++) {
        uint8_t bytes[4];
        fby_put_le32(bytes, tokens[i]);
        XXH3_128bits_update(&state, bytes, sizeof(bytes));
    }
    xxh3_digest(XXH3_128bits_digest(&state), out);
}

static void extend_xxh3(const fby_hasher_t *hasher, const fby_hash_t *previous, const uint32_t *tokens,
                        uint32_t block_tokens, size_t blocks, fby_hash_t *out)
{
    fby_hash_t chain = *previous; /* a copy: out may begin where previous is */
    for (size_t i = 0; i < blocks; i++, tokens += block_tokens) {
        if (block_tokens <= SHORT_BLOCK_TOKENS) {
            xxh3_short_block(hasher, &chain, tokens, block_tokens, &out[i]);
        } else {
            xxh3_long_block(hasher, &chain, tokens, block_tokens, &out[i]);
        }
        chain = out[i];
    }
}

void fby_chain_extend(const fby_hasher_t *hasher, const fby_hash_t *previous, const uint32_t *tokens,
                      uint32_t block_tokens, size_t blocks, fby_hash_t *out)
{
    if (hasher->kind == FBY_HASH_XXH3) {
        extend_xxh3(hasher, previous, tokens, block_tokens, blocks, out);
    } else {
        extend_sha256(previous, tokens, block_tokens, blocks, out);
    }
}

const char *fby_hasher_backend(const fby_hasher_t *hasher)
{
    return hasher->kind == FBY_HASH_XXH3 ? "xxh3" : fby_sha256_best()->name;
}
