/*
 * replay_put.h - a few threads that put prompts and wait for their store writes, so that the replay's loop never waits.
 *
 * LIFE OF A JOB: added by the loop -> filled, committed, waited for by one thread -> on the done list, the descriptor
 * readable -> taken by the loop. A job belongs to the loop before and after, to one thread between.
 */
#ifndef FBY_CLI_REPLAY_PUT_H
#define FBY_CLI_REPLAY_PUT_H

#include <pthread.h>

#include "base/base.h"
#include "forebay/forebay.h"

enum { FBY_PUT_THREADS = 4 };

typedef struct fby_put_job {
    struct fby_put_job *next;
    fby_seq_t *seq;
    uint32_t request;
    int status;                /* of a put that could not be made; stored and unstored count in any case */
    uint64_t stored, unstored; /* blocks */
} fby_put_job_t;

typedef struct fby_putter {
    fby_cache_t *cache;
    uint32_t payload_bytes;
    int done_fd; /* readable while jobs are on the done list */
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread[FBY_PUT_THREADS];
    uint32_t threads;
    fby_put_job_t *waiting, **waiting_tail, *done, **done_tail;
    bool stop;
} fby_putter_t;

/* The cache must outlive it. -errno with the detail set. */
int fby_putter_open(fby_putter_t *putter, fby_cache_t *cache, uint32_t payload_bytes);
/* Ends the threads: what is under way is left after at most half a second. Jobs are freed. */
void fby_putter_close(fby_putter_t *putter);
/* Takes seq over until the job is taken back. -ENOMEM. */
int fby_putter_add(fby_putter_t *putter, fby_seq_t *seq, uint32_t request);
/* The next job that is done, the caller's to free; NULL: none, and the descriptor is not readable any more. */
fby_put_job_t *fby_putter_take(fby_putter_t *putter);
/* The chain hash of a block, which its payload follows from. A code with the detail set. */
int fby_putter_hash(const fby_seq_t *seq, uint64_t block, fby_hash_t *hash);

#endif
