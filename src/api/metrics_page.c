#include "api/metrics_page.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime/listen.h"

enum {
    MOST_CONNECTIONS = 16,
    IDLE_LIMIT_S = 10,            /* of a connection */
    CONNECTION_BYTES = 16 * 1024, /* request line and headers; more is refused */
    FIRST_TEXT_BYTES = 32 * 1024,
    BACKLOG = 16,
    ADDRESS_BYTES = 64,
    LINE_BYTES = 256
};

struct fby_metrics_page {
    fby_cache_t *cache;
    struct MHD_Daemon *daemon;
    uint16_t port;
};

/* ---- Answers ---------------------------------------------------------------------------------------------------- */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type,
                              struct MHD_Response *response)
{
    if (response == NULL) {
        return MHD_NO; /* out of memory: the connection ends */
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status, const char *text)
{
    char line[LINE_BYTES];
    int n = snprintf(line, sizeof(line), "%s\n", text);
    size_t length = FBY_MIN((size_t)FBY_MAX(n, 0), sizeof(line) - 1);
    return answer(connection, status, "text/plain; charset=utf-8",
                  MHD_create_response_from_buffer(length, line, MHD_RESPMEM_MUST_COPY));
}

/* All of the metrics, malloc'ed. Figures may need more room from one call to the next. */
static int metrics_text(fby_cache_t *cache, char **out)
{
    size_t needed = FIRST_TEXT_BYTES;
    int rc = -ENOSPC;
    char *text = NULL;
    while (rc == -ENOSPC) {
        size_t capacity = needed + needed / 8;
        free(text);
        text = malloc(capacity);
        rc = text == NULL ? -ENOMEM : fby_cache_metrics(cache, text, capacity, &needed);
    }
    if (rc != 0) {
        free(text);
        return rc;
    }
    *out = text;
    return 0;
}

static enum MHD_Result serve_metrics(fby_cache_t *cache, struct MHD_Connection *connection)
{
    char *text;
    int rc = metrics_text(cache, &text);
    if (rc != 0) {
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, fby_strerror(rc));
    }
    struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(text);
    }
    return answer(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", response);
}

static enum MHD_Result serve_health(fby_cache_t *cache, struct MHD_Connection *connection)
{
    fby_health_t health = {.size = sizeof(health)};
    int rc = fby_cache_health(cache, &health);
    if (rc != 0) {
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, fby_strerror(rc));
    }
    if (health.healthy == 0) {
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, health.message);
    }
    return answer_text(connection, MHD_HTTP_OK, "healthy");
}

static enum MHD_Result serve(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                             const char *version, const char *upload, size_t *upload_bytes, void **state)
{
    fby_metrics_page_t *page = arg;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD");
    }
    if (strcmp(url, "/metrics") == 0) {
        return serve_metrics(page->cache, connection);
    }
    if (strcmp(url, "/health") == 0) {
        return serve_health(page->cache, connection);
    }
    return answer_text(connection, MHD_HTTP_NOT_FOUND, "pages: /metrics, /health");
}

/* ---- Open and close --------------------------------------------------------------------------------------------- */

static int refused(const char *listen, int error)
{
    fby_error_set(
        "metrics.listen: %s cannot be listened on: %s; accepted: an address of this machine whose port is free", listen,
        strerror(error));
    return -error;
}

static int socket_open(const char *text, fby_listen_t *listen_at, int *out)
{
    int on = 1, error;
    int fd = socket(listen_at->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return refused(text, errno);
    }
    /* A port whose connections are still closing is free. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&listen_at->address, listen_at->length) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&listen_at->address, &listen_at->length) != 0) {
        error = errno;
        close(fd);
        return refused(text, error);
    }
    *out = fd;
    return 0;
}

/* No signal of the host lands on the library's thread. */
static struct MHD_Daemon *daemon_start(fby_metrics_page_t *page, int fd)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL, NULL, serve, page,
                         MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MOST_CONNECTIONS,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_LIMIT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                         (size_t)CONNECTION_BYTES, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return daemon;
}

int fby_metrics_page_open(fby_cache_t *cache, const char *listen, fby_metrics_page_t **out)
{
    fby_listen_t listen_at;
    char address[ADDRESS_BYTES];
    int fd = -1;
    *out = NULL;
    if (!fby_listen_parse(listen, &listen_at) || !listen_at.on) {
        return 0;
    }
    int rc = socket_open(listen, &listen_at, &fd);
    if (rc != 0) {
        return rc;
    }
    fby_metrics_page_t *page = calloc(1, sizeof(*page));
    if (page == NULL) {
        close(fd);
        return refused(listen, ENOMEM);
    }
    page->cache = cache;
    page->port = ntohs(((const struct sockaddr_in *)&listen_at.address)->sin_port); /* in6 has it there, too */
    page->daemon = daemon_start(page, fd);
    if (page->daemon == NULL) {
        close(fd);
        free(page);
        return refused(listen, EAGAIN);
    }
    fby_log(FBY_LOG_INFO, "metrics_listen", "address=%s",
            fby_listen_text(&listen_at.address, address, sizeof(address)));
    *out = page;
    return 0;
}

uint16_t fby_metrics_page_port(const fby_metrics_page_t *page)
{
    return page->port;
}

/* The port is free at once, also when a child of fork() still has the descriptor. */
void fby_metrics_page_close(fby_metrics_page_t *page)
{
    if (page == NULL) {
        return;
    }
    int fd = MHD_quiesce_daemon(page->daemon);
    if (fd >= 0) {
        shutdown(fd, SHUT_RDWR);
        close(fd);
    }
    MHD_stop_daemon(page->daemon);
    free(page);
}
