/* Segment files: their size, their number, and what happens when there is no room for one. */
#include "fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <unistd.h>

#include "stores/file.h"
#include "stores/stores.h"

#define BYTES (4096 + 64)

static const fby_store_driver_t *const file = &fby_store_file;
static fby_store_spec_t spec;
static char *directory;
static const char *dir;

static int setup(void **state)
{
    spec = fixture_spec(4096);
    directory = fixture_directory();
    dir = fixture_dir_option(directory);
    return 0;
}

static int teardown(void **state)
{
    fixture_remove_directory(directory);
    return 0;
}

static uint32_t segments_of(fby_store_t *store)
{
    uint32_t n = 0;
    for (const fby_segment_t *at = ((fby_file_t *)store)->dirs[0].segments; at != NULL; at = at->next) {
        n++;
    }
    return n;
}

static void a_small_store_is_cut_into_several_segments(void **state)
{
    fby_store_t *store = fixture_open(file, &spec, dir, "capacity=1600KiB", NULL);
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(fixture_put(file, store, &spec, i), BYTES);
    }
    assert_in_range(segments_of(store), 5, 10); /* of a sixteenth of the capacity each: two groups */
    file->close(store);
}

static void one_object_is_enough_for_a_segment(void **state)
{
    fby_store_t *store = fixture_open(file, &spec, dir, "segment=4KiB", "capacity=1MiB", "direct=off", NULL);
    assert_int_equal(fixture_put(file, store, &spec, 0), BYTES);
    const fby_segment_t *segment = ((fby_file_t *)store)->dirs[0].segments;
    assert_int_equal(segment->count, 1);
    assert_int_equal(segment->stride, BYTES);
    assert_int_equal(segment->file_bytes, 4096 + BYTES);
    file->close(store);
}

static void slots_are_padded_to_what_the_file_system_needs(void **state)
{
    fby_store_t *store = fixture_open(file, &spec, dir, "capacity=1MiB", NULL);
    assert_int_equal(fixture_put(file, store, &spec, 0), BYTES);
    const fby_file_t *inside = (fby_file_t *)store;
    assert_int_equal(inside->dirs[0].segments->stride, inside->dirs[0].direct ? 8192 : BYTES);
    assert_int_equal(inside->dirs[0].segments->direct, inside->dirs[0].direct);
    file->close(store);
}

/* Segments that were made for direct I/O serve without it, and the other way round. */
static void segments_of_either_alignment_serve_in_either_mode(void **state)
{
    static const char *const modes[] = {"direct=off", "direct=auto", "direct=off", "direct=auto"};
    for (uint64_t round = 0; round < FBY_ARRAY_LEN(modes); round++) {
        fby_store_t *store = fixture_open(file, &spec, dir, "capacity=4MiB", "segment=20KiB", modes[round], NULL);
        for (uint64_t i = round * 10; i < round * 10 + 10; i++) {
            assert_int_equal(fixture_put(file, store, &spec, i), BYTES);
        }
        for (uint64_t i = 0; i < round * 10 + 10; i++) {
            assert_int_equal(fixture_get(file, store, &spec, i), BYTES);
        }
        file->close(store);
    }
}

/* A file system of one MiB under a store that believes in sixteen. */
static void a_full_file_system_evicts_and_never_fails_a_reader(void **state)
{
    char text[256];
    if (mount("forebay-test", directory, "tmpfs", 0, "size=1m") != 0) {
        print_message("skipped: mounting needs a privilege\n");
        skip();
    }
    fby_store_t *store = fixture_open(file, &spec, dir, "capacity=16MiB", "segment=128KiB", NULL);
    for (uint64_t i = 0; i < 400; i++) {
        assert_int_equal(fixture_put(file, store, &spec, i), BYTES);
        assert_int_equal(fixture_get(file, store, &spec, i), BYTES);
    }
    assert_true(((fby_file_t *)store)->evicted > 0);
    assert_int_equal(file->health(store, text, sizeof(text)), 0);
    file->close(store);
    store = fixture_open(file, &spec, dir, "capacity=16MiB", NULL);
    assert_int_equal(fixture_get(file, store, &spec, 399), BYTES);
    file->close(store);
    assert_int_equal(umount(directory), 0);
}

static void with_no_room_for_even_one_segment_it_is_full(void **state)
{
    if (mount("forebay-test", directory, "tmpfs", 0, "size=64k") != 0) {
        print_message("skipped: mounting needs a privilege\n");
        skip();
    }
    fby_store_t *store = fixture_open(file, &spec, dir, "capacity=16MiB", "segment=1MiB", NULL);
    assert_int_equal(fixture_put(file, store, &spec, 0), FBY_E_FULL);
    assert_int_equal(fixture_exists(file, store, 0), 0);
    assert_int_equal(fixture_get(file, store, &spec, 0), FBY_E_MISSING);
    file->close(store);
    assert_int_equal(umount(directory), 0);
}

static void without_a_limit_it_leaves_a_tenth_of_the_file_system(void **state)
{
    if (mount("forebay-test", directory, "tmpfs", 0, "size=1m") != 0) {
        print_message("skipped: mounting needs a privilege\n");
        skip();
    }
    fby_store_t *store = fixture_open(file, &spec, dir, NULL);
    assert_in_range(((fby_file_t *)store)->dirs[0].capacity, 900000, 943718);
    file->close(store);
    assert_int_equal(umount(directory), 0);
}

/* ---- What a dead process's write in flight looks like: its descriptor still holds the segment ---- */

typedef struct holder {
    pthread_barrier_t *held;
    int fd;
} holder_t;

static void *let_go_later(void *arg)
{
    holder_t *holder = arg;
    pthread_barrier_wait(holder->held);
    const struct timespec moment = {.tv_nsec = 30000000};
    nanosleep(&moment, NULL); /* the open below waits for exactly this */
    close(holder->fd);
    return NULL;
}

static void an_open_waits_for_writes_of_a_dead_process(void **state)
{
    char path[512];
    pthread_t thread;
    pthread_barrier_t held;
    fby_store_t *store = fixture_open(file, &spec, dir, "capacity=1MiB", NULL);
    assert_int_equal(fixture_put(file, store, &spec, 0), BYTES);
    file->close(store);
    snprintf(path, sizeof(path), "%s/segment-00000000.fby", directory);
    holder_t holder = {&held, open(path, O_RDWR)};
    assert_int_equal(flock(holder.fd, LOCK_EX), 0);
    pthread_barrier_init(&held, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, let_go_later, &holder), 0);
    pthread_barrier_wait(&held);
    store = fixture_open(file, &spec, dir, "capacity=1MiB", NULL);
    assert_int_equal(fixture_get(file, store, &spec, 0), BYTES);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_barrier_destroy(&held);
    file->close(store);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(a_small_store_is_cut_into_several_segments),
        STORY(one_object_is_enough_for_a_segment),
        STORY(slots_are_padded_to_what_the_file_system_needs),
        STORY(segments_of_either_alignment_serve_in_either_mode),
        STORY(a_full_file_system_evicts_and_never_fails_a_reader),
        STORY(with_no_room_for_even_one_segment_it_is_full),
        STORY(without_a_limit_it_leaves_a_tenth_of_the_file_system),
        STORY(an_open_waits_for_writes_of_a_dead_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
