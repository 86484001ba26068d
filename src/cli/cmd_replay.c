/* cmd_replay.c - `forebay replay`: a trace of requests through sessions, one run per policy, stop mode and chunk size. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/replay_run.h"
#include "cli/store_text.h"
#include "runtime/config_value.h"

enum {
    MOST_RUNS = FBY_POLICY_COUNT * FBY_STOP_MODE_COUNT * FBY_ARG_LIST_MOST,
    POOL_TOKENS = 5120000,
    CHUNK_TOKENS = 4096,
    POOL_PROMPTS = 4,
    VIRTUAL_TOKEN_BYTES = 32768,
    REAL_TOKEN_BYTES = 32
};
#define MOST_POOL_BLOCKS (UINT64_C(1) << 24)
#define USUAL_POOL_BYTES (UINT64_C(512) << 20) /* real clock */
#define MOST_PAYLOAD_BYTES (UINT64_C(1) << 30)

static const char examples[] =
    "  forebay replay trace.jsonl --virtual\n"
    "  forebay replay trace.jsonl --virtual --policy wait_complete,best_effort --stop-mode drain,recall,detach --chunk "
    "4,16\n"
    "  forebay replay trace.jsonl --virtual --store-bandwidth 1GiB --jitter 20 --seed 7 --json\n"
    "  forebay replay trace.jsonl --requests 500 --speed 20 --store file:/mnt/nvme/forebay\n"
    "  forebay replay trace.jsonl --requests 500 --serial --policy wait_complete --details requests.jsonl\n";

static const char *const policies[] = {
#define FBY_X(name, text) text,
    FBY_POLICY_MAP(FBY_X)
#undef FBY_X
        NULL,
};
static const char *const stop_modes[] = {
#define FBY_X(name, text) text,
    FBY_STOP_MODE_MAP(FBY_X)
#undef FBY_X
        NULL,
};

/* Options as given. */
typedef struct given {
    bool is_virtual, serial, as_json;
    uint32_t policies, stop_modes; /* a bit each */
    fby_wholes_t chunks;
    uint64_t requests, slots, block_tokens;
    uint64_t token_bytes, pool_blocks; /* 0: not given */
    double prefill_tokens_per_s, decode_ms;
    double recompute_tokens_per_s;            /* < 0: not given */
    uint64_t budget_ns;                       /* FBY_NEVER: not given */
    double latency_ms, speed;                 /* < 0: not given */
    uint64_t bandwidth, jitter_percent, seed; /* UINT64_MAX: not given */
    const char *store, *details;              /* NULL: not given */
} given_t;

static int failed(const fby_usage_t *usage)
{
    fprintf(stderr, "%s: %s\n", usage->command, fby_last_error());
    return FBY_EXIT_FAILED;
}

/* ---- Checks ------------------------------------------------------------------------------------------------------- */

/* The first option that belongs to the other clock, or NULL. */
static const char *misplaced(const given_t *given)
{
    const struct {
        const char *name;
        bool is_given, needs_virtual;
    } options[] = {
        {"store-latency-ms", given->latency_ms >= 0, true},
        {"store-bandwidth", given->bandwidth != UINT64_MAX, true},
        {"jitter", given->jitter_percent != UINT64_MAX, true},
        {"seed", given->seed != UINT64_MAX, true},
        {"store", given->store != NULL, false},
        {"speed", given->speed >= 0, false},
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(options); i++) {
        if (options[i].is_given && options[i].needs_virtual != given->is_virtual) {
            return options[i].name;
        }
    }
    return NULL;
}

static int check_real(const fby_usage_t *usage, const char *name, double number, const char *accepted)
{
    return fby_usage_fault(usage, "--%s: %g is too small; accepted: a number from %s", name, number, accepted);
}

/* What the table of options cannot say. FBY_ARGS_GO or an exit code. */
static int check(const fby_usage_t *usage, const given_t *given)
{
    const char *wrong = misplaced(given);
    if (wrong != NULL) {
        return fby_usage_fault(usage,
                               given->is_virtual ? "--%s belongs to the real clock; accepted: without --virtual"
                                                 : "--%s belongs to the simulated store; accepted: with --virtual",
                               wrong);
    }
    if (FBY_TRACE_BLOCK_TOKENS % given->block_tokens != 0) {
        return fby_usage_fault(
            usage, "--block-tokens: %" PRIu64 " does not divide %u; accepted: 1, 2, 4, 8, 16, 32, 64, 128, 256, 512",
            given->block_tokens, FBY_TRACE_BLOCK_TOKENS);
    }
    if (given->token_bytes * given->block_tokens > MOST_PAYLOAD_BYTES) {
        return fby_usage_fault(usage,
                               "--token-bytes: %" PRIu64 " makes blocks of more than 1GiB; accepted: up to %" PRIu64,
                               given->token_bytes, MOST_PAYLOAD_BYTES / given->block_tokens);
    }
    if (given->prefill_tokens_per_s < 1) {
        return check_real(usage, "prefill-tokens-per-s", given->prefill_tokens_per_s, "1 to 1000000000");
    }
    if (given->recompute_tokens_per_s >= 0 && given->recompute_tokens_per_s < 1) {
        return check_real(usage, "recompute-tokens-per-s", given->recompute_tokens_per_s, "1 to 1000000000");
    }
    if (given->speed >= 0 && given->speed < 0.001) {
        return check_real(usage, "speed", given->speed, "0.001 to 1000000");
    }
    return FBY_ARGS_GO;
}

