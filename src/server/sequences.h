/*
 * sequences.h - the hashes that one client sent, by the client's number for the sequence; the least recently used go first
 * when all together pass the limit. Sessions, holds and puts keep what they need by themselves.
 */
#ifndef FBY_SERVER_SEQUENCES_H
#define FBY_SERVER_SEQUENCES_H

#include "runtime/seq.h"

typedef struct fby_kept_sequence {
    struct fby_kept_sequence *chain;         /* of its bucket */
    struct fby_kept_sequence *older, *newer; /* by use */
    uint64_t id, bytes;
    fby_seq_t *seq;
} fby_kept_sequence_t;

typedef struct fby_sequences {
    fby_kept_sequence_t **bucket; /* NULL: none so far */
    uint32_t mask, count;
    fby_kept_sequence_t *oldest, *newest;
    uint64_t bytes, limit;
} fby_sequences_t;

void fby_sequences_init(fby_sequences_t *sequences, uint64_t limit);
void fby_sequences_free(fby_sequences_t *sequences);
/* Known, and the most recently used from now on; or NULL. */
fby_kept_sequence_t *fby_sequences_find(fby_sequences_t *sequences, uint64_t id);
/* A new, empty one. NULL: out of memory. */
fby_kept_sequence_t *fby_sequences_add(fby_sequences_t *sequences, uint64_t id, fby_keyring_t *keyring);
/* What `blocks` blocks would be counted as: more than the limit never fits. */
uint64_t fby_sequence_bytes(uint64_t blocks);
/* The one found last has grown: others go until all is within the limit. */
void fby_sequences_grown(fby_sequences_t *sequences, fby_kept_sequence_t *kept);
/* Harmless when unknown. */
void fby_sequences_drop(fby_sequences_t *sequences, uint64_t id);

#endif
