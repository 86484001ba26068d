/*
 * device.h - the contract between ranks and device memory: what a pool looks like from outside, how an engine's KV
 * tensors lie, and what a device back end must do.
 *
 * WORDS
 *   A *slot* holds one block of one group for all ranks: payload, then a trailer. A rank's part of the payload is its
 *   *shard*: contiguous bytes, the pieces of its layers one behind the other. A *place* is where a slot begins, in bytes
 *   from the start of the pool: the same number in every process, while addresses differ.
 *   A *device* is whatever the engine computes on; with back end `host` its memory is this process's own.
 *
 * Everything here is bytes. Structs with a `size` member follow forebay.h.
 */
#ifndef FOREBAY_DEVICE_H
#define FOREBAY_DEVICE_H

#include "forebay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Pool ------------------------------------------------------------------------------------------------------- */

/** A pool as another process needs it. `descriptor` is passed by SCM_RIGHTS or fork(); all else is plain data. */
typedef struct fby_pool {
    uint32_t size;
    int32_t descriptor; /**< memfd, sealed against shrinking */
    uint64_t bytes;     /**< of the mapping */
    uint32_t groups;
    uint32_t reserved0;
    struct {
        uint32_t slot_bytes;    /**< from one slot to the next */
        uint32_t payload_bytes; /**< the trailer lies behind it */
        uint32_t first;         /**< number of the group's first slot; slots are counted through all groups */
        uint32_t slots;
        uint64_t offset; /**< place of the group's first slot */
    } group[FBY_MAX_GROUPS];
    uint8_t fingerprint[16]; /**< digest of the model: what a trailer must hold */
} fby_pool_t;

/** "no slot there", among places. */
#define FBY_NO_PLACE UINT64_MAX

/* ---- Layouts ---------------------------------------------------------------------------------------------------- */

/*
 * X(name, text): how the tensors of one group lie. A block of a tensor is `rows` rows of `row_bytes`; a row is what is
 * always contiguous (the bytes of one token, or the whole block when its bytes are opaque). docs/ranks.md shows engines.
 */
#define FBY_LAYOUT_MAP(X)                                                                                              \
    X(SPLIT, "split")             /* K and V apart: tensors[0..layers) are K, tensors[layers..2*layers) are V */       \
    X(PACKED, "packed")           /* one tensor per layer that holds K and V; which is which is not our business */    \
    X(MLA, "mla")                 /* one tensor per layer, one latent per token, the same bytes on all ranks */        \
    X(BLOCK_FIRST, "block_first") /* one tensor with all layers, layer_stride apart */

typedef enum fby_layout_kind {
#define FBY_X(name, text) FBY_LAYOUT_##name,
    FBY_LAYOUT_MAP(FBY_X)
#undef FBY_X
        FBY_LAYOUT_COUNT
} fby_layout_kind_t;

typedef struct fby_tensor {
    void *base;            /**< address of row 0 of block 0 (block_first: of layer 0); a device pointer with `cuda` */
    uint64_t bytes;        /**< what may be touched from `base` on */
    uint64_t block_stride; /**< from block to block; 0: blocks lie close together */
    uint64_t row_stride;   /**< from row to row; 0: row_bytes */
} fby_tensor_t;

/** Read during the call only. In the shard the order is layer by layer, and in a layer K before V. */
typedef struct fby_layout {
    uint32_t size;
    uint32_t kind;    /**< fby_layout_kind_t */
    uint32_t layers;  /**< of this rank: with pipeline parallelism its own; 1 to 65536 */
    uint32_t tensors; /**< entries of `tensor`: 2 * layers (split), layers (packed, mla), 1 (block_first) */
    const fby_tensor_t *tensor;
    uint64_t blocks;       /**< blocks in each tensor */
    uint64_t row_bytes;    /**< with tensor parallelism those of this rank's heads */
    uint64_t layer_stride; /**< block_first: from layer to layer; 0: rows lie close together. Others: 0 */
    uint32_t rows;         /**< rows per block and piece */
    uint32_t reserved0;
} fby_layout_t;

