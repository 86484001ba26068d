/*
 * ring.h - the shared memory between a runtime and one agent process: a header and, per lane, two rings.
 *
 *   submissions  host -> agent   64-byte entries; a batch is a run of entries with one tag, the last of them marked
 *   results      agent -> host   16-byte entries, one per submitted entry, in the same order
 *
 * A lane has one producer and one consumer on each ring: the host thread that owns the lane at that time, and the
 * agent's thread for it. A batch is in the ring whole before the agent is woken, and never larger than `depth`; the
 * host submits the next one when every result of the last was taken, so a ring holds what the driver was given, not a
 * queue. What waits lies in the runtime, where it can be recalled.
 *
 * Positions are 32-bit counters that wrap; `position & (depth - 1)` is the entry. Both sides keep their own counters in
 * private memory and take only the other's from here. An entry is copied once and then checked, so that the other side
 * cannot change it after the check. Whatever does not fit (a count beyond depth, a foreign tag, a slice outside the
 * pool) is FBY_E_FORMAT for the reader: the host kills the agent, the agent ends.
 *
 * Wakes: a side that is about to sleep says so, looks once more, and waits on its wake word with a futex. The other
 * side counts the word up and wakes it only if it said so: a busy lane makes no system call for wakes. A kick counts it
 * up always, so that it also ends a wait that has not begun yet: whoever sets a flag and kicks is seen.
 */
#ifndef FBY_AGENT_RING_H
#define FBY_AGENT_RING_H

#include <stdatomic.h>

#include "base/base.h"
#include "forebay/store.h"

#define FBY_RING_MAGIC UINT64_C(0x31474e5259424600) /* "\0FBYRNG1", little-endian */
#define FBY_RING_VERSION 1u

enum { FBY_RING_DEPTH_MOST = 4096, FBY_RING_LANES_MOST = 256, FBY_RING_TEXT_BYTES = 256 };

/* X(name): what an entry asks for. */
#define FBY_RING_OP_MAP(X) X(EXISTS) X(GET) X(PUT) X(REMOVE) X(HEALTH) X(EPOCH)

typedef enum fby_ring_op {
#define FBY_X(name) FBY_RING_##name,
    FBY_RING_OP_MAP(FBY_X)
#undef FBY_X
        FBY_RING_OP_COUNT
} fby_ring_op_t;

enum {
    FBY_RING_LAST = 1,   /* ends its batch */
    FBY_RING_BOUNCE = 2, /* `offset` counts from the lane's bounce area, not from the pool */
};
/* `offset` of an entry without a buffer (EXISTS, REMOVE). EPOCH carries the epoch in `offset`. HEALTH answers with a
   text at the start of the bounce area. A buffer has room for the group's slot_bytes, whatever `bytes` says. */
#define FBY_RING_NO_BUFFER UINT64_MAX

typedef struct fby_ring_entry {
    uint64_t tag; /* of the batch; grows */
    uint64_t offset;
    uint32_t bytes;
    uint8_t op;
    uint8_t group;
    uint16_t flags;
    char key[FBY_KEY_BYTES]; /* NUL-terminated */
} fby_ring_entry_t;
_Static_assert(sizeof(fby_ring_entry_t) == 64, "the format of a ring");

typedef struct fby_ring_result {
    uint64_t tag;
    int64_t result;
} fby_ring_result_t;
_Static_assert(sizeof(fby_ring_result_t) == 16, "the format of a ring");

/* One lane's counters. Each cache line has one writer, but for the wake words: whoever wakes a side counts its word up,
   and a side sleeps only while its word is the one that it saw when it last returned from a wait. */
typedef struct fby_ring_lane {
    _Alignas(64) _Atomic uint32_t submitted;    /* host */
    _Alignas(64) _Atomic uint32_t agent_sleeps; /* agent */
    _Atomic uint32_t agent_wake;                /* futex the agent sleeps on */
    _Alignas(64) _Atomic uint32_t answered;     /* agent */
    _Alignas(64) _Atomic uint32_t host_sleeps;  /* host */
    _Atomic uint32_t host_wants;                /* host: the value of `answered` that it sleeps for */
    _Atomic uint32_t host_wake;                 /* futex the host sleeps on */
} fby_ring_lane_t;

