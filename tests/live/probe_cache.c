#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/replay_payload.h"
#include "cli/store_text.h"
#include "keys/keys.h"
#include "live/probe.h"

/* A block is 256 KiB in a slot of one page more: the size from which real stores are at ease. */
static const char *const defaults[][2] = {
    {"model.id", "live"},
    {"model.revision", "1"},
    {"model.kv_dtype", "f16"},
    {"model.layer_set", "all"},
    {"model.layout", "plain"},
    {"model.weights_epoch", "1"},
    {"model.block_tokens", "16"},
    {"model.tp_size", "1"},
    {"model.cp_size", "1"},
    {"model.pp_size", "1"},
    {"model.groups", "full:256KiB:all"},
    {"pool.bytes", "64MiB"},
    {"pool.max_hold_bytes", "64MiB"},
    {"pool.write_pinned_bytes", "64MiB"},
    {"pool.paint", "true"},
    {"prefetch.enabled", "true"},
    {"prefetch.max_reserved_bytes", "32MiB"},
    {"prefetch.chunk_max_blocks", "8"},
    {"log.level", "error"},
};

/* ---- Open and close ---------------------------------------------------------------------------------------------- */

static int configure(const probe_command_t *command, fby_config_t *config)
{
    fby_store_text_t store;
    int rc = fby_store_text_parse(probe_text(command, "store", "mem"), &store);
    if (rc != 0) {
        return rc;
    }
    rc = fby_store_text_apply(&store, config);
    fby_store_text_free(&store);
    for (size_t i = 0; i < FBY_ARRAY_LEN(defaults) && rc == 0; i++) {
        rc = fby_config_set(config, defaults[i][0], defaults[i][1]);
    }
    for (uint32_t i = 0; i < command->words && rc == 0; i++) {
        if (strchr(command->word[i].name, '.') != NULL) {
            rc = fby_config_set(config, command->word[i].name, command->word[i].value);
        }
    }
    return rc;
}

int probe_open(probe_t *probe, const probe_command_t *command)
{
    probe_cache_t *free_one = NULL;
    for (uint32_t i = 0; i < PROBE_CACHES; i++) {
        free_one = probe->cache[i].cache == NULL ? &probe->cache[i] : free_one;
    }
    if (free_one == NULL) {
        fby_error_set("there are %d caches already", PROBE_CACHES);
        return -EBUSY;
    }
    fby_config_t *config = NULL;
    fby_cache_t *cache = NULL;
    fby_model_t model = {.size = sizeof(model)};
    int rc = fby_config_create(&config);
    rc = rc == 0 ? configure(command, config) : rc;
    rc = rc == 0 ? fby_cache_open(config, &cache) : rc;
    fby_config_free(config);
    rc = rc == 0 ? fby_cache_model(cache, &model) : rc;
    if (rc != 0) {
        return rc;
    }
    *free_one = (probe_cache_t){.cache = cache, .payload_bytes = model.group[0].payload_bytes};
    snprintf(free_one->name, sizeof(free_one->name), "%s", probe_text(command, "cache", ""));
    fby_json_u64(&probe->json, "slot_bytes", model.group[0].slot_bytes);
    return 0;
}

int probe_close(probe_t *probe, const probe_command_t *command)
{
    probe_cache_t *owner = probe_find_cache(probe, command);
    fby_close_report_t report = {.size = sizeof(report)};
    if (owner == NULL) {
        return -ENOENT;
    }
    int rc = fby_cache_close(owner->cache, probe_real(command, "limit", 10), &report);
    for (uint32_t i = 0; i < PROBE_ITEMS; i++) {
        if (probe->item[i].owner == owner) {
            probe_forget(&probe->item[i]);
        }
    }
    *owner = (probe_cache_t){.cache = NULL};
    fby_json_u64(&probe->json, "sessions_aborted", report.sessions_aborted);
    fby_json_u64(&probe->json, "operations_abandoned", report.operations_abandoned);
    fby_json_u64(&probe->json, "bytes_abandoned", report.bytes_abandoned);
    return rc;
}

