/*
 * breaker.h - stops asking a store that keeps failing. Pure: the time is handed in, the caller guards it.
 *
 *   closed --failures in a row--> open --first real operation after the back-off is the probe--> closed, or open longer
 *
 * Only the probe decides while the breaker is open: what was begun before it opened may end either way and changes
 * nothing.
 */
#ifndef FBY_RUNTIME_BREAKER_H
#define FBY_RUNTIME_BREAKER_H

#include "base/base.h"

/* The numbers stand in fby_health_t.breaker. */
typedef enum fby_breaker_state { FBY_BREAKER_CLOSED, FBY_BREAKER_OPEN, FBY_BREAKER_PROBING } fby_breaker_state_t;

/* What an operation was let through as; handed back with its result. */
typedef enum fby_permit { FBY_PERMIT_REFUSED, FBY_PERMIT_NORMAL, FBY_PERMIT_PROBE, FBY_PERMIT_SPENT } fby_permit_t;

typedef struct fby_breaker {
    fby_breaker_state_t state;
    uint32_t failures, failures_to_open; /* in a row, while closed */
    uint64_t backoff_ns, first_backoff_ns, most_backoff_ns;
    uint64_t retry_at; /* open: when the next operation may be the probe */
    uint64_t opened;   /* how often, ever */
} fby_breaker_t;

void fby_breaker_init(fby_breaker_t *breaker, uint32_t failures_to_open, uint64_t backoff_ns, uint64_t most_backoff_ns);
/* May an operation go to the store now? At most one probe is out at a time. */
fby_permit_t fby_breaker_ask(fby_breaker_t *breaker, uint64_t now);
/* Its result: whether the store could be reached. Once per permit. True when this opened the breaker. */
bool fby_breaker_tell(fby_breaker_t *breaker, fby_permit_t permit, bool reached, uint64_t now);
/* Opens it whatever it has seen (too much is in quarantine). True when it was closed. */
bool fby_breaker_trip(fby_breaker_t *breaker, uint64_t now);
/* Time to the next probe; 0 when closed or due. */
uint64_t fby_breaker_wait_ns(const fby_breaker_t *breaker, uint64_t now);

#endif
