#include "runtime/config_value.h"

#include <ctype.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/settings.h"

#define MOST_SECONDS 1e9 /* 31 years; keeps every sum of times far from overflow */
#define MOST_RATE 1e12
#define MOST_PAYLOAD_BYTES (UINT64_C(1) << 30)
#define MOST_TRAILING (UINT64_C(1) << 20)

#define FBY_X(name, text) {text, FBY_POLICY_##name},
static const fby_word_t policy_names[] = {FBY_POLICY_MAP(FBY_X){NULL, 0}};
#undef FBY_X
#define FBY_X(name, text) {text, FBY_STOP_##name},
static const fby_word_t stop_mode_names[] = {FBY_STOP_MODE_MAP(FBY_X){NULL, 0}};
#undef FBY_X
#define FBY_X(name, text) {text, FBY_EVICT_##name},
static const fby_word_t eviction_names[] = {FBY_EVICTION_MAP(FBY_X){NULL, 0}};
#undef FBY_X
#define FBY_X(name, text) {text, FBY_HOST_##name},
static const fby_word_t host_names[] = {FBY_STORE_HOST_MAP(FBY_X){NULL, 0}};
#undef FBY_X
#define FBY_X(name, text) {text, FBY_VERIFY_##name},
static const fby_word_t verify_names[] = {FBY_VERIFY_MAP(FBY_X){NULL, 0}};
#undef FBY_X
#define FBY_X(name, text) {text, FBY_STORE_WRITE_##name},
static const fby_word_t write_names[] = {FBY_STORE_WRITE_MAP(FBY_X){NULL, 0}};
#undef FBY_X
static const fby_word_t hash_names[] = {{"sha256", FBY_HASH_SHA256}, {"xxh3", FBY_HASH_XXH3}, {NULL, 0}};
static const fby_word_t log_level_names[] = {{"off", FBY_LOG_OFF},   {"error", FBY_LOG_ERROR}, {"warn", FBY_LOG_WARN},
                                             {"info", FBY_LOG_INFO}, {"debug", FBY_LOG_DEBUG}, {NULL, 0}};
static const fby_word_t log_format_names[] = {{"logfmt", FBY_LOG_LOGFMT}, {"json", FBY_LOG_JSON}, {NULL, 0}};

const fby_key_t fby_keys[FBY_KEY_COUNT] = {
#define FBY_X(id, key, type, field, text, low, high, names, help)                                                      \
    {key,                                                                                                              \
     FBY_TYPE_##type,                                                                                                  \
     offsetof(fby_settings_t, field),                                                                                  \
     sizeof(((fby_settings_t *)0)->field),                                                                             \
     text,                                                                                                             \
     low,                                                                                                              \
     high,                                                                                                             \
     names,                                                                                                            \
     help},
    FBY_CONFIG_MAP(FBY_X)
#undef FBY_X
};

fby_key_id_t fby_key_find(const char *name)
{
    size_t i = 0;
    while (i < FBY_KEY_COUNT && strcmp(fby_keys[i].name, name) != 0) {
        i++;
    }
    return (fby_key_id_t)i;
}

bool fby_key_may_be_unset(const fby_key_t *key)
{
    return strcmp(key->default_text, "unset") == 0 || strcmp(key->default_text, "derived") == 0;
}

