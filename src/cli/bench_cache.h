/* bench_cache.h - caches of the comparison, and one request through one of them. Public API only. */
#ifndef FBY_CLI_BENCH_CACHE_H
#define FBY_CLI_BENCH_CACHE_H

#include "cli/args.h"
#include "cli/bench_set.h"
#include "cli/store_text.h"

typedef struct fby_bench_recipe {
    bool has_chunks; /* false: whole-plan wait_complete sessions only */
    bool writes;     /* true: for storing the prompts */
    fby_policy_t policy;
    uint32_t chunk, window; /* of has_chunks */
    uint32_t read_lanes;    /* 0: as the driver prefers */
    const fby_texts_t *set; /* KEY=VALUE, after everything else */
} fby_bench_recipe_t;

typedef struct fby_bench_cache {
    fby_cache_t *cache; /* NULL: not open */
    fby_seq_t *seq[FBY_BENCH_PROMPTS_MOST];
    fby_bench_recipe_t recipe;
    uint32_t graphs; /* of a request that is read whole */
} fby_bench_cache_t;

typedef struct fby_bench_read {
    uint64_t ns; /* from the start of the session to the addresses of the whole prefix */
    uint64_t wrong_blocks;
} fby_bench_read_t;

/* A code with the detail set. Close in every case. */
int fby_bench_cache_open(const fby_bench_set_t *set, const fby_store_text_t *store, const fby_bench_recipe_t *recipe,
                         fby_bench_cache_t *out);
void fby_bench_cache_close(fby_bench_cache_t *cache);
/* Forgets what is resident; waits for what is in flight. */
int fby_bench_cache_forget(fby_bench_cache_t *cache);
/* Reads a prompt, all of it from the store, and checks it. addresses: room for its blocks, the caller's. */
int fby_bench_cache_read(const fby_bench_cache_t *cache, const fby_bench_set_t *set, uint32_t prompt, bool checks_all,
                         const void **addresses, fby_bench_read_t *out);
/* Takes the answered session, checks what was delivered, gives it back. `taken_ns` (may be NULL): when the addresses
   were there. */
int fby_bench_cache_take(const fby_bench_cache_t *cache, const fby_bench_set_t *set, uint32_t prompt,
                         fby_session_t session, uint64_t blocks, bool checks_all, const void **addresses,
                         uint64_t *taken_ns, uint64_t *wrong_blocks);
/* Ended graphs since the cache was opened. */
int fby_bench_cache_graphs(const fby_bench_cache_t *cache, uint64_t *graphs);

#endif
