#include "unit.h"

#include "base/base.h"

static void saturating_addition_stops_at_the_largest(void **state)
{
    assert_int_equal(fby_add_sat(1, 2), 3);
    assert_int_equal(fby_add_sat(UINT64_MAX - 1, 1), UINT64_MAX);
    assert_int_equal(fby_add_sat(UINT64_MAX, 1), UINT64_MAX);
    assert_int_equal(fby_add_sat(UINT64_MAX, UINT64_MAX), UINT64_MAX);
}

static void saturating_multiplication_stops_at_the_largest(void **state)
{
    assert_int_equal(fby_mul_sat(0, UINT64_MAX), 0);
    assert_int_equal(fby_mul_sat(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1), UINT64_C(0xFFFFFFFF00000000));
    assert_int_equal(fby_mul_sat(UINT64_C(1) << 32, UINT64_C(1) << 32), UINT64_MAX);
}

static void saturating_subtraction_stops_at_zero(void **state)
{
    assert_int_equal(fby_sub_sat(5, 3), 2);
    assert_int_equal(fby_sub_sat(3, 3), 0);
    assert_int_equal(fby_sub_sat(0, 1), 0);
    assert_int_equal(fby_sub_sat(0, UINT64_MAX), 0);
}

static void align_up_reaches_the_next_multiple(void **state)
{
    assert_int_equal(fby_align_up(0, 4096), 0);
    assert_int_equal(fby_align_up(1, 4096), 4096);
    assert_int_equal(fby_align_up(4096, 4096), 4096);
    assert_int_equal(fby_align_up(4097, 4096), 8192);
    assert_int_equal(fby_align_up(7, 1), 7);
}

static void pow2_ceil_is_the_smallest_power_not_below(void **state)
{
    assert_int_equal(fby_pow2_ceil(0), 1);
    assert_int_equal(fby_pow2_ceil(1), 1);
    assert_int_equal(fby_pow2_ceil(2), 2);
    assert_int_equal(fby_pow2_ceil(3), 4);
    assert_int_equal(fby_pow2_ceil(UINT64_C(1) << 40), UINT64_C(1) << 40);
    assert_int_equal(fby_pow2_ceil((UINT64_C(1) << 62) + 1), UINT64_C(1) << 63);
}

static void hashes_are_equal_only_when_both_halves_are(void **state)
{
    const fby_hash_t a = {{1, 2}}, same = {{1, 2}}, high = {{1, 3}}, low = {{0, 2}};
    assert_true(fby_hash_equal(&a, &same));
    assert_false(fby_hash_equal(&a, &high));
    assert_false(fby_hash_equal(&a, &low));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saturating_addition_stops_at_the_largest),
        cmocka_unit_test(saturating_multiplication_stops_at_the_largest),
        cmocka_unit_test(saturating_subtraction_stops_at_zero),
        cmocka_unit_test(align_up_reaches_the_next_multiple),
        cmocka_unit_test(pow2_ceil_is_the_smallest_power_not_below),
        cmocka_unit_test(hashes_are_equal_only_when_both_halves_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
