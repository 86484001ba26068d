/* test_lanes.c - threads that talk to the store: lazy, replaced when stuck, never one more than the driver takes. */
#include "api/rig.h"
#include "base/base.h"

static unsigned threads_before;

static void *do_nothing(void *arg)
{
    return arg;
}

static int remember_threads(void **state)
{
    (void)state;
    pthread_t thread;
    pthread_create(&thread, NULL, do_nothing, NULL);
    pthread_join(thread, NULL);
    threads_before = rig_threads();
    return 0;
}

/* I05: off means no thread is made, until something first needs the store. */
static void no_thread_is_made_before_it_is_needed(void **state)
{
    (void)state;
    for (int host = 0; host < 2; host++) {
        rig_t rig;
        const char *at = host == 0 ? "store.host=thread" : "store.host=inline";
        RIG_OPEN(&rig, at, "prefetch.enabled=false");
        assert_int_equal(rig_threads(), threads_before);
        fby_seq_t *seq = rig_seq(&rig, 1, 65);
        assert_int_equal(rig_lookup(&rig, seq), 0);
        assert_int_equal(rig_threads(), threads_before);
        fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL);
        fby_seq_unref(seq);
        rig_reopen(&rig, (const char *const[]){at, "prefetch.enabled=true", NULL});
        assert_int_equal(rig_threads(), threads_before + 1); /* the control thread */
        rig_close(&rig);
        assert_int_equal(rig_threads(), threads_before);
    }
}

/* One session needs one lane of each kind, however many are allowed. */
static void lanes_are_made_one_by_one(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, "store.host=thread", "store.query_lanes=8", "store.read_lanes=8", "prefetch.max_inflight_chunks=1");
    for (uint64_t i = 0; i < 20; i++) {
        fby_seq_t *seq = rig_seq(&rig, i, 65);
        rig_store_blocks(&rig, seq, 0, 4);
        fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        assert_int_equal(rig_wait(&rig, session).delivered_tokens, 64);
        fby_session_release(rig.cache, session);
        fby_seq_unref(seq);
    }
    assert_in_range(rig_threads(), threads_before + 3, threads_before + 5);
    rig_close(&rig);
}

/* A query that hangs holds up nobody: with one lane, the next session is asked for as soon as the first is overdue. */
static void a_stuck_query_gives_its_place_away(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, "store.host=thread", "store.query_lanes=1", "prefetch.query_timeout_s=0.05",
             "store.breaker_failures=1000");
    fby_seq_t *stuck = rig_seq(&rig, 1, 65), *other = rig_seq(&rig, 2, 65);
    rig_store_blocks(&rig, stuck, 0, 4);
    rig_store_blocks(&rig, other, 0, 4);
    rig_script_block(&rig, stuck, 0, "exists", "hang");
    fby_session_t first = rig_start(&rig, stuck, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_true(fby_mem_await_hung(rig.store, 1, RIG_PATIENCE_NS));
    fby_session_t second = rig_start(&rig, other, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    fby_snapshot_t result = rig_wait(&rig, first);
    assert_int_equal(result.reason, FBY_REASON_QUERY_ERROR);
    assert_int_equal(rig_wait(&rig, second).delivered_tokens, 64);
    fby_mem_release(rig.store);
    fby_session_release(rig.cache, first);
    fby_session_release(rig.cache, second);
    rig_quiet(&rig);
    /* the surplus lanes end when their calls return: one query lane, one read lane, the control thread */
    RIG_AWAIT(rig_threads() <= threads_before + 5);
    fby_seq_unref(stuck);
    fby_seq_unref(other);
    rig_close(&rig);
}

/* The same for reads: a lane whose call has passed its limit does not count. */
static void a_stuck_read_gives_its_place_away(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, "store.host=thread", "store.read_lanes=1", "prefetch.io_timeout_s=0.05",
             "prefetch.no_progress_timeout_s=0.05", "store.breaker_failures=1000");
    fby_seq_t *stuck = rig_seq(&rig, 1, 65), *other = rig_seq(&rig, 2, 65);
    rig_store_blocks(&rig, stuck, 0, 4);
    rig_store_blocks(&rig, other, 0, 4);
    rig_script_block(&rig, stuck, 0, "get", "hang");
    fby_session_t first = rig_start(&rig, stuck, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_true(fby_mem_await_hung(rig.store, 1, RIG_PATIENCE_NS));
    fby_session_t second = rig_start(&rig, other, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, first).reason, FBY_REASON_IO_TIMEOUT);
    assert_int_equal(rig_wait(&rig, second).delivered_tokens, 64);
    fby_mem_release(rig.store);
    fby_session_release(rig.cache, first);
    fby_session_release(rig.cache, second);
    rig_quiet(&rig);
    fby_seq_unref(stuck);
    fby_seq_unref(other);
    rig_close(&rig);
}

