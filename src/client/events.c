/* events.c - subscriptions: events come in batches and wait here until they are asked for. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/client.h"

/* Not to be used by two threads while it ends; else by any. */
typedef struct subscription {
    fby_cache_t *cache; /* first in every kind of subscription; never freed */
    fby_link_t *link;   /* one reference, which may outlive the client */
    uint64_t id;
    int server_fd; /* readable while events wait at the server */
    int local_fd;  /* readable while events wait here */
    int epoll;     /* over both, and the end of the server */
    pthread_mutex_t lock;
    uint32_t head, count;
    fby_event_t event[FBY_MSG_EVENTS];
} subscription_t;

/* ---- Begin ------------------------------------------------------------------------------------------------------ */

static int watch(int epoll, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static void subscription_free(subscription_t *subscription)
{
    const int fds[] = {subscription->epoll, subscription->local_fd, subscription->server_fd};
    for (size_t i = 0; i < FBY_ARRAY_LEN(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    pthread_mutex_destroy(&subscription->lock);
    free(subscription);
}

static subscription_t *subscription_create(fby_cache_t *cache)
{
    subscription_t *subscription = calloc(1, sizeof(*subscription));
    if (subscription != NULL) {
        subscription->cache = cache;
        subscription->server_fd = -1;
        subscription->local_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        subscription->epoll = epoll_create1(EPOLL_CLOEXEC);
        pthread_mutex_init(&subscription->lock, NULL);
    }
    return subscription;
}

/* Under the client's lock: the subscription is made at the server, and watched. */
static int subscription_open(fby_client_t *client, subscription_t *subscription, uint32_t capacity)
{
    fby_answer_view_t answer;
    const fby_msg_object_t about = {.from = capacity};
    int rc = subscription->local_fd < 0 || subscription->epoll < 0 ? -EMFILE : 0;
    if (rc != 0) {
        return rc;
    }
    (void)fby_client_reach(client);
    rc = fby_client_ask(client, FBY_REQUEST_SUBSCRIBE, &about, NULL, 0, &answer, &subscription->server_fd);
    if (rc < 0) {
        return rc;
    }
    subscription->id = ((const fby_msg_numbers_t *)answer.body)->number[0];
    subscription->link = fby_link_ref(atomic_load(&client->link));
    rc = subscription->server_fd < 0 ? -EMFILE : 0; /* it came, and found no room */
    rc = rc == 0 ? watch(subscription->epoll, subscription->server_fd, EPOLLIN) : rc;
    rc = rc == 0 ? watch(subscription->epoll, subscription->local_fd, EPOLLIN) : rc;
    rc = rc == 0 ? watch(subscription->epoll, subscription->link->socket, EPOLLRDHUP) : rc;
    if (rc != 0) {
        const fby_msg_object_t end = {.handle = subscription->id};
        (void)fby_client_ask(client, FBY_REQUEST_UNSUBSCRIBE, &end, NULL, 0, &answer, NULL);
        fby_error_set("descriptors of a subscription: %s", fby_strerror(rc));
    }
    return rc;
}

int fby_client_subscribe(fby_cache_t *cache, uint32_t capacity, fby_subscription_t **out)
{
    fby_client_t *client;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (out == NULL) {
        return fby_call_end(cache, fby_call_null("out"));
    }
    subscription_t *made = subscription_create(cache);
    if (made == NULL) {
        return fby_call_end(cache, -ENOMEM);
    }
    pthread_mutex_lock(&client->lock);
    rc = subscription_open(client, made, capacity);
    pthread_mutex_unlock(&client->lock);
    if (rc != 0) {
        fby_link_unref(client, made->link);
        subscription_free(made);
        return fby_call_end(cache, rc);
    }
    *out = (fby_subscription_t *)made;
    return fby_call_end(cache, 0);
}

/* ---- Next ------------------------------------------------------------------------------------------------------- */

/* A batch from the server. 0, also when there was none; FBY_E_STALE: its server is gone. */
static int fetch(fby_client_t *client, subscription_t *subscription)
{
    fby_answer_view_t answer;
    const fby_msg_object_t about = {.handle = subscription->id};
    int rc = FBY_E_STALE;
    pthread_mutex_lock(&client->lock);
    if (atomic_load(&client->link) == subscription->link) {
        rc = fby_client_ask(client, FBY_REQUEST_EVENTS, &about, NULL, 0, &answer, NULL);
        rc = rc == -ENOTCONN ? FBY_E_STALE : rc;
    }
    if (rc >= 0) {
        subscription->head = 0;
        subscription->count = answer.count;
        if (answer.count > 0) {
            memcpy(subscription->event, answer.elements, answer.count * sizeof(fby_event_t));
        }
        rc = 0;
    }
    pthread_mutex_unlock(&client->lock);
    return rc == FBY_E_STALE ? fby_call_about(rc, "subscription", subscription->id) : rc;
}

static void show_waiting(const subscription_t *subscription, bool waiting)
{
    uint64_t count = 1;
    if (waiting) {
        (void)!write(subscription->local_fd, &count, sizeof(count));
    } else {
        (void)!read(subscription->local_fd, &count, sizeof(count));
    }
}

static int next_event(fby_client_t *client, subscription_t *subscription, fby_event_t *full)
{
    pthread_mutex_lock(&subscription->lock);
    bool fetched = subscription->count == 0;
    int rc = fetched ? fetch(client, subscription) : 0;
    if (rc == 0 && subscription->count == 0) {
        rc = -EAGAIN;
    }
    if (rc == 0) {
        *full = subscription->event[subscription->head++];
        subscription->count--;
        if (fetched != (subscription->count == 0)) {
            show_waiting(subscription, fetched);
        }
    }
    pthread_mutex_unlock(&subscription->lock);
    return rc;
}

int fby_client_subscription_next(fby_subscription_t *given, fby_event_t *event)
{
    subscription_t *subscription = (subscription_t *)given;
    fby_client_t *client;
    fby_event_t full;
    int rc = fby_client_begin(subscription->cache, &client);
    if (rc != 0) {
        return rc;
    }
    rc = fby_call_sized("event", event);
    rc = rc == 0 ? next_event(client, subscription, &full) : rc;
    if (rc == 0) {
        fby_call_output(event, &full, sizeof(full));
    }
    return fby_call_end(subscription->cache, rc);
}

int fby_client_subscription_fd(fby_subscription_t *given)
{
    return ((subscription_t *)given)->epoll;
}

/* ---- End -------------------------------------------------------------------------------------------------------- */

/* The cache is closed, or about to be: once it is, nobody reads a link any more. */
static void closed_unref(fby_cache_t *cache, fby_link_t *link)
{
    pthread_mutex_lock(&cache->lock);
    while (cache->phase != FBY_CACHE_CLOSED) {
        pthread_cond_wait(&cache->changed, &cache->lock);
    }
    pthread_mutex_unlock(&cache->lock);
    if (atomic_fetch_sub_explicit(&link->refs, 1, memory_order_acq_rel) == 1) {
        fby_link_free(link);
    }
}

void fby_client_unsubscribe(fby_subscription_t *given)
{
    subscription_t *subscription = (subscription_t *)given;
    fby_answer_view_t answer;
    fby_client_t *client;
    if (fby_cache_is_forked(subscription->cache)) {
        return;
    }
    if (fby_client_begin_any(subscription->cache, &client) == 0) {
        const fby_msg_object_t about = {.handle = subscription->id};
        pthread_mutex_lock(&client->lock);
        if (atomic_load(&client->link) == subscription->link) {
            (void)fby_client_ask(client, FBY_REQUEST_UNSUBSCRIBE, &about, NULL, 0, &answer, NULL);
        }
        pthread_mutex_unlock(&client->lock);
        fby_link_unref(client, subscription->link);
        (void)fby_call_end(subscription->cache, 0);
    } else {
        closed_unref(subscription->cache, subscription->link);
    }
    subscription_free(subscription);
}
