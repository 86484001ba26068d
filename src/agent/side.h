/*
 * side.h - the agent's side: what a program needs to serve a store to a runtime. Exported by libforebay-agent.so with
 * these names, so that a program in another language can load it; forebay-agent is built from the same code.
 *
 *   fby_agent_accept    receives the HELLO on the control socket (descriptor 3), checks and maps the ring; starts the
 *                       watcher thread
 *   ...                 open the store: FBY_E_CONFIG and the like go back with fby_agent_fail
 *   fby_agent_confine   no way out of this process from here on (seccomp); before the pool is there
 *   fby_agent_map       maps the pool, MADV_DONTFORK, closes its descriptor
 *   ...                 register the pool with the store's client
 *   fby_agent_ready     tells the runtime
 *   per lane, a thread: fby_agent_take / fby_agent_answer until take returns -ESHUTDOWN
 *   fby_agent_finished  waits until CLOSE was asked for and every lane has left; then the program ends
 *
 * The watcher answers pings, hears CLOSE, and ends the process at once (_exit) when the runtime's process is gone or
 * the control socket closes: an agent never outlives its runtime.
 */
#ifndef FBY_AGENT_SIDE_H
#define FBY_AGENT_SIDE_H

#include "agent/ring.h"
#include "agent/wire.h"
#include "forebay/store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fby_agent fby_agent_t;

/* One batch: ops with checked buffers. */
typedef struct fby_agent_batch {
    fby_ring_op_t op;
    uint32_t count;
    uint64_t tag;
    uint64_t epoch;      /* EPOCH */
    char *text;          /* HEALTH: FBY_RING_TEXT_BYTES for the answer */
    fby_store_op_t *ops; /* the lane's own, valid until the answer; results in ops[i].result */
} fby_agent_batch_t;

/* -errno, FBY_E_FORMAT (another version, or malformed) with a text. */
int fby_agent_accept(int control_fd, fby_agent_t **out, char *error, size_t error_size);
const char *fby_agent_driver(const fby_agent_t *agent);
/* The options as a driver wants them: "key=value", NULL-terminated. */
const char *const *fby_agent_options(const fby_agent_t *agent);
const fby_store_spec_t *fby_agent_spec(const fby_agent_t *agent);
uint32_t fby_agent_lanes(const fby_agent_t *agent);
uint32_t fby_agent_depth(const fby_agent_t *agent); /* most keys of a batch */

/* The seccomp filter, on all threads of the process; before fby_agent_map. `uring`: the driver needs io_uring (SQPOLL stays refused).
   -errno: it could not be set; then fby_agent_ready says that the agent is weaker. */
int fby_agent_confine(fby_agent_t *agent, int uring);
/* Asks the runtime for the pool, which comes only now, and maps it. -errno; -ESHUTDOWN: the runtime wants no more. */
int fby_agent_map(fby_agent_t *agent, void **base, size_t *bytes);
/* -errno. `version`: of the store's client. */
int fby_agent_ready(fby_agent_t *agent, const fby_store_caps_t *caps, const char *version);
/* Instead of ready; the program exits after it. */
void fby_agent_fail(fby_agent_t *agent, int code, const char *text);

/* Waits for the next batch of a lane; one thread per lane. 0, -ESHUTDOWN at the end, FBY_E_FORMAT (the process should
   exit: the ring cannot be trusted). */
int fby_agent_take(fby_agent_t *agent, uint32_t lane, fby_agent_batch_t *batch);
/* Answers with the results in the batch's ops. HEALTH and EPOCH: ops[0].result. */
void fby_agent_answer(fby_agent_t *agent, uint32_t lane, const fby_agent_batch_t *batch);

/* The same for languages where a loop over structs is slow. Keys are joined by '\n' (no key contains one), addresses
   and sizes are arrays of the lane's depth. `op` is a fby_ring_op_t. `duplicates`: some key stands twice. */
typedef struct fby_agent_flat {
    uint32_t op, count, duplicates, keys_bytes;
    uint64_t tag;
    const char *keys;
    const uint64_t *addresses;
    const uint64_t *sizes;
    int64_t *results; /* to be filled: `count` of them */
    char *text;       /* HEALTH */
    uint64_t epoch;   /* EPOCH */
} fby_agent_flat_t;
int fby_agent_take_flat(fby_agent_t *agent, uint32_t lane, fby_agent_flat_t *flat);
void fby_agent_answer_flat(fby_agent_t *agent, uint32_t lane, const fby_agent_flat_t *flat);

/* Waits for CLOSE and for every lane's thread to have seen -ESHUTDOWN. 0. */
int fby_agent_finished(fby_agent_t *agent);

#ifdef __cplusplus
}
#endif
#endif
