#include "cli/replay_engine.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"

int fby_engine_init(const fby_engine_config_t *config, uint64_t now, fby_engine_t *engine)
{
    *engine = (fby_engine_t){
        .config = *config,
        .base_ns = now,
        .free_slots = config->slots,
        .may_arrive = true,
        .request = calloc(config->requests, sizeof(*engine->request)),
        .heap_memory = malloc(fby_heap_bytes(config->requests)),
    };
    if (engine->request == NULL || engine->heap_memory == NULL) {
        fby_engine_free(engine);
        return -ENOMEM;
    }
    fby_heap_init(&engine->due, config->requests, engine->heap_memory);
    return 0;
}

void fby_engine_free(fby_engine_t *engine)
{
    free(engine->request);
    free(engine->heap_memory);
    *engine = (fby_engine_t){0};
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

/* Of trace time in ms. Division and multiplication of doubles give the same on every machine. */
static uint64_t scaled_ns(const fby_engine_t *engine, double ms)
{
    return (uint64_t)(ms * (double)FBY_MS / engine->config.speed);
}

static uint64_t next_arrival(const fby_engine_t *engine)
{
    if (engine->arrived == engine->config.requests || !engine->may_arrive) {
        return FBY_NEVER;
    }
    double ms = (double)engine->config.trace->request[engine->arrived].timestamp_ms;
    return engine->config.serial ? engine->base_ns : fby_add_sat(engine->base_ns, scaled_ns(engine, ms));
}

uint64_t fby_engine_next(const fby_engine_t *engine)
{
    return FBY_MIN(next_arrival(engine), fby_heap_top_key(&engine->due));
}

static uint64_t prefill_ns(const fby_engine_t *engine, uint32_t request)
{
    uint64_t tokens =
        fby_sub_sat(engine->config.trace->request[request].input_tokens, engine->request[request].consumed);
    return scaled_ns(engine, (double)tokens * 1000.0 / engine->config.prefill_tokens_per_s);
}

static uint64_t decode_ns(const fby_engine_t *engine, uint32_t request)
{
    uint32_t tokens = engine->config.trace->request[request].output_tokens;
    return scaled_ns(engine, (double)FBY_MIN(tokens, FBY_ENGINE_MOST_OUTPUT) * engine->config.decode_ms);
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

int fby_engine_answered(fby_engine_t *engine, uint32_t request, uint64_t now)
{
    fby_engine_request_t *r = &engine->request[request];
    if (r->phase != FBY_PHASE_CANDIDATE) {
        return 0; /* it still waits in the queue: demand() will find the answer */
    }
    int status = engine->config.host->consume(engine->config.host_arg, request, now);
    r->phase = FBY_PHASE_PREFILL;
    fby_heap_set(&engine->due, request, fby_add_sat(now, prefill_ns(engine, request)));
    return status;
}

static int admit(fby_engine_t *engine, uint64_t now)
{
    int status = 0;
    while (status == 0 && engine->free_slots > 0 && engine->queued < engine->arrived) {
        uint32_t request = engine->queued++;
        engine->free_slots--;
        engine->request[request].phase = FBY_PHASE_CANDIDATE;
        status = engine->config.host->demand(engine->config.host_arg, request, now);
        if (status > 0) {
            status = fby_engine_answered(engine, request, now);
        }
    }
    return status;
}

static int arrive(fby_engine_t *engine, uint64_t now)
{
    uint32_t request = engine->arrived++;
    fby_engine_request_t *r = &engine->request[request];
    engine->may_arrive = !engine->config.serial;
    r->arrived_ns = now;
    r->phase = FBY_PHASE_QUEUED;
    int status = engine->config.host->start(engine->config.host_arg, request, now);
    return status == 0 ? admit(engine, now) : status;
}

/* Prefill or decoding is over. */
static int finish(fby_engine_t *engine, uint32_t request, uint64_t now)
{
    fby_engine_request_t *r = &engine->request[request];
    if (r->phase == FBY_PHASE_PREFILL) {
        r->phase = FBY_PHASE_DECODE;
        r->first_token_ns = now;
        fby_heap_set(&engine->due, request, fby_add_sat(now, decode_ns(engine, request)));
        return 0;
    }
    fby_heap_remove(&engine->due, request);
    r->phase = FBY_PHASE_STORING;
    engine->free_slots++;
    int status = engine->config.host->store(engine->config.host_arg, request, now);
    return status == 0 ? admit(engine, now) : status;
}

int fby_engine_run(fby_engine_t *engine, uint64_t now)
{
    int status = 0;
    while (status == 0 && fby_engine_next(engine) <= now) {
        bool is_arrival = next_arrival(engine) < fby_heap_top_key(&engine->due);
        status = is_arrival ? arrive(engine, now) : finish(engine, fby_heap_top(&engine->due), now);
    }
    return status;
}

void fby_engine_stored(fby_engine_t *engine, uint32_t request)
{
    engine->request[request].phase = FBY_PHASE_DONE;
    engine->done++;
    engine->may_arrive = true;
}
