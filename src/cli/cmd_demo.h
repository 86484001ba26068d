/* cmd_demo.h - the runs behind `forebay demo`: one prefix, stored once, fetched back under each policy and stop mode. */
#ifndef FBY_CLI_CMD_DEMO_H
#define FBY_CLI_CMD_DEMO_H

#include "cli/replay_scratch.h"
#include "cli/store_text.h"

#define FBY_DEMO_BLOCK_TOKENS 16u

typedef struct fby_demo_options {
    const char *store; /* text; NULL: a file store in a scratch directory, with a bandwidth limit and latency */
    uint64_t tokens, queue_ns;
} fby_demo_options_t;

typedef struct fby_demo {
    fby_demo_options_t options;
    char scratch[FBY_SCRATCH_BYTES]; /* "": none */
    fby_store_text_t store;
    uint64_t budget_ns; /* of the timeout policy */
    double recompute_tokens_per_s;
    uint64_t blocks;
    uint32_t payload_bytes;
    uint32_t *tokens;
    fby_hash_t *hashes; /* per whole block */
    const void **addresses;
    void *copy;
    /* of the run under way; a cache of its own, so that no run profits from what another one measured */
    fby_cache_t *cache;
    fby_seq_t *seq;
    fby_subscription_t *events;
} fby_demo_t;

typedef struct fby_demo_run {
    fby_policy_t policy;
    fby_stop_mode_t stop_mode;
    fby_snapshot_t answer;
    uint64_t submitted; /* graphs when everything had ended */
    uint64_t recalled;
    uint64_t stop_ns;     /* from stop to answer */
    uint64_t right_bytes; /* compared and equal */
    uint64_t wrong_blocks;
    uint64_t cached_tokens; /* in CPU memory when everything had ended */
} fby_demo_run_t;

/* Prepares prompt and store. A code with the detail set. */
int fby_demo_open(const fby_demo_options_t *options, fby_demo_t *demo);
/* One row: stores the prefix, loses it from CPU memory and fetches it back. A code with the detail set. */
int fby_demo_fetch(fby_demo_t *demo, fby_policy_t policy, fby_stop_mode_t stop_mode, fby_demo_run_t *run);
/* Harmless on a demo whose open failed. */
void fby_demo_close(fby_demo_t *demo);

#endif
