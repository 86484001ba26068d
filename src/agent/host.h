/*
 * host.h - store.host agent: a store that runs in processes of its own, seen from the runtime as one more driver.
 *
 * The table's blocking calls (exists, get, put, remove, health, raise_epoch) go to a lane of an agent and wait there. A
 * call that has to end early is *fenced*: its agent is killed, its death proven (a pidfd; the filter or the PID
 * namespace says that nothing else held the pool), and only then does the call return. Every other call that was with
 * the same agent ends with -ECANCELED after the same proof: not its fault, its work is begun once more. What cannot be
 * proven keeps its call waiting: its slots stay in quarantine.
 *
 * PROCESSES  one per kind of lane (query, read, write), or one for all when the driver's state lives in its process
 *            (fby_store_caps_t.one_process). A kill costs the lanes of one process.
 * THREADS    one supervisor per store ("fby-agents"): starts, hears deaths, reaps, restarts with capped back-off. It
 *            sleeps in poll() without a limit while nothing is outstanding and nothing is to be restarted.
 * CALLS      any thread; they may block. A call that finds its agent starting waits for it; one that finds it down
 *            (start failed, back-off) returns FBY_E_CONNECTION at once.
 * BUFFERS    within the registered pool as they are; others (one op at a time) through the lane's bounce area.
 */
#ifndef FBY_AGENT_HOST_H
#define FBY_AGENT_HOST_H

#include <stdatomic.h>

#include "base/base.h"
#include "forebay/store.h"
#include "pool/region.h"

typedef enum fby_agent_kind { FBY_AGENT_QUERY, FBY_AGENT_READ, FBY_AGENT_WRITE, FBY_AGENT_KINDS } fby_agent_kind_t;

typedef struct fby_agent_config {
    const char *driver;              /* as in store.driver */
    const char *const *options;      /* "key=value", NULL-terminated */
    const char *program;             /* directory of our programs (store.agent_dir), or NULL: as fby_agent_find */
    const fby_store_spec_t *spec;    /* copied */
    const fby_region_t *region;      /* outlives the store */
    uint32_t lanes[FBY_AGENT_KINDS]; /* calls at once by kind; 0: what the driver prefers */
    uint32_t batch;                  /* keys of a call at most; a power of two is made of it */
} fby_agent_config_t;

typedef struct fby_agent_stats {
    uint32_t processes;      /* alive */
    uint32_t unproven;       /* killed or dead, the proof is missing */
    uint64_t starts, deaths; /* deaths: not asked for */
    uint64_t kills;          /* fences */
    uint64_t failed_starts;
    char last[160]; /* why the last one went, or "" */
} fby_agent_stats_t;

extern const fby_store_driver_t fby_store_agent;

/* Starts the processes and waits for them. FBY_E_CONFIG with a message when it can never work (no program, another
   version, an option that the driver refuses). A store that cannot be reached is no failure of a driver whose capabilities are known
   without it (mooncake; redis connects later): the supervisor goes on trying. Of others it is the code of their open. Opened by this, not by the table; everything else through the table. */
int fby_agent_open(const fby_agent_config_t *config, fby_store_t **out, char *error, size_t error_size);
uint32_t fby_agent_lane_count(const fby_store_t *store, fby_agent_kind_t kind);
/* Calls of this thread are made on behalf of `caller` from now on (NULL: nobody's). Costs nothing. */
void fby_agent_on_behalf(const void *caller);
/* Calls of this thread end with FBY_E_TIMEOUT from when `*passed` is true (NULL: never). Set before the fence, it ends also
   the calls that come after it: a caller that makes several calls has one limit, wherever between them the fence falls. */
void fby_agent_obey(const _Atomic bool *passed);
/* The limit of what `caller` does has passed: makes its call end, with FBY_E_TIMEOUT. Any thread, not under a lock of the
   caller's: it makes system calls, and does not wait. Nothing when it has no call (any more). */
void fby_agent_fence(fby_store_t *store, const void *caller);
/* Ends every call: for shutdown. */
void fby_agent_fence_all(fby_store_t *store);
/* In place of the table's close when some call is never proven to end: idle agents leave, nothing is waited for or freed. */
void fby_agent_dismiss(fby_store_t *store);
void fby_agent_stats(fby_store_t *store, fby_agent_stats_t *stats);
/* Where a program of ours is: FOREBAY_LIBEXEC, the directory of the running program, of this library, of the installation.
   0 or -ENOENT with a message that lists what was tried. */
int fby_agent_find(const char *name, char *path, size_t path_size, char *error, size_t error_size);

#endif
