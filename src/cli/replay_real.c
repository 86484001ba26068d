/*
 * replay_real.c - a replay under the real clock: real bytes through a real store, by the public API only.
 *
 * One thread runs the engine. It sleeps in epoll until a request is due (timerfd), a candidate is answered (the session's
 * event descriptor), a put is done (replay_put.h), or somebody interrupts (signalfd).
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/replay_payload.h"
#include "cli/replay_put.h"
#include "cli/replay_run.h"
#include "cli/replay_scratch.h"
#include "cli/store_text.h"

enum { MOST_SESSIONS = 1024, STEP_BLOCKS = 256, EVENTS = 64, TAIL_EVENTS = 4096 };
#define CLOSE_LIMIT_S 60.0
/* Sources of epoll events; what is below is a request whose session was answered. */
#define SOURCE_TIMER UINT64_MAX
#define SOURCE_PUTS (UINT64_MAX - 1)
#define SOURCE_SIGNAL (UINT64_MAX - 2)

typedef struct flight {
    fby_seq_t *seq;
    fby_session_t session; /* 0: none */
    uint64_t asked_ns;
    int answer_fd; /* -1: none */
} flight_t;

typedef struct machine {
    const fby_replay_run_t *run;
    const fby_replay_options_t *options;
    char scratch[FBY_SCRATCH_BYTES];
    char name_space[64];
    fby_cache_t *cache;
    fby_putter_t putter;
    bool has_putter;
    fby_engine_t engine;
    flight_t *flight;
    int epoll_fd, timer_fd, signal_fd;
    uint64_t armed_ns; /* when timer_fd fires; FBY_NEVER: it does not */
    uint32_t payload_bytes;
    uint32_t *tokens; /* scratch: of the longest prompt */
    void *copy;       /* scratch: one payload */
} machine_t;

static uint64_t now_ns(void)
{
    return fby_clock_now(&fby_clock_monotonic);
}

static int out_of_memory(void)
{
    fby_error_set("out of memory");
    return -ENOMEM;
}

static int failed_call(const char *what)
{
    int status = -errno;
    fby_error_set("%s: %s", what, strerror(errno));
    return status;
}

/* ---- The engine's host ------------------------------------------------------------------------------------------- */

static int start_session(machine_t *machine, uint32_t request)
{
    flight_t *flight = &machine->flight[request];
    fby_session_options_t options = FBY_SESSION_OPTIONS_INIT;
    char label[32];
    snprintf(label, sizeof(label), "request-%" PRIu32, request);
    options.label = label;
    int status = fby_session_start(machine->cache, flight->seq, &options, &flight->session);
    if (status == -EBUSY) { /* tried again at candidacy */
        flight->session = 0;
        status = 0;
    }
    return status;
}

/* The namespace keeps configurations apart in one store; a second run of the same one finds what the first stored. */
static int host_start(void *arg, uint32_t request, uint64_t now)
{
    machine_t *machine = arg;
    const fby_trace_t *trace = machine->options->trace;
    uint64_t tokens = trace->request[request].input_tokens;
    const fby_ns_part_t part = {FBY_NS_TEXT, machine->name_space, strlen(machine->name_space)};
    (void)now;
    fby_payload_tokens(fby_trace_ids(trace, request), tokens, machine->tokens);
    int status = fby_seq_create(machine->cache, machine->tokens, tokens, &part, 1, &machine->flight[request].seq);
    return status == 0 ? start_session(machine, request) : status;
}

static int await_answer(machine_t *machine, uint32_t request)
{
    flight_t *flight = &machine->flight[request];
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = request};
    int fd = fby_session_event_fd(machine->cache, flight->session);
    if (fd < 0) {
        return fd == FBY_E_STALE ? 1 : fd;
    }
    flight->answer_fd = fd;
    return epoll_ctl(machine->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : failed_call("epoll");
}

