#include "runtime/subscribe.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int fby_subscription_create(fby_cache_t *cache, uint32_t capacity, fby_subscription_t **out)
{
    fby_subscription_t *subscription = calloc(1, sizeof(*subscription));
    if (subscription == NULL) {
        return -ENOMEM;
    }
    int rc = -ENOMEM;
    subscription->ring = calloc(capacity, sizeof(*subscription->ring));
    if (subscription->ring == NULL) {
        goto no_ring;
    }
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        rc = -errno;
        goto no_fd;
    }
    subscription->signal_fd = pair[0];
    subscription->fd = pair[1];
    atomic_init(&subscription->refs, 1);
    subscription->cache = cache;
    subscription->capacity = capacity;
    *out = subscription;
    return 0;

no_fd:
    free(subscription->ring);
no_ring:
    free(subscription);
    return rc;
}

void fby_subscription_ref(fby_subscription_t *subscription)
{
    atomic_fetch_add_explicit(&subscription->refs, 1, memory_order_relaxed);
}

void fby_subscription_unref(fby_subscription_t *subscription)
{
    if (atomic_fetch_sub_explicit(&subscription->refs, 1, memory_order_acq_rel) == 1) {
        close(subscription->signal_fd);
        close(subscription->fd);
        free(subscription->ring);
        free(subscription);
    }
}

bool fby_subscription_push(fby_subscription_t *subscription, const fby_event_t *event)
{
    bool was_empty = !fby_subscription_waiting(subscription);
    if (subscription->count == subscription->capacity) {
        subscription->head =
            (subscription->head + 1) % subscription->capacity; // NOLINT(clang-analyzer-core.DivideZero)
        subscription->count--;
        subscription->lost++;
    }
    subscription->ring[(subscription->head + subscription->count) % subscription->capacity] = *event;
    subscription->count++;
    return was_empty;
}

bool fby_subscription_pop(fby_subscription_t *subscription, fby_event_t *event)
{
    if (subscription->lost > 0) {
        *event = (fby_event_t){.type = FBY_EVENT_LOST, .block = subscription->lost};
        subscription->lost = 0;
        return true;
    }
    if (subscription->count == 0) {
        return false;
    }
    *event = subscription->ring[subscription->head];
    subscription->head = (subscription->head + 1) % subscription->capacity;
    subscription->count--;
    return true;
}

/* Whoever else has the descriptor may change its flags: neither call can wait even so. */
void fby_subscription_signal(const fby_subscription_t *subscription)
{
    (void)send(subscription->signal_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void fby_subscription_quiet(const fby_subscription_t *subscription)
{
    char bytes[64];
    while (recv(subscription->fd, bytes, sizeof(bytes), MSG_DONTWAIT) == (ssize_t)sizeof(bytes)) {}
}
