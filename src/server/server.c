/* server.c - the thread: it waits, hands out turns, and stops gracefully. */
#include "server/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "core/handle.h"
#include "server/internal.h"
#include "server/notify.h"

enum { EVENTS_AT_ONCE = 64, STOP_STEP_MS = 20 };

/* ---- One round -------------------------------------------------------------------------------------------------- */

static void drain_wake(fby_server_t *server)
{
    uint64_t count;
    (void)!read(server->wake, &count, sizeof(count));
    fby_work_settle(server);
}

/* A closed socket can still have requests to be read; without any it is over. */
static void peer_event(fby_peer_t *peer, uint32_t events)
{
    if (peer->state == FBY_PEER_ENDED) {
        return; /* earlier in this round */
    }
    if (events & EPOLLOUT) {
        fby_peer_writable(peer);
    } else if (events & EPOLLIN) {
        fby_peer_readable(peer);
    } else if (events & (EPOLLHUP | EPOLLERR)) {
        fby_peer_end(peer);
    }
}

static void dispatch(fby_server_t *server, const struct epoll_event *event)
{
    fby_watch_t *watch = event->data.ptr;
    switch (watch->kind) {
    case FBY_WATCH_LISTENER:
        if (!server->stopping) {
            fby_server_accept(server);
        }
        break;
    case FBY_WATCH_WAKE:
        drain_wake(server);
        break;
    case FBY_WATCH_SOCKET:
        peer_event(watch->peer, event->events);
        break;
    case FBY_WATCH_PROCESS:
        if (!watch->peer->gone) {
            fby_peer_process_gone(watch->peer);
        }
        break;
    }
}

/* ---- Stop ------------------------------------------------------------------------------------------------------- */

/* Sessions that are not answered and taken. */
static uint32_t sessions_left(fby_server_t *server)
{
    uint32_t left = 0;
    for (fby_peer_t *peer = server->first; peer != NULL; peer = peer->next) {
        fby_peer_sweep_sessions(peer);
        left += peer->sessions.count;
    }
    return left;
}

static bool is_over(fby_server_t *server)
{
    if (!server->stopping) {
        return false;
    }
    if (server->listener.socket >= 0) {
        (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, server->listener.socket, NULL);
        fby_listener_shut(&server->listener);
    }
    return fby_clock_now(&fby_clock_monotonic) >= server->stop_deadline || sessions_left(server) == 0;
}

/* Until when it may sleep. Sessions that end by themselves tell nobody: while it stops it looks again. */
static int patience_ms(fby_server_t *server)
{
    uint64_t now = fby_clock_now(&fby_clock_monotonic);
    uint64_t next = server->groups != NULL ? fby_groups_tick(server, now) : FBY_NEVER;
    next = server->stopping ? FBY_MIN(next, now + STOP_STEP_MS * FBY_MS) : next;
    return next == FBY_NEVER ? -1 : (int)FBY_MIN((next - now) / FBY_MS + 1, (uint64_t)INT32_MAX);
}

static bool server_round(fby_server_t *server, int *sleep_ms)
{
    struct epoll_event event[EVENTS_AT_ONCE];
    int n = epoll_wait(server->epoll, event, EVENTS_AT_ONCE, *sleep_ms);
    pthread_mutex_lock(&server->lock);
    for (int i = 0; i < n; i++) {
        dispatch(server, &event[i]);
    }
    bool over = is_over(server);
    *sleep_ms = patience_ms(server);
    fby_peers_reap(server);
    pthread_mutex_unlock(&server->lock);
    return !over;
}

static void end_all(fby_server_t *server)
{
    pthread_mutex_lock(&server->lock);
    for (fby_peer_t *next, *peer = server->first; peer != NULL; peer = next) {
        next = peer->next;
        fby_peer_end(peer);
    }
    fby_peers_reap(server);
    pthread_mutex_unlock(&server->lock);
}

static void *server_main(void *arg)
{
    fby_server_t *server = arg;
    int rc = fby_board_keep(server->runtime->board, &server->link);
    pthread_mutex_lock(&server->lock);
    server->phase = rc == 0 ? FBY_SERVER_RUNNING : FBY_SERVER_FAILED;
    server->failure = rc;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
    if (rc == 0) {
        int sleep_ms = -1;
        while (server_round(server, &sleep_ms)) {}
        end_all(server);
        fby_board_leave(server->runtime->board, &server->link);
    }
    return NULL;
}

