/* redis_tools.c - what people ask of a store: is it well, what does it hold, and give back what is of no use. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "keys/keys.h"
#include "stores/keymap.h"
#include "stores/object.h"
#include "stores/redis.h"
#include "stores/redis_hiredis.h"

#define PAGE_KEYS "512" /* what one SCAN is asked to look at */

static int invalid_reply(fby_redis_fault_t *fault, const fby_redis_node_t *node, const char *command,
                         const redisReply *reply)
{
    char where[FBY_REDIS_ENDPOINT_TEXT_BYTES];
    bool is_error = reply->type == REDIS_REPLY_ERROR;
    int code = is_error ? fby_redis_error_code(reply->str) : FBY_E_CONNECTION;
    return fby_redis_fault(fault, code, "%s answers %s: %.160s",
                           fby_redis_endpoint_text(&node->endpoint, where, sizeof(where)), command,
                           is_error ? reply->str : "something else than what belongs to it");
}

/* One command on one node; a reply of another type is a failure. 0: *out is for freeReplyObject. */
static int ask_node(fby_redis_t *redis, fby_redis_node_t *node, int argc, const char *const *argv, int type,
                    redisReply **out, fby_redis_fault_t *fault)
{
    char where[FBY_REDIS_ENDPOINT_TEXT_BYTES];
    fby_redis_conn_t *conn = NULL;
    redisReply *reply = NULL;
    int status = fby_redis_acquire(redis, node, false, &conn, fault);
    if (status != 0) {
        return status;
    }
    uint64_t deadline_ns = fby_add_sat(fby_clock_now(&fby_clock_monotonic), redis->config.timeout_ns);
    status = fby_redis_conn_ask(conn, deadline_ns, argc, argv, &reply);
    fby_redis_release(redis, node, conn, status == 0);
    if (status != 0) {
        return fby_redis_fault(fault, status, "%s does not answer %s",
                               fby_redis_endpoint_text(&node->endpoint, where, sizeof(where)), argv[0]);
    }
    if (reply->type != type) {
        status = invalid_reply(fault, node, argv[0], reply);
        freeReplyObject(reply);
        return status;
    }
    *out = reply;
    return 0;
}

/* The nodes that hold keys. The caller frees the list; NULL with a code. */
static int key_nodes(fby_redis_t *redis, fby_redis_node_t ***out, uint32_t *count)
{
    uint16_t single = 0, *masters = NULL;
    *count = 1;
    if (redis->slot_node != NULL) {
        int status = fby_redis_cluster_refresh(redis, true);
        if (status != 0) {
            return status;
        }
        masters = fby_redis_cluster_masters(redis, count);
        if (masters == NULL) {
            return -ENOMEM;
        }
    }
    fby_redis_node_t **nodes = calloc((size_t)*count + 1, sizeof(fby_redis_node_t *));
    pthread_mutex_lock(&redis->lock);
    for (uint32_t i = 0; i < *count && nodes != NULL; i++) {
        nodes[i] = redis->nodes[masters != NULL ? masters[i] : single];
    }
    pthread_mutex_unlock(&redis->lock);
    free(masters);
    *out = nodes;
    return nodes != NULL ? 0 : -ENOMEM;
}

/* ---- Health ---- */

static uint32_t slots_without_node(fby_redis_t *redis)
{
    uint32_t without = 0;
    pthread_mutex_lock(&redis->lock);
    for (uint32_t slot = 0; redis->slot_node != NULL && slot < FBY_REDIS_SLOTS; slot++) {
        without += redis->slot_node[slot] == FBY_REDIS_NO_NODE;
    }
    pthread_mutex_unlock(&redis->lock);
    return without;
}

static void tell_health(fby_redis_t *redis, const fby_redis_node_t *first, uint32_t count, char *text, size_t text_size)
{
    char where[FBY_REDIS_ENDPOINT_TEXT_BYTES];
    uint32_t open = 0;
    pthread_mutex_lock(&redis->lock);
    for (uint32_t i = 0; i < redis->node_count; i++) {
        open += redis->nodes[i]->open;
    }
    pthread_mutex_unlock(&redis->lock);
    if (redis->slot_node != NULL) {
        snprintf(text, text_size, "ok: %u nodes answer, all slots have one, %u connections open%s", count, open,
                 redis->tls != NULL ? ", tls" : "");
    } else {
        snprintf(text, text_size, "ok: %s answers, %u of %u connections open%s",
                 fby_redis_endpoint_text(&first->endpoint, where, sizeof(where)), open, redis->config.connections,
                 redis->tls != NULL ? ", tls" : "");
    }
}

