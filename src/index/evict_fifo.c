/* evict_fifo.c - first in, first out. A stamp for evict_heap.c. */
#include "index/evict.h"

uint64_t fby_evict_stamp_fifo(uint64_t old, uint64_t now, bool fresh)
{
    return fresh ? now : old;
}
