/* base.h - small things every floor uses. Pure: no thread, no clock, no I/O. */
#ifndef FBY_BASE_H
#define FBY_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FBY_NONE UINT32_MAX  /* "no index": end of a list, empty link */
#define FBY_NEVER UINT64_MAX /* "no deadline" */

#define FBY_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define FBY_MIN(a, b) ((a) < (b) ? (a) : (b))
#define FBY_MAX(a, b) ((a) > (b) ? (a) : (b))

#if defined(__GNUC__)
#define FBY_LIKELY(x) __builtin_expect(!!(x), 1)
#define FBY_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define FBY_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define FBY_LIKELY(x) (x)
#define FBY_UNLIKELY(x) (x)
#define FBY_PRINTF(a, b)
#endif

/* 128-bit chain hash. Position-independent bytes: compared, never interpreted, except for bucket choice. */
typedef struct fby_hash {
    uint64_t w[2]; /* the digest's bytes in memory order; w[0] and w[1] are loads of them, only for comparing */
} fby_hash_t;

static inline bool fby_hash_equal(const fby_hash_t *a, const fby_hash_t *b)
{
    return ((a->w[0] ^ b->w[0]) | (a->w[1] ^ b->w[1])) == 0;
}

/* a + b, or UINT64_MAX. */
static inline uint64_t fby_add_sat(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
/* a * b, or UINT64_MAX. */
static inline uint64_t fby_mul_sat(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}
/* a - b, or 0. */
static inline uint64_t fby_sub_sat(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}
/* Rounds up to a multiple of a power of two. */
static inline uint64_t fby_align_up(uint64_t value, uint64_t power_of_two)
{
    return (value + power_of_two - 1) & ~(power_of_two - 1);
}
/* Smallest power of two >= value; 1 for 0. */
static inline uint64_t fby_pow2_ceil(uint64_t value)
{
    return value <= 1 ? 1 : UINT64_C(1) << (64 - __builtin_clzll(value - 1));
}

#endif
