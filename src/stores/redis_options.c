#include "stores/redis_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "forebay/forebay.h"
#include "stores/options.h"

/* X(name) */
#define OPTION_MAP(X)                                                                                                  \
    X(host)                                                                                                            \
    X(port)                                                                                                            \
    X(unix)                                                                                                            \
    X(seeds)                                                                                                           \
    X(cluster)                                                                                                         \
    X(username)                                                                                                        \
    X(password)                                                                                                        \
    X(password_file)                                                                                                   \
    X(db)                                                                                                              \
    X(prefix)                                                                                                          \
    X(ttl_s)                                                                                                           \
    X(timeout_ms)                                                                                                      \
    X(connect_timeout_ms)                                                                                              \
    X(connections)                                                                                                     \
    X(tls)                                                                                                             \
    X(tls_ca)                                                                                                          \
    X(tls_cert)                                                                                                        \
    X(tls_key)                                                                                                         \
    X(tls_server_name)                                                                                                 \
    X(tls_verify)

#define FBY_X(name) #name,
static const char *const option_names[] = {OPTION_MAP(FBY_X) NULL};
#undef FBY_X

#define DEFAULT_HOST "127.0.0.1"
#define DEFAULT_PREFIX "fby:"

enum {
    DEFAULT_PORT = 6379,
    DEFAULT_CONNECTIONS = 16,
    MOST_CONNECTIONS = 1024,
    DEFAULT_TIMEOUT_MS = 5000,
    DEFAULT_CONNECT_TIMEOUT_MS = 1000,
    MOST_TTL_S = 315360000 /* ten years */
};

/* Not fby_options_known: what stands behind an unknown name may be a password. */
static int check_names(const fby_options_t *options)
{
    for (const char *const *at = options->list; at != NULL && *at != NULL; at++) {
        const char *equals = strchr(*at, '=');
        size_t length = equals != NULL ? (size_t)(equals - *at) : 0;
        bool known = false;
        for (const char *const *name = option_names; *name != NULL && !known && length > 0; name++) {
            known = strlen(*name) == length && memcmp(*name, *at, length) == 0;
        }
        if (known) {
            continue;
        }
#define FBY_X(name) ", " #name
        static const char accepted[] = OPTION_MAP(FBY_X);
#undef FBY_X
        if (equals == NULL) {
            return fby_option_fail(options, FBY_E_CONFIG, "an option has no '='; accepted: name=value, names: %s",
                                   accepted + 2);
        }
        return fby_option_fail(options, FBY_E_CONFIG, "'%.*s' is not an option of it; accepted names: %s",
                               (int)FBY_MIN(length, (size_t)80), *at, accepted + 2);
    }
    return 0;
}

/* Copies the option's text; `accepted` stands in the message when it does not fit. Absent: leaves `out` alone. */
static int read_text(const fby_options_t *options, const char *name, char *out, size_t capacity, const char *accepted)
{
    const char *text = fby_option_get(options, name);
    if (text == NULL) {
        return 0;
    }
    if (*text == '\0' || strlen(text) >= capacity) {
        return fby_option_bad(options, name, text, accepted);
    }
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

/* ---- Where ---- */

bool fby_redis_endpoint_parse(const char *text, size_t length, fby_redis_endpoint_t *out)
{
    const char *colon = memrchr(text, ':', length);
    uint64_t port;
    if (colon == NULL || !fby_text_u64(colon + 1, length - (size_t)(colon + 1 - text), &port) || port == 0 ||
        port > 65535) {
        return false;
    }
    size_t host_length = (size_t)(colon - text);
    bool bracketed = host_length > 2 && text[0] == '[' && text[host_length - 1] == ']';
    if (bracketed) {
        text++;
        host_length -= 2;
    } else if (memchr(text, ':', host_length) != NULL || memchr(text, '[', host_length) != NULL) {
        return false; /* a v6 address without brackets: where its port begins is a guess */
    }
    if (host_length == 0 || host_length >= sizeof(out->host)) {
        return false;
    }
    memset(out, 0, sizeof(*out));
    memcpy(out->host, text, host_length);
    out->port = (uint32_t)port;
    return true;
}

bool fby_redis_endpoint_equal(const fby_redis_endpoint_t *a, const fby_redis_endpoint_t *b)
{
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}

const char *fby_redis_endpoint_text(const fby_redis_endpoint_t *endpoint, char *out, size_t capacity)
{
    if (endpoint->port == 0) {
        snprintf(out, capacity, "%s", endpoint->host);
    } else {
        bool v6 = strchr(endpoint->host, ':') != NULL;
        snprintf(out, capacity, "%s%s%s:%u", v6 ? "[" : "", endpoint->host, v6 ? "]" : "", endpoint->port);
    }
    return out;
}

static int read_seeds(const fby_options_t *options, fby_redis_config_t *config)
{
    static const char separators[] = "+, ";
    static const char accepted[] = "1 to 16 HOST:PORT or [V6]:PORT, with '+' between them";
    const char *text = fby_option_get(options, "seeds");
    for (const char *at = text; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, separators);
        if (length > 0 && (config->seed_count == FBY_REDIS_SEEDS_MOST ||
                           !fby_redis_endpoint_parse(at, length, &config->seeds[config->seed_count++]))) {
            return fby_option_bad(options, "seeds", text, accepted);
        }
        at += length + strspn(at + length, separators);
    }
    return config->seed_count > 0 ? 0 : fby_option_bad(options, "seeds", text, accepted);
}

