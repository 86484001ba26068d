/*
 * rank_internal.h - one attached rank.
 *
 * INVARIANTS
 *   LOCKS    `lock` guards plans, the table of copies, and `broken`; `device_lock` makes calls of the back end come one at
 *            a time. A start holds device_lock alone; whoever holds lock only tries device_lock, so that nobody waits for
 *            the table behind a device.
 *   COPY     a copy in the table is STARTING (its starter owns it), RUNNING (the device does) or ENDED (waits for its
 *            poll). It is reported once and its place in the table is free then.
 *   MEMORY   the pool stays mapped while a copy is not settled, for ever if it must.
 */
#ifndef FBY_RANK_INTERNAL_H
#define FBY_RANK_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "base/base.h"
#include "forebay/rank.h"
#include "rank/layout.h"

enum { FBY_MOST_COPIES = 1024, FBY_DETAIL_BYTES = 256 };

typedef enum fby_copy_phase { FBY_COPY_NONE, FBY_COPY_STARTING, FBY_COPY_RUNNING, FBY_COPY_ENDED } fby_copy_phase_t;

typedef struct fby_copy_job {
    const fby_plan_t *plan;
    fby_operation_t *operation; /* RUNNING */
    int32_t *results;           /* the caller's, or NULL */
    uint64_t *sums;             /* the caller's, or NULL */
    uint64_t *late_places;      /* places whose sums are made at the end, or NULL; the job's */
    uint64_t blocks;
    fby_copy_status_t status;
    char detail[FBY_DETAIL_BYTES];
} fby_copy_job_t;

typedef struct fby_copy_entry {
    uint32_t generation;
    fby_copy_phase_t phase;
    fby_copy_job_t *job;
} fby_copy_entry_t;

struct fby_rank {
    pid_t owner; /* process */
    uint32_t rank, ranks;
    fby_pool_t pool;
    uint8_t *base;
    int event_fd;
    const fby_device_driver_t *driver;
    fby_device_t *device;
    pthread_mutex_t lock, device_lock;
    fby_plan_t plan[FBY_MAX_GROUPS];
    int broken; /* how an unsettled copy failed; 0 */
    fby_rank_t *next_abandoned;
    fby_copy_entry_t copies[FBY_MOST_COPIES];
};

/* 0, -EINVAL (NULL), FBY_E_FORKED; with detail. */
int fby_rank_usable(const fby_rank_t *rank);
/* Ends every copy that is under way, waiting at most limit_s (negative: for ever); false when one is not settled. */
bool fby_rank_drain(fby_rank_t *rank, double limit_s);
/* fby_error_set with a code's text where the callee gave none; passes rc on. */
int fby_rank_fail(int rc, const char *what, const char *detail);

/* Sleeps a little longer each time, 20 us to 1 ms: what waits for a device does. */
void fby_rank_pause(uint64_t *nap_ns);

/* verify.c: checks one block of a load. `own`: the shard's sums from the copy (with the plan's segment_bytes), or NULL.
   `scratch`: room for the sums of the whole payload. 0 or FBY_E_CHECKSUM with detail. */
int fby_rank_verify(const fby_rank_t *rank, uint32_t group, const uint8_t *slot, const uint64_t *own, uint64_t *scratch,
                    char *detail, size_t detail_size);
/* Entries that `scratch` needs; 0 without segments. */
uint64_t fby_rank_scratch(const fby_rank_t *rank, uint32_t group);

#endif