static int host_demand(void *arg, uint32_t request, uint64_t now)
{
    machine_t *machine = arg;
    flight_t *flight = &machine->flight[request];
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    (void)now;
    int status = flight->session == 0 ? start_session(machine, request) : 0;
    if (status != 0 || flight->session == 0) {
        return status != 0 ? status : 1;
    }
    if (machine->run->which.policy == FBY_POLICY_BEST_EFFORT) {
        flight->asked_ns = now_ns();
    }
    (void)fby_session_demand(machine->cache, flight->session);
    status = fby_session_poll(machine->cache, flight->session, &snapshot);
    if (status == FBY_E_STALE || (status == 0 && snapshot.answered)) {
        return 1; /* stale: forgotten since, its lease too */
    }
    return status == 0 ? await_answer(machine, request) : status;
}

/* Closing would not take it out of the set: the cache has a duplicate until it has told the answer. */
static void forget_descriptor(const machine_t *machine, flight_t *flight)
{
    if (flight->answer_fd >= 0) {
        epoll_ctl(machine->epoll_fd, EPOLL_CTL_DEL, flight->answer_fd, NULL);
        close(flight->answer_fd);
        flight->answer_fd = -1;
    }
}

static int copy_out(machine_t *machine, const flight_t *flight, fby_hold_t hold, fby_engine_request_t *request)
{
    const void *slots[STEP_BLOCKS];
    uint64_t tokens = 0, blocks = 0;
    int status = fby_hold_info(machine->cache, hold, &tokens, &blocks, NULL);
    for (uint64_t from = 0; from < blocks && status == 0; from += STEP_BLOCKS) {
        uint64_t to = FBY_MIN(from + STEP_BLOCKS, blocks);
        status = fby_hold_slots(machine->cache, hold, 0, from, to, slots);
        for (uint64_t i = from; i < to && status == 0; i++) {
            fby_hash_t hash;
            status = fby_putter_hash(flight->seq, i, &hash);
            bool is_right = status == 0 && slots[i - from] != NULL &&
                            fby_payload_copy(machine->copy, slots[i - from], machine->payload_bytes, &hash, 0);
            request->wrong_blocks += !is_right;
        }
    }
    request->consumed = status == 0 ? tokens : 0;
    return status;
}

static int host_consume(void *arg, uint32_t index, uint64_t now)
{
    machine_t *machine = arg;
    flight_t *flight = &machine->flight[index];
    fby_engine_request_t *request = &machine->engine.request[index];
    fby_snapshot_t answer = {.size = sizeof(answer)};
    fby_hold_t hold = 0;
    uint64_t tokens = 0;
    (void)now;
    forget_descriptor(machine, flight);
    if (flight->session != 0 && fby_session_poll(machine->cache, flight->session, &answer) == 0) {
        fby_replay_answer(request, &answer, flight->asked_ns);
    }
    int status = flight->session != 0 ? fby_session_take(machine->cache, flight->session, &hold) : FBY_E_STALE;
    if (status == FBY_E_STALE) { /* the lease expired, or there was none: what is still resident, or nothing */
        status = fby_lookup(machine->cache, flight->seq, 0, &hold, &tokens);
        status = status == FBY_E_BUDGET ? 0 : status;
    }
    if (status == 0 && hold != 0) {
        status = copy_out(machine, flight, hold, request);
        fby_hold_release(machine->cache, hold);
    }
    return status;
}

static int host_store(void *arg, uint32_t request, uint64_t now)
{
    machine_t *machine = arg;
    flight_t *flight = &machine->flight[request];
    (void)now;
    if (fby_putter_add(&machine->putter, flight->seq, request) != 0) {
        return out_of_memory();
    }
    flight->seq = NULL;
    return 0;
}

/* ---- The loop ---------------------------------------------------------------------------------------------------- */

/* 0 would disarm the timer: a moment in the past is as good. */
static int arm_timer(machine_t *machine)
{
    uint64_t next = fby_engine_next(&machine->engine);
    if (next == machine->armed_ns) {
        return 0;
    }
    struct itimerspec when = {.it_value = {0, 0}};
    if (next != FBY_NEVER) {
        when.it_value.tv_sec = (time_t)(next / FBY_SECOND);
        when.it_value.tv_nsec = (long)(next % FBY_SECOND);
    }
    machine->armed_ns = next;
    return timerfd_settime(machine->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) == 0 ? 0 : failed_call("timerfd");
}

