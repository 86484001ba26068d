/* The filter, in children that are confined and then try each way out. */
#include "agent/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

extern char **environ;

typedef struct way {
    const char *name;
    long number;
    long arguments[5];
    int expected; /* errno under the filter */
    int usual;    /* errno without it; 0: the system may have refusals of its own */
} way_t;

/* With arguments that do no harm where a call is let through. */
static const way_t ways[] = {
#ifdef SYS_fork
    {"fork", SYS_fork, {0}, EPERM, 0},
#endif
    {"clone as vfork does it", SYS_clone, {CLONE_VM | CLONE_VFORK | SIGCHLD, 0}, EPERM, 0},
    {"clone", SYS_clone, {SIGCHLD, 0, 0, 0, 0}, EPERM, 0},
    {"clone with the memory shared", SYS_clone, {CLONE_VM | CLONE_FILES | CLONE_THREAD, 0}, EINVAL, EINVAL},
    {"clone3", SYS_clone3, {0, 0}, ENOSYS, EINVAL},
    {"execve", SYS_execve, {0, 0, 0}, EPERM, EFAULT},
    {"execveat", SYS_execveat, {-1, 0, 0, 0, 0}, EPERM, EFAULT},
    {"unshare", SYS_unshare, {-1}, EPERM, 0},
    {"setns", SYS_setns, {-1, 0}, EPERM, 0},
    {"ptrace", SYS_ptrace, {PTRACE_PEEKDATA, 0, 0, 0}, EPERM, 0},
    {"process_vm_readv", SYS_process_vm_readv, {-1, 0, 0, 0, 0}, EPERM, 0},
    {"process_vm_writev", SYS_process_vm_writev, {-1, 0, 0, 0, 0}, EPERM, 0},
    {"process_madvise", SYS_process_madvise, {-1, 0, 0, 0, 0}, EPERM, 0},
    {"pidfd_getfd", SYS_pidfd_getfd, {-1, 0, 0}, EPERM, 0},
    {"kcmp", SYS_kcmp, {-1, -1, 0, 0, 0}, EPERM, 0},
    {"userfaultfd", SYS_userfaultfd, {-1}, EPERM, 0},
    {"vmsplice", SYS_vmsplice, {-1, 0, 0, 0}, EPERM, EBADF},
    {"io_uring_setup", SYS_io_uring_setup, {0, 0}, EPERM, 0},
    {"io_uring_enter", SYS_io_uring_enter, {-1, 0, 0, 0, 0}, EPERM, 0},
    {"io_uring_register", SYS_io_uring_register, {-1, 0, 0, 0}, EPERM, 0},
#if defined(__x86_64__)
    {"getpid by x32's number", 0x40000000L + SYS_getpid, {0}, EPERM, ENOSYS},
#endif
    {"dup", SYS_dup, {-1}, EBADF, EBADF},
    {"madvise", SYS_madvise, {1, 0, 0}, EINVAL, EINVAL},
};

static bool is_uring(const way_t *way)
{
    return strncmp(way->name, "io_uring", 8) == 0;
}

/* 0, or the errno. A child that got out leaves at once; its parent calls that 0. */
static int attempt(const way_t *way)
{
    const long *a = way->arguments;
    pid_t self = getpid();
    errno = 0;
    long result = syscall((long)way->number, a[0], a[1], a[2], a[3], a[4]);
    if ((pid_t)syscall(SYS_getpid) != self) {
        _exit(0);
    }
    return result < 0 ? errno : 0;
}

static void complain(const way_t *way, int got, int expected)
{
    fprintf(stderr, "%s: errno %d (%s) instead of %d (%s)\n", way->name, got, strerror(got), expected,
            strerror(expected));
}

