/* file_segment.c - segment files: making, dropping, and reading them back at open. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "stores/file_segment.h"

#define MIB (UINT64_C(1) << 20)
#define SEGMENT_LEAST (64 * MIB)
#define SEGMENT_MOST (1024 * MIB)
#define LOCK_ATTEMPTS 500 /* of 10 ms */

const uint8_t fby_file_zeros[FBY_DIRECT_ALIGN] __attribute__((aligned(FBY_DIRECT_ALIGN)));

uint64_t fby_file_slot_offset(const fby_slot_t *slot)
{
    const fby_segment_t *segment = slot->segment;
    return FBY_HEADER_BYTES + (uint64_t)(slot - segment->slots) * segment->stride;
}

void fby_file_trailer_block(const fby_slot_t *slot, uint64_t *offset, uint32_t *bytes)
{
    uint64_t trailer = fby_file_slot_offset(slot) + slot->segment->object_bytes - FBY_TRAILER_BYTES;
    *bytes = slot->segment->direct ? FBY_DIRECT_ALIGN : FBY_TRAILER_BYTES;
    *offset = slot->segment->direct ? trailer & ~(uint64_t)(FBY_DIRECT_ALIGN - 1) : trailer;
}

int fby_file_clear_trailer(const fby_slot_t *slot)
{
    uint64_t offset;
    uint32_t bytes;
    fby_file_trailer_block(slot, &offset, &bytes);
    ssize_t moved;
    do {
        moved = pwrite(slot->segment->fd, fby_file_zeros, bytes, (off_t)offset);
    } while (moved < 0 && errno == EINTR);
    return moved == (ssize_t)bytes ? 0 : moved < 0 ? -errno : -EIO;
}

fby_shelf_t *fby_file_shelf(fby_file_t *file, uint32_t dir, uint32_t object_bytes)
{
    fby_shelf_t *shelf = file->shelves;
    while (shelf != NULL && (shelf->dir != dir || shelf->object_bytes != object_bytes)) {
        shelf = shelf->next;
    }
    if (shelf == NULL && (shelf = calloc(1, sizeof(*shelf))) != NULL) {
        *shelf = (fby_shelf_t){.next = file->shelves, .dir = dir, .object_bytes = object_bytes};
        file->shelves = shelf;
    }
    return shelf;
}

/* ---- Making ---- */

static uint32_t stride_of(const fby_file_dir_t *dir, uint32_t object_bytes)
{
    return (uint32_t)fby_align_up(object_bytes, dir->direct ? FBY_DIRECT_ALIGN : FBY_BUFFERED_ALIGN);
}

/* Segments grow with the store, so that their number stays in the hundreds; small stores are cut in at least eight. */
static uint64_t wanted_bytes(const fby_file_t *file, const fby_file_dir_t *dir)
{
    if (file->segment_bytes != 0) {
        return file->segment_bytes;
    }
    uint64_t bytes = FBY_MIN(FBY_MAX(dir->bytes / 64, SEGMENT_LEAST), SEGMENT_MOST);
    return FBY_MIN(bytes, dir->capacity / (8 * (uint64_t)FBY_MAX(file->spec.groups, 1u)));
}

static int write_whole(int fd, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    while (bytes > 0) {
        ssize_t moved = write(fd, at, bytes);
        if (moved < 0 && errno == EINTR) {
            continue;
        }
        if (moved <= 0) {
            return moved < 0 ? -errno : -EIO;
        }
        at += moved;
        bytes -= (size_t)moved;
    }
    return 0;
}

/* Room for the whole file, now; a file system without fallocate gets a sparse file and may run full later. */
static int reserve(int fd, uint64_t bytes)
{
    int status;
    do {
        status = fallocate(fd, 0, 0, (off_t)bytes) < 0 ? -errno : 0;
    } while (status == -EINTR);
    if (status == -EOPNOTSUPP || status == -ENOSYS) {
        status = ftruncate(fd, (off_t)bytes) < 0 ? -errno : 0;
    }
    return status;
}

/* Makes the file under a temporary name and renames it, so that no segment without header is ever seen. */
static int make_file(fby_file_t *file, fby_file_dir_t *dir, const fby_segment_header_t *header, const char *name)
{
    uint8_t bytes[FBY_HEADER_BYTES];
    char temporary[64];
    snprintf(temporary, sizeof(temporary), "%s.tmp", name);
    int fd = openat(dir->fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -errno;
    }
    fby_segment_header_write(header, bytes);
    int status = reserve(fd, fby_segment_file_bytes(header));
    status = status < 0 ? status : write_whole(fd, bytes, sizeof(bytes));
    if (status == 0 && file->sync_data && fsync(fd) < 0) {
        status = -errno;
    }
    if (close(fd) < 0 && status == 0) {
        status = -errno;
    }
    if (status == 0 && renameat(dir->fd, temporary, dir->fd, name) < 0) {
        status = -errno;
    }
    if (status == 0 && file->sync_data && fsync(dir->fd) < 0) {
        status = -errno;
    }
    if (status < 0) {
        unlinkat(dir->fd, temporary, 0);
    }
    return status;
}

