#include "core/policy.h"

fby_reason_t fby_policy_verdict(fby_policy_t policy, fby_policy_event_t event, uint64_t now, uint64_t deadline,
                                const fby_policy_estimate_t *estimate)
{
    switch (policy) {
    case FBY_POLICY_TIMEOUT:
        return now >= deadline ? FBY_REASON_DEADLINE : FBY_REASON_NONE;
    case FBY_POLICY_BEST_EFFORT:
        return event == FBY_POLICY_DEMAND ? FBY_REASON_DEMAND : FBY_REASON_NONE;
    case FBY_POLICY_BREAK_EVEN:
        return estimate && estimate->measured && estimate->transfer_ns > estimate->saved_ns ? FBY_REASON_BREAK_EVEN
                                                                                            : FBY_REASON_NONE;
    case FBY_POLICY_WAIT_COMPLETE:
    case FBY_POLICY_COUNT:
        break;
    }
    return FBY_REASON_NONE;
}

uint64_t fby_policy_budget(uint64_t base_ns, uint64_t per_ki_token_ns, uint64_t max_ns, uint64_t candidate_tokens)
{
    /* whole and remaining 1024ths apart: exact, and only the saturated sum can pass max */
    uint64_t whole = fby_mul_sat(per_ki_token_ns, candidate_tokens / 1024);
    uint64_t rest = fby_mul_sat(per_ki_token_ns, candidate_tokens % 1024) / 1024;
    uint64_t budget = fby_add_sat(base_ns, fby_add_sat(whole, rest));
    return FBY_MIN(budget, max_ns);
}
