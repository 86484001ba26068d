/* test_away.c - a server that dies, freezes, comes back, or comes back as another one: nothing fails. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "base/log.h"
#include "client/served.h"

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, timeout_ms) == 1;
}

/* Everything that is made while the server is away: values that any call takes. */
static void nothing_fails(rig_t *rig, fby_seq_t *seq)
{
    fby_session_t session;
    fby_hold_t hold, taken;
    fby_put_t put;
    fby_put_result_t result = {.size = sizeof(result), .published = 7};
    uint64_t tokens = 7, blocks = 7, first = 7, from = 7, to = 7;
    void *slot = &tokens;
    assert_int_equal(fby_session_start(rig->cache, seq, NULL, &session), 0);
    fby_snapshot_t snapshot = rig_wait(rig, session);
    assert_int_equal(snapshot.handle, session);
    assert_int_equal(snapshot.state, FBY_TERMINAL);
    assert_int_equal(snapshot.answered, 1);
    assert_int_equal(snapshot.outcome, FBY_OUTCOME_FAILED);
    assert_int_equal(snapshot.reason, FBY_REASON_STORE_ERROR);
    assert_int_equal(snapshot.error, -ENOTCONN);
    assert_int_equal(snapshot.delivered_tokens, 0);
    assert_int_equal(fby_session_demand(rig->cache, session), 0);
    int fd = fby_session_event_fd(rig->cache, session);
    assert_true(is_readable(fd, 0));
    close(fd);
    assert_int_equal(fby_session_take(rig->cache, session, &taken), 0);
    assert_int_equal(fby_lookup(rig->cache, seq, 0, &hold, &tokens), 0);
    assert_int_equal(tokens, 0);
    assert_int_equal(fby_hold_info(rig->cache, hold, &tokens, &blocks, &first), 0);
    assert_int_equal(tokens + blocks + first, 0);
    assert_int_equal(fby_hold_slots(rig->cache, hold, 0, 0, 0, NULL), 0);
    assert_int_equal(fby_hold_slots(rig->cache, hold, 0, 0, 1, (const void **)&slot), -EINVAL);
    assert_int_equal(fby_hold_trim(rig->cache, hold, 5, &tokens), 0);
    assert_int_equal(fby_hold_readers(rig->cache, hold, 1), 0);
    assert_int_equal(fby_hold_release(rig->cache, hold), 0);
    assert_int_equal(fby_hold_release(rig->cache, taken), 0);
    assert_int_equal(fby_put_begin(rig->cache, seq, 0, 2, &put, &first, &from, &to), 0);
    assert_int_equal(first, 0);
    assert_int_equal(from, to);
    assert_int_equal(fby_put_slots(rig->cache, put, 0, 0, 1, &slot), 0);
    assert_null(slot);
    assert_int_equal(fby_put_commit(rig->cache, put, 32, &result), 0);
    assert_int_equal(result.published + result.duplicate + result.discarded + result.orphan, 0);
    assert_int_equal(fby_put_next(rig->cache, put, seq, 0, 2, NULL, &from, &to), 0);
    assert_int_equal(from, to);
    assert_int_equal(fby_put_wait_store(rig->cache, put, -1, &tokens, &blocks), 0);
    assert_int_equal(fby_put_release(rig->cache, put), 0);
    assert_int_equal(rig_lookup(rig, seq), 0);
}

/* Calls about the server itself say that it is away. */
static void who_asks_for_the_server_hears_that_it_is_away(rig_t *rig)
{
    fby_health_t health = {.size = sizeof(health)};
    fby_stats_t stats = {.size = sizeof(stats)};
    fby_model_t model = {.size = sizeof(model)};
    fby_subscription_t *subscription = NULL;
    assert_int_equal(fby_cache_connected(rig->cache), 0);
    assert_int_equal(fby_cache_epoch(rig->cache), 0);
    assert_int_equal(fby_cache_stats(rig->cache, &stats), -ENOTCONN);
    assert_int_equal(fby_cache_reset(rig->cache, 0, 0), -ENOTCONN);
    assert_int_equal(fby_subscribe(rig->cache, 10, &subscription), -ENOTCONN);
    assert_non_null(strstr(fby_last_error(), "away"));
    assert_int_equal(fby_cache_health(rig->cache, &health), 0);
    assert_int_equal(health.healthy, 0);
    assert_non_null(strstr(health.message, "away"));
    assert_int_equal(fby_cache_model(rig->cache, &model), 0);
    assert_int_equal(model.block_tokens, RIG_BLOCK_TOKENS);
}

