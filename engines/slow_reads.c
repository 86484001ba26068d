/*
 * slow_reads.c - measuring rig: reads of files below one directory take the time of a slow disk, or hang.
 *
 * Preloaded (LD_PRELOAD) it stands before read(), pread() and their kin, which every file store here comes down to:
 * whoever reads pays the same for the same bytes. SLOW_READS_DIR names the directory, SLOW_READS_CONTROL a file of
 * struct control that the rig writes while programs run. All processes that map the file share one disk: bytes queue.
 * Reads of less than SMALLEST bytes pass: they are of formats and of indexes, not of pages.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    SMALLEST = 4096,
    PATH_BYTES = 4096,
    HUNG_POLL_NS = 5000000,
};

struct control {
    _Atomic uint64_t bytes_per_s; /* 0: as fast as it is */
    _Atomic uint64_t hung;        /* not 0: reads wait until it is */
    _Atomic uint64_t free_at_ns;  /* when the disk has read everything asked for so far */
    _Atomic uint64_t bytes;       /* asked for since the file was made, reads that are small left out */
    _Atomic uint64_t reads;
    _Atomic uint64_t waiting; /* reads that hang now */
};

static struct control *control;
static char directory[PATH_BYTES];
static size_t directory_length;

__attribute__((constructor)) static void prepare(void)
{
    const char *path = getenv("SLOW_READS_CONTROL"), *name = getenv("SLOW_READS_DIR");
    if (path == NULL || name == NULL || strlen(name) >= sizeof(directory)) {
        return;
    }
    strcpy(directory, name); /* a copy: programs that set their title overwrite their environment */
    directory_length = strlen(directory);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    void *memory = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory != MAP_FAILED) {
        control = memory;
    }
}

static void sleep_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000U), .tv_nsec = (long)(ns % 1000000000U)};
    while (nanosleep(&left, &left) != 0) {}
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static bool is_ours(int fd)
{
    char link[32], path[PATH_BYTES];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof(path));
    return length > (ssize_t)directory_length && memcmp(path, directory, directory_length) == 0 &&
           path[directory_length] == '/';
}

/* Waits for a place on the disk's time line. */
static void wait_for_disk(uint64_t bytes, uint64_t bytes_per_s)
{
    uint64_t cost = bytes * 1000000000U / bytes_per_s, now = now_ns(), end;
    uint64_t free_at = atomic_load(&control->free_at_ns);
    do {
        end = (free_at > now ? free_at : now) + cost;
    } while (!atomic_compare_exchange_weak(&control->free_at_ns, &free_at, end));
    sleep_ns(end - now);
}

static void pay(int fd, size_t bytes)
{
    if (control == NULL || bytes < SMALLEST || !is_ours(fd)) {
        return;
    }
    atomic_fetch_add(&control->reads, 1);
    atomic_fetch_add(&control->bytes, bytes);
    if (atomic_load(&control->hung) != 0) {
        atomic_fetch_add(&control->waiting, 1);
        while (atomic_load(&control->hung) != 0) {
            sleep_ns(HUNG_POLL_NS);
        }
        atomic_fetch_sub(&control->waiting, 1);
    }
    uint64_t bytes_per_s = atomic_load(&control->bytes_per_s);
    if (bytes_per_s != 0) {
        wait_for_disk(bytes, bytes_per_s);
    }
}

static size_t total(const struct iovec *parts, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += parts[i].iov_len;
    }
    return bytes;
}

/* The next function of that name; a race only looks it up twice. */
#define NEXT(type, name)                                                                                               \
    static type next_##name;                                                                                           \
    if (next_##name == NULL) {                                                                                         \
        next_##name = (type)dlsym(RTLD_NEXT, #name);                                                                   \
    }

typedef ssize_t (*read_t)(int, void *, size_t);
typedef ssize_t (*pread_t)(int, void *, size_t, off_t);
typedef ssize_t (*readv_t)(int, const struct iovec *, int);
typedef ssize_t (*preadv_t)(int, const struct iovec *, int, off_t);

ssize_t read(int fd, void *memory, size_t bytes)
{
    NEXT(read_t, read)
    pay(fd, bytes);
    return next_read(fd, memory, bytes);
}

ssize_t pread(int fd, void *memory, size_t bytes, off_t offset)
{
    NEXT(pread_t, pread)
    pay(fd, bytes);
    return next_pread(fd, memory, bytes, offset);
}

ssize_t pread64(int fd, void *memory, size_t bytes, off64_t offset)
{
    NEXT(pread_t, pread64)
    pay(fd, bytes);
    return next_pread64(fd, memory, bytes, offset);
}

ssize_t readv(int fd, const struct iovec *parts, int count)
{
    NEXT(readv_t, readv)
    pay(fd, total(parts, count));
    return next_readv(fd, parts, count);
}

ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset)
{
    NEXT(preadv_t, preadv)
    pay(fd, total(parts, count));
    return next_preadv(fd, parts, count, offset);
}

ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t offset)
{
    NEXT(preadv_t, preadv64)
    pay(fd, total(parts, count));
    return next_preadv64(fd, parts, count, offset);
}
