/* file_job.c - one key's read or write, as steps: claim or pin the slot, move the bytes, settle the slot. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "keys/keys.h"
#include "stores/file.h"

int fby_file_code(int64_t error)
{
    switch (-error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
        return FBY_E_FULL;
    case EROFS:
    case EACCES:
    case EPERM:
        return FBY_E_INVALID;
    case ECANCELED:
        return FBY_E_TIMEOUT;
    default:
        return FBY_E_CONNECTION;
    }
}

static uint32_t disk_bytes(const fby_segment_t *segment)
{
    return segment->direct ? (uint32_t)fby_align_up(segment->object_bytes, FBY_DIRECT_ALIGN) : segment->object_bytes;
}

/* Direct I/O moves whole blocks: the caller's buffer serves when it is aligned and known to hold them. */
static bool buffer_serves(const fby_file_t *file, const fby_segment_t *segment, const fby_store_op_t *op)
{
    if (!segment->direct) {
        return true;
    }
    return (uintptr_t)op->buffer % FBY_DIRECT_ALIGN == 0 && op->group < file->spec.groups &&
           file->spec.slot_bytes[op->group] >= disk_bytes(segment);
}

static int take_memory(fby_file_job_t *job)
{
    const fby_segment_t *segment = job->slot->segment;
    job->memory = job->op->buffer;
    job->bytes = disk_bytes(segment);
    job->offset = fby_file_slot_offset(job->slot);
    if (buffer_serves(job->file, segment, job->op)) {
        return 0;
    }
    if (posix_memalign(&job->memory, FBY_DIRECT_ALIGN, job->bytes) != 0) {
        return -ENOMEM;
    }
    job->copied = true;
    if (job->write) {
        memcpy(job->memory, job->op->buffer, job->op->bytes);
        memset((uint8_t *)job->memory + job->op->bytes, 0, job->bytes - job->op->bytes);
    }
    return 0;
}

static void begin_read(fby_file_t *file, const fby_hash_t *hash, uint32_t group, fby_file_job_t *job)
{
    fby_store_op_t *op = job->op;
    pthread_mutex_lock(&file->lock);
    fby_slot_t *slot = fby_file_find(file, hash, group);
    if (slot == NULL) {
        op->result = FBY_E_MISSING;
    } else if (slot->state != FBY_SLOT_STORED) {
        op->result = FBY_E_NOT_READY;
    } else if (slot->segment->object_bytes != op->bytes) {
        op->result = FBY_E_SIZE;
    } else {
        fby_file_pin(file, slot);
        job->slot = slot;
    }
    pthread_mutex_unlock(&file->lock);
    job->step = FBY_JOB_DATA;
}

/* Only what the index can be rebuilt from is stored: the trailer must name the key and fit the length. */
static bool is_sealed(const fby_store_op_t *op, const fby_hash_t *hash, uint32_t group)
{
    fby_object_id_t id;
    uint64_t checksum;
    uint8_t flags;
    return op->bytes > FBY_TRAILER_BYTES &&
           fby_trailer_parse((const uint8_t *)op->buffer + op->bytes - FBY_TRAILER_BYTES, &id, &checksum, &flags) ==
               FBY_OBJECT_OK &&
           id.payload_bytes + FBY_TRAILER_BYTES == op->bytes && id.group == group && fby_hash_equal(&id.hash, hash);
}

static void begin_write(fby_file_t *file, const fby_hash_t *hash, uint32_t group, fby_file_job_t *job)
{
    fby_store_op_t *op = job->op;
    int code = 0;
    if (file->readonly || group >= file->spec.groups || op->bytes != file->spec.object_bytes[group] ||
        !is_sealed(op, hash, group)) {
        op->result = FBY_E_INVALID;
        return;
    }
    pthread_mutex_lock(&file->lock);
    fby_slot_t *slot = fby_file_find(file, hash, group);
    if (slot != NULL) {
        op->result = slot->state == FBY_SLOT_STORED ? FBY_E_EXISTS : FBY_E_NOT_READY;
    } else {
        job->slot = fby_file_claim(file, hash, group, op->bytes, &code);
        op->result = code;
    }
    pthread_mutex_unlock(&file->lock);
    if (job->slot != NULL) {
        job->step = job->slot->stale ? FBY_JOB_INVALIDATE : FBY_JOB_DATA;
    }
}

bool fby_file_job_begin(fby_file_t *file, bool write, fby_store_op_t *op, fby_file_job_t *job)
{
    fby_hash_t hash;
    uint32_t group;
    *job = (fby_file_job_t){.file = file, .op = op, .write = write};
    if (!fby_key_parse(op->key, &hash, &group) || group != op->group || op->buffer == NULL) {
        op->result = FBY_E_INVALID;
        return false;
    }
    if (write) {
        begin_write(file, &hash, group, job);
    } else {
        begin_read(file, &hash, group, job);
    }
    if (job->slot != NULL && take_memory(job) < 0) {
        fby_file_job_fail(job, FBY_E_CONNECTION);
    }
    return job->slot != NULL;
}

