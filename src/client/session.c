/* session.c - calls on sessions. */
#include <errno.h>
#include <unistd.h>

#include "client/client.h"
#include "core/handle.h"

/* ---- Start ------------------------------------------------------------------------------------------------------ */

static int session_start(fby_client_t *client, fby_seq_t *seq, const fby_session_options_t *options, fby_session_t *out)
{
    fby_answer_view_t answer;
    fby_session_t session = 0;
    fby_msg_start_t start = {
        .policy = options->policy,
        .stop_mode = options->stop_mode,
        .predictive = options->predictive,
        .timeout_budget_s = options->timeout_budget_s,
        .candidate_start_token = options->candidate_start_token,
        .have_blocks = options->have_blocks,
        .min_tokens = options->min_tokens,
    };
    const char *label = options->label != NULL ? options->label : "";
    memcpy(start.label, label, strnlen(label, sizeof(start.label) - 1));
    pthread_mutex_lock(&client->lock);
    int rc = -ENOTCONN;
    if (fby_client_reach(client)) {
        rc = fby_client_ask_sequence(client, FBY_REQUEST_START, &start, &start.seq, seq, &answer);
    }
    if (rc >= 0) {
        session = ((const fby_msg_numbers_t *)answer.body)->number[0];
        rc = 0;
    }
    pthread_mutex_unlock(&client->lock);
    if (rc == -ENOTCONN) {
        session = fby_away_make(client, FBY_AWAY_SESSION);
        rc = 0;
    }
    if (rc == 0) {
        *out = session; // NOLINT(clang-analyzer-core.NullDereference): the caller checked it
    }
    return rc;
}

int fby_client_session_start(fby_cache_t *cache, fby_seq_t *seq, const fby_session_options_t *options,
                             fby_session_t *out)
{
    fby_client_t *client;
    fby_session_options_t full;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    rc = out == NULL ? fby_call_null("out") : fby_client_check_sequence(client, seq);
    rc = rc == 0 ? fby_call_options(options, &full) : rc; /* what they say is judged by the server */
    rc = rc == 0 ? session_start(client, seq, &full, out) : rc;
    return fby_call_end(cache, rc);
}

/* ---- Looking ---------------------------------------------------------------------------------------------------- */

/* No lock, no system call. */
static int look(const fby_link_t *link, fby_session_t session, fby_snapshot_t *full)
{
    if (fby_away_is(session, FBY_AWAY_SESSION)) {
        fby_away_snapshot(session, full);
        return 0;
    }
    if (link == NULL || !fby_board_is_kept(link->board)) {
        return FBY_E_STALE;
    }
    if (atomic_load_explicit(&link->board->poisoned, memory_order_relaxed) != 0) {
        return FBY_E_POISONED;
    }
    return fby_board_poll(link->board, link->welcome.client, session, full);
}

static int session_poll(fby_client_t *client, fby_session_t session, fby_snapshot_t *full)
{
    int rc = look(fby_client_read(client), session, full);
    fby_client_unread(client);
    return rc;
}

int fby_client_session_poll(fby_cache_t *cache, fby_session_t session, fby_snapshot_t *snapshot)
{
    fby_client_t *client;
    fby_snapshot_t full;
    int rc = fby_client_begin_any(cache, &client); /* looking sees a poisoned server by itself */
    if (rc != 0) {
        return rc;
    }
    rc = fby_call_sized("snapshot", snapshot);
    if (rc == 0) {
        rc = fby_call_about(session_poll(client, session, &full), "session", session);
        if (rc == 0) {
            fby_call_output(snapshot, &full, sizeof(full));
        }
    }
    return fby_call_end(cache, rc);
}

/* A handle that is not known shows in its snapshot, and so does a server that is away. */
static void signal_demands(fby_client_t *client, const fby_session_t *sessions, const uint8_t *demand, size_t n)
{
    fby_msg_demand_t demands[FBY_MSG_DEMANDS];
    fby_answer_view_t answer;
    for (size_t i = 0; i < n;) {
        uint32_t taken = 0;
        for (; i < n && taken < FBY_MSG_DEMANDS; i++) {
            if (demand[i] != 0 && fby_handle_type(sessions[i]) == FBY_HANDLE_SESSION) {
                demands[taken++].session = sessions[i];
            }
        }
        if (taken == 0) {
            return;
        }
        pthread_mutex_lock(&client->lock);
        int rc = fby_client_ask(client, FBY_REQUEST_PROGRESS, NULL, demands, taken, &answer, NULL);
        pthread_mutex_unlock(&client->lock);
        if (rc < 0) {
            return;
        }
    }
}

