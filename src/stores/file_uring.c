/*
 * file_uring.c - the asynchronous engine: many keys in flight on one io_uring.
 *
 * INVARIANTS
 *   lock guards everything here, the rings included. A job has at most one request in flight and `jobs` counts those
 *   not ended, so both queues can hold what there is: nothing overflows, and a resubmission finds room.
 *   Completions and wake() ring the same eventfd; a reaper that found nothing sleeps on it.
 *   A batch is reported once, when its last job has ended and no request of it is with the kernel.
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "stores/file.h"

#define RETRY_SUBMIT_NS FBY_MS /* when the kernel has no memory for requests and none of ours is in flight */

typedef struct batch {
    struct batch *next;
    uint64_t tag;
    uint32_t left; /* jobs not ended */
    bool cancelled;
    uint32_t count;
    fby_file_job_t jobs[];
} batch_t;

typedef struct fby_uring {
    struct io_uring ring;
    fby_file_t *file;
    pthread_mutex_t lock;
    int event_fd;
    uint32_t limit, jobs;
    bool woken;
    batch_t *active;
    batch_t *done, **done_tail;
} fby_uring_t;

int fby_uring_open(fby_file_t *file, struct fby_uring **out)
{
    fby_uring_t *uring = calloc(1, sizeof(*uring));
    if (uring == NULL) {
        return -ENOMEM;
    }
    uring->file = file;
    uring->limit = file->queue_depth;
    uring->done_tail = &uring->done;
    uring->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int status = uring->event_fd < 0 ? -errno : 0;
    if (status < 0) {
        goto free_uring;
    }
    status = io_uring_queue_init(uring->limit, &uring->ring, 0);
    if (status < 0) {
        goto close_event;
    }
    status = io_uring_register_eventfd(&uring->ring, uring->event_fd);
    if (status < 0) {
        goto exit_ring;
    }
    io_uring_ring_dontfork(&uring->ring);
    pthread_mutex_init(&uring->lock, NULL);
    *out = uring;
    return 0;
exit_ring:
    io_uring_queue_exit(&uring->ring);
close_event:
    close(uring->event_fd);
free_uring:
    free(uring);
    return status;
}

static void ring_event(fby_uring_t *uring)
{
    uint64_t one = 1;
    ssize_t moved = write(uring->event_fd, &one, sizeof(one));
    (void)moved; /* only fails when it is rung 2^64 times already */
}

static void hush_event(fby_uring_t *uring)
{
    uint64_t count;
    ssize_t moved = read(uring->event_fd, &count, sizeof(count));
    (void)moved; /* nothing to read: nobody rang */
}

/* ---- Locked ---- */

/* An entry to fill, or NULL: the kernel takes none of those that wait. */
static struct io_uring_sqe *take_entry(fby_uring_t *uring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    if (sqe == NULL) {
        io_uring_submit(&uring->ring);
        sqe = io_uring_get_sqe(&uring->ring);
    }
    return sqe;
}

static void end_job(fby_uring_t *uring, fby_file_job_t *job)
{
    ((batch_t *)job->owner)->left--;
    uring->jobs--;
}

static void queue_job(fby_uring_t *uring, fby_file_job_t *job)
{
    fby_file_io_t io;
    fby_file_job_io(job, &io);
    struct io_uring_sqe *sqe = take_entry(uring);
    if (sqe == NULL) {
        fby_file_job_fail(job, FBY_E_CONNECTION);
        end_job(uring, job);
        return;
    }
    switch (io.kind) {
    case FBY_JOB_READ:
        io_uring_prep_read(sqe, io.fd, io.memory, io.bytes, io.offset);
        break;
    case FBY_JOB_WRITE:
        io_uring_prep_write(sqe, io.fd, io.memory, io.bytes, io.offset);
        break;
    case FBY_JOB_FSYNC:
    default:
        io_uring_prep_fsync(sqe, io.fd, IORING_FSYNC_DATASYNC);
        break;
    }
    io_uring_sqe_set_data(sqe, job);
}

