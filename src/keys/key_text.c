#include <string.h>

#include "keys/keys.h"

static const char hex[] = "0123456789abcdef";

void fby_key_text(const fby_hash_t *hash, uint32_t group, char out[FBY_KEY_TEXT_BYTES])
{
    uint8_t bytes[16];
    memcpy(bytes, hash->w, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        *out++ = hex[bytes[i] >> 4];
        *out++ = hex[bytes[i] & 15];
    }
    *out++ = '-';
    *out++ = 'g';
    _Static_assert(FBY_MAX_GROUPS <= 10, "a group is one digit");
    *out++ = (char)('0' + group % 10);
    *out = '\0';
}

static int hex_value(char c)
{
    const char *at = c != '\0' ? strchr(hex, c) : NULL;
    return at != NULL ? (int)(at - hex) : -1;
}

bool fby_key_parse(const char *text, fby_hash_t *hash, uint32_t *group)
{
    uint8_t bytes[16];
    for (size_t i = 0; i < sizeof(bytes); i++, text += 2) {
        int high = hex_value(text[0]);
        int low = high >= 0 ? hex_value(text[1]) : -1;
        if (low < 0) {
            return false;
        }
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    if (text[0] != '-' || text[1] != 'g' || text[2] < '0' || text[2] >= '0' + FBY_MAX_GROUPS || text[3] != '\0') {
        return false;
    }
    memcpy(hash->w, bytes, sizeof(bytes));
    *group = (uint32_t)(text[2] - '0');
    return true;
}
