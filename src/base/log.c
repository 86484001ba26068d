/*
 * log.c - one line per event, as logfmt or JSON.
 *
 * Callers hand over logfmt; JSON is made from it field by field. A line lives on the stack and has a fixed size: a field
 * that does not fit is left out whole and the line says so, so that every line parses.
 */
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 4096, TEXT_BYTES = 2048, TAIL_BYTES = 32 /* kept free for the "truncated" mark */ };

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static _Atomic int log_level = FBY_LOG_WARN;
static _Atomic int log_format = FBY_LOG_LOGFMT;
static _Atomic int log_fd = STDERR_FILENO;

/* Always NUL-terminated; `full` stays set once something did not fit. */
typedef struct line {
    char data[LINE_BYTES];
    size_t length, limit;
    bool full;
} line_t;

/* One "key=value" of the text: pointers into it. A value that was quoted is given without its quotes, still escaped. */
typedef struct field {
    const char *key, *value;
    size_t key_length, value_length;
    bool quoted;
} field_t;

void fby_log_setup(fby_log_level_t level, fby_log_format_t format, int fd)
{
    atomic_store_explicit(&log_level, level, memory_order_relaxed);
    atomic_store_explicit(&log_format, format, memory_order_relaxed);
    atomic_store_explicit(&log_fd, fd, memory_order_relaxed);
}

