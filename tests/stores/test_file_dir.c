/* Directories of the file store: locks, formats, weights epochs, and what may be wrong with them. */
#include "fixture.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
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

static fby_store_t *open_store(void)
{
    return fixture_open(file, &spec, dir, "capacity=4MiB", NULL);
}

static char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

/* Overwrites bytes of a file of the directory. */
static void patch(const char *name, off_t at, const void *bytes, size_t length)
{
    int fd = open(path_of(name), O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, length, at), length);
    close(fd);
}

static void one_writer_at_a_time(void **state)
{
    char holder[64];
    fby_store_t *store = open_store();
    snprintf(holder, sizeof(holder), "is in use by process %ld", (long)getpid());
    fixture_refused(file, &spec, -EBUSY, holder, dir, NULL);
    fixture_refused(file, &spec, -EBUSY, holder, dir, "readonly=1", NULL);
    file->close(store);
    file->close(open_store());
}

static void the_same_directory_twice_is_refused(void **state)
{
    char dirs[1024];
    snprintf(dirs, sizeof(dirs), "dirs=%s:%s", directory, directory);
    fixture_refused(file, &spec, -EBUSY, "is in use", dirs, NULL);
    file->close(open_store());
}

static void several_readers_share_a_directory(void **state)
{
    fby_store_t *store = open_store();
    fixture_put(file, store, &spec, 1);
    file->close(store);
    fby_store_t *one = fixture_open(file, &spec, dir, "readonly=1", NULL);
    fby_store_t *two = fixture_open(file, &spec, dir, "readonly=1", NULL);
    assert_int_equal(fixture_get(file, one, &spec, 1), BYTES);
    assert_int_equal(fixture_get(file, two, &spec, 1), BYTES);
    assert_int_equal(fixture_put(file, one, &spec, 2), FBY_E_INVALID);
    assert_int_equal(fixture_remove(file, one, 1), FBY_E_INVALID);
    assert_int_equal(file->raise_epoch(one, 100), FBY_E_INVALID);
    fixture_refused(file, &spec, -EBUSY, "is in use", dir, NULL);
    file->close(one);
    file->close(two);
}

static void reading_only_changes_nothing(void **state)
{
    struct stat status;
    fixture_refused(file, &spec, -ENOENT, "cannot be opened", fixture_dir_option(path_of("none")), "readonly=1", NULL);
    file->close(fixture_open(file, &spec, dir, "readonly=1", NULL));
    assert_int_equal(stat(path_of("forebay.super"), &status), -1);
    assert_int_equal(stat(path_of("forebay.lock"), &status), -1);
}

static void a_directory_is_made_but_not_its_parents(void **state)
{
    file->close(fixture_open(file, &spec, fixture_dir_option(path_of("new")), NULL));
    fixture_refused(file, &spec, -ENOENT, "cannot be made", fixture_dir_option(path_of("a/b")), NULL);
}

static void what_is_no_directory_is_named(void **state)
{
    close(open(path_of("plain"), O_CREAT | O_WRONLY, 0600));
    fixture_refused(file, &spec, -ENOTDIR, "cannot be opened: Not a directory", fixture_dir_option(path_of("plain")),
                    NULL);
}

static void a_newer_format_is_refused_and_left_alone(void **state)
{
    uint8_t before[FBY_HEADER_BYTES], after[FBY_HEADER_BYTES];
    file->close(open_store());
    patch("forebay.super", 8, "\x02", 1);
    int fd = open(path_of("forebay.super"), O_RDONLY);
    assert_int_equal(read(fd, before, sizeof(before)), sizeof(before));
    fixture_refused(file, &spec, FBY_E_FORMAT, "has format version 2, this build reads up to 1", dir, NULL);
    assert_int_equal(pread(fd, after, sizeof(after), 0), sizeof(after));
    assert_memory_equal(before, after, sizeof(before));
    close(fd);
}

static void a_newer_segment_is_refused_and_left_alone(void **state)
{
    fby_store_t *store = open_store();
    fixture_put(file, store, &spec, 1);
    file->close(store);
    patch("segment-00000000.fby", 8, "\x09", 1);
    fixture_refused(file, &spec, FBY_E_FORMAT, "segment-00000000.fby has format version 9", dir, NULL);
}

