/* calls_session.c - requests about sessions. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "core/handle.h"
#include "server/internal.h"

static fby_owned_t *session_of(const fby_peer_t *peer, uint64_t session)
{
    return fby_owned_find(&peer->server->sessions, session, peer->number);
}

/* ---- What counts ------------------------------------------------------------------------------------------------ */

/* An ended one answers calls for as long as the core knows it, but counts no more. */
static void settle(fby_peer_t *peer, fby_owned_t *owned)
{
    fby_snapshot_t snapshot;
    int rc = fby_board_poll(peer->server->runtime->board, FBY_BOARD_ANY, owned->handle, &snapshot);
    if (rc != 0) {
        fby_owned_forget(&peer->server->sessions, owned);
    } else if (snapshot.state == FBY_EXPIRED) {
        fby_owned_unlink(&peer->server->sessions, owned);
    }
}

void fby_peer_sweep_sessions(fby_peer_t *peer)
{
    fby_owned_table_t *table = &peer->server->sessions;
    fby_owned_t *next, *owned = fby_owned_first(table, &peer->sessions);
    for (; owned != NULL; owned = next) {
        next = fby_owned_next(table, owned);
        settle(peer, owned);
    }
}

static int session_room(fby_peer_t *peer)
{
    uint32_t most = peer->server->settings->server.client_sessions;
    if (peer->sessions.count >= most) {
        fby_peer_sweep_sessions(peer);
    }
    return peer->sessions.count < most ? 0 : fby_call_over(peer, "server.client_sessions", most);
}

/* ---- Start ------------------------------------------------------------------------------------------------------ */

static int session_begin(fby_peer_t *peer, fby_seq_t *seq, const fby_msg_start_t *start, fby_session_t *out)
{
    char label[FBY_MSG_NAME];
    memcpy(label, start->label, sizeof(label));
    label[sizeof(label) - 1] = '\0';
    fby_session_options_t options = {
        .size = sizeof(options),
        .policy = start->policy,
        .stop_mode = start->stop_mode,
        .predictive = start->predictive,
        .timeout_budget_s = start->timeout_budget_s,
        .candidate_start_token = start->candidate_start_token,
        .have_blocks = start->have_blocks,
        .min_tokens = start->min_tokens,
        .label = label,
    };
    return fby_session_start(peer->server->cache, seq, &options, out);
}

int fby_call_START(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_start_t *start = request->body;
    fby_server_t *server = peer->server;
    fby_seq_t *seq;
    fby_session_t session;
    int rc = fby_peer_sequence(peer, &start->seq, request, &seq, &reply->body.numbers.number[0]);
    if (rc != 0) {
        return rc;
    }
    rc = fby_call_stopping(peer);
    rc = rc == 0 ? session_room(peer) : rc;
    rc = rc == 0 ? session_begin(peer, seq, start, &session) : rc;
    if (rc == 0) {
        fby_owned_add(&server->sessions, &peer->sessions, session, peer->number);
        /* before the client has the handle: from then on it polls */
        atomic_store_explicit(fby_board_owner(server->runtime->board, fby_handle_index(session)), peer->number,
                              memory_order_release);
        reply->body.numbers.number[0] = session;
    }
    return rc;
}

/* ---- Later ------------------------------------------------------------------------------------------------------ */

/* One critical section takes this many demands: each may touch a ledger. */
enum { DEMANDS_AT_ONCE = 16 };

int fby_call_PROGRESS(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    fby_runtime_t *runtime = peer->server->runtime;
    const fby_msg_demand_t *demand = request->elements;
    for (uint32_t i = 0; i < request->count;) {
        fby_actions_t actions;
        uint32_t end = FBY_MIN(request->count, i + DEMANDS_AT_ONCE);
        uint64_t now = fby_enter(runtime, &actions);
        for (; i < end; i++) {
            if (session_of(peer, demand[i].session) != NULL) {
                /* a handle that is not known any more shows in its snapshot */
                (void)fby_core_session_demand(runtime->core, now, demand[i].session);
            }
        }
        fby_leave(runtime, &actions);
    }
    return fby_is_poisoned(runtime) ? FBY_E_POISONED : 0;
}

typedef int verb_t(fby_cache_t *cache, fby_session_t session);

static int session_call(fby_peer_t *peer, const fby_request_view_t *request, verb_t *verb)
{
    const fby_msg_object_t *object = request->body;
    fby_owned_t *owned = session_of(peer, object->handle);
    if (owned == NULL) {
        return fby_call_stale("session", object->handle);
    }
    int rc = verb(peer->server->cache, object->handle);
    settle(peer, owned);
    return rc;
}

int fby_call_STOP(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    return session_call(peer, request, fby_session_stop);
}

int fby_call_RELEASE(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    return session_call(peer, request, fby_session_release);
}

int fby_call_DEMAND(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    return session_call(peer, request, fby_session_demand);
}

/* A descriptor that the client waits on, of whatever it may wait for. */
int fby_call_EVENT(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    fby_server_t *server = peer->server;
    int fd;
    switch (object->flags) {
    case FBY_EVENT_OF_SESSION:
        fd = session_of(peer, object->handle) != NULL ? fby_session_event_fd(server->cache, object->handle)
                                                      : fby_call_stale("session", object->handle);
        break;
    case FBY_EVENT_OF_PUT:
        fd = fby_owned_find(&server->puts, object->handle, peer->number) != NULL
                 ? fby_put_event_fd(server->cache, object->handle)
                 : fby_call_stale("put", object->handle);
        break;
    case FBY_EVENT_OF_RESET:
        fd = fby_runtime_reset_fd(server->runtime);
        break;
    case FBY_EVENT_OF_GROUP:
        fd = fby_group_event_fd(peer);
        break;
    default:
        return FBY_CALL_VIOLATION;
    }
    if (fd >= 0) {
        reply->fd[reply->fds++] = fd;
    }
    return FBY_MIN(fd, 0);
}
