/*
 * metrics.h - what a cache counts for its metrics beside the core's own figures.
 *
 * Arrays of fixed size, guarded by the runtime's lock, changed where a session is answered, where it ends, and where a
 * driver call is reported. Nothing here is named by a caller: every index is a value of ours.
 */
#ifndef FBY_RUNTIME_METRICS_H
#define FBY_RUNTIME_METRICS_H

#include "base/histogram.h"
#include "core/core.h"
#include "forebay/forebay.h"
#include "runtime/lanes.h"

/* X(name, text): how a driver call ended. The first that fits. */
#define FBY_CALL_RESULT_MAP(X)                                                                                         \
    X(REFUSED, "refused")     /* never made: the breaker is open, or there is no thread */                             \
    X(LATE, "late")           /* its limit had passed */                                                               \
    X(CUT, "cut")             /* cancelled, or its agent ended for another call's sake */                              \
    X(UNREACHED, "unreached") /* for at least one key the store could not be reached */                                \
    X(ANSWERED, "answered")   /* the store answered, whatever it said */
typedef enum fby_call_result {
#define FBY_X(name, text) FBY_CALL_##name,
    FBY_CALL_RESULT_MAP(FBY_X)
#undef FBY_X
        FBY_CALL_RESULT_COUNT
} fby_call_result_t;

typedef struct fby_metrics {
    uint64_t sessions[FBY_POLICY_COUNT][FBY_REASON_COUNT][FBY_OUTCOME_COUNT]; /* answered */
    uint64_t lost_checkpoint;                                                 /* tokens found and not planned */
    uint64_t lost[FBY_REASON_COUNT];                                          /* tokens planned and not delivered */
    fby_histogram_t session;                                                  /* start to answer */
    fby_histogram_t drain;                                                    /* seal to terminal */
    fby_histogram_t graph;                                                    /* begun to ended; kept by the core */
    fby_histogram_t call[FBY_LANE_KINDS];                                     /* that were not refused */
    uint64_t calls[FBY_LANE_KINDS][FBY_CALL_RESULT_COUNT];
    uint64_t events, events_dropped; /* queued for subscribers; of those, pushed out by later ones */
} fby_metrics_t;

struct fby_job;

/* A session's answer. Once per session. */
void fby_metrics_answered(fby_metrics_t *metrics, fby_policy_t policy, const fby_snapshot_t *result);
/* A session's end. Once per session. */
void fby_metrics_terminal(fby_metrics_t *metrics, const fby_snapshot_t *result);
/* A driver call's end, before its job is completed. */
void fby_metrics_call(fby_metrics_t *metrics, const struct fby_job *job, uint64_t now);

#endif
