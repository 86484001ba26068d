/*
 * redis_conn.h - one connection to one server: socket, TLS, login. Owned by one thread at a time. Non-blocking: every
 * wait has an end.
 */
#ifndef FBY_STORES_REDIS_CONN_H
#define FBY_STORES_REDIS_CONN_H

#include <sys/types.h>
#include <sys/uio.h>

#include "stores/redis_options.h"

struct ssl_ctx_st;
struct ssl_st;
struct redisReply;

/* Why something with a connection failed. */
typedef struct fby_redis_fault {
    int code;      /* FBY_E_CONNECTION, FBY_E_TIMEOUT, FBY_E_INVALID */
    bool settings; /* the server was reached and refuses what it was told: no later attempt will do better */
    char text[320];
} fby_redis_fault_t;

/* Fills *fault (which may be NULL) and returns code. */
int fby_redis_fault(fby_redis_fault_t *fault, int code, const char *format, ...) FBY_PRINTF(3, 4);

typedef struct fby_redis_conn {
    struct fby_redis_conn *next; /* while idle */
    struct ssl_st *tls;          /* NULL: none */
    int fd;
    bool reused;                /* has served a call before: it may have gone stale since */
    short send_wait, recv_wait; /* what poll() has to see before the next try; TLS may turn them round */
    uint32_t in_at, in_end;     /* received and not yet understood: in[in_at .. in_end) */
    uint8_t in[16384];
} fby_redis_conn_t;

/* Connects, agrees on TLS, logs in, selects the database; within connect_timeout. The caller closes it. */
int fby_redis_conn_open(const fby_redis_config_t *config, struct ssl_ctx_st *tls, const fby_redis_endpoint_t *endpoint,
                        fby_redis_conn_t **out, fby_redis_fault_t *fault);
void fby_redis_conn_close(fby_redis_conn_t *conn);
/* Whether an idle connection was closed by the other side, or says something that nobody asked for. */
bool fby_redis_conn_is_stale(const fby_redis_conn_t *conn);

/* Bytes moved, or -errno; -EAGAIN: poll for send_wait, recv_wait. Receiving nothing is -ECONNRESET. */
ssize_t fby_redis_conn_send(fby_redis_conn_t *conn, const struct iovec *iov, int count);
/* First into `direct` (may be NULL with room 0), then at most `ahead` bytes into the empty in[]. */
ssize_t fby_redis_conn_recv(fby_redis_conn_t *conn, void *direct, size_t room, size_t ahead);

/*
 * One command and its whole reply, of any shape; an error reply is a reply. 0: *out is for freeReplyObject. Else
 * FBY_E_TIMEOUT or FBY_E_CONNECTION: the connection is of no use any more.
 */
int fby_redis_conn_ask(fby_redis_conn_t *conn, uint64_t deadline_ns, int argc, const char *const *argv,
                       struct redisReply **out);

#endif
