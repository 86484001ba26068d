/* file.c - the file driver: options, open, close, and its table. file.h says how it works. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/log.h"
#include "keys/keys.h"
#include "stores/file.h"
#include "stores/stores.h"

static fby_file_t *file_of(fby_store_t *store)
{
    return (fby_file_t *)store;
}

static int read_options(fby_file_t *file, const fby_options_t *options)
{
    static const char *const names[] = {"dir",  "dirs",     "capacity", "segment",     "io", "direct",
                                        "sync", "readonly", "model",    "queue_depth", NULL};
    static const char *const io_words[] = {"auto", "uring", "sync", NULL};
    static const char *const direct_words[] = {"auto", "on", "off", NULL};
    static const char *const sync_words[] = {"none", "data", NULL};
    uint32_t sync = 0;
    if (!fby_options_known(options, names)) {
        return FBY_E_CONFIG;
    }
    file->queue_depth = 256;
    int status = fby_option_size(options, "capacity", 1, &file->capacity);
    status = status < 0 ? status : fby_option_size(options, "segment", FBY_HEADER_BYTES, &file->segment_bytes);
    status = status < 0 ? status : fby_option_word(options, "io", io_words, &file->io_mode);
    status = status < 0 ? status : fby_option_word(options, "direct", direct_words, &file->direct_mode);
    status = status < 0 ? status : fby_option_word(options, "sync", sync_words, &sync);
    status = status < 0 ? status : fby_option_bool(options, "readonly", &file->readonly);
    status = status < 0 ? status : fby_option_u32(options, "queue_depth", 1, 4096, &file->queue_depth);
    const char *model = fby_option_get(options, "model");
    if (status == 0 && model != NULL && strlen(model) >= sizeof(file->model)) {
        status = fby_option_bad(options, "model", model, "a text of at most 255 bytes");
    }
    if (status == 0 && model != NULL) {
        snprintf(file->model, sizeof(file->model), "%s", model);
    }
    file->sync_data = sync == 1;
    return status;
}

/* 1 to FBY_FILE_MAX_DIRS directories, none of them empty: looked at before any is touched. */
static bool is_dir_list(const char *list)
{
    size_t colons = 0, length = strlen(list);
    for (size_t i = 0; i < length; i++) {
        colons += list[i] == ':';
    }
    return length > 0 && list[0] != ':' && list[length - 1] != ':' && strstr(list, "::") == NULL &&
           colons < FBY_FILE_MAX_DIRS;
}

/* Opens "a:b:c" (option dirs) or one directory (option dir, which may hold a ':'). */
static int open_dirs(fby_file_t *file, const fby_options_t *options)
{
    const char *one = fby_option_get(options, "dir"), *many = fby_option_get(options, "dirs");
    if ((one == NULL) == (many == NULL) || (one != NULL && *one == '\0')) {
        return fby_option_fail(options, FBY_E_CONFIG,
                               "exactly one of the options dir=DIRECTORY and dirs=DIRECTORY:DIRECTORY:... is needed");
    }
    if (many != NULL && !is_dir_list(many)) {
        return fby_option_bad(options, "dirs", many, "1 to 64 directories, none of them empty, with ':' between them");
    }
    file->dirs = calloc(FBY_FILE_MAX_DIRS, sizeof(*file->dirs));
    char *list = strdup(one != NULL ? one : many);
    int status = file->dirs == NULL || list == NULL ? fby_option_fail(options, -ENOMEM, "out of memory") : 0;
    char *rest = list;
    while (status == 0 && rest != NULL) {
        char *path = one != NULL ? rest : strsep(&rest, ":");
        rest = one != NULL ? NULL : rest;
        status = fby_file_dir_open(file, &file->dirs[file->dir_count++], path, options);
    }
    free(list);
    return status;
}

static uint64_t least_segment(const fby_file_t *file)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < file->spec.groups; g++) {
        bytes += FBY_HEADER_BYTES + fby_align_up(file->spec.object_bytes[g], FBY_DIRECT_ALIGN);
    }
    return bytes;
}

