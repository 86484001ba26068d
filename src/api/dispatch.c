/* dispatch.c - the public functions: each goes to whoever answers for the cache. */
#include "api/call.h"
#include "api/calls.h"

const fby_calls_t fby_local_calls = {
#define FBY_X(name, parameters, arguments) .name = fby_local_##name,
    FBY_CALL_MAP(FBY_X)
#undef FBY_X
        .cache_epoch = fby_local_cache_epoch,
    .subscription_next = fby_local_subscription_next,
    .subscription_fd = fby_local_subscription_fd,
    .unsubscribe = fby_local_unsubscribe,
};

#define FBY_X(name, parameters, arguments)                                                                             \
    int fby_##name parameters                                                                                          \
    {                                                                                                                  \
        return cache != NULL ? cache->calls->name arguments : fby_call_null("cache");                                  \
    }
FBY_CALL_MAP(FBY_X)
#undef FBY_X

uint64_t fby_cache_epoch(fby_cache_t *cache)
{
    return cache != NULL ? cache->calls->cache_epoch(cache) : 0;
}

/* Every kind of subscription begins with its cache, which is never freed. */
static const fby_calls_t *calls_of(fby_subscription_t *subscription)
{
    const fby_cache_t *const *cache = (const void *)subscription;
    return (*cache)->calls;
}

int fby_subscription_next(fby_subscription_t *subscription, fby_event_t *event)
{
    return subscription != NULL ? calls_of(subscription)->subscription_next(subscription, event)
                                : fby_call_null("subscription");
}

int fby_subscription_fd(fby_subscription_t *subscription)
{
    return subscription != NULL ? calls_of(subscription)->subscription_fd(subscription) : fby_call_null("subscription");
}

void fby_unsubscribe(fby_subscription_t *subscription)
{
    if (subscription != NULL) {
        calls_of(subscription)->unsubscribe(subscription);
    }
}
