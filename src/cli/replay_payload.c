#include "cli/replay_payload.h"

#include <string.h>

#include "cli/trace.h"

/* SplitMix64: word i of a stream by its position, so that fill and check need no state. */
static uint64_t word_at(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint64_t seed_of(const fby_hash_t *hash, uint32_t group)
{
    return word_at(hash->w[0], group) ^ word_at(hash->w[1], 1);
}

void fby_payload_fill(void *out, size_t bytes, const fby_hash_t *hash, uint32_t group)
{
    uint64_t seed = seed_of(hash, group);
    size_t words = bytes / sizeof(uint64_t);
    for (size_t i = 0; i < words; i++) {
        uint64_t word = word_at(seed, i);
        memcpy((uint8_t *)out + i * sizeof(word), &word, sizeof(word));
    }
    uint64_t last = word_at(seed, words);
    memcpy((uint8_t *)out + words * sizeof(last), &last, bytes % sizeof(last));
}

bool fby_payload_copy(void *copy, const void *payload, size_t bytes, const fby_hash_t *hash, uint32_t group)
{
    uint64_t seed = seed_of(hash, group), differs = 0;
    size_t words = bytes / sizeof(uint64_t);
    memcpy(copy, payload, bytes);
    for (size_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, (const uint8_t *)copy + i * sizeof(word), sizeof(word));
        differs |= word ^ word_at(seed, i);
    }
    uint64_t last = word_at(seed, words);
    return differs == 0 && memcmp((const uint8_t *)copy + words * sizeof(last), &last, bytes % sizeof(last)) == 0;
}

/* Bijective on 32 bits. */
static uint32_t mixed(uint32_t x)
{
    x = (x ^ (x >> 16)) * UINT32_C(0x7FEB352D);
    x = (x ^ (x >> 15)) * UINT32_C(0x846CA68B);
    return x ^ (x >> 16);
}

void fby_payload_tokens(const uint32_t *ids, uint64_t tokens, uint32_t *out)
{
    for (uint64_t i = 0; i < tokens; i++) {
        uint32_t position = (uint32_t)(i % FBY_TRACE_BLOCK_TOKENS);
        out[i] = mixed(ids[i / FBY_TRACE_BLOCK_TOKENS] + position * UINT32_C(0x9E3779B9));
    }
}
