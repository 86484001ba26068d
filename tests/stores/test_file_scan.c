/* What a directory holds after everything that may have happened to it. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keys/keys.h"
#include "stores/file.h"
#include "stores/stores.h"

static const fby_store_driver_t *const file = &fby_store_file;
static fby_store_spec_t spec;
static fby_store_t *store;
static char *directory;
static const char *direct;

static int setup(void **state)
{
    spec = fixture_spec(512);
    direct = "direct=off";
    directory = fixture_directory();
    return 0;
}

static int teardown(void **state)
{
    fixture_remove_directory(directory);
    return 0;
}

static void open_store(void)
{
    store = fixture_open(file, &spec, fixture_dir_option(directory), direct, "segment=64KiB", "capacity=1MiB", NULL);
}

static fby_file_t *inside(void)
{
    return (fby_file_t *)store;
}

static char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

/* Stores objects 0 to n-1 of group 0 and gives the offset of the last one's slot. */
static uint64_t store_objects(uint64_t n)
{
    open_store();
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(fixture_put(file, store, &spec, i), spec.object_bytes[0]);
    }
    fby_object_id_t id = fixture_id(&spec, n - 1, 0);
    uint64_t offset = fby_file_slot_offset(fby_file_find(inside(), &id.hash, 0));
    file->close(store);
    return offset;
}

static void a_segment_cut_at_any_byte_of_its_last_object_loses_only_that(void **state)
{
    uint64_t last = store_objects(3);
    for (uint64_t cut = 0; cut <= spec.object_bytes[0]; cut++) {
        assert_int_equal(truncate(path_of("segment-00000000.fby"), (off_t)(last + cut)), 0);
        open_store();
        bool whole = cut == spec.object_bytes[0];
        assert_int_equal(fixture_get(file, store, &spec, 0), spec.object_bytes[0]);
        assert_int_equal(fixture_get(file, store, &spec, 1), spec.object_bytes[0]);
        assert_int_equal(fixture_get(file, store, &spec, 2), whole ? (int64_t)spec.object_bytes[0] : FBY_E_MISSING);
        assert_int_equal(fixture_put(file, store, &spec, 2), whole ? FBY_E_EXISTS : (int64_t)spec.object_bytes[0]);
        file->close(store);
    }
}

static void a_segment_cut_for_a_reader_is_read_as_far_as_it_goes(void **state)
{
    uint64_t last = store_objects(3);
    assert_int_equal(truncate(path_of("segment-00000000.fby"), (off_t)last), 0);
    store = fixture_open(file, &spec, fixture_dir_option(directory), "readonly=1", NULL);
    assert_int_equal(inside()->stored, 2);
    assert_int_equal(fixture_get(file, store, &spec, 1), spec.object_bytes[0]);
    file->close(store);
    struct stat status;
    assert_int_equal(stat(path_of("segment-00000000.fby"), &status), 0);
    assert_int_equal(status.st_size, last);
}

