/*
 * host_open.c - opening and closing a store whose driver runs in agents.
 *
 * The first process serves every kind of lane. What it says of its driver decides whether it stays alone (the store's
 * state lives in the process) or becomes the one for queries, with one for reads and one for writes beside it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/host_internal.h"
#include "base/log.h"
#include "stores/stores.h"

enum {
    LEAST_DEPTH = 128,
    USUAL_QUERY_LANES = 2,
    USUAL_READ_LANES = 4,
    USUAL_WRITE_LANES = 2,
    BOUNCE_ALIGNMENT = 4096,
};

#define OPEN_LIMIT_NS (40 * FBY_SECOND) /* beyond the supervisor's own limit of a start */
#define CLOSE_LIMIT_NS (2 * FBY_SECOND)

/* ---- Waiting for seats ------------------------------------------------------------------------------------------ */

bool fby_host_wait(struct fby_store *store, uint64_t until)
{
    if (until == FBY_NEVER) {
        return pthread_cond_wait(&store->changed, &store->lock) == 0;
    }
    struct timespec limit = {.tv_sec = (time_t)(until / FBY_SECOND), .tv_nsec = (long)(until % FBY_SECOND)};
    return pthread_cond_timedwait(&store->changed, &store->lock, &limit) == 0;
}

/* Every seat has a process that is ready, or one start has failed, or time is up. Under the lock. */
static void await_seats(struct fby_store *store)
{
    uint64_t until = fby_clock_now(&fby_clock_monotonic) + OPEN_LIMIT_NS;
    for (bool in_time = true; in_time && store->start_code == 0;) {
        uint32_t ready = 0;
        for (uint32_t i = 0; i < store->seat_count; i++) {
            const fby_process_t *process = store->seats[i].current;
            ready += process != NULL && process->state == FBY_PROCESS_READY;
        }
        if (ready == store->seat_count) {
            return;
        }
        in_time = fby_host_wait(store, until);
    }
}

/* A code that no waiting will change. */
static bool is_final(int code)
{
    return code == FBY_E_CONFIG || code == FBY_E_FORMAT || code == FBY_E_STALE || code == FBY_E_INVALID ||
           code == -EINVAL || code == -ENOENT || code == -EACCES || code == -E2BIG;
}

/* ---- Seats and routes ------------------------------------------------------------------------------------------- */

static void seat_open(struct fby_store *store, const char *name, uint32_t lanes)
{
    store->seats[store->seat_count++] = (fby_seat_t){.name = name, .lane_count = lanes, .restart_at = 0};
}

static void route_set(struct fby_store *store, fby_agent_kind_t kind, fby_seat_t *seat, uint32_t first, uint32_t count)
{
    store->route[kind] = (fby_route_t){seat, first, count};
}

/* Writers ask what is there before they write: that takes query lanes, and none from the sessions' queries. */
static void first_seat(struct fby_store *store, const uint32_t lanes[FBY_AGENT_KINDS])
{
    uint32_t queries = lanes[FBY_AGENT_QUERY] + lanes[FBY_AGENT_WRITE];
    uint32_t reads = lanes[FBY_AGENT_READ], writes = lanes[FBY_AGENT_WRITE];
    seat_open(store, "store", queries + reads + writes);
    route_set(store, FBY_AGENT_QUERY, &store->seats[0], 0, queries);
    route_set(store, FBY_AGENT_READ, &store->seats[0], queries, reads);
    route_set(store, FBY_AGENT_WRITE, &store->seats[0], queries + reads, writes);
}

static void separate_seats(struct fby_store *store)
{
    store->seats[0].name = "query";
    store->seats[0].lane_count = store->route[FBY_AGENT_QUERY].count; /* of the next ones: this one has lanes for all */
    seat_open(store, "read", store->route[FBY_AGENT_READ].count);
    seat_open(store, "write", store->route[FBY_AGENT_WRITE].count);
    route_set(store, FBY_AGENT_READ, &store->seats[1], 0, store->seats[1].lane_count);
    route_set(store, FBY_AGENT_WRITE, &store->seats[2], 0, store->seats[2].lane_count);
}

