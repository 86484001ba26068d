/* status.c - the texts of return codes and of the public enums, each from its one table. */
#include <string.h>

#include "base/base.h"
#include "base/log.h"
#include "forebay/forebay.h"

#define FBY_STRING_OF(x) #x
#define FBY_STRING(x) FBY_STRING_OF(x)

typedef struct status_row {
    int code;
    const char *name;
    const char *text;
} status_row_t;

static const status_row_t status_rows[] = {
#define FBY_X(name, number, text) {FBY_E_##name, #name, text},
    FBY_ERROR_MAP(FBY_X)
#undef FBY_X
};

static const status_row_t *status_find(int code)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(status_rows); i++) {
        if (status_rows[i].code == code) {
            return &status_rows[i];
        }
    }
    return NULL;
}

/* Linux reserves -4095..-1 for errno; it keeps the negation below in range too. */
static bool status_is_errno(int code)
{
    return code < 0 && code >= -4095;
}

/* Both answers of glibc are static and untranslated, so no buffer and no locale is involved. */
const char *fby_strerror(int code)
{
    if (code >= 0) {
        return "success";
    }
    const status_row_t *row = status_find(code);
    if (row != NULL) {
        return row->text;
    }
    const char *text = status_is_errno(code) ? strerrordesc_np(-code) : NULL;
    return text != NULL ? text : "unknown error";
}

const char *fby_errname(int code)
{
    if (code >= 0) {
        return "OK";
    }
    const status_row_t *row = status_find(code);
    if (row != NULL) {
        return row->name;
    }
    const char *name = status_is_errno(code) ? strerrorname_np(-code) : NULL;
    return name != NULL ? name : "UNKNOWN";
}

const char *fby_last_error(void)
{
    return fby_error_get();
}

const char *fby_version(void)
{
    return FBY_STRING(FBY_VERSION_MAJOR) "." FBY_STRING(FBY_VERSION_MINOR) "." FBY_STRING(FBY_VERSION_PATCH);
}

/* Defines fby_<what>_name() from a map; `count` catches an enum and a table that drifted apart. */
#define DEFINE_NAMES(what, map, count)                                                                                 \
    static const char *const what##_names[] = {map(NAME_ROW)};                                                         \
    _Static_assert(FBY_ARRAY_LEN(what##_names) == (count), #what " names");                                            \
    const char *fby_##what##_name(fby_##what##_t value)                                                                \
    {                                                                                                                  \
        return (size_t)value < FBY_ARRAY_LEN(what##_names) ? what##_names[value] : "unknown";                          \
    }
#define NAME_ROW(name, text) text,

DEFINE_NAMES(state, FBY_STATE_MAP, FBY_STATE_COUNT)
DEFINE_NAMES(outcome, FBY_OUTCOME_MAP, FBY_OUTCOME_COUNT)
DEFINE_NAMES(reason, FBY_REASON_MAP, FBY_REASON_COUNT)
DEFINE_NAMES(policy, FBY_POLICY_MAP, FBY_POLICY_COUNT)
DEFINE_NAMES(stop_mode, FBY_STOP_MODE_MAP, FBY_STOP_MODE_COUNT)
