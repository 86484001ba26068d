/* What a comparison computes: quantiles of known values, intervals that are the same each time, orders that follow a seed. */
#include <math.h>

#include "cli/bench_stats.h"
#include "unit.h"

static void quantiles_lie_between_neighbours(void **state)
{
    double odd[] = {5, 1, 4, 2, 3}, even[] = {4, 1, 3, 2}, one[] = {7};
    assert_true(fby_bench_quantile(odd, 5, 0.5) == 3);
    assert_true(odd[0] == 1 && odd[4] == 5);
    assert_true(fby_bench_quantile(even, 4, 0.5) == 2.5);
    assert_true(fby_bench_quantile(even, 4, 0.25) == 1.75);
    assert_true(fby_bench_quantile(even, 4, 0) == 1);
    assert_true(fby_bench_quantile(even, 4, 1) == 4);
    assert_true(fby_bench_quantile(one, 1, 0.99) == 7);
    assert_true(isnan(fby_bench_quantile(one, 0, 0.5)));
}

static void equal_values_have_an_interval_without_width(void **state)
{
    const double values[] = {0.5, 0.5, 0.5, 0.5};
    fby_bench_interval_t interval;
    assert_int_equal(fby_bench_bootstrap(values, 4, 1, &interval), 0);
    assert_true(interval.median == 0.5 && interval.lo == 0.5 && interval.hi == 0.5);
}

static void an_interval_holds_the_median_and_lies_within_the_values(void **state)
{
    double values[21];
    fby_bench_interval_t interval;
    for (int i = 0; i < 21; i++) {
        values[i] = 100 + (i * 8) % 21; /* 100 to 120 in some order */
    }
    assert_int_equal(fby_bench_bootstrap(values, 21, 1, &interval), 0);
    assert_true(values[1] == 108); /* as given */
    assert_true(interval.median == 110);
    /* A resample's median is at most the k-th value when 11 of 21 draws are: binomial with k/21. That is 0.018 for the
       6th value, 0.056 for the 7th, so 2.5 % lie below the 7th; likewise from above. */
    assert_true(interval.lo == 106);
    assert_true(interval.hi == 114);
}

static void one_seed_gives_one_interval(void **state)
{
    double values[50];
    uint64_t random = 3;
    fby_bench_interval_t first, again, other;
    for (int i = 0; i < 50; i++) {
        values[i] = (double)unit_below(&random, 1000000);
    }
    assert_int_equal(fby_bench_bootstrap(values, 50, 9, &first), 0);
    assert_int_equal(fby_bench_bootstrap(values, 50, 9, &again), 0);
    assert_int_equal(fby_bench_bootstrap(values, 50, 10, &other), 0);
    assert_memory_equal(&first, &again, sizeof(first));
    assert_true(first.lo < first.median && first.median < first.hi);
    assert_true(other.median == first.median);
}

static void without_values_there_is_no_number(void **state)
{
    fby_bench_interval_t interval;
    assert_int_equal(fby_bench_bootstrap(NULL, 0, 1, &interval), 0);
    assert_true(isnan(interval.median) && isnan(interval.lo) && isnan(interval.hi));
}

static void a_shuffle_keeps_everything_and_follows_its_seed(void **state)
{
    uint32_t first[5] = {0, 1, 2, 3, 4}, again[5] = {0, 1, 2, 3, 4}, seen = 0;
    uint64_t a = 1, b = 1;
    fby_bench_shuffle(first, 5, &a);
    fby_bench_shuffle(again, 5, &b);
    assert_memory_equal(first, again, sizeof(first));
    assert_int_equal(a, b);
    for (int i = 0; i < 5; i++) {
        seen |= 1u << first[i];
    }
    assert_int_equal(seen, 31);
}

static void every_order_comes_about_as_often_as_another(void **state)
{
    uint32_t count[3][3] = {{0}};
    uint64_t random = 5;
    for (int i = 0; i < 6000; i++) {
        uint32_t items[3] = {0, 1, 2};
        fby_bench_shuffle(items, 3, &random);
        count[items[0]][items[1]]++;
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(count[i][i], 0);
        for (int k = 0; k < 3; k++) {
            assert_true(i == k || (count[i][k] > 850 && count[i][k] < 1150));
        }
    }
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(quantiles_lie_between_neighbours),
        cmocka_unit_test(equal_values_have_an_interval_without_width),
        cmocka_unit_test(an_interval_holds_the_median_and_lies_within_the_values),
        cmocka_unit_test(one_seed_gives_one_interval),
        cmocka_unit_test(without_values_there_is_no_number),
        cmocka_unit_test(a_shuffle_keeps_everything_and_follows_its_seed),
        cmocka_unit_test(every_order_comes_about_as_often_as_another),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
