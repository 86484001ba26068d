/* file_dir.c - a directory of the file store: made, locked, its format and weights epochs checked. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "stores/file.h"

#define LOCK_NAME "forebay.lock"
#define SUPER_NAME "forebay.super"
#define PROBE_NAME "forebay.probe"

static int open_directory(const fby_file_t *file, fby_file_dir_t *dir, const fby_options_t *options)
{
    if (!file->readonly && mkdir(dir->path, 0700) < 0 && errno != EEXIST) {
        return fby_option_fail(options, -errno, "directory %s cannot be made: %s", dir->path, strerror(errno));
    }
    dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir->fd < 0) {
        return fby_option_fail(options, -errno, "directory %s cannot be opened: %s", dir->path, strerror(errno));
    }
    return 0;
}

static int lock_taken(const fby_file_dir_t *dir, const fby_options_t *options)
{
    char pid[24] = "";
    ssize_t n = pread(dir->lock_fd, pid, sizeof(pid) - 1, 0);
    pid[n > 0 ? n : 0] = '\0';
    pid[strcspn(pid, "\n")] = '\0';
    return fby_option_fail(options, -EBUSY,
                           "directory %s is in use by process %s (or one that it forked); one process at a time "
                           "may write to it",
                           dir->path, pid[0] != '\0' ? pid : "unknown");
}

/* Writers exclude everybody, readers only writers. A reader of a directory without lock file needs none. */
static int lock_directory(const fby_file_t *file, fby_file_dir_t *dir, const fby_options_t *options)
{
    dir->lock_fd = openat(dir->fd, LOCK_NAME, (file->readonly ? O_RDONLY : O_RDWR | O_CREAT) | O_CLOEXEC, 0600);
    if (dir->lock_fd < 0 && file->readonly && (errno == ENOENT || errno == EACCES)) {
        return 0;
    }
    if (dir->lock_fd < 0) {
        return fby_option_fail(options, -errno,
                               "directory %s cannot be written: %s; option readonly=1 opens it for reading", dir->path,
                               strerror(errno));
    }
    if (flock(dir->lock_fd, (file->readonly ? LOCK_SH : LOCK_EX) | LOCK_NB) < 0) {
        return errno == EWOULDBLOCK
                   ? lock_taken(dir, options)
                   : fby_option_fail(options, -errno, "directory %s cannot be locked: %s", dir->path, strerror(errno));
    }
    if (!file->readonly) {
        char pid[24];
        int n = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
        /* Only for the message above: a full disk must not keep the store from opening. */
        if (ftruncate(dir->lock_fd, 0) == 0 && pwrite(dir->lock_fd, pid, (size_t)n, 0) < 0) {
            errno = 0;
        }
    }
    return 0;
}

/* ---- Superblock ---- */

static int replace_super(const fby_file_dir_t *dir, const fby_super_t *super)
{
    uint8_t bytes[FBY_HEADER_BYTES];
    fby_super_write(super, bytes);
    int fd = openat(dir->fd, SUPER_NAME ".tmp", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -errno;
    }
    ssize_t moved = write(fd, bytes, sizeof(bytes));
    int status = moved == (ssize_t)sizeof(bytes) ? 0 : moved < 0 ? -errno : -ENOSPC;
    if (status == 0 && fsync(fd) < 0) {
        status = -errno;
    }
    if (close(fd) < 0 && status == 0) {
        status = -errno;
    }
    if (status == 0 && renameat(dir->fd, SUPER_NAME ".tmp", dir->fd, SUPER_NAME) < 0) {
        status = -errno;
    }
    if (status == 0 && fsync(dir->fd) < 0) {
        status = -errno;
    }
    if (status < 0) {
        unlinkat(dir->fd, SUPER_NAME ".tmp", 0);
    }
    return status;
}

/* 1: there is none yet. */
static int read_super(fby_file_dir_t *dir, const fby_options_t *options)
{
    uint8_t bytes[FBY_HEADER_BYTES];
    uint32_t version = 0;
    int fd = openat(dir->fd, SUPER_NAME, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 1
                               : fby_option_fail(options, -errno, "%s/%s: %s", dir->path, SUPER_NAME, strerror(errno));
    }
    ssize_t moved = read(fd, bytes, sizeof(bytes));
    close(fd);
    switch (moved == (ssize_t)sizeof(bytes) ? fby_super_parse(bytes, &dir->super, &version) : FBY_FORMAT_DAMAGED) {
    case FBY_FORMAT_OK:
        return 0;
    case FBY_FORMAT_NEWER:
        return fby_option_fail(options, FBY_E_FORMAT,
                               "directory %s has format version %u, this build reads up to %u; nothing was changed",
                               dir->path, version, FBY_FILE_VERSION);
    case FBY_FORMAT_DAMAGED:
    default:
        return fby_option_fail(options, FBY_E_FORMAT,
                               "%s/%s is damaged; remove it to use the objects all the same: it keeps only the "
                               "highest weights epoch of each model",
                               dir->path, SUPER_NAME);
    }
}

static XXH128_canonical_t model_name(const fby_file_t *file)
{
    XXH128_canonical_t name;
    XXH128_canonicalFromHash(&name, XXH3_128bits(file->model, strlen(file->model)));
    return name;
}