static bool wrong(char *why, const char *text)
{
    snprintf(why, FBY_WHY_BYTES, "%s", text);
    return false;
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* The words that other number formats know and this one refuses, told apart for a better message. */
static const char *strange_number(const char *text)
{
    const char *word = text + (*text == '-' || *text == '+');
    word += *word == '.';
    if (*text == '\0') {
        return "is empty";
    }
    if (strcasecmp(word, "nan") == 0) {
        return "is not a number";
    }
    if (strcasecmp(word, "inf") == 0 || strcasecmp(word, "infinity") == 0) {
        return "is infinite";
    }
    return *text == '-' && (isdigit((unsigned char)*word) || word[-1] == '.') ? "is negative" : NULL;
}

static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* Digits into a number that saturates. */
static uint64_t read_digits(const char *text, size_t digits)
{
    uint64_t number = 0;
    for (size_t i = 0; i < digits; i++) {
        number = fby_add_sat(fby_mul_sat(number, 10), (uint64_t)(text[i] - '0'));
    }
    return number;
}

/* Hands the number out if it is in range. */
static bool take_in_range(uint64_t number, uint64_t low, uint64_t high, uint64_t *out, char *why)
{
    if (number < low || number > high) {
        return wrong(why, number < low ? "is too small" : "is too large");
    }
    *out = number;
    return true;
}

bool fby_read_whole(const char *text, uint64_t low, uint64_t high, uint64_t *out, char *why)
{
    const char *strange = strange_number(text);
    size_t digits = count_digits(text);
    if (strange != NULL) {
        return wrong(why, strange);
    }
    if (digits == 0 || text[digits] != '\0') {
        return wrong(why, "is not a whole number");
    }
    if (digits > 1 && text[0] == '0') {
        return wrong(why, "has a leading zero");
    }
    return take_in_range(read_digits(text, digits), low, high, out, why);
}

static const struct {
    const char *name;
    uint64_t bytes;
} size_units[] = {{"TiB", UINT64_C(1) << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}};

bool fby_read_size(const char *text, uint64_t low, uint64_t high, uint64_t *out, char *why)
{
    const char *strange = strange_number(text);
    size_t digits = count_digits(text), unit = 0;
    if (strange != NULL) {
        return wrong(why, strange);
    }
    if (digits == 0 || text[digits] == '.') {
        return wrong(why, "is not a whole number of a unit");
    }
    if (digits > 1 && text[0] == '0') {
        return wrong(why, "has a leading zero");
    }
    while (unit < FBY_ARRAY_LEN(size_units) && strcmp(text + digits, size_units[unit].name) != 0) {
        unit++;
    }
    if (unit == FBY_ARRAY_LEN(size_units)) {
        return wrong(why, "has an unknown unit");
    }
    return take_in_range(fby_mul_sat(read_digits(text, digits), size_units[unit].bytes), low, high, out, why);
}

/* [-+]digits[.digits][e[-+]digits], at least one digit before the exponent: what strtod takes, less its extras. */
static bool is_decimal(const char *text)
{
    text += *text == '-' || *text == '+';
    size_t whole = count_digits(text), fraction = 0;
    text += whole;
    if (*text == '.') {
        fraction = count_digits(text + 1);
        text += 1 + fraction;
    }
    if (whole + fraction > 0 && (*text == 'e' || *text == 'E')) {
        text += 1 + (text[1] == '-' || text[1] == '+');
        size_t exponent = count_digits(text);
        if (exponent == 0) {
            return false;
        }
        text += exponent;
    }
    return whole + fraction > 0 && *text == '\0';
}

static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void c_locale_make(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

bool fby_read_real(const char *text, double *out, char *why)
{
    const char *strange = strange_number(text);
    if (strange != NULL) {
        return wrong(why, strange);
    }
    if (!is_decimal(text)) {
        return wrong(why, "is not a number");
    }
    pthread_once(&c_locale_once, c_locale_make);
    double number = c_locale != (locale_t)0 ? strtod_l(text, NULL, c_locale) : strtod(text, NULL);
    if (!isfinite(number)) {
        return wrong(why, "is too large");
    }
    *out = number;
    return true;
}

bool fby_read_seconds(const char *text, uint64_t *out_ns, char *why)
{
    double seconds;
    size_t digits = strspn(text, "0123456789.");
    if (isdigit((unsigned char)text[0]) && isalpha((unsigned char)text[digits]) && !is_decimal(text)) {
        return wrong(why, "has a unit, but the unit is in the name: seconds");
    }
    if (!fby_read_real(text, &seconds, why)) {
        return false;
    }
    if (seconds > MOST_SECONDS) {
        return wrong(why, "is too large");
    }
    *out_ns = (uint64_t)llround(seconds * 1e9);
    return true;
}

/* ---- Words and texts --------------------------------------------------------------------------------------------- */

static bool read_word(const fby_word_t *words, const char *text, uint64_t *out, char *why)
{
    for (; words->text != NULL; words++) {
        if (strcmp(words->text, text) == 0) {
            *out = (uint64_t)(int64_t)words->number;
            return true;
        }
    }
    return wrong(why, *text == '\0' ? "is empty" : "is not known");
}

static bool read_bool(const char *text, uint64_t *out, char *why)
{
    static const fby_word_t words[] = {{"false", 0}, {"true", 1}, {NULL, 0}};
    return read_word(words, text, out, why) || wrong(why, "is not a truth value");
}

static bool read_text(const char *text, size_t capacity, char *why)
{
    if (*text == '\0') {
        return wrong(why, "is empty");
    }
    if (strlen(text) >= capacity) {
        return wrong(why, "is too long");
    }
    for (; *text != '\0'; text++) {
        if (iscntrl((unsigned char)*text)) {
            return wrong(why, "has a control character");
        }
    }
    return true;
}

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

bool fby_read_rule(const char *text, uint32_t *trailing, char *why)
{
    static const char head[] = "trailing(";
    *trailing = 0;
    if (strcmp(text, "all") == 0) {
        return true;
    }
    size_t length = strlen(text);
    if (strncmp(text, head, sizeof(head) - 1) != 0 || text[length - 1] != ')' || length - sizeof(head) > 10) {
        return wrong(why, "has a rule that is neither all nor trailing(n)");
    }
    char digits[16] = "";
    uint64_t number;
    memcpy(digits, text + sizeof(head) - 1, length - sizeof(head));
    if (!fby_read_whole(digits, 1, MOST_TRAILING, &number, why)) {
        return wrong(why, "has a rule trailing(n) whose n is not a whole number from 1 to 1048576");
    }
    *trailing = (uint32_t)number;
    return true;
}

bool fby_read_group_name(const char *text, char out[32], char *why)
{
    size_t length = strlen(text);
    if (length == 0 || length > 31) {
        return wrong(why, "has a group name that is not 1 to 31 characters long");
    }
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)text[i]) && strchr("_-.", text[i]) == NULL) {
            return wrong(why, "has a group name with a character that is no letter, digit, '_', '-' or '.'");
        }
    }
    memcpy(out, text, length + 1);
    return true;
}

