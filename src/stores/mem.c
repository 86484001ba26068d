/*
 * mem.c - the in-process map: a scripted store over a table of objects.
 *
 * Objects are counted by reference, so that only the table is looked at under its lock and bytes are copied outside.
 * An object's bytes never change once it is in the table: a put or a corruption makes a new object.
 */
#include "stores/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stores/stores.h"

typedef struct object {
    atomic_uint references;
    uint32_t bytes;
    uint8_t data[];
} object_t;

typedef struct map_entry {
    fby_keymap_entry_t entry;
    object_t *object;
} map_entry_t;

typedef struct instance {
    struct instance *next; /* of the named ones */
    char *name;            /* NULL: not shared */
    uint32_t references;   /* handles; guarded by instances_lock */
    fby_rig_t rig;
    pthread_mutex_t lock; /* guards what follows */
    fby_keymap_t objects;
    uint64_t bytes, capacity; /* capacity 0: no limit */
    bool overwrite;
} instance_t;

static pthread_mutex_t instances_lock = PTHREAD_MUTEX_INITIALIZER;
static instance_t *instances;

static void object_drop(object_t *object)
{
    if (object != NULL && atomic_fetch_sub_explicit(&object->references, 1, memory_order_acq_rel) == 1) {
        free(object);
    }
}

static object_t *object_make(const void *data, uint32_t bytes)
{
    object_t *object = malloc(sizeof(*object) + bytes);
    if (object != NULL) {
        atomic_init(&object->references, 1);
        object->bytes = bytes;
        if (bytes > 0) {
            memcpy(object->data, data, bytes);
        }
    }
    return object;
}

static object_t *map_find(instance_t *instance, const char *key)
{
    pthread_mutex_lock(&instance->lock);
    map_entry_t *entry = fby_keymap_find(&instance->objects, key);
    object_t *object = entry != NULL ? entry->object : NULL;
    if (object != NULL) {
        atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&instance->lock);
    return object;
}

/* Takes the reference over on success. force: replace an object even where the store's own rule is first-wins. */
static int64_t map_insert(instance_t *instance, const char *key, object_t *object, bool force)
{
    int64_t result = object->bytes;
    object_t *old = NULL;
    pthread_mutex_lock(&instance->lock);
    map_entry_t *entry = fby_keymap_find(&instance->objects, key);
    uint64_t others = instance->bytes - (entry != NULL ? entry->object->bytes : 0);
    if (entry != NULL && !force && !instance->overwrite) {
        result = FBY_E_EXISTS;
    } else if (instance->capacity != 0 && others + object->bytes > instance->capacity) {
        result = FBY_E_FULL;
    } else if (entry == NULL && (entry = fby_keymap_insert(&instance->objects, key)) == NULL) {
        result = FBY_E_FULL;
    } else {
        old = entry->object;
        entry->object = object;
        instance->bytes = others + object->bytes;
    }
    pthread_mutex_unlock(&instance->lock);
    object_drop(old);
    return result;
}

static bool map_remove(instance_t *instance, const char *key)
{
    pthread_mutex_lock(&instance->lock);
    map_entry_t *entry = fby_keymap_take(&instance->objects, key);
    if (entry != NULL) {
        instance->bytes -= entry->object->bytes;
    }
    pthread_mutex_unlock(&instance->lock);
    if (entry == NULL) {
        return false;
    }
    object_drop(entry->object);
    free(entry);
    return true;
}

static void drop_entry(fby_keymap_entry_t *entry)
{
    object_drop(((map_entry_t *)entry)->object);
}

/* ---- The inner driver: the table alone. Its fby_store_t is the instance. ---- */

static int map_exists(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        object_t *object = map_find((instance_t *)store, ops[i].key);
        ops[i].result = object != NULL;
        object_drop(object);
    }
    return 0;
}

static int map_get(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        object_t *object = map_find((instance_t *)store, ops[i].key);
        if (object == NULL) {
            ops[i].result = FBY_E_MISSING;
        } else if (object->bytes != ops[i].bytes) {
            ops[i].result = FBY_E_SIZE;
        } else {
            memcpy(ops[i].buffer, object->data, object->bytes);
            ops[i].result = object->bytes;
        }
        object_drop(object);
    }
    return 0;
}

