/* cmd_demo_run.c - what `forebay demo` does, through the public API only. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/cmd_demo.h"
#include "cli/replay_payload.h"
#include "cli/replay_stop.h"
#include "keys/keys.h"
#include "stores/object.h"

enum { SLOT_BYTES = 16384, GRAPHS = 16, WINDOW = 4, LATENCY_MS = 1, EVENTS = 1 << 16 };
#define LIMIT_S 60.0
/* The whole prefix takes the default store that long: twice the default queue. */
#define FETCH_S 0.4

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static int out_of_memory(void)
{
    fby_error_set("out of memory");
    return -ENOMEM;
}

static int name_store(fby_demo_t *demo)
{
    char text[FBY_SCRATCH_BYTES + 64];
    uint64_t bandwidth = (uint64_t)((double)(demo->blocks * SLOT_BYTES) / FETCH_S);
    int status = demo->options.store == NULL ? fby_scratch_make(demo->scratch) : 0;
    snprintf(text, sizeof(text), "fault:file:dir=%s,bandwidth=%" PRIu64 ",latency_ms=%d", demo->scratch, bandwidth,
             LATENCY_MS);
    return status == 0 ? fby_store_text_parse(demo->options.store != NULL ? demo->options.store : text, &demo->store)
                       : status;
}

static int set_number(fby_config_t *config, const char *key, uint64_t number, const char *unit)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRIu64 "%s", number, unit);
    return fby_config_set(config, key, text);
}

static int configure(const fby_demo_t *demo, fby_config_t *config)
{
    static const char *const texts[][2] = {
        {"model.id", "forebay-demo"}, {"model.revision", "1"},    {"model.kv_dtype", "bytes"},
        {"model.layer_set", "all"},   {"model.layout", "demo"},   {"model.weights_epoch", "0"},
        {"model.tp_size", "1"},       {"model.cp_size", "1"},     {"model.pp_size", "1"},
        {"prefetch.enabled", "true"}, {"store.write", "through"}, {"store.read_lanes", "1"},
        {"pool.prefault", "false"},   {"log.level", "warn"},
    };
    uint64_t pool = 4 * demo->blocks * SLOT_BYTES;
    char groups[64];
    int status = 0;
    for (size_t i = 0; i < FBY_ARRAY_LEN(texts) && status == 0; i++) {
        status = fby_config_set(config, texts[i][0], texts[i][1]);
    }
    snprintf(groups, sizeof(groups), "kv:%" PRIu32 "B:all", demo->payload_bytes);
    const struct {
        const char *key;
        uint64_t number;
        const char *unit;
    } numbers[] = {
        {"model.block_tokens", FBY_DEMO_BLOCK_TOKENS, ""},
        {"prefetch.chunk_max_blocks", FBY_MAX(demo->blocks / GRAPHS, UINT64_C(1)), ""},
        {"prefetch.max_inflight_chunks", WINDOW, ""},
        {"prefetch.max_reserved_bytes", pool, "B"},
        {"prefetch.max_pinned_bytes", pool, "B"},
        {"prefetch.recompute_tokens_per_s", (uint64_t)demo->recompute_tokens_per_s, ""},
        {"pool.bytes", pool, "B"},
        {"pool.write_pinned_bytes", pool / 2, "B"},
    };
    status = status == 0 ? fby_config_set(config, "model.groups", groups) : status;
    for (size_t i = 0; i < FBY_ARRAY_LEN(numbers) && status == 0; i++) {
        status = set_number(config, numbers[i].key, numbers[i].number, numbers[i].unit);
    }
    return status;
}

static int open_cache(fby_demo_t *demo)
{
    fby_config_t *config = NULL;
    int status = fby_config_create(&config);
    status = status == 0 ? configure(demo, config) : status;
    status = status == 0 ? fby_store_text_apply(&demo->store, config) : status;
    status = status == 0 ? fby_cache_open(config, &demo->cache) : status;
    status = status == 0 ? fby_subscribe(demo->cache, EVENTS, &demo->events) : status;
    fby_config_free(config);
    return status;
}

static int allocate(fby_demo_t *demo)
{
    demo->tokens = malloc(demo->options.tokens * sizeof(*demo->tokens));
    demo->hashes = calloc(demo->blocks, sizeof(*demo->hashes));
    demo->addresses = calloc(demo->blocks, sizeof(*demo->addresses));
    demo->copy = malloc(demo->payload_bytes);
    if (demo->tokens == NULL || demo->hashes == NULL || demo->addresses == NULL || demo->copy == NULL) {
        return out_of_memory();
    }
    for (uint64_t i = 0; i < demo->options.tokens; i++) {
        demo->tokens[i] = (uint32_t)(i * 7919 % 128000);
    }
    return 0;
}

