/* cuda.h - one opened CUDA device. */
#ifndef FBY_RANK_CUDA_H
#define FBY_RANK_CUDA_H

#include "base/base.h"
#include "forebay/device.h"
#include "rank/cuda_library.h"

/* Loads do not wait behind saves. */
enum { FBY_CUDA_LOADS, FBY_CUDA_SAVES, FBY_CUDA_STREAMS };

struct fby_device {
    fby_cu_library_t library;
    fby_cu_device_t ordinal;
    fby_cu_context_t context;
    fby_cu_stream_t stream[FBY_CUDA_STREAMS];
    int event_fd;
    uint8_t *base;
    uint64_t *region; /* regions + 1 places: where each registration begins, then the pool's end */
    uint32_t regions;
};

/* Registers the pool with the device in regions that begin at a slot and a page, so that no slot lies in two. */
int fby_cuda_pool_register(fby_device_t *device, const fby_pool_t *pool, char *error, size_t error_size);
/* 0, or a code when a region could not be let go. */
int fby_cuda_pool_unregister(fby_device_t *device);
/* End of the region in which a place lies. */
uint64_t fby_cuda_region_end(const fby_device_t *device, uint64_t place);
/* Where the next region begins after one that begins at `from` and should end at `most` at the latest: the pool's end, or
   a place that begins a slot and a page; beyond `most` only when there is none before. */
uint64_t fby_cuda_region_cut(const fby_pool_t *pool, uint64_t from, uint64_t most, uint64_t page);

/* cuda_copy.c: queues the copies of a batch on a stream; *queued says whether any went out. */
int fby_cuda_queue(const fby_device_t *device, const fby_copy_batch_t *batch, fby_cu_stream_t stream, bool *queued,
                   char *error, size_t error_size);

#endif