static int read_place(const fby_options_t *options, fby_redis_config_t *config)
{
    fby_redis_endpoint_t *first = &config->seeds[0];
    const char *path = fby_option_get(options, "unix"), *host = fby_option_get(options, "host");
    bool has_seeds = fby_option_get(options, "seeds") != NULL, has_port = fby_option_get(options, "port") != NULL;
    if (path != NULL && (host != NULL || has_port || has_seeds || config->cluster || config->tls)) {
        return fby_option_bad(options, "unix", path, "it alone, without host, port, seeds, cluster and tls");
    }
    if (has_seeds && !config->cluster) {
        return fby_option_bad(options, "seeds", fby_option_get(options, "seeds"), "only with cluster=on");
    }
    if (path != NULL) {
        config->seed_count = 1; /* 108: what the system's address of a Unix socket holds */
        return read_text(options, "unix", first->host, 108, "a path of 1 to 107 bytes");
    }
    if (host != NULL || has_port || !has_seeds) {
        first->port = DEFAULT_PORT;
        snprintf(first->host, sizeof(first->host), "%s", DEFAULT_HOST);
        config->seed_count = 1;
        int status = read_text(options, "host", first->host, sizeof(first->host), "a name or an address");
        status = status == 0 ? fby_option_u32(options, "port", 1, 65535, &first->port) : status;
        if (status != 0) {
            return status;
        }
    }
    return read_seeds(options, config);
}

/* ---- Who ---- */

static int read_password_file(const fby_options_t *options, const char *path, fby_redis_config_t *config)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return fby_option_fail(options, FBY_E_CONFIG, "option password_file is '%.200s': %s; accepted: a readable file",
                               path, strerror(errno));
    }
    setbuf(file, NULL); /* no copy of it in a buffer that is not wiped */
    size_t length = fread(config->password, 1, sizeof(config->password), file);
    fclose(file);
    while (length > 0 && (config->password[length - 1] == '\n' || config->password[length - 1] == '\r')) {
        length--;
    }
    if (length == 0 || length == sizeof(config->password) || memchr(config->password, '\0', length) != NULL) {
        return fby_option_bad(options, "password_file", path, "a file that holds 1 to 1023 bytes of text");
    }
    config->password[length] = '\0';
    config->has_password = true;
    return 0;
}

static int read_user(const fby_options_t *options, fby_redis_config_t *config)
{
    const char *password = fby_option_get(options, "password"), *path = fby_option_get(options, "password_file");
    int status = read_text(options, "username", config->username, sizeof(config->username), "a name of 1 to 255 bytes");
    if (status != 0) {
        return status;
    }
    if (password != NULL && path != NULL) {
        return fby_option_bad(options, "password_file", path, "one of password and password_file, not both");
    }
    if (password != NULL && (*password == '\0' || strlen(password) >= sizeof(config->password))) {
        return fby_option_bad(options, "password", "(a hidden value)", "1 to 1023 bytes");
    }
    if (password != NULL) {
        memcpy(config->password, password, strlen(password) + 1);
        config->has_password = true;
    }
    if (path != NULL && (status = read_password_file(options, path, config)) != 0) {
        return status;
    }
    if (config->username[0] != '\0' && !config->has_password) {
        return fby_option_bad(options, "username", config->username, "together with password or password_file");
    }
    return 0;
}

/* ---- TLS ---- */

