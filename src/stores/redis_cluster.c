/* redis_cluster.c - where the keys of a cluster live: its slots, and the map from slots to nodes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "stores/options.h"
#include "stores/redis.h"
#include "stores/redis_hiredis.h"

/* A map that a failure or a redirection makes doubtful is fetched at most this often. */
#define REFRESH_INTERVAL_NS (100 * FBY_MS)

/* ---- Slots ---- */

/* CRC-16/XMODEM: polynomial 0x1021, from 0, not reflected. */
static uint32_t crc16(const char *bytes, size_t length)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < length; i++) {
        crc ^= (uint32_t)(uint8_t)bytes[i] << 8;
        for (unsigned bit = 0; bit < 8; bit++) {
            crc = (crc & 0x8000u) != 0 ? (crc << 1 ^ 0x1021u) & 0xFFFFu : crc << 1 & 0xFFFFu;
        }
    }
    return crc;
}

uint32_t fby_redis_slot(const char *key, size_t length)
{
    const char *open = memchr(key, '{', length);
    if (open != NULL) {
        const char *tag = open + 1, *close = memchr(tag, '}', length - (size_t)(tag - key));
        if (close != NULL && close > tag) {
            key = tag;
            length = (size_t)(close - tag);
        }
    }
    return crc16(key, length) % FBY_REDIS_SLOTS;
}

bool fby_redis_redirect_parse(const char *line, const fby_redis_endpoint_t *said_by, uint32_t *slot,
                              fby_redis_endpoint_t *out)
{
    const char *number = strchr(line, ' ');
    const char *place = number != NULL ? strchr(number + 1, ' ') : NULL;
    const char *colon = place != NULL ? strrchr(place, ':') : NULL; /* of a v6 address, too: it comes without [] */
    uint64_t slot_value, port;
    if (colon == NULL || !fby_text_u64(number + 1, (size_t)(place - number - 1), &slot_value) ||
        !fby_text_u64(colon + 1, strlen(colon + 1), &port) || slot_value >= FBY_REDIS_SLOTS || port == 0 ||
        port > 65535 || (size_t)(colon - place - 1) >= sizeof(out->host)) {
        return false;
    }
    *out = *said_by;
    if (colon > place + 1) {
        memset(out->host, 0, sizeof(out->host));
        memcpy(out->host, place + 1, (size_t)(colon - place - 1));
    }
    out->port = (uint32_t)port;
    *slot = (uint32_t)slot_value;
    return true;
}

/* ---- The map ---- */

/* One entry of CLUSTER SLOTS: first, last, [host, port, ...] of the master, replicas. */
static bool entry_parse(const redisReply *entry, const fby_redis_endpoint_t *said_by, uint32_t range[2],
                        fby_redis_endpoint_t *out)
{
    if (entry->type != REDIS_REPLY_ARRAY || entry->elements < 3 || entry->element[2]->type != REDIS_REPLY_ARRAY ||
        entry->element[2]->elements < 2) {
        return false;
    }
    const redisReply *host = entry->element[2]->element[0], *port = entry->element[2]->element[1];
    for (unsigned i = 0; i < 2; i++) {
        const redisReply *number = entry->element[i];
        if (number->type != REDIS_REPLY_INTEGER || number->integer < 0 || number->integer >= FBY_REDIS_SLOTS) {
            return false;
        }
        range[i] = (uint32_t)number->integer;
    }
    if (port->type != REDIS_REPLY_INTEGER || port->integer <= 0 || port->integer > 65535) {
        return false;
    }
    *out = *said_by; /* no host, or an empty one: the one that was asked */
    if (host->type == REDIS_REPLY_STRING && host->len > 0) {
        if ((size_t)host->len >= sizeof(out->host) || memchr(host->str, '\0', (size_t)host->len) != NULL) {
            return false;
        }
        memset(out->host, 0, sizeof(out->host));
        memcpy(out->host, host->str, (size_t)host->len);
    }
    out->port = (uint32_t)port->integer;
    return true;
}

/* Replaces the map; entries that make no sense are left out. Slots without an owner stay without. */
static void map_take(fby_redis_t *redis, const redisReply *reply, const fby_redis_endpoint_t *said_by)
{
    pthread_mutex_lock(&redis->lock);
    for (uint32_t slot = 0; slot < FBY_REDIS_SLOTS; slot++) {
        redis->slot_node[slot] = FBY_REDIS_NO_NODE;
    }
    for (size_t i = 0; i < reply->elements; i++) {
        uint32_t range[2];
        fby_redis_endpoint_t endpoint;
        if (!entry_parse(reply->element[i], said_by, range, &endpoint)) {
            continue;
        }
        uint16_t node = fby_redis_node_index(redis, &endpoint);
        for (uint32_t slot = range[0]; slot <= range[1]; slot++) {
            redis->slot_node[slot] = node;
        }
    }
    redis->map_known = true;
    redis->map_stale = false;
    pthread_mutex_unlock(&redis->lock);
}

