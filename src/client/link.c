/* link.c - one connection: its socket, its handshake, and the memory that comes along. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/client.h"
#include "stores/object.h"

/* A child of fork() must not keep a connection of its parent open: the server would not learn that the parent is gone. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t open_once = PTHREAD_ONCE_INIT;
static fby_link_t *open_links;

static void before_fork(void)
{
    pthread_mutex_lock(&open_lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&open_lock);
}

static void in_child(void)
{
    for (fby_link_t *link = open_links; link != NULL; link = link->open_next) {
        close(link->socket);
        link->socket = -1;
    }
    open_links = NULL;
    pthread_mutex_unlock(&open_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

static void note_open(fby_link_t *link)
{
    pthread_once(&open_once, watch_forks);
    pthread_mutex_lock(&open_lock);
    link->open_next = open_links;
    if (open_links != NULL) {
        open_links->open_before = link;
    }
    open_links = link;
    pthread_mutex_unlock(&open_lock);
}

static void close_open(fby_link_t *link)
{
    pthread_mutex_lock(&open_lock);
    if (link->open_before != NULL) {
        link->open_before->open_next = link->open_next;
    } else {
        open_links = link->open_next;
    }
    if (link->open_next != NULL) {
        link->open_next->open_before = link->open_before;
    }
    close(link->socket);
    link->socket = -1;
    pthread_mutex_unlock(&open_lock);
}

void fby_close_all(const int *fd, size_t fds)
{
    for (size_t i = 0; i < fds; i++) {
        close(fd[i]);
    }
}

/* ---- One exchange ----------------------------------------------------------------------------------------------- */

/* 0, or -ETIMEDOUT, -errno. */
static int await_socket(int socket, short events, uint64_t deadline)
{
    for (;;) {
        uint64_t now = fby_clock_now(&fby_clock_monotonic);
        uint64_t left = fby_sub_sat(deadline, now);
        struct timespec limit = {.tv_sec = (time_t)(left / FBY_SECOND), .tv_nsec = (long)(left % FBY_SECOND)};
        struct pollfd one = {.fd = socket, .events = events};
        int ready = ppoll(&one, 1, &limit, NULL);
        if (ready > 0) {
            return 0;
        }
        if (ready == 0) {
            return -ETIMEDOUT;
        }
        if (errno != EINTR) {
            return -errno;
        }
    }
}

static bool is_gone(ssize_t rc)
{
    return rc == 0 || rc == -EPIPE || rc == -ECONNRESET || rc == -ENOTCONN;
}

ssize_t fby_link_exchange(const fby_link_t *link, void *buffer, size_t length, uint64_t deadline, int fd[FBY_MSG_FDS],
                          size_t *fds)
{
    ssize_t rc;
    *fds = 0;
    while ((rc = fby_message_send(link->socket, buffer, length, NULL, 0, MSG_DONTWAIT)) == -EAGAIN) {
        int late = await_socket(link->socket, POLLOUT, deadline);
        if (late != 0) {
            return late;
        }
    }
    if (rc < 0) {
        return is_gone(rc) ? -ENOTCONN : rc;
    }
    do {
        int late = await_socket(link->socket, POLLIN, deadline);
        if (late != 0) {
            return late;
        }
        rc = fby_message_receive(link->socket, buffer, FBY_MSG_MOST, fd, fds, MSG_DONTWAIT);
    } while (rc == -EAGAIN);
    return is_gone(rc) ? -ENOTCONN : rc;
}

/* ---- Connect ---------------------------------------------------------------------------------------------------- */

static int refuse(int rc, const char *path, const char *why)
{
    fby_error_set("server %s: %s", path, why);
    return rc;
}

