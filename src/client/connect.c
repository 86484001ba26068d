/* connect.c - the beginning and the end of a cache that asks a server. */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/client.h"
#include "runtime/runtime.h"

/* Shells stay for as long as the process lives, and reachable, so that no leak checker minds. */
static pthread_mutex_t shells_lock = PTHREAD_MUTEX_INITIALIZER;
static fby_cache_t *shells;

/* ---- Options ---------------------------------------------------------------------------------------------------- */

static int option_wrong(const char *name, double value)
{
    fby_error_set("options->%s is %g; accepted: seconds, above 0", name, value);
    return -EINVAL;
}

static bool is_limit(double seconds)
{
    return seconds > 0 && seconds <= 1e9; /* false for NaN */
}

/* Fields that the caller's version does not have stay the default. */
static int options_read(const fby_connect_options_t *given, fby_connect_options_t *out)
{
    static const fby_connect_options_t defaults = FBY_CONNECT_OPTIONS_INIT;
    *out = defaults;
    if (given != NULL) {
        int rc = fby_call_sized("options", given);
        if (rc != 0) {
            return rc;
        }
        for (size_t i = sizeof(*given); i < given->size; i++) {
            if (((const char *)given)[i] != 0) {
                fby_error_set(
                    "options->size is %u and what this version does not know is set; accepted: up to %zu bytes",
                    given->size, sizeof(*given));
                return -EINVAL;
            }
        }
        memcpy(out, given, FBY_MIN(given->size, sizeof(*out)));
    }
    if (!is_limit(out->call_timeout_s)) {
        return option_wrong("call_timeout_s", out->call_timeout_s);
    }
    return is_limit(out->reconnect_s) ? 0 : option_wrong("reconnect_s", out->reconnect_s);
}

/* ---- Connect ---------------------------------------------------------------------------------------------------- */

/* Nobody else is inside. */
static void client_free(fby_client_t *client)
{
    fby_client_forget_all(client);
    fby_client_drop_stash(client);
    fby_link_unref(client, atomic_exchange(&client->link, NULL));
    fby_client_free_retired(client);
    fby_client_forget_sequences(client);
    fby_keyring_unref(client->keyring);
    pthread_mutex_destroy(&client->objects_lock);
    pthread_mutex_destroy(&client->lock);
    if (client->closing_fd >= 0) {
        close(client->closing_fd);
    }
    free(client->drops);
    free(client->ended);
    free(client->buffer);
    free(client->path);
    free(client);
}

static int client_create(fby_cache_t *cache, const char *path, const fby_connect_options_t *options, fby_client_t **out)
{
    fby_client_t *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return -ENOMEM;
    }
    const char *name = options->name != NULL ? options->name : program_invocation_short_name;
    client->cache = cache;
    client->id = fby_cache_number();
    client->call_timeout_ns = FBY_MAX(fby_ns_from_s(options->call_timeout_s), 1);
    client->reconnect_ns = fby_ns_from_s(options->reconnect_s);
    memcpy(client->name, name, strnlen(name, sizeof(client->name) - 1));
    pthread_mutex_init(&client->lock, NULL);
    pthread_mutex_init(&client->objects_lock, NULL);
    client->path = strdup(path);
    client->buffer = aligned_alloc(64, FBY_MSG_MOST);
    client->closing_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->closing_fd < 0 || client->path == NULL || client->buffer == NULL) {
        int rc = client->closing_fd < 0 ? -errno : -ENOMEM;
        fby_error_set("connection: %s", fby_strerror(rc));
        client_free(client);
        return rc;
    }
    *out = client;
    return 0;
}

static int client_open(fby_client_t *client)
{
    fby_link_t *link;
    const fby_link_self_t self = {.name = client->name};
    int rc = fby_link_open(client->path, &self, fby_client_deadline(client->call_timeout_ns), client->buffer, &link);
    if (rc != 0) {
        return rc;
    }
    atomic_store(&client->link, link);
    client->model = link->welcome.model;
    memcpy(client->fingerprint, link->welcome.keyring.fingerprint, sizeof(client->fingerprint));
    return fby_client_take_keyring(client, &link->welcome.keyring);
}

