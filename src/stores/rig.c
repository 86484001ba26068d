/* rig.c - handles, decisions and the blocking calls of a scripted store. */
#include "stores/rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

uint64_t fby_rig_now(void)
{
    return fby_clock_now(&fby_clock_monotonic);
}

static int cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    int status = pthread_condattr_init(&attributes);
    if (status != 0) {
        return -status;
    }
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    status = pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
    return -status;
}

void fby_rig_wait(fby_rig_t *rig, pthread_cond_t *cond, uint64_t deadline_ns)
{
    if (deadline_ns == FBY_NEVER) {
        pthread_cond_wait(cond, &rig->lock);
        return;
    }
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / FBY_SECOND), .tv_nsec = (long)(deadline_ns % FBY_SECOND)};
    pthread_cond_timedwait(cond, &rig->lock, &until);
}

int fby_rig_init(fby_rig_t *rig)
{
    *rig = (fby_rig_t){.script = {.random = 1}};
    int status = fby_keymap_init(&rig->keys, sizeof(fby_rig_key_t));
    if (status < 0) {
        return status;
    }
    status = cond_init(&rig->changed);
    if (status < 0) {
        fby_keymap_destroy(&rig->keys, NULL);
        return status;
    }
    pthread_mutex_init(&rig->lock, NULL);
    return 0;
}

void fby_rig_destroy(fby_rig_t *rig)
{
    fby_keymap_destroy(&rig->keys, NULL);
    fby_script_free(&rig->script);
    pthread_cond_destroy(&rig->changed);
    pthread_mutex_destroy(&rig->lock);
}

static int forget_nth(void *arg, fby_keymap_entry_t *entry)
{
    (void)arg;
    fby_rig_key_t *key = (fby_rig_key_t *)entry;
    memset(key->nth, 0, sizeof(key->nth));
    return 0;
}

void fby_rig_set_script(fby_rig_t *rig, fby_script_t *script)
{
    pthread_mutex_lock(&rig->lock);
    fby_script_free(&rig->script);
    rig->script = *script;
    *script = (fby_script_t){0};
    memset(rig->script_batches, 0, sizeof(rig->script_batches));
    fby_keymap_each(&rig->keys, forget_nth, NULL);
    pthread_mutex_unlock(&rig->lock);
}

int fby_rig_read_script(const fby_options_t *options, fby_script_t *script, bool *given)
{
    static const char *const names[] = {"script", "bandwidth", "latency_ms", "seed"};
    char why[256] = "";
    *given = false;
    for (size_t i = 0; i < FBY_ARRAY_LEN(names); i++) {
        *given |= fby_option_get(options, names[i]) != NULL;
    }
    int status = fby_script_parse(fby_option_get(options, "script"), script, why, sizeof(why));
    if (status < 0) {
        return fby_option_fail(options, status, "option script: %s", status == FBY_E_CONFIG ? why : "out of memory");
    }
    uint32_t seed = 0;
    status = fby_option_size(options, "bandwidth", 0, &script->bandwidth);
    status = status < 0 ? status : fby_option_ms(options, "latency_ms", &script->latency_ns);
    status = status < 0 ? status : fby_option_u32(options, "seed", 0, UINT32_MAX, &seed);
    if (status < 0) {
        fby_script_free(script);
        return status;
    }
    if (fby_option_get(options, "seed") != NULL) {
        script->random = seed;
    }
    return 0;
}

int fby_rig_attach(fby_rig_t *rig, fby_store_t *store)
{
    int status = cond_init(&store->cond);
    if (status < 0) {
        return status;
    }
    store->rig = rig;
    store->done_tail = &store->done;
    pthread_mutex_lock(&rig->lock);
    store->next = rig->handles;
    rig->handles = store;
    pthread_mutex_unlock(&rig->lock);
    return 0;
}

/* Wakes whoever waits in this handle and returns when no thread is inside it. */
static void expel_callers(fby_store_t *store)
{
    fby_rig_t *rig = store->rig;
    pthread_mutex_lock(&rig->lock);
    store->closing = true;
    fby_rig_notify(store);
    while (store->callers > 0) {
        fby_rig_wait(rig, &store->cond, FBY_NEVER);
    }
    fby_store_t **link = &rig->handles;
    while (*link != store) {
        link = &(*link)->next;
    }
    *link = store->next;
    pthread_mutex_unlock(&rig->lock);
}

