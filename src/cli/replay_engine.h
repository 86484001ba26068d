/*
 * replay_engine.h - requests of a trace going through a simple engine. No clock, no I/O, no cache: time comes in with every
 * call, and a host does what has to be done. The virtual and the real replay are two hosts.
 *
 *   COMING -> QUEUED -> CANDIDATE -> PREFILL -> DECODE -> STORING -> DONE
 *     arrival: start()     |            |          |         |
 *            a slot is free: demand()   |          |         fby_engine_stored()
 *                          answer: consume()       slot free again: store()
 *
 * A request waits in order of arrival for one of `slots`. It has its slot from candidacy to its last token: while it
 * waits for the answer, for prefill of what was not delivered, and for decoding.
 *
 * Times are nanoseconds of the host's clock.
 */
#ifndef FBY_CLI_REPLAY_ENGINE_H
#define FBY_CLI_REPLAY_ENGINE_H

#include "base/base.h"
#include "base/heap.h"
#include "cli/trace.h"
#include "forebay/forebay.h"

/* More output tokens than this are not decoded: one odd line of a trace must not keep a slot for days. */
#define FBY_ENGINE_MOST_OUTPUT 8192u

typedef enum fby_engine_phase {
    FBY_PHASE_COMING,
    FBY_PHASE_QUEUED,
    FBY_PHASE_CANDIDATE,
    FBY_PHASE_PREFILL,
    FBY_PHASE_DECODE,
    FBY_PHASE_STORING,
    FBY_PHASE_DONE
} fby_engine_phase_t;

typedef struct fby_engine_request {
    uint8_t phase;                           /* fby_engine_phase_t */
    uint8_t outcome;                         /* fby_outcome_t; NONE: it had no session */
    uint8_t reason;                          /* fby_reason_t */
    bool has_stop;                           /* it submitted graphs, so that there was something to stop */
    uint32_t stored_blocks, unstored_blocks; /* of the prompt's missing blocks: the store took, did not take */
    uint32_t wrong_blocks;                   /* copied out and not what was stored */
    uint64_t arrived_ns, first_token_ns, stop_ns;
    uint64_t found, planned, loaded, delivered, consumed; /* tokens; consumed: copied out of a hold */
} fby_engine_request_t;

/* Each returns a negative code with the detail set to end the replay. */
typedef struct fby_engine_host {
    /* A session from the arrival on. */
    int (*start)(void *arg, uint32_t request, uint64_t now);
    /* The request is a candidate. 1: answered already; 0: fby_engine_answered() will be called. */
    int (*demand)(void *arg, uint32_t request, uint64_t now);
    /* Notes the answer, takes the hold, copies out and checks, lets go: fills the request's figures. */
    int (*consume)(void *arg, uint32_t request, uint64_t now);
    /* Puts the prompt. fby_engine_stored() will be called when its store writes have ended; it may be from within. */
    int (*store)(void *arg, uint32_t request, uint64_t now);
} fby_engine_host_t;

typedef struct fby_engine_config {
    const fby_trace_t *trace;
    uint32_t requests; /* of the trace, from the front */
    uint32_t slots;
    bool serial;  /* each arrival follows the previous request's last store write; timestamps do not count */
    double speed; /* trace time and engine run so many times faster */
    double prefill_tokens_per_s, decode_ms;
    const fby_engine_host_t *host;
    void *host_arg;
} fby_engine_config_t;

typedef struct fby_engine {
    fby_engine_config_t config;
    fby_engine_request_t *request;
    uint64_t base_ns; /* of the trace's time 0 */
    uint32_t arrived; /* requests [queued, arrived) wait for a slot */
    uint32_t queued;
    uint32_t free_slots, done;
    bool may_arrive; /* serial: the previous request is done */
    fby_heap_t due;  /* requests in PREFILL and DECODE */
    void *heap_memory;
} fby_engine_t;

/* -ENOMEM. */
int fby_engine_init(const fby_engine_config_t *config, uint64_t now, fby_engine_t *engine);
void fby_engine_free(fby_engine_t *engine);
/* When fby_engine_run() has something to do; FBY_NEVER: only an answer or a store's end brings more. */
uint64_t fby_engine_next(const fby_engine_t *engine);
/* Everything that is due. 0, or the host's code. */
int fby_engine_run(fby_engine_t *engine, uint64_t now);
int fby_engine_answered(fby_engine_t *engine, uint32_t request, uint64_t now);
void fby_engine_stored(fby_engine_t *engine, uint32_t request);
static inline bool fby_engine_is_done(const fby_engine_t *engine)
{
    return engine->done == engine->config.requests;
}

#endif
