/*
 * lanes.h - the threads that talk to the store.
 *
 * Lanes pull: a lane takes work from the core when it can start it at once, so that what is not begun can be recalled.
 *   query lanes   blocking `exists` calls, on either host
 *   read lanes    host `thread`: blocking `get` calls, one part each
 *   write lanes   host `thread`: blocking `put` calls, behind all reads because they are threads of their own
 *   store lane    host `inline`: one thread that submits and reaps reads and writes and never blocks in a call
 * All of them start when something first needs the store, and one by one as long as all of a kind are busy.
 *
 * A call that has passed its limit keeps its thread; the lane counts as *stuck* and another takes its place, up to
 * FBY_STUCK_LANES of a kind. When the call returns, the surplus thread ends.
 */
#ifndef FBY_RUNTIME_LANES_H
#define FBY_RUNTIME_LANES_H

#include <pthread.h>

#include "base/base.h"
#include "stores/object.h"

/* 1 << kind is the core's FBY_WANT_* bit. */
typedef enum fby_lane_kind { FBY_LANE_QUERY, FBY_LANE_READ, FBY_LANE_WRITE, FBY_LANE_KINDS } fby_lane_kind_t;

enum { FBY_STUCK_LANES = 16 };

typedef struct fby_runtime fby_runtime_t;
typedef struct fby_actions fby_actions_t;
typedef struct fby_lane fby_lane_t;

/* Objects of one driver call that were not what they should be, by kind. */
typedef struct fby_fault_report {
    uint32_t count[FBY_OBJECT_FAULT_COUNT];
    uint32_t unreadable; /* writes that met a key that exists and cannot be read */
    uint64_t suppressed;
} fby_fault_report_t;

/* The threads of one kind; guarded by the runtime's lock. */
typedef struct fby_lane_pool {
    pthread_cond_t work;
    uint32_t most; /* healthy ones */
    uint32_t alive, idle, stuck;
    bool wake_pending; /* one lane was signalled, or made, and has not run yet: it wakes the next if there is more */
} fby_lane_pool_t;

/* Wakes or makes the lanes for what the core has queued. Under the lock, once per critical section. */
void fby_lanes_plan(fby_runtime_t *runtime, fby_actions_t *actions);
/* Makes one lane of a kind; when the system gives no thread, fails the work in this one. Outside the lock. */
void fby_lane_make(fby_runtime_t *runtime, fby_lane_kind_t kind);
/* The limit of this part fired. Under the lock. */
void fby_lanes_fence(fby_runtime_t *runtime, uint32_t part, uint64_t now);
/* Host agent: has the calls fenced whose limits fired. Outside the lock. */
void fby_lanes_fence_due(fby_runtime_t *runtime);
/* Queries that passed their limit give their place away. Under the lock. */
void fby_lanes_overdue(fby_runtime_t *runtime, uint64_t now);
/* Lanes inside a driver call. Under the lock. */
uint32_t fby_lanes_in_calls(const fby_runtime_t *runtime);
/* Joins and frees every lane that has ended; detaches those inside a driver call. Outside the lock, once all threads of
   the runtime are in one of the two. */
void fby_lanes_join(fby_runtime_t *runtime);
/* Whether a lane is inside a driver call that began before now - half its limit. Under the lock. */
bool fby_lanes_slow(const fby_runtime_t *runtime, uint64_t now);

/* A thread of ours: no signal of the host lands on it. -errno. */
int fby_thread_start(pthread_t *thread, const char *name, void *(*main)(void *), void *arg);

#endif