static int refused(fby_redis_fault_t *fault, const char *line, const char *where)
{
    int code = fby_redis_error_code(line);
    bool no_cluster = strstr(line, "cluster support disabled") != NULL;
    fby_redis_fault(fault, code, no_cluster ? "%s is no cluster; accepted: cluster=off" : "%s: CLUSTER SLOTS: %.160s",
                    where, line);
    fault->settings = code == FBY_E_INVALID;
    return code;
}

static int ask_node(fby_redis_t *redis, fby_redis_node_t *node, uint64_t deadline_ns, fby_redis_fault_t *fault)
{
    static const char *const argv[] = {"CLUSTER", "SLOTS"};
    char where[FBY_REDIS_ENDPOINT_TEXT_BYTES];
    fby_redis_conn_t *conn = NULL;
    redisReply *reply = NULL;
    fby_redis_endpoint_text(&node->endpoint, where, sizeof(where));
    int status = fby_redis_acquire(redis, node, false, &conn, fault);
    if (status != 0) {
        return status;
    }
    status = fby_redis_conn_ask(conn, deadline_ns, 2, argv, &reply);
    fby_redis_release(redis, node, conn, status == 0);
    if (status != 0) {
        return fby_redis_fault(fault, status, "%s did not say which node has which slots", where);
    }
    if (reply->type == REDIS_REPLY_ARRAY) {
        map_take(redis, reply, &node->endpoint);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        status = refused(fault, reply->str, where);
    } else {
        status = fby_redis_fault(fault, FBY_E_CONNECTION, "%s answers CLUSTER SLOTS with something else", where);
    }
    freeReplyObject(reply);
    return status;
}

/* Any node will do; the one that answered last is asked first, so that a dead one does not cost its time every time. */
static int ask_around(fby_redis_t *redis)
{
    fby_redis_fault_t fault = {.code = FBY_E_CONNECTION};
    uint64_t deadline_ns = fby_add_sat(fby_clock_now(&fby_clock_monotonic), redis->config.timeout_ns);
    pthread_mutex_lock(&redis->lock);
    uint32_t count = redis->node_count, first = redis->map_from;
    pthread_mutex_unlock(&redis->lock);
    int status = FBY_E_CONNECTION;
    for (uint32_t i = 0; i < count && status != 0; i++) {
        uint32_t at = (first + i) % count;
        pthread_mutex_lock(&redis->lock);
        fby_redis_node_t *node = redis->nodes[at];
        redis->map_from = at;
        pthread_mutex_unlock(&redis->lock);
        status = ask_node(redis, node, deadline_ns, &fault);
        if (status != 0 && (fault.settings || fby_clock_now(&fby_clock_monotonic) >= deadline_ns)) {
            break;
        }
    }
    if (status != 0) {
        fby_redis_note(redis, &fault);
    }
    return status;
}

int fby_redis_cluster_refresh(fby_redis_t *redis, bool force)
{
    uint64_t now = fby_clock_now(&fby_clock_monotonic);
    pthread_mutex_lock(&redis->lock);
    bool mine = !redis->map_refreshing && (force || now >= redis->map_next_ns);
    redis->map_refreshing = redis->map_refreshing || mine;
    pthread_mutex_unlock(&redis->lock);
    if (!mine) {
        return 0;
    }
    int status = ask_around(redis);
    pthread_mutex_lock(&redis->lock);
    redis->map_refreshing = false;
    redis->map_next_ns = fby_clock_now(&fby_clock_monotonic) + REFRESH_INTERVAL_NS;
    pthread_mutex_unlock(&redis->lock);
    return status;
}

void fby_redis_cluster_ensure(fby_redis_t *redis)
{
    pthread_mutex_lock(&redis->lock);
    bool known = redis->map_known, stale = redis->map_stale;
    pthread_mutex_unlock(&redis->lock);
    if (!known || stale) {
        fby_redis_cluster_refresh(redis, !known);
    }
}

uint16_t *fby_redis_cluster_masters(fby_redis_t *redis, uint32_t *count)
{
    uint16_t *masters = calloc(FBY_REDIS_NODES_MOST, sizeof(*masters));
    bool *seen = calloc(FBY_REDIS_NODES_MOST, sizeof(*seen));
    *count = 0;
    pthread_mutex_lock(&redis->lock);
    for (uint32_t slot = 0; slot < FBY_REDIS_SLOTS && masters != NULL && seen != NULL; slot++) {
        uint16_t node = redis->slot_node[slot];
        if (node != FBY_REDIS_NO_NODE && !seen[node]) {
            seen[node] = true;
            masters[(*count)++] = node;
        }
    }
    pthread_mutex_unlock(&redis->lock);
    if (seen == NULL) {
        free(masters);
        masters = NULL;
    }
    free(seen);
    return masters;
}
