/*
 * config_value.h - one configuration value: from text, to its canonical text, into the settings.
 *
 * A value is kept as canonical text ("0.5GiB" is refused, "1024MiB" becomes "1GiB") and read again where it is needed,
 * so that there is one meaning of each text and one place that knows it.
 */
#ifndef FBY_RUNTIME_CONFIG_VALUE_H
#define FBY_RUNTIME_CONFIG_VALUE_H

#include "base/base.h"
#include "forebay/forebay.h"
#include "runtime/config_keys.h"

typedef enum fby_value_type {
    FBY_TYPE_BOOL,
    FBY_TYPE_U32,
    FBY_TYPE_U64,
    FBY_TYPE_SIZE,
    FBY_TYPE_TIME,
    FBY_TYPE_SPAN,
    FBY_TYPE_RATE,
    FBY_TYPE_RATIO,
    FBY_TYPE_ENUM,
    FBY_TYPE_TEXT,
    FBY_TYPE_SECRET,
    FBY_TYPE_GROUPS,
    FBY_TYPE_GROUP_BYTES,
} fby_value_type_t;

/* An accepted word and its number; a table ends with text NULL. */
typedef struct fby_word {
    const char *text;
    int32_t number;
} fby_word_t;

typedef struct fby_key {
    const char *name;
    fby_value_type_t type;
    size_t offset, size; /* of the member of fby_settings_t */
    const char *default_text;
    uint64_t low, high;
    const fby_word_t *words;
    const char *help;
} fby_key_t;

extern const fby_key_t fby_keys[FBY_KEY_COUNT];

/* Index into fby_keys, or FBY_KEY_COUNT. */
fby_key_id_t fby_key_find(const char *name);
/* Whether the key may have no value. */
bool fby_key_may_be_unset(const fby_key_t *key);

typedef struct fby_value_part {
    char name[32];
    uint64_t bytes;
    uint32_t trailing; /* 0: all */
} fby_value_part_t;

/* What a text means. Which members count depends on the key's type. */
typedef struct fby_value {
    bool unset;
    uint64_t number; /* BOOL, U32, U64, SIZE (bytes), TIME and SPAN (ns), ENUM (its number, sign-extended) */
    double real;     /* RATE, RATIO */
    uint32_t parts;  /* GROUPS, GROUP_BYTES */
    fby_value_part_t part[FBY_MAX_GROUPS];
} fby_value_t;

enum { FBY_WHY_BYTES = 160, FBY_VALUE_TEXT_BYTES = 1024 };

/* Reads a text. false: why[FBY_WHY_BYTES] says what is wrong with it ("is negative"). */
bool fby_value_read(const fby_key_t *key, const char *text, fby_value_t *value, char *why);
/* Writes the canonical text of what fby_value_read() made of `text`. */
void fby_value_format(const fby_key_t *key, const fby_value_t *value, const char *text, char out[FBY_VALUE_TEXT_BYTES]);
/* "a whole number from 1 to 64": what the key accepts. */
void fby_value_accepts(const fby_key_t *key, char *out, size_t capacity);

/* The scalar readers on their own, for command-line options too. *out is written on success only. */
bool fby_read_whole(const char *text, uint64_t low, uint64_t high, uint64_t *out, char *why);
bool fby_read_size(const char *text, uint64_t low, uint64_t high, uint64_t *out, char *why);
/* A finite decimal number >= 0, in the C locale whatever the process uses. */
bool fby_read_real(const char *text, double *out, char *why);
bool fby_read_seconds(const char *text, uint64_t *out_ns, char *why);
/* "all" or "trailing(n)". */
bool fby_read_rule(const char *text, uint32_t *trailing, char *why);
/* Letters, digits, '_', '-', '.'; 1 to 31 of them. */
bool fby_read_group_name(const char *text, char out[32], char *why);
/* "512MiB": the largest unit that divides. */
void fby_format_size(uint64_t bytes, char *out, size_t capacity);

/* A value for messages: quoted, escaped, shortened; secrets hidden. */
const char *fby_value_quote(const fby_key_t *key, const char *text, char *out, size_t capacity);

#endif