static void a_server_that_is_killed_is_away_and_comes_back(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    fby_hold_t hold;
    const void *slots[2];
    uint8_t expected[RIG_PAYLOAD];
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    fby_seq_t *seq = rig_seq(&rig, 1, 40);
    rig_put_stored(&rig, seq, 2);
    fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    rig_wait(&rig, session);
    fby_put_t put;
    assert_int_equal(fby_put_begin(rig.cache, seq, 0, 2, &put, NULL, NULL, NULL), 0);
    assert_int_equal(fby_lookup(rig.cache, seq, 0, &hold, NULL), 0);
    assert_int_equal(fby_hold_readers(rig.cache, hold, 1), 0);
    assert_int_equal(fby_hold_slots(rig.cache, hold, 0, 0, 2, slots), 0);

    served_kill(&served);
    assert_int_equal(fby_session_poll(rig.cache, session, &snapshot), FBY_E_STALE);
    nothing_fails(&rig, seq);
    who_asks_for_the_server_hears_that_it_is_away(&rig);
    assert_int_equal(fby_session_take(rig.cache, session, &hold), FBY_E_STALE);

    SERVED_START(&served, NULL);
    served_await_back(&rig);
    assert_int_equal(fby_session_poll(rig.cache, session, &snapshot), FBY_E_STALE);
    assert_int_equal(fby_put_commit(rig.cache, put, 32, NULL), FBY_E_STALE);
    assert_int_equal(fby_put_release(rig.cache, put), FBY_E_STALE);
    assert_int_equal(fby_hold_info(rig.cache, hold, NULL, NULL, NULL), FBY_E_STALE);
    /* the bytes stay readable until the last reader gave the hold back */
    assert_int_equal(fby_hold_release(rig.cache, hold), FBY_E_STALE);
    for (size_t block = 0; block < 2; block++) {
        rig_content(seq, block, 0, expected, sizeof(expected));
        assert_memory_equal(slots[block], expected, sizeof(expected));
    }
    assert_int_equal(fby_hold_release(rig.cache, hold), FBY_E_STALE);
    /* and all goes on */
    rig_put_stored(&rig, seq, 2);
    assert_int_equal(rig_lookup(&rig, seq), 2);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

/* ---- Waits ------------------------------------------------------------------------------------------------------ */

typedef struct waiter {
    rig_t *rig;
    fby_session_t session;
    fby_put_t put;
    int rc;
} waiter_t;

static void *wait_for_session(void *arg)
{
    waiter_t *waiter = arg;
    waiter->rc = fby_session_wait(waiter->rig->cache, waiter->session, -1, NULL);
    return NULL;
}

static void *wait_for_put(void *arg)
{
    waiter_t *waiter = arg;
    waiter->rc = fby_put_wait_store(waiter->rig->cache, waiter->put, -1, NULL, NULL);
    return NULL;
}

typedef void act_t(served_t *served, rig_t *rig);

static void kill_it(served_t *served, rig_t *rig)
{
    (void)rig;
    served_kill(served);
}

static void close_it(served_t *served, rig_t *rig)
{
    (void)served;
    assert_int_equal(fby_cache_close(rig->cache, 0, NULL), 0);
}

/* Two threads wait for a store that hangs, and two descriptors are watched, when something ends it all. */
static void waits_end(act_t *act, int code)
{
    served_t served;
    rig_t rig;
    pthread_t threads[2];
    SERVED_OPEN(&served, "store.options.script=*:*:hang", "store.host=thread");
    served_connect(&served, &rig, 1);
    fby_seq_t *seq = rig_seq(&rig, 1, 40), *other = rig_seq(&rig, 2, 40);
    waiter_t session = {.rig = &rig}, put = {.rig = &rig};
    session.session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    put.put = rig_put(&rig, other, 2, NULL);
    int fds[] = {fby_session_event_fd(rig.cache, session.session), fby_put_event_fd(rig.cache, put.put)};
    assert_false(is_readable(fds[0], 0) || is_readable(fds[1], 0));
    assert_int_equal(pthread_create(&threads[0], NULL, wait_for_session, &session), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, wait_for_put, &put), 0);
    act(&served, &rig);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert_int_equal(session.rc, code);
    assert_int_equal(put.rc, code);
    if (served.pid != 0) {
        served_kill(&served);
    }
    assert_true(is_readable(fds[0], 20000) && is_readable(fds[1], 20000));
    close(fds[0]);
    close(fds[1]);
    fby_seq_unref(seq);
    fby_seq_unref(other);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

static void waits_end_with_the_server(void **state)
{
    (void)state;
    waits_end(kill_it, FBY_E_STALE);
}

static void waits_end_with_the_cache(void **state)
{
    (void)state;
    waits_end(close_it, FBY_E_CLOSED);
}

/* A thread waits, and the server is frozen once it has asked for what to wait on. */
static void wait_and_freeze(served_t *served, waiter_t *waiter, rig_t *other, pthread_t *thread)
{
    fby_server_info_t info = {.size = sizeof(info)};
    fby_server_client_t clients[2];
    size_t count;
    assert_int_equal(fby_server_info(other->cache, &info, clients, 2, &count), 0);
    uint64_t before = clients[0].calls;
    assert_int_equal(pthread_create(thread, NULL, wait_for_session, waiter), 0);
    do {
        assert_int_equal(fby_server_info(other->cache, &info, clients, 2, &count), 0);
    } while (clients[0].calls == before);
    served_freeze(served);
}

/* Nobody else calls: the wait itself asks now and then. Or somebody does: then all waits end with that. */
static void a_wait_notices_a_server_that_does_not_run(void **state)
{
    (void)state;
    for (int somebody_calls = 0; somebody_calls < 2; somebody_calls++) {
        served_t served;
        rig_t rig, other;
        pthread_t thread;
        SERVED_OPEN(&served, "store.options.script=*:*:hang", "store.host=thread");
        served_connect(&served, &rig, 1);
        served_connect(&served, &other, 1);
        fby_seq_t *seq = rig_seq(&rig, 1, 40);
        waiter_t waiter = {.rig = &rig};
        waiter.session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        wait_and_freeze(&served, &waiter, &other, &thread);
        if (somebody_calls) {
            nothing_fails(&rig, seq);
        }
        pthread_join(thread, NULL);
        assert_int_equal(waiter.rc, FBY_E_STALE);
        assert_int_equal(fby_cache_connected(rig.cache), 0);
        served_kill(&served);
        fby_seq_unref(seq);
        fby_cache_close(rig.cache, 0, NULL);
        fby_cache_close(other.cache, 0, NULL);
        served_close(&served);
    }
}

/* ---- Frozen ----------------------------------------------------------------------------------------------------- */

/* It may write to slots of its put until it says that it does not: the same server hears of it over the next connection. */
static void a_server_that_freezes_is_away_until_it_answers(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    fby_put_t put;
    fby_hold_t hold;
    void *slot;
    fby_server_info_t info = {.size = sizeof(info)};
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, 1);
    fby_seq_t *seq = rig_seq(&rig, 1, 40);
    rig_put_stored(&rig, seq, 1);
    assert_int_equal(fby_lookup(rig.cache, seq, 0, &hold, NULL), 0);
    assert_int_equal(fby_put_begin(rig.cache, seq, 0, 2, &put, NULL, NULL, NULL), 0);
    assert_int_equal(fby_put_slots(rig.cache, put, 0, 1, 2, &slot), 0);
    assert_non_null(slot);
    served_freeze(&served);
    nothing_fails(&rig, seq);
    assert_int_equal(fby_hold_release(rig.cache, hold), FBY_E_STALE);
    memset(slot, 1, RIG_PAYLOAD); /* still mapped */
    served_thaw(&served);
    served_await_back(&rig);
    RIG_AWAIT(fby_server_info(rig.cache, &info, NULL, 0, NULL) == 0 && info.clients == 1);
    assert_true(info.fenced_bytes > 0);
    assert_int_equal(fby_put_release(rig.cache, put), 0);
    assert_int_equal(fby_put_release(rig.cache, put), FBY_E_STALE);
    assert_int_equal(fby_server_info(rig.cache, &info, NULL, 0, NULL), 0);
    assert_int_equal(info.fenced_bytes, 0);
    rig_quiet(&rig);
    fby_seq_unref(seq);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

/* The server did not answer for a moment, and fences the put of a connection that is no more. */
static void away_and_back(served_t *served, rig_t *rig, fby_seq_t *seq)
{
    served_freeze(served);
    nothing_fails(rig, seq);
    served_thaw(served);
    served_await_back(rig);
}

static bool nothing_is_fenced(rig_t *rig)
{
    fby_server_info_t info = {.size = sizeof(info)};
    assert_int_equal(fby_server_info(rig->cache, &info, NULL, 0, NULL), 0);
    return info.fenced_bytes == 0;
}

static void a_put_that_ends_while_the_server_is_away_is_not_fenced_for_ever(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    fby_put_t put;
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, 1);
    fby_seq_t *seq = rig_seq(&rig, 1, 40);
    assert_int_equal(fby_put_begin(rig.cache, seq, 0, 2, &put, NULL, NULL, NULL), 0);
    served_freeze(&served);
    nothing_fails(&rig, seq);
    assert_int_equal(fby_put_release(rig.cache, put), FBY_E_STALE);
    served_thaw(&served);
    served_await_back(&rig);
    RIG_AWAIT(nothing_is_fenced(&rig));
    rig_quiet(&rig);
    fby_seq_unref(seq);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

static void a_put_is_known_after_more_than_one_reconnect(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    fby_put_t put;
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, 1);
    fby_seq_t *seq = rig_seq(&rig, 1, 40);
    assert_int_equal(fby_put_begin(rig.cache, seq, 0, 2, &put, NULL, NULL, NULL), 0);
    away_and_back(&served, &rig, seq);
    away_and_back(&served, &rig, seq);
    RIG_AWAIT(!nothing_is_fenced(&rig));
    assert_int_equal(fby_put_release(rig.cache, put), 0);
    assert_true(nothing_is_fenced(&rig));
    rig_quiet(&rig);
    fby_seq_unref(seq);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

static void close_does_not_wait_for_a_server_that_freezes(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S * 1000);
    fby_seq_t *seq = rig_seq(&rig, 1, 40);
    rig_put_stored(&rig, seq, 1);
    served_freeze(&served);
    assert_int_equal(fby_cache_close(rig.cache, 0, NULL), 0);
    served_thaw(&served);
    fby_seq_unref(seq);
    served_close(&served);
}

