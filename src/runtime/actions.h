/*
 * actions.h - what a critical section leaves to be done after it: wakes, signals, references to free, log lines.
 *
 * Collected on the stack of whoever holds the lock, performed by the same thread right after it let go. Nothing here
 * allocates. What does not fit in a fixed array degrades to something broader (wake everybody) or is counted
 * (suppressed log lines); nothing is lost.
 */
#ifndef FBY_RUNTIME_ACTIONS_H
#define FBY_RUNTIME_ACTIONS_H

#include "base/base.h"
#include "forebay/forebay.h"
#include "runtime/lanes.h"
#include "runtime/records.h"
#include "runtime/seq.h"
#include "runtime/subscribe.h"

enum { FBY_MOST_WAKES = 16, FBY_MOST_LINES = 4, FBY_LABEL_BYTES = 48 };

/* What the log says of a session beside its result. */
typedef struct fby_session_about {
    fby_policy_t policy;
    fby_stop_mode_t stop_mode;
    char label[FBY_LABEL_BYTES];
} fby_session_about_t;

/* One session that ended, for the log. */
typedef struct fby_session_line {
    fby_snapshot_t result;
    fby_session_about_t about;
    uint64_t suppressed; /* lines like this one that the rate limit swallowed */
} fby_session_line_t;

typedef struct fby_actions {
    /* threads to wake */
    uint32_t wakes;
    uint32_t wake_slot[FBY_MOST_WAKES]; /* sessions */
    bool wake_all, wake_puts, wake_reset, wake_close, wake_timer, wake_inline, wake_puts_handed;
    unsigned wake_lanes; /* FBY_WANT_* */
    /* threads to make */
    unsigned make_lanes; /* FBY_WANT_* */
    bool make_timer, make_inline;
    /* things to finish */
    bool fence; /* calls of agents whose limits fired */
    fby_event_fd_t *fds;
    fby_seq_data_t *dead;
    uint32_t signals;
    fby_subscription_t *signal[FBY_MOST_SUBSCRIPTIONS];
    /* things to say */
    uint32_t lines;
    bool say_poisoned, say_breaker, say_fault;
    fby_fault_report_t fault;
    uint64_t breaker_wait_ns;
    bool catching_up; /* this thread ticks itself: do not wake another for left-over work */
    fby_session_line_t line[FBY_MOST_LINES];
} fby_actions_t;

#endif
