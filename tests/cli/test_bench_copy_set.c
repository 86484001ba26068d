/* What checks the copies of a benchmark: a load passes, and every kind of wrong byte is seen. */
#include "cli/bench_copy.h"
#include "unit.h"

static const fby_bench_copy_options_t options = {.bytes = 8 << 20, .rounds = 1, .threads = 2, .seed = 1};
static fby_bench_copy_set_t set;

static void open_loaded(uint32_t layout)
{
    assert_int_equal(fby_bench_copy_set_open(&options, layout, &set), 0);
    assert_int_equal(fby_bench_copy_set_load(&set, set.sums), 0);
}

static int close_set(void **state)
{
    fby_bench_copy_set_close(&set);
    return 0;
}

static void a_load_is_right_in_every_layout(void **state)
{
    static const uint64_t blocks[] = {4, 4, 14};
    for (uint32_t layout = 0; layout < FBY_BENCH_COPY_COUNT; layout++) {
        open_loaded(layout);
        assert_int_equal(set.blocks, blocks[layout]);
        assert_int_equal(fby_bench_copy_set_wrong(&set), 0);
        assert_int_equal(fby_bench_copy_set_sample(&set, 7), 0);
        assert_int_equal(fby_bench_copy_set_wrong_sums(&set), 0);
        if (layout + 1 < FBY_BENCH_COPY_COUNT) {
            fby_bench_copy_set_close(&set);
        }
    }
}

static void before_it_all_is_wrong(void **state)
{
    assert_int_equal(fby_bench_copy_set_open(&options, FBY_BENCH_COPY_MLA, &set), 0);
    assert_int_equal(fby_bench_copy_set_wrong(&set), set.bytes);
    assert_int_equal(fby_bench_copy_set_sample(&set, 7), set.blocks * 8);
    assert_int_equal(fby_bench_copy_set_wrong_sums(&set), set.blocks * FBY_BENCH_COPY_LAYERS);
}

static void one_flipped_bit_is_one_word(void **state)
{
    open_loaded(FBY_BENCH_COPY_PACKED);
    set.memory[set.bytes - 1] ^= 0x80;
    assert_int_equal(fby_bench_copy_set_wrong(&set), 8);
    set.memory[set.bytes - 1] ^= 0x80;
    set.sums[5] ^= 1;
    assert_int_equal(fby_bench_copy_set_wrong(&set), 0);
    assert_int_equal(fby_bench_copy_set_wrong_sums(&set), 1);
}

/* K and V of one layer, which a swapped layout would confuse, and two blocks. */
static void swapped_pieces_are_wrong(void **state)
{
    open_loaded(FBY_BENCH_COPY_SPLIT);
    uint64_t tensor = set.blocks * set.piece_bytes;
    uint8_t *keys = set.memory, *values = set.memory + FBY_BENCH_COPY_LAYERS * tensor;
    for (uint32_t i = 0; i < set.piece_bytes; i++) {
        uint8_t kept = keys[i];
        keys[i] = values[i];
        values[i] = kept;
    }
    assert_int_equal(fby_bench_copy_set_wrong(&set), 2 * set.piece_bytes);
    assert_int_equal(fby_bench_copy_set_load(&set, NULL), 0);
    assert_int_equal(fby_bench_copy_set_wrong(&set), 0);
    memmove(keys, keys + set.piece_bytes, set.piece_bytes);
    assert_int_equal(fby_bench_copy_set_wrong(&set), set.piece_bytes);
}

static void what_was_spoilt_is_sampled_until_it_is_loaded_again(void **state)
{
    open_loaded(FBY_BENCH_COPY_MLA);
    fby_bench_copy_set_spoil(&set, 99);
    assert_int_equal(fby_bench_copy_set_sample(&set, 99), set.blocks * 8);
    assert_int_equal(fby_bench_copy_set_wrong(&set), set.blocks * 8);
    assert_int_equal(fby_bench_copy_set_load(&set, NULL), 0);
    assert_int_equal(fby_bench_copy_set_sample(&set, 99), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_load_is_right_in_every_layout, close_set),
        cmocka_unit_test_teardown(before_it_all_is_wrong, close_set),
        cmocka_unit_test_teardown(one_flipped_bit_is_one_word, close_set),
        cmocka_unit_test_teardown(swapped_pieces_are_wrong, close_set),
        cmocka_unit_test_teardown(what_was_spoilt_is_sampled_until_it_is_loaded_again, close_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