/* Runs body in a child: 0 when it saw what it should. */
static int in_child(int (*body)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(body());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int every_way_usual(void)
{
    int wrong = 0;
    for (size_t i = 0; i < FBY_ARRAY_LEN(ways); i++) {
        int got = ways[i].usual == 0 ? 0 : attempt(&ways[i]);
        if (got != ways[i].usual) {
            complain(&ways[i], got, ways[i].usual);
            wrong++;
        }
    }
    return wrong;
}

/* What the ways answer where nothing is refused: else the test below would prove little. */
static void without_the_filter_the_calls_get_through(void **state)
{
    assert_int_equal(in_child(every_way_usual), 0);
}

static int every_way(bool uring)
{
    int wrong = fby_confine(uring) != 0;
    for (size_t i = 0; i < FBY_ARRAY_LEN(ways); i++) {
        int got = attempt(&ways[i]);
        bool as_expected = uring && is_uring(&ways[i]) ? got != 0 : got == ways[i].expected;
        if (!as_expected) {
            complain(&ways[i], got, ways[i].expected);
            wrong++;
        }
    }
    return wrong;
}

static int every_way_confined(void)
{
    return every_way(false);
}

static int every_way_but_uring(void)
{
    return every_way(true);
}

static void every_way_out_is_refused(void **state)
{
    assert_int_equal(in_child(every_way_confined), 0);
    assert_int_equal(in_child(every_way_but_uring), 0);
}

static int uring_confined(bool uring)
{
    unsigned char params[120] = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 4, params);
    if (fd < 0) {
        return 77;
    }
    close(fd);
    if (fby_confine(uring) != 0) {
        return 1;
    }
    fd = (int)syscall(SYS_io_uring_setup, 4, params);
    return uring ? fd < 0 : fd >= 0 || errno != EPERM;
}

static int uring_refused(void)
{
    return uring_confined(false);
}

static int uring_allowed(void)
{
    return uring_confined(true);
}

static void io_uring_is_left_to_a_driver_that_needs_it(void **state)
{
    int first = in_child(uring_refused);
    if (first == 77) {
        print_message("this system has no io_uring for us\n");
        skip();
    }
    assert_int_equal(first, 0);
    assert_int_equal(in_child(uring_allowed), 0);
}

static void *add_one(void *arg)
{
    ++*(int *)arg;
    return NULL;
}

/* Threads, memory and files go on as before. */
static int live_on(void)
{
    if (fby_confine(false) != 0) {
        return 1;
    }
    int count = 0;
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, add_one, &count) != 0 || pthread_join(thread, NULL) != 0) {
            return 2;
        }
    }
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    bool works = memory != MAP_FAILED && write(fd, "x", 1) == 1 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
    return count == 3 && works ? 0 : 3;
}

static void threads_can_still_be_made(void **state)
{
    assert_int_equal(in_child(live_on), 0);
}

/* What libraries do when they want a helper process. */
static int spawn_helpers(void)
{
    if (fby_confine(false) != 0) {
        return 1;
    }
    pid_t pid;
    char name[] = "true", *const argv[] = {name, NULL};
    if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) != EPERM) {
        return 2;
    }
    if (popen("true", "r") != NULL) {
        return 3;
    }
    return fork() == -1 && errno == EPERM ? 0 : 4;
}

static void helpers_of_libraries_are_refused(void **state)
{
    assert_int_equal(in_child(spawn_helpers), 0);
}

typedef struct early {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool confined;
    int result;
} early_t;

static void *fork_when_confined(void *arg)
{
    early_t *early = arg;
    pthread_mutex_lock(&early->lock);
    while (!early->confined) {
        pthread_cond_wait(&early->changed, &early->lock);
    }
    pthread_mutex_unlock(&early->lock);
    early->result = attempt(&(const way_t){"clone", SYS_clone, {SIGCHLD}, 0, 0});
    return NULL;
}

static int early_thread(void)
{
    early_t early = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    pthread_t thread;
    if (pthread_create(&thread, NULL, fork_when_confined, &early) != 0 || fby_confine(false) != 0) {
        return 1;
    }
    pthread_mutex_lock(&early.lock);
    early.confined = true;
    pthread_cond_broadcast(&early.changed);
    pthread_mutex_unlock(&early.lock);
    pthread_join(thread, NULL);
    return early.result == EPERM ? 0 : 2;
}

/* A client's threads are there before the filter: it holds for them as well. */
static void threads_from_before_are_confined_too(void **state)
{
    assert_int_equal(in_child(early_thread), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_the_filter_the_calls_get_through),
        cmocka_unit_test(every_way_out_is_refused),
        cmocka_unit_test(io_uring_is_left_to_a_driver_that_needs_it),
        cmocka_unit_test(threads_can_still_be_made),
        cmocka_unit_test(helpers_of_libraries_are_refused),
        cmocka_unit_test(threads_from_before_are_confined_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
