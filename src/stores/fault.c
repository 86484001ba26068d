/*
 * fault.c - wraps any driver in a script.
 *
 * With no script and no model every call goes straight to the inner driver. Else the handle is a scripted store over
 * it: asynchronous when the inner driver is (delays end inside reap, which waits in the inner reap), blocking when not.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stores/fault.h"
#include "stores/options.h"
#include "stores/rig.h"
#include "stores/stores.h"

typedef struct fault_store {
    fby_store_t store; /* first: the handle is the fby_store_t */
    fby_rig_t rig;
} fault_store_t;

static const char *const own_options[] = {"inner", "script", "bandwidth", "latency_ms", "seed"};

static bool is_own(const char *option)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(own_options); i++) {
        size_t length = strlen(own_options[i]);
        if (strncmp(option, own_options[i], length) == 0 && option[length] == '=') {
            return true;
        }
    }
    return false;
}

/* What is not ours, for the inner driver. The caller frees the list; the texts are the caller's own. */
static const char **pass_on(const char *const *list)
{
    size_t n = 0;
    for (const char *const *at = list; at != NULL && *at != NULL; at++) {
        n++;
    }
    const char **rest = calloc(n + 1, sizeof(*rest));
    if (rest == NULL) {
        return NULL;
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_own(list[i])) {
            rest[kept++] = list[i];
        }
    }
    return rest;
}

static int open_inner(const fby_options_t *options, const char *name, const fby_store_spec_t *spec,
                      fault_store_t *fault)
{
    char why[256] = "";
    const fby_store_driver_t *inner = fby_store_find(name, why, sizeof(why));
    if (inner == NULL) {
        return fby_option_fail(options, FBY_E_CONFIG, "option inner: %s", why);
    }
    const char **rest = pass_on(options->list);
    if (rest == NULL) {
        return fby_option_fail(options, -ENOMEM, "out of memory");
    }
    fby_store_caps_t caps = {.size = sizeof(caps)};
    int status = inner->open(spec, rest, &fault->store.inner_store, options->error, options->error_size);
    free(rest);
    if (status < 0) {
        return status;
    }
    inner->capabilities(fault->store.inner_store, &caps);
    fault->store.inner = inner;
    fault->store.inner_async = caps.async && inner->submit != NULL && inner->reap != NULL;
    return 0;
}

int fby_fault_open(const char *inner, const fby_store_spec_t *spec, const char *const *list, fby_store_t **out,
                   char *error, size_t error_size)
{
    const fby_options_t options = fby_options_make(list, "fault", error, error_size);
    fby_script_t script = {0};
    bool given;
    const char *name = fby_option_get(&options, "inner") != NULL ? fby_option_get(&options, "inner") : inner;
    if (name == NULL) {
        return fby_option_fail(&options, FBY_E_CONFIG, "option inner is missing; accepted: the name of a store driver");
    }
    fault_store_t *fault = calloc(1, sizeof(*fault));
    if (fault == NULL) {
        return fby_option_fail(&options, -ENOMEM, "out of memory");
    }
    int status = fby_rig_read_script(&options, &script, &given);
    if (status < 0) {
        goto free_store;
    }
    status = fby_rig_init(&fault->rig);
    if (status < 0) {
        goto free_script;
    }
    fault->store.direct = fby_script_idle(&script);
    fault->store.spec = *spec;
    fby_rig_set_script(&fault->rig, &script);
    status = open_inner(&options, name, spec, fault);
    if (status < 0) {
        goto free_rig;
    }
    status = fby_rig_attach(&fault->rig, &fault->store);
    if (status < 0) {
        goto close_inner;
    }
    *out = &fault->store;
    return 0;
close_inner:
    fault->store.inner->close(fault->store.inner_store);
free_rig:
    fby_rig_destroy(&fault->rig);
free_script:
    fby_script_free(&script);
free_store:
    free(fault);
    return status;
}

static int fault_open(const fby_store_spec_t *spec, const char *const *options, fby_store_t **out, char *error,
                      size_t error_size)
{
    return fby_fault_open(NULL, spec, options, out, error, error_size);
}

static void fault_close(fby_store_t *store)
{
    fault_store_t *fault = (fault_store_t *)store;
    fby_rig_detach(store);
    fby_rig_destroy(&fault->rig);
    free(fault);
}

static void fault_capabilities(fby_store_t *store, fby_store_caps_t *caps)
{
    store->inner->capabilities(store->inner_store, caps);
    if (store->direct) {
        return;
    }
    pthread_mutex_lock(&store->rig->lock);
    uint64_t lease_ns = fby_script_lease_ns(&store->rig->script);
    pthread_mutex_unlock(&store->rig->lock);
    caps->async = store->inner_async;
    caps->cancellable = store->inner_async;
    if (lease_ns > 0 && (caps->probe_lease_ns == 0 || lease_ns < caps->probe_lease_ns)) {
        caps->probe_lease_ns = lease_ns;
    }
}

static int fault_register(fby_store_t *store, void *base, size_t bytes)
{
    return store->inner->register_region(store->inner_store, base, bytes);
}

static int fault_unregister(fby_store_t *store, void *base)
{
    return store->inner->unregister_region(store->inner_store, base);
}

static int fault_health(fby_store_t *store, char *text, size_t text_size)
{
    return store->inner->health(store->inner_store, text, text_size);
}

static int fault_visit(fby_store_t *store, fby_store_visit_fn *visit, void *arg)
{
    return store->inner->visit != NULL ? store->inner->visit(store->inner_store, visit, arg) : -ENOSYS;
}

static int fault_gc(fby_store_t *store, uint64_t *freed_bytes, char *text, size_t text_size)
{
    return store->inner->gc != NULL ? store->inner->gc(store->inner_store, freed_bytes, text, text_size) : -ENOSYS;
}

static int fault_raise_epoch(fby_store_t *store, uint64_t epoch)
{
    return store->inner->raise_epoch != NULL ? store->inner->raise_epoch(store->inner_store, epoch) : 0;
}

const fby_store_driver_t fby_store_fault = {
    .abi = FBY_STORE_ABI,
    .size = sizeof(fby_store_driver_t),
    .name = "fault",
    .open = fault_open,
    .close = fault_close,
    .capabilities = fault_capabilities,
    .register_region = fault_register,
    .unregister_region = fault_unregister,
    .exists = fby_rig_exists,
    .get = fby_rig_get,
    .put = fby_rig_put,
    .remove = fby_rig_remove,
    .health = fault_health,
    .submit = fby_rig_submit,
    .reap = fby_rig_reap,
    .cancel = fby_rig_cancel,
    .wake = fby_rig_wake,
    .visit = fault_visit,
    .gc = fault_gc,
    .raise_epoch = fault_raise_epoch,
};
