/*
 * lanes.h - scheduled mode of the rig: lanes pull work, calls take as long as the store's model and script say, and the
 * core is ticked at its deadlines. One event at a time, in the order of time, then of beginning.
 */
#ifndef FBY_SIM_LANES_H
#define FBY_SIM_LANES_H

#include "sim/rig.h"

typedef struct lanes lanes_t;

void lanes_open(rig_t *rig);
void lanes_close(rig_t *rig);
/* The core wants the part's operation ended: noted, and ended fence_ns later in scheduled mode. */
void lanes_fence(rig_t *rig, uint32_t part);

/* Runs all that happens up to and at `until`; the clock stands there afterwards. */
void rig_run_until(rig_t *rig, uint64_t until);
/* Runs until nothing is outstanding, queued or timed before `limit`; false when the limit came first. */
bool rig_run_idle(rig_t *rig, uint64_t limit);
/* Runs until the session is answered; false at `limit`. */
bool rig_run_answered(rig_t *rig, fby_session_t session, uint64_t limit);
/* Begins what free lanes can begin, without moving the clock. */
void rig_pump(rig_t *rig);
/* Ends the calls that hang, now. */
void rig_unhang(rig_t *rig);
/* Next moment at which something happens, FBY_NEVER: nothing will. */
uint64_t rig_next_event(rig_t *rig);

#endif
