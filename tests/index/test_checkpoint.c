/* Cases F02 and F11: the usable end is an intersection, looked for from above, each block asked once. */
#include "unit.h"

#include "index/index.h"

enum { BLOCKS = 40 };

typedef struct sets {
    bool have[FBY_MAX_GROUPS][BLOCKS];
    uint32_t asked[FBY_MAX_GROUPS][BLOCKS];
    uint32_t lowest; /* asked so far; must not rise */
} sets_t;

static bool present(void *arg, uint32_t block, uint32_t group)
{
    sets_t *sets = arg;
    assert_true(block <= sets->lowest);
    sets->lowest = block;
    sets->asked[group][block]++;
    return sets->have[group][block];
}

static uint32_t search(const uint32_t *trailing, uint32_t groups, uint32_t end, sets_t *sets)
{
    memset(sets->asked, 0, sizeof(sets->asked));
    sets->lowest = UINT32_MAX;
    return fby_checkpoint_below(trailing, groups, end, present, sets);
}

static bool legal(const uint32_t *trailing, uint32_t groups, uint32_t end, const sets_t *sets)
{
    for (uint32_t g = 0; g < groups; g++) {
        for (uint32_t b = 0; b < end; b++) {
            if (trailing[g] > 0 && b + trailing[g] >= end && !sets->have[g][b]) {
                return false;
            }
        }
    }
    return true;
}

static void only_all_groups_end_anywhere(void **state)
{
    (void)state;
    static const uint32_t trailing[] = {0, 0};
    sets_t sets = {0};
    assert_int_equal(search(trailing, 2, 17, &sets), 17);
    assert_int_equal(search(trailing, 2, 0, &sets), 0);
}

/* A checkpoint "{3}" is a payload at block 2 of a trailing(1) group. */
static uint32_t two_pools(uint32_t window_ends, uint32_t state_ends)
{
    static const uint32_t trailing[] = {0, 1, 1};
    sets_t sets = {0};
    for (uint32_t end = 1; end <= 3; end++) {
        sets.have[1][end - 1] = (window_ends >> end & 1u) != 0;
        sets.have[2][end - 1] = (state_ends >> end & 1u) != 0;
    }
    return search(trailing, 3, 3, &sets);
}

static void the_end_is_an_intersection_not_a_minimum(void **state)
{
    (void)state;
    enum { ONE = 1u << 1, TWO = 1u << 2, THREE = 1u << 3 };
    assert_int_equal(two_pools(THREE, THREE), 3);
    assert_int_equal(two_pools(THREE, TWO), 0);
    assert_int_equal(two_pools(ONE | THREE, ONE | TWO), 1);
}

static void a_window_touches_its_trailing_part_only(void **state)
{
    (void)state;
    static const uint32_t trailing[] = {0, 4};
    sets_t sets = {0};
    for (uint32_t b = 0; b < 32; b++) {
        sets.have[1][b] = true;
    }
    assert_int_equal(search(trailing, 2, 32, &sets), 32);
    for (uint32_t b = 0; b < 32; b++) {
        assert_int_equal(sets.asked[1][b], b >= 28 ? 1 : 0);
    }
    /* The window of 32 is broken at 29: a window that ends at 29 is whole. */
    sets.have[1][29] = false;
    assert_int_equal(search(trailing, 2, 32, &sets), 29);
    for (uint32_t b = 0; b < 32; b++) {
        assert_int_equal(sets.asked[1][b], b >= 25 ? 1 : 0);
    }
}

static void a_window_at_the_start_needs_what_there_is(void **state)
{
    (void)state;
    static const uint32_t trailing[] = {0, 8};
    sets_t sets = {0};
    sets.have[1][0] = sets.have[1][1] = true;
    assert_int_equal(search(trailing, 2, 2, &sets), 2);
    sets.have[1][0] = false;
    assert_int_equal(search(trailing, 2, 2, &sets), 0);
}

static void random_sets_equal_brute_force(void **state)
{
    (void)state;
    uint64_t random = 20;
    for (uint32_t round = 0; round < 10000; round++) {
        uint32_t groups = 2 + unit_below(&random, 3), trailing[FBY_MAX_GROUPS] = {0};
        uint32_t density = 1 + unit_below(&random, 9);
        sets_t sets = {0};
        for (uint32_t g = 1; g < groups; g++) {
            trailing[g] = unit_below(&random, 7);
            for (uint32_t b = 0; b < BLOCKS; b++) {
                sets.have[g][b] = unit_below(&random, 10) < density;
            }
        }
        /* A second `all` group cuts at a random place before the search. */
        uint32_t cut = unit_below(&random, BLOCKS + 1), expected = cut;
        while (!legal(trailing, groups, expected, &sets)) {
            expected--;
        }
        assert_int_equal(search(trailing, groups, cut, &sets), expected);
        for (uint32_t g = 0; g < groups; g++) {
            for (uint32_t b = 0; b < BLOCKS; b++) {
                assert_true(sets.asked[g][b] <= (trailing[g] > 0 ? 1 : 0));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_all_groups_end_anywhere),
        cmocka_unit_test(the_end_is_an_intersection_not_a_minimum),
        cmocka_unit_test(a_window_touches_its_trailing_part_only),
        cmocka_unit_test(a_window_at_the_start_needs_what_there_is),
        cmocka_unit_test(random_sets_equal_brute_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
