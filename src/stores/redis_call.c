/* redis_call.c - a call: keys to nodes, all connections at once in one thread, redirections, and the one retry. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "stores/redis_part.h"

/* The first try, the one on a fresh connection, and the redirections that redis_part.c allows. */
enum { ROUNDS_MOST = 8 };

typedef struct call {
    fby_redis_t *redis;
    fby_redis_verb_t verb;
    fby_redis_item_t *items;
    uint32_t count;
    fby_redis_item_t **order; /* the pending ones, by node */
    uint32_t pending;
    fby_redis_part_t *parts;
    struct pollfd *polls;
    uint32_t part_count, part_capacity;
} call_t;

size_t fby_redis_key(const fby_redis_t *redis, const char *key, char out[FBY_REDIS_KEY_BYTES])
{
    size_t prefix = strlen(redis->config.prefix), length = strnlen(key, FBY_KEY_BYTES);
    memcpy(out, redis->config.prefix, prefix);
    memcpy(out + prefix, key, length);
    return prefix + length;
}

/* ---- Which key goes where ---- */

/* A redirected key stays with the node it was sent to. */
static void route_item(fby_redis_t *redis, fby_redis_item_t *item)
{
    char key[FBY_REDIS_KEY_BYTES];
    if (item->redirects > 0) {
        return;
    }
    item->node = 0;
    if (redis->slot_node != NULL) {
        size_t length = fby_redis_key(redis, item->op->key, key);
        item->node = redis->slot_node[fby_redis_slot(key, length)];
    }
    if (item->node == FBY_REDIS_NO_NODE) {
        item->op->result = FBY_E_CONNECTION;
        item->pending = false;
        redis->map_stale = true;
    }
}

/* Sorts the pending keys by node, in their order (counting sort); parts[] gets a node each. 0 or -ENOMEM. */
static int route(call_t *call)
{
    fby_redis_t *redis = call->redis;
    pthread_mutex_lock(&redis->lock);
    for (uint32_t i = 0; i < call->count; i++) {
        if (call->items[i].pending) {
            route_item(redis, &call->items[i]);
        }
    }
    uint32_t nodes = redis->node_count;
    pthread_mutex_unlock(&redis->lock);
    uint32_t *end = calloc((size_t)nodes + 1, sizeof(*end));
    if (end == NULL) {
        return -ENOMEM;
    }
    call->pending = 0;
    for (uint32_t i = 0; i < call->count; i++) {
        if (call->items[i].pending) {
            call->pending++;
            end[call->items[i].node + 1u]++;
        }
    }
    for (uint32_t i = 0; i < nodes; i++) {
        end[i + 1] += end[i];
    }
    for (uint32_t i = 0; i < call->count; i++) {
        if (call->items[i].pending) {
            call->order[end[call->items[i].node]++] = &call->items[i];
        }
    }
    free(end);
    return 0;
}

/* One part per node. Nodes ascend, so that two calls that wait for connections never wait for each other. */
static int make_parts(call_t *call)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < call->pending; i++) {
        count += i == 0 || call->order[i]->node != call->order[i - 1]->node;
    }
    if (count > call->part_capacity) {
        free(call->parts);
        free(call->polls);
        call->parts = calloc(count, sizeof(*call->parts));
        call->polls = calloc(count, sizeof(*call->polls));
        call->part_capacity = call->parts != NULL && call->polls != NULL ? count : 0;
        if (call->part_capacity == 0) {
            return -ENOMEM;
        }
    }
    call->part_count = 0;
    pthread_mutex_lock(&call->redis->lock);
    for (uint32_t i = 0; i < call->pending; i++) {
        uint32_t node = call->order[i]->node; // NOLINT(clang-analyzer-core.NullDereference): route() filled it
        if (i == 0 || node != call->order[i - 1]->node) {
            call->parts[call->part_count++] = (fby_redis_part_t){
                .redis = call->redis, .node = call->redis->nodes[node], .verb = call->verb, .items = call->order + i};
        }
        call->parts[call->part_count - 1].count++;
    }
    pthread_mutex_unlock(&call->redis->lock);
    return 0;
}

/* ---- One round ---- */

static void part_connect(fby_redis_part_t *part)
{
    fby_redis_fault_t fault;
    bool fresh = part->items[0]->retried;
    part->status = fby_redis_acquire(part->redis, part->node, fresh, &part->conn, &fault);
    if (part->status != 0) {
        fby_redis_note(part->redis, &fault);
    } else if (fby_redis_part_begin(part, fby_clock_now(&fby_clock_monotonic)) == 0) {
        fby_redis_part_step(part, POLLOUT);
    }
}

