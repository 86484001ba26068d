/* client.c - calls on a cache as a whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "client/client.h"

/* ---- Reset ------------------------------------------------------------------------------------------------------ */

static int reset_await(fby_client_t *client, uint64_t deadline)
{
    int rc = FBY_RESET_BUSY;
    while (rc == FBY_RESET_BUSY) {
        fby_link_t *link;
        int fd;
        rc = fby_client_event(client, FBY_EVENT_OF_RESET, 0, &fd, &link);
        if (rc != 0) {
            return rc;
        }
        rc = fby_client_await(client, link, fd, deadline);
        close(fd);
        fby_link_unref(client, link);
        if (rc != 0 && rc != -ETIMEDOUT) {
            return rc;
        }
        bool is_late = rc == -ETIMEDOUT;
        rc = fby_client_call(client, FBY_REQUEST_RESETTING, NULL, NULL, 0);
        if (is_late) {
            return rc;
        }
    }
    return rc;
}

int fby_client_cache_reset(fby_cache_t *cache, double wait_s, int bump_epoch)
{
    fby_client_t *client;
    fby_msg_keyring_t keyring;
    uint64_t wait_ns;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (!fby_call_seconds("wait_s", wait_s, false, &wait_ns)) {
        return fby_call_end(cache, -EINVAL);
    }
    const fby_msg_object_t about = {.flags = bump_epoch != 0};
    uint64_t deadline = fby_client_deadline(wait_ns);
    rc = fby_client_call(client, FBY_REQUEST_RESET, &about, &keyring, sizeof(keyring));
    int code = rc;
    if (code >= 0) {
        rc = fby_client_take_keyring(client, &keyring);
        rc = rc == 0 ? code : rc;
    }
    if (rc == FBY_RESET_BUSY && wait_ns > 0) {
        rc = reset_await(client, deadline);
    }
    return fby_call_end(cache, rc);
}

uint64_t fby_client_cache_epoch(fby_cache_t *cache)
{
    fby_client_t *client;
    if (fby_client_begin(cache, &client) != 0) {
        return 0;
    }
    const fby_link_t *link = fby_client_read(client);
    uint64_t epoch = link != NULL && fby_board_is_kept(link->board)
                         ? atomic_load_explicit(&link->board->epoch, memory_order_acquire)
                         : 0;
    fby_client_unread(client);
    (void)fby_call_end(cache, 0);
    return epoch;
}

/* ---- Looking ---------------------------------------------------------------------------------------------------- */

int fby_client_cache_model(fby_cache_t *cache, fby_model_t *model)
{
    fby_client_t *client;
    fby_keyring_t *keyring;
    int rc = fby_client_begin_any(cache, &client);
    if (rc != 0) {
        return rc;
    }
    rc = fby_call_sized("model", model);
    rc = rc == 0 ? fby_client_keyring(client, &keyring) : rc;
    if (rc == 0) {
        fby_model_t full = client->model;
        for (size_t i = 0; i < sizeof(keyring->hasher.fingerprint); i++) {
            snprintf(full.fingerprint + 2 * i, 3, "%02x", keyring->hasher.fingerprint[i]);
        }
        fby_keyring_unref(keyring);
        fby_call_output(model, &full, sizeof(full));
    }
    return fby_call_end(cache, rc);
}

int fby_client_cache_stats(fby_cache_t *cache, fby_stats_t *stats)
{
    fby_client_t *client;
    fby_stats_t full;
    int rc = fby_client_begin_any(cache, &client);
    if (rc != 0) {
        return rc;
    }
    rc = fby_call_sized("stats", stats);
    rc = rc == 0 ? fby_client_call(client, FBY_REQUEST_STATS, NULL, &full, sizeof(full)) : rc;
    if (rc == 0) {
        fby_call_output(stats, &full, sizeof(full));
    }
    return fby_call_end(cache, rc);
}

