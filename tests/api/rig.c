#include "api/rig.h"

#include <dirent.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "api/call.h"
#include "forebay/server.h"
#include "keys/keys.h"
#include "runtime/runtime.h"
#include "stores/object.h"
#include "stores/stores.h"

static _Atomic unsigned store_names;

static const char *const geometry[] = {
    "model.id=rig",
    "model.revision=1",
    "model.kv_dtype=f16",
    "model.layer_set=all",
    "model.layout=plain",
    "model.weights_epoch=1",
    "model.block_tokens=16",
    "model.tp_size=1",
    "model.cp_size=1",
    "model.pp_size=1",
    "model.groups=full:4096:all",
    "pool.bytes=266240B",
    "pool.max_hold_bytes=266240B",
    "pool.write_pinned_bytes=266240B",
    "pool.paint=true",
    "prefetch.enabled=true",
    "prefetch.chunk_max_blocks=4",
    "prefetch.max_inflight_chunks=2",
    "store.driver=mem",
    "log.level=error",
    NULL,
};

static void config_apply(fby_config_t *config, const char *const *settings)
{
    for (; *settings != NULL; settings++) {
        char key[64];
        const char *equals = strchr(*settings, '=');
        snprintf(key, sizeof(key), "%.*s", (int)(equals - *settings), *settings);
        int rc = fby_config_set(config, key, equals + 1);
        if (rc != 0) {
            fail_msg("%s: %s", *settings, fby_last_error());
        }
    }
}

static bool host_is(const char *name)
{
    const char *host = getenv("FOREBAY_TEST_HOST");
    return host != NULL && strcmp(host, name) == 0;
}

bool rig_hosted(void)
{
    return host_is("agent");
}

bool rig_is_served(void)
{
    return host_is("server");
}

fby_cache_t *rig_real(const rig_t *rig)
{
    return rig->served != NULL ? rig->served : rig->cache;
}

void rig_needs_process(void)
{
    if (rig_hosted()) {
        print_message("skipped: this needs the store in its own process\n");
        skip();
    }
}

/* Another driver than ours has no stores with names. */
static bool names_driver(const char *const *settings)
{
    bool names = false;
    for (; *settings != NULL; settings++) {
        names = names || strncmp(*settings, "store.driver=", 13) == 0;
    }
    return names;
}

fby_config_t *rig_config(const rig_t *rig, const char *const *settings)
{
    fby_config_t *config;
    char name[80];
    snprintf(name, sizeof(name), "store.options.name=%s", rig->name);
    assert_int_equal(fby_config_create(&config), 0);
    config_apply(config, geometry);
    if (rig_hosted()) {
        config_apply(config, (const char *const[]){"store.host=agent", NULL});
    }
    if (rig->folder[0] != '\0') {
        char listen[80];
        snprintf(listen, sizeof(listen), "server.listen=%s/socket", rig->folder);
        config_apply(config, (const char *const[]){listen, "server.allow_check=true", NULL});
    }
    if (!names_driver(settings)) {
        config_apply(config, (const char *const[]){name, NULL});
    }
    config_apply(config, settings);
    return config;
}

static fby_cache_t *open_cache(const rig_t *rig, const char *const *settings)
{
    fby_cache_t *cache;
    fby_config_t *config = rig_config(rig, settings);
    int rc = fby_cache_open(config, &cache);
    if (rc != 0) {
        fail_msg("open: %s: %s", fby_strerror(rc), fby_last_error());
    }
    fby_config_free(config);
    return cache;
}

/* The real cache is closed by its own process, which is this one. */
static void stop_serving(rig_t *rig)
{
    if (rig->served != NULL) {
        fby_cache_close(rig->served, RIG_PATIENCE_S, NULL);
        rig->served = NULL;
        assert_int_equal(rmdir(rig->folder), 0);
    }
}

static void connect_to_served(rig_t *rig)
{
    char path[64];
    fby_connect_options_t options = FBY_CONNECT_OPTIONS_INIT;
    options.call_timeout_s = RIG_PATIENCE_S;
    snprintf(path, sizeof(path), "%s/socket", rig->folder);
    int rc = fby_connect(path, &options, &rig->cache);
    if (rc != 0) {
        fail_msg("connect: %s: %s", fby_strerror(rc), fby_last_error());
    }
}

void rig_reopen(rig_t *rig, const char *const *settings)
{
    stop_serving(rig);
    if (rig_is_served()) {
        snprintf(rig->folder, sizeof(rig->folder), "/tmp/forebay-rig-XXXXXX");
        assert_non_null(mkdtemp(rig->folder));
        rig->served = open_cache(rig, settings);
        connect_to_served(rig);
    } else {
        rig->cache = open_cache(rig, settings);
    }
}

