/* test_restarts.c - threads that work while servers are killed and started again: nothing fails, no wrong byte. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "client/served.h"

enum { THREADS = 4, RESTARTS = 12, BLOCKS = 3 };

typedef struct worker {
    rig_t *rig;
    _Atomic bool *done;
    uint64_t seed, delivered, rounds;
} worker_t;

/* What a call may answer when the server went away in between. */
static bool is_fine(int rc)
{
    assert_true(rc == 0 || rc == FBY_E_STALE);
    return rc == 0;
}

static void put_blocks(worker_t *worker, fby_seq_t *seq)
{
    fby_cache_t *cache = worker->rig->cache;
    void *slots[BLOCKS];
    uint64_t from, to;
    fby_put_t put;
    assert_int_equal(fby_put_begin(cache, seq, 0, BLOCKS, &put, NULL, &from, &to), 0);
    bool there = is_fine(fby_put_slots(cache, put, 0, 0, BLOCKS, slots));
    for (uint64_t block = from; there && block < to; block++) {
        if (slots[block] != NULL) {
            rig_content(seq, block, 0, slots[block], RIG_PAYLOAD);
        }
    }
    (void)is_fine(fby_put_commit(cache, put, UINT64_MAX, NULL));
    (void)is_fine(fby_put_release(cache, put));
}

static void read_hold(worker_t *worker, fby_hold_t hold, const fby_seq_t *seq)
{
    fby_cache_t *cache = worker->rig->cache;
    uint8_t expected[RIG_PAYLOAD];
    const void *slots[BLOCKS];
    uint64_t blocks = 0;
    if (is_fine(fby_hold_info(cache, hold, NULL, &blocks, NULL)) &&
        is_fine(fby_hold_slots(cache, hold, 0, 0, blocks, slots))) {
        for (uint64_t block = 0; block < blocks; block++) {
            rig_content(seq, block, 0, expected, sizeof(expected));
            assert_memory_equal(slots[block], expected, sizeof(expected));
        }
        worker->delivered += blocks;
    }
    (void)is_fine(fby_hold_release(cache, hold));
}

static void *work(void *arg)
{
    worker_t *worker = arg;
    fby_cache_t *cache = worker->rig->cache;
    while (!atomic_load(worker->done)) {
        fby_seq_t *seq = rig_seq(worker->rig, unit_below(&worker->seed, 5), BLOCKS * RIG_BLOCK_TOKENS + 1);
        fby_session_t session;
        fby_hold_t hold;
        fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
        put_blocks(worker, seq);
        assert_int_equal(fby_session_start(cache, seq, NULL, &session), 0);
        (void)is_fine(fby_session_poll(cache, session, &snapshot));
        if (is_fine(fby_session_wait(cache, session, -1, &snapshot)) &&
            is_fine(fby_session_take(cache, session, &hold))) {
            read_hold(worker, hold, seq);
        }
        assert_int_equal(fby_lookup(cache, seq, 0, &hold, NULL), 0);
        read_hold(worker, hold, seq);
        fby_seq_unref(seq);
        worker->rounds++;
    }
    return NULL;
}

static void threads_go_on_while_servers_come_and_go(void **state)
{
    (void)state;
    served_t served;
    rig_t rig;
    pthread_t threads[THREADS];
    worker_t workers[THREADS];
    _Atomic bool done = false;
    uint64_t seed = 3;
    SERVED_OPEN(&served, NULL);
    served_connect(&served, &rig, RIG_PATIENCE_S);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i] = (worker_t){.rig = &rig, .done = &done, .seed = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < RESTARTS; i++) {
        for (uint32_t pauses = unit_below(&seed, 30); pauses > 0; pauses--) {
            rig_pause();
        }
        if (i % 3 == 2) {
            served_stop(&served); /* in an orderly way */
        } else {
            served_kill(&served);
        }
        SERVED_START(&served, NULL);
    }
    served_await_back(&rig);
    atomic_store(&done, true);
    uint64_t delivered = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        delivered += workers[i].delivered;
        assert_true(workers[i].rounds > 0);
    }
    assert_true(delivered > 0);
    served_await_back(&rig);
    rig_quiet(&rig);
    fby_cache_close(rig.cache, 0, NULL);
    served_close(&served);
}

/* Threads, and the end of the cache under them: all calls say so, none crashes. */
static void *work_until_closed(void *arg)
{
    worker_t *worker = arg;
    fby_cache_t *cache = worker->rig->cache;
    uint32_t tokens[RIG_BLOCK_TOKENS + 1] = {0};
    int rc = 0;
    while (rc != FBY_E_CLOSED) {
        fby_seq_t *seq;
        fby_session_t session;
        rc = fby_seq_create(cache, tokens, RIG_BLOCK_TOKENS + 1, NULL, 0, &seq);
        if (rc == 0) {
            rc = fby_session_start(cache, seq, NULL, &session);
            rc = rc == 0 ? fby_session_wait(cache, session, -1, NULL) : rc;
            rc = rc == 0 ? fby_session_release(cache, session) : rc;
            fby_seq_unref(seq);
        }
        assert_true(rc == 0 || rc == FBY_E_CLOSED);
        worker->rounds++;
    }
    return NULL;
}

static void a_cache_may_be_closed_under_its_threads(void **state)
{
    (void)state;
    served_t served;
    SERVED_OPEN(&served, NULL);
    for (int round = 0; round < 10; round++) {
        rig_t rig;
        pthread_t threads[THREADS];
        worker_t workers[THREADS];
        served_connect(&served, &rig, RIG_PATIENCE_S);
        for (uint64_t i = 0; i < THREADS; i++) {
            workers[i] = (worker_t){.rig = &rig};
            assert_int_equal(pthread_create(&threads[i], NULL, work_until_closed, &workers[i]), 0);
        }
        RIG_AWAIT(rig_stats(&rig).sessions > (uint64_t)round * 4);
        assert_int_equal(fby_cache_close(rig.cache, 0, NULL), 0);
        assert_int_equal(fby_cache_close(rig.cache, 0, NULL), 0);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    served_close(&served);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_go_on_while_servers_come_and_go),
        cmocka_unit_test(a_cache_may_be_closed_under_its_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
