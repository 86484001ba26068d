/*
 * make_store.c - fills a directory with objects through the file driver, for the story of `forebay store`.
 *
 *   make_store DIRECTORY COUNT     objects of 8192 payload bytes in group 0, numbered hashes
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keys/keys.h"
#include "stores/object.h"
#include "stores/stores.h"

enum { PAYLOAD_BYTES = 8192, SLOT_BYTES = 12288 };

static int put_object(fby_store_t *store, const fby_store_spec_t *spec, uint32_t number, uint8_t *slot)
{
    fby_object_id_t id = {.hash = {{number * UINT64_C(0x9E3779B97F4A7C15), number}},
                          .payload_bytes = PAYLOAD_BYTES,
                          .segment_bytes = FBY_SEGMENT_BYTES};
    fby_store_op_t op = {.buffer = slot, .bytes = PAYLOAD_BYTES + FBY_TRAILER_BYTES};
    memcpy(id.fingerprint, spec->fingerprint, sizeof(id.fingerprint));
    memset(slot, (int)number, PAYLOAD_BYTES);
    fby_object_seal(slot, &id, true);
    fby_key_text(&id.hash, 0, op.key);
    int status = fby_store_file.put(store, &op, 1);
    return status < 0 ? status : op.result < 0 ? (int)op.result : 0;
}

int main(int argc, char **argv)
{
    fby_store_spec_t spec = {.size = sizeof(spec),
                             .groups = 1,
                             .object_bytes = {PAYLOAD_BYTES + FBY_TRAILER_BYTES},
                             .slot_bytes = {SLOT_BYTES},
                             .alignment = 4096,
                             .fingerprint = "fingerprint-one",
                             .epoch = 7};
    char error[256] = "", directory[4096];
    const char *options[] = {directory, NULL};
    fby_store_t *store;
    if (argc != 3) {
        return 2;
    }
    snprintf(directory, sizeof(directory), "dir=%s", argv[1]);
    uint8_t *slot = aligned_alloc(4096, SLOT_BYTES);
    if (slot == NULL || fby_store_file.open(&spec, options, &store, error, sizeof(error)) != 0) {
        fprintf(stderr, "make_store: %s\n", error);
        free(slot);
        return 1;
    }
    int status = 0;
    memset(slot, 0, SLOT_BYTES);
    for (uint32_t i = 1; i <= (uint32_t)atoi(argv[2]) && status == 0; i++) {
        status = put_object(store, &spec, i, slot);
    }
    fby_store_file.close(store);
    free(slot);
    return status == 0 ? 0 : 1;
}