static void choose_lanes(const fby_agent_config_t *config, const fby_store_caps_t *known,
                         uint32_t lanes[FBY_AGENT_KINDS])
{
    const uint32_t usual[FBY_AGENT_KINDS] = {
        [FBY_AGENT_QUERY] = USUAL_QUERY_LANES,
        [FBY_AGENT_READ] = known->read_lanes > 0 ? known->read_lanes : USUAL_READ_LANES,
        [FBY_AGENT_WRITE] = USUAL_WRITE_LANES,
    };
    for (unsigned kind = 0; kind < FBY_AGENT_KINDS; kind++) {
        lanes[kind] = config->lanes[kind] > 0 ? config->lanes[kind] : usual[kind];
    }
}

/* ---- Open ------------------------------------------------------------------------------------------------------- */

/* A built-in driver that runs isolated only says what it is and checks its options in this process, so that a store
   that cannot be reached is no reason not to start. */
static int ask_in_process(struct fby_store *store, char *error, size_t error_size)
{
    if (strcmp(store->driver, fby_store_mooncake.name) != 0) {
        return 0;
    }
    fby_store_t *looked_at = NULL;
    int rc = fby_store_mooncake.open(&store->spec, (const char *const *)store->options, &looked_at, error, error_size);
    if (rc == 0) {
        store->caps.size = sizeof(store->caps);
        fby_store_mooncake.capabilities(looked_at, &store->caps);
        fby_store_mooncake.close(looked_at);
    }
    return rc;
}

static int texts_copy(struct fby_store *store, const fby_agent_config_t *config)
{
    size_t count = 0;
    while (config->options != NULL && config->options[count] != NULL) {
        count++;
    }
    store->driver = strdup(config->driver);
    store->directory = config->program != NULL ? strdup(config->program) : NULL;
    store->options = calloc(count + 1, sizeof(*store->options));
    for (size_t i = 0; store->options != NULL && i < count; i++) {
        store->options[i] = strdup(config->options[i]);
        if (store->options[i] == NULL) {
            return -ENOMEM;
        }
    }
    return store->driver != NULL && store->options != NULL ? 0 : -ENOMEM;
}

static int parts_open(struct fby_store *store, const fby_agent_config_t *config)
{
    uint32_t largest = BOUNCE_ALIGNMENT;
    for (uint32_t g = 0; g < config->spec->groups; g++) {
        largest = FBY_MAX(largest, config->spec->slot_bytes[g]);
    }
    store->bounce_bytes = (uint32_t)fby_align_up(largest, BOUNCE_ALIGNMENT);
    uint64_t depth = fby_pow2_ceil(FBY_MAX(config->batch, (uint32_t)LEAST_DEPTH));
    store->depth = (uint32_t)FBY_MIN(depth, (uint64_t)FBY_RING_DEPTH_MOST);
    store->own_pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    store->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return store->own_pidfd >= 0 && store->wake >= 0 ? texts_copy(store, config) : -errno;
}

static void store_free(struct fby_store *store)
{
    for (char **option = store->options; option != NULL && *option != NULL; option++) {
        free(*option);
    }
    free(store->options);
    free(store->driver);
    free(store->directory);
    if (store->own_pidfd >= 0) {
        close(store->own_pidfd);
    }
    if (store->wake >= 0) {
        close(store->wake);
    }
    pthread_cond_destroy(&store->changed);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

/* The first process, then the others. A start that failed for now leaves the rest to the supervisor. */
static int seats_start(struct fby_store *store, char *error, size_t error_size)
{
    char why[600];
    bool unreachable = false;
    int rc = fby_supervisor_start(store);
    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&store->lock);
    await_seats(store);
    if (store->caps.size != 0 && !store->caps.one_process && !is_final(store->start_code)) {
        separate_seats(store);
        fby_supervisor_wake(store);
        await_seats(store);
    }
    bool known = store->caps.size != 0; /* else nobody has said what the driver can do: no guess is safe */
    rc = is_final(store->start_code) ? store->start_code : 0;
    if (rc == 0 && !known) {
        rc = store->start_code != 0 ? store->start_code : FBY_E_TIMEOUT;
    }
    if (rc != 0) {
        snprintf(error, error_size, "%s", store->start_text);
    } else if (store->start_code != 0) {
        unreachable = true;
        fby_log_quote(why, sizeof(why), store->start_text);
    }
    pthread_mutex_unlock(&store->lock);
    if (unreachable) {
        fby_log(FBY_LOG_WARN, "store_unreachable", "driver=%s tried_again=1 why=%s", store->driver, why);
    }
    return rc;
}

