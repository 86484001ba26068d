#include "cli/replay_put.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/replay_payload.h"
#include "keys/keys.h"

/* Between looks at `stop` while a store write is awaited. */
#define WAIT_SLICE_S 0.5
enum { STEP_BLOCKS = 256 };

int fby_putter_hash(const fby_seq_t *seq, uint64_t block, fby_hash_t *hash)
{
    char key[FBY_KEY_TEXT_BYTES];
    uint32_t group;
    int status = fby_seq_key(seq, block, 0, key, sizeof(key));
    return status == 0 && !fby_key_parse(key, hash, &group) ? FBY_E_FORMAT : status;
}

/* ---- One put ----------------------------------------------------------------------------------------------------- */

static bool is_stopping(fby_putter_t *putter)
{
    pthread_mutex_lock(&putter->lock);
    bool stop = putter->stop;
    pthread_mutex_unlock(&putter->lock);
    return stop;
}

static int fill(const fby_putter_t *putter, const fby_put_job_t *job, fby_put_t put, uint64_t from, uint64_t to)
{
    void *slots[STEP_BLOCKS];
    int status = 0;
    for (uint64_t at = from; at < to && status == 0; at += STEP_BLOCKS) {
        uint64_t end = FBY_MIN(at + STEP_BLOCKS, to);
        status = fby_put_slots(putter->cache, put, 0, at, end, slots);
        for (uint64_t i = at; i < end && status == 0; i++) {
            fby_hash_t hash;
            status = fby_putter_hash(job->seq, i, &hash);
            if (status == 0) {
                fby_payload_fill(slots[i - at], putter->payload_bytes, &hash, 0);
            }
        }
    }
    return status;
}

static int await_store(fby_putter_t *putter, fby_put_job_t *job, fby_put_t put)
{
    int status = -ETIMEDOUT;
    while (status == -ETIMEDOUT && !is_stopping(putter)) {
        status = fby_put_wait_store(putter->cache, put, WAIT_SLICE_S, &job->stored, &job->unstored);
    }
    return status;
}

/* Range after range: what is staged is bounded by the put budget, and room comes with the end of the store writes. */
static void put_prompt(fby_putter_t *putter, fby_put_job_t *job)
{
    uint64_t blocks = fby_seq_blocks(job->seq), missing = 0, from = 0, to = 0, last = 0;
    fby_put_t put = 0;
    int status = blocks > 0 ? fby_put_begin(putter->cache, job->seq, 0, blocks, &put, &missing, &from, &to) : 0;
    while (status == 0 && to > from) {
        status = fill(putter, job, put, from, to);
        status = status == 0 ? fby_put_commit(putter->cache, put, fby_seq_tokens(job->seq), NULL) : status;
        status = status == 0 ? await_store(putter, job, put) : status;
        last = to;
        if (status == 0 && last < blocks) {
            status = fby_put_next(putter->cache, put, job->seq, last, blocks, &missing, &from, &to);
        } else {
            to = from;
        }
    }
    job->unstored += blocks - FBY_MAX(last, FBY_MIN(missing, blocks));
    job->status = status;
    if (put != 0) {
        fby_put_release(putter->cache, put);
    }
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

static void append(fby_put_job_t ***tail, fby_put_job_t *job)
{
    job->next = NULL;
    **tail = job;
    *tail = &job->next;
}

static fby_put_job_t *pop(fby_put_job_t **head, fby_put_job_t ***tail)
{
    fby_put_job_t *job = *head;
    if (job != NULL) {
        *head = job->next;
        *tail = *head == NULL ? head : *tail;
    }
    return job;
}

static void *work(void *arg)
{
    fby_putter_t *putter = arg;
    const uint64_t one = 1;
    pthread_mutex_lock(&putter->lock);
    while (!putter->stop) {
        fby_put_job_t *job = pop(&putter->waiting, &putter->waiting_tail);
        if (job == NULL) {
            pthread_cond_wait(&putter->work, &putter->lock);
            continue;
        }
        pthread_mutex_unlock(&putter->lock);
        put_prompt(putter, job);
        pthread_mutex_lock(&putter->lock);
        append(&putter->done_tail, job);
        if (write(putter->done_fd, &one, sizeof(one)) != sizeof(one)) {
            abort(); /* an eventfd takes 2^64 - 2 of them */
        }
    }
    pthread_mutex_unlock(&putter->lock);
    return NULL;
}

int fby_putter_open(fby_putter_t *putter, fby_cache_t *cache, uint32_t payload_bytes)
{
    *putter = (fby_putter_t){.cache = cache, .payload_bytes = payload_bytes};
    putter->waiting_tail = &putter->waiting;
    putter->done_tail = &putter->done;
    pthread_mutex_init(&putter->lock, NULL);
    pthread_cond_init(&putter->work, NULL);
    putter->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = putter->done_fd < 0 ? errno : 0;
    while (error == 0 && putter->threads < FBY_PUT_THREADS) {
        error = pthread_create(&putter->thread[putter->threads], NULL, work, putter);
        putter->threads += error == 0;
    }
    if (error != 0) {
        fby_error_set("no thread for puts: %s", strerror(error));
        fby_putter_close(putter);
    }
    return -error;
}

static void free_jobs(fby_put_job_t *job)
{
    while (job != NULL) {
        fby_put_job_t *next = job->next;
        fby_seq_unref(job->seq);
        free(job);
        job = next;
    }
}

void fby_putter_close(fby_putter_t *putter)
{
    pthread_mutex_lock(&putter->lock);
    putter->stop = true;
    pthread_cond_broadcast(&putter->work);
    pthread_mutex_unlock(&putter->lock);
    for (uint32_t i = 0; i < putter->threads; i++) {
        pthread_join(putter->thread[i], NULL);
    }
    free_jobs(putter->waiting);
    free_jobs(putter->done);
    if (putter->done_fd >= 0) {
        close(putter->done_fd);
    }
    pthread_cond_destroy(&putter->work);
    pthread_mutex_destroy(&putter->lock);
}

/* ---- The loop's side --------------------------------------------------------------------------------------------- */

int fby_putter_add(fby_putter_t *putter, fby_seq_t *seq, uint32_t request)
{
    fby_put_job_t *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return -ENOMEM;
    }
    job->seq = seq;
    job->request = request;
    pthread_mutex_lock(&putter->lock);
    append(&putter->waiting_tail, job);
    pthread_cond_signal(&putter->work);
    pthread_mutex_unlock(&putter->lock);
    return 0;
}

fby_put_job_t *fby_putter_take(fby_putter_t *putter)
{
    uint64_t count;
    pthread_mutex_lock(&putter->lock);
    fby_put_job_t *job = pop(&putter->done, &putter->done_tail);
    bool is_empty = putter->done == NULL;
    ssize_t got = is_empty ? read(putter->done_fd, &count, sizeof(count)) : 0;
    (void)got; /* nothing to read is fine */
    pthread_mutex_unlock(&putter->lock);
    return job;
}
