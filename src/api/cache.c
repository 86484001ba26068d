/* cache.c - the public calls on a cache as a whole. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/host.h"
#include "api/call.h"
#include "api/calls.h"
#include "api/metrics_page.h"
#include "api/moment.h"
#include "base/clock.h"
#include "keys/keys.h"
#include "server/server.h"

/* Shells stay for as long as the process lives: a few words each, and reachable, so that no leak checker minds. */
static pthread_mutex_t shells_lock = PTHREAD_MUTEX_INITIALIZER;
static fby_cache_t *shells;

/* One that nobody has seen. */
static void cache_discard(fby_cache_t *cache)
{
    fby_close_report_t report = {.size = sizeof(report)};
    if (fby_runtime_shutdown(cache->runtime, FBY_SECOND, &report) == 0) {
        fby_runtime_finish(cache->runtime);
    }
    pthread_cond_destroy(&cache->changed);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

int fby_cache_open(const fby_config_t *config, fby_cache_t **out)
{
    if (config == NULL || out == NULL) {
        return fby_call_null(config == NULL ? "config" : "out");
    }
    fby_cache_t *cache = calloc(1, sizeof(*cache));
    if (cache == NULL) {
        return -ENOMEM;
    }
    int rc = fby_runtime_open(config, &cache->runtime);
    if (rc != 0) {
        free(cache);
        return rc;
    }
    cache->calls = &fby_local_calls;
    cache->born_in = fby_fork_generation();
    pthread_mutex_init(&cache->lock, NULL);
    fby_condition_init(&cache->changed);
    rc = fby_metrics_page_open(cache, cache->runtime->settings.metrics.listen, &cache->page);
    rc = rc == 0 ? fby_server_open(cache, cache->runtime, &cache->server) : rc;
    if (rc != 0) {
        fby_metrics_page_close(cache->page);
        cache_discard(cache);
        return rc;
    }
    pthread_mutex_lock(&shells_lock);
    cache->next = shells;
    shells = cache;
    pthread_mutex_unlock(&shells_lock);
    *out = cache;
    return 0;
}

/* What threads that were woken get to leave, whatever the limit was. */
#define LEAVE_NS (2 * FBY_SECOND)

/* Threads that did not leave until the deadline: they are in a call of the store's (an epoch being raised). */
static uint32_t await_users(fby_cache_t *cache, uint64_t deadline)
{
    const struct timespec until = {(time_t)(deadline / FBY_SECOND), (long)(deadline % FBY_SECOND)};
    uint32_t users;
    int rc = 0;
    pthread_mutex_lock(&cache->lock);
    while ((users = (uint32_t)atomic_load(&cache->users)) > 0 && rc == 0) {
        rc = pthread_cond_timedwait(&cache->changed, &cache->lock, &until);
    }
    pthread_mutex_unlock(&cache->lock);
    return users;
}

static int abandon(uint32_t users, fby_close_report_t *report)
{
    report->operations_abandoned += users;
    fby_log(FBY_LOG_WARN, "abandoned", "threads=%u", users);
    fby_error_set("%u threads did not come back from the store within the limit; all stays mapped", users);
    return FBY_E_ABANDONED;
}

/* Whoever asks about the server holds the lock: nobody looks at one that is being closed. */
static void server_stop(fby_cache_t *cache, uint64_t limit_ns)
{
    uint64_t stop_ns = FBY_MIN(limit_ns, cache->runtime->settings.server.stop_limit_ns);
    pthread_mutex_lock(&cache->lock);
    fby_server_t *server = cache->server;
    cache->server = NULL;
    pthread_mutex_unlock(&cache->lock);
    fby_server_close(server, (double)stop_ns / (double)FBY_SECOND);
}

/* By the first caller only. */
static void cache_shut(fby_cache_t *cache, uint64_t limit_ns)
{
    fby_close_report_t report = {.size = sizeof(report)};
    uint64_t begun = fby_clock_now(&fby_clock_monotonic);
    fby_metrics_page_close(cache->page);
    cache->page = NULL;
    server_stop(cache, limit_ns);
    uint64_t left = fby_sub_sat(limit_ns, fby_clock_now(&fby_clock_monotonic) - begun);
    atomic_store(&cache->closing, true);
    int rc = fby_runtime_shutdown(cache->runtime, left, &report);
    /* Everyone inside has been woken; nobody else comes in. */
    uint64_t now = fby_clock_now(&fby_clock_monotonic);
    uint32_t users = await_users(cache, FBY_MAX(fby_add_sat(begun, limit_ns), fby_add_sat(now, LEAVE_NS)));
    rc = users > 0 ? abandon(users, &report) : rc;
    if (rc == 0) {
        fby_runtime_finish(cache->runtime);
    }
    pthread_mutex_lock(&cache->lock);
    cache->runtime = rc == 0 ? NULL : cache->runtime;
    cache->close_result = rc;
    cache->report = report;
    cache->phase = FBY_CACHE_CLOSED;
    pthread_cond_broadcast(&cache->changed);
    pthread_mutex_unlock(&cache->lock);
}

int fby_local_cache_close(fby_cache_t *cache, double limit_s, fby_close_report_t *report)
{
    uint64_t limit_ns;
    if (cache == NULL) {
        return fby_call_null("cache");
    }
    if (fby_cache_is_forked(cache)) {
        fby_error_set("the cache was opened by the parent process, which closes it");
        return FBY_E_FORKED;
    }
    if ((report != NULL && fby_call_sized("report", report) != 0) ||
        !fby_call_seconds("limit_s", limit_s, false, &limit_ns)) {
        return -EINVAL;
    }
    pthread_mutex_lock(&cache->lock);
    bool is_first = cache->phase == FBY_CACHE_OPEN;
    if (is_first) {
        cache->phase = FBY_CACHE_CLOSING;
        pthread_mutex_unlock(&cache->lock);
        cache_shut(cache, limit_ns);
        pthread_mutex_lock(&cache->lock);
    }
    while (cache->phase != FBY_CACHE_CLOSED) {
        pthread_cond_wait(&cache->changed, &cache->lock);
    }
    if (report != NULL) {
        fby_call_output(report, &cache->report, sizeof(cache->report));
    }
    int rc = cache->close_result;
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

/* ---- Reset ------------------------------------------------------------------------------------------------------ */

/* A keyring for the epoch after `epoch`: hashes the fingerprint, so outside the lock. */
static int next_keyring(const fby_runtime_t *runtime, uint64_t epoch, fby_keyring_t **out)
{
    const fby_settings_t *settings = &runtime->settings;
    fby_fingerprint_fields_t model = settings->model;
    model.weights_epoch = epoch + 1;
    return fby_keyring_create(&model, settings->hash.kind, settings->hash.secret, settings->hash.secret_length,
                              runtime->id, out);
}

static uint64_t current_epoch(fby_runtime_t *runtime)
{
    pthread_mutex_lock(&runtime->lock);
    uint64_t epoch = fby_core_epoch(runtime->core);
    pthread_mutex_unlock(&runtime->lock);
    return epoch;
}

/* Starts the reset; with a bump, keys of the new epoch take over in the same critical section. -EAGAIN: somebody else
   raised the epoch meanwhile. */
static int reset_start(fby_runtime_t *runtime, uint64_t epoch, fby_keyring_t **keyring)
{
    fby_actions_t actions;
    int rc = -EAGAIN;
    bool bump = *keyring != NULL;
    uint64_t now = fby_enter(runtime, &actions);
    if (!bump || fby_core_epoch(runtime->core) == epoch) {
        fby_runtime_tell_reset(runtime);
        rc = fby_core_reset(runtime->core, now, bump);
        atomic_store_explicit(&runtime->board->generation, fby_core_generation(runtime->core), memory_order_release);
    }
    if (rc >= 0 && bump && fby_core_epoch(runtime->core) == epoch + 1) {
        fby_keyring_t *old = runtime->keyring;
        runtime->keyring = *keyring;
        *keyring = old;
        atomic_store_explicit(&runtime->board->epoch, epoch + 1, memory_order_release);
    }
    fby_leave(runtime, &actions);
    return rc;
}

/* A persistent store must refuse the old epoch after a restart, too: told before anything here changes. Does I/O. */
static int persist_epoch(fby_runtime_t *runtime, uint64_t epoch)
{
    if (runtime->driver->raise_epoch == NULL) {
        return 0;
    }
    int rc = runtime->driver->raise_epoch(runtime->store, epoch);
    return rc < 0 ? fby_call_about(rc, "the store cannot keep weights epoch", epoch) : 0;
}

static int reset_await(fby_runtime_t *runtime, uint64_t wait_ns)
{
    fby_actions_t actions;
    uint64_t deadline = fby_add_sat(fby_enter(runtime, &actions), wait_ns);
    bool in_time = wait_ns > 0;
    while (in_time && !runtime->closing && !fby_is_poisoned(runtime) && fby_core_resetting(runtime->core)) {
        in_time = fby_wait(runtime, &actions, &runtime->reset_done, deadline);
    }
    int rc = FBY_RESET_DONE;
    if (fby_is_poisoned(runtime)) {
        rc = FBY_E_POISONED;
    } else if (fby_core_resetting(runtime->core)) {
        rc = runtime->closing ? FBY_E_CLOSED : FBY_RESET_BUSY;
    }
    fby_leave(runtime, &actions);
    return rc;
}

int fby_local_cache_reset(fby_cache_t *cache, double wait_s, int bump_epoch)
{
    fby_runtime_t *runtime;
    uint64_t wait_ns;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    if (!fby_call_seconds("wait_s", wait_s, false, &wait_ns)) {
        return fby_call_end(cache, -EINVAL);
    }
    do {
        fby_keyring_t *keyring = NULL;
        uint64_t epoch = current_epoch(runtime);
        rc = bump_epoch != 0 ? next_keyring(runtime, epoch, &keyring) : 0;
        rc = rc == 0 && bump_epoch != 0 ? persist_epoch(runtime, epoch + 1) : rc;
        if (rc == 0) {
            rc = reset_start(runtime, epoch, &keyring);
        }
        fby_keyring_unref(keyring);
    } while (rc == -EAGAIN);
    rc = rc < 0 ? fby_call_about(rc, "reset of epoch", current_epoch(runtime)) : reset_await(runtime, wait_ns);
    return fby_call_end(cache, rc);
}

uint64_t fby_local_cache_epoch(fby_cache_t *cache)
{
    fby_runtime_t *runtime;
    if (fby_call_begin(cache, &runtime) != 0) {
        return 0;
    }
    uint64_t epoch = current_epoch(runtime);
    (void)fby_call_end(cache, 0);
    return epoch;
}

/* ---- Looking ---------------------------------------------------------------------------------------------------- */

int fby_local_cache_model(fby_cache_t *cache, fby_model_t *model)
{
    fby_runtime_t *runtime;
    int rc = fby_call_begin_any(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = fby_call_sized("model", model);
    if (rc != 0) {
        return fby_call_end(cache, rc);
    }
    const fby_fingerprint_fields_t *fields = &runtime->settings.model;
    fby_model_t full = {.block_tokens = fields->block_tokens, .groups = fields->groups};
    for (uint32_t g = 0; g < fields->groups; g++) {
        snprintf(full.group[g].name, sizeof(full.group[g].name), "%s", fields->group[g].name);
        full.group[g].payload_bytes = fields->group[g].payload_bytes;
        full.group[g].slot_bytes = runtime->region.slot_bytes[g];
        full.group[g].trailing = fields->group[g].trailing;
    }
    uint8_t fingerprint[16];
    pthread_mutex_lock(&runtime->lock);
    memcpy(fingerprint, runtime->keyring->hasher.fingerprint, sizeof(fingerprint));
    pthread_mutex_unlock(&runtime->lock);
    for (size_t i = 0; i < sizeof(fingerprint); i++) {
        snprintf(full.fingerprint + 2 * i, 3, "%02x", fingerprint[i]);
    }
    fby_call_output(model, &full, sizeof(full));
    return fby_call_end(cache, 0);
}

void fby_stats_add_agents(fby_runtime_t *runtime, fby_stats_t *stats)
{
    fby_agent_stats_t agents;
    if (runtime->agents) {
        fby_agent_stats(runtime->store, &agents);
        stats->agents_gauge = agents.processes;
        stats->agent_starts = agents.starts;
        stats->agent_kills = agents.kills;
        stats->agent_deaths = agents.deaths;
        stats->agents_unproven = agents.unproven;
    }
}

int fby_local_cache_stats(fby_cache_t *cache, fby_stats_t *stats)
{
    fby_runtime_t *runtime;
    int rc = fby_call_begin_any(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = fby_call_sized("stats", stats);
    if (rc == 0) {
        fby_stats_t full = {.size = sizeof(full)};
        pthread_mutex_lock(&runtime->lock);
        fby_core_stats(runtime->core, &full);
        pthread_mutex_unlock(&runtime->lock);
        fby_stats_add_agents(runtime, &full);
        fby_call_output(stats, &full, sizeof(full));
    }
    return fby_call_end(cache, rc);
}

static void health_judge(fby_runtime_t *runtime, uint64_t now, fby_health_t *health)
{
    const fby_breaker_t *breaker = &runtime->breaker;
    health->breaker = breaker->state;
    health->breaker_retry_ns = fby_breaker_wait_ns(breaker, now);
    health->last_completion_ns = runtime->last_completion > 0 ? FBY_MAX(now - runtime->last_completion, 1) : 0;
    health->healthy = 1;
    if (fby_is_poisoned(runtime)) {
        snprintf(health->message, sizeof(health->message), "poisoned: %.140s", runtime->poison);
    } else if (breaker->state != FBY_BREAKER_CLOSED) {
        snprintf(health->message, sizeof(health->message), "the breaker of store %s is %s", runtime->driver->name,
                 breaker->state == FBY_BREAKER_OPEN ? "open" : "probing");
    } else if (fby_lanes_slow(runtime, now)) {
        snprintf(health->message, sizeof(health->message), "a store operation is %.3f s old, over half its limit",
                 (double)health->oldest_operation_ns / (double)FBY_SECOND);
    } else {
        return;
    }
    health->healthy = 0;
}

void fby_health_fill(fby_runtime_t *runtime, uint64_t now, fby_health_t *health)
{
    fby_core_health(runtime->core, now, health);
    health_judge(runtime, now, health);
}

int fby_local_cache_health(fby_cache_t *cache, fby_health_t *health)
{
    fby_runtime_t *runtime;
    int rc = fby_call_begin_any(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = fby_call_sized("health", health);
    if (rc == 0) {
        fby_health_t full = {.size = sizeof(full)};
        pthread_mutex_lock(&runtime->lock);
        fby_health_fill(runtime, fby_clock_now(&fby_clock_monotonic), &full);
        pthread_mutex_unlock(&runtime->lock);
        fby_call_output(health, &full, sizeof(full));
    }
    return fby_call_end(cache, rc);
}

int fby_local_cache_connected(fby_cache_t *cache)
{
    fby_runtime_t *runtime;
    int rc = fby_call_begin_any(cache, &runtime);
    return rc == 0 ? fby_call_end(cache, 1) : rc;
}

int fby_local_server_info(fby_cache_t *cache, fby_server_info_t *info, fby_server_client_t *clients, size_t capacity,
                          size_t *count)
{
    fby_runtime_t *runtime;
    int rc = fby_call_begin_any(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = clients == NULL && capacity > 0 ? fby_call_null("clients") : fby_call_sized("info", info);
    if (rc != 0) {
        return fby_call_end(cache, rc);
    }
    pthread_mutex_lock(&cache->lock);
    if (cache->server != NULL) {
        rc = fby_server_describe(cache->server, info, clients, capacity, count);
    } else {
        fby_error_set("server.listen is off: the cache has no server");
        rc = FBY_E_STATE;
    }
    pthread_mutex_unlock(&cache->lock);
    return fby_call_end(cache, rc);
}

void fby_cache_server_counters(fby_cache_t *cache, fby_moment_t *moment)
{
    pthread_mutex_lock(&cache->lock);
    fby_server_counters(cache->server, &moment->server);
    moment->server_clients = moment->server.clients;
    for (unsigned reason = 0; reason < FBY_SERVER_REFUSED_COUNT; reason++) {
        moment->server_refused[reason] =
            cache->server != NULL ? fby_server_refused(cache->server, (fby_server_refusal_t)reason) : 0;
    }
    pthread_mutex_unlock(&cache->lock);
}

int fby_local_cache_check(fby_cache_t *cache)
{
    fby_runtime_t *runtime;
    char why[256] = "";
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    fby_actions_t actions;
    (void)fby_enter(runtime, &actions);
    if (!fby_core_check(runtime->core, why, sizeof(why))) {
        fby_runtime_poison(runtime, why);
        rc = FBY_E_POISONED;
    }
    fby_leave(runtime, &actions);
    if (rc != 0) {
        fby_error_set("invariant broken: %s", why);
    }
    return fby_call_end(cache, rc);
}

int fby_local_seq_create(fby_cache_t *cache, const uint32_t *tokens, size_t n, const fby_ns_part_t *ns, size_t ns_parts,
                         fby_seq_t **out)
{
    fby_runtime_t *runtime;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    if (out == NULL || (tokens == NULL && n > 0) || (ns == NULL && ns_parts > 0)) {
        return fby_call_end(cache, fby_call_null(out == NULL ? "out" : tokens == NULL && n > 0 ? "tokens" : "ns"));
    }
    pthread_mutex_lock(&runtime->lock);
    fby_keyring_t *keyring = fby_keyring_ref(runtime->keyring);
    pthread_mutex_unlock(&runtime->lock);
    rc = fby_seq_make(keyring, tokens, n, ns, ns_parts, out);
    fby_keyring_unref(keyring);
    return fby_call_end(cache, rc);
}
