#include "agent/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "unit.h"

static int memory_make(uint64_t bytes, void **memory)
{
    int fd = memfd_create("rig", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(*memory != MAP_FAILED);
    return fd;
}

void rig_texts(rig_t *rig, const char *const *texts)
{
    fby_wire_hello_t *hello = rig_hello(rig);
    size_t used = sizeof(*hello);
    hello->texts = 0;
    for (; texts[hello->texts] != NULL; hello->texts++) {
        size_t length = strlen(texts[hello->texts]) + 1;
        memcpy(rig->packet + used, texts[hello->texts], length);
        used += length;
    }
    hello->text_bytes = (uint32_t)(used - sizeof(*hello));
    rig->packet_bytes = used;
    hello->head = fby_wire_make(FBY_WIRE_HELLO, used);
}

void rig_open(rig_t *rig)
{
    int pair[2];
    void *pool;
    memset(rig, 0, sizeof(*rig));
    rig->ring_bytes = fby_ring_bytes(RIG_LANES, RIG_DEPTH, RIG_BOUNCE_BYTES);
    rig->pool_fd = memory_make(RIG_POOL_BYTES, &pool);
    rig->fds[0] = memory_make(rig->ring_bytes, &rig->ring);
    rig->fds[1] = (int)syscall(SYS_pidfd_open, getpid(), 0);
    assert_true(rig->fds[1] >= 0);
    rig->pool = pool;
    fby_ring_format(rig->ring, RIG_LANES, RIG_DEPTH, RIG_BOUNCE_BYTES);
    for (uint32_t i = 0; i < RIG_LANES; i++) {
        fby_ring_attach(rig->ring, i, &rig->lanes[i]);
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    rig->host = pair[0];
    rig->agent = pair[1];
    rig->child_fd = -1;
    fby_wire_hello_t *hello = rig_hello(rig);
    hello->pool_bytes = RIG_POOL_BYTES;
    hello->ring_bytes = rig->ring_bytes;
    hello->spec = (fby_store_spec_t){.size = sizeof(hello->spec), .groups = 1, .alignment = 4096};
    hello->spec.object_bytes[0] = RIG_SLOT_BYTES;
    hello->spec.slot_bytes[0] = RIG_SLOT_BYTES;
    rig_texts(rig, (const char *const[]){"mem", "name=rig", NULL});
}

static void send_with(const rig_t *rig, const void *packet, size_t bytes, const int *fds, size_t count)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(FBY_WIRE_FDS * sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
    }
    assert_int_equal(sendmsg(rig->host, &message, MSG_NOSIGNAL), (ssize_t)bytes);
}

void rig_send(rig_t *rig, int fds)
{
    send_with(rig, rig->packet, rig->packet_bytes, rig->fds, (size_t)fds);
}

static void child_adopt(rig_t *rig, pid_t pid)
{
    assert_true(pid > 0);
    rig->child = pid;
    rig->child_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    assert_true(rig->child_fd >= 0);
    close(rig->agent);
    rig->agent = -1;
}

void rig_fork(rig_t *rig, int (*body)(int control_fd))
{
    pid_t pid = fork();
    if (pid == 0) {
        close(rig->host);
        _exit(body(rig->agent));
    }
    child_adopt(rig, pid);
}

void rig_execute(rig_t *rig, const char *program)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (rig->agent == FBY_WIRE_CONTROL_FD) {
            fcntl(FBY_WIRE_CONTROL_FD, F_SETFD, 0);
        } else {
            dup2(rig->agent, FBY_WIRE_CONTROL_FD);
        }
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    child_adopt(rig, pid);
}

size_t rig_receive(rig_t *rig, void *message, size_t bytes)
{
    ssize_t got = recv(rig->host, message, bytes, 0);
    return got < 0 && errno == ECONNRESET ? 0 : (size_t)got;
}

void rig_receive_ready(rig_t *rig, fby_wire_ready_t *ready)
{
    union {
        fby_wire_head_t head;
        fby_wire_confined_t confined;
        fby_wire_ready_t ready;
        fby_wire_failed_t failed;
    } message;
    size_t bytes = rig_receive(rig, &message, sizeof(message));
    if (bytes == sizeof(message.confined) && message.head.type == FBY_WIRE_CONFINED) {
        const fby_wire_head_t pool = fby_wire_make(FBY_WIRE_POOL, sizeof(pool));
        rig->confined = message.confined.confined;
        send_with(rig, &pool, sizeof(pool), &rig->pool_fd, 1);
        bytes = rig_receive(rig, &message, sizeof(message));
    }
    if (bytes == sizeof(message.failed) && message.head.type == FBY_WIRE_FAILED) {
        fail_msg("the agent failed: %s", message.failed.text);
    }
    assert_int_equal(bytes, sizeof(message.ready));
    assert_int_equal(message.head.type, FBY_WIRE_READY);
    assert_int_equal(message.head.bytes, sizeof(message.ready));
    *ready = message.ready;
}

void rig_say(rig_t *rig, fby_wire_type_t type)
{
    const fby_wire_head_t head = fby_wire_make(type, sizeof(head));
    assert_int_equal(send(rig->host, &head, sizeof(head), MSG_NOSIGNAL), sizeof(head));
}

fby_ring_entry_t rig_entry(fby_ring_op_t op, const char *key, uint64_t offset, uint32_t bytes)
{
    fby_ring_entry_t entry = {.op = (uint8_t)op, .offset = offset, .bytes = bytes};
    snprintf(entry.key, sizeof(entry.key), "%s", key);
    return entry;
}

static bool child_runs(const rig_t *rig)
{
    struct pollfd end = {.fd = rig->child_fd, .events = POLLIN};
    return poll(&end, 1, 0) == 0;
}

/* The short limit only bounds how soon an agent's end is seen: an answer wakes at once. */
bool rig_call(rig_t *rig, uint32_t lane, fby_ring_entry_t *entries, uint32_t n, int64_t *results)
{
    fby_ring_t *ring = &rig->lanes[lane];
    fby_ring_submit(ring, ++rig->tag, entries, n);
    for (;;) {
        bool runs = child_runs(rig);
        int answered = fby_ring_answered(ring, n);
        assert_true(answered >= 0);
        if (answered == (int)n) {
            assert_int_equal(fby_ring_results(ring, rig->tag, results, n), 0);
            return true;
        }
        if (!runs) {
            return false;
        }
        fby_ring_wait(ring, n, fby_clock_now(&fby_clock_monotonic) + 20 * FBY_MS);
    }
}

int rig_wait(rig_t *rig)
{
    int status;
    assert_int_equal(waitpid(rig->child, &status, 0), rig->child);
    rig->child = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void rig_close(rig_t *rig)
{
    if (rig->child > 0) {
        kill(rig->child, SIGKILL);
        rig_wait(rig);
    }
    munmap(rig->pool, RIG_POOL_BYTES);
    munmap(rig->ring, rig->ring_bytes);
    const int fds[] = {rig->pool_fd, rig->fds[0], rig->fds[1], rig->host, rig->agent, rig->child_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}
