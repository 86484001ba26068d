#include "stores/redis_conn.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "forebay/forebay.h"
#include "stores/redis_connect.h"
#include "stores/redis_hiredis.h"
#include "stores/redis_reply.h"
#include "stores/redis_tls.h"

/* Bounds of a reply to a command of our own: a page of SCAN, the slots of a cluster of a thousand nodes. */
#define TREE_BYTES_MOST ((size_t)16 << 20)
#define TREE_BULK_MOST (UINT64_C(1) << 20)
#define TREE_ELEMENTS_MOST (1u << 20)

int fby_redis_fault(fby_redis_fault_t *fault, int code, const char *format, ...)
{
    if (fault != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(fault->text, sizeof(fault->text), format, args);
        va_end(args);
        fault->code = code;
        fault->settings = false;
    }
    return code;
}

/* ---- Bytes ---- */

static ssize_t moved_or_error(ssize_t moved)
{
    return moved >= 0 ? moved : errno == EINTR ? -EAGAIN : -errno;
}

ssize_t fby_redis_conn_send(fby_redis_conn_t *conn, const struct iovec *iov, int count)
{
    if (conn->tls != NULL) {
        return fby_redis_tls_write(conn->tls, iov->iov_base, iov->iov_len, &conn->send_wait);
    }
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)count};
    return moved_or_error(sendmsg(conn->fd, &message, MSG_NOSIGNAL));
}

ssize_t fby_redis_conn_recv(fby_redis_conn_t *conn, void *direct, size_t room, size_t ahead)
{
    ssize_t moved;
    ahead = FBY_MIN(ahead, sizeof(conn->in));
    conn->in_at = conn->in_end = 0;
    if (conn->tls != NULL && room > 0) {
        moved = fby_redis_tls_read(conn->tls, direct, room, &conn->recv_wait);
    } else if (conn->tls != NULL) {
        moved = fby_redis_tls_read(conn->tls, conn->in, ahead, &conn->recv_wait);
    } else {
        struct iovec iov[2] = {{direct, room}, {conn->in, ahead}};
        moved = moved_or_error(room > 0 ? readv(conn->fd, iov, 2) : recv(conn->fd, conn->in, ahead, 0));
    }
    if (moved == 0) {
        return -ECONNRESET;
    }
    if (moved > 0 && (size_t)moved > room) {
        conn->in_end = (uint32_t)((size_t)moved - room);
    }
    return moved;
}

