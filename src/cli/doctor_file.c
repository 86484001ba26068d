/* doctor_file.c - a file store's directories, looked at without writing into them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "stores/options.h"
#include "stores/stores.h"

#define LITTLE_BYTES (UINT64_C(64) << 20)

/* Calls `each` per directory that the options name. The number of them. */
static size_t each_directory(fby_doctor_t *doctor, void (*each)(fby_doctor_t *doctor, const char *path, size_t count))
{
    const char *one = fby_doctor_option(doctor, "dir"), *many = fby_doctor_option(doctor, "dirs");
    size_t count = 1;
    if (one != NULL || many == NULL) {
        if (one != NULL) {
            each(doctor, one, 1);
        }
        return one != NULL;
    }
    for (const char *at = many; *at != '\0'; at++) {
        count += *at == ':';
    }
    char *list = strdup(many), *rest = list, *path;
    while (rest != NULL && (path = strsep(&rest, ":")) != NULL) {
        each(doctor, path, count);
    }
    free(list);
    return count;
}

/* ---- Directories ------------------------------------------------------------------------------------------------- */

static void check_new(fby_doctor_t *doctor, const char *path)
{
    char *parent = strdup(path), *slash;
    if (parent == NULL) {
        doctor->failed = true;
        return;
    }
    while ((slash = strrchr(parent, '/')) != NULL && slash[1] == '\0' && slash != parent) {
        *slash = '\0';
    }
    if (slash != NULL) {
        slash[slash == parent] = '\0';
    }
    doctor->missing_directories++;
    if (access(slash != NULL ? parent : ".", W_OK | X_OK) == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s is not there yet and will be made", path);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "make it, and let this user write into it",
                          "%s is not there and cannot be made: %s", path, strerror(errno));
    }
    free(parent);
}

static void check_directory(fby_doctor_t *doctor, const char *path, size_t count)
{
    struct stat status;
    if (stat(path, &status) != 0 && errno == ENOENT) {
        check_new(doctor, path);
    } else if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "another path in dir or dirs", "%s is no directory", path);
    } else if (access(path, R_OK | W_OK | X_OK) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "let this user write into it", "%s: %s", path, strerror(errno));
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s can be written", path);
    }
}

/* As `forebay store ls` would: every option is read, every header and trailer is looked at, nothing is written. */
static void check_opens(fby_doctor_t *doctor)
{
    const fby_store_spec_t spec = {.size = sizeof(spec), .alignment = 4096};
    char *list[FBY_DOCTOR_OPTIONS], error[512] = "";
    fby_store_t *store = NULL;
    size_t count = fby_doctor_options_make(doctor, list);
    list[count] = strdup("readonly=1"); /* the later of two wins */
    int status = fby_store_file.open(&spec, (const char *const *)list, &store, error, sizeof(error));
    fby_doctor_options_free(list);
    if (status == 0) {
        fby_store_file.close(store);
    } else if (status == -EBUSY) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "nothing, if that process is the cache; else another directory",
                          "%s", error);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "what the message says", "%s", error);
    }
}

void fby_check_directory(fby_doctor_t *doctor)
{
    size_t failed = doctor->count[FBY_VERDICT_FAIL];
    doctor->missing_directories = 0;
    if (each_directory(doctor, check_directory) == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "store.options.dir, or --store file:DIRECTORY", "none is named");
    } else if (doctor->count[FBY_VERDICT_FAIL] == failed && doctor->missing_directories == 0) {
        check_opens(doctor);
    }
}

/* ---- Space ------------------------------------------------------------------------------------------------------- */

static uint64_t segment_bytes(const char *path)
{
    uint64_t bytes = 0;
    struct stat status;
    DIR *directory = opendir(path);
    for (const struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        if (strncmp(entry->d_name, "segment-", 8) == 0 && fstatat(dirfd(directory), entry->d_name, &status, 0) == 0) {
            bytes += (uint64_t)status.st_blocks * 512;
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return bytes;
}

static void check_space(fby_doctor_t *doctor, const char *path, size_t count)
{
    const char *given = fby_doctor_option(doctor, "capacity");
    uint64_t capacity = 0, used = segment_bytes(path);
    struct statvfs status;
    if (statvfs(path, &status) != 0 || (given != NULL && !fby_text_size(given, strlen(given), &capacity))) {
        return; /* not there yet, or a finding of the directory's check */
    }
    uint64_t there = (uint64_t)status.f_bavail * status.f_frsize;
    capacity /= count;
    if (capacity > there + used) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "a smaller capacity, or room on the file system",
                          "%s: its capacity is %" PRIu64 " MiB, %" PRIu64 " MiB are free and %" PRIu64
                          " MiB in use: it will evict before it is full",
                          path, capacity >> 20, there >> 20, used >> 20);
    } else if (there + used < LITTLE_BYTES) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "room on the file system", "%s: %" PRIu64 " MiB free", path,
                          there >> 20);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s: %" PRIu64 " MiB free, %" PRIu64 " MiB in use", path,
                          there >> 20, used >> 20);
    }
}

void fby_check_space(fby_doctor_t *doctor)
{
    each_directory(doctor, check_space);
}

/* ---- Engine ------------------------------------------------------------------------------------------------------ */

/* A file without a name: nothing is left behind. 0, or an errno. */
static int try_direct(const char *path)
{
    int fd = open(path, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return errno;
    }
    close(fd);
    return 0;
}

static bool uring_is_there(const fby_doctor_t *doctor)
{
    struct io_uring ring;
    if (fby_doctor_option_is(doctor, "io", "sync") || io_uring_queue_init(4, &ring, 0) != 0) {
        return false;
    }
    io_uring_queue_exit(&ring);
    return true;
}

static void check_engine(fby_doctor_t *doctor, const char *path, size_t count)
{
    const char *calls = uring_is_there(doctor) ? "io_uring" : "blocking calls";
    int error = try_direct(path);
    if (fby_doctor_option_is(doctor, "direct", "off")) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s: %s, through the page cache as asked", path, calls);
    } else if (error == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s: %s, direct I/O", path, calls);
    } else if (error == EINVAL) {
        fby_doctor_report(doctor, fby_doctor_option_is(doctor, "direct", "on") ? FBY_VERDICT_FAIL : FBY_VERDICT_WARN,
                          "a directory on ext4 or XFS on a local device, or direct=off",
                          "%s: %s; its file system refuses direct I/O, so everything is copied through the page cache",
                          path, calls);
    } else if (error != ENOENT) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s: %s; direct I/O is tried when it is opened", path, calls);
    }
}

void fby_check_file_engine(fby_doctor_t *doctor)
{
    each_directory(doctor, check_engine);
}
