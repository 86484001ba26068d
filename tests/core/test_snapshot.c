/* test_snapshot.c - the latch: consistent pictures without a lock, whatever the writer does. */
#include <pthread.h>

#include "core/latch.h"
#include "story.h"

static void a_reader_sees_the_last_whole_picture(void **state)
{
    (void)state;
    static fby_latch_t latch;
    fby_snapshot_t written = {.size = sizeof(written), .version = 7, .delivered_tokens = 64}, read;
    fby_latch_write(&latch, &written);
    fby_latch_read(&latch, &read);
    assert_memory_equal(&read, &written, sizeof(read));
}

/* A writer that stops between two words: readers use the other copy. */
static void a_writer_that_stops_midway_blocks_nobody(void **state)
{
    (void)state;
    static fby_latch_t latch;
    fby_snapshot_t first = {.size = sizeof(first), .version = 1, .delivered_tokens = 16}, read;
    fby_latch_write(&latch, &first);
    atomic_fetch_add(&latch.sequence, 1); /* it has begun to write copy 0 */
    atomic_store(&latch.copy[0][1], UINT64_C(0xdead));
    fby_latch_read(&latch, &read);
    assert_memory_equal(&read, &first, sizeof(read));
}

typedef struct shared {
    fby_latch_t latch;
    _Atomic bool stop;
    _Atomic uint64_t torn, backwards, reads;
} shared_t;

static void *reader(void *arg)
{
    shared_t *shared = arg;
    uint64_t last = 0, torn = 0, backwards = 0, reads = 0;
    while (!atomic_load(&shared->stop)) {
        fby_snapshot_t s;
        fby_latch_read(&shared->latch, &s);
        torn += s.found_tokens != s.version || s.delivered_tokens != s.version || s.terminal_ns != s.version;
        backwards += s.version < last;
        last = s.version;
        reads++;
    }
    atomic_fetch_add(&shared->torn, torn);
    atomic_fetch_add(&shared->backwards, backwards);
    atomic_fetch_add(&shared->reads, reads);
    return NULL;
}

static void readers_never_see_halves_of_two_pictures(void **state)
{
    (void)state;
    static shared_t shared;
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reader, &shared), 0);
    for (uint64_t v = 1; v <= 200000; v++) {
        fby_snapshot_t s = {
            .size = sizeof(s), .version = v, .found_tokens = v, .delivered_tokens = v, .terminal_ns = v};
        fby_latch_write(&shared.latch, &s);
    }
    atomic_store(&shared.stop, true);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(shared.torn, 0);
    assert_int_equal(shared.backwards, 0);
}

static void every_change_bumps_the_version(void **state)
{
    (void)state;
    rig_config_t config;
    story_traces(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 161);
    fby_session_t s = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    uint64_t version = rig_snapshot(rig, s).version;
    story_answer(rig, 4);
    assert_true(rig_snapshot(rig, s).version > version);
    version = rig_snapshot(rig, s).version;
    story_begin(rig); /* begun is not in the picture */
    assert_snapshot(rig, s, version, version);
    story_ok(rig, seq, 0);
    assert_true(rig_snapshot(rig, s).version > version);
    version = rig_snapshot(rig, s).version;
    rig_demand(rig, s); /* wait_complete: nothing changes */
    assert_snapshot(rig, s, version, version);
    story_ok(rig, seq, 2);
    assert_true(rig_snapshot(rig, s).version > version);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_sees_the_last_whole_picture),
        cmocka_unit_test(a_writer_that_stops_midway_blocks_nobody),
        cmocka_unit_test(readers_never_see_halves_of_two_pictures),
        cmocka_unit_test(every_change_bumps_the_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
