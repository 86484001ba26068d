/*
 * enter.c - the one way into the core and out again, and what the core says on the way.
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/put_publish.h"
#include "runtime/runtime.h"

enum { LINE_INTERVAL_MS = 100 };

int fby_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return -rc;
}

/* ---- In and out ------------------------------------------------------------------------------------------------- */

/* The lines are not cleared: `lines` says how many are there. */
static void actions_clear(fby_actions_t *actions)
{
    memset(actions, 0, offsetof(fby_actions_t, line));
}

uint64_t fby_enter(fby_runtime_t *runtime, fby_actions_t *actions)
{
    actions_clear(actions);
    pthread_mutex_lock(&runtime->lock);
    runtime->actions = actions;
    return fby_clock_now(&fby_clock_monotonic);
}

static void actions_plan(fby_runtime_t *runtime, fby_actions_t *actions)
{
    const char *why = fby_core_poisoned(runtime->core);
    if (why != NULL) {
        fby_runtime_poison(runtime, why);
    }
    if (fby_is_poisoned(runtime)) {
        return;
    }
    if (runtime->query_due != FBY_NEVER) {
        fby_lanes_overdue(runtime, fby_clock_now(&fby_clock_monotonic));
    }
    fby_lanes_plan(runtime, actions);
    fby_timer_plan(runtime, actions);
    if (runtime->closing && fby_core_idle(runtime->core)) {
        actions->wake_close = true;
    }
}

static bool actions_pending(const fby_actions_t *actions)
{
    return actions->wakes > 0 || actions->wake_all || actions->wake_puts || actions->wake_reset ||
           actions->wake_timer || actions->wake_inline || actions->wake_puts_handed || actions->wake_lanes ||
           actions->fence || actions->make_lanes || actions->make_timer || actions->make_inline ||
           actions->fds != NULL || actions->dead != NULL || actions->signals > 0 || actions->lines > 0 ||
           actions->say_poisoned || actions->say_breaker || actions->say_fault;
}

void fby_leave(fby_runtime_t *runtime, fby_actions_t *actions)
{
    actions_plan(runtime, actions);
    runtime->actions = NULL;
    pthread_mutex_unlock(&runtime->lock);
    fby_actions_perform(runtime, actions);
}

bool fby_wait(fby_runtime_t *runtime, fby_actions_t *actions, pthread_cond_t *condition, uint64_t deadline)
{
    actions_plan(runtime, actions);
    if (actions_pending(actions)) {
        runtime->actions = NULL;
        pthread_mutex_unlock(&runtime->lock);
        fby_actions_perform(runtime, actions);
        (void)fby_enter(runtime, actions);
        return true;
    }
    if (actions->wake_close) {
        pthread_cond_broadcast(&runtime->close_step);
    }
    runtime->actions = NULL;
    int rc;
    if (deadline == FBY_NEVER) {
        rc = pthread_cond_wait(condition, &runtime->lock);
    } else {
        struct timespec until = {
            .tv_sec = (time_t)(deadline / FBY_SECOND),
            .tv_nsec = (long)(deadline % FBY_SECOND),
        };
        rc = pthread_cond_timedwait(condition, &runtime->lock, &until);
    }
    actions_clear(actions);
    runtime->actions = actions;
    return rc != ETIMEDOUT;
}

/* ---- What the core says ----------------------------------------------------------------------------------------- */

static void wake_session(fby_runtime_t *runtime, fby_session_t session)
{
    fby_actions_t *actions = runtime->actions;
    uint32_t slot;
    if (!fby_core_session_slot(runtime->core, session, &slot)) {
        return;
    }
    if (actions->wakes < FBY_MOST_WAKES) {
        actions->wake_slot[actions->wakes++] = slot;
    } else {
        actions->wake_all = true;
    }
    fby_event_fds_move(&runtime->sessions[slot].fds, &actions->fds);
}

