/*
 * rig.h - a scripted store: runs the script over an inner driver. `mem` is one over a map, `fault` one over any driver.
 *
 * A rig holds what the script knows (counters, leases, the model's pipes). Several handles may share one: the opens of
 * a named mem store. A handle is the opened store: its inner store, its queue of submitted batches, its waiters.
 *
 * LIFE OF A BATCH
 *   decided under the lock when the call arrives -> waits until it is due (delays and model) -> its ordinary keys are
 *   performed on the inner driver -> waits while keys hang -> those are performed -> waits for ever if a reply is lost
 *   -> ends. A blocking call walks this in its own thread, a submitted batch is walked by submit() and reap().
 *
 * INVARIANTS
 *   rig->lock guards everything here; it is not held while the inner driver runs.
 *   A key is counted as outstanding from the decision until its batch ends; close ends what is left.
 *   An inner driver is either `instant` (its calls never wait, so that reap may make them itself) or has its own
 *   submit and reap, or else the handle offers blocking calls only.
 */
#ifndef FBY_STORES_RIG_H
#define FBY_STORES_RIG_H

#include <pthread.h>

#include "stores/keymap.h"
#include "stores/options.h"
#include "stores/script.h"

typedef enum fby_rig_phase {
    FBY_RIG_WAITING,    /* until due_ns */
    FBY_RIG_PERFORMING, /* ordinary or hung keys are with the inner driver */
    FBY_RIG_HUNG,       /* until released, cancelled or closed */
    FBY_RIG_LOST,       /* until cancelled or closed */
    FBY_RIG_DONE,
} fby_rig_phase_t;

typedef struct fby_rig_batch {
    struct fby_rig_batch *next;
    fby_verb_t verb;
    fby_store_op_t *ops; /* the caller's */
    uint32_t n;
    uint64_t tag;
    uint64_t due_ns;
    uint64_t releases_seen; /* hangs end when the rig's count has moved past this */
    uint32_t hung, lost;    /* keys */
    fby_rig_phase_t phase;
    bool cancelled, performed_hung, reorder, duplicate;
    bool starved;          /* the inner driver had no room: start again when it reaps */
    fby_effect_t *effects; /* one per key */
    /* The keys that are with the inner driver now. */
    fby_store_op_t *forward;
    uint32_t *origin; /* index in ops */
    uint32_t forwards;
} fby_rig_batch_t;

/* What the rig keeps per key. */
typedef struct fby_rig_key {
    fby_keymap_entry_t entry;
    uint64_t calls[FBY_VERB_COUNT], nth[FBY_VERB_COUNT]; /* ever; since the script was set */
    uint64_t lease_end_ns;                               /* 0: none granted */
    bool lease_silent;
} fby_rig_key_t;

typedef struct fby_rig {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a counter moved: for tests that await one */
    fby_script_t script;
    bool counts_keys; /* else only a script with rules makes per-key records */
    fby_keymap_t keys;
    uint64_t batches[FBY_VERB_COUNT], script_batches[FBY_VERB_COUNT], calls[FBY_VERB_COUNT];
    uint32_t outstanding, hung; /* keys */
    uint64_t releases;
    uint64_t pipe_free_ns[2]; /* when the modelled link is free: 0 towards us, 1 towards the store */
    fby_store_t *handles;
} fby_rig_t;

/* The opened store of mem and fault. */
struct fby_store {
    fby_rig_t *rig;
    fby_store_t *next; /* of rig->handles */
    const fby_store_driver_t *inner;
    fby_store_t *inner_store;
    void *owner; /* mem: its instance */
    fby_store_spec_t spec;
    bool direct;      /* nothing scripted: forward as is */
    bool instant;     /* inner calls never wait */
    bool inner_async; /* the inner driver has submit and reap, and says that it may be used */
    bool closing, woken;
    uint32_t callers;        /* threads in blocking calls, and in reap */
    pthread_cond_t cond;     /* due time, release, cancel, wake, close */
    fby_rig_batch_t *active; /* submitted, not done; newest first */
    fby_rig_batch_t *done, **done_tail;
    fby_rig_batch_t *held; /* done, but to be reported after a later one */
};

