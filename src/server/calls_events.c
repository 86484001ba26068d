/* calls_events.c - requests about subscriptions. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/log.h"
#include "server/internal.h"

static fby_peer_subscription_t **subscription_of(fby_peer_t *peer, uint64_t id)
{
    fby_peer_subscription_t **at = &peer->subscriptions;
    while (*at != NULL && (*at)->id != id) {
        at = &(*at)->next;
    }
    return *at != NULL ? at : NULL;
}

int fby_call_SUBSCRIBE(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    fby_peer_subscription_t *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return -ENOMEM;
    }
    uint32_t capacity = (uint32_t)FBY_MIN(object->from, (uint64_t)UINT32_MAX);
    int rc = fby_subscribe(peer->server->cache, capacity, &made->subscription);
    if (rc != 0) {
        free(made);
        return rc;
    }
    int fd = fcntl(fby_subscription_fd(made->subscription), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        rc = -errno;
        fby_error_set("a new subscription: %s", fby_strerror(rc));
        fby_unsubscribe(made->subscription);
        free(made);
        return rc;
    }
    made->id = ++peer->subscription_ids;
    made->next = peer->subscriptions;
    peer->subscriptions = made;
    peer->subscription_count++;
    reply->fd[reply->fds++] = fd;
    reply->body.SUBSCRIBE.number[0] = made->id;
    return 0;
}

int fby_call_EVENTS(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    fby_peer_subscription_t **at = subscription_of(peer, object->handle);
    if (at == NULL) {
        return fby_call_stale("subscription", object->handle);
    }
    fby_event_t *event = reply->elements;
    int rc = 0;
    while (rc == 0 && reply->count < FBY_MSG_EVENTS) {
        event[reply->count] = (fby_event_t){.size = sizeof(*event)};
        rc = fby_subscription_next((*at)->subscription, &event[reply->count]);
        reply->count += rc == 0;
    }
    return reply->count > 0 || rc == -EAGAIN ? 0 : rc;
}

int fby_call_UNSUBSCRIBE(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    fby_peer_subscription_t **at = subscription_of(peer, object->handle);
    if (at == NULL) {
        return fby_call_stale("subscription", object->handle);
    }
    fby_peer_subscription_t *gone = *at;
    *at = gone->next;
    peer->subscription_count--;
    fby_unsubscribe(gone->subscription);
    free(gone);
    return 0;
}