/* Waits until a part can go on, or the earliest has made no progress for timeout_ms. False: all are over. */
static bool exchange_step(call_t *call)
{
    uint64_t timeout = call->redis->config.timeout_ns, first_limit = FBY_NEVER;
    bool is_over = true;
    for (uint32_t i = 0; i < call->part_count; i++) {
        const fby_redis_part_t *part = &call->parts[i];
        short events = part->conn != NULL ? fby_redis_part_events(part) : 0;
        call->polls[i] = (struct pollfd){.fd = events != 0 ? part->conn->fd : -1, .events = events};
        if (events != 0) {
            first_limit = FBY_MIN(first_limit, fby_add_sat(part->progress_ns, timeout));
            is_over = false;
        }
    }
    if (is_over) {
        return false;
    }
    uint64_t left = fby_sub_sat(first_limit, fby_clock_now(&fby_clock_monotonic));
    const struct timespec limit = {(time_t)(left / FBY_SECOND), (long)(left % FBY_SECOND)};
    int ready = ppoll(call->polls, call->part_count, &limit, NULL);
    uint64_t now = fby_clock_now(&fby_clock_monotonic);
    for (uint32_t i = 0; i < call->part_count; i++) {
        fby_redis_part_t *part = &call->parts[i];
        if (ready > 0 && call->polls[i].revents != 0) {
            fby_redis_part_step(part, call->polls[i].revents);
        } else if (call->polls[i].fd >= 0 && now >= fby_add_sat(part->progress_ns, timeout)) {
            part->status = FBY_E_TIMEOUT;
        }
    }
    return true;
}

static void note_failure(const fby_redis_part_t *part)
{
    char where[FBY_REDIS_ENDPOINT_TEXT_BYTES];
    fby_redis_fault_t fault;
    fby_redis_endpoint_text(&part->node->endpoint, where, sizeof(where));
    fby_redis_fault(&fault, part->status, "%s %s; %u of %u replies came", where,
                    part->status == FBY_E_TIMEOUT ? "made no progress in time" : "ended the connection", part->answered,
                    part->count);
    fby_redis_note(part->redis, &fault);
}

/* Gives the connection back, and what had no answer its result, or its one retry. */
static void part_finish(fby_redis_part_t *part)
{
    fby_redis_conn_t *conn = part->conn;
    bool is_old = conn != NULL && conn->reused && !part->received && part->status == FBY_E_CONNECTION;
    for (uint32_t i = part->answered; i < part->count; i++) {
        fby_redis_item_t *item = part->items[i];
        if (is_old && !item->retried) {
            item->retried = true;
        } else {
            item->op->result = part->status;
            item->pending = false;
            is_old = false;
        }
    }
    if (conn != NULL) {
        if (part->status != 0 && !is_old) {
            note_failure(part);
        }
        bool usable = part->status == 0 && part->out_at == part->out_count && conn->in_at == conn->in_end;
        fby_redis_release(part->redis, part->node, conn, usable);
    }
    fby_redis_part_end(part);
}

/* A MOVED, a dead node: the map of a cluster may be old. */
static void finish_round(call_t *call)
{
    bool doubtful = false;
    for (uint32_t i = 0; i < call->part_count; i++) {
        doubtful = doubtful || call->parts[i].doubtful || call->parts[i].status != 0;
        part_finish(&call->parts[i]);
    }
    if (doubtful) {
        pthread_mutex_lock(&call->redis->lock);
        call->redis->map_stale = true;
        pthread_mutex_unlock(&call->redis->lock);
    }
}

static bool is_pending(const call_t *call)
{
    for (uint32_t i = 0; i < call->count; i++) {
        if (call->items[i].pending) {
            return true;
        }
    }
    return false;
}

static int run_rounds(call_t *call)
{
    for (unsigned round = 0; round < ROUNDS_MOST && is_pending(call); round++) {
        if (call->redis->slot_node != NULL) {
            fby_redis_cluster_ensure(call->redis);
        }
        int status = route(call);
        status = status == 0 ? make_parts(call) : status;
        if (status != 0) {
            return status;
        }
        for (uint32_t i = 0; i < call->part_count; i++) {
            part_connect(&call->parts[i]);
        }
        while (exchange_step(call)) {}
        finish_round(call);
    }
    return 0;
}

int fby_redis_call(fby_redis_t *redis, fby_redis_verb_t verb, fby_store_op_t *ops, uint32_t n)
{
    call_t call = {.redis = redis, .verb = verb, .count = n};
    call.items = calloc((size_t)n + 1, sizeof(*call.items));
    call.order = calloc((size_t)n + 1, sizeof(fby_redis_item_t *));
    int status = call.items != NULL && call.order != NULL ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < n && status == 0; i++) {
        call.items[i] = (fby_redis_item_t){.op = &ops[i], .pending = true};
        ops[i].result = FBY_E_CONNECTION; /* what a key that runs out of rounds keeps */
    }
    status = status == 0 ? run_rounds(&call) : status;
    free(call.items);
    free(call.order);
    free(call.parts);
    free(call.polls);
    return status;
}
