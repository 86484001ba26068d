/* file_scan.c - the index from what is on disk: reads the trailer of every slot of every segment. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "stores/file_segment.h"

#define READ_AHEAD 128u /* slots */

ssize_t fby_segment_read(int fd, void *memory, size_t bytes, uint64_t offset)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t moved = pread(fd, (uint8_t *)memory + done, bytes - done, (off_t)(offset + done));
        if (moved < 0 && errno == EINTR) {
            continue;
        }
        if (moved <= 0) {
            return moved < 0 ? -errno : (ssize_t)done;
        }
        done += (size_t)moved;
    }
    return (ssize_t)done;
}

typedef enum finding { FOUND_NOTHING, FOUND_DAMAGE, FOUND_OBJECT } finding_t;

static finding_t read_slot(int fd, const fby_slot_t *slot, fby_object_id_t *id)
{
    const fby_segment_t *segment = slot->segment;
    uint64_t offset = fby_file_slot_offset(slot), checksum;
    uint8_t trailer[FBY_TRAILER_BYTES], flags;
    if (fby_segment_read(fd, trailer, sizeof(trailer), offset + segment->object_bytes - FBY_TRAILER_BYTES) !=
        (ssize_t)sizeof(trailer)) {
        return FOUND_DAMAGE;
    }
    if (memcmp(trailer, fby_file_zeros, sizeof(trailer)) == 0) {
        return FOUND_NOTHING;
    }
    bool good = fby_trailer_parse(trailer, id, &checksum, &flags) == FBY_OBJECT_OK &&
                id->payload_bytes + FBY_TRAILER_BYTES == segment->object_bytes;
    return good ? FOUND_OBJECT : FOUND_DAMAGE;
}

/* What is not an object is room for one. The same key twice is an eviction that a kill interrupted: equal objects. */
static void adopt_slot(fby_file_t *file, int fd, fby_slot_t *slot)
{
    fby_object_id_t id;
    finding_t finding = read_slot(fd, slot, &id);
    file->damaged += finding == FOUND_DAMAGE;
    if (finding != FOUND_OBJECT || fby_file_find(file, &id.hash, id.group) != NULL) {
        slot->stale = finding != FOUND_NOTHING;
        return;
    }
    file->foreign += memcmp(id.fingerprint, file->spec.fingerprint, sizeof(id.fingerprint)) != 0;
    slot->hash = id.hash;
    slot->group = (uint8_t)id.group;
    slot->segment->busy++; /* what commit gives back */
    fby_file_index_add(file, slot);
    fby_file_commit(file, slot);
}

/* Where the file ends too early (cut by hand, or sparse on a full disk) the room is made again, or those slots go. */
static void fit_count(const fby_file_t *file, int fd, fby_segment_header_t *header)
{
    struct stat status;
    if (fstat(fd, &status) < 0 || (uint64_t)status.st_size >= fby_segment_file_bytes(header) ||
        (!file->readonly && fallocate(fd, 0, 0, (off_t)fby_segment_file_bytes(header)) == 0)) {
        return;
    }
    header->count = (uint32_t)(fby_sub_sat((uint64_t)status.st_size, FBY_HEADER_BYTES) / header->stride);
}

static int newer(const fby_options_t *options, const fby_file_dir_t *dir, const char *name, uint32_t version)
{
    return fby_option_fail(options, FBY_E_FORMAT,
                           "%s/%s has format version %u, this build reads up to %u; nothing was changed", dir->path,
                           name, version, FBY_FILE_VERSION);
}

/* 1: not a segment that can be used; it is left as it is. */
static int read_header(fby_file_t *file, const fby_file_dir_t *dir, const char *name, int fd,
                       fby_segment_header_t *header, const fby_options_t *options)
{
    uint8_t bytes[FBY_HEADER_BYTES];
    uint32_t version = 0;
    fby_format_fault_t fault = FBY_FORMAT_DAMAGED;
    if (fby_segment_read(fd, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes)) {
        fault = fby_segment_header_parse(bytes, header, &version);
    }
    if (fault == FBY_FORMAT_NEWER) {
        return newer(options, dir, name, version);
    }
    if (fault == FBY_FORMAT_OK) {
        fit_count(file, fd, header);
    }
    return fault == FBY_FORMAT_OK && header->count > 0 ? 0 : 1;
}

/* Asks for the trailers of slots [from, to), so that a cold disk reads many at a time. */
static void read_ahead(const fby_segment_t *segment, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < FBY_MIN(to, segment->count); i++) {
        uint64_t trailer = fby_file_slot_offset(&segment->slots[i]) + segment->object_bytes - FBY_TRAILER_BYTES;
        posix_fadvise(segment->fd, (off_t)trailer, FBY_TRAILER_BYTES, POSIX_FADV_WILLNEED);
    }
}

