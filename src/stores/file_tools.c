/* file_tools.c - what people ask of a store: is it well, what does it hold, and give back what is of no use. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keys/keys.h"
#include "stores/file_segment.h"

/* ---- Health ---- */

static int dir_health(const fby_file_dir_t *dir, char *text, size_t text_size)
{
    struct stat status;
    if (fstat(dir->fd, &status) < 0 || status.st_nlink == 0) {
        snprintf(text, text_size, "directory %s was removed: what is stored now is lost at the end of the process",
                 dir->path);
        return FBY_E_CONNECTION;
    }
    if (dir->create_error < 0 && dir->create_error != -ENOSPC && dir->create_error != -EDQUOT) {
        snprintf(text, text_size, "directory %s takes no new segment: %s", dir->path, strerror(-dir->create_error));
        return fby_file_code(dir->create_error);
    }
    return 0;
}

int fby_file_health(fby_file_t *file, char *text, size_t text_size)
{
    uint64_t bytes = 0, capacity = 0, segments = 0;
    int code = 0;
    pthread_mutex_lock(&file->lock);
    for (uint32_t i = 0; i < file->dir_count && code == 0; i++) {
        const fby_file_dir_t *dir = &file->dirs[i];
        code = dir_health(dir, text, text_size);
        bytes += dir->bytes;
        capacity += dir->capacity;
        for (const fby_segment_t *segment = dir->segments; segment != NULL; segment = segment->next) {
            segments++;
        }
    }
    if (code == 0) {
        snprintf(text, text_size,
                 "ok: %llu objects in %llu segments, %llu of %llu bytes, %llu evicted, %llu damaged, %u unreadable "
                 "segments, "
                 "io=%s direct=%s",
                 (unsigned long long)file->stored, (unsigned long long)segments, (unsigned long long)bytes,
                 (unsigned long long)capacity, (unsigned long long)file->evicted, (unsigned long long)file->damaged,
                 file->unreadable_segments, file->uring != NULL ? "uring" : "sync",
                 file->dirs[0].direct ? "on" : "off");
    }
    pthread_mutex_unlock(&file->lock);
    return code;
}

/* ---- Walking over everything ---- */

/* Called for each stored object, pinned meanwhile, without the lock. Non-zero ends the walk. */
typedef int walk_fn(void *arg, fby_file_t *file, fby_slot_t *slot);

static int walk_segment(fby_file_t *file, fby_segment_t *segment, walk_fn *each, void *arg)
{
    int status = 0;
    for (uint32_t i = 0; i < segment->count && status == 0; i++) {
        fby_slot_t *slot = &segment->slots[i];
        pthread_mutex_lock(&file->lock);
        bool stored = slot->state == FBY_SLOT_STORED;
        if (stored) {
            fby_file_pin(file, slot);
        }
        pthread_mutex_unlock(&file->lock);
        if (!stored) {
            continue;
        }
        status = each(arg, file, slot);
        pthread_mutex_lock(&file->lock);
        bool doomed = fby_file_unpin(file, slot);
        pthread_mutex_unlock(&file->lock);
        if (doomed) {
            fby_file_release_doomed(file, slot);
        }
    }
    return status;
}

/* busy keeps the segment at hand in the list while the lock is away. */
static int walk(fby_file_t *file, walk_fn *each, void *arg)
{
    int status = 0;
    for (uint32_t i = 0; i < file->dir_count && status == 0; i++) {
        pthread_mutex_lock(&file->lock);
        fby_segment_t *segment = file->dirs[i].segments;
        while (segment != NULL && status == 0) {
            segment->busy++;
            pthread_mutex_unlock(&file->lock);
            status = walk_segment(file, segment, each, arg);
            pthread_mutex_lock(&file->lock);
            segment->busy--;
            segment = segment->next;
        }
        pthread_mutex_unlock(&file->lock);
    }
    return status;
}

/* Reads the slot as it is on disk into memory that direct I/O can use. The caller frees it; NULL: unreadable. */
static uint8_t *read_slot(const fby_slot_t *slot)
{
    const fby_segment_t *segment = slot->segment;
    size_t bytes = segment->direct ? fby_align_up(segment->object_bytes, FBY_DIRECT_ALIGN) : segment->object_bytes;
    void *memory = NULL;
    if (posix_memalign(&memory, FBY_DIRECT_ALIGN, bytes) != 0) {
        return NULL;
    }
    ssize_t moved = fby_segment_read(segment->fd, memory, bytes, fby_file_slot_offset(slot));
    if (moved < (ssize_t)segment->object_bytes) {
        free(memory);
        return NULL;
    }
    return memory;
}

