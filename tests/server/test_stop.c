/* test_stop.c - the end of a server: sessions under way are answered and taken, nothing new begins, systemd is told. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/call.h"
#include "wire.h"

static void *stop_it(void *arg)
{
    served_stop(arg, RIG_PATIENCE_S);
    return NULL;
}

static bool is_stopping(served_t *served)
{
    return served_info(served).stopping != 0;
}

static void sessions_under_way_are_answered_and_taken(void **state)
{
    served_t served;
    pthread_t stopper;
    fby_session_t session, late;
    fby_hold_t hold;
    fby_put_t put;
    uint64_t tokens, from, end;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&served.rig, seq, 0, 32);
    rig_script_block(&served.rig, seq, 31, "get", "hang");
    assert_int_equal(wire_start(wire, seq, 1, 0, &session), 0);
    assert_int_equal(pthread_create(&stopper, NULL, stop_it, &served), 0);
    RIG_AWAIT(is_stopping(&served));
    assert_int_equal(wire_start(wire, seq, 1, 32, &late), FBY_E_CLOSED);
    assert_memory_equal(wire->answer.text, "the server is stopping", wire->answer.text_bytes);
    assert_int_equal(wire_lookup(wire, seq, 1, 0, &hold, &tokens), FBY_E_CLOSED);
    assert_int_equal(wire_put(wire, seq, 1, 32, &put, &from, &end), FBY_E_CLOSED);
    served_unhang(&served);
    assert_int_equal(wire_await_answer(wire, session).delivered_blocks, 32);
    assert_int_equal(wire_object(wire, FBY_REQUEST_TAKE, session, 0, 0, 0), 0);
    wire_await_end(wire);
    assert_int_equal(pthread_join(stopper, NULL), 0);
    assert_int_equal(access(served.path, F_OK), -1);
    rig_quiet(&served.rig);
    fby_seq_unref(seq);
    wire_close(wire);
    served_serve(&served);
    served_close(&served);
}

/* A session that gets nothing is over without being taken. */
static void a_session_that_ends_by_itself_is_not_waited_for(void **state)
{
    served_t served;
    pthread_t stopper;
    fby_session_t session;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_script(&served.rig, "exists:*:hang");
    assert_int_equal(wire_start(wire, seq, 1, 0, &session), 0);
    assert_int_equal(pthread_create(&stopper, NULL, stop_it, &served), 0);
    RIG_AWAIT(is_stopping(&served));
    served_unhang(&served);
    wire_await_end(wire);
    assert_int_equal(pthread_join(stopper, NULL), 0);
    fby_seq_unref(seq);
    wire_close(wire);
    served_serve(&served);
    served_close(&served);
}

static void at_the_limit_it_is_over(void **state)
{
    served_t served;
    fby_session_t session;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&served.rig, seq, 0, 32);
    rig_script(&served.rig, "get:*:hang");
    assert_int_equal(wire_start(wire, seq, 1, 0, &session), 0);
    served_stop(&served, 0.05);
    wire_await_end(wire);
    served_unhang(&served);
    rig_quiet(&served.rig);
    assert_int_equal(rig_stats(&served.rig).sessions_by_reason[FBY_REASON_ABORT], 1);
    fby_seq_unref(seq);
    wire_close(wire);
    served_serve(&served);
    served_close(&served);
}

static void resets_that_raise_the_epoch_keep_nobody_waiting(void **state)
{
    served_t served;
    enum { RESETS = 20 };
    wire_t *wire[RESETS];
    const fby_msg_object_t bump = {.flags = 1};
    uint64_t sum = 0;
    SERVED_OPEN(&served, NULL);
    for (int i = 0; i < RESETS; i++) {
        wire[i] = wire_connect(served.path);
    }
    for (int i = 0; i < RESETS; i++) {
        size_t length = fby_request_build(FBY_REQUEST_RESET, 1, &bump, NULL, 0, wire[i]->out);
        wire_send(wire[i], wire[i]->out, length);
    }
    wire_close(wire[RESETS - 1]); /* its answer finds nobody */
    for (int i = 0; i < RESETS - 1; i++) {
        struct pollfd one = {.fd = wire[i]->socket, .events = POLLIN};
        assert_int_equal(poll(&one, 1, 20000), 1);
        ssize_t n = fby_message_receive(wire[i]->socket, wire[i]->in, FBY_MSG_MOST, wire[i]->fd, &wire[i]->fds, 0);
        assert_true(fby_answer_parse(FBY_REQUEST_RESET, wire[i]->in, (size_t)n, &wire[i]->answer));
        assert_true(wire[i]->answer.code >= 0);
        sum += ((const fby_msg_keyring_t *)wire[i]->answer.body)->epoch;
        assert_int_equal(wire_call(wire[i], FBY_REQUEST_RESETTING, NULL, NULL, 0), FBY_RESET_DONE);
        wire_close(wire[i]);
    }
    assert_true(sum >= RESETS);
    served_close(&served);
}

/* ---- A store that does not come back ---------------------------------------------------------------------------- */

static pthread_mutex_t raising = PTHREAD_MUTEX_INITIALIZER;

static _Atomic int raises;

static int hang_in_raise(fby_store_t *store, uint64_t epoch)
{
    atomic_fetch_add(&raises, 1);
    pthread_mutex_lock(&raising);
    pthread_mutex_unlock(&raising);
    return 0;
}

