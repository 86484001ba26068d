/* rig.h - a pool and the real Mooncake of with-store behind agents, for tests. */
#ifndef FBY_TESTS_MOONCAKE_RIG_H
#define FBY_TESTS_MOONCAKE_RIG_H

#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>

#include "../stores/fixture.h"
#include "agent/host.h"

enum { MOONCAKE_RIG_MOST = 1024, MOONCAKE_RIG_PAINT = 0xEE };

typedef struct mooncake_rig {
    fby_store_spec_t spec;
    fby_region_t region;
    fby_store_t *store;
    fby_store_op_t ops[MOONCAKE_RIG_MOST];
} mooncake_rig_t;

/* Opens with the options of FOREBAY_STORE and these more (NULL-terminated; a later one wins). What the opening returned,
   and its message. `slots` slots for group 0; two lanes of each kind; batches of 1,024. */
int mooncake_rig_try(mooncake_rig_t *rig, uint32_t payload, uint32_t slots, char error[512], ...)
    __attribute__((sentinel));
/* Fails the test when it does not open. */
void mooncake_rig_open(mooncake_rig_t *rig, uint32_t payload, uint32_t slots);
void mooncake_rig_close(mooncake_rig_t *rig);

void *mooncake_rig_slot(const mooncake_rig_t *rig, uint32_t i);
void mooncake_rig_paint(mooncake_rig_t *rig);
/* Whether slots [from, to) of group 0 hold nothing but paint. */
bool mooncake_rig_is_painted(const mooncake_rig_t *rig, uint32_t from, uint32_t to);

typedef int mooncake_rig_call_t(fby_store_t *store, fby_store_op_t *ops, uint32_t n);
/* rig->ops become objects [first, first + n) in slots [slot, ...). */
void mooncake_rig_ops(mooncake_rig_t *rig, uint64_t first, uint32_t n, uint32_t slot);
/* The driver's call on rig->ops; every op's result is the call's when that failed as a whole. */
void mooncake_rig_call(mooncake_rig_t *rig, mooncake_rig_call_t *call, uint32_t n);
/* The same for one object; its result. */
int64_t mooncake_rig_one(mooncake_rig_t *rig, mooncake_rig_call_t *call, uint64_t i, uint32_t slot);
/* Objects [first, first + n) are made in slots from 0 on and stored. */
void mooncake_rig_store(mooncake_rig_t *rig, uint64_t first, uint32_t n);

/* A get of rig->ops[0, n) on a thread of its own, on behalf of the reader's address. */
typedef struct mooncake_reader {
    mooncake_rig_t *rig;
    uint32_t n;
    int rc;
    _Atomic bool done;
    pthread_t thread;
} mooncake_reader_t;
void mooncake_reader_begin(mooncake_reader_t *reader, mooncake_rig_t *rig, uint32_t n);
/* The first op's result, or what the call returned when it failed as a whole. */
int64_t mooncake_reader_end(mooncake_reader_t *reader);

/* Process ids of this process' children: the agents. */
uint32_t mooncake_rig_agents(pid_t *pids, uint32_t most);
/* A process id that with-store exported, e.g. "NODE_PID". */
pid_t mooncake_rig_pid(const char *name);
/* Looks every few milliseconds, for at most 30 s; then the test fails. */
#define MOONCAKE_RIG_AWAIT(condition)                                                                                  \
    do {                                                                                                               \
        int looks_ = 0;                                                                                                \
        while (!(condition)) {                                                                                         \
            assert_true(++looks_ < 6000);                                                                              \
            mooncake_rig_pause();                                                                                      \
        }                                                                                                              \
    } while (0)
void mooncake_rig_pause(void);

#endif
