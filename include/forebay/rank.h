/*
 * rank.h - the contract for the processes that compute: a rank maps the pool of a cache and copies between slots and its
 * own device memory.
 *
 *        fby_cache_pool -> (descriptor and struct to the rank's process) -> fby_rank_attach -> fby_rank_register
 *        fby_hold_places -> (places to the ranks) -> fby_rank_load  -> fby_rank_poll -> fby_hold_release
 *        fby_put_places  -> (places to the ranks) -> fby_rank_save  -> fby_rank_poll -> fby_put_commit
 *
 * A rank decides nothing. Which blocks, and that a hold or put protects them until the last rank is done, is the
 * caller's business: give the hold one reader per rank.
 *
 * ERRORS      as in forebay.h. What is wrong with a layout or a list is refused before a byte is copied, and
 *             fby_last_error() names the field, its value, and what is accepted.
 * THREADS     every call may be made from any thread; copies of one rank are started one after the other. A child of
 *             fork() gets FBY_E_FORKED and attaches for itself.
 * BLOCKING    back end `host` copies inside fby_rank_load and _save; back end `cuda` queues there and copies later.
 */
#ifndef FOREBAY_RANK_H
#define FOREBAY_RANK_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- In the process of the cache -------------------------------------------------------------------------------- */

/** The pool for fby_rank_attach. Set pool->size first. pool->descriptor is a new one (close-on-exec), the caller's to
    close. -errno. */
int fby_cache_pool(fby_cache_t *cache, fby_pool_t *pool);
/** Places of the blocks [from, to) of a hold: fby_hold_slots, in numbers that other processes understand. FBY_NO_PLACE
    where that gives NULL. Valid and errors as there, and -ENOMEM. */
int fby_hold_places(fby_cache_t *cache, fby_hold_t hold, uint32_t group, uint64_t from, uint64_t to, uint64_t *out);
/** The same for fby_put_slots. */
int fby_put_places(fby_cache_t *cache, fby_put_t put, uint32_t group, uint64_t from, uint64_t to, uint64_t *out);

/* ---- Attach ----------------------------------------------------------------------------------------------------- */

typedef struct fby_rank fby_rank_t;

typedef struct fby_rank_config {
    uint32_t size;
    uint32_t rank;                     /**< 0 to ranks - 1 */
    uint32_t ranks;                    /**< that share the slots, 1 to 65536 */
    uint32_t threads;                  /**< host: that many copy at once, the caller included; 0: 1. At most 256 */
    const char *device;                /**< "host" or "cuda"; NULL: "host" */
    const fby_device_driver_t *driver; /**< a back end of the caller's, instead of `device`; outlives the rank */
    const char *library;               /**< cuda: path of the driver library; NULL: libcuda.so.1 */
    uint32_t ordinal;                  /**< cuda: which device */
    uint32_t reserved0;
} fby_rank_config_t;

/** Maps the pool in this process and opens the back end. The mapping is not inherited by children of fork(). The
    descriptor is only looked at: the caller may close it afterwards. *Blocks* while a device takes the pool (cuda
    registers all of it). The caller ends it with fby_rank_detach.
    Errors: -EINVAL (config or pool: which field), -EBADF (not a descriptor), FBY_E_FORMAT (the descriptor is not that
    pool: wrong length, or it may shrink), -ENODEV (no driver library, no such device), -ENOSYS (a driver without a call
    that is needed), -ENOMEM, -errno. */
int fby_rank_attach(const fby_pool_t *pool, const fby_rank_config_t *config, fby_rank_t **out);
/** The same within the process of the cache, which must outlive the rank. */
int fby_rank_attach_cache(fby_cache_t *cache, const fby_rank_config_t *config, fby_rank_t **out);
/** Waits at most limit_s for what is under way (*blocks*; negative: for ever), unmaps, frees; handles of copies are stale.
    Not while another thread uses the rank. NULL is fine. FBY_E_ABANDONED: copies did not end, or the device cannot say
    whether they did, so the mapping stays until the process ends. FBY_E_FORKED: nothing was done, and nothing is mapped
    here. */
int fby_rank_detach(fby_rank_t *rank, double limit_s);

/** What of a group's slots is this rank's. */
typedef struct fby_shard {
    uint32_t size;
    uint32_t group;
    uint64_t offset; /**< of the shard in the payload */
    uint64_t bytes;  /**< all layers of this rank; layout mla: the whole payload */
    /** Cuts the shard for checksums as the object's trailer does the payload: this rank's piece of one layer, or any
        other number that divides `offset` and does not cut a row that stands alone. 0: no sums come from copies. */
    uint32_t segment_bytes;
    uint32_t reserved0;
} fby_shard_t;

