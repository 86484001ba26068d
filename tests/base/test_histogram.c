/* Durations in fixed buckets. */
#include "unit.h"

#include "base/histogram.h"

static void a_duration_falls_into_the_first_bucket_that_holds_it(void **state)
{
    fby_histogram_t histogram = {0};
    fby_histogram_add(&histogram, 0);
    fby_histogram_add(&histogram, 100000);
    fby_histogram_add(&histogram, 100001);
    fby_histogram_add(&histogram, 60000000000);
    fby_histogram_add(&histogram, 60000000001);
    assert_int_equal(histogram.bucket[0], 2);
    assert_int_equal(histogram.bucket[1], 1);
    assert_int_equal(histogram.bucket[FBY_HISTOGRAM_BOUNDS - 1], 1);
    assert_int_equal(histogram.bucket[FBY_HISTOGRAM_BOUNDS], 1);
    assert_int_equal(histogram.sum_ns, 120000200002);
    assert_int_equal(fby_histogram_count(&histogram), 5);
}

static void bounds_rise_and_their_texts_are_their_seconds(void **state)
{
#define FBY_X(ns, text) ns,
    static const uint64_t bounds[] = { FBY_HISTOGRAM_MAP(FBY_X) };
#undef FBY_X
    for (unsigned i = 0; i < FBY_HISTOGRAM_BOUNDS; i++) {
        assert_true(i == 0 || bounds[i] > bounds[i - 1]);
        assert_int_equal((uint64_t)(strtod(fby_histogram_bound(i), NULL) * 1e9 + 0.5), bounds[i]);
    }
    assert_string_equal(fby_histogram_bound(FBY_HISTOGRAM_BOUNDS), "+Inf");
    assert_string_equal(fby_histogram_bound(FBY_HISTOGRAM_BOUNDS + 1), "+Inf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_duration_falls_into_the_first_bucket_that_holds_it),
        cmocka_unit_test(bounds_rise_and_their_texts_are_their_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
