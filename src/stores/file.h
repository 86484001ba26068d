/*
 * file.h - inside the file store: a directory (or several) of segment files, and an index over them in memory.
 *
 *   DIR/forebay.lock            held by the one process that writes here; holds its pid
 *   DIR/forebay.super           format version, highest weights epoch per model; replaced atomically
 *   DIR/segment-XXXXXXXX.fby    4096-byte header, then slots of one object length, preallocated
 *
 * A slot holds an object as it is in memory (payload, trailer) padded to the segment's alignment. There is no other
 * record of what is stored: the index is rebuilt from the trailers, so a trailer on disk is what makes an object.
 *
 * WRITING A SLOT  (what SIGKILL at any moment may leave: the old object, nothing, or the new object, whole)
 *   1 invalidate: when an older trailer may be there, its first block is overwritten with zeros
 *   2 data: payload and trailer in one write, the trailer last; a write that is interrupted
 *     leaves a prefix, and no prefix holds a whole trailer, which has a check of its own
 *   3 sync: fdatasync, with sync=data
 *   Only then is the key stored. A power cut may reorder what was not synced: then the checksum tells.
 *
 * INVARIANTS (all guarded by file->lock)
 *   A slot is in one state: FREE (on its shelf's free list), WRITING (indexed, not readable, no list), STORED (indexed;
 *   on its shelf's recency list unless pinned), DOOMED (pinned but removed: not indexed; freed by the last unpin).
 *   Only STORED slots with no pin are evicted, so that a reader's bytes stay its own until it is done.
 *   segment->busy counts pins, writes and walks; a segment is unlinked only at 0, and its descriptor lives until then.
 *   No I/O under the lock but creating and dropping a segment.
 */
#ifndef FBY_STORES_FILE_H
#define FBY_STORES_FILE_H

#include <pthread.h>

#include "base/base.h"
#include "forebay/store.h"
#include "stores/file_format.h"
#include "stores/object.h"
#include "stores/options.h"

#define FBY_FILE_MAX_DIRS 64u

typedef enum fby_slot_state { FBY_SLOT_FREE, FBY_SLOT_WRITING, FBY_SLOT_STORED, FBY_SLOT_DOOMED } fby_slot_state_t;

typedef struct fby_slot {
    fby_hash_t hash;
    struct fby_slot *chain;         /* of its index bucket */
    struct fby_slot *newer, *older; /* recency list, or free list */
    struct fby_segment *segment;
    uint64_t used; /* tick of the last use */
    uint32_t pins;
    uint8_t group;
    uint8_t state; /* fby_slot_state_t */
    bool stale;    /* a trailer may be on disk that must not become visible: invalidate before the next write */
} fby_slot_t;

typedef struct fby_slot_list {
    fby_slot_t *newest, *oldest;
} fby_slot_list_t;

/* The slots of one object length in one directory. */
typedef struct fby_shelf {
    struct fby_shelf *next;
    uint32_t dir; /* index in file->dirs */
    uint32_t object_bytes;
    fby_slot_list_t free, recency;
} fby_shelf_t;

typedef struct fby_segment {
    struct fby_segment *next; /* of its directory, in order of number */
    fby_shelf_t *shelf;
    uint32_t number;
    int fd;
    uint32_t object_bytes, stride, count;
    uint64_t file_bytes;
    uint32_t busy;
    uint64_t used; /* tick of the last use of any slot */
    bool direct;   /* fd has O_DIRECT: offsets, lengths and memory are multiples of FBY_DIRECT_ALIGN */
    fby_slot_t *slots;
} fby_segment_t;

typedef struct fby_file_dir {
    char *path;
    int fd, lock_fd;
    uint64_t capacity, bytes; /* of segment files */
    uint32_t next_number;
    bool direct;       /* the file system takes O_DIRECT */
    uint64_t retry_ns; /* no new segment before that: the last one could not be made */
    int create_error;  /* -errno of that; 0: none */
    fby_segment_t *segments;
    fby_super_t super;
} fby_file_dir_t;

