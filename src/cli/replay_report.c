/* replay_report.c - from the requests of a run to its figures, and from figures to text and JSON. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/replay_run.h"
#include "cli/replay_stop.h"
#include "stores/object.h"

enum { SLOT_ALIGNMENT = 4096 };

/* ---- For the hosts ----------------------------------------------------------------------------------------------- */

void fby_replay_engine_config(const fby_replay_run_t *run, const fby_engine_host_t *host, void *arg,
                              fby_engine_config_t *out)
{
    const fby_replay_options_t *options = run->options;
    *out = (fby_engine_config_t){
        .trace = options->trace,
        .requests = options->requests,
        .slots = options->slots,
        .serial = options->serial,
        .speed = options->speed,
        .prefill_tokens_per_s = options->prefill_tokens_per_s,
        .decode_ms = options->decode_ms,
        .host = host,
        .host_arg = arg,
    };
}

uint32_t fby_replay_blocks(const fby_replay_options_t *options, uint32_t request)
{
    return options->trace->request[request].input_tokens / options->block_tokens;
}

uint64_t fby_replay_slot_bytes(const fby_replay_options_t *options)
{
    return fby_align_up((uint64_t)options->block_tokens * options->token_bytes + FBY_TRAILER_BYTES, SLOT_ALIGNMENT);
}

void fby_replay_answer(fby_engine_request_t *request, const fby_snapshot_t *answer, uint64_t asked_ns)
{
    request->outcome = (uint8_t)answer->outcome;
    request->reason = (uint8_t)answer->reason;
    request->has_stop = answer->submitted > 0;
    request->stop_ns = fby_stop_to_answer_ns(answer, asked_ns);
    request->found = answer->found_tokens;
    request->planned = answer->planned_tokens;
    request->loaded = answer->loaded_tokens;
    request->delivered = answer->delivered_tokens;
}

static double ms_of(uint64_t ns)
{
    return (double)ns / (double)FBY_MS;
}

static double us_of(uint64_t ns)
{
    return (double)ns / 1000.0;
}

/* Flushed line by line: what stands there is what the store has, whatever happens next. */
static void write_detail(const fby_replay_run_t *run, const fby_engine_t *engine, uint32_t index)
{
    const fby_engine_request_t *request = &engine->request[index];
    fby_json_t json;
    fby_json_init(&json, run->details);
    fby_json_object(&json, NULL);
    fby_json_u64(&json, "request", index);
    fby_json_text(&json, "policy", fby_policy_name(run->which.policy));
    fby_json_text(&json, "stop_mode", fby_stop_mode_name(run->which.stop_mode));
    fby_json_u64(&json, "chunk", run->which.chunk);
    fby_json_text(&json, "outcome", fby_outcome_name((fby_outcome_t)request->outcome));
    fby_json_text(&json, "reason", fby_reason_name((fby_reason_t)request->reason));
    fby_json_u64(&json, "found_tokens", request->found);
    fby_json_u64(&json, "planned_tokens", request->planned);
    fby_json_u64(&json, "loaded_tokens", request->loaded);
    fby_json_u64(&json, "delivered_tokens", request->delivered);
    fby_json_u64(&json, "consumed_tokens", request->consumed);
    fby_json_real(&json, "ttft_ms", ms_of(request->first_token_ns - request->arrived_ns));
    fby_json_real(&json, "stop_to_answer_us", us_of(request->stop_ns));
    fby_json_u64(&json, "stored_blocks", request->stored_blocks);
    fby_json_u64(&json, "unstored_blocks", request->unstored_blocks);
    fby_json_u64(&json, "verify_failures", request->wrong_blocks);
    fby_json_end(&json);
    fflush(run->details);
}

void fby_replay_done(const fby_replay_run_t *run, fby_engine_t *engine, uint32_t request)
{
    fby_engine_stored(engine, request);
    if (run->details != NULL) {
        write_detail(run, engine, request);
    }
    fby_progress_step(run->progress, engine->done);
}