/* ---- Open ------------------------------------------------------------------------------------------------------- */

int fby_server_spare(void)
{
    return eventfd(0, EFD_CLOEXEC);
}

int fby_server_create(fby_cache_t *cache, fby_runtime_t *runtime, fby_server_t **out)
{
    fby_server_t *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        return -ENOMEM;
    }
    server->cache = cache;
    server->runtime = runtime;
    server->settings = &runtime->settings;
    server->listener = (fby_listener_t){.socket = -1, .lock = -1};
    server->listener_watch.kind = FBY_WATCH_LISTENER;
    server->wake_watch.kind = FBY_WATCH_WAKE;
    server->opened_ns = fby_clock_now(&fby_clock_monotonic);
    pthread_mutex_init(&server->lock, NULL);
    fby_condition_init(&server->changed);
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->spare = fby_server_spare();
    const char *users = server->settings->server.allow_uids;
    server->any_user = strcmp(users, "any") == 0;
    bool known = server->any_user || fby_uids_parse(users, server->uid, FBY_MOST_UIDS, &server->uids);
    int rc = server->epoll < 0 || server->wake < 0 || server->spare < 0 ? -errno : known ? 0 : FBY_E_CONFIG;
    rc = rc == 0 ? fby_owned_init(&server->sessions, FBY_HANDLE_SESSION, runtime->session_slots) : rc;
    rc = rc == 0 ? fby_owned_init(&server->holds, FBY_HANDLE_HOLD, runtime->holds.most) : rc;
    rc = rc == 0 ? fby_owned_init(&server->puts, FBY_HANDLE_PUT, runtime->puts.most) : rc;
    rc = rc == 0 ? fby_server_watch(server, server->wake, EPOLLIN, &server->wake_watch) : rc;
    if (rc != 0) {
        fby_error_set("server: %s", fby_strerror(rc));
        fby_server_free(server);
        return rc;
    }
    *out = server;
    return 0;
}

void fby_server_free(fby_server_t *server)
{
    const int fd[] = {server->epoll, server->wake, server->spare};
    for (fby_peer_t *peer = server->first; peer != NULL; peer = peer->next) {
        fby_peer_end(peer);
        fby_peer_bury(peer);
    }
    fby_peers_reap(server);
    for (size_t i = 0; i < FBY_ARRAY_LEN(fd); i++) {
        (void)(fd[i] >= 0 && close(fd[i]));
    }
    fby_owned_free(&server->sessions);
    fby_owned_free(&server->holds);
    fby_owned_free(&server->puts);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->lock);
    free(server);
}

/* Its thread runs, and keeps the board, when this returns 0. */
static int thread_start(fby_server_t *server)
{
    int rc = fby_thread_start(&server->thread, "fby-server", server_main, server);
    if (rc != 0) {
        fby_error_set("server: thread: %s", fby_strerror(rc));
        return rc;
    }
    pthread_mutex_lock(&server->lock);
    while (server->phase == FBY_SERVER_STARTING) {
        pthread_cond_wait(&server->changed, &server->lock);
    }
    rc = server->failure;
    pthread_mutex_unlock(&server->lock);
    if (rc != 0) {
        pthread_join(server->thread, NULL);
        fby_error_set("server: snapshots cannot be kept: %s", fby_strerror(rc));
    }
    return rc;
}

int fby_server_open(fby_cache_t *cache, fby_runtime_t *runtime, fby_server_t **out)
{
    const char *path = runtime->settings.server.listen;
    fby_server_t *server;
    *out = NULL;
    if (strcmp(path, "off") == 0) {
        return 0;
    }
    int rc = fby_server_create(cache, runtime, &server);
    if (rc != 0) {
        return rc;
    }
    unsigned mode = (unsigned)strtoul(runtime->settings.server.mode, NULL, 8);
    rc = fby_listener_open(path, mode, &server->listener);
    if (rc == 0) {
        rc = fby_server_watch(server, server->listener.socket, EPOLLIN, &server->listener_watch);
        rc = rc == 0 ? thread_start(server) : rc;
        if (rc != 0) {
            fby_listener_close(&server->listener);
        }
    }
    if (rc != 0) {
        fby_server_free(server);
        return rc;
    }
    (void)fby_notify("READY=1");
    char text[128];
    fby_log(FBY_LOG_INFO, "server_listens", "path=%s", fby_log_quote(text, sizeof(text), path));
    *out = server;
    return 0;
}

