/*
 * open.c - from settings to a running cache: pool, index, store, core. Everything that can be refused is refused here.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/host.h"
#include "runtime/runtime.h"
#include "stores/object.h"
#include "stores/stores.h"

enum {
    MEMORY_ALIGNMENT = 64,
    DIRECT_ALIGNMENT = 4096,
    DEFAULT_BATCH = 128,
    LEAST_BATCH = 8,
    DEFAULT_BATCH_BYTES =
        8 << 20, /* what is read in one call is verified after it, by one thread: so not all at once */
    MOST_BATCH = 4096,
    DEFAULT_QUERY_LANES = 2,
    DEFAULT_READ_LANES = 4,
    DEFAULT_WRITE_LANES = 2,
    PAINT = 0xEE
};

static _Atomic uint64_t cache_ids;

uint64_t fby_cache_number(void)
{
    return atomic_fetch_add(&cache_ids, 1) + 1;
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

static int pages_get(fby_pages_t *pages, size_t bytes, const char *what)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        fby_error_set("no memory for the %s: %zu bytes", what, bytes);
        return -ENOMEM;
    }
    *pages = (fby_pages_t){base, bytes};
    return 0;
}

static void pages_free(fby_pages_t *pages)
{
    if (pages->base != NULL) {
        munmap(pages->base, pages->bytes);
        pages->base = NULL;
    }
}

/* ---- Pool ------------------------------------------------------------------------------------------------------- */

/* Drivers that copy or send; all others may use direct I/O. */
static uint32_t slot_alignment(const char *driver)
{
    static const char *const copying[] = {"mem", "redis", "mooncake"};
    const char *name = strncmp(driver, "fault:", 6) == 0 ? driver + 6 : driver;
    for (size_t i = 0; i < FBY_ARRAY_LEN(copying); i++) {
        if (strcmp(name, copying[i]) == 0) {
            return MEMORY_ALIGNMENT;
        }
    }
    return DIRECT_ALIGNMENT;
}

/* pool.bytes gives every group the same number of slots; pool.group_bytes counts each group by itself. */
static int pool_size(const fby_settings_t *settings, uint32_t alignment, fby_region_config_t *config)
{
    uint32_t groups = settings->model.groups;
    uint64_t all = 0, total = 0;
    *config = (fby_region_config_t){
        .groups = groups,
        .alignment = alignment,
        .huge_pages = settings->pool.huge_pages,
        .lock = settings->pool.lock,
        .prefault = settings->pool.prefault,
        .numa_node = settings->pool.numa_node == FBY_NONE ? -1 : (int)settings->pool.numa_node,
    };
    for (uint32_t g = 0; g < groups; g++) {
        config->slot_bytes[g] = (uint32_t)fby_settings_slot_bytes(settings, g, alignment);
        all += config->slot_bytes[g];
    }
    for (uint32_t g = 0; g < groups; g++) {
        bool by_group = settings->pool.group_bytes[g] > 0;
        uint64_t slots = by_group ? settings->pool.group_bytes[g] / config->slot_bytes[g] : settings->pool.bytes / all;
        total += slots;
        if (slots == 0 || total >= FBY_NONE) {
            fby_error_set(
                "%s: %llu bytes make %llu slots of %u bytes for group %s; accepted: 1 to %u slots in all groups",
                by_group ? "pool.group_bytes" : "pool.bytes",
                (unsigned long long)(by_group ? settings->pool.group_bytes[g] : settings->pool.bytes),
                (unsigned long long)slots, config->slot_bytes[g], settings->model.group[g].name, FBY_NONE - 1);
            return FBY_E_CONFIG;
        }
        config->slots[g] = (uint32_t)slots;
    }
    return 0;
}

static void paint_slot(void *arg, uint32_t slot)
{
    fby_runtime_t *runtime = arg;
    fby_region_paint(&runtime->region, runtime->slots.slot[slot].group, slot, PAINT);
}

