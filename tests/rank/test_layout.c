#include "rig.h"

#include <errno.h>

#include "rank/layout.h"

enum { ROWS = 4, ROW = 256, LAYERS = 2, PIECE = ROWS * ROW, BLOCKS = 8 };

static uint8_t memory[1 << 16];

typedef struct given {
    fby_layout_t layout;
    fby_tensor_t tensor[4];
    fby_shard_t shard;
    uint32_t payload;
} given_t;

/* Two layers, K and V apart, everything close together. */
static void split(given_t *given)
{
    *given = (given_t){
        .layout = {.size = sizeof(fby_layout_t),
                   .kind = FBY_LAYOUT_SPLIT,
                   .layers = LAYERS,
                   .tensors = 2 * LAYERS,
                   .blocks = BLOCKS,
                   .rows = ROWS,
                   .row_bytes = ROW},
        .shard = {.size = sizeof(fby_shard_t), .bytes = 2 * LAYERS * PIECE, .segment_bytes = 2 * PIECE},
        .payload = 3 * 2 * LAYERS * PIECE,
    };
    for (uint32_t i = 0; i < 2 * LAYERS; i++) {
        given->tensor[i] = (fby_tensor_t){.base = memory + i * BLOCKS * PIECE, .bytes = BLOCKS * PIECE};
    }
    given->layout.tensor = given->tensor;
}

static void compiled(const given_t *given, fby_plan_t *plan)
{
    if (fby_plan_make(&given->shard, &given->layout, given->payload, plan) != 0) {
        fail_msg("%s", fby_last_error());
    }
}

