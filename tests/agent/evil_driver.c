/*
 * evil_driver.c - a store driver that misbehaves as client libraries do, for tests of the fence. A plug-in.
 *
 * Options: act=NAME (below), dir=PATH (where it leaves marks for the test; optional). It holds nothing: every key is
 * missing, unless an act says otherwise. Whatever it leaves running ends with that directory, or after a minute.
 *
 *   hang_epoch    raising the epoch marks `in` and never returns; one process has the whole store
 *   hang          a get marks `in` and never returns
 *   fork          open() forks a child that writes into every bit of the pool it can reach, round after round
 *   fork_double   the same from a child's child in a session of its own
 *   escape        a get tries every way to another process; its result has a bit for each that was open
 *   late          the first get fails and leaves a thread behind that goes on writing all over the pool; the next hangs
 *   die           a get ends the process by a wild jump
 *   no_uring      io_uring_setup is tried by a get; its result is 1 if that was open
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "forebay/store.h"

enum { LIFE_S = 60, WRONG = 0xBB, PATH_BYTES = 4096 };

static char directory[PATH_BYTES], act[32];
static uint8_t *pool;
static size_t pool_bytes;
static _Atomic uint32_t gets;

const fby_store_driver_t *fby_store_driver_1(void);

/* False: the directory is gone, the test is over. */
static bool mark(const char *name, long value)
{
    char path[PATH_BYTES + 64], text[32];
    snprintf(path, sizeof(path), "%s/%s.new", directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int n = snprintf(text, sizeof(text), "%ld\n", value);
    if (fd < 0) {
        return false;
    }
    (void)!write(fd, text, (size_t)n);
    close(fd);
    char whole[PATH_BYTES + 64];
    snprintf(whole, sizeof(whole), "%s/%s", directory, name);
    return rename(path, whole) == 0;
}

/* As the machine numbers us: /proc is that of the host, also in a PID namespace. */
static long own_pid(void)
{
    char text[32] = "";
    (void)!readlink("/proc/self", text, sizeof(text) - 1);
    return strtol(text, NULL, 10);
}

/* ---- A child that writes ---- */

static void write_through_descriptors(void)
{
    for (int fd = 0; fd < 256; fd++) {
        char path[64], target[256] = "";
        struct stat about;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof(target) - 1) <= 0 || strstr(target, "forebay-pool") == NULL ||
            fstat(fd, &about) != 0) {
            continue;
        }
        void *base = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (base != MAP_FAILED) {
            memset(base, WRONG, (size_t)about.st_size);
            munmap(base, (size_t)about.st_size);
        }
    }
}

static void write_through_mappings(void)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        unsigned long from, to;
        if (strstr(line, "forebay-pool") != NULL && sscanf(line, "%lx-%lx", &from, &to) == 2) {
            memset((void *)from, WRONG, to - from);
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
}

_Noreturn static void write_for_ever(void)
{
    signal(SIGALRM, SIG_DFL);
    alarm(LIFE_S);
    char name[32];
    snprintf(name, sizeof(name), "round-%ld", own_pid()); /* there is one of us per agent */
    mark("grandchild", own_pid());
    for (long round = 1;; round++) {
        write_through_descriptors();
        write_through_mappings();
        if (!mark(name, round) && access(directory, F_OK) != 0) {
            _exit(0);
        }
        usleep(1000);
    }
}

static void fork_writer(bool twice)
{
    pid_t pid = fork();
    if (pid != 0) {
        return;
    }
    if (twice) {
        setsid();
        if (fork() != 0) {
            _exit(0);
        }
    }
    write_for_ever();
}

/* ---- A thread that writes ---- */

static void *write_late(void *arg)
{
    alarm(LIFE_S);
    for (long round = 1;; round++) {
        memset(pool, WRONG, pool_bytes);
        if (round % 64 == 0) {
            mark("round", round);
        }
    }
    return NULL;
}

/* ---- Ways to another process ---- */

static bool way_fork(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    return pid > 0;
}

static bool way_vfork(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        _exit(0);
    }
    return pid > 0;
}

static bool way_clone(void)
{
    long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        _exit(0);
    }
    return pid > 0;
}

static bool way_clone3(void)
{
    uint64_t arguments[11] = {[4] = SIGCHLD};
    long pid = syscall(SYS_clone3, arguments, sizeof(arguments));
    if (pid == 0) {
        _exit(0);
    }
    return pid > 0;
}

