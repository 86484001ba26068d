/*
 * spawn.c - one agent process: its program found, its ring made, its start.
 *
 * The host may be an engine with many threads and hundreds of gigabytes of mappings, so nothing is forked: the child
 * shares the host's memory until it executes (CLONE_VM | CLONE_VFORK, as posix_spawn does), and is the first process of a
 * PID namespace where that is allowed. Executing makes it an ordinary child: a host that reaps everything may reap it
 * before we do, which the pidfd makes harmless.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/host_internal.h"
#include "base/log.h"
#include "stores/stores.h"

#ifndef FBY_LIBEXEC_DIR
#define FBY_LIBEXEC_DIR "/usr/local/libexec/forebay"
#endif

enum { CHILD_STACK_BYTES = 64 * 1024, SIGNALS = 65, ANCESTORS = 3, ARGUMENTS = 6 };

/* glibc's own name for clone(): ThreadSanitizer takes a call of the other for a fork, and then is wrong about this
   thread's locks, since the child runs in our memory. */
extern __typeof__(clone) __clone;

/* ---- Finding programs ------------------------------------------------------------------------------------------- */

/* Cuts the last component off. False when there is none. */
static bool parent_directory(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path) {
        return false;
    }
    *slash = '\0';
    return true;
}

typedef struct search {
    const char *name;
    char *path; /* result */
    size_t path_size;
    char *tried; /* message; appended to */
    size_t tried_size;
} search_t;

static bool try_directory(search_t *search, const char *directory)
{
    int n = snprintf(search->path, search->path_size, "%s/%s", directory, search->name);
    if (n > 0 && (size_t)n < search->path_size && access(search->path, R_OK) == 0) {
        return true;
    }
    size_t used = strlen(search->tried);
    if (used < search->tried_size) {
        snprintf(search->tried + used, search->tried_size - used, "%s%s", used > 0 ? ", " : "", directory);
    }
    return false;
}

/* The directory of a file, those above it (build trees), and where an installation beside it keeps its programs. */
static bool try_beside(search_t *search, const char *file)
{
    char directory[PATH_MAX], libexec[PATH_MAX + 32];
    snprintf(directory, sizeof(directory), "%s", file);
    for (int i = 0; i < ANCESTORS && parent_directory(directory); i++) {
        snprintf(libexec, sizeof(libexec), "%s/libexec/forebay", directory);
        if (try_directory(search, directory) || try_directory(search, libexec)) {
            return true;
        }
    }
    return false;
}

/* A directory that somebody named is the only one that is looked in. */
static int find_in(search_t *search, const char *directory, const char *who, char *error, size_t error_size)
{
    if (try_directory(search, directory)) {
        return 0;
    }
    snprintf(error, error_size, "%s is not in %s, where %s says it is", search->name, directory, who);
    return -ENOENT;
}

int fby_agent_find(const char *name, char *path, size_t path_size, char *error, size_t error_size)
{
    char tried[2048] = "", exe[PATH_MAX];
    search_t search = {name, path, path_size, tried, sizeof(tried)};
    const char *given = getenv("FOREBAY_LIBEXEC");
    if (given != NULL && *given != '\0') {
        return find_in(&search, given, "FOREBAY_LIBEXEC", error, error_size);
    }
    Dl_info library;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = '\0';
    char self[PATH_MAX];
    bool known = dladdr(&fby_store_agent, &library) != 0 && realpath(library.dli_fname, self) != NULL;
    if ((known && try_beside(&search, self)) || (n > 0 && try_beside(&search, exe)) ||
        try_directory(&search, FBY_LIBEXEC_DIR)) {
        return 0;
    }
    snprintf(error, error_size,
             "%s is not found; accepted: FOREBAY_LIBEXEC or store.agent_dir names its directory; looked in %s", name,
             tried);
    return -ENOENT;
}

/* What is executed: arguments with their texts. */
typedef struct command {
    char program[PATH_MAX], script[PATH_MAX], library[PATH_MAX];
    const char *argv[ARGUMENTS];
} command_t;

static int find_part(const struct fby_store *store, const char *name, char *path, char *error, size_t error_size)
{
    char tried[PATH_MAX];
    search_t search = {name, path, PATH_MAX, tried, sizeof(tried)};
    tried[0] = '\0';
    return store->directory != NULL ? find_in(&search, store->directory, "store.agent_dir", error, error_size)
                                    : fby_agent_find(name, path, PATH_MAX, error, error_size);
}