static int map_put(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    instance_t *instance = (instance_t *)store;
    for (uint32_t i = 0; i < n; i++) {
        object_t *object = object_make(ops[i].buffer, ops[i].bytes);
        ops[i].result = object == NULL ? FBY_E_FULL : map_insert(instance, ops[i].key, object, false);
        if (ops[i].result < 0) {
            object_drop(object);
        }
    }
    return 0;
}

static int map_remove_batch(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ops[i].result = map_remove((instance_t *)store, ops[i].key) ? 1 : FBY_E_MISSING;
    }
    return 0;
}

/* The handle's owner drops the instance once the rig has let go of it. */
static void map_close(fby_store_t *store)
{
    (void)store;
}

static const fby_store_driver_t map_driver = {
    .name = "map",
    .close = map_close,
    .exists = map_exists,
    .get = map_get,
    .put = map_put,
    .remove = map_remove_batch,
};

/* ---- Instances ---- */

static void instance_free(instance_t *instance)
{
    fby_keymap_destroy(&instance->objects, drop_entry);
    pthread_mutex_destroy(&instance->lock);
    free(instance->name);
    free(instance);
}

static instance_t *instance_make(const char *name)
{
    instance_t *instance = calloc(1, sizeof(*instance));
    if (instance == NULL) {
        return NULL;
    }
    pthread_mutex_init(&instance->lock, NULL);
    instance->overwrite = true;
    instance->name = name != NULL ? strdup(name) : NULL;
    if ((name != NULL && instance->name == NULL) || fby_keymap_init(&instance->objects, sizeof(map_entry_t)) < 0 ||
        fby_rig_init(&instance->rig) < 0) {
        instance_free(instance);
        return NULL;
    }
    instance->rig.counts_keys = true;
    return instance;
}

/* Finds or makes the instance and counts one handle on it. NULL: out of memory. */
static instance_t *instance_hold(const char *name)
{
    pthread_mutex_lock(&instances_lock);
    instance_t *instance = name != NULL ? instances : NULL;
    while (instance != NULL && strcmp(instance->name, name) != 0) {
        instance = instance->next;
    }
    if (instance == NULL) {
        instance = instance_make(name);
        if (instance != NULL && name != NULL) {
            instance->next = instances;
            instances = instance;
        }
    }
    if (instance != NULL) {
        instance->references++;
    }
    pthread_mutex_unlock(&instances_lock);
    return instance;
}

static void instance_drop(instance_t *instance)
{
    pthread_mutex_lock(&instances_lock);
    bool last = --instance->references == 0;
    instance_t **link = &instances;
    while (last && instance->name != NULL && *link != instance) {
        link = &(*link)->next;
    }
    if (last && instance->name != NULL) {
        *link = instance->next;
    }
    pthread_mutex_unlock(&instances_lock);
    if (last) {
        fby_rig_destroy(&instance->rig);
        instance_free(instance);
    }
}

/* ---- The driver ---- */

typedef struct mem_store {
    fby_store_t store; /* first: the handle is the fby_store_t */
    bool async;
    uint32_t max_batch, max_concurrency;
    uint64_t lease_ns; /* from the option; 0: from the script */
} mem_store_t;

static int mem_options(const fby_options_t *options, mem_store_t *mem, instance_t *instance)
{
    static const char *const names[] = {"name",  "script",    "bandwidth",       "latency_ms",
                                        "seed",  "capacity",  "overwrite",       "lease_ms",
                                        "async", "max_batch", "max_concurrency", NULL};
    bool given, overwrite = instance->overwrite;
    uint64_t capacity = instance->capacity;
    fby_script_t script;
    mem->async = true;
    if (!fby_options_known(options, names)) {
        return FBY_E_CONFIG;
    }
    int status = fby_option_size(options, "capacity", 0, &capacity);
    status = status < 0 ? status : fby_option_bool(options, "overwrite", &overwrite);
    status = status < 0 ? status : fby_option_bool(options, "async", &mem->async);
    status = status < 0 ? status : fby_option_ms(options, "lease_ms", &mem->lease_ns);
    status = status < 0 ? status : fby_option_u32(options, "max_batch", 1, UINT32_MAX, &mem->max_batch);
    status = status < 0 ? status : fby_option_u32(options, "max_concurrency", 1, UINT32_MAX, &mem->max_concurrency);
    status = status < 0 ? status : fby_rig_read_script(options, &script, &given);
    if (status < 0) {
        return status;
    }
    if (given) {
        fby_rig_set_script(&instance->rig, &script);
    }
    fby_script_free(&script);
    pthread_mutex_lock(&instance->lock);
    instance->capacity = capacity;
    instance->overwrite = overwrite;
    pthread_mutex_unlock(&instance->lock);
    return 0;
}

