/*
 * host_internal.h - the host's view of agents, shared by host.c (calls), host_open.c (opening and closing), supervise.c
 * (life and death) and spawn.c.
 *
 * INVARIANTS (guarded by store->lock unless said otherwise)
 *   SEAT     one place for one process. `current` is READY or STARTING; a process that is to die leaves the seat at once
 *            and stays on `departed` until it was seen dead and no call refers to it.
 *   GONE     process->gone is set once, after the proof: nothing can write into the pool on its behalf any more. Calls
 *            that wait on its lanes end then, and only then.
 *   LANE     busy while one call owns it: the only producer of its submissions.
 */
#ifndef FBY_AGENT_HOST_INTERNAL_H
#define FBY_AGENT_HOST_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "agent/host.h"
#include "agent/ring.h"
#include "agent/wire.h"
#include "base/clock.h"
#include "base/log.h"

typedef enum fby_process_state {
    FBY_PROCESS_STARTING, /* HELLO sent */
    FBY_PROCESS_READY,
    FBY_PROCESS_DYING, /* killed, or seen dead: the proof is missing */
    FBY_PROCESS_GONE,  /* proven */
} fby_process_state_t;

typedef struct fby_host_lane {
    fby_ring_t ring;
    bool busy;                 /* a call owns it */
    bool fenced;               /* this call's own limit: it ends with FBY_E_TIMEOUT */
    const void *caller;        /* of the call that owns it */
    fby_ring_entry_t *entries; /* depth of each */
    int64_t *results;
} fby_host_lane_t;

typedef struct fby_process {
    struct fby_process *next; /* of departed */
    struct fby_seat *seat;
    fby_process_state_t state;
    _Atomic bool gone;
    pid_t pid;
    int pidfd, control; /* -1: closed */
    bool namespaced;    /* first process of a PID namespace: when it is gone, so is everything in it */
    bool reaped, asked; /* asked: CLOSE was sent */
    bool has_pool;      /* its descriptor was sent */
    uint32_t confined;  /* as CONFINED said */
    uint32_t calls;     /* that own a lane */
    bool answered_once; /* some call of its succeeded */
    bool ping_wanted;
    uint64_t started_at;
    uint64_t pong_due; /* 0: no ping is out */
    void *ring_memory;
    uint64_t ring_bytes;
    uint32_t lane_count;
    fby_host_lane_t *lanes;
} fby_process_t;

typedef struct fby_seat {
    fby_process_t *current; /* NULL: nobody there */
    const char *name;       /* for logs */
    uint32_t lane_count;    /* of a process started for it */
    uint32_t strikes;       /* deaths in a row without an answer in between, or in quick succession */
    uint64_t restart_at;    /* when the next start is due; FBY_NEVER: not needed */
    bool down;              /* calls do not wait: the last start failed, or the back-off has grown */
} fby_seat_t;

/* Which lanes of which seat serve a kind. */
typedef struct fby_route {
    fby_seat_t *seat;
    uint32_t first, count;
} fby_route_t;

/* A call that waits for a lane. */
typedef struct fby_waiter {
    struct fby_waiter *next;
    const void *caller;
    bool fenced;
} fby_waiter_t;

enum { FBY_HOST_LINES = 8, FBY_HOST_LINE_BYTES = 768 };

/* What is to be logged when the lock is free: a full pipe behind stderr must not hold a fence up. */
typedef struct fby_host_line {
    fby_log_level_t level;
    const char *event;
    char text[FBY_HOST_LINE_BYTES];
} fby_host_line_t;

struct fby_store {
    /* constant after open */
    char *driver, *directory;
    char **options;
    const fby_region_t *region;
    uint32_t depth, bounce_bytes;
    fby_store_caps_t caps;
    int own_pidfd;
    char version[128];
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a lane came free, a seat changed */
    fby_store_spec_t spec;  /* epoch changes */
    fby_seat_t seats[FBY_AGENT_KINDS];
    uint32_t seat_count;
    fby_route_t route[FBY_AGENT_KINDS];
    fby_process_t *departed;
    fby_waiter_t *waiters;
    fby_agent_stats_t stats;
    uint64_t next_tag;
    int start_code; /* what the last failed start said; for open */
    char start_text[512];
    bool stop;
    fby_host_line_t line[FBY_HOST_LINES];
    uint32_t lines, lines_lost;
    pthread_t supervisor;
    bool supervisor_started;
    int wake; /* eventfd */
};

/* ---- host_open.c ---- */
/* Waits for store->changed until then (FBY_NEVER: no limit). False: time is up. Under the lock. */
bool fby_host_wait(struct fby_store *store, uint64_t until);
void fby_agent_close(fby_store_t *store);

/* ---- spawn.c ---- */
/* Maps a ring, starts the program and sends HELLO. Without the lock. FBY_E_CONFIG (no program), -errno; with text. */
/* (A process may be there also when it failed: it runs, and has to be killed.) */
int fby_process_start(struct fby_store *store, fby_seat_t *seat, fby_process_t **out, char *error, size_t error_size);
/* The pool's descriptor, which it asked for. -errno. */
int fby_process_send_pool(const struct fby_store *store, const fby_process_t *process);
/* After it is gone and no call refers to it, or when it was never put on a seat. */
void fby_process_free(fby_process_t *process);

/* ---- supervise.c; all under the lock ---- */
int fby_supervisor_start(struct fby_store *store);
void fby_supervisor_wake(struct fby_store *store);
/* Whether a process of the store has not been seen dead. Once told to stop, the supervisor ends when there is none. */
bool fby_supervisor_has_living(const struct fby_store *store);
/* Takes it from its seat and kills it. `why` for log and stats; counted as a kill or a death. */
void fby_process_kill(struct fby_store *store, fby_process_t *process, const char *why);
/* The last call has left a process that is gone. */
void fby_process_release(struct fby_store *store, fby_process_t *process);

#endif
