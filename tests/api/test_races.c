/*
 * test_races.c - threads against each other: B04, A06, A14, C17, C22, G02.
 *
 * FOREBAY_RACES sets how often the loops run (default 300; .ci/run raises it to 10,000).
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "api/rig.h"

static int rounds(int share)
{
    const char *asked = getenv("FOREBAY_RACES");
    int n = (asked != NULL ? atoi(asked) : 300) / share;
    return n > 0 ? n : 1;
}

typedef enum verb { STOP, RELEASE, DEMAND, TAKE, VERBS } verb_t;

typedef struct racer {
    rig_t *rig;
    pthread_barrier_t *barrier;
    fby_session_t session;
    verb_t verb;
} racer_t;

static void act(rig_t *rig, fby_session_t session, verb_t verb)
{
    fby_hold_t hold;
    switch (verb) {
    case STOP:
        fby_session_stop(rig->cache, session);
        break;
    case RELEASE:
        fby_session_release(rig->cache, session);
        break;
    case DEMAND:
        fby_session_demand(rig->cache, session);
        break;
    default:
        if (fby_session_take(rig->cache, session, &hold) == 0) {
            assert_int_equal(fby_hold_release(rig->cache, hold), 0);
        }
    }
}

static void *race(void *arg)
{
    racer_t *racer = arg;
    pthread_barrier_wait(racer->barrier);
    act(racer->rig, racer->session, racer->verb);
    return NULL;
}

/* B04 and G02: a caller's verb against the last completion, and against another caller. */
static void a_verb_races_the_last_completion(void **state)
{
    (void)state;
    rig_t rig;
    pthread_barrier_t barrier;
    uint64_t seed = 4;
    RIG_OPEN(&rig, "store.host=thread");
    fby_seq_t *seq = rig_seq(&rig, 1, 65);
    rig_store_blocks(&rig, seq, 0, 4);
    pthread_barrier_init(&barrier, NULL, 3);
    for (int i = 0; i < rounds(1); i++) {
        pthread_t threads[2];
        racer_t racers[2];
        rig_script(&rig, "get:*:hang");
        fby_session_t session = rig_start(&rig, seq, FBY_POLICY_BEST_EFFORT, (fby_stop_mode_t)unit_below(&seed, 3), -1);
        assert_true(fby_mem_await_hung(rig.store, 4, RIG_PATIENCE_NS));
        for (int k = 0; k < 2; k++) {
            racers[k] = (racer_t){&rig, &barrier, session, (verb_t)unit_below(&seed, VERBS)};
            assert_int_equal(pthread_create(&threads[k], NULL, race, &racers[k]), 0);
        }
        pthread_barrier_wait(&barrier);
        rig_script(&rig, "");
        fby_mem_release(rig.store);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        fby_session_wait(rig.cache, session, RIG_PATIENCE_S, NULL);
        fby_session_release(rig.cache, session);
        rig_quiet(&rig);
        assert_int_equal(fby_cache_reset(rig.cache, RIG_PATIENCE_S, 0), FBY_RESET_DONE);
    }
    fby_stats_t stats = rig_stats(&rig);
    assert_int_equal(stats.free_blocks_gauge, RIG_POOL_BLOCKS);
    pthread_barrier_destroy(&barrier);
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* A06: released with two graphs in flight, the sequence dropped too; the completions come afterwards. */
static void a_release_with_reads_in_flight_is_safe(void **state)
{
    (void)state;
    rig_t rig;
    uint64_t seed = 6;
    for (int host = 0; host < 2; host++) {
        RIG_OPEN(&rig, host == 0 ? "store.host=thread" : "store.host=inline");
        fby_seq_t *keep = rig_seq(&rig, 1, 8 * 16 + 1);
        rig_store_blocks(&rig, keep, 0, 8);
        for (int i = 0; i < rounds(2); i++) {
            bool hangs = unit_below(&seed, 2) == 0;
            rig_script(&rig, hangs ? "get:*:hang" : "");
            fby_seq_t *seq = rig_seq(&rig, 1, 8 * 16 + 1);
            fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
            fby_seq_unref(seq);
            if (hangs) {
                assert_true(fby_mem_await_hung(rig.store, 8, RIG_PATIENCE_NS));
            }
            assert_int_equal(fby_session_release(rig.cache, session), 0);
            fby_mem_release(rig.store);
            rig_quiet(&rig);
            fby_cache_reset(rig.cache, RIG_PATIENCE_S, 0);
        }
        fby_seq_unref(keep);
        rig_close(&rig);
    }
}

/* A14: after a demand returned, no key is asked for that was not claimed before it. */
static void nothing_is_submitted_after_a_demand(void **state)
{
    (void)state;
    rig_t rig;
    uint64_t seed = 14;
    RIG_OPEN(&rig, "store.host=thread");
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&rig, p32, 0, 32);
    for (int i = 0; i < rounds(2); i++) {
        rig_script(&rig, "get:*:delay(0.2)");
        fby_session_t session = rig_start(&rig, p32, FBY_POLICY_BEST_EFFORT, FBY_STOP_DRAIN, -1);
        uint64_t wanted = unit_below(&seed, 9);
        while (rig_poll(&rig, session).submitted < wanted && !rig_poll(&rig, session).answered) {
            rig_pause();
        }
        assert_int_equal(fby_session_demand(rig.cache, session), 0);
        fby_snapshot_t at_stop = rig_poll(&rig, session);
        fby_snapshot_t result = rig_wait(&rig, session);
        assert_int_equal(result.submitted, at_stop.submitted);
        assert_int_equal(result.sealed_submit_seq, at_stop.submitted);
        /* every claimed chunk landed: the answer is all of them */
        assert_int_equal(result.delivered_tokens, result.submitted * 4 * RIG_BLOCK_TOKENS);
        rig_take_and_verify(&rig, session, p32, result.delivered_tokens / RIG_BLOCK_TOKENS);
        rig_quiet(&rig);
        fby_cache_reset(rig.cache, RIG_PATIENCE_S, 0);
    }
    fby_seq_unref(p32);
    rig_close(&rig);
}

