/*
 * host.c - the calls of a store whose driver runs in agents.
 *
 * A call owns one lane of one process from its start to its end. It ends with results, or when the process is gone: a
 * process that was killed but is not proven dead keeps its calls, and with them the slots they read into.
 */
#include "agent/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/host_internal.h"

#define HEARTBEAT_NS FBY_SECOND            /* a call that long without an answer asks whether its agent is alive */
#define CONTROL_LIMIT_NS (10 * FBY_SECOND) /* of calls that nobody fences: health, epochs */

/* ---- Lanes ------------------------------------------------------------------------------------------------------ */

/* On whose behalf this thread calls: what a fence names. */
static _Thread_local const void *caller_of_this_thread;
static _Thread_local const _Atomic bool *limit_of_this_thread; /* true: passed */

void fby_agent_on_behalf(const void *caller)
{
    caller_of_this_thread = caller;
}

void fby_agent_obey(const _Atomic bool *passed)
{
    limit_of_this_thread = passed;
}

static bool limit_has_passed(void)
{
    return limit_of_this_thread != NULL && atomic_load(limit_of_this_thread);
}

typedef struct call {
    fby_process_t *process;
    fby_host_lane_t *lane;
    uint32_t n;
    uint64_t tag;
    uint64_t epoch;    /* in force when it began */
    uint64_t limit_at; /* its own; FBY_NEVER: whoever calls has it fenced */
} call_t;

static fby_host_lane_t *free_lane(fby_process_t *process, const fby_route_t *route)
{
    for (uint32_t i = route->first; i < route->first + route->count; i++) {
        if (!process->lanes[i].busy) {
            return &process->lanes[i];
        }
    }
    return NULL;
}

static void waiter_remove(struct fby_store *store, const fby_waiter_t *waiter)
{
    fby_waiter_t **at = &store->waiters;
    while (*at != waiter) {
        at = &(*at)->next;
    }
    *at = waiter->next;
}

/* Waits for a lane of a living process. FBY_E_CONNECTION: nobody is there; FBY_E_TIMEOUT: fenced while it waited. */
static int lane_acquire(struct fby_store *store, fby_agent_kind_t kind, call_t *call)
{
    const fby_route_t *route = &store->route[kind];
    fby_waiter_t waiter = {store->waiters, caller_of_this_thread, false};
    int rc = 0;
    bool late = false;
    store->waiters = &waiter;
    for (;;) {
        fby_process_t *process = route->seat->current;
        bool ready = process != NULL && process->state == FBY_PROCESS_READY;
        call->process = process;
        call->lane = ready ? free_lane(process, route) : NULL;
        if (waiter.fenced || limit_has_passed() || late) {
            rc = FBY_E_TIMEOUT;
        } else if (store->stop || (!ready && route->seat->down)) {
            rc = FBY_E_CONNECTION;
        }
        if (rc != 0 || call->lane != NULL) {
            break;
        }
        late = !fby_host_wait(store, call->limit_at);
    }
    waiter_remove(store, &waiter);
    if (rc == 0) {
        call->lane->busy = true;
        call->lane->caller = caller_of_this_thread;
        call->lane->fenced = false;
        call->tag = ++store->next_tag;
        call->epoch = store->spec.epoch;
        call->process->calls++;
    }
    return rc;
}

/* Returns what the call ends with when its process is gone: its own limit, or somebody else's. */
static int lane_release(struct fby_store *store, call_t *call, bool answered)
{
    fby_process_t *process = call->process;
    int rc = call->lane->fenced ? FBY_E_TIMEOUT : -ECANCELED;
    call->lane->busy = false;
    process->calls--;
    process->answered_once = process->answered_once || answered;
    pthread_cond_broadcast(&store->changed);
    fby_process_release(store, process);
    return rc;
}

static void ask_for_life(struct fby_store *store, fby_process_t *process)
{
    pthread_mutex_lock(&store->lock);
    if (process->state == FBY_PROCESS_READY && process->pong_due == 0 && !process->ping_wanted) {
        process->ping_wanted = true;
        fby_supervisor_wake(store);
    }
    pthread_mutex_unlock(&store->lock);
}

/* It did not keep to the protocol: nothing that it says counts any more. Returns when it is gone. */
static void accuse(struct fby_store *store, fby_process_t *process)
{
    pthread_mutex_lock(&store->lock);
    fby_process_kill(store, process, "a malformed completion");
    while (!atomic_load_explicit(&process->gone, memory_order_relaxed)) {
        pthread_cond_wait(&store->changed, &store->lock);
    }
    pthread_mutex_unlock(&store->lock);
}