/* Holds take half of the pool, puts a quarter: the longest prompt must fit into each. */
static int check_pool(const fby_usage_t *usage, const fby_trace_t *trace, const given_t *given,
                      fby_replay_options_t *options)
{
    uint64_t longest = 1;
    for (uint32_t i = 0; i < options->requests; i++) {
        longest = FBY_MAX(longest, trace->request[i].input_tokens / given->block_tokens);
    }
    uint64_t least = longest * POOL_PROMPTS;
    if (least > MOST_POOL_BLOCKS) {
        return fby_usage_fault(usage,
                               "--block-tokens: %" PRIu64 " cuts the longest prompt into %" PRIu64
                               " blocks; accepted: a size that makes at most %" PRIu64,
                               given->block_tokens, longest, MOST_POOL_BLOCKS / POOL_PROMPTS);
    }
    if (given->pool_blocks != 0 && given->pool_blocks < least) {
        return fby_usage_fault(usage,
                               "--pool-blocks: %" PRIu64 " is too small for the longest prompt, which has %" PRIu64
                               " blocks; accepted: %" PRIu64 " or more (%d times that)",
                               given->pool_blocks, longest, least, POOL_PROMPTS);
    }
    uint64_t usual = FBY_MIN(POOL_TOKENS / given->block_tokens, MOST_POOL_BLOCKS);
    if (!given->is_virtual) {
        usual = FBY_MIN(usual, USUAL_POOL_BYTES / fby_replay_slot_bytes(options));
    }
    options->pool_blocks = given->pool_blocks != 0 ? given->pool_blocks : FBY_MAX(usual, least);
    return FBY_ARGS_GO;
}

static int settle(const fby_usage_t *usage, const fby_trace_t *trace, const given_t *given, fby_replay_options_t *out)
{
    uint64_t usual_bytes = given->is_virtual ? VIRTUAL_TOKEN_BYTES : REAL_TOKEN_BYTES;
    *out = (fby_replay_options_t){
        .trace = trace,
        .requests = (uint32_t)FBY_MIN(given->requests, (uint64_t)trace->requests),
        .slots = (uint32_t)given->slots,
        .serial = given->serial,
        .prefill_tokens_per_s = given->prefill_tokens_per_s,
        .decode_ms = given->decode_ms,
        .block_tokens = (uint32_t)given->block_tokens,
        .token_bytes = (uint32_t)(given->token_bytes != 0 ? given->token_bytes : usual_bytes),
        .budget_ns = given->budget_ns,
        .recompute_tokens_per_s =
            given->recompute_tokens_per_s >= 0 ? given->recompute_tokens_per_s : given->prefill_tokens_per_s,
        .latency_ns = given->latency_ms >= 0 ? (uint64_t)(given->latency_ms * (double)FBY_MS) : FBY_MS,
        .bandwidth = given->bandwidth != UINT64_MAX ? given->bandwidth : UINT64_C(4) << 30,
        .jitter_percent = given->jitter_percent != UINT64_MAX ? (uint32_t)given->jitter_percent : 10,
        .seed = given->seed != UINT64_MAX ? given->seed : 1,
        .store = given->store,
        .speed = given->speed >= 0 ? given->speed : 1,
    };
    return check_pool(usage, trace, given, out);
}

/* ---- Runs --------------------------------------------------------------------------------------------------------- */

static size_t list_cases(const given_t *given, fby_replay_case_t *cases)
{
    size_t n = 0;
    for (uint32_t p = 0; p < FBY_POLICY_COUNT; p++) {
        for (uint32_t m = 0; m < FBY_STOP_MODE_COUNT; m++) {
            bool is_asked = (given->policies & UINT32_C(1) << p) != 0 && (given->stop_modes & UINT32_C(1) << m) != 0;
            for (size_t c = 0; c < given->chunks.count && is_asked; c++) {
                cases[n++] = (fby_replay_case_t){(fby_policy_t)p, (fby_stop_mode_t)m, (uint32_t)given->chunks.item[c]};
            }
        }
    }
    return n;
}

