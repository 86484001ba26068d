/*
 * replay_virtual.c - a replay under the simulator's clock: the real core, the rig's lanes and store model, no bytes.
 *
 * A slot holds one content word in place of its payload; a delivered block is right when its word is the one that the
 * chain hash gives. One event at a time, in the order of time: the same seed gives the same figures on every machine.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/replay_run.h"
#include "cli/trace_build.h"
#include "sim/lanes.h"
#include "sim/rig.h"

enum { MOST_SESSIONS = 1024, DRAIN_S = 3600 };

typedef struct list {
    uint32_t *item;
    uint64_t count, capacity;
} list_t;

/* What a request has in the cache while it lives. */
typedef struct flight {
    rig_seq_t *seq;
    fby_session_t session; /* 0: none */
    fby_put_t put;         /* 0: none */
    uint64_t asked_ns;
    bool answered;
    fby_snapshot_t *answer; /* once answered, until consumed */
} flight_t;

typedef struct machine {
    const fby_replay_run_t *run;
    const fby_replay_options_t *options;
    rig_t *rig;
    fby_engine_t engine;
    flight_t *flight;  /* per request */
    uint32_t *owner;   /* request by session slot */
    uint32_t starting; /* request whose session is being made, or FBY_NONE */
    list_t answered;   /* requests; noted inside a call, seen to after it */
    list_t putting;    /* requests whose put waits for its store writes */
    bool writes_ended;
    uint64_t *ids; /* scratch */
    int status;    /* of an event, where none can be returned */
} machine_t;

static int broken(const machine_t *machine)
{
    fby_error_set("the simulated cache broke a rule: %s", machine->rig->failure);
    return FBY_E_POISONED;
}

static int out_of_memory(void)
{
    fby_error_set("out of memory");
    return -ENOMEM;
}

static int list_add(list_t *list, uint32_t item)
{
    int status = fby_grow((void **)&list->item, &list->capacity, list->count + 1, sizeof(*list->item));
    if (status == 0) {
        list->item[list->count++] = item;
    }
    return status;
}

/* ---- Events of the core: inside a call, so they are only noted ---------------------------------------------------- */

static void note_answer(machine_t *machine, const fby_core_event_t *event)
{
    uint32_t slot;
    if (!fby_core_session_slot(machine->rig->core, event->handle, &slot)) {
        return;
    }
    /* a session may be answered before start has said its handle */
    uint32_t request = machine->owner[slot];
    if (request == FBY_NONE || machine->flight[request].session != event->handle) {
        request = machine->starting;
    }
    flight_t *flight = request != FBY_NONE ? &machine->flight[request] : NULL;
    if (flight == NULL || flight->answered) {
        return;
    }
    flight->answered = true;
    flight->answer = malloc(sizeof(*flight->answer));
    if (flight->answer == NULL || list_add(&machine->answered, request) != 0) {
        machine->status = -ENOMEM;
        return;
    }
    *flight->answer = *event->result;
}

static void on_event(void *arg, const fby_core_event_t *event)
{
    machine_t *machine = arg;
    if (event->type == FBY_CORE_ANSWERED) {
        note_answer(machine, event);
    } else if (event->type == FBY_CORE_PUT_STORED) {
        machine->writes_ended = true;
    }
}

/* ---- The engine's host -------------------------------------------------------------------------------------------- */

/* One id of the trace is a run of blocks; each gets an id of its own. */
static rig_seq_t *make_sequence(machine_t *machine, uint32_t request)
{
    const uint32_t *ids = fby_trace_ids(machine->options->trace, request);
    uint32_t per_id = FBY_TRACE_BLOCK_TOKENS / machine->options->block_tokens;
    uint32_t blocks = fby_replay_blocks(machine->options, request);
    for (uint32_t i = 0; i < blocks; i++) {
        machine->ids[i] = (uint64_t)ids[i / per_id] * per_id + i % per_id;
    }
    return rig_seq_ids(machine->rig, 0, machine->ids, blocks, machine->options->trace->request[request].input_tokens);
}

