/* test_handles.c - the table of handles against a naive list, to the brim and back. */
#include "runtime/handles.h"
#include "unit.h"

static void what_is_set_is_found_until_it_is_removed(void **state)
{
    (void)state;
    fby_handles_t handles;
    assert_int_equal(fby_handles_init(&handles, 4), 0);
    assert_null(fby_handles_find(&handles, 7));
    assert_true(fby_handles_set(&handles, 7, 70));
    assert_int_equal(*fby_handles_find(&handles, 7), 70);
    assert_true(fby_handles_set(&handles, 7, 71));
    assert_int_equal(handles.count, 1);
    assert_int_equal(fby_handles_remove(&handles, 7), 71);
    assert_int_equal(fby_handles_remove(&handles, 7), 0);
    assert_null(fby_handles_find(&handles, 7));
    assert_false(fby_handles_set(&handles, 0, 1));
    assert_null(fby_handles_find(&handles, 0));
    fby_handles_free(&handles);
}

static void it_holds_what_it_was_made_for_and_no_more(void **state)
{
    (void)state;
    fby_handles_t handles;
    assert_int_equal(fby_handles_init(&handles, 5), 0);
    for (uint64_t i = 1; i <= 5; i++) {
        assert_true(fby_handles_set(&handles, i, i));
    }
    assert_false(fby_handles_set(&handles, 6, 6));
    assert_true(fby_handles_set(&handles, 5, 50));
    fby_handles_remove(&handles, 2);
    assert_true(fby_handles_set(&handles, 6, 6));
    fby_handles_free(&handles);
}

static void random_changes_agree_with_a_list(void **state)
{
    (void)state;
    enum { KEYS = 64, MOST = 48 };
    fby_handles_t handles;
    uint64_t seed = 1, value[KEYS] = {0};
    uint32_t count = 0;
    assert_int_equal(fby_handles_init(&handles, MOST), 0);
    for (int step = 0; step < 100000; step++) {
        uint32_t k = unit_below(&seed, KEYS);
        uint64_t handle =
            ((uint64_t)3 << 62) | ((uint64_t)k << 20) | (k % 8); /* as the core makes them: crowded bits */
        if (unit_below(&seed, 2) == 0) {
            bool fits = value[k] != 0 || count < MOST;
            assert_int_equal(fby_handles_set(&handles, handle, (uint64_t)step + 1), fits);
            count += fits && value[k] == 0;
            value[k] = fits ? (uint64_t)step + 1 : 0;
        } else {
            assert_int_equal(fby_handles_remove(&handles, handle), value[k]);
            count -= value[k] != 0;
            value[k] = 0;
        }
        assert_int_equal(handles.count, count);
        for (uint32_t i = 0; i < KEYS; i++) {
            const uint64_t *found = fby_handles_find(&handles, ((uint64_t)3 << 62) | ((uint64_t)i << 20) | (i % 8));
            assert_int_equal(found != NULL ? *found : 0, value[i]);
        }
    }
    fby_handles_free(&handles);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_set_is_found_until_it_is_removed),
        cmocka_unit_test(it_holds_what_it_was_made_for_and_no_more),
        cmocka_unit_test(random_changes_agree_with_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