static void flip(uint64_t at, uint8_t mask)
{
    uint8_t byte;
    int fd = open(path_of("segment-00000000.fby"), O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= mask;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

/* Whatever bit of an object flips on disk: it is either not found, or found and known to be wrong. */
static void a_flipped_bit_anywhere_in_an_object_is_never_taken_for_good(void **state)
{
    uint64_t at = store_objects(1);
    uint8_t *buffer = fixture_buffer(&spec, 1);
    fby_object_id_t id = fixture_id(&spec, 0, 0);
    for (uint32_t byte = 0; byte < spec.object_bytes[0]; byte += byte < 500 ? 25 : 1) {
        flip(at + byte, 0x10);
        open_store();
        fby_store_op_t op = fixture_op(&spec, 0, 0, buffer);
        assert_int_equal(file->get(store, &op, 1), 0);
        bool good = op.result == (int64_t)op.bytes && fby_object_verify(buffer, &id, true) == FBY_OBJECT_OK;
        assert_false(good);
        assert_true(op.result == (int64_t)op.bytes || op.result == FBY_E_MISSING);
        file->close(store);
        flip(at + byte, 0x10);
    }
    open_store();
    assert_int_equal(fixture_get(file, store, &spec, 0), spec.object_bytes[0]);
    file->close(store);
    free(buffer);
}

static void a_trailer_that_changed_under_the_store_frees_the_key(void **state)
{
    uint64_t at = store_objects(1);
    uint8_t *buffer = fixture_buffer(&spec, 1);
    open_store();
    flip(at + 512 + 16, 1); /* another key */
    fby_store_op_t op = fixture_op(&spec, 0, 0, buffer);
    assert_int_equal(file->get(store, &op, 1), 0);
    assert_int_equal(op.result, op.bytes); /* the caller's check says what is wrong */
    assert_int_equal(fixture_exists(file, store, 0), 0);
    assert_int_equal(fixture_put(file, store, &spec, 0), spec.object_bytes[0]);
    assert_int_equal(fixture_get(file, store, &spec, 0), spec.object_bytes[0]);
    file->close(store);
    free(buffer);
}

static void a_damaged_segment_header_costs_that_segment_only(void **state)
{
    store_objects(200); /* more than one segment of 64 KiB */
    flip(20, 1);
    open_store();
    assert_int_equal(inside()->unreadable_segments, 1);
    assert_in_range(inside()->stored, 50, 150);
    assert_int_equal(fixture_get(file, store, &spec, 199), spec.object_bytes[0]);
    assert_int_equal(fixture_put(file, store, &spec, 0), spec.object_bytes[0]);
    file->close(store);
}

static void files_that_are_not_ours_are_left_alone(void **state)
{
    static const char *const names[] = {"notes.txt", "segment-xyz.fby", "segment-0x00000a.fby",
                                        "segment-00000000.fby.bak"};
    struct stat status;
    store_objects(1);
    for (size_t i = 0; i < FBY_ARRAY_LEN(names); i++) {
        close(open(path_of(names[i]), O_CREAT | O_WRONLY, 0600));
    }
    close(open(path_of("segment-00000007.fby.tmp"), O_CREAT | O_WRONLY, 0600)); /* an interrupted creation is ours */
    open_store();
    assert_int_equal(inside()->stored, 1);
    file->close(store);
    for (size_t i = 0; i < FBY_ARRAY_LEN(names); i++) {
        assert_int_equal(stat(path_of(names[i]), &status), 0);
    }
    assert_int_equal(stat(path_of("segment-00000007.fby.tmp"), &status), -1);
}

/* A kill between an eviction and the write that follows leaves the old object; it may be stored again by then. */
static void a_key_that_is_there_twice_is_counted_once(void **state)
{
    store_objects(2);
    uint8_t object[8192];
    int fd = open(path_of("segment-00000000.fby"), O_RDWR);
    uint64_t stride = fby_align_up(spec.object_bytes[0], 64);
    assert_int_equal(pread(fd, object, stride, 4096), stride);
    assert_int_equal(pwrite(fd, object, stride, (off_t)(4096 + 5 * stride)), stride);
    close(fd);
    open_store();
    assert_int_equal(inside()->stored, 2);
    for (uint64_t i = 2; i < 10; i++) { /* the second copy's slot is room like any other */
        assert_int_equal(fixture_put(file, store, &spec, i), spec.object_bytes[0]);
    }
    file->close(store);
    open_store();
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(fixture_get(file, store, &spec, i), spec.object_bytes[0]);
    }
    file->close(store);
}

/* A trailer may lie in two pages; a torn write can leave the one new and the other old. */
static void a_trailer_that_is_half_new_and_half_old_is_no_object(void **state)
{
    uint64_t at = store_objects(1);
    uint8_t other[1024];
    fixture_fill(&spec, 5, 0, other);
    int fd = open(path_of("segment-00000000.fby"), O_RDWR);
    for (uint32_t half = 8; half < 64; half += 8) {
        assert_int_equal(pwrite(fd, other + 512, half, (off_t)(at + 512)), half);
        open_store();
        assert_int_equal(inside()->stored, half <= 16); /* up to there the two trailers are equal */
        file->close(store);
    }
    close(fd);
}

static void an_interrupted_reuse_leaves_no_mixture(void **state)
{
    /* The three moments of reusing slot 0 of object 0 for another: before, invalidated, half written. */
    uint64_t at = store_objects(1);
    uint8_t object[8192];
    int fd = open(path_of("segment-00000000.fby"), O_RDWR);
    open_store();
    assert_int_equal(inside()->stored, 1);
    file->close(store);
    assert_int_equal(pwrite(fd, fby_file_zeros, 64, (off_t)(at + 512)), 64);
    open_store();
    assert_int_equal(inside()->stored, 0);
    file->close(store);
    fixture_fill(&spec, 77, 0, object);
    for (size_t written = 0; written < spec.object_bytes[0]; written += 37) {
        assert_int_equal(pwrite(fd, object, written, (off_t)at), written);
        open_store();
        assert_int_equal(inside()->stored, 0);
        file->close(store);
    }
    close(fd);
}

/* ---- SIGKILL ---- */

enum { KILL_ROUNDS = 30, KEYS = 300 };

/* Writes objects in random order for ever, through the engine of the round, and reports each that is stored. */
static _Noreturn void write_until_killed(uint32_t round, int report)
{
    fby_store_caps_t caps;
    uint64_t random = round, tag;
    uint8_t *buffer = fixture_buffer(&spec, 4);
    store = fixture_open(file, &spec, fixture_dir_option(directory), round % 2 ? "direct=auto" : "direct=off",
                         round % 4 < 2 ? "io=auto" : "io=sync", "capacity=256KiB", NULL);
    file->capabilities(store, &caps);
    for (;;) {
        fby_store_op_t ops[4];
        uint64_t objects[4];
        for (uint32_t k = 0; k < 4; k++) {
            objects[k] = unit_below(&random, KEYS);
            ops[k] = fixture_op(&spec, objects[k], 0, buffer + k * spec.slot_bytes[0]);
            fixture_fill(&spec, objects[k], 0, ops[k].buffer);
        }
        if (!caps.async) {
            file->put(store, ops, 4);
        } else if (file->submit(store, 1, ops, 4, 1) != 0 || file->reap(store, &tag, 1, -1) != 1) {
            _exit(1);
        }
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t object = (uint32_t)objects[k];
            if (ops[k].result == (int64_t)ops[k].bytes && write(report, &object, sizeof(object)) != sizeof(object)) {
                _exit(1);
            }
        }
    }
}

