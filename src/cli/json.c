#include "cli/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void write_string(FILE *file, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    fputc('"', file);
    for (; *s != '\0'; s++) {
        if (*s == '"' || *s == '\\') {
            fprintf(file, "\\%c", *s);
        } else if (*s < 0x20 || *s == 0x7F) {
            fprintf(file, "\\u%04x", *s);
        } else if (*s < 0x80) {
            fputc(*s, file);
        } else {
            size_t length = *s >= 0xF0 ? 4 : *s >= 0xE0 ? 3 : 2, good = 1;
            while (good < length && (s[good] & 0xC0) == 0x80) {
                good++;
            }
            bool is_valid = good == length && *s >= 0xC2 && *s <= 0xF4;
            fwrite(is_valid ? (const char *)s : "\xEF\xBF\xBD", 1, is_valid ? length : 3, file);
            s += is_valid ? length - 1 : 0;
        }
    }
    fputc('"', file);
}

/* The comma before a member, and its key. */
static void member(fby_json_t *json, const char *key)
{
    if (json->has_member[json->depth]) {
        fputc(',', json->file);
    }
    json->has_member[json->depth] = true;
    if (key != NULL) {
        write_string(json->file, key);
        fputc(':', json->file);
    }
}

static void begin(fby_json_t *json, const char *key, char opener, char closer)
{
    member(json, key);
    fputc(opener, json->file);
    json->depth = FBY_MIN(json->depth + 1, (uint32_t)FBY_JSON_DEPTH);
    json->has_member[json->depth] = false;
    json->closer[json->depth] = closer;
}

void fby_json_init(fby_json_t *json, FILE *file)
{
    *json = (fby_json_t){.file = file};
}

void fby_json_object(fby_json_t *json, const char *key)
{
    begin(json, key, '{', '}');
}

void fby_json_array(fby_json_t *json, const char *key)
{
    begin(json, key, '[', ']');
}

void fby_json_end(fby_json_t *json)
{
    fputc(json->closer[json->depth], json->file);
    if (--json->depth == 0) {
        fputc('\n', json->file);
        json->has_member[0] = false;
    }
}

void fby_json_text(fby_json_t *json, const char *key, const char *text)
{
    member(json, key);
    write_string(json->file, text);
}

void fby_json_u64(fby_json_t *json, const char *key, uint64_t number)
{
    member(json, key);
    fprintf(json->file, "%" PRIu64, number);
}

void fby_json_real(fby_json_t *json, const char *key, double number)
{
    char text[40] = "null";
    for (int digits = 15; isfinite(number) && digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, number);
        if (strtod(text, NULL) == number) {
            break;
        }
    }
    member(json, key);
    fputs(text, json->file);
}

void fby_json_bool(fby_json_t *json, const char *key, bool value)
{
    member(json, key);
    fputs(value ? "true" : "false", json->file);
}

void fby_json_null(fby_json_t *json, const char *key)
{
    member(json, key);
    fputs("null", json->file);
}
