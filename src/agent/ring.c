/* ring.c - lanes in shared memory: layout, positions, wakes. */
#include "agent/ring.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { PAGE = 4096 };
#define BOUNCE_MOST UINT32_C(0x80000000)

/* ---- Layout ---- */

/* Offset of the bounce area in a lane; the results lie before it, the entries before those. */
static uint32_t bounce_offset(uint32_t depth)
{
    uint64_t rings = (uint64_t)depth * (sizeof(fby_ring_entry_t) + sizeof(fby_ring_result_t));
    return (uint32_t)fby_align_up(sizeof(fby_ring_lane_t) + rings, PAGE);
}

static bool lanes_fit(uint32_t lanes)
{
    return lanes >= 1 && lanes <= FBY_RING_LANES_MOST;
}

static bool depth_fits(uint32_t depth)
{
    return depth >= 1 && depth <= FBY_RING_DEPTH_MOST && (depth & (depth - 1)) == 0;
}

static bool bounce_fits(uint32_t bounce_bytes)
{
    return bounce_bytes >= PAGE && bounce_bytes <= BOUNCE_MOST && bounce_bytes % PAGE == 0;
}

static fby_ring_header_t header_make(uint32_t lanes, uint32_t depth, uint32_t bounce_bytes)
{
    fby_ring_header_t header = {
        .magic = FBY_RING_MAGIC,
        .version = FBY_RING_VERSION,
        .header_bytes = sizeof(header),
        .lanes = lanes,
        .depth = depth,
        .bounce_bytes = bounce_bytes,
        .lane_bytes = bounce_offset(depth) + bounce_bytes,
    };
    header.bytes = PAGE + (uint64_t)header.lanes * header.lane_bytes;
    return header;
}

uint64_t fby_ring_bytes(uint32_t lanes, uint32_t depth, uint32_t bounce_bytes)
{
    if (!lanes_fit(lanes) || !depth_fits(depth) || !bounce_fits(bounce_bytes)) {
        return 0;
    }
    return header_make(lanes, depth, bounce_bytes).bytes;
}

void fby_ring_format(void *memory, uint32_t lanes, uint32_t depth, uint32_t bounce_bytes)
{
    const fby_ring_header_t header = header_make(lanes, depth, bounce_bytes);
    memcpy(memory, &header, sizeof(header));
}

static int refuse(char *error, size_t error_size, const char *field, uint64_t value, uint64_t accepted)
{
    snprintf(error, error_size, "ring: %s is %llu; accepted: %llu", field, (unsigned long long)value,
             (unsigned long long)accepted);
    return FBY_E_FORMAT;
}

int fby_ring_check(const void *memory, uint64_t bytes, char *error, size_t error_size)
{
    fby_ring_header_t header;
    if (bytes < PAGE) {
        snprintf(error, error_size, "ring: %llu bytes; accepted: at least %d", (unsigned long long)bytes, PAGE);
        return FBY_E_FORMAT;
    }
    memcpy(&header, memory, sizeof(header));
    atomic_signal_fence(memory_order_seq_cst); /* what is checked is the copy */
    if (header.magic != FBY_RING_MAGIC) {
        snprintf(error, error_size, "ring: magic is %016llx: this is no ring", (unsigned long long)header.magic);
        return FBY_E_FORMAT;
    }
    if (header.version != FBY_RING_VERSION) {
        return refuse(error, error_size, "version", header.version, FBY_RING_VERSION);
    }
    if (header.header_bytes != sizeof(header)) {
        return refuse(error, error_size, "header_bytes", header.header_bytes, sizeof(header));
    }
    if (!lanes_fit(header.lanes)) {
        snprintf(error, error_size, "ring: lanes is %u; accepted: 1 to %d", header.lanes, FBY_RING_LANES_MOST);
        return FBY_E_FORMAT;
    }
    if (!depth_fits(header.depth)) {
        snprintf(error, error_size, "ring: depth is %u; accepted: a power of two up to %d", header.depth,
                 FBY_RING_DEPTH_MOST);
        return FBY_E_FORMAT;
    }
    if (!bounce_fits(header.bounce_bytes)) {
        snprintf(error, error_size, "ring: bounce_bytes is %u; accepted: a multiple of %d up to %u",
                 header.bounce_bytes, PAGE, BOUNCE_MOST);
        return FBY_E_FORMAT;
    }
    const fby_ring_header_t expected = header_make(header.lanes, header.depth, header.bounce_bytes);
    if (header.lane_bytes != expected.lane_bytes) {
        return refuse(error, error_size, "lane_bytes", header.lane_bytes, expected.lane_bytes);
    }
    if (header.bytes != expected.bytes || bytes != expected.bytes) {
        uint64_t wrong = header.bytes != expected.bytes ? header.bytes : bytes;
        return refuse(error, error_size, "bytes", wrong, expected.bytes);
    }
    return 0;
}

void fby_ring_attach(void *memory, uint32_t lane, fby_ring_t *ring)
{
    fby_ring_header_t header;
    memcpy(&header, memory, sizeof(header));
    uint8_t *start = (uint8_t *)memory + PAGE + (size_t)lane * header.lane_bytes;
    *ring = (fby_ring_t){
        .lane = (fby_ring_lane_t *)(void *)start,
        .entries = (fby_ring_entry_t *)(void *)(start + sizeof(fby_ring_lane_t)),
        .depth = header.depth,
        .bounce = start + bounce_offset(header.depth),
        .bounce_bytes = header.bounce_bytes,
    };
    ring->results = (fby_ring_result_t *)(void *)(ring->entries + header.depth);
    ring->position = atomic_load_explicit(&ring->lane->answered, memory_order_acquire);
    ring->host_seen = atomic_load_explicit(&ring->lane->host_wake, memory_order_acquire);
    ring->agent_seen = atomic_load_explicit(&ring->lane->agent_wake, memory_order_acquire);
}

