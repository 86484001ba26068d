#include "unit.h"

#include "rank/stream.h"
#include "stores/object.h"

enum { ROOM = 600000 };

static uint8_t from[ROOM], to[ROOM], expected[ROOM];

static void every_kernel_copies_any_length_anywhere(void **state)
{
    (void)state;
    size_t n;
    uint64_t random = 1;
    const fby_stream_kernel_t *kernels = fby_stream_kernels(&n);
    assert_string_equal(kernels[n - 1].name, "portable");
    assert_true(kernels[n - 1].usable);
    for (size_t i = 0; i < ROOM; i++) {
        from[i] = (uint8_t)unit_random(&random);
    }
    for (size_t k = 0; k < n; k++) {
        if (!kernels[k].usable) {
            print_message("kernel %s: this machine has no such instructions, not tried\n", kernels[k].name);
            continue;
        }
        for (uint32_t turn = 0; turn < 400; turn++) {
            size_t in = unit_below(&random, 130), out = unit_below(&random, 130);
            size_t bytes = unit_below(&random, turn % 2 == 0 ? 700 : 40000);
            memset(to, 0xA5, ROOM);
            memset(expected, 0xA5, ROOM);
            memcpy(expected + out, from + in, bytes);
            kernels[k].copy(to + out, from + in, bytes);
            fby_stream_end();
            assert_memory_equal(to, expected, ROOM);
        }
    }
}

static void the_sum_is_that_of_the_bytes_in_slot_order(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 64, 240, 241, 1000, 8192, 8193, 30000, 262144, 262145, 500001};
    for (size_t i = 0; i < FBY_ARRAY_LEN(sizes); i++) {
        uint64_t sum = 0;
        const fby_copy_run_t run = {.device = to, .row_bytes = sizes[i], .row_stride = sizes[i], .rows = 1};
        fby_stream_unit(fby_stream_best(), &run, 1, from, 0, true, &sum);
        assert_true(sum == fby_checksum_segment(from, sizes[i]));
        assert_memory_equal(to, from, sizes[i]);
    }
    /* Three strided rows and a piece behind them, saved: the sum is over the slot, not over the gaps. */
    uint64_t sum = 0;
    const fby_copy_run_t runs[] = {
        {.slot_offset = 10, .device = from, .block_stride = 9000, .row_bytes = 700, .row_stride = 1500, .rows = 3},
        {.slot_offset = 2110, .device = from + 5000, .block_stride = 9000, .row_bytes = 3000, .rows = 1},
    };
    fby_stream_unit(fby_stream_best(), runs, 2, to, 2, false, &sum);
    assert_true(sum == fby_checksum_segment(to + 10, 5100));
    assert_memory_equal(to + 10 + 700, from + 18000 + 1500, 700);
    assert_memory_equal(to + 2110, from + 18000 + 5000, 3000);
    /* And loaded back. */
    uint64_t again = 0;
    memset(expected, 0, sizeof(expected));
    const fby_copy_run_t back[] = {
        {.slot_offset = 10, .device = expected, .row_bytes = 700, .row_stride = 1500, .rows = 3},
        {.slot_offset = 2110, .device = expected + 5000, .row_bytes = 3000, .rows = 1},
    };
    fby_stream_unit(fby_stream_best(), back, 2, to, 0, true, &again);
    assert_true(again == sum);
    assert_memory_equal(expected + 1500, from + 18000 + 1500, 700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_copies_any_length_anywhere),
        cmocka_unit_test(the_sum_is_that_of_the_bytes_in_slot_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