static void a_damaged_superblock_is_refused_with_the_way_out(void **state)
{
    fby_store_t *store = open_store();
    fixture_put(file, store, &spec, 1);
    file->close(store);
    patch("forebay.super", 100, "x", 1);
    fixture_refused(file, &spec, FBY_E_FORMAT, "is damaged; remove it", dir, NULL);
    assert_int_equal(truncate(path_of("forebay.super"), 17), 0);
    fixture_refused(file, &spec, FBY_E_FORMAT, "is damaged; remove it", dir, NULL);
    assert_int_equal(unlink(path_of("forebay.super")), 0);
    store = open_store();
    assert_int_equal(fixture_get(file, store, &spec, 1), BYTES);
    file->close(store);
}

static void a_lower_weights_epoch_is_refused(void **state)
{
    file->close(open_store());
    spec.epoch = 6;
    fixture_refused(file, &spec, FBY_E_STALE, "weights epoch 6 is below 7", dir, NULL);
    fixture_refused(file, &spec, FBY_E_STALE, "weights epoch 6 is below 7", dir, "readonly=1", NULL);
    spec.epoch = 9;
    file->close(open_store());
    spec.epoch = 8;
    fixture_refused(file, &spec, FBY_E_STALE, "weights epoch 8 is below 9", dir, NULL);
}

static void an_epoch_raised_while_open_holds_after_a_restart(void **state)
{
    fby_store_t *store = open_store();
    assert_int_equal(file->raise_epoch(store, 12), 0);
    assert_int_equal(file->raise_epoch(store, 12), 0);
    assert_int_equal(file->raise_epoch(store, 11), FBY_E_STALE);
    file->close(store);
    fixture_refused(file, &spec, FBY_E_STALE, "weights epoch 7 is below 12", dir, NULL);
}

static void models_that_are_told_apart_have_epochs_of_their_own(void **state)
{
    file->close(fixture_open(file, &spec, dir, "model=llama", NULL));
    spec.epoch = 1;
    file->close(fixture_open(file, &spec, dir, "model=qwen", NULL));
    fixture_refused(file, &spec, FBY_E_STALE, "for model 'llama'", dir, "model=llama", NULL);
    file->close(fixture_open(file, &spec, dir, NULL)); /* no model named: a third */
}

/* A tool knows no model: it reads everything and is bound to no epoch. */
static void a_tool_without_model_opens_any_directory(void **state)
{
    fby_store_t *store = open_store();
    fixture_put(file, store, &spec, 1);
    file->close(store);
    fby_store_spec_t none = {.size = sizeof(none)};
    store = fixture_open(file, &none, dir, "readonly=1", NULL);
    assert_int_equal(fixture_get(file, store, &spec, 1), BYTES);
    file->close(store);
}

static void another_models_objects_are_out_of_reach_and_stay(void **state)
{
    fby_store_t *store = open_store();
    fixture_put(file, store, &spec, 1);
    file->close(store);
    fby_store_spec_t other = fixture_spec(8192);
    other.fingerprint[0] = 99;
    other.epoch = 7;
    store = fixture_open(file, &other, dir, "capacity=4MiB", NULL);
    assert_int_equal(((fby_file_t *)store)->foreign, 1);
    assert_int_equal(fixture_put(file, store, &other, 1000), 8192 + 64);
    file->close(store);
    store = open_store();
    assert_int_equal(fixture_get(file, store, &spec, 1), BYTES);
    file->close(store);
}

