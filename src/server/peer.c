/* peer.c - one connection: its requests in, its answers out. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "server/internal.h"

fby_peer_t *fby_peer_create(fby_server_t *server, int socket, int pidfd, int32_t pid, uint32_t uid)
{
    fby_peer_t *peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return NULL;
    }
    *peer = (fby_peer_t){
        .server = server,
        .prev = server->last,
        .socket_watch = {FBY_WATCH_SOCKET, peer},
        .process_watch = {FBY_WATCH_PROCESS, peer},
        .socket = socket,
        .pidfd = pidfd,
        .pid = pid,
        .uid = uid,
        .connected_ns = fby_clock_now(&fby_clock_monotonic),
        .sessions = FBY_OWNED_LIST_INIT,
        .holds = FBY_OWNED_LIST_INIT,
        .puts = FBY_OWNED_LIST_INIT,
        .fenced = FBY_OWNED_LIST_INIT,
    };
    fby_sequences_init(&peer->sequences, server->settings->server.client_sequence_bytes);
    *(server->last == NULL ? &server->first : &server->last->next) = peer;
    server->last = peer;
    server->waiting++;
    return peer;
}

fby_peer_t *fby_peer_find(fby_server_t *server, uint64_t number)
{
    fby_peer_t *peer = server->first;
    while (peer != NULL && (peer->number != number || peer->dead)) {
        peer = peer->next;
    }
    return peer;
}

void fby_peer_interest(fby_peer_t *peer)
{
    uint32_t events = peer->unsent != NULL ? EPOLLOUT : peer->state == FBY_PEER_RESTING ? 0 : EPOLLIN;
    struct epoll_event event = {.events = events, .data.ptr = &peer->socket_watch};
    if (peer->socket >= 0) {
        (void)epoll_ctl(peer->server->epoll, EPOLL_CTL_MOD, peer->socket, &event);
    }
}

/* ---- Out -------------------------------------------------------------------------------------------------------- */

/* Everything is sent; if that was the last answer, it is over. */
static void settled(fby_peer_t *peer)
{
    if (peer->state == FBY_PEER_LEAVING) {
        fby_peer_end(peer);
    }
}

static void keep(fby_peer_t *peer, const void *bytes, size_t length, const int *fd, size_t fds)
{
    peer->unsent = malloc(length);
    if (peer->unsent == NULL) {
        fby_peer_end(peer);
        return;
    }
    memcpy(peer->unsent, bytes, length);
    peer->unsent_bytes = length;
    for (size_t i = 0; i < fds; i++) {
        peer->unsent_fd[i] = fcntl(fd[i], F_DUPFD_CLOEXEC, 0);
        if (peer->unsent_fd[i] < 0) {
            fby_peer_end(peer);
            return;
        }
        peer->unsent_fds++;
    }
    fby_peer_interest(peer);
}

void fby_peer_answer(fby_peer_t *peer, fby_request_t type, uint32_t serial, int code, fby_reply_t *reply,
                     const char *text)
{
    uint8_t *out = peer->server->out;
    size_t length = fby_answer_build(type, serial, code, &reply->body, reply->elements, reply->count, text, out);
    ssize_t sent = fby_message_send(peer->socket, out, length, reply->fd, reply->fds, MSG_DONTWAIT);
    if (sent == -EAGAIN) {
        keep(peer, out, length, reply->fd, reply->fds);
    } else if (sent < 0) {
        fby_peer_end(peer);
    } else {
        settled(peer);
    }
    for (size_t i = 0; i < reply->fds; i++) {
        close(reply->fd[i]);
    }
    reply->fds = 0;
}