static void refused(const given_t *given, const char *text)
{
    fby_plan_t plan;
    assert_int_equal(fby_plan_make(&given->shard, &given->layout, given->payload, &plan), -EINVAL);
    if (strstr(fby_last_error(), text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", fby_last_error(), text);
    }
}

static void a_layers_k_and_v_are_one_segment(void **state)
{
    (void)state;
    given_t given;
    fby_plan_t plan;
    split(&given);
    given.shard.offset = 2 * LAYERS * PIECE;
    compiled(&given, &plan);
    assert_int_equal(plan.runs, 4);
    assert_int_equal(plan.units, 2);
    assert_int_equal(plan.unit[1], 2);
    assert_int_equal(plan.unit[2], 4);
    assert_int_equal(plan.run[1].slot_offset, 2 * LAYERS * PIECE + PIECE);
    assert_ptr_equal(plan.run[1].device, given.tensor[LAYERS].base); /* V of layer 0 */
    assert_ptr_equal(plan.run[2].device, given.tensor[1].base);      /* K of layer 1 */
    assert_int_equal(plan.run[2].rows, 1);
    assert_int_equal(plan.run[2].row_bytes, PIECE);
    fby_plan_free(&plan);
}

static void what_continues_on_both_sides_is_one_run(void **state)
{
    (void)state;
    given_t given;
    fby_plan_t plan;
    split(&given);
    given.layout.kind = FBY_LAYOUT_BLOCK_FIRST;
    given.layout.tensors = 1;
    given.tensor[0].bytes = sizeof(memory);
    given.shard.bytes = LAYERS * PIECE;
    given.shard.segment_bytes = 0;
    compiled(&given, &plan);
    assert_int_equal(plan.runs, 1);
    assert_int_equal(plan.run[0].row_bytes, LAYERS * PIECE);
    assert_int_equal(plan.run[0].block_stride, LAYERS * PIECE);
    fby_plan_free(&plan);
    given.shard.segment_bytes = 512; /* cut again, into what checksums need */
    compiled(&given, &plan);
    assert_int_equal(plan.runs, 4);
    assert_int_equal(plan.units, 4);
    assert_ptr_equal(plan.run[3].device, memory + 3 * 512);
    fby_plan_free(&plan);
}

static void a_strided_row_is_not_cut(void **state)
{
    (void)state;
    given_t given;
    fby_plan_t plan;
    split(&given);
    for (uint32_t i = 0; i < 4; i++) {
        given.tensor[i] = (fby_tensor_t){memory + i * 16000, 16000, 0, ROW + 64};
    }
    given.shard.segment_bytes = 2 * ROW;
    compiled(&given, &plan);
    assert_int_equal(plan.units, 8);
    assert_int_equal(plan.run[1].rows, 2);
    assert_ptr_equal(plan.run[1].device, memory + 2 * (ROW + 64));
    fby_plan_free(&plan);
    given.shard.segment_bytes = ROW + ROW / 2;
    given.payload = (uint32_t)given.shard.bytes;
    refused(&given, "shard.segment_bytes is 384; accepted: a multiple of row_bytes 256");
}

static void wrong_headers_are_refused_by_name(void **state)
{
    (void)state;
    given_t given;
#define WITH(change, text)                                                                                             \
    do {                                                                                                               \
        split(&given);                                                                                                 \
        change;                                                                                                        \
        refused(&given, text);                                                                                         \
    } while (0)
    WITH(given.layout.size = 1, "layout.size is 1;");
    WITH(given.layout.kind = 4, "layout.kind is 4; accepted: split, packed, mla, block_first");
    WITH(given.layout.layers = 0, "layout.layers is 0; accepted: 1 to 4096");
    WITH(given.layout.layers = 4097, "layout.layers is 4097");
    WITH(given.layout.tensors = 2, "layout.tensors is 2; accepted: 4 (split, 2 layers)");
    WITH(given.layout.kind = FBY_LAYOUT_PACKED, "layout.tensors is 4; accepted: 2 (packed, 2 layers)");
    WITH(given.layout.tensor = NULL, "layout.tensor is 0");
    WITH(given.layout.blocks = 0, "layout.blocks is 0");
    WITH(given.layout.rows = 0, "layout.rows is 0");
    WITH(given.layout.row_bytes = 0, "layout.row_bytes is 0");
    WITH(given.layout.layer_stride = 64, "layout.layer_stride is 64; accepted: 0, but with block_first");
}

static void wrong_tensors_are_refused_by_name(void **state)
{
    (void)state;
    given_t given;
    WITH(given.tensor[2].base = NULL, "layout.tensor[2].base is NULL");
    WITH(given.tensor[1].row_stride = ROW - 1,
         "layout.tensor[1].row_stride is 255; accepted: 0, or at least row_bytes");
    WITH(given.tensor[3].block_stride = PIECE - 1, "layout.tensor[3].block_stride is 1023");
    WITH(given.tensor[0].bytes--, "layout.tensor[0].bytes is 8191; accepted: at least what blocks, rows and strides "
                                  "touch, 8192");
    WITH(given.tensor[0].block_stride = UINT64_MAX / 2, "layout.tensor[0].bytes is 8192");
    WITH(given.tensor[1].base = (void *)(UINTPTR_MAX - 100), "layout.tensor[1].bytes is 8192; accepted: what ends in");
    WITH(given.tensor[2].base = memory + 8192 + 512, "layout.tensor[2] at ");
    WITH(given.tensor[3].base = given.tensor[0].base, "overlaps tensor[0]");
    split(&given);
    given.layout.kind = FBY_LAYOUT_BLOCK_FIRST;
    given.layout.tensors = 1;
    given.layout.layer_stride = PIECE - ROW;
    refused(&given, "layout.layer_stride is 768; accepted: at least 1024 (a layer's rows), or 256 or more with all "
                    "layers within row_stride 256");
}

static void interleaved_views_are_not_overlaps(void **state)
{
    (void)state;
    given_t given;
    fby_plan_t plan;
    split(&given);
    for (uint32_t i = 0; i < 4; i++) { /* V behind K in each row, and V one byte too early */
        given.tensor[i] = (fby_tensor_t){memory + i % 2 * 20000 + i / 2 * ROW, 20000, 0, 2 * ROW};
    }
    compiled(&given, &plan);
    assert_int_equal(plan.runs, 4);
    fby_plan_free(&plan);
    given.tensor[2].base = (uint8_t *)given.tensor[2].base - 1;
    refused(&given, "layout.tensor[2] at ");
    split(&given);
    for (uint32_t i = 0; i < 4; i++) { /* V behind K in each block */
        given.tensor[i] = (fby_tensor_t){memory + i % 2 * 20000 + i / 2 * PIECE, 20000, 2 * PIECE, 0};
    }
    compiled(&given, &plan);
    fby_plan_free(&plan);
    given.tensor[3].base = (uint8_t *)given.tensor[3].base + 1;
    refused(&given, "layout.tensor[3] at ");
}

static void wrong_shards_are_refused_by_name(void **state)
{
    (void)state;
    given_t given;
    WITH(given.shard.bytes = 100, "shard.bytes is 100; accepted: 4096 (4 pieces of 4 rows of 256 bytes)");
    WITH(given.shard.offset = given.payload - 4095, "shard.offset is 8193");
    WITH(given.shard.offset = UINT64_MAX, "shard.offset is 18446744073709551615");
    WITH(given.payload = 4095, "shard.offset is 0; accepted: what leaves room for 4096 bytes in a payload of 4095");
    WITH(given.shard.segment_bytes = 63, "shard.segment_bytes is 63; accepted: 0, or 64");
    WITH(given.shard.segment_bytes = 3000, "shard.segment_bytes is 3000; accepted: a divisor of shard.bytes");
    WITH(given.shard.offset = 100, "shard.segment_bytes is 2048; accepted: a divisor of shard.offset");
    split(&given);
    given.layout.kind = FBY_LAYOUT_MLA;
    given.layout.tensors = LAYERS;
    given.shard.bytes = LAYERS * PIECE;
    refused(&given, "shard.bytes is 2048; accepted: 12288, the payload (mla is one copy for all ranks)");
}

static void layouts_have_names(void **state)
{
    (void)state;
    assert_string_equal(fby_layout_name(FBY_LAYOUT_SPLIT), "split");
    assert_string_equal(fby_layout_name(FBY_LAYOUT_BLOCK_FIRST), "block_first");
    assert_string_equal(fby_layout_name(FBY_LAYOUT_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layers_k_and_v_are_one_segment),  cmocka_unit_test(what_continues_on_both_sides_is_one_run),
        cmocka_unit_test(a_strided_row_is_not_cut),          cmocka_unit_test(wrong_headers_are_refused_by_name),
        cmocka_unit_test(wrong_tensors_are_refused_by_name), cmocka_unit_test(interleaved_views_are_not_overlaps),
        cmocka_unit_test(wrong_shards_are_refused_by_name),  cmocka_unit_test(layouts_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
