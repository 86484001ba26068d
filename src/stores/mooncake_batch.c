/*
 * mooncake_batch.c - batch calls of a client of Mooncake's C interface.
 *
 * A batch call of the interface wants arrays of its own and distinct keys (of two equal ones only the last buffer would
 * be filled), and breaks a client for ever when it is much larger than 1,024. So a call here gathers the distinct keys
 * of its ops, passes them on in pieces, and gives every op the result of its key.
 *
 * A transfer that the library gave up may write for a minute more. No call ends before the buffers are left alone, and
 * only the end of the process makes sure of that: such a call ends it (EX_IOERR), and the runtime, which proves the
 * death, answers for it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "stores/mooncake.h"

/* A buffer from elsewhere (a tool's, a lane's bounce area) is registered for its call. */
static bool is_foreign(const fby_mooncake_client_t *client, const void *buffer, size_t bytes)
{
    uintptr_t at = (uintptr_t)buffer, base = (uintptr_t)client->base;
    return client->base == NULL || at < base || bytes > client->bytes || at - base > client->bytes - bytes;
}

/* ---- Batches ---- */

/* The distinct keys of a call, as the interface wants them. */
typedef struct batch {
    uint32_t count;     /* distinct keys */
    const char **names; /* what follows: `count` each */
    void **buffers;
    size_t *sizes;
    int64_t *results; /* >= 0, or Mooncake's code; `late` ones never get here */
    int *codes;       /* where the interface answers in ints */
    bool *foreign;    /* registered for this call */
    uint32_t *row;    /* of every op: its key's row, or FBY_NONE when the op was refused */
} batch_t;

static uint64_t key_hash(const char *key)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *key != '\0'; key++) {
        hash = (hash ^ (uint8_t)*key) * UINT64_C(0x100000001b3);
    }
    return hash ^ hash >> 32;
}

/* The row of a name: an earlier equal one's, or `fresh`, which then is in the table. */
static uint32_t find_row(const batch_t *batch, uint32_t *table, size_t mask, uint32_t fresh)
{
    size_t at = key_hash(batch->names[fresh]) & mask;
    while (table[at] != FBY_NONE && strcmp(batch->names[table[at]], batch->names[fresh]) != 0) {
        at = (at + 1) & mask;
    }
    if (table[at] == FBY_NONE) {
        table[at] = fresh;
    }
    return table[at];
}

/* Takes `bytes` of one allocation. All parts are multiples of 8. */
static void *cut(uint8_t **at, size_t bytes)
{
    void *part = *at;
    *at += fby_align_up(bytes, 8);
    return part;
}

/* One allocation for all of it. NULL: out of memory. The caller frees the return value. */
static void *batch_make(const fby_mooncake_client_t *client, const fby_store_op_t *ops, uint32_t n, bool moves,
                        batch_t *batch)
{
    size_t stride = client->prefix_length + FBY_KEY_BYTES + 1;
    size_t slots = (size_t)fby_pow2_ceil((uint64_t)n * 2);
    size_t each = sizeof(*batch->names) + sizeof(*batch->buffers) + sizeof(*batch->sizes) + sizeof(*batch->results) +
                  sizeof(*batch->codes) + sizeof(*batch->foreign) + sizeof(*batch->row) + stride;
    uint8_t *memory = malloc(each * n + slots * sizeof(uint32_t) + sizeof(uint64_t) * 9);
    if (memory == NULL) {
        return NULL;
    }
    uint8_t *at = memory;
    *batch = (batch_t){0};
    batch->names = cut(&at, sizeof(*batch->names) * n);
    batch->buffers = cut(&at, sizeof(*batch->buffers) * n);
    batch->sizes = cut(&at, sizeof(*batch->sizes) * n);
    batch->results = cut(&at, sizeof(*batch->results) * n);
    batch->codes = cut(&at, sizeof(*batch->codes) * n);
    batch->foreign = cut(&at, sizeof(*batch->foreign) * n);
    batch->row = cut(&at, sizeof(*batch->row) * n);
    uint32_t *table = cut(&at, sizeof(*table) * slots);
    memset(table, 0xff, sizeof(*table) * slots); /* FBY_NONE */
    char *name = (char *)at;
    for (uint32_t i = 0; i < n; i++) {
        const fby_store_op_t *op = &ops[i];
        /* A put without bytes would succeed and store nothing. */
        if (op->key[0] == '\0' || (moves && (op->bytes == 0 || op->buffer == NULL))) {
            batch->row[i] = FBY_NONE;
            continue;
        }
        memcpy(name, client->prefix, client->prefix_length);
        snprintf(name + client->prefix_length, FBY_KEY_BYTES + 1, "%.*s", FBY_KEY_BYTES, op->key);
        batch->names[batch->count] = name;
        batch->row[i] = find_row(batch, table, slots - 1, batch->count);
        if (batch->row[i] == batch->count) {
            batch->buffers[batch->count] = op->buffer;
            batch->sizes[batch->count] = op->bytes;
            batch->results[batch->count] = -1; /* what a call that answers nothing leaves behind */
            batch->codes[batch->count++] = -1;
            name += stride;
        }
    }
    return memory;
}