/* A descriptor of a dead process's write that the kernel still carries out keeps its lock on the file; so a lock that
   is free proves that nobody writes here any more. */
static int lock_segment(int fd)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int i = 0; i < LOCK_ATTEMPTS; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return 0;
        }
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return -errno;
        }
        nanosleep(&pause, NULL);
    }
    return -EBUSY;
}

int fby_segment_open(const fby_file_t *file, const fby_file_dir_t *dir, const char *name, bool direct)
{
    int flags = (file->readonly ? O_RDONLY : O_RDWR) | O_CLOEXEC | (direct ? O_DIRECT : 0);
    int fd = openat(dir->fd, name, flags);
    if (fd < 0) {
        return -errno;
    }
    int status = file->readonly ? 0 : lock_segment(fd);
    if (status < 0) {
        close(fd);
        return status;
    }
    return fd;
}

void fby_segment_link(fby_file_dir_t *dir, fby_segment_t *segment)
{
    fby_segment_t **link = &dir->segments;
    while (*link != NULL && (*link)->number < segment->number) {
        link = &(*link)->next;
    }
    segment->next = *link;
    *link = segment;
    dir->bytes += segment->file_bytes;
    dir->next_number = FBY_MAX(dir->next_number, segment->number + 1);
}

fby_segment_t *fby_segment_make(fby_shelf_t *shelf, const fby_segment_header_t *header, uint32_t number)
{
    fby_segment_t *segment = calloc(1, sizeof(*segment));
    fby_slot_t *slots = calloc(header->count, sizeof(*slots));
    if (segment == NULL || slots == NULL) {
        free(segment);
        free(slots);
        return NULL;
    }
    *segment = (fby_segment_t){
        .shelf = shelf,
        .number = number,
        .fd = -1,
        .object_bytes = header->object_bytes,
        .stride = header->stride,
        .count = header->count,
        .file_bytes = fby_segment_file_bytes(header),
        .slots = slots,
    };
    for (uint32_t i = 0; i < header->count; i++) {
        slots[i].segment = segment;
    }
    return segment;
}

/* Slots are taken from the newest end. */
void fby_segment_list_free(fby_segment_t *segment)
{
    for (uint32_t i = segment->count; i > 0; i--) {
        if (segment->slots[i - 1].state == FBY_SLOT_FREE) {
            fby_file_list_push(&segment->shelf->free, &segment->slots[i - 1]);
        }
    }
}

void fby_file_segment_free(fby_segment_t *segment)
{
    if (segment->fd >= 0) {
        close(segment->fd);
    }
    free(segment->slots);
    free(segment);
}

void fby_segment_name(uint32_t number, char name[32])
{
    snprintf(name, 32, "segment-%08x.fby", number);
}

int fby_file_segment_create(fby_file_t *file, fby_shelf_t *shelf)
{
    fby_file_dir_t *dir = &file->dirs[shelf->dir];
    uint32_t stride = stride_of(dir, shelf->object_bytes);
    uint64_t count = FBY_MAX((FBY_MAX(wanted_bytes(file, dir), FBY_HEADER_BYTES) - FBY_HEADER_BYTES) / stride, 1u);
    uint64_t room = fby_sub_sat(fby_sub_sat(dir->capacity, dir->bytes), FBY_HEADER_BYTES) / stride;
    fby_segment_header_t header = {shelf->object_bytes, stride,
                                   (uint32_t)FBY_MIN(FBY_MIN(count, room), (uint64_t)UINT32_MAX)};
    char name[32];
    if (header.count == 0) {
        return FBY_SEGMENT_NO_CAPACITY;
    }
    fby_segment_name(dir->next_number, name);
    fby_segment_t *segment = fby_segment_make(shelf, &header, dir->next_number);
    if (segment == NULL) {
        return -ENOMEM;
    }
    int status = make_file(file, dir, &header, name);
    if (status == 0) {
        segment->direct = dir->direct;
        segment->fd = status = fby_segment_open(file, dir, name, segment->direct);
        if (status < 0) {
            unlinkat(dir->fd, name, 0);
        }
    }
    if (status < 0) {
        fby_file_segment_free(segment);
        return status;
    }
    fby_segment_list_free(segment);
    fby_segment_link(dir, segment);
    return 0;
}

void fby_file_segment_drop(fby_file_t *file, fby_segment_t *segment)
{
    fby_file_dir_t *dir = &file->dirs[segment->shelf->dir];
    char name[32];
    for (uint32_t i = 0; i < segment->count; i++) {
        fby_slot_t *slot = &segment->slots[i];
        if (slot->state == FBY_SLOT_STORED) {
            fby_file_index_remove(file, slot);
            fby_file_list_unlink(&segment->shelf->recency, slot);
            file->stored--;
            file->evicted++;
        } else {
            fby_file_list_unlink(&segment->shelf->free, slot);
        }
    }
    fby_segment_t **link = &dir->segments;
    while (*link != segment) {
        link = &(*link)->next;
    }
    *link = segment->next;
    dir->bytes -= segment->file_bytes;
    fby_segment_name(segment->number, name);
    unlinkat(dir->fd, name, 0);
    fby_file_segment_free(segment);
}
