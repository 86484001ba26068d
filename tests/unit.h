/* unit.h - what every test file needs: cmocka's headers in their order, a seeded random stream, a runner. */
#ifndef FBY_TESTS_UNIT_H
#define FBY_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* SplitMix64: the same stream on every machine for one seed. */
static inline uint64_t unit_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Uniform enough in [0, n) for tests. */
static inline uint32_t unit_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(unit_random(state) % n);
}

#endif
