/*
 * subscribe.h - bounded queues of events for whoever wants to follow the cache.
 *
 * A ring is filled inside the cache's critical section, under the cache's one lock, and emptied under the same lock.
 * Its descriptor is signalled outside, afterwards: it may be readable while the ring is empty, never the other way round
 * for longer than a wake takes.
 * References: one of the subscriber, one of the runtime's list, one of each thread that is about to signal.
 */
#ifndef FBY_RUNTIME_SUBSCRIBE_H
#define FBY_RUNTIME_SUBSCRIBE_H

#include <stdatomic.h>

#include "base/base.h"
#include "forebay/forebay.h"

enum { FBY_MOST_SUBSCRIPTIONS = 32, FBY_MOST_QUEUED_EVENTS = 1 << 20 };

struct fby_subscription {
    fby_cache_t *cache; /* first in every kind of subscription; never freed */
    _Atomic uint32_t refs;
    int fd, signal_fd; /* a pair of sockets: the subscriber's, readable also when this process dies, and ours */
    /* guarded by the runtime's lock */
    bool attached;
    uint32_t capacity, head, count;
    uint64_t lost; /* dropped since the last LOST event */
    fby_event_t *ring;
};

/* One reference, for the subscriber. -errno. */
int fby_subscription_create(fby_cache_t *cache, uint32_t capacity, fby_subscription_t **out);
void fby_subscription_ref(fby_subscription_t *subscription);
void fby_subscription_unref(fby_subscription_t *subscription);
/* Adds an event, dropping the oldest when full. True when the ring was empty: signal it outside the lock. */
bool fby_subscription_push(fby_subscription_t *subscription, const fby_event_t *event);
/* Takes the next event; false when there is none. */
bool fby_subscription_pop(fby_subscription_t *subscription, fby_event_t *event);
static inline bool fby_subscription_waiting(const fby_subscription_t *subscription)
{
    return subscription->count > 0 || subscription->lost > 0;
}
/* The descriptor: outside the lock. */
void fby_subscription_signal(const fby_subscription_t *subscription);
void fby_subscription_quiet(const fby_subscription_t *subscription);

#endif
