/* What `forebay store ls|verify|gc` asks of the file store. */
#include "fixture.h"

#include <fcntl.h>
#include <unistd.h>

#include "stores/file.h"
#include "stores/stores.h"

#define BYTES (512 + 64)
#define OBJECTS 300

static const fby_store_driver_t *const file = &fby_store_file;
static fby_store_spec_t spec;
static fby_store_t *store;
static char *directory;

static void open_store(void)
{
    store =
        fixture_open(file, &spec, fixture_dir_option(directory), "segment=64KiB", "capacity=4MiB", "direct=off", NULL);
}

static int setup(void **state)
{
    spec = fixture_spec(512);
    directory = fixture_directory();
    open_store();
    for (uint64_t i = 0; i < OBJECTS; i++) {
        assert_int_equal(fixture_put(file, store, &spec, i), BYTES);
    }
    return 0;
}

static int teardown(void **state)
{
    file->close(store);
    fixture_remove_directory(directory);
    return 0;
}

/* Flips a bit of the payload of object i on disk. */
static void damage(uint64_t i)
{
    uint8_t byte;
    fby_object_id_t id = fixture_id(&spec, i, 0);
    const fby_slot_t *slot = fby_file_find((fby_file_t *)store, &id.hash, 0);
    assert_non_null(slot);
    off_t at = (off_t)fby_file_slot_offset(slot) + 7;
    assert_int_equal(pread(slot->segment->fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(slot->segment->fd, &byte, 1, at), 1);
}

typedef struct listing {
    uint32_t seen, stop_at, wrong;
} listing_t;

static int list_object(void *arg, const char *key, uint32_t bytes, const void *trailer)
{
    listing_t *listing = arg;
    fby_object_id_t id;
    uint64_t checksum;
    uint8_t flags, *buffer = fixture_buffer(&spec, 1);
    assert_int_equal(bytes, BYTES);
    assert_int_equal(fby_trailer_parse(trailer, &id, &checksum, &flags), FBY_OBJECT_OK);
    fby_store_op_t op = {.buffer = buffer, .bytes = bytes};
    memcpy(op.key, key, strlen(key) + 1);
    assert_int_equal(file->get(store, &op, 1), 0); /* the store may be used meanwhile */
    listing->wrong += fby_object_verify(buffer, &id, true) != FBY_OBJECT_OK;
    free(buffer);
    return ++listing->seen == listing->stop_at;
}

static void every_object_is_visited_once(void **state)
{
    listing_t listing = {0};
    assert_int_equal(file->visit(store, list_object, &listing), 0);
    assert_int_equal(listing.seen, OBJECTS);
    assert_int_equal(listing.wrong, 0);
}

static void a_visit_can_be_ended(void **state)
{
    listing_t listing = {.stop_at = 5};
    assert_int_equal(file->visit(store, list_object, &listing), 1);
    assert_int_equal(listing.seen, 5);
}

static void flipped_bits_are_found_by_reading_everything(void **state)
{
    listing_t listing = {0};
    damage(17);
    damage(200);
    assert_int_equal(file->visit(store, list_object, &listing), 0);
    assert_int_equal(listing.seen, OBJECTS);
    assert_int_equal(listing.wrong, 2);
}

static void gc_drops_what_is_unreadable_for_good(void **state)
{
    uint64_t freed = 1;
    char text[256];
    damage(17);
    assert_int_equal(file->gc(store, &freed, text, sizeof(text)), 0);
    assert_string_equal(text, "1 unreadable objects dropped, 0 empty and 0 damaged segments removed");
    assert_int_equal(freed, 0);
    assert_int_equal(fixture_exists(file, store, 17), 0);
    file->close(store);
    open_store();
    assert_int_equal(fixture_exists(file, store, 17), 0);
    assert_int_equal(((fby_file_t *)store)->stored, OBJECTS - 1);
    assert_int_equal(fixture_put(file, store, &spec, 17), BYTES);
    assert_int_equal(fixture_get(file, store, &spec, 17), BYTES);
}

static void gc_gives_back_empty_and_damaged_segments(void **state)
{
    uint64_t freed = 0;
    char text[256], path[512];
    for (uint64_t i = 0; i < OBJECTS; i++) {
        assert_int_equal(fixture_remove(file, store, i), 1);
    }
    snprintf(path, sizeof(path), "%s/segment-000000ff.fby", directory);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, path, 100), 100);
    close(fd);
    uint64_t before = ((fby_file_t *)store)->dirs[0].bytes;
    assert_int_equal(file->gc(store, &freed, text, sizeof(text)), 0);
    assert_string_equal(text, "0 unreadable objects dropped, 3 empty and 1 damaged segments removed");
    assert_true(freed >= before);
    assert_int_equal(((fby_file_t *)store)->dirs[0].bytes, 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(fixture_put(file, store, &spec, 1), BYTES);
}

static void gc_needs_a_store_that_may_be_written(void **state)
{
    uint64_t freed;
    char text[256];
    file->close(store);
    store = fixture_open(file, &spec, fixture_dir_option(directory), "readonly=1", NULL);
    assert_int_equal(file->gc(store, &freed, text, sizeof(text)), FBY_E_INVALID);
    assert_string_equal(text, "the store is open for reading only");
}

static void health_says_what_there_is(void **state)
{
    char text[256];
    assert_int_equal(file->health(store, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "ok: 300 objects in 3 segments"));
    assert_non_null(strstr(text, "of 4194304 bytes"));
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(every_object_is_visited_once),
        STORY(a_visit_can_be_ended),
        STORY(flipped_bits_are_found_by_reading_everything),
        STORY(gc_drops_what_is_unreadable_for_good),
        STORY(gc_gives_back_empty_and_damaged_segments),
        STORY(gc_needs_a_store_that_may_be_written),
        STORY(health_says_what_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
