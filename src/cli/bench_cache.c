#include "cli/bench_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define LIMIT_S 120.0
#define BUDGET_S 86400.0 /* never ends within a benchmark */

static uint64_t now_ns(void)
{
    return fby_clock_now(&fby_clock_monotonic);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static int set_number(fby_config_t *config, const char *key, uint64_t number, const char *unit)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRIu64 "%s", number, unit);
    return fby_config_set(config, key, text);
}

static int configure_numbers(const fby_bench_set_t *set, const fby_bench_recipe_t *recipe, fby_config_t *config)
{
    uint64_t blocks = (uint64_t)set->blocks * FBY_BENCH_POOL_EIGHTHS / 8 + 1;
    uint64_t pool = blocks * set->slot_bytes;
    const struct {
        const char *key;
        uint64_t number;
        const char *unit;
    } numbers[] = {
        {"model.block_tokens", set->block_tokens, ""},
        {"prefetch.chunk_max_blocks", recipe->has_chunks ? recipe->chunk : set->blocks, ""},
        {"prefetch.max_inflight_chunks", recipe->has_chunks ? recipe->window : 1, ""},
        {"prefetch.query_batch_blocks", FBY_MAX(set->blocks, 1), ""},
        {"prefetch.max_reserved_bytes", pool, "B"},
        {"prefetch.max_pinned_bytes", pool, "B"},
        {"pool.bytes", pool, "B"},
        {"pool.max_hold_bytes", pool, "B"},
        {"pool.write_pinned_bytes", pool, "B"},
    };
    int status = 0;
    for (size_t i = 0; i < FBY_ARRAY_LEN(numbers) && status == 0; i++) {
        status = set_number(config, numbers[i].key, numbers[i].number, numbers[i].unit);
    }
    return status == 0 && recipe->read_lanes > 0 ? set_number(config, "store.read_lanes", recipe->read_lanes, "")
                                                 : status;
}

/* What the caller gives by --set wins. */
static int configure_more(const fby_texts_t *set, fby_config_t *config)
{
    int status = 0;
    for (size_t i = 0; i < set->count && status == 0; i++) {
        char key[128];
        const char *equals = strchr(set->item[i], '=');
        snprintf(key, sizeof(key), "%.*s", (int)(equals - set->item[i]), set->item[i]);
        status = fby_config_set(config, key, equals + 1);
    }
    return status;
}

static int configure(const fby_bench_set_t *set, const fby_store_text_t *store, const fby_bench_recipe_t *recipe,
                     fby_config_t *config)
{
    char groups[48];
    snprintf(groups, sizeof(groups), "kv:%" PRIu32 "B:all", set->payload_bytes);
    const char *const texts[][2] = {
        {"model.id", "forebay-bench"},
        {"model.revision", "1"},
        {"model.kv_dtype", "bytes"},
        {"model.layer_set", "all"},
        {"model.layout", "bench"},
        {"model.weights_epoch", "0"},
        {"model.tp_size", "1"},
        {"model.cp_size", "1"},
        {"model.pp_size", "1"},
        {"model.groups", groups},
        {"prefetch.enabled", recipe->has_chunks ? "true" : "false"},
        {"store.write", recipe->writes ? "through" : "off"},
        {"store.verify", "on"},
        {"pool.prefault", "true"},
        {"log.level", "warn"},
    };
    int status = configure_numbers(set, recipe, config);
    for (size_t i = 0; i < FBY_ARRAY_LEN(texts) && status == 0; i++) {
        status = fby_config_set(config, texts[i][0], texts[i][1]);
    }
    status = status == 0 ? configure_more(recipe->set, config) : status;
    return status == 0 ? fby_store_text_apply(store, config) : status;
}

int fby_bench_cache_open(const fby_bench_set_t *set, const fby_store_text_t *store, const fby_bench_recipe_t *recipe,
                         fby_bench_cache_t *out)
{
    fby_config_t *config = NULL;
    *out = (fby_bench_cache_t){.recipe = *recipe, .graphs = 1};
    if (recipe->has_chunks) {
        out->graphs = (set->blocks + recipe->chunk - 1) / recipe->chunk;
    }
    int status = fby_config_create(&config);
    status = status == 0 ? configure(set, store, recipe, config) : status;
    status = status == 0 ? fby_cache_open(config, &out->cache) : status;
    fby_config_free(config);
    for (uint32_t i = 0; i < set->prompts && status == 0; i++) {
        status = fby_bench_set_sequence(set, out->cache, i, set->blocks, &out->seq[i]);
    }
    return status;
}