static int pool_open(fby_runtime_t *runtime, const fby_region_config_t *config)
{
    uint64_t total = 0;
    int rc = fby_region_open(config, &runtime->region);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t g = 0; g < config->groups; g++) {
        total += config->slots[g];
    }
    rc = pages_get(&runtime->slots_memory, fby_slots_bytes((uint32_t)total), "slot table");
    if (rc != 0) {
        return rc;
    }
    fby_slots_init(&runtime->slots, config->groups, config->slots, runtime->slots_memory.base);
    if (runtime->settings.pool.paint) {
        for (uint32_t slot = 0; slot < total; slot++) {
            paint_slot(runtime, slot);
        }
        runtime->slots.on_free = paint_slot;
        runtime->slots.on_free_arg = runtime;
    }
    return 0;
}

/* ---- Store ------------------------------------------------------------------------------------------------------ */

static int host_choose(fby_runtime_t *runtime)
{
    const fby_store_driver_t *driver = runtime->driver;
    fby_store_host_t host = runtime->settings.store.host;
    bool async = runtime->caps.async && driver->submit != NULL && driver->reap != NULL && driver->wake != NULL;
    if (host == FBY_HOST_INLINE && !async) {
        fby_error_set("store.host inline: driver %s has no asynchronous calls here; accepted: thread, agent, auto",
                      driver->name);
        return FBY_E_CONFIG;
    }
    runtime->inline_host = async && host != FBY_HOST_THREAD;
    return 0;
}

static void lanes_size(fby_runtime_t *runtime)
{
    const fby_settings_t *settings = &runtime->settings;
    const uint32_t asked[] = {settings->store.query_lanes, settings->store.read_lanes, settings->store.write_lanes};
    const uint32_t usual_lanes[] = {
        DEFAULT_QUERY_LANES,
        runtime->caps.read_lanes > 0 ? runtime->caps.read_lanes : DEFAULT_READ_LANES,
        DEFAULT_WRITE_LANES,
    };
    for (unsigned kind = 0; kind < FBY_LANE_KINDS; kind++) {
        uint32_t most = asked[kind] > 0 ? asked[kind] : usual_lanes[kind];
        if (runtime->caps.max_concurrency > 0) {
            most = FBY_MIN(most, runtime->caps.max_concurrency);
        }
        runtime->pool[kind].most = most;
    }
    uint32_t largest = 1;
    for (uint32_t g = 0; g < settings->model.groups; g++) {
        largest = FBY_MAX(largest, runtime->region.slot_bytes[g]);
    }
    uint32_t usual = FBY_MAX((uint32_t)LEAST_BATCH, FBY_MIN((uint32_t)DEFAULT_BATCH, DEFAULT_BATCH_BYTES / largest));
    if (runtime->pool[FBY_LANE_READ].most == 1 && !runtime->inline_host) {
        usual = DEFAULT_BATCH; /* no other read goes on while this one is verified: then fewer calls are cheaper */
    }
    uint32_t batch = settings->store.batch > 0 ? settings->store.batch : usual;
    batch = FBY_MIN(batch, (uint32_t)MOST_BATCH);
    runtime->batch = runtime->caps.max_batch > 0 ? FBY_MIN(batch, runtime->caps.max_batch) : batch;
}

static fby_store_spec_t store_spec(const fby_runtime_t *runtime, uint32_t alignment)
{
    fby_store_spec_t spec = {
        .size = sizeof(spec),
        .groups = runtime->settings.model.groups,
        .alignment = alignment,
        .epoch = runtime->settings.model.weights_epoch,
    };
    memcpy(spec.fingerprint, runtime->keyring->hasher.fingerprint, sizeof(spec.fingerprint));
    memcpy(spec.slot_bytes, runtime->region.slot_bytes, sizeof(spec.slot_bytes));
    memcpy(spec.object_bytes, runtime->object_bytes, sizeof(spec.object_bytes));
    return spec;
}

static int driver_open(fby_runtime_t *runtime, const fby_store_spec_t *spec, char *error, size_t error_size)
{
    int rc = runtime->driver->open(spec, (const char *const *)runtime->settings.store.options, &runtime->store, error,
                                   error_size);
    if (rc == 0) {
        runtime->caps.size = sizeof(runtime->caps);
        runtime->driver->capabilities(runtime->store, &runtime->caps);
    }
    return rc;
}

