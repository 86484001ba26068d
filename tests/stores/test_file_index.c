/* Which object gives way to a new one. */
#include "fixture.h"

#include "stores/file.h"
#include "stores/stores.h"

#define BYTES (4096 + 64)

static const fby_store_driver_t *const file = &fby_store_file;
static fby_store_spec_t spec;
static fby_store_t *store;
static char *directory;

static void open_with(const char *capacity, const char *segment)
{
    store = fixture_open(file, &spec, fixture_dir_option(directory), "direct=off", capacity, segment, NULL);
}

static int setup(void **state)
{
    spec = fixture_spec(4096);
    spec.groups = 1;
    spec.slot_bytes[0] = 8192;
    directory = fixture_directory();
    open_with("capacity=37888", "segment=37888"); /* 4096 + 8 * 4160, and a little */
    return 0;
}

static int teardown(void **state)
{
    file->close(store);
    fixture_remove_directory(directory);
    return 0;
}

static void put_range(uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        assert_int_equal(fixture_put(file, store, &spec, i), spec.object_bytes[0]);
    }
}

/* The objects of [0, n) that are there, as text: "0 2 3". */
static const char *present(uint64_t n)
{
    static char text[512];
    size_t used = 0;
    text[0] = '\0';
    for (uint64_t i = 0; i < n; i++) {
        if (fixture_exists(file, store, i) == 1) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%llu", used == 0 ? "" : " ",
                                     (unsigned long long)i);
        }
    }
    return text;
}

static void the_longest_unused_goes_first(void **state)
{
    put_range(0, 8);
    assert_string_equal(present(9), "0 1 2 3 4 5 6 7");
    put_range(8, 10);
    assert_string_equal(present(10), "2 3 4 5 6 7 8 9");
    assert_int_equal(((fby_file_t *)store)->evicted, 2);
}

static void a_read_is_a_use_and_a_probe_is_not(void **state)
{
    put_range(0, 8);
    assert_int_equal(fixture_get(file, store, &spec, 0), BYTES);
    assert_int_equal(fixture_exists(file, store, 1), 1);
    put_range(8, 9);
    assert_string_equal(present(9), "0 2 3 4 5 6 7 8");
}

static void what_is_being_read_is_never_evicted(void **state)
{
    fby_file_t *inside = (fby_file_t *)store;
    put_range(0, 8);
    fby_object_id_t id = fixture_id(&spec, 0, 0);
    pthread_mutex_lock(&inside->lock);
    fby_slot_t *slot = fby_file_find(inside, &id.hash, 0);
    fby_file_pin(inside, slot);
    pthread_mutex_unlock(&inside->lock);
    put_range(8, 24);
    assert_int_equal(fixture_exists(file, store, 0), 1);
    assert_true(fby_hash_equal(&slot->hash, &id.hash));
    pthread_mutex_lock(&inside->lock);
    assert_false(fby_file_unpin(inside, slot));
    pthread_mutex_unlock(&inside->lock);
    assert_int_equal(fixture_get(file, store, &spec, 0), BYTES);
}

static void when_everything_is_being_read_the_store_is_full(void **state)
{
    fby_file_t *inside = (fby_file_t *)store;
    fby_slot_t *slots[8];
    put_range(0, 8);
    for (uint64_t i = 0; i < 8; i++) {
        fby_object_id_t id = fixture_id(&spec, i, 0);
        slots[i] = fby_file_find(inside, &id.hash, 0);
        fby_file_pin(inside, slots[i]);
    }
    assert_int_equal(fixture_put(file, store, &spec, 8), FBY_E_FULL);
    for (uint64_t i = 0; i < 8; i++) {
        fby_file_unpin(inside, slots[i]);
    }
    assert_int_equal(fixture_put(file, store, &spec, 8), BYTES);
}

static void what_is_removed_while_it_is_read_is_freed_by_the_reader(void **state)
{
    fby_file_t *inside = (fby_file_t *)store;
    put_range(0, 8);
    fby_object_id_t id = fixture_id(&spec, 3, 0);
    fby_slot_t *slot = fby_file_find(inside, &id.hash, 0);
    fby_file_pin(inside, slot);
    assert_int_equal(fixture_remove(file, store, 3), 1);
    assert_int_equal(slot->state, FBY_SLOT_DOOMED);
    assert_int_equal(fixture_exists(file, store, 3), 0);
    put_range(8, 9); /* not into that slot */
    assert_int_equal(slot->state, FBY_SLOT_DOOMED);
    assert_true(fby_file_unpin(inside, slot));
    fby_file_release_doomed(inside, slot);
    assert_int_equal(slot->state, FBY_SLOT_FREE);
    assert_false(slot->stale);
    put_range(9, 10);
    assert_string_equal(present(10), "1 2 4 5 6 7 8 9");
}

/* Objects of another length hold the capacity: their longest unused segment gives way. */
static void a_new_object_length_gets_room_from_an_older_one(void **state)
{
    file->close(store);
    open_with("capacity=80KiB", "segment=20736"); /* four objects in a segment, three segments and some */
    put_range(0, 12);
    file->close(store);
    fby_store_spec_t old = spec;
    spec = fixture_spec(8192);
    spec.groups = 1;
    open_with("capacity=80KiB", "segment=20736");
    assert_int_equal(((fby_file_t *)store)->stored, 12);
    put_range(100, 110);
    assert_true(((fby_file_t *)store)->dirs[0].bytes <= 80 * 1024);
    assert_int_equal(fixture_get(file, store, &spec, 109), 8192 + 64);
    assert_int_equal(fixture_get(file, store, &spec, 108), 8192 + 64);
    assert_in_range(((fby_file_t *)store)->stored, 6, 11);
    spec = old;
}

static void capacity_is_never_passed(void **state)
{
    file->close(store);
    open_with("capacity=1MiB", NULL);
    for (uint64_t i = 0; i < 600; i++) {
        assert_int_equal(fixture_put(file, store, &spec, i), BYTES);
        assert_true(((fby_file_t *)store)->dirs[0].bytes <= 1024 * 1024);
    }
    assert_in_range(((fby_file_t *)store)->stored, 200, 252);
    assert_int_equal(fixture_get(file, store, &spec, 599), BYTES);
}

/* The order of use is not kept on disk: after a restart it is that of the slots. */
static void eviction_goes_on_after_a_restart(void **state)
{
    put_range(0, 12);
    file->close(store);
    open_with("capacity=37888", "segment=37888");
    assert_string_equal(present(12), "4 5 6 7 8 9 10 11");
    put_range(12, 20);
    assert_string_equal(present(20), "12 13 14 15 16 17 18 19");
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(the_longest_unused_goes_first),
        STORY(a_read_is_a_use_and_a_probe_is_not),
        STORY(what_is_being_read_is_never_evicted),
        STORY(when_everything_is_being_read_the_store_is_full),
        STORY(what_is_removed_while_it_is_read_is_freed_by_the_reader),
        STORY(a_new_object_length_gets_room_from_an_older_one),
        STORY(capacity_is_never_passed),
        STORY(eviction_goes_on_after_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
