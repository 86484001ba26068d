/* rig_queue.c - the asynchronous side of a scripted store: submit, reap, cancel, wake, and what tests await. */
#include "stores/rig.h"

#include <errno.h>
#include <stdlib.h>

#define INNER_TAGS 32u

static void append_done(fby_store_t *store, fby_rig_batch_t *batch)
{
    batch->next = NULL;
    *store->done_tail = batch;
    store->done_tail = &batch->next;
}

static void unlink_active(fby_store_t *store, const fby_rig_batch_t *batch)
{
    fby_rig_batch_t **link = &store->active;
    while (*link != batch) {
        link = &(*link)->next;
    }
    *link = batch->next;
}

/* A reordered batch is kept back until another one has ended after it, or nothing else is outstanding. */
static void complete(fby_store_t *store, fby_rig_batch_t *batch)
{
    unlink_active(store, batch);
    fby_rig_end(store, batch);
    if (batch->reorder && store->active != NULL) {
        batch->next = store->held;
        store->held = batch;
        return;
    }
    append_done(store, batch);
    while (store->held != NULL) {
        fby_rig_batch_t *held = store->held;
        store->held = held->next;
        append_done(store, held);
    }
}

static void settle_and_complete(fby_store_t *store, fby_rig_batch_t *batch)
{
    fby_rig_settle(batch);
    if (batch->phase == FBY_RIG_DONE) {
        complete(store, batch);
    }
}

/* Hands the gathered keys to an asynchronous inner driver. After a successful submit the batch may already be gone. */
static int submit_inner(fby_store_t *store, fby_rig_batch_t *batch)
{
    pthread_mutex_unlock(&store->rig->lock);
    int status = store->inner->submit(store->inner_store, batch->verb == FBY_VERB_PUT, batch->forward, batch->forwards,
                                      (uint64_t)(uintptr_t)batch);
    if (status < 0 && status != -EAGAIN) {
        fby_rig_finish(store, batch, status);
    }
    pthread_mutex_lock(&store->rig->lock);
    if (status == -EAGAIN) {
        batch->starved = true;
    } else if (status < 0) {
        settle_and_complete(store, batch);
    }
    return status;
}

/* Performs the ordinary or the hung keys. Unlocks meanwhile. */
static void start(fby_store_t *store, fby_rig_batch_t *batch, bool hung)
{
    batch->phase = FBY_RIG_PERFORMING;
    if (store->instant) {
        pthread_mutex_unlock(&store->rig->lock);
        fby_rig_perform(store, batch, hung);
        pthread_mutex_lock(&store->rig->lock);
        settle_and_complete(store, batch);
        return;
    }
    fby_rig_prepare(store, batch, hung);
    batch->performed_hung |= hung;
    if (batch->forwards == 0) {
        settle_and_complete(store, batch);
    } else {
        submit_inner(store, batch);
    }
}

/* Moves one batch on. true: something happened, and the list may have changed meanwhile. */
static bool step(fby_store_t *store, fby_rig_batch_t *batch, uint64_t now)
{
    bool waits = batch->phase == FBY_RIG_WAITING || batch->phase == FBY_RIG_HUNG || batch->phase == FBY_RIG_LOST;
    if (waits && batch->cancelled) {
        fby_rig_fail(batch, FBY_E_TIMEOUT);
        complete(store, batch);
        return true;
    }
    if (batch->phase == FBY_RIG_WAITING && now >= batch->due_ns) {
        start(store, batch, false);
        return true;
    }
    if (batch->phase == FBY_RIG_HUNG && store->rig->releases != batch->releases_seen) {
        fby_rig_unhang(store, batch);
        start(store, batch, true);
        return true;
    }
    return false;
}

/* Moves every batch as far as it can go now. Returns when the next one is due. */
static uint64_t progress(fby_store_t *store)
{
    uint64_t next_due = FBY_NEVER;
    fby_rig_batch_t *batch = store->active;
    while (batch != NULL) {
        if (step(store, batch, fby_rig_now())) {
            next_due = FBY_NEVER;
            batch = store->active;
            continue;
        }
        if (batch->phase == FBY_RIG_WAITING) {
            next_due = FBY_MIN(next_due, batch->due_ns);
        }
        batch = batch->next;
    }
    return next_due;
}

static fby_rig_batch_t *find_starved(const fby_store_t *store)
{
    fby_rig_batch_t *batch = store->active;
    while (batch != NULL && !batch->starved) {
        batch = batch->next;
    }
    return batch;
}

