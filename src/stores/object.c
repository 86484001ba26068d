/* object.c - sealing and checking objects. Every field goes through explicit little-endian loads and stores. */
#include "stores/object.h"

#include <string.h>

#define XXH_INLINE_ALL /* the streaming state on the stack, sized by this header and not by the library at run time */
#include <xxhash.h>

#include "keys/keys.h"
#include "stores/endian.h"

#define MAGIC UINT32_C(0x31594246) /* "FBY1" read as little-endian */

enum {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_GROUP = 6,
    AT_FLAGS = 7,
    AT_PAYLOAD = 8,
    AT_SEGMENT = 12,
    AT_HASH = 16,
    AT_FINGERPRINT = 32,
    AT_CHECKSUM = 48,
    AT_CHECK = 56
};

/* Values folded without the streaming state: 64 pieces of 64 KiB are 4 MiB of payload. */
#define FOLD_AT_ONCE 64u

/* The library's own variants for AVX2 and AVX-512, chosen by the processor at run time, where it was built with them; else
   what the compiler makes for this architecture's baseline (SSE2, NEON). The value is the same. */
#if FBY_HAVE_XXH_DISPATCH
XXH64_hash_t XXH3_64bits_dispatch(const void *data, size_t bytes);
#define SEGMENT_HASH XXH3_64bits_dispatch
#else
#define SEGMENT_HASH XXH3_64bits
#endif

uint64_t fby_checksum_segment(const void *data, size_t bytes)
{
    return SEGMENT_HASH(data, bytes);
}

static void fold_update(XXH3_state_t *state, const uint64_t *segments, size_t n)
{
    uint8_t bytes[FOLD_AT_ONCE * 8];
    while (n > 0) {
        size_t now = FBY_MIN(n, FOLD_AT_ONCE);
        for (size_t i = 0; i < now; i++) {
            fby_store_le64(bytes + i * 8, segments[i]);
        }
        XXH3_64bits_update(state, bytes, now * 8);
        segments += now;
        n -= now;
    }
}

uint64_t fby_checksum_fold(const uint64_t *segments, size_t n)
{
    if (n <= FOLD_AT_ONCE) {
        uint8_t bytes[FOLD_AT_ONCE * 8];
        for (size_t i = 0; i < n; i++) {
            fby_store_le64(bytes + i * 8, segments[i]);
        }
        return XXH3_64bits(bytes, n * 8);
    }
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    fold_update(&state, segments, n);
    return XXH3_64bits_digest(&state);
}

uint64_t fby_checksum(const void *payload, size_t bytes, uint32_t segment_bytes)
{
    const uint8_t *at = payload;
    uint64_t sums[FOLD_AT_ONCE];
    size_t n = 0;
    XXH3_state_t state;
    bool streaming = bytes > (uint64_t)segment_bytes * FOLD_AT_ONCE;
    if (streaming) {
        XXH3_64bits_reset(&state);
    }
    while (bytes > 0) {
        size_t now = FBY_MIN(bytes, (size_t)segment_bytes);
        sums[n++] = fby_checksum_segment(at, now);
        at += now;
        bytes -= now;
        if (streaming && (n == FOLD_AT_ONCE || bytes == 0)) {
            fold_update(&state, sums, n);
            n = 0;
        }
    }
    return streaming ? XXH3_64bits_digest(&state) : fby_checksum_fold(sums, n);
}

void fby_object_seal(void *slot, const fby_object_id_t *id, bool with_checksum)
{
    uint8_t *trailer = (uint8_t *)slot + id->payload_bytes;
    uint64_t checksum = with_checksum ? fby_checksum(slot, id->payload_bytes, id->segment_bytes) : 0;
    fby_store_le32(trailer + AT_MAGIC, MAGIC);
    fby_store_le16(trailer + AT_VERSION, FBY_FORMAT_VERSION);
    trailer[AT_GROUP] = (uint8_t)id->group;
    trailer[AT_FLAGS] = with_checksum ? 0 : (uint8_t)FBY_FLAG_NO_CHECKSUM;
    fby_store_le32(trailer + AT_PAYLOAD, id->payload_bytes);
    fby_store_le32(trailer + AT_SEGMENT, id->segment_bytes);
    memcpy(trailer + AT_HASH, &id->hash, sizeof(id->hash));
    memcpy(trailer + AT_FINGERPRINT, id->fingerprint, sizeof(id->fingerprint));
    fby_store_le64(trailer + AT_CHECKSUM, checksum);
    fby_store_le64(trailer + AT_CHECK, XXH3_64bits(trailer, AT_CHECK));
}