/* ---- Another one ------------------------------------------------------------------------------------------------ */

static void another_model_is_not_taken_for_the_same(void **state)
{
    (void)state;
    static const char *const changes[] = {"model.id=another", "model.groups=full:2048:all"};
    for (size_t i = 0; i < FBY_ARRAY_LEN(changes); i++) {
        served_t served;
        rig_t rig;
        SERVED_OPEN(&served, NULL);
        served_connect(&served, &rig, RIG_PATIENCE_S);
        fby_seq_t *seq = rig_seq(&rig, 1, 40);
        rig_put_stored(&rig, seq, 2);
        served_kill(&served);
        SERVED_START(&served, changes[i]);
        for (int turn = 0; turn < 5; turn++) {
            nothing_fails(&rig, seq);
            rig_pause();
        }
        assert_int_equal(fby_cache_connected(rig.cache), 0);
        served_kill(&served);
        SERVED_START(&served, NULL);
        served_await_back(&rig);
        rig_put_stored(&rig, seq, 2);
        assert_int_equal(rig_lookup(&rig, seq), 2);
        fby_seq_unref(seq);
        fby_cache_close(rig.cache, 0, NULL);
        served_close(&served);
    }
}

/* ---- Told once -------------------------------------------------------------------------------------------------- */

static unsigned lines_with(int fd, const char *word)
{
    static char text[65536];
    unsigned count = 0;
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        count++;
    }
    return count;
}