/* Something ended in the inner driver, so it may have room again. */
static void resume_starved(fby_store_t *store)
{
    fby_rig_batch_t *batch;
    int status = 0;
    while (status != -EAGAIN && (batch = find_starved(store)) != NULL) {
        batch->starved = false;
        if (batch->cancelled) {
            pthread_mutex_unlock(&store->rig->lock);
            fby_rig_finish(store, batch, FBY_E_TIMEOUT);
            pthread_mutex_lock(&store->rig->lock);
            settle_and_complete(store, batch);
        } else {
            status = submit_inner(store, batch);
        }
    }
}

/* Takes what the inner driver finished, waiting for it no longer than to the deadline. Unlocks meanwhile. */
static void collect_inner(fby_store_t *store, uint64_t deadline_ns)
{
    uint64_t tags[INNER_TAGS];
    uint64_t now = fby_rig_now();
    int64_t wait_ns = deadline_ns == FBY_NEVER ? -1 : (int64_t)fby_sub_sat(deadline_ns, now);
    pthread_mutex_unlock(&store->rig->lock);
    int n = store->inner->reap(store->inner_store, tags, INNER_TAGS, wait_ns);
    for (int i = 0; i < n; i++) {
        fby_rig_batch_t *batch = (fby_rig_batch_t *)(uintptr_t)tags[i];
        fby_rig_finish(store, batch, 0);
        pthread_mutex_lock(&store->rig->lock);
        settle_and_complete(store, batch);
        pthread_mutex_unlock(&store->rig->lock);
    }
    pthread_mutex_lock(&store->rig->lock);
    if (n > 0) {
        resume_starved(store);
    }
}

static uint32_t take_done(fby_store_t *store, uint64_t *tags, uint32_t max)
{
    uint32_t n = 0;
    while (n < max && store->done != NULL) {
        fby_rig_batch_t *batch = store->done;
        tags[n++] = batch->tag;
        if (batch->duplicate) {
            batch->duplicate = false; /* reported once more */
            continue;
        }
        store->done = batch->next;
        if (store->done == NULL) {
            store->done_tail = &store->done;
        }
        free(batch);
    }
    return n;
}

int fby_rig_submit(fby_store_t *store, int write, fby_store_op_t *ops, uint32_t n, uint64_t tag)
{
    if (store->direct) {
        return store->inner->submit != NULL ? store->inner->submit(store->inner_store, write, ops, n, tag) : -ENOSYS;
    }
    if (!store->instant && !store->inner_async) {
        return -ENOSYS;
    }
    fby_rig_batch_t *batch = malloc(sizeof(*batch));
    if (batch == NULL) {
        return -ENOMEM;
    }
    pthread_mutex_lock(&store->rig->lock);
    int status =
        store->closing ? FBY_E_CONNECTION : fby_rig_begin(store, batch, write ? FBY_VERB_PUT : FBY_VERB_GET, ops, n);
    if (status == 0) {
        batch->tag = tag;
        batch->next = store->active;
        store->active = batch;
        progress(store);
        fby_rig_notify(store); /* the reaper waits for an older deadline */
    }
    pthread_mutex_unlock(&store->rig->lock);
    if (status < 0) {
        free(batch);
    }
    return status;
}

int fby_rig_reap(fby_store_t *store, uint64_t *tags, uint32_t max, int64_t wait_ns)
{
    if (store->direct) {
        return store->inner->reap != NULL ? store->inner->reap(store->inner_store, tags, max, wait_ns) : -ENOSYS;
    }
    if (!store->instant && !store->inner_async) {
        return -ENOSYS;
    }
    uint64_t deadline_ns = wait_ns < 0 ? FBY_NEVER : fby_add_sat(fby_rig_now(), (uint64_t)wait_ns);
    uint32_t n = 0;
    bool waited = false;
    pthread_mutex_lock(&store->rig->lock);
    store->callers++;
    for (;;) {
        uint64_t next_due = progress(store);
        n = take_done(store, tags, max);
        if (n > 0 || store->woken || store->closing || (waited && fby_rig_now() >= deadline_ns)) {
            break;
        }
        if (store->instant) {
            fby_rig_wait(store->rig, &store->cond, FBY_MIN(deadline_ns, next_due));
        } else {
            collect_inner(store, FBY_MIN(deadline_ns, next_due));
        }
        waited = true;
    }
    store->woken = false;
    store->callers--;
    if (store->closing) {
        pthread_cond_broadcast(&store->cond);
    }
    pthread_mutex_unlock(&store->rig->lock);
    return (int)n;
}