/* Registers what lies outside of the region. One that cannot be registered keeps its row; its transfer says what it
   thinks of that. */
static void register_foreign(fby_mooncake_client_t *client, batch_t *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        batch->foreign[i] = is_foreign(client, batch->buffers[i], batch->sizes[i]) &&
                            client->abi.register_buffer(client->store, batch->buffers[i], batch->sizes[i]) == 0;
    }
}

static void unregister_foreign(fby_mooncake_client_t *client, const batch_t *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        if (batch->foreign[i]) {
            client->abi.unregister_buffer(client->store, batch->buffers[i]);
        }
    }
}

static int64_t op_result(const batch_t *batch, uint32_t op)
{
    uint32_t row = batch->row[op];
    if (row == FBY_NONE) {
        return FBY_E_INVALID;
    }
    return batch->results[row] >= 0 ? batch->results[row] : fby_mooncake_result(batch->results[row]);
}

/* What a piece answers in ints, or the code of a call that failed as a whole. */
static void widen(const batch_t *batch, uint32_t from, uint32_t n, int code)
{
    for (uint32_t i = from; i < from + n; i++) {
        batch->results[i] = code != 0 ? FBY_MIN(code, -1) : batch->codes[i];
    }
}

int fby_mooncake_exists(fby_mooncake_client_t *client, fby_store_op_t *ops, uint32_t n)
{
    batch_t batch;
    void *memory = batch_make(client, ops, n, false, &batch);
    if (memory == NULL) {
        return -ENOMEM;
    }
    for (uint32_t at = 0; at < batch.count; at += FBY_MOONCAKE_BATCH) {
        uint32_t piece = FBY_MIN(batch.count - at, (uint32_t)FBY_MOONCAKE_BATCH);
        widen(&batch, at, piece, client->abi.batch_is_exist(client->store, batch.names + at, piece, batch.codes + at));
    }
    for (uint32_t i = 0; i < n; i++) {
        ops[i].result = op_result(&batch, i);
    }
    free(memory);
    return 0;
}

/* ---- Get, put ---- */

/* A put too: what it sends late comes from memory that holds something else by then, and goes where another object may
   have been put. */
static void end_if_late(const batch_t *batch, uint32_t from, uint32_t n, uint64_t began)
{
    uint64_t took = fby_clock_now(&fby_clock_monotonic) - began;
    for (uint32_t i = from; i < from + n; i++) {
        if (fby_mooncake_late(batch->results[i], took)) {
            fprintf(stderr,
                    "forebay: mooncake: the transfer of %s failed with %lld and may go on: this process ends, since "
                    "nothing else stops it\n",
                    batch->names[i], (long long)batch->results[i]);
            _exit(EX_IOERR);
        }
    }
}

