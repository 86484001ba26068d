/*
 * fuzz_object.c - any bytes as an object: what parses as a trailer can be sealed to the same bytes again, and what
 * verifies is what its trailer says.
 *
 * Input: a trailer of 64 bytes, then a payload.
 */
#include <stdlib.h>
#include <string.h>

#include "stores/object.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The object as it would be with this trailer behind the payload. Sealing it must give the trailer back. */
static void check_object(const uint8_t *payload, size_t payload_bytes, const uint8_t *trailer,
                         const fby_object_id_t *id, uint8_t flags)
{
    uint8_t *object = malloc(payload_bytes + FBY_TRAILER_BYTES);
    CHECK(object != NULL);
    memcpy(object, payload, payload_bytes);
    memcpy(object + payload_bytes, trailer, FBY_TRAILER_BYTES);
    bool with_checksum = (flags & FBY_FLAG_NO_CHECKSUM) == 0;
    CHECK(fby_object_verify(object, id, false) == FBY_OBJECT_OK);
    if (fby_object_verify(object, id, true) == FBY_OBJECT_OK && with_checksum) {
        fby_object_seal(object, id, true);
        CHECK(memcmp(object + payload_bytes, trailer, FBY_TRAILER_BYTES) == 0);
    }
    fby_object_seal(object, id, with_checksum);
    CHECK(fby_object_verify(object, id, true) == FBY_OBJECT_OK);
    object[payload_bytes / 2] ^= 1;
    CHECK(fby_object_verify(object, id, true) == (with_checksum ? FBY_OBJECT_SUM : FBY_OBJECT_OK));
    free(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fby_object_id_t id;
    uint64_t checksum;
    uint8_t flags, trailer[FBY_TRAILER_BYTES];
    if (size < FBY_TRAILER_BYTES) {
        return 0;
    }
    memcpy(trailer, data, sizeof(trailer));
    if (fby_trailer_parse(trailer, &id, &checksum, &flags) != FBY_OBJECT_OK) {
        /* Few inputs guess the trailer's own check: give it one. */
        uint64_t check = fby_checksum_segment(trailer, 56);
        for (int i = 0; i < 8; i++) {
            trailer[56 + i] = (uint8_t)(check >> 8 * i);
        }
    }
    fby_object_fault_t fault = fby_trailer_parse(trailer, &id, &checksum, &flags);
    CHECK(fby_object_fault_name(fault)[0] != '\0');
    if (fault == FBY_OBJECT_OK && id.payload_bytes <= size - FBY_TRAILER_BYTES) {
        check_object(data + FBY_TRAILER_BYTES, id.payload_bytes, trailer, &id, flags);
    }
    return 0;
}
