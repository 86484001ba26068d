#include "unit.h"

#include <math.h>

#include "base/base.h"
#include "base/clock.h"

static void the_monotonic_clock_never_goes_back_and_is_never_zero(void **state)
{
    uint64_t before = fby_clock_now(&fby_clock_monotonic);
    assert_int_not_equal(before, 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t now = fby_clock_now(&fby_clock_monotonic);
        assert_true(now >= before);
        before = now;
    }
}

static uint64_t fixed_time(void *arg)
{
    return *(uint64_t *)arg;
}

static void an_injected_clock_is_asked_with_its_argument(void **state)
{
    uint64_t time = 42;
    const fby_clock_t clock = {fixed_time, &time};
    assert_int_equal(fby_clock_now(&clock), 42);
    time = 43;
    assert_int_equal(fby_clock_now(&clock), 43);
}

static void seconds_become_nanoseconds(void **state)
{
    assert_int_equal(fby_ns_from_s(0.0), 0);
    assert_int_equal(fby_ns_from_s(1.0), FBY_SECOND);
    assert_int_equal(fby_ns_from_s(0.5), FBY_SECOND / 2);
    assert_int_equal(fby_ns_from_s(1e-9), 1);
    assert_int_equal(fby_ns_from_s(30.0), 30 * FBY_SECOND);
}

static void seconds_out_of_range_saturate_below_never(void **state)
{
    assert_int_equal(fby_ns_from_s(1e30), FBY_NEVER - 1);
    assert_int_equal(fby_ns_from_s((double)INFINITY), FBY_NEVER - 1);
    assert_int_equal(fby_ns_from_s(18446744073.709552), FBY_NEVER - 1); /* 2^64 ns */
    assert_true(fby_ns_from_s(18446744073.0) < FBY_NEVER - 1);
}

static void seconds_that_make_no_sense_are_zero(void **state)
{
    assert_int_equal(fby_ns_from_s(-1.0), 0);
    assert_int_equal(fby_ns_from_s(-0.0), 0);
    assert_int_equal(fby_ns_from_s((double)NAN), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_monotonic_clock_never_goes_back_and_is_never_zero),
        cmocka_unit_test(an_injected_clock_is_asked_with_its_argument),
        cmocka_unit_test(seconds_become_nanoseconds),
        cmocka_unit_test(seconds_out_of_range_saturate_below_never),
        cmocka_unit_test(seconds_that_make_no_sense_are_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