/* Without a limit of the user's: nine tenths of what the file system has free, our segments counted as free. */
static int set_capacity(fby_file_t *file, fby_file_dir_t *dir, const fby_options_t *options)
{
    struct statvfs status;
    uint64_t least = least_segment(file);
    if (file->capacity != 0) {
        dir->capacity = file->capacity / file->dir_count;
    } else if (statvfs(dir->path, &status) == 0) {
        dir->capacity = fby_add_sat(fby_mul_sat(status.f_bavail, status.f_frsize), dir->bytes) / 10 * 9;
    } else {
        return fby_option_fail(options, -errno, "directory %s: %s", dir->path, strerror(errno));
    }
    if (file->capacity != 0 && dir->capacity < least) {
        return fby_option_fail(options, FBY_E_CONFIG,
                               "option capacity is '%.40s'; accepted: at least %llu bytes for %u directories, to hold "
                               "one object of each group in each",
                               fby_option_get(options, "capacity"), (unsigned long long)least * file->dir_count,
                               file->dir_count);
    }
    return 0;
}

static int choose_engine(fby_file_t *file, const fby_options_t *options)
{
    if (file->io_mode == FBY_IO_SYNC) {
        return 0;
    }
    int status = fby_uring_open(file, &file->uring);
    if (status < 0 && file->io_mode == FBY_IO_URING) {
        return fby_option_fail(options, status,
                               "option io is 'uring', but the kernel refuses io_uring: %s; accepted here: auto, sync",
                               strerror(-status));
    }
    if (status < 0) {
        fby_log(FBY_LOG_INFO, "store_io_sync", "reason=\"%s\"", strerror(-status));
    }
    return 0;
}

static void file_destroy(fby_file_t *file)
{
    if (file->uring != NULL) {
        fby_uring_close(file->uring);
    }
    for (uint32_t i = 0; i < file->dir_count; i++) {
        fby_file_dir_close(&file->dirs[i]);
    }
    while (file->shelves != NULL) {
        fby_shelf_t *shelf = file->shelves;
        file->shelves = shelf->next;
        free(shelf);
    }
    free(file->dirs);
    free(file->buckets);
    pthread_mutex_destroy(&file->lock);
    free(file);
}

static int load(fby_file_t *file, const fby_options_t *options)
{
    int status = fby_file_index_init(file);
    if (status < 0) {
        return fby_option_fail(options, status, "out of memory");
    }
    for (uint32_t i = 0; i < file->dir_count && status == 0; i++) {
        status = fby_file_scan(file, i, options);
        status = status < 0 ? status : set_capacity(file, &file->dirs[i], options);
    }
    if (status == 0 && file->foreign > 0 && file->spec.groups > 0) {
        fby_log(FBY_LOG_INFO, "store_shared", "objects_of_other_models=%llu", (unsigned long long)file->foreign);
    }
    return status < 0 ? status : choose_engine(file, options);
}

static int file_open(const fby_store_spec_t *spec, const char *const *list, fby_store_t **out, char *error,
                     size_t error_size)
{
    const fby_options_t options = fby_options_make(list, "file", error, error_size);
    fby_file_t *file = calloc(1, sizeof(*file));
    if (file == NULL) {
        return fby_option_fail(&options, -ENOMEM, "out of memory");
    }
    file->spec = *spec;
    pthread_mutex_init(&file->lock, NULL);
    int status = read_options(file, &options);
    status = status < 0 ? status : open_dirs(file, &options);
    status = status < 0 ? status : load(file, &options);
    if (status < 0) {
        file_destroy(file);
        return status;
    }
    *out = (fby_store_t *)file;
    return 0;
}

static void file_close(fby_store_t *store)
{
    file_destroy(file_of(store));
}

static void file_capabilities(fby_store_t *store, fby_store_caps_t *caps)
{
    const fby_file_t *file = file_of(store);
    bool async = file->uring != NULL, direct = true;
    for (uint32_t i = 0; i < file->dir_count; i++) {
        direct = direct && file->dirs[i].direct;
    }
    *caps = (fby_store_caps_t){
        .size = sizeof(*caps),
        .zero_copy = direct,
        .async = async,
        .cancellable = async,
        .persistent = 1,
        .read_after_write = 1,
        .one_process = 1,
        .io_uring = 1,
        .max_batch = file->queue_depth,
        .preferred_bytes = 64 * 1024,
    };
}

