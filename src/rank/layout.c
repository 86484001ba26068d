#include "rank/layout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { LEAST_SEGMENT = 64, MOST_SEGMENTS = 1 << 20 };

static int check_shard(const fby_shard_t *shard, const fby_layout_t *layout, uint32_t payload_bytes)
{
    uint64_t pieces = (uint64_t)layout->layers * fby_layout_parts(layout);
    uint64_t bytes = fby_mul_sat(fby_mul_sat(pieces, layout->rows), layout->row_bytes);
    if (shard->bytes != bytes) {
        fby_error_set("shard.bytes is %" PRIu64 "; accepted: %" PRIu64 " (%" PRIu64 " pieces of %u rows of %" PRIu64
                      " bytes)",
                      shard->bytes, bytes, pieces, layout->rows, layout->row_bytes);
        return -EINVAL;
    }
    if (bytes > payload_bytes || shard->offset > payload_bytes - bytes) {
        fby_error_set("shard.offset is %" PRIu64 "; accepted: what leaves room for %" PRIu64
                      " bytes in a payload of %u",
                      shard->offset, bytes, payload_bytes);
        return -EINVAL;
    }
    if (layout->kind == FBY_LAYOUT_MLA && bytes != payload_bytes) {
        fby_error_set("shard.bytes is %" PRIu64 "; accepted: %u, the payload (mla is one copy for all ranks)", bytes,
                      payload_bytes);
        return -EINVAL;
    }
    return 0;
}

static int check_segments(const fby_shard_t *shard, uint32_t payload_bytes)
{
    uint64_t segment = shard->segment_bytes;
    const char *accepted = NULL;
    if (segment == 0) {
        return 0;
    }
    if (segment < LEAST_SEGMENT) {
        accepted = "0, or 64 and more";
    } else if (shard->offset % segment != 0) {
        accepted = "a divisor of shard.offset";
    } else if (shard->bytes % segment != 0 && shard->offset + shard->bytes != payload_bytes) {
        accepted = "a divisor of shard.bytes, since other payload follows";
    } else if (shard->bytes / segment >= MOST_SEGMENTS) {
        accepted = "what makes fewer than 1048576 segments";
    } else {
        return 0;
    }
    fby_error_set("shard.segment_bytes is %u; accepted: %s", shard->segment_bytes, accepted);
    return -EINVAL;
}

/* ---- Runs ------------------------------------------------------------------------------------------------------- */

/* Appends a piece; one that continues the last run on both sides grows it instead. */
static void append(fby_plan_t *plan, const fby_copy_run_t *piece)
{
    fby_copy_run_t *last = plan->runs > 0 ? &plan->run[plan->runs - 1] : NULL;
    if (last != NULL && last->rows == 1 && piece->rows == 1 && last->block_stride == piece->block_stride &&
        last->device + last->row_bytes == piece->device) {
        last->row_bytes += piece->row_bytes;
        return;
    }
    plan->run[plan->runs++] = *piece;
}

static void pieces_of(const fby_layout_t *layout, const fby_tensor_t *tensor, uint64_t layer_stride, fby_plan_t *plan)
{
    uint64_t at = plan->offset, bytes = layout->rows * layout->row_bytes;
    for (uint32_t layer = 0; layer < layout->layers; layer++) {
        for (uint32_t part = 0; part < fby_layout_parts(layout); part++) {
            bool one = layout->kind == FBY_LAYOUT_BLOCK_FIRST;
            const fby_tensor_t *from = &tensor[one ? 0 : part * layout->layers + layer];
            bool close = layout->rows == 1 || from->row_stride == layout->row_bytes;
            fby_copy_run_t piece = {
                .slot_offset = at,
                .device = (uint8_t *)from->base + (one ? layer * layer_stride : 0),
                .block_stride = from->block_stride,
                .row_bytes = close ? bytes : layout->row_bytes,
                .row_stride = close ? bytes : from->row_stride,
                .rows = close ? 1 : layout->rows,
            };
            append(plan, &piece);
            at += bytes;
        }
    }
}

