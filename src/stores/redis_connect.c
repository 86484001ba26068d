#include "stores/redis_connect.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "forebay/forebay.h"

int fby_redis_wait(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now = fby_clock_now(&fby_clock_monotonic);
        uint64_t left = fby_sub_sat(deadline_ns, now);
        const struct timespec limit = {(time_t)(left / FBY_SECOND), (long)(left % FBY_SECOND)};
        struct pollfd poll_for = {.fd = fd, .events = events};
        int n = ppoll(&poll_for, 1, &limit, NULL);
        if (n > 0) {
            return 0;
        }
        if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
            return FBY_E_TIMEOUT;
        }
    }
}

/* A descriptor or -errno. */
static int connect_one(int family, const struct sockaddr *address, socklen_t length, uint64_t deadline_ns)
{
    const int on = 1;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    int error = connect(fd, address, length) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        socklen_t size = sizeof(error);
        if (fby_redis_wait(fd, POLLOUT, deadline_ns) != 0) {
            error = ETIMEDOUT;
        } else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
            error = errno;
        }
    }
    if (error != 0) {
        close(fd);
        return -error;
    }
    if (family != AF_UNIX) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    }
    return fd;
}

static int report(const fby_redis_endpoint_t *endpoint, int error, fby_redis_fault_t *fault)
{
    char where[FBY_REDIS_ENDPOINT_TEXT_BYTES];
    fby_redis_endpoint_text(endpoint, where, sizeof(where));
    int code = error == ETIMEDOUT ? FBY_E_TIMEOUT : FBY_E_CONNECTION;
    return fby_redis_fault(fault, code, "%s cannot be reached: %s", where, strerrordesc_np(error));
}

static int connect_path(const fby_redis_endpoint_t *endpoint, uint64_t deadline_ns, fby_redis_fault_t *fault)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(endpoint->host); /* the option was read for this size */
    memcpy(address.sun_path, endpoint->host, FBY_MIN(length, sizeof(address.sun_path) - 1));
    int fd = connect_one(AF_UNIX, (const struct sockaddr *)&address, sizeof(address), deadline_ns);
    return fd >= 0 ? fd : report(endpoint, -fd, fault);
}

static int look_up(const fby_redis_endpoint_t *endpoint, struct addrinfo **list, fby_redis_fault_t *fault)
{
    char port[16], where[FBY_REDIS_ENDPOINT_TEXT_BYTES];
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    snprintf(port, sizeof(port), "%u", endpoint->port);
    int error = getaddrinfo(endpoint->host, port, &hints, list);
    if (error == EAI_NONAME) {
        hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
        error = getaddrinfo(endpoint->host, port, &hints, list);
    }
    if (error == 0) {
        return 0;
    }
    fby_redis_endpoint_text(endpoint, where, sizeof(where));
    return fby_redis_fault(fault, FBY_E_CONNECTION, "%s cannot be looked up: %s", where, gai_strerror(error));
}

int fby_redis_connect(const fby_redis_endpoint_t *endpoint, uint64_t deadline_ns, fby_redis_fault_t *fault)
{
    if (endpoint->port == 0) {
        return connect_path(endpoint, deadline_ns, fault);
    }
    struct addrinfo *list = NULL;
    int status = look_up(endpoint, &list, fault), fd = -ECONNREFUSED;
    if (status != 0) {
        return status;
    }
    uint64_t addresses = 0;
    for (const struct addrinfo *at = list; at != NULL; at = at->ai_next) {
        addresses++;
    }
    for (const struct addrinfo *at = list; at != NULL && fd < 0; at = at->ai_next) {
        uint64_t now = fby_clock_now(&fby_clock_monotonic);
        uint64_t share = fby_sub_sat(deadline_ns, now) / addresses--;
        fd = connect_one(at->ai_family, at->ai_addr, at->ai_addrlen, now + share);
    }
    freeaddrinfo(list);
    return fd >= 0 ? fd : report(endpoint, -fd, fault);
}