/* connect() of a Unix socket cannot be polled for: the send limit bounds it. */
static void limit_connect(int socket, uint64_t deadline)
{
    uint64_t left = FBY_MAX(fby_sub_sat(deadline, fby_clock_now(&fby_clock_monotonic)), FBY_MS);
    struct timeval limit = {.tv_sec = (time_t)(left / FBY_SECOND), .tv_usec = (long)(left % FBY_SECOND / 1000)};
    (void)setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static int link_connect(const char *path, uint64_t deadline, int *out)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) == 0 || strlen(path) >= sizeof(address.sun_path)) {
        fby_error_set("path is %zu bytes long; accepted: 1 to %zu", strlen(path), sizeof(address.sun_path) - 1);
        return -EINVAL;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (made < 0) {
        return refuse(-errno, path, fby_strerror(-errno));
    }
    limit_connect(made, deadline);
    if (connect(made, (const struct sockaddr *)&address, sizeof(address)) == 0) {
        *out = made;
        return 0;
    }
    int rc = -errno;
    close(made);
    if (rc == -EPROTOTYPE || rc == -ENOTSOCK) {
        return refuse(FBY_E_FORMAT, path, "that is no Forebay server");
    }
    return refuse(rc == -EAGAIN || rc == -EINTR ? -ETIMEDOUT : rc, path, fby_strerror(rc == -EAGAIN ? -ETIMEDOUT : rc));
}

/* ---- What came along -------------------------------------------------------------------------------------------- */

static bool pool_is_sane(const fby_pool_t *pool)
{
    if (pool->size != sizeof(*pool) || pool->groups == 0 || pool->groups > FBY_MAX_GROUPS || pool->bytes == 0 ||
        pool->bytes > PTRDIFF_MAX) {
        return false;
    }
    for (uint32_t g = 0; g < pool->groups; g++) {
        uint64_t payload = pool->group[g].payload_bytes, slot = pool->group[g].slot_bytes;
        uint64_t offset = pool->group[g].offset;
        if (payload == 0 || slot < payload + FBY_TRAILER_BYTES || offset > pool->bytes ||
            slot * pool->group[g].slots > pool->bytes - offset) {
            return false;
        }
    }
    return true;
}

static bool model_is_sane(const fby_msg_welcome_t *welcome)
{
    const fby_model_t *model = &welcome->model;
    bool is_sane = model->block_tokens > 0 && model->groups == welcome->pool.groups &&
                   welcome->keyring.secret_length <= sizeof(welcome->keyring.secret);
    for (uint32_t g = 0; is_sane && g < model->groups; g++) {
        is_sane = model->group[g].payload_bytes == welcome->pool.group[g].payload_bytes;
    }
    return is_sane;
}

/* A pool that could shrink would make a copy end in SIGBUS. */
static int map_pool(fby_link_t *link)
{
    struct stat about;
    uint64_t bytes = link->welcome.pool.bytes;
    int seals = fcntl(link->pool_fd, F_GET_SEALS);
    if (fstat(link->pool_fd, &about) != 0 || about.st_size < 0 || (uint64_t)about.st_size != bytes || seals < 0 ||
        (seals & F_SEAL_SHRINK) == 0) {
        fby_error_set("pool of the server: it may shrink, or is not of %llu bytes", (unsigned long long)bytes);
        return FBY_E_FORMAT;
    }
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, link->pool_fd, 0);
    if (base == MAP_FAILED) {
        int rc = -errno;
        fby_error_set("mapping of the pool of %llu bytes: %s", (unsigned long long)bytes, fby_strerror(rc));
        return rc;
    }
    (void)madvise(base, bytes, MADV_DONTFORK);
    link->pool = base;
    return 0;
}

static int link_map(fby_link_t *link, const char *path, int board_fd)
{
    struct stat about;
    if (!pool_is_sane(&link->welcome.pool) || !model_is_sane(&link->welcome)) {
        return refuse(FBY_E_FORMAT, path, "its pool or model is not one that can be");
    }
    if (fstat(board_fd, &about) != 0) {
        return refuse(-errno, path, fby_strerror(-errno));
    }
    link->instance = about.st_ino;
    int rc = fby_board_map(board_fd, &link->board);
    return rc == 0 ? map_pool(link) : rc;
}

