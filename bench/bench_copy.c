/*
 * bench_copy - what the host back end costs: bench_copy [MiB] [rounds]
 *
 * Loads blocks from a pool into tensors of three layouts with two threads, and copies the same bytes with plain
 * non-temporal stores and two threads, in turns, so that both see the same machine. "summed" makes the checksums of
 * all segments in the same pass. Prints GB/s and ratios, from the median of the rounds; the plain copy is one contiguous
 * run of memory per thread. Default: 512 MiB, 15 rounds.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "forebay/rank.h"
#include "pool/region.h"
#include "rank/stream.h"
#include "stores/object.h"

enum { THREADS = 2, LAYERS = 32, ROWS = 16, MOST_ROUNDS = 1000 };

typedef struct shape {
    const char *name;
    fby_layout_kind_t kind;
    uint32_t row_bytes; /* one token, one layer */
} shape_t;

/* 8 KV heads of 128 in bf16; the same packed; a latent of 576 in bf16. */
static const shape_t shapes[] = {
    {"layerfirst", FBY_LAYOUT_SPLIT, 2048},
    {"packed", FBY_LAYOUT_PACKED, 4096},
    {"mla", FBY_LAYOUT_MLA, 1152},
};

typedef struct bench {
    fby_region_t region;
    fby_pool_t pool;
    fby_rank_t *rank;
    uint8_t *memory; /* the tensors, and what the plain copy writes */
    size_t bytes;    /* of payload in one round */
    uint64_t blocks;
    uint64_t *place, *device_block, *sums;
} bench_t;

static double now_s(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare);
    return values[n / 2];
}

/* ---- The plain copy --------------------------------------------------------------------------------------------- */

typedef struct plain {
    pthread_t thread;
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
    pthread_barrier_t *begin, *end;
    size_t rounds;
} plain_t;

/* A thread of its own over all rounds, as the rank's helper is: making threads is not measured. */
static void *plain_main(void *arg)
{
    const plain_t *plain = arg;
    fby_stream_fn *copy = fby_stream_best();
    for (size_t round = 0; round < plain->rounds; round++) {
        pthread_barrier_wait(plain->begin);
        copy(plain->to, plain->from, plain->bytes);
        fby_stream_end();
        pthread_barrier_wait(plain->end);
    }
    return NULL;
}

/* ---- One layout ------------------------------------------------------------------------------------------------- */

