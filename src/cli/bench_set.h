/*
 * bench_set.h - the prompts that every arm reads: made up, stored once, and known well enough to check what comes back.
 *
 * Of every block the checksum of all bytes is kept and a few lines of it, so that a full check reads each byte once and
 * a sampled one is cheap enough to stand beside a measurement.
 */
#ifndef FBY_CLI_BENCH_SET_H
#define FBY_CLI_BENCH_SET_H

#include "base/base.h"
#include "forebay/forebay.h"
#include "forebay/store.h"

/*
 * Prompts are read in turn, and a read has to find nothing of its prompt in the pool, which holds a little more than the 4
 * prompts that are at work at once. No read starts before all but the last FBY_BENCH_LEAD before it have ended. So of the
 * prompts - 1 reads since a prompt's own last one, all but FBY_BENCH_LEAD - 1 started after that had ended, and all but 3
 * of those have ended: 16 - 8 - 3 prompts have come in whole, which pushes it out. Small prompts are as many as one load
 * reads.
 */
enum {
    FBY_BENCH_PROMPTS_LEAST = 16,
    FBY_BENCH_PROMPTS_MOST = 32,
    FBY_BENCH_LEAD = 8,
    FBY_BENCH_POOL_EIGHTHS = 33,
    FBY_BENCH_SAMPLES = 4
};

typedef struct fby_bench_mark {
    uint64_t checksum;
    uint32_t at[FBY_BENCH_SAMPLES]; /* byte offsets of the words below */
    uint64_t word[FBY_BENCH_SAMPLES];
} fby_bench_mark_t;

typedef struct fby_bench_set {
    uint32_t prompts, blocks, block_tokens; /* blocks of each prompt */
    uint32_t object_bytes, payload_bytes, slot_bytes;
    char (*keys)[FBY_KEY_BYTES]; /* prompts x blocks */
    fby_bench_mark_t *marks;     /* prompts x blocks */
} fby_bench_set_t;

/* -ENOMEM. Free in every case. */
int fby_bench_set_init(fby_bench_set_t *set, uint32_t blocks, uint32_t block_tokens, uint32_t block_bytes);
void fby_bench_set_free(fby_bench_set_t *set);
/* The first `blocks` of a prompt and one token more: the last-token rule then gives all of them. The caller's to unref. */
int fby_bench_set_sequence(const fby_bench_set_t *set, fby_cache_t *cache, uint32_t prompt, uint32_t blocks,
                           fby_seq_t **out);
/* Puts a prompt and remembers what it is made of. FBY_E_FULL: the store did not take all of it. */
int fby_bench_set_store(fby_bench_set_t *set, fby_cache_t *cache, uint32_t prompt);
/* How many of the first n blocks of a prompt are not what was stored: every byte of them, or a sample. */
uint64_t fby_bench_set_check(const fby_bench_set_t *set, uint32_t prompt, const void *const *blocks, uint64_t n,
                             bool checks_all);
/* Overwrites what a sampled check looks at, so that it cannot pass on what an earlier read left. */
void fby_bench_set_scrub(const fby_bench_set_t *set, uint32_t prompt, void *const *blocks);

static inline uint64_t fby_bench_prompt_bytes(const fby_bench_set_t *set)
{
    return (uint64_t)set->blocks * set->slot_bytes;
}

#endif
