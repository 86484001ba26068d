/* test_latch.c - the lock-free snapshot: whole pictures for every reader, whatever moment a writer stops at. */
#include <pthread.h>

#include "core/latch.h"
#include "unit.h"

#define PUBLICATIONS 20000u
#define READERS 3u

static void never_written_is_all_zero(void **state)
{
    (void)state;
    fby_latch_t latch = {0};
    fby_snapshot_t none = {0}, read;
    memset(&read, 0xff, sizeof(read));
    fby_latch_read(&latch, &read);
    assert_memory_equal(&read, &none, sizeof(read));
}

static void the_last_publication_is_read_whole(void **state)
{
    (void)state;
    fby_latch_t latch = {0};
    fby_snapshot_t written, read;
    for (int byte = 1; byte < 5; byte++) {
        memset(&written, byte, sizeof(written));
        fby_latch_write(&latch, &written);
        fby_latch_read(&latch, &read);
        assert_memory_equal(&read, &written, sizeof(read));
    }
}

/* What fby_latch_write does, word by word: a writer that stops after any of its steps leaves a picture that can be read. */
static void a_writer_may_stop_at_any_step(void **state)
{
    (void)state;
    uint64_t after[FBY_LATCH_WORDS];
    fby_snapshot_t older, newer, read;
    memset(&older, 1, sizeof(older));
    memset(&newer, 2, sizeof(newer));
    memset(after, 0, sizeof(after));
    memcpy(after, &newer, sizeof(newer));
    for (size_t steps = 0; steps <= 2 * (FBY_LATCH_WORDS + 1); steps++) {
        fby_latch_t latch = {0};
        fby_latch_write(&latch, &older);
        for (size_t step = 0; step < steps; step++) {
            size_t copy = step / (FBY_LATCH_WORDS + 1), word = step % (FBY_LATCH_WORDS + 1);
            if (word == 0)
                atomic_fetch_add(&latch.sequence, 1);
            else
                atomic_store(&latch.copy[copy][word - 1], after[word - 1]);
        }
        fby_latch_read(&latch, &read);
        bool turned = steps > FBY_LATCH_WORDS + 1; /* the second count: copy 0 is whole from here on */
        assert_memory_equal(&read, turned ? &newer : &older, sizeof(read));
    }
}

/* ---- Threads ---- */

typedef struct shared {
    fby_latch_t latch;
    _Atomic uint32_t done, torn, backwards;
} shared_t;

/* Every word of a picture follows from its version, so that no mixture of two passes. */
static void picture(fby_snapshot_t *out, uint64_t version)
{
    uint64_t words[sizeof(*out) / 8], mixed = version;
    for (size_t i = 0; i < sizeof(words) / 8; i++)
        words[i] = unit_random(&mixed);
    memcpy(out, words, sizeof(words));
    out->version = version;
    out->handle = version / 1000; /* the slot serves another session now and then */
}

static void *read_until_done(void *arg)
{
    shared_t *shared = arg;
    uint64_t last = 0;
    fby_snapshot_t read, expected;
    while (last < PUBLICATIONS) {
        fby_latch_read(&shared->latch, &read);
        picture(&expected, read.version);
        if (read.version)
            atomic_fetch_add(&shared->torn, memcmp(&read, &expected, sizeof(read)) != 0);
        atomic_fetch_add(&shared->backwards, read.version < last);
        last = read.version;
    }
    atomic_fetch_add(&shared->done, 1);
    return NULL;
}

static void readers_see_whole_pictures_in_order_and_the_last_one(void **state)
{
    (void)state;
    static shared_t shared;
    pthread_t threads[READERS];
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_until_done, &shared), 0);
    for (uint64_t version = 1; version <= PUBLICATIONS; version++) {
        fby_snapshot_t snapshot;
        picture(&snapshot, version);
        fby_latch_write(&shared.latch, &snapshot);
    }
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(shared.torn, 0);
    assert_int_equal(shared.backwards, 0);
    assert_int_equal(shared.done, READERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_written_is_all_zero),
        cmocka_unit_test(the_last_publication_is_read_whole),
        cmocka_unit_test(a_writer_may_stop_at_any_step),
        cmocka_unit_test(readers_see_whole_pictures_in_order_and_the_last_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
