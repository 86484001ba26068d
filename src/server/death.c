/*
 * death.c - what happens to what a client had, when its connection ends or its process does.
 *
 * Reading needs no fence: sessions and holds go at once. Slots of puts can be written to by the client's process, and by
 * the ranks that were granted them: the core keeps such slots out of use (abandoned) until the last of these is known to
 * be done, because it said so or because its pidfd became readable.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "core/handle.h"
#include "runtime/put_publish.h"
#include "server/internal.h"

static bool process_is_gone(const fby_peer_t *peer)
{
    struct pollfd process = {.fd = peer->pidfd, .events = POLLIN};
    if (peer->gone || peer->pid == FBY_PEER_OF_TEST) {
        return true;
    }
    return peer->pidfd >= 0 && poll(&process, 1, 0) == 1;
}

/* ---- Puts ------------------------------------------------------------------------------------------------------- */

static fby_peer_t *peer_of_fenced(fby_owned_list_t *list)
{
    return (fby_peer_t *)(void *)((char *)list - offsetof(fby_peer_t, fenced));
}

/* Free once nobody can write any more. */
static void put_settle(fby_server_t *server, fby_owned_t *put)
{
    if (put->abandoned && put->owner_done && put->writers == 0) {
        (void)fby_put_fenced(server->runtime, put->handle);
        atomic_fetch_sub_explicit(&server->counts.fenced_bytes, put->bytes, memory_order_relaxed);
        fby_owned_forget(&server->puts, put);
    }
}

int fby_peer_put_end(fby_peer_t *peer, fby_owned_t *put, bool owner_done)
{
    fby_server_t *server = peer->server;
    uint64_t bytes = 0;
    int rc;
    if (owner_done && put->writers == 0) {
        rc = fby_put_release(server->cache, put->handle);
        fby_owned_forget(&server->puts, put);
        return rc;
    }
    rc = fby_put_abandon(server->runtime, put->handle, &bytes);
    if (rc != 0 || bytes == 0) {
        fby_owned_forget(&server->puts, put);
        return rc;
    }
    put->abandoned = true;
    put->owner_done = owner_done;
    put->bytes = bytes;
    atomic_fetch_add_explicit(&server->counts.fenced_bytes, bytes, memory_order_relaxed);
    if (owner_done) {
        fby_owned_unlink(&server->puts, put);
    } else {
        fby_owned_link(&server->puts, &peer->fenced, put);
        peer->fenced_bytes += bytes;
    }
    return 0;
}

void fby_server_put_owner_done(fby_server_t *server, fby_owned_t *put)
{
    if (put->list != NULL) {
        peer_of_fenced(put->list)->fenced_bytes -= put->bytes;
        fby_owned_unlink(&server->puts, put);
    }
    put->owner_done = true;
    put_settle(server, put);
}

void fby_server_put_writer_done(fby_server_t *server, fby_put_t put)
{
    fby_owned_t *owned = fby_owned_find(&server->puts, put, 0);
    if (owned != NULL && owned->writers > 0) {
        owned->writers--;
        put_settle(server, owned);
    }
}

/* ---- Everything ------------------------------------------------------------------------------------------------- */

static void release_sessions(fby_peer_t *peer)
{
    fby_owned_table_t *table = &peer->server->sessions;
    for (fby_owned_t *owned; (owned = fby_owned_first(table, &peer->sessions)) != NULL;) {
        (void)fby_session_release(peer->server->cache, owned->handle);
        fby_owned_forget(table, owned);
    }
}

static void release_holds(fby_peer_t *peer)
{
    fby_owned_table_t *table = &peer->server->holds;
    fby_runtime_t *runtime = peer->server->runtime;
    for (fby_owned_t *owned; (owned = fby_owned_first(table, &peer->holds)) != NULL;) {
        /* in one step, as many as they are: nobody waits for a count of the client's choice */
        pthread_mutex_lock(&runtime->lock);
        (void)fby_core_hold_fewer(runtime->core, owned->handle, owned->readers - 1);
        pthread_mutex_unlock(&runtime->lock);
        (void)fby_hold_release(peer->server->cache, owned->handle);
        fby_owned_forget(table, owned);
    }
    peer->pinned_bytes = 0;
}

static void release_subscriptions(fby_peer_t *peer)
{
    while (peer->subscriptions != NULL) {
        fby_peer_subscription_t *subscription = peer->subscriptions;
        peer->subscriptions = subscription->next;
        fby_unsubscribe(subscription->subscription);
        free(subscription);
    }
    peer->subscription_count = 0;
}

/* Of granted holds at once; of granted puts only when the rank cannot write any more. */
static void release_grants(fby_peer_t *peer, bool done)
{
    for (fby_grant_t **at = &peer->grants; *at != NULL;) {
        fby_grant_t *grant = *at;
        bool is_hold = fby_handle_type(grant->handle) == FBY_HANDLE_HOLD;
        if (!is_hold && !done) {
            at = &grant->next;
            continue;
        }
        *at = grant->next;
        if (is_hold) {
            (void)fby_hold_release(peer->server->cache, grant->handle);
        } else {
            fby_server_put_writer_done(peer->server, grant->handle);
        }
        free(grant);
    }
}

