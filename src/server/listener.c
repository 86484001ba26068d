#include "server/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "forebay/forebay.h"
#include "runtime/settings.h"

enum { BACKLOG = 1024, MOST_HERE = 32 };

static int fail(const char *path, const char *what, int rc)
{
    fby_error_set("server.listen %s: %s: %s", path, what, fby_strerror(rc));
    return rc;
}

/* ---- Children of fork() ----------------------------------------------------------------------------------------- */

/* A child that inherited socket and lock would look like a living server after ours died. */
static _Atomic int inherited[2 * MOST_HERE]; /* descriptor + 1; 0: free */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void in_child(void)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(inherited); i++) {
        int fd = atomic_exchange_explicit(&inherited[i], 0, memory_order_relaxed) - 1;
        if (fd >= 0) {
            close(fd);
        }
    }
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

static void not_for_children(int fd)
{
    pthread_once(&once, watch_forks);
    for (size_t i = 0; i < FBY_ARRAY_LEN(inherited); i++) {
        int free_place = 0;
        if (atomic_compare_exchange_strong(&inherited[i], &free_place, fd + 1)) {
            return;
        }
    }
}

static void close_ours(int *fd)
{
    if (*fd < 0) {
        return;
    }
    for (size_t i = 0; i < FBY_ARRAY_LEN(inherited); i++) {
        int here = *fd + 1;
        if (atomic_compare_exchange_strong(&inherited[i], &here, 0)) {
            break;
        }
    }
    close(*fd);
    *fd = -1;
}

/* ---- The lock --------------------------------------------------------------------------------------------------- */

/* Locked and still the file of that name: whoever had it before may have removed it meanwhile. */
static bool is_named(int fd, const char *name)
{
    struct stat ours, named;
    return fstat(fd, &ours) == 0 && lstat(name, &named) == 0 && ours.st_dev == named.st_dev &&
           ours.st_ino == named.st_ino;
}

static int lock_take(fby_listener_t *listener)
{
    char name[sizeof(listener->path) + 8];
    snprintf(name, sizeof(name), "%s.lock", listener->path);
    for (;;) {
        int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) {
            return fail(name, "its lock", -errno);
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            int rc = errno == EWOULDBLOCK ? -EADDRINUSE : -errno;
            close(fd);
            return fail(listener->path, rc == -EADDRINUSE ? "a server is there" : "its lock", rc);
        }
        if (is_named(fd, name)) {
            listener->lock = fd;
            not_for_children(fd);
            return 0;
        }
        close(fd);
    }
}

static void lock_drop(fby_listener_t *listener)
{
    char name[sizeof(listener->path) + 8];
    snprintf(name, sizeof(name), "%s.lock", listener->path);
    unlink(name); /* while it is locked, so that nobody's else is removed */
    close_ours(&listener->lock);
}

/* ---- The socket ------------------------------------------------------------------------------------------------- */

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strnlen(path, sizeof(address.sun_path) - 1));
    return address;
}

/* 0: nobody listens there, so what is there may be replaced. */
static int nobody_listens(const char *path)
{
    struct stat about;
    if (lstat(path, &about) != 0) {
        return errno == ENOENT ? 0 : fail(path, "path", -errno);
    }
    if (!S_ISSOCK(about.st_mode)) {
        fby_error_set("server.listen %s: there is something that is no socket; it is not replaced", path);
        return FBY_E_CONFIG;
    }
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return fail(path, "socket", -errno);
    }
    int rc = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : errno;
    close(fd);
    if (rc == ECONNREFUSED) {
        return 0;
    }
    /* another type of socket, a full backlog, no permission: somebody is there */
    return fail(path, "somebody listens there", rc == EACCES ? -EACCES : -EADDRINUSE);
}

/* Under another name first: the mode is right and connections are taken before the path names it. */
static int socket_make(fby_listener_t *listener, unsigned mode)
{
    char name[sizeof(listener->path)];
    uint32_t number = 0;
    struct stat about;
    (void)!getrandom(&number, sizeof(number), GRND_NONBLOCK);
    snprintf(name, sizeof(name), "%.91s.%08x", listener->path, number);
    int rc, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return fail(listener->path, "socket", -errno);
    }
    struct sockaddr_un address = address_of(name);
    /* bind gives the file the socket's own mode less the umask: so never more than is asked for */
    if (fchmod(fd, mode) != 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        rc = fail(listener->path, "bind", -errno);
        close(fd);
        return rc;
    }
    if (chmod(name, mode) != 0 || lstat(name, &about) != 0 || listen(fd, BACKLOG) != 0 ||
        rename(name, listener->path) != 0) {
        rc = fail(listener->path, "listen", -errno);
        unlink(name);
        close(fd);
        return rc;
    }
    listener->device = about.st_dev;
    listener->inode = about.st_ino;
    listener->socket = fd;
    not_for_children(fd);
    return 0;
}

int fby_listener_open(const char *path, unsigned mode, fby_listener_t *out)
{
    *out = (fby_listener_t){.socket = -1, .lock = -1};
    size_t length = strlen(path);
    if (length > FBY_MOST_SOCKET_PATH) {
        fby_error_set("server.listen %.120s: the path has %zu bytes; accepted: at most %d", path, length,
                      FBY_MOST_SOCKET_PATH);
        return FBY_E_CONFIG;
    }
    memcpy(out->path, path, length + 1);
    int rc = lock_take(out);
    if (rc != 0) {
        return rc;
    }
    rc = nobody_listens(path);
    rc = rc == 0 ? socket_make(out, mode) : rc;
    if (rc != 0) {
        lock_drop(out);
    }
    return rc;
}

void fby_listener_shut(fby_listener_t *listener)
{
    close_ours(&listener->socket);
}

void fby_listener_close(fby_listener_t *listener)
{
    struct stat about;
    fby_listener_shut(listener);
    if (lstat(listener->path, &about) == 0 && about.st_dev == listener->device && about.st_ino == listener->inode) {
        unlink(listener->path);
    }
    lock_drop(listener);
}
