/* test_sharing.c - one server, several clients and threads: what is whose, and what stays when they are many. */
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/client.h"
#include "client/served.h"

/* Handles of one client are nothing to another. */
static void handles_of_another_client_are_stale(void **state)
{
    (void)state;
    served_t served;
    rig_t rig, other;
    fby_hold_t hold, taken;
    fby_put_t put;
    void *slot;
    const void *address;
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    served_connect(&served, &other, RIG_PATIENCE_S);
    fby_seq_t *seq = rig_seq(&rig, 1, 100), *theirs = rig_seq(&other, 1, 100);
    rig_put_stored(&rig, seq, 4);
    fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    rig_wait(&rig, session);
    assert_int_equal(fby_lookup(rig.cache, seq, 0, &hold, NULL), 0);
    assert_int_equal(fby_put_begin(rig.cache, seq, 0, 6, &put, NULL, NULL, NULL), 0);

    assert_int_equal(fby_session_poll(other.cache, session, &snapshot), FBY_E_STALE);
    assert_int_equal(fby_session_take(other.cache, session, &taken), FBY_E_STALE);
    assert_int_equal(fby_session_release(other.cache, session), FBY_E_STALE);
    assert_int_equal(fby_hold_slots(other.cache, hold, 0, 0, 1, &address), FBY_E_STALE);
    assert_int_equal(fby_hold_release(other.cache, hold), FBY_E_STALE);
    assert_int_equal(fby_put_slots(other.cache, put, 0, 4, 5, &slot), FBY_E_STALE);
    assert_int_equal(fby_put_commit(other.cache, put, 100, NULL), FBY_E_STALE);
    assert_int_equal(fby_put_release(other.cache, put), FBY_E_STALE);
    /* but blocks are everybody's */
    assert_int_equal(rig_lookup(&other, theirs), 4);
    rig_take_and_verify(&rig, session, seq, 4);
    rig_verify_hold(&rig, hold, seq, 4);
    assert_int_equal(fby_hold_release(rig.cache, hold), 0);
    assert_int_equal(fby_put_release(rig.cache, put), 0);
    rig_quiet(&other);
    fby_seq_unref(seq);
    fby_seq_unref(theirs);
    fby_cache_close(rig.cache, 0, NULL);
    fby_cache_close(other.cache, 0, NULL);
    served_close(&served);
}

static void what_a_closed_client_held_is_free(void **state)
{
    (void)state;
    served_t served;
    rig_t rig, other;
    fby_hold_t hold;
    fby_put_t put;
    fby_subscription_t *subscription;
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    served_connect(&served, &other, RIG_PATIENCE_S);
    fby_seq_t *seq = rig_seq(&rig, 1, 100);
    rig_put_stored(&rig, seq, 4);
    rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(fby_lookup(rig.cache, seq, 0, &hold, NULL), 0);
    assert_int_equal(fby_put_begin(rig.cache, seq, 0, 6, &put, NULL, NULL, NULL), 0);
    assert_int_equal(fby_subscribe(rig.cache, 5, &subscription), 0);
    assert_int_equal(rig_stats(&other).puts_gauge, 1);
    fby_cache_close(rig.cache, 0, NULL);
    rig_quiet(&other);
    fby_unsubscribe(subscription);
    fby_seq_unref(seq);
    fby_cache_close(other.cache, 0, NULL);
    served_close(&served);
}

static bool has_connection(void)
{
    bool has = false;
    for (int fd = 0; fd < 1024; fd++) {
        int type = 0;
        socklen_t bytes = sizeof(type);
        has = has || (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_SEQPACKET);
    }
    return has;
}

