/*
 * object.h - the object format: a slot as it is in memory.
 *
 *   payload (payload_bytes) | trailer (64 bytes)         object length = payload + 64
 *
 * Trailer, little-endian:
 *   0 magic "FBY1" u32 | 4 format version u16 | 6 group u8 | 7 flags u8 | 8 payload length u32 | 12 segment_bytes u32 |
 *   16 chain hash 16 bytes | 32 fingerprint digest 16 bytes | 48 checksum u64 | 56 check u64
 *
 * Check: XXH3-64 over the 56 bytes before it, so that a trailer that was cut, torn or flipped anywhere is known for
 * that by itself, without its payload: what the file store rebuilds its index from.
 *
 * Checksum: XXH3-64 over the little-endian array of XXH3-64 values of consecutive pieces of segment_bytes of the
 * payload (the last may be short), so that ranks, layers and device copies can each contribute theirs in the pass that
 * copies.
 * The trailer is not a signature: whoever can write the store is trusted.
 */
#ifndef FBY_STORES_OBJECT_H
#define FBY_STORES_OBJECT_H

#include "base/base.h"

#define FBY_TRAILER_BYTES 64u
#define FBY_SEGMENT_BYTES 65536u /* default */
#define FBY_FLAG_NO_CHECKSUM 1u  /* written with checksums off: unverified, still usable */

typedef struct fby_object_id {
    fby_hash_t hash;
    uint8_t fingerprint[16];
    uint32_t group;
    uint32_t payload_bytes;
    uint32_t segment_bytes;
} fby_object_id_t;

/* XXH3-64 of one segment; fold with fby_checksum_fold over the array of them. */
uint64_t fby_checksum_segment(const void *data, size_t bytes);
uint64_t fby_checksum_fold(const uint64_t *segments, size_t n);
/* Both steps over a whole payload. */
uint64_t fby_checksum(const void *payload, size_t bytes, uint32_t segment_bytes);

/* Writes the trailer behind the payload (slot + payload_bytes). with_checksum false sets FBY_FLAG_NO_CHECKSUM. */
void fby_object_seal(void *slot, const fby_object_id_t *id, bool with_checksum);
/* What can be wrong, each counted apart. */
typedef enum fby_object_fault {
    FBY_OBJECT_OK,
    FBY_OBJECT_MAGIC,
    FBY_OBJECT_VERSION,
    FBY_OBJECT_KEY,
    FBY_OBJECT_LENGTH,
    FBY_OBJECT_FINGERPRINT,
    FBY_OBJECT_SUM,
    FBY_OBJECT_FAULT_COUNT
} fby_object_fault_t;
/* Checks a slot against what it should be. with_checksum false skips the payload pass (verify: off). */
fby_object_fault_t fby_object_verify(const void *slot, const fby_object_id_t *id, bool with_checksum);
/* Checks a trailer on its own (tools, recovery): magic, version, its check, lengths that can be. */
fby_object_fault_t fby_trailer_parse(const void *trailer64, fby_object_id_t *out, uint64_t *checksum, uint8_t *flags);
const char *fby_object_fault_name(fby_object_fault_t fault);

#endif