fby_object_fault_t fby_trailer_parse(const void *trailer64, fby_object_id_t *out, uint64_t *checksum, uint8_t *flags)
{
    const uint8_t *trailer = trailer64;
    if (fby_load_le32(trailer + AT_MAGIC) != MAGIC) {
        return FBY_OBJECT_MAGIC;
    }
    /* Before the check: a newer format may have it elsewhere. */
    if (fby_load_le16(trailer + AT_VERSION) != FBY_FORMAT_VERSION) {
        return FBY_OBJECT_VERSION;
    }
    if (fby_load_le64(trailer + AT_CHECK) != XXH3_64bits(trailer, AT_CHECK)) {
        return FBY_OBJECT_SUM;
    }
    if ((trailer[AT_FLAGS] & ~FBY_FLAG_NO_CHECKSUM) != 0) {
        return FBY_OBJECT_VERSION;
    }
    uint32_t payload = fby_load_le32(trailer + AT_PAYLOAD);
    uint32_t segment = fby_load_le32(trailer + AT_SEGMENT);
    if (payload == 0 || payload > UINT32_MAX - FBY_TRAILER_BYTES || segment == 0) {
        return FBY_OBJECT_LENGTH;
    }
    if (trailer[AT_GROUP] >= FBY_MAX_GROUPS) {
        return FBY_OBJECT_KEY;
    }
    memcpy(&out->hash, trailer + AT_HASH, sizeof(out->hash));
    memcpy(out->fingerprint, trailer + AT_FINGERPRINT, sizeof(out->fingerprint));
    out->group = trailer[AT_GROUP];
    out->payload_bytes = payload;
    out->segment_bytes = segment;
    *checksum = fby_load_le64(trailer + AT_CHECKSUM);
    *flags = trailer[AT_FLAGS];
    return FBY_OBJECT_OK;
}

/* The trailer's own segment_bytes cuts the payload: a reader configured with another value still reads old objects. */
fby_object_fault_t fby_object_verify(const void *slot, const fby_object_id_t *id, bool with_checksum)
{
    fby_object_id_t found;
    uint64_t checksum;
    uint8_t flags;
    fby_object_fault_t fault = fby_trailer_parse((const uint8_t *)slot + id->payload_bytes, &found, &checksum, &flags);
    if (fault != FBY_OBJECT_OK) {
        return fault;
    }
    if (!fby_hash_equal(&found.hash, &id->hash) || found.group != id->group) {
        return FBY_OBJECT_KEY;
    }
    if (found.payload_bytes != id->payload_bytes) {
        return FBY_OBJECT_LENGTH;
    }
    if (memcmp(found.fingerprint, id->fingerprint, sizeof(found.fingerprint)) != 0) {
        return FBY_OBJECT_FINGERPRINT;
    }
    if (with_checksum && (flags & FBY_FLAG_NO_CHECKSUM) == 0 &&
        fby_checksum(slot, found.payload_bytes, found.segment_bytes) != checksum) {
        return FBY_OBJECT_SUM;
    }
    return FBY_OBJECT_OK;
}

const char *fby_object_fault_name(fby_object_fault_t fault)
{
    static const char *const names[FBY_OBJECT_FAULT_COUNT] = {
        [FBY_OBJECT_OK] = "ok",        [FBY_OBJECT_MAGIC] = "magic",   [FBY_OBJECT_VERSION] = "version",
        [FBY_OBJECT_KEY] = "key",      [FBY_OBJECT_LENGTH] = "length", [FBY_OBJECT_FINGERPRINT] = "fingerprint",
        [FBY_OBJECT_SUM] = "checksum",
    };
    return (unsigned)fault < FBY_OBJECT_FAULT_COUNT ? names[fault] : "unknown";
}
