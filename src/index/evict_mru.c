/* evict_mru.c - most recently used first. A stamp for evict_heap.c. */
#include "index/evict.h"

uint64_t fby_evict_stamp_mru(uint64_t old, uint64_t now, bool fresh)
{
    (void)old;
    (void)fresh;
    return FBY_STAMP_MASK - now;
}