/* ---- Figures ----------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t nearest_rank(const uint64_t *sorted, size_t n, size_t percent)
{
    return n > 0 ? sorted[(n * percent + 99) / 100 - 1] : 0;
}

static fby_percentiles_t percentiles(uint64_t *values, size_t n)
{
    qsort(values, n, sizeof(*values), by_size);
    return (fby_percentiles_t){nearest_rank(values, n, 50), nearest_rank(values, n, 95), nearest_rank(values, n, 99)};
}

int fby_replay_summarize(const fby_replay_run_t *run, const fby_engine_t *engine, fby_replay_result_t *result)
{
    uint32_t requests = engine->config.requests;
    uint64_t *values = malloc(requests * sizeof(*values));
    size_t stops = 0;
    if (values == NULL) {
        fby_error_set("out of memory");
        return -ENOMEM;
    }
    *result = (fby_replay_result_t){.which = run->which, .requests = requests};
    for (uint32_t i = 0; i < requests; i++) {
        const fby_engine_request_t *request = &engine->request[i];
        result->found += request->found;
        result->planned += request->planned;
        result->loaded += request->loaded;
        result->delivered += request->delivered;
        result->consumed += request->consumed;
        result->verify_failures += request->wrong_blocks;
        values[i] = request->first_token_ns - request->arrived_ns;
    }
    result->ttft_ns = percentiles(values, requests);
    for (uint32_t i = 0; i < requests; i++) {
        if (engine->request[i].has_stop) {
            values[stops++] = engine->request[i].stop_ns;
        }
    }
    result->stop_ns = percentiles(values, stops);
    free(values);
    return 0;
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

static void json_config(fby_json_t *json, const fby_replay_result_t *result)
{
    fby_json_object(json, NULL);
    fby_json_text(json, "policy", fby_policy_name(result->which.policy));
    fby_json_text(json, "stop_mode", fby_stop_mode_name(result->which.stop_mode));
    fby_json_u64(json, "chunk", result->which.chunk);
    fby_json_u64(json, "requests", result->requests);
    fby_json_u64(json, "found_tokens", result->found);
    fby_json_u64(json, "planned_tokens", result->planned);
    fby_json_u64(json, "loaded_tokens", result->loaded);
    fby_json_u64(json, "delivered_tokens", result->delivered);
    fby_json_u64(json, "consumed_tokens", result->consumed);
    fby_json_u64(json, "wasted_bytes", result->wasted_bytes);
    fby_json_object(json, "ttft_ms");
    fby_json_real(json, "p50", ms_of(result->ttft_ns.p50));
    fby_json_real(json, "p95", ms_of(result->ttft_ns.p95));
    fby_json_real(json, "p99", ms_of(result->ttft_ns.p99));
    fby_json_end(json);
    fby_json_object(json, "stop_to_answer_us");
    fby_json_real(json, "p50", us_of(result->stop_ns.p50));
    fby_json_real(json, "p99", us_of(result->stop_ns.p99));
    fby_json_end(json);
    fby_json_u64(json, "graphs", result->graphs);
    fby_json_u64(json, "verify_failures", result->verify_failures);
    fby_json_end(json);
}

void fby_replay_json(const char *trace, const fby_replay_result_t *results, size_t n)
{
    fby_json_t json;
    fby_json_init(&json, stdout);
    fby_json_object(&json, NULL);
    fby_json_text(&json, "trace", trace);
    fby_json_array(&json, "configs");
    for (size_t i = 0; i < n; i++) {
        json_config(&json, &results[i]);
    }
    fby_json_end(&json);
    fby_json_end(&json);
}

/* Tokens: 12345678 is 12.35 M. */
static void cell_count(fby_table_t *table, uint64_t count)
{
    if (count < 100000) {
        fby_table_cell(table, "%" PRIu64, count);
    } else {
        fby_table_cell(table, "%.2f M", (double)count / 1e6);
    }
}

static void text_row(fby_table_t *table, const fby_replay_result_t *result)
{
    fby_table_cell(table, "%s", fby_policy_name(result->which.policy));
    fby_table_cell(table, "%s", fby_stop_mode_name(result->which.stop_mode));
    fby_table_cell(table, "%" PRIu32, result->which.chunk);
    cell_count(table, result->found);
    cell_count(table, result->planned);
    cell_count(table, result->loaded);
    cell_count(table, result->delivered);
    cell_count(table, result->consumed);
    fby_table_cell(table, "%.1f MiB", (double)result->wasted_bytes / (1 << 20));
    fby_table_cell(table, "%.0f", ms_of(result->ttft_ns.p50));
    fby_table_cell(table, "%.0f", ms_of(result->ttft_ns.p95));
    fby_table_cell(table, "%.0f", ms_of(result->ttft_ns.p99));
    fby_table_cell(table, "%.3f", ms_of(result->stop_ns.p50));
    fby_table_cell(table, "%.3f", ms_of(result->stop_ns.p99));
    fby_table_cell(table, "%" PRIu64, result->graphs);
    fby_table_cell(table, "%" PRIu64, result->verify_failures);
}

void fby_replay_text(const fby_replay_options_t *options, const fby_replay_result_t *results, size_t n)
{
    static const char *const titles[] = {"policy",    "stop mode", "chunk",  "found",    "planned", "loaded",
                                         "delivered", "consumed",  "wasted", "ttft p50", "p95",     "p99",
                                         "stop p50",  "p99",       "graphs", "wrong"};
    static const bool right[] = {false, false, true, true, true, true, true, true,
                                 true,  true,  true, true, true, true, true, true};
    fby_table_t table;
    uint64_t input = 0;
    for (uint32_t i = 0; i < options->requests; i++) {
        input += options->trace->request[i].input_tokens;
    }
    printf("%" PRIu32 " requests, %.2f M input tokens, blocks of %" PRIu32
           " tokens. Times in ms: ttft is arrival to first token,\n"
           "stop is stop to answer. Tokens are sums over all requests; wrong counts blocks that were not what was "
           "stored.\n\n",
           options->requests, (double)input / 1e6, options->block_tokens);
    fby_table_init(&table, FBY_ARRAY_LEN(titles), titles, right);
    for (size_t i = 0; i < n; i++) {
        text_row(&table, &results[i]);
    }
    fby_table_print(&table, stdout);
    fby_table_free(&table);
}
