/* random.h - SplitMix64: the same stream on every machine for one seed. */
#ifndef FBY_SIM_RANDOM_H
#define FBY_SIM_RANDOM_H

#include <stdint.h>

static inline uint64_t sim_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline uint64_t sim_random(uint64_t *state)
{
    return sim_mix(*state += UINT64_C(0x9E3779B97F4A7C15));
}

/* In [0, n), without the division of a modulo; the bias is below n / 2^32. */
static inline uint32_t sim_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(((sim_random(state) >> 32) * n) >> 32);
}

/* True once in n on average. */
static inline int sim_one_in(uint64_t *state, uint32_t n)
{
    return sim_below(state, n) == 0;
}

#endif
