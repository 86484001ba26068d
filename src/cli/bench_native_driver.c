/* bench_native_driver.c - a built-in driver or plug-in called directly: its blocking batch call, in the worker. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/bench_native.h"
#include "stores/stores.h"

enum { SLOT_ALIGNMENT = 4096 };

typedef struct own {
    const fby_store_driver_t *driver;
    fby_store_t *store;
    fby_store_caps_t caps;
    fby_store_op_t *ops; /* workers x blocks */
    pthread_mutex_t one; /* for drivers that take one call at a time */
} own_t;

static int list_options(const fby_bench_native_t *native, char **texts, const char **options)
{
    uint32_t count = 0;
    for (; count < native->store->options; count++) {
        if (asprintf(&texts[count], "%s=%s", native->store->option[count].name, native->store->option[count].value) <
            0) {
            texts[count] = NULL;
            fby_error_set("out of memory");
            return -ENOMEM;
        }
        options[count] = texts[count];
    }
    options[count] = NULL;
    return 0;
}

static int open_store(fby_bench_native_t *native, own_t *own)
{
    const fby_store_spec_t spec = {.size = sizeof(spec), .alignment = SLOT_ALIGNMENT};
    const char *options[FBY_STORE_TEXT_OPTIONS + 1];
    char *texts[FBY_STORE_TEXT_OPTIONS] = {NULL}, error[512] = "";
    own->driver = fby_store_find(native->store->driver, error, sizeof(error));
    if (own->driver == NULL) {
        fby_error_set("%s", error);
        return FBY_E_CONFIG;
    }
    int status = list_options(native, texts, options);
    if (status == 0 && (status = own->driver->open(&spec, options, &own->store, error, sizeof(error))) < 0) {
        fby_error_set("%s", *error != '\0' ? error : fby_strerror(status));
    }
    for (uint32_t i = 0; i < native->store->options; i++) {
        free(texts[i]);
    }
    return status;
}

static int client_open(fby_bench_native_t *native)
{
    own_t *own = native->own = calloc(1, sizeof(*own));
    if (own == NULL || (own->ops = calloc((size_t)native->workers * native->set->blocks, sizeof(*own->ops))) == NULL) {
        fby_error_set("out of memory");
        return -ENOMEM;
    }
    pthread_mutex_init(&own->one, NULL);
    int status = open_store(native, own);
    if (status < 0) {
        own->store = NULL;
        return status;
    }
    own->caps.size = sizeof(own->caps);
    own->driver->capabilities(own->store, &own->caps);
    if (own->caps.needs_isolation) {
        fby_error_set("store driver %s runs in an agent only, it has no native client here; accepted: --native "
                      "COMMAND, or --arms without native",
                      native->store->driver);
        return FBY_E_CONFIG;
    }
    status = own->driver->register_region(own->store, native->memory, native->memory_bytes);
    if (status < 0) {
        fby_error_set("store driver %s does not register memory: %s", native->store->driver, fby_strerror(status));
    }
    return status;
}

static void client_close(fby_bench_native_t *native)
{
    own_t *own = native->own;
    if (own == NULL) {
        return;
    }
    if (own->store != NULL) {
        own->driver->unregister_region(own->store, native->memory);
        own->driver->close(own->store);
        pthread_mutex_destroy(&own->one);
    }
    free(own->ops);
    free(own);
}

/* All keys in as few calls as the driver takes. */
static int get_all(const own_t *own, fby_store_op_t *ops, uint32_t n)
{
    uint32_t batch = own->caps.max_batch > 0 ? own->caps.max_batch : n;
    int status = 0;
    for (uint32_t from = 0; from < n && status >= 0; from += batch) {
        status = own->driver->get(own->store, ops + from, FBY_MIN(batch, n - from));
    }
    return status;
}

static int client_read(fby_bench_native_t *native, uint32_t worker, uint32_t prompt, uint64_t *ns)
{
    own_t *own = native->own;
    uint32_t n = native->set->blocks;
    fby_store_op_t *ops = own->ops + (size_t)worker * n;
    for (uint32_t i = 0; i < n; i++) {
        ops[i] =
            (fby_store_op_t){.buffer = fby_bench_native_block(native, worker, i), .bytes = native->set->object_bytes};
        memcpy(ops[i].key, fby_bench_native_key(native, prompt, i), sizeof(ops[i].key));
    }
    bool is_alone = own->caps.max_concurrency == 1;
    uint64_t from = fby_clock_now(&fby_clock_monotonic);
    if (is_alone) {
        pthread_mutex_lock(&own->one);
    }
    int status = get_all(own, ops, n);
    if (is_alone) {
        pthread_mutex_unlock(&own->one);
    }
    *ns = fby_clock_now(&fby_clock_monotonic) - from;
    for (uint32_t i = 0; i < n && status >= 0; i++) {
        if (ops[i].result != native->set->object_bytes) {
            int code = ops[i].result < 0 ? (int)ops[i].result : FBY_E_SIZE;
            return fby_bench_native_fault(native, prompt, i, fby_strerror(code), code);
        }
    }
    return status < 0 ? fby_bench_native_fault(native, prompt, 0, fby_strerror(status), status) : 0;
}

const fby_bench_client_t fby_bench_client_driver = {"the driver's blocking batch call", client_open, client_read,
                                                    client_close};
