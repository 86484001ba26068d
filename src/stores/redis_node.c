/* redis_node.c - the nodes of a store and their idle connections. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "stores/redis.h"

uint16_t fby_redis_node_index(fby_redis_t *redis, const fby_redis_endpoint_t *endpoint)
{
    for (uint32_t i = 0; i < redis->node_count; i++) {
        if (fby_redis_endpoint_equal(&redis->nodes[i]->endpoint, endpoint)) {
            return (uint16_t)i;
        }
    }
    if (redis->node_count == redis->node_capacity) {
        uint32_t capacity = FBY_MIN(redis->node_capacity * 2 + 4, FBY_REDIS_NODES_MOST);
        if (capacity == redis->node_capacity) {
            return FBY_REDIS_NO_NODE;
        }
        fby_redis_node_t **grown = reallocarray(redis->nodes, capacity, sizeof(fby_redis_node_t *));
        if (grown == NULL) {
            return FBY_REDIS_NO_NODE;
        }
        redis->nodes = grown;
        redis->node_capacity = capacity;
    }
    fby_redis_node_t *node = calloc(1, sizeof(*node));
    if (node == NULL) {
        return FBY_REDIS_NO_NODE;
    }
    node->endpoint = *endpoint;
    redis->nodes[redis->node_count] = node;
    return (uint16_t)redis->node_count++;
}

/* Takes all idle connections off the node; the caller closes them without the lock. */
static fby_redis_conn_t *take_idle(fby_redis_node_t *node)
{
    fby_redis_conn_t *list = node->idle;
    node->idle = NULL;
    for (const fby_redis_conn_t *at = list; at != NULL; at = at->next) {
        node->open--;
    }
    return list;
}

static void close_all(fby_redis_conn_t *list)
{
    while (list != NULL) {
        fby_redis_conn_t *next = list->next;
        fby_redis_conn_close(list);
        list = next;
    }
}

/* An idle one, or the right to open one: *out NULL. The caller holds the lock. */
static int take_place(fby_redis_t *redis, fby_redis_node_t *node, fby_redis_conn_t **out)
{
    uint64_t at = fby_add_sat(fby_clock_now(&fby_clock_monotonic), redis->config.timeout_ns);
    const struct timespec limit = {(time_t)(at / FBY_SECOND), (long)(at % FBY_SECOND)};
    while (node->idle == NULL && node->open >= redis->config.connections) {
        if (pthread_cond_timedwait(&redis->freed, &redis->lock, &limit) == ETIMEDOUT) {
            return FBY_E_TIMEOUT;
        }
    }
    *out = node->idle;
    if (*out != NULL) {
        node->idle = (*out)->next;
    } else {
        node->open++;
    }
    return 0;
}

static void give_place(fby_redis_t *redis, fby_redis_node_t *node)
{
    pthread_mutex_lock(&redis->lock);
    node->open--;
    pthread_cond_broadcast(&redis->freed); /* of every node: whoever waits looks at its own */
    pthread_mutex_unlock(&redis->lock);
}

int fby_redis_acquire(fby_redis_t *redis, fby_redis_node_t *node, bool fresh, fby_redis_conn_t **out,
                      fby_redis_fault_t *fault)
{
    fby_redis_conn_t *old = NULL, *conn = NULL;
    for (;;) {
        pthread_mutex_lock(&redis->lock);
        if (fresh) {
            old = take_idle(node); /* when one went stale, so did they all: the server was restarted */
        }
        int status = take_place(redis, node, &conn);
        pthread_mutex_unlock(&redis->lock);
        close_all(old);
        old = NULL;
        if (status != 0) {
            return fby_redis_fault(fault, status, "all %u connections to %s stayed busy (option connections)",
                                   redis->config.connections, node->endpoint.host);
        }
        if (conn == NULL) {
            break;
        }
        if (!fresh && !fby_redis_conn_is_stale(conn)) {
            *out = conn;
            return 0;
        }
        fby_redis_release(redis, node, conn, false);
    }
    int status = fby_redis_conn_open(&redis->config, redis->tls, &node->endpoint, out, fault);
    if (status != 0) {
        give_place(redis, node);
    }
    return status;
}

void fby_redis_release(fby_redis_t *redis, fby_redis_node_t *node, fby_redis_conn_t *conn, bool usable)
{
    if (!usable) {
        fby_redis_conn_close(conn);
        give_place(redis, node);
        return;
    }
    conn->reused = true;
    pthread_mutex_lock(&redis->lock);
    conn->next = node->idle;
    node->idle = conn;
    pthread_cond_broadcast(&redis->freed);
    pthread_mutex_unlock(&redis->lock);
}

void fby_redis_nodes_free(fby_redis_t *redis)
{
    for (uint32_t i = 0; i < redis->node_count; i++) {
        close_all(redis->nodes[i]->idle);
        free(redis->nodes[i]);
    }
    free(redis->nodes);
}
