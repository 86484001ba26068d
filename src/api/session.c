/* session.c - the public calls on sessions. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/call.h"
#include "api/calls.h"
#include "api/sequence.h"

/* ---- Options ---------------------------------------------------------------------------------------------------- */

static int option_wrong(const char *name, int64_t value, int64_t high)
{
    fby_error_set("options->%s is %lld; accepted: %d to %lld, or FBY_UNSET", name, (long long)value, 0,
                  (long long)high);
    return -EINVAL;
}

static int options_check(const fby_session_options_t *options)
{
    if (options->policy < FBY_UNSET || options->policy >= FBY_POLICY_COUNT) {
        return option_wrong("policy", options->policy, FBY_POLICY_COUNT - 1);
    }
    if (options->stop_mode < FBY_UNSET || options->stop_mode >= FBY_STOP_MODE_COUNT) {
        return option_wrong("stop_mode", options->stop_mode, FBY_STOP_MODE_COUNT - 1);
    }
    if (options->predictive < FBY_UNSET || options->predictive > 1) {
        return option_wrong("predictive", options->predictive, 1);
    }
    if (options->have_blocks >= FBY_NONE) {
        return option_wrong("have_blocks", (int64_t)options->have_blocks, FBY_NONE - 1);
    }
    return 0;
}

/* ---- Start ------------------------------------------------------------------------------------------------------ */

static void record_fill(const fby_settings_t *settings, const fby_session_options_t *options,
                        fby_session_about_t *record)
{
    record->policy = options->policy >= 0 ? (fby_policy_t)options->policy : settings->prefetch.policy;
    record->stop_mode = options->stop_mode >= 0 ? (fby_stop_mode_t)options->stop_mode : settings->prefetch.stop_mode;
    const char *label = options->label != NULL ? options->label : "";
    size_t length = strnlen(label, FBY_LABEL_BYTES - 1);
    memcpy(record->label, label, length);
    record->label[length] = '\0';
}

static void record_session(fby_runtime_t *runtime, fby_session_t session, const fby_session_about_t *about)
{
    uint32_t slot;
    if (fby_core_session_slot(runtime->core, session, &slot)) {
        runtime->sessions[slot].handle = session;
        runtime->sessions[slot].about = *about;
        /* a client of the server may have had this place before */
        atomic_store_explicit(fby_board_owner(runtime->board, slot), 0, memory_order_release);
    }
}

static int session_start(fby_runtime_t *runtime, fby_seq_t *seq, const fby_session_options_t *options,
                         fby_session_t *out)
{
    fby_core_start_t start = {
        .policy = options->policy,
        .stop_mode = options->stop_mode,
        .predictive = options->predictive,
        .budget_ns = FBY_NEVER,
        .candidate_start_token = options->candidate_start_token,
        .have_blocks = (uint32_t)options->have_blocks,
        .min_tokens = options->min_tokens,
    };
    if (!fby_call_seconds("options->timeout_budget_s", options->timeout_budget_s, true, &start.budget_ns)) {
        return -EINVAL;
    }
    int rc = fby_seq_view(seq, true, &start.seq);
    if (rc != 0) {
        return rc;
    }
    fby_session_t session = 0;
    fby_session_about_t about;
    fby_actions_t actions;
    record_fill(&runtime->settings, options, &about);
    uint64_t now = fby_enter(runtime, &actions);
    runtime->starting = &about; /* a session may end within its start, before it has a record */
    rc = fby_core_session_start(runtime->core, now, &start, &session);
    runtime->starting = NULL;
    if (rc == 0) {
        record_session(runtime, session, &about);
    }
    fby_leave(runtime, &actions);
    if (rc != 0) {
        fby_seq_data_unref(start.seq.ref);
        return fby_call_about(rc, "session of epoch", start.seq.epoch);
    }
    *out = session; // NOLINT(clang-analyzer-core.NullDereference): the caller checked it
    return 0;
}