/* The sequence, and the hash of each of its blocks: what the payloads follow from. */
static int make_sequence(fby_demo_t *demo)
{
    int status = fby_seq_create(demo->cache, demo->tokens, demo->options.tokens, NULL, 0, &demo->seq);
    for (uint64_t i = 0; i < demo->blocks && status == 0; i++) {
        char key[FBY_KEY_TEXT_BYTES];
        uint32_t group;
        status = fby_seq_key(demo->seq, i, 0, key, sizeof(key));
        if (status == 0 && !fby_key_parse(key, &demo->hashes[i], &group)) {
            fby_error_set("key %s of block %" PRIu64 " cannot be read back", key, i);
            status = FBY_E_FORMAT;
        }
    }
    return status;
}

int fby_demo_open(const fby_demo_options_t *options, fby_demo_t *demo)
{
    *demo = (fby_demo_t){
        .options = *options,
        .budget_ns = options->queue_ns / 3 * 2,
        .blocks = options->tokens / FBY_DEMO_BLOCK_TOKENS,
        .recompute_tokens_per_s = 2 * (double)options->tokens / FETCH_S,
        .payload_bytes = SLOT_BYTES - FBY_TRAILER_BYTES,
    };
    int status = allocate(demo);
    return status == 0 ? name_store(demo) : status;
}

static void close_cache(fby_demo_t *demo)
{
    fby_unsubscribe(demo->events);
    fby_seq_unref(demo->seq);
    if (demo->cache != NULL) {
        fby_cache_close(demo->cache, LIMIT_S, NULL);
    }
    demo->events = NULL;
    demo->seq = NULL;
    demo->cache = NULL;
}

void fby_demo_close(fby_demo_t *demo)
{
    fby_store_text_free(&demo->store);
    fby_scratch_remove(demo->scratch);
    free(demo->tokens);
    free(demo->hashes);
    free(demo->addresses);
    free(demo->copy);
    *demo = (fby_demo_t){0};
}

/* ---- Storing ----------------------------------------------------------------------------------------------------- */

/* Fills the staged blocks [from, to) in place: an engine would copy from its device. */
static int fill(fby_demo_t *demo, fby_put_t put, uint64_t from, uint64_t to)
{
    void **slots = (void **)demo->addresses;
    int status = fby_put_slots(demo->cache, put, 0, from, to, slots);
    for (uint64_t i = from; i < to && status == 0; i++) {
        fby_payload_fill(slots[i - from], demo->payload_bytes, &demo->hashes[i], 0);
    }
    return status;
}

static int store_prompt(fby_demo_t *demo)
{
    uint64_t from, to, stored = 0, failed = 0;
    fby_put_t put;
    int status = fby_put_begin(demo->cache, demo->seq, 0, demo->blocks, &put, NULL, &from, &to);
    if (status != 0) {
        return status;
    }
    status = fill(demo, put, from, to);
    status = status == 0 ? fby_put_commit(demo->cache, put, demo->options.tokens, NULL) : status;
    status = status == 0 ? fby_put_wait_store(demo->cache, put, LIMIT_S, &stored, &failed) : status;
    fby_put_release(demo->cache, put);
    if (status == 0 && stored < demo->blocks) {
        fby_error_set("the store %s took %" PRIu64 " of %" PRIu64 " blocks, %" PRIu64 " failed", demo->store.text,
                      stored, demo->blocks, failed);
        return FBY_E_FULL;
    }
    return status;
}

/* ---- Fetching ---------------------------------------------------------------------------------------------------- */

static int lose_prompt(const fby_demo_t *demo)
{
    uint64_t tokens = 0;
    int status = fby_cache_reset(demo->cache, LIMIT_S, 0);
    if (status == FBY_RESET_BUSY) {
        fby_error_set("the reset did not end in %.0f s", LIMIT_S);
        return -ETIMEDOUT;
    }
    status = status == 0 ? fby_lookup(demo->cache, demo->seq, FBY_LOOKUP_ADVISORY, NULL, &tokens) : status;
    if (status == 0 && tokens != 0) {
        fby_error_set("%" PRIu64 " tokens are left after the reset", tokens);
        return FBY_E_STATE;
    }
    return status;
}

