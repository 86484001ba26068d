/* endian.h - little-endian loads and stores at any address, on any host. */
#ifndef FBY_STORES_ENDIAN_H
#define FBY_STORES_ENDIAN_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void fby_store_le16(void *at, uint16_t value)
{
    uint16_t le = htole16(value);
    memcpy(at, &le, sizeof(le));
}
static inline void fby_store_le32(void *at, uint32_t value)
{
    uint32_t le = htole32(value);
    memcpy(at, &le, sizeof(le));
}
static inline void fby_store_le64(void *at, uint64_t value)
{
    uint64_t le = htole64(value);
    memcpy(at, &le, sizeof(le));
}
static inline uint16_t fby_load_le16(const void *at)
{
    uint16_t le;
    memcpy(&le, at, sizeof(le));
    return le16toh(le);
}
static inline uint32_t fby_load_le32(const void *at)
{
    uint32_t le;
    memcpy(&le, at, sizeof(le));
    return le32toh(le);
}
static inline uint64_t fby_load_le64(const void *at)
{
    uint64_t le;
    memcpy(&le, at, sizeof(le));
    return le64toh(le);
}

#endif
