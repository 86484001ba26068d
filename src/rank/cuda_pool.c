/* cuda_pool.c - the pool as pinned memory of a device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rank/cuda.h"

/* A registration pins all its pages in one call; large pools are split, so that one failure says how far it came. */
#define REGION_BYTES (UINT64_C(1) << 30)

static uint64_t greatest_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint64_t fby_cuda_region_cut(const fby_pool_t *pool, uint64_t from, uint64_t most, uint64_t page)
{
    uint64_t best = from, least = pool->bytes;
    if (most >= pool->bytes) {
        return pool->bytes;
    }
    for (uint32_t g = 0; g < pool->groups; g++) {
        uint64_t slot = pool->group[g].slot_bytes, at = pool->group[g].offset;
        uint64_t end = at + slot * pool->group[g].slots, step = page / greatest_divisor(slot, page) * slot;
        while (at < end && at % page != 0) { /* within one step, or never */
            at = at - pool->group[g].offset >= step ? end : at + slot;
        }
        if (at >= end) {
            continue;
        }
        uint64_t last = at + (end - slot - at) / step * step;
        if (at <= most) {
            best = FBY_MAX(best, at + (FBY_MIN(most, last) - at) / step * step);
        }
        uint64_t next = at > from ? at : at + ((from - at) / step + 1) * step;
        least = next <= last ? FBY_MIN(least, next) : least;
    }
    return best > from ? best : least;
}

static uint32_t count_regions(const fby_pool_t *pool, uint64_t page)
{
    uint32_t n = 0;
    for (uint64_t at = 0; at < pool->bytes; n++) {
        at = fby_cuda_region_cut(pool, at, at + REGION_BYTES, page);
    }
    return n;
}

int fby_cuda_pool_register(fby_device_t *device, const fby_pool_t *pool, char *error, size_t error_size)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = 0;
    uint32_t regions = count_regions(pool, page);
    device->region = calloc((size_t)regions + 1, sizeof(*device->region));
    if (device->region == NULL) {
        return -ENOMEM;
    }
    while (at < pool->bytes) {
        uint64_t end = fby_cuda_region_cut(pool, at, at + REGION_BYTES, page);
        int result =
            device->library.host_register(device->base + at, (size_t)(end - at), FBY_CU_HOST_REGISTER_PORTABLE);
        if (result != FBY_CU_SUCCESS) {
            int rc = fby_cu_code(&device->library, result, "cuMemHostRegister", error, error_size);
            (void)fby_cuda_pool_unregister(device);
            return rc;
        }
        device->region[device->regions++] = at;
        device->region[device->regions] = at = end;
    }
    return 0;
}

int fby_cuda_pool_unregister(fby_device_t *device)
{
    int rc = 0;
    while (device->regions > 0) {
        device->regions--;
        if (device->library.host_unregister(device->base + device->region[device->regions]) != FBY_CU_SUCCESS) {
            rc = -EIO;
        }
    }
    free(device->region);
    device->region = NULL;
    return rc;
}

uint64_t fby_cuda_region_end(const fby_device_t *device, uint64_t place)
{
    uint32_t low = 0, high = device->regions;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (device->region[middle] <= place) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return device->region[low + 1];
}
