/* trace_hits.c - how much of a trace an infinite cache would answer. */
#include "cli/trace.h"

/* Ids are numbered by first appearance, so a block was seen before iff its id is below the count of ids so far. */
void fby_trace_infinite_hits(const fby_trace_t *trace, fby_trace_hits_t *out)
{
    *out = (fby_trace_hits_t){0};
    uint32_t seen = 0;
    for (uint32_t i = 0; i < trace->requests; i++) {
        const fby_trace_request_t *request = &trace->request[i];
        const uint32_t *ids = fby_trace_ids(trace, i);
        uint32_t hit = 0, before = seen;
        while (hit < request->blocks && ids[hit] < before) {
            hit++;
        }
        for (uint32_t b = hit; b < request->blocks; b++) {
            seen = FBY_MAX(seen, ids[b] + 1);
        }
        fby_trace_count_hit(request, hit, out);
    }
}

void fby_trace_count_hit(const fby_trace_request_t *request, uint32_t hit_blocks, fby_trace_hits_t *hits)
{
    hits->blocks += hit_blocks;
    hits->tokens += FBY_MIN((uint64_t)hit_blocks * FBY_TRACE_BLOCK_TOKENS, (uint64_t)request->input_tokens);
    hits->total_blocks += request->blocks;
    hits->total_tokens += request->input_tokens;
}
