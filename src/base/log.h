/* log.h - levels, logfmt or JSON lines to a descriptor. No prompt text and no namespace text may be passed in. */
#ifndef FBY_BASE_LOG_H
#define FBY_BASE_LOG_H

#include "base/base.h"

typedef enum fby_log_level {
    FBY_LOG_ERROR,
    FBY_LOG_WARN,
    FBY_LOG_INFO,
    FBY_LOG_DEBUG,
    FBY_LOG_OFF = -1
} fby_log_level_t;
typedef enum fby_log_format { FBY_LOG_LOGFMT, FBY_LOG_JSON } fby_log_format_t;

/* Process-wide. fd defaults to 2, level to FBY_LOG_WARN until a cache is opened with log.level. */
void fby_log_setup(fby_log_level_t level, fby_log_format_t format, int fd);
bool fby_log_enabled(fby_log_level_t level);
/* One line: event=<event> then the formatted "key=value key2=value2" text. Thread-safe: one write per line. */
void fby_log(fby_log_level_t level, const char *event, const char *format, ...) FBY_PRINTF(3, 4);

/* For values that are not ours (labels, paths): writes text as a quoted, escaped value into out and returns out. What does
   not fit is cut, the closing quote never is. capacity >= 3. */
const char *fby_log_quote(char *out, size_t capacity, const char *text);

/* Debug builds: says which invariant broke and where on descriptor 2, and aborts. */
_Noreturn void fby_log_broken(const char *rule, const char *where);

/* Rate limit: true at most once per interval; *suppressed says how many were refused since. Caller owns the state. */
typedef struct fby_log_limit {
    uint64_t next_ns, suppressed;
} fby_log_limit_t;
bool fby_log_allow(fby_log_limit_t *limit, uint64_t now_ns, uint64_t interval_ns, uint64_t *suppressed);

/* Detail text of the last failing call in this thread (fby_last_error). */
void fby_error_set(const char *format, ...) FBY_PRINTF(1, 2);
const char *fby_error_get(void);

#endif
