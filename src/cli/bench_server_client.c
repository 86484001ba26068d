/* bench_server_client.c - one client of the benchmark: what it puts, asks for, and how long that takes. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/bench_server.h"

#define CALL_LIMIT_S 30.0
#define ANSWER_LIMIT_S 30.0

enum { TOKENS = FBY_BENCH_BLOCKS * FBY_BENCH_BLOCK_TOKENS + 1, POLLS = 64, PATTERN = 0x5A };

static uint64_t now_ns(void)
{
    return fby_clock_now(&fby_clock_monotonic);
}

int fby_bench_client_connect(const char *socket, fby_cache_t **cache, fby_seq_t **seq)
{
    fby_connect_options_t options = FBY_CONNECT_OPTIONS_INIT;
    uint32_t tokens[TOKENS];
    options.call_timeout_s = CALL_LIMIT_S;
    options.name = "forebay bench";
    int status = fby_connect(socket, &options, cache);
    if (status != 0) {
        return status;
    }
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = i;
    }
    status = fby_seq_create(*cache, tokens, TOKENS, NULL, 0, seq);
    if (status != 0) {
        fby_cache_close(*cache, 0, NULL);
    }
    return status;
}

/* ---- The prompt -------------------------------------------------------------------------------------------------- */

static int put_prompt(fby_cache_t *cache, fby_seq_t *seq)
{
    fby_put_result_t result = {.size = sizeof(result)};
    fby_model_t model = {.size = sizeof(model)};
    uint64_t from, to;
    void *slot[FBY_BENCH_BLOCKS];
    fby_put_t put;
    int status = fby_cache_model(cache, &model);
    status = status == 0 ? fby_put_begin(cache, seq, 0, FBY_BENCH_BLOCKS, &put, NULL, &from, &to) : status;
    if (status != 0) {
        return status;
    }
    status = fby_put_slots(cache, put, 0, from, to, slot);
    for (uint64_t i = from; i < to && status == 0; i++) {
        memset(slot[i - from], PATTERN, model.group[0].payload_bytes);
    }
    status = status == 0 ? fby_put_commit(cache, put, TOKENS - 1, &result) : status;
    if (status == 0 && result.published != FBY_BENCH_BLOCKS) {
        fby_error_set("the server took %" PRIu32 " of %d blocks", result.published, FBY_BENCH_BLOCKS);
        status = FBY_E_STATE;
    }
    fby_put_release(cache, put);
    return status;
}

int fby_bench_client_prepare(const char *socket)
{
    fby_cache_t *cache;
    fby_seq_t *seq;
    int status = fby_bench_client_connect(socket, &cache, &seq);
    if (status != 0) {
        return status;
    }
    status = put_prompt(cache, seq);
    fby_seq_unref(seq);
    fby_cache_close(cache, 0, NULL);
    return status;
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

/* A poll is shorter than reading the clock: 64 of them between two readings. */
static int measure_polls(fby_cache_t *cache, fby_session_t session, uint64_t samples, double *us)
{
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    int status = 0;
    for (uint64_t i = 0; i < samples && status == 0; i++) {
        uint64_t began_ns = now_ns();
        for (size_t poll = 0; poll < POLLS && status == 0; poll++) {
            status = fby_session_poll(cache, session, &snapshot);
        }
        us[i] = (double)(now_ns() - began_ns) / 1000.0 / POLLS;
    }
    return status;
}

static int look(fby_cache_t *cache, fby_seq_t *seq)
{
    uint64_t tokens = 0;
    int status = fby_lookup(cache, seq, FBY_LOOKUP_ADVISORY, NULL, &tokens);
    if (status == 0 && tokens != TOKENS - 1) {
        fby_error_set("the server found %" PRIu64 " of %d tokens", tokens, TOKENS - 1);
        return FBY_E_STATE;
    }
    return status;
}

static int measure_calls(fby_cache_t *cache, fby_seq_t *seq, uint64_t samples, double *us)
{
    int status = 0;
    for (uint64_t i = 0; i < samples && status == 0; i++) {
        uint64_t began_ns = now_ns();
        status = look(cache, seq);
        us[i] = (double)(now_ns() - began_ns) / 1000.0;
    }
    return status;
}

int fby_bench_client_measure(fby_cache_t *cache, fby_seq_t *seq, uint64_t samples, double *poll_us, double *call_us)
{
    fby_session_t session;
    int status = fby_session_start(cache, seq, NULL, &session);
    if (status != 0) {
        return status;
    }
    status = fby_session_wait(cache, session, ANSWER_LIMIT_S, NULL);
    status = status == 0 ? measure_polls(cache, session, samples, poll_us) : status;
    status = status == 0 ? measure_calls(cache, seq, samples, call_us) : status;
    fby_session_release(cache, session);
    return status;
}

int fby_bench_client_load(fby_cache_t *cache, fby_seq_t *seq, uint64_t load_ns, uint64_t *calls)
{
    uint64_t end_ns = now_ns() + load_ns;
    int status = 0;
    for (*calls = 0; status == 0 && now_ns() < end_ns; ++*calls) {
        status = look(cache, seq);
    }
    return status;
}
