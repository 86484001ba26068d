#include "runtime/inline_lane.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "runtime/job.h"
#include "runtime/runtime.h"

enum { MOST_TAGS = 64, REAP_PAUSE_NS = 10000000 };

/* Changed by the lane's thread only, but for `cancel`. */
typedef enum job_phase {
    JOB_FREE,
    JOB_TAKEN,     /* to be submitted, also again after -EAGAIN */
    JOB_SUBMITTED, /* with the driver */
    JOB_ENDED,     /* results are there, the core has not seen them */
} job_phase_t;

struct fby_inline_job {
    fby_job_t own;  /* a read */
    fby_job_t *job; /* &own, or a write lane's */
    job_phase_t phase;
    uint64_t order;  /* of taking: who is taken first is submitted first */
    int rc;          /* of submit */
    bool cancel_now; /* ask the driver */
    bool cancel_sent;
    /* guarded by the lock */
    bool cancel;       /* somebody wants it to end */
    fby_job_t *handed; /* what a write lane waits for; NULL: the place is free */
    bool done;
    pthread_cond_t ended; /* done */
};

int fby_inline_init(fby_runtime_t *runtime)
{
    fby_inline_t *lane = &runtime->inline_lane;
    uint32_t reads = runtime->pool[FBY_LANE_READ].most;
    uint32_t puts = runtime->pool[FBY_LANE_WRITE].most + FBY_STUCK_LANES; /* as many as there may be write lanes */
    lane->jobs = calloc(reads + puts, sizeof(*lane->jobs));
    if (lane->jobs == NULL) {
        return -ENOMEM;
    }
    lane->reads = reads;
    lane->job_count = reads + puts;
    for (uint32_t i = 0; i < lane->job_count; i++) {
        fby_condition_init(&lane->jobs[i].ended);
    }
    for (uint32_t i = 0; i < reads; i++) {
        lane->jobs[i].job = &lane->jobs[i].own;
        if (fby_job_init(&lane->jobs[i].own, runtime, FBY_LANE_READ) != 0) {
            return -ENOMEM;
        }
    }
    return 0;
}

void fby_inline_free(fby_runtime_t *runtime)
{
    fby_inline_t *lane = &runtime->inline_lane;
    for (uint32_t i = 0; i < lane->job_count; i++) {
        fby_job_free(&lane->jobs[i].own);
        pthread_cond_destroy(&lane->jobs[i].ended);
    }
    free(lane->jobs);
    lane->jobs = NULL;
    lane->job_count = 0;
}

/* ---- From outside, under the lock ------------------------------------------------------------------------------- */

void fby_inline_plan_wake(fby_runtime_t *runtime, fby_actions_t *actions)
{
    fby_inline_t *lane = &runtime->inline_lane;
    if (!lane->started) {
        if (!runtime->stop) {
            lane->started = true;
            runtime->threads += 2; /* the lane and whoever makes it */
            actions->make_inline = true;
        }
    } else if (lane->sleeping && !lane->wake_pending) {
        lane->wake_pending = true;
        actions->wake_inline = true;
    }
}

void fby_inline_plan_reads(fby_runtime_t *runtime, fby_actions_t *actions)
{
    if (runtime->inline_lane.reading < runtime->inline_lane.reads) {
        fby_inline_plan_wake(runtime, actions);
    }
}

static void job_cancel(fby_runtime_t *runtime, fby_inline_job_t *job)
{
    job->cancel = true;
    fby_inline_plan_wake(runtime, runtime->actions);
}

bool fby_inline_fence(fby_runtime_t *runtime, uint32_t part, uint64_t now)
{
    fby_inline_t *lane = &runtime->inline_lane;
    for (uint32_t i = 0; i < lane->reads; i++) {
        fby_job_t *job = &lane->jobs[i].own;
        if (job->under_way && job->part.id == part) {
            if (!job->overdue) {
                fby_job_lapse(runtime, job, now);
            }
            job_cancel(runtime, &lane->jobs[i]);
            return true;
        }
    }
    return false;
}

void fby_inline_cancel(fby_runtime_t *runtime, const fby_job_t *job)
{
    fby_inline_t *lane = &runtime->inline_lane;
    for (uint32_t i = lane->reads; i < lane->job_count; i++) {
        if (lane->jobs[i].handed == job) {
            job_cancel(runtime, &lane->jobs[i]);
        }
    }
}

