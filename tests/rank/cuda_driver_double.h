/*
 * cuda_driver_double.h - a stand-in for the CUDA driver library, for tests. It is no GPU and no simulation of one: device
 * memory is host memory, and copies happen a row at a time while somebody asks about a stream or an event, in a random
 * order between streams. It refuses what a driver would: calls without a context, memory it was not told of, copies that
 * leave a registered region. Any call can be made to fail.
 */
#ifndef FBY_TESTS_CUDA_DRIVER_DOUBLE_H
#define FBY_TESTS_CUDA_DRIVER_DOUBLE_H

#include <stddef.h>
#include <stdint.h>

#define DOUBLE_CONTROL "double_control"

typedef struct double_control {
    uint64_t seed;
    uint32_t most_steps; /* a query makes 0 to that many steps */
    /* The fail_call-th call of `fail_symbol` (1 is the next) gives fail_result. */
    char fail_symbol[48];
    uint32_t fail_call;
    int fail_result;
    uint32_t failures; /* that were given */
    int broken;        /* not 0: every query gives this, and copies go on all the same */
    /* Device memory, and which device's. */
    const uint8_t *memory;
    size_t memory_bytes;
    int ordinal;
    /* Counted. */
    uint32_t contexts, depth, streams, events, regions, copies_queued, rows_copied, waits;
} double_control_t;

typedef double_control_t *double_control_fn(void);
/* Makes one step by itself; 0: nothing is queued. An event for cuStreamWaitEvent, done when double_fire was called. */
#define DOUBLE_STEP "double_step"
typedef int double_step_fn(void);
#define DOUBLE_GATE "double_gate"
typedef void *double_gate_fn(void);
#define DOUBLE_FIRE "double_fire"
typedef void double_fire_fn(void *gate);

#endif
