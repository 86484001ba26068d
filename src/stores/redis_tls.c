#include "stores/redis_tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "forebay/forebay.h"
#include "stores/options.h"

/* ---- A socket that never raises SIGPIPE: a library may not change what its host does about signals ---- */

static int bio_result(BIO *bio, ssize_t moved, int retry)
{
    BIO_clear_retry_flags(bio);
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) {
        BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    }
    return (int)moved;
}

static int bio_read(BIO *bio, char *data, int bytes)
{
    return bio_result(bio, recv((int)(intptr_t)BIO_get_data(bio), data, (size_t)bytes, 0), BIO_FLAGS_READ);
}

static int bio_write(BIO *bio, const char *data, int bytes)
{
    return bio_result(bio, send((int)(intptr_t)BIO_get_data(bio), data, (size_t)bytes, MSG_NOSIGNAL), BIO_FLAGS_WRITE);
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *bio_method;

/* Lives as long as the process: connections of all stores use it. */
static void bio_method_make(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "forebay socket");
    if (method == NULL || BIO_meth_set_read(method, bio_read) != 1 || BIO_meth_set_write(method, bio_write) != 1 ||
        BIO_meth_set_ctrl(method, bio_control) != 1) {
        BIO_meth_free(method);
        return;
    }
    bio_method = method;
}

static BIO *bio_new(int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, bio_method_make);
    BIO *bio = bio_method != NULL ? BIO_new(bio_method) : NULL;
    if (bio != NULL) {
        BIO_set_data(bio, (void *)(intptr_t)fd);
        BIO_set_init(bio, 1);
    }
    return bio;
}

/* ---- Context ---- */

/* The reason of the newest error of this thread, without the names of OpenSSL's functions. */
static const char *reason(void)
{
    unsigned long code = ERR_peek_last_error();
    const char *text = code != 0 ? ERR_reason_error_string(code) : NULL;
    return text != NULL ? text : "no reason given";
}

static int load_files(SSL_CTX *context, const fby_redis_config_t *config, const fby_options_t *options)
{
    ERR_clear_error();
    if (config->tls_ca[0] != '\0' && SSL_CTX_load_verify_locations(context, config->tls_ca, NULL) != 1) {
        return fby_option_fail(options, FBY_E_CONFIG,
                               "option tls_ca is '%.200s': %s; accepted: a file of certificates in PEM", config->tls_ca,
                               reason());
    }
    if (config->tls_ca[0] == '\0' && config->tls_verify && SSL_CTX_set_default_verify_paths(context) != 1) {
        return fby_option_fail(options, FBY_E_CONFIG, "the system's trusted certificates cannot be read: %s", reason());
    }
    if (config->tls_cert[0] != '\0' && SSL_CTX_use_certificate_chain_file(context, config->tls_cert) != 1) {
        return fby_option_fail(options, FBY_E_CONFIG,
                               "option tls_cert is '%.200s': %s; accepted: a certificate chain in PEM",
                               config->tls_cert, reason());
    }
    if (config->tls_key[0] != '\0' && (SSL_CTX_use_PrivateKey_file(context, config->tls_key, SSL_FILETYPE_PEM) != 1 ||
                                       SSL_CTX_check_private_key(context) != 1)) {
        return fby_option_fail(options, FBY_E_CONFIG,
                               "option tls_key is '%.200s': %s; accepted: the key of tls_cert in PEM, not encrypted",
                               config->tls_key, reason());
    }
    return 0;
}

/* An encrypted key would ask a terminal. */
static int no_password(char *data, int bytes, int writes, void *arg)
{
    (void)data, (void)bytes, (void)writes, (void)arg;
    return 0;
}

int fby_redis_tls_context(const fby_redis_config_t *config, struct ssl_ctx_st **out, char *error, size_t error_size)
{
    const fby_options_t options = fby_options_make(NULL, "redis", error, error_size);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL) {
        return fby_option_fail(&options, FBY_E_CONFIG, "option tls: OpenSSL cannot be set up: %s", reason());
    }
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_passwd_cb(context, no_password);
    SSL_CTX_set_verify(context, config->tls_verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    int status = load_files(context, config, &options);
    if (status != 0) {
        SSL_CTX_free(context);
        return status;
    }
    *out = context;
    return 0;
}

void fby_redis_tls_context_free(struct ssl_ctx_st *context)
{
    SSL_CTX_free(context);
}

/* ---- Connections ---- */

static bool is_address(const char *host)
{
    struct in6_addr v6;
    struct in_addr v4;
    return inet_pton(AF_INET, host, &v4) == 1 || inet_pton(AF_INET6, host, &v6) == 1;
}

/* Which name the certificate has to carry; a name is also told to the server (SNI), an address may not be. */
static bool expect_name(SSL *tls, const char *name)
{
    if (is_address(name)) {
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), name) == 1;
    }
    return SSL_set1_host(tls, name) == 1 && SSL_set_tlsext_host_name(tls, name) == 1;
}

struct ssl_st *fby_redis_tls_new(struct ssl_ctx_st *context, const fby_redis_config_t *config, const char *host, int fd)
{
    SSL *tls = SSL_new(context);
    BIO *bio = tls != NULL ? bio_new(fd) : NULL;
    if (bio == NULL || !expect_name(tls, config->tls_server_name[0] != '\0' ? config->tls_server_name : host)) {
        BIO_free(bio);
        SSL_free(tls);
        return NULL;
    }
    SSL_set_bio(tls, bio, bio);
    SSL_set_connect_state(tls);
    return tls;
}

void fby_redis_tls_free(struct ssl_st *tls)
{
    SSL_free(tls);
}

/* -EAGAIN with *events, or -ECONNRESET, or -EPROTO. */
static int classify(SSL *tls, int result, short *events)
{
    switch (SSL_get_error(tls, result)) {
    case SSL_ERROR_WANT_READ:
        *events = POLLIN;
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        *events = POLLOUT;
        return -EAGAIN;
    case SSL_ERROR_SSL:
        return -EPROTO;
    default:
        return -ECONNRESET;
    }
}

int fby_redis_tls_handshake(struct ssl_st *tls, short *events, char *text, size_t text_size)
{
    ERR_clear_error();
    int result = SSL_do_handshake(tls);
    if (result == 1) {
        return 0;
    }
    int status = classify(tls, result, events);
    long verdict = SSL_get_verify_result(tls);
    if (status == -EPROTO && verdict != X509_V_OK) {
        snprintf(text, text_size, "its certificate is not trusted: %s", X509_verify_cert_error_string(verdict));
    } else if (status == -EPROTO) {
        snprintf(text, text_size, "TLS cannot be agreed on: %s", reason());
    }
    return status;
}

ssize_t fby_redis_tls_read(struct ssl_st *tls, void *data, size_t bytes, short *events)
{
    size_t moved = 0;
    ERR_clear_error();
    int result = SSL_read_ex(tls, data, bytes, &moved);
    if (result == 1) {
        return (ssize_t)moved;
    }
    if (SSL_get_error(tls, result) == SSL_ERROR_ZERO_RETURN) {
        return 0;
    }
    int status = classify(tls, result, events);
    return status == -EAGAIN ? status : -ECONNRESET;
}

ssize_t fby_redis_tls_write(struct ssl_st *tls, const void *data, size_t bytes, short *events)
{
    size_t moved = 0;
    ERR_clear_error();
    int result = SSL_write_ex(tls, data, bytes, &moved);
    if (result == 1) {
        return (ssize_t)moved;
    }
    int status = classify(tls, result, events);
    return status == -EAGAIN ? status : -ECONNRESET;
}
