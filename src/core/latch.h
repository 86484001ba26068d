/*
 * latch.h - a snapshot that can be read without a lock while one writer changes it.
 *
 * Two copies of atomic words and a sequence count. The writer makes the count odd, writes copy 0, makes it even,
 * writes copy 1: readers use the copy that is not being written, so a writer that is preempted or dies at any point
 * never blocks them. A reader retries only when the count moved during its read: at most twice per publication.
 * Order without fences: a reader that sees a word of a later publication (release store, acquire load) also sees that
 * publication's count when it looks again. On x86 these are plain moves. model/latch.pml checks the protocol.
 * Memory is type-stable: a latch is never freed while anybody may poll, only reused for another session.
 */
#ifndef FBY_CORE_LATCH_H
#define FBY_CORE_LATCH_H

#include <stdatomic.h>
#include <string.h>

#include "forebay/forebay.h"

#define FBY_LATCH_WORDS ((sizeof(fby_snapshot_t) + 7) / 8)

typedef struct fby_latch {
    _Atomic uint64_t sequence;
    _Atomic uint64_t copy[2][FBY_LATCH_WORDS];
} fby_latch_t;

static inline void fby_latch_write(fby_latch_t *latch, const fby_snapshot_t *snapshot)
{
    uint64_t words[FBY_LATCH_WORDS] = {0};
    memcpy(words, snapshot, sizeof(*snapshot));
    for (unsigned copy = 0; copy < 2; copy++) {
        /* odd count: readers use copy 1; even count: copy 0 */
        atomic_fetch_add_explicit(&latch->sequence, 1, memory_order_acq_rel);
        for (size_t i = 0; i < FBY_LATCH_WORDS; i++)
            atomic_store_explicit(&latch->copy[copy][i], words[i], memory_order_release);
    }
}

static inline void fby_latch_read(const fby_latch_t *latch, fby_snapshot_t *snapshot)
{
    uint64_t words[FBY_LATCH_WORDS], before;
    do {
        before = atomic_load_explicit(&latch->sequence, memory_order_acquire);
        for (size_t i = 0; i < FBY_LATCH_WORDS; i++)
            words[i] = atomic_load_explicit(&latch->copy[before & 1][i], memory_order_acquire);
    } while (atomic_load_explicit(&latch->sequence, memory_order_relaxed) != before);
    memcpy(snapshot, words, sizeof(*snapshot));
}

#endif
