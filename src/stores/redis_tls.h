/* redis_tls.h - TLS over a non-blocking socket: OpenSSL with reads and writes that never raise SIGPIPE. */
#ifndef FBY_STORES_REDIS_TLS_H
#define FBY_STORES_REDIS_TLS_H

#include <sys/types.h>

#include "stores/redis_options.h"

struct ssl_ctx_st;
struct ssl_st;

/* What all connections share: trusted certificates, our own. FBY_E_CONFIG with a message. The caller frees it. */
int fby_redis_tls_context(const fby_redis_config_t *config, struct ssl_ctx_st **out, char *error, size_t error_size);
void fby_redis_tls_context_free(struct ssl_ctx_st *context);

/* For a connected socket, which stays the caller's. NULL: out of memory. */
struct ssl_st *fby_redis_tls_new(struct ssl_ctx_st *context, const fby_redis_config_t *config, const char *host,
                                 int fd);
void fby_redis_tls_free(struct ssl_st *tls);
/*
 * 0: done. -EAGAIN: *events says what to wait for. -ECONNRESET: the other side went away. -EPROTO: it is there, and the
 * two cannot agree, or its certificate is not trusted: text says why.
 */
int fby_redis_tls_handshake(struct ssl_st *tls, short *events, char *text, size_t text_size);
/* Bytes, 0 at the end of the stream, -EAGAIN with *events, or -ECONNRESET. */
ssize_t fby_redis_tls_read(struct ssl_st *tls, void *data, size_t bytes, short *events);
ssize_t fby_redis_tls_write(struct ssl_st *tls, const void *data, size_t bytes, short *events);

#endif
