/* replay_stop.h - the one figure that demo and replay compute by themselves from an answer. */
#ifndef FBY_CLI_REPLAY_STOP_H
#define FBY_CLI_REPLAY_STOP_H

#include "base/base.h"
#include "forebay/forebay.h"

/*
 * From the stop to the answer. asked_ns: when the caller's wish or deadline came (0: there was none, or it is not known).
 * A stop that came before the answer counts from there, also when the plan was complete by then and still draining: the
 * stop mode acts at that moment. Any other answer counts from its seal.
 */
static inline uint64_t fby_stop_to_answer_ns(const fby_snapshot_t *answer, uint64_t asked_ns)
{
    bool was_asked = asked_ns != 0 && asked_ns < answer->answered_ns;
    return fby_sub_sat(answer->answered_ns, was_asked ? asked_ns : answer->sealed_ns);
}

#endif
