/* calls.c - one handler per request, and what all of them begin with. */
#include <errno.h>

#include "base/log.h"
#include "server/internal.h"

static fby_handler_t *const handlers[FBY_REQUEST_COUNT] = {
#define FBY_X(name, body, element, most, answer, answer_element, answer_most) [FBY_REQUEST_##name] = fby_call_##name,
    FBY_REQUEST_MAP(FBY_X)
#undef FBY_X
};

int fby_peer_call(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    if ((peer->state == FBY_PEER_NEW) != (request->type == FBY_REQUEST_HELLO)) {
        return FBY_CALL_VIOLATION; /* exactly one HELLO, and first */
    }
    peer->calls++;
    fby_count(&peer->server->counts.calls, 1);
    fby_error_set("%s", ""); /* a failure without a detail has none of an older one */
    int code = handlers[request->type](peer, request, reply);
    if (code == FBY_E_STALE || code == FBY_E_BUDGET || code == -EBUSY) {
        peer->refused++;
    }
    return code;
}

int fby_call_stale(const char *what, uint64_t handle)
{
    fby_error_set("%s %016llx: %s", what, (unsigned long long)handle, fby_strerror(FBY_E_STALE));
    return FBY_E_STALE;
}

int fby_call_stopping(const fby_peer_t *peer)
{
    if (peer->server->stopping) {
        fby_error_set("the server is stopping");
        return FBY_E_CLOSED;
    }
    return 0;
}

int fby_call_over(fby_peer_t *peer, const char *key, uint64_t value)
{
    fby_count(&peer->server->counts.limit_refused, 1);
    fby_error_set("%s is %llu: this client would have more", key, (unsigned long long)value);
    return FBY_E_BUDGET;
}