static void resets_of_those_who_went_are_not_done(void **state)
{
    served_t served;
    fby_store_driver_t hanging;
    const fby_msg_object_t bump = {.flags = 1};
    SERVED_OPEN(&served, NULL);
    fby_cache_t *cache = served.rig.cache;
    hanging = *cache->runtime->driver;
    hanging.raise_epoch = hang_in_raise;
    cache->runtime->driver = &hanging;
    atomic_store(&raises, 0);
    pthread_mutex_lock(&raising);
    for (int i = 0; i < 20; i++) {
        wire_t *wire = wire_connect(served.path);
        size_t length = fby_request_build(FBY_REQUEST_RESET, 1, &bump, NULL, 0, wire->out);
        wire_send(wire, wire->out, length);
        RIG_AWAIT(atomic_load(&raises) == 1);
        wire_close(wire);
    }
    RIG_AWAIT(served_info(&served).clients == 0 && served_info(&served).accepted == 20);
    pthread_mutex_unlock(&raising);
    wire_t *last = wire_connect(served.path);
    assert_true(wire_call(last, FBY_REQUEST_RESET, &bump, NULL, 0) >= 0);
    assert_int_equal(atomic_load(&raises), 2);
    wire_close(last);
    served_close(&served);
}

static void an_epoch_that_cannot_be_raised_does_not_keep_the_cache_open(void **state)
{
    served_t served;
    fby_store_driver_t hanging;
    fby_close_report_t report = {.size = sizeof(report)};
    const fby_msg_object_t bump = {.flags = 1};
    SERVED_OPEN(&served, NULL);
    fby_cache_t *cache = served.rig.cache;
    hanging = *cache->runtime->driver;
    hanging.raise_epoch = hang_in_raise;
    cache->runtime->driver = &hanging;
    wire_t *wire = wire_connect(served.path);
    pthread_mutex_lock(&raising);
    size_t length = fby_request_build(FBY_REQUEST_RESET, 1, &bump, NULL, 0, wire->out);
    wire_send(wire, wire->out, length);
    RIG_AWAIT(atomic_load(&cache->users) == 1);
    served_stop(&served, 0.05);
    assert_int_equal(fby_cache_close(cache, 0.05, &report), FBY_E_ABANDONED);
    assert_int_equal(report.operations_abandoned, 1);
    pthread_mutex_unlock(&raising);
    RIG_AWAIT(atomic_load(&cache->users) == 0);
    wire_close(wire);
    served_close(&served);
}

/* ---- Users ------------------------------------------------------------------------------------------------------ */

enum { NOBODY = 65534 };

/* This thread alone connects as another user. */
static wire_t *open_as(served_t *served, uid_t uid)
{
    assert_int_equal(syscall(SYS_setresuid, -1, uid, -1), 0);
    wire_t *wire = wire_open(served->path);
    assert_int_equal(syscall(SYS_setresuid, -1, 0, -1), 0);
    return wire;
}

static void users_that_are_not_listed_are_refused(void **state)
{
    static const struct {
        const char *setting;
        int code;
    } cases[] = {
        {"server.allow_uids=own", -EACCES},
        {"server.allow_uids=1000,1001", -EACCES},
        {"server.allow_uids=1000,65534", 0},
        {"server.allow_uids=any", 0},
    };
    if (geteuid() != 0) {
        print_message("skipped: only root can connect as somebody else\n");
        skip();
    }
    for (size_t i = 0; i < FBY_ARRAY_LEN(cases); i++) {
        served_t served;
        SERVED_OPEN(&served, cases[i].setting, "server.mode=0666");
        assert_int_equal(chmod(served.directory, 0711), 0);
        wire_t *wire = open_as(&served, NOBODY);
        assert_int_equal(wire_hello(wire), cases[i].code);
        assert_int_equal(fby_server_refused(served.server, FBY_SERVER_REFUSED_USER), cases[i].code != 0);
        if (cases[i].code != 0) {
            wire_await_end(wire);
        }
        wire_close(wire);
        served_close(&served);
    }
}

/* ---- systemd ---------------------------------------------------------------------------------------------------- */

static void systemd_is_told(void **state)
{
    for (int i = 0; i < 2; i++) { /* a path, and an abstract name */
        served_t served;
        char name[108], said[64];
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        SERVED_OPEN(&served, NULL);
        served_stop(&served, 0);
        snprintf(name, sizeof(name), "%s%s/notify", i == 0 ? "" : "@", served.directory);
        size_t length = strlen(name);
        memcpy(address.sun_path, name, length);
        if (name[0] == '@') {
            address.sun_path[0] = '\0';
        }
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (i == 0));
        assert_int_equal(bind(fd, (const struct sockaddr *)&address, bytes), 0);
        setenv("NOTIFY_SOCKET", name, 1);
        served_serve(&served);
        assert_int_equal(recv(fd, said, sizeof(said), MSG_DONTWAIT), 7);
        assert_memory_equal(said, "READY=1", 7);
        served_stop(&served, 0);
        assert_int_equal(recv(fd, said, sizeof(said), MSG_DONTWAIT), 10);
        assert_memory_equal(said, "STOPPING=1", 10);
        unsetenv("NOTIFY_SOCKET");
        close(fd);
        if (i == 0) {
            unlink(name);
        }
        served_serve(&served);
        served_close(&served);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_under_way_are_answered_and_taken),
        cmocka_unit_test(a_session_that_ends_by_itself_is_not_waited_for),
        cmocka_unit_test(at_the_limit_it_is_over),
        cmocka_unit_test(resets_that_raise_the_epoch_keep_nobody_waiting),
        cmocka_unit_test(users_that_are_not_listed_are_refused),
        cmocka_unit_test(resets_of_those_who_went_are_not_done),
        cmocka_unit_test(an_epoch_that_cannot_be_raised_does_not_keep_the_cache_open),
        cmocka_unit_test(systemd_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
