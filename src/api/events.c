/* events.c - the public calls on subscriptions. */
#include <errno.h>

#include "api/call.h"
#include "api/calls.h"
#include "runtime/subscribe.h"

int fby_local_subscribe(fby_cache_t *cache, uint32_t capacity, fby_subscription_t **out)
{
    fby_runtime_t *runtime;
    fby_subscription_t *made;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    if (out == NULL) {
        return fby_call_end(cache, fby_call_null("out"));
    }
    if (capacity == 0 || capacity > FBY_MOST_QUEUED_EVENTS) {
        fby_error_set("capacity is %u; accepted: 1 to %d", capacity, FBY_MOST_QUEUED_EVENTS);
        return fby_call_end(cache, -EINVAL);
    }
    rc = fby_subscription_create(cache, capacity, &made);
    if (rc != 0) {
        return fby_call_end(cache, rc);
    }
    pthread_mutex_lock(&runtime->lock);
    if (runtime->subscriptions < FBY_MOST_SUBSCRIPTIONS) {
        fby_subscription_ref(made);
        made->attached = true;
        runtime->subscription[runtime->subscriptions++] = made;
    } else {
        rc = -EBUSY;
    }
    pthread_mutex_unlock(&runtime->lock);
    if (rc != 0) {
        fby_error_set("there are %d subscriptions already", FBY_MOST_SUBSCRIPTIONS);
        fby_subscription_unref(made);
        return fby_call_end(cache, rc);
    }
    *out = made;
    return fby_call_end(cache, 0);
}

/* The descriptor follows the queue: emptied when the queue is, and set again if something came in between. */
static void settle_descriptor(fby_runtime_t *runtime, fby_subscription_t *subscription)
{
    fby_subscription_quiet(subscription);
    pthread_mutex_lock(&runtime->lock);
    bool waiting = fby_subscription_waiting(subscription);
    pthread_mutex_unlock(&runtime->lock);
    if (waiting) {
        fby_subscription_signal(subscription);
    }
}

int fby_local_subscription_next(fby_subscription_t *subscription, fby_event_t *event)
{
    fby_runtime_t *runtime;
    fby_event_t full;
    if (subscription == NULL) {
        return fby_call_null("subscription");
    }
    int rc = fby_call_begin(subscription->cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = fby_call_sized("event", event);
    if (rc != 0) {
        return fby_call_end(subscription->cache, rc);
    }
    pthread_mutex_lock(&runtime->lock);
    bool taken = fby_subscription_pop(subscription, &full);
    bool waiting = fby_subscription_waiting(subscription);
    pthread_mutex_unlock(&runtime->lock);
    if (!waiting) {
        settle_descriptor(runtime, subscription);
    }
    if (taken) {
        fby_call_output(event, &full, sizeof(full));
    }
    return fby_call_end(subscription->cache, taken ? 0 : -EAGAIN);
}

int fby_local_subscription_fd(fby_subscription_t *subscription)
{
    return subscription != NULL ? subscription->fd : fby_call_null("subscription");
}

void fby_local_unsubscribe(fby_subscription_t *subscription)
{
    fby_runtime_t *runtime;
    if (subscription == NULL || fby_cache_is_forked(subscription->cache)) {
        return;
    }
    bool detached = false;
    fby_cache_t *cache = subscription->cache;
    if (fby_call_begin_any(cache, &runtime) == 0) {
        pthread_mutex_lock(&runtime->lock);
        for (uint32_t i = 0; i < runtime->subscriptions && !detached; i++) {
            if (runtime->subscription[i] == subscription) {
                runtime->subscription[i] = runtime->subscription[--runtime->subscriptions];
                detached = true;
            }
        }
        pthread_mutex_unlock(&runtime->lock);
        (void)fby_call_end(cache, 0);
    }
    if (detached) {
        fby_subscription_unref(subscription); /* the list's */
    }
    fby_subscription_unref(subscription);
}
