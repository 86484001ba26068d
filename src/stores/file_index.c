/* file_index.c - key to slot, recency, pins, and the choice of a slot for a new object. Everything here is locked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "stores/file.h"

#define FIRST_BUCKETS 1024u
#define RETRY_NS FBY_SECOND /* after a segment could not be made */

/* Chain hashes are uniform already; the group keeps the groups of one block apart. */
static size_t bucket_of(const fby_file_t *file, const fby_hash_t *hash, uint32_t group)
{
    return (size_t)(hash->w[0] + group * UINT64_C(0x9E3779B97F4A7C15)) & file->bucket_mask;
}

int fby_file_index_init(fby_file_t *file)
{
    file->buckets = calloc(FIRST_BUCKETS, sizeof(fby_slot_t *));
    file->bucket_mask = FIRST_BUCKETS - 1;
    return file->buckets != NULL ? 0 : -ENOMEM;
}

fby_slot_t *fby_file_find(const fby_file_t *file, const fby_hash_t *hash, uint32_t group)
{
    fby_slot_t *slot = file->buckets[bucket_of(file, hash, group)];
    while (slot != NULL && (slot->group != group || !fby_hash_equal(&slot->hash, hash))) {
        slot = slot->chain;
    }
    return slot;
}

/* Keeps the old buckets when there is no memory: chains grow longer, nothing is lost. */
static void index_grow(fby_file_t *file)
{
    size_t old_buckets = file->bucket_mask + 1;
    fby_slot_t **larger = calloc(old_buckets * 2, sizeof(fby_slot_t *));
    if (larger == NULL) {
        return;
    }
    fby_slot_t **old = file->buckets;
    file->buckets = larger;
    file->bucket_mask = old_buckets * 2 - 1;
    for (size_t i = 0; i < old_buckets; i++) {
        fby_slot_t *next;
        for (fby_slot_t *slot = old[i]; slot != NULL; slot = next) {
            size_t bucket = bucket_of(file, &slot->hash, slot->group);
            next = slot->chain;
            slot->chain = larger[bucket];
            larger[bucket] = slot;
        }
    }
    free(old);
}

void fby_file_index_add(fby_file_t *file, fby_slot_t *slot)
{
    size_t bucket = bucket_of(file, &slot->hash, slot->group);
    slot->chain = file->buckets[bucket];
    file->buckets[bucket] = slot;
    if (file->stored > file->bucket_mask) {
        index_grow(file);
    }
}

void fby_file_index_remove(fby_file_t *file, fby_slot_t *slot)
{
    fby_slot_t **link = &file->buckets[bucket_of(file, &slot->hash, slot->group)];
    while (*link != slot) {
        link = &(*link)->chain;
    }
    *link = slot->chain;
    slot->chain = NULL;
}

void fby_file_list_push(fby_slot_list_t *list, fby_slot_t *slot)
{
    slot->newer = NULL;
    slot->older = list->newest;
    *(list->newest != NULL ? &list->newest->newer : &list->oldest) = slot;
    list->newest = slot;
}

void fby_file_list_unlink(fby_slot_list_t *list, fby_slot_t *slot)
{
    *(slot->newer != NULL ? &slot->newer->older : &list->newest) = slot->older;
    *(slot->older != NULL ? &slot->older->newer : &list->oldest) = slot->newer;
    slot->newer = NULL;
    slot->older = NULL;
}

static void touch(fby_file_t *file, fby_slot_t *slot)
{
    slot->used = ++file->tick;
    slot->segment->used = slot->used;
}

void fby_file_pin(fby_file_t *file, fby_slot_t *slot)
{
    touch(file, slot);
    if (slot->pins++ == 0) {
        fby_file_list_unlink(&slot->segment->shelf->recency, slot);
        slot->segment->busy++;
    }
}

bool fby_file_unpin(fby_file_t *file, fby_slot_t *slot)
{
    if (--slot->pins > 0) {
        return false;
    }
    if (slot->state == FBY_SLOT_DOOMED) {
        return true; /* busy stays counted until it is freed */
    }
    touch(file, slot);
    fby_file_list_push(&slot->segment->shelf->recency, slot);
    slot->segment->busy--;
    return false;
}

bool fby_file_doom(fby_file_t *file, fby_slot_t *slot)
{
    fby_file_index_remove(file, slot);
    file->stored--;
    slot->state = FBY_SLOT_DOOMED;
    if (slot->pins > 0) {
        return false;
    }
    fby_file_list_unlink(&slot->segment->shelf->recency, slot);
    slot->segment->busy++;
    return true;
}

