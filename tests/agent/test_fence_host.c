/* Hosts as they are: that reap everything, that fork, that are killed; and agents that nobody uses sleep. */
#include "fence_rig.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static bool is_back(const fby_agent_stats_t *stats, uint64_t starts)
{
    return stats->starts >= starts && stats->processes == FBY_AGENT_KINDS;
}

static void fence_and_recover(fence_rig_t *rig)
{
    host_rig_call_t call;
    host_rig_begin_get(&call, &rig->host, 1, 1);
    fence_rig_mark(rig, "in");
    fence_rig_fence(&call);
    assert_int_equal(host_rig_end(&call), FBY_E_TIMEOUT);
    host_rig_await(&rig->host, is_back, FBY_AGENT_KINDS + 1);
    fence_rig_busy(rig, 10);
}

/* ---- A host that reaps ---- */

static void a_host_that_ignores_its_children_proves_nothing_wrong(void **state)
{
    fence_rig_t rig;
    signal(SIGCHLD, SIG_IGN);
    fence_rig_driver(&rig, "hang", false);
    fence_and_recover(&rig);
    fence_rig_close(&rig);
    signal(SIGCHLD, SIG_DFL);
}

typedef struct reaper {
    pthread_t thread;
    _Atomic bool stop;
} reaper_t;

static void *reap_everything(void *arg)
{
    reaper_t *reaper = arg;
    while (!atomic_load(&reaper->stop)) {
        (void)waitpid(-1, NULL, __WALL | WNOHANG);
        sched_yield();
    }
    return NULL;
}

static void a_host_that_reaps_everything_proves_nothing_wrong(void **state)
{
    fence_rig_t rig;
    reaper_t reaper = {.stop = false};
    assert_int_equal(pthread_create(&reaper.thread, NULL, reap_everything, &reaper), 0);
    fence_rig_driver(&rig, "hang", true);
    fence_and_recover(&rig);
    fence_rig_close(&rig);
    atomic_store(&reaper.stop, true);
    pthread_join(reaper.thread, NULL);
}

/* ---- A host that forks, and one that dies ---- */

typedef struct letter {
    pid_t child, agents[FBY_AGENT_KINDS];
    char directory[256];
} letter_t;

/* In a process of its own: the host, with a child that keeps all its descriptors. */
_Noreturn static void be_a_host(int out)
{
    fence_rig_t rig;
    letter_t letter = {0};
    fence_rig_driver(&rig, "hang", false);
    uint32_t count = host_rig_agents(letter.agents, FBY_AGENT_KINDS);
    letter.child = fork();
    if (letter.child == 0) {
        alarm(60);
    } else if (count == FBY_AGENT_KINDS) {
        snprintf(letter.directory, sizeof(letter.directory), "%s", rig.directory);
        (void)!write(out, &letter, sizeof(letter));
    }
    for (;;) {
        pause();
    }
}

static void agents_end_with_their_host_though_its_child_lives(void **state)
{
    int pipe_fds[2], agents[FBY_AGENT_KINDS];
    letter_t letter;
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t host = fork();
    if (host == 0) {
        be_a_host(pipe_fds[1]);
    }
    assert_int_equal(read(pipe_fds[0], &letter, sizeof(letter)), sizeof(letter));
    int child = fence_rig_pidfd(letter.child);
    for (uint32_t i = 0; i < FBY_AGENT_KINDS; i++) {
        agents[i] = fence_rig_pidfd(letter.agents[i]);
        assert_true(fence_rig_lives(agents[i]));
    }
    kill(host, SIGKILL);
    assert_int_equal(waitpid(host, NULL, 0), host);
    for (uint32_t i = 0; i < FBY_AGENT_KINDS; i++) {
        assert_true(fence_rig_ended(agents[i]));
        close(agents[i]);
    }
    assert_true(fence_rig_lives(child));
    kill(letter.child, SIGKILL);
    close(child);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    fixture_remove_directory(strdup(letter.directory));
}

static void agents_outlive_a_child_of_their_host(void **state)
{
    fence_rig_t rig;
    fence_rig_driver(&rig, "hang", true);
    for (int way = 0; way < 2; way++) {
        pid_t child = fork();
        if (child == 0) {
            if (way == 0) {
                _exit(0);
            }
            kill(getpid(), SIGKILL);
        }
        assert_int_equal(waitpid(child, NULL, 0), child);
        fence_rig_busy(&rig, 100);
    }
    fence_and_recover(&rig);
    fby_agent_stats_t stats;
    fby_agent_stats(rig.host.store, &stats);
    assert_int_equal(stats.deaths, 0);
    fence_rig_close(&rig);
}

/* ---- Nobody calls ---- */

static void idle_agents_and_their_supervisor_sleep(void **state)
{
    fence_rig_t rig;
    pid_t agents[8];
    unsigned long before[8] = {0}, supervisor;
    fence_rig_needs_no_tsan();
    fence_rig_driver(&rig, "none", true);
    fence_rig_busy(&rig, 100); /* a busy time leaves nothing behind that ticks */
    assert_int_equal(host_rig_get(&rig.host, 1, 1), FBY_E_MISSING);
    assert_int_equal(host_rig_agents(agents, 8), FBY_AGENT_KINDS);
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* until all have gone to sleep */
    for (uint32_t i = 0; i < FBY_AGENT_KINDS; i++) {
        before[i] = fence_rig_sleeps(agents[i], "");
        assert_true(before[i] > 0);
    }
    supervisor = fence_rig_sleeps(getpid(), "fby-agents");
    assert_true(supervisor > 0);
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    for (uint32_t i = 0; i < FBY_AGENT_KINDS; i++) {
        assert_int_equal(fence_rig_sleeps(agents[i], ""), before[i]);
    }
    assert_int_equal(fence_rig_sleeps(getpid(), "fby-agents"), supervisor);
    fence_rig_close(&rig);
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_that_ignores_its_children_proves_nothing_wrong),
        cmocka_unit_test(a_host_that_reaps_everything_proves_nothing_wrong),
        cmocka_unit_test(agents_end_with_their_host_though_its_child_lives),
        cmocka_unit_test(agents_outlive_a_child_of_their_host),
        cmocka_unit_test(idle_agents_and_their_supervisor_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
