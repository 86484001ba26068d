/*
 * policy.h - when to stop claiming. Pure functions; everything else is common to all policies.
 *
 *   wait_complete  never by itself
 *   timeout        when the budget since the session's creation is spent; on tick or demand
 *   best_effort    on demand
 *   break_even     when the next chunk takes longer to transfer than to recompute; never before one measured graph
 */
#ifndef FBY_CORE_POLICY_H
#define FBY_CORE_POLICY_H

#include "base/base.h"
#include "forebay/forebay.h"

typedef enum fby_policy_event { FBY_POLICY_TICK, FBY_POLICY_DEMAND } fby_policy_event_t;

typedef struct fby_policy_estimate {
    bool measured;        /* at least one graph was measured */
    uint64_t transfer_ns; /* of the next chunk */
    uint64_t saved_ns;    /* recomputation it saves */
} fby_policy_estimate_t;

/* The reason to stop, or FBY_REASON_NONE. deadline: FBY_NEVER without one. */
fby_reason_t fby_policy_verdict(fby_policy_t policy, fby_policy_event_t event, uint64_t now, uint64_t deadline,
                                const fby_policy_estimate_t *estimate);

/* min(max, base + per_ki_token * candidate_tokens / 1024), without overflow for any count. Nanoseconds. */
uint64_t fby_policy_budget(uint64_t base_ns, uint64_t per_ki_token_ns, uint64_t max_ns, uint64_t candidate_tokens);

#endif
