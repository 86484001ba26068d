/* redis_part.h - one connection's share of a call: its commands, pipelined, and their replies, in order. */
#ifndef FBY_STORES_REDIS_PART_H
#define FBY_STORES_REDIS_PART_H

#include "stores/redis.h"

/* One key's way through a call. */
typedef struct fby_redis_item {
    fby_store_op_t *op;
    uint16_t node;
    uint8_t redirects;
    bool pending; /* no result yet: takes part in the next round */
    bool asking;  /* sent to the node that an ASK named, whatever the map says */
    bool retried; /* its connection had gone stale once */
} fby_redis_item_t;

/*
 * INVARIANT  items[0 .. answered) have a result, or were redirected and stay pending. status 0 and answered == count:
 * over, the connection is good. status < 0: over, the connection is of no use.
 */
typedef struct fby_redis_part {
    fby_redis_t *redis;
    fby_redis_node_t *node;
    fby_redis_conn_t *conn;
    fby_redis_item_t **items;
    uint32_t count, answered;
    fby_redis_verb_t verb;
    int status;
    bool asked;           /* the ASKING before the current item was answered */
    bool received;        /* at least one byte came */
    bool doubtful;        /* a reply says that the cluster's map is old */
    uint64_t progress_ns; /* when bytes last moved */
    fby_reply_t reply;
    char *text; /* the commands, without payloads */
    struct iovec *out;
    uint32_t out_at, out_count;
} fby_redis_part_t;

/* Writes the commands. 0 or -ENOMEM. fby_redis_part_end() in either case. */
int fby_redis_part_begin(fby_redis_part_t *part, uint64_t now_ns);
void fby_redis_part_end(fby_redis_part_t *part);
/* What poll() has to see; 0: over. */
short fby_redis_part_events(const fby_redis_part_t *part);
/* Sends and receives what can be without waiting. */
void fby_redis_part_step(fby_redis_part_t *part, short events);

#endif