/* C15: after three failures the store is left alone: misses at once, no call; the first after the back-off is the probe. */
static void an_open_breaker_misses_at_once(void **state)
{
    (void)state;
    for (int host = 0; host < 2; host++) {
        rig_t rig;
        fby_health_t health = {.size = sizeof(health)};
        RIG_OPEN(&rig, host == 0 ? "store.host=thread" : "store.host=inline", "store.breaker_failures=3",
                 "store.breaker_backoff_s=0.3");
        rig_script(&rig, "exists:*:err(CONNECTION)");
        for (uint64_t i = 0; i < 3; i++) {
            fby_seq_t *seq = rig_seq(&rig, i, 65);
            fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
            rig_wait(&rig, session);
            fby_session_release(rig.cache, session);
            fby_seq_unref(seq);
        }
        assert_int_equal(fby_cache_health(rig.cache, &health), 0);
        assert_int_equal(health.healthy, 0);
        assert_int_equal(health.breaker, 1);
        assert_non_null(strstr(health.message, "breaker"));
        rig_script(&rig, "");
        uint64_t batches = fby_mem_batches(rig.store, FBY_VERB_EXISTS);
        fby_seq_t *seq = rig_seq(&rig, 50, 65);
        rig_store_blocks(&rig, seq, 0, 4);
        fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        fby_snapshot_t result = rig_wait(&rig, session);
        fby_session_release(rig.cache, session);
        assert_int_equal(fby_cache_health(rig.cache, &health), 0);
        if (health.breaker == 1) { /* else the machine slept through the back-off */
            assert_int_equal(result.delivered_tokens, 0);
            assert_int_equal(fby_mem_batches(rig.store, FBY_VERB_EXISTS), batches);
        }
        RIG_AWAIT((fby_cache_health(rig.cache, &health), health.breaker != 1 || health.breaker_retry_ns == 0));
        session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        assert_int_equal(rig_wait(&rig, session).delivered_tokens, 64);
        fby_session_release(rig.cache, session);
        assert_int_equal(fby_cache_health(rig.cache, &health), 0);
        assert_int_equal(health.breaker, 0);
        assert_int_equal(health.healthy, 1);
        rig_quiet(&rig);
        fby_seq_unref(seq);
        rig_close(&rig);
    }
}

/* The breaker opens between a query's first try and its second: no store was asked again, so nothing is known, and the
   reason says so. A query that is new then is told "nothing there". */
static void a_query_that_failed_is_no_miss_when_the_breaker_opens(void **state)
{
    rig_t rig;
    const fby_reason_t reasons[] = {FBY_REASON_QUERY_ERROR, FBY_REASON_COMPLETE};
    RIG_OPEN(&rig, "store.breaker_failures=1", "store.breaker_backoff_s=1000", "store.breaker_backoff_max_s=1000");
    rig_script(&rig, "exists:*:err(CONNECTION)");
    for (uint64_t i = 0; i < 2; i++) {
        fby_seq_t *seq = rig_seq(&rig, i, 65);
        fby_session_t session = rig_start(&rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        assert_int_equal(rig_wait(&rig, session).reason, reasons[i]);
        fby_session_release(rig.cache, session);
        fby_seq_unref(seq);
    }
    assert_int_equal(fby_mem_batches(rig.store, FBY_VERB_EXISTS), 1);
    rig_quiet(&rig);
    rig_close(&rig);
}

/* Opens the rig over a plug-in that an environment variable names. */
static void open_plugin(rig_t *rig, const char *variable)
{
    char driver[512];
    const char *plugin = getenv(variable);
    if (plugin == NULL) {
        print_message("skipped: %s does not name the plug-in\n", variable);
        skip();
    }
    RIG_OPEN(rig, NULL);
    assert_int_equal(fby_cache_close(rig->cache, RIG_PATIENCE_S, NULL), 0);
    snprintf(driver, sizeof(driver), "store.driver=%s", plugin);
    rig_reopen(rig, (const char *const[]){driver, "store.negative_ttl_s=0", NULL});
}

/* Reads of four sessions at once, which all end as missing, and a put. */
static void crowd(rig_t *rig, uint64_t round)
{
    fby_session_t sessions[4];
    fby_seq_t *seqs[4];
    for (uint64_t k = 0; k < 4; k++) {
        seqs[k] = rig_seq(rig, round * 4 + k, 65);
        sessions[k] = rig_start(rig, seqs[k], FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    }
    fby_seq_t *written = rig_seq(rig, 10000 + round, 65);
    rig_put_stored(rig, written, 4);
    fby_seq_unref(written);
    for (uint64_t k = 0; k < 4; k++) {
        assert_int_equal(rig_wait(rig, sessions[k]).reason, FBY_REASON_PARTIAL_READ);
        fby_session_release(rig->cache, sessions[k]);
        fby_seq_unref(seqs[k]);
    }
}

/* A driver that takes one call at a time never gets a second one, and every kind of work gets its turn. */
static void a_narrow_driver_is_never_crowded(void **state)
{
    rig_t rig;
    open_plugin(&rig, "FOREBAY_NARROW_STORE");
    for (uint64_t i = 0; i < 50; i++) {
        crowd(&rig, i);
    }
    rig_quiet(&rig);
    rig_close(&rig);
}

/* The driver dies when a read that it had no room for is overtaken. */
static void reads_wait_for_room_in_order(void **state)
{
    rig_t rig;
    open_plugin(&rig, "FOREBAY_QUEUE_STORE");
    for (uint64_t i = 0; i < 50; i++) {
        crowd(&rig, i);
    }
    rig_quiet(&rig);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(no_thread_is_made_before_it_is_needed, remember_threads),
        cmocka_unit_test_setup(lanes_are_made_one_by_one, remember_threads),
        cmocka_unit_test_setup(a_stuck_query_gives_its_place_away, remember_threads),
        cmocka_unit_test_setup(a_stuck_read_gives_its_place_away, remember_threads),
        cmocka_unit_test_setup(an_open_breaker_misses_at_once, remember_threads),
        cmocka_unit_test(a_query_that_failed_is_no_miss_when_the_breaker_opens),
        cmocka_unit_test(a_narrow_driver_is_never_crowded),
        cmocka_unit_test(reads_wait_for_room_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