/* ---- visit ---- */

typedef struct visitor {
    fby_store_visit_fn *visit;
    void *arg;
} visitor_t;

/* An object that cannot be read is shown all the same, with a trailer of zeros. */
static int visit_slot(void *arg, fby_file_t *file, fby_slot_t *slot)
{
    (void)file;
    const visitor_t *visitor = arg;
    char key[FBY_KEY_BYTES];
    uint8_t trailer[FBY_TRAILER_BYTES] = {0};
    fby_key_text(&slot->hash, slot->group, key);
    uint8_t *object = read_slot(slot);
    if (object != NULL) {
        memcpy(trailer, object + slot->segment->object_bytes - FBY_TRAILER_BYTES, sizeof(trailer));
    }
    free(object);
    return visitor->visit(visitor->arg, key, slot->segment->object_bytes, trailer);
}

int fby_file_visit(fby_file_t *file, fby_store_visit_fn *visit, void *arg)
{
    visitor_t visitor = {visit, arg};
    return walk(file, visit_slot, &visitor);
}

/* ---- gc ---- */

static int drop_unreadable(void *arg, fby_file_t *file, fby_slot_t *slot)
{
    uint64_t *dropped = arg;
    fby_object_id_t id = {.group = slot->group};
    uint64_t checksum;
    uint8_t flags;
    uint8_t *object = read_slot(slot);
    uint32_t payload = slot->segment->object_bytes - FBY_TRAILER_BYTES;
    bool good = object != NULL && fby_trailer_parse(object + payload, &id, &checksum, &flags) == FBY_OBJECT_OK &&
                fby_hash_equal(&id.hash, &slot->hash) && id.group == slot->group && id.payload_bytes == payload &&
                fby_object_verify(object, &id, true) == FBY_OBJECT_OK;
    free(object);
    if (good) {
        return 0;
    }
    pthread_mutex_lock(&file->lock);
    if (slot->state == FBY_SLOT_STORED) {
        fby_file_doom(file, slot);
        *dropped += 1;
    }
    pthread_mutex_unlock(&file->lock);
    return 0;
}

static bool is_empty(const fby_segment_t *segment)
{
    for (uint32_t i = 0; i < segment->count; i++) {
        if (segment->slots[i].state != FBY_SLOT_FREE) {
            return false;
        }
    }
    return segment->busy == 0;
}

static uint64_t drop_empty(fby_file_t *file, fby_file_dir_t *dir, uint32_t *dropped)
{
    uint64_t freed = 0;
    fby_segment_t *next;
    for (fby_segment_t *segment = dir->segments; segment != NULL; segment = next) {
        next = segment->next;
        if (is_empty(segment)) {
            freed += segment->file_bytes;
            fby_file_segment_drop(file, segment);
            (*dropped)++;
        }
    }
    return freed;
}

int fby_file_gc(fby_file_t *file, uint64_t *freed_bytes, char *text, size_t text_size)
{
    uint64_t unreadable = 0, freed = 0;
    uint32_t segments = 0;
    if (file->readonly) {
        snprintf(text, text_size, "the store is open for reading only");
        return FBY_E_INVALID;
    }
    int status = walk(file, drop_unreadable, &unreadable);
    pthread_mutex_lock(&file->lock);
    for (uint32_t i = 0; i < file->dir_count; i++) {
        freed += drop_empty(file, &file->dirs[i], &segments);
        file->dirs[i].retry_ns = 0;
    }
    pthread_mutex_unlock(&file->lock);
    uint32_t damaged = 0;
    for (uint32_t i = 0; i < file->dir_count; i++) {
        freed += fby_file_drop_damaged(file, i, &damaged);
    }
    *freed_bytes = freed;
    snprintf(text, text_size, "%llu unreadable objects dropped, %u empty and %u damaged segments removed",
             (unsigned long long)unreadable, segments, damaged);
    return status;
}
