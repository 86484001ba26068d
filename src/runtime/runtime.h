/*
 * runtime.h - one opened cache: the lock, the threads, the memory.
 *
 * INVARIANTS
 *   LOCK   runtime->lock guards the core and every field below its line. Inside it: no I/O, no hashing, no allocation, no
 *          system call. Everyone enters the same way:
 *              fby_enter -> calls of the core -> fby_leave (which plans wakes, unlocks, and performs the actions)
 *   TIMER  exactly one thread keeps the time: it sleeps until `timer_armed` and calls fby_core_tick. Others wake it only
 *          when the core's next deadline comes to lie before that. It is the control thread when prefetch.enabled, else
 *          the store lane (host inline) or a lane thread of its own (host thread), made when a deadline first exists.
 *   MEMORY an operation that has not physically ended may touch region and store: then neither is ever freed.
 */
#ifndef FBY_RUNTIME_H
#define FBY_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/core.h"
#include "forebay/forebay.h"
#include "forebay/store.h"
#include "pool/region.h"
#include "runtime/actions.h"
#include "runtime/board.h"
#include "runtime/breaker.h"
#include "runtime/handles.h"
#include "runtime/inline_lane.h"
#include "runtime/lanes.h"
#include "runtime/metrics.h"
#include "runtime/records.h"
#include "runtime/seq.h"
#include "runtime/settings.h"
#include "runtime/subscribe.h"

/* The runtime's part of a session, by the core's slot. */
typedef struct fby_session_record {
    pthread_cond_t answered;
    fby_event_fd_t *fds;
    fby_session_t handle; /* whom `about` is about */
    fby_session_about_t about;
} fby_session_record_t;

/* Value of a hold that no prefetch brought: what is used of it is not counted. */
#define FBY_HOLD_LOOKED_UP UINT64_MAX

/* Zeroed pages. */
typedef struct fby_pages {
    void *base;
    size_t bytes;
} fby_pages_t;

struct fby_runtime {
    /* ---- set at open, constant afterwards ---- */
    fby_settings_t settings;
    uint64_t id; /* of this cache in this process */
    uint32_t object_bytes[FBY_MAX_GROUPS];
    fby_region_t region;
    fby_slots_t slots;
    fby_pages_t slots_memory, index_memory, core_memory;
    fby_board_t *board; /* snapshots and the generation, readable by other processes */
    int board_fd;
    uint32_t session_slots;
    const fby_store_driver_t *driver;
    fby_store_t *store;
    fby_store_caps_t caps;
    bool inline_host;
    bool agents; /* the store is fby_store_agent: it runs in processes of its own */
    uint32_t batch;
    _Atomic bool poisoned; /* never cleared */
    char poison[160];      /* why; written once, before `poisoned` is seen */

    /* ---- guarded by lock ---- */
    pthread_mutex_t lock;
    fby_core_t *core;
    fby_actions_t *actions; /* of whoever is inside */
    fby_keyring_t *keyring; /* of the epoch in force */
    fby_session_record_t *sessions;
    const fby_session_about_t *starting; /* of the session that is being started, or NULL */
    fby_handles_t puts, holds; /* put -> fby_put_record_t *, hold -> end of what was used, or FBY_HOLD_LOOKED_UP */
    pthread_cond_t puts_changed, reset_done, close_step;
    fby_subscription_t *subscription[FBY_MOST_SUBSCRIPTIONS];
    uint32_t subscriptions;
    fby_breaker_t breaker;
    uint64_t last_completion; /* 0: none yet */
    uint64_t object_faults[FBY_OBJECT_FAULT_COUNT], unreadable;
    fby_metrics_t metrics;
    fby_log_limit_t reason_limit[FBY_REASON_COUNT], fault_limit, breaker_limit;

    bool closing, stop; /* closing: the core is shut down; stop: threads end */
    pthread_cond_t timer;
    pthread_t timer_thread;
    bool timer_started;
    uint64_t timer_armed; /* what the timekeeper sleeps until; 0: it is awake */
    uint32_t threads;     /* not yet past their last use of this structure */

    fby_event_fd_t *reset_fds; /* for the end of the reset that is under way */
    fby_lane_pool_t pool[FBY_LANE_KINDS];
    fby_lane_t *lanes;  /* all, also those that left their loop */
    uint64_t tokens;    /* takes of jobs so far */
    uint32_t calls;     /* driver calls under way, for caps.max_concurrency */
    uint64_t query_due; /* earliest limit of a query under way that has not passed it */
    fby_inline_t inline_lane;
};

/* Opens pool, index, store; makes no thread but the control thread. `cache` is what subscriptions refer to.
   FBY_E_CONFIG, FBY_E_FORMAT, -ENOMEM, -errno; with detail. */
int fby_runtime_open(const fby_config_t *config, fby_runtime_t **out);
/* Seals everything and waits until it is at rest or limit_ns passed; ends the threads. Once. FBY_E_ABANDONED: memory
   and store must stay; then fby_runtime_free does not exist for it. */
int fby_runtime_shutdown(fby_runtime_t *runtime, uint64_t limit_ns, fby_close_report_t *report);
/* After a shutdown that returned 0, when no call is inside any more: ends what callers left behind, frees everything. */
void fby_runtime_finish(fby_runtime_t *runtime);
/* After an open that failed, or within finish. */
void fby_runtime_free(fby_runtime_t *runtime);

/* ---- The one way in and out ---- */
/* Locks; returns the time. `actions` lives until fby_leave. */
uint64_t fby_enter(fby_runtime_t *runtime, fby_actions_t *actions);
/* Plans wakes, unlocks, performs. */
void fby_leave(fby_runtime_t *runtime, fby_actions_t *actions);
/* Inside: waits on a condition until woken or `deadline` (FBY_NEVER: no limit), letting the lock go meanwhile. False at
   the deadline. Pending actions are performed first. */
bool fby_wait(fby_runtime_t *runtime, fby_actions_t *actions, pthread_cond_t *condition, uint64_t deadline);
/* The core's event sink; argument: the runtime. */
void fby_runtime_emit(void *runtime, const fby_core_event_t *event);
/* Before the core's reset, in the same critical section: what subscribers hear later is of the new generation. */
void fby_runtime_tell_reset(fby_runtime_t *runtime);
/* A descriptor, the caller's to close, that becomes readable when no reset is under way any more (or the cache closes);
   readable at once when none is. -errno. */
int fby_runtime_reset_fd(fby_runtime_t *runtime);
/* A number for a cache, or a connection to one, that no other in this process has. */
uint64_t fby_cache_number(void);
/* A condition that counts in CLOCK_MONOTONIC. */
int fby_condition_init(pthread_cond_t *condition);

/* Counts a result for the breaker; under the lock. */
void fby_breaker_count(fby_runtime_t *runtime, fby_permit_t permit, bool reached, uint64_t now);
/* From now on every call answers FBY_E_POISONED. */
void fby_runtime_poison(fby_runtime_t *runtime, const char *why);

/* When the core wants to be ticked; FBY_NEVER once poisoned. Under the lock. */
uint64_t fby_runtime_deadline(const fby_runtime_t *runtime);

/* perform.c */
void fby_actions_perform(fby_runtime_t *runtime, fby_actions_t *actions);
/* timer.c */
void fby_timer_plan(fby_runtime_t *runtime, fby_actions_t *actions);
void fby_timer_make(fby_runtime_t *runtime);

static inline bool fby_is_poisoned(const fby_runtime_t *runtime)
{
    return atomic_load_explicit(&runtime->poisoned, memory_order_relaxed);
}

#endif
