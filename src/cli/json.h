/*
 * json.h - writes JSON to a stream: one line, keys in the order of the calls, numbers the same on every machine.
 *
 * `key` is NULL inside an array and at the top. Nothing is allocated; errors stay in the stream (ferror).
 */
#ifndef FBY_CLI_JSON_H
#define FBY_CLI_JSON_H

#include <stdio.h>

#include "base/base.h"

enum { FBY_JSON_DEPTH = 16 };

typedef struct fby_json {
    FILE *file;
    uint32_t depth;
    bool has_member[FBY_JSON_DEPTH + 1];
    char closer[FBY_JSON_DEPTH + 1];
} fby_json_t;

void fby_json_init(fby_json_t *json, FILE *file);
void fby_json_object(fby_json_t *json, const char *key);
void fby_json_array(fby_json_t *json, const char *key);
/* Ends the innermost object or array; a newline after the last. */
void fby_json_end(fby_json_t *json);
/* Invalid UTF-8 is replaced by U+FFFD. */
void fby_json_text(fby_json_t *json, const char *key, const char *text);
void fby_json_u64(fby_json_t *json, const char *key, uint64_t number);
/* The shortest text that reads back as the same double; null for NaN and infinities. */
void fby_json_real(fby_json_t *json, const char *key, double number);
void fby_json_bool(fby_json_t *json, const char *key, bool value);
void fby_json_null(fby_json_t *json, const char *key);

#endif
