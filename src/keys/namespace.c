#include <errno.h>
#include <string.h>

#include "keys/bytes.h"
#include "keys/keys.h"

/* The one place that says it: an empty salt means unset. */
static bool part_is_unset(const fby_ns_part_t *part)
{
    return part->type == FBY_NS_SALT && part->length == 0;
}

static bool part_is_valid(const fby_ns_part_t *part)
{
    switch (part->type) {
    case FBY_NS_ADAPTER:
    case FBY_NS_SALT:
    case FBY_NS_TENANT:
    case FBY_NS_TEXT:
        return part->length <= UINT32_MAX && (part->data != NULL || part->length == 0);
    }
    return false;
}

/* Counts the parts that are set and the bytes they need. */
static int namespace_measure(const fby_ns_part_t *parts, size_t n, uint32_t *count, size_t *bytes)
{
    if (parts == NULL && n > 0) {
        return -EINVAL;
    }
    *count = 0;
    *bytes = 4;
    for (size_t i = 0; i < n; i++) {
        if (!part_is_valid(&parts[i])) {
            return -EINVAL;
        }
        if (part_is_unset(&parts[i])) {
            continue;
        }
        if (*count == UINT32_MAX || __builtin_add_overflow(*bytes, parts[i].length + 5, bytes)) {
            return -EINVAL;
        }
        (*count)++;
    }
    return 0;
}

int fby_namespace_encode(const fby_ns_part_t *parts, size_t n, uint8_t *out, size_t capacity, size_t *length)
{
    uint32_t count;
    size_t bytes;
    int error = namespace_measure(parts, n, &count, &bytes);
    if (error != 0) {
        return error;
    }
    if (out == NULL) {
        *length = bytes;
        return 0;
    }
    if (bytes > capacity) {
        return -ENOSPC;
    }
    fby_put_le32(out, count);
    out += 4;
    for (size_t i = 0; i < n; i++) {
        if (part_is_unset(&parts[i])) {
            continue;
        }
        *out++ = (uint8_t)parts[i].type;
        fby_put_le32(out, (uint32_t)parts[i].length);
        out += 4;
        if (parts[i].length > 0) {
            memcpy(out, parts[i].data, parts[i].length);
            out += parts[i].length;
        }
    }
    *length = bytes;
    return 0;
}
