/* The fence: after it no byte of the pool changes, whatever the client left behind, and before it no call returns. */
#include "fence_rig.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRONG = 0xBB, PAINT = 0xEE, OTHER_PAINT = 0xA5, GROUP_1 = 1 };

static bool is_back(const fby_agent_stats_t *stats, uint64_t starts)
{
    return stats->starts >= starts && stats->processes == FBY_AGENT_KINDS;
}

static void repaint(const fence_rig_t *rig)
{
    memset(rig->host.region.base, OTHER_PAINT, rig->host.region.bytes);
}

/* Fences a hanging get and expects that the store comes back. */
static void fence_a_hang(fence_rig_t *rig)
{
    host_rig_call_t call;
    host_rig_begin_get(&call, &rig->host, 1, 1);
    fence_rig_mark(rig, "in");
    fence_rig_fence(&call);
    assert_int_equal(host_rig_end(&call), FBY_E_TIMEOUT);
}

/* ---- Who could write after the agent's death ---- */

/* Three agents have a child each; they mark in turns. The read agent is fenced, its child goes on where no namespace ended
   it: it must have nothing to write through. */
static void a_grandchild_writes_nothing(const char *act, bool namespaced)
{
    fence_rig_t rig;
    fence_rig_needs_no_tsan();
    fence_rig_driver(&rig, act, namespaced);
    pid_t agents[8];
    assert_int_equal(host_rig_agents(agents, 8), FBY_AGENT_KINDS);
    assert_int_equal(fence_rig_depth(agents[0]), namespaced ? 2 : 1);
    pid_t child = (pid_t)fence_rig_mark(&rig, "grandchild");
    char rounds[32];
    snprintf(rounds, sizeof(rounds), "round-%d", (int)child);
    fence_rig_grown(&rig, rounds, 5);
    fence_rig_painted(&rig, PAINT);
    int end = fence_rig_pidfd(child);
    for (uint32_t i = 0; i < FBY_AGENT_KINDS; i++) {
        kill(agents[i], SIGKILL);
    }
    if (namespaced) {
        assert_true(fence_rig_ended(end));
    } else {
        fence_rig_grown(&rig, rounds, 5); /* alive, and trying */
        assert_true(fence_rig_lives(end));
    }
    fence_rig_painted(&rig, PAINT);
    fence_rig_close(&rig);
    assert_true(fence_rig_ended(end));
    close(end);
}

static void a_child_from_before_the_pool_ends_with_its_namespace(void **state)
{
    a_grandchild_writes_nothing("fork", true);
}

static void a_child_from_before_the_pool_has_nothing_to_write_through(void **state)
{
    a_grandchild_writes_nothing("fork", false);
}

static void a_double_fork_ends_with_its_namespace(void **state)
{
    a_grandchild_writes_nothing("fork_double", true);
}

static void a_double_fork_has_nothing_to_write_through(void **state)
{
    a_grandchild_writes_nothing("fork_double", false);
}

static void no_way_leads_to_another_process(void **state)
{
    for (int namespaced = 0; namespaced < 2; namespaced++) {
        fence_rig_t rig;
        fence_rig_driver(&rig, "escape", namespaced == 0);
        assert_int_equal(host_rig_get(&rig.host, 1, 1), 0);
        fence_rig_close(&rig);
        fence_rig_driver(&rig, "no_uring", namespaced == 0);
        assert_int_equal(host_rig_get(&rig.host, 1, 1), 0);
        fence_rig_close(&rig);
    }
}

static void a_late_writer_ends_with_the_fence(void **state)
{
    fence_rig_t rig;
    fence_rig_driver(&rig, "late", false);
    assert_int_equal(host_rig_get(&rig.host, 1, 1), FBY_E_CONNECTION);
    fence_rig_grown(&rig, "round", 64); /* it does write: everywhere */
    const uint8_t *slot = host_rig_slot(&rig.host, GROUP_1, 7);
    assert_int_equal(*slot, WRONG);
    fence_a_hang(&rig);
    repaint(&rig);
    host_rig_await(&rig.host, is_back, FBY_AGENT_KINDS + 1);
    fence_rig_busy(&rig, 200);
    assert_int_equal(host_rig_put(&rig.host, 2, 0), rig.host.spec.object_bytes[0]);
    memset(host_rig_slot(&rig.host, 0, 0), OTHER_PAINT, rig.host.spec.slot_bytes[0]);
    fence_rig_painted(&rig, OTHER_PAINT);
    fence_rig_close(&rig);
}

/* ---- Deaths that take their time ---- */

#define FREEZER "/sys/fs/cgroup/freezer"

static bool write_text(const char *directory, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "we");
    bool written = file != NULL && fputs(text, file) >= 0;
    return file != NULL && fclose(file) == 0 && written;
}

static bool reads_text(const char *directory, const char *name, const char *text)
{
    char path[256], line[64] = "";
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "re");
    bool read = file != NULL && fgets(line, sizeof(line), file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    return read && strncmp(line, text, strlen(text)) == 0;
}