int fby_connect(const char *path, const fby_connect_options_t *options, fby_cache_t **out)
{
    fby_connect_options_t full;
    if (path == NULL || out == NULL) {
        return fby_call_null(path == NULL ? "path" : "out");
    }
    int rc = options_read(options, &full);
    if (rc != 0) {
        return rc;
    }
    fby_cache_t *cache = calloc(1, sizeof(*cache));
    if (cache == NULL) {
        return -ENOMEM;
    }
    rc = client_create(cache, path, &full, &cache->client);
    if (rc != 0) {
        free(cache);
        return rc;
    }
    rc = client_open(cache->client);
    if (rc != 0) {
        client_free(cache->client);
        free(cache);
        return rc;
    }
    cache->calls = &fby_client_calls;
    cache->born_in = fby_fork_generation();
    pthread_mutex_init(&cache->lock, NULL);
    fby_condition_init(&cache->changed);
    pthread_mutex_lock(&shells_lock);
    cache->next = shells;
    shells = cache;
    pthread_mutex_unlock(&shells_lock);
    *out = cache;
    return 0;
}

int fby_client_cache_connected(fby_cache_t *cache)
{
    fby_client_t *client;
    int rc = fby_client_begin_any(cache, &client);
    if (rc != 0) {
        return rc;
    }
    const fby_link_t *link = fby_client_read(client);
    rc = link != NULL && fby_board_is_kept(link->board);
    fby_client_unread(client);
    return fby_call_end(cache, rc);
}

/* ---- Close ------------------------------------------------------------------------------------------------------ */

/* Said, and not waited for: an answer is nothing we need. */
static void say_bye(fby_client_t *client)
{
    const fby_link_t *link = atomic_load(&client->link);
    if (link != NULL) {
        size_t length = fby_request_build(FBY_REQUEST_BYE, ++client->serial, NULL, NULL, 0, client->buffer);
        (void)fby_message_send(link->socket, client->buffer, length, NULL, 0, MSG_DONTWAIT);
    }
}

/* By the first caller only. */
static void client_shut(fby_cache_t *cache)
{
    fby_client_t *client = cache->client;
    uint64_t one = 1;
    atomic_store(&cache->closing, true);
    (void)!write(client->closing_fd, &one, sizeof(one)); /* wakes everyone who waits */
    pthread_mutex_lock(&cache->lock);
    while (atomic_load(&cache->users) > 0) {
        pthread_cond_wait(&cache->changed, &cache->lock);
    }
    pthread_mutex_unlock(&cache->lock);
    say_bye(client);
    client_free(client);
    pthread_mutex_lock(&cache->lock);
    cache->client = NULL;
    cache->phase = FBY_CACHE_CLOSED;
    pthread_cond_broadcast(&cache->changed);
    pthread_mutex_unlock(&cache->lock);
}

int fby_client_cache_close(fby_cache_t *cache, double limit_s, fby_close_report_t *report)
{
    uint64_t limit_ns;
    if (fby_cache_is_forked(cache)) {
        fby_error_set("the cache was opened by the parent process, which closes it");
        return FBY_E_FORKED;
    }
    if ((report != NULL && fby_call_sized("report", report) != 0) ||
        !fby_call_seconds("limit_s", limit_s, false, &limit_ns)) {
        return -EINVAL;
    }
    pthread_mutex_lock(&cache->lock);
    if (cache->phase == FBY_CACHE_OPEN) {
        cache->phase = FBY_CACHE_CLOSING;
        pthread_mutex_unlock(&cache->lock);
        client_shut(cache);
        pthread_mutex_lock(&cache->lock);
    }
    while (cache->phase != FBY_CACHE_CLOSED) {
        pthread_cond_wait(&cache->changed, &cache->lock);
    }
    if (report != NULL) {
        fby_call_output(report, &cache->report, sizeof(cache->report));
    }
    pthread_mutex_unlock(&cache->lock);
    return 0;
}

const fby_calls_t fby_client_calls = {
#define FBY_X(name, parameters, arguments) .name = fby_client_##name,
    FBY_CALL_MAP(FBY_X)
#undef FBY_X
        .cache_epoch = fby_client_cache_epoch,
    .subscription_next = fby_client_subscription_next,
    .subscription_fd = fby_client_subscription_fd,
    .unsubscribe = fby_client_unsubscribe,
};
