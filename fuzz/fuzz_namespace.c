/*
 * fuzz_namespace.c - the canonical form of a namespace: what goes in comes out, and nothing else.
 *
 * Input: a list of parts, each (type u8, length u8, bytes). The rest of a part that is cut short is what there is.
 */
#include <stdlib.h>
#include <string.h>

#include "keys/keys.h"

enum { MOST_PARTS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static size_t parts_read(const uint8_t *data, size_t size, fby_ns_part_t parts[MOST_PARTS])
{
    size_t n = 0;
    while (size >= 2 && n < MOST_PARTS) {
        size_t length = FBY_MIN((size_t)data[1], size - 2);
        parts[n++] = (fby_ns_part_t){(fby_ns_type_t)(data[0] % 6), data + 2, length}; /* 0 and 5 are no types */
        data += 2 + length;
        size -= 2 + length;
    }
    return n;
}

static uint32_t le32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Reads the canonical bytes back and compares them with the parts that were set. */
static void check_round_trip(const fby_ns_part_t *parts, size_t n, const uint8_t *bytes, size_t length)
{
    size_t at = 4;
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (parts[i].type == FBY_NS_SALT && parts[i].length == 0) {
            continue;
        }
        CHECK(length - at >= 5 && bytes[at] == (uint8_t)parts[i].type);
        CHECK(le32(bytes + at + 1) == parts[i].length && length - at - 5 >= parts[i].length);
        CHECK(memcmp(bytes + at + 5, parts[i].data, parts[i].length) == 0);
        at += 5 + parts[i].length;
        count++;
    }
    CHECK(at == length && le32(bytes) == count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fby_ns_part_t parts[MOST_PARTS] = {0};
    size_t n = parts_read(data, size, parts), length = 0, again = 0;
    bool valid = true;
    for (size_t i = 0; i < n; i++) {
        valid = valid && parts[i].type >= FBY_NS_ADAPTER && parts[i].type <= FBY_NS_TEXT;
    }
    CHECK((fby_namespace_encode(parts, n, NULL, 0, &length) == 0) == valid);
    if (!valid) {
        return 0;
    }
    uint8_t *bytes = malloc(length);
    CHECK(bytes != NULL);
    CHECK(fby_namespace_encode(parts, n, bytes, length - 1, &again) < 0);
    CHECK(fby_namespace_encode(parts, n, bytes, length, &again) == 0 && again == length);
    check_round_trip(parts, n, bytes, length);
    free(bytes);

    static const uint8_t fingerprint[16] = {1};
    fby_hasher_t hasher;
    fby_hash_t root, empty;
    CHECK(fby_hasher_init(&hasher, FBY_HASH_SHA256, fingerprint, NULL, 0) == 0);
    CHECK(fby_chain_root(&hasher, parts, n, &root) == 0 && fby_chain_root(&hasher, NULL, 0, &empty) == 0);
    CHECK(fby_hash_equal(&root, &empty) == (length == 4));
    return 0;
}