typedef enum fby_file_io_mode { FBY_IO_AUTO, FBY_IO_URING, FBY_IO_SYNC } fby_file_io_mode_t;
typedef enum fby_file_direct_mode { FBY_DIRECT_AUTO, FBY_DIRECT_ON, FBY_DIRECT_OFF } fby_file_direct_mode_t;

typedef struct fby_file {
    fby_store_spec_t spec;
    pthread_mutex_t lock;
    fby_file_dir_t *dirs;
    uint32_t dir_count;
    fby_shelf_t *shelves;
    fby_slot_t **buckets;
    size_t bucket_mask;
    uint64_t tick;
    uint64_t stored, damaged, foreign, evicted; /* objects; foreign: found at open with another fingerprint */
    uint32_t unreadable_segments;
    uint64_t segment_bytes; /* option segment; 0: grows with the store */
    uint64_t capacity;      /* option capacity; 0: what the file systems have room for */
    bool readonly, sync_data;
    uint32_t io_mode, direct_mode, queue_depth;
    char model[256];
    struct fby_uring *uring; /* NULL: blocking calls only */
} fby_file_t;

/* ---- file_dir.c: directories, their locks and superblocks ---- */

/* Opens and locks a directory, reads its superblock, checks format and epoch. 0 or a code with a message. */
int fby_file_dir_open(fby_file_t *file, fby_file_dir_t *dir, const char *path, const fby_options_t *options);
void fby_file_dir_close(fby_file_dir_t *dir);
/* Makes `epoch` the highest of this store's model, durably. FBY_E_STALE: a higher one is known. */
int fby_file_dir_raise_epoch(const fby_file_t *file, fby_file_dir_t *dir, uint64_t epoch);
uint64_t fby_file_dir_epoch(const fby_file_t *file, const fby_file_dir_t *dir);

/* ---- file_index.c: key to slot, recency, pins ---- */

int fby_file_index_init(fby_file_t *file);
fby_slot_t *fby_file_find(const fby_file_t *file, const fby_hash_t *hash, uint32_t group);
/* The slot's hash and group are set, and not indexed yet. */
void fby_file_index_add(fby_file_t *file, fby_slot_t *slot);
void fby_file_index_remove(fby_file_t *file, fby_slot_t *slot);
void fby_file_list_push(fby_slot_list_t *list, fby_slot_t *slot);
void fby_file_list_unlink(fby_slot_list_t *list, fby_slot_t *slot);
/* A read of a STORED slot begins and ends. unpin: true when the slot was doomed and is now the caller's to clear. */
void fby_file_pin(fby_file_t *file, fby_slot_t *slot);
bool fby_file_unpin(fby_file_t *file, fby_slot_t *slot);
/* STORED to FREE or DOOMED; takes it out of the index. true: no reader, the slot is the caller's to clear (busy). */
bool fby_file_doom(fby_file_t *file, fby_slot_t *slot);
/* WRITING becomes STORED. */
void fby_file_commit(fby_file_t *file, fby_slot_t *slot);
/* To FREE. busy is given back. stale: a trailer may be on disk. */
void fby_file_free(fby_file_t *file, fby_slot_t *slot, bool stale);
/* A WRITING slot for a key that is not indexed; evicts and makes segments as needed. *code: why there is none. */
fby_slot_t *fby_file_claim(fby_file_t *file, const fby_hash_t *hash, uint32_t group, uint32_t object_bytes, int *code);

/* ---- file_segment.c: segment files ---- */