/* Direct I/O needs no registration: the region only has to be aligned. */
static int file_register(fby_store_t *store, void *base, size_t bytes)
{
    (void)store;
    (void)base;
    (void)bytes;
    return 0;
}

static int file_unregister(fby_store_t *store, void *base)
{
    (void)store;
    (void)base;
    return 0;
}

static int file_exists(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    fby_file_t *file = file_of(store);
    for (uint32_t i = 0; i < n; i++) {
        fby_hash_t hash;
        uint32_t group;
        if (!fby_key_parse(ops[i].key, &hash, &group)) {
            ops[i].result = FBY_E_INVALID;
            continue;
        }
        pthread_mutex_lock(&file->lock);
        const fby_slot_t *slot = fby_file_find(file, &hash, group);
        ops[i].result = slot != NULL && slot->state == FBY_SLOT_STORED;
        pthread_mutex_unlock(&file->lock);
    }
    return 0;
}

static int file_get(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    return fby_file_run(file_of(store), false, ops, n);
}

static int file_put(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    return fby_file_run(file_of(store), true, ops, n);
}

static int file_remove(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    return fby_file_remove(file_of(store), ops, n);
}

static int file_submit(fby_store_t *store, int write, fby_store_op_t *ops, uint32_t n, uint64_t tag)
{
    fby_file_t *file = file_of(store);
    return file->uring != NULL ? fby_uring_submit(file->uring, write != 0, ops, n, tag) : -ENOSYS;
}

static int file_reap(fby_store_t *store, uint64_t *tags, uint32_t max, int64_t wait_ns)
{
    fby_file_t *file = file_of(store);
    return file->uring != NULL ? fby_uring_reap(file->uring, tags, max, wait_ns) : -ENOSYS;
}

static int file_cancel(fby_store_t *store, uint64_t tag)
{
    fby_file_t *file = file_of(store);
    return file->uring != NULL ? fby_uring_cancel(file->uring, tag) : -ENOSYS;
}

static void file_wake(fby_store_t *store)
{
    fby_file_t *file = file_of(store);
    if (file->uring != NULL) {
        fby_uring_wake(file->uring);
    }
}

static int file_health(fby_store_t *store, char *text, size_t text_size)
{
    return fby_file_health(file_of(store), text, text_size);
}

static int file_visit(fby_store_t *store, fby_store_visit_fn *visit, void *arg)
{
    return fby_file_visit(file_of(store), visit, arg);
}

static int file_gc(fby_store_t *store, uint64_t *freed_bytes, char *text, size_t text_size)
{
    return fby_file_gc(file_of(store), freed_bytes, text, text_size);
}

static int file_raise_epoch(fby_store_t *store, uint64_t epoch)
{
    fby_file_t *file = file_of(store);
    int status = file->readonly ? FBY_E_INVALID : 0;
    pthread_mutex_lock(&file->lock);
    for (uint32_t i = 0; i < file->dir_count && status == 0; i++) {
        status = fby_file_dir_raise_epoch(file, &file->dirs[i], epoch);
    }
    pthread_mutex_unlock(&file->lock);
    return status;
}

const fby_store_driver_t fby_store_file = {
    .abi = FBY_STORE_ABI,
    .size = sizeof(fby_store_driver_t),
    .name = "file",
    .open = file_open,
    .close = file_close,
    .capabilities = file_capabilities,
    .register_region = file_register,
    .unregister_region = file_unregister,
    .exists = file_exists,
    .get = file_get,
    .put = file_put,
    .remove = file_remove,
    .health = file_health,
    .submit = file_submit,
    .reap = file_reap,
    .cancel = file_cancel,
    .wake = file_wake,
    .visit = file_visit,
    .gc = file_gc,
    .raise_epoch = file_raise_epoch,
};