void fby_inline_cancel_all(fby_runtime_t *runtime, bool writes_too)
{
    fby_inline_t *lane = &runtime->inline_lane;
    for (uint32_t i = 0; i < lane->job_count; i++) {
        bool is_out = i < lane->reads ? lane->jobs[i].own.under_way : writes_too && lane->jobs[i].handed != NULL;
        if (is_out) {
            job_cancel(runtime, &lane->jobs[i]);
        }
    }
}

/* Whoever is done is among them; to the others it is a spurious wake. */
void fby_inline_wake_puts(fby_runtime_t *runtime)
{
    fby_inline_t *lane = &runtime->inline_lane;
    for (uint32_t i = lane->reads; i < lane->job_count; i++) {
        pthread_cond_broadcast(&lane->jobs[i].ended);
    }
}

uint32_t fby_inline_reading(const fby_runtime_t *runtime)
{
    return runtime->inline_lane.reading;
}

bool fby_inline_in_call(const fby_runtime_t *runtime)
{
    const fby_inline_t *lane = &runtime->inline_lane;
    return lane->started && !lane->left && lane->reading + lane->putting > 0;
}

bool fby_inline_slow(const fby_runtime_t *runtime, uint64_t now)
{
    for (uint32_t i = 0; i < runtime->inline_lane.reads; i++) {
        if (fby_job_is_slow(&runtime->inline_lane.jobs[i].own, now)) {
            return true;
        }
    }
    return false;
}

/* ---- A write lane hands over ------------------------------------------------------------------------------------ */

static fby_inline_job_t *free_place(fby_inline_t *lane)
{
    for (uint32_t i = lane->reads; i < lane->job_count; i++) {
        if (lane->jobs[i].handed == NULL) {
            return &lane->jobs[i];
        }
    }
    return NULL;
}

int fby_inline_put(fby_runtime_t *runtime, fby_job_t *job)
{
    fby_inline_t *lane = &runtime->inline_lane;
    fby_actions_t actions;
    (void)fby_enter(runtime, &actions);
    fby_inline_job_t *place = runtime->stop ? NULL : free_place(lane);
    int rc = FBY_E_CONNECTION;
    if (place != NULL) {
        place->handed = job;
        place->done = false;
        place->cancel = job->overdue;
        lane->putting++;
        fby_inline_plan_wake(runtime, &actions);
        while (!place->done) {
            fby_wait(runtime, &actions, &place->ended, FBY_NEVER);
        }
        rc = place->rc;
        place->handed = NULL;
    }
    fby_leave(runtime, &actions);
    return rc;
}

/* ---- The thread, under the lock --------------------------------------------------------------------------------- */

static bool job_begin(fby_runtime_t *runtime, fby_inline_job_t *job, bool is_read, uint64_t now)
{
    if (!is_read) {
        job->job = job->done ? NULL : job->handed;
        return job->job != NULL;
    }
    if (runtime->stop || !fby_job_take(runtime, &job->own, now, false)) {
        return false;
    }
    job->cancel = false;
    runtime->inline_lane.reading++;
    return true;
}

/* Takes what can start: reads of the core, puts of write lanes. */
static void inline_take(fby_runtime_t *runtime, uint64_t now)
{
    fby_inline_t *lane = &runtime->inline_lane;
    for (uint32_t i = 0; i < lane->job_count; i++) {
        fby_inline_job_t *job = &lane->jobs[i];
        if (job->phase == JOB_FREE && job_begin(runtime, job, i < lane->reads, now)) {
            job->phase = JOB_TAKEN;
            job->order = ++lane->taken;
            job->cancel_sent = false;
        }
        job->cancel_now = job->phase != JOB_FREE && job->cancel && !job->cancel_sent;
    }
}

static void inline_complete(fby_runtime_t *runtime, uint64_t now)
{
    fby_inline_t *lane = &runtime->inline_lane;
    for (uint32_t i = 0; i < lane->job_count; i++) {
        fby_inline_job_t *job = &lane->jobs[i];
        if (job->phase != JOB_ENDED) {
            continue;
        }
        job->phase = JOB_FREE;
        if (i < lane->reads) {
            lane->reading--;
            fby_job_complete(runtime, &job->own, now);
        } else {
            lane->putting--;
            job->done = true;
            runtime->actions->wake_puts_handed = true;
        }
    }
}