static void free_batches(fby_store_t *store, fby_rig_batch_t *batch)
{
    fby_rig_batch_t *next;
    for (; batch != NULL; batch = next) {
        next = batch->next;
        if (batch->phase != FBY_RIG_DONE) {
            fby_rig_end(store, batch);
        }
        free(batch);
    }
}

void fby_rig_detach(fby_store_t *store)
{
    expel_callers(store);
    /* Only after the inner close is nobody left who writes into a batch that is with the inner driver. */
    store->inner->close(store->inner_store);
    pthread_mutex_lock(&store->rig->lock);
    free_batches(store, store->active);
    free_batches(store, store->done);
    free_batches(store, store->held);
    pthread_mutex_unlock(&store->rig->lock);
    pthread_cond_destroy(&store->cond);
}

void fby_rig_notify(fby_store_t *store)
{
    pthread_cond_broadcast(&store->cond);
    if (store->inner_async) {
        store->inner->wake(store->inner_store);
    }
}

/* When the batch may be performed: the modelled link carries its bytes behind those already on it. */
static uint64_t due_time(fby_rig_t *rig, const fby_rig_batch_t *batch, uint64_t delay_ns)
{
    uint64_t now = fby_rig_now();
    const fby_script_t *script = &rig->script;
    uint64_t bytes = 0, sent = now;
    bool moves = batch->verb == FBY_VERB_GET || batch->verb == FBY_VERB_PUT;
    for (uint32_t i = 0; moves && i < batch->n; i++) {
        bytes += batch->ops[i].bytes;
    }
    if (script->bandwidth > 0 && bytes > 0) {
        uint64_t *pipe = &rig->pipe_free_ns[batch->verb == FBY_VERB_PUT];
        sent = fby_add_sat(FBY_MAX(now, *pipe), fby_mul_sat(bytes, FBY_SECOND) / script->bandwidth);
        *pipe = sent;
    }
    return fby_add_sat(sent, fby_add_sat(script->latency_ns, delay_ns));
}

/* Counts the key and asks the script about it. */
static fby_effect_t decide_key(fby_rig_t *rig, fby_verb_t verb, const fby_store_op_t *op, uint32_t position, uint32_t n)
{
    fby_rig_key_t *key = NULL;
    rig->calls[verb]++;
    if (rig->counts_keys || rig->script.count > 0) {
        key = fby_keymap_insert(&rig->keys, op->key);
    }
    if (key != NULL) {
        key->calls[verb]++;
        key->nth[verb]++;
    }
    const fby_script_moment_t moment = {
        .verb = verb,
        .key = op->key,
        .nth = key != NULL ? key->nth[verb] : 1,
        .call = rig->script_batches[verb],
        .position = position,
        .batch = n,
    };
    return fby_script_decide(&rig->script, &moment);
}

static int allocate_batch(fby_rig_batch_t *batch, uint32_t n)
{
    batch->effects = calloc(n, sizeof(*batch->effects));
    batch->forward = calloc(n, sizeof(*batch->forward));
    batch->origin = calloc(n, sizeof(*batch->origin));
    if (batch->effects != NULL && batch->forward != NULL && batch->origin != NULL) {
        return 0;
    }
    free(batch->effects);
    free(batch->forward);
    free(batch->origin);
    return -ENOMEM;
}

int fby_rig_begin(fby_store_t *store, fby_rig_batch_t *batch, fby_verb_t verb, fby_store_op_t *ops, uint32_t n)
{
    fby_rig_t *rig = store->rig;
    uint64_t delay_ns = 0;
    int refused = 0;
    *batch = (fby_rig_batch_t){.verb = verb, .ops = ops, .n = n, .releases_seen = rig->releases};
    if (allocate_batch(batch, FBY_MAX(n, 1u)) < 0) {
        return -ENOMEM;
    }
    rig->batches[verb]++;
    rig->script_batches[verb]++;
    for (uint32_t i = 0; i < n; i++) {
        fby_effect_t effect = decide_key(rig, verb, &ops[i], i, n);
        batch->effects[i] = effect;
        refused = (effect.flags & FBY_EFFECT_REFUSE) != 0 && refused == 0 ? effect.code : refused;
        delay_ns = FBY_MAX(delay_ns, effect.delay_ns);
        batch->hung += (effect.flags & FBY_EFFECT_HANG) != 0;
        batch->lost += (effect.flags & (FBY_EFFECT_LOST | FBY_EFFECT_DROP_REPLY)) != 0;
        batch->reorder |= (effect.flags & FBY_EFFECT_REORDER) != 0;
        batch->duplicate |= (effect.flags & FBY_EFFECT_DUPLICATE_REPLY) != 0;
    }
    rig->outstanding += n;
    rig->hung += batch->hung;
    if (refused != 0) {
        fby_rig_unhang(store, batch);
        fby_rig_end(store, batch);
        return refused;
    }
    batch->due_ns = due_time(rig, batch, delay_ns);
    pthread_cond_broadcast(&rig->changed);
    return 0;
}