/* The op that owns its key's row was read into; one with the same key gets a copy. */
static int64_t finish_get(const batch_t *batch, const fby_store_op_t *op, uint32_t index)
{
    enum { PARAMETERS = -600 };
    uint32_t row = batch->row[index];
    int64_t result = op_result(batch, index);
    if (result < 0) {
        /* With a key, a size and a registered buffer, what is left of its causes is that the object is longer. */
        return row != FBY_NONE && batch->results[row] == PARAMETERS ? FBY_E_SIZE : result;
    }
    if (result != (int64_t)op->bytes) {
        return FBY_E_SIZE;
    }
    const void *read = batch->buffers[row];
    if (op->buffer != read) {
        memcpy(op->buffer, read, op->bytes);
    }
    return result;
}

int fby_mooncake_get(fby_mooncake_client_t *client, fby_store_op_t *ops, uint32_t n)
{
    batch_t batch;
    void *memory = batch_make(client, ops, n, true, &batch);
    if (memory == NULL) {
        return -ENOMEM;
    }
    register_foreign(client, &batch);
    for (uint32_t at = 0; at < batch.count; at += FBY_MOONCAKE_BATCH) {
        uint32_t piece = FBY_MIN(batch.count - at, (uint32_t)FBY_MOONCAKE_BATCH);
        uint64_t began = fby_clock_now(&fby_clock_monotonic);
        int code = client->abi.batch_get_into(client->store, batch.names + at, batch.buffers + at, batch.sizes + at,
                                              piece, batch.results + at);
        for (uint32_t i = at; code != 0 && i < at + piece; i++) {
            batch.results[i] = FBY_MIN(code, -1);
        }
        end_if_late(&batch, at, piece, began);
    }
    unregister_foreign(client, &batch);
    for (uint32_t i = 0; i < n; i++) {
        ops[i].result = finish_get(&batch, &ops[i], i);
    }
    free(memory);
    return 0;
}

int fby_mooncake_put(fby_mooncake_client_t *client, fby_store_op_t *ops, uint32_t n)
{
    batch_t batch;
    void *memory = batch_make(client, ops, n, true, &batch);
    if (memory == NULL) {
        return -ENOMEM;
    }
    register_foreign(client, &batch);
    for (uint32_t at = 0; at < batch.count; at += FBY_MOONCAKE_BATCH) {
        uint32_t piece = FBY_MIN(batch.count - at, (uint32_t)FBY_MOONCAKE_BATCH);
        uint64_t began = fby_clock_now(&fby_clock_monotonic);
        widen(&batch, at, piece,
              client->abi.batch_put_from(client->store, batch.names + at, batch.buffers + at, batch.sizes + at, piece,
                                         &client->replication, batch.codes + at));
        end_if_late(&batch, at, piece, began);
    }
    unregister_foreign(client, &batch);
    for (uint32_t i = 0; i < n; i++) {
        int64_t result = op_result(&batch, i);
        ops[i].result = result < 0 ? result : (int64_t)ops[i].bytes;
    }
    free(memory);
    return 0;
}

/* ---- Remove ---- */

/* One by one: the interface has no batch of it. Forced: what is removed is damaged, was read just now to know that,
   and so has a lease. Another reader of it finds out by its checksum. */
int fby_mooncake_remove(fby_mooncake_client_t *client, fby_store_op_t *ops, uint32_t n)
{
    char name[FBY_MOONCAKE_PREFIX_MOST + FBY_KEY_BYTES + 1];
    for (uint32_t i = 0; i < n; i++) {
        if (ops[i].key[0] == '\0') {
            ops[i].result = FBY_E_INVALID;
            continue;
        }
        snprintf(name, sizeof(name), "%s%.*s", client->prefix, FBY_KEY_BYTES, ops[i].key);
        int code = client->abi.remove(client->store, name, 1);
        ops[i].result = code < 0 ? fby_mooncake_result(code) : 1;
    }
    return 0;
}
