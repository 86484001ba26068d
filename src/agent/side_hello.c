/* side_hello.c - the first message: received once, checked, and only then believed. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/side_internal.h"

/* What came, before it is checked. The descriptors are ours from the start. */
typedef struct letter {
    union {
        fby_wire_hello_t hello;
        char bytes[FBY_WIRE_MOST];
    } data;
    size_t bytes;
    int fds[FBY_WIRE_FDS]; /* ring, host */
    char *error;
    size_t error_size;
} letter_t;

static int refuse(const letter_t *letter, const char *format, ...) FBY_PRINTF(2, 3);
static int refuse(const letter_t *letter, const char *format, ...)
{
    char text[200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    snprintf(letter->error, letter->error_size, "hello: %s", text);
    return FBY_E_FORMAT;
}

/* ---- Receiving ---- */

static void fds_close(int *fds)
{
    for (int i = 0; i < FBY_WIRE_FDS; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
        fds[i] = -1;
    }
}

/* Takes over every descriptor that came, wanted or not. Returns how many. */
static uint32_t fds_take(struct msghdr *message, int *fds)
{
    uint32_t n = 0;
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control != NULL; control = CMSG_NXTHDR(message, control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
            if (n < FBY_WIRE_FDS) {
                fds[n] = fd;
            } else {
                close(fd);
            }
            n++;
        }
    }
    return n;
}

static int letter_receive(letter_t *letter, int control_fd)
{
    union {
        struct cmsghdr header; /* for its alignment */
        char room[CMSG_SPACE(4 * FBY_WIRE_FDS * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = &letter->data, .iov_len = sizeof(letter->data)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t bytes;
    do {
        bytes = recvmsg(control_fd, &message, MSG_CMSG_CLOEXEC);
    } while (bytes < 0 && errno == EINTR);
    if (bytes < 0) {
        int status = -errno;
        snprintf(letter->error, letter->error_size, "descriptor %d: %s: this program is started by Forebay", control_fd,
                 strerror(-status));
        return status;
    }
    letter->bytes = (size_t)bytes;
    uint32_t fds = fds_take(&message, letter->fds);
    if (bytes == 0) {
        snprintf(letter->error, letter->error_size, "the runtime closed the control socket");
        return -ECONNRESET;
    }
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        return refuse(letter, "the message is longer than %d bytes, or has too many descriptors", FBY_WIRE_MOST);
    }
    if (fds != FBY_WIRE_FDS) {
        return refuse(letter, "descriptors is %u; accepted: %d", fds, FBY_WIRE_FDS);
    }
    return 0;
}

/* ---- Checks ---- */

static int head_check(const letter_t *letter)
{
    const fby_wire_head_t *head = &letter->data.hello.head;
    if (letter->bytes < sizeof(*head)) {
        return refuse(letter, "%zu bytes are no message", letter->bytes);
    }
    if (head->magic != FBY_WIRE_MAGIC) {
        return refuse(letter, "magic is %08x; accepted: %08x", head->magic, FBY_WIRE_MAGIC);
    }
    if (head->version != FBY_WIRE_VERSION) {
        return refuse(letter, "version is %u; this agent speaks %u: agent and library must be of one release",
                      head->version, FBY_WIRE_VERSION);
    }
    if (head->type != FBY_WIRE_HELLO) {
        return refuse(letter, "type is %u; accepted: %d", head->type, FBY_WIRE_HELLO);
    }
    if (head->bytes != letter->bytes || letter->bytes < sizeof(fby_wire_hello_t)) {
        return refuse(letter, "bytes is %u, %zu came; accepted: at least %zu", head->bytes, letter->bytes,
                      sizeof(fby_wire_hello_t));
    }
    return 0;
}

static int spec_check(const letter_t *letter)
{
    const fby_store_spec_t *spec = &letter->data.hello.spec;
    if (spec->size != sizeof(*spec)) {
        return refuse(letter, "spec.size is %u; accepted: %zu", spec->size, sizeof(*spec));
    }
    if (spec->groups > FBY_MAX_GROUPS) {
        return refuse(letter, "spec.groups is %u; accepted: at most %d", spec->groups, FBY_MAX_GROUPS);
    }
    if ((spec->alignment & (spec->alignment - 1)) != 0) {
        return refuse(letter, "spec.alignment is %u; accepted: a power of two", spec->alignment);
    }
    return 0;
}

static int texts_check(const letter_t *letter)
{
    const fby_wire_hello_t *hello = &letter->data.hello;
    const char *texts = letter->data.bytes + sizeof(*hello);
    size_t room = letter->bytes - sizeof(*hello), ends = 0;
    if (hello->text_bytes != room) {
        return refuse(letter, "text_bytes is %u; %zu came", hello->text_bytes, room);
    }
    for (size_t i = 0; i < room; i++) {
        ends += texts[i] == '\0';
    }
    if (hello->texts == 0 || hello->texts != ends || texts[room - 1] != '\0') {
        return refuse(letter, "texts is %u; %zu NUL-terminated ones came", hello->texts, ends);
    }
    return texts[0] == '\0' ? refuse(letter, "the driver's name is empty") : 0;
}

int fby_side_memory_check(const char *name, int fd, uint64_t bytes, char *error, size_t error_size)
{
    struct stat about;
    if (fstat(fd, &about) < 0) {
        snprintf(error, error_size, "hello: %s: %s", name, strerror(errno));
        return FBY_E_FORMAT;
    }
    if (bytes == 0 || about.st_size < 0 || (uint64_t)about.st_size != bytes) {
        snprintf(error, error_size, "hello: %s_bytes is %llu; the descriptor has %lld", name, (unsigned long long)bytes,
                 (long long)about.st_size);
        return FBY_E_FORMAT;
    }
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
        snprintf(error, error_size, "hello: %s is not a memory file that is sealed against shrinking and growing",
                 name);
        return FBY_E_FORMAT;
    }
    return 0;
}

/* Signal 0 asks only whether it is a pidfd: EINVAL is one of a process outside of our namespace. */
static int host_check(const letter_t *letter, int fd)
{
    if (syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) < 0 && errno == EBADF) {
        return refuse(letter, "host is not a pidfd");
    }
    return 0;
}