static int agents_open(fby_runtime_t *runtime, const fby_store_spec_t *spec, char *error, size_t error_size)
{
    const fby_settings_t *settings = &runtime->settings;
    const fby_agent_config_t config = {
        .driver = settings->store.driver,
        .options = (const char *const *)settings->store.options,
        .program = settings->store.agent_dir[0] != '\0' ? settings->store.agent_dir : NULL,
        .spec = spec,
        .region = &runtime->region,
        .lanes = {settings->store.query_lanes, settings->store.read_lanes, settings->store.write_lanes},
        .batch = FBY_MAX(settings->store.batch, settings->prefetch.query_batch_blocks * settings->model.groups),
    };
    int rc = fby_agent_open(&config, &runtime->store, error, error_size);
    if (rc == 0) {
        runtime->driver = &fby_store_agent;
        runtime->agents = true;
        runtime->caps.size = sizeof(runtime->caps);
        runtime->driver->capabilities(runtime->store, &runtime->caps);
    }
    return rc;
}

/* A driver that needs isolation says so when it is opened: then it was opened for that answer only. */
static int store_reach(fby_runtime_t *runtime, const fby_store_spec_t *spec, char *error, size_t error_size)
{
    fby_store_host_t host = runtime->settings.store.host;
    if (host == FBY_HOST_AGENT) {
        return agents_open(runtime, spec, error, error_size);
    }
    int rc = driver_open(runtime, spec, error, error_size);
    if (rc != 0 || !runtime->caps.needs_isolation) {
        return rc == 0 ? host_choose(runtime) : rc;
    }
    if (host != FBY_HOST_AUTO) {
        snprintf(error, error_size, "it runs in a process of its own only; accepted for store.host: agent, auto");
        return FBY_E_CONFIG;
    }
    runtime->driver->close(runtime->store);
    runtime->store = NULL;
    return agents_open(runtime, spec, error, error_size);
}

static int store_open(fby_runtime_t *runtime, uint32_t alignment)
{
    char error[512] = "";
    const fby_settings_t *settings = &runtime->settings;
    const fby_store_spec_t spec = store_spec(runtime, alignment);
    int rc = store_reach(runtime, &spec, error, sizeof(error));
    if (rc != 0) {
        if (error[0] != '\0' || runtime->store == NULL) {
            fby_error_set("store %s: %s", settings->store.driver, error[0] != '\0' ? error : fby_strerror(rc));
        }
        return rc;
    }
    lanes_size(runtime);
    rc = runtime->driver->register_region(runtime->store, runtime->region.base, runtime->region.bytes);
    if (rc != 0) {
        fby_error_set("store %s: cannot register the pool of %zu bytes: %s", settings->store.driver,
                      runtime->region.bytes, fby_strerror(rc));
    }
    return rc;
}

/* ---- Core ------------------------------------------------------------------------------------------------------- */

static fby_write_mode_t write_mode(fby_store_write_t write)
{
    switch (write) {
    case FBY_STORE_WRITE_BACK:
        return FBY_WRITE_BACK;
    case FBY_STORE_WRITE_OFF:
        return FBY_WRITE_OFF;
    default:
        return FBY_WRITE_THROUGH;
    }
}

