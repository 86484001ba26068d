/*
 * cuda_copy.c - a batch as few device copies: blocks that follow each other in the pool and in the device go as one copy
 * with two pitches, and so do the rows of a block that stand alone.
 */
#include <errno.h>

#include "rank/cuda.h"

/* CU_DEVICE_ATTRIBUTE_MAX_PITCH of every device so far. */
#define MOST_PITCH UINT64_C(0x7FFFFFFF)

typedef struct rectangle {
    uint8_t *host;
    uint8_t *device;
    uint64_t width, height, host_pitch, device_pitch;
} rectangle_t;

static int copy_line(const fby_cu_library_t *library, uint8_t *host, uint8_t *device, uint64_t bytes, bool to_device,
                     fby_cu_stream_t stream)
{
    fby_cu_pointer_t pointer = (fby_cu_pointer_t)(uintptr_t)device;
    return to_device ? library->copy_to_device(pointer, host, bytes, stream)
                     : library->copy_to_host(host, pointer, bytes, stream);
}

static int copy_rectangle(const fby_cu_library_t *library, const rectangle_t *r, bool to_device, fby_cu_stream_t stream)
{
    fby_cu_copy2d_t copy = {.width = r->width, .height = r->height};
    if (to_device) {
        copy.src_type = FBY_CU_MEMORY_HOST;
        copy.src_host = r->host;
        copy.src_pitch = r->host_pitch;
        copy.dst_type = FBY_CU_MEMORY_DEVICE;
        copy.dst_device = (fby_cu_pointer_t)(uintptr_t)r->device;
        copy.dst_pitch = r->device_pitch;
    } else {
        copy.src_type = FBY_CU_MEMORY_DEVICE;
        copy.src_device = (fby_cu_pointer_t)(uintptr_t)r->device;
        copy.src_pitch = r->device_pitch;
        copy.dst_type = FBY_CU_MEMORY_HOST;
        copy.dst_host = r->host;
        copy.dst_pitch = r->host_pitch;
    }
    return library->copy_2d(&copy, stream);
}

/* Stops at the first call that fails; *queued counts up with each that does not. */
static int copy_lines(const fby_cu_library_t *library, const rectangle_t *r, bool to_device, fby_cu_stream_t stream,
                      bool *queued)
{
    int result = FBY_CU_SUCCESS;
    bool one_call = r->height > 1 && r->host_pitch <= MOST_PITCH && r->device_pitch <= MOST_PITCH;
    if (one_call) {
        result = copy_rectangle(library, r, to_device, stream);
        *queued = *queued || result == FBY_CU_SUCCESS;
        return result;
    }
    for (uint64_t i = 0; result == FBY_CU_SUCCESS && i < r->height; i++) {
        result = copy_line(library, r->host + i * r->host_pitch, r->device + i * r->device_pitch, r->width, to_device,
                           stream);
        *queued = *queued || result == FBY_CU_SUCCESS;
    }
    return result;
}

/* Blocks from i on that lie one behind the other on both sides, within one registered region. */
static uint64_t neighbours(const fby_device_t *device, const fby_copy_batch_t *batch, uint64_t i)
{
    uint64_t n = 1, end = fby_cuda_region_end(device, batch->place[i]);
    while (i + n < batch->blocks && batch->place[i + n] == batch->place[i] + n * batch->slot_bytes &&
           batch->device_block[i + n] == batch->device_block[i] + n && batch->place[i + n] < end) {
        n++;
    }
    return n;
}

int fby_cuda_queue(const fby_device_t *device, const fby_copy_batch_t *batch, fby_cu_stream_t stream, bool *queued,
                   char *error, size_t error_size)
{
    int result = FBY_CU_SUCCESS;
    for (uint64_t i = 0, n = 0; result == FBY_CU_SUCCESS && i < batch->blocks; i += n) {
        n = neighbours(device, batch, i);
        for (uint32_t k = 0; result == FBY_CU_SUCCESS && k < batch->unit[batch->units]; k++) {
            const fby_copy_run_t *run = &batch->run[k];
            bool alone = run->rows > 1;
            for (uint64_t at = i; result == FBY_CU_SUCCESS && at < i + (alone ? n : 1); at++) {
                const rectangle_t r = {
                    .host = device->base + batch->place[at] + run->slot_offset,
                    .device = run->device + batch->device_block[at] * run->block_stride,
                    .width = run->row_bytes,
                    .height = alone ? run->rows : n,
                    .host_pitch = alone ? run->row_bytes : batch->slot_bytes,
                    .device_pitch = alone ? run->row_stride : run->block_stride,
                };
                result = copy_lines(&device->library, &r, batch->to_device != 0, stream, queued);
            }
        }
    }
    return fby_cu_code(&device->library, result, "copy", error, error_size);
}