void fby_file_commit(fby_file_t *file, fby_slot_t *slot)
{
    slot->state = FBY_SLOT_STORED;
    slot->stale = true; /* from now on its trailer is on disk */
    file->stored++;
    touch(file, slot);
    fby_file_list_push(&slot->segment->shelf->recency, slot);
    slot->segment->busy--;
}

void fby_file_free(fby_file_t *file, fby_slot_t *slot, bool stale)
{
    if (slot->state == FBY_SLOT_WRITING) {
        fby_file_index_remove(file, slot);
    }
    slot->state = FBY_SLOT_FREE;
    slot->stale = stale;
    fby_file_list_push(&slot->segment->shelf->free, slot);
    slot->segment->busy--;
}

/* The segment of another object length whose objects were all unused for longest: what a shrinking group, or another
   model that shared the directory, leaves behind. NULL: none is idle. */
static fby_segment_t *oldest_foreign_segment(const fby_file_t *file, const fby_shelf_t *shelf)
{
    fby_segment_t *oldest = NULL;
    for (fby_segment_t *at = file->dirs[shelf->dir].segments; at != NULL; at = at->next) {
        if (at->shelf != shelf && at->busy == 0 && (oldest == NULL || at->used < oldest->used)) {
            oldest = at;
        }
    }
    return oldest;
}

static fby_slot_t *take_free(fby_shelf_t *shelf)
{
    fby_slot_t *slot = shelf->free.newest;
    if (slot != NULL) {
        fby_file_list_unlink(&shelf->free, slot);
        slot->segment->busy++;
    }
    return slot;
}

static fby_slot_t *evict_oldest(fby_file_t *file, fby_shelf_t *shelf)
{
    fby_slot_t *slot = shelf->recency.oldest;
    if (slot == NULL) {
        return NULL;
    }
    fby_file_doom(file, slot);
    file->evicted++;
    return slot; /* stale: its old trailer is invalidated before it is written */
}

static int grow_shelf(fby_file_t *file, fby_shelf_t *shelf)
{
    fby_file_dir_t *dir = &file->dirs[shelf->dir];
    uint64_t now = fby_clock_now(&fby_clock_monotonic);
    if (now < dir->retry_ns) {
        return dir->create_error;
    }
    int status = fby_file_segment_create(file, shelf);
    if (status == FBY_SEGMENT_NO_CAPACITY) {
        return -ENOSPC;
    }
    dir->create_error = status;
    dir->retry_ns = status < 0 ? now + RETRY_NS : 0;
    return status;
}

/* A free slot of the shelf: one that is free, of a new segment, or of whichever is older: the shelf's own oldest
   object, or a segment of another object length that gives its room to a new one. NULL: *error says why. */
static fby_slot_t *find_room(fby_file_t *file, fby_shelf_t *shelf, int *error)
{
    fby_slot_t *slot = take_free(shelf);
    if (slot != NULL) {
        return slot;
    }
    *error = grow_shelf(file, shelf);
    slot = take_free(shelf);
    if (slot != NULL) {
        return slot;
    }
    fby_segment_t *foreign = oldest_foreign_segment(file, shelf);
    if (foreign != NULL && (shelf->recency.oldest == NULL || foreign->used < shelf->recency.oldest->used)) {
        fby_file_segment_drop(file, foreign);
        file->dirs[shelf->dir].retry_ns = 0;
        *error = grow_shelf(file, shelf);
        slot = take_free(shelf);
    }
    return slot != NULL ? slot : evict_oldest(file, shelf);
}

fby_slot_t *fby_file_claim(fby_file_t *file, const fby_hash_t *hash, uint32_t group, uint32_t object_bytes, int *code)
{
    uint32_t home = (uint32_t)((hash->w[1] >> 32) % file->dir_count);
    int error = -ENOSPC;
    /* Another directory takes over when the key's own has no room at all; lookups search one index over all. */
    for (uint32_t i = 0; i < file->dir_count; i++) {
        fby_shelf_t *shelf = fby_file_shelf(file, (home + i) % file->dir_count, object_bytes);
        fby_slot_t *slot = shelf != NULL ? find_room(file, shelf, &error) : NULL;
        if (slot == NULL) {
            continue;
        }
        slot->hash = *hash;
        slot->group = (uint8_t)group;
        slot->state = FBY_SLOT_WRITING;
        fby_file_index_add(file, slot);
        return slot;
    }
    *code = fby_file_code(error);
    return NULL;
}
