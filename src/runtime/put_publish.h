/* put_publish.h - what ends a put, for those who use the runtime without the API: a server. */
#ifndef FBY_RUNTIME_PUT_PUBLISH_H
#define FBY_RUNTIME_PUT_PUBLISH_H

#include "runtime/runtime.h"

/* The put's record, or NULL. Under the lock. */
static inline fby_put_record_t *fby_put_record(const fby_runtime_t *runtime, fby_put_t put)
{
    uint64_t *value = fby_handles_find(&runtime->puts, put);
    return value != NULL ? (fby_put_record_t *)(uintptr_t)*value : NULL;
}

/* Writes the trailers of what is staged below block `valid`. The put is marked busy meanwhile. */
typedef int fby_put_seal_t(fby_runtime_t *runtime, fby_put_t put, const fby_put_record_t *record, uint32_t valid);

/* fby_put_commit: seals (NULL: it is sealed already), then publishes. As below. */
int fby_put_publish_with(fby_runtime_t *runtime, fby_put_t put, uint64_t valid_tokens, fby_put_seal_t *seal,
                         fby_put_result_t *result);
/* Commits what is sealed already: fby_put_commit without the trailers, in critical sections of bounded length. result is
   filled in full. FBY_E_STATE, FBY_E_STALE as there. */
int fby_put_publish_sealed(fby_runtime_t *runtime, fby_put_t put, uint64_t valid_tokens, fby_put_result_t *result);
/* The put's caller is gone, but somebody could still write: its handle and pin end, its slots stay out of use until
   fby_put_fenced. *bytes becomes what that is; with 0 there is nothing to fence. FBY_E_STALE, FBY_E_STATE (a commit is
   under way). */
int fby_put_abandon(fby_runtime_t *runtime, fby_put_t put, uint64_t *bytes);
/* Once per abandoned put: nobody can write any more. FBY_E_STALE. */
int fby_put_fenced(fby_runtime_t *runtime, fby_put_t put);

#endif