/* "name:payload:rule" or "name=bytes". The text is cut up. */
static bool read_part(const fby_key_t *key, char *text, fby_value_part_t *part, char *why)
{
    bool is_group = key->type == FBY_TYPE_GROUPS;
    char *rest = text;
    const char *name = strsep(&rest, is_group ? ":" : "=");
    const char *size = strsep(&rest, is_group ? ":" : "\n");
    if (size == NULL || (is_group && rest == NULL)) {
        return wrong(why, is_group ? "is not name:payload:rule" : "is not name=size");
    }
    char inner[FBY_WHY_BYTES];
    uint64_t most = is_group ? MOST_PAYLOAD_BYTES : FBY_MOST_BYTES;
    if (!fby_read_size(size, 1, most, &part->bytes, inner)) {
        snprintf(why, FBY_WHY_BYTES, "has a size that %.100s", inner);
        return false;
    }
    return fby_read_group_name(name, part->name, why) && (!is_group || fby_read_rule(rest, &part->trailing, why));
}

static bool part_is_new(const fby_value_t *value)
{
    for (uint32_t i = 0; i + 1 < value->parts; i++) {
        if (strcmp(value->part[i].name, value->part[value->parts - 1].name) == 0) {
            return false;
        }
    }
    return true;
}

/* A comma between parts. */
static bool read_parts(const fby_key_t *key, const char *text, fby_value_t *value, char *why)
{
    char copy[FBY_VALUE_TEXT_BYTES], *rest = copy, *one;
    if (*text == '\0' || strlen(text) >= sizeof(copy)) {
        return wrong(why, *text == '\0' ? "is empty" : "is too long");
    }
    memcpy(copy, text, strlen(text) + 1);
    while ((one = strsep(&rest, ",")) != NULL) {
        if (value->parts == FBY_MAX_GROUPS) {
            return wrong(why, "has more than 8 groups");
        }
        if (!read_part(key, one, &value->part[value->parts++], why)) {
            return false;
        }
        if (!part_is_new(value)) {
            return wrong(why, "names a group twice");
        }
    }
    return true;
}

/* ---- Any type ---------------------------------------------------------------------------------------------------- */

static bool read_positive(const fby_key_t *key, const char *text, double most, double *out, char *why)
{
    if (!fby_read_real(text, out, why)) {
        return false;
    }
    return *out <= 0 ? wrong(why, "is not above 0") : *out > most ? wrong(why, "is too large") : true;
}

bool fby_value_read(const fby_key_t *key, const char *text, fby_value_t *value, char *why)
{
    *value = (fby_value_t){0};
    if (fby_key_may_be_unset(key) && strcmp(text, "unset") == 0) {
        value->unset = true;
        return true;
    }
    switch (key->type) {
    case FBY_TYPE_BOOL:
        return read_bool(text, &value->number, why);
    case FBY_TYPE_U32:
    case FBY_TYPE_U64:
        return fby_read_whole(text, key->low, key->high, &value->number, why);
    case FBY_TYPE_SIZE:
        return fby_read_size(text, key->low, key->high, &value->number, why);
    case FBY_TYPE_TIME:
        return fby_read_seconds(text, &value->number, why);
    case FBY_TYPE_SPAN:
        return fby_read_seconds(text, &value->number, why) && (value->number > 0 || wrong(why, "is not above 0"));
    case FBY_TYPE_RATE:
        return read_positive(key, text, MOST_RATE, &value->real, why);
    case FBY_TYPE_RATIO:
        return read_positive(key, text, 1.0, &value->real, why);
    case FBY_TYPE_ENUM:
        return read_word(key->words, text, &value->number, why);
    case FBY_TYPE_TEXT:
        return read_text(text, key->size, why);
    case FBY_TYPE_SECRET:
        return read_text(text, FBY_SECRET_BYTES + 1, why);
    case FBY_TYPE_GROUPS:
    case FBY_TYPE_GROUP_BYTES:
        return read_parts(key, text, value, why);
    }
    return wrong(why, "has no type");
}
