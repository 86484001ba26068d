/* An agent's life: the pool it maps, pings, a close that waits for the lanes, and a runtime that is gone. */
#include "agent/side.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/rig.h"
#include "unit.h"

static fby_agent_t *accepted(int control_fd)
{
    char error[512];
    fby_agent_t *agent;
    if (fby_agent_accept(control_fd, &agent, error, sizeof(error)) != 0) {
        _exit(90);
    }
    return agent;
}

static void *mapped(fby_agent_t *agent)
{
    void *pool;
    size_t bytes;
    if (fby_agent_map(agent, &pool, &bytes) != 0) {
        _exit(91);
    }
    return pool;
}

static void say_ready(fby_agent_t *agent)
{
    const fby_store_caps_t caps = {.size = sizeof(caps), .max_batch = 17};
    if (fby_agent_ready(agent, &caps, "a client 1.2") != 0) {
        _exit(92);
    }
}

static void start(rig_t *rig, int (*body)(int control_fd), fby_wire_ready_t *ready)
{
    rig_open(rig);
    rig_send(rig, FBY_WIRE_FDS);
    rig_fork(rig, body);
    rig_receive_ready(rig, ready);
}

/* ---- The pool ---- */

static bool any_memory_file_is_open(void)
{
    for (int fd = 0; fd < 256; fd++) {
        char path[64], target[64] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof(target) - 1) > 0 && strncmp(target, "/memfd:", 7) == 0) {
            return true;
        }
    }
    return false;
}

/* Closes what it has from the test, so that only the agent's own count. */
static rig_t *inherited;

static int map_and_fork(int control_fd)
{
    fby_agent_t *agent = accepted(control_fd);
    close(inherited->pool_fd);
    close(inherited->fds[0]);
    uint8_t *pool = mapped(agent);
    void *again;
    size_t bytes;
    bool twice = fby_agent_map(agent, &again, &bytes) == -EALREADY;
    pool[5] = 55;
    pid_t pid = fork();
    if (pid == 0) {
        unsigned char resident;
        _exit(mincore(pool, 1, &resident) < 0 && errno == ENOMEM ? 0 : 1); /* not mapped here */
    }
    int status = 1;
    waitpid(pid, &status, 0);
    say_ready(agent);
    return !twice ? 2 : any_memory_file_is_open() ? 3 : status != 0;
}

static void only_the_agent_itself_has_the_pool(void **state)
{
    rig_t rig;
    fby_wire_ready_t ready;
    inherited = &rig;
    start(&rig, map_and_fork, &ready);
    assert_int_equal(rig_wait(&rig), 0);
    assert_int_equal(rig.pool[5], 55);
    rig_close(&rig);
}

/* ---- What the runtime is told ---- */

static int confine_and_ready(int control_fd)
{
    fby_agent_t *agent = accepted(control_fd);
    if (fby_agent_confine(agent, fby_agent_options(agent)[0][0] == 'u') != 0) {
        return 1;
    }
    mapped(agent);
    say_ready(agent);
    return 0;
}

static void ready_says_what_guards_the_fence(void **state)
{
    rig_t rig;
    fby_wire_ready_t ready;
    start(&rig, confine_and_ready, &ready);
    assert_int_equal(rig.confined, FBY_CONFINED_SECCOMP | FBY_CONFINED_NO_FORK);
    assert_string_equal(ready.version, "a client 1.2");
    assert_int_equal(ready.caps.max_batch, 17);
    assert_int_equal(rig_wait(&rig), 0);
    rig_close(&rig);

    rig_open(&rig);
    rig_texts(&rig, (const char *const[]){"mem", "uring", NULL});
    rig_send(&rig, FBY_WIRE_FDS);
    rig_fork(&rig, confine_and_ready);
    rig_receive_ready(&rig, &ready);
    assert_int_equal(rig.confined, FBY_CONFINED_SECCOMP | FBY_CONFINED_NO_FORK | FBY_CONFINED_URING);
    assert_int_equal(rig_wait(&rig), 0);
    rig_close(&rig);
}

