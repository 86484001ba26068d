/* pool.c - the pool as other processes see it: a descriptor, a geometry, and places instead of addresses. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/call.h"
#include "api/calls.h"
#include "forebay/rank.h"

static void describe(const fby_runtime_t *runtime, fby_pool_t *pool)
{
    const fby_region_t *region = &runtime->region;
    *pool = (fby_pool_t){.size = sizeof(*pool), .bytes = region->bytes, .groups = region->groups};
    for (uint32_t g = 0; g < region->groups; g++) {
        pool->group[g].slot_bytes = region->slot_bytes[g];
        pool->group[g].payload_bytes = runtime->settings.model.group[g].payload_bytes;
        pool->group[g].first = region->first[g];
        pool->group[g].slots = region->slots[g];
        pool->group[g].offset = region->group_offset[g];
    }
    /* The fingerprint of the first keyring is that of all: an epoch changes keys, not bytes. */
    memcpy(pool->fingerprint, runtime->keyring->hasher.fingerprint, sizeof(pool->fingerprint));
}

int fby_local_cache_pool(fby_cache_t *cache, fby_pool_t *pool)
{
    fby_runtime_t *runtime;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = fby_call_sized("pool", pool);
    if (rc == 0) {
        fby_pool_t full;
        pthread_mutex_lock(&runtime->lock); /* a reset may change the keyring */
        describe(runtime, &full);
        pthread_mutex_unlock(&runtime->lock);
        full.descriptor = fcntl(runtime->region.fd, F_DUPFD_CLOEXEC, 0);
        if (full.descriptor < 0) {
            rc = -errno;
            fby_error_set("descriptor of the pool: %s", fby_strerror(rc));
        } else {
            fby_call_output(pool, &full, sizeof(full));
        }
    }
    return fby_call_end(cache, rc);
}

int fby_rank_attach_cache(fby_cache_t *cache, const fby_rank_config_t *config, fby_rank_t **out)
{
    fby_pool_t pool = {.size = sizeof(pool)};
    int rc = fby_cache_pool(cache, &pool);
    if (rc == 0) {
        rc = fby_rank_attach(&pool, config, out);
        close(pool.descriptor);
    }
    return rc;
}

/* ---- Places ----------------------------------------------------------------------------------------------------- */

/* Room for the addresses that become places. NULL with detail; n may be 0. */
static const void **addresses(uint64_t from, uint64_t to, const uint64_t *out, int *rc)
{
    if (from > to || to - from > UINT32_MAX || (out == NULL && to > from)) {
        fby_error_set("blocks [%llu, %llu) into %p: accepted are a rising range and an address",
                      (unsigned long long)from, (unsigned long long)to, (const void *)out);
        *rc = -EINVAL;
        return NULL;
    }
    const void **list = calloc(to - from + 1, sizeof(*list));
    if (list == NULL) {
        fby_error_set("places of %llu blocks: %s", (unsigned long long)(to - from), fby_strerror(-ENOMEM));
        *rc = -ENOMEM;
    }
    return list;
}

static int to_places(fby_cache_t *cache, const void *const *address, uint64_t n, uint64_t *out)
{
    fby_runtime_t *runtime;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    for (uint64_t i = 0; i < n; i++) {
        out[i] = address[i] == NULL ? FBY_NO_PLACE : (uint64_t)((const uint8_t *)address[i] - runtime->region.base);
    }
    return fby_call_end(cache, 0);
}

int fby_local_hold_places(fby_cache_t *cache, fby_hold_t hold, uint32_t group, uint64_t from, uint64_t to,
                          uint64_t *out)
{
    int rc = 0;
    const void **list = addresses(from, to, out, &rc);
    if (list != NULL) {
        rc = fby_local_hold_slots(cache, hold, group, from, to, list);
        rc = rc == 0 ? to_places(cache, list, to - from, out) : rc;
    }
    free(list);
    return rc;
}

int fby_local_put_places(fby_cache_t *cache, fby_put_t put, uint32_t group, uint64_t from, uint64_t to, uint64_t *out)
{
    int rc = 0;
    const void **list = addresses(from, to, out, &rc);
    if (list != NULL) {
        rc = fby_local_put_slots(cache, put, group, from, to, (void **)(uintptr_t)list);
        rc = rc == 0 ? to_places(cache, list, to - from, out) : rc;
    }
    free(list);
    return rc;
}