/* Goes to sleep in the eyes of the others: from now on they wake it. Returns until when it may sleep. */
static uint64_t inline_lie_down(fby_runtime_t *runtime)
{
    runtime->inline_lane.sleeping = true;
    uint64_t deadline = fby_runtime_deadline(runtime);
    if (!runtime->settings.prefetch.enabled) {
        return runtime->timer_armed = deadline;
    }
    /* The control thread keeps the time; what is left over of this thread's own tick it goes on with itself. */
    return runtime->actions->catching_up && deadline == 0 ? 0 : FBY_NEVER;
}

static void inline_get_up(fby_runtime_t *runtime)
{
    runtime->inline_lane.sleeping = runtime->inline_lane.wake_pending = false;
    if (!runtime->settings.prefetch.enabled) {
        runtime->timer_armed = 0;
    }
}

/* ---- The thread, outside the lock ------------------------------------------------------------------------------- */

/* The driver has it no more, or never had it: judged here when it is ours, by its write lane otherwise. */
static void job_end(fby_runtime_t *runtime, fby_inline_job_t *job, int rc)
{
    job->rc = rc;
    job->phase = JOB_ENDED;
    if (job->job == &job->own) {
        fby_job_finish(runtime, &job->own, rc);
    }
}

/* Hands one job to the driver. A driver that is full is asked again after the next completion, if there is one to come. */
static void job_start(fby_runtime_t *runtime, fby_inline_job_t *job, uint64_t tag, uint32_t *submitted)
{
    bool is_read = job->job == &job->own;
    if (is_read && job->own.refused) {
        fby_job_refuse(&job->own, FBY_E_CONNECTION);
        job->phase = JOB_ENDED;
        return;
    }
    if (is_read) {
        fby_job_prepare(runtime, &job->own);
    }
    int rc = FBY_E_TIMEOUT;
    if (!job->cancel_now) {
        rc = runtime->driver->submit(runtime->store, !is_read, job->job->ops, job->job->ops_count, tag);
    }
    if (rc == 0) {
        job->phase = JOB_SUBMITTED;
        ++*submitted;
    } else if (rc != -EAGAIN || *submitted == 0) {
        job_end(runtime, job, rc > 0 ? -EINVAL : rc);
    }
}

/* The job of [from, to) that was taken first and is not submitted; NULL: none. */
static fby_inline_job_t *first_taken(fby_inline_t *lane, uint32_t from, uint32_t to)
{
    fby_inline_job_t *first = NULL;
    for (uint32_t i = from; i < to; i++) {
        fby_inline_job_t *job = &lane->jobs[i];
        if (job->phase == JOB_TAKEN && (first == NULL || job->order < first->order)) {
            first = job;
        }
    }
    return first;
}

/* Submits in the order of taking until the driver is full: a job that has to wait is not overtaken by the next ones, or a
   large graph could wait for ever beside small ones. False: it is full. *ended: whether some ended without the driver. */
static bool start_in_order(fby_runtime_t *runtime, uint32_t from, uint32_t to, uint32_t *submitted, bool *ended)
{
    fby_inline_t *lane = &runtime->inline_lane;
    for (fby_inline_job_t *job; (job = first_taken(lane, from, to)) != NULL;) {
        job_start(runtime, job, (uint64_t)(job - lane->jobs) + 1, submitted);
        if (job->phase == JOB_TAKEN) {
            return false;
        }
        *ended = *ended || job->phase == JOB_ENDED;
    }
    return true;
}

/* Cancels, and submits reads before writes; true when some job has ended without the driver. */
static bool inline_start(fby_runtime_t *runtime)
{
    fby_inline_t *lane = &runtime->inline_lane;
    uint32_t submitted = 0;
    for (uint32_t i = 0; i < lane->job_count; i++) {
        fby_inline_job_t *job = &lane->jobs[i];
        submitted += job->phase == JOB_SUBMITTED;
        if (job->phase == JOB_SUBMITTED && job->cancel_now) {
            job->cancel_now = false;
            job->cancel_sent = true;
            if (runtime->driver->cancel != NULL) {
                runtime->driver->cancel(runtime->store, i + 1);
            }
        }
    }
    /* a write that took the room a read waits for would delay it */
    bool ended = false;
    if (start_in_order(runtime, 0, lane->reads, &submitted, &ended)) {
        start_in_order(runtime, lane->reads, lane->job_count, &submitted, &ended);
    }
    return ended;
}