int fby_rig_init(fby_rig_t *rig);
void fby_rig_destroy(fby_rig_t *rig);
/* Replaces the script and starts nth and call again from 1. Takes the script over on success. */
void fby_rig_set_script(fby_rig_t *rig, fby_script_t *script);

/* The script that the options script, bandwidth, latency_ms and seed describe; *given: whether any is there. */
int fby_rig_read_script(const fby_options_t *options, fby_script_t *script, bool *given);

/* Attaches a handle. -ENOMEM. */
int fby_rig_attach(fby_rig_t *rig, fby_store_t *store);
/* Ends every call and batch (blocking callers get FBY_E_CONNECTION), waits until no thread is inside, detaches and
   closes the inner store. */
void fby_rig_detach(fby_store_t *store);

/* The driver functions of a handle. */
int fby_rig_exists(fby_store_t *store, fby_store_op_t *ops, uint32_t n);
int fby_rig_get(fby_store_t *store, fby_store_op_t *ops, uint32_t n);
int fby_rig_put(fby_store_t *store, fby_store_op_t *ops, uint32_t n);
int fby_rig_remove(fby_store_t *store, fby_store_op_t *ops, uint32_t n);
int fby_rig_submit(fby_store_t *store, int write, fby_store_op_t *ops, uint32_t n, uint64_t tag);
int fby_rig_reap(fby_store_t *store, uint64_t *tags, uint32_t max, int64_t wait_ns);
int fby_rig_cancel(fby_store_t *store, uint64_t tag);
void fby_rig_wake(fby_store_t *store);

/* What tests ask; key NULL: all keys. */
uint64_t fby_rig_calls(fby_store_t *store, fby_verb_t verb, const char *key);
uint64_t fby_rig_batches(fby_store_t *store, fby_verb_t verb);
uint32_t fby_rig_outstanding(fby_store_t *store);
uint32_t fby_rig_hung(fby_store_t *store);
/* Lets everything that hangs now go on. */
void fby_rig_release(fby_store_t *store);
/* Waits until at least `calls` keys were asked for, or `hung` keys hang. false: the time passed first. */
bool fby_rig_await_calls(fby_store_t *store, fby_verb_t verb, const char *key, uint64_t calls, uint64_t timeout_ns);
bool fby_rig_await_hung(fby_store_t *store, uint32_t hung, uint64_t timeout_ns);

/* ---- Inside the rig ---- */

/* Decides every key of a call. 0, -ENOMEM, or the code with which the script refuses the whole call. Locked. */
int fby_rig_begin(fby_store_t *store, fby_rig_batch_t *batch, fby_verb_t verb, fby_store_op_t *ops, uint32_t n);
/* Writes results that need no inner driver and gathers the rest in batch->forward. hung: which half. Not locked. */
void fby_rig_prepare(fby_store_t *store, fby_rig_batch_t *batch, bool hung);
/* Carries the inner results back, with their effects. status < 0 stands for every forwarded key. Not locked. */
void fby_rig_finish(fby_store_t *store, fby_rig_batch_t *batch, int status);
/* Frees the copies of keys that never came back. */
void fby_rig_discard(fby_rig_batch_t *batch);
/* prepare, the inner driver's blocking call, finish. Not locked. */
void fby_rig_perform(fby_store_t *store, fby_rig_batch_t *batch, bool hung);
/* Gives `code` to the keys that hang (or all that were not performed), or whose reply is lost. */
void fby_rig_fail(fby_rig_batch_t *batch, int code);
/* Accounts for the end and frees what the batch holds, not the batch itself. Locked. */
void fby_rig_end(fby_store_t *store, fby_rig_batch_t *batch);
/* Hung keys stop counting as hung: they were released, cancelled or closed. Locked. */
void fby_rig_unhang(fby_store_t *store, fby_rig_batch_t *batch);
/* Moves `batch` into the phase that follows what was performed. Locked. */
void fby_rig_settle(fby_rig_batch_t *batch);
/* Wakes whoever waits in this handle, in its own wait or in the inner driver's reap. Locked. */
void fby_rig_notify(fby_store_t *store);
uint64_t fby_rig_now(void);
/* Waits on the condition until the deadline (FBY_NEVER: no limit). Locked. */
void fby_rig_wait(fby_rig_t *rig, pthread_cond_t *cond, uint64_t deadline_ns);

#endif
