/* mooncake_double_dir.c - objects, leases and switches of the conformance double: files in a directory. */
#include "mooncake_double.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- The directory ---- */

static void path_of(const client_t *client, const char *name, char path[1024])
{
    snprintf(path, 1024, "%s/%s", client->directory, name);
}

/* Keys may hold a '/': file names have '%' in its place. */
static void object_path(const client_t *client, const char *key, char path[1024])
{
    path_of(client, "objects/", path);
    size_t used = strlen(path);
    for (; *key != '\0' && used < 1023; key++) {
        path[used++] = *key == '/' ? '%' : *key;
    }
    path[used] = '\0';
}

void note(const client_t *client, const char *call, size_t n)
{
    char path[1024], line[128];
    path_of(client, "calls", path);
    int length = snprintf(line, sizeof(line), "%s %zu\n", call, n);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, (size_t)length) != length) {
        abort();
    }
    close(fd);
}

bool is_switched(const client_t *client, const char *name)
{
    char path[1024];
    path_of(client, name, path);
    return access(path, F_OK) == 0;
}

int switch_number(const client_t *client, const char *name)
{
    char path[1024];
    int number = 0;
    path_of(client, name, path);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%d", &number) != 1) {
            abort();
        }
        fclose(file);
    }
    return number;
}

/* The end of a lease is the object's time of modification. */
static void grant_lease(const client_t *client, const char *path)
{
    struct timespec end[2] = {{.tv_nsec = UTIME_OMIT}};
    clock_gettime(CLOCK_REALTIME, &end[1]);
    end[1].tv_sec += client->lease_ms / 1000;
    utimensat(AT_FDCWD, path, end, 0);
}

static bool has_lease(const char *path)
{
    struct stat status;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return stat(path, &status) == 0 && status.st_mtim.tv_sec > now.tv_sec;
}

/* ---- One object ---- */

int put_object(const client_t *client, const char *key, const void *value, size_t bytes)
{
    static unsigned counter;
    char path[1024], fresh[1100], name[64];
    if (key[0] == '\0' || bytes == 0) {
        return CODE_PARAMETERS;
    }
    object_path(client, key, path);
    snprintf(name, sizeof(name), "fresh.%d.%u", getpid(), __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED));
    path_of(client, name, fresh);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, value, bytes) != (ssize_t)bytes) {
        abort();
    }
    close(fd);
    /* link() is what makes the first one win, also among processes. */
    int code = link(fresh, path) == 0 || errno == EEXIST ? 0 : CODE_INTERNAL;
    unlink(fresh);
    return code;
}

int64_t object_size(const client_t *client, const char *key)
{
    char path[1024];
    struct stat status;
    object_path(client, key, path);
    return stat(path, &status) == 0 ? (int64_t)status.st_size : CODE_MISSING;
}

int64_t get_object(const client_t *client, const char *key, void *buffer, size_t capacity)
{
    char path[1024];
    int64_t bytes = object_size(client, key);
    if (bytes < 0 || bytes > (int64_t)capacity) {
        return bytes < 0 ? bytes : CODE_PARAMETERS;
    }
    object_path(client, key, path);
    grant_lease(client, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (buffer != NULL && read(fd, buffer, (size_t)bytes) != bytes)) {
        abort();
    }
    close(fd);
    return bytes;
}

int has_object(const client_t *client, const char *key)
{
    char path[1024];
    object_path(client, key, path);
    bool there = access(path, F_OK) == 0;
    if (there) {
        grant_lease(client, path);
    }
    return there;
}

int remove_object(const client_t *client, const char *key, bool force)
{
    char path[1024];
    object_path(client, key, path);
    if (!force && has_lease(path)) {
        return CODE_LEASE;
    }
    return unlink(path) == 0 ? 0 : CODE_MISSING;
}

void make_objects(const client_t *client)
{
    char path[1024];
    path_of(client, "objects", path);
    mkdir(path, 0700);
}
