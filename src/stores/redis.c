/* redis.c - the Redis / Valkey driver's table; open and close. */
#include "stores/redis.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "stores/options.h"
#include "stores/redis_tls.h"
#include "stores/stores.h"

#define NOTE_INTERVAL_NS (10 * FBY_SECOND)
enum { MAX_BATCH = 1024, READ_LANES = 2, TRIAL_KEYS = 8 };

static fby_redis_t *redis_of(fby_store_t *store)
{
    return (fby_redis_t *)store;
}

void fby_redis_note(fby_redis_t *redis, const fby_redis_fault_t *fault)
{
    char quoted[480];
    uint64_t suppressed = 0;
    bool is_refusal = fault->settings || fault->code == FBY_E_INVALID;
    pthread_mutex_lock(&redis->lock);
    if (is_refusal) {
        redis->refused = true;
        snprintf(redis->refusal, sizeof(redis->refusal), "%s", fault->text);
    }
    bool allowed = !(redis->opening && is_refusal) &&
                   fby_log_allow(is_refusal ? &redis->refused_limit : &redis->unreachable_limit,
                                 fby_clock_now(&fby_clock_monotonic), NOTE_INTERVAL_NS, &suppressed);
    pthread_mutex_unlock(&redis->lock);
    if (allowed) {
        fby_log(is_refusal ? FBY_LOG_ERROR : FBY_LOG_WARN, is_refusal ? "store_refused" : "store_unreachable",
                "driver=redis error=%s reason=%s suppressed=%llu", fby_errname(fault->code),
                fby_log_quote(quoted, sizeof(quoted), fault->text), (unsigned long long)suppressed);
    }
}

/* ---- Open, close ---- */

static void redis_close(fby_store_t *store)
{
    fby_redis_t *redis = redis_of(store);
    fby_redis_nodes_free(redis);
    free(redis->slot_node);
    fby_redis_tls_context_free(redis->tls);
    pthread_cond_destroy(&redis->freed);
    pthread_mutex_destroy(&redis->lock);
    explicit_bzero(redis->config.password, sizeof(redis->config.password));
    free(redis);
}

static int add_seeds(fby_redis_t *redis)
{
    for (uint32_t i = 0; i < redis->config.seed_count; i++) {
        if (fby_redis_node_index(redis, &redis->config.seeds[i]) == FBY_REDIS_NO_NODE) {
            return -ENOMEM;
        }
    }
    if (redis->config.cluster) {
        redis->slot_node = malloc(FBY_REDIS_SLOTS * sizeof(*redis->slot_node));
        if (redis->slot_node == NULL) {
            return -ENOMEM;
        }
        memset(redis->slot_node, 0xFF, FBY_REDIS_SLOTS * sizeof(*redis->slot_node));
    }
    return 0;
}

/*
 * Asks for keys that are never there. A server that cannot be reached may come later; one that refuses us will not
 * change its mind, and that is better known now. Several keys: without option cluster, a node of a cluster refuses
 * those that are not its own.
 */
static int try_out(fby_redis_t *redis, const fby_options_t *options)
{
    fby_store_op_t ops[TRIAL_KEYS] = {0};
    for (unsigned i = 0; i < TRIAL_KEYS; i++) {
        snprintf(ops[i].key, sizeof(ops[i].key), "open%u", i);
    }
    redis->opening = true;
    int status = fby_redis_call(redis, FBY_REDIS_LENGTH, ops, TRIAL_KEYS);
    redis->opening = false;
    if (status == 0 && redis->refused) {
        return fby_option_fail(options, FBY_E_CONFIG, "%s", redis->refusal);
    }
    return status;
}

static int redis_open(const fby_store_spec_t *spec, const char *const *list, fby_store_t **out, char *error,
                      size_t error_size)
{
    (void)spec;
    const fby_options_t options = fby_options_make(list, "redis", error, error_size);
    pthread_condattr_t monotonic;
    fby_redis_t *redis = calloc(1, sizeof(*redis));
    if (redis == NULL) {
        return fby_option_fail(&options, -ENOMEM, "out of memory");
    }
    pthread_mutex_init(&redis->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&redis->freed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int status = fby_redis_config_read(list, &redis->config, error, error_size);
    if (status == 0 && redis->config.tls) {
        status = fby_redis_tls_context(&redis->config, &redis->tls, error, error_size);
    }
    status = status == 0 ? add_seeds(redis) : status;
    status = status == 0 ? try_out(redis, &options) : status;
    if (status != 0) {
        if (status == -ENOMEM) {
            fby_option_fail(&options, status, "out of memory");
        }
        redis_close((fby_store_t *)redis);
        return status;
    }
    *out = (fby_store_t *)redis;
    return 0;
}

/* ---- The table ---- */

static void redis_capabilities(fby_store_t *store, fby_store_caps_t *caps)
{
    (void)store;
    *caps = (fby_store_caps_t){.size = sizeof(*caps),
                               .zero_copy = 1,
                               .persistent = 1,
                               .read_after_write = 1,
                               .max_batch = MAX_BATCH,
                               .read_lanes = READ_LANES};
}

/* Sockets need no registered memory. */
static int redis_register_region(fby_store_t *store, void *base, size_t bytes)
{
    (void)store, (void)base, (void)bytes;
    return 0;
}

static int redis_unregister_region(fby_store_t *store, void *base)
{
    (void)store, (void)base;
    return 0;
}

#define FBY_X(name, verb)                                                                                              \
    static int redis_##name(fby_store_t *store, fby_store_op_t *ops, uint32_t n)                                       \
    {                                                                                                                  \
        return fby_redis_call(redis_of(store), FBY_REDIS_##verb, ops, n);                                              \
    }
FBY_X(exists, EXISTS)
FBY_X(get, GET)
FBY_X(put, PUT)
FBY_X(remove, REMOVE)
#undef FBY_X

static int redis_health(fby_store_t *store, char *text, size_t text_size)
{
    return fby_redis_health(redis_of(store), text, text_size);
}

static int redis_visit(fby_store_t *store, fby_store_visit_fn *visit, void *arg)
{
    return fby_redis_visit(redis_of(store), visit, arg);
}

static int redis_gc(fby_store_t *store, uint64_t *freed_bytes, char *text, size_t text_size)
{
    return fby_redis_gc(redis_of(store), freed_bytes, text, text_size);
}

const fby_store_driver_t fby_store_redis = {
    .abi = FBY_STORE_ABI,
    .size = sizeof(fby_store_driver_t),
    .name = "redis",
    .open = redis_open,
    .close = redis_close,
    .capabilities = redis_capabilities,
    .register_region = redis_register_region,
    .unregister_region = redis_unregister_region,
    .exists = redis_exists,
    .get = redis_get,
    .put = redis_put,
    .remove = redis_remove,
    .health = redis_health,
    .visit = redis_visit,
    .gc = redis_gc,
};
