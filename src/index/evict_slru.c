/* evict_slru.c - segmented LRU: probation until the second use, protected after it. A stamp for evict_heap.c. */
#include "index/evict.h"

/* Probation until the second use; the publisher's own is the first. Bit 0 remembers the first, bit 61 the second. */
#define SLRU_PROTECTED (UINT64_C(1) << 61)
uint64_t fby_evict_stamp_slru(uint64_t old, uint64_t now, bool fresh)
{
    if (fresh) {
        return now << 1;
    }
    uint64_t segment = (old & 1) != 0 ? SLRU_PROTECTED : old & SLRU_PROTECTED;
    return segment | (now << 1 & (SLRU_PROTECTED - 1)) | 1;
}
