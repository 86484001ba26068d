/* evict_filo.c - first in, last out. A stamp for evict_heap.c. */
#include "index/evict.h"

uint64_t fby_evict_stamp_filo(uint64_t old, uint64_t now, bool fresh)
{
    return fresh ? FBY_STAMP_MASK - now : old;
}