void rig_open(rig_t *rig, const char *const *settings)
{
    char name[64], error[256] = "";
    memset(rig, 0, sizeof(*rig));
    snprintf(rig->name, sizeof(rig->name), "rig-%u", atomic_fetch_add(&store_names, 1));
    snprintf(name, sizeof(name), "name=%s", rig->name);
    fby_store_spec_t spec = {.size = sizeof(spec), .groups = 1, .object_bytes = {RIG_PAYLOAD + 64}, .alignment = 64};
    const char *const options[] = {name, NULL};
    int rc = fby_store_mem.open(&spec, options, &rig->store, error, sizeof(error));
    if (rc != 0) {
        fail_msg("mem store: %s", error);
    }
    rig_reopen(rig, settings);
}

void rig_close(rig_t *rig)
{
    fby_cache_close(rig->cache, RIG_PATIENCE_S, NULL);
    stop_serving(rig);
    fby_store_mem.close(rig->store);
}

/* ---- Content ---------------------------------------------------------------------------------------------------- */

fby_seq_t *rig_seq(rig_t *rig, uint64_t seed, size_t tokens)
{
    fby_seq_t *seq;
    uint32_t *text = malloc(tokens * sizeof(*text) + 1);
    assert_non_null(text);
    for (size_t i = 0; i < tokens; i++) {
        text[i] = (uint32_t)unit_random(&seed);
    }
    assert_int_equal(fby_seq_create(rig->cache, text, tokens, NULL, 0, &seq), 0);
    free(text);
    return seq;
}

void rig_content(const fby_seq_t *seq, size_t block, uint32_t group, uint8_t *payload, size_t bytes)
{
    char key[FBY_KEY_BYTES];
    uint64_t state = 1;
    assert_int_equal(fby_seq_key(seq, block, group, key, sizeof(key)), 0);
    for (const char *c = key; *c != '\0'; c++) {
        state = state * 31 + (uint64_t)*c;
    }
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = unit_random(&state);
        memcpy(payload + i, &word, FBY_MIN(sizeof(word), bytes - i));
    }
}

static void object_of(rig_t *rig, const fby_seq_t *seq, size_t block, uint8_t *object)
{
    fby_model_t model = {.size = sizeof(model)};
    fby_object_id_t id = {.payload_bytes = RIG_PAYLOAD, .segment_bytes = FBY_SEGMENT_BYTES};
    char key[FBY_KEY_BYTES];
    uint32_t group;
    assert_int_equal(fby_cache_model(rig->cache, &model), 0);
    for (size_t i = 0; i < sizeof(id.fingerprint); i++) {
        unsigned byte;
        sscanf(model.fingerprint + 2 * i, "%2x", &byte);
        id.fingerprint[i] = (uint8_t)byte;
    }
    assert_int_equal(fby_seq_key(seq, block, 0, key, sizeof(key)), 0);
    assert_true(fby_key_parse(key, &id.hash, &group));
    rig_content(seq, block, 0, object, RIG_PAYLOAD);
    fby_object_seal(object, &id, true);
}

/* Past the cache, by whatever way its own writes take. */
static int64_t store_object(rig_t *rig, const char *key, uint8_t *object, uint32_t bytes)
{
    const fby_runtime_t *runtime = rig_real(rig)->runtime;
    fby_store_op_t op = {.buffer = object, .bytes = bytes};
    if (!runtime->agents) {
        return fby_mem_put(rig->store, key, object, bytes) == 0 ? (int64_t)bytes : -1;
    }
    snprintf(op.key, sizeof(op.key), "%s", key);
    int rc = runtime->driver->put(runtime->store, &op, 1);
    return rc < 0 ? rc : op.result;
}

void rig_store_blocks(rig_t *rig, const fby_seq_t *seq, size_t from, size_t to)
{
    uint8_t object[RIG_PAYLOAD + FBY_TRAILER_BYTES];
    for (size_t block = from; block < to; block++) {
        char key[FBY_KEY_BYTES];
        object_of(rig, seq, block, object);
        fby_seq_key(seq, block, 0, key, sizeof(key));
        assert_int_equal(store_object(rig, key, object, sizeof(object)), sizeof(object));
    }
}

static void put_fill(rig_t *rig, fby_put_t put, const fby_seq_t *seq, uint64_t from, uint64_t to)
{
    for (uint64_t block = from; block < to; block++) {
        void *slot;
        assert_int_equal(fby_put_slots(rig->cache, put, 0, block, block + 1, &slot), 0);
        assert_non_null(slot);
        rig_content(seq, block, 0, slot, RIG_PAYLOAD);
    }
}

fby_put_t rig_put(rig_t *rig, fby_seq_t *seq, uint64_t to, fby_put_result_t *result)
{
    fby_put_t put;
    fby_put_result_t local = {.size = sizeof(local)};
    uint64_t from, end;
    assert_int_equal(fby_put_begin(rig->cache, seq, 0, to, &put, NULL, &from, &end), 0);
    put_fill(rig, put, seq, from, end);
    assert_int_equal(fby_put_commit(rig->cache, put, fby_seq_tokens(seq), &local), 0);
    if (result != NULL) {
        *result = local;
    }
    return put;
}

