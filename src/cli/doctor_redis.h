/* doctor_redis.h - the open connection that the checks of a Redis share. */
#ifndef FBY_CLI_DOCTOR_REDIS_H
#define FBY_CLI_DOCTOR_REDIS_H

#include "cli/doctor.h"
#include "stores/redis_conn.h"

typedef struct fby_doctor_redis {
    fby_redis_config_t config; /* wiped when closed: it holds the password */
    struct ssl_ctx_st *tls;    /* NULL: none */
    fby_redis_conn_t *conn;
    const fby_redis_endpoint_t *endpoint; /* of config.seeds: the one that answered */
    char *info;                           /* what INFO says, or NULL */
    bool anonymous;                       /* it also obeys those who do not log in */
} fby_doctor_redis_t;

/* NULL is fine. */
void fby_doctor_redis_close(fby_doctor_redis_t *redis);
/* Opens, logs in, asks INFO. NULL after a finding. */
fby_doctor_redis_t *fby_doctor_redis_open(fby_doctor_t *doctor);
/* A number or word of INFO; false when it is not there. */
bool fby_doctor_redis_info(const fby_doctor_redis_t *redis, const char *field, char *out, size_t capacity);
/* A setting by CONFIG GET; false when the server does not tell. */
bool fby_doctor_redis_setting(fby_doctor_redis_t *redis, const char *name, char *out, size_t capacity);

#endif
