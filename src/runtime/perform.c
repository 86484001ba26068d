/*
 * perform.c - what a critical section left to be done: outside the lock, by the thread that was inside.
 */
#include <stdio.h>

#include "runtime/runtime.h"

static void perform_wakes(fby_runtime_t *runtime, const fby_actions_t *actions)
{
    if (actions->wake_all) {
        for (uint32_t slot = 0; slot < runtime->session_slots; slot++) {
            pthread_cond_broadcast(&runtime->sessions[slot].answered);
        }
    } else {
        for (uint32_t i = 0; i < actions->wakes; i++) {
            pthread_cond_broadcast(&runtime->sessions[actions->wake_slot[i]].answered);
        }
    }
    if (actions->wake_puts) {
        pthread_cond_broadcast(&runtime->puts_changed);
    }
    if (actions->wake_reset) {
        pthread_cond_broadcast(&runtime->reset_done);
    }
    if (actions->wake_close) {
        pthread_cond_broadcast(&runtime->close_step);
    }
    if (actions->wake_timer) {
        pthread_cond_signal(&runtime->timer);
    }
    if (actions->wake_puts_handed) {
        fby_inline_wake_puts(runtime);
    }
    if (actions->wake_inline) {
        runtime->driver->wake(runtime->store);
    }
    for (unsigned kind = 0; kind < FBY_LANE_KINDS; kind++) {
        if (actions->wake_lanes & 1u << kind) {
            pthread_cond_signal(&runtime->pool[kind].work);
        }
    }
}

static void perform_signals(const fby_actions_t *actions)
{
    fby_event_fds_end(actions->fds);
    for (uint32_t i = 0; i < actions->signals; i++) {
        fby_subscription_signal(actions->signal[i]);
        fby_subscription_unref(actions->signal[i]);
    }
}

static void perform_makes(fby_runtime_t *runtime, const fby_actions_t *actions)
{
    if (actions->fence) { /* first: a lane that cannot be made does its work in this thread */
        fby_lanes_fence_due(runtime);
    }
    for (unsigned kind = 0; kind < FBY_LANE_KINDS; kind++) {
        if (actions->make_lanes & 1u << kind) {
            fby_lane_make(runtime, (fby_lane_kind_t)kind);
        }
    }
    if (actions->make_inline) {
        fby_inline_make(runtime);
    }
    if (actions->make_timer) {
        fby_timer_make(runtime);
    }
}

static void say_session(const fby_session_line_t *line)
{
    const fby_snapshot_t *r = &line->result;
    char label[2 * FBY_LABEL_BYTES + 3];
    fby_log(FBY_LOG_INFO, "session",
            "session=%016llx label=%s policy=%s stop_mode=%s outcome=%s reason=%s error=%s found_tokens=%llu "
            "planned_tokens=%llu loaded_tokens=%llu delivered_tokens=%llu graphs=%llu elapsed_ms=%.3f drain_ms=%.3f "
            "suppressed=%llu",
            (unsigned long long)r->handle, fby_log_quote(label, sizeof(label), line->about.label),
            fby_policy_name(line->about.policy), fby_stop_mode_name(line->about.stop_mode),
            fby_outcome_name(r->outcome), fby_reason_name(r->reason), r->error != 0 ? fby_errname(r->error) : "none",
            (unsigned long long)r->found_tokens, (unsigned long long)r->planned_tokens,
            (unsigned long long)r->loaded_tokens, (unsigned long long)r->delivered_tokens,
            (unsigned long long)r->submitted, (double)fby_sub_sat(r->answered_ns, r->created_ns) / (double)FBY_MS,
            (double)fby_sub_sat(r->terminal_ns, r->sealed_ns) / (double)FBY_MS, (unsigned long long)line->suppressed);
}

static void say_fault(const fby_runtime_t *runtime, const fby_fault_report_t *fault)
{
    char text[256] = "";
    size_t length = 0;
    for (uint32_t kind = 0; kind < FBY_OBJECT_FAULT_COUNT; kind++) {
        if (kind != FBY_OBJECT_OK && fault->count[kind] > 0 && length < sizeof(text)) {
            length += (size_t)snprintf(text + length, sizeof(text) - length, " %s=%u",
                                       fby_object_fault_name((fby_object_fault_t)kind), fault->count[kind]);
        }
    }
    fby_log(FBY_LOG_WARN, "wrong_objects", "driver=%s%s exists_but_not_readable=%u suppressed=%llu",
            runtime->driver->name, text, fault->unreadable, (unsigned long long)fault->suppressed);
}

void fby_actions_perform(fby_runtime_t *runtime, fby_actions_t *actions)
{
    perform_wakes(runtime, actions);
    perform_signals(actions);
    while (actions->dead != NULL) {
        fby_seq_data_t *data = actions->dead;
        actions->dead = data->next;
        fby_seq_data_free(data);
    }
    for (uint32_t i = 0; i < actions->lines; i++) {
        say_session(&actions->line[i]);
    }
    if (actions->say_fault) {
        say_fault(runtime, &actions->fault);
    }
    if (actions->say_breaker) {
        fby_log(FBY_LOG_WARN, "breaker_open", "driver=%s retry_ms=%.0f", runtime->driver->name,
                (double)actions->breaker_wait_ns / (double)FBY_MS);
    }
    if (actions->say_poisoned) {
        fby_log(FBY_LOG_ERROR, "poisoned", "invariant=\"%s\"", runtime->poison);
    }
    perform_makes(runtime, actions);
}
