/*
 * redis.h - the Redis / Valkey driver: what its files share.
 *
 *   redis.c          the driver's table; open and close
 *   redis_options.c  its options
 *   redis_connect.c  a connected socket within a time
 *   redis_tls.c      TLS over it
 *   redis_conn.c     a connection: login, bytes, one command with its reply
 *   redis_reply.c    the reply as a state machine over bytes (pure)
 *   redis_node.c     the nodes of a store and their idle connections
 *   redis_cluster.c  slots of a cluster: where a key lives
 *   redis_part.c     one connection's share of a call: commands out, replies in, each key's result
 *   redis_call.c     a call: keys to nodes, all connections at once, redirections and the one retry
 *   redis_tools.c    health, visit, gc
 *
 * A key in Redis is the option `prefix` and the key's text; its value is the object as it is in the slot.
 * A call is one thread's work from its beginning to its end; it ends when no connection of it has moved a byte for
 * timeout_ms. Nothing writes into a buffer after that, since nothing else ever does.
 */
#ifndef FBY_STORES_REDIS_H
#define FBY_STORES_REDIS_H

#include <pthread.h>

#include "base/log.h"
#include "forebay/store.h"
#include "stores/redis_conn.h"
#include "stores/redis_reply.h"

#define FBY_REDIS_SLOTS 16384u
#define FBY_REDIS_NODES_MOST 4096u
#define FBY_REDIS_KEY_BYTES (FBY_REDIS_PREFIX_MOST + FBY_KEY_BYTES)
#define FBY_REDIS_TRAILER_BYTES 64u

/* Lives until the store is closed, so that a pointer to it needs no count. */
typedef struct fby_redis_node {
    fby_redis_endpoint_t endpoint; /* does not change */
    fby_redis_conn_t *idle;        /* newest first */
    uint32_t open;                 /* connections: idle, in use, and being opened */
} fby_redis_node_t;

typedef struct fby_redis {
    fby_redis_config_t config; /* does not change */
    struct ssl_ctx_st *tls;    /* NULL: none */
    bool opening;              /* what is refused goes into open's message, not into the log */
    pthread_mutex_t lock;      /* guards what follows; never held over I/O */
    pthread_cond_t freed;      /* a connection was given back or closed; monotonic clock */
    fby_redis_node_t **nodes;  /* [0]: the only one without cluster */
    uint32_t node_count, node_capacity;
    uint16_t *slot_node; /* cluster: index of the node that owns a slot; FBY_REDIS_NO_NODE */
    bool map_known, map_stale, map_refreshing;
    uint64_t map_next_ns; /* not asked for again before */
    uint32_t map_from;    /* the node that is asked first */
    bool refused;         /* a server was reached and refused; refusal says how */
    char refusal[320];
    fby_log_limit_t refused_limit, unreachable_limit;
} fby_redis_t;

#define FBY_REDIS_NO_NODE UINT16_MAX

/* Remembers and logs (with a rate limit) why something failed. */
void fby_redis_note(fby_redis_t *redis, const fby_redis_fault_t *fault);
/* prefix + key into out; its length. */
size_t fby_redis_key(const fby_redis_t *redis, const char *key, char out[FBY_REDIS_KEY_BYTES]);

/* ---- Nodes ---- */

/* Finds or adds; FBY_REDIS_NO_NODE: out of memory or places. The caller holds the lock. */
uint16_t fby_redis_node_index(fby_redis_t *redis, const fby_redis_endpoint_t *endpoint);
/* An idle connection, or a new one; waits for one (timeout) when `connections` are in use. fresh: a new one. */
int fby_redis_acquire(fby_redis_t *redis, fby_redis_node_t *node, bool fresh, fby_redis_conn_t **out,
                      fby_redis_fault_t *fault);
/* Gives it back; usable false: closes it. */
void fby_redis_release(fby_redis_t *redis, fby_redis_node_t *node, fby_redis_conn_t *conn, bool usable);
void fby_redis_nodes_free(fby_redis_t *redis);

/* ---- Cluster ---- */

/* CRC16 of the key, or of what stands between its first '{' and the next '}' when there is something. */
uint32_t fby_redis_slot(const char *key, size_t length);
/* "MOVED 3999 127.0.0.1:6381"; an empty host means the server that said it. */
bool fby_redis_redirect_parse(const char *line, const fby_redis_endpoint_t *said_by, uint32_t *slot,
                              fby_redis_endpoint_t *out);
/* Asks any node for the map. force: even when the last time was just now. 0 or why not. */
int fby_redis_cluster_refresh(fby_redis_t *redis, bool force);
/* Fetches the map when there is none or a failure says that it may be old. */
void fby_redis_cluster_ensure(fby_redis_t *redis);
/* The nodes that own slots, each once: indices into nodes[], the caller frees them. NULL: out of memory. */
uint16_t *fby_redis_cluster_masters(fby_redis_t *redis, uint32_t *count);

/* ---- Calls ---- */

/* X(verb, command) */
#define FBY_REDIS_VERB_MAP(X)                                                                                          \
    X(EXISTS, "STRLEN")                                                                                                \
    X(GET, "GET")                                                                                                      \
    X(PUT, "SET")                                                                                                      \
    X(REMOVE, "UNLINK")                                                                                                \
    X(LENGTH, "STRLEN")    /* result: bytes; 0: absent */                                                              \
    X(TRAILER, "GETRANGE") /* the last 64 bytes into the buffer */
typedef enum fby_redis_verb {
#define FBY_X(verb, command) FBY_REDIS_##verb,
    FBY_REDIS_VERB_MAP(FBY_X)
#undef FBY_X
} fby_redis_verb_t;

/* Fills op->result of each; 0 or -ENOMEM. */
int fby_redis_call(fby_redis_t *redis, fby_redis_verb_t verb, fby_store_op_t *ops, uint32_t n);

/* ---- Tools ---- */

int fby_redis_health(fby_redis_t *redis, char *text, size_t text_size);
int fby_redis_visit(fby_redis_t *redis, fby_store_visit_fn *visit, void *arg);
int fby_redis_gc(fby_redis_t *redis, uint64_t *freed_bytes, char *text, size_t text_size);

#endif