bool fby_redis_conn_is_stale(const fby_redis_conn_t *conn)
{
    char byte;
    return conn->in_at != conn->in_end || recv(conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

void fby_redis_conn_close(fby_redis_conn_t *conn)
{
    if (conn != NULL) {
        fby_redis_tls_free(conn->tls);
        if (conn->fd >= 0) {
            close(conn->fd);
        }
        free(conn);
    }
}

/* ---- One command ---- */

static int send_all(fby_redis_conn_t *conn, uint64_t deadline_ns, char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        const struct iovec iov = {bytes + at, length - at};
        ssize_t moved = fby_redis_conn_send(conn, &iov, 1);
        int status = moved == -EAGAIN ? fby_redis_wait(conn->fd, conn->send_wait, deadline_ns) : 0;
        if (status != 0 || (moved < 0 && moved != -EAGAIN)) {
            return status != 0 ? status : FBY_E_CONNECTION;
        }
        at += moved > 0 ? (size_t)moved : 0;
    }
    return 0;
}

/* The tree of a reply that is known to be well-formed and within the bounds. */
static int make_tree(const char *bytes, size_t length, redisReply **out)
{
    void *reply = NULL;
    redisReader *reader = redisReaderCreate();
    if (reader == NULL) {
        return FBY_E_CONNECTION;
    }
    reader->maxbuf = 0;
    int status = redisReaderFeed(reader, bytes, length);
    status = status == REDIS_OK ? redisReaderGetReply(reader, &reply) : status;
    redisReaderFree(reader);
    *out = reply;
    return status == REDIS_OK && reply != NULL ? 0 : FBY_E_CONNECTION;
}

typedef struct collected {
    char *bytes;
    size_t length, capacity;
} collected_t;

static bool collect(collected_t *all, const void *bytes, size_t n)
{
    if (n > TREE_BYTES_MOST - all->length) {
        return false;
    }
    if (all->length + n > all->capacity) {
        size_t capacity = FBY_MAX(all->capacity * 2, all->length + n);
        char *grown = realloc(all->bytes, capacity);
        if (grown == NULL) {
            return false;
        }
        all->bytes = grown;
        all->capacity = capacity;
    }
    memcpy(all->bytes + all->length, bytes, n);
    all->length += n;
    return true;
}

/* Looks for the end of the reply first: hiredis only sees what has passed our own bounds. */
static int read_tree(fby_redis_conn_t *conn, uint64_t deadline_ns, collected_t *all)
{
    fby_reply_t reply;
    fby_reply_begin_tree(&reply, TREE_BULK_MOST, TREE_ELEMENTS_MOST);
    for (;;) {
        size_t used = fby_reply_feed(&reply, conn->in + conn->in_at, conn->in_end - conn->in_at);
        bool kept = used == 0 || collect(all, conn->in + conn->in_at, used);
        conn->in_at += (uint32_t)used;
        if (reply.state == FBY_REPLY_DONE && kept) {
            return 0;
        }
        if (reply.state == FBY_REPLY_BROKEN || !kept) {
            return FBY_E_CONNECTION;
        }
        ssize_t moved = fby_redis_conn_recv(conn, NULL, 0, sizeof(conn->in));
        int status = moved == -EAGAIN ? fby_redis_wait(conn->fd, conn->recv_wait, deadline_ns) : 0;
        if (status != 0 || (moved < 0 && moved != -EAGAIN)) {
            return status != 0 ? status : FBY_E_CONNECTION;
        }
    }
}

int fby_redis_conn_ask(fby_redis_conn_t *conn, uint64_t deadline_ns, int argc, const char *const *argv,
                       struct redisReply **out)
{
    char *command = NULL;
    collected_t all = {0};
    const char **arguments = (const char **)(uintptr_t)argv; /* hiredis only reads them */
    long long length = redisFormatCommandArgv(&command, argc, arguments, NULL);
    if (length < 0) {
        return FBY_E_CONNECTION;
    }
    int status = send_all(conn, deadline_ns, command, (size_t)length);
    OPENSSL_cleanse(command, (size_t)length); /* it may hold a password */
    redisFreeCommand(command);
    status = status == 0 ? read_tree(conn, deadline_ns, &all) : status;
    status = status == 0 ? make_tree(all.bytes, all.length, out) : status;
    free(all.bytes);
    return status;
}

/* ---- Opening ---- */

/*
 * AUTH's error text stays unread but for its first word: a server that does not know the command repeats its arguments.
 */
static int refused_login(const char *line, const char *where, fby_redis_fault_t *fault)
{
    int code = fby_redis_error_code(line);
    if (code == FBY_E_CONNECTION) {
        return fby_redis_fault(fault, code, "%s is there and answers nothing now: %.40s", where, line);
    }
    const char *why = fby_redis_error_is(line, "WRONGPASS") ? "username or password is wrong, or the user is disabled"
                                                            : "it knows no such user, or has no password set";
    fby_redis_fault(fault, FBY_E_INVALID, "%s refuses the login (AUTH: %.*s): %s", where, (int)strcspn(line, " "), line,
                    why);
    fault->settings = true;
    return fault->code;
}

static int refused_select(uint32_t db, const char *line, const char *where, fby_redis_fault_t *fault)
{
    int code = fby_redis_error_code(line);
    fby_redis_fault(fault, code, "%s refuses database %u (option db): %.120s", where, db, line);
    fault->settings = code == FBY_E_INVALID;
    return code;
}

static int login_step(fby_redis_conn_t *conn, uint64_t deadline_ns, int argc, const char *const *argv,
                      const char *where, redisReply **reply, fby_redis_fault_t *fault)
{
    int status = fby_redis_conn_ask(conn, deadline_ns, argc, argv, reply);
    if (status != 0) {
        const char *why =
            status == FBY_E_TIMEOUT ? "did not answer the login in time" : "ended the connection at login";
        return fby_redis_fault(fault, status, "%s %s", where, why);
    }
    return 0;
}

static int login(fby_redis_conn_t *conn, const fby_redis_config_t *config, uint64_t deadline_ns, const char *where,
                 fby_redis_fault_t *fault)
{
    redisReply *reply = NULL;
    int status = 0;
    if (config->has_password) {
        bool named = config->username[0] != '\0';
        const char *const argv[] = {"AUTH", named ? config->username : config->password, config->password};
        status = login_step(conn, deadline_ns, named ? 3 : 2, argv, where, &reply, fault);
        if (status == 0 && reply != NULL && reply->type == REDIS_REPLY_ERROR) {
            status = refused_login(reply->str, where, fault);
        }
        freeReplyObject(reply);
        reply = NULL;
    }
    if (status == 0 && config->db != 0) {
        char db[16];
        snprintf(db, sizeof(db), "%u", config->db);
        const char *const argv[] = {"SELECT", db};
        status = login_step(conn, deadline_ns, 2, argv, where, &reply, fault);
        if (status == 0 && reply != NULL && reply->type == REDIS_REPLY_ERROR) {
            status = refused_select(config->db, reply->str, where, fault);
        }
        freeReplyObject(reply);
    }
    return status;
}

static int agree_on_tls(fby_redis_conn_t *conn, uint64_t deadline_ns, const char *where, fby_redis_fault_t *fault)
{
    for (;;) {
        char why[200] = "";
        short events = 0;
        int status = fby_redis_tls_handshake(conn->tls, &events, why, sizeof(why));
        if (status == 0) {
            return 0;
        }
        if (status == -EAGAIN) {
            if (fby_redis_wait(conn->fd, events, deadline_ns) != 0) {
                return fby_redis_fault(fault, FBY_E_TIMEOUT,
                                       "%s did not answer the TLS handshake in time (a plain port? option tls=off)",
                                       where);
            }
            continue;
        }
        if (status == -EPROTO) {
            fby_redis_fault(fault, FBY_E_CONNECTION, "%s: %s", where, why);
            fault->settings = true;
            return fault->code;
        }
        return fby_redis_fault(fault, FBY_E_CONNECTION, "%s ended the connection in the TLS handshake", where);
    }
}

int fby_redis_conn_open(const fby_redis_config_t *config, struct ssl_ctx_st *tls, const fby_redis_endpoint_t *endpoint,
                        fby_redis_conn_t **out, fby_redis_fault_t *fault)
{
    char where[FBY_REDIS_ENDPOINT_TEXT_BYTES];
    fby_redis_fault_t unread;
    fault = fault != NULL ? fault : &unread;
    fby_redis_endpoint_text(endpoint, where, sizeof(where));
    uint64_t deadline_ns = fby_add_sat(fby_clock_now(&fby_clock_monotonic), config->connect_timeout_ns);
    fby_redis_conn_t *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return fby_redis_fault(fault, FBY_E_CONNECTION, "out of memory for a connection");
    }
    conn->send_wait = POLLOUT;
    conn->recv_wait = POLLIN;
    int status = conn->fd = fby_redis_connect(endpoint, deadline_ns, fault);
    status = FBY_MIN(status, 0);
    if (status == 0 && tls != NULL) {
        conn->tls = fby_redis_tls_new(tls, config, endpoint->host, conn->fd);
        status = conn->tls != NULL ? agree_on_tls(conn, deadline_ns, where, fault)
                                   : fby_redis_fault(fault, FBY_E_CONNECTION, "out of memory for TLS");
    }
    status = status == 0 ? login(conn, config, deadline_ns, where, fault) : status;
    if (status != 0) {
        fby_redis_conn_close(conn);
        return status;
    }
    *out = conn;
    return 0;
}
