/*
 * options.h - reading a driver's "key=value" options, with messages that name option, value and what is accepted.
 *
 * Every reader leaves *value alone when the option is not given, so that defaults are set before. A later occurrence of
 * an option wins over an earlier one.
 */
#ifndef FBY_STORES_OPTIONS_H
#define FBY_STORES_OPTIONS_H

#include "base/base.h"

typedef struct fby_options {
    const char *const *list; /* NULL-terminated; NULL: none */
    const char *driver;      /* stands in messages */
    char *error;             /* filled on failure; may be NULL */
    size_t error_size;
} fby_options_t;

static inline fby_options_t fby_options_make(const char *const *list, const char *driver, char *error,
                                             size_t error_size)
{
    fby_options_t options = {.list = list, .driver = driver, .error_size = error_size};
    options.error = error;
    return options;
}

/* The value, or NULL when the option is absent. Points into the list. */
const char *fby_option_get(const fby_options_t *options, const char *name);
/* Whether every option is one of the NULL-terminated names. */
bool fby_options_known(const fby_options_t *options, const char *const *names);
/* 0, or FBY_E_CONFIG with a message. */
int fby_option_u32(const fby_options_t *options, const char *name, uint32_t low, uint32_t high, uint32_t *value);
int fby_option_size(const fby_options_t *options, const char *name, uint64_t low, uint64_t *value);
int fby_option_ms(const fby_options_t *options, const char *name, uint64_t *value_ns);
int fby_option_bool(const fby_options_t *options, const char *name, bool *value);
/* Index into the NULL-terminated words. */
int fby_option_word(const fby_options_t *options, const char *name, const char *const *words, uint32_t *value);
/* Writes "store driver D: option N is 'V'; accepted: A" and returns FBY_E_CONFIG. */
int fby_option_bad(const fby_options_t *options, const char *name, const char *value, const char *accepted);
/* Formats the message. Returns `code`. */
int fby_option_fail(const fby_options_t *options, int code, const char *format, ...) FBY_PRINTF(3, 4);

/* The scalar readers, shared with the script. Whole text or false. */
bool fby_text_u64(const char *text, size_t length, uint64_t *value);
/* "4096", "64KiB", "1.5GiB" is refused: whole numbers with B, KiB, MiB, GiB, TiB or KB, MB, GB, TB. */
bool fby_text_size(const char *text, size_t length, uint64_t *bytes);
/* Milliseconds with up to six decimals, at most 1e9, to nanoseconds. */
bool fby_text_ms(const char *text, size_t length, uint64_t *ns);
/* A probability from 0 to 1, to millionths. */
bool fby_text_chance(const char *text, size_t length, uint32_t *millionths);

#endif