static void a_directory_removed_under_it_is_unwell_but_never_a_crash(void **state)
{
    char text[256], command[600];
    fby_store_t *store = fixture_open(file, &spec, dir, "segment=16KiB", "capacity=1MiB", NULL);
    assert_int_equal(fixture_put(file, store, &spec, 1), BYTES);
    snprintf(command, sizeof(command), "rm -rf '%s'", directory);
    assert_int_equal(system(command), 0);
    assert_int_equal(fixture_get(file, store, &spec, 1), BYTES); /* still open */
    for (uint64_t i = 2; i < 20; i++) {
        int64_t result = fixture_put(file, store, &spec, i);
        assert_true(result == BYTES || result == FBY_E_CONNECTION);
    }
    assert_int_equal(file->health(store, text, sizeof(text)), FBY_E_CONNECTION);
    assert_non_null(strstr(text, "was removed"));
    assert_int_equal(file->raise_epoch(store, 100), -ENOENT);
    file->close(store);
    assert_int_equal(mkdir(directory, 0700), 0);
}

/* A read-only mount needs a privilege; without it there is nothing to see. */
static void a_read_only_file_system_is_named_with_the_way_out(void **state)
{
    if (mount("forebay-test", directory, "tmpfs", 0, "size=1m") != 0) {
        print_message("skipped: mounting needs a privilege\n");
        skip();
    }
    file->close(fixture_open(file, &spec, dir, "capacity=512KiB", NULL));
    assert_int_equal(mount(NULL, directory, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    fixture_refused(file, &spec, -EROFS, "cannot be written: Read-only file system; option readonly=1", dir, NULL);
    file->close(fixture_open(file, &spec, dir, "readonly=1", NULL));
    assert_int_equal(umount(directory), 0);
}

static void direct_io_that_is_asked_for_and_not_to_be_had_is_named(void **state)
{
    spec.alignment = 64;
    fby_store_t *store = open_store(); /* buffers are not aligned for it: buffered by itself */
    assert_false(((fby_file_t *)store)->dirs[0].direct);
    file->close(store);
}

static void keys_fan_out_over_directories(void **state)
{
    char dirs[1024], path[3][300];
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/%d", directory, i);
    }
    snprintf(dirs, sizeof(dirs), "dirs=%s:%s:%s", path[0], path[1], path[2]);
    fby_store_t *store = fixture_open(file, &spec, dirs, "capacity=12MiB", NULL);
    for (uint64_t i = 0; i < 120; i++) {
        assert_int_equal(fixture_put(file, store, &spec, i), BYTES);
    }
    file->close(store);
    uint64_t total = 0;
    for (int i = 0; i < 3; i++) { /* each holds its share, and is a store of its own */
        store = fixture_open(file, &spec, fixture_dir_option(path[i]), NULL);
        uint64_t share = ((fby_file_t *)store)->stored;
        assert_in_range(share, 20, 60);
        total += share;
        file->close(store);
    }
    assert_int_equal(total, 120);
    /* In another order, and with one more, every key is still found. */
    snprintf(dirs, sizeof(dirs), "dirs=%s:%s/3:%s:%s", path[2], directory, path[0], path[1]);
    store = fixture_open(file, &spec, dirs, "capacity=12MiB", NULL);
    for (uint64_t i = 0; i < 120; i++) {
        assert_int_equal(fixture_get(file, store, &spec, i), BYTES);
    }
    file->close(store);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(one_writer_at_a_time),
        STORY(the_same_directory_twice_is_refused),
        STORY(several_readers_share_a_directory),
        STORY(reading_only_changes_nothing),
        STORY(a_directory_is_made_but_not_its_parents),
        STORY(what_is_no_directory_is_named),
        STORY(a_newer_format_is_refused_and_left_alone),
        STORY(a_newer_segment_is_refused_and_left_alone),
        STORY(a_damaged_superblock_is_refused_with_the_way_out),
        STORY(a_lower_weights_epoch_is_refused),
        STORY(an_epoch_raised_while_open_holds_after_a_restart),
        STORY(models_that_are_told_apart_have_epochs_of_their_own),
        STORY(a_tool_without_model_opens_any_directory),
        STORY(another_models_objects_are_out_of_reach_and_stay),
        STORY(a_directory_removed_under_it_is_unwell_but_never_a_crash),
        STORY(a_read_only_file_system_is_named_with_the_way_out),
        STORY(direct_io_that_is_asked_for_and_not_to_be_had_is_named),
        STORY(keys_fan_out_over_directories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
