/* layout_check.c - everything about an engine's tensors that can be refused before a byte is copied. */
#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "rank/layout.h"

enum { MOST_LAYERS = 4096 };

/* No tensor is that large; sums of two such numbers do not overflow. */
#define MOST_BYTES (UINT64_C(1) << 62)

const char *fby_layout_name(fby_layout_kind_t kind)
{
    static const char *const names[] = {
#define FBY_X(name, text) text,
        FBY_LAYOUT_MAP(FBY_X)
#undef FBY_X
    };
    return (unsigned)kind < FBY_LAYOUT_COUNT ? names[kind] : "unknown";
}

static int refuse(const char *field, uint64_t value, const char *accepted)
{
    fby_error_set("layout.%s is %" PRIu64 "; accepted: %s", field, value, accepted);
    return -EINVAL;
}

static uint32_t tensors_needed(const fby_layout_t *layout)
{
    return layout->kind == FBY_LAYOUT_BLOCK_FIRST ? 1 : layout->layers * fby_layout_parts(layout);
}

static int check_header(const fby_layout_t *layout)
{
    if (layout->size != sizeof(*layout)) {
        return refuse("size", layout->size, "the size of fby_layout_t");
    }
    if (layout->kind >= FBY_LAYOUT_COUNT) {
        return refuse("kind", layout->kind, "split, packed, mla, block_first");
    }
    if (layout->layers == 0 || layout->layers > MOST_LAYERS) {
        return refuse("layers", layout->layers, "1 to 4096");
    }
    if (layout->tensors != tensors_needed(layout)) {
        fby_error_set("layout.tensors is %u; accepted: %u (%s, %u layers)", layout->tensors, tensors_needed(layout),
                      fby_layout_name((fby_layout_kind_t)layout->kind), layout->layers);
        return -EINVAL;
    }
    if (layout->tensor == NULL) {
        return refuse("tensor", 0, "the address of the tensors");
    }
    if (layout->blocks == 0 || layout->blocks > MOST_BYTES) {
        return refuse("blocks", layout->blocks, "1 or more, as many as each tensor has");
    }
    if (layout->rows == 0) {
        return refuse("rows", layout->rows, "1 or more");
    }
    if (layout->row_bytes == 0 || layout->row_bytes > UINT32_MAX) {
        return refuse("row_bytes", layout->row_bytes, "1 to 4294967295");
    }
    if (layout->layer_stride != 0 && layout->kind != FBY_LAYOUT_BLOCK_FIRST) {
        return refuse("layer_stride", layout->layer_stride, "0, but with block_first");
    }
    return 0;
}

static int refuse_tensor(uint32_t i, const char *field, uint64_t value, const char *accepted, uint64_t least)
{
    fby_error_set("layout.tensor[%u].%s is %" PRIu64 "; accepted: %s %" PRIu64, i, field, value, accepted, least);
    return -EINVAL;
}

/* The layers of a block_first tensor lie behind each other's rows, or inside each row. *span: what one block takes. */
static int check_layers(const fby_layout_t *layout, const fby_tensor_t *tensor, uint64_t rows_span,
                        uint64_t *layer_stride, uint64_t *span)
{
    *layer_stride = layout->layer_stride != 0 ? layout->layer_stride : fby_mul_sat(layout->rows, tensor->row_stride);
    uint64_t behind = fby_mul_sat(layout->layers - 1, *layer_stride);
    bool apart = *layer_stride >= rows_span;
    bool inside = *layer_stride >= layout->row_bytes && fby_add_sat(behind, layout->row_bytes) <= tensor->row_stride;
    if (layout->layers > 1 && layout->rows > 1 && !apart && !inside) {
        fby_error_set("layout.layer_stride is %" PRIu64 "; accepted: at least %" PRIu64 " (a layer's rows), or %" PRIu64
                      " or more with all layers within row_stride %" PRIu64,
                      *layer_stride, rows_span, layout->row_bytes, tensor->row_stride);
        return -EINVAL;
    }
    if (layout->layers > 1 && !apart && !inside) {
        return refuse("layer_stride", *layer_stride, "0, or at least row_bytes");
    }
    *span = fby_add_sat(behind, rows_span);
    return 0;
}