/* The way of execvp, but before the clone: nothing there may allocate. */
static int find_interpreter(const char *name, char *path, char *error, size_t error_size)
{
    const char *list = getenv("PATH");
    if (strchr(name, '/') != NULL) {
        snprintf(path, PATH_MAX, "%s", name);
        if (access(path, X_OK) == 0) {
            return 0;
        }
        snprintf(error, error_size, "the interpreter %s cannot be executed: %s", name, strerror(errno));
        return -ENOENT;
    }
    for (const char *at = list != NULL ? list : "/usr/local/bin:/usr/bin:/bin"; *at != '\0';) {
        size_t length = strcspn(at, ":");
        int n = snprintf(path, PATH_MAX, "%.*s/%s", (int)length, at, name);
        if (length > 0 && n < PATH_MAX && access(path, X_OK) == 0) {
            return 0;
        }
        at += length + (at[length] == ':');
    }
    snprintf(error, error_size, "the interpreter %s is not in PATH", name);
    return -ENOENT;
}

static int command_make(const struct fby_store *store, command_t *command, char *error, size_t error_size)
{
    fby_store_program_t program;
    memset(command->argv, 0, sizeof(command->argv));
    command->argv[0] = command->program;
    if (!fby_store_agent_program(store->driver, (const char *const *)store->options, &program)) {
        return find_part(store, "forebay-agent", command->program, error, error_size);
    }
    int rc = find_interpreter(program.interpreter, command->program, error, error_size);
    rc = rc == 0 ? find_part(store, program.name, command->script, error, error_size) : rc;
    rc = rc == 0 ? find_part(store, "libforebay-agent.so", command->library, error, error_size) : rc;
    command->argv[1] = command->script;
    command->argv[2] = "--library";
    command->argv[3] = command->library;
    return rc;
}

/* ---- Ring ------------------------------------------------------------------------------------------------------- */