static bool way_execve(void)
{
    static char name[] = "true";
    char *const argv[] = {name, NULL};
    execve("/bin/true", argv, NULL);
    return false; /* had it worked, the process would be another one */
}

static bool way_spawn(void)
{
    static char name[] = "true";
    char *const argv[] = {name, NULL};
    pid_t pid;
    return posix_spawn(&pid, "/bin/true", NULL, NULL, argv, NULL) == 0;
}

static bool way_system(void)
{
    return system("true") == 0;
}

static bool way_unshare(void)
{
    return unshare(CLONE_NEWUSER) == 0;
}

static bool way_ptrace(void)
{
    return ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0;
}

static bool way_uring(void)
{
    uint64_t parameters[15] = {0};
    return syscall(SYS_io_uring_setup, 4, parameters) >= 0;
}

static int64_t open_ways(void)
{
    static bool (*const ways[])(void) = {way_fork,  way_vfork,  way_clone,   way_clone3, way_execve,
                                         way_spawn, way_system, way_unshare, way_ptrace};
    int64_t open = 0;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        open |= ways[i]() ? INT64_C(1) << i : 0;
    }
    return open;
}

/* ---- The driver ---- */

static bool does(const char *name)
{
    return strcmp(act, name) == 0;
}

static int evil_open(const fby_store_spec_t *spec, const char *const *options, fby_store_t **out, char *error,
                     size_t error_size)
{
    static int opened;
    for (; *options != NULL; options++) {
        if (strncmp(*options, "act=", 4) == 0) {
            snprintf(act, sizeof(act), "%s", *options + 4);
        } else if (strncmp(*options, "dir=", 4) == 0) {
            snprintf(directory, sizeof(directory), "%s", *options + 4);
        }
    }
    if (does("fork") || does("fork_double")) {
        fork_writer(does("fork_double"));
    }
    *out = (fby_store_t *)&opened;
    return 0;
}

static void evil_close(fby_store_t *store)
{
}

static void evil_capabilities(fby_store_t *store, fby_store_caps_t *caps)
{
    *caps = (fby_store_caps_t){.size = sizeof(*caps), .max_batch = 64, .one_process = does("hang_epoch")};
}

static int evil_register(fby_store_t *store, void *base, size_t bytes)
{
    pool = base;
    pool_bytes = bytes;
    return 0;
}

static int evil_unregister(fby_store_t *store, void *base)
{
    return 0;
}

static int evil_exists(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ops[i].result = 0;
    }
    return 0;
}

_Noreturn static void hang(void)
{
    mark("in", own_pid());
    for (;;) {
        pause();
    }
}

static int evil_raise_epoch(fby_store_t *store, uint64_t epoch)
{
    if (does("hang_epoch")) {
        hang();
    }
    return 0;
}

static int64_t evil_read(void)
{
    pthread_t thread;
    uint32_t nth = ++gets;
    if (does("hang") || (does("late") && nth > 1)) {
        hang();
    }
    if (does("late")) {
        return pthread_create(&thread, NULL, write_late, NULL) == 0 ? FBY_E_CONNECTION : FBY_E_INVALID;
    }
    if (does("die")) {
        raise(SIGSEGV);
        abort();
    }
    return does("escape") ? open_ways() : does("no_uring") ? way_uring() : FBY_E_MISSING;
}

static int evil_get(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ops[i].result = evil_read();
    }
    return 0;
}

static int evil_put(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ops[i].result = ops[i].bytes;
    }
    return 0;
}

static int evil_health(fby_store_t *store, char *text, size_t text_size)
{
    return 0;
}

const fby_store_driver_t *fby_store_driver_1(void)
{
    static const fby_store_driver_t driver = {
        .abi = FBY_STORE_ABI,
        .size = sizeof(fby_store_driver_t),
        .name = "evil",
        .open = evil_open,
        .close = evil_close,
        .capabilities = evil_capabilities,
        .register_region = evil_register,
        .unregister_region = evil_unregister,
        .exists = evil_exists,
        .get = evil_get,
        .put = evil_put,
        .remove = evil_exists,
        .health = evil_health,
        .raise_epoch = evil_raise_epoch,
    };
    return &driver;
}