typedef struct reader {
    rig_t *rig;
    _Atomic bool *done;
    uint64_t seed;
} reader_t;

/* Prefetches the prompt over and over: what it is given is whole and right, whatever length. */
static void *read_over_and_over(void *arg)
{
    reader_t *reader = arg;
    rig_t *rig = reader->rig;
    fby_seq_t *seq = rig_seq(rig, 17, 8 * 16 + 1);
    while (!atomic_load(reader->done)) {
        fby_session_t session = rig_start(rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        uint64_t blocks = rig_wait(rig, session).delivered_tokens / RIG_BLOCK_TOKENS;
        fby_hold_t hold;
        if (unit_below(&reader->seed, 4) == 0) {
            fby_session_release(rig->cache, session);
        } else if (fby_session_take(rig->cache, session, &hold) == 0) {
            rig_verify_hold(rig, hold, seq, blocks);
            fby_hold_release(rig->cache, hold);
        }
    }
    fby_seq_unref(seq);
    return NULL;
}

/* C17: readers while the prompt is being put, evicted (by a filler) and reset-free: a block is seen whole or not at all. */
static void readers_see_a_block_whole_or_not_at_all(void **state)
{
    (void)state;
    rig_t rig;
    pthread_t threads[4];
    reader_t readers[4];
    _Atomic bool done = false;
    RIG_OPEN(&rig, NULL);
    fby_seq_t *seq = rig_seq(&rig, 17, 8 * 16 + 1);
    for (int i = 0; i < 4; i++) {
        readers[i] = (reader_t){&rig, &done, (uint64_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, read_over_and_over, &readers[i]), 0);
    }
    for (int i = 0; i < rounds(10); i++) {
        char key[FBY_KEY_BYTES];
        fby_put_release(rig.cache, rig_put(&rig, seq, 8, NULL));
        fby_seq_t *filler = rig_seq(&rig, 1000 + (uint64_t)i, RIG_P32_TOKENS);
        fby_put_release(rig.cache, rig_put(&rig, filler, 32, NULL));
        fby_seq_unref(filler);
        fby_seq_key(seq, (size_t)i % 8, 0, key, sizeof(key));
        fby_mem_remove(rig.store, key);
    }
    atomic_store(&done, true);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    rig_quiet(&rig);
    assert_int_equal(rig_stats(&rig).fail_checksum, 0);
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* C22: keys vanish between probe and read: every call returns, the prefix ends at the first that is gone. */
static void vanished_objects_shorten_the_prefix(void **state)
{
    (void)state;
    rig_t rig;
    uint64_t seed = 22;
    RIG_OPEN(&rig, "store.host=thread", "store.negative_ttl_s=0");
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    for (int i = 0; i < rounds(3); i++) {
        size_t first_gone = 32;
        rig_store_blocks(&rig, p32, 0, 32);
        rig_script(&rig, "get:*:hang");
        fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        assert_true(fby_mem_await_hung(rig.store, 8, RIG_PATIENCE_NS));
        for (size_t k = 0; k < 16; k++) {
            char key[FBY_KEY_BYTES];
            size_t gone = unit_below(&seed, 32);
            fby_seq_key(p32, gone, 0, key, sizeof(key));
            fby_mem_remove(rig.store, key);
            first_gone = gone < first_gone ? gone : first_gone;
        }
        rig_script(&rig, "");
        fby_mem_release(rig.store);
        fby_snapshot_t result = rig_wait(&rig, session);
        assert_int_equal(result.reason, FBY_REASON_PARTIAL_READ);
        assert_int_equal(result.error, FBY_E_MISSING);
        rig_take_and_verify(&rig, session, p32, first_gone);
        rig_quiet(&rig);
        fby_cache_reset(rig.cache, RIG_PATIENCE_S, 0);
    }
    fby_seq_unref(p32);
    rig_close(&rig);
}

/* Sessions, puts, lookups, resets, polls from many threads at once; then quiet. */
static void *make_trouble(void *arg)
{
    reader_t *reader = arg;
    rig_t *rig = reader->rig;
    for (int i = 0; i < rounds(1); i++) {
        fby_seq_t *seq = rig_seq(rig, unit_below(&reader->seed, 6), 6 * 16 + 1);
        fby_session_options_t options = FBY_SESSION_OPTIONS_INIT;
        fby_session_t session;
        fby_put_t put;
        fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
        options.policy = FBY_POLICY_BEST_EFFORT;
        options.stop_mode = (int32_t)unit_below(&reader->seed, 3);
        switch (unit_below(&reader->seed, 8)) {
        case 0:
            fby_cache_reset(rig->cache, 0, 0);
            break;
        case 1:
        case 2:
            if (fby_put_begin(rig->cache, seq, 0, 6, &put, NULL, NULL, NULL) == 0) {
                fby_put_commit(rig->cache, put, 96, NULL);
                fby_put_release(rig->cache, put);
            }
            break;
        default:
            if (fby_session_start(rig->cache, seq, &options, &session) == 0) {
                fby_session_poll(rig->cache, session, &snapshot);
                for (int k = 0; k < 2; k++) {
                    act(rig, session, (verb_t)unit_below(&reader->seed, VERBS));
                }
                if (unit_below(&reader->seed, 2) == 0) {
                    fby_session_wait(rig->cache, session, 0.005, NULL);
                }
                fby_session_release(rig->cache, session);
            }
        }
        fby_seq_unref(seq);
    }
    return NULL;
}

static void everything_at_once_ends_quiet(void **state)
{
    (void)state;
    for (int host = 0; host < 2; host++) {
        rig_t rig;
        pthread_t threads[4];
        reader_t workers[4];
        fby_subscription_t *subscription;
        RIG_OPEN(&rig, host == 0 ? "store.host=thread" : "store.host=inline");
        assert_int_equal(fby_subscribe(rig.cache, 16, &subscription), 0);
        for (uint64_t i = 0; i < 6; i++) {
            fby_seq_t *seq = rig_seq(&rig, i, 6 * 16 + 1);
            rig_store_blocks(&rig, seq, 0, 6);
            fby_seq_unref(seq);
        }
        for (int i = 0; i < 4; i++) {
            workers[i] = (reader_t){&rig, NULL, (uint64_t)i * 7 + 1};
            assert_int_equal(pthread_create(&threads[i], NULL, make_trouble, &workers[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
        }
        rig_quiet(&rig);
        fby_unsubscribe(subscription);
        rig_close(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_verb_races_the_last_completion),
        cmocka_unit_test(a_release_with_reads_in_flight_is_safe),
        cmocka_unit_test(nothing_is_submitted_after_a_demand),
        cmocka_unit_test(readers_see_a_block_whole_or_not_at_all),
        cmocka_unit_test(vanished_objects_shorten_the_prefix),
        cmocka_unit_test(everything_at_once_ends_quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
