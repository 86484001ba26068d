/* handle.h - the layout of handles, for whoever must tell them apart without the core. */
#ifndef FBY_CORE_HANDLE_H
#define FBY_CORE_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

/* Handle: 2 bits of type | 14 of core generation (resets) | 28 of object generation | 20 of index. Never 0. */
enum { FBY_HANDLE_SESSION = 1, FBY_HANDLE_HOLD = 2, FBY_HANDLE_PUT = 3 };
#define FBY_HANDLE_INDEX_BITS 20
#define FBY_HANDLE_INDEX_MASK ((UINT64_C(1) << FBY_HANDLE_INDEX_BITS) - 1)
#define FBY_HANDLE_GENERATION_SHIFT FBY_HANDLE_INDEX_BITS
#define FBY_HANDLE_GENERATION_MASK ((UINT64_C(1) << 28) - 1)
#define FBY_HANDLE_EPOCH_SHIFT 48
#define FBY_HANDLE_EPOCH_MASK ((UINT64_C(1) << 14) - 1)
#define FBY_HANDLE_TYPE_SHIFT 62
static inline uint32_t fby_handle_index(uint64_t handle)
{
    return (uint32_t)(handle & FBY_HANDLE_INDEX_MASK);
}
static inline unsigned fby_handle_type(uint64_t handle)
{
    return (unsigned)(handle >> FBY_HANDLE_TYPE_SHIFT);
}
/* Is it a handle of that generation of the core? */
static inline bool fby_handle_is_of(uint64_t handle, uint32_t generation)
{
    return (handle >> FBY_HANDLE_EPOCH_SHIFT & FBY_HANDLE_EPOCH_MASK) == (generation & FBY_HANDLE_EPOCH_MASK);
}

#endif
