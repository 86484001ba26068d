/* file_sync.c - the blocking engine: runs each key's steps in the calling thread. */
#include <errno.h>
#include <unistd.h>

#include "keys/keys.h"
#include "stores/file.h"

static int64_t do_io(const fby_file_io_t *io)
{
    int64_t result;
    switch (io->kind) {
    case FBY_JOB_READ:
        result = pread(io->fd, io->memory, io->bytes, (off_t)io->offset);
        break;
    case FBY_JOB_WRITE:
        result = pwrite(io->fd, io->memory, io->bytes, (off_t)io->offset);
        break;
    case FBY_JOB_FSYNC:
    default:
        result = fdatasync(io->fd);
        break;
    }
    return result < 0 ? -errno : result;
}

int fby_file_run(fby_file_t *file, bool write, fby_store_op_t *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        fby_file_job_t job;
        fby_file_io_t io;
        bool more = fby_file_job_begin(file, write, &ops[i], &job);
        while (more) {
            fby_file_job_io(&job, &io);
            more = fby_file_job_advance(&job, do_io(&io));
        }
    }
    return 0;
}

static int64_t remove_key(fby_file_t *file, const fby_store_op_t *op)
{
    fby_hash_t hash;
    uint32_t group;
    if (file->readonly || !fby_key_parse(op->key, &hash, &group)) {
        return FBY_E_INVALID;
    }
    pthread_mutex_lock(&file->lock);
    fby_slot_t *slot = fby_file_find(file, &hash, group);
    if (slot == NULL || slot->state != FBY_SLOT_STORED) {
        pthread_mutex_unlock(&file->lock);
        return slot == NULL ? FBY_E_MISSING : FBY_E_NOT_READY;
    }
    bool ours = fby_file_doom(file, slot);
    pthread_mutex_unlock(&file->lock);
    if (!ours) {
        return 1; /* the last reader clears the trailer */
    }
    int status = fby_file_clear_trailer(slot);
    pthread_mutex_lock(&file->lock);
    fby_file_free(file, slot, status < 0);
    pthread_mutex_unlock(&file->lock);
    return status < 0 ? fby_file_code(status) : 1;
}

int fby_file_remove(fby_file_t *file, fby_store_op_t *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ops[i].result = remove_key(file, &ops[i]);
    }
    return 0;
}
