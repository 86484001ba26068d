/* calls_put.c - requests about puts. */
#include <errno.h>

#include "base/log.h"
#include "runtime/put_publish.h"
#include "server/internal.h"

static fby_owned_t *put_of(const fby_peer_t *peer, uint64_t put)
{
    fby_owned_t *owned = fby_owned_find(&peer->server->puts, put, peer->number);
    return owned != NULL && !owned->abandoned ? owned : NULL;
}

/* Slots of a process whose end nobody could see would stay out of use for ever. */
static int put_room(fby_peer_t *peer)
{
    uint32_t most = peer->server->settings->server.client_puts;
    if (peer->pidfd < 0 && peer->pid != FBY_PEER_OF_TEST) {
        fby_error_set("the server cannot watch this process: it needs its PID namespace, or Linux 6.5");
        return -EOPNOTSUPP;
    }
    return peer->puts.count < most ? 0 : fby_call_over(peer, "server.client_puts", most);
}

static int put_first(fby_peer_t *peer, fby_seq_t *seq, const fby_msg_put_t *about, uint64_t number[4])
{
    fby_put_t put;
    int rc = fby_call_stopping(peer);
    rc = rc == 0 ? put_room(peer) : rc;
    rc = rc == 0
             ? fby_put_begin(peer->server->cache, seq, about->from, about->to, &put, &number[1], &number[2], &number[3])
             : rc;
    if (rc == 0) {
        fby_owned_add(&peer->server->puts, &peer->puts, put, peer->number);
        number[0] = put;
    }
    return rc;
}

int fby_call_PUT_BEGIN(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_put_t *about = request->body;
    uint64_t *number = reply->body.numbers.number, known = 0;
    fby_seq_t *seq;
    int rc = fby_peer_sequence(peer, &about->seq, request, &seq, &known);
    if (rc == FBY_MSG_E_RESEND) {
        number[0] = known;
    }
    if (rc != 0) {
        return rc;
    }
    if (about->put == 0) {
        return put_first(peer, seq, about, number);
    }
    if (put_of(peer, about->put) == NULL) {
        return fby_call_stale("put", about->put);
    }
    number[0] = about->put;
    return fby_put_next(peer->server->cache, about->put, seq, about->from, about->to, &number[1], &number[2],
                        &number[3]);
}

int fby_call_PUT_PLACES(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    if (object->from > object->to || object->to - object->from > FBY_MSG_PLACES) {
        return FBY_CALL_VIOLATION;
    }
    if (put_of(peer, object->handle) == NULL) {
        return fby_call_stale("put", object->handle);
    }
    int rc =
        fby_put_places(peer->server->cache, object->handle, object->group, object->from, object->to, reply->elements);
    reply->count = rc == 0 ? (uint32_t)(object->to - object->from) : 0;
    return rc;
}

int fby_call_PUT_COMMIT(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    fby_owned_t *owned = put_of(peer, object->handle);
    if (owned == NULL) {
        return fby_call_stale("put", object->handle);
    }
    if (owned->writers > 0) {
        fby_error_set("put %016llx: %u ranks may still write to its slots", (unsigned long long)object->handle,
                      owned->writers);
        return FBY_E_STATE;
    }
    int rc = fby_put_publish_sealed(peer->server->runtime, object->handle, object->from, &reply->body.PUT_COMMIT);
    if (rc < 0) {
        fby_error_set("put %016llx: %s", (unsigned long long)object->handle, fby_strerror(rc));
    }
    return rc;
}

int fby_call_PUT_STORED(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    uint64_t *number = reply->body.numbers.number;
    return put_of(peer, object->handle) != NULL
               ? fby_put_wait_store(peer->server->cache, object->handle, 0, &number[0], &number[1])
               : fby_call_stale("put", object->handle);
}

/* Of a connection that this process had before: it lives, and says that it writes no more. */
static int put_end_of_former(fby_peer_t *peer, const fby_msg_object_t *object)
{
    fby_peer_t *former = object->from != 0 ? fby_peer_find(peer->server, object->from) : NULL;
    bool is_own = former != NULL && former != peer && former->secret == object->to && former->pid == peer->pid;
    if (is_own) {
        fby_peer_end(former); /* it is, and may not have been heard of */
    }
    fby_owned_t *owned = is_own ? fby_owned_find(&peer->server->puts, object->handle, former->number) : NULL;
    if (owned == NULL || !owned->abandoned || owned->owner_done) {
        return fby_call_stale("put", object->handle);
    }
    fby_server_put_owner_done(peer->server, owned);
    fby_peer_settle(former);
    return 0;
}

int fby_call_PUT_END(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    fby_owned_t *owned = put_of(peer, object->handle);
    return owned != NULL ? fby_peer_put_end(peer, owned, true) : put_end_of_former(peer, object);
}