static int run_cases(const given_t *given, const fby_replay_options_t *options, FILE *details,
                     const fby_replay_case_t *cases, size_t n, fby_replay_result_t *results)
{
    int status = 0;
    for (size_t i = 0; i < n && status == 0; i++) {
        char label[96];
        fby_progress_t progress;
        fby_replay_run_t run = {options, cases[i], details, &progress};
        snprintf(label, sizeof(label), "replay %zu/%zu, %s, %s, chunk %" PRIu32, i + 1, n, policies[cases[i].policy],
                 stop_modes[cases[i].stop_mode], cases[i].chunk);
        fby_progress_begin(&progress, label, options->requests);
        status = given->is_virtual ? fby_replay_virtual(&run, &results[i]) : fby_replay_real(&run, &results[i]);
        fby_progress_end(&progress);
    }
    return status;
}

static int report(const fby_usage_t *usage, const given_t *given, const fby_replay_options_t *options, const char *path,
                  const fby_replay_result_t *results, size_t n)
{
    int code = FBY_EXIT_OK;
    if (given->as_json) {
        fby_replay_json(path, results, n);
    } else {
        fby_replay_text(options, results, n);
    }
    for (size_t i = 0; i < n; i++) {
        if (results[i].verify_failures > 0) {
            fprintf(stderr,
                    "%s: %" PRIu64 " blocks of policy %s, stop mode %s, chunk %" PRIu32 " are not what was stored\n",
                    usage->command, results[i].verify_failures, policies[results[i].which.policy],
                    stop_modes[results[i].which.stop_mode], results[i].which.chunk);
            code = FBY_EXIT_FAILED;
        }
    }
    return code;
}

static int open_details(const fby_usage_t *usage, const char *path, FILE **out)
{
    char quoted[128];
    *out = path != NULL ? fopen(path, "we") : NULL;
    if (path == NULL || *out != NULL) {
        return FBY_EXIT_OK;
    }
    fprintf(stderr, "%s: --details: %s cannot be written: %s\n", usage->command,
            fby_log_quote(quoted, sizeof(quoted), path), strerror(errno));
    return FBY_EXIT_FAILED;
}

static int close_details(const fby_usage_t *usage, FILE *details)
{
    bool is_whole = details == NULL || !ferror(details);
    if (details != NULL && (fclose(details) != 0 || !is_whole)) {
        fprintf(stderr, "%s: --details: the file could not be written: %s\n", usage->command, strerror(errno));
        return FBY_EXIT_FAILED;
    }
    return FBY_EXIT_OK;
}

static int replay(const fby_usage_t *usage, const given_t *given, const fby_trace_t *trace, const char *path)
{
    static fby_replay_case_t cases[MOST_RUNS];
    static fby_replay_result_t results[MOST_RUNS];
    fby_replay_options_t options;
    FILE *details;
    int code = settle(usage, trace, given, &options);
    if (code != FBY_ARGS_GO) {
        return code;
    }
    code = open_details(usage, given->details, &details);
    if (code != FBY_EXIT_OK) {
        return code;
    }
    size_t n = list_cases(given, cases);
    int status = run_cases(given, &options, details, cases, n, results);
    code = status == 0 ? report(usage, given, &options, path, results, n) : failed(usage);
    int closed = close_details(usage, details);
    return code == FBY_EXIT_OK ? closed : code;
}

/* ---- The command -------------------------------------------------------------------------------------------------- */

static int load_and_replay(const fby_usage_t *usage, given_t *given, const char *path)
{
    fby_trace_t trace;
    fby_store_text_t store = {.copy = NULL};
    if (given->store != NULL && fby_store_text_parse(given->store, &store) != 0) {
        return fby_usage_fault(usage, "--store: %s", fby_last_error());
    }
    fby_store_text_free(&store);
    if (fby_trace_load(path, &trace) != 0) {
        return failed(usage);
    }
    int code = replay(usage, given, &trace, path);
    fby_trace_free(&trace);
    return code;
}

static const given_t defaults = {
    .policies = 1u << FBY_POLICY_WAIT_COMPLETE | 1u << FBY_POLICY_BEST_EFFORT,
    .stop_modes = 1u << FBY_STOP_DRAIN,
    .requests = UINT64_MAX,
    .slots = 32,
    .block_tokens = FBY_TRACE_BLOCK_TOKENS,
    .prefill_tokens_per_s = 10000,
    .decode_ms = 20,
    .recompute_tokens_per_s = -1,
    .budget_ns = FBY_NEVER,
    .latency_ms = -1,
    .speed = -1,
    .bandwidth = UINT64_MAX,
    .jitter_percent = UINT64_MAX,
    .seed = UINT64_MAX,
};