static int start_session(machine_t *machine, uint32_t request)
{
    flight_t *flight = &machine->flight[request];
    fby_core_start_t start;
    uint32_t slot;
    rig_start_defaults(&start);
    start.budget_ns = machine->options->budget_ns;
    machine->starting = request;
    int status = rig_start_with(machine->rig, flight->seq, &start, &flight->session);
    machine->starting = FBY_NONE;
    if (status == 0 && fby_core_session_slot(machine->rig->core, flight->session, &slot)) {
        machine->owner[slot] = request;
    }
    if (status == -EBUSY) { /* tried again at candidacy */
        flight->session = 0;
        return 0;
    }
    if (status != 0) {
        fby_error_set("request %u: no session: %s", request, fby_strerror(status));
    }
    return status;
}

static int host_start(void *arg, uint32_t request, uint64_t now)
{
    machine_t *machine = arg;
    (void)now;
    machine->flight[request].seq = make_sequence(machine, request);
    return start_session(machine, request);
}

static int host_demand(void *arg, uint32_t request, uint64_t now)
{
    machine_t *machine = arg;
    flight_t *flight = &machine->flight[request];
    int status = flight->session == 0 ? start_session(machine, request) : 0;
    if (status != 0 || flight->session == 0) {
        return status != 0 ? status : 1;
    }
    if (machine->run->which.policy == FBY_POLICY_BEST_EFFORT) {
        flight->asked_ns = now;
    }
    (void)rig_demand(machine->rig, flight->session); /* stale: its lease expired in the queue */
    return flight->answered ? 1 : 0;
}

static int verify(machine_t *machine, fby_hold_t hold, const rig_seq_t *seq, fby_engine_request_t *request)
{
    uint32_t slots[FBY_STEP_BLOCKS];
    fby_core_hold_info_t info = {0};
    int status = fby_core_hold_info(machine->rig->core, hold, &info);
    for (uint32_t from = 0; from < info.blocks && status == 0; from += FBY_STEP_BLOCKS) {
        uint32_t to = FBY_MIN(from + FBY_STEP_BLOCKS, info.blocks);
        status = fby_core_hold_slots(machine->rig->core, hold, 0, from, to, slots);
        for (uint32_t i = from; i < to && status == 0; i++) {
            uint32_t slot = slots[i - from];
            bool is_right = slot != FBY_NONE && machine->rig->content[slot] == chain_content(&seq->hashes[i], 0);
            request->wrong_blocks += !is_right;
        }
    }
    request->consumed = status == 0 ? info.tokens : 0;
    return status;
}

static int host_consume(void *arg, uint32_t index, uint64_t now)
{
    machine_t *machine = arg;
    flight_t *flight = &machine->flight[index];
    fby_engine_request_t *request = &machine->engine.request[index];
    fby_hold_t hold = 0;
    uint64_t tokens;
    (void)now;
    if (flight->answer != NULL) {
        fby_replay_answer(request, flight->answer, flight->asked_ns);
    }
    free(flight->answer);
    flight->answer = NULL;
    int status = flight->session != 0 ? rig_take(machine->rig, flight->session, &hold) : FBY_E_STALE;
    if (status != 0) { /* the lease expired, or there was none: what is still resident, or nothing */
        status = rig_lookup(machine->rig, flight->seq, &hold, &tokens);
    }
    if (status == 0 && hold != 0) {
        status = verify(machine, hold, flight->seq, request);
        rig_hold_release(machine->rig, hold);
    }
    return status == FBY_E_BUDGET ? 0 : status;
}

/* ---- Puts --------------------------------------------------------------------------------------------------------- */

static void put_done(machine_t *machine, uint32_t request)
{
    flight_t *flight = &machine->flight[request];
    if (flight->put != 0) {
        rig_put_end(machine->rig, flight->put);
    }
    rig_seq_free(machine->rig, flight->seq);
    *flight = (flight_t){.answered = true};
    fby_replay_done(machine->run, &machine->engine, request);
}

