/*
 * host.c - the host back end: device memory is memory of this process.
 *
 * A batch is blocks * units items. Whoever copies (the caller, and with threads > 1 the helpers) takes the next few items
 * by one atomic add, so that a slow thread delays nobody; the caller leaves when the last helper has.
 *
 * INVARIANT  batch, items and base are written under the lock while no helper is inside, and constant while one is.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "rank/backends.h"
#include "rank/stream.h"

enum { MOST_THREADS = 256, GRAIN_BYTES = 128 << 10 };

struct fby_device {
    uint8_t *base;
    fby_stream_fn *copy;
    const fby_copy_batch_t *batch;
    uint64_t items, grain;
    _Atomic uint64_t next;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t work, done;
    uint64_t round;   /* counted up with each batch that wants helpers */
    uint32_t working; /* helpers that have not left this round */
    bool stop;
    uint32_t helpers;
    pthread_t helper[];
};

static void copy_items(fby_device_t *device)
{
    const fby_copy_batch_t *batch = device->batch;
    for (;;) {
        uint64_t item = atomic_fetch_add_explicit(&device->next, device->grain, memory_order_relaxed);
        if (item >= device->items) {
            break;
        }
        uint64_t end = FBY_MIN(device->items, item + device->grain);
        for (; item < end; item++) {
            uint64_t block = item / batch->units, unit = item % batch->units;
            fby_stream_unit(device->copy, batch->run + batch->unit[unit], batch->unit[unit + 1] - batch->unit[unit],
                            device->base + batch->place[block], batch->device_block[block], batch->to_device != 0,
                            batch->sums != NULL ? &batch->sums[item] : NULL);
        }
    }
    fby_stream_end();
}

static void *helper_main(void *arg)
{
    fby_device_t *device = arg;
    uint64_t seen = 0;
    pthread_mutex_lock(&device->lock);
    for (;;) {
        while (!device->stop && device->round == seen) {
            pthread_cond_wait(&device->work, &device->lock);
        }
        if (device->stop) {
            break;
        }
        seen = device->round;
        pthread_mutex_unlock(&device->lock);
        copy_items(device);
        pthread_mutex_lock(&device->lock);
        if (--device->working == 0) {
            pthread_cond_signal(&device->done);
        }
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

/* ---- Open, close ------------------------------------------------------------------------------------------------ */

static int host_close(fby_device_t *device)
{
    pthread_mutex_lock(&device->lock);
    device->stop = true;
    pthread_cond_broadcast(&device->work);
    pthread_mutex_unlock(&device->lock);
    for (uint32_t i = 0; i < device->helpers; i++) {
        pthread_join(device->helper[i], NULL);
    }
    pthread_cond_destroy(&device->done);
    pthread_cond_destroy(&device->work);
    pthread_mutex_destroy(&device->lock);
    free(device);
    return 0;
}

/* Helpers take no signals: those are the engine's. */
static int make_helpers(fby_device_t *device, uint32_t helpers)
{
    sigset_t all, before;
    int rc = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (rc == 0 && device->helpers < helpers) {
        rc = pthread_create(&device->helper[device->helpers], NULL, helper_main, device);
        device->helpers += rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

static int host_open(const fby_device_options_t *options, const fby_pool_t *pool, void *base, fby_device_t **out,
                     char *error, size_t error_size)
{
    uint32_t helpers = options->threads > 1 ? options->threads - 1 : 0;
    if (helpers >= MOST_THREADS) {
        snprintf(error, error_size, "threads is %u; accepted: 0 to %d", options->threads, MOST_THREADS);
        return -EINVAL;
    }
    fby_device_t *device = calloc(1, sizeof(*device) + helpers * sizeof(pthread_t));
    if (device == NULL) {
        return -ENOMEM;
    }
    device->base = base;
    device->copy = fby_stream_best();
    pthread_mutex_init(&device->lock, NULL);
    pthread_cond_init(&device->work, NULL);
    pthread_cond_init(&device->done, NULL);
    int rc = make_helpers(device, helpers);
    if (rc != 0) {
        snprintf(error, error_size, "threads is %u: %s", options->threads, fby_strerror(rc));
        host_close(device);
        return rc;
    }
    *out = device;
    return 0;
}

/* ---- Copy ------------------------------------------------------------------------------------------------------- */

static int host_check(fby_device_t *device, const void *address, uint64_t bytes, char *error, size_t error_size)
{
    return 0;
}

static uint64_t batch_bytes(const fby_copy_batch_t *batch)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < batch->unit[batch->units]; i++) {
        bytes += batch->run[i].rows * batch->run[i].row_bytes;
    }
    return bytes;
}

static int host_start(fby_device_t *device, const fby_copy_batch_t *batch, fby_operation_t **out, char *error,
                      size_t error_size)
{
    uint64_t item_bytes = batch_bytes(batch) / batch->units;
    pthread_mutex_lock(&device->lock);
    device->batch = batch;
    device->items = batch->blocks * batch->units;
    device->grain = item_bytes >= GRAIN_BYTES ? 1 : GRAIN_BYTES / FBY_MAX(item_bytes, 1);
    atomic_store(&device->next, 0);
    /* A batch of one grain is copied before a helper is awake. */
    bool alone = device->helpers == 0 || device->items <= device->grain;
    if (!alone) {
        device->round++;
        device->working = device->helpers;
        pthread_cond_broadcast(&device->work);
    }
    pthread_mutex_unlock(&device->lock);
    copy_items(device);
    pthread_mutex_lock(&device->lock);
    while (device->working > 0) {
        pthread_cond_wait(&device->done, &device->lock);
    }
    device->batch = NULL;
    pthread_mutex_unlock(&device->lock);
    *out = NULL;
    return 0;
}

const fby_device_driver_t fby_device_host = {
    .abi = FBY_DEVICE_ABI,
    .size = sizeof(fby_device_driver_t),
    .name = "host",
    .sums = 1,
    .open = host_open,
    .close = host_close,
    .check = host_check,
    .start = host_start,
};
