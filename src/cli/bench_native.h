/*
 * bench_native.h - the same reads through the store's own client, without Forebay: what an arm is compared with.
 *
 * A client reads a whole prompt with the store's batch call into a buffer of the worker that asks, nothing else: no
 * lookup first, no checksum, no index. One file per kind of client; bench_native.c has the table.
 */
#ifndef FBY_CLI_BENCH_NATIVE_H
#define FBY_CLI_BENCH_NATIVE_H

#include "cli/bench_set.h"
#include "cli/store_text.h"

typedef struct fby_bench_native fby_bench_native_t;

typedef struct fby_bench_client {
    const char *what; /* for people: which calls are measured */
    /* Starts it; `own` of the native is the client's to set. Codes with the detail set. */
    int (*open)(fby_bench_native_t *native);
    /* Reads a prompt into the worker's buffer. One call per worker at a time. *ns: how long it took, as the client saw
       it. */
    int (*read)(fby_bench_native_t *native, uint32_t worker, uint32_t prompt, uint64_t *ns);
    /* Also after an open that failed. */
    void (*close)(fby_bench_native_t *native);
} fby_bench_client_t;

struct fby_bench_native {
    const fby_bench_client_t *client; /* NULL: not open */
    const fby_bench_set_t *set;
    const fby_store_text_t *store;
    const char *command; /* --native, or NULL */
    uint32_t workers;
    int memory_fd;   /* -1: none */
    uint8_t *memory; /* workers x blocks x slot_bytes, faulted in */
    size_t memory_bytes;
    void *own;
};

extern const fby_bench_client_t fby_bench_client_driver, fby_bench_client_redis, fby_bench_client_program;

/* The client for this store, opened. Close in every case. */
int fby_bench_native_open(const fby_bench_set_t *set, const fby_store_text_t *store, const char *command,
                          uint32_t workers, fby_bench_native_t *native);
void fby_bench_native_close(fby_bench_native_t *native);
/* Reads a prompt and checks what came. blocks: room for its addresses, the caller's. */
int fby_bench_native_read(fby_bench_native_t *native, uint32_t worker, uint32_t prompt, bool checks_all, void **blocks,
                          uint64_t *ns, uint64_t *wrong_blocks);

static inline uint8_t *fby_bench_native_block(const fby_bench_native_t *native, uint32_t worker, uint64_t block)
{
    return native->memory + ((size_t)worker * native->set->blocks + block) * native->set->slot_bytes;
}

static inline const char *fby_bench_native_key(const fby_bench_native_t *native, uint32_t prompt, uint64_t block)
{
    return native->set->keys[(size_t)prompt * native->set->blocks + block];
}

/* The value of an option of the store's text, or `otherwise`. */
const char *fby_bench_native_option(const fby_bench_native_t *native, const char *name, const char *otherwise);
/* Sets the detail: client, key and what came instead of the object. Returns `status`. */
int fby_bench_native_fault(const fby_bench_native_t *native, uint32_t prompt, uint64_t block, const char *what,
                           int status);

#endif