static bool put_is_writing(machine_t *machine, uint32_t index)
{
    fby_engine_request_t *request = &machine->engine.request[index];
    uint64_t outstanding = 0, stored = 0, failed = 0;
    (void)fby_core_put_writes(machine->rig->core, machine->flight[index].put, &outstanding, &stored, &failed);
    request->stored_blocks = (uint32_t)stored;
    request->unstored_blocks = (uint32_t)failed;
    return outstanding > 0;
}

/* Publishes what could be staged and goes on with the next range. true: nothing is left to do, or no room for it. */
static bool put_goes_on(machine_t *machine, uint32_t index)
{
    const flight_t *flight = &machine->flight[index];
    uint32_t blocks = flight->seq->blocks;
    while (!put_is_writing(machine, index)) {
        const rig_put_t *put = rig_put_find(machine->rig, flight->put);
        if (put == NULL) {
            return true;
        }
        uint32_t end = put->info.staged_to;
        if (put->committed && (end == blocks || rig_put_next(machine->rig, flight->put, end, blocks) != 0)) {
            machine->engine.request[index].unstored_blocks += blocks - end;
            return true;
        }
        if (put->info.staged_from == put->info.staged_to) {
            machine->engine.request[index].unstored_blocks +=
                blocks - FBY_MAX(put->info.first_missing, put->info.staged_to);
            return true;
        }
        rig_put_commit(machine->rig, flight->put, blocks);
        if (machine->rig->failure[0] != '\0') {
            return true;
        }
    }
    return false;
}

static int host_store(void *arg, uint32_t index, uint64_t now)
{
    machine_t *machine = arg;
    flight_t *flight = &machine->flight[index];
    uint32_t blocks = flight->seq->blocks;
    (void)now;
    int status = blocks > 0 ? rig_put_begin(machine->rig, flight->seq, 0, blocks, &flight->put) : 0;
    if (blocks == 0 || status != 0 || put_goes_on(machine, index)) {
        machine->engine.request[index].unstored_blocks += status != 0 ? blocks : 0;
        put_done(machine, index);
        return 0;
    }
    status = list_add(&machine->putting, index);
    return status == 0 ? 0 : out_of_memory();
}

/* ---- The loop ----------------------------------------------------------------------------------------------------- */

static int see_to_answers(machine_t *machine)
{
    int status = 0;
    for (uint64_t i = 0; i < machine->answered.count && status == 0; i++) { /* grows meanwhile */
        status = fby_engine_answered(&machine->engine, machine->answered.item[i], machine->rig->now);
    }
    machine->answered.count = 0;
    return status;
}

static void see_to_puts(machine_t *machine)
{
    list_t *putting = &machine->putting;
    uint64_t kept = 0;
    if (!machine->writes_ended) {
        return;
    }
    machine->writes_ended = false;
    for (uint64_t i = 0; i < putting->count; i++) {
        uint32_t request = putting->item[i];
        if (put_goes_on(machine, request)) {
            put_done(machine, request);
        } else {
            putting->item[kept++] = request;
        }
    }
    putting->count = kept;
}

static int step(machine_t *machine)
{
    rig_t *rig = machine->rig;
    rig_pump(rig);
    uint64_t next = FBY_MIN(fby_engine_next(&machine->engine), rig_next_event(rig));
    if (next == FBY_NEVER && machine->answered.count == 0) {
        fby_error_set("the replay stands still after %u of %u requests", machine->engine.done,
                      machine->engine.config.requests);
        return FBY_E_STATE;
    }
    rig_run_until(rig, next == FBY_NEVER ? rig->now : FBY_MAX(next, rig->now));
    int status = see_to_answers(machine);
    see_to_puts(machine);
    status = status == 0 ? fby_engine_run(&machine->engine, rig->now) : status;
    status = status == 0 ? machine->status : status;
    if (status == -ENOMEM) {
        return out_of_memory();
    }
    return rig->failure[0] != '\0' ? broken(machine) : status;
}

/* What detached sessions and the last store writes leave behind ends too; then every rule is checked once in full. */
static int drain(machine_t *machine)
{
    rig_t *rig = machine->rig;
    rig_run_idle(rig, rig->now + DRAIN_S * FBY_SECOND);
    rig_check_full(rig);
    return rig->failure[0] != '\0' ? broken(machine) : 0;
}