int fby_client_session_progress(fby_cache_t *cache, const fby_session_t *sessions, const uint8_t *demand, size_t n,
                                fby_snapshot_t *snapshots)
{
    fby_client_t *client;
    int rc = fby_client_begin(cache, &client);
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
        signal_demands(client, sessions, demand, n);
    }
    const fby_link_t *link = fby_client_read(client);
    for (size_t i = 0; i < n; i++) {
        fby_snapshot_t full;
        if (look(link, sessions[i], &full) != 0) {
            full = (fby_snapshot_t){.handle = sessions[i], .state = FBY_EXPIRED, .error = FBY_E_STALE};
        }
        fby_call_output(&snapshots[i], &full, sizeof(full));
    }
    fby_client_unread(client);
    return fby_call_end(cache, 0);
}

/* ---- Ending ----------------------------------------------------------------------------------------------------- */

static int session_call(fby_cache_t *cache, fby_session_t session, fby_request_t type)
{
    fby_client_t *client;
    int rc = fby_client_begin(cache, &client);
    if (rc == 0) {
        const fby_msg_object_t about = {.handle = session};
        if (!fby_away_is(session, FBY_AWAY_SESSION)) {
            rc = fby_client_call_object(client, type, &about, "session", NULL, 0);
        }
        rc = fby_call_end(cache, rc);
    }
    return rc;
}

int fby_client_session_demand(fby_cache_t *cache, fby_session_t session)
{
    return session_call(cache, session, FBY_REQUEST_DEMAND);
}

int fby_client_session_stop(fby_cache_t *cache, fby_session_t session)
{
    return session_call(cache, session, FBY_REQUEST_STOP);
}

int fby_client_session_release(fby_cache_t *cache, fby_session_t session)
{
    return session_call(cache, session, FBY_REQUEST_RELEASE);
}

static int session_take(fby_client_t *client, fby_session_t session, fby_hold_t *out)
{
    fby_answer_view_t answer;
    const fby_msg_object_t about = {.handle = session};
    fby_hold_t hold = 0;
    if (fby_away_is(session, FBY_AWAY_SESSION)) {
        *out = fby_away_make(client, FBY_AWAY_HOLD);
        return 0;
    }
    pthread_mutex_lock(&client->lock);
    int rc = fby_client_ask(client, FBY_REQUEST_TAKE, &about, NULL, 0, &answer, NULL);
    if (rc >= 0) {
        hold = ((const fby_msg_numbers_t *)answer.body)->number[0];
        rc = fby_client_keep_hold(client, hold);
    }
    pthread_mutex_unlock(&client->lock);
    if (rc == 0) {
        *out = hold;
    }
    return fby_client_about(rc, "session", session);
}

int fby_client_session_take(fby_cache_t *cache, fby_session_t session, fby_hold_t *out)
{
    fby_client_t *client;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    return fby_call_end(cache, out == NULL ? fby_call_null("out") : session_take(client, session, out));
}

/* ---- Waiting ---------------------------------------------------------------------------------------------------- */

static int session_wait(fby_client_t *client, fby_session_t session, uint64_t timeout_ns, fby_snapshot_t *full)
{
    uint64_t deadline = fby_client_deadline(timeout_ns);
    fby_link_t *link = NULL;
    bool is_late = timeout_ns == 0;
    int fd = -1, rc;
    for (;;) {
        rc = session_poll(client, session, full);
        if (rc != 0 || full->answered) {
            break;
        }
        if (is_late) {
            rc = -ETIMEDOUT;
            break;
        }
        rc = fd < 0 ? fby_client_event(client, FBY_EVENT_OF_SESSION, session, &fd, &link)
                    : fby_client_await(client, link, fd, deadline);
        is_late = rc == -ETIMEDOUT;
        if (rc != 0 && !is_late) {
            break;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    fby_link_unref(client, link);
    return fby_client_about(rc, "session", session);
}

int fby_client_session_wait(fby_cache_t *cache, fby_session_t session, double timeout_s, fby_snapshot_t *snapshot)
{
    fby_client_t *client;
    fby_snapshot_t full;
    uint64_t timeout_ns;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if ((snapshot != NULL && fby_call_sized("snapshot", snapshot) != 0) ||
        !fby_call_seconds("timeout_s", timeout_s, true, &timeout_ns)) {
        return fby_call_end(cache, -EINVAL);
    }
    rc = session_wait(client, session, timeout_ns, &full);
    if (rc == 0 && snapshot != NULL) {
        fby_call_output(snapshot, &full, sizeof(full));
    }
    return fby_call_end(cache, rc);
}

int fby_client_session_event_fd(fby_cache_t *cache, fby_session_t session)
{
    fby_client_t *client;
    int fd = -1;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (fby_away_is(session, FBY_AWAY_SESSION)) {
        return fby_call_end(cache, fby_away_event_fd());
    }
    rc = fby_client_event(client, FBY_EVENT_OF_SESSION, session, &fd, NULL);
    return fby_call_end(cache, rc == 0 ? fd : fby_client_about(rc, "session", session));
}