void fby_peer_release(fby_peer_t *peer)
{
    fby_owned_table_t *puts = &peer->server->puts;
    bool done = peer->bye || process_is_gone(peer);
    fby_group_leave(peer);
    release_sessions(peer);
    release_holds(peer);
    release_subscriptions(peer);
    release_grants(peer, done);
    for (fby_owned_t *owned; (owned = fby_owned_first(puts, &peer->puts)) != NULL;) {
        (void)fby_peer_put_end(peer, owned, done);
    }
    fby_sequences_free(&peer->sequences);
}

/* ---- The end of a peer ------------------------------------------------------------------------------------------ */

void fby_peer_bury(fby_peer_t *peer)
{
    if (!peer->dead) {
        peer->dead = true;
        peer->next_dead = peer->server->dead;
        peer->server->dead = peer;
    }
}

void fby_peer_inherit(fby_peer_t *peer, fby_peer_t *former)
{
    while (former->grants != NULL) {
        fby_grant_t *grant = former->grants;
        former->grants = grant->next;
        grant->next = peer->grants;
        peer->grants = grant;
    }
    fby_peer_settle(former);
}

void fby_peer_settle(fby_peer_t *peer)
{
    if (peer->state == FBY_PEER_ENDED && peer->fenced.count == 0 && peer->grants == NULL) {
        fby_peer_bury(peer);
    }
}

static void drop_unsent(fby_peer_t *peer)
{
    for (size_t i = 0; i < peer->unsent_fds; i++) {
        close(peer->unsent_fd[i]);
    }
    free(peer->unsent);
    peer->unsent = NULL;
    peer->unsent_fds = 0;
}

static void say_fenced(const fby_peer_t *peer)
{
    uint64_t suppressed;
    if (fby_log_allow(&peer->server->fence_limit, fby_clock_now(&fby_clock_monotonic), FBY_SECOND, &suppressed)) {
        fby_log(FBY_LOG_INFO, "client_fenced", "client=%llu pid=%d bytes=%llu suppressed=%llu",
                (unsigned long long)peer->number, (int)peer->pid, (unsigned long long)peer->fenced_bytes,
                (unsigned long long)suppressed);
    }
}

void fby_peer_end(fby_peer_t *peer)
{
    fby_server_t *server = peer->server;
    if (peer->state == FBY_PEER_ENDED) {
        return;
    }
    if (peer->state == FBY_PEER_NEW) {
        server->waiting--;
    }
    if (peer->state == FBY_PEER_RESTING) {
        fby_work_cancel(peer);
    }
    if (peer->welcomed) {
        atomic_fetch_sub_explicit(&server->counts.clients, 1, memory_order_relaxed);
        fby_count(&server->counts.deaths, peer->bye || server->stopping ? 0 : 1);
    }
    peer->state = FBY_PEER_ENDED;
    if (peer->socket >= 0) {
        /* a child of ours may have the same socket: then close alone would not end the connection */
        (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, peer->socket, NULL);
        (void)shutdown(peer->socket, SHUT_RDWR);
        close(peer->socket);
        peer->socket = -1;
    }
    drop_unsent(peer);
    fby_peer_release(peer);
    fby_peer_settle(peer);
    if (!peer->dead) {
        say_fenced(peer);
    }
}

void fby_peer_process_gone(fby_peer_t *peer)
{
    fby_owned_table_t *puts = &peer->server->puts;
    peer->gone = true;
    (void)epoll_ctl(peer->server->epoll, EPOLL_CTL_DEL, peer->pidfd, NULL);
    if (peer->state != FBY_PEER_ENDED) {
        fby_peer_end(peer);
        return;
    }
    for (fby_owned_t *owned; (owned = fby_owned_first(puts, &peer->fenced)) != NULL;) {
        fby_server_put_owner_done(peer->server, owned);
    }
    release_grants(peer, true);
    fby_peer_bury(peer);
}

static void peer_free(fby_peer_t *peer)
{
    fby_server_t *server = peer->server;
    *(peer->prev == NULL ? &server->first : &peer->prev->next) = peer->next;
    *(peer->next == NULL ? &server->last : &peer->next->prev) = peer->prev;
    if (peer->pidfd >= 0) {
        (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, peer->pidfd, NULL);
        close(peer->pidfd);
    }
    for (fby_grant_t *next; peer->grants != NULL; peer->grants = next) {
        next = peer->grants->next;
        free(peer->grants);
    }
    free(peer);
}

void fby_peers_reap(fby_server_t *server)
{
    while (server->dead != NULL) {
        fby_peer_t *peer = server->dead;
        server->dead = peer->next_dead;
        peer_free(peer);
    }
}