int fby_redis_health(fby_redis_t *redis, char *text, size_t text_size)
{
    static const char *const ping[] = {"PING"};
    fby_redis_node_t **nodes = NULL;
    fby_redis_fault_t fault = {.text = "the map of the cluster's slots cannot be had"};
    uint32_t count = 0;
    int status = key_nodes(redis, &nodes, &count);
    for (uint32_t i = 0; i < count && status == 0; i++) {
        redisReply *reply = NULL;
        status = ask_node(redis, nodes[i], 1, ping, REDIS_REPLY_STATUS, &reply, &fault);
        freeReplyObject(reply);
    }
    uint32_t without = status == 0 ? slots_without_node(redis) : 0;
    if (without > 0) {
        status = fby_redis_fault(&fault, FBY_E_CONNECTION, "%u of %u slots of the cluster have no node", without,
                                 FBY_REDIS_SLOTS);
    }
    if (status == 0) {
        tell_health(redis, nodes[0], count, text, text_size);
    } else {
        snprintf(text, text_size, "%s", fault.text);
    }
    free(nodes);
    return status;
}

/* ---- Walking over everything ---- */

/* trailer: zeros when the value is shorter. Non-zero ends the walk. */
typedef int walk_fn(void *arg, fby_redis_t *redis, const char *key, uint32_t bytes, const uint8_t *trailer);

typedef struct walk {
    fby_redis_t *redis;
    walk_fn *each;
    void *arg;
    fby_keymap_t seen; /* SCAN may name a key twice */
} walk_t;

/* Whether this is a key of ours under the prefix, and not seen before; copies it without the prefix. -1: no memory. */
static int is_new_key(walk_t *walk, const redisReply *name, char key[FBY_KEY_BYTES])
{
    const char *prefix = walk->redis->config.prefix;
    size_t skip = strlen(prefix);
    fby_hash_t hash;
    uint32_t group;
    if (name->type != REDIS_REPLY_STRING || (size_t)name->len <= skip || (size_t)name->len - skip >= FBY_KEY_BYTES ||
        memcmp(name->str, prefix, skip) != 0) {
        return 0;
    }
    memset(key, 0, FBY_KEY_BYTES);
    memcpy(key, name->str + skip, (size_t)name->len - skip);
    if (strlen(key) != (size_t)name->len - skip || !fby_key_parse(key, &hash, &group) ||
        fby_keymap_find(&walk->seen, key) != NULL) {
        return 0;
    }
    return fby_keymap_insert(&walk->seen, key) != NULL ? 1 : -1;
}

/* Lengths and trailers of a page of keys, then each of them. What went away meanwhile is passed over. */
static int walk_page(walk_t *walk, fby_store_op_t *ops, uint8_t *trailers, uint32_t n)
{
    int status = fby_redis_call(walk->redis, FBY_REDIS_LENGTH, ops, n);
    uint32_t there = 0;
    for (uint32_t i = 0; i < n && status == 0; i++) {
        if (ops[i].result < 0 && ops[i].result != FBY_E_INVALID) {
            status = (int)ops[i].result;
        } else if (ops[i].result > 0) { /* INVALID: another type of value, not ours */
            ops[there] = ops[i];
            ops[there].bytes = (uint32_t)ops[i].result;
            ops[there].buffer = trailers + (size_t)there * FBY_REDIS_TRAILER_BYTES;
            there++;
        }
    }
    status = status == 0 ? fby_redis_call(walk->redis, FBY_REDIS_TRAILER, ops, there) : status;
    for (uint32_t i = 0; i < there && status == 0; i++) {
        if (ops[i].result == FBY_E_SIZE) {
            memset(ops[i].buffer, 0, FBY_REDIS_TRAILER_BYTES);
        } else if (ops[i].result < 0) {
            return (int)ops[i].result;
        }
        status = walk->each(walk->arg, walk->redis, ops[i].key, ops[i].bytes, ops[i].buffer);
    }
    return status;
}

static int walk_names(walk_t *walk, const redisReply *names)
{
    int status = 0;
    uint32_t n = 0;
    fby_store_op_t *ops = calloc(names->elements + 1, sizeof(*ops));
    uint8_t *trailers = calloc(names->elements + 1, FBY_REDIS_TRAILER_BYTES);
    if (ops == NULL || trailers == NULL) {
        status = -ENOMEM;
    }
    for (size_t i = 0; i < names->elements && status == 0; i++) {
        int is_new = is_new_key(walk, names->element[i], ops[n].key);
        status = is_new < 0 ? -ENOMEM : 0;
        n += is_new > 0;
    }
    status = status == 0 && n > 0 ? walk_page(walk, ops, trailers, n) : status;
    free(ops);
    free(trailers);
    return status;
}