/* The first `bytes` of a run go to `head`, the run keeps the rest. False when that cuts a row of several. */
static bool cut(fby_copy_run_t *run, uint64_t bytes, fby_copy_run_t *head)
{
    *head = *run;
    run->slot_offset += bytes;
    if (run->rows == 1) {
        head->row_bytes = bytes;
        run->row_bytes -= bytes;
        run->device += bytes;
        return true;
    }
    head->rows = bytes / run->row_bytes;
    run->rows -= head->rows;
    run->device += head->rows * run->row_stride;
    return head->rows * head->row_bytes == bytes;
}

/* Cuts the runs of `whole` at segment ends into `plan`. */
static bool cut_segments(const fby_plan_t *whole, fby_plan_t *plan)
{
    uint64_t end = 0; /* of the segment under way */
    for (uint32_t i = 0; i < whole->runs; i++) {
        fby_copy_run_t rest = whole->run[i];
        for (;;) {
            if (rest.slot_offset >= end) {
                end = rest.slot_offset + plan->segment_bytes;
                plan->unit[plan->units++] = plan->runs;
            }
            if (rest.slot_offset + rest.rows * rest.row_bytes <= end) {
                break;
            }
            if (!cut(&rest, end - rest.slot_offset, &plan->run[plan->runs++])) {
                return false;
            }
        }
        plan->run[plan->runs++] = rest;
    }
    return true;
}

static int plan_room(fby_plan_t *plan, uint64_t runs, uint64_t units)
{
    plan->run = calloc(runs, sizeof(*plan->run));
    plan->unit = calloc(units + 1, sizeof(*plan->unit));
    if (plan->run == NULL || plan->unit == NULL) {
        fby_plan_free(plan);
        return -ENOMEM;
    }
    return 0;
}

static int compile(const fby_layout_t *layout, const fby_tensor_t *tensor, uint64_t layer_stride, fby_plan_t *plan)
{
    fby_plan_t whole = *plan;
    uint64_t pieces = (uint64_t)layout->layers * fby_layout_parts(layout);
    int rc = plan_room(&whole, pieces, pieces);
    if (rc != 0) {
        return rc;
    }
    pieces_of(layout, tensor, layer_stride, &whole);
    if (plan->segment_bytes == 0) {
        whole.units = whole.runs;
        for (uint32_t i = 0; i <= whole.units; i++) {
            whole.unit[i] = i;
        }
        *plan = whole;
        return 0;
    }
    uint64_t segments = (plan->bytes + plan->segment_bytes - 1) / plan->segment_bytes;
    rc = plan_room(plan, pieces + segments, segments);
    if (rc == 0 && !cut_segments(&whole, plan)) {
        fby_error_set("shard.segment_bytes is %u; accepted: a multiple of row_bytes %" PRIu64
                      ", since rows stand alone",
                      plan->segment_bytes, layout->row_bytes);
        fby_plan_free(plan);
        rc = -EINVAL;
    }
    if (rc == 0) {
        plan->unit[plan->units] = plan->runs;
    }
    fby_plan_free(&whole);
    return rc;
}

int fby_plan_make(const fby_shard_t *shard, const fby_layout_t *layout, uint32_t payload_bytes, fby_plan_t *plan)
{
    uint64_t layer_stride = 0;
    /* Before its count is checked: an absurd one fails here or there. */
    fby_tensor_t *tensor = calloc((size_t)layout->tensors + 1, sizeof(*tensor));
    if (tensor == NULL) {
        return -ENOMEM;
    }
    fby_plan_t made = {
        .segment_bytes = shard->segment_bytes,
        .offset = shard->offset,
        .bytes = shard->bytes,
        .device_blocks = layout->blocks,
        .shared = layout->kind == FBY_LAYOUT_MLA,
    };
    int rc = fby_layout_check(layout, tensor, &layer_stride);
    rc = rc == 0 ? check_shard(shard, layout, payload_bytes) : rc;
    rc = rc == 0 ? check_segments(shard, payload_bytes) : rc;
    rc = rc == 0 ? fby_layout_overlaps(layout, tensor) : rc;
    rc = rc == 0 ? compile(layout, tensor, layer_stride, &made) : rc;
    free(tensor);
    if (rc == 0) {
        *plan = made;
    }
    return rc;
}

void fby_plan_free(fby_plan_t *plan)
{
    free(plan->run);
    free(plan->unit);
    plan->run = NULL;
    plan->unit = NULL;
}
