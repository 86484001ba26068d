/*
 * stream.h - copies that leave the caches alone: the destination is memory that this core will not read again soon.
 *
 * A copy larger than the caches that is stored normally reads each destination line first and throws out what others
 * need. Short rows are stored normally: for them the fences and partial lines cost more than that.
 */
#ifndef FBY_RANK_STREAM_H
#define FBY_RANK_STREAM_H

#include "base/base.h"
#include "forebay/device.h"

typedef void fby_stream_fn(void *to, const void *from, size_t bytes);

typedef struct fby_stream_kernel {
    const char *name;
    fby_stream_fn *copy; /* stores are visible to others after fby_stream_end */
    bool usable;
} fby_stream_kernel_t;

/* The kernels of this build, best first; the last is portable and always usable. */
const fby_stream_kernel_t *fby_stream_kernels(size_t *n);
/* The best one. */
fby_stream_fn *fby_stream_best(void);
/* Makes streamed stores visible, before others are told that the copy ended. */
void fby_stream_end(void);

/* Copies one unit of a batch between a slot and a device block; *sum gets its XXH3-64 in the same pass (NULL: none). */
void fby_stream_unit(fby_stream_fn *copy, const fby_copy_run_t *run, uint32_t runs, uint8_t *slot,
                     uint64_t device_block, bool to_device, uint64_t *sum);

#endif