/* prefix with what SCAN's patterns mean specially escaped, then '*'. */
static void make_pattern(const fby_redis_t *redis, char out[2 * FBY_REDIS_PREFIX_MOST + 2])
{
    size_t at = 0;
    for (const char *c = redis->config.prefix; *c != '\0'; c++) {
        if (strchr("*?[]\\^-", *c) != NULL) {
            out[at++] = '\\';
        }
        out[at++] = *c;
    }
    memcpy(out + at, "*", 2);
}

static int walk_node(walk_t *walk, fby_redis_node_t *node)
{
    char cursor[32] = "0", pattern[2 * FBY_REDIS_PREFIX_MOST + 2];
    const char *const argv[] = {"SCAN", cursor, "MATCH", pattern, "COUNT", PAGE_KEYS};
    make_pattern(walk->redis, pattern);
    int status = 0;
    do {
        fby_redis_fault_t fault;
        redisReply *reply = NULL;
        status = ask_node(walk->redis, node, 6, argv, REDIS_REPLY_ARRAY, &reply, &fault);
        if (status != 0 || reply == NULL) {
            fby_redis_note(walk->redis, &fault);
            return status;
        }
        if (reply->elements == 2 && reply->element[0]->type == REDIS_REPLY_STRING &&
            (size_t)reply->element[0]->len < sizeof(cursor) && reply->element[1]->type == REDIS_REPLY_ARRAY) {
            snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
            status = walk_names(walk, reply->element[1]);
        } else {
            status = FBY_E_CONNECTION;
        }
        freeReplyObject(reply);
    } while (status == 0 && strcmp(cursor, "0") != 0);
    return status;
}

static int walk_all(fby_redis_t *redis, walk_fn *each, void *arg)
{
    walk_t walk = {.redis = redis, .each = each, .arg = arg};
    fby_redis_node_t **nodes = NULL;
    uint32_t count = 0;
    int status = key_nodes(redis, &nodes, &count);
    if (status == 0 && (status = fby_keymap_init(&walk.seen, sizeof(fby_keymap_entry_t))) == 0) {
        for (uint32_t i = 0; i < count && status == 0; i++) {
            status = walk_node(&walk, nodes[i]);
        }
        fby_keymap_destroy(&walk.seen, NULL);
    }
    free(nodes);
    return status;
}

/* ---- visit ---- */

typedef struct visitor {
    fby_store_visit_fn *visit;
    void *arg;
} visitor_t;

static int visit_one(void *arg, fby_redis_t *redis, const char *key, uint32_t bytes, const uint8_t *trailer)
{
    (void)redis;
    const visitor_t *visitor = arg;
    return visitor->visit(visitor->arg, key, bytes, trailer);
}

int fby_redis_visit(fby_redis_t *redis, fby_store_visit_fn *visit, void *arg)
{
    visitor_t visitor = {visit, arg};
    return walk_all(redis, visit_one, &visitor);
}

/* ---- gc ---- */

typedef struct collector {
    uint64_t objects, dropped, freed;
} collector_t;

static int drop_unreadable(void *arg, fby_redis_t *redis, const char *key, uint32_t bytes, const uint8_t *trailer)
{
    collector_t *collector = arg;
    fby_object_id_t id;
    fby_hash_t hash;
    uint32_t group;
    uint64_t checksum;
    uint8_t flags;
    collector->objects++;
    fby_object_fault_t fault = fby_trailer_parse(trailer, &id, &checksum, &flags);
    if (fault == FBY_OBJECT_VERSION) {
        return 0; /* a newer writer's: not ours to judge */
    }
    if (fault == FBY_OBJECT_OK && fby_key_parse(key, &hash, &group) && fby_hash_equal(&id.hash, &hash) &&
        id.group == group && bytes == id.payload_bytes + FBY_TRAILER_BYTES) {
        return 0;
    }
    fby_store_op_t op = {.result = 0};
    memcpy(op.key, key, sizeof(op.key));
    int status = fby_redis_call(redis, FBY_REDIS_REMOVE, &op, 1);
    if (status == 0 && op.result == 1) {
        collector->dropped++;
        collector->freed += bytes;
    }
    return status != 0 ? status : op.result < 0 && op.result != FBY_E_MISSING ? (int)op.result : 0;
}

int fby_redis_gc(fby_redis_t *redis, uint64_t *freed_bytes, char *text, size_t text_size)
{
    collector_t collector = {0};
    int status = walk_all(redis, drop_unreadable, &collector);
    *freed_bytes = collector.freed;
    snprintf(text, text_size, "%llu of %llu objects had no readable trailer of their key and were removed",
             (unsigned long long)collector.dropped, (unsigned long long)collector.objects);
    return status;
}