static void move_to_done(fby_uring_t *uring, batch_t *batch)
{
    batch_t **link = &uring->active;
    while (*link != batch) {
        link = &(*link)->next;
    }
    *link = batch->next;
    batch->next = NULL;
    *uring->done_tail = batch;
    uring->done_tail = &batch->next;
}

/* A thread that exits takes its requests with it: what nobody cancelled is asked for again. */
static void complete_job(fby_uring_t *uring, fby_file_job_t *job, int32_t result)
{
    batch_t *batch = job->owner;
    if (result == -ECANCELED && !batch->cancelled) {
        result = -EAGAIN;
    }
    if (!fby_file_job_advance(job, result)) {
        end_job(uring, job);
    } else if (batch->cancelled) {
        fby_file_job_fail(job, FBY_E_TIMEOUT);
        end_job(uring, job);
    } else {
        queue_job(uring, job);
    }
    if (batch->left == 0) {
        move_to_done(uring, batch);
    }
}

static void submit_queued(fby_uring_t *uring)
{
    while (io_uring_sq_ready(&uring->ring) > 0) {
        int status = io_uring_submit(&uring->ring);
        if (status <= 0 && status != -EINTR) {
            return; /* reap tries again */
        }
    }
}

static void collect(fby_uring_t *uring)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
        fby_file_job_t *job = io_uring_cqe_get_data(cqe);
        int32_t result = cqe->res;
        io_uring_cqe_seen(&uring->ring, cqe);
        if (job != NULL) { /* NULL: the answer to a cancellation */
            complete_job(uring, job, result);
        }
    }
    submit_queued(uring);
}

static uint32_t take_done(fby_uring_t *uring, uint64_t *tags, uint32_t max)
{
    uint32_t n = 0;
    while (n < max && uring->done != NULL) {
        batch_t *batch = uring->done;
        uring->done = batch->next;
        if (uring->done == NULL) {
            uring->done_tail = &uring->done;
        }
        tags[n++] = batch->tag;
        free(batch);
    }
    return n;
}

static void cancel_batch(fby_uring_t *uring, batch_t *batch)
{
    batch->cancelled = true;
    for (uint32_t i = 0; i < batch->count; i++) {
        if (batch->jobs[i].slot == NULL) {
            continue; /* ended */
        }
        struct io_uring_sqe *sqe = take_entry(uring);
        if (sqe == NULL) {
            break; /* it ends by itself */
        }
        io_uring_prep_cancel(sqe, &batch->jobs[i], 0);
        io_uring_sqe_set_data(sqe, NULL);
    }
    submit_queued(uring);
}

/* ---- The driver's side ---- */

/* Claims and pins; what needs no I/O has its result then. No lock of ours is held: a new segment may be made. */
static void begin_jobs(fby_uring_t *uring, batch_t *batch, bool write, fby_store_op_t *ops)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        if (fby_file_job_begin(uring->file, write, &ops[i], &batch->jobs[i])) {
            batch->left++;
        }
        batch->jobs[i].owner = batch;
    }
}

static void start_batch(fby_uring_t *uring, batch_t *batch)
{
    uring->jobs -= batch->count - batch->left;
    batch->next = uring->active;
    uring->active = batch;
    for (uint32_t i = 0; i < batch->count; i++) {
        if (batch->jobs[i].slot != NULL) {
            queue_job(uring, &batch->jobs[i]);
        }
    }
    submit_queued(uring);
    bool ended = batch->left == 0;
    if (ended) {
        move_to_done(uring, batch);
    }
    if (ended || io_uring_sq_ready(&uring->ring) > 0) {
        ring_event(uring); /* no completion will */
    }
}