typedef struct fby_ring_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes; /* sizeof(fby_ring_header_t) */
    uint32_t lanes;
    uint32_t depth;        /* entries of a ring; a power of two */
    uint32_t bounce_bytes; /* per lane; a multiple of 4,096 */
    uint32_t lane_bytes;   /* from one lane to the next */
    uint64_t bytes;        /* of all of it */
} fby_ring_header_t;

/* One lane as one process sees it. */
typedef struct fby_ring {
    fby_ring_lane_t *lane;
    fby_ring_entry_t *entries;
    fby_ring_result_t *results;
    uint8_t *bounce;
    uint32_t depth, bounce_bytes;
    uint32_t position; /* private: host: submitted so far; agent: taken so far. Results come at the same positions. */
    uint32_t host_seen, agent_seen; /* private: the wake words as they were after the last wait */
} fby_ring_t;

/* Bytes of a ring file; 0 when a number is out of range: lanes and depth from 1 to the most, depth a power of two,
   bounce_bytes a multiple of 4,096 from 4,096 to 2 GiB. */
uint64_t fby_ring_bytes(uint32_t lanes, uint32_t depth, uint32_t bounce_bytes);
/* Lays out zeroed memory of that many bytes. */
void fby_ring_format(void *memory, uint32_t lanes, uint32_t depth, uint32_t bounce_bytes);
/* Checks a mapping of `bytes` against its header. FBY_E_FORMAT with a text that names what is wrong. */
int fby_ring_check(const void *memory, uint64_t bytes, char *error, size_t error_size);
/* One lane of memory that was formatted or checked just now: it takes the layout from the header. Positions start where
   the counters are. */
void fby_ring_attach(void *memory, uint32_t lane, fby_ring_t *ring);

/* ---- Host ---- */
/* Copies n entries in (n <= depth, all earlier results taken), sets tag, and LAST on the last one, publishes once,
   wakes. */
void fby_ring_submit(fby_ring_t *ring, uint64_t tag, fby_ring_entry_t *entries, uint32_t n);
/* How many of the last n submitted are answered: 0..n. FBY_E_FORMAT: the counter makes no sense. */
int fby_ring_answered(const fby_ring_t *ring, uint32_t n);
/* Sleeps until the last n are answered, or until `until` (CLOCK_MONOTONIC; FBY_NEVER: no limit), or fby_ring_kick. May
   return early: look at fby_ring_answered and at the flag that a kick stands for before each wait. */
void fby_ring_wait(fby_ring_t *ring, uint32_t n, uint64_t until);
/* Copies the n results out. FBY_E_FORMAT: a tag is not `tag`. */
int fby_ring_results(const fby_ring_t *ring, uint64_t tag, int64_t *results, uint32_t n);
/* Any thread: wakes whoever sleeps on this lane, on either side, and ends the next wait of a side that does not sleep.
   The sleeper looks again at whatever told it to stop. */
void fby_ring_kick(fby_ring_lane_t *lane);

/* ---- Agent ---- */
/* Entries there to be taken: 0..depth. FBY_E_FORMAT: the counter makes no sense. */
int fby_ring_ready(const fby_ring_t *ring);
/* Sleeps until there is one, or fby_ring_kick. May return early. */
void fby_ring_wait_entries(fby_ring_t *ring);
/* Copies one whole batch out (room for depth entries); returns its count, 0 when nothing is there. FBY_E_FORMAT: no
   LAST within what is there, mixed tags or operations, an unknown operation. Buffers and keys are for the caller to
   check. */
int fby_ring_take(fby_ring_t *ring, fby_ring_entry_t *entries);
/* Publishes the results of the batch that was taken last, wakes the host if all it waits for is there. */
void fby_ring_answer(fby_ring_t *ring, uint64_t tag, const int64_t *results, uint32_t n);

#endif
