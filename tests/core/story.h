/*
 * story.h - how the core's tests tell a story on the simulator's rig.
 *
 * Manual stories: nothing ends unless the test says so. Scheduled ones (sim/lanes.h) run on the virtual clock against
 * the scripted store. Both keep every check of the rig, so a story asserts only what it is about.
 */
#ifndef FBY_TESTS_CORE_STORY_H
#define FBY_TESTS_CORE_STORY_H

#include <errno.h>

#include "sim/lanes.h"
#include "sim/rig.h"
#include "unit.h"

#define BLOCK 4096u
#define TIMEOUT FBY_POLICY_TIMEOUT
#define WAIT_COMPLETE FBY_POLICY_WAIT_COMPLETE
#define BEST_EFFORT FBY_POLICY_BEST_EFFORT
#define BREAK_EVEN FBY_POLICY_BREAK_EVEN
#define DRAIN FBY_STOP_DRAIN
#define RECALL FBY_STOP_RECALL
#define DETACH FBY_STOP_DETACH

/* Block 16 tokens, chunk 2, window 2: the geometry of the worked traces. */
void story_traces(rig_config_t *config);
/* Adds a trailing(n) group with room for `slots` payloads. */
void story_trailing(rig_config_t *config, uint32_t n, uint32_t slots);

/* Ticks until nothing is due. */
void story_settle(rig_t *rig);
/* The clock stands at `ms` after the rig's start; timers up to there have fired. */
void story_at(rig_t *rig, uint64_t ms);
/* Answers every query that waits: the store holds the first `blocks` blocks of any sequence, in every group. */
void story_answer(rig_t *rig, uint32_t blocks);
/* The same, with trailing payloads only at the ends of `checkpoints` (bit b: block b). */
void story_answer_checkpoints(rig_t *rig, uint32_t blocks, uint64_t checkpoints);
/* Begins what is queued, as one part per graph. Returns how many parts began. */
uint32_t story_begin(rig_t *rig);
/* The outstanding read of block `block` (group 0); FBY_NONE: none. */
uint32_t story_part(rig_t *rig, const rig_seq_t *seq, uint32_t block);
/* Ends the outstanding read that holds `block` well, and settles. */
void story_ok(rig_t *rig, const rig_seq_t *seq, uint32_t block);
/* Ends it with one code for the block `bad` (every group), the rest well. */
void story_bad(rig_t *rig, const rig_seq_t *seq, uint32_t block, uint32_t bad, int32_t code);
/* Makes blocks [0, n) resident by a PUT that leaves nothing behind. */
void story_resident(rig_t *rig, const rig_seq_t *seq, uint32_t n);
/* Ends every session that has not ended, and every hold; then Q. */
void story_quiesce(rig_t *rig);

/* A script line for each of blocks [from, to), group 0. */
void story_script(rig_t *rig, const rig_seq_t *seq, store_op_t op, uint32_t from, uint32_t to, uint32_t nth,
                  store_fault_kind_t kind, int64_t arg);
/* Gets (or other calls) of blocks [from, to), group 0. */
uint32_t story_calls(rig_t *rig, const rig_seq_t *seq, store_op_t op, uint32_t from, uint32_t to);
/* A P32 prompt: 513 tokens, 32 usable blocks, all in the store. */
rig_seq_t *story_p32(rig_t *rig, uint32_t name_space);

fby_stats_t story_stats(rig_t *rig);
uint32_t story_free(const rig_t *rig);
uint64_t story_lookup(rig_t *rig, const rig_seq_t *seq); /* tokens */
/* Events of one type that name this handle. */
uint32_t story_events(const rig_t *rig, fby_core_event_type_t type, uint64_t handle);

#define assert_snapshot(rig, session, field, value) assert_int_equal(rig_snapshot((rig), (session)).field, (value))
#define assert_reason(rig, session, value)                                                                             \
    assert_string_equal(fby_reason_name(rig_snapshot((rig), (session)).reason), fby_reason_name(FBY_REASON_##value))
#define assert_outcome(rig, session, value)                                                                            \
    assert_string_equal(fby_outcome_name(rig_snapshot((rig), (session)).outcome), fby_outcome_name(FBY_OUTCOME_##value))
#define assert_state(rig, session, value)                                                                              \
    assert_string_equal(fby_state_name(rig_snapshot((rig), (session)).state), fby_state_name(FBY_##value))

#endif