static int ring_make(const struct fby_store *store, fby_process_t *process, int *out)
{
    process->ring_bytes = fby_ring_bytes(process->lane_count, store->depth, store->bounce_bytes);
    int fd = memfd_create("forebay-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -errno;
    }
    void *memory = MAP_FAILED;
    if (ftruncate(fd, (off_t)process->ring_bytes) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        memory = mmap(NULL, process->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (memory == MAP_FAILED) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    process->ring_memory = memory;
    madvise(memory, process->ring_bytes, MADV_DONTFORK);
    fby_ring_format(memory, process->lane_count, store->depth, store->bounce_bytes);
    *out = fd;
    return 0;
}

static int lanes_make(const struct fby_store *store, fby_process_t *process)
{
    process->lanes = calloc(process->lane_count, sizeof(*process->lanes));
    for (uint32_t i = 0; process->lanes != NULL && i < process->lane_count; i++) {
        fby_host_lane_t *lane = &process->lanes[i];
        fby_ring_attach(process->ring_memory, i, &lane->ring);
        lane->entries = calloc(store->depth, sizeof(*lane->entries));
        lane->results = calloc(store->depth, sizeof(*lane->results));
        if (lane->entries == NULL || lane->results == NULL) {
            return -ENOMEM;
        }
    }
    return process->lanes != NULL ? 0 : -ENOMEM;
}

void fby_process_free(fby_process_t *process)
{
    for (uint32_t i = 0; process->lanes != NULL && i < process->lane_count; i++) {
        free(process->lanes[i].entries);
        free(process->lanes[i].results);
    }
    free(process->lanes);
    if (process->ring_memory != NULL) {
        munmap(process->ring_memory, process->ring_bytes);
    }
    if (process->pidfd >= 0) {
        close(process->pidfd);
    }
    if (process->control >= 0) {
        close(process->control);
    }
    free(process);
}

/* ---- Start ------------------------------------------------------------------------------------------------------ */

typedef struct child {
    const command_t *command;
    int control;
} child_t;

/* In the host's memory until execve: nothing but system calls. Handlers of the host must not run here, hence the
   defaults; all signals are blocked until then. Sanitizers keep books of stack frames and of handlers in that memory: no
   frame of this stack may enter them, for it is never left, and no handler is to be taken off the host's list. */
__attribute__((no_sanitize("address"))) __attribute__((no_sanitize("thread"))) static int child_main(void *arg)
{
    const child_t *child = arg;
    static const uint64_t normal[8]; /* the kernel's struct sigaction with SIG_DFL */
    sigset_t none;
    for (int signal = 1; signal < SIGNALS; signal++) {
        syscall(SYS_rt_sigaction, signal, normal, NULL, sizeof(uint64_t));
    }
    sigemptyset(&none);
    /* A terminal's interrupt is for the host. No session of its own: the scheduler groups by sessions, and an agent that
       does the host's work would share its cores with the host as if it were somebody else (it cost half the speed). */
    setpgid(0, 0);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
    }
    if (child->control == FBY_WIRE_CONTROL_FD) {
        fcntl(FBY_WIRE_CONTROL_FD, F_SETFD, 0);
    } else {
        dup2(child->control, FBY_WIRE_CONTROL_FD);
    }
    syscall(SYS_close_range, (unsigned)FBY_WIRE_CONTROL_FD + 1, ~0u, 0u);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(child->command->program, (char *const *)(uintptr_t)child->command->argv, environ);
    _exit(127);
}

static int child_clone(const child_t *child, int flags, int *pidfd)
{
    void *stack = mmap(NULL, CHILD_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
        return -errno;
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int pid = __clone(child_main, (uint8_t *)stack + CHILD_STACK_BYTES, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | flags,
                      (void *)(uintptr_t)child, pidfd);
    int rc = pid < 0 ? -errno : pid;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    munmap(stack, CHILD_STACK_BYTES);
    return rc;
}

/* The first process of a PID namespace when we may make one: the kernel ends everything in it before it is gone. */
static int child_start(const child_t *child, fby_process_t *process)
{
    int pid = child_clone(child, CLONE_NEWPID, &process->pidfd);
    process->namespaced = pid > 0;
    if (pid < 0) {
        pid = child_clone(child, 0, &process->pidfd);
    }
    if (pid < 0) {
        process->pidfd = -1;
        return pid;
    }
    process->pid = pid;
    return 0;
}

static size_t texts_put(const struct fby_store *store, char *out, size_t room, uint32_t *count)
{
    size_t used = 0;
    const char *text = store->driver;
    *count = 0;
    for (char **next = store->options; text != NULL; text = *next++) {
        size_t length = strlen(text) + 1;
        if (length > room - used) {
            return 0;
        }
        memcpy(out + used, text, length);
        used += length;
        ++*count;
    }
    return used;
}

static int send_with_fds(const fby_process_t *process, void *packet, size_t bytes, const int *fds, size_t count)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(FBY_WIRE_FDS * sizeof(int))];
    } control = {
        .header = {.cmsg_len = CMSG_LEN(count * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
    struct iovec part = {packet, bytes};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    return sendmsg(process->control, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes ? 0 : -errno;
}

static int hello_send(struct fby_store *store, const fby_process_t *process, int ring_fd)
{
    _Alignas(16) char packet[FBY_WIRE_MOST];
    fby_wire_hello_t hello = {.pool_bytes = store->region->bytes, .ring_bytes = process->ring_bytes};
    size_t texts = texts_put(store, packet + sizeof(hello), sizeof(packet) - sizeof(hello), &hello.texts);
    if (texts == 0) {
        return -E2BIG;
    }
    hello.text_bytes = (uint32_t)texts;
    pthread_mutex_lock(&store->lock); /* its epoch may be raised meanwhile */
    hello.spec = store->spec;
    pthread_mutex_unlock(&store->lock);
    hello.head = fby_wire_make(FBY_WIRE_HELLO, sizeof(hello) + texts);
    memcpy(packet, &hello, sizeof(hello));
    const int fds[FBY_WIRE_FDS] = {ring_fd, store->own_pidfd};
    return send_with_fds(process, packet, sizeof(hello) + texts, fds, FBY_WIRE_FDS);
}

int fby_process_send_pool(const struct fby_store *store, const fby_process_t *process)
{
    fby_wire_head_t head = fby_wire_make(FBY_WIRE_POOL, sizeof(head));
    return send_with_fds(process, &head, sizeof(head), &store->region->fd, 1);
}

/* Socket, ring, program. The child has its copy of the far end when this returns. */
static int process_launch(struct fby_store *store, fby_process_t *process, char *error, size_t error_size)
{
    command_t command;
    int pair[2], ring_fd = -1;
    int rc = command_make(store, &command, error, error_size);
    if (rc != 0) {
        return FBY_E_CONFIG;
    }
    rc = ring_make(store, process, &ring_fd);
    rc = rc == 0 ? lanes_make(store, process) : rc;
    if (rc == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        rc = -errno;
    }
    if (rc == 0) {
        process->control = pair[0];
        rc = child_start(&(child_t){&command, pair[1]}, process);
        close(pair[1]);
        rc = rc == 0 ? hello_send(store, process, ring_fd) : rc;
    }
    if (ring_fd >= 0) {
        close(ring_fd);
    }
    if (rc != 0) {
        snprintf(error, error_size, "%s cannot be started: %s", command.program, strerror(-rc));
    }
    return rc;
}

int fby_process_start(struct fby_store *store, fby_seat_t *seat, fby_process_t **out, char *error, size_t error_size)
{
    fby_process_t *process = calloc(1, sizeof(*process));
    if (process == NULL) {
        return -ENOMEM;
    }
    process->pidfd = process->control = -1;
    process->seat = seat;
    process->lane_count = seat->lane_count;
    process->started_at = fby_clock_now(&fby_clock_monotonic);
    int rc = process_launch(store, process, error, error_size);
    if (rc != 0 && process->pidfd < 0) {
        fby_process_free(process);
        return rc;
    }
    *out = process; /* one that runs is ended by the supervisor, also when HELLO did not reach it */
    return rc;
}