/* ---- Making it ----------------------------------------------------------------------------------------------------- */

static void configure(const fby_replay_run_t *run, rig_config_t *config)
{
    const fby_replay_options_t *options = run->options;
    fby_core_config_t *core = &config->core;
    rig_config_defaults(config);
    config->light = config->collect = true;
    config->model = false;
    config->full_every = 0;
    config->query_lanes = config->write_lanes = 2;
    config->part_blocks = 128;
    config->pool[0] = (uint32_t)options->pool_blocks;
    config->store = (store_model_t){
        .latency_ns = {options->latency_ns, options->latency_ns, options->latency_ns},
        .bytes_per_s = options->bandwidth,
        .jitter_percent = options->jitter_percent,
        .seed = options->seed,
    };
    core->block_tokens = options->block_tokens;
    core->slot_bytes[0] = fby_replay_slot_bytes(options);
    core->writes = FBY_WRITE_THROUGH;
    core->policy = run->which.policy;
    core->stop_mode = run->which.stop_mode;
    core->chunk_max_blocks = run->which.chunk;
    core->max_sessions = MOST_SESSIONS;
    core->recompute_tokens_per_s = options->recompute_tokens_per_s;
    core->negative_ttl_ns = 5 * FBY_SECOND;
    uint64_t pool = options->pool_blocks * core->slot_bytes[0];
    core->max_hold_bytes = core->max_pinned_bytes = pool / 2;
    core->max_reserved_bytes = core->write_pinned_bytes = pool / 4;
}

static int machine_open(machine_t *machine, const fby_replay_run_t *run)
{
    static const fby_engine_host_t host = {host_start, host_demand, host_consume, host_store};
    rig_config_t config;
    fby_engine_config_t engine;
    uint64_t most_blocks = 0;
    *machine = (machine_t){.run = run, .options = run->options, .starting = FBY_NONE};
    for (uint32_t i = 0; i < run->options->requests; i++) {
        most_blocks = FBY_MAX(most_blocks, fby_replay_blocks(run->options, i));
    }
    configure(run, &config);
    config.on_event = on_event;
    config.on_event_arg = machine;
    machine->rig = rig_open(&config);
    uint32_t slots = machine->rig->config.core.session_slots;
    machine->flight = calloc(run->options->requests, sizeof(*machine->flight));
    machine->owner = malloc(slots * sizeof(*machine->owner));
    machine->ids = calloc(most_blocks + 1, sizeof(*machine->ids));
    fby_replay_engine_config(run, &host, machine, &engine);
    if (machine->flight == NULL || machine->owner == NULL || machine->ids == NULL ||
        fby_engine_init(&engine, machine->rig->now, &machine->engine) != 0) {
        return out_of_memory();
    }
    memset(machine->owner, 0xFF, slots * sizeof(*machine->owner));
    return 0;
}

static void machine_close(machine_t *machine)
{
    for (uint32_t i = 0; machine->flight != NULL && i < machine->options->requests; i++) {
        free(machine->flight[i].answer);
    }
    fby_engine_free(&machine->engine);
    rig_close(machine->rig);
    free(machine->flight);
    free(machine->owner);
    free(machine->ids);
    free(machine->answered.item);
    free(machine->putting.item);
}

int fby_replay_virtual(const fby_replay_run_t *run, fby_replay_result_t *result)
{
    machine_t machine;
    int status = machine_open(&machine, run);
    while (status == 0 && !fby_engine_is_done(&machine.engine)) {
        status = step(&machine);
    }
    status = status == 0 ? drain(&machine) : status;
    status = status == 0 ? fby_replay_summarize(run, &machine.engine, result) : status;
    if (status == 0) {
        fby_stats_t stats = {.size = sizeof(stats)};
        fby_core_stats(machine.rig->core, &stats);
        result->wasted_bytes = stats.bytes_wasted;
        result->graphs = stats.graphs;
    }
    machine_close(&machine);
    return status;
}