int fby_local_session_start(fby_cache_t *cache, fby_seq_t *seq, const fby_session_options_t *options,
                            fby_session_t *out)
{
    fby_runtime_t *runtime;
    fby_session_options_t full;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = out == NULL ? fby_call_null("out") : fby_sequence_check(runtime, seq);
    rc = rc == 0 ? fby_call_options(options, &full) : rc;
    rc = rc == 0 ? options_check(&full) : rc;
    rc = rc == 0 ? session_start(runtime, seq, &full, out) : rc;
    return fby_call_end(cache, rc);
}

/* ---- Looking ---------------------------------------------------------------------------------------------------- */

/* Lock-free. */
static int session_poll(const fby_runtime_t *runtime, fby_session_t session, fby_snapshot_t *snapshot)
{
    return fby_board_poll(runtime->board, FBY_BOARD_ANY, session, snapshot);
}

int fby_local_session_poll(fby_cache_t *cache, fby_session_t session, fby_snapshot_t *snapshot)
{
    fby_runtime_t *runtime;
    fby_snapshot_t full;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = fby_call_sized("snapshot", snapshot);
    if (rc == 0) {
        rc = fby_call_about(session_poll(runtime, session, &full), "session", session);
        if (rc == 0) {
            fby_call_output(snapshot, &full, sizeof(full));
        }
    }
    return fby_call_end(cache, rc);
}

/* One critical section takes this many demands: each may touch a ledger. */
enum { DEMANDS_AT_ONCE = 16 };

static void signal_demands(fby_runtime_t *runtime, const fby_session_t *sessions, const uint8_t *demand, size_t n)
{
    for (size_t i = 0; i < n;) {
        fby_actions_t actions;
        uint32_t taken = 0;
        while (i < n && demand[i] == 0) {
            i++;
        }
        if (i == n) {
            return;
        }
        uint64_t now = fby_enter(runtime, &actions);
        for (; i < n && taken < DEMANDS_AT_ONCE; i++) {
            if (demand[i] != 0) {
                /* a handle that is not known shows in its snapshot */
                (void)fby_core_session_demand(runtime->core, now, sessions[i]);
                taken++;
            }
        }
        fby_leave(runtime, &actions);
    }
}

int fby_local_session_progress(fby_cache_t *cache, const fby_session_t *sessions, const uint8_t *demand, size_t n,
                               fby_snapshot_t *snapshots)
{
    fby_runtime_t *runtime;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    if (n > 0 && (sessions == NULL || snapshots == NULL)) {
        return fby_call_end(cache, fby_call_null(sessions == NULL ? "sessions" : "snapshots"));
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = fby_call_sized("snapshots[i]", &snapshots[i]);
    }
    if (rc != 0) {
        return fby_call_end(cache, rc);
    }
    if (demand != NULL) {
        signal_demands(runtime, sessions, demand, n);
    }
    for (size_t i = 0; i < n; i++) {
        fby_snapshot_t full;
        if (session_poll(runtime, sessions[i], &full) != 0) {
            full = (fby_snapshot_t){.handle = sessions[i], .state = FBY_EXPIRED, .error = FBY_E_STALE};
        }
        fby_call_output(&snapshots[i], &full, sizeof(full));
    }
    return fby_call_end(cache, 0);
}

/* ---- Ending ----------------------------------------------------------------------------------------------------- */

typedef int session_verb(fby_core_t *core, uint64_t now, fby_session_t session);

static int session_call(fby_cache_t *cache, fby_session_t session, session_verb *verb)
{
    fby_runtime_t *runtime;
    fby_actions_t actions;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    uint64_t now = fby_enter(runtime, &actions);
    rc = verb(runtime->core, now, session);
    fby_leave(runtime, &actions);
    return fby_call_end(cache, fby_call_about(rc, "session", session));
}

int fby_local_session_demand(fby_cache_t *cache, fby_session_t session)
{
    return session_call(cache, session, fby_core_session_demand);
}

int fby_local_session_stop(fby_cache_t *cache, fby_session_t session)
{
    return session_call(cache, session, fby_core_session_stop);
}

