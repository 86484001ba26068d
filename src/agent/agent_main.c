/*
 * agent_main.c - `forebay-agent`: one C driver served to a runtime, which starts this program with a control socket on
 * descriptor 3. Ends by _exit only: nothing of a client library may run or hang after the store was closed.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/side.h"
#include "base/log.h"
#include "stores/stores.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

typedef struct program {
    fby_agent_t *agent;
    const fby_store_driver_t *driver;
    fby_store_t *store;
    fby_store_caps_t caps;
    void *pool;
    size_t pool_bytes;
} program_t;

typedef struct lane {
    const program_t *program;
    uint32_t index;
} lane_t;

/* ---- Serving ---- */

static int call_driver(const program_t *program, fby_ring_op_t op, fby_store_op_t *ops, uint32_t n)
{
    const fby_store_driver_t *driver = program->driver;
    switch (op) {
    case FBY_RING_EXISTS:
        return driver->exists(program->store, ops, n);
    case FBY_RING_GET:
        return driver->get(program->store, ops, n);
    case FBY_RING_PUT:
        return driver->put(program->store, ops, n);
    case FBY_RING_REMOVE:
        return driver->remove(program->store, ops, n);
    case FBY_RING_HEALTH:
    case FBY_RING_EPOCH:
    case FBY_RING_OP_COUNT:
        break;
    }
    return FBY_E_INVALID;
}

static void serve_keys(const program_t *program, const fby_agent_batch_t *batch)
{
    uint32_t most = program->caps.max_batch != 0 ? program->caps.max_batch : batch->count;
    for (uint32_t first = 0; first < batch->count;) {
        fby_store_op_t *ops = batch->ops + first;
        uint32_t n = FBY_MIN(most, batch->count - first);
        int status = call_driver(program, batch->op, ops, n);
        for (uint32_t i = 0; i < n && status < 0; i++) {
            ops[i].result = status;
        }
        first += n;
    }
}

static void serve_batch(const program_t *program, const fby_agent_batch_t *batch)
{
    const fby_store_driver_t *driver = program->driver;
    if (batch->op == FBY_RING_HEALTH) {
        batch->ops[0].result = driver->health(program->store, batch->text, FBY_RING_TEXT_BYTES);
    } else if (batch->op == FBY_RING_EPOCH) {
        batch->ops[0].result = driver->raise_epoch != NULL ? driver->raise_epoch(program->store, batch->epoch) : 0;
    } else {
        serve_keys(program, batch);
    }
}

static void *serve_lane(void *arg)
{
    const lane_t *lane = arg;
    fby_agent_t *agent = lane->program->agent;
    fby_agent_batch_t batch;
    int status;
    while ((status = fby_agent_take(agent, lane->index, &batch)) == 0) {
        serve_batch(lane->program, &batch);
        fby_agent_answer(agent, lane->index, &batch);
    }
    if (status != -ESHUTDOWN) {
        fby_log(FBY_LOG_ERROR, "agent", "lane=%u error=\"malformed batch: the ring cannot be trusted\"", lane->index);
        _exit(EXIT_FAILED);
    }
    return NULL;
}

static int serve(const program_t *program)
{
    const uint32_t lanes = fby_agent_lanes(program->agent);
    lane_t *lane = calloc(lanes, sizeof(*lane)); /* lives as long as the process */
    if (lane == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < lanes; i++) {
        pthread_t thread;
        lane[i] = (lane_t){program, i};
        int status = pthread_create(&thread, NULL, serve_lane, &lane[i]);
        if (status != 0) {
            return -status;
        }
        pthread_detach(thread);
    }
    return 0;
}

/* ---- Start ---- */

_Noreturn static void fail(const program_t *program, int code, const char *text)
{
    fby_agent_fail(program->agent, code, text);
    _exit(EXIT_FAILED);
}

static void open_store(program_t *program)
{
    char error[512] = "";
    const char *name = fby_agent_driver(program->agent);
    program->driver = fby_store_find(name, error, sizeof(error));
    if (program->driver == NULL) {
        fail(program, FBY_E_CONFIG, error);
    }
    int status = program->driver->open(fby_agent_spec(program->agent), fby_agent_options(program->agent),
                                       &program->store, error, sizeof(error));
    if (status < 0) {
        fail(program, status, error[0] != '\0' ? error : fby_strerror(status));
    }
    program->driver->capabilities(program->store, &program->caps);
}

/* The pool comes last: what the client started before cannot have it. */
static void open_pool(program_t *program)
{
    int status = fby_agent_confine(program->agent, program->caps.io_uring);
    if (status < 0) {
        fby_log(FBY_LOG_WARN, "agent", "error=\"no filter could be set: %s\"", strerror(-status));
    }
    status = fby_agent_map(program->agent, &program->pool, &program->pool_bytes);
    if (status < 0) {
        fail(program, status, "the pool could not be mapped");
    }
    status = program->driver->register_region(program->store, program->pool, program->pool_bytes);
    if (status < 0) {
        fail(program, status, "the store's client could not register the pool");
    }
}

/* Lanes before READY: a batch may come as soon as the runtime has read it. */
static void open_lanes(const program_t *program)
{
    char version[128];
    const char *name = fby_agent_driver(program->agent);
    snprintf(version, sizeof(version), "%s%s", program->driver->name, strchr(name, '/') == NULL ? " built in" : "");
    int status = serve(program);
    if (status < 0) {
        fail(program, status, "a lane's thread could not be started");
    }
    if (fby_agent_ready(program->agent, &program->caps, version) < 0) {
        _exit(EXIT_FAILED); /* the runtime is gone */
    }
}

static void print_help(FILE *out)
{
    fprintf(out, "Usage: forebay-agent [--version | --help]\n\n"
                 "Serves one store to Forebay, which starts this program by itself where store.host is agent, with a\n"
                 "control socket on descriptor 3. There is nothing to start by hand.\n");
}

/* What a person may ask; or -1: serve. */
static int answer_person(int argc, char **argv)
{
    struct stat about;
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("forebay-agent %s (ring %u, control %u)\n", fby_version(), FBY_RING_VERSION, FBY_WIRE_VERSION);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (argc > 1) {
        fprintf(stderr, "forebay-agent: unknown argument '%s'\n", argv[1]);
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (fstat(FBY_WIRE_CONTROL_FD, &about) < 0 || !S_ISSOCK(about.st_mode)) {
        fprintf(stderr, "forebay-agent: descriptor %d is no socket\n", FBY_WIRE_CONTROL_FD);
        print_help(stderr);
        return EXIT_USAGE;
    }
    return -1;
}

int main(int argc, char **argv)
{
    static program_t program; /* threads that were left behind may look at it until _exit */
    char error[512];
    int code = answer_person(argc, argv);
    if (code >= 0) {
        return fflush(stdout) == 0 ? code : EXIT_FAILED;
    }
    prctl(PR_SET_NAME, "forebay-agent");
    signal(SIGINT, SIG_IGN); /* a terminal's ^C goes to the whole group: the runtime decides */
    signal(SIGPIPE, SIG_IGN);
    fby_store_isolated = true;
    if (fby_agent_accept(FBY_WIRE_CONTROL_FD, &program.agent, error, sizeof(error)) < 0) {
        fprintf(stderr, "forebay-agent: %s\n", error);
        return EXIT_FAILED;
    }
    open_store(&program);
    open_pool(&program);
    open_lanes(&program);
    fby_agent_finished(program.agent);
    program.driver->unregister_region(program.store, program.pool);
    program.driver->close(program.store);
    _exit(0);
}
