/* calls_hold.c - requests about holds, and what leads to one. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "core/handle.h"
#include "server/internal.h"

uint64_t fby_covered_bytes(const fby_server_t *server, uint64_t first_block, uint64_t blocks)
{
    const fby_fingerprint_fields_t *model = &server->settings->model;
    uint64_t bytes = 0, all = blocks - FBY_MIN(first_block, blocks);
    for (uint32_t g = 0; g < model->groups; g++) {
        uint64_t n = model->group[g].trailing > 0 ? FBY_MIN(all, model->group[g].trailing) : all;
        bytes += n * server->runtime->region.slot_bytes[g];
    }
    return bytes;
}

static fby_owned_t *hold_of(const fby_peer_t *peer, uint64_t hold)
{
    return fby_owned_find(&peer->server->holds, hold, peer->number);
}

static int hold_room(fby_peer_t *peer)
{
    uint32_t most = peer->server->settings->server.client_holds;
    return peer->holds.count < most ? 0 : fby_call_over(peer, "server.client_holds", most);
}

static int bytes_room(fby_peer_t *peer, uint64_t bytes)
{
    uint64_t most = peer->server->settings->server.client_pinned_bytes;
    return fby_add_sat(peer->pinned_bytes, bytes) <= most ? 0 : fby_call_over(peer, "server.client_pinned_bytes", most);
}

/* What the hold covers now. */
static uint64_t measure(const fby_server_t *server, fby_hold_t hold)
{
    uint64_t blocks = 0, first = 0;
    (void)fby_hold_info(server->cache, hold, NULL, &blocks, &first);
    return fby_covered_bytes(server, first, blocks);
}

static void hold_add(fby_peer_t *peer, fby_hold_t hold)
{
    fby_owned_t *owned = fby_owned_add(&peer->server->holds, &peer->holds, hold, peer->number);
    owned->readers = 1;
    owned->bytes = measure(peer->server, hold);
    peer->pinned_bytes += owned->bytes;
}

/* ---- Taking ----------------------------------------------------------------------------------------------------- */

int fby_call_TAKE(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    fby_server_t *server = peer->server;
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    fby_hold_t hold;
    fby_owned_t *session = fby_owned_find(&server->sessions, object->handle, peer->number);
    if (session == NULL) {
        return fby_call_stale("session", object->handle);
    }
    int rc = hold_room(peer);
    rc = rc == 0 ? fby_session_poll(server->cache, object->handle, &snapshot) : rc;
    rc = rc == 0 ? bytes_room(peer, fby_covered_bytes(server, 0, snapshot.delivered_blocks)) : rc;
    rc = rc == 0 ? fby_session_take(server->cache, object->handle, &hold) : rc;
    if (rc == 0) {
        fby_owned_unlink(&server->sessions, session); /* what is left of it needs no end */
        hold_add(peer, hold);
        reply->body.numbers.number[0] = hold;
    }
    return rc;
}

static int lookup(fby_peer_t *peer, fby_seq_t *seq, unsigned flags, uint64_t number[4])
{
    fby_cache_t *cache = peer->server->cache;
    uint64_t tokens = 0;
    fby_hold_t hold = 0;
    if ((flags & FBY_LOOKUP_ADVISORY) != 0) {
        int rc = fby_lookup(cache, seq, flags, NULL, &tokens);
        number[1] = tokens;
        return rc;
    }
    int rc = fby_call_stopping(peer);
    rc = rc == 0 ? hold_room(peer) : rc;
    rc = rc == 0 ? fby_lookup(cache, seq, flags, &hold, &tokens) : rc;
    if (rc != 0) {
        return rc;
    }
    rc = bytes_room(peer, measure(peer->server, hold));
    if (rc != 0) {
        (void)fby_hold_release(cache, hold);
        return rc;
    }
    hold_add(peer, hold);
    number[0] = hold;
    number[1] = tokens;
    return 0;
}

int fby_call_LOOKUP(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_lookup_t *about = request->body;
    uint64_t known = 0;
    fby_seq_t *seq;
    int rc = fby_peer_sequence(peer, &about->seq, request, &seq, &known);
    if (rc == FBY_MSG_E_RESEND) {
        reply->body.numbers.number[0] = known;
    }
    return rc == 0 ? lookup(peer, seq, about->flags, reply->body.numbers.number) : rc;
}

/* ---- Looking ---------------------------------------------------------------------------------------------------- */

int fby_call_HOLD_INFO(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    uint64_t *number = reply->body.numbers.number;
    return hold_of(peer, object->handle) != NULL
               ? fby_hold_info(peer->server->cache, object->handle, &number[0], &number[1], &number[2])
               : fby_call_stale("hold", object->handle);
}

int fby_call_HOLD_PLACES(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    if (object->from > object->to || object->to - object->from > FBY_MSG_PLACES) {
        return FBY_CALL_VIOLATION;
    }
    if (hold_of(peer, object->handle) == NULL) {
        return fby_call_stale("hold", object->handle);
    }
    int rc =
        fby_hold_places(peer->server->cache, object->handle, object->group, object->from, object->to, reply->elements);
    reply->count = rc == 0 ? (uint32_t)(object->to - object->from) : 0;
    return rc;
}

/* ---- Changing --------------------------------------------------------------------------------------------------- */

int fby_call_HOLD_TRIM(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    fby_owned_t *owned = hold_of(peer, object->handle);
    if (owned == NULL) {
        return fby_call_stale("hold", object->handle);
    }
    int rc = fby_hold_trim(peer->server->cache, object->handle, object->from, &reply->body.numbers.number[0]);
    if (rc == 0) {
        peer->pinned_bytes -= owned->bytes;
        owned->bytes = measure(peer->server, object->handle);
        peer->pinned_bytes += owned->bytes;
    }
    return rc;
}

int fby_call_HOLD_READERS(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    fby_owned_t *owned = hold_of(peer, object->handle);
    if (owned == NULL) {
        return fby_call_stale("hold", object->handle);
    }
    if (object->from > UINT32_MAX - owned->readers) {
        fby_error_set("%llu readers more than %u: they are counted in 32 bits", (unsigned long long)object->from,
                      owned->readers);
        return -EINVAL;
    }
    int rc = fby_hold_readers(peer->server->cache, object->handle, (uint32_t)object->from);
    owned->readers += rc == 0 ? (uint32_t)object->from : 0;
    return rc;
}

int fby_call_HOLD_RELEASE(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    fby_owned_t *owned = hold_of(peer, object->handle);
    if (owned == NULL) {
        return fby_call_stale("hold", object->handle);
    }
    int rc = fby_hold_release(peer->server->cache, object->handle);
    if (rc == FBY_E_STALE || (rc == 0 && --owned->readers == 0)) {
        peer->pinned_bytes -= owned->bytes;
        fby_owned_forget(&peer->server->holds, owned);
    }
    return rc;
}