static int fail_at_once(int control_fd)
{
    fby_agent_fail(accepted(control_fd), FBY_E_CONNECTION, "127.0.0.1:1 cannot be reached");
    return 4;
}

static void a_failure_reaches_the_runtime(void **state)
{
    rig_t rig;
    fby_wire_failed_t failed;
    rig_open(&rig);
    rig_send(&rig, FBY_WIRE_FDS);
    rig_fork(&rig, fail_at_once);
    assert_int_equal(rig_receive(&rig, &failed, sizeof(failed)), sizeof(failed));
    assert_int_equal(failed.head.type, FBY_WIRE_FAILED);
    assert_int_equal(failed.code, FBY_E_CONNECTION);
    assert_string_equal(failed.text, "127.0.0.1:1 cannot be reached");
    assert_int_equal(rig_wait(&rig), 4);
    rig_close(&rig);
}

/* ---- The end ---- */

static void *serve_lane(void *arg)
{
    fby_agent_batch_t batch;
    while (fby_agent_take(arg, 1, &batch) == 0) {
        batch.ops[0].result = 1;
        fby_agent_answer(arg, 1, &batch);
    }
    return NULL;
}

static void serve_in_thread(fby_agent_t *agent)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve_lane, agent) != 0) {
        _exit(93);
    }
    pthread_detach(thread);
}

/* Serves lane 1 alone: lane 0 never has a thread. */
static int serve_one(int control_fd)
{
    fby_agent_t *agent = accepted(control_fd);
    mapped(agent);
    serve_in_thread(agent);
    say_ready(agent);
    fby_agent_finished(agent);
    return 10;
}

static void pings_are_answered(void **state)
{
    rig_t rig;
    fby_wire_ready_t ready;
    fby_wire_head_t head;
    start(&rig, serve_one, &ready);
    for (int i = 0; i < 3; i++) {
        rig_say(&rig, FBY_WIRE_PING);
        assert_int_equal(rig_receive(&rig, &head, sizeof(head)), sizeof(head));
        assert_int_equal(head.magic, FBY_WIRE_MAGIC);
        assert_int_equal(head.type, FBY_WIRE_PONG);
        assert_int_equal(head.bytes, sizeof(head));
    }
    rig_close(&rig);
}

static void call_once(rig_t *rig)
{
    int64_t result;
    fby_ring_entry_t entry = rig_entry(FBY_RING_EXISTS, "a", FBY_RING_NO_BUFFER, 0);
    assert_true(rig_call(rig, 1, &entry, 1, &result));
    assert_int_equal(result, 1);
}

static void close_ends_lanes_that_sleep(void **state)
{
    for (int round = 0; round < 20; round++) {
        rig_t rig;
        fby_wire_ready_t ready;
        start(&rig, serve_one, &ready);
        if (round % 2 != 0) {
            call_once(&rig);
        }
        rig_say(&rig, FBY_WIRE_CLOSE);
        assert_int_equal(rig_wait(&rig), 10);
        rig_close(&rig);
    }
}

typedef struct slow {
    fby_agent_t *agent;
    _Atomic uint8_t *pool; /* 0: the call has begun; 1: it may end, says the test; 2: it ended */
} slow_t;

static void *serve_slowly(void *arg)
{
    slow_t *slow = arg;
    fby_agent_batch_t batch;
    if (fby_agent_take(slow->agent, 0, &batch) != 0) {
        _exit(94);
    }
    slow->pool[0] = 1;
    while (slow->pool[1] == 0) {
        sched_yield();
    }
    slow->pool[2] = 1;
    fby_agent_answer(slow->agent, 0, &batch);
    if (fby_agent_take(slow->agent, 0, &batch) != -ESHUTDOWN) {
        _exit(95);
    }
    return NULL;
}

