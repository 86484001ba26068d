/*
 * store.h - the contract for authors of store drivers.
 *
 * A driver is one table of functions over one opened store. The runtime calls it from a lane; what a lane may assume is
 * said by the driver's capabilities. A batch call gives one result per key: a batch is never all-or-nothing.
 *
 * RESULTS
 *   >= 0: bytes moved (get, put) or 1/0 (exists: present / absent). < 0: one of FBY_E_MISSING .. FBY_E_INVALID.
 *   A get that returns anything but the expected byte count is a failed block.
 *
 * MEMORY
 *   Buffers belong to the caller. A driver writes into a get buffer only between the call and the call's end; with
 *   `async` between submit and completion. After that it must never touch the buffer: this is what a fence proves.
 *
 * THREADS
 *   Calls of one handle may come from several lanes at once unless max_concurrency is 1.
 */
#ifndef FOREBAY_STORE_H
#define FOREBAY_STORE_H

#include "forebay.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Version of fby_store_driver_t. A plug-in exports `const fby_store_driver_t *fby_store_driver_1(void)`. */
#define FBY_STORE_ABI 1
#define FBY_STORE_ENTRY "fby_store_driver_1"

#define FBY_KEY_BYTES 40 /**< capacity of a key: 32 hex digits, '-', group digit(s), NUL */

/** What a driver needs to know of the objects it will hold. */
typedef struct fby_store_spec {
    uint32_t size;
    uint32_t groups;
    uint32_t object_bytes[FBY_MAX_GROUPS]; /**< payload + 64-byte trailer */
    uint32_t slot_bytes[FBY_MAX_GROUPS];   /**< capacity of a buffer; multiple of the alignment */
    uint32_t alignment;                    /**< of buffers, for direct I/O */
    uint8_t fingerprint[16];
    uint64_t epoch; /**< weights epoch; a persistent store keeps the highest and refuses a lower one */
} fby_store_spec_t;

typedef struct fby_store_caps {
    uint32_t size;
    uint32_t zero_copy : 1;       /**< reads straight into registered memory */
    uint32_t async : 1;           /**< has submit/reap; else calls block */
    uint32_t cancellable : 1;     /**< cancel() ends an operation early, then it completes */
    uint32_t overwrite : 1;       /**< put replaces an existing object */
    uint32_t needs_isolation : 1; /**< agent host only */
    uint32_t persistent : 1;
    uint32_t read_after_write : 1; /**< a put that returned is visible to exists and get at once */
    uint32_t one_process : 1;      /**< what one opened store holds, another process does not see: one agent for all */
    uint32_t io_uring : 1;         /**< its calls use io_uring: an agent's filter must allow that */
    uint32_t max_batch;            /**< keys per call */
    uint32_t max_concurrency;      /**< calls at once over all lanes; 0: no limit */
    uint64_t preferred_bytes;      /**< object size from which it is fast; 0: any */
    uint64_t probe_lease_ns;       /**< exists() protects an object for that long; 0: no lease */
    uint32_t read_lanes;           /**< reads at once that are worth their threads; 0: no opinion */
    uint32_t reserved0;
} fby_store_caps_t;

/** One key of a batch. */
typedef struct fby_store_op {
    char key[FBY_KEY_BYTES];
    void *buffer;   /**< get: filled; put: source. NULL for exists, remove */
    uint32_t bytes; /**< expected length of the object */
    uint32_t group;
    int64_t result; /**< written by the driver */
} fby_store_op_t;

typedef struct fby_store fby_store_t; /**< the driver's own */

/** Iteration over what a store holds, for `forebay store`. Return non-zero to stop. */
typedef int fby_store_visit_fn(void *arg, const char *key, uint32_t bytes, const void *trailer64);

typedef struct fby_store_driver {
    uint32_t abi;  /**< FBY_STORE_ABI */
    uint32_t size; /**< sizeof(fby_store_driver_t) */
    const char *name;
    /** Options are "key=value" strings, NULL-terminated. On failure writes a message that names option, value and what
        is accepted. */
    int (*open)(const fby_store_spec_t *spec, const char *const *options, fby_store_t **out, char *error,
                size_t error_size);
    void (*close)(fby_store_t *store);
    void (*capabilities)(fby_store_t *store, fby_store_caps_t *caps);
    int (*register_region)(fby_store_t *store, void *base, size_t bytes);
    int (*unregister_region)(fby_store_t *store, void *base);
    /** Each fills op->result and returns 0, or a negative code that stands for every op of the batch. */
    int (*exists)(fby_store_t *store, fby_store_op_t *ops, uint32_t n);
    int (*get)(fby_store_t *store, fby_store_op_t *ops, uint32_t n);
    int (*put)(fby_store_t *store, fby_store_op_t *ops, uint32_t n);
    int (*remove)(fby_store_t *store, fby_store_op_t *ops, uint32_t n);
    /** 0 when usable, else a code. Writes a short text. */
    int (*health)(fby_store_t *store, char *text, size_t text_size);

    /* Optional (NULL): native asynchronous operation, needed for host `inline`. */
    /** Starts a batch (ops stay valid until its completion). tag comes back from reap. -EAGAIN: full, nothing started. */
    int (*submit)(fby_store_t *store, int write, fby_store_op_t *ops, uint32_t n, uint64_t tag);
    /** Collects finished tags; returns how many. wait_ns < 0 waits until one is there or wake() is called. */
    int (*reap)(fby_store_t *store, uint64_t *tags, uint32_t max, int64_t wait_ns);
    /** Asks a submitted batch to end early; it still completes through reap, exactly once. */
    int (*cancel)(fby_store_t *store, uint64_t tag);
    /** Interrupts a waiting reap, or the next one when none waits; any thread. */
    void (*wake)(fby_store_t *store);
    /* Optional: tools. */
    int (*visit)(fby_store_t *store, fby_store_visit_fn *visit, void *arg);
    /** Drops dead space and unreadable objects; reports what it did in text. */
    int (*gc)(fby_store_t *store, uint64_t *freed_bytes, char *text, size_t text_size);
    /** Optional: the weights epoch was raised while the store is open. A persistent store makes it durable before it
        returns. FBY_E_STALE: the store knows a higher one. */
    int (*raise_epoch)(fby_store_t *store, uint64_t epoch);
} fby_store_driver_t;

#ifdef __cplusplus
}
#endif
#endif
