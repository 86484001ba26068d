#include "stores/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "forebay/forebay.h"

static const char *option_value(const char *option, const char *name)
{
    size_t length = strlen(name);
    return strncmp(option, name, length) == 0 && option[length] == '=' ? option + length + 1 : NULL;
}

const char *fby_option_get(const fby_options_t *options, const char *name)
{
    const char *found = NULL;
    for (const char *const *at = options->list; at != NULL && *at != NULL; at++) {
        const char *value = option_value(*at, name);
        if (value != NULL) {
            found = value;
        }
    }
    return found;
}

int fby_option_fail(const fby_options_t *options, int code, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (options->error != NULL && options->error_size > 0) {
        snprintf(options->error, options->error_size, "store driver %s: %s", options->driver, text);
    }
    return code;
}

int fby_option_bad(const fby_options_t *options, const char *name, const char *value, const char *accepted)
{
    return fby_option_fail(options, FBY_E_CONFIG, "option %s is '%.80s'; accepted: %s", name, value, accepted);
}

bool fby_options_known(const fby_options_t *options, const char *const *names)
{
    for (const char *const *at = options->list; at != NULL && *at != NULL; at++) {
        bool known = false;
        for (const char *const *name = names; *name != NULL && !known; name++) {
            known = option_value(*at, *name) != NULL;
        }
        if (known) {
            continue;
        }
        char accepted[256] = "";
        size_t used = 0;
        for (const char *const *name = names; *name != NULL && used < sizeof(accepted); name++) {
            used +=
                (size_t)snprintf(accepted + used, sizeof(accepted) - used, "%s%s", name == names ? "" : ", ", *name);
        }
        fby_option_fail(options, FBY_E_CONFIG, "'%.80s' is not an option of it (as name=value); accepted names: %s",
                        *at, accepted);
        return false;
    }
    return true;
}

bool fby_text_u64(const char *text, size_t length, uint64_t *value)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(sum, 10u, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(text[i] - '0'), &sum)) {
            return false;
        }
    }
    *value = sum;
    return length > 0;
}

bool fby_text_size(const char *text, size_t length, uint64_t *bytes)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {
        {"", 1},
        {"B", 1},
        {"KiB", UINT64_C(1) << 10},
        {"MiB", UINT64_C(1) << 20},
        {"GiB", UINT64_C(1) << 30},
        {"TiB", UINT64_C(1) << 40},
        {"KB", UINT64_C(1000)},
        {"MB", UINT64_C(1000000)},
        {"GB", UINT64_C(1000000000)},
        {"TB", UINT64_C(1000000000000)},
    };
    size_t digits = 0;
    while (digits < length && text[digits] >= '0' && text[digits] <= '9') {
        digits++;
    }
    uint64_t number;
    if (!fby_text_u64(text, digits, &number)) {
        return false;
    }
    for (size_t i = 0; i < FBY_ARRAY_LEN(units); i++) {
        if (strlen(units[i].name) == length - digits && memcmp(units[i].name, text + digits, length - digits) == 0) {
            return !__builtin_mul_overflow(number, units[i].bytes, bytes);
        }
    }
    return false;
}

/* A decimal number with at most six decimals, in millionths. */
static bool text_millionths(const char *text, size_t length, uint64_t most, uint64_t *value)
{
    const char *dot = length > 0 ? memchr(text, '.', length) : NULL; /* a missing argument has no text at all */
    size_t whole_length = dot != NULL ? (size_t)(dot - text) : length;
    size_t decimals = dot != NULL ? length - whole_length - 1 : 0;
    uint64_t whole, fraction = 0;
    if (!fby_text_u64(text, whole_length, &whole) || whole > most || decimals > 6 ||
        (dot != NULL && !fby_text_u64(dot + 1, decimals, &fraction))) {
        return false;
    }
    for (size_t i = decimals; i < 6; i++) {
        fraction *= 10;
    }
    *value = whole * 1000000 + fraction;
    return *value <= most * 1000000;
}

bool fby_text_ms(const char *text, size_t length, uint64_t *ns)
{
    return text_millionths(text, length, 1000000000, ns);
}

bool fby_text_chance(const char *text, size_t length, uint32_t *millionths)
{
    uint64_t value;
    if (!text_millionths(text, length, 1, &value)) {
        return false;
    }
    *millionths = (uint32_t)value;
    return true;
}

int fby_option_u32(const fby_options_t *options, const char *name, uint32_t low, uint32_t high, uint32_t *value)
{
    const char *text = fby_option_get(options, name);
    uint64_t number;
    if (text == NULL) {
        return 0;
    }
    if (!fby_text_u64(text, strlen(text), &number) || number < low || number > high) {
        char accepted[64];
        snprintf(accepted, sizeof(accepted), "a whole number from %u to %u", low, high);
        return fby_option_bad(options, name, text, accepted);
    }
    *value = (uint32_t)number;
    return 0;
}

int fby_option_size(const fby_options_t *options, const char *name, uint64_t low, uint64_t *value)
{
    const char *text = fby_option_get(options, name);
    uint64_t number;
    if (text == NULL) {
        return 0;
    }
    if (!fby_text_size(text, strlen(text), &number) || number < low) {
        char accepted[96];
        snprintf(accepted, sizeof(accepted), "a size of at least %llu bytes, such as 4096, 64KiB, 512MiB, 1GB",
                 (unsigned long long)low);
        return fby_option_bad(options, name, text, accepted);
    }
    *value = number;
    return 0;
}

int fby_option_ms(const fby_options_t *options, const char *name, uint64_t *value_ns)
{
    const char *text = fby_option_get(options, name);
    if (text == NULL) {
        return 0;
    }
    if (!fby_text_ms(text, strlen(text), value_ns)) {
        return fby_option_bad(options, name, text, "milliseconds from 0 to 1000000000, such as 2 or 0.25");
    }
    return 0;
}

int fby_option_bool(const fby_options_t *options, const char *name, bool *value)
{
    static const char *const words[] = {"0", "1", "false", "true", "off", "on", "no", "yes", NULL};
    uint32_t index;
    const char *text = fby_option_get(options, name);
    if (text == NULL) {
        return 0;
    }
    for (index = 0; words[index] != NULL; index++) {
        if (strcmp(words[index], text) == 0) {
            *value = (index & 1u) != 0;
            return 0;
        }
    }
    return fby_option_bad(options, name, text, "0, 1, false, true, off, on, no, yes");
}

int fby_option_word(const fby_options_t *options, const char *name, const char *const *words, uint32_t *value)
{
    const char *text = fby_option_get(options, name);
    if (text == NULL) {
        return 0;
    }
    char accepted[160] = "";
    size_t used = 0;
    for (uint32_t i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], text) == 0) {
            *value = i;
            return 0;
        }
        if (used < sizeof(accepted)) {
            used += (size_t)snprintf(accepted + used, sizeof(accepted) - used, "%s%s", i == 0 ? "" : ", ", words[i]);
        }
    }
    return fby_option_bad(options, name, text, accepted);
}