static int mem_open(const fby_store_spec_t *spec, const char *const *list, fby_store_t **out, char *error,
                    size_t error_size)
{
    const fby_options_t options = fby_options_make(list, "mem", error, error_size);
    const char *name = fby_option_get(&options, "name");
    mem_store_t *mem = calloc(1, sizeof(*mem));
    instance_t *instance = instance_hold(name);
    int status = -ENOMEM;
    if (mem == NULL || instance == NULL) {
        fby_option_fail(&options, status, "out of memory");
        goto fail;
    }
    mem->max_batch = 1024;
    status = mem_options(&options, mem, instance);
    if (status < 0) {
        goto fail;
    }
    mem->store.spec = *spec;
    mem->store.owner = instance;
    mem->store.inner = &map_driver;
    mem->store.inner_store = (fby_store_t *)instance;
    mem->store.instant = true;
    status = fby_rig_attach(&instance->rig, &mem->store);
    if (status < 0) {
        goto fail;
    }
    *out = &mem->store;
    return 0;
fail:
    if (instance != NULL) {
        instance_drop(instance);
    }
    free(mem);
    return status;
}

static void mem_close(fby_store_t *store)
{
    instance_t *instance = store->owner;
    fby_rig_detach(store);
    instance_drop(instance);
    free(store);
}

static void mem_capabilities(fby_store_t *store, fby_store_caps_t *caps)
{
    const mem_store_t *mem = (const mem_store_t *)store;
    instance_t *instance = store->owner;
    pthread_mutex_lock(&store->rig->lock);
    uint64_t script_lease_ns = fby_script_lease_ns(&store->rig->script);
    pthread_mutex_unlock(&store->rig->lock);
    pthread_mutex_lock(&instance->lock);
    bool overwrite = instance->overwrite;
    pthread_mutex_unlock(&instance->lock);
    *caps = (fby_store_caps_t){
        .size = sizeof(*caps),
        .async = mem->async,
        .cancellable = mem->async,
        .overwrite = overwrite,
        .read_after_write = 1,
        .one_process = 1,
        .max_batch = mem->max_batch,
        .max_concurrency = mem->max_concurrency,
        .probe_lease_ns = mem->lease_ns != 0 ? mem->lease_ns : script_lease_ns,
    };
}

static int mem_region(fby_store_t *store, void *base, size_t bytes)
{
    (void)store;
    (void)base;
    (void)bytes;
    return 0;
}

static int mem_unregion(fby_store_t *store, void *base)
{
    (void)store;
    (void)base;
    return 0;
}

static int mem_health(fby_store_t *store, char *text, size_t text_size)
{
    instance_t *instance = store->owner;
    pthread_mutex_lock(&instance->lock);
    snprintf(text, text_size, "ok: %zu objects, %llu bytes", instance->objects.count,
             (unsigned long long)instance->bytes);
    pthread_mutex_unlock(&instance->lock);
    return 0;
}

typedef struct listing {
    size_t count, capacity;
    struct {
        char key[FBY_KEY_BYTES];
        object_t *object;
    } * rows;
} listing_t;

static int list_entry(void *arg, fby_keymap_entry_t *entry)
{
    listing_t *listing = arg;
    if (listing->count == listing->capacity) {
        return 1;
    }
    object_t *object = ((map_entry_t *)entry)->object;
    atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
    memcpy(listing->rows[listing->count].key, entry->key, FBY_KEY_BYTES);
    listing->rows[listing->count++].object = object;
    return 0;
}

