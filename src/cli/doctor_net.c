#include "cli/doctor_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

enum { CONNECT_MS = 2000, ANSWER_MS = 2000 };

bool fby_net_address_parse(const char *text, fby_net_address_t *out)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text || colon[1] == '\0' || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        strtoul(colon + 1, NULL, 10) - 1 > 65534) {
        return false;
    }
    size_t length = (size_t)(colon - text);
    if (text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    if (length == 0 || length >= sizeof(out->host)) {
        return false;
    }
    snprintf(out->host, sizeof(out->host), "%.*s", (int)length, text);
    snprintf(out->port, sizeof(out->port), "%lu", strtoul(colon + 1, NULL, 10));
    return true;
}

static bool address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    }
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

bool fby_net_is_loopback(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    if (strcmp(host, "localhost") == 0) {
        return true; /* by its name (RFC 6761), also where no file of hosts says so */
    }
    if (getaddrinfo(host, NULL, &hints, &list) != 0) {
        return false;
    }
    bool all = list != NULL;
    for (const struct addrinfo *at = list; at != NULL; at = at->ai_next) {
        all = all && address_is_loopback(at->ai_addr);
    }
    freeaddrinfo(list);
    return all;
}

/* ---- Connecting -------------------------------------------------------------------------------------------------- */

/* Until the descriptor is ready for `events`; 0, or an errno. */
static int await(int fd, short events, uint64_t end_ns)
{
    struct pollfd ready = {.fd = fd, .events = events};
    for (;;) {
        uint64_t now = fby_clock_now(&fby_clock_monotonic);
        int count = poll(&ready, 1, now >= end_ns ? 0 : (int)((end_ns - now) / FBY_MS) + 1);
        if (count > 0) {
            return 0;
        }
        if (count == 0 || errno != EINTR) {
            return count == 0 ? ETIMEDOUT : errno;
        }
    }
}

/* A descriptor, or -errno. */
static int connect_one(const struct addrinfo *to)
{
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0;
    socklen_t size = sizeof(error);
    if (fd < 0) {
        return -errno;
    }
    if (connect(fd, to->ai_addr, to->ai_addrlen) != 0) {
        error = errno == EINPROGRESS ? await(fd, POLLOUT, fby_clock_now(&fby_clock_monotonic) + CONNECT_MS * FBY_MS)
                                     : errno;
        if (error == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
            error = errno;
        }
    }
    if (error != 0) {
        close(fd);
        return -error;
    }
    return fd;
}

int fby_net_connect(const fby_net_address_t *address, char why[FBY_NET_WHY_BYTES])
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int status = getaddrinfo(address->host, address->port, &hints, &list), fd = -EADDRNOTAVAIL;
    if (status != 0) {
        snprintf(why, FBY_NET_WHY_BYTES, "%s", gai_strerror(status));
        return -1;
    }
    for (const struct addrinfo *at = list; at != NULL && fd < 0; at = at->ai_next) {
        fd = connect_one(at);
    }
    freeaddrinfo(list);
    if (fd < 0) {
        snprintf(why, FBY_NET_WHY_BYTES, "%s", strerror(-fd));
        return -1;
    }
    return fd;
}

/* ---- HTTP -------------------------------------------------------------------------------------------------------- */

static int send_all(int fd, const char *text, uint64_t end_ns)
{
    for (size_t left = strlen(text); left > 0;) {
        ssize_t sent = send(fd, text, left, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            int error = await(fd, POLLOUT, end_ns);
            if (error != 0) {
                return error;
            }
        } else if (sent < 0 && errno != EINTR) {
            return errno;
        } else if (sent > 0) {
            text += sent;
            left -= (size_t)sent;
        }
    }
    return 0;
}

/* Reads until the end, or the text is full, and terminates it. 0, or an errno. */
static int receive_all(int fd, char *text, size_t capacity, uint64_t end_ns)
{
    size_t length = 0;
    int error = 0;
    while (length < capacity - 1) {
        ssize_t got = recv(fd, text + length, capacity - 1 - length, 0);
        if (got == 0) {
            break;
        }
        if (got > 0) {
            length += (size_t)got;
            continue;
        }
        error = errno == EAGAIN ? await(fd, POLLIN, end_ns) : errno == EINTR ? 0 : errno;
        if (error != 0) {
            break;
        }
    }
    text[length] = '\0';
    return error;
}

/* HTTP/1.0: the server closes at the end of the answer and does not cut it into chunks. */
static int exchange(int fd, const fby_net_address_t *address, const char *path, char *answer, size_t capacity)
{
    char request[512];
    uint64_t end_ns = fby_clock_now(&fby_clock_monotonic) + ANSWER_MS * FBY_MS;
    snprintf(request, sizeof(request), "GET %s HTTP/1.0\r\nHost: %s:%s\r\nConnection: close\r\n\r\n", path,
             address->host, address->port);
    int error = send_all(fd, request, end_ns);
    return error != 0 ? error : receive_all(fd, answer, capacity, end_ns);
}

int fby_net_get(const fby_net_address_t *address, const char *path, char *body, size_t body_bytes,
                char why[FBY_NET_WHY_BYTES])
{
    int fd = fby_net_connect(address, why);
    if (fd < 0) {
        return -1;
    }
    int error = exchange(fd, address, path, body, body_bytes), status;
    close(fd);
    char *content = strstr(body, "\r\n\r\n");
    if (sscanf(body, "HTTP/1.%*1[01] %d", &status) != 1 || content == NULL) {
        snprintf(why, FBY_NET_WHY_BYTES, "%s", error != 0 ? strerror(error) : "the answer is not HTTP");
        return -1;
    }
    memmove(body, content + 4, strlen(content + 4) + 1);
    return status;
}
