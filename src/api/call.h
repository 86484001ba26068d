/*
 * call.h - how every public call begins and ends.
 *
 * A fby_cache_t is a small shell around the runtime. It is never freed, so that a call on a closed cache is an error and
 * not a crash; what is large goes at close. `users` counts the calls that are inside: close waits for them.
 */
#ifndef FBY_API_CALL_H
#define FBY_API_CALL_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/base.h"
#include "base/log.h"
#include "forebay/forebay.h"
#include "runtime/runtime.h"

typedef enum fby_cache_phase { FBY_CACHE_OPEN, FBY_CACHE_CLOSING, FBY_CACHE_CLOSED } fby_cache_phase_t;

struct fby_calls;

struct fby_cache {
    const struct fby_calls *calls; /* who answers: this process, or a server (then `runtime` is NULL) */
    _Atomic uint32_t users;
    _Atomic bool closing;
    uint32_t born_in;              /* fork generation */
    fby_runtime_t *runtime;        /* NULL once freed; kept when something was abandoned */
    struct fby_metrics_page *page; /* metrics.listen; NULL: off, or closed */
    struct fby_server *server;     /* server.listen; likewise */
    pthread_mutex_t lock;          /* of what follows */
    pthread_cond_t changed;
    fby_cache_phase_t phase;
    int close_result;
    fby_close_report_t report;
    struct fby_client *client; /* NULL: a cache of this process */
    fby_cache_t *next;         /* all shells of this process */
};

/* Counted up in every child of fork(). */
uint32_t fby_fork_generation(void);
static inline bool fby_cache_is_forked(const fby_cache_t *cache)
{
    return cache->born_in != fby_fork_generation();
}

/* Checks the cache and goes inside. 0, -EINVAL, FBY_E_FORKED, FBY_E_CLOSED, FBY_E_POISONED; with detail. */
int fby_call_begin(fby_cache_t *cache, fby_runtime_t **runtime);
/* The same for calls that a poisoned cache answers too. */
int fby_call_begin_any(fby_cache_t *cache, fby_runtime_t **runtime);
/* Goes out and passes rc on. */
int fby_call_end(fby_cache_t *cache, int rc);
/* Passes rc on; when it is a failure, the detail says what it was about. */
int fby_call_about(int rc, const char *what, uint64_t handle);
/* -EINVAL, with the detail that this argument is NULL. */
int fby_call_null(const char *argument);
/* Seconds of a caller: false for NaN or, unless `forever`, negative. Negative: FBY_NEVER. */
bool fby_call_seconds(const char *argument, double seconds, bool forever, uint64_t *ns);

/* The caller's options over the defaults; fields that its version does not have stay the default. -EINVAL: it sets what
   this version does not know. */
int fby_call_options(const fby_session_options_t *given, fby_session_options_t *out);
/* -EINVAL: [from, to) is no range of whole blocks of the sequence. */
int fby_call_range(const fby_seq_t *seq, uint64_t from, uint64_t to);

/* Copies as much as the caller's version of the struct holds. Its `size` (first member) stays. */
static inline void fby_call_output(void *out, const void *full, size_t full_size)
{
    uint32_t size;
    memcpy(&size, out, sizeof(size));
    memcpy((char *)out + sizeof(size), (const char *)full + sizeof(size), FBY_MIN(size, full_size) - sizeof(size));
}
/* 0, or -EINVAL when the struct is NULL or its size was not set. */
int fby_call_sized(const char *argument, const void *sized);

#endif
