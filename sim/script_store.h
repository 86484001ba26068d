/*
 * script_store.h - a remote store that does exactly what a script says, under a virtual clock.
 *
 * It holds one content word per (hash, group) and answers exists, get and put. A script line names an operation, a key,
 * the n-th call on that key and what goes wrong then. A latency and bandwidth model says how long a call takes. It
 * starts nothing by itself: lanes.h drives it and decides when a call ends.
 */
#ifndef FBY_SIM_SCRIPT_STORE_H
#define FBY_SIM_SCRIPT_STORE_H

#include "base/base.h"
#include "forebay/forebay.h"

typedef enum store_op { STORE_EXISTS, STORE_GET, STORE_PUT, STORE_OPS } store_op_t;

typedef enum store_fault_kind {
    FAULT_OK,
    FAULT_MISS,      /* get: MISSING; exists: absent */
    FAULT_ERROR,     /* code in `arg` */
    FAULT_SHORT,     /* fewer bytes than the object has: SIZE */
    FAULT_ZERO,      /* success with no byte: SIZE */
    FAULT_DELAY,     /* ends `arg` ns later, otherwise well */
    FAULT_HANG,      /* does not end until store_release */
    FAULT_LOST,      /* its end is never reported: only a fence ends it */
    FAULT_CORRUPT,   /* one bit differs: CHECKSUM */
    FAULT_LEASE,     /* exists: the probe's lease lasts `arg` ns; get: LEASE, `arg` ns later */
    FAULT_NOT_READY, /* written, not committed */
    FAULT_DROP       /* exists: present; the object is removed before it is read */
} store_fault_kind_t;

#define STORE_EVERY 0u /* nth: each call */

typedef struct store_fault {
    store_op_t op;
    fby_hash_t hash;
    uint32_t group;
    uint32_t nth; /* 1: the first call on the key; STORE_EVERY */
    store_fault_kind_t kind;
    int64_t arg;
} store_fault_t;

typedef struct store_object {
    fby_hash_t hash;
    uint64_t content;
    uint32_t group;
    bool used, present, not_ready;
    uint32_t calls[STORE_OPS];
} store_object_t;

typedef struct store_model {
    uint64_t latency_ns[STORE_OPS];
    uint64_t bytes_per_s;    /* over all calls together; 0: without limit */
    uint32_t jitter_percent; /* a call's latency varies by this much either way */
    uint64_t seed;
} store_model_t;

typedef struct script_store {
    store_object_t *object; /* open addressing, grows */
    uint32_t count, mask;
    store_fault_t *fault;
    uint32_t faults, fault_capacity;
    store_model_t model;
    uint64_t pipe_free_at; /* when the shared bandwidth is free again */
    uint64_t random;
    uint64_t calls[STORE_OPS]; /* keys asked for */
} script_store_t;

void store_init(script_store_t *store, const store_model_t *model);
void store_free(script_store_t *store);

/* The object, made absent when it is new; valid until the next call that may add one. */
store_object_t *store_at(script_store_t *store, const fby_hash_t *hash, uint32_t group);
/* Makes the object present with its right content. */
void store_hold(script_store_t *store, const fby_hash_t *hash, uint32_t group);
void store_script(script_store_t *store, const store_fault_t *fault);
void store_script_clear(script_store_t *store);
uint32_t store_calls(script_store_t *store, store_op_t op, const fby_hash_t *hash, uint32_t group);

/* One key of a call that starts now: counts it and says what the script holds for it. */
store_fault_t store_call(script_store_t *store, store_op_t op, const fby_hash_t *hash, uint32_t group);
/* What a get of the key returns and the word that lands in the slot (unchanged when no byte moved). */
int store_get(script_store_t *store, const fby_hash_t *hash, uint32_t group, const store_fault_t *fault,
              uint64_t *word);
int store_put(script_store_t *store, const fby_hash_t *hash, uint32_t group, const store_fault_t *fault, uint64_t word);
/* When a call of that many bytes which starts now ends, without its faults. */
uint64_t store_end_time(script_store_t *store, store_op_t op, uint64_t now, uint64_t bytes);

#endif
