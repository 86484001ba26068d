/* sequence.h - whether a sequence is one of this cache's. */
#ifndef FBY_API_SEQUENCE_H
#define FBY_API_SEQUENCE_H

#include <errno.h>

#include "api/call.h"

static inline int fby_sequence_check(const fby_runtime_t *runtime, const fby_seq_t *seq)
{
    if (seq == NULL) {
        return fby_call_null("seq");
    }
    if (fby_seq_keyring(seq)->cache_id != runtime->id) {
        fby_error_set("the sequence belongs to another cache");
        return -EINVAL;
    }
    return 0;
}

#endif