/* Its own limit has passed. */
static void fence_own(struct fby_store *store, call_t *call)
{
    pthread_mutex_lock(&store->lock);
    call->limit_at = FBY_NEVER;
    call->lane->fenced = true;
    fby_process_kill(store, call->process, "a call passed its limit");
    pthread_mutex_unlock(&store->lock);
}

/* True: all results are there. False: the process is gone without them. */
static bool lane_wait(struct fby_store *store, call_t *call)
{
    fby_ring_t *ring = &call->lane->ring;
    for (;;) {
        /* gone first: what was answered before the death is seen when `gone` is */
        bool gone = atomic_load_explicit(&call->process->gone, memory_order_seq_cst);
        int n = fby_ring_answered(ring, call->n);
        if (n == (int)call->n || gone) {
            return n == (int)call->n;
        }
        if (n < 0) {
            accuse(store, call->process);
            return false;
        }
        uint64_t until = fby_clock_now(&fby_clock_monotonic) + HEARTBEAT_NS;
        fby_ring_wait(ring, call->n, FBY_MIN(until, call->limit_at));
        uint64_t now = fby_clock_now(&fby_clock_monotonic);
        if (now >= call->limit_at) {
            fence_own(store, call);
        } else if (now >= until) {
            ask_for_life(store, call->process);
        }
    }
}

/* ---- A batch ---------------------------------------------------------------------------------------------------- */

static bool in_pool(const struct fby_store *store, const void *buffer, uint32_t bytes)
{
    uintptr_t at = (uintptr_t)buffer, base = (uintptr_t)store->region->base;
    return at >= base && bytes <= store->region->bytes && at - base <= store->region->bytes - bytes;
}

/* An op whose buffer the agent cannot reach goes through the lane's bounce area, which holds one. */
static int entry_fill(const struct fby_store *store, const call_t *call, fby_ring_op_t op, const fby_store_op_t *from,
                      fby_ring_entry_t *entry)
{
    *entry = (fby_ring_entry_t){.offset = FBY_RING_NO_BUFFER, .bytes = from->bytes, .op = (uint8_t)op};
    entry->group = (uint8_t)from->group;
    memcpy(entry->key, from->key, sizeof(entry->key));
    if (op == FBY_RING_EPOCH) {
        entry->offset = call->epoch;
    }
    if (op != FBY_RING_GET && op != FBY_RING_PUT) {
        return 0;
    }
    if (in_pool(store, from->buffer, from->bytes)) {
        entry->offset = (uint64_t)((uintptr_t)from->buffer - (uintptr_t)store->region->base);
        return 0;
    }
    if (call->n != 1 || from->bytes > store->bounce_bytes) {
        return FBY_E_INVALID;
    }
    entry->flags = FBY_RING_BOUNCE;
    entry->offset = 0;
    if (op == FBY_RING_PUT) {
        memcpy(call->lane->ring.bounce, from->buffer, from->bytes);
    }
    return 0;
}

/* What an agent says of one op, as far as it can be true. */
static int64_t sane_result(fby_ring_op_t op, const fby_store_op_t *from, int64_t result)
{
    int64_t most = op == FBY_RING_EXISTS ? 1 : op == FBY_RING_REMOVE ? FBY_MAX(from->bytes, 1u) : from->bytes;
    return result > most || result < INT32_MIN ? FBY_E_INVALID : result;
}

/* The driver's own words, copied before they are trusted to end. */
static void health_text_take(const call_t *call, fby_store_op_t *op)
{
    char text[FBY_RING_TEXT_BYTES];
    memcpy(text, call->lane->ring.bounce, sizeof(text));
    text[sizeof(text) - 1] = '\0';
    snprintf(op->buffer, op->bytes, "%s", text);
}

static void results_take(const call_t *call, fby_ring_op_t op, fby_store_op_t *ops)
{
    if (op == FBY_RING_HEALTH) {
        health_text_take(call, &ops[0]);
    }
    for (uint32_t i = 0; i < call->n; i++) {
        ops[i].result = sane_result(op, &ops[i], call->lane->results[i]);
        bool bounced = (call->lane->entries[i].flags & FBY_RING_BOUNCE) != 0 && op == FBY_RING_GET;
        if (bounced && ops[i].result > 0) {
            memcpy(ops[i].buffer, call->lane->ring.bounce, (size_t)ops[i].result);
        }
    }
}

