/*
 * bench_copy.h - `forebay bench copy`: what a rank's copies cost beside plain copies of the same bytes.
 *
 * Blocks are loaded from a pool into tensors of a layout, by fby_rank_load with the host back end, and as many bytes are
 * copied with the same non-temporal stores and as many threads, one contiguous run of memory per thread. Both are timed
 * in every round and compared within it. docs/bench.md says how to read the output.
 */
#ifndef FBY_CLI_BENCH_COPY_H
#define FBY_CLI_BENCH_COPY_H

#include "cli/bench_stats.h"
#include "forebay/rank.h"
#include "pool/region.h"

enum { FBY_BENCH_COPY_LAYERS = 32, FBY_BENCH_COPY_ROWS = 16, FBY_BENCH_COPY_GOAL_THREADS = 2 };

/* X(layout, text, row bytes: of one token in one layer). 8 KV heads of 128 in bf16, K and V apart; the same packed; a
   latent of 576 in bf16. */
#define FBY_BENCH_COPY_MAP(X)                                                                                          \
    X(SPLIT, "layerfirst", 2048)                                                                                       \
    X(PACKED, "packed", 4096)                                                                                          \
    X(MLA, "mla", 1152)

enum {
#define FBY_X(layout, text, row_bytes) FBY_BENCH_COPY_##layout,
    FBY_BENCH_COPY_MAP(FBY_X)
#undef FBY_X
        FBY_BENCH_COPY_COUNT
};

/* What is timed in a round. */
enum { FBY_BENCH_COPY_PLAIN, FBY_BENCH_COPY_LOAD, FBY_BENCH_COPY_SUMMED, FBY_BENCH_COPY_ARM_COUNT };

typedef struct fby_bench_copy_options {
    bool all_layouts; /* else layer-first alone */
    bool as_json;
    uint64_t bytes; /* of payload per copy; rounded down to whole blocks */
    uint64_t rounds, threads, seed;
} fby_bench_copy_options_t;

/* Pool, tensors and rank of one layout. */
typedef struct fby_bench_copy_set {
    fby_layout_kind_t kind;
    uint32_t pieces; /* per block: of one layer and one tensor */
    uint32_t piece_bytes, payload_bytes;
    fby_region_t region;
    fby_pool_t pool;
    fby_rank_t *rank;
    uint8_t *memory; /* the tensors; what the plain copy writes, too */
    uint64_t blocks;
    size_t bytes; /* of all payloads: the length of `memory` */
    uint64_t *place, *device_block, *sums;
} fby_bench_copy_set_t;

typedef struct fby_bench_copy_result {
    bool is_measured;
    uint64_t blocks;
    uint32_t block_bytes;
    uint64_t checked_bytes, wrong_bytes;
    uint64_t wrong_sums;
    double *seconds[FBY_BENCH_COPY_ARM_COUNT]; /* one per round */
    double median_s[FBY_BENCH_COPY_ARM_COUNT];
    fby_bench_interval_t ratio[FBY_BENCH_COPY_ARM_COUNT]; /* speed over that of the plain copy, within rounds */
} fby_bench_copy_result_t;

typedef struct fby_bench_copy {
    const fby_bench_copy_options_t *options;
    fby_bench_copy_result_t result[FBY_BENCH_COPY_COUNT];
} fby_bench_copy_t;

extern const char *const fby_bench_copy_names[];

/* All of it. A code with the detail set: nothing could be measured. Wrong bytes are no such failure: they stand in the
   results. Close in every case. */
int fby_bench_copy_run(const fby_bench_copy_options_t *options, fby_bench_copy_t *bench);
void fby_bench_copy_close(fby_bench_copy_t *bench);
void fby_bench_copy_print(const fby_bench_copy_t *bench);
/* Whether all that was copied was right; says on stderr what was not. */
bool fby_bench_copy_is_right(const fby_bench_copy_t *bench, const char *command);

/* ---- One layout's memory ----------------------------------------------------------------------------------------- */

/* Slots filled with words that say where they belong; a rank that is attached. -errno with the detail set. Close in
   every case. */
int fby_bench_copy_set_open(const fby_bench_copy_options_t *options, uint32_t layout, fby_bench_copy_set_t *set);
void fby_bench_copy_set_close(fby_bench_copy_set_t *set);
/* One load of all blocks, in the calling thread until it ended. sums NULL: without checksums. */
int fby_bench_copy_set_load(fby_bench_copy_set_t *set, uint64_t *sums);
/* Every word of every tensor: how many bytes are not what their slot holds, all 8 of a word that differs. */
uint64_t fby_bench_copy_set_wrong(const fby_bench_copy_set_t *set);
/* A word of every block at a place that `random` draws: overwritten, or counted as fby_bench_copy_set_wrong does. */
void fby_bench_copy_set_spoil(const fby_bench_copy_set_t *set, uint64_t random);
uint64_t fby_bench_copy_set_sample(const fby_bench_copy_set_t *set, uint64_t random);
/* Segments whose checksum is not that of the slot's bytes. */
uint64_t fby_bench_copy_set_wrong_sums(const fby_bench_copy_set_t *set);

#endif
