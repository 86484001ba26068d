/*
 * evil_agent.c - an agent program that breaks the protocol, for tests: put in place of forebay-agent by its directory.
 *
 * The driver's name is ignored; option act=NAME says what a get does (everything else is answered as a store that holds
 * nothing), or what happens before READY:
 *
 *   tag      answers with another batch's tag
 *   count    says that more is answered than was asked
 *   large    answers with more bytes than were asked for; small: with a code that no int32 holds
 *   garbage  sends bytes on the control socket that are no message
 *   again    sends READY again
 *   unasked  sends an answer to a ping that nobody sent
 *   mute     ends its side of the control socket, and never answers
 *   hang     never answers
 *   weak     sets no filter, and never answers; rich: likewise, and says that it holds everything
 *   quit     exits
 *   version  READY is of another version; short: it is cut short; exit: exits instead; silent: it never comes
 *   spoilt   as exit, once there is a file `spoil` in the directory that option dir=PATH names
 *   deaf     closes the control socket instead, and lives on
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/side_internal.h"

enum { EXIT_ASKED = 3 };

static fby_agent_t *agent;
static const char *act = "";
static char spoil[4096];
static const fby_store_caps_t caps = {.size = sizeof(caps), .max_batch = 64};

static bool does(const char *name)
{
    return strcmp(act, name) == 0;
}

_Noreturn static void hang(void)
{
    for (;;) {
        pause();
    }
}

static void send_ready(uint32_t version, size_t bytes)
{
    fby_wire_ready_t ready = {.head = fby_wire_make(FBY_WIRE_READY, bytes), .caps = caps};
    ready.head.version = version;
    (void)!send(FBY_WIRE_CONTROL_FD, &ready, bytes, MSG_NOSIGNAL);
}

/* ---- A get ---- */

static void answer_all(uint32_t lane, fby_agent_batch_t *batch, int64_t result)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        batch->ops[i].result = result;
    }
    fby_agent_answer(agent, lane, batch);
}

static void answer_with_tag(uint32_t lane, const fby_agent_batch_t *batch)
{
    int64_t results[FBY_RING_DEPTH_MOST] = {0};
    fby_ring_answer(&agent->lanes[lane].ring, batch->tag + 1, results, batch->count);
}

static void answer_too_many(uint32_t lane)
{
    fby_ring_lane_t *shared = agent->lanes[lane].ring.lane;
    atomic_fetch_add(&shared->answered, agent->depth + 1);
    fby_ring_kick(shared);
    hang();
}

static void misbehave_on_the_socket(void)
{
    const fby_wire_head_t pong = fby_wire_make(FBY_WIRE_PONG, sizeof(pong));
    const char garbage[] = "this is no message";
    if (does("garbage")) {
        (void)!send(FBY_WIRE_CONTROL_FD, garbage, sizeof(garbage), MSG_NOSIGNAL);
    } else if (does("again")) {
        send_ready(FBY_WIRE_VERSION, sizeof(fby_wire_ready_t));
    } else if (does("unasked")) {
        (void)!send(FBY_WIRE_CONTROL_FD, &pong, sizeof(pong), MSG_NOSIGNAL);
    } else if (does("mute")) {
        shutdown(FBY_WIRE_CONTROL_FD, SHUT_WR);
    } else if (does("quit")) {
        _exit(EXIT_ASKED);
    }
    hang();
}

static void serve_get(uint32_t lane, fby_agent_batch_t *batch)
{
    if (does("tag")) {
        answer_with_tag(lane, batch);
    } else if (does("count")) {
        answer_too_many(lane);
    } else if (does("large")) {
        answer_all(lane, batch, (int64_t)batch->ops[0].bytes + 1);
    } else if (does("small")) {
        answer_all(lane, batch, INT64_MIN);
    } else {
        misbehave_on_the_socket();
    }
}

static void *serve(void *arg)
{
    uint32_t lane = (uint32_t)(uintptr_t)arg;
    fby_agent_batch_t batch;
    while (fby_agent_take(agent, lane, &batch) == 0) {
        if (batch.op == FBY_RING_GET) {
            serve_get(lane, &batch);
        } else {
            answer_all(lane, &batch, batch.op == FBY_RING_EXISTS && does("rich"));
        }
    }
    return NULL;
}

/* ---- Start ---- */

static void misbehave_before_ready(void)
{
    if (does("exit") || (does("spoilt") && access(spoil, F_OK) == 0)) {
        _exit(EXIT_ASKED);
    } else if (does("silent")) {
        hang();
    } else if (does("version")) {
        send_ready(FBY_WIRE_VERSION + 1, sizeof(fby_wire_ready_t));
        hang();
    } else if (does("short")) {
        send_ready(FBY_WIRE_VERSION, sizeof(fby_wire_ready_t) - 8);
        hang();
    }
}

/* The library's watcher would end a process without its socket: this one never has a watcher. */
static void be_deaf(void)
{
    static char hello[FBY_WIRE_MOST];
    ssize_t n = recv(FBY_WIRE_CONTROL_FD, hello, sizeof(hello), MSG_PEEK);
    if (n > 0 && memmem(hello, (size_t)n, "act=deaf", sizeof("act=deaf")) != NULL) {
        close(FBY_WIRE_CONTROL_FD);
        alarm(60);
        hang();
    }
}

int main(void)
{
    char error[512];
    void *pool;
    size_t bytes;
    be_deaf();
    if (fby_agent_accept(FBY_WIRE_CONTROL_FD, &agent, error, sizeof(error)) != 0) {
        fprintf(stderr, "evil_agent: %s\n", error);
        return 1;
    }
    const char *const *options = fby_agent_options(agent);
    for (; *options != NULL; options++) {
        act = strncmp(*options, "act=", 4) == 0 ? *options + 4 : act;
        if (strncmp(*options, "dir=", 4) == 0) {
            snprintf(spoil, sizeof(spoil), "%s/spoil", *options + 4);
        }
    }
    misbehave_before_ready();
    if (!does("weak") && !does("rich") && fby_agent_confine(agent, 0) != 0) {
        return 1;
    }
    if (fby_agent_map(agent, &pool, &bytes) != 0) {
        return 1;
    }
    for (uint32_t i = 0; i < fby_agent_lanes(agent); i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, (void *)(uintptr_t)i) != 0) {
            return 1;
        }
        pthread_detach(thread);
    }
    fby_agent_ready(agent, &caps, "evil");
    fby_agent_finished(agent);
    _exit(0);
}