/* Takes the hold, copies every delivered block out and compares the copy with what was stored. */
static int copy_out(const fby_demo_t *demo, fby_session_t session, fby_demo_run_t *run)
{
    fby_hold_t hold;
    uint64_t blocks = 0;
    int status = fby_session_take(demo->cache, session, &hold);
    if (status != 0) {
        return status;
    }
    status = fby_hold_info(demo->cache, hold, NULL, &blocks, NULL);
    status = status == 0 ? fby_hold_slots(demo->cache, hold, 0, 0, blocks, demo->addresses) : status;
    for (uint64_t i = 0; i < blocks && status == 0; i++) {
        bool is_right = fby_payload_copy(demo->copy, demo->addresses[i], demo->payload_bytes, &demo->hashes[i], 0);
        run->right_bytes += is_right ? demo->payload_bytes : 0;
        run->wrong_blocks += !is_right;
    }
    run->wrong_blocks += run->answer.delivered_blocks > blocks ? run->answer.delivered_blocks - blocks : 0;
    fby_hold_release(demo->cache, hold);
    return status;
}

/* Everything of the session has ended: with detach that is later than the answer. */
static int await_end(const fby_demo_t *demo, fby_session_t session, fby_demo_run_t *run)
{
    struct pollfd ready = {.fd = fby_subscription_fd(demo->events), .events = POLLIN};
    fby_event_t event = {.size = sizeof(event)};
    uint64_t end_ns = fby_clock_now(&fby_clock_monotonic) + fby_ns_from_s(LIMIT_S);
    for (;;) {
        int status = fby_subscription_next(demo->events, &event);
        uint64_t now = fby_clock_now(&fby_clock_monotonic);
        if (status == 0 && event.type == FBY_EVENT_SESSION && event.session == session) {
            run->submitted = event.result.submitted;
            return 0;
        }
        if (status == 0) {
            continue;
        }
        if (status != -EAGAIN || now >= end_ns) {
            fby_error_set("the session did not end in %.0f s", LIMIT_S);
            return status != -EAGAIN ? status : -ETIMEDOUT;
        }
        poll(&ready, 1, (int)((end_ns - now) / FBY_MS) + 1);
    }
}

/* The request waits in the queue, becomes a candidate, and the engine waits for the answer. */
static int wait_in_queue(const fby_demo_t *demo, fby_session_t session, fby_demo_run_t *run)
{
    run->answer = (fby_snapshot_t){.size = sizeof(run->answer)};
    int status = fby_session_wait(demo->cache, session, (double)demo->options.queue_ns / 1e9, &run->answer);
    if (status != 0 && status != -ETIMEDOUT) {
        return status;
    }
    uint64_t asked_ns = run->policy == FBY_POLICY_BEST_EFFORT ? fby_clock_now(&fby_clock_monotonic) : 0;
    status = fby_session_demand(demo->cache, session);
    status = status == 0 ? fby_session_wait(demo->cache, session, LIMIT_S, &run->answer) : status;
    if (run->policy == FBY_POLICY_TIMEOUT) {
        asked_ns = run->answer.created_ns + demo->budget_ns;
    }
    run->stop_ns = fby_stop_to_answer_ns(&run->answer, asked_ns);
    return status;
}

static int fetch_prompt(fby_demo_t *demo, fby_demo_run_t *run)
{
    fby_session_options_t options = FBY_SESSION_OPTIONS_INIT;
    fby_stats_t stats = {.size = sizeof(stats)};
    fby_session_t session;
    options.policy = (int32_t)run->policy;
    options.stop_mode = (int32_t)run->stop_mode;
    options.timeout_budget_s = run->policy == FBY_POLICY_TIMEOUT ? (double)demo->budget_ns / 1e9 : -1.0;
    options.label = "demo";
    int status = fby_session_start(demo->cache, demo->seq, &options, &session);
    if (status != 0) {
        return status;
    }
    status = wait_in_queue(demo, session, run);
    status = status == 0 ? copy_out(demo, session, run) : status;
    status = status == 0 ? await_end(demo, session, run) : status;
    status = status == 0 ? fby_cache_stats(demo->cache, &stats) : status;
    run->recalled = stats.graphs_recalled;
    return status == 0 ? fby_lookup(demo->cache, demo->seq, FBY_LOOKUP_ADVISORY, NULL, &run->cached_tokens) : status;
}

int fby_demo_fetch(fby_demo_t *demo, fby_policy_t policy, fby_stop_mode_t stop_mode, fby_demo_run_t *run)
{
    *run = (fby_demo_run_t){.policy = policy, .stop_mode = stop_mode};
    int status = open_cache(demo);
    status = status == 0 ? make_sequence(demo) : status;
    status = status == 0 ? store_prompt(demo) : status;
    status = status == 0 ? lose_prompt(demo) : status;
    status = status == 0 ? fetch_prompt(demo, run) : status;
    close_cache(demo);
    return status;
}
