/* drive.h - manual stories that need the reads to go on by themselves: everything begun ends well, in order. */
#ifndef FBY_TESTS_CORE_DRIVE_H
#define FBY_TESTS_CORE_DRIVE_H

#include "story.h"

/* Begins and ends reads until nothing is queued. Returns how many driver calls that were. */
static inline uint32_t drive_reads(rig_t *rig)
{
    uint32_t calls = 0;
    story_settle(rig);
    while (story_begin(rig) || rig->live_count[0]) {
        assert_true(++calls < 10000);
        rig_end(rig, rig->live[0][0], NULL);
        story_settle(rig);
    }
    return calls;
}

/* The same for store writes, those that are due. */
static inline uint32_t drive_writes(rig_t *rig)
{
    uint32_t calls = 0;
    story_settle(rig);
    while (rig_begin(rig, true, FBY_STEP_BLOCKS) != FBY_NONE) {
        assert_true(++calls < 10000);
        rig_end(rig, rig->live[1][0], NULL);
        story_settle(rig);
    }
    return calls;
}

/* Ends every outstanding read with one code. */
static inline void drive_fail(rig_t *rig, int32_t code)
{
    int32_t results[FBY_STEP_BLOCKS];
    for (uint32_t i = 0; i < FBY_STEP_BLOCKS; i++)
        results[i] = code;
    for (uint32_t n = rig->live_count[0]; n--;)
        rig_end(rig, rig->live[0][0], results);
    story_settle(rig);
}

/* The answer of a session, also when it ended long ago. */
static inline fby_snapshot_t drive_answer(rig_t *rig, fby_session_t session)
{
    rig_session_t *s = rig_session_find(rig, session);
    assert_non_null(s);
    assert_true(s->answered);
    return s->answer;
}

#define assert_answer(rig, session, blocks, outcome_, reason_)                                                         \
    do {                                                                                                               \
        fby_snapshot_t answer_ = drive_answer((rig), (session));                                                       \
        assert_int_equal(answer_.delivered_blocks, (blocks));                                                          \
        assert_string_equal(fby_outcome_name(answer_.outcome), fby_outcome_name(FBY_OUTCOME_##outcome_));              \
        assert_string_equal(fby_reason_name(answer_.reason), fby_reason_name(FBY_REASON_##reason_));                   \
    } while (0)

#endif