/** "split", ...; "unknown" outside the table. Never NULL; static storage. */
const char *fby_layout_name(fby_layout_kind_t kind);

/* ---- Back ends -------------------------------------------------------------------------------------------------- */

/** Version of fby_device_driver_t. */
#define FBY_DEVICE_ABI 1

/** One strided copy per block, made when a layout is registered. In the slot its rows lie close together. */
typedef struct fby_copy_run {
    uint64_t slot_offset; /**< from the slot's start */
    uint8_t *device;      /**< address in device block 0 */
    uint64_t block_stride;
    uint64_t row_bytes;
    uint64_t row_stride;
    uint64_t rows;
} fby_copy_run_t;

/** One load or save: every run of the plan, for every block. Valid during start() only. */
typedef struct fby_copy_batch {
    uint32_t size;
    uint32_t to_device; /**< 1: load, slot to device; 0: save */
    const fby_copy_run_t *run;
    const uint32_t *unit; /**< units + 1 entries: unit u is the runs [unit[u], unit[u + 1]), one checksum segment */
    uint32_t units;
    uint32_t slot_bytes;          /**< from slot to slot of this group */
    uint64_t blocks;              /**< above 0 */
    const uint64_t *place;        /**< per block: of the slot in the pool */
    const uint64_t *device_block; /**< per block: below the layout's blocks */
    uint64_t *sums;               /**< [blocks][units], filled with XXH3-64 of each unit; NULL: not asked for */
    void *after;                  /**< a device event to begin behind, in the back end's terms; NULL: none */
} fby_copy_batch_t;

/** How a back end is opened. */
typedef struct fby_device_options {
    uint32_t size;
    uint32_t threads;    /**< host: that many copy at once, the caller included; 0 and 1: no thread is made */
    uint32_t ordinal;    /**< cuda: which device */
    int32_t event_fd;    /**< an eventfd that the back end adds 1 to whenever an asynchronous operation ended; -1 */
    const char *library; /**< cuda: path of the driver library; NULL: libcuda.so.1 */
    const void *reserved0;
} fby_device_options_t;

typedef struct fby_device fby_device_t;       /**< the back end's own */
typedef struct fby_operation fby_operation_t; /**< one asynchronous batch; the back end's own */

/** All calls on one device come one at a time. An `error` text names thing, value and what is accepted. */
typedef struct fby_device_driver {
    uint32_t abi;  /**< FBY_DEVICE_ABI */
    uint32_t size; /**< sizeof(fby_device_driver_t) */
    const char *name;
    uint32_t
        sums; /**< 1: fills batch->sums in the pass that copies, and start never returns an operation; 0: never asked */
    uint32_t reserved0;
    /** `base` is where the pool is mapped; it stays until close. */
    int (*open)(const fby_device_options_t *options, const fby_pool_t *pool, void *base, fby_device_t **out,
                char *error, size_t error_size);
    /** No operation is under way. Negative: the pool could not be let go and must stay mapped. */
    int (*close)(fby_device_t *device);
    /** May [address, address + bytes) be copied from and to? 0 or a code. */
    int (*check)(fby_device_t *device, const void *address, uint64_t bytes, char *error, size_t error_size);
    /** 0 with *out NULL: all is copied. 0 with *out set: ask poll. Negative: it ended so, and nothing is touched any
        more. A batch that failed half-way with copies under way is an operation whose poll says so when they ended. */
    int (*start)(fby_device_t *device, const fby_copy_batch_t *batch, fby_operation_t **out, char *error,
                 size_t error_size);
    /** -EAGAIN: under way. Else how it ended, and the operation is freed. *settled 0: it failed, and the device cannot
        say whether it still writes. Never waits. NULL when start never returns an operation. */
    int (*poll)(fby_device_t *device, fby_operation_t *operation, int *settled, char *error, size_t error_size);
} fby_device_driver_t;

#ifdef __cplusplus
}
#endif
#endif
