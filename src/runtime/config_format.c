/* config_format.c - values back to text: canonical texts, what a key accepts, values in messages. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/config_value.h"
#include "runtime/settings.h"

void fby_format_size(uint64_t bytes, char *out, size_t capacity)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (unit + 1 < FBY_ARRAY_LEN(units) && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, capacity, "%" PRIu64 "%s", bytes, units[unit]);
}

/* Exact: whole seconds, then the nanoseconds without trailing zeros. */
static void format_seconds(uint64_t ns, char *out, size_t capacity)
{
    char fraction[16];
    snprintf(fraction, sizeof(fraction), ".%09" PRIu64, ns % FBY_SECOND);
    size_t length = strlen(fraction);
    while (length > 1 && fraction[length - 1] == '0') {
        length--;
    }
    fraction[length > 1 ? length : 0] = '\0';
    snprintf(out, capacity, "%" PRIu64 "%s", ns / FBY_SECOND, fraction);
}

/* Appends to a text that never overflows: what does not fit is cut. */
static void append(char *out, size_t capacity, const char *format, ...) FBY_PRINTF(3, 4);
static void append(char *out, size_t capacity, const char *format, ...)
{
    size_t length = strlen(out);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out + length, capacity - length, format, arguments);
    va_end(arguments);
}

static void format_parts(const fby_key_t *key, const fby_value_t *value, char *out)
{
    out[0] = '\0';
    for (uint32_t i = 0; i < value->parts; i++) {
        const fby_value_part_t *part = &value->part[i];
        char size[32];
        fby_format_size(part->bytes, size, sizeof(size));
        append(out, FBY_VALUE_TEXT_BYTES, "%s%s", i > 0 ? "," : "", part->name);
        if (key->type == FBY_TYPE_GROUP_BYTES) {
            append(out, FBY_VALUE_TEXT_BYTES, "=%s", size);
        } else if (part->trailing == 0) {
            append(out, FBY_VALUE_TEXT_BYTES, ":%s:all", size);
        } else {
            append(out, FBY_VALUE_TEXT_BYTES, ":%s:trailing(%" PRIu32 ")", size, part->trailing);
        }
    }
}

void fby_value_format(const fby_key_t *key, const fby_value_t *value, const char *text, char out[FBY_VALUE_TEXT_BYTES])
{
    if (!value->unset && (key->type == FBY_TYPE_U32 || key->type == FBY_TYPE_U64)) {
        snprintf(out, FBY_VALUE_TEXT_BYTES, "%" PRIu64, value->number);
    } else if (!value->unset && key->type == FBY_TYPE_SIZE) {
        fby_format_size(value->number, out, FBY_VALUE_TEXT_BYTES);
    } else if (!value->unset && (key->type == FBY_TYPE_TIME || key->type == FBY_TYPE_SPAN)) {
        format_seconds(value->number, out, FBY_VALUE_TEXT_BYTES);
    } else if (!value->unset && (key->type == FBY_TYPE_GROUPS || key->type == FBY_TYPE_GROUP_BYTES)) {
        format_parts(key, value, out);
    } else {
        snprintf(out, FBY_VALUE_TEXT_BYTES, "%s", text);
    }
}

static void accepts_words(const fby_word_t *words, char *out, size_t capacity)
{
    append(out, capacity, "one of ");
    for (size_t i = 0; words[i].text != NULL; i++) {
        append(out, capacity, "%s%s", i > 0 ? ", " : "", words[i].text);
    }
}

static void accepts_range(const fby_key_t *key, char *out, size_t capacity)
{
    if (key->type != FBY_TYPE_SIZE) {
        append(out, capacity, "a whole number from %" PRIu64 " to %" PRIu64, key->low, key->high);
        return;
    }
    char low[32], high[32];
    fby_format_size(key->low, low, sizeof(low));
    fby_format_size(key->high, high, sizeof(high));
    append(out, capacity, "a size from %s to %s in B, KiB, MiB, GiB or TiB, such as 512MiB", low, high);
}

void fby_value_accepts(const fby_key_t *key, char *out, size_t capacity)
{
    static const char *const texts[] = {
        [FBY_TYPE_BOOL] = "true or false",
        [FBY_TYPE_TIME] = "seconds from 0 to 1e9, such as 2.5",
        [FBY_TYPE_SPAN] = "seconds above 0 and up to 1e9, such as 2.5",
        [FBY_TYPE_RATE] = "a number above 0 and up to 1e12",
        [FBY_TYPE_RATIO] = "a number above 0 and up to 1",
        [FBY_TYPE_SECRET] = "1 to 64 bytes of text without control characters",
        [FBY_TYPE_GROUPS] =
            ("1 to 8 groups, each with name, payload_bytes (1B to 1GiB) and rule (all or trailing(n)), as a "
             "list of mappings or as name:payload_bytes:rule,..."),
        [FBY_TYPE_GROUP_BYTES] = "a size for each group of model.groups, as a mapping or as name=size,...",
    };
    out[0] = '\0';
    if (key->type == FBY_TYPE_ENUM) {
        accepts_words(key->words, out, capacity);
    } else if (key->type == FBY_TYPE_TEXT) {
        append(out, capacity, "text of 1 to %zu bytes without control characters", key->size - 1);
    } else if (key->type == FBY_TYPE_U32 || key->type == FBY_TYPE_U64 || key->type == FBY_TYPE_SIZE) {
        accepts_range(key, out, capacity);
    } else {
        append(out, capacity, "%s", texts[key->type]);
    }
    append(out, capacity, "%s", fby_key_may_be_unset(key) ? ", or unset" : "");
}

const char *fby_value_quote(const fby_key_t *key, const char *text, char *out, size_t capacity)
{
    if (key != NULL && key->type == FBY_TYPE_SECRET) {
        snprintf(out, capacity, "(a hidden value)");
        return out;
    }
    return fby_log_quote(out, capacity, text);
}
