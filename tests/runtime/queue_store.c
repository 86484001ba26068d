/*
 * queue_store.c - an asynchronous store driver as a plug-in that has room for one batch at a time, and dies when a batch
 * that it had no room for is overtaken by another, or when a write is offered while a read waits.
 *
 * It holds every key, but when one is read it is gone. Its batch ends at the next reap.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "forebay/store.h"

/* Used by the store lane's thread alone, but for `wakes`. */
static struct {
    fby_store_op_t *ops;
    uint32_t n;
    int write;
    uint64_t tag; /* 0: room */
    char refused[FBY_KEY_BYTES];
    int wakes; /* eventfd */
} queue;

static int queue_submit(fby_store_t *store, int write, fby_store_op_t *ops, uint32_t n, uint64_t tag)
{
    (void)store;
    if (queue.refused[0] != '\0' && strcmp(queue.refused, ops[0].key) != 0) {
        abort();
    }
    memset(queue.refused, 0, sizeof(queue.refused));
    if (queue.tag != 0) {
        if (!write) {
            memcpy(queue.refused, ops[0].key, sizeof(queue.refused));
        }
        return -EAGAIN;
    }
    queue.ops = ops;
    queue.n = n;
    queue.write = write;
    queue.tag = tag;
    return 0;
}

static int queue_reap(fby_store_t *store, uint64_t *tags, uint32_t max, int64_t wait_ns)
{
    uint64_t count;
    (void)store, (void)max;
    if (queue.tag == 0) {
        if (wait_ns != 0) {
            (void)!read(queue.wakes, &count, sizeof(count)); /* a time limit is not kept: somebody always comes */
        }
        return 0;
    }
    for (uint32_t i = 0; i < queue.n; i++) {
        queue.ops[i].result = queue.write ? (int64_t)queue.ops[i].bytes : FBY_E_MISSING;
    }
    tags[0] = queue.tag;
    queue.tag = 0;
    return 1;
}

static int queue_cancel(fby_store_t *store, uint64_t tag)
{
    (void)store, (void)tag;
    return 0;
}

static void queue_wake(fby_store_t *store)
{
    const uint64_t one = 1;
    (void)store;
    (void)!write(queue.wakes, &one, sizeof(one));
}

static int queue_open(const fby_store_spec_t *spec, const char *const *options, fby_store_t **out, char *error,
                      size_t size)
{
    (void)spec, (void)options, (void)error, (void)size;
    queue.wakes = eventfd(0, EFD_CLOEXEC);
    *out = (fby_store_t *)&queue;
    return queue.wakes >= 0 ? 0 : -errno;
}

static void queue_close(fby_store_t *store)
{
    (void)store;
    close(queue.wakes);
}

static void queue_capabilities(fby_store_t *store, fby_store_caps_t *caps)
{
    (void)store;
    *caps = (fby_store_caps_t){.size = sizeof(*caps), .async = 1, .cancellable = 1};
}

static int queue_region(fby_store_t *store, void *base, size_t bytes)
{
    (void)store, (void)base, (void)bytes;
    return 0;
}

static int queue_unregister(fby_store_t *store, void *base)
{
    (void)store, (void)base;
    return 0;
}

static int queue_exists(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    (void)store;
    for (uint32_t i = 0; i < n; i++) {
        ops[i].result = 1;
    }
    return 0;
}

/* The runtime uses submit. */
static int queue_blocking(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    (void)store, (void)ops, (void)n;
    return FBY_E_INVALID;
}

static int queue_health(fby_store_t *store, char *text, size_t size)
{
    (void)store, (void)text, (void)size;
    return 0;
}

const fby_store_driver_t *fby_store_driver_1(void);
const fby_store_driver_t *fby_store_driver_1(void)
{
    static const fby_store_driver_t driver = {
        .abi = FBY_STORE_ABI,
        .size = sizeof(driver),
        .name = "queue",
        .open = queue_open,
        .close = queue_close,
        .capabilities = queue_capabilities,
        .register_region = queue_region,
        .unregister_region = queue_unregister,
        .exists = queue_exists,
        .get = queue_blocking,
        .put = queue_blocking,
        .remove = queue_blocking,
        .health = queue_health,
        .submit = queue_submit,
        .reap = queue_reap,
        .cancel = queue_cancel,
        .wake = queue_wake,
    };
    return &driver;
}