/* ---- Hello ------------------------------------------------------------------------------------------------------ */

static int hello_refused(const char *path, const fby_answer_view_t *answer)
{
    fby_error_set("server %s: %.*s", path, (int)answer->text_bytes, answer->text);
    return answer->code == FBY_E_CLOSED ? -ECONNREFUSED : answer->code; /* it is stopping */
}

/* Then descriptors that came along found no room. */
static bool no_descriptor_is_left(void)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    bool is_full = fd < 0 && (errno == EMFILE || errno == ENFILE);
    (void)(fd >= 0 && close(fd));
    return is_full;
}

/* The answer to the hello, and the two descriptors. */
static int link_greet(fby_link_t *link, const char *path, const fby_link_self_t *self, uint64_t deadline, void *buffer,
                      int fd[FBY_MSG_FDS])
{
    fby_msg_hello_t hello = {
        .snapshot_bytes = sizeof(fby_snapshot_t),
        .struct_bytes = FBY_MSG_STRUCT_BYTES,
        .was_client = self->was_client,
        .was_secret = self->was_secret,
    };
    fby_answer_view_t answer;
    size_t fds;
    memcpy(hello.name, self->name, FBY_MIN(strlen(self->name), sizeof(hello.name) - 1));
    size_t length = fby_request_build(FBY_REQUEST_HELLO, 0, &hello, NULL, 0, buffer);
    ssize_t rc = fby_link_exchange(link, buffer, length, deadline, fd, &fds);
    if (rc < 0) {
        bool is_gone = rc == -ENOTCONN;
        return refuse(is_gone ? -ECONNREFUSED : (int)rc, path,
                      is_gone ? "it closed the connection instead of an answer" : fby_strerror((int)rc));
    }
    bool is_answer = fby_answer_parse(FBY_REQUEST_HELLO, buffer, (size_t)rc, &answer);
    if (is_answer && answer.code >= 0 && fds == 2) {
        link->welcome = *(const fby_msg_welcome_t *)answer.body;
        return 0;
    }
    fby_close_all(fd, fds);
    if (is_answer && answer.code >= 0 && fds == 0 && no_descriptor_is_left()) {
        return refuse(-EMFILE, path, fby_strerror(-EMFILE));
    }
    return is_answer && answer.code < 0 ? hello_refused(path, &answer)
                                        : refuse(FBY_E_FORMAT, path, "of another version, or no Forebay server");
}

int fby_link_open(const char *path, const fby_link_self_t *self, uint64_t deadline, void *buffer, fby_link_t **out)
{
    int fd[FBY_MSG_FDS];
    fby_link_t *link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return -ENOMEM;
    }
    atomic_init(&link->refs, 1);
    link->pool_fd = -1;
    int rc = link_connect(path, deadline, &link->socket);
    if (rc != 0) {
        free(link);
        return rc;
    }
    note_open(link);
    rc = link_greet(link, path, self, deadline, buffer, fd);
    if (rc == 0) {
        link->pool_fd = fd[0];
        rc = link_map(link, path, fd[1]);
        close(fd[1]);
    }
    if (rc != 0) {
        fby_link_free(link);
        return rc;
    }
    *out = link;
    return 0;
}

void fby_link_shut(fby_link_t *link)
{
    (void)shutdown(link->socket, SHUT_RDWR);
}

void fby_link_free(fby_link_t *link)
{
    close_open(link);
    if (link->pool != NULL) {
        munmap(link->pool, link->welcome.pool.bytes);
    }
    fby_board_unmap(link->board);
    if (link->pool_fd >= 0) {
        close(link->pool_fd);
    }
    free(link);
}

void *fby_link_address(const fby_link_t *link, uint64_t place)
{
    return place < link->welcome.pool.bytes ? link->pool + place : NULL;
}
