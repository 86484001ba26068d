/* accept.c - who is at the other end of a new connection, and whether there is room. */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "server/internal.h"

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

enum { ACCEPTS_AT_ONCE = 16, MOST_WAITING = 256 };

int fby_server_watch(fby_server_t *server, int fd, uint32_t events, fby_watch_t *watch)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    return epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static bool user_allowed(const fby_server_t *server, uint32_t uid)
{
    bool listed = server->any_user;
    for (uint32_t i = 0; i < server->uids && !listed; i++) {
        listed = server->uid[i] == uid;
    }
    return listed || (server->uids == 0 && (uid == geteuid() || uid == 0));
}

static bool is_exhausted(void)
{
    return errno == EMFILE || errno == ENFILE || errno == ENOMEM;
}

/* A descriptor of the process at the other end. -1: there is none to be had; -EMFILE: there is, but no room for it. Where
   the kernel gives it by number only, the connection is looked at again: it would have ended with the process before
   another one could get the number. */
static int process_of(int socket, pid_t pid)
{
    int pidfd = -1;
    socklen_t length = sizeof(pidfd);
    struct pollfd other = {.fd = socket};
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) {
        return pidfd;
    }
    if (is_exhausted()) {
        return -EMFILE;
    }
    if (pid <= 0) {
        return -1;
    }
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) {
        return is_exhausted() ? -EMFILE : -1;
    }
    if (poll(&other, 1, 0) != 0 && (other.revents & (POLLHUP | POLLERR)) != 0) {
        close(pidfd);
        pidfd = -1;
    }
    return pidfd;
}

/* Connections that say nothing are let go, the oldest first, when there are many. */
static void waiting_bound(fby_server_t *server)
{
    fby_peer_t *peer = server->first;
    while (server->waiting >= MOST_WAITING && peer != NULL) {
        fby_peer_t *next = peer->next;
        if (peer->state == FBY_PEER_NEW) {
            fby_count(&server->counts.refused_number, 1);
            fby_peer_end(peer);
        }
        peer = next;
    }
}

static void take(fby_server_t *server, int socket)
{
    struct ucred other = {.pid = 0, .uid = (uid_t)-1};
    socklen_t length = sizeof(other);
    (void)getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &length);
    int pidfd = process_of(socket, other.pid);
    fby_count(&server->counts.accepted, 1);
    if (pidfd == -EMFILE) { /* taken without it, it could never put anything */
        fby_count(&server->counts.refused_number, 1);
        close(socket);
        return;
    }
    waiting_bound(server);
    fby_peer_t *peer = fby_peer_create(server, socket, pidfd, (int32_t)other.pid, other.uid);
    if (peer == NULL) {
        close(socket);
        (void)(pidfd >= 0 && close(pidfd));
        return;
    }
    peer->allowed = user_allowed(server, peer->uid);
    if (fby_server_watch(server, socket, EPOLLIN, &peer->socket_watch) != 0 ||
        (pidfd >= 0 && fby_server_watch(server, pidfd, EPOLLIN, &peer->process_watch) != 0)) {
        fby_peer_end(peer);
    }
}

/* No descriptor is left: one is given up for a moment, so that whoever knocks hears no rather than nothing. */
static void turn_away(fby_server_t *server)
{
    uint64_t suppressed;
    (void)(server->spare >= 0 && close(server->spare));
    int socket = accept4(server->listener.socket, NULL, NULL, SOCK_CLOEXEC);
    (void)(socket >= 0 && close(socket));
    server->spare = fby_server_spare();
    fby_count(&server->counts.refused_number, 1);
    if (fby_log_allow(&server->accept_limit, fby_clock_now(&fby_clock_monotonic), FBY_SECOND, &suppressed)) {
        fby_log(FBY_LOG_WARN, "no_descriptors", "clients=%u suppressed=%llu",
                atomic_load_explicit(&server->counts.clients, memory_order_relaxed), (unsigned long long)suppressed);
    }
}

void fby_server_accept(fby_server_t *server)
{
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int socket = accept4(server->listener.socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket >= 0) {
            take(server, socket);
        } else if (errno == EMFILE || errno == ENFILE) {
            turn_away(server);
        } else {
            return; /* none is left, or it went away meanwhile */
        }
    }
}