static void see_to_puts(machine_t *machine)
{
    fby_put_job_t *job;
    while ((job = fby_putter_take(&machine->putter)) != NULL) {
        fby_engine_request_t *request = &machine->engine.request[job->request];
        request->stored_blocks = (uint32_t)job->stored;
        request->unstored_blocks = (uint32_t)job->unstored;
        fby_replay_done(machine->run, &machine->engine, job->request);
        fby_seq_unref(job->seq);
        free(job);
    }
}

/* Taken off the queue of signals: it would strike when they are unblocked. */
static int interrupted(const machine_t *machine)
{
    struct signalfd_siginfo signal;
    if (read(machine->signal_fd, &signal, sizeof(signal)) < 0) {
        return errno == EAGAIN ? 0 : failed_call("signalfd");
    }
    fby_error_set("interrupted after %" PRIu32 " of %" PRIu32 " requests", machine->engine.done,
                  machine->engine.config.requests);
    return -EINTR;
}

static int see_to_event(machine_t *machine, uint64_t source)
{
    uint64_t expirations;
    switch (source) {
    case SOURCE_TIMER:
        machine->armed_ns = FBY_NEVER;
        return read(machine->timer_fd, &expirations, sizeof(expirations)) >= 0 || errno == EAGAIN
                   ? 0
                   : failed_call("timerfd");
    case SOURCE_PUTS:
        see_to_puts(machine);
        return 0;
    case SOURCE_SIGNAL:
        return interrupted(machine);
    default:
        return fby_engine_answered(&machine->engine, (uint32_t)source, now_ns());
    }
}

static int run_loop(machine_t *machine)
{
    int status = 0;
    while (status == 0) {
        struct epoll_event events[EVENTS];
        status = fby_engine_run(&machine->engine, now_ns());
        status = status == 0 ? arm_timer(machine) : status;
        if (status != 0 || fby_engine_is_done(&machine->engine)) {
            break;
        }
        int n = epoll_wait(machine->epoll_fd, events, EVENTS, -1);
        if (n < 0 && errno != EINTR) {
            status = failed_call("epoll");
        }
        for (int i = 0; i < n && status == 0; i++) {
            status = see_to_event(machine, events[i].data.u64);
        }
    }
    return status;
}

static bool has_tail(const machine_t *machine)
{
    for (uint32_t i = 0; i < machine->options->requests; i++) {
        fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
        fby_session_t session = machine->flight[i].session;
        if (session != 0 && fby_session_poll(machine->cache, session, &snapshot) == 0 &&
            snapshot.state < FBY_TERMINAL) {
            return true;
        }
    }
    return false;
}

/* Detached sessions drain behind their answers: their graphs count too. Any event is a reason to look again. */
static int await_tails(machine_t *machine)
{
    fby_subscription_t *events;
    fby_event_t event = {.size = sizeof(event)};
    uint64_t end_ns = now_ns() + fby_ns_from_s(CLOSE_LIMIT_S);
    int status = fby_subscribe(machine->cache, TAIL_EVENTS, &events);
    if (status != 0) {
        return status;
    }
    while (now_ns() < end_ns && has_tail(machine)) {
        struct pollfd ready = {.fd = fby_subscription_fd(events), .events = POLLIN};
        poll(&ready, 1, (int)((end_ns - FBY_MIN(now_ns(), end_ns)) / FBY_MS) + 1);
        while (fby_subscription_next(events, &event) == 0) { /* only that there was one counts */
        }
    }
    fby_unsubscribe(events);
    return 0;
}

/* ---- Making it --------------------------------------------------------------------------------------------------- */

static int set_number(fby_config_t *config, const char *key, uint64_t number, const char *unit)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRIu64 "%s", number, unit);
    return fby_config_set(config, key, text);
}