int fby_client_cache_health(fby_cache_t *cache, fby_health_t *health)
{
    fby_client_t *client;
    fby_health_t full;
    int rc = fby_client_begin_any(cache, &client);
    if (rc != 0) {
        return rc;
    }
    rc = fby_call_sized("health", health);
    rc = rc == 0 ? fby_client_call(client, FBY_REQUEST_HEALTH, NULL, &full, sizeof(full)) : rc;
    if (rc == -ENOTCONN) {
        full = (fby_health_t){0};
        snprintf(full.message, sizeof(full.message), "the server at %.120s is away", client->path);
        rc = 0;
    }
    if (rc == 0) {
        fby_call_output(health, &full, sizeof(full));
    }
    return fby_call_end(cache, rc);
}

int fby_client_cache_check(fby_cache_t *cache)
{
    fby_client_t *client;
    int rc = fby_client_begin(cache, &client);
    return rc == 0 ? fby_call_end(cache, fby_client_call(client, FBY_REQUEST_CHECK, NULL, NULL, 0)) : rc;
}

int fby_client_cache_pool(fby_cache_t *cache, fby_pool_t *pool)
{
    fby_client_t *client;
    fby_pool_t full = {.descriptor = -1};
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    rc = fby_call_sized("pool", pool);
    if (rc != 0) {
        return fby_call_end(cache, rc);
    }
    const fby_link_t *link = fby_client_read(client);
    if (link == NULL || !fby_board_is_kept(link->board)) {
        rc = -ENOTCONN;
    } else {
        full = link->welcome.pool;
        full.descriptor = fcntl(link->pool_fd, F_DUPFD_CLOEXEC, 0);
        rc = full.descriptor < 0 ? -errno : 0;
    }
    fby_client_unread(client);
    if (rc == 0) {
        fby_call_output(pool, &full, sizeof(full));
    } else {
        fby_error_set("pool of server %s: %s", client->path, fby_strerror(rc));
    }
    return fby_call_end(cache, rc);
}

/* ---- Metrics ---------------------------------------------------------------------------------------------------- */

/* The text as it lies in a memfd, without its NUL. */
static int metrics_copy(int fd, uint64_t length, char *text, size_t capacity, size_t *needed)
{
    if (needed != NULL) {
        *needed = length + 1;
    }
    if (length >= capacity) {
        fby_error_set("capacity is %zu; accepted: %llu or more now, and more as figures grow", capacity,
                      (unsigned long long)length + 1);
        return -ENOSPC;
    }
    for (size_t done = 0; done < length;) {
        ssize_t n = pread(fd, text + done, length - done, (off_t)done);
        if (n <= 0) {
            fby_error_set("metrics of the server: %s", n < 0 ? fby_strerror(-errno) : "shorter than they should be");
            return n < 0 ? -errno : FBY_E_FORMAT;
        }
        done += (size_t)n;
    }
    text[length] = '\0';
    return 0;
}

int fby_client_cache_metrics(fby_cache_t *cache, char *text, size_t capacity, size_t *needed)
{
    fby_client_t *client;
    fby_answer_view_t answer;
    uint64_t length = 0;
    int fd = -1;
    int rc = fby_client_begin_any(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (text == NULL && capacity > 0) {
        return fby_call_end(cache, fby_call_null("text"));
    }
    pthread_mutex_lock(&client->lock);
    rc = fby_client_ask(client, FBY_REQUEST_METRICS, NULL, NULL, 0, &answer, &fd);
    if (rc >= 0) {
        length = ((const fby_msg_numbers_t *)answer.body)->number[0];
    }
    pthread_mutex_unlock(&client->lock);
    if (rc >= 0 && fd < 0) {
        fby_error_set("metrics of the server: %s", fby_strerror(-EMFILE));
        rc = -EMFILE;
    }
    if (rc >= 0) {
        rc = metrics_copy(fd, length, text, capacity, needed);
    }
    if (fd >= 0) {
        close(fd);
    }
    return fby_call_end(cache, rc);
}