fby_shelf_t *fby_file_shelf(fby_file_t *file, uint32_t dir, uint32_t object_bytes);
#define FBY_SEGMENT_NO_CAPACITY 1
/* A new, empty, preallocated segment on the shelf. FBY_SEGMENT_NO_CAPACITY: the store's own limit; or -errno. */
int fby_file_segment_create(fby_file_t *file, fby_shelf_t *shelf);
/* Forgets its objects and unlinks the file. busy must be 0. */
void fby_file_segment_drop(fby_file_t *file, fby_segment_t *segment);
/* Frees memory and descriptor only. */
void fby_file_segment_free(fby_segment_t *segment);
/* Reads every segment of a directory into the index. 0 or a code with a message. */
int fby_file_scan(fby_file_t *file, uint32_t dir, const fby_options_t *options);
/* Unlinks segment files whose header is damaged (a newer version is never one). Bytes freed; adds to *dropped. */
uint64_t fby_file_drop_damaged(fby_file_t *file, uint32_t dir, uint32_t *dropped);
uint64_t fby_file_slot_offset(const fby_slot_t *slot);
/* Overwrites what makes the trailer valid. -errno. */
int fby_file_clear_trailer(const fby_slot_t *slot);
/* The block to overwrite for that. */
void fby_file_trailer_block(const fby_slot_t *slot, uint64_t *offset, uint32_t *bytes);
extern const uint8_t fby_file_zeros[FBY_DIRECT_ALIGN];

/* ---- file_job.c: one key's I/O as steps that any engine can run ---- */

typedef enum fby_job_step { FBY_JOB_INVALIDATE, FBY_JOB_DATA, FBY_JOB_SYNC } fby_job_step_t;
typedef enum fby_job_kind { FBY_JOB_READ, FBY_JOB_WRITE, FBY_JOB_FSYNC } fby_job_kind_t;

typedef struct fby_file_job {
    fby_file_t *file;
    fby_store_op_t *op;
    fby_slot_t *slot;
    void *memory; /* op->buffer, or a copy that direct I/O can use */
    uint64_t offset;
    uint32_t bytes; /* to move */
    uint32_t done;
    fby_job_step_t step;
    bool write, copied;
    void *owner; /* of the engine */
} fby_file_job_t;

typedef struct fby_file_io {
    fby_job_kind_t kind;
    int fd;
    void *memory;
    uint32_t bytes;
    uint64_t offset;
} fby_file_io_t;

/* false: op->result is set and nothing is to be done. */
bool fby_file_job_begin(fby_file_t *file, bool write, fby_store_op_t *op, fby_file_job_t *job);
/* The I/O to do next. */
void fby_file_job_io(const fby_file_job_t *job, fby_file_io_t *io);
/* Its result (bytes or -errno). true: another I/O is to be done; false: op->result is set, the job is over. */
bool fby_file_job_advance(fby_file_job_t *job, int64_t result);
/* Ends the job without (more) I/O. Only when none is in flight. */
void fby_file_job_fail(fby_file_job_t *job, int code);
/* A per-key code for -errno. */
int fby_file_code(int64_t error);
/* A slot that was removed while it was read and whose last pin is gone: clears its trailer, frees it. Not locked. */
void fby_file_release_doomed(fby_file_t *file, fby_slot_t *slot);

/* ---- file_sync.c: blocking engine ---- */

int fby_file_run(fby_file_t *file, bool write, fby_store_op_t *ops, uint32_t n);
int fby_file_remove(fby_file_t *file, fby_store_op_t *ops, uint32_t n);

/* ---- file_uring.c ---- */

/* -ENOSYS, -EPERM and others when the kernel refuses; *out untouched then. */
int fby_uring_open(fby_file_t *file, struct fby_uring **out);
/* Cancels and awaits everything in flight: no buffer is touched afterwards. */
void fby_uring_close(struct fby_uring *uring);
int fby_uring_submit(struct fby_uring *uring, bool write, fby_store_op_t *ops, uint32_t n, uint64_t tag);
int fby_uring_reap(struct fby_uring *uring, uint64_t *tags, uint32_t max, int64_t wait_ns);
int fby_uring_cancel(struct fby_uring *uring, uint64_t tag);
void fby_uring_wake(struct fby_uring *uring);

/* ---- file_tools.c ---- */

int fby_file_visit(fby_file_t *file, fby_store_visit_fn *visit, void *arg);
int fby_file_gc(fby_file_t *file, uint64_t *freed_bytes, char *text, size_t text_size);
int fby_file_health(fby_file_t *file, char *text, size_t text_size);

#endif
