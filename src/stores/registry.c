/* registry.c - drivers by name: the built-in ones, the wrapped ones, and plug-ins. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "stores/fault.h"
#include "stores/stores.h"

bool fby_store_isolated;

/* X(name): a built-in that may stand behind "fault:". */
#define BUILT_IN_MAP(X) X(mem) X(file) X(redis)

/* "fault:mem" is a table of its own, since open() is not told by which name its driver was found. */
#define FBY_X(inner)                                                                                                   \
    static int open_fault_##inner(const fby_store_spec_t *spec, const char *const *options, fby_store_t **out,         \
                                  char *error, size_t error_size)                                                      \
    {                                                                                                                  \
        return fby_fault_open(#inner, spec, options, out, error, error_size);                                          \
    }                                                                                                                  \
    static fby_store_driver_t fault_##inner; /* filled once */
BUILT_IN_MAP(FBY_X)
#undef FBY_X

static void fill_wrapped(void)
{
#define FBY_X(inner)                                                                                                   \
    fault_##inner = fby_store_fault;                                                                                   \
    fault_##inner.name = "fault:" #inner;                                                                              \
    fault_##inner.open = open_fault_##inner;
    BUILT_IN_MAP(FBY_X)
#undef FBY_X
}

/* X(member): what a driver must have. */
#define REQUIRED_MAP(X)                                                                                                \
    X(open) X(close) X(capabilities) X(register_region) X(unregister_region) X(exists) X(get) X(put) X(remove) X(health)

static const char *missing_function(const fby_store_driver_t *driver)
{
#define FBY_X(member)                                                                                                  \
    if (driver->member == NULL) {                                                                                      \
        return #member;                                                                                                \
    }
    REQUIRED_MAP(FBY_X)
#undef FBY_X
    bool any = driver->submit != NULL || driver->reap != NULL || driver->cancel != NULL || driver->wake != NULL;
    bool all = driver->submit != NULL && driver->reap != NULL && driver->cancel != NULL && driver->wake != NULL;
    return any && !all ? "one of submit, reap, cancel, wake (all four or none)" : NULL;
}

/* A plug-in that was loaded stays: its threads and exit hooks cannot be proven gone. */
static const fby_store_driver_t *load(const char *path, char *error, size_t error_size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(error, error_size, "store driver '%s' cannot be loaded: %s", path, dlerror());
        return NULL;
    }
    const fby_store_driver_t *(*entry)(void);
    void *symbol = dlsym(library, FBY_STORE_ENTRY);
    if (symbol == NULL) {
        snprintf(error, error_size, "store driver '%s' does not export %s: it is no driver, or one for another version",
                 path, FBY_STORE_ENTRY);
        return NULL;
    }
    memcpy(&entry, &symbol, sizeof(entry));
    const fby_store_driver_t *driver = entry();
    if (driver == NULL) {
        snprintf(error, error_size, "store driver '%s': %s returned no driver", path, FBY_STORE_ENTRY);
        return NULL;
    }
    if (driver->abi != FBY_STORE_ABI || driver->size != sizeof(*driver)) {
        snprintf(error, error_size, "store driver '%s' has ABI %u and a table of %u bytes; accepted: ABI %u, %zu bytes",
                 path, driver->abi, driver->size, FBY_STORE_ABI, sizeof(*driver));
        return NULL;
    }
    const char *missing = driver->name == NULL ? "name" : missing_function(driver);
    if (missing != NULL) {
        snprintf(error, error_size, "store driver '%s' lacks %s", path, missing);
        return NULL;
    }
    return driver;
}

const fby_store_driver_t *fby_store_find(const char *name, char *error, size_t error_size)
{
    static pthread_once_t filled = PTHREAD_ONCE_INIT;
    pthread_once(&filled, fill_wrapped);
    if (strchr(name, '/') != NULL && strncmp(name, "fault:", 6) != 0) {
        return load(name, error, error_size);
    }
#define FBY_X(inner)                                                                                                   \
    if (strcmp(name, #inner) == 0) {                                                                                   \
        return &fby_store_##inner;                                                                                     \
    }                                                                                                                  \
    if (strcmp(name, "fault:" #inner) == 0) {                                                                          \
        return &fault_##inner;                                                                                         \
    }
    BUILT_IN_MAP(FBY_X)
#undef FBY_X
    if (strcmp(name, "fault") == 0) {
        return &fby_store_fault;
    }
    if (strcmp(name, "mooncake") == 0) {
        return &fby_store_mooncake;
    }
    if (strcmp(name, "fault:mooncake") == 0) {
        snprintf(error, error_size,
                 "mooncake cannot be wrapped by fault: it runs in a process of its own, where no script of this one "
                 "reaches it; put a proxy before its server, or run a plug-in in its place");
        return NULL;
    }
    if (strncmp(name, "fault:", 6) == 0 && strchr(name, '/') != NULL) {
        snprintf(error, error_size, "a plug-in is wrapped by driver 'fault' with option inner=%.160s", name + 6);
        return NULL;
    }
    snprintf(
        error, error_size,
        "there is no store driver '%.80s'; accepted: mem, file, redis, mooncake, fault:mem, fault:file, fault:redis, "
        "fault (with option inner=NAME), or the path of a plug-in with a '/' in it",
        name);
    return NULL;
}
