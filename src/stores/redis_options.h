/* redis_options.h - what the Redis driver is told: its options, checked. */
#ifndef FBY_STORES_REDIS_OPTIONS_H
#define FBY_STORES_REDIS_OPTIONS_H

#include "base/base.h"

#define FBY_REDIS_SEEDS_MOST 16u
#define FBY_REDIS_HOST_BYTES 256u
#define FBY_REDIS_PREFIX_MOST 64u

/* Where a server listens. Port 0: host is the path of a Unix socket. */
typedef struct fby_redis_endpoint {
    char host[FBY_REDIS_HOST_BYTES];
    uint32_t port;
} fby_redis_endpoint_t;

typedef struct fby_redis_config {
    fby_redis_endpoint_t seeds[FBY_REDIS_SEEDS_MOST]; /* without cluster: exactly one */
    uint32_t seed_count;
    char username[256], password[1024]; /* never printed; wiped when the store is closed */
    bool has_password;
    bool cluster, tls, tls_verify;
    uint32_t db, ttl_s, connections;
    char prefix[FBY_REDIS_PREFIX_MOST + 1];
    uint64_t timeout_ns, connect_timeout_ns;
    char tls_ca[1024], tls_cert[1024], tls_key[1024]; /* paths; "": none */
    char tls_server_name[FBY_REDIS_HOST_BYTES];       /* "": the host */
} fby_redis_config_t;

/* Fills *out. 0, or FBY_E_CONFIG with a message that names option, value and what is accepted, and no password. */
int fby_redis_config_read(const char *const *list, fby_redis_config_t *out, char *error, size_t error_size);
/* "HOST:PORT", "[V6]:PORT"; false when it is not one. */
bool fby_redis_endpoint_parse(const char *text, size_t length, fby_redis_endpoint_t *out);
bool fby_redis_endpoint_equal(const fby_redis_endpoint_t *a, const fby_redis_endpoint_t *b);
/* For messages: "127.0.0.1:6379", "[::1]:6379" or the path. Returns out. */
const char *fby_redis_endpoint_text(const fby_redis_endpoint_t *endpoint, char *out, size_t capacity);
#define FBY_REDIS_ENDPOINT_TEXT_BYTES (FBY_REDIS_HOST_BYTES + 16)

#endif