/* Waits for completions at most until `until`, and judges them. A tag that is not out is the driver's mistake. */
static void inline_reap(fby_runtime_t *runtime, uint64_t until)
{
    fby_inline_t *lane = &runtime->inline_lane;
    uint64_t tags[MOST_TAGS];
    int64_t wait_ns = -1;
    if (until != FBY_NEVER) {
        wait_ns = (int64_t)FBY_MIN(fby_sub_sat(until, fby_clock_now(&fby_clock_monotonic)), (uint64_t)INT64_MAX);
    }
    int n = runtime->driver->reap(runtime->store, tags, MOST_TAGS, wait_ns);
    if (n < 0) {
        fby_log(FBY_LOG_ERROR, "store_reap_failed", "driver=%s error=%s", runtime->driver->name, fby_errname(n));
        nanosleep(&(struct timespec){.tv_nsec = REAP_PAUSE_NS}, NULL);
    }
    for (int i = 0; i < FBY_MIN(n, (int)MOST_TAGS); i++) {
        uint64_t at = tags[i] - 1;
        if (at >= lane->job_count || lane->jobs[at].phase != JOB_SUBMITTED) {
            fby_log(FBY_LOG_ERROR, "store_wrong_tag", "driver=%s tag=%llu", runtime->driver->name,
                    (unsigned long long)tags[i]);
            continue;
        }
        job_end(runtime, &lane->jobs[at], 0);
    }
}

static void *inline_main(void *arg)
{
    fby_runtime_t *runtime = arg;
    fby_actions_t actions;
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    uint64_t now = fby_enter(runtime, &actions);
    inline_get_up(runtime);
    for (;;) {
        inline_complete(runtime, now);
        if (runtime->stop && runtime->inline_lane.reading + runtime->inline_lane.putting == 0) {
            break;
        }
        inline_take(runtime, now);
        bool keeps_time = !runtime->settings.prefetch.enabled;
        if (fby_runtime_deadline(runtime) <= (keeps_time ? now : 0)) {
            fby_core_tick(runtime->core, now);
            actions.catching_up = true;
        }
        uint64_t until = inline_lie_down(runtime);
        fby_leave(runtime, &actions);
        bool ended = inline_start(runtime);
        inline_reap(runtime, ended ? 0 : until);
        now = fby_enter(runtime, &actions);
        inline_get_up(runtime);
    }
    fby_leave(runtime, &actions);
    pthread_mutex_lock(&runtime->lock);
    runtime->inline_lane.left = true;
    runtime->threads--;
    pthread_cond_broadcast(&runtime->close_step);
    pthread_mutex_unlock(&runtime->lock);
    return NULL;
}

/* Without a thread nothing can be read or written: what waits for it fails now. */
static void inline_refuse(fby_runtime_t *runtime)
{
    fby_inline_t *lane = &runtime->inline_lane;
    fby_actions_t actions;
    uint64_t now = fby_enter(runtime, &actions);
    fby_job_t *job = &lane->jobs[0].own;
    while (fby_job_take(runtime, job, now, true)) {
        fby_leave(runtime, &actions);
        fby_job_refuse(job, FBY_E_CONNECTION);
        now = fby_enter(runtime, &actions);
        fby_job_complete(runtime, job, now);
    }
    for (uint32_t i = lane->reads; i < lane->job_count; i++) {
        if (lane->jobs[i].handed != NULL && !lane->jobs[i].done) {
            lane->jobs[i].rc = FBY_E_CONNECTION;
            lane->jobs[i].done = true;
            lane->putting--;
        }
    }
    actions.wake_puts_handed = true;
    lane->started = false;
    runtime->threads--;
    fby_leave(runtime, &actions);
}

void fby_inline_make(fby_runtime_t *runtime)
{
    int rc = fby_thread_start(&runtime->inline_lane.thread, "fby-store", inline_main, runtime);
    if (rc != 0) {
        fby_log(FBY_LOG_ERROR, "no_thread", "kind=fby-store error=%s", fby_errname(rc));
        inline_refuse(runtime);
    }
    pthread_mutex_lock(&runtime->lock);
    runtime->threads--;
    pthread_cond_broadcast(&runtime->close_step);
    pthread_mutex_unlock(&runtime->lock);
}