static int bench_open(bench_t *bench, const shape_t *shape, size_t bytes)
{
    uint32_t pieces = shape->kind == FBY_LAYOUT_SPLIT ? 2 * LAYERS : LAYERS;
    uint32_t payload = pieces * ROWS * shape->row_bytes;
    fby_region_config_t config = {.groups = 1, .alignment = 4096, .numa_node = -1, .prefault = true};
    config.slot_bytes[0] = (uint32_t)fby_align_up(payload + FBY_TRAILER_BYTES, 4096);
    config.slots[0] = (uint32_t)(bytes / payload);
    bench->blocks = config.slots[0];
    bench->bytes = (size_t)payload * bench->blocks;
    if (fby_region_open(&config, &bench->region) != 0) {
        return -ENOMEM;
    }
    memset(bench->region.base, 1, bench->region.bytes);
    bench->memory = mmap(NULL, bench->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    bench->place = malloc(bench->blocks * sizeof(*bench->place));
    bench->device_block = malloc(bench->blocks * sizeof(*bench->device_block));
    bench->sums = malloc(bench->blocks * LAYERS * sizeof(*bench->sums));
    if (bench->memory == MAP_FAILED || bench->place == NULL || bench->device_block == NULL || bench->sums == NULL) {
        return -ENOMEM;
    }
    bench->pool = (fby_pool_t){
        .size = sizeof(bench->pool), .descriptor = bench->region.fd, .bytes = bench->region.bytes, .groups = 1};
    bench->pool.group[0].payload_bytes = payload;
    bench->pool.group[0].slot_bytes = config.slot_bytes[0];
    bench->pool.group[0].slots = config.slots[0];
    /* Blocks of the device in another order than the slots: a table of an engine, not a plain copy. */
    for (uint64_t i = 0; i < bench->blocks; i++) {
        bench->place[i] = i * config.slot_bytes[0];
        bench->device_block[i] = bench->blocks - 1 - i;
    }
    return 0;
}

static int bench_attach(bench_t *bench, const shape_t *shape)
{
    fby_tensor_t tensor[2 * LAYERS];
    fby_layout_t layout = {.size = sizeof(layout),
                           .kind = shape->kind,
                           .layers = LAYERS,
                           .tensors = shape->kind == FBY_LAYOUT_SPLIT ? 2 * LAYERS : LAYERS,
                           .tensor = tensor,
                           .blocks = bench->blocks,
                           .row_bytes = shape->row_bytes,
                           .rows = ROWS};
    uint64_t tensor_bytes = bench->bytes / layout.tensors;
    for (uint32_t i = 0; i < layout.tensors; i++) {
        tensor[i] = (fby_tensor_t){.base = bench->memory + i * tensor_bytes, .bytes = tensor_bytes};
    }
    const fby_shard_t shard = {.size = sizeof(shard),
                               .bytes = bench->pool.group[0].payload_bytes,
                               .segment_bytes = bench->pool.group[0].payload_bytes / LAYERS};
    const fby_rank_config_t config = {.size = sizeof(config), .ranks = 1, .threads = THREADS};
    int rc = fby_rank_attach(&bench->pool, &config, &bench->rank);
    return rc == 0 ? fby_rank_register(bench->rank, &shard, &layout) : rc;
}

static void bench_close(bench_t *bench)
{
    (void)fby_rank_detach(bench->rank, -1);
    if (bench->memory != NULL && bench->memory != MAP_FAILED) {
        munmap(bench->memory, bench->bytes);
    }
    free(bench->place);
    free(bench->device_block);
    free(bench->sums);
    fby_region_close(&bench->region);
}

typedef struct result {
    double ours_s, summed_s, plain_s;
} result_t;

/* One load; seconds. */
static double load_s(bench_t *bench, uint64_t *sums, int *rc)
{
    const fby_copy_list_t list = {.size = sizeof(list),
                                  .blocks = bench->blocks,
                                  .place = bench->place,
                                  .device_block = bench->device_block,
                                  .sums = sums};
    double at = now_s();
    *rc = *rc == 0 ? fby_rank_load(bench->rank, &list, NULL) : *rc;
    return now_s() - at;
}

static int measure(bench_t *bench, size_t rounds, result_t *result)
{
    double ours[MOST_ROUNDS], theirs[MOST_ROUNDS], summed[MOST_ROUNDS];
    pthread_barrier_t begin, end;
    plain_t plain[THREADS];
    size_t half = bench->bytes / THREADS;
    int rc = 0;
    pthread_barrier_init(&begin, NULL, THREADS);
    pthread_barrier_init(&end, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++) {
        plain[i] = (plain_t){.to = bench->memory + i * half,
                             .from = bench->region.base + i * half,
                             .bytes = half,
                             .begin = &begin,
                             .end = &end,
                             .rounds = 1};
    }
    plain[1].rounds = rounds + 1;
    if (pthread_create(&plain[1].thread, NULL, plain_main, &plain[1]) != 0) {
        return -EAGAIN;
    }
    for (size_t round = 0; round <= rounds; round++) { /* the first one only warms up */
        double at = now_s();
        plain_main(&plain[0]);
        theirs[round > 0 ? round - 1 : 0] = now_s() - at;
        ours[round > 0 ? round - 1 : 0] = load_s(bench, NULL, &rc);
        summed[round > 0 ? round - 1 : 0] = load_s(bench, bench->sums, &rc);
    }
    pthread_join(plain[1].thread, NULL);
    pthread_barrier_destroy(&begin);
    pthread_barrier_destroy(&end);
    *result = (result_t){median(ours, rounds), median(summed, rounds), median(theirs, rounds)};
    return rc;
}

int main(int argc, char **argv)
{
    size_t bytes = (size_t)(argc > 1 ? strtoul(argv[1], NULL, 10) : 512) << 20;
    size_t rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 15;
    if (bytes < (size_t)8 << 20 || rounds == 0 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "bench_copy: [MiB] is 8 or more, [rounds] 1 to %d\n", MOST_ROUNDS);
        return 2;
    }
    printf("%-11s %8s %8s %8s %6s %12s   (GB/s with %d threads, %zu MiB)\n", "layout", "plain", "forebay", "summed",
           "ratio", "ratio summed", THREADS, bytes >> 20);
    for (size_t i = 0; i < FBY_ARRAY_LEN(shapes); i++) {
        bench_t bench = {.region = {.fd = -1}};
        result_t result = {0};
        int rc = bench_open(&bench, &shapes[i], bytes);
        rc = rc == 0 ? bench_attach(&bench, &shapes[i]) : rc;
        rc = rc == 0 ? measure(&bench, rounds, &result) : rc;
        if (rc != 0) {
            fprintf(stderr, "bench_copy: %s: %s\n", shapes[i].name, fby_last_error());
            bench_close(&bench);
            return 1;
        }
        double gigabytes = (double)bench.bytes * 1e-9;
        printf("%-11s %8.2f %8.2f %8.2f %6.3f %12.3f\n", shapes[i].name, gigabytes / result.plain_s,
               gigabytes / result.ours_s, gigabytes / result.summed_s, result.plain_s / result.ours_s,
               result.plain_s / result.summed_s);
        bench_close(&bench);
    }
    return 0;
}