int probe_evict(probe_t *probe, const probe_command_t *command)
{
    probe_cache_t *owner = probe_find_cache(probe, command);
    if (owner == NULL) {
        return -ENOENT;
    }
    int rc = fby_cache_reset(owner->cache, probe_real(command, "limit", 10), 0);
    fby_json_bool(&probe->json, "done", rc == FBY_RESET_DONE);
    return rc == FBY_RESET_BUSY ? 0 : rc;
}

/* ---- Puts -------------------------------------------------------------------------------------------------------- */

static int fill(const probe_cache_t *owner, fby_put_t put, const fby_seq_t *seq, uint64_t from, uint64_t to)
{
    int rc = 0;
    for (uint64_t block = from; block < to && rc == 0; block++) {
        void *slot = NULL;
        fby_hash_t hash;
        rc = probe_hash(seq, block, &hash);
        rc = rc == 0 ? fby_put_slots(owner->cache, put, 0, block, block + 1, &slot) : rc;
        if (rc == 0) {
            fby_payload_fill(slot, owner->payload_bytes, &hash, 0);
        }
    }
    return rc;
}

/* Ends the put when it cannot be committed or kept. */
static int commit(probe_t *probe, probe_cache_t *owner, fby_put_t put, fby_seq_t *seq, uint64_t from, uint64_t to)
{
    fby_put_result_t result = {.size = sizeof(result)};
    int rc = fill(owner, put, seq, from, to);
    rc = rc == 0 ? fby_put_commit(owner->cache, put, fby_seq_tokens(seq), &result) : rc;
    rc = rc == 0 ? probe_keep(probe, owner, "put", put, seq) : rc;
    if (rc != 0) {
        fby_put_abort(owner->cache, put);
        return rc;
    }
    fby_json_u64(&probe->json, "staged", to - from);
    fby_json_u64(&probe->json, "published", result.published);
    fby_json_u64(&probe->json, "duplicate", result.duplicate);
    fby_json_u64(&probe->json, "orphan", result.orphan);
    fby_json_u64(&probe->json, "resident_blocks", result.resident_tokens / PROBE_BLOCK_TOKENS);
    return 0;
}

int probe_put(probe_t *probe, const probe_command_t *command)
{
    probe_cache_t *owner = probe_find_cache(probe, command);
    fby_seq_t *seq = NULL;
    fby_put_t put = 0;
    uint64_t from = 0, to = 0;
    if (owner == NULL) {
        return -ENOENT;
    }
    int rc = probe_seq(owner, command, &seq);
    if (rc != 0) {
        return rc;
    }
    rc = fby_put_begin(owner->cache, seq, 0, fby_seq_blocks(seq), &put, NULL, &from, &to);
    rc = rc == 0 ? commit(probe, owner, put, seq, from, to) : rc;
    if (rc != 0) {
        fby_seq_unref(seq);
    }
    return rc;
}

int probe_stored(probe_t *probe, const probe_command_t *command)
{
    probe_item_t *put = probe_find_item(probe, command, "put");
    uint64_t stored = 0, failed = 0;
    if (put == NULL) {
        return -ENOENT;
    }
    int rc = fby_put_wait_store(put->owner->cache, put->handle, probe_real(command, "limit", 10), &stored, &failed);
    if (rc != 0) {
        return rc;
    }
    fby_json_u64(&probe->json, "stored", stored);
    fby_json_u64(&probe->json, "failed", failed);
    rc = fby_put_release(put->owner->cache, put->handle);
    probe_forget(put);
    return rc;
}

int probe_keys(probe_t *probe, const probe_command_t *command)
{
    probe_cache_t *owner = probe_find_cache(probe, command);
    fby_seq_t *seq = NULL;
    if (owner == NULL) {
        return -ENOENT;
    }
    int rc = probe_seq(owner, command, &seq);
    if (rc != 0) {
        return rc;
    }
    fby_json_array(&probe->json, "keys");
    for (size_t block = 0; block < fby_seq_blocks(seq) && rc == 0; block++) {
        char key[FBY_KEY_TEXT_BYTES];
        rc = fby_seq_key(seq, block, 0, key, sizeof(key));
        fby_json_text(&probe->json, NULL, rc == 0 ? key : "");
    }
    fby_json_end(&probe->json);
    fby_seq_unref(seq);
    return rc;
}
