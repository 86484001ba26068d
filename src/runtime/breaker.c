#include "runtime/breaker.h"

void fby_breaker_init(fby_breaker_t *breaker, uint32_t failures_to_open, uint64_t backoff_ns, uint64_t most_backoff_ns)
{
    *breaker = (fby_breaker_t){
        .failures_to_open = FBY_MAX(failures_to_open, 1u),
        .backoff_ns = backoff_ns,
        .first_backoff_ns = backoff_ns,
        .most_backoff_ns = FBY_MAX(most_backoff_ns, backoff_ns),
    };
}

static void breaker_open(fby_breaker_t *breaker, uint64_t now)
{
    breaker->state = FBY_BREAKER_OPEN;
    breaker->failures = 0;
    breaker->retry_at = fby_add_sat(now, breaker->backoff_ns);
    breaker->opened++;
}

fby_permit_t fby_breaker_ask(fby_breaker_t *breaker, uint64_t now)
{
    if (breaker->state == FBY_BREAKER_CLOSED) {
        return FBY_PERMIT_NORMAL;
    }
    if (breaker->state == FBY_BREAKER_PROBING || now < breaker->retry_at) {
        return FBY_PERMIT_REFUSED;
    }
    breaker->state = FBY_BREAKER_PROBING;
    return FBY_PERMIT_PROBE;
}

bool fby_breaker_tell(fby_breaker_t *breaker, fby_permit_t permit, bool reached, uint64_t now)
{
    if (permit == FBY_PERMIT_PROBE && breaker->state == FBY_BREAKER_PROBING) {
        if (reached) {
            breaker->state = FBY_BREAKER_CLOSED;
            breaker->backoff_ns = breaker->first_backoff_ns;
            return false;
        }
        breaker->backoff_ns = FBY_MIN(fby_mul_sat(breaker->backoff_ns, 2), breaker->most_backoff_ns);
        breaker_open(breaker, now);
        return true;
    }
    if (permit != FBY_PERMIT_NORMAL || breaker->state != FBY_BREAKER_CLOSED) {
        return false;
    }
    breaker->failures = reached ? 0 : breaker->failures + 1;
    if (breaker->failures < breaker->failures_to_open) {
        return false;
    }
    breaker_open(breaker, now);
    return true;
}

bool fby_breaker_trip(fby_breaker_t *breaker, uint64_t now)
{
    bool was_closed = breaker->state == FBY_BREAKER_CLOSED;
    breaker_open(breaker, now);
    return was_closed;
}

uint64_t fby_breaker_wait_ns(const fby_breaker_t *breaker, uint64_t now)
{
    return breaker->state == FBY_BREAKER_OPEN ? fby_sub_sat(breaker->retry_at, now) : 0;
}
