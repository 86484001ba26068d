/*
 * narrow_store.c - a store driver as a plug-in that takes one call at a time, and dies of a second one.
 *
 * It holds every key, but when one is read it is gone: enough for a lane to be busy with it.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "forebay/store.h"

static _Atomic int inside;

static int answer(fby_store_op_t *ops, uint32_t n, int64_t result)
{
    if (atomic_fetch_add(&inside, 1) != 0) {
        abort();
    }
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    for (uint32_t i = 0; i < n; i++) {
        ops[i].result = result == 0 ? (int64_t)ops[i].bytes : result;
    }
    atomic_fetch_sub(&inside, 1);
    return 0;
}

static int narrow_open(const fby_store_spec_t *spec, const char *const *options, fby_store_t **out, char *error,
                       size_t size)
{
    (void)spec, (void)options, (void)error, (void)size;
    *out = (fby_store_t *)&inside;
    return 0;
}

static void narrow_close(fby_store_t *store)
{
    (void)store;
}

static void narrow_capabilities(fby_store_t *store, fby_store_caps_t *caps)
{
    (void)store;
    *caps = (fby_store_caps_t){.size = sizeof(*caps), .max_concurrency = 1, .max_batch = 3};
}

static int narrow_register(fby_store_t *store, void *base, size_t bytes)
{
    (void)store, (void)base, (void)bytes;
    return 0;
}

static int narrow_unregister(fby_store_t *store, void *base)
{
    (void)store, (void)base;
    return 0;
}

static int narrow_exists(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    (void)store;
    return answer(ops, n, 1);
}

static int narrow_get(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    (void)store;
    return answer(ops, n, FBY_E_MISSING);
}

static int narrow_put(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    (void)store;
    return answer(ops, n, 0);
}

static int narrow_health(fby_store_t *store, char *text, size_t size)
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
        .name = "narrow",
        .open = narrow_open,
        .close = narrow_close,
        .capabilities = narrow_capabilities,
        .register_region = narrow_register,
        .unregister_region = narrow_unregister,
        .exists = narrow_exists,
        .get = narrow_get,
        .put = narrow_put,
        .remove = narrow_put,
        .health = narrow_health,
    };
    return &driver;
}
