/*
 * work.c - a helper thread, made when it is first needed, for the one request that does I/O: a reset that raises the epoch
 * tells a persistent store first. Meanwhile its connection rests and all others go on.
 *
 * The store may hang. So the helper owns what it touches by a count of its own: a server that cannot wait any longer
 * leaves it behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "server/internal.h"

typedef struct job {
    struct job *next;
    uint64_t client;
    uint32_t serial;
    int code;
    char text[256];
} job_t;

struct fby_work {
    fby_cache_t *cache;
    pthread_t thread;
    int wake; /* its own descriptor of the server's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t users; /* server and thread */
    bool stop, ended;
    job_t *asked, **asked_end;
    job_t *done, **done_end;
};

static void jobs_free(job_t *job)
{
    while (job != NULL) {
        job_t *next = job->next;
        free(job);
        job = next;
    }
}

/* With the lock held; lets it go. */
static void work_unref(fby_work_t *work)
{
    bool last = --work->users == 0;
    pthread_mutex_unlock(&work->lock);
    if (last) {
        jobs_free(work->asked);
        jobs_free(work->done);
        close(work->wake);
        pthread_cond_destroy(&work->changed);
        pthread_mutex_destroy(&work->lock);
        free(work);
    }
}

static void job_run(fby_work_t *work, job_t *job)
{
    uint64_t one = 1;
    pthread_mutex_unlock(&work->lock);
    job->code = fby_cache_reset(work->cache, 0, 1);
    snprintf(job->text, sizeof(job->text), "%s", job->code < 0 ? fby_last_error() : "");
    pthread_mutex_lock(&work->lock);
    job->next = NULL;
    *work->done_end = job;
    work->done_end = &job->next;
    (void)!write(work->wake, &one, sizeof(one));
}

static void *work_main(void *arg)
{
    fby_work_t *work = arg;
    pthread_mutex_lock(&work->lock);
    for (;;) {
        while (!work->stop && work->asked == NULL) {
            pthread_cond_wait(&work->changed, &work->lock);
        }
        if (work->stop) {
            break;
        }
        job_t *job = work->asked;
        work->asked = job->next;
        work->asked_end = work->asked == NULL ? &work->asked : work->asked_end;
        job_run(work, job);
    }
    work->ended = true;
    pthread_cond_broadcast(&work->changed);
    work_unref(work);
    return NULL;
}

static int work_make(fby_server_t *server)
{
    fby_work_t *work = calloc(1, sizeof(*work));
    if (work == NULL) {
        return -ENOMEM;
    }
    work->cache = server->cache;
    work->users = 2;
    work->asked_end = &work->asked;
    work->done_end = &work->done;
    pthread_mutex_init(&work->lock, NULL);
    fby_condition_init(&work->changed);
    work->wake = fcntl(server->wake, F_DUPFD_CLOEXEC, 0);
    int rc = work->wake < 0 ? -errno : fby_thread_start(&work->thread, "fby-server-io", work_main, work);
    if (rc != 0) {
        (void)(work->wake >= 0 && close(work->wake));
        pthread_cond_destroy(&work->changed);
        pthread_mutex_destroy(&work->lock);
        free(work);
        return rc;
    }
    server->work = work;
    return 0;
}

int fby_work_reset(fby_peer_t *peer, uint32_t serial)
{
    fby_server_t *server = peer->server;
    job_t *job = calloc(1, sizeof(*job));
    int rc = job == NULL ? -ENOMEM : server->work == NULL ? work_make(server) : 0;
    if (rc != 0) {
        fby_error_set("helper thread: %s", fby_strerror(rc));
        free(job);
        return rc;
    }
    job->client = peer->number;
    job->serial = serial;
    fby_work_t *work = server->work;
    pthread_mutex_lock(&work->lock);
    *work->asked_end = job;
    work->asked_end = &job->next;
    pthread_cond_signal(&work->changed);
    pthread_mutex_unlock(&work->lock);
    return 0;
}

void fby_work_cancel(const fby_peer_t *peer)
{
    fby_work_t *work = peer->server->work;
    if (work == NULL) {
        return;
    }
    pthread_mutex_lock(&work->lock);
    job_t **at = &work->asked;
    while (*at != NULL && (*at)->client != peer->number) {
        at = &(*at)->next;
    }
    job_t *job = *at; /* one at most: the connection rests meanwhile */
    if (job != NULL) {
        *at = job->next;
        work->asked_end = job->next == NULL ? at : work->asked_end;
    }
    pthread_mutex_unlock(&work->lock);
    free(job);
}

static void job_answer(fby_server_t *server, const job_t *job)
{
    fby_peer_t *peer = fby_peer_find(server, job->client);
    if (peer == NULL || peer->state != FBY_PEER_RESTING) {
        return; /* it ended meanwhile */
    }
    fby_reply_t reply;
    memset(&reply, 0, sizeof(reply));
    fby_keyring_describe(server, &reply.body.RESET);
    peer->state = FBY_PEER_OPEN;
    fby_peer_interest(peer);
    fby_peer_answer(peer, FBY_REQUEST_RESET, job->serial, job->code, &reply, job->text);
}

void fby_work_settle(fby_server_t *server)
{
    fby_work_t *work = server->work;
    if (work == NULL) {
        return;
    }
    pthread_mutex_lock(&work->lock);
    job_t *done = work->done;
    work->done = NULL;
    work->done_end = &work->done;
    pthread_mutex_unlock(&work->lock);
    for (job_t *job = done; job != NULL; job = job->next) {
        job_answer(server, job);
    }
    jobs_free(done);
}

void fby_work_close(fby_work_t *work, uint64_t deadline)
{
    const struct timespec limit = {(time_t)(deadline / FBY_SECOND), (long)(deadline % FBY_SECOND)};
    if (work == NULL) {
        return;
    }
    pthread_t thread = work->thread;
    pthread_mutex_lock(&work->lock);
    work->stop = true;
    pthread_cond_broadcast(&work->changed);
    while (!work->ended && pthread_cond_timedwait(&work->changed, &work->lock, &limit) == 0) {}
    bool ended = work->ended;
    work_unref(work);
    if (ended) {
        pthread_join(thread, NULL);
    } else {
        pthread_detach(thread);
    }
}