static void the_log_says_so_once(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    char path[64];
    SERVED_OPEN(&served, NULL);
    snprintf(path, sizeof(path), "%s/log", served.folder);
    int log = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0600);
    assert_true(log >= 0);
    fby_log_setup(FBY_LOG_WARN, FBY_LOG_LOGFMT, log);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    fby_seq_t *seq = rig_seq(&rig, 1, 40);
    served_kill(&served);
    for (int i = 0; i < 10; i++) {
        nothing_fails(&rig, seq);
    }
    SERVED_START(&served, "model.id=another");
    for (int i = 0; i < 5; i++) {
        nothing_fails(&rig, seq);
        rig_pause();
    }
    served_kill(&served);
    SERVED_START(&served, NULL);
    served_await_back(&rig);
    rig_lookup(&rig, seq);
    fby_log_setup(FBY_LOG_WARN, FBY_LOG_LOGFMT, STDERR_FILENO);
    assert_int_equal(lines_with(log, "event=server_away"), 1);
    assert_int_equal(lines_with(log, "event=server_changed"), 1);
    assert_int_equal(lines_with(log, "event=server_back"), 1);
    close(log);
    unlink(path);
    fby_seq_unref(seq);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

/* ---- Events ----------------------------------------------------------------------------------------------------- */

