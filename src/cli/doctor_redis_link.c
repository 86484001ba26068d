/* doctor_redis_link.c - reaches a Redis as the driver does, and asks it about itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/doctor_redis.h"
#include "stores/redis_hiredis.h"
#include "stores/redis_tls.h"

#define ANSWER_NS (5 * FBY_SECOND)

void fby_doctor_redis_close(fby_doctor_redis_t *redis)
{
    if (redis == NULL) {
        return;
    }
    if (redis->conn != NULL) {
        fby_redis_conn_close(redis->conn);
    }
    if (redis->tls != NULL) {
        fby_redis_tls_context_free(redis->tls);
    }
    free(redis->info);
    explicit_bzero(&redis->config, sizeof(redis->config));
    free(redis);
}

/* The reply, to be freed, or NULL. */
static redisReply *ask(fby_redis_conn_t *conn, int argc, const char *const *argv)
{
    redisReply *reply = NULL;
    uint64_t deadline_ns = fby_clock_now(&fby_clock_monotonic) + ANSWER_NS;
    return fby_redis_conn_ask(conn, deadline_ns, argc, argv, &reply) == 0 ? reply : NULL;
}

bool fby_doctor_redis_info(const fby_doctor_redis_t *redis, const char *field, char *out, size_t capacity)
{
    size_t length = strlen(field);
    for (const char *line = redis->info; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, field, length) == 0 && line[length] == ':') {
            snprintf(out, capacity, "%.*s", (int)strcspn(line + length + 1, "\r\n"), line + length + 1);
            return true;
        }
    }
    return false;
}

bool fby_doctor_redis_setting(fby_doctor_redis_t *redis, const char *name, char *out, size_t capacity)
{
    const char *const argv[] = {"CONFIG", "GET", name};
    redisReply *reply = ask(redis->conn, 3, argv);
    bool told = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                reply->element[1]->type == REDIS_REPLY_STRING;
    if (told) {
        snprintf(out, capacity, "%s", reply->element[1]->str);
    }
    freeReplyObject(reply);
    return told;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static bool read_options(fby_doctor_t *doctor, fby_redis_config_t *config)
{
    static const char advice[] = "the option, as docs/redis.md has it";
    char *list[FBY_DOCTOR_OPTIONS], error[512] = "";
    fby_doctor_options_make(doctor, list);
    int status = fby_redis_config_read((const char *const *)list, config, error, sizeof(error));
    fby_doctor_options_free(list);
    if (status != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, advice, "%s", error);
    }
    return status == 0;
}

static bool connect_one(fby_doctor_t *doctor, fby_doctor_redis_t *redis)
{
    fby_redis_fault_t fault = {.code = 0};
    for (uint32_t i = 0; i < redis->config.seed_count && redis->conn == NULL; i++) {
        redis->endpoint = &redis->config.seeds[i];
        if (fby_redis_conn_open(&redis->config, redis->tls, redis->endpoint, &redis->conn, &fault) != 0 &&
            fault.settings) {
            break;
        }
    }
    if (redis->conn == NULL) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL,
                          fault.settings ? "the options username, password, db, tls and what belongs to them"
                                         : "start the server, or correct host and port; for one with TLS, tls=on",
                          "%s", fault.text);
    }
    return redis->conn != NULL;
}

/* A server that wants a login says so in answer to anything. */
static bool greet(fby_doctor_t *doctor, fby_doctor_redis_t *redis)
{
    static const char *const ping[] = {"PING"};
    char where[FBY_REDIS_ENDPOINT_TEXT_BYTES];
    redisReply *reply = ask(redis->conn, 1, ping);
    bool fine = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    fby_redis_endpoint_text(redis->endpoint, where, sizeof(where));
    if (reply == NULL) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "what listens there must be a Redis; for one with TLS, tls=on",
                          "%s does not answer PING", where);
    } else if (!fine && strncmp(reply->str, "NOAUTH", 6) == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL,
                          "password=... or password_file=..., and username=... for an ACL user", "%s wants a login",
                          where);
    } else if (!fine && strncmp(reply->str, "NOPERM", 6) == 0) {
        fine = true; /* the login is right; PING is not among what this user may do */
    } else if (!fine) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "wait for it, or look into its log", "%s answers: %.200s", where,
                          reply->str);
    }
    if (fine) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s answers%s", where,
                          redis->config.has_password ? ", the login is right" : "");
    }
    freeReplyObject(reply);
    return fine;
}

static void ask_info(fby_doctor_redis_t *redis)
{
    static const char *const argv[] = {"INFO"};
    redisReply *reply = ask(redis->conn, 1, argv);
    if (reply != NULL && reply->type == REDIS_REPLY_STRING) {
        redis->info = strdup(reply->str);
    }
    freeReplyObject(reply);
}

/* Asks as somebody who has no password. */
static bool obeys_anybody(const fby_doctor_redis_t *redis)
{
    static const char *const ping[] = {"PING"};
    fby_redis_config_t stranger = redis->config;
    fby_redis_conn_t *conn = NULL;
    bool obeys = false;
    stranger.has_password = false;
    explicit_bzero(stranger.password, sizeof(stranger.password));
    stranger.db = 0;
    if (fby_redis_conn_open(&stranger, redis->tls, redis->endpoint, &conn, NULL) == 0) {
        redisReply *reply = ask(conn, 1, ping);
        obeys = reply != NULL && reply->type == REDIS_REPLY_STATUS;
        freeReplyObject(reply);
        fby_redis_conn_close(conn);
    }
    return obeys;
}

fby_doctor_redis_t *fby_doctor_redis_open(fby_doctor_t *doctor)
{
    char error[512] = "";
    fby_doctor_redis_t *redis = calloc(1, sizeof(*redis));
    if (redis == NULL) {
        doctor->failed = true;
        return NULL;
    }
    bool fine = read_options(doctor, &redis->config);
    if (fine && redis->config.tls && fby_redis_tls_context(&redis->config, &redis->tls, error, sizeof(error)) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "the files that tls_ca, tls_cert and tls_key name", "%s", error);
        fine = false;
    }
    if (!fine || !connect_one(doctor, redis) || !greet(doctor, redis)) {
        fby_doctor_redis_close(redis);
        return NULL;
    }
    ask_info(redis);
    redis->anonymous = !redis->config.has_password || obeys_anybody(redis);
    return redis;
}