static int read_tls(const fby_options_t *options, fby_redis_config_t *config)
{
    static const char path_accepted[] = "a path of 1 to 1023 bytes";
    static const char *const needs_tls[] = {"tls_ca", "tls_cert", "tls_key", "tls_server_name", "tls_verify", NULL};
    for (const char *const *name = needs_tls; *name != NULL && !config->tls; name++) {
        if (fby_option_get(options, *name) != NULL) {
            return fby_option_bad(options, *name, fby_option_get(options, *name), "only with tls=on");
        }
    }
    int status = read_text(options, "tls_ca", config->tls_ca, sizeof(config->tls_ca), path_accepted);
    status = status != 0 ? status
                         : read_text(options, "tls_cert", config->tls_cert, sizeof(config->tls_cert), path_accepted);
    status =
        status != 0 ? status : read_text(options, "tls_key", config->tls_key, sizeof(config->tls_key), path_accepted);
    status = status != 0 ? status
                         : read_text(options, "tls_server_name", config->tls_server_name,
                                     sizeof(config->tls_server_name), "a name of 1 to 255 bytes");
    status = status != 0 ? status : fby_option_bool(options, "tls_verify", &config->tls_verify);
    if (status == 0 && (config->tls_cert[0] == '\0') != (config->tls_key[0] == '\0')) {
        bool cert = config->tls_cert[0] != '\0';
        return fby_option_bad(options, cert ? "tls_cert" : "tls_key", cert ? config->tls_cert : config->tls_key,
                              "tls_cert and tls_key together");
    }
    return status;
}

/* ---- All ---- */

static int read_prefix(const fby_options_t *options, fby_redis_config_t *config)
{
    const char *prefix = fby_option_get(options, "prefix");
    if (prefix == NULL) {
        prefix = DEFAULT_PREFIX;
    }
    if (strlen(prefix) > FBY_REDIS_PREFIX_MOST) {
        return fby_option_bad(options, "prefix", prefix, "at most 64 bytes");
    }
    memcpy(config->prefix, prefix, strlen(prefix) + 1);
    return 0;
}

static int read_limits(const fby_options_t *options, fby_redis_config_t *config)
{
    int status = fby_option_u32(options, "db", 0, 65535, &config->db);
    status = status != 0 ? status : fby_option_u32(options, "ttl_s", 0, MOST_TTL_S, &config->ttl_s);
    status = status != 0 ? status : fby_option_u32(options, "connections", 1, MOST_CONNECTIONS, &config->connections);
    status = status != 0 ? status : fby_option_ms(options, "timeout_ms", &config->timeout_ns);
    status = status != 0 ? status : fby_option_ms(options, "connect_timeout_ms", &config->connect_timeout_ns);
    if (status != 0) {
        return status;
    }
    static const char limit_accepted[] = "milliseconds from 1 to 1000000000: a call must end";
    if (config->timeout_ns < FBY_MS) {
        return fby_option_bad(options, "timeout_ms", fby_option_get(options, "timeout_ms"), limit_accepted);
    }
    if (config->connect_timeout_ns < FBY_MS) {
        return fby_option_bad(options, "connect_timeout_ms", fby_option_get(options, "connect_timeout_ms"),
                              limit_accepted);
    }
    if (config->cluster && config->db != 0) {
        return fby_option_bad(options, "db", fby_option_get(options, "db"),
                              "0 with cluster=on: a cluster has no other");
    }
    return 0;
}

int fby_redis_config_read(const char *const *list, fby_redis_config_t *out, char *error, size_t error_size)
{
    const fby_options_t options = fby_options_make(list, "redis", error, error_size);
    *out = (fby_redis_config_t){.connections = DEFAULT_CONNECTIONS,
                                .timeout_ns = DEFAULT_TIMEOUT_MS * FBY_MS,
                                .connect_timeout_ns = DEFAULT_CONNECT_TIMEOUT_MS * FBY_MS,
                                .tls_verify = true};
    int status = check_names(&options);
    status = status != 0 ? status : fby_option_bool(&options, "cluster", &out->cluster);
    status = status != 0 ? status : fby_option_bool(&options, "tls", &out->tls);
    status = status != 0 ? status : read_place(&options, out);
    status = status != 0 ? status : read_prefix(&options, out);
    status = status != 0 ? status : read_user(&options, out);
    status = status != 0 ? status : read_limits(&options, out);
    return status != 0 ? status : read_tls(&options, out);
}
