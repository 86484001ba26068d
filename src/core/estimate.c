#include "core/estimate.h"

bool fby_estimate_fresh(const fby_estimate_t *e, uint64_t now)
{
    return e->graphs > 0 && now - e->last_ns < FBY_ESTIMATE_FRESH_NS;
}

void fby_estimate_add(fby_estimate_t *e, uint32_t blocks, uint64_t ns, uint64_t now)
{
    double n = blocks, t = (double)ns;
    e->weight = e->weight * FBY_ESTIMATE_DECAY + 1;
    e->blocks = e->blocks * FBY_ESTIMATE_DECAY + n;
    e->time = e->time * FBY_ESTIMATE_DECAY + t;
    e->blocks2 = e->blocks2 * FBY_ESTIMATE_DECAY + n * n;
    e->blocks_time = e->blocks_time * FBY_ESTIMATE_DECAY + n * t;
    e->graphs++;
    e->last_ns = now;
}

uint64_t fby_estimate_ns(const fby_estimate_t *e, uint32_t blocks)
{
    if (e->graphs == 0 || e->blocks <= 0)
        return 0;
    double spread = e->weight * e->blocks2 - e->blocks * e->blocks;
    double per_block = e->time / e->blocks, per_graph = 0;
    /* relative threshold: sizes that are all equal leave only rounding noise */
    if (spread > 1e-6 * e->blocks * e->blocks) {
        double slope = (e->weight * e->blocks_time - e->blocks * e->time) / spread;
        double fixed = (e->time - slope * e->blocks) / e->weight;
        if (slope >= 0 && fixed >= 0) {
            per_block = slope;
            per_graph = fixed;
        }
    }
    return (uint64_t)(per_graph + per_block * blocks);
}