void fby_file_job_io(const fby_file_job_t *job, fby_file_io_t *io)
{
    io->fd = job->slot->segment->fd;
    switch (job->step) {
    case FBY_JOB_INVALIDATE:
        io->kind = FBY_JOB_WRITE;
        io->memory = (void *)(uintptr_t)fby_file_zeros; /* only ever read from */
        fby_file_trailer_block(job->slot, &io->offset, &io->bytes);
        break;
    case FBY_JOB_DATA:
        io->kind = job->write ? FBY_JOB_WRITE : FBY_JOB_READ;
        io->memory = (uint8_t *)job->memory + job->done;
        io->bytes = job->bytes - job->done;
        io->offset = job->offset + job->done;
        break;
    case FBY_JOB_SYNC:
    default:
        io->kind = FBY_JOB_FSYNC;
        io->memory = NULL;
        io->bytes = 0;
        io->offset = 0;
        break;
    }
}

static void drop_memory(fby_file_job_t *job)
{
    if (job->copied) {
        free(job->memory);
    }
    job->memory = NULL;
}

/* Nobody else may touch the slot, so its trailer is cleared without the lock. */
void fby_file_release_doomed(fby_file_t *file, fby_slot_t *slot)
{
    bool cleared = fby_file_clear_trailer(slot) == 0;
    pthread_mutex_lock(&file->lock);
    fby_file_free(file, slot, !cleared);
    pthread_mutex_unlock(&file->lock);
}

static void end_read(fby_file_job_t *job, bool unreadable)
{
    fby_file_t *file = job->file;
    fby_slot_t *slot = job->slot;
    pthread_mutex_lock(&file->lock);
    if (unreadable && slot->state == FBY_SLOT_STORED && !file->readonly) {
        fby_file_doom(file, slot); /* pinned by us: so that a later put can store the key again */
        file->damaged++;
    }
    bool doomed = fby_file_unpin(file, slot);
    pthread_mutex_unlock(&file->lock);
    if (doomed) {
        fby_file_release_doomed(file, slot);
    }
}

static void end_write(fby_file_job_t *job, bool stored)
{
    fby_file_t *file = job->file;
    pthread_mutex_lock(&file->lock);
    if (stored) {
        fby_file_commit(file, job->slot);
    } else {
        fby_file_free(file, job->slot, true);
    }
    pthread_mutex_unlock(&file->lock);
}

void fby_file_job_fail(fby_file_job_t *job, int code)
{
    job->op->result = code;
    drop_memory(job);
    if (job->write) {
        end_write(job, false);
    } else {
        end_read(job, code == FBY_E_SIZE);
    }
    job->slot = NULL;
}

/* The bytes go back as they are: what is wrong with them is the caller's to say. But a trailer of another key cannot
   become right again. */
static void finish_read(fby_file_job_t *job)
{
    fby_store_op_t *op = job->op;
    if (job->copied) {
        memcpy(op->buffer, job->memory, op->bytes);
    }
    drop_memory(job);
    op->result = op->bytes;
    end_read(job, !is_sealed(op, &job->slot->hash, job->slot->group));
    job->slot = NULL;
}

static void finish_write(fby_file_job_t *job)
{
    drop_memory(job);
    job->op->result = job->op->bytes;
    end_write(job, true);
    job->slot = NULL;
}

/* Bytes moved so far that the next transfer can start at; direct I/O goes back to a whole block. */
static bool move_on(fby_file_job_t *job, uint32_t moved)
{
    uint32_t done = job->done + moved;
    if (job->slot->segment->direct && done < job->bytes) {
        done &= ~(FBY_DIRECT_ALIGN - 1);
    }
    bool moves = done > job->done;
    job->done = done;
    return moves;
}

bool fby_file_job_advance(fby_file_job_t *job, int64_t result)
{
    uint64_t offset;
    uint32_t block;
    if (result == -EINTR || result == -EAGAIN) {
        return true;
    }
    if (result < 0) {
        fby_file_job_fail(job, fby_file_code(result));
        return false;
    }
    switch (job->step) {
    case FBY_JOB_INVALIDATE:
        fby_file_trailer_block(job->slot, &offset, &block);
        if (result != (int64_t)block) {
            fby_file_job_fail(job, FBY_E_CONNECTION);
            return false;
        }
        job->step = FBY_JOB_DATA;
        return true;
    case FBY_JOB_DATA:
        if (!move_on(job, (uint32_t)result)) {
            /* Nothing more comes: a file cut short behind our back, or a full disk under a sparse file. */
            fby_file_job_fail(job, job->write ? FBY_E_FULL : FBY_E_SIZE);
            return false;
        }
        if (job->done < job->bytes) {
            return true;
        }
        if (job->write && job->file->sync_data) {
            job->step = FBY_JOB_SYNC;
            return true;
        }
        break;
    case FBY_JOB_SYNC:
    default:
        break;
    }
    if (job->write) {
        finish_write(job);
    } else {
        finish_read(job);
    }
    return false;
}
