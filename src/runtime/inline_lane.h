/*
 * inline_lane.h - host `inline`: one thread, the store lane, submits reads and writes to an asynchronous driver and reaps
 * them.
 *
 * It never blocks but in reap(), and there only until the deadline it keeps (when it is the timekeeper) or a wake. So it
 * can withdraw what is late: a FENCE marks the job, the thread cancels it, the completion ends the quarantine.
 * Reads it takes from the core itself. A write first asks the store what is there, with calls that may block: so a write
 * lane takes it, and hands the puts to this thread (fby_inline_put).
 */
#ifndef FBY_RUNTIME_INLINE_LANE_H
#define FBY_RUNTIME_INLINE_LANE_H

#include <pthread.h>

#include "base/base.h"
#include "runtime/lanes.h"

typedef struct fby_inline_job fby_inline_job_t;
struct fby_job;

typedef struct fby_inline {
    pthread_t thread;
    fby_inline_job_t *jobs; /* reads, then puts that write lanes handed over; tag = index + 1 */
    uint32_t reads, job_count;
    uint64_t taken; /* jobs so far; of the thread */
    /* guarded by the runtime's lock */
    bool started, left;
    bool sleeping; /* in reap, or about to be: needs a wake */
    bool wake_pending;
    uint32_t reading, putting; /* jobs under way */
} fby_inline_t;

/* -ENOMEM. Makes no thread. */
int fby_inline_init(fby_runtime_t *runtime);
void fby_inline_free(fby_runtime_t *runtime);
/* Starts the thread; when there is none to be had, fails the work in this one. Outside the lock. */
void fby_inline_make(fby_runtime_t *runtime);
/* Wakes or makes it: for reads that may start, for anything. Under the lock. */
void fby_inline_plan_reads(fby_runtime_t *runtime, fby_actions_t *actions);
void fby_inline_plan_wake(fby_runtime_t *runtime, fby_actions_t *actions);
/* A write lane's puts: returns when they have ended, cancelled ones soon. 0 or what submit said. Outside the lock. */
int fby_inline_put(fby_runtime_t *runtime, struct fby_job *job);
/* Wakes the write lanes whose puts have ended. Outside the lock. */
void fby_inline_wake_puts(fby_runtime_t *runtime);
/* Cancels the read of a part; false when it is none of ours. Under the lock. */
bool fby_inline_fence(fby_runtime_t *runtime, uint32_t part, uint64_t now);
/* Cancels what a write lane handed over, if it did. Under the lock. */
void fby_inline_cancel(fby_runtime_t *runtime, const struct fby_job *job);
/* Cancels all reads, or everything. Under the lock. */
void fby_inline_cancel_all(fby_runtime_t *runtime, bool writes_too);
/* Reads with the driver. Under the lock. */
uint32_t fby_inline_reading(const fby_runtime_t *runtime);
/* Whether it has to come back from the driver before it can end. Under the lock. */
bool fby_inline_in_call(const fby_runtime_t *runtime);
/* Whether a read is past half its limit. Under the lock. */
bool fby_inline_slow(const fby_runtime_t *runtime, uint64_t now);

#endif
