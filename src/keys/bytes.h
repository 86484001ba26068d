/* bytes.h - little-endian integers, as every format of ours has them. */
#ifndef FBY_KEYS_BYTES_H
#define FBY_KEYS_BYTES_H

#include <stdint.h>

static inline void fby_put_le32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline void fby_put_le64(uint8_t *out, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

#endif