/* 0: results are taken. FBY_E_CONNECTION: the process is gone. */
static int call_run(struct fby_store *store, call_t *call)
{
    fby_ring_t *ring = &call->lane->ring;
    fby_ring_submit(ring, call->tag, call->lane->entries, call->n);
    if (!lane_wait(store, call)) {
        return FBY_E_CONNECTION;
    }
    if (fby_ring_results(ring, call->tag, call->lane->results, call->n) != 0) {
        accuse(store, call->process);
        return FBY_E_CONNECTION;
    }
    return 0;
}

/* One batch on one lane, from acquiring to releasing it. */
static int batch_run(struct fby_store *store, fby_agent_kind_t kind, fby_ring_op_t op, fby_store_op_t *ops, uint32_t n)
{
    call_t call = {.n = n, .limit_at = FBY_NEVER};
    if (op == FBY_RING_HEALTH || op == FBY_RING_EPOCH) {
        call.limit_at = fby_clock_now(&fby_clock_monotonic) + CONTROL_LIMIT_NS;
    }
    pthread_mutex_lock(&store->lock);
    int rc = lane_acquire(store, kind, &call);
    pthread_mutex_unlock(&store->lock);
    if (rc != 0) {
        return rc;
    }
    int filled = 0;
    for (uint32_t i = 0; i < n && filled == 0; i++) {
        filled = entry_fill(store, &call, op, &ops[i], &call.lane->entries[i]);
    }
    rc = filled == 0 ? call_run(store, &call) : 0;
    if (rc == 0 && filled == 0) {
        results_take(&call, op, ops);
    }
    pthread_mutex_lock(&store->lock);
    int ended = lane_release(store, &call, rc == 0 && filled == 0);
    pthread_mutex_unlock(&store->lock);
    return filled != 0 ? filled : rc == 0 ? 0 : ended;
}

static bool all_in_pool(const struct fby_store *store, const fby_store_op_t *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!in_pool(store, ops[i].buffer, ops[i].bytes)) {
            return false;
        }
    }
    return true;
}

/* In pieces that fit a ring; one by one when a buffer has to go through the bounce area. */
static int call_all(struct fby_store *store, fby_agent_kind_t kind, fby_ring_op_t op, fby_store_op_t *ops, uint32_t n)
{
    bool has_buffers = op == FBY_RING_GET || op == FBY_RING_PUT;
    uint32_t most = has_buffers && !all_in_pool(store, ops, n) ? 1 : store->depth;
    int rc = 0;
    for (uint32_t done = 0; done < n; done += most) {
        uint32_t count = FBY_MIN(most, n - done);
        rc = rc == FBY_E_TIMEOUT ? rc : batch_run(store, kind, op, ops + done, count); /* fenced: the rest is, too */
        for (uint32_t i = done; rc < 0 && i < done + count; i++) {
            ops[i].result = rc;
        }
    }
    return 0;
}

/* ---- The driver's table ----------------------------------------------------------------------------------------- */

static int host_exists(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    return call_all(store, FBY_AGENT_QUERY, FBY_RING_EXISTS, ops, n);
}

static int host_get(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    return call_all(store, FBY_AGENT_READ, FBY_RING_GET, ops, n);
}

static int host_put(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    return call_all(store, FBY_AGENT_WRITE, FBY_RING_PUT, ops, n);
}

/* Small, and of the metadata like a query: it neither waits behind writes nor takes a read's place. */
static int host_remove(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    return call_all(store, FBY_AGENT_QUERY, FBY_RING_REMOVE, ops, n);
}

static int host_health(fby_store_t *store, char *text, size_t text_size)
{
    char driver_text[FBY_RING_TEXT_BYTES] = "no agent answers";
    fby_store_op_t op = {.key = "health", .buffer = driver_text, .bytes = sizeof(driver_text)};
    fby_agent_stats_t stats;
    int rc = batch_run(store, FBY_AGENT_QUERY, FBY_RING_HEALTH, &op, 1);
    fby_agent_stats(store, &stats);
    snprintf(text, text_size, "%s (%u agents, %llu starts, %llu kills, %llu deaths%s%s)", driver_text, stats.processes,
             (unsigned long long)stats.starts, (unsigned long long)stats.kills, (unsigned long long)stats.deaths,
             stats.last[0] != '\0' ? "; last: " : "", stats.last);
    return rc != 0 ? rc : (int)op.result;
}

/* Told to the agent that writes; every agent that starts later hears it in its HELLO, before it opens the store. So one that
   ends meanwhile is asked again, and one that is not there needs not be, unless it alone has the store. */