/* The version 1 freezer holds a process that was killed until it thaws: no signal wakes it, as in D state. A guard thaws it
   when this process has ended, however that came. */
typedef struct freezer {
    char directory[128];
    int end; /* the guard's signal: its other side closes with us */
    pid_t guard;
} freezer_t;

_Noreturn static void guard_freezer(const freezer_t *freezer, int end)
{
    char byte;
    (void)!read(end, &byte, 1);
    write_text(freezer->directory, "freezer.state", "THAWED\n");
    for (int i = 0; i < 1000 && rmdir(freezer->directory) != 0; i++) {
        fence_rig_pause();
    }
    _exit(0);
}

static bool freezer_make(freezer_t *freezer)
{
    int ends[2];
    snprintf(freezer->directory, sizeof(freezer->directory), "%s/forebay-test-%d", FREEZER, (int)getpid());
    if (access(FREEZER "/tasks", W_OK) != 0 || mkdir(freezer->directory, 0700) != 0) {
        return false;
    }
    assert_int_equal(pipe(ends), 0);
    freezer->guard = fork();
    if (freezer->guard == 0) {
        close(ends[1]);
        guard_freezer(freezer, ends[0]);
    }
    close(ends[0]);
    freezer->end = ends[1];
    return true;
}

static void freezer_remove(freezer_t *freezer)
{
    close(freezer->end);
    assert_int_equal(waitpid(freezer->guard, NULL, 0), freezer->guard);
    assert_int_not_equal(access(freezer->directory, F_OK), 0);
}

static void freeze(const freezer_t *freezer, pid_t pid)
{
    const char *directory = freezer->directory;
    char text[32];
    snprintf(text, sizeof(text), "%d\n", (int)pid);
    assert_true(write_text(directory, "cgroup.procs", text));
    for (int i = 0; i < 4000 && !reads_text(directory, "freezer.state", "FROZEN"); i++) {
        assert_true(write_text(directory, "freezer.state", "FROZEN\n"));
        fence_rig_pause();
    }
    assert_true(reads_text(directory, "freezer.state", "FROZEN"));
}

/* A get that says when it has returned. */
typedef struct told {
    host_rig_call_t call;
    _Atomic bool ended;
} told_t;

static void *get_and_tell(void *arg)
{
    told_t *told = arg;
    fby_agent_on_behalf(&told->call);
    int rc = fby_store_agent.get(told->call.rig->store, &told->call.op, 1);
    told->call.result = rc < 0 ? rc : told->call.op.result;
    atomic_store(&told->ended, true);
    return NULL;
}

static void told_begin(told_t *told, fence_rig_t *rig)
{
    told->call = (host_rig_call_t){.rig = &rig->host};
    told->call.op = fixture_op(&rig->host.spec, 1, 0, host_rig_slot(&rig->host, 0, 1));
    atomic_init(&told->ended, false);
    assert_int_equal(pthread_create(&told->call.thread, NULL, get_and_tell, told), 0);
}

static void a_call_outlasts_a_death_that_is_not_done(bool namespaced)
{
    fence_rig_t rig;
    freezer_t freezer;
    if (!freezer_make(&freezer)) {
        print_message("skipped: no version 1 freezer at %s that could be written\n", FREEZER);
        skip();
    }
    fence_rig_driver(&rig, "hang", namespaced);
    told_t told;
    told_begin(&told, &rig);
    pid_t agent = (pid_t)fence_rig_mark(&rig, "in");
    int end = fence_rig_pidfd(agent);
    freeze(&freezer, agent);
    fence_rig_fence(&told.call);
    /* The others work, and after some patience another agent sits on its seat: the slot is still the dead one's. */
    fence_rig_busy(&rig, 100);
    host_rig_await(&rig.host, is_back, FBY_AGENT_KINDS + 1);
    assert_int_equal(host_rig_put(&rig.host, 2, 0), rig.host.spec.object_bytes[0]);
    assert_false(atomic_load(&told.ended));
    assert_true(fence_rig_lives(end));
    assert_true(write_text(freezer.directory, "freezer.state", "THAWED\n"));
    assert_int_equal(host_rig_end(&told.call), FBY_E_TIMEOUT);
    assert_false(fence_rig_lives(end));
    close(end);
    fence_rig_close(&rig);
    freezer_remove(&freezer);
}

static void a_frozen_agent_keeps_its_call_until_it_is_dead(void **state)
{
    a_call_outlasts_a_death_that_is_not_done(false);
}

static void a_frozen_namespace_keeps_its_call_until_it_is_dead(void **state)
{
    a_call_outlasts_a_death_that_is_not_done(true);
}