static void a_subscription_ends_with_its_server(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    fby_subscription_t *subscription;
    fby_event_t event = {.size = sizeof(event)};
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    fby_seq_t *seq = rig_seq(&rig, 1, 40);
    assert_int_equal(fby_subscribe(rig.cache, 10, &subscription), 0);
    rig_put_stored(&rig, seq, 2);
    assert_int_equal(fby_subscription_next(subscription, &event), 0);
    assert_int_equal(event.type, FBY_EVENT_PUBLISHED);
    served_kill(&served);
    /* what was fetched is still told */
    assert_true(is_readable(fby_subscription_fd(subscription), 20000));
    assert_int_equal(fby_subscription_next(subscription, &event), 0);
    assert_int_equal(event.block, 1);
    assert_true(is_readable(fby_subscription_fd(subscription), 20000));
    assert_int_equal(fby_subscription_next(subscription, &event), FBY_E_STALE);
    SERVED_START(&served, NULL);
    served_await_back(&rig);
    assert_int_equal(fby_subscription_next(subscription, &event), FBY_E_STALE);
    fby_unsubscribe(subscription);
    assert_int_equal(fby_subscribe(rig.cache, 10, &subscription), 0);
    rig_put_stored(&rig, seq, 2);
    assert_int_equal(fby_subscription_next(subscription, &event), 0);
    fby_unsubscribe(subscription);
    fby_seq_unref(seq);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_is_killed_is_away_and_comes_back),
        cmocka_unit_test(waits_end_with_the_server),
        cmocka_unit_test(waits_end_with_the_cache),
        cmocka_unit_test(a_wait_notices_a_server_that_does_not_run),
        cmocka_unit_test(a_server_that_freezes_is_away_until_it_answers),
        cmocka_unit_test(a_put_that_ends_while_the_server_is_away_is_not_fenced_for_ever),
        cmocka_unit_test(a_put_is_known_after_more_than_one_reconnect),
        cmocka_unit_test(close_does_not_wait_for_a_server_that_freezes),
        cmocka_unit_test(another_model_is_not_taken_for_the_same),
        cmocka_unit_test(the_log_says_so_once),
        cmocka_unit_test(a_subscription_ends_with_its_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