/* Walks what was there when it began, unlocked, so that `visit` may call the store. */
static int mem_visit(fby_store_t *store, fby_store_visit_fn *visit, void *arg)
{
    static const uint8_t no_trailer[64];
    instance_t *instance = store->owner;
    pthread_mutex_lock(&instance->lock);
    listing_t listing = {.capacity = instance->objects.count};
    listing.rows = calloc(FBY_MAX(listing.capacity, (size_t)1), sizeof(*listing.rows));
    if (listing.rows != NULL) {
        fby_keymap_each(&instance->objects, list_entry, &listing);
    }
    pthread_mutex_unlock(&instance->lock);
    if (listing.rows == NULL) {
        return -ENOMEM;
    }
    int status = 0;
    for (size_t i = 0; i < listing.count; i++) {
        const object_t *object = listing.rows[i].object;
        if (status == 0) {
            const void *trailer = object->bytes >= 64 ? object->data + object->bytes - 64 : no_trailer;
            status = visit(arg, listing.rows[i].key, object->bytes, trailer);
        }
        object_drop(listing.rows[i].object);
    }
    free(listing.rows);
    return status;
}

const fby_store_driver_t fby_store_mem = {
    .abi = FBY_STORE_ABI,
    .size = sizeof(fby_store_driver_t),
    .name = "mem",
    .open = mem_open,
    .close = mem_close,
    .capabilities = mem_capabilities,
    .register_region = mem_region,
    .unregister_region = mem_unregion,
    .exists = fby_rig_exists,
    .get = fby_rig_get,
    .put = fby_rig_put,
    .remove = fby_rig_remove,
    .health = mem_health,
    .submit = fby_rig_submit,
    .reap = fby_rig_reap,
    .cancel = fby_rig_cancel,
    .wake = fby_rig_wake,
    .visit = mem_visit,
};

/* ---- For tests ---- */

int fby_mem_script(fby_store_t *store, const char *text, char *error, size_t error_size)
{
    fby_script_t script;
    int status = fby_script_parse(text, &script, error, error_size);
    if (status == 0) {
        fby_rig_set_script(store->rig, &script);
    }
    return status;
}

int fby_mem_put(fby_store_t *store, const char *key, const void *data, uint32_t bytes)
{
    object_t *object = object_make(data, bytes);
    if (object == NULL) {
        return -ENOMEM;
    }
    int64_t result = map_insert(store->owner, key, object, true);
    if (result < 0) {
        object_drop(object);
        return (int)result;
    }
    return 0;
}

int64_t fby_mem_read(fby_store_t *store, const char *key, void *buffer, uint32_t capacity)
{
    object_t *object = map_find(store->owner, key);
    if (object == NULL) {
        return FBY_E_MISSING;
    }
    int64_t bytes = object->bytes;
    memcpy(buffer, object->data, FBY_MIN(object->bytes, capacity));
    object_drop(object);
    return bytes;
}

int fby_mem_corrupt(fby_store_t *store, const char *key, uint64_t bit)
{
    object_t *old = map_find(store->owner, key);
    if (old == NULL) {
        return FBY_E_MISSING;
    }
    object_t *object = object_make(old->data, old->bytes);
    object_drop(old);
    if (object == NULL) {
        return -ENOMEM;
    }
    if (object->bytes > 0) {
        bit %= (uint64_t)object->bytes * 8;
        object->data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    int64_t result = map_insert(store->owner, key, object, true);
    if (result < 0) {
        object_drop(object);
        return (int)result;
    }
    return 0;
}

int fby_mem_remove(fby_store_t *store, const char *key)
{
    return map_remove(store->owner, key) ? 0 : FBY_E_MISSING;
}

uint64_t fby_mem_objects(fby_store_t *store)
{
    instance_t *instance = store->owner;
    pthread_mutex_lock(&instance->lock);
    uint64_t objects = instance->objects.count;
    pthread_mutex_unlock(&instance->lock);
    return objects;
}
