#include "fixture.h"

#include "stores/keymap.h"

typedef struct entry {
    fby_keymap_entry_t entry;
    uint64_t number;
} entry_t;

static void what_was_inserted_is_found_after_growth(void **state)
{
    fby_keymap_t map;
    char key[FBY_KEY_BYTES];
    assert_int_equal(fby_keymap_init(&map, sizeof(entry_t)), 0);
    for (uint64_t i = 0; i < 1000; i++) {
        fixture_key(i, 0, key);
        entry_t *entry = fby_keymap_insert(&map, key);
        assert_non_null(entry);
        assert_int_equal(entry->number, 0);
        entry->number = i + 1;
    }
    for (uint64_t i = 0; i < 1000; i++) {
        fixture_key(i, 0, key);
        assert_int_equal(((entry_t *)fby_keymap_find(&map, key))->number, i + 1);
        assert_ptr_equal(fby_keymap_insert(&map, key), fby_keymap_find(&map, key));
    }
    assert_int_equal(map.count, 1000);
    assert_null(fby_keymap_find(&map, "absent"));
    fby_keymap_destroy(&map, NULL);
}

static void what_is_taken_is_gone_and_the_callers(void **state)
{
    fby_keymap_t map;
    assert_int_equal(fby_keymap_init(&map, sizeof(entry_t)), 0);
    assert_non_null(fby_keymap_insert(&map, "a"));
    entry_t *entry = fby_keymap_take(&map, "a");
    assert_string_equal(entry->entry.key, "a");
    free(entry);
    assert_null(fby_keymap_take(&map, "a"));
    assert_int_equal(map.count, 0);
    fby_keymap_destroy(&map, NULL);
}

static int count_until_five(void *arg, fby_keymap_entry_t *entry)
{
    return ++*(int *)arg == 5 ? 42 : 0;
}

static void a_visit_can_be_ended(void **state)
{
    fby_keymap_t map;
    char key[FBY_KEY_BYTES];
    int seen = 0;
    assert_int_equal(fby_keymap_init(&map, sizeof(entry_t)), 0);
    for (uint64_t i = 0; i < 20; i++) {
        fixture_key(i, 0, key);
        assert_non_null(fby_keymap_insert(&map, key));
    }
    assert_int_equal(fby_keymap_each(&map, count_until_five, &seen), 42);
    assert_int_equal(seen, 5);
    fby_keymap_destroy(&map, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_inserted_is_found_after_growth),
        cmocka_unit_test(what_is_taken_is_gone_and_the_callers),
        cmocka_unit_test(a_visit_can_be_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