static void tell_subscribers(fby_runtime_t *runtime, const fby_event_t *event)
{
    fby_actions_t *actions = runtime->actions;
    for (uint32_t i = 0; i < runtime->subscriptions; i++) {
        fby_subscription_t *subscription = runtime->subscription[i];
        uint64_t lost = subscription->lost;
        bool was_empty = fby_subscription_push(subscription, event);
        runtime->metrics.events++;
        runtime->metrics.events_dropped += subscription->lost - lost;
        if (!was_empty) {
            continue;
        }
        fby_subscription_ref(subscription);
        actions->signal[actions->signals++] = subscription;
    }
}

/* Keeps the session for the log, unless its reason was logged a moment ago or there are many at once. */
static void keep_line(fby_runtime_t *runtime, const fby_snapshot_t *result, uint64_t now)
{
    fby_actions_t *actions = runtime->actions;
    uint32_t slot;
    uint64_t suppressed;
    if (!fby_log_enabled(FBY_LOG_INFO) || !fby_core_session_slot(runtime->core, result->handle, &slot)) {
        return;
    }
    fby_log_limit_t *limit = &runtime->reason_limit[result->reason];
    if (actions->lines == FBY_MOST_LINES) {
        limit->suppressed++;
        return;
    }
    if (fby_log_allow(limit, now, LINE_INTERVAL_MS * FBY_MS, &suppressed)) {
        fby_session_line_t *line = &actions->line[actions->lines++];
        const fby_session_record_t *record = &runtime->sessions[slot];
        line->result = *result;
        line->suppressed = suppressed;
        bool recorded = record->handle == result->handle || runtime->starting == NULL;
        line->about = recorded ? record->about : *runtime->starting;
    }
}

static void session_ended(fby_runtime_t *runtime, const fby_core_event_t *event)
{
    keep_line(runtime, event->result, fby_clock_now(&fby_clock_monotonic));
    if (runtime->subscriptions > 0) {
        fby_event_t told = {.type = FBY_EVENT_SESSION, .session = event->handle, .result = *event->result};
        tell_subscribers(runtime, &told);
    }
}

static void block_changed(fby_runtime_t *runtime, const fby_core_event_t *event, fby_event_type_t type)
{
    if (runtime->subscriptions > 0) {
        fby_event_t told = {.type = type, .block = event->block};
        memcpy(told.hash, &event->hash, sizeof(told.hash));
        tell_subscribers(runtime, &told);
    }
}

void fby_runtime_tell_reset(fby_runtime_t *runtime)
{
    if (runtime->subscriptions > 0) {
        tell_subscribers(runtime, &(fby_event_t){.type = FBY_EVENT_RESET});
    }
}

static void reference_dropped(fby_runtime_t *runtime, fby_seq_data_t *data)
{
    if (fby_seq_data_drop(data)) {
        data->next = runtime->actions->dead;
        runtime->actions->dead = data;
    }
}

static void quarantine_over(fby_runtime_t *runtime, uint64_t now)
{
    if (fby_breaker_trip(&runtime->breaker, now)) {
        runtime->actions->say_breaker = true;
        runtime->actions->breaker_wait_ns = fby_breaker_wait_ns(&runtime->breaker, now);
    }
}

static void put_stored(fby_runtime_t *runtime, fby_put_t put)
{
    fby_put_record_t *record = fby_put_record(runtime, put);
    if (record != NULL) {
        fby_event_fds_move(&record->fds, &runtime->actions->fds);
    }
}

