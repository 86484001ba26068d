#include "unit.h"

#include "rank/cuda.h"

static void regions_begin_at_slots_and_pages(void **state)
{
    (void)state;
    fby_pool_t pool = {.groups = 2, .bytes = 40 * 4096};
    pool.group[0].slot_bytes = 4096 + 1024; /* a page begins with every fourth */
    pool.group[0].slots = 16;
    pool.group[1].offset = 16 * 5120;
    pool.group[1].slot_bytes = 4096;
    pool.group[1].slots = 20;
    assert_int_equal(fby_cuda_region_cut(&pool, 0, 1 << 30, 4096), 40 * 4096);
    assert_int_equal(fby_cuda_region_cut(&pool, 0, 50000, 4096), 2 * 4 * 5120);
    assert_int_equal(fby_cuda_region_cut(&pool, 0, 100, 4096), 4 * 5120); /* one step at least */
    assert_int_equal(fby_cuda_region_cut(&pool, 3 * 4 * 5120, 3 * 4 * 5120 + 21000, 4096), 16 * 5120);
    assert_int_equal(fby_cuda_region_cut(&pool, 16 * 5120, 16 * 5120 + 9000, 4096), 16 * 5120 + 2 * 4096);
    assert_int_equal(fby_cuda_region_cut(&pool, 39 * 4096, 39 * 4096 + 10, 4096), 40 * 4096);
    pool.group[0].offset = 64; /* never a page at a slot: those slots stay in one region */
    pool.group[0].slot_bytes = 8192;
    pool.group[0].slots = 9;
    assert_int_equal(fby_cuda_region_cut(&pool, 0, 4096, 4096), 16 * 5120);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_begin_at_slots_and_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
