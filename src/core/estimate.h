/*
 * estimate.h - service time of the store, measured: t(n) = per_graph + per_block * n.
 *
 * Least squares over the graphs seen, older ones fading by FBY_ESTIMATE_DECAY per graph. With graphs of one size only the
 * two parts cannot be told apart; then everything counts as per block.
 */
#ifndef FBY_CORE_ESTIMATE_H
#define FBY_CORE_ESTIMATE_H

#include "base/base.h"

#define FBY_ESTIMATE_DECAY 0.9
#define FBY_ESTIMATE_FRESH_NS UINT64_C(10000000000)

typedef struct fby_estimate {
    double weight, blocks, time, blocks2, blocks_time; /* faded sums */
    uint64_t graphs;
    uint64_t last_ns; /* time of the last measurement */
} fby_estimate_t;

void fby_estimate_add(fby_estimate_t *estimate, uint32_t blocks, uint64_t ns, uint64_t now);
/* Measured lately: a rule that stops reading may lean on it, and once it has stopped everything, reading starts again. */
bool fby_estimate_fresh(const fby_estimate_t *estimate, uint64_t now);
/* Nanoseconds for a graph of that many blocks; 0 while nothing was measured. */
uint64_t fby_estimate_ns(const fby_estimate_t *estimate, uint32_t blocks);

#endif
