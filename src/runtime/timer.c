/*
 * timer.c - the thread that keeps the time: the control thread when prefetch.enabled, else a lane of its own when the
 * other lanes may sit in blocking calls (host thread). With host inline and no chunk runtime the store lane does it.
 */
#include <sys/prctl.h>

#include "runtime/runtime.h"

static bool store_lane_keeps_time(const fby_runtime_t *runtime)
{
    return runtime->inline_host && !runtime->settings.prefetch.enabled;
}

void fby_timer_plan(fby_runtime_t *runtime, fby_actions_t *actions)
{
    uint64_t deadline = fby_runtime_deadline(runtime);
    if (deadline >= runtime->timer_armed || (deadline == 0 && actions->catching_up) || runtime->stop) {
        return;
    }
    runtime->timer_armed = deadline;
    if (store_lane_keeps_time(runtime)) {
        fby_inline_plan_wake(runtime, actions);
    } else if (runtime->timer_started) {
        actions->wake_timer = true;
    } else {
        runtime->timer_started = true;
        runtime->threads += 2; /* the thread and whoever makes it */
        actions->make_timer = true;
    }
}

static void *timer_main(void *arg)
{
    fby_runtime_t *runtime = arg;
    fby_actions_t actions;
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    uint64_t now = fby_enter(runtime, &actions);
    while (!runtime->stop) {
        uint64_t deadline = fby_runtime_deadline(runtime);
        if (deadline <= now) {
            runtime->timer_armed = 0;
            fby_core_tick(runtime->core, now);
            fby_leave(runtime, &actions);
            now = fby_enter(runtime, &actions);
            continue;
        }
        runtime->timer_armed = deadline;
        fby_wait(runtime, &actions, &runtime->timer, deadline);
        runtime->timer_armed = 0;
        now = fby_clock_now(&fby_clock_monotonic);
    }
    fby_leave(runtime, &actions);
    pthread_mutex_lock(&runtime->lock);
    runtime->threads--;
    pthread_cond_broadcast(&runtime->close_step);
    pthread_mutex_unlock(&runtime->lock);
    return NULL;
}

void fby_timer_make(fby_runtime_t *runtime)
{
    const char *name = runtime->settings.prefetch.enabled ? "fby-control" : "fby-timer";
    int rc = fby_thread_start(&runtime->timer_thread, name, timer_main, runtime);
    pthread_mutex_lock(&runtime->lock);
    if (rc != 0) {
        /* Tried again at the next deadline that somebody sets. */
        runtime->timer_started = false;
        runtime->timer_armed = FBY_NEVER;
        runtime->threads--;
    }
    runtime->threads--;
    pthread_cond_broadcast(&runtime->close_step);
    pthread_mutex_unlock(&runtime->lock);
    if (rc != 0) {
        fby_log(FBY_LOG_ERROR, "no_thread", "kind=%s error=%s", name, fby_errname(rc));
    }
}