/** Compiles the layout of one group into the plan that every copy of the group follows. Once per group and rank; checks
    all of it: nulls, sizes, strides, tensors that overlap, memory that the device does not know. Copies what it needs.
    Errors: -EINVAL (which field), -EEXIST (the group has one), -EFAULT (an address that is not the device's), -ENOMEM. */
int fby_rank_register(fby_rank_t *rank, const fby_shard_t *shard, const fby_layout_t *layout);
/** Checksum segments per block of this rank; 0 with segment_bytes 0. -EINVAL: the group has no layout. */
int fby_rank_segments(fby_rank_t *rank, uint32_t group, uint64_t *out);

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

typedef uint64_t fby_copy_t; /**< 0 is never a handle */

enum {
    /** load: the whole payload is checked against the trailer's checksum, this rank's part in the pass that copies where
        its segments are the trailer's, all else by reading it. A block without a checksum passes. */
    FBY_COPY_VERIFY = 1
};

typedef struct fby_copy_list {
    uint32_t size;
    uint32_t group;
    uint32_t flags; /**< FBY_COPY_VERIFY, or 0 */
    uint32_t reserved0;
    uint64_t blocks;              /**< 0 is fine */
    const uint64_t *place;        /**< per block; none may be FBY_NO_PLACE, and none twice in a save */
    const uint64_t *device_block; /**< per block, below the layout's blocks; none twice in a load */
    /** [blocks][segments] or NULL: XXH3-64 of each segment of this rank's shard, for whoever folds those of all ranks
        (docs/object-format.md). Complete when the copy ended well. Must stay until it ended. */
    uint64_t *sums;
    /** [blocks] or NULL: 0, or why this block must not be used. Must stay until the copy ended. */
    int32_t *results;
    /** cuda: a CUevent of the engine's to begin behind (load: the blocks' former use; save: what computes them). NULL. */
    void *after;
} fby_copy_list_t;

typedef struct fby_copy_status {
    uint32_t size;
    int32_t error;          /**< 0, or how it failed */
    uint64_t blocks_failed; /**< not to be used; after an error of the device that is all of them */
    uint64_t bytes;         /**< copied for blocks that did not fail */
    /** 0: the copy failed, and the device cannot say whether it still touches slots and tensors: keep both until the
        process ended. Every later copy of the rank fails at once. */
    uint32_t settled;
    uint32_t reserved0;
} fby_copy_status_t;

/** Copies slots to device blocks. Lists are read during the call only. With out NULL it *blocks* until the copy ended and
    returns how; else *out is to be polled to its end. A block that fails its check has been written in the device: its
    bytes there mean nothing.
    Errors: -EINVAL (list: which field; nothing copied), -EBUSY (1,024 copies not polled to their end), -ENOMEM, and how a
    copy can end: FBY_E_CHECKSUM (at least one block is not what its trailer says), -EIO or a more special -errno (the device failed). */
int fby_rank_load(fby_rank_t *rank, const fby_copy_list_t *list, fby_copy_t *out);
/** Copies device blocks to slots of a put, before its commit. As load, but FBY_COPY_VERIFY is not accepted. With layout
    mla rank 0 copies for all; on other ranks it succeeds without touching anything, and sums are 0. */
int fby_rank_save(fby_rank_t *rank, const fby_copy_list_t *list, fby_copy_t *out);
/** -EAGAIN while the copy is under way; else 0 with *status filled (set status->size first), once: the handle is stale
    then. After that nothing of the copy touches slot, device block or list, unless settled is 0. Never waits, but
    reads the slots when a save over `cuda` was asked for sums. FBY_E_STALE. */
int fby_rank_poll(fby_rank_t *rank, fby_copy_t copy, fby_copy_status_t *status);
/** *Blocks* until the copy ended or timeout_s passed (negative: for ever): then as poll, or -ETIMEDOUT, which stops
    nothing. status may be NULL: the answer is then the copy's error or 0. */
int fby_rank_wait(fby_rank_t *rank, fby_copy_t copy, double timeout_s, fby_copy_status_t *status);
/** An eventfd that becomes readable when a copy may have ended: read it, then poll the copies. The rank's own: not to be
    closed. A device that breaks may not signal it, so poll once in a while too. */
int fby_rank_event_fd(fby_rank_t *rank);

#ifdef __cplusplus
}
#endif
#endif
