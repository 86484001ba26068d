/* side.c - an agent's life: what it was asked for, the pool, READY, and the watcher that ends it. */
#include "agent/side.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/confine.h"
#include "agent/side_internal.h"

const char *fby_agent_driver(const fby_agent_t *agent)
{
    return agent->texts;
}

const char *const *fby_agent_options(const fby_agent_t *agent)
{
    return agent->options;
}

const fby_store_spec_t *fby_agent_spec(const fby_agent_t *agent)
{
    return &agent->spec;
}

uint32_t fby_agent_lanes(const fby_agent_t *agent)
{
    return agent->lane_count;
}

uint32_t fby_agent_depth(const fby_agent_t *agent)
{
    return agent->depth;
}

int fby_agent_confine(fby_agent_t *agent, int uring)
{
    int status = fby_confine(uring != 0);
    if (status == 0) {
        agent->confined = FBY_CONFINED_SECCOMP | FBY_CONFINED_NO_FORK | (uring != 0 ? FBY_CONFINED_URING : 0u);
    }
    return status;
}

/* ---- Messages ---- */

static int message_send(int control_fd, const void *message, size_t bytes, int flags)
{
    ssize_t sent;
    do {
        sent = send(control_fd, message, bytes, MSG_NOSIGNAL | flags);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

/* ---- The pool ---- */

/* Says that nothing can leave this process any more, and gets the descriptor for it. */
static int pool_fetch(fby_agent_t *agent)
{
    const fby_wire_confined_t confined = {
        .head = fby_wire_make(FBY_WIRE_CONFINED, sizeof(confined)),
        /* The first process of a PID namespace takes all others of it along. */
        .confined = agent->confined | (getpid() == 1 ? FBY_CONFINED_PID_NAMESPACE : 0u),
    };
    char error[200];
    int status = message_send(agent->control_fd, &confined, sizeof(confined), 0);
    pthread_mutex_lock(&agent->lock);
    while (status == 0 && agent->pool_fd < 0 && !atomic_load(&agent->closing)) {
        pthread_cond_wait(&agent->changed, &agent->lock);
    }
    pthread_mutex_unlock(&agent->lock);
    if (status == 0 && agent->pool_fd < 0) {
        return -ESHUTDOWN;
    }
    return status < 0 ? status : fby_side_memory_check("pool", agent->pool_fd, agent->pool_bytes, error, sizeof(error));
}

static int pool_map(fby_agent_t *agent)
{
    void *pool = mmap(NULL, agent->pool_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, agent->pool_fd, 0);
    if (pool == MAP_FAILED) {
        return -errno;
    }
    if (madvise(pool, agent->pool_bytes, MADV_DONTFORK) < 0) {
        int status = -errno;
        munmap(pool, agent->pool_bytes);
        return status;
    }
    agent->pool = pool;
    return 0;
}

int fby_agent_map(fby_agent_t *agent, void **base, size_t *bytes)
{
    if (agent->pool != NULL) {
        return -EALREADY;
    }
    int status = pool_fetch(agent);
    status = status < 0 ? status : pool_map(agent);
    if (agent->pool_fd >= 0) {
        close(agent->pool_fd);
        agent->pool_fd = -1;
    }
    if (status < 0) {
        return status;
    }
    *base = agent->pool;
    *bytes = agent->pool_bytes;
    return 0;
}

int fby_agent_ready(fby_agent_t *agent, const fby_store_caps_t *caps, const char *version)
{
    fby_wire_ready_t ready = {
        .head = fby_wire_make(FBY_WIRE_READY, sizeof(ready)),
        .caps = *caps,
    };
    snprintf(ready.version, sizeof(ready.version), "%s", version);
    return message_send(agent->control_fd, &ready, sizeof(ready), 0);
}

void fby_side_send_failed(int control_fd, int code, const char *text)
{
    fby_wire_failed_t failed = {.head = fby_wire_make(FBY_WIRE_FAILED, sizeof(failed)), .code = code};
    snprintf(failed.text, sizeof(failed.text), "%s", text);
    message_send(control_fd, &failed, sizeof(failed), 0);
}

void fby_agent_fail(fby_agent_t *agent, int code, const char *text)
{
    fby_side_send_failed(agent->control_fd, code, text);
}

/* ---- The watcher ---- */

static void close_begin(fby_agent_t *agent)
{
    pthread_mutex_lock(&agent->lock);
    atomic_store(&agent->closing, true);
    pthread_cond_broadcast(&agent->changed);
    pthread_mutex_unlock(&agent->lock);
    for (uint32_t i = 0; i < agent->lane_count; i++) {
        fby_ring_kick(agent->lanes[i].ring.lane);
    }
}

/* Takes the pool's descriptor over; one that nobody asked for is closed. */
static void pool_receive(fby_agent_t *agent, int fd)
{
    pthread_mutex_lock(&agent->lock);
    bool wanted = fd >= 0 && agent->pool_fd < 0 && agent->pool == NULL;
    if (wanted) {
        agent->pool_fd = fd;
        pthread_cond_broadcast(&agent->changed);
    }
    pthread_mutex_unlock(&agent->lock);
    if (!wanted) {
        _exit(1);
    }
}

/* One message with at most one descriptor (-1: none came). Returns its length, 0 at the end, -1: nothing there. */
static ssize_t message_receive(const fby_agent_t *agent, fby_wire_head_t *head, int *fd)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {.iov_base = head, .iov_len = sizeof(*head)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t bytes = recvmsg(agent->control_fd, &message, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
    if (bytes < 0) {
        return errno == EAGAIN || errno == EINTR ? -1 : 0;
    }
    const struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    *fd = -1;
    if (rights != NULL && rights->cmsg_type == SCM_RIGHTS && rights->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(fd, CMSG_DATA(rights), sizeof(int));
    }
    return bytes;
}

/* A PONG that finds no room is dropped: the runtime has not read the ones before it. */
static void message_handle(fby_agent_t *agent)
{
    fby_wire_head_t head;
    int fd = -1;
    ssize_t bytes = message_receive(agent, &head, &fd);
    if (bytes < 0) {
        return;
    }
    if (bytes == 0) {
        _exit(0); /* the runtime closed its end */
    }
    bool whole = bytes == sizeof(head) && head.bytes == sizeof(head);
    if (!whole || head.magic != FBY_WIRE_MAGIC || head.version != FBY_WIRE_VERSION) {
        _exit(1);
    }
    if (head.type == FBY_WIRE_PING) {
        const fby_wire_head_t pong = fby_wire_make(FBY_WIRE_PONG, sizeof(pong));
        message_send(agent->control_fd, &pong, sizeof(pong), MSG_DONTWAIT);
    } else if (head.type == FBY_WIRE_CLOSE) {
        close_begin(agent);
    } else if (head.type == FBY_WIRE_POOL) {
        pool_receive(agent, fd);
    } else {
        _exit(1);
    }
}

static void *watch(void *arg)
{
    fby_agent_t *agent = arg;
    struct pollfd events[2] = {{.fd = agent->control_fd, .events = POLLIN}, {.fd = agent->host_fd, .events = POLLIN}};
    prctl(PR_SET_NAME, "fby-watch");
    for (;;) {
        if (poll(events, 2, -1) < 0) {
            continue; /* a signal: none is for this thread, but a debugger may bring one */
        }
        if (events[1].revents != 0 || (events[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) {
            _exit(0); /* the runtime is gone */
        }
        if ((events[0].revents & POLLIN) != 0) {
            message_handle(agent);
        }
    }
    return NULL;
}

/* All signals stay with the program's own threads, so that its handlers and defaults work as it set them. */
int fby_side_watch(fby_agent_t *agent)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&thread, NULL, watch, agent);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == 0) {
        pthread_detach(thread);
    }
    return -status;
}

/* ---- The end ---- */

static bool all_left(const fby_agent_t *agent)
{
    for (uint32_t i = 0; i < agent->lane_count; i++) {
        if (agent->lanes[i].state == FBY_SIDE_SERVED) {
            return false;
        }
    }
    return true;
}

int fby_agent_finished(fby_agent_t *agent)
{
    pthread_mutex_lock(&agent->lock);
    while (!atomic_load(&agent->closing) || !all_left(agent)) {
        pthread_cond_wait(&agent->changed, &agent->lock);
    }
    pthread_mutex_unlock(&agent->lock);
    return 0;
}