void fby_rig_unhang(fby_store_t *store, fby_rig_batch_t *batch)
{
    store->rig->hung -= batch->hung;
    batch->hung = 0;
}

void fby_rig_end(fby_store_t *store, fby_rig_batch_t *batch)
{
    fby_rig_unhang(store, batch);
    store->rig->outstanding -= batch->n;
    batch->phase = FBY_RIG_DONE;
    fby_rig_discard(batch);
    free(batch->effects);
    free(batch->forward);
    free(batch->origin);
    batch->effects = NULL;
    batch->forward = NULL;
    batch->origin = NULL;
    pthread_cond_broadcast(&store->rig->changed);
}

void fby_rig_settle(fby_rig_batch_t *batch)
{
    if (batch->hung > 0) {
        batch->phase = FBY_RIG_HUNG;
    } else {
        batch->phase = batch->lost > 0 ? FBY_RIG_LOST : FBY_RIG_DONE;
    }
}

/* Walks one batch to its end in the calling thread. Locked; unlocked while the inner driver runs. */
static void walk_batch(fby_store_t *store, fby_rig_batch_t *batch)
{
    fby_rig_t *rig = store->rig;
    while (!store->closing && fby_rig_now() < batch->due_ns) {
        fby_rig_wait(rig, &store->cond, batch->due_ns);
    }
    if (!store->closing) {
        batch->phase = FBY_RIG_PERFORMING;
        pthread_mutex_unlock(&rig->lock);
        fby_rig_perform(store, batch, false);
        pthread_mutex_lock(&rig->lock);
        fby_rig_settle(batch);
    }
    while (!store->closing && batch->phase == FBY_RIG_HUNG && rig->releases == batch->releases_seen) {
        fby_rig_wait(rig, &store->cond, FBY_NEVER);
    }
    if (!store->closing && batch->phase == FBY_RIG_HUNG) {
        fby_rig_unhang(store, batch);
        pthread_mutex_unlock(&rig->lock);
        fby_rig_perform(store, batch, true);
        pthread_mutex_lock(&rig->lock);
        fby_rig_settle(batch);
    }
    while (!store->closing && batch->phase == FBY_RIG_LOST) {
        fby_rig_wait(rig, &store->cond, FBY_NEVER);
    }
    if (batch->phase != FBY_RIG_DONE) {
        fby_rig_fail(batch, FBY_E_CONNECTION);
    }
}

static int blocking_call(fby_store_t *store, fby_verb_t verb, fby_store_op_t *ops, uint32_t n)
{
    fby_rig_t *rig = store->rig;
    fby_rig_batch_t batch;
    pthread_mutex_lock(&rig->lock);
    store->callers++;
    int status = store->closing ? FBY_E_CONNECTION : fby_rig_begin(store, &batch, verb, ops, n);
    if (status == 0) {
        walk_batch(store, &batch);
        fby_rig_end(store, &batch);
    }
    store->callers--;
    if (store->closing) {
        pthread_cond_broadcast(&store->cond);
    }
    pthread_mutex_unlock(&rig->lock);
    return status;
}

int fby_rig_exists(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    return store->direct ? store->inner->exists(store->inner_store, ops, n)
                         : blocking_call(store, FBY_VERB_EXISTS, ops, n);
}

int fby_rig_get(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    return store->direct ? store->inner->get(store->inner_store, ops, n) : blocking_call(store, FBY_VERB_GET, ops, n);
}

int fby_rig_put(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    return store->direct ? store->inner->put(store->inner_store, ops, n) : blocking_call(store, FBY_VERB_PUT, ops, n);
}

int fby_rig_remove(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    return store->direct ? store->inner->remove(store->inner_store, ops, n)
                         : blocking_call(store, FBY_VERB_REMOVE, ops, n);
}