/* ---- Wakes ---- */

/* A side stores its flag and then loads the other's counter; the other stores its counter and then loads the flag. All
   four are seq_cst, so at least one of them sees the other's store and no wake is lost. The futex is shared between
   processes, hence without FUTEX_PRIVATE_FLAG. */
static void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t until)
{
    struct timespec limit = {.tv_sec = (time_t)(until / FBY_SECOND), .tv_nsec = (long)(until % FBY_SECOND)};
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, until == FBY_NEVER ? NULL : &limit, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void wake(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void fby_ring_kick(fby_ring_lane_t *lane)
{
    int saved = errno;
    wake(&lane->agent_wake);
    wake(&lane->host_wake);
    errno = saved;
}

/* ---- Host ---- */

void fby_ring_submit(fby_ring_t *ring, uint64_t tag, fby_ring_entry_t *entries, uint32_t n)
{
    fby_ring_lane_t *lane = ring->lane;
    if (n == 0) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        entries[i].tag = tag;
        entries[i].flags = (uint16_t)(entries[i].flags & ~(unsigned)FBY_RING_LAST);
    }
    entries[n - 1].flags |= FBY_RING_LAST;
    for (uint32_t i = 0; i < n; i++) {
        ring->entries[(ring->position + i) & (ring->depth - 1)] = entries[i];
    }
    ring->position += n;
    atomic_store(&lane->submitted, ring->position);
    if (atomic_load(&lane->agent_sleeps) != 0) {
        wake(&lane->agent_wake);
    }
}

int fby_ring_answered(const fby_ring_t *ring, uint32_t n)
{
    uint32_t missing = ring->position - atomic_load(&ring->lane->answered);
    return missing > n ? FBY_E_FORMAT : (int)(n - missing);
}

/* Nothing to wait for: all is there, or the counter is wrong. */
static bool host_may_go(const fby_ring_t *ring, uint32_t n)
{
    int answered = fby_ring_answered(ring, n);
    return answered < 0 || (uint32_t)answered == n;
}

void fby_ring_wait(fby_ring_t *ring, uint32_t n, uint64_t until)
{
    fby_ring_lane_t *lane = ring->lane;
    if (!host_may_go(ring, n)) {
        atomic_store_explicit(&lane->host_wants, ring->position, memory_order_relaxed);
        atomic_store(&lane->host_sleeps, 1);
        if (!host_may_go(ring, n) && atomic_load(&lane->host_wake) == ring->host_seen) {
            futex_wait(&lane->host_wake, ring->host_seen, until);
        }
        atomic_store_explicit(&lane->host_sleeps, 0, memory_order_relaxed);
    }
    ring->host_seen = atomic_load(&lane->host_wake);
}

int fby_ring_results(const fby_ring_t *ring, uint64_t tag, int64_t *results, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        fby_ring_result_t result = ring->results[(ring->position - n + i) & (ring->depth - 1)];
        atomic_signal_fence(memory_order_seq_cst); /* what is checked is the copy */
        if (result.tag != tag) {
            return FBY_E_FORMAT;
        }
        results[i] = result.result;
    }
    return 0;
}

/* ---- Agent ---- */

int fby_ring_ready(const fby_ring_t *ring)
{
    uint32_t ready = atomic_load(&ring->lane->submitted) - ring->position;
    return ready > ring->depth ? FBY_E_FORMAT : (int)ready;
}

void fby_ring_wait_entries(fby_ring_t *ring)
{
    fby_ring_lane_t *lane = ring->lane;
    if (fby_ring_ready(ring) == 0) {
        atomic_store(&lane->agent_sleeps, 1);
        if (fby_ring_ready(ring) == 0 && atomic_load(&lane->agent_wake) == ring->agent_seen) {
            futex_wait(&lane->agent_wake, ring->agent_seen, FBY_NEVER);
        }
        atomic_store_explicit(&lane->agent_sleeps, 0, memory_order_relaxed);
    }
    ring->agent_seen = atomic_load(&lane->agent_wake);
}

int fby_ring_take(fby_ring_t *ring, fby_ring_entry_t *entries)
{
    int ready = fby_ring_ready(ring);
    for (int i = 0; i < ready; i++) {
        entries[i] = ring->entries[(ring->position + (uint32_t)i) & (ring->depth - 1)];
        atomic_signal_fence(memory_order_seq_cst); /* what is checked is the copy */
        if (entries[i].op >= FBY_RING_OP_COUNT || entries[i].op != entries[0].op || entries[i].tag != entries[0].tag) {
            return FBY_E_FORMAT;
        }
        if ((entries[i].flags & FBY_RING_LAST) != 0) {
            ring->position += (uint32_t)i + 1;
            return i + 1;
        }
    }
    return ready == 0 ? 0 : FBY_E_FORMAT;
}

void fby_ring_answer(fby_ring_t *ring, uint64_t tag, const int64_t *results, uint32_t n)
{
    fby_ring_lane_t *lane = ring->lane;
    for (uint32_t i = 0; i < n; i++) {
        fby_ring_result_t *slot = &ring->results[(ring->position - n + i) & (ring->depth - 1)];
        *slot = (fby_ring_result_t){tag, results[i]};
    }
    atomic_store(&lane->answered, ring->position);
    if (atomic_load(&lane->host_sleeps) != 0) {
        uint32_t missing = atomic_load_explicit(&lane->host_wants, memory_order_relaxed) - ring->position;
        if ((int32_t)missing <= 0) {
            wake(&lane->host_wake);
        }
    }
}
