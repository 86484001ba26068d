/* verify.c - does a slot hold what its trailer says? The sums of a copy stand in for reading those parts again. */
#include <stdio.h>
#include <string.h>

#include "rank/rank_internal.h"
#include "stores/object.h"

uint64_t fby_rank_scratch(const fby_rank_t *rank, uint32_t group)
{
    uint32_t segment = rank->plan[group].segment_bytes;
    return segment == 0 ? 0 : ((uint64_t)rank->pool.group[group].payload_bytes + segment - 1) / segment;
}

/* The checksum of the payload, of which `own` are the sums of the shard's segments. */
static uint64_t fold_with(const fby_plan_t *plan, const uint8_t *slot, uint32_t payload_bytes, const uint64_t *own,
                          uint64_t *scratch)
{
    uint64_t segment = plan->segment_bytes, n = 0;
    for (uint64_t at = 0; at < payload_bytes; at += segment, n++) {
        bool ours = at >= plan->offset && at < plan->offset + plan->bytes;
        scratch[n] = ours ? own[(at - plan->offset) / segment]
                          : fby_checksum_segment(slot + at, (size_t)FBY_MIN(segment, payload_bytes - at));
    }
    return fby_checksum_fold(scratch, n);
}

/* What the trailer itself may have wrong. */
static const char *trailer_fault(const fby_rank_t *rank, uint32_t group, const uint8_t *slot, fby_object_id_t *id,
                                 uint64_t *checksum, uint8_t *flags)
{
    uint32_t payload_bytes = rank->pool.group[group].payload_bytes;
    fby_object_fault_t fault = fby_trailer_parse(slot + payload_bytes, id, checksum, flags);
    if (fault == FBY_OBJECT_OK && id->group != group) {
        fault = FBY_OBJECT_KEY;
    } else if (fault == FBY_OBJECT_OK && id->payload_bytes != payload_bytes) {
        fault = FBY_OBJECT_LENGTH;
    } else if (fault == FBY_OBJECT_OK &&
               memcmp(id->fingerprint, rank->pool.fingerprint, sizeof(id->fingerprint)) != 0) {
        fault = FBY_OBJECT_FINGERPRINT;
    }
    return fault == FBY_OBJECT_OK ? NULL : fby_object_fault_name(fault);
}

int fby_rank_verify(const fby_rank_t *rank, uint32_t group, const uint8_t *slot, const uint64_t *own, uint64_t *scratch,
                    char *detail, size_t detail_size)
{
    const fby_plan_t *plan = &rank->plan[group];
    uint32_t payload_bytes = rank->pool.group[group].payload_bytes;
    fby_object_id_t id;
    uint64_t checksum;
    uint8_t flags;
    const char *fault = trailer_fault(rank, group, slot, &id, &checksum, &flags);
    if (fault == NULL && (flags & FBY_FLAG_NO_CHECKSUM) == 0) {
        bool folded = own != NULL && id.segment_bytes == plan->segment_bytes;
        uint64_t found = folded ? fold_with(plan, slot, payload_bytes, own, scratch)
                                : fby_checksum(slot, payload_bytes, id.segment_bytes);
        fault = found == checksum ? NULL : fby_object_fault_name(FBY_OBJECT_SUM);
    }
    if (fault == NULL) {
        return 0;
    }
    snprintf(detail, detail_size, "the slot at place %llu of group %u has a wrong %s",
             (unsigned long long)(slot - rank->base), group, fault);
    return FBY_E_CHECKSUM;
}