static void core_configure(fby_runtime_t *runtime, fby_core_config_t *config)
{
    const fby_settings_t *s = &runtime->settings;
    *config = (fby_core_config_t){
        .block_tokens = s->model.block_tokens,
        .groups = s->model.groups,
        .epoch = s->model.weights_epoch,
        .store = true,
        .writes = write_mode(s->store.write),
        .probe_lease_ns = runtime->caps.probe_lease_ns,
        .read_lanes = runtime->pool[FBY_LANE_READ].most,
        .chunk_runtime = s->prefetch.enabled,
        .policy = s->prefetch.policy,
        .stop_mode = s->prefetch.stop_mode,
        .predictive = s->prefetch.predictive,
        .chunk_max_blocks = s->prefetch.chunk_max_blocks,
        .max_inflight_chunks = s->prefetch.max_inflight_chunks,
        .timeout_base_ns = s->prefetch.timeout_base_ns,
        .timeout_per_ki_token_ns = s->prefetch.timeout_per_ki_token_ns,
        .timeout_max_ns = s->prefetch.timeout_max_ns,
        .timeout_budget_ns = s->prefetch.timeout_budget_ns,
        .min_tokens = s->prefetch.min_tokens,
        .max_sessions = s->prefetch.max_sessions,
        .max_reserved_bytes = s->prefetch.max_reserved_bytes,
        .max_pinned_bytes = s->prefetch.max_pinned_bytes,
        .max_hold_bytes = s->pool.max_hold_bytes,
        .write_pinned_bytes = s->pool.write_pinned_bytes,
        .quarantine_limit_bytes = s->prefetch.quarantine_limit_bytes,
        .result_ttl_ns = s->prefetch.result_ttl_ns,
        .recompute_tokens_per_s = s->prefetch.recompute_tokens_per_s,
        .query_batch_blocks = s->prefetch.query_batch_blocks,
        .query_timeout_ns = s->prefetch.query_timeout_ns,
        .io_timeout_ns = s->prefetch.io_timeout_ns,
        .no_progress_ns = s->prefetch.no_progress_timeout_ns,
        .evict_start = s->pool.evict_start,
        .evict_ratio = s->pool.evict_ratio,
        .drain_limit_ns = s->prefetch.drain_limit_ns,
        .negative_ttl_ns = s->store.negative_ttl_ns,
        .floor_bytes_per_s = s->prefetch.floor_bandwidth,
        .slots = &runtime->slots,
        .graph_time = &runtime->metrics.graph,
        .emit = fby_runtime_emit,
        .emit_arg = runtime,
    };
    for (uint32_t g = 0; g < s->model.groups; g++) {
        config->trailing[g] = s->model.group[g].trailing;
        config->slot_bytes[g] = runtime->region.slot_bytes[g];
    }
}

static int index_open(fby_runtime_t *runtime, fby_index_t **out)
{
    const fby_settings_t *settings = &runtime->settings;
    fby_index_config_t config = {
        .max_nodes = FBY_NONE,
        .groups = settings->model.groups,
        .eviction = settings->pool.eviction,
        .slots = &runtime->slots,
        .event = fby_core_index_event,
        .event_arg = &runtime->core,
    };
    for (uint32_t g = 0; g < config.groups; g++) {
        config.trailing[g] = settings->model.group[g].trailing;
        config.slot_bytes[g] = runtime->region.slot_bytes[g];
        if (config.trailing[g] == 0) {
            config.max_nodes = FBY_MIN(config.max_nodes, runtime->region.slots[g]);
        }
    }
    int rc = pages_get(&runtime->index_memory, fby_index_bytes(&config), "index");
    if (rc == 0) {
        *out = fby_index_init(&config, runtime->index_memory.base);
    }
    return rc;
}

/* Handles of another cache, or of a server that was here before, are nobody's here: they begin somewhere else each time. */
static uint32_t handle_seed(void)
{
    uint32_t seed;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed)) {
        seed = (uint32_t)fby_clock_now(&fby_clock_monotonic) * UINT32_C(2654435761) + (uint32_t)getpid();
    }
    return seed;
}

static int core_open(fby_runtime_t *runtime)
{
    fby_core_config_t config;
    core_configure(runtime, &config);
    int rc = index_open(runtime, &config.index);
    if (rc != 0) {
        return rc;
    }
    fby_core_config_defaults(&config);
    runtime->session_slots = config.session_slots;
    rc = fby_board_open(config.session_slots, &runtime->board, &runtime->board_fd);
    if (rc != 0) {
        return rc;
    }
    config.latches = runtime->board->latch;
    config.handle_seed = handle_seed();
    atomic_store_explicit(&runtime->board->generation, config.handle_seed, memory_order_relaxed);
    rc = pages_get(&runtime->core_memory, fby_core_bytes(&config), "core");
    if (rc != 0) {
        return rc;
    }
    runtime->core = fby_core_init(&config, runtime->core_memory.base);
    atomic_store_explicit(&runtime->board->epoch, config.epoch, memory_order_release);
    runtime->sessions = calloc(config.session_slots, sizeof(*runtime->sessions));
    if (runtime->sessions == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < config.session_slots; i++) {
        fby_condition_init(&runtime->sessions[i].answered);
    }
    rc = fby_handles_init(&runtime->puts, config.put_slots);
    return rc == 0 ? fby_handles_init(&runtime->holds, config.hold_slots) : rc;
}

/* ---- All of it -------------------------------------------------------------------------------------------------- */

