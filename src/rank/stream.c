#include "rank/stream.h"

#include <string.h>

#define XXH_INLINE_ALL /* the streaming state on the stack, sized by this header and not by the library at run time */
#include <xxhash.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "stores/object.h"

/* Below that a copy is stored normally. */
#define LEAST_STREAMED 1024u
/* What is summed and then copied while it is in the first-level cache. */
#define CHUNK_BYTES 8192u
/* A unit up to that is summed in one call, which is faster, and then copied while it is in the second-level cache. */
#define WHOLE_BYTES (256u << 10)

static void copy_portable(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

#if defined(__x86_64__)
/* Up to the destination's next multiple of `line`, at most all. */
static size_t head_bytes(const void *to, size_t line, size_t bytes)
{
    size_t head = (size_t)(-(uintptr_t)to & (line - 1));
    return FBY_MIN(head, bytes);
}

__attribute__((target("avx2"))) static void copy_avx2(void *to, const void *from, size_t bytes)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    size_t head = head_bytes(out, 32, bytes);
    memcpy(out, in, head);
    out += head, in += head, bytes -= head;
    for (; bytes >= 128; out += 128, in += 128, bytes -= 128) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)in);
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(in + 32));
        __m256i c = _mm256_loadu_si256((const __m256i *)(const void *)(in + 64));
        __m256i d = _mm256_loadu_si256((const __m256i *)(const void *)(in + 96));
        _mm256_stream_si256((__m256i *)(void *)out, a);
        _mm256_stream_si256((__m256i *)(void *)(out + 32), b);
        _mm256_stream_si256((__m256i *)(void *)(out + 64), c);
        _mm256_stream_si256((__m256i *)(void *)(out + 96), d);
    }
    memcpy(out, in, bytes);
}

__attribute__((target("avx512f"))) static void copy_avx512(void *to, const void *from, size_t bytes)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    size_t head = head_bytes(out, 64, bytes);
    memcpy(out, in, head);
    out += head, in += head, bytes -= head;
    for (; bytes >= 256; out += 256, in += 256, bytes -= 256) {
        __m512i a = _mm512_loadu_si512(in), b = _mm512_loadu_si512(in + 64);
        __m512i c = _mm512_loadu_si512(in + 128), d = _mm512_loadu_si512(in + 192);
        _mm512_stream_si512((__m512i *)(void *)out, a);
        _mm512_stream_si512((__m512i *)(void *)(out + 64), b);
        _mm512_stream_si512((__m512i *)(void *)(out + 128), c);
        _mm512_stream_si512((__m512i *)(void *)(out + 192), d);
    }
    memcpy(out, in, bytes);
}
#endif

const fby_stream_kernel_t *fby_stream_kernels(size_t *n)
{
    static fby_stream_kernel_t kernels[] = {
#if defined(__x86_64__)
        {"avx512", copy_avx512, false},
        {"avx2", copy_avx2, false},
#endif
        {"portable", copy_portable, true},
    };
    static _Atomic bool known;
    /* Several threads may find the same out at once; they write the same values. */
    if (!known) {
#if defined(__x86_64__)
        __builtin_cpu_init();
        __atomic_store_n(&kernels[0].usable, __builtin_cpu_supports("avx512f") != 0, __ATOMIC_RELAXED);
        __atomic_store_n(&kernels[1].usable, __builtin_cpu_supports("avx2") != 0, __ATOMIC_RELAXED);
#endif
        known = true;
    }
    *n = FBY_ARRAY_LEN(kernels);
    return kernels;
}

fby_stream_fn *fby_stream_best(void)
{
    size_t n, i = 0;
    const fby_stream_kernel_t *kernels = fby_stream_kernels(&n);
    while (!__atomic_load_n(&kernels[i].usable, __ATOMIC_RELAXED)) {
        i++;
    }
    return kernels[i].copy;
}

void fby_stream_end(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#else
    __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

static void copy_row(fby_stream_fn *copy, uint8_t *to, const uint8_t *from, size_t bytes, XXH3_state_t *state)
{
    if (bytes < LEAST_STREAMED) {
        copy = copy_portable;
    }
    if (state == NULL) {
        copy(to, from, bytes);
        return;
    }
    while (bytes > 0) {
        size_t now = FBY_MIN(bytes, (size_t)CHUNK_BYTES);
        XXH3_64bits_update(state, from, now);
        copy(to, from, now);
        to += now, from += now, bytes -= now;
    }
}

/* Sums a unit whose source is contiguous: the slot of a load, or a single run. False: it must be summed in pieces. */
static bool sum_whole(const fby_copy_run_t *run, uint32_t runs, const uint8_t *slot, uint64_t device_block,
                      bool to_device, uint64_t *sum)
{
    uint64_t bytes = 0;
    if (!to_device && (runs > 1 || run->rows > 1)) {
        return false;
    }
    for (uint32_t i = 0; i < runs; i++) {
        bytes += run[i].rows * run[i].row_bytes;
    }
    if (bytes > WHOLE_BYTES) {
        return false;
    }
    *sum = fby_checksum_segment(to_device ? slot + run->slot_offset : run->device + device_block * run->block_stride,
                                bytes);
    return true;
}

void fby_stream_unit(fby_stream_fn *copy, const fby_copy_run_t *run, uint32_t runs, uint8_t *slot,
                     uint64_t device_block, bool to_device, uint64_t *sum)
{
    XXH3_state_t state;
    if (sum != NULL && sum_whole(run, runs, slot, device_block, to_device, sum)) {
        sum = NULL;
    }
    if (sum != NULL) {
        XXH3_64bits_reset(&state);
    }
    for (uint32_t i = 0; i < runs; i++, run++) {
        uint8_t *host = slot + run->slot_offset;
        uint8_t *device = run->device + device_block * run->block_stride;
        for (uint64_t row = 0; row < run->rows; row++) {
            copy_row(copy, to_device ? device : host, to_device ? host : device, run->row_bytes,
                     sum != NULL ? &state : NULL);
            host += run->row_bytes;
            device += run->row_stride;
        }
    }
    if (sum != NULL) {
        *sum = XXH3_64bits_digest(&state);
    }
}