void fby_server_close(fby_server_t *server, double limit_s)
{
    uint64_t one = 1;
    if (server == NULL) {
        return;
    }
    (void)fby_notify("STOPPING=1");
    uint64_t deadline = fby_add_sat(fby_clock_now(&fby_clock_monotonic), fby_ns_from_s(limit_s));
    pthread_mutex_lock(&server->lock);
    server->stopping = true;
    server->stop_deadline = deadline;
    pthread_mutex_unlock(&server->lock);
    (void)!write(server->wake, &one, sizeof(one));
    pthread_join(server->thread, NULL);
    fby_work_close(server->work, deadline);
    server->work = NULL;
    fby_listener_close(&server->listener);
    fby_server_free(server);
}

/* ---- Looking ---------------------------------------------------------------------------------------------------- */

static uint64_t count_of(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void fby_server_counters(const fby_server_t *server, fby_server_info_t *info)
{
    *info = (fby_server_info_t){.size = sizeof(*info)};
    if (server == NULL) {
        return;
    }
    const fby_server_counts_t *counts = &server->counts;
    info->clients = atomic_load_explicit(&counts->clients, memory_order_relaxed);
    info->accepted = count_of(&counts->accepted);
    info->refused =
        count_of(&counts->refused_user) + count_of(&counts->refused_version) + count_of(&counts->refused_number);
    info->violations = count_of(&counts->violations);
    info->deaths = count_of(&counts->deaths);
    info->calls = count_of(&counts->calls);
    info->limit_refused = count_of(&counts->limit_refused);
    info->fenced_bytes = count_of(&counts->fenced_bytes);
}

uint64_t fby_server_refused(const fby_server_t *server, fby_server_refusal_t reason)
{
    const _Atomic uint64_t *counts[FBY_SERVER_REFUSED_COUNT] = {
#define FBY_X(name, text) [FBY_SERVER_REFUSED_##name] = &server->counts.refused_##text,
        FBY_SERVER_REFUSAL_MAP(FBY_X)
#undef FBY_X
    };
    return count_of(counts[reason]);
}

static void describe_peer(fby_peer_t *peer, uint64_t now, fby_server_client_t *out)
{
    fby_peer_sweep_sessions(peer);
    *out = (fby_server_client_t){
        .client = peer->number,
        .pid = peer->pid,
        .uid = peer->uid,
        .sessions = peer->sessions.count,
        .holds = peer->holds.count,
        .puts = peer->puts.count,
        .subscriptions = peer->subscription_count,
        .sequences = peer->sequences.count,
        .ended = peer->state == FBY_PEER_ENDED,
        .pinned_bytes = peer->pinned_bytes,
        .sequence_bytes = peer->sequences.bytes,
        .fenced_bytes = peer->fenced_bytes,
        .calls = peer->calls,
        .refused = peer->refused,
        .connected_ns = now - peer->connected_ns,
    };
    memcpy(out->name, peer->name, sizeof(out->name));
}

void fby_server_fill(fby_server_t *server, fby_server_info_t *info, fby_server_client_t *clients, size_t capacity,
                     size_t *count)
{
    uint64_t now = fby_clock_now(&fby_clock_monotonic);
    size_t n = 0;
    fby_server_counters(server, info);
    info->pid = getpid();
    info->stopping = server->stopping;
    info->age_ns = now - server->opened_ns;
    snprintf(info->version, sizeof(info->version), "%s", fby_version());
    for (fby_peer_t *peer = server->first; peer != NULL && n < capacity; peer = peer->next) {
        if (peer->welcomed && !peer->dead) {
            describe_peer(peer, now, &clients[n++]);
        }
    }
    *count = n;
}

int fby_server_describe(fby_server_t *server, fby_server_info_t *info, fby_server_client_t *clients, size_t capacity,
                        size_t *count)
{
    fby_server_info_t full;
    size_t n;
    uint32_t size = info->size;
    pthread_mutex_lock(&server->lock);
    fby_server_fill(server, &full, clients, capacity, &n);
    pthread_mutex_unlock(&server->lock);
    full.size = size;
    memcpy(info, &full, FBY_MIN((size_t)size, sizeof(full)));
    if (count != NULL) {
        *count = n;
    }
    return 0;
}