static void locks_init(fby_runtime_t *runtime)
{
    pthread_mutex_init(&runtime->lock, NULL);
    fby_condition_init(&runtime->puts_changed);
    fby_condition_init(&runtime->reset_done);
    fby_condition_init(&runtime->close_step);
    fby_condition_init(&runtime->timer);
    for (unsigned kind = 0; kind < FBY_LANE_KINDS; kind++) {
        fby_condition_init(&runtime->pool[kind].work);
    }
}

static int parts_open(fby_runtime_t *runtime)
{
    fby_settings_t *settings = &runtime->settings;
    char error[512] = "";
    fby_region_config_t region;
    runtime->driver = fby_store_find(settings->store.driver, error, sizeof(error));
    if (runtime->driver == NULL) {
        fby_error_set("store.driver: %s", error);
        return FBY_E_CONFIG;
    }
    uint32_t alignment = slot_alignment(settings->store.driver);
    int rc = pool_size(settings, alignment, &region);
    if (rc == 0) {
        rc = fby_keyring_create(&settings->model, settings->hash.kind, settings->hash.secret,
                                settings->hash.secret_length, runtime->id, &runtime->keyring);
    }
    rc = rc == 0 ? pool_open(runtime, &region) : rc;
    rc = rc == 0 ? store_open(runtime, alignment) : rc;
    rc = rc == 0 ? core_open(runtime) : rc;
    return rc == 0 && runtime->inline_host ? fby_inline_init(runtime) : rc;
}

int fby_runtime_open(const fby_config_t *config, fby_runtime_t **out)
{
    fby_runtime_t *runtime = calloc(1, sizeof(*runtime));
    if (runtime == NULL) {
        return -ENOMEM;
    }
    int rc = fby_settings_resolve(config, &runtime->settings);
    if (rc != 0) {
        free(runtime);
        return rc;
    }
    const fby_settings_t *settings = &runtime->settings;
    fby_log_setup(settings->log.level, settings->log.format, STDERR_FILENO);
    runtime->id = fby_cache_number();
    runtime->region.fd = runtime->board_fd = -1;
    runtime->timer_armed = runtime->query_due = FBY_NEVER;
    for (uint32_t g = 0; g < settings->model.groups; g++) {
        runtime->object_bytes[g] = settings->model.group[g].payload_bytes + FBY_TRAILER_BYTES;
    }
    fby_breaker_init(&runtime->breaker, settings->store.breaker_failures, settings->store.breaker_backoff_ns,
                     settings->store.breaker_backoff_max_ns);
    locks_init(runtime);
    rc = parts_open(runtime);
    if (rc == 0 && settings->prefetch.enabled) {
        runtime->timer_started = true;
        runtime->threads = 2;
        fby_timer_make(runtime);
        rc = runtime->timer_started ? 0 : -EAGAIN;
    }
    if (rc != 0) {
        fby_runtime_free(runtime);
        return rc;
    }
    *out = runtime;
    return 0;
}

void fby_runtime_free(fby_runtime_t *runtime)
{
    if (runtime->store != NULL) {
        if (runtime->region.base != NULL) {
            runtime->driver->unregister_region(runtime->store, runtime->region.base);
        }
        runtime->driver->close(runtime->store);
    }
    fby_inline_free(runtime);
    fby_handles_free(&runtime->puts);
    fby_handles_free(&runtime->holds);
    for (uint32_t i = 0; runtime->sessions != NULL && i < runtime->session_slots; i++) {
        pthread_cond_destroy(&runtime->sessions[i].answered);
    }
    free(runtime->sessions);
    pages_free(&runtime->core_memory);
    fby_board_close(runtime->board, runtime->board_fd);
    pages_free(&runtime->index_memory);
    pages_free(&runtime->slots_memory);
    fby_region_close(&runtime->region);
    fby_keyring_unref(runtime->keyring);
    for (unsigned kind = 0; kind < FBY_LANE_KINDS; kind++) {
        pthread_cond_destroy(&runtime->pool[kind].work);
    }
    pthread_cond_destroy(&runtime->timer);
    pthread_cond_destroy(&runtime->close_step);
    pthread_cond_destroy(&runtime->reset_done);
    pthread_cond_destroy(&runtime->puts_changed);
    pthread_mutex_destroy(&runtime->lock);
    fby_settings_free(&runtime->settings);
    free(runtime);
}
