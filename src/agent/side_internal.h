/* side_internal.h - one agent, between the files of its side. */
#ifndef FBY_AGENT_SIDE_INTERNAL_H
#define FBY_AGENT_SIDE_INTERNAL_H

#include <pthread.h>

#include "agent/side.h"

typedef enum fby_side_lane_state { FBY_SIDE_UNUSED, FBY_SIDE_SERVED, FBY_SIDE_LEFT } fby_side_lane_state_t;

/* One slot of the table that finds keys that stand twice. Valid when `stamp` is the lane's. */
typedef struct fby_side_seen {
    uint32_t stamp, index;
} fby_side_seen_t;

/* Used by the lane's thread alone, but for ring.lane and state. */
typedef struct fby_side_lane {
    fby_ring_t ring;
    fby_ring_entry_t *entries; /* the batch in private memory; all arrays hold `depth`, but for keys and seen */
    fby_store_op_t *ops;
    int64_t *results;
    uint64_t *addresses, *sizes;
    char *keys;            /* depth * FBY_KEY_BYTES */
    fby_side_seen_t *seen; /* 2 * depth */
    uint32_t stamp;
    uint32_t count; /* of the batch that is being served */
    uint64_t tag;
    fby_side_lane_state_t state; /* guarded by the agent's lock */
} fby_side_lane_t;

/* Never freed once it was handed out: the watcher lives as long as the process. */
struct fby_agent {
    int control_fd, host_fd;
    int pool_fd; /* -1: not there yet, or mapped */
    void *ring_memory;
    uint64_t ring_bytes, pool_bytes;
    uint8_t *pool; /* NULL until it is mapped */
    fby_store_spec_t spec;
    char *texts;          /* driver, then options; each NUL-terminated */
    const char **options; /* into texts; NULL-terminated */
    uint32_t lane_count, depth;
    fby_side_lane_t *lanes;
    uint32_t confined; /* FBY_CONFINED_* */
    _Atomic bool closing;
    pthread_mutex_t lock; /* guards the lanes' states and pool_fd; closing is set under it */
    pthread_cond_t changed;
};

/* A memory file of that size, sealed. FBY_E_FORMAT with a text. */
int fby_side_memory_check(const char *name, int fd, uint64_t bytes, char *error, size_t error_size);
/* Layout of the lanes' private memory. -ENOMEM leaves what was allocated to fby_side_lanes_free. */
int fby_side_lanes_make(fby_agent_t *agent);
void fby_side_lanes_free(fby_agent_t *agent);
/* Starts the thread that answers pings and ends the process with its runtime. -errno. */
int fby_side_watch(fby_agent_t *agent);
/* Tells the runtime why there will be no READY. */
void fby_side_send_failed(int control_fd, int code, const char *text);

#endif
