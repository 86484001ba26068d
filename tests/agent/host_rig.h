/* host_rig.h - a pool and a store in agents, for tests: the driver's calls as the runtime makes them. */
#ifndef FBY_TESTS_AGENT_HOST_RIG_H
#define FBY_TESTS_AGENT_HOST_RIG_H

#include "unit.h"

#include "../stores/fixture.h"
#include "agent/host.h"

enum { HOST_RIG_SLOTS = 64 };

typedef struct host_rig {
    fby_store_spec_t spec;
    fby_region_t region;
    fby_store_t *store;
} host_rig_t;

/* A pool of HOST_RIG_SLOTS slots per group, painted 0xEE, and the driver with these options (NULL-terminated) in agents
   with 2 lanes of each kind. Fails the test with the message. */
void host_rig_open(host_rig_t *rig, uint32_t payload, const char *driver, ...) __attribute__((sentinel));
/* Expects the opening to fail with `code` and a message that contains `part`. */
void host_rig_refused(const char *driver, int code, const char *part, ...) __attribute__((sentinel));
void host_rig_close(host_rig_t *rig);

void *host_rig_slot(const host_rig_t *rig, uint32_t group, uint32_t i);
void host_rig_paint(host_rig_t *rig);
/* Puts object i of group 0 from slot `slot`, gets it into one; the result. get compares the bytes of a hit. */
int64_t host_rig_put(host_rig_t *rig, uint64_t i, uint32_t slot);
int64_t host_rig_get(host_rig_t *rig, uint64_t i, uint32_t slot);
int64_t host_rig_exists(host_rig_t *rig, uint64_t i);

/* Process ids of the agents that serve this process now (children named forebay-agent or their interpreter). At most
   `most`. */
uint32_t host_rig_agents(pid_t *pids, uint32_t most);
/* Until the store's statistics satisfy it, looked at every few milliseconds, at most 20 s: then the test fails. */
typedef bool host_rig_condition(const fby_agent_stats_t *stats, uint64_t value);
void host_rig_await(host_rig_t *rig, host_rig_condition *condition, uint64_t value);

/* A get on a thread of its own, on behalf of its own address. */
typedef struct host_rig_call {
    host_rig_t *rig;
    fby_store_op_t op;
    pthread_t thread;
    int64_t result;
} host_rig_call_t;
void host_rig_begin_get(host_rig_call_t *call, host_rig_t *rig, uint64_t i, uint32_t slot);
int64_t host_rig_end(host_rig_call_t *call);

#endif