static void a_stopped_agent_is_killed_when_it_does_not_answer_a_ping(void **state)
{
    fence_rig_t rig;
    host_rig_call_t call;
    fence_rig_driver(&rig, "hang", false);
    host_rig_begin_get(&call, &rig.host, 1, 1);
    pid_t agent = (pid_t)fence_rig_mark(&rig, "in");
    assert_int_equal(kill(agent, SIGSTOP), 0);
    assert_int_equal(host_rig_end(&call), -ECANCELED); /* nobody's limit: its work may be begun once more */
    fby_agent_stats_t stats;
    fby_agent_stats(rig.host.store, &stats);
    assert_int_equal(stats.kills, 1);
    assert_string_equal(stats.last, "read agent: no answer to a ping");
    host_rig_await(&rig.host, is_back, FBY_AGENT_KINDS + 1);
    fence_rig_close(&rig);
}

/* ---- A limit, and several calls under it ---- */

enum { PIECES_KEYS = 600 }; /* more than a ring holds */

typedef struct long_call {
    fence_rig_t *rig;
    _Atomic bool passed;
    int64_t first, last, next;
} long_call_t;

static void *get_in_pieces(void *arg)
{
    static fby_store_op_t ops[PIECES_KEYS];
    long_call_t *call = arg;
    for (uint32_t i = 0; i < PIECES_KEYS; i++) {
        ops[i] = fixture_op(&call->rig->host.spec, i, 0, host_rig_slot(&call->rig->host, 0, i % HOST_RIG_SLOTS));
    }
    fby_agent_on_behalf(call);
    fby_agent_obey(&call->passed);
    fby_store_agent.get(call->rig->host.store, ops, PIECES_KEYS);
    call->first = ops[0].result;
    call->last = ops[PIECES_KEYS - 1].result;
    fby_store_agent.get(call->rig->host.store, ops, 1); /* no agent ever sees it */
    call->next = ops[0].result;
    return NULL;
}

static void a_limit_ends_also_the_calls_that_follow(void **state)
{
    fence_rig_t rig;
    pthread_t thread;
    fence_rig_driver(&rig, "hang", true);
    long_call_t call = {.rig = &rig};
    assert_int_equal(pthread_create(&thread, NULL, get_in_pieces, &call), 0);
    fence_rig_mark(&rig, "in");
    fence_rig_unmark(&rig, "in");
    atomic_store(&call.passed, true);
    fby_agent_fence(rig.host.store, &call);
    pthread_join(thread, NULL);
    assert_int_equal(call.first, FBY_E_TIMEOUT);
    assert_int_equal(call.last, FBY_E_TIMEOUT);
    assert_int_equal(call.next, FBY_E_TIMEOUT);
    fby_agent_stats_t stats;
    fby_agent_stats(rig.host.store, &stats);
    assert_int_equal(stats.kills, 1);
    assert_int_equal(fence_rig_marked(&rig, "in"), -1);
    fence_rig_close(&rig);
}

/* ---- Agents that cannot be proven ---- */

static bool one_is_unproven(const fby_agent_stats_t *stats, uint64_t count)
{
    return stats->unproven == count;
}

/* Neither filter nor namespace: the call stays, and so does its thread. What it needs lives as long as the process. */
static void an_unguarded_agent_is_never_proven(void **state)
{
    static fence_rig_t rig;
    static told_t told;
    fence_rig_agent(&rig, "weak", false);
    told_begin(&told, &rig);
    pthread_detach(told.call.thread);
    fence_rig_fence(&told.call);
    host_rig_await(&rig.host, one_is_unproven, 1);
    host_rig_await(&rig.host, is_back, FBY_AGENT_KINDS + 1);
    fence_rig_busy(&rig, 100);
    assert_false(atomic_load(&told.ended));
    fby_store_agent.close(rig.host.store); /* returns, and leaves to the call what it stands on */
    assert_false(atomic_load(&told.ended));
    fence_rig_forget(&rig);
}

static void a_namespace_proves_what_no_filter_guards(void **state)
{
    fence_rig_t rig;
    host_rig_call_t call;
    fby_agent_stats_t stats;
    fence_rig_agent(&rig, "weak", true);
    host_rig_begin_get(&call, &rig.host, 1, 1);
    fence_rig_fence(&call);
    assert_int_equal(host_rig_end(&call), FBY_E_TIMEOUT);
    fby_agent_stats(rig.host.store, &stats);
    assert_int_equal(stats.unproven, 0);
    fence_rig_close(&rig);
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_from_before_the_pool_ends_with_its_namespace),
        cmocka_unit_test(a_child_from_before_the_pool_has_nothing_to_write_through),
        cmocka_unit_test(a_double_fork_ends_with_its_namespace),
        cmocka_unit_test(a_double_fork_has_nothing_to_write_through),
        cmocka_unit_test(no_way_leads_to_another_process),
        cmocka_unit_test(a_late_writer_ends_with_the_fence),
        cmocka_unit_test(a_frozen_agent_keeps_its_call_until_it_is_dead),
        cmocka_unit_test(a_frozen_namespace_keeps_its_call_until_it_is_dead),
        cmocka_unit_test(a_stopped_agent_is_killed_when_it_does_not_answer_a_ping),
        cmocka_unit_test(a_limit_ends_also_the_calls_that_follow),
        cmocka_unit_test(an_unguarded_agent_is_never_proven),
        cmocka_unit_test(a_namespace_proves_what_no_filter_guards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
