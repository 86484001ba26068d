/*
 * layout.h - from an engine's tensors to the plan that every copy of a group follows.
 *
 * INVARIANT  the runs of a plan cover [offset, offset + bytes) of the payload once, in rising order, and no two of them
 * touch the same byte of a device block. Unit u is the runs [unit[u], unit[u + 1]): with segment_bytes exactly the
 * checksum segment u of the shard, else one run.
 */
#ifndef FBY_RANK_LAYOUT_H
#define FBY_RANK_LAYOUT_H

#include "base/base.h"
#include "forebay/device.h"
#include "forebay/rank.h"

typedef struct fby_plan {
    fby_copy_run_t *run; /* NULL: the group has no layout */
    uint32_t *unit;      /* units + 1 */
    uint32_t runs, units;
    uint32_t segment_bytes; /* 0: units are no segments */
    uint64_t offset, bytes; /* of the shard in the payload */
    uint64_t device_blocks;
    bool shared; /* mla: the same bytes on all ranks */
} fby_plan_t;

/* Checks and compiles; *plan is the caller's to free with fby_plan_free. -EINVAL with detail, -ENOMEM. */
int fby_plan_make(const fby_shard_t *shard, const fby_layout_t *layout, uint32_t payload_bytes, fby_plan_t *plan);
void fby_plan_free(fby_plan_t *plan);

/* layout_check.c: sizes and strides of all tensors; resolved[] gets them with no stride 0 left. -EINVAL with detail. */
int fby_layout_check(const fby_layout_t *layout, fby_tensor_t *resolved, uint64_t *layer_stride);
/* No two tensors share a byte. -EINVAL with detail. */
int fby_layout_overlaps(const fby_layout_t *layout, const fby_tensor_t *resolved);
/* Pieces per layer in the shard: 2 when K and V are apart. */
static inline uint32_t fby_layout_parts(const fby_layout_t *layout)
{
    return layout->kind == FBY_LAYOUT_SPLIT ? 2 : 1;
}

#endif