/* Index of this store's model, or super.models. */
static uint32_t find_model(const fby_file_t *file, const fby_file_dir_t *dir)
{
    XXH128_canonical_t name = model_name(file);
    uint32_t i = 0;
    while (i < dir->super.models && memcmp(dir->super.model[i].name, name.digest, sizeof(name.digest)) != 0) {
        i++;
    }
    return i;
}

uint64_t fby_file_dir_epoch(const fby_file_t *file, const fby_file_dir_t *dir)
{
    uint32_t i = find_model(file, dir);
    return i < dir->super.models ? dir->super.model[i].epoch : 0;
}

int fby_file_dir_raise_epoch(const fby_file_t *file, fby_file_dir_t *dir, uint64_t epoch)
{
    fby_super_t super = dir->super;
    uint32_t i = find_model(file, dir);
    if (i == FBY_SUPER_MODELS) {
        return -ENOSPC;
    }
    if (i < super.models && epoch <= super.model[i].epoch) {
        return epoch == super.model[i].epoch ? 0 : FBY_E_STALE;
    }
    XXH128_canonical_t name = model_name(file);
    super.models = FBY_MAX(super.models, i + 1);
    memcpy(super.model[i].name, name.digest, sizeof(name.digest));
    super.model[i].epoch = epoch;
    int status = replace_super(dir, &super);
    if (status == 0) {
        dir->super = super;
    }
    return status;
}

static int check_epoch(const fby_file_t *file, fby_file_dir_t *dir, const fby_options_t *options)
{
    uint64_t known = fby_file_dir_epoch(file, dir);
    if (file->spec.epoch < known) {
        return fby_option_fail(
            options, FBY_E_STALE,
            "directory %s: weights epoch %llu is below %llu, the highest it has seen for model "
            "'%.100s'; raise model.weights_epoch, use another directory, or tell models apart with option model=",
            dir->path, (unsigned long long)file->spec.epoch, (unsigned long long)known, file->model);
    }
    int status = file->readonly ? 0 : fby_file_dir_raise_epoch(file, dir, file->spec.epoch);
    if (status == -ENOSPC && dir->super.models == FBY_SUPER_MODELS) {
        return fby_option_fail(options, status,
                               "directory %s keeps the epochs of %u models already; use another directory", dir->path,
                               FBY_SUPER_MODELS);
    }
    return status < 0 ? fby_option_fail(options, status, "%s/%s cannot be written: %s", dir->path, SUPER_NAME,
                                        strerror(-status))
                      : 0;
}

/* ---- Direct I/O ---- */

/* Tries it: what open() accepts, the device may still refuse. */
static int probe_direct(const fby_file_dir_t *dir)
{
    int fd = openat(dir->fd, PROBE_NAME, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -errno;
    }
    int status = pwrite(fd, fby_file_zeros, FBY_DIRECT_ALIGN, 0) == (ssize_t)FBY_DIRECT_ALIGN ? 0 : -EINVAL;
    void *memory = NULL;
    if (status == 0 && posix_memalign(&memory, FBY_DIRECT_ALIGN, FBY_DIRECT_ALIGN) == 0) {
        status = pread(fd, memory, FBY_DIRECT_ALIGN, 0) == (ssize_t)FBY_DIRECT_ALIGN ? 0 : -EINVAL;
    }
    free(memory);
    close(fd);
    unlinkat(dir->fd, PROBE_NAME, 0);
    return status;
}

static int choose_direct(const fby_file_t *file, fby_file_dir_t *dir, const fby_options_t *options)
{
    bool aligned = file->spec.alignment != 0 && file->spec.alignment % FBY_DIRECT_ALIGN == 0;
    if (file->direct_mode == FBY_DIRECT_OFF || file->readonly || (file->direct_mode == FBY_DIRECT_AUTO && !aligned)) {
        return 0;
    }
    int status = probe_direct(dir);
    if (status < 0 && file->direct_mode == FBY_DIRECT_ON) {
        return fby_option_fail(
            options, status,
            "option direct is 'on', but the file system of %s refuses direct I/O: %s; accepted there: "
            "auto, off",
            dir->path, strerror(-status));
    }
    dir->direct = status == 0;
    return 0;
}

int fby_file_dir_open(fby_file_t *file, fby_file_dir_t *dir, const char *path, const fby_options_t *options)
{
    *dir = (fby_file_dir_t){.path = strdup(path), .fd = -1, .lock_fd = -1};
    if (dir->path == NULL) {
        return fby_option_fail(options, -ENOMEM, "out of memory");
    }
    int status = open_directory(file, dir, options);
    status = status < 0 ? status : lock_directory(file, dir, options);
    status = status < 0 ? status : read_super(dir, options);
    if (status == 1 && !file->readonly) {
        status = replace_super(dir, &dir->super);
        if (status < 0) {
            fby_option_fail(options, status, "%s/%s cannot be written: %s", dir->path, SUPER_NAME, strerror(-status));
        }
    }
    if (status >= 0 && file->spec.groups > 0) {
        status = check_epoch(file, dir, options);
    }
    return status < 0 ? status : choose_direct(file, dir, options);
}

void fby_file_dir_close(fby_file_dir_t *dir)
{
    while (dir->segments != NULL) {
        fby_segment_t *segment = dir->segments;
        dir->segments = segment->next;
        fby_file_segment_free(segment);
    }
    if (dir->lock_fd >= 0) {
        close(dir->lock_fd);
    }
    if (dir->fd >= 0) {
        close(dir->fd);
    }
    free(dir->path);
    *dir = (fby_file_dir_t){.fd = -1, .lock_fd = -1};
}