static int set_real(fby_config_t *config, const char *key, double number)
{
    char text[40];
    snprintf(text, sizeof(text), "%.9g", number);
    return fby_config_set(config, key, text);
}

static int configure_numbers(const machine_t *machine, fby_config_t *config)
{
    const fby_replay_options_t *options = machine->options;
    uint64_t pool = options->pool_blocks * fby_replay_slot_bytes(options);
    const struct {
        const char *key;
        uint64_t number;
        const char *unit;
    } numbers[] = {
        {"model.block_tokens", options->block_tokens, ""},
        {"prefetch.chunk_max_blocks", machine->run->which.chunk, ""},
        {"prefetch.max_sessions", MOST_SESSIONS, ""},
        {"prefetch.max_reserved_bytes", pool / 4, "B"},
        {"prefetch.max_pinned_bytes", pool / 2, "B"},
        {"pool.bytes", pool, "B"},
        {"pool.max_hold_bytes", pool / 2, "B"},
        {"pool.write_pinned_bytes", pool / 4, "B"},
    };
    int status = 0;
    for (size_t i = 0; i < FBY_ARRAY_LEN(numbers) && status == 0; i++) {
        status = set_number(config, numbers[i].key, numbers[i].number, numbers[i].unit);
    }
    status =
        status == 0 ? set_real(config, "prefetch.recompute_tokens_per_s", options->recompute_tokens_per_s) : status;
    if (status == 0 && options->budget_ns != FBY_NEVER) {
        status = set_real(config, "prefetch.timeout_budget_s", (double)options->budget_ns / 1e9);
    }
    return status;
}

static int configure(const machine_t *machine, fby_config_t *config)
{
    char groups[48];
    snprintf(groups, sizeof(groups), "kv:%" PRIu32 "B:all", machine->payload_bytes);
    const char *const texts[][2] = {
        {"model.id", "forebay-replay"},
        {"model.revision", "1"},
        {"model.kv_dtype", "bytes"},
        {"model.layer_set", "all"},
        {"model.layout", "replay"},
        {"model.weights_epoch", "0"},
        {"model.tp_size", "1"},
        {"model.cp_size", "1"},
        {"model.pp_size", "1"},
        {"model.groups", groups},
        {"prefetch.enabled", "true"},
        {"prefetch.policy", fby_policy_name(machine->run->which.policy)},
        {"prefetch.stop_mode", fby_stop_mode_name(machine->run->which.stop_mode)},
        {"store.write", "through"},
        {"pool.prefault", "false"},
        {"log.level", "warn"},
    };
    int status = configure_numbers(machine, config);
    for (size_t i = 0; i < FBY_ARRAY_LEN(texts) && status == 0; i++) {
        status = fby_config_set(config, texts[i][0], texts[i][1]);
    }
    return status;
}

static int open_cache(machine_t *machine)
{
    fby_store_text_t store = {.copy = NULL};
    fby_config_t *config = NULL;
    char text[FBY_SCRATCH_BYTES + 16];
    int status = machine->options->store == NULL ? fby_scratch_make(machine->scratch) : 0;
    snprintf(text, sizeof(text), "file:dir=%s", machine->scratch);
    status = status == 0
                 ? fby_store_text_parse(machine->options->store != NULL ? machine->options->store : text, &store)
                 : status;
    status = status == 0 ? fby_config_create(&config) : status;
    status = status == 0 ? configure(machine, config) : status;
    status = status == 0 ? fby_store_text_apply(&store, config) : status;
    status = status == 0 ? fby_cache_open(config, &machine->cache) : status;
    fby_config_free(config);
    fby_store_text_free(&store);
    return status;
}

static int watch(const machine_t *machine, int fd, uint64_t source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = source};
    return epoll_ctl(machine->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : failed_call("epoll");
}