static int serve_two(int control_fd)
{
    static slow_t slow; /* the thread may outlive this function */
    pthread_t thread;
    slow.agent = accepted(control_fd);
    slow.pool = mapped(slow.agent);
    serve_in_thread(slow.agent);
    if (pthread_create(&thread, NULL, serve_slowly, &slow) != 0) {
        return 93;
    }
    pthread_detach(thread);
    say_ready(slow.agent);
    fby_agent_finished(slow.agent);
    return slow.pool[2] != 0 ? 10 : 96;
}

static void close_waits_for_a_call_that_runs(void **state)
{
    rig_t rig;
    fby_wire_ready_t ready;
    fby_wire_head_t head;
    start(&rig, serve_two, &ready);
    _Atomic uint8_t *pool = (_Atomic uint8_t *)rig.pool;
    fby_ring_entry_t entry = rig_entry(FBY_RING_EXISTS, "a", FBY_RING_NO_BUFFER, 0);
    fby_ring_submit(&rig.lanes[0], 1, &entry, 1);
    while (pool[0] == 0) {
        sched_yield();
    }
    rig_say(&rig, FBY_WIRE_CLOSE);
    rig_say(&rig, FBY_WIRE_PING); /* its answer proves that CLOSE was heard */
    assert_int_equal(rig_receive(&rig, &head, sizeof(head)), sizeof(head));
    pool[1] = 1;
    assert_int_equal(rig_wait(&rig), 10);
    assert_int_equal(fby_ring_answered(&rig.lanes[0], 1), 1);
    rig_close(&rig);
}

static void a_closed_control_socket_ends_the_process(void **state)
{
    rig_t rig;
    fby_wire_ready_t ready;
    start(&rig, serve_one, &ready);
    close(rig.host);
    rig.host = -1;
    assert_int_equal(rig_wait(&rig), 0);
    rig_close(&rig);
}

static void a_message_that_is_none_ends_the_process(void **state)
{
    rig_t rig;
    fby_wire_ready_t ready;
    start(&rig, serve_one, &ready);
    assert_int_equal(send(rig.host, "rubbish", 7, 0), 7);
    assert_int_equal(rig_wait(&rig), 1);
    rig_close(&rig);
    start(&rig, serve_one, &ready);
    rig_say(&rig, FBY_WIRE_HELLO);
    assert_int_equal(rig_wait(&rig), 1);
    rig_close(&rig);
}

/* The runtime in a process of its own: it starts an agent and is killed. The test keeps the runtime's end of the
   control socket open, so that only the pidfd can tell the agent. */
static void the_death_of_the_runtime_ends_the_agent(void **state)
{
    rig_t rig;
    fby_wire_ready_t ready;
    int alive[2], status;
    char byte;
    assert_int_equal(pipe2(alive, O_CLOEXEC), 0);
    rig_open(&rig);
    pid_t runtime = fork();
    if (runtime == 0) {
        close(alive[0]);
        rig.fds[1] = (int)syscall(SYS_pidfd_open, getpid(), 0);
        rig_send(&rig, FBY_WIRE_FDS);
        rig_fork(&rig, serve_one);
        close(alive[1]); /* the agent has the last one */
        for (;;) {
            pause();
        }
    }
    close(alive[1]);
    rig_receive_ready(&rig, &ready);
    kill(runtime, SIGKILL);
    assert_int_equal(waitpid(runtime, &status, 0), runtime);
    assert_int_equal(read(alive[0], &byte, 1), 0);
    close(alive[0]);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_agent_itself_has_the_pool),
        cmocka_unit_test(ready_says_what_guards_the_fence),
        cmocka_unit_test(a_failure_reaches_the_runtime),
        cmocka_unit_test(pings_are_answered),
        cmocka_unit_test(close_ends_lanes_that_sleep),
        cmocka_unit_test(close_waits_for_a_call_that_runs),
        cmocka_unit_test(a_closed_control_socket_ends_the_process),
        cmocka_unit_test(a_message_that_is_none_ends_the_process),
        cmocka_unit_test(the_death_of_the_runtime_ends_the_agent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