int fby_rig_cancel(fby_store_t *store, uint64_t tag)
{
    if (store->direct) {
        return store->inner->cancel != NULL ? store->inner->cancel(store->inner_store, tag) : -ENOSYS;
    }
    int status = -ENOENT;
    pthread_mutex_lock(&store->rig->lock);
    for (fby_rig_batch_t *batch = store->active; batch != NULL && status != 0; batch = batch->next) {
        if (batch->tag != tag || batch->cancelled) {
            continue;
        }
        batch->cancelled = true;
        if (batch->phase == FBY_RIG_PERFORMING && !store->instant && store->inner->cancel != NULL) {
            store->inner->cancel(store->inner_store, (uint64_t)(uintptr_t)batch);
        }
        status = 0;
    }
    fby_rig_notify(store);
    pthread_mutex_unlock(&store->rig->lock);
    return status;
}

void fby_rig_wake(fby_store_t *store)
{
    if (store->direct) {
        if (store->inner->wake != NULL) {
            store->inner->wake(store->inner_store);
        }
        return;
    }
    pthread_mutex_lock(&store->rig->lock);
    store->woken = true;
    fby_rig_notify(store);
    pthread_mutex_unlock(&store->rig->lock);
}

void fby_rig_release(fby_store_t *store)
{
    pthread_mutex_lock(&store->rig->lock);
    store->rig->releases++;
    for (fby_store_t *handle = store->rig->handles; handle != NULL; handle = handle->next) {
        fby_rig_notify(handle);
    }
    pthread_mutex_unlock(&store->rig->lock);
}

static uint64_t calls_locked(fby_rig_t *rig, fby_verb_t verb, const char *key)
{
    if (key == NULL) {
        return rig->calls[verb];
    }
    const fby_rig_key_t *found = fby_keymap_find(&rig->keys, key);
    return found != NULL ? found->calls[verb] : 0;
}

uint64_t fby_rig_calls(fby_store_t *store, fby_verb_t verb, const char *key)
{
    pthread_mutex_lock(&store->rig->lock);
    uint64_t calls = calls_locked(store->rig, verb, key);
    pthread_mutex_unlock(&store->rig->lock);
    return calls;
}

uint64_t fby_rig_batches(fby_store_t *store, fby_verb_t verb)
{
    pthread_mutex_lock(&store->rig->lock);
    uint64_t batches = store->rig->batches[verb];
    pthread_mutex_unlock(&store->rig->lock);
    return batches;
}

uint32_t fby_rig_outstanding(fby_store_t *store)
{
    pthread_mutex_lock(&store->rig->lock);
    uint32_t outstanding = store->rig->outstanding;
    pthread_mutex_unlock(&store->rig->lock);
    return outstanding;
}

uint32_t fby_rig_hung(fby_store_t *store)
{
    pthread_mutex_lock(&store->rig->lock);
    uint32_t hung = store->rig->hung;
    pthread_mutex_unlock(&store->rig->lock);
    return hung;
}

bool fby_rig_await_calls(fby_store_t *store, fby_verb_t verb, const char *key, uint64_t calls, uint64_t timeout_ns)
{
    fby_rig_t *rig = store->rig;
    uint64_t deadline_ns = fby_add_sat(fby_rig_now(), timeout_ns);
    pthread_mutex_lock(&rig->lock);
    while (calls_locked(rig, verb, key) < calls && fby_rig_now() < deadline_ns) {
        fby_rig_wait(rig, &rig->changed, deadline_ns);
    }
    bool reached = calls_locked(rig, verb, key) >= calls;
    pthread_mutex_unlock(&rig->lock);
    return reached;
}

bool fby_rig_await_hung(fby_store_t *store, uint32_t hung, uint64_t timeout_ns)
{
    fby_rig_t *rig = store->rig;
    uint64_t deadline_ns = fby_add_sat(fby_rig_now(), timeout_ns);
    pthread_mutex_lock(&rig->lock);
    while (rig->hung < hung && fby_rig_now() < deadline_ns) {
        fby_rig_wait(rig, &rig->changed, deadline_ns);
    }
    bool reached = rig->hung >= hung;
    pthread_mutex_unlock(&rig->lock);
    return reached;
}
