#include "api/call.h"

#include <errno.h>
#include <math.h>

#include "base/clock.h"

static _Atomic uint32_t fork_generation;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&fork_generation, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

uint32_t fby_fork_generation(void)
{
    pthread_once(&fork_once, watch_forks);
    return atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

int fby_call_begin_any(fby_cache_t *cache, fby_runtime_t **runtime)
{
    if (cache == NULL) {
        return fby_call_null("cache");
    }
    if (fby_cache_is_forked(cache)) {
        fby_error_set("the cache was opened by the parent process; a child opens its own");
        return FBY_E_FORKED;
    }
    /* Sequentially consistent against close(), which sets `closing` and then looks at `users`. */
    atomic_fetch_add(&cache->users, 1);
    if (atomic_load(&cache->closing)) {
        fby_error_set("the cache is closed or closing");
        return fby_call_end(cache, FBY_E_CLOSED);
    }
    *runtime = cache->runtime;
    return 0;
}

int fby_call_begin(fby_cache_t *cache, fby_runtime_t **runtime)
{
    int rc = fby_call_begin_any(cache, runtime);
    if (rc == 0 && fby_is_poisoned(*runtime)) {
        fby_error_set("an internal invariant broke; the log says which");
        return fby_call_end(cache, FBY_E_POISONED);
    }
    return rc;
}

int fby_call_end(fby_cache_t *cache, int rc)
{
    if (atomic_fetch_sub(&cache->users, 1) == 1 && atomic_load(&cache->closing)) {
        pthread_mutex_lock(&cache->lock);
        pthread_cond_broadcast(&cache->changed);
        pthread_mutex_unlock(&cache->lock);
    }
    return rc;
}

int fby_call_about(int rc, const char *what, uint64_t handle)
{
    if (rc < 0) {
        fby_error_set("%s %016llx: %s", what, (unsigned long long)handle, fby_strerror(rc));
    }
    return rc;
}

int fby_call_null(const char *argument)
{
    fby_error_set("%s is NULL", argument);
    return -EINVAL;
}

bool fby_call_seconds(const char *argument, double seconds, bool forever, uint64_t *ns)
{
    if (isnan(seconds) || (seconds < 0 && !forever)) {
        fby_error_set("%s is %g; accepted: %s", argument, seconds,
                      forever ? "seconds, or a negative number for no limit" : "seconds, 0 or more");
        return false;
    }
    *ns = seconds < 0 ? FBY_NEVER : fby_ns_from_s(seconds);
    return true;
}

int fby_call_sized(const char *argument, const void *sized)
{
    uint32_t size;
    if (sized == NULL) {
        return fby_call_null(argument);
    }
    memcpy(&size, sized, sizeof(size));
    if (size < 2 * sizeof(size)) {
        fby_error_set("%s->size is %u; accepted: the size of the struct", argument, size);
        return -EINVAL;
    }
    return 0;
}

int fby_call_options(const fby_session_options_t *given, fby_session_options_t *out)
{
    static const fby_session_options_t defaults = FBY_SESSION_OPTIONS_INIT;
    *out = defaults;
    if (given == NULL) {
        return 0;
    }
    int rc = fby_call_sized("options", given);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = sizeof(*given); i < given->size; i++) {
        if (((const char *)given)[i] != 0) {
            fby_error_set("options->size is %u and what this version does not know is set; accepted: up to %zu bytes",
                          given->size, sizeof(*given));
            return -EINVAL;
        }
    }
    memcpy(out, given, FBY_MIN(given->size, sizeof(*out)));
    return 0;
}

int fby_call_range(const fby_seq_t *seq, uint64_t from, uint64_t to)
{
    if (from > to || to > fby_seq_blocks(seq)) {
        fby_error_set("blocks [%llu, %llu): the sequence has %zu whole blocks", (unsigned long long)from,
                      (unsigned long long)to, fby_seq_blocks(seq));
        return -EINVAL;
    }
    return 0;
}