static int check_object(void *arg, const char *key, uint32_t bytes, const void *trailer)
{
    uint64_t *seen = arg;
    uint8_t *buffer = fixture_buffer(&spec, 1);
    fby_object_id_t id;
    uint64_t checksum;
    uint8_t flags;
    assert_int_equal(fby_trailer_parse(trailer, &id, &checksum, &flags), FBY_OBJECT_OK);
    fby_store_op_t op = {.buffer = buffer, .bytes = bytes};
    memcpy(op.key, key, strlen(key) + 1);
    assert_int_equal(file->get(store, &op, 1), 0);
    assert_int_equal(op.result, bytes);
    assert_int_equal(fby_object_verify(buffer, &id, true), FBY_OBJECT_OK);
    free(buffer);
    ++*seen;
    return 0;
}

/* The last objects that were reported must be there: eviction takes the longest unused first. */
static void check_after_kill(const uint32_t *reported, size_t n)
{
    uint64_t seen = 0;
    open_store();
    assert_int_equal(file->visit(store, check_object, &seen), 0);
    assert_int_equal(seen, inside()->stored);
    assert_int_equal(inside()->unreadable_segments, 0);
    for (size_t i = n > 8 ? n - 8 : 0; i < n; i++) {
        assert_int_equal(fixture_get(file, store, &spec, reported[i]), spec.object_bytes[0]);
    }
    file->close(store);
}

static void killed_at_any_moment_it_keeps_what_it_reported_and_nothing_torn(void **state)
{
    static uint32_t reported[1 << 20];
    spec = fixture_spec(16384);
    spec.groups = 1;
    uint64_t random = 99;
    for (uint32_t round = 0; round < KILL_ROUNDS; round++) {
        int pipes[2];
        size_t bytes = 0, want = (1 + unit_below(&random, 60)) * sizeof(reported[0]);
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(pipes[0]);
            write_until_killed(round, pipes[1]);
        }
        close(pipes[1]);
        while (bytes < want) { /* the kill comes after a random number of stored objects */
            ssize_t moved = read(pipes[0], (uint8_t *)reported + bytes, want - bytes);
            assert_true(moved > 0);
            bytes += (size_t)moved;
        }
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        for (ssize_t moved; (moved = read(pipes[0], (uint8_t *)reported + bytes, sizeof(reported) - bytes)) > 0;) {
            bytes += (size_t)moved;
        }
        close(pipes[0]);
        check_after_kill(reported, bytes / sizeof(reported[0]));
    }
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(a_segment_cut_at_any_byte_of_its_last_object_loses_only_that),
        STORY(a_segment_cut_for_a_reader_is_read_as_far_as_it_goes),
        STORY(a_flipped_bit_anywhere_in_an_object_is_never_taken_for_good),
        STORY(a_trailer_that_changed_under_the_store_frees_the_key),
        STORY(a_damaged_segment_header_costs_that_segment_only),
        STORY(files_that_are_not_ours_are_left_alone),
        STORY(a_key_that_is_there_twice_is_counted_once),
        STORY(a_trailer_that_is_half_new_and_half_old_is_no_object),
        STORY(an_interrupted_reuse_leaves_no_mixture),
        STORY(killed_at_any_moment_it_keeps_what_it_reported_and_nothing_torn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
