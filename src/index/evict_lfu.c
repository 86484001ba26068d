/* evict_lfu.c - least frequently used, then least recently. A stamp for evict_heap.c. */
#include "index/evict.h"

/* Uses in the upper 18 bits, saturating; then the last use. */
#define LFU_ONE (UINT64_C(1) << 44)
#define LFU_TIME (LFU_ONE - 1)
uint64_t fby_evict_stamp_lfu(uint64_t old, uint64_t now, bool fresh)
{
    uint64_t uses = fresh ? 0 : old & ~LFU_TIME;
    if (!fresh && uses + LFU_ONE <= FBY_STAMP_MASK) {
        uses += LFU_ONE;
    }
    return uses | (now & LFU_TIME);
}
