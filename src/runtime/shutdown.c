/*
 * shutdown.c - from a running cache to one whose memory may go: or not, when something may still touch it.
 *
 *   1 the core seals and discards everything: every waiter is answered, nothing new begins
 *   2 reads that can be cancelled are (at the limit agents are killed), writes get what is left of the limit
 *   3 at the limit, or at rest, the threads are told to end; those in a driver call have until the limit to come back
 *   4 whoever has not come back is abandoned: its thread, its slots and its driver stay until the process exits
 */
#include "agent/host.h"
#include "runtime/runtime.h"

/* Operations nobody has seen the end of. Under the lock. */
static uint32_t operations_left(const fby_runtime_t *runtime)
{
    return fby_lanes_in_calls(runtime) + fby_inline_reading(runtime);
}

/* Threads that will end without the store's help. Under the lock. */
static uint32_t threads_running(const fby_runtime_t *runtime)
{
    uint32_t waits_for_store = fby_lanes_in_calls(runtime) + fby_inline_in_call(runtime);
    return runtime->threads - FBY_MIN(waits_for_store, runtime->threads);
}

/* Left-over work is done here: there may be no timekeeper, and none is made for it. */
static void await_rest(fby_runtime_t *runtime, fby_actions_t *actions, uint64_t limit)
{
    bool in_time = true;
    while (in_time && !fby_is_poisoned(runtime) && !fby_core_idle(runtime->core)) {
        actions->catching_up = fby_runtime_deadline(runtime) == 0;
        if (!actions->catching_up) {
            in_time = fby_wait(runtime, actions, &runtime->close_step, limit);
            continue;
        }
        fby_core_tick(runtime->core, fby_clock_now(&fby_clock_monotonic));
        fby_leave(runtime, actions);
        in_time = fby_enter(runtime, actions) < limit;
    }
}

/* Wakes every thread of ours, wherever it waits, to see `stop`. */
static void wake_threads(fby_runtime_t *runtime, fby_actions_t *actions)
{
    actions->wake_timer = actions->wake_all = actions->wake_puts = actions->wake_reset = true;
    actions->wake_inline = runtime->inline_lane.started;
    for (unsigned kind = 0; kind < FBY_LANE_KINDS; kind++) {
        pthread_cond_broadcast(&runtime->pool[kind].work);
    }
}

/* Ours end at once; those of the store have until the limit. */
static void await_threads(fby_runtime_t *runtime, fby_actions_t *actions, uint64_t limit)
{
    bool in_time = true;
    while (threads_running(runtime) > 0 || (runtime->threads > 0 && in_time)) {
        in_time = fby_wait(runtime, actions, &runtime->close_step, in_time ? limit : FBY_NEVER) && in_time;
    }
}

static void subscriptions_detach(fby_runtime_t *runtime)
{
    fby_subscription_t *gone[FBY_MOST_SUBSCRIPTIONS];
    pthread_mutex_lock(&runtime->lock);
    uint32_t count = runtime->subscriptions;
    for (uint32_t i = 0; i < count; i++) {
        gone[i] = runtime->subscription[i];
        gone[i]->attached = false;
    }
    runtime->subscriptions = 0;
    pthread_mutex_unlock(&runtime->lock);
    for (uint32_t i = 0; i < count; i++) {
        fby_subscription_signal(gone[i]);
        fby_subscription_unref(gone[i]);
    }
}

/* Ends a hold or a put that its caller left behind, so that the core gives its reference of the sequence back. */
static void end_object(fby_runtime_t *runtime, uint64_t handle, int (*end)(fby_core_t *, uint64_t, uint64_t))
{
    fby_actions_t actions;
    int rc;
    uint64_t now = fby_enter(runtime, &actions);
    do {
        rc = end(runtime->core, now, handle); /* a hold has several readers, perhaps */
    } while (rc == 0);
    fby_leave(runtime, &actions);
}

/* What the callers left: holds, puts with their records, descriptors of sessions that were never answered. */
void fby_runtime_finish(fby_runtime_t *runtime)
{
    for (uint32_t i = 0; i <= runtime->holds.mask; i++) {
        if (runtime->holds.entry[i].handle != 0) {
            end_object(runtime, runtime->holds.entry[i].handle, fby_core_hold_release);
        }
    }
    for (uint32_t i = 0; i <= runtime->puts.mask; i++) {
        if (runtime->puts.entry[i].handle != 0) {
            end_object(runtime, runtime->puts.entry[i].handle, fby_core_put_end);
            fby_put_record_free((fby_put_record_t *)(uintptr_t)runtime->puts.entry[i].value);
        }
    }
    for (uint32_t slot = 0; slot < runtime->session_slots; slot++) {
        fby_event_fds_end(runtime->sessions[slot].fds);
        runtime->sessions[slot].fds = NULL;
    }
    fby_event_fds_end(runtime->reset_fds);
    runtime->reset_fds = NULL;
    fby_runtime_free(runtime);
}

int fby_runtime_shutdown(fby_runtime_t *runtime, uint64_t limit_ns, fby_close_report_t *report)
{
    fby_actions_t actions;
    fby_stats_t stats = {.size = sizeof(stats)};
    uint64_t now = fby_enter(runtime, &actions);
    uint64_t limit = fby_add_sat(now, limit_ns);
    fby_core_stats(runtime->core, &stats);
    runtime->closing = true;
    fby_core_shutdown(runtime->core, now);
    fby_inline_cancel_all(runtime, false);
    actions.wake_puts = actions.wake_reset = true;
    /* the last tenth is for cancelling what can be cancelled and for the threads to end */
    await_rest(runtime, &actions, limit - (limit - now) / 10);
    fby_inline_cancel_all(runtime, true);
    runtime->stop = true;
    wake_threads(runtime, &actions);
    if (runtime->agents) { /* a reset may be in a call, too */
        fby_leave(runtime, &actions);
        fby_agent_fence_all(runtime->store);
        (void)fby_enter(runtime, &actions);
    }
    await_threads(runtime, &actions, limit);
    report->sessions_aborted = (uint32_t)(stats.sessions_running_gauge + stats.sessions_parked_gauge);
    report->operations_abandoned = operations_left(runtime);
    uint32_t operations = 0;
    report->bytes_abandoned = 0;
    if (report->operations_abandoned > 0) {
        fby_core_outstanding(runtime->core, &operations, &report->bytes_abandoned);
    }
    fby_leave(runtime, &actions);

    subscriptions_detach(runtime);
    fby_lanes_join(runtime);
    if (runtime->timer_started) {
        pthread_join(runtime->timer_thread, NULL);
    }
    if (runtime->inline_lane.left) {
        pthread_join(runtime->inline_lane.thread, NULL);
    } else if (runtime->inline_lane.started) {
        pthread_detach(runtime->inline_lane.thread);
    }
    if (report->operations_abandoned == 0) {
        return 0;
    }
    if (runtime->agents) {
        fby_agent_dismiss(runtime->store);
    }
    fby_log(FBY_LOG_WARN, "abandoned", "operations=%u bytes=%llu", report->operations_abandoned,
            (unsigned long long)report->bytes_abandoned);
    fby_error_set("%u store operations did not end within the limit; %llu bytes stay mapped",
                  report->operations_abandoned, (unsigned long long)report->bytes_abandoned);
    return FBY_E_ABANDONED;
}
