/*
 * fuzz_filestore.c - any bytes as what a file store finds in its directory: superblock and segment header.
 *
 * Most inputs have no right checksum, so it is put in before a second look. What parses writes back the same.
 */
#include <stdlib.h>
#include <string.h>

#include "stores/file_format.h"
#include "stores/object.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static void look(const uint8_t *bytes)
{
    static uint8_t again[FBY_HEADER_BYTES];
    static fby_super_t super, other;
    fby_segment_header_t header, same;
    uint32_t version = 0;
    if (fby_super_parse(bytes, &super, &version) == FBY_FORMAT_OK) {
        fby_super_write(&super, again);
        CHECK(fby_super_parse(again, &other, &version) == FBY_FORMAT_OK && memcmp(&super, &other, sizeof(super)) == 0);
    }
    if (fby_segment_header_parse(bytes, &header, &version) == FBY_FORMAT_OK) {
        CHECK(fby_segment_file_bytes(&header) <= (uint64_t)INT64_MAX && header.count > 0);
        CHECK(header.stride >= header.object_bytes && header.object_bytes > FBY_TRAILER_BYTES);
        fby_segment_header_write(&header, again);
        CHECK(fby_segment_header_parse(again, &same, &version) == FBY_FORMAT_OK &&
              memcmp(&header, &same, sizeof(same)) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[FBY_HEADER_BYTES];
    memset(bytes, 0, sizeof(bytes));
    memcpy(bytes, data, size < sizeof(bytes) ? size : sizeof(bytes));
    look(bytes);
    uint64_t sum = fby_checksum_segment(bytes, sizeof(bytes) - 8);
    for (int i = 0; i < 8; i++) {
        bytes[sizeof(bytes) - 8 + (size_t)i] = (uint8_t)(sum >> 8 * i);
    }
    look(bytes);
    return 0;
}