void fby_runtime_emit(void *arg, const fby_core_event_t *event)
{
    fby_runtime_t *runtime = arg;
    switch (event->type) {
    case FBY_CORE_ANSWERED:
        fby_metrics_answered(&runtime->metrics, event->policy, event->result);
        wake_session(runtime, event->handle);
        break;
    case FBY_CORE_ENDED:
        wake_session(runtime, event->handle);
        break;
    case FBY_CORE_TERMINAL:
        fby_metrics_terminal(&runtime->metrics, event->result);
        session_ended(runtime, event);
        break;
    case FBY_CORE_PUBLISHED:
        block_changed(runtime, event, FBY_EVENT_PUBLISHED);
        break;
    case FBY_CORE_REMOVED:
        block_changed(runtime, event, FBY_EVENT_REMOVED);
        break;
    case FBY_CORE_FENCE:
        fby_lanes_fence(runtime, event->part, fby_clock_now(&fby_clock_monotonic));
        break;
    case FBY_CORE_UNREF:
        reference_dropped(runtime, event->ref);
        break;
    case FBY_CORE_PUT_STORED:
        runtime->actions->wake_puts = true;
        put_stored(runtime, event->handle);
        break;
    case FBY_CORE_RESET_DONE:
        runtime->actions->wake_reset = true;
        fby_event_fds_move(&runtime->reset_fds, &runtime->actions->fds);
        break;
    case FBY_CORE_QUARANTINE_OVER:
        quarantine_over(runtime, fby_clock_now(&fby_clock_monotonic));
        break;
    }
}

int fby_runtime_reset_fd(fby_runtime_t *runtime)
{
    fby_actions_t actions;
    fby_event_fd_t *ours;
    int theirs;
    int rc = fby_event_fd_create(&ours, &theirs);
    if (rc != 0) {
        return rc;
    }
    (void)fby_enter(runtime, &actions);
    if (fby_core_resetting(runtime->core) && !runtime->closing && !fby_is_poisoned(runtime)) {
        rc = fby_event_fds_add(&runtime->reset_fds, FBY_MOST_RESET_FDS, &ours, &actions.fds);
    }
    fby_leave(runtime, &actions);
    fby_event_fds_end(ours);
    if (rc != 0) {
        close(theirs);
        return rc;
    }
    return theirs;
}

/* ---- What goes wrong -------------------------------------------------------------------------------------------- */

void fby_breaker_count(fby_runtime_t *runtime, fby_permit_t permit, bool reached, uint64_t now)
{
    uint64_t suppressed;
    if (fby_breaker_tell(&runtime->breaker, permit, reached, now) &&
        fby_log_allow(&runtime->breaker_limit, now, FBY_SECOND, &suppressed)) {
        runtime->actions->say_breaker = true;
        runtime->actions->breaker_wait_ns = fby_breaker_wait_ns(&runtime->breaker, now);
    }
}

/* Whoever waits on a descriptor hears of it too. Once, so walking all tables does not matter. */
static void end_descriptors(fby_runtime_t *runtime)
{
    fby_event_fd_t **to = &runtime->actions->fds;
    for (uint32_t slot = 0; slot < runtime->session_slots; slot++) {
        fby_event_fds_move(&runtime->sessions[slot].fds, to);
    }
    for (uint32_t i = 0; i <= runtime->puts.mask; i++) {
        if (runtime->puts.entry[i].handle != 0) {
            fby_event_fds_move(&((fby_put_record_t *)(uintptr_t)runtime->puts.entry[i].value)->fds, to);
        }
    }
    fby_event_fds_move(&runtime->reset_fds, to);
}

void fby_runtime_poison(fby_runtime_t *runtime, const char *why)
{
    if (fby_is_poisoned(runtime)) {
        return;
    }
    strncpy(runtime->poison, why, sizeof(runtime->poison) - 1);
    atomic_store_explicit(&runtime->poisoned, true, memory_order_relaxed);
    atomic_store_explicit(&runtime->board->poisoned, 1, memory_order_release);
    fby_actions_t *actions = runtime->actions;
    end_descriptors(runtime);
    actions->say_poisoned = actions->wake_all = actions->wake_puts = actions->wake_reset = actions->wake_close = true;
}

uint64_t fby_runtime_deadline(const fby_runtime_t *runtime)
{
    return fby_is_poisoned(runtime) ? FBY_NEVER : fby_core_next_deadline(runtime->core);
}