static int open_descriptors(machine_t *machine, const sigset_t *signals)
{
    machine->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    machine->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    machine->signal_fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (machine->epoll_fd < 0 || machine->timer_fd < 0 || machine->signal_fd < 0) {
        return failed_call("epoll, timerfd or signalfd");
    }
    int status = watch(machine, machine->timer_fd, SOURCE_TIMER);
    status = status == 0 ? watch(machine, machine->putter.done_fd, SOURCE_PUTS) : status;
    return status == 0 ? watch(machine, machine->signal_fd, SOURCE_SIGNAL) : status;
}

static int allocate(machine_t *machine)
{
    const fby_replay_options_t *options = machine->options;
    static const fby_engine_host_t host = {host_start, host_demand, host_consume, host_store};
    fby_engine_config_t engine;
    uint32_t longest = 1;
    for (uint32_t i = 0; i < options->requests; i++) {
        longest = FBY_MAX(longest, options->trace->request[i].input_tokens);
    }
    machine->tokens = calloc(longest, sizeof(*machine->tokens));
    machine->copy = malloc(machine->payload_bytes);
    machine->flight = calloc(options->requests + UINT64_C(1), sizeof(*machine->flight));
    fby_replay_engine_config(machine->run, &host, machine, &engine);
    if (machine->tokens == NULL || machine->copy == NULL || machine->flight == NULL ||
        fby_engine_init(&engine, now_ns(), &machine->engine) != 0) {
        return out_of_memory();
    }
    for (uint32_t i = 0; i < options->requests; i++) {
        machine->flight[i].answer_fd = -1;
    }
    return 0;
}

static int machine_open(machine_t *machine, const fby_replay_run_t *run, const sigset_t *signals)
{
    const fby_replay_options_t *options = run->options;
    *machine = (machine_t){
        .run = run,
        .options = options,
        .payload_bytes = options->block_tokens * options->token_bytes,
        .epoll_fd = -1,
        .timer_fd = -1,
        .signal_fd = -1,
        .armed_ns = FBY_NEVER,
    };
    snprintf(machine->name_space, sizeof(machine->name_space), "%s/%s/%" PRIu32, fby_policy_name(run->which.policy),
             fby_stop_mode_name(run->which.stop_mode), run->which.chunk);
    int status = open_cache(machine);
    status = status == 0 ? fby_putter_open(&machine->putter, machine->cache, machine->payload_bytes) : status;
    machine->has_putter = status == 0;
    status = status == 0 ? open_descriptors(machine, signals) : status;
    return status == 0 ? allocate(machine) : status;
}

static void close_descriptor(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

/* The putter first: its threads use the cache. */
static void machine_close(machine_t *machine)
{
    if (machine->has_putter) {
        fby_putter_close(&machine->putter);
    }
    for (uint32_t i = 0; machine->flight != NULL && i < machine->options->requests; i++) {
        forget_descriptor(machine, &machine->flight[i]);
        fby_seq_unref(machine->flight[i].seq);
    }
    if (machine->cache != NULL) {
        fby_cache_close(machine->cache, CLOSE_LIMIT_S, NULL);
    }
    fby_scratch_remove(machine->scratch);
    close_descriptor(machine->epoll_fd);
    close_descriptor(machine->timer_fd);
    close_descriptor(machine->signal_fd);
    fby_engine_free(&machine->engine);
    free(machine->flight);
    free(machine->tokens);
    free(machine->copy);
}

int fby_replay_real(const fby_replay_run_t *run, fby_replay_result_t *result)
{
    machine_t machine;
    fby_stats_t stats = {.size = sizeof(stats)};
    sigset_t signals, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    int status = machine_open(&machine, run, &signals);
    status = status == 0 ? run_loop(&machine) : status;
    status = status == 0 ? await_tails(&machine) : status;
    status = status == 0 ? fby_cache_stats(machine.cache, &stats) : status;
    status = status == 0 ? fby_replay_summarize(run, &machine.engine, result) : status;
    if (status == 0) {
        result->wasted_bytes = stats.bytes_wasted;
        result->graphs = stats.graphs;
    }
    machine_close(&machine);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}
