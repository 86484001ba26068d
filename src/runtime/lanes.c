#include "runtime/lanes.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "agent/host.h"
#include "runtime/job.h"
#include "runtime/runtime.h"

_Static_assert(1 << FBY_LANE_QUERY == FBY_WANT_QUERY && 1 << FBY_LANE_READ == FBY_WANT_READ &&
                   1 << FBY_LANE_WRITE == FBY_WANT_WRITE,
               "a lane's kind is its bit");

struct fby_lane {
    fby_runtime_t *runtime;
    fby_lane_t *next; /* of runtime->lanes */
    pthread_t thread;
    /* guarded by the lock */
    bool settled; /* whoever made it is done with it; then `joinable` is right */
    bool joinable;
    bool left; /* out of its loop: touches nothing of ours any more */
    fby_job_t job;
};

static const char *const lane_names[] = {"fby-query", "fby-read", "fby-write"};

int fby_thread_start(pthread_t *thread, const char *name, void *(*main)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(thread, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) {
        pthread_setname_np(*thread, name);
    }
    return -rc;
}

/* ---- Plan: under the lock --------------------------------------------------------------------------------------- */

static bool lane_is_stuck(const fby_lane_t *lane)
{
    return lane->job.under_way && lane->job.overdue;
}

static bool pool_may_grow(const fby_lane_pool_t *pool)
{
    return pool->alive - pool->stuck < pool->most && pool->alive < pool->most + FBY_STUCK_LANES;
}

static void pool_plan(fby_runtime_t *runtime, fby_actions_t *actions, fby_lane_kind_t kind)
{
    fby_lane_pool_t *pool = &runtime->pool[kind];
    if (pool->wake_pending) {
        return;
    }
    if (pool->idle > 0) {
        pool->wake_pending = true;
        actions->wake_lanes |= 1u << kind;
    } else if (pool_may_grow(pool) && !runtime->stop) {
        pool->wake_pending = true;
        pool->alive++;
        runtime->threads += 2; /* the lane and whoever makes it */
        actions->make_lanes |= 1u << kind;
    }
}

void fby_lanes_plan(fby_runtime_t *runtime, fby_actions_t *actions)
{
    unsigned wants = fby_job_startable(runtime, fby_core_wants(runtime->core));
    if (runtime->inline_host && (wants & FBY_WANT_READ)) {
        fby_inline_plan_reads(runtime, actions);
        wants &= ~(unsigned)FBY_WANT_READ;
    }
    for (unsigned kind = 0; kind < FBY_LANE_KINDS; kind++) {
        if (wants & 1u << kind) {
            pool_plan(runtime, actions, (fby_lane_kind_t)kind);
        }
    }
}

static void lane_lapse(fby_runtime_t *runtime, fby_lane_t *lane, uint64_t now)
{
    fby_job_lapse(runtime, &lane->job, now);
    runtime->pool[lane->job.kind].stuck++;
    if (runtime->agents) {
        lane->job.fence_due = runtime->actions->fence = true;
    }
}

void fby_lanes_fence(fby_runtime_t *runtime, uint32_t part, uint64_t now)
{
    if (runtime->inline_host && fby_inline_fence(runtime, part, now)) {
        return;
    }
    for (fby_lane_t *lane = runtime->lanes; lane != NULL; lane = lane->next) {
        bool is_it = lane->job.kind != FBY_LANE_QUERY && lane->job.under_way && lane->job.part.id == part;
        if (is_it && !lane->job.overdue) {
            lane_lapse(runtime, lane, now);
            if (runtime->inline_host) {
                fby_inline_cancel(runtime, &lane->job);
            }
        }
    }
}

void fby_lanes_overdue(fby_runtime_t *runtime, uint64_t now)
{
    if (now < runtime->query_due) {
        return;
    }
    runtime->query_due = FBY_NEVER;
    for (fby_lane_t *lane = runtime->lanes; lane != NULL; lane = lane->next) {
        if (lane->job.kind != FBY_LANE_QUERY || !lane->job.under_way || lane->job.overdue) {
            continue;
        }
        if (lane->job.limit_at <= now) {
            lane_lapse(runtime, lane, now);
        } else {
            runtime->query_due = FBY_MIN(runtime->query_due, lane->job.limit_at);
        }
    }
}

/* A token names one take of one job: when the call has ended meanwhile, the fence finds nothing. */
static bool next_fence(fby_runtime_t *runtime, uint64_t *token)
{
    bool found = false;
    pthread_mutex_lock(&runtime->lock);
    for (fby_lane_t *lane = runtime->lanes; lane != NULL && !found; lane = lane->next) {
        if (lane->job.fence_due) {
            lane->job.fence_due = false;
            *token = lane->job.token;
            found = true;
        }
    }
    pthread_mutex_unlock(&runtime->lock);
    return found;
}

void fby_lanes_fence_due(fby_runtime_t *runtime)
{
    uint64_t token;
    while (next_fence(runtime, &token)) {
        fby_agent_fence(runtime->store, (const void *)(uintptr_t)token);
    }
}

bool fby_lanes_slow(const fby_runtime_t *runtime, uint64_t now)
{
    for (const fby_lane_t *lane = runtime->lanes; lane != NULL; lane = lane->next) {
        if (fby_job_is_slow(&lane->job, now)) {
            return true;
        }
    }
    return runtime->inline_host && fby_inline_slow(runtime, now);
}

/* ---- The thread ------------------------------------------------------------------------------------------------- */