int fby_uring_submit(fby_uring_t *uring, bool write, fby_store_op_t *ops, uint32_t n, uint64_t tag)
{
    if (n > uring->limit) {
        return -EINVAL;
    }
    batch_t *batch = calloc(1, sizeof(*batch) + n * sizeof(batch->jobs[0]));
    if (batch == NULL) {
        return -ENOMEM;
    }
    batch->tag = tag;
    batch->count = n;
    pthread_mutex_lock(&uring->lock);
    bool room = uring->jobs + n <= uring->limit;
    uring->jobs += room ? n : 0;
    pthread_mutex_unlock(&uring->lock);
    if (!room) {
        free(batch);
        return -EAGAIN;
    }
    begin_jobs(uring, batch, write, ops);
    pthread_mutex_lock(&uring->lock);
    start_batch(uring, batch);
    pthread_mutex_unlock(&uring->lock);
    return 0;
}

/* Sleeps until the event rings or the deadline passes. */
static void sleep_until(const fby_uring_t *uring, uint64_t deadline_ns)
{
    struct pollfd poll = {.fd = uring->event_fd, .events = POLLIN};
    uint64_t left = fby_sub_sat(deadline_ns, fby_clock_now(&fby_clock_monotonic));
    struct timespec wait = {.tv_sec = (time_t)(left / FBY_SECOND), .tv_nsec = (long)(left % FBY_SECOND)};
    ppoll(&poll, 1, deadline_ns == FBY_NEVER ? NULL : &wait, NULL);
}

int fby_uring_reap(fby_uring_t *uring, uint64_t *tags, uint32_t max, int64_t wait_ns)
{
    uint64_t deadline_ns =
        wait_ns < 0 ? FBY_NEVER : fby_add_sat(fby_clock_now(&fby_clock_monotonic), (uint64_t)wait_ns);
    uint32_t n;
    for (;;) {
        hush_event(uring); /* before looking: what rings after this is seen by the sleep */
        pthread_mutex_lock(&uring->lock);
        collect(uring);
        n = take_done(uring, tags, max);
        bool stuck = io_uring_sq_ready(&uring->ring) > 0;
        bool over = n > 0 || uring->woken || (wait_ns >= 0 && fby_clock_now(&fby_clock_monotonic) >= deadline_ns);
        if (over) {
            bool more = uring->done != NULL;
            uring->woken = false;
            pthread_mutex_unlock(&uring->lock);
            if (more) {
                ring_event(uring);
            }
            return (int)n;
        }
        pthread_mutex_unlock(&uring->lock);
        uint64_t retry_ns = stuck ? fby_clock_now(&fby_clock_monotonic) + RETRY_SUBMIT_NS : FBY_NEVER;
        sleep_until(uring, FBY_MIN(deadline_ns, retry_ns));
    }
}

int fby_uring_cancel(fby_uring_t *uring, uint64_t tag)
{
    int status = -ENOENT;
    pthread_mutex_lock(&uring->lock);
    for (batch_t *batch = uring->active; batch != NULL && status != 0; batch = batch->next) {
        if (batch->tag == tag && !batch->cancelled) {
            cancel_batch(uring, batch);
            status = 0;
        }
    }
    pthread_mutex_unlock(&uring->lock);
    return status;
}

void fby_uring_wake(fby_uring_t *uring)
{
    pthread_mutex_lock(&uring->lock);
    uring->woken = true;
    pthread_mutex_unlock(&uring->lock);
    ring_event(uring);
}

void fby_uring_close(fby_uring_t *uring)
{
    uint64_t tag;
    pthread_mutex_lock(&uring->lock);
    for (batch_t *batch = uring->active; batch != NULL; batch = batch->next) {
        cancel_batch(uring, batch);
    }
    bool busy = uring->active != NULL;
    pthread_mutex_unlock(&uring->lock);
    while (busy) {
        fby_uring_reap(uring, &tag, 1, -1);
        pthread_mutex_lock(&uring->lock);
        busy = uring->active != NULL;
        pthread_mutex_unlock(&uring->lock);
    }
    while (uring->done != NULL) {
        fby_uring_reap(uring, &tag, 1, 0);
    }
    io_uring_queue_exit(&uring->ring);
    close(uring->event_fd);
    pthread_mutex_destroy(&uring->lock);
    free(uring);
}