int fby_agent_open(const fby_agent_config_t *config, fby_store_t **out, char *error, size_t error_size)
{
    uint32_t lanes[FBY_AGENT_KINDS];
    fby_store_t *store = calloc(1, sizeof(*store));
    if (store == NULL) {
        return -ENOMEM;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&store->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&store->lock, NULL);
    store->own_pidfd = store->wake = -1;
    store->region = config->region;
    store->spec = *config->spec;
    int rc = parts_open(store, config);
    rc = rc == 0 ? ask_in_process(store, error, error_size) : rc;
    if (rc == 0) {
        choose_lanes(config, &store->caps, lanes);
        first_seat(store, lanes);
        rc = seats_start(store, error, error_size);
    }
    if (rc != 0) {
        fby_store_agent.close(store);
        return rc;
    }
    *out = store;
    return 0;
}

/* ---- Close ------------------------------------------------------------------------------------------------------ */

static void ask_to_leave(struct fby_store *store)
{
    const fby_wire_head_t head = fby_wire_make(FBY_WIRE_CLOSE, sizeof(head));
    for (uint32_t i = 0; i < store->seat_count; i++) {
        fby_process_t *process = store->seats[i].current;
        if (process == NULL) {
            continue;
        }
        process->asked = process->state == FBY_PROCESS_READY && process->control >= 0 &&
                         send(process->control, &head, sizeof(head), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
        if (!process->asked) {
            fby_process_kill(store, process, "the store closes");
        }
    }
}

/* Waits until every seat is empty, or every process was seen dead. */
static void await_leaving(struct fby_store *store, bool dead)
{
    uint64_t until = fby_clock_now(&fby_clock_monotonic) + CLOSE_LIMIT_NS;
    for (bool in_time = true, there = true; in_time && there;) {
        there = dead ? fby_supervisor_has_living(store) : false;
        for (uint32_t i = 0; i < store->seat_count; i++) {
            there = there || store->seats[i].current != NULL;
        }
        in_time = !there || fby_host_wait(store, until);
    }
}

/* False: some call still waits for a process that is not proven gone. */
static bool departed_free(struct fby_store *store)
{
    bool all = true;
    for (fby_process_t *process = store->departed, *next; process != NULL; process = next) {
        next = process->next;
        all = all && process->calls == 0;
        if (process->calls == 0) {
            fby_process_free(process);
        }
    }
    return all;
}

void fby_agent_dismiss(fby_store_t *store)
{
    pthread_mutex_lock(&store->lock);
    store->stop = true;
    ask_to_leave(store);
    fby_supervisor_wake(store);
    pthread_mutex_unlock(&store->lock);
    pthread_detach(store->supervisor);
}

/* An idle agent closes its driver and leaves; one that does not in time is killed. No call may be inside any more, but
   those of processes that cannot be proven dead. What cannot die stays, with the thread that watches it. */
void fby_agent_close(fby_store_t *store)
{
    pthread_mutex_lock(&store->lock);
    store->stop = true;
    ask_to_leave(store);
    fby_supervisor_wake(store);
    await_leaving(store, false);
    for (uint32_t i = 0; i < store->seat_count; i++) {
        if (store->seats[i].current != NULL) {
            fby_process_kill(store, store->seats[i].current, "it did not close in time");
        }
    }
    await_leaving(store, true);
    bool immortal = fby_supervisor_has_living(store);
    pthread_mutex_unlock(&store->lock);
    if (immortal) {
        fby_log(FBY_LOG_ERROR, "agent_does_not_die", "driver=%s why=\"it is left to the kernel\"", store->driver);
        pthread_detach(store->supervisor);
        return;
    }
    if (store->supervisor_started) {
        pthread_join(store->supervisor, NULL);
    }
    if (departed_free(store)) {
        store_free(store);
    }
}