static int host_raise_epoch(fby_store_t *store, uint64_t epoch)
{
    pthread_mutex_lock(&store->lock);
    store->spec.epoch = FBY_MAX(store->spec.epoch, epoch); /* two resets may overtake each other */
    pthread_mutex_unlock(&store->lock);
    fby_store_op_t op = {.key = "epoch"};
    int rc = batch_run(store, FBY_AGENT_WRITE, FBY_RING_EPOCH, &op, 1);
    if (rc == -ECANCELED) {
        rc = batch_run(store, FBY_AGENT_WRITE, FBY_RING_EPOCH, &op, 1);
    }
    rc = rc == -ECANCELED ? FBY_E_CONNECTION : rc;
    if (rc == FBY_E_CONNECTION && !store->caps.one_process) {
        return 0;
    }
    return rc != 0 ? rc : (int)op.result;
}

/* The pool is fixed at the opening: its descriptor went to the agents. */
static int host_register(fby_store_t *store, void *base, size_t bytes)
{
    return base == store->region->base && bytes == store->region->bytes ? 0 : -EINVAL;
}

static int host_unregister(fby_store_t *store, void *base)
{
    return base == store->region->base ? 0 : -EINVAL;
}

static void host_capabilities(fby_store_t *store, fby_store_caps_t *caps)
{
    pthread_mutex_lock(&store->lock); /* the first READY may come after the opening */
    *caps = store->caps;
    pthread_mutex_unlock(&store->lock);
    caps->size = sizeof(*caps);
    caps->async = 0;
    caps->needs_isolation = 0; /* it is isolated */
    caps->max_batch = caps->max_batch > 0 ? FBY_MIN(caps->max_batch, store->depth) : store->depth;
}

/* ---- Fences ----------------------------------------------------------------------------------------------------- */

/* Whether the caller has a call with this process; its lane is marked. */
static bool mark_fenced(fby_process_t *process, const void *caller)
{
    for (uint32_t i = 0; process != NULL && i < process->lane_count; i++) {
        fby_host_lane_t *lane = &process->lanes[i];
        if (lane->busy && lane->caller == caller) {
            lane->fenced = true;
            return true;
        }
    }
    return false;
}

void fby_agent_fence(fby_store_t *store, const void *caller)
{
    pthread_mutex_lock(&store->lock);
    for (fby_waiter_t *waiter = store->waiters; waiter != NULL; waiter = waiter->next) {
        waiter->fenced = waiter->fenced || waiter->caller == caller;
    }
    pthread_cond_broadcast(&store->changed);
    for (uint32_t i = 0; i < store->seat_count; i++) {
        if (mark_fenced(store->seats[i].current, caller)) {
            fby_process_kill(store, store->seats[i].current, "a call passed its limit");
        }
    }
    pthread_mutex_unlock(&store->lock);
}

void fby_agent_fence_all(fby_store_t *store)
{
    pthread_mutex_lock(&store->lock);
    store->stop = true;
    for (fby_waiter_t *waiter = store->waiters; waiter != NULL; waiter = waiter->next) {
        waiter->fenced = true;
    }
    for (uint32_t i = 0; i < store->seat_count; i++) {
        fby_process_t *process = store->seats[i].current;
        if (process != NULL && process->calls > 0) {
            fby_process_kill(store, process, "the cache closes");
        }
    }
    pthread_cond_broadcast(&store->changed);
    fby_supervisor_wake(store);
    pthread_mutex_unlock(&store->lock);
}

void fby_agent_stats(fby_store_t *store, fby_agent_stats_t *stats)
{
    pthread_mutex_lock(&store->lock);
    *stats = store->stats;
    stats->processes = 0;
    for (uint32_t i = 0; i < store->seat_count; i++) {
        const fby_process_t *process = store->seats[i].current;
        stats->processes += process != NULL && process->state == FBY_PROCESS_READY;
    }
    pthread_mutex_unlock(&store->lock);
}

uint32_t fby_agent_lane_count(const fby_store_t *store, fby_agent_kind_t kind)
{
    return store->route[kind].count;
}

const fby_store_driver_t fby_store_agent = {
    .abi = FBY_STORE_ABI,
    .size = sizeof(fby_store_driver_t),
    .name = "agent",
    .close = fby_agent_close,
    .capabilities = host_capabilities,
    .register_region = host_register,
    .unregister_region = host_unregister,
    .exists = host_exists,
    .get = host_get,
    .put = host_put,
    .remove = host_remove,
    .health = host_health,
    .raise_epoch = host_raise_epoch,
};