static int letter_check(const letter_t *letter)
{
    const fby_wire_hello_t *hello = &letter->data.hello;
    int status = head_check(letter);
    status = status < 0 ? status : spec_check(letter);
    status = status < 0 ? status : texts_check(letter);
    if (status == 0 && hello->pool_bytes == 0) {
        return refuse(letter, "pool_bytes is 0; accepted: the size of the pool");
    }
    if (status == 0) {
        status = fby_side_memory_check("ring", letter->fds[0], hello->ring_bytes, letter->error, letter->error_size);
    }
    return status < 0 ? status : host_check(letter, letter->fds[1]);
}

/* ---- Keeping ---- */

static int agent_keep_texts(fby_agent_t *agent, const letter_t *letter)
{
    const fby_wire_hello_t *hello = &letter->data.hello;
    agent->texts = malloc(hello->text_bytes);
    agent->options = calloc(hello->texts, sizeof(*agent->options)); /* the driver's place is the NULL at the end */
    if (agent->texts == NULL || agent->options == NULL) {
        return -ENOMEM;
    }
    memcpy(agent->texts, letter->data.bytes + sizeof(*hello), hello->text_bytes);
    const char *text = agent->texts;
    for (uint32_t i = 0; i + 1 < hello->texts; i++) {
        text += strlen(text) + 1;
        agent->options[i] = text;
    }
    return 0;
}

/* The ring's pages are not for children either; its descriptor has served. */
static int agent_map_ring(fby_agent_t *agent, letter_t *letter)
{
    const uint64_t bytes = letter->data.hello.ring_bytes;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, letter->fds[0], 0);
    if (memory == MAP_FAILED) {
        return -errno;
    }
    agent->ring_memory = memory;
    agent->ring_bytes = bytes;
    if (madvise(memory, bytes, MADV_DONTFORK) < 0) {
        return -errno;
    }
    close(letter->fds[0]);
    letter->fds[0] = -1;
    int status = fby_ring_check(memory, bytes, letter->error, letter->error_size);
    if (status == 0) {
        fby_ring_header_t header;
        memcpy(&header, memory, sizeof(header));
        agent->lane_count = header.lanes;
        agent->depth = header.depth;
    }
    return status;
}

static void agent_free(fby_agent_t *agent)
{
    fby_side_lanes_free(agent);
    if (agent->ring_memory != NULL) {
        munmap(agent->ring_memory, agent->ring_bytes);
    }
    pthread_cond_destroy(&agent->changed);
    pthread_mutex_destroy(&agent->lock);
    free(agent->options);
    free(agent->texts);
    free(agent);
}

static int agent_make(letter_t *letter, int control_fd, fby_agent_t **out)
{
    fby_agent_t *agent = calloc(1, sizeof(*agent));
    if (agent == NULL) {
        return -ENOMEM;
    }
    pthread_mutex_init(&agent->lock, NULL);
    pthread_cond_init(&agent->changed, NULL);
    agent->control_fd = control_fd;
    agent->pool_fd = -1;
    agent->host_fd = letter->fds[1];
    agent->pool_bytes = letter->data.hello.pool_bytes;
    agent->spec = letter->data.hello.spec;
    int status = agent_keep_texts(agent, letter);
    status = status < 0 ? status : agent_map_ring(agent, letter);
    status = status < 0 ? status : fby_side_lanes_make(agent);
    status = status < 0 ? status : fby_side_watch(agent);
    if (status < 0) {
        agent_free(agent);
        return status;
    }
    *out = agent;
    return 0;
}

int fby_agent_accept(int control_fd, fby_agent_t **out, char *error, size_t error_size)
{
    letter_t *letter = calloc(1, sizeof(*letter));
    if (letter == NULL) {
        return -ENOMEM;
    }
    letter->error = error;
    letter->error_size = error_size;
    error[0] = '\0';
    for (int i = 0; i < FBY_WIRE_FDS; i++) {
        letter->fds[i] = -1;
    }
    int status = letter_receive(letter, control_fd);
    status = status < 0 ? status : letter_check(letter);
    if (status == 0 && fcntl(control_fd, F_SETFD, FD_CLOEXEC) < 0) {
        status = -errno;
    }
    status = status < 0 ? status : agent_make(letter, control_fd, out);
    if (status < 0) {
        fds_close(letter->fds);
        if (error[0] == '\0') {
            snprintf(error, error_size, "agent: %s", strerror(-status));
        }
        fby_side_send_failed(control_fd, status == FBY_E_FORMAT ? FBY_E_CONFIG : status, error);
    }
    free(letter);
    return status;
}