/* Reports the job's end. The lane of a call that was stuck is one too many if another took its place. */
static bool lane_complete(fby_runtime_t *runtime, fby_lane_t *lane, uint64_t now)
{
    fby_lane_pool_t *pool = &runtime->pool[lane->job.kind];
    bool was_stuck = lane_is_stuck(lane);
    pool->stuck -= was_stuck;
    fby_job_complete(runtime, &lane->job, now);
    return !was_stuck || pool->alive - pool->stuck <= pool->most;
}

static void lane_sleep(fby_runtime_t *runtime, fby_lane_t *lane, fby_actions_t *actions)
{
    fby_lane_pool_t *pool = &runtime->pool[lane->job.kind];
    pool->idle++;
    fby_wait(runtime, actions, &pool->work, FBY_NEVER);
    pool->idle--;
    pool->wake_pending = false;
}

/* Works until told to stop, or (`refuse`) fails what there is to take and ends. */
static void lane_loop(fby_lane_t *lane, bool refuse)
{
    fby_runtime_t *runtime = lane->runtime;
    fby_actions_t actions;
    bool stays = true;
    uint64_t now = fby_enter(runtime, &actions);
    runtime->pool[lane->job.kind].wake_pending = false;
    while (stays && !runtime->stop) {
        if (fby_job_take(runtime, &lane->job, now, refuse)) {
            fby_leave(runtime, &actions);
            fby_job_run(runtime, &lane->job);
            now = fby_enter(runtime, &actions);
            stays = lane_complete(runtime, lane, now);
        } else if (fby_runtime_deadline(runtime) == 0) {
            /* left-over work: this thread is at it already, no other need wake */
            fby_core_tick(runtime->core, now);
            actions.catching_up = true;
            fby_leave(runtime, &actions);
            now = fby_enter(runtime, &actions);
        } else if (refuse) {
            break;
        } else {
            lane_sleep(runtime, lane, &actions);
            now = fby_clock_now(&fby_clock_monotonic);
        }
    }
    fby_leave(runtime, &actions);
    /* After its last actions: whoever joins a lane that has left never waits for more than its return. */
    pthread_mutex_lock(&runtime->lock);
    runtime->pool[lane->job.kind].alive--;
    runtime->threads--;
    lane->left = true;
    pthread_cond_broadcast(&runtime->close_step);
    pthread_mutex_unlock(&runtime->lock);
}

static void *lane_main(void *arg)
{
    lane_loop(arg, false);
    return NULL;
}

/* ---- Making and joining: outside the lock ----------------------------------------------------------------------- */

/* Lanes that ended as surplus: taken off the list, joined, freed. */
static void lanes_reap(fby_runtime_t *runtime)
{
    fby_lane_t *ended = NULL;
    pthread_mutex_lock(&runtime->lock);
    for (fby_lane_t **at = &runtime->lanes; *at != NULL;) {
        fby_lane_t *lane = *at;
        if (!lane->left || !lane->settled) {
            at = &lane->next;
            continue;
        }
        *at = lane->next;
        lane->next = ended;
        ended = lane;
    }
    pthread_mutex_unlock(&runtime->lock);
    while (ended != NULL) {
        fby_lane_t *lane = ended;
        ended = lane->next;
        if (lane->joinable) {
            pthread_join(lane->thread, NULL);
        }
        fby_job_free(&lane->job);
        free(lane);
    }
}

void fby_lane_make(fby_runtime_t *runtime, fby_lane_kind_t kind)
{
    lanes_reap(runtime);
    fby_lane_t *lane = calloc(1, sizeof(*lane));
    bool made = lane != NULL && fby_job_init(&lane->job, runtime, kind) == 0;
    if (made) {
        lane->runtime = runtime;
        pthread_mutex_lock(&runtime->lock);
        lane->next = runtime->lanes;
        runtime->lanes = lane;
        pthread_mutex_unlock(&runtime->lock);
    } else {
        fby_log(FBY_LOG_ERROR, "no_memory", "what=lane kind=%s", lane_names[kind]);
        if (lane != NULL) {
            fby_job_free(&lane->job);
        }
        free(lane);
    }
    int rc = made ? fby_thread_start(&lane->thread, lane_names[kind], lane_main, lane) : -ENOMEM;
    if (made && rc != 0) {
        fby_log(FBY_LOG_ERROR, "no_thread", "kind=%s error=%s", lane_names[kind], fby_errname(rc));
        lane_loop(lane, true);
    }
    pthread_mutex_lock(&runtime->lock);
    if (made) {
        lane->joinable = rc == 0;
        lane->settled = true;
    } else {
        runtime->pool[kind].alive--;
        runtime->pool[kind].wake_pending = false;
        runtime->threads--;
    }
    runtime->threads--;
    pthread_cond_broadcast(&runtime->close_step);
    pthread_mutex_unlock(&runtime->lock);
}

uint32_t fby_lanes_in_calls(const fby_runtime_t *runtime)
{
    uint32_t count = 0;
    for (const fby_lane_t *lane = runtime->lanes; lane != NULL; lane = lane->next) {
        count += lane->job.under_way;
    }
    return count;
}

void fby_lanes_join(fby_runtime_t *runtime)
{
    lanes_reap(runtime);
    /* what is left sits in a driver call that may never return: its thread and its memory stay */
    for (fby_lane_t *lane = runtime->lanes; lane != NULL; lane = lane->next) {
        pthread_detach(lane->thread);
    }
}