void fby_bench_cache_close(fby_bench_cache_t *cache)
{
    for (size_t i = 0; i < FBY_BENCH_PROMPTS_MOST; i++) {
        fby_seq_unref(cache->seq[i]);
    }
    if (cache->cache != NULL) {
        fby_cache_close(cache->cache, LIMIT_S, NULL);
    }
    *cache = (fby_bench_cache_t){0};
}

int fby_bench_cache_forget(fby_bench_cache_t *cache)
{
    int status = fby_cache_reset(cache->cache, LIMIT_S, 0);
    if (status == FBY_RESET_BUSY) {
        fby_error_set("the reset did not end in %.0f s", LIMIT_S);
        return -ETIMEDOUT;
    }
    return status;
}

int fby_bench_cache_graphs(const fby_bench_cache_t *cache, uint64_t *graphs)
{
    fby_stats_t stats = {.size = sizeof(stats)};
    int status = fby_cache_stats(cache->cache, &stats);
    *graphs = stats.graphs;
    return status;
}

/* ---- One request ------------------------------------------------------------------------------------------------- */

int fby_bench_cache_take(const fby_bench_cache_t *cache, const fby_bench_set_t *set, uint32_t prompt,
                         fby_session_t session, uint64_t blocks, bool checks_all, const void **addresses,
                         uint64_t *taken_ns, uint64_t *wrong_blocks)
{
    fby_hold_t hold;
    int status = fby_session_take(cache->cache, session, &hold);
    if (status != 0) {
        return status;
    }
    status = blocks > 0 ? fby_hold_slots(cache->cache, hold, 0, 0, blocks, addresses) : 0;
    if (taken_ns != NULL) {
        *taken_ns = now_ns();
    }
    *wrong_blocks = status == 0 ? fby_bench_set_check(set, prompt, addresses, blocks, checks_all) : 0;
    fby_hold_release(cache->cache, hold);
    return status;
}

/* All of the prompt, and none of it from CPU memory: else it would not be the same work as the other arms'. */
static int check_answer(const fby_bench_set_t *set, const fby_snapshot_t *answer)
{
    uint64_t tokens = (uint64_t)set->blocks * set->block_tokens;
    if (answer->delivered_tokens == tokens && answer->loaded_tokens == tokens) {
        return 0;
    }
    fby_error_set("a request got %" PRIu64 " of %" PRIu64 " tokens, %" PRIu64
                  " of them from the store (outcome %s, reason %s%s%s)",
                  answer->delivered_tokens, tokens, answer->loaded_tokens, fby_outcome_name(answer->outcome),
                  fby_reason_name(answer->reason), answer->error != 0 ? ", error " : "",
                  answer->error != 0 ? fby_errname(answer->error) : "");
    return answer->error != 0 ? answer->error : FBY_E_STATE;
}

int fby_bench_cache_read(const fby_bench_cache_t *cache, const fby_bench_set_t *set, uint32_t prompt, bool checks_all,
                         const void **addresses, fby_bench_read_t *out)
{
    fby_session_options_t options = FBY_SESSION_OPTIONS_INIT;
    fby_snapshot_t answer = {.size = sizeof(answer)};
    fby_session_t session;
    options.policy = (int32_t)cache->recipe.policy;
    options.timeout_budget_s = cache->recipe.policy == FBY_POLICY_TIMEOUT ? BUDGET_S : -1.0;
    uint64_t taken_ns = 0, started_ns = now_ns();
    int status = fby_session_start(cache->cache, cache->seq[prompt], &options, &session);
    status = status == 0 ? fby_session_wait(cache->cache, session, LIMIT_S, &answer) : status;
    if (status == 0 && (status = check_answer(set, &answer)) != 0) {
        fby_session_release(cache->cache, session);
    }
    status = status == 0 ? fby_bench_cache_take(cache, set, prompt, session, set->blocks, checks_all, addresses,
                                                &taken_ns, &out->wrong_blocks)
                         : status;
    out->ns = taken_ns - started_ns;
    return status;
}
