#include "stores/file_format.h"

#include <string.h>
#include <xxhash.h>

#include "stores/endian.h"
#include "stores/object.h"

/* magic 8 bytes | version u32 | then per kind; the last 8 bytes are XXH3-64 of all before them. */
enum {
    AT_VERSION = 8,
    AT_OBJECT = 12,
    AT_STRIDE = 16,
    AT_COUNT = 20,
    AT_MODELS = 12,
    AT_MODEL = 16,
    MODEL_BYTES = 24,
    AT_CHECKSUM = FBY_HEADER_BYTES - 8
};

static const char super_magic[8] = {'F', 'B', 'Y', 'S', 'U', 'P', 'E', 'R'};
static const char segment_magic[8] = {'F', 'B', 'Y', 'S', 'E', 'G', 'M', 'T'};

_Static_assert(AT_MODEL + MODEL_BYTES * FBY_SUPER_MODELS <= AT_CHECKSUM, "the model table fits the superblock");

static void seal(uint8_t *bytes, const char *magic)
{
    memcpy(bytes, magic, 8);
    fby_store_le32(bytes + AT_VERSION, FBY_FILE_VERSION);
    fby_store_le64(bytes + AT_CHECKSUM, XXH3_64bits(bytes, AT_CHECKSUM));
}

/* The version comes before the checksum: a newer format may place its checksum elsewhere. */
static fby_format_fault_t check(const uint8_t *bytes, const char *magic, uint32_t *version)
{
    if (memcmp(bytes, magic, 8) != 0) {
        return FBY_FORMAT_DAMAGED;
    }
    *version = fby_load_le32(bytes + AT_VERSION);
    if (*version > FBY_FILE_VERSION) {
        return FBY_FORMAT_NEWER;
    }
    bool whole = *version == FBY_FILE_VERSION && fby_load_le64(bytes + AT_CHECKSUM) == XXH3_64bits(bytes, AT_CHECKSUM);
    return whole ? FBY_FORMAT_OK : FBY_FORMAT_DAMAGED;
}

fby_format_fault_t fby_super_parse(const uint8_t bytes[FBY_HEADER_BYTES], fby_super_t *out, uint32_t *version)
{
    fby_format_fault_t fault = check(bytes, super_magic, version);
    uint32_t models = fby_load_le32(bytes + AT_MODELS);
    if (fault != FBY_FORMAT_OK || models > FBY_SUPER_MODELS) {
        return fault != FBY_FORMAT_OK ? fault : FBY_FORMAT_DAMAGED;
    }
    *out = (fby_super_t){.models = models};
    for (uint32_t i = 0; i < models; i++) {
        const uint8_t *at = bytes + AT_MODEL + i * MODEL_BYTES;
        memcpy(out->model[i].name, at, sizeof(out->model[i].name));
        out->model[i].epoch = fby_load_le64(at + 16);
    }
    return FBY_FORMAT_OK;
}

void fby_super_write(const fby_super_t *super, uint8_t bytes[FBY_HEADER_BYTES])
{
    memset(bytes, 0, FBY_HEADER_BYTES);
    fby_store_le32(bytes + AT_MODELS, super->models);
    for (uint32_t i = 0; i < super->models; i++) {
        uint8_t *at = bytes + AT_MODEL + i * MODEL_BYTES;
        memcpy(at, super->model[i].name, sizeof(super->model[i].name));
        fby_store_le64(at + 16, super->model[i].epoch);
    }
    seal(bytes, super_magic);
}

fby_format_fault_t fby_segment_header_parse(const uint8_t bytes[FBY_HEADER_BYTES], fby_segment_header_t *out,
                                            uint32_t *version)
{
    fby_format_fault_t fault = check(bytes, segment_magic, version);
    if (fault != FBY_FORMAT_OK) {
        return fault;
    }
    fby_segment_header_t header = {
        .object_bytes = fby_load_le32(bytes + AT_OBJECT),
        .stride = fby_load_le32(bytes + AT_STRIDE),
        .count = fby_load_le32(bytes + AT_COUNT),
    };
    /* 2^32 slots of 2^32 bytes at most: the file length cannot overflow, but must be one that a file can have. */
    if (header.object_bytes <= FBY_TRAILER_BYTES || header.stride < header.object_bytes ||
        header.stride % FBY_BUFFERED_ALIGN != 0 || header.count == 0 ||
        (uint64_t)header.stride * header.count > (uint64_t)INT64_MAX - FBY_HEADER_BYTES) {
        return FBY_FORMAT_DAMAGED;
    }
    *out = header;
    return FBY_FORMAT_OK;
}

void fby_segment_header_write(const fby_segment_header_t *header, uint8_t bytes[FBY_HEADER_BYTES])
{
    memset(bytes, 0, FBY_HEADER_BYTES);
    fby_store_le32(bytes + AT_OBJECT, header->object_bytes);
    fby_store_le32(bytes + AT_STRIDE, header->stride);
    fby_store_le32(bytes + AT_COUNT, header->count);
    seal(bytes, segment_magic);
}

uint64_t fby_segment_file_bytes(const fby_segment_header_t *header)
{
    return FBY_HEADER_BYTES + (uint64_t)header->stride * header->count;
}