static int check_tensor(const fby_layout_t *layout, uint32_t i, fby_tensor_t *tensor, uint64_t *layer_stride)
{
    if (tensor->base == NULL) {
        fby_error_set("layout.tensor[%u].base is NULL; accepted: the address of its block 0", i);
        return -EINVAL;
    }
    if (tensor->row_stride == 0) {
        tensor->row_stride = layout->row_bytes;
    }
    if (tensor->row_stride < layout->row_bytes) {
        return refuse_tensor(i, "row_stride", tensor->row_stride, "0, or at least row_bytes,", layout->row_bytes);
    }
    uint64_t span = fby_add_sat(fby_mul_sat(layout->rows - 1, tensor->row_stride), layout->row_bytes);
    if (layout->kind == FBY_LAYOUT_BLOCK_FIRST) {
        int rc = check_layers(layout, tensor, span, layer_stride, &span);
        if (rc != 0) {
            return rc;
        }
    }
    if (tensor->block_stride == 0) {
        bool layered = layout->kind == FBY_LAYOUT_BLOCK_FIRST && *layer_stride >= tensor->row_stride;
        tensor->block_stride =
            layered ? fby_mul_sat(layout->layers, *layer_stride) : fby_mul_sat(layout->rows, tensor->row_stride);
        tensor->block_stride = FBY_MAX(tensor->block_stride, span);
    }
    if (tensor->block_stride < span && layout->blocks > 1) {
        return refuse_tensor(i, "block_stride", tensor->block_stride, "0, or at least a block's", span);
    }
    uint64_t needed = fby_add_sat(fby_mul_sat(layout->blocks - 1, tensor->block_stride), span);
    if (needed > MOST_BYTES || tensor->bytes < needed) {
        return refuse_tensor(i, "bytes", tensor->bytes, "at least what blocks, rows and strides touch,", needed);
    }
    if (tensor->bytes > MOST_BYTES || (uintptr_t)tensor->base > UINTPTR_MAX - tensor->bytes) {
        return refuse_tensor(i, "bytes", tensor->bytes, "what ends in the address space; at most", MOST_BYTES);
    }
    return 0;
}

int fby_layout_check(const fby_layout_t *layout, fby_tensor_t *resolved, uint64_t *layer_stride)
{
    int rc = check_header(layout);
    *layer_stride = 0;
    for (uint32_t i = 0; rc == 0 && i < layout->tensors; i++) {
        resolved[i] = layout->tensor[i];
        rc = check_tensor(layout, i, &resolved[i], layer_stride);
    }
    return rc;
}

/* Do the places [a, a + bytes) and [b, b + bytes), each repeated every `stride`, share none? */
static bool apart_in_stride(uint64_t a, uint64_t b, uint64_t bytes, uint64_t stride)
{
    uint64_t distance = b > a ? (b - a) % stride : (stride - (a - b) % stride) % stride;
    return stride >= bytes && distance >= bytes && distance <= stride - bytes;
}

/* Tensors may be views that interleave: V behind K in each block, or in each row. */
static bool tensors_apart(const fby_layout_t *layout, const fby_tensor_t *a, const fby_tensor_t *b)
{
    uint64_t rows_a = (layout->rows - 1) * a->row_stride + layout->row_bytes;
    uint64_t rows_b = (layout->rows - 1) * b->row_stride + layout->row_bytes;
    uint64_t at_a = (uint64_t)(uintptr_t)a->base, at_b = (uint64_t)(uintptr_t)b->base;
    if (at_a + (layout->blocks - 1) * a->block_stride + rows_a <= at_b ||
        at_b + (layout->blocks - 1) * b->block_stride + rows_b <= at_a) {
        return true;
    }
    if (a->row_stride != b->row_stride || a->block_stride != b->block_stride) {
        return false;
    }
    return apart_in_stride(at_a, at_b, rows_a, a->block_stride) ||
           ((layout->blocks == 1 || a->block_stride % a->row_stride == 0) &&
            apart_in_stride(at_a, at_b, layout->row_bytes, a->row_stride));
}

int fby_layout_overlaps(const fby_layout_t *layout, const fby_tensor_t *resolved)
{
    for (uint32_t i = 1; i < layout->tensors; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (!tensors_apart(layout, &resolved[j], &resolved[i])) {
                fby_error_set("layout.tensor[%u] at %p overlaps tensor[%u] at %p; accepted: tensors that share no byte",
                              i, resolved[i].base, j, resolved[j].base);
                return -EINVAL;
            }
        }
    }
    return 0;
}