void rig_put_stored(rig_t *rig, fby_seq_t *seq, uint64_t to)
{
    uint64_t stored, failed;
    fby_put_t put = rig_put(rig, seq, to, NULL);
    assert_int_equal(fby_put_wait_store(rig->cache, put, RIG_PATIENCE_S, &stored, &failed), 0);
    assert_int_equal(failed, 0);
    assert_int_equal(fby_put_release(rig->cache, put), 0);
}

void rig_script(rig_t *rig, const char *text)
{
    char error[256] = "";
    if (fby_mem_script(rig->store, text, error, sizeof(error)) != 0) {
        fail_msg("script: %s", error);
    }
}

void rig_script_block(rig_t *rig, const fby_seq_t *seq, size_t block, const char *verb, const char *effect)
{
    char key[FBY_KEY_BYTES], text[160];
    assert_int_equal(fby_seq_key(seq, block, 0, key, sizeof(key)), 0);
    snprintf(text, sizeof(text), "%s:%s:%s", verb, key, effect);
    rig_script(rig, text);
}

/* ---- Sessions --------------------------------------------------------------------------------------------------- */

fby_session_t rig_start(rig_t *rig, fby_seq_t *seq, fby_policy_t policy, fby_stop_mode_t mode, double budget_s)
{
    fby_session_options_t options = FBY_SESSION_OPTIONS_INIT;
    fby_session_t session = 0;
    options.policy = (int32_t)policy;
    options.stop_mode = (int32_t)mode;
    options.timeout_budget_s = budget_s;
    int rc = fby_session_start(rig->cache, seq, &options, &session);
    if (rc != 0) {
        fail_msg("start: %s", fby_last_error());
    }
    return session;
}

fby_snapshot_t rig_wait(rig_t *rig, fby_session_t session)
{
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    int rc = fby_session_wait(rig->cache, session, RIG_PATIENCE_S, &snapshot);
    if (rc != 0) {
        fail_msg("wait: %s: %s", fby_errname(rc), fby_last_error());
    }
    return snapshot;
}

fby_snapshot_t rig_poll(rig_t *rig, fby_session_t session)
{
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    assert_int_equal(fby_session_poll(rig->cache, session, &snapshot), 0);
    return snapshot;
}

void rig_verify_hold(rig_t *rig, fby_hold_t hold, const fby_seq_t *seq, uint64_t blocks)
{
    uint64_t held;
    uint8_t expected[RIG_PAYLOAD];
    assert_int_equal(fby_hold_info(rig->cache, hold, NULL, &held, NULL), 0);
    assert_int_equal(held, blocks);
    for (uint64_t block = 0; block < blocks; block++) {
        const void *slot;
        assert_int_equal(fby_hold_slots(rig->cache, hold, 0, block, block + 1, &slot), 0);
        assert_non_null(slot);
        rig_content(seq, block, 0, expected, sizeof(expected));
        assert_memory_equal(slot, expected, sizeof(expected));
    }
}

void rig_take_and_verify(rig_t *rig, fby_session_t session, const fby_seq_t *seq, uint64_t blocks)
{
    fby_hold_t hold;
    assert_int_equal(fby_session_take(rig->cache, session, &hold), 0);
    rig_verify_hold(rig, hold, seq, blocks);
    assert_int_equal(fby_hold_release(rig->cache, hold), 0);
}

uint64_t rig_lookup(rig_t *rig, fby_seq_t *seq)
{
    uint64_t tokens = UINT64_MAX;
    assert_int_equal(fby_lookup(rig->cache, seq, FBY_LOOKUP_ADVISORY, NULL, &tokens), 0);
    return tokens / RIG_BLOCK_TOKENS;
}

fby_stats_t rig_stats(rig_t *rig)
{
    fby_stats_t stats = {.size = sizeof(stats)};
    assert_int_equal(fby_cache_stats(rig->cache, &stats), 0);
    return stats;
}

static bool is_quiet(const fby_stats_t *s)
{
    return s->reserved_bytes_gauge == 0 && s->pinned_bytes_gauge == 0 && s->hold_bytes_gauge == 0 &&
           s->write_pinned_bytes_gauge == 0 && s->quarantine_bytes_gauge == 0 && s->retired_bytes_gauge == 0 &&
           s->inflight_graphs_gauge == 0 && s->sessions_running_gauge == 0 && s->sessions_parked_gauge == 0 &&
           s->leases_gauge == 0 && s->holds_gauge == 0 && s->puts_gauge == 0 &&
           s->free_blocks_gauge + s->resident_blocks_gauge == s->pool_blocks_gauge;
}

void rig_quiet(rig_t *rig)
{
    fby_stats_t stats = rig_stats(rig);
    for (int turn = 0; turn < 20000 && !is_quiet(&stats); turn++) {
        rig_pause();
        stats = rig_stats(rig);
    }
    if (!is_quiet(&stats)) {
#define FBY_X(name) fprintf(stderr, "%s=%llu\n", #name, (unsigned long long)stats.name);
        FBY_STAT_MAP(FBY_X)
#undef FBY_X
        fail_msg("not quiet");
    }
    if (fby_cache_check(rig->cache) != 0) {
        fail_msg("check: %s", fby_last_error());
    }
}

void rig_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

unsigned rig_threads(void)
{
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}