bool fby_log_enabled(fby_log_level_t level)
{
    return level >= FBY_LOG_ERROR && (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

static void line_bytes(line_t *line, const char *bytes, size_t n)
{
    if (line->full || n > line->limit - line->length) {
        line->full = true;
        return;
    }
    memcpy(line->data + line->length, bytes, n);
    line->length += n;
    line->data[line->length] = '\0';
}

static void line_text(line_t *line, const char *text)
{
    line_bytes(line, text, strlen(text));
}

/* Length of the valid UTF-8 sequence at s (no overlong form, no surrogate), or 0. */
static size_t utf8_length(const unsigned char *s, size_t n)
{
    static const struct {
        unsigned char first_low, first_high, second_low, second_high, length;
    } forms[] = {
        {0x00, 0x7F, 0x00, 0x00, 1}, {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
        {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
        {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(forms); i++) {
        size_t length = forms[i].length;
        if (s[0] < forms[i].first_low || s[0] > forms[i].first_high || length > n) {
            continue;
        }
        if (length > 1 && (s[1] < forms[i].second_low || s[1] > forms[i].second_high)) {
            continue;
        }
        bool tail_is_good = true;
        for (size_t k = 2; k < length; k++) {
            tail_is_good = tail_is_good && (s[k] & 0xC0) == 0x80;
        }
        return tail_is_good ? length : 0;
    }
    return 0;
}

/* The escape of the character at s, or "" for one that stands as it is; *used says how many bytes it took. */
static void escape_one(const char *s, size_t n, char out[8], size_t *used)
{
    unsigned char c = (unsigned char)*s;
    *used = 1;
    out[0] = '\0';
    if (c < 0x20 || c == 0x7F) {
        const char *at = c != '\0' ? strchr("\nn\tt\rr", c) : NULL;
        snprintf(out, 8, at != NULL ? "\\%c" : "\\u%04x", at != NULL ? at[1] : c);
    } else if (c >= 0x80) {
        size_t length = utf8_length((const unsigned char *)s, n);
        *used = length > 0 ? length : 1;
        memcpy(out, "\\ufffd", length > 0 ? 0 : 7);
    }
}

/* Escapes what may not stand in a line of text. Quotes and backslashes stay: in logfmt they are syntax of the caller. */
static void line_escaped(line_t *line, const char *s, size_t n)
{
    for (size_t i = 0, used = 1; i < n; i += used) {
        char escape[8];
        escape_one(s + i, n - i, escape, &used);
        if (escape[0] != '\0') {
            line_text(line, escape);
        } else {
            line_bytes(line, s + i, used);
        }
    }
}

/* Length of the JSON escape at s, or 0 when the backslash there begins none. */
static size_t json_escape_length(const char *s, size_t n)
{
    if (n < 2 || s[1] == '\0' || strchr("\"\\nrtu", s[1]) == NULL) {
        return 0;
    }
    for (size_t i = 2; s[1] == 'u' && i < 6; i++) {
        if (i >= n || !isxdigit((unsigned char)s[i])) {
            return 0;
        }
    }
    return s[1] == 'u' ? 6 : 2;
}

/* Inside JSON quotes. A quoted value's own escapes are JSON's already; in a bare one they are plain characters. */
static void line_json_string(line_t *line, const char *s, size_t n, bool is_escaped)
{
    line_bytes(line, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        bool special = s[i] == '"' || s[i] == '\\';
        size_t escape = special && is_escaped ? json_escape_length(s + i, n - i) : 0;
        if (escape > 0) {
            line_bytes(line, s + i, escape);
            i += escape - 1;
        } else if (special) {
            char pair[2] = {'\\', s[i]};
            line_bytes(line, pair, 2);
        } else {
            size_t run = 1;
            while (i + run < n && s[i + run] != '"' && s[i + run] != '\\') {
                run++;
            }
            line_escaped(line, s + i, run);
            i += run - 1;
        }
    }
    line_bytes(line, "\"", 1);
}

static size_t digits(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && isdigit((unsigned char)s[i])) {
        i++;
    }
    return i;
}

/* Whether the text is a JSON number: -?(0|[1-9]d*)(.d+)?([eE][+-]?d+)? */
static bool is_json_number(const char *s, size_t n)
{
    size_t i = n > 0 && s[0] == '-' ? 1 : 0;
    size_t whole = digits(s + i, n - i);
    if (whole == 0 || (whole > 1 && s[i] == '0')) {
        return false;
    }
    i += whole;
    if (i < n && s[i] == '.') {
        size_t fraction = digits(s + i + 1, n - i - 1);
        if (fraction == 0) {
            return false;
        }
        i += 1 + fraction;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i += i + 1 < n && (s[i + 1] == '+' || s[i + 1] == '-') ? 2 : 1;
        size_t exponent = digits(s + i, n - i);
        if (exponent == 0) {
            return false;
        }
        i += exponent;
    }
    return i == n;
}

static bool is_json_word(const field_t *field)
{
    return (field->value_length == 4 && memcmp(field->value, "true", 4) == 0) ||
           (field->value_length == 5 && memcmp(field->value, "false", 5) == 0) ||
           is_json_number(field->value, field->value_length);
}

/* Takes the next field off *text; false at the end. A word without '=' is a field whose value is true. */
static bool field_next(const char **text, field_t *field)
{
    const char *s = *text + strspn(*text, " ");
    if (*s == '\0') {
        return false;
    }
    *field = (field_t){.key = s, .key_length = strcspn(s, " ="), .value = "true", .value_length = 4};
    s += field->key_length;
    if (*s == '=' && s[1] == '"') {
        field->value = s += 2;
        field->quoted = true;
        while (*s != '\0' && *s != '"') {
            s += *s == '\\' && s[1] != '\0' ? 2 : 1;
        }
        field->value_length = (size_t)(s - field->value);
        s += *s == '"';
    } else if (*s == '=') {
        field->value = ++s;
        field->value_length = strcspn(s, " ");
        s += field->value_length;
    }
    *text = s;
    return true;
}

static void line_field(line_t *line, const field_t *field, fby_log_format_t format)
{
    if (format == FBY_LOG_JSON) {
        line_text(line, line->length == 0 ? "{" : ",");
        line_json_string(line, field->key, field->key_length, false);
        line_text(line, ":");
        if (!field->quoted && is_json_word(field)) {
            line_bytes(line, field->value, field->value_length);
        } else {
            line_json_string(line, field->value, field->value_length, field->quoted);
        }
        return;
    }
    line_text(line, line->length == 0 ? "" : " ");
    line_escaped(line, field->key, field->key_length);
    line_text(line, field->quoted ? "=\"" : "=");
    line_escaped(line, field->value, field->value_length);
    line_text(line, field->quoted ? "\"" : "");
}

/* Adds every field of a text; one that does not fit leaves no trace but `full`. */
static void line_fields(line_t *line, const char *text, fby_log_format_t format)
{
    field_t field;
    while (!line->full && field_next(&text, &field)) {
        size_t before = line->length;
        line_field(line, &field, format);
        if (line->full) {
            line->length = before;
        }
    }
}

/* Drops the last word of a text that was cut, so that it does not end inside an escape. */
static void text_end_at_space(char *text)
{
    char *space = strrchr(text, ' ');
    *(space != NULL ? space : text) = '\0';
}

static void line_write(const line_t *line, int fd)
{
    ssize_t written;
    do {
        written = write(fd, line->data, line->length);
    } while (written < 0 && errno == EINTR);
}

void fby_log(fby_log_level_t level, const char *event, const char *format, ...)
{
    if (!fby_log_enabled(level) || (size_t)level >= FBY_ARRAY_LEN(level_names)) {
        return;
    }
    int saved_errno = errno;
    fby_log_format_t as = (fby_log_format_t)atomic_load_explicit(&log_format, memory_order_relaxed);
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    char day[24], head[192], text[TEXT_BYTES] = "";
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(head, sizeof(head), "ts=%s.%03ldZ level=%s event=%s", day, now.tv_nsec / 1000000, level_names[level],
             event);
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);

    bool cut = wanted < 0 || (size_t)wanted >= sizeof(text);
    if (cut) {
        text_end_at_space(text);
    }
    line_t line = {.limit = LINE_BYTES - TAIL_BYTES - 1};
    line_fields(&line, head, as);
    line_fields(&line, text, as);
    cut = cut || line.full;
    line.full = false;
    line.limit = LINE_BYTES - 1;
    line_fields(&line, cut ? "truncated=true" : "", as);
    line_text(&line, as == FBY_LOG_JSON ? "}\n" : "\n");
    line_write(&line, atomic_load_explicit(&log_fd, memory_order_relaxed));
    errno = saved_errno;
}

const char *fby_log_quote(char *out, size_t capacity, const char *text)
{
    size_t length = 0, left = strlen(text);
    out[length++] = '"';
    while (left > 0) {
        char escape[8];
        size_t used;
        escape_one(text, left, escape, &used);
        if (*text == '"' || *text == '\\') {
            snprintf(escape, sizeof(escape), "\\%c", *text);
        }
        const char *piece = escape[0] != '\0' ? escape : text;
        size_t bytes = escape[0] != '\0' ? strlen(escape) : used;
        if (length + bytes + 2 > capacity) {
            break;
        }
        memcpy(out + length, piece, bytes);
        length += bytes;
        text += used;
        left -= used;
    }
    out[length++] = '"';
    out[length] = '\0';
    return out;
}

bool fby_log_allow(fby_log_limit_t *limit, uint64_t now_ns, uint64_t interval_ns, uint64_t *suppressed)
{
    if (now_ns < limit->next_ns) {
        limit->suppressed++;
        return false;
    }
    *suppressed = limit->suppressed;
    limit->suppressed = 0;
    limit->next_ns = fby_add_sat(now_ns, interval_ns);
    return true;
}

/* ---- Detail of the last failure --------------------------------------------------------------------------------- */

static _Thread_local char error_text[512];

void fby_error_set(const char *format, ...)
{
    /* Through a copy: an argument may be the old text, when a caller adds context to it. */
    char text[sizeof(error_text)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    memcpy(error_text, text, sizeof(text));
}

const char *fby_error_get(void)
{
    return error_text;
}

void fby_log_broken(const char *rule, const char *where)
{
    fprintf(stderr, "forebay: invariant broken: %s at %s\n", rule, where);
    abort();
}