int fby_local_session_release(fby_cache_t *cache, fby_session_t session)
{
    return session_call(cache, session, fby_core_session_release);
}

int fby_local_session_take(fby_cache_t *cache, fby_session_t session, fby_hold_t *out)
{
    fby_runtime_t *runtime;
    fby_actions_t actions;
    fby_hold_t hold = 0;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    if (out == NULL) {
        return fby_call_end(cache, fby_call_null("out"));
    }
    uint64_t now = fby_enter(runtime, &actions);
    rc = fby_core_session_take(runtime->core, now, session, &hold);
    if (rc == 0) {
        /* what of it is used counts as consumed, each block once */
        (void)fby_handles_set(&runtime->holds, hold, 0);
    }
    fby_leave(runtime, &actions);
    if (rc == 0) {
        *out = hold;
    }
    return fby_call_end(cache, fby_call_about(rc, "session", session));
}

/* ---- Waiting ---------------------------------------------------------------------------------------------------- */

static int session_wait(fby_runtime_t *runtime, fby_session_t session, uint64_t timeout_ns, fby_snapshot_t *full)
{
    fby_actions_t actions;
    uint32_t slot;
    bool in_time = timeout_ns > 0;
    uint64_t deadline = fby_add_sat(fby_enter(runtime, &actions), timeout_ns);
    int rc = fby_core_session_slot(runtime->core, session, &slot) ? 0 : FBY_E_STALE;
    while (rc == 0) {
        rc = fby_is_poisoned(runtime) ? FBY_E_POISONED : fby_core_session_snapshot(runtime->core, session, full);
        if (rc != 0 || full->answered) {
            break;
        }
        if (runtime->stop || !in_time) {
            rc = runtime->stop ? FBY_E_CLOSED : -ETIMEDOUT;
            break;
        }
        in_time = fby_wait(runtime, &actions, &runtime->sessions[slot].answered, deadline);
    }
    fby_leave(runtime, &actions);
    return rc;
}

int fby_local_session_wait(fby_cache_t *cache, fby_session_t session, double timeout_s, fby_snapshot_t *snapshot)
{
    fby_runtime_t *runtime;
    fby_snapshot_t full;
    uint64_t timeout_ns;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    if ((snapshot != NULL && fby_call_sized("snapshot", snapshot) != 0) ||
        !fby_call_seconds("timeout_s", timeout_s, true, &timeout_ns)) {
        return fby_call_end(cache, -EINVAL);
    }
    rc = fby_call_about(session_wait(runtime, session, timeout_ns, &full), "session", session);
    if (rc == 0 && snapshot != NULL) {
        fby_call_output(snapshot, &full, sizeof(full));
    }
    return fby_call_end(cache, rc);
}

int fby_local_session_event_fd(fby_cache_t *cache, fby_session_t session)
{
    fby_runtime_t *runtime;
    fby_actions_t actions;
    fby_event_fd_t *ours = NULL;
    fby_snapshot_t full;
    int theirs = -1;
    uint32_t slot;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = fby_event_fd_create(&ours, &theirs);
    if (rc != 0) {
        return fby_call_end(cache, fby_call_about(rc, "descriptor for session", session));
    }
    (void)fby_enter(runtime, &actions);
    rc = fby_core_session_slot(runtime->core, session, &slot) ? 0 : FBY_E_STALE;
    rc = rc == 0 ? fby_core_session_snapshot(runtime->core, session, &full) : rc;
    if (rc == 0 && !full.answered) {
        rc = fby_event_fds_add(&runtime->sessions[slot].fds, FBY_MOST_EVENT_FDS, &ours, &actions.fds);
    }
    fby_leave(runtime, &actions);
    fby_event_fds_end(ours); /* answered already: readable at once */
    if (rc != 0) {
        close(theirs);
        return fby_call_end(cache, fby_call_about(rc, "session", session));
    }
    return fby_call_end(cache, theirs);
}
