/* memory.h - allocation for test programs: without memory there is nothing to test, so the process ends. */
#ifndef FBY_SIM_MEMORY_H
#define FBY_SIM_MEMORY_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void *sim_checked(void *memory)
{
    if (memory)
        return memory;
    fputs("sim: out of memory\n", stderr);
    abort();
}

static inline void *sim_zeroed(size_t count, size_t size)
{
    return sim_checked(calloc(count ? count : 1, size));
}

static inline void *sim_resized(void *memory, size_t count, size_t size)
{
    return sim_checked(realloc(memory, (count ? count : 1) * size));
}

/* Zeroed and 64-aligned, for the core and the index. */
static inline void *sim_aligned(size_t bytes)
{
    size_t rounded = (bytes + 63) / 64 * 64;
    void *memory = sim_checked(aligned_alloc(64, rounded ? rounded : 64));
    return memset(memory, 0, rounded);
}

#endif