/* Trailers are read through the page cache; objects may be read past it afterwards. */
static int adopt_segment(fby_file_t *file, uint32_t dir_index, const char *name, uint32_t number,
                         const fby_options_t *options)
{
    fby_file_dir_t *dir = &file->dirs[dir_index];
    fby_segment_header_t header;
    int fd = fby_segment_open(file, dir, name, false);
    if (fd < 0) {
        return fby_option_fail(options, fd, "%s/%s: %s", dir->path, name,
                               fd == -EBUSY ? "a dead process's write to it has not ended after 5 s" : strerror(-fd));
    }
    int status = read_header(file, dir, name, fd, &header, options);
    if (status != 0) {
        file->unreadable_segments += status > 0;
        close(fd);
        return status < 0 ? status : 0;
    }
    fby_shelf_t *shelf = fby_file_shelf(file, dir_index, header.object_bytes);
    fby_segment_t *segment = shelf != NULL ? fby_segment_make(shelf, &header, number) : NULL;
    if (segment == NULL) {
        close(fd);
        return fby_option_fail(options, -ENOMEM, "out of memory for the index of %s/%s", dir->path, name);
    }
    segment->fd = fd;
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    for (uint32_t i = 0; i < segment->count; i++) {
        if (i % READ_AHEAD == 0) {
            read_ahead(segment, i == 0 ? 0 : i + READ_AHEAD, i + 2 * READ_AHEAD);
        }
        adopt_slot(file, fd, &segment->slots[i]);
    }
    fby_segment_list_free(segment);
    fby_segment_link(dir, segment);
    if (dir->direct && segment->stride % FBY_DIRECT_ALIGN == 0) {
        int flags = fcntl(fd, F_GETFL);
        segment->direct = flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
    }
    return 0;
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

typedef struct numbers {
    uint32_t *list;
    size_t count, capacity;
} numbers_t;

/* Takes a segment's number from its file name, which must be exactly what fby_segment_name() writes. */
static bool read_name(const char *text, uint32_t *number)
{
    char name[32];
    if (sscanf(text, "segment-%8x.fby", number) != 1) {
        return false;
    }
    fby_segment_name(*number, name);
    return strcmp(name, text) == 0;
}

static int add_number(numbers_t *numbers, uint32_t number)
{
    if (numbers->count == numbers->capacity) {
        size_t capacity = numbers->capacity == 0 ? 64 : numbers->capacity * 2;
        uint32_t *larger = realloc(numbers->list, capacity * sizeof(*larger));
        if (larger == NULL) {
            return -ENOMEM;
        }
        numbers->list = larger;
        numbers->capacity = capacity;
    }
    numbers->list[numbers->count++] = number;
    return 0;
}

/* Numbers of the segments, ascending; leftovers of an interrupted creation are unlinked. */
static int list_segments(const fby_file_t *file, const fby_file_dir_t *dir, numbers_t *numbers)
{
    int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    int status = 0;
    if (stream == NULL) {
        status = -errno;
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    for (struct dirent *entry; status == 0 && (entry = readdir(stream)) != NULL;) {
        uint32_t number;
        if (read_name(entry->d_name, &number)) {
            status = add_number(numbers, number);
        } else if (!file->readonly && fnmatch("segment-*.fby.tmp", entry->d_name, 0) == 0) {
            unlinkat(dir->fd, entry->d_name, 0);
        }
    }
    closedir(stream);
    if (numbers->count > 0) {
        qsort(numbers->list, numbers->count, sizeof(*numbers->list), compare_numbers);
    }
    return status;
}

int fby_file_scan(fby_file_t *file, uint32_t dir_index, const fby_options_t *options)
{
    fby_file_dir_t *dir = &file->dirs[dir_index];
    numbers_t numbers = {0};
    uint32_t unreadable = file->unreadable_segments;
    int status = list_segments(file, dir, &numbers);
    if (status < 0) {
        free(numbers.list);
        return fby_option_fail(options, status, "directory %s cannot be read: %s", dir->path, strerror(-status));
    }
    for (size_t i = 0; i < numbers.count && status == 0; i++) {
        char name[32];
        fby_segment_name(numbers.list[i], name);
        status = adopt_segment(file, dir_index, name, numbers.list[i], options);
        dir->next_number = FBY_MAX(dir->next_number, numbers.list[i] + 1);
    }
    free(numbers.list);
    if (status == 0 && file->unreadable_segments > unreadable) {
        fby_log(FBY_LOG_WARN, "store_unreadable", "segments=%u", file->unreadable_segments - unreadable);
    }
    return status;
}

static bool is_open(fby_file_t *file, const fby_file_dir_t *dir, uint32_t number)
{
    pthread_mutex_lock(&file->lock);
    const fby_segment_t *segment = dir->segments;
    while (segment != NULL && segment->number != number) {
        segment = segment->next;
    }
    pthread_mutex_unlock(&file->lock);
    return segment != NULL;
}

/* Bytes on disk that went with the file; 0: it was none of the damaged ones. */
static uint64_t drop_if_damaged(const fby_file_dir_t *dir, const char *name)
{
    uint8_t bytes[FBY_HEADER_BYTES];
    uint32_t version = 0;
    fby_segment_header_t header;
    struct stat status;
    uint64_t freed = 0;
    int fd = openat(dir->fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t moved = fby_segment_read(fd, bytes, sizeof(bytes), 0);
    bool damaged = moved >= 0 && (moved < (ssize_t)sizeof(bytes) ||
                                  fby_segment_header_parse(bytes, &header, &version) == FBY_FORMAT_DAMAGED);
    if (damaged && fstat(fd, &status) == 0 && unlinkat(dir->fd, name, 0) == 0) {
        freed = FBY_MAX((uint64_t)status.st_blocks * 512, 1u);
    }
    close(fd);
    return freed;
}

uint64_t fby_file_drop_damaged(fby_file_t *file, uint32_t dir_index, uint32_t *dropped)
{
    fby_file_dir_t *dir = &file->dirs[dir_index];
    numbers_t numbers = {0};
    uint64_t freed = 0;
    if (list_segments(file, dir, &numbers) < 0) {
        numbers.count = 0;
    }
    for (size_t i = 0; i < numbers.count; i++) {
        char name[32];
        fby_segment_name(numbers.list[i], name);
        uint64_t bytes = is_open(file, dir, numbers.list[i]) ? 0 : drop_if_damaged(dir, name);
        freed += bytes;
        *dropped += bytes > 0;
    }
    free(numbers.list);
    return freed;
}