/* A child keeps nothing of its parent's connection: the server would not see the parent's end as long as it lives. */
static void a_child_does_not_keep_the_connection(void **state)
{
    (void)state;
    served_t served;
    rig_t rig, other;
    int status, go[2];
    char byte = 0;
    fby_server_info_t info = {.size = sizeof(info)};
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    served_connect(&served, &other, RIG_PATIENCE_S);
    fby_seq_t *seq = rig_seq(&rig, 1, 100);
    assert_int_equal(pipe(go), 0);
    pid_t child = fork();
    if (child == 0) {
        fby_cache_t *own = NULL;
        close(go[1]);
        if (has_connection()) {
            _exit(32);
        }
        int rc = fby_cache_connected(rig.cache) == FBY_E_FORKED ? 0 : 1;
        rc += fby_lookup(rig.cache, seq, FBY_LOOKUP_ADVISORY, NULL, NULL) == FBY_E_FORKED ? 0 : 2;
        fby_seq_unref(seq);
        rc += fby_connect(served.path, NULL, &own) == 0 && fby_cache_connected(own) == 1 ? 0 : 4;
        rc += fby_cache_close(own, 0, NULL) == 0 ? 0 : 8;
        rc += read(go[0], &byte, 1) == 0 ? 0 : 16;
        _exit(rc);
    }
    close(go[0]);
    rig_put_stored(&rig, seq, 2);
    fby_cache_close(rig.cache, 0, NULL);
    RIG_AWAIT(fby_server_info(other.cache, &info, NULL, 0, NULL) == 0 && info.accepted == 3 && info.clients == 1);
    close(go[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    fby_seq_unref(seq);
    fby_cache_close(other.cache, 0, NULL);
    served_close(&served);
}

/* ---- Many ------------------------------------------------------------------------------------------------------- */

typedef struct worker {
    rig_t *rig;
    uint64_t seed;
} worker_t;

/* A prompt of its own, put and read back; one that all share, put by whoever is first. */
static void *work(void *arg)
{
    worker_t *worker = arg;
    rig_t *rig = worker->rig;
    for (int i = 0; i < 40; i++) {
        fby_seq_t *own = rig_seq(rig, worker->seed * 1000 + (uint64_t)i % 3, 4 * RIG_BLOCK_TOKENS + 1);
        fby_seq_t *shared = rig_seq(rig, 7, 3 * RIG_BLOCK_TOKENS + 1);
        rig_put_stored(rig, i % 2 == 0 ? own : shared, 3);
        fby_session_t session = rig_start(rig, own, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        uint64_t blocks = rig_wait(rig, session).delivered_tokens / RIG_BLOCK_TOKENS;
        rig_take_and_verify(rig, session, own, blocks);
        assert_true(rig_lookup(rig, shared) == 3 || i == 0);
        fby_seq_unref(own);
        fby_seq_unref(shared);
    }
    return NULL;
}

static void eight_threads_share_a_connection(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    pthread_t threads[8];
    worker_t workers[8];
    SERVED_OPEN(&served, "pool.bytes=4MiB", "pool.max_hold_bytes=4MiB", "pool.write_pinned_bytes=4MiB");
    served_connect(&served, &rig, RIG_PATIENCE_S);
    for (uint64_t i = 0; i < 8; i++) {
        workers[i] = (worker_t){&rig, i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
    }
    rig_quiet(&rig);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

static unsigned descriptors(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

static void one_session(rig_t *rig, uint64_t i)
{
    fby_seq_t *seq = rig_seq(rig, i % 50, 2 * RIG_BLOCK_TOKENS + 1);
    fby_session_t session = rig_start(rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    fby_hold_t hold;
    rig_wait(rig, session);
    if (i % 3 == 0) {
        assert_int_equal(fby_session_release(rig->cache, session), 0);
    } else {
        assert_int_equal(fby_session_take(rig->cache, session, &hold), 0);
        assert_int_equal(fby_hold_release(rig->cache, hold), 0);
    }
    fby_seq_unref(seq);
}

static void many_sessions_leave_nothing_behind(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    const char *asked = getenv("FOREBAY_SESSIONS");
    uint64_t sessions = asked != NULL ? (uint64_t)atoi(asked) : 10000;
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    for (uint64_t i = 0; i < sessions / 4; i++) {
        one_session(&rig, i);
    }
    unsigned open_before = descriptors();
    size_t before = mallinfo2().uordblks;
    for (uint64_t i = 0; i < sessions; i++) {
        one_session(&rig, i);
    }
    assert_true(mallinfo2().uordblks <= before + 16 * 1024);
    assert_int_equal(descriptors(), open_before);
    rig_quiet(&rig);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

/* Each with its own server: nothing of a connection stays, not even of one that was lost. */
static void many_connections_leave_nothing_behind(void **state)
{
    (void)state;
    served_t served;
    rig_t rig, last;
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &last, RIG_PATIENCE_S);
    unsigned open_before = descriptors();
    for (uint64_t i = 0; i < 300; i++) {
        served_connect(&served, &rig, RIG_PATIENCE_S);
        one_session(&rig, i);
        assert_int_equal(fby_cache_close(rig.cache, 0, NULL), 0);
    }
    assert_int_equal(descriptors(), open_before);
    for (int i = 0; i < 5; i++) {
        served_kill(&served);
        SERVED_START(&served, NULL);
        served_await_back(&last);
    }
    assert_int_equal(descriptors(), open_before);
    rig_quiet(&last);
    fby_cache_close(last.cache, 0, NULL);
    served_close(&served);
}

/* The server's descriptor finds no room here: that call fails, and nothing else is lost. */
static void without_descriptors_only_that_call_fails(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    fby_hold_t hold;
    fby_subscription_t *subscription;
    struct rlimit usual, none;
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    fby_seq_t *seq = rig_seq(&rig, 1, 40);
    rig_put_stored(&rig, seq, 2);
    fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(fby_lookup(rig.cache, seq, 0, &hold, NULL), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    int lowest = dup(0);
    close(lowest);
    none = (struct rlimit){(rlim_t)lowest, usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int refused = fby_session_event_fd(rig.cache, session);
    int connected = fby_cache_connected(rig.cache);
    none.rlim_cur += 2; /* what is of this process, but not what comes */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int unsubscribed = fby_subscribe(rig.cache, 4, &subscription);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    assert_int_equal(refused, -EMFILE);
    assert_int_equal(connected, 1);
    assert_int_equal(unsubscribed, -EMFILE);
    assert_int_equal(fby_hold_release(rig.cache, hold), 0);
    int fd = fby_session_event_fd(rig.cache, session);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(fby_session_release(rig.cache, session), 0);
    fby_server_info_t info = {.size = sizeof(info)};
    fby_server_client_t client[1];
    assert_int_equal(fby_server_info(rig.cache, &info, client, 1, NULL), 0);
    assert_int_equal(client[0].subscriptions, 0);
    fby_seq_unref(seq);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

static void a_closed_cache_leaves_no_connection_behind(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    fby_subscription_t *subscription;
    SERVED_OPEN(&served, NULL);
    unsigned open_before = descriptors();
    served_connect(&served, &rig, RIG_PATIENCE_S);
    assert_int_equal(fby_subscribe(rig.cache, 4, &subscription), 0);
    fby_cache_close(rig.cache, 0, NULL);
    fby_unsubscribe(subscription);
    assert_int_equal(descriptors(), open_before);
    /* closed while the server is away, which a thread was looking at when it was lost */
    served_connect(&served, &rig, RIG_PATIENCE_S);
    fby_client_t *client = rig.cache->client;
    (void)fby_client_read(client);
    fby_seq_t *seq = rig_seq(&rig, 1, 40);
    served_kill(&served);
    open_before--; /* its pipes */
    open_before--;
    (void)rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    fby_client_unread(client);
    fby_seq_unref(seq);
    fby_cache_close(rig.cache, 0, NULL);
    assert_int_equal(descriptors(), open_before);
    served_close(&served);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles_of_another_client_are_stale),
        cmocka_unit_test(what_a_closed_client_held_is_free),
        cmocka_unit_test(a_child_does_not_keep_the_connection),
        cmocka_unit_test(eight_threads_share_a_connection),
        cmocka_unit_test(many_sessions_leave_nothing_behind),
        cmocka_unit_test(many_connections_leave_nothing_behind),
        cmocka_unit_test(without_descriptors_only_that_call_fails),
        cmocka_unit_test(a_closed_cache_leaves_no_connection_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
