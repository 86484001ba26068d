/* bench_native_redis.c - hiredis as its users use it: pipelined GETs, a connection per worker, a copy per reply. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/bench_native.h"

enum { LIMIT_S = 30 };
#define DRIVER_PREFIX "fby:" /* of the driver's keys, where the option says nothing else */

typedef struct own {
    redisContext **connection; /* by worker */
    const char *prefix;        /* of keys */
} own_t;

static int broken(const redisContext *connection, const char *what)
{
    fby_error_set("the native client (hiredis): %s: %s", what,
                  connection != NULL && *connection->errstr != '\0' ? connection->errstr : "no answer");
    return FBY_E_CONNECTION;
}

/* Sends one command that answers with a status. */
static int command(redisContext *connection, int count, const char **words)
{
    redisReply *reply = redisCommandArgv(connection, count, words, NULL);
    int status = reply == NULL ? broken(connection, words[0]) : 0;
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR) {
        fby_error_set("the native client (hiredis): %s: %s", words[0], reply->str);
        status = FBY_E_INVALID;
    }
    freeReplyObject(reply);
    return status;
}

static int sign_in(const fby_bench_native_t *native, redisContext *connection)
{
    const char *user = fby_bench_native_option(native, "username", NULL);
    const char *password = fby_bench_native_option(native, "password", NULL);
    const char *database = fby_bench_native_option(native, "db", NULL);
    const char *as_user[] = {"AUTH", user, password}, *as_default[] = {"AUTH", password},
               *select[] = {"SELECT", database};
    int status = 0;
    if (password != NULL) {
        status = user != NULL ? command(connection, 3, as_user) : command(connection, 2, as_default);
    }
    return status == 0 && database != NULL ? command(connection, 2, select) : status;
}

static int connect_one(const fby_bench_native_t *native, redisContext **out)
{
    const struct timeval limit = {.tv_sec = LIMIT_S};
    const char *socket = fby_bench_native_option(native, "unix", NULL);
    const char *host = fby_bench_native_option(native, "host", "127.0.0.1");
    const char *port = fby_bench_native_option(native, "port", "6379");
    redisContext *connection =
        socket != NULL ? redisConnectUnix(socket) : redisConnectWithTimeout(host, atoi(port), limit);
    *out = connection;
    if (connection == NULL || connection->err != 0) {
        return broken(connection, socket != NULL ? socket : host);
    }
    redisSetTimeout(connection, limit);
    return sign_in(native, connection);
}

/* What the driver can and this plain client does not. */
static int refuse_others(const fby_bench_native_t *native)
{
    static const char *const others[] = {"seeds", "cluster", "tls", "password_file"};
    for (size_t i = 0; i < FBY_ARRAY_LEN(others); i++) {
        if (fby_bench_native_option(native, others[i], NULL) != NULL) {
            fby_error_set("the native client (hiredis) does not know option %s; accepted: --arms without native, or "
                          "--native COMMAND",
                          others[i]);
            return FBY_E_CONFIG;
        }
    }
    return 0;
}

static int client_open(fby_bench_native_t *native)
{
    own_t *own = native->own = calloc(1, sizeof(*own));
    if (own == NULL || (own->connection = calloc(native->workers, sizeof(redisContext *))) == NULL) {
        fby_error_set("out of memory");
        return -ENOMEM;
    }
    own->prefix = fby_bench_native_option(native, "prefix", DRIVER_PREFIX);
    int status = refuse_others(native);
    for (uint32_t i = 0; i < native->workers && status == 0; i++) {
        status = connect_one(native, &own->connection[i]);
    }
    return status;
}

static void client_close(fby_bench_native_t *native)
{
    own_t *own = native->own;
    for (uint32_t i = 0; own != NULL && own->connection != NULL && i < native->workers; i++) {
        if (own->connection[i] != NULL) {
            redisFree(own->connection[i]);
        }
    }
    if (own != NULL) {
        free(own->connection);
    }
    free(own);
}

static int receive(fby_bench_native_t *native, redisContext *connection, uint32_t worker, uint32_t prompt,
                   uint64_t block)
{
    void *answer = NULL;
    if (redisGetReply(connection, &answer) != REDIS_OK) {
        return broken(connection, "GET");
    }
    redisReply *reply = answer;
    int status = 0;
    if (reply->type != REDIS_REPLY_STRING || reply->len != native->set->object_bytes) {
        status = fby_bench_native_fault(native, prompt, block,
                                        reply->type == REDIS_REPLY_ERROR ? reply->str : "missing, or of another length",
                                        FBY_E_MISSING);
    } else {
        memcpy(fby_bench_native_block(native, worker, block), reply->str, reply->len);
    }
    freeReplyObject(reply);
    return status;
}

static int client_read(fby_bench_native_t *native, uint32_t worker, uint32_t prompt, uint64_t *ns)
{
    const own_t *own = native->own;
    redisContext *connection = own->connection[worker];
    uint64_t from = fby_clock_now(&fby_clock_monotonic);
    for (uint64_t i = 0; i < native->set->blocks; i++) {
        if (redisAppendCommand(connection, "GET %s%s", own->prefix, fby_bench_native_key(native, prompt, i)) !=
            REDIS_OK) {
            return broken(connection, "GET");
        }
    }
    int status = 0;
    for (uint64_t i = 0; i < native->set->blocks && status == 0; i++) {
        status = receive(native, connection, worker, prompt, i);
    }
    *ns = fby_clock_now(&fby_clock_monotonic) - from;
    return status;
}

const fby_bench_client_t fby_bench_client_redis = {"hiredis, pipelined GET with a copy", client_open, client_read,
                                                   client_close};
