/*
 * job.h - one driver call: taken from the core, run on the store, reported back.
 *
 *   take (lock)  ->  run, or prepare / driver / finish (no lock)  ->  complete (lock)
 *
 * A job's arrays are sized for the largest call at creation; nothing is allocated later.
 */
#ifndef FBY_RUNTIME_JOB_H
#define FBY_RUNTIME_JOB_H

#include "core/core.h"
#include "forebay/store.h"
#include "runtime/breaker.h"
#include "runtime/lanes.h"

typedef struct fby_job {
    fby_lane_kind_t kind;
    bool under_way; /* between take and complete */
    bool overdue;   /* its limit fired */
    bool refused;   /* by the breaker, or for want of a thread: ends without the store */
    fby_permit_t permit;
    uint64_t begun_at, limit_at;
    uint8_t fingerprint[16];
    fby_core_query_t query; /* kind QUERY */
    fby_core_part_t part;   /* READ, WRITE */
    fby_core_io_t *io;      /* in the part's order */
    int32_t *results;       /* likewise */
    fby_store_op_t *ops;    /* what goes to the driver: ops_count of them, a subset of io */
    uint32_t *at;           /* index in io of each op */
    uint32_t ops_count;
    void *scratch;        /* WRITE to a driver that overwrites: one object, to see whether what is there is readable */
    uint8_t *present;     /* QUERY */
    int status;           /* QUERY */
    uint64_t lease_until; /* QUERY */
    bool reached;         /* the store answered, whatever it said */
    bool cut;            /* host agent: its process ended under it for another's reason; says nothing about the store */
    bool fence_due;      /* host agent: its limit fired, its call is to be fenced */
    _Atomic bool passed; /* host agent: likewise, for the calls that it has not made yet; any thread */
    uint64_t token;      /* of this take, for the fence */
    fby_fault_report_t fault;
} fby_job_t;

/* -ENOMEM. Free also what failed. */
int fby_job_init(fby_job_t *job, const fby_runtime_t *runtime, fby_lane_kind_t kind);
void fby_job_free(fby_job_t *job);

/* Takes work of the job's kind; false when there is none that may start now. `refuse`: only to fail it. Under the lock. */
bool fby_job_take(fby_runtime_t *runtime, fby_job_t *job, uint64_t now, bool refuse);
/* Of these kinds of work (FBY_WANT_*), those that may start a driver call now. Under the lock. */
unsigned fby_job_startable(const fby_runtime_t *runtime, unsigned wants);
/* The whole call, blocking: prepare, driver, finish. Refused, it ends at once without the store. */
void fby_job_run(fby_runtime_t *runtime, fby_job_t *job);
/* Fills the ops. A write leaves out keys that the store has already: ops_count may become 0. Only a write may block. */
void fby_job_prepare(fby_runtime_t *runtime, fby_job_t *job);
/* Turns what the driver left (rc of the call, results of the ops) into verified results. */
void fby_job_finish(fby_runtime_t *runtime, fby_job_t *job, int rc);
/* Every block of the job failed with this code, without the store. */
void fby_job_refuse(fby_job_t *job, int code);
/* Hands the results to the core; exactly once per take. Under the lock. */
void fby_job_complete(fby_runtime_t *runtime, fby_job_t *job, uint64_t now);
/* Its limit fired: counts for the breaker now, not again at its end. Under the lock. */
void fby_job_lapse(fby_runtime_t *runtime, fby_job_t *job, uint64_t now);
/* Whether it is under way and past half its limit. Under the lock. */
bool fby_job_is_slow(const fby_job_t *job, uint64_t now);
/* A driver's result as a code of ours. */
int fby_store_code(int64_t result);

#endif