int fby_cmd_replay(int argc, char **argv)
{
    given_t given = defaults;
    const fby_arg_t args[] = {
        {"virtual", FBY_ARG_FLAG, &given.is_virtual, NULL,
         "simulated clock and store: fast, and the same for the same seed", 0, 0, NULL},
        {"policy", FBY_ARG_WORD_LIST, &given.policies, "P,...",
         "wait_complete, timeout, best_effort, break_even (wait_complete,best_effort)", 0, 0, policies},
        {"stop-mode", FBY_ARG_WORD_LIST, &given.stop_modes, "M,...", "drain, recall, detach (drain)", 0, 0, stop_modes},
        {"chunk", FBY_ARG_WHOLE_LIST, &given.chunks, "N,...", "most blocks of one graph (4096 tokens' worth)", 1, 65536,
         NULL},
        {"requests", FBY_ARG_WHOLE, &given.requests, "N", "only the first N of the trace", 1, UINT64_MAX, NULL},
        {"serial", FBY_ARG_FLAG, &given.serial, NULL, "each request arrives when the one before is in the store", 0, 0,
         NULL},
        {"slots", FBY_ARG_WHOLE, &given.slots, "N", "requests that the engine runs at once (32)", 1, 512, NULL},
        {"prefill-tokens-per-s", FBY_ARG_REAL, &given.prefill_tokens_per_s, "R", "prefill speed of a slot (10000)", 0,
         1000000000, NULL},
        {"decode-ms", FBY_ARG_REAL, &given.decode_ms, "MS", "time per output token, of which at most 8192 count (20)",
         0, 1000000, NULL},
        {"block-tokens", FBY_ARG_WHOLE, &given.block_tokens, "N", "tokens of a block; divides 512 (512)", 1, 512, NULL},
        {"token-bytes", FBY_ARG_SIZE, &given.token_bytes, "SIZE", "KV bytes per token (32KiB with --virtual, else 32B)",
         1, MOST_PAYLOAD_BYTES, NULL},
        {"pool-blocks", FBY_ARG_WHOLE, &given.pool_blocks, "N",
         "CPU memory, in blocks (5120000 tokens' worth, of real memory at most 512MiB)", 1, MOST_POOL_BLOCKS, NULL},
        {"budget", FBY_ARG_SECONDS, &given.budget_ns, "SECONDS", "of the timeout policy (2 s + 0.1 s per 1024 tokens)",
         0, 0, NULL},
        {"recompute-tokens-per-s", FBY_ARG_REAL, &given.recompute_tokens_per_s, "R",
         "what break_even compares with (prefill speed)", 0, 1000000000, NULL},
        {"store-latency-ms", FBY_ARG_REAL, &given.latency_ms, "MS", "with --virtual: of each store call (1)", 0,
         3600000, NULL},
        {"store-bandwidth", FBY_ARG_SIZE, &given.bandwidth, "SIZE",
         "with --virtual: bytes per second, 0: no limit (4GiB)", 0, FBY_MOST_BYTES, NULL},
        {"jitter", FBY_ARG_WHOLE, &given.jitter_percent, "PERCENT", "with --virtual: of the latency, either way (10)",
         0, 100, NULL},
        {"seed", FBY_ARG_WHOLE, &given.seed, "N", "with --virtual: of the jitter (1)", 0, UINT64_MAX - 1, NULL},
        {"store", FBY_ARG_TEXT, &given.store, "STORE", FBY_STORE_ACCEPTED " (a new directory for each run)", 0, 0,
         NULL},
        {"speed", FBY_ARG_REAL, &given.speed, "R", "trace time and engine run so many times faster (1)", 0, 1000000,
         NULL},
        {"details", FBY_ARG_TEXT, &given.details, "FILE",
         "writes a JSON line per request, when its prompt is in the store", 0, 0, NULL},
        {"json", FBY_ARG_FLAG, &given.as_json, NULL, "prints one JSON object", 0, 0, NULL},
    };
    const fby_usage_t usage = {
        "forebay replay",
        "TRACE",
        "Replays a trace (Mooncake's JSON lines) through sessions: each request is prefetched from its arrival on,\n"
        "demanded when the engine has a slot for it, its result copied out and checked, its prompt put at the end.\n"
        "One run per policy, stop mode and chunk size; exit code 1 when a block is not what was stored.",
        examples,
        args,
        FBY_ARRAY_LEN(args),
        1,
        1};
    char **positional;
    size_t count;
    int code = fby_args_parse(&usage, argc, argv, &positional, &count);
    code = code == FBY_ARGS_GO ? check(&usage, &given) : code;
    if (code != FBY_ARGS_GO) {
        return code;
    }
    if (given.chunks.count == 0) {
        given.chunks = (fby_wholes_t){.item = {FBY_MAX(CHUNK_TOKENS / given.block_tokens, UINT64_C(1))}, .count = 1};
    }
    return load_and_replay(&usage, &given, positional[0]);
}