void fby_peer_writable(fby_peer_t *peer)
{
    if (peer->unsent == NULL) {
        return;
    }
    ssize_t sent = fby_message_send(peer->socket, peer->unsent, peer->unsent_bytes, peer->unsent_fd, peer->unsent_fds,
                                    MSG_DONTWAIT);
    if (sent == -EAGAIN) {
        return;
    }
    if (sent < 0) {
        fby_peer_end(peer);
        return;
    }
    while (peer->unsent_fds > 0) {
        close(peer->unsent_fd[--peer->unsent_fds]);
    }
    free(peer->unsent);
    peer->unsent = NULL;
    fby_peer_interest(peer);
    settled(peer);
}

/* ---- In --------------------------------------------------------------------------------------------------------- */

static void violated(fby_peer_t *peer, const char *what)
{
    uint64_t suppressed;
    fby_count(&peer->server->counts.violations, 1);
    if (fby_log_allow(&peer->server->violation_limit, fby_clock_now(&fby_clock_monotonic), FBY_SECOND, &suppressed)) {
        fby_log(FBY_LOG_WARN, "client_violation", "client=%llu pid=%d uid=%u what=\"%s\" suppressed=%llu",
                (unsigned long long)peer->number, (int)peer->pid, peer->uid, what, (unsigned long long)suppressed);
    }
    fby_peer_end(peer);
}

/* A HELLO of another version has no shape that is known here, but it has a head: so it hears why. */
static void refuse_version(fby_peer_t *peer, const fby_msg_head_t *head)
{
    fby_reply_t reply;
    char text[96];
    memset(&reply, 0, sizeof(reply));
    fby_count(&peer->server->counts.refused_version, 1);
    snprintf(text, sizeof(text), "the client speaks version %u; accepted: %u", head->version, FBY_MSG_VERSION);
    peer->state = FBY_PEER_LEAVING;
    peer->server->waiting--;
    fby_peer_answer(peer, FBY_REQUEST_HELLO, head->serial, FBY_E_FORMAT, &reply, text);
}

static void received(fby_peer_t *peer, const void *bytes, size_t length)
{
    const fby_msg_head_t *head = bytes;
    fby_request_view_t request;
    if (peer->state == FBY_PEER_NEW && length >= sizeof(*head) && head->magic == FBY_MSG_MAGIC &&
        head->version != FBY_MSG_VERSION) {
        refuse_version(peer, head);
        return;
    }
    if (!fby_request_parse(bytes, length, &request)) {
        violated(peer, "not a request");
        return;
    }
    fby_reply_t reply;
    memset(&reply, 0, sizeof(reply));
    reply.elements = peer->server->elements;
    bool is_hello = peer->state == FBY_PEER_NEW;
    int code = fby_peer_call(peer, &request, &reply);
    if (code == FBY_CALL_VIOLATION) {
        violated(peer, fby_request_shape(request.type)->name);
        return;
    }
    if (code == FBY_CALL_LATER) {
        peer->state = FBY_PEER_RESTING;
        fby_peer_interest(peer);
        return;
    }
    if (is_hello) {
        peer->server->waiting--;
        peer->state = code >= 0 ? FBY_PEER_OPEN : FBY_PEER_LEAVING;
    }
    fby_peer_answer(peer, request.type, request.serial, code, &reply, code < 0 ? fby_last_error() : NULL);
}

/* One message each time: then it is the next one's turn. */
void fby_peer_readable(fby_peer_t *peer)
{
    int fd[FBY_MSG_FDS];
    size_t fds;
    if (peer->unsent != NULL || (peer->state != FBY_PEER_NEW && peer->state != FBY_PEER_OPEN)) {
        return;
    }
    uint8_t *in = peer->server->in;
    ssize_t n = fby_message_receive(peer->socket, in, sizeof(peer->server->in), fd, &fds, MSG_DONTWAIT);
    if (n == -EAGAIN) {
        return;
    }
    for (size_t i = 0; i < fds; i++) {
        close(fd[i]);
    }
    if (n == -EMSGSIZE || fds > 0) {
        violated(peer, fds > 0 ? "descriptors" : "too long a message");
    } else if (n <= 0) {
        fby_peer_end(peer);
    } else {
        received(peer, in, (size_t)n);
    }
}
