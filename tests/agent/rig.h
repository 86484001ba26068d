/*
 * rig.h - the runtime's end of one agent, as small as it can be: memory files, a control socket, a HELLO, one call at a
 * time on a lane. The agent's end is a forked child or a program.
 */
#ifndef FBY_TESTS_AGENT_RIG_H
#define FBY_TESTS_AGENT_RIG_H

#include <sys/types.h>

#include "agent/ring.h"
#include "agent/wire.h"

enum { RIG_LANES = 2, RIG_DEPTH = 8, RIG_BOUNCE_BYTES = 8192, RIG_POOL_BYTES = 65536, RIG_SLOT_BYTES = 4096 };

typedef struct rig {
    int pool_fd;
    int fds[FBY_WIRE_FDS]; /* ring, pidfd of this process */
    int host, agent;       /* the ends of the control socket; -1: closed */
    uint8_t *pool;
    void *ring;
    uint64_t ring_bytes;
    fby_ring_t lanes[RIG_LANES];
    uint64_t tag;
    _Alignas(8) char packet[FBY_WIRE_MOST]; /* HELLO, to be spoilt before rig_send */
    size_t packet_bytes;
    pid_t child;  /* 0: none */
    int child_fd; /* pidfd */
    uint32_t confined;
} rig_t;

/* Memory and a right HELLO for "mem" with option "name=rig". Fails the test on any error. */
void rig_open(rig_t *rig);
static inline fby_wire_hello_t *rig_hello(rig_t *rig)
{
    return (fby_wire_hello_t *)(void *)rig->packet;
}
/* Driver and options, NULL-terminated. */
void rig_texts(rig_t *rig, const char *const *texts);
/* Sends the packet with the first `fds` descriptors. */
void rig_send(rig_t *rig, int fds);
/* Forks; the child runs body(control_fd) and leaves with what it returns, never through exit(). */
void rig_fork(rig_t *rig, int (*body)(int control_fd));
/* Forks and executes the program with the socket as descriptor 3. */
void rig_execute(rig_t *rig, const char *program);
/* The next message; its bytes. 0: the other end closed. */
size_t rig_receive(rig_t *rig, void *message, size_t bytes);
/* Gives the pool when the agent asks for it, and keeps what CONFINED said in rig->confined. */
void rig_receive_ready(rig_t *rig, fby_wire_ready_t *ready);
void rig_say(rig_t *rig, fby_wire_type_t type);
/* An entry whose buffer is a slot of the pool (FBY_RING_NO_BUFFER: none). */
fby_ring_entry_t rig_entry(fby_ring_op_t op, const char *key, uint64_t offset, uint32_t bytes);
/* Submits the entries on a lane and waits for all answers. False: the agent has ended without them. */
bool rig_call(rig_t *rig, uint32_t lane, fby_ring_entry_t *entries, uint32_t n, int64_t *results);
/* Waits for the child's end: its exit code, or minus the signal that ended it. */
int rig_wait(rig_t *rig);
/* Ends the child if it still runs. */
void rig_close(rig_t *rig);

#endif
