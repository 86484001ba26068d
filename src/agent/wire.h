/*
 * wire.h - what goes over the control socket between a runtime and an agent: start-up, pings, the end. SOCK_SEQPACKET,
 * one message per packet. Data never goes here.
 *
 *   host  -> agent  HELLO with the descriptors of the ring and of the host's own pidfd
 *   agent -> host   CONFINED: its driver is open and nothing can leave it any more; or FAILED with a code and a text
 *   host  -> agent  POOL with its descriptor: nothing that the agent started before can hold it
 *   agent -> host   READY: the pool is mapped and registered; or FAILED. After FAILED it exits
 *   host  -> agent  PING     agent -> host  PONG      only while operations are outstanding
 *   host  -> agent  CLOSE    the agent closes its driver and exits
 */
#ifndef FBY_AGENT_WIRE_H
#define FBY_AGENT_WIRE_H

#include "base/base.h"
#include "forebay/store.h"

#define FBY_WIRE_MAGIC 0x41594246u /* "FBYA" */
#define FBY_WIRE_VERSION 1u

enum { FBY_WIRE_MOST = 65536, FBY_WIRE_FDS = 2, FBY_WIRE_CONTROL_FD = 3 };

typedef enum fby_wire_type {
    FBY_WIRE_HELLO = 1,
    FBY_WIRE_READY,
    FBY_WIRE_FAILED,
    FBY_WIRE_PING,
    FBY_WIRE_PONG,
    FBY_WIRE_CLOSE,
    FBY_WIRE_CONFINED,
    FBY_WIRE_POOL,
} fby_wire_type_t;

/* Begins every message. */
typedef struct fby_wire_head {
    uint32_t magic;
    uint32_t version;
    uint32_t type;
    uint32_t bytes; /* of the whole message */
} fby_wire_head_t;

/* Descriptors: ring, pidfd of the host. Followed by the driver's name and its options, each NUL-terminated. */
typedef struct fby_wire_hello {
    fby_wire_head_t head;
    uint64_t pool_bytes;
    uint64_t ring_bytes;
    fby_store_spec_t spec;
    uint32_t texts;      /* 1 + options */
    uint32_t text_bytes; /* of all of them */
} fby_wire_hello_t;

/* X(bit, name): what guards the fence of this agent (docs/agents.md). */
#define FBY_CONFINED_MAP(X) X(1, SECCOMP) X(2, NO_FORK) X(4, PID_NAMESPACE) X(8, URING)

enum {
#define FBY_X(bit, name) FBY_CONFINED_##name = bit,
    FBY_CONFINED_MAP(FBY_X)
#undef FBY_X
};

/* Asks for the pool. */
typedef struct fby_wire_confined {
    fby_wire_head_t head;
    uint32_t confined; /* SECCOMP: the filter is on; NO_FORK: it refuses new processes; URING: io_uring is allowed */
    uint32_t reserved0;
} fby_wire_confined_t;

typedef struct fby_wire_ready {
    fby_wire_head_t head;
    fby_store_caps_t caps;
    uint32_t reserved0[2];
    char version[128]; /* of the driver's client, for logs: "mooncake-transfer-engine 0.3.13" */
} fby_wire_ready_t;

typedef struct fby_wire_failed {
    fby_wire_head_t head;
    int32_t code;   /* FBY_E_CONFIG: cannot work as configured; anything else may pass, e.g. FBY_E_CONNECTION */
    char text[508]; /* names option, value and what is accepted, or what could not be reached */
} fby_wire_failed_t;

static inline fby_wire_head_t fby_wire_make(fby_wire_type_t type, size_t bytes)
{
    return (fby_wire_head_t){FBY_WIRE_MAGIC, FBY_WIRE_VERSION, (uint32_t)type, (uint32_t)bytes};
}

#endif
