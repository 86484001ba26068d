/*
 * seq.h - sequences: tokens become chain hashes once, outside every lock.
 *
 * OWNERSHIP
 *   keyring   what turns tokens into keys under one weights epoch. Immutable; shared by the cache and its sequences.
 *   seq_data  an array of hashes that only grows behind the lengths already handed out: whoever got [0, n) reads [0, n)
 *             for ever. When it is full, the sequence moves to a larger copy and older readers keep the old one.
 *             A session of a model with trailing groups gets a seq_data of its own (`base` set) for its scratch.
 *   seq       the caller's object: the data as far as it goes, and the tokens of the last, partial block.
 * All three are counted with atomics, so that references may be dropped by whatever thread ends their use.
 */
#ifndef FBY_RUNTIME_SEQ_H
#define FBY_RUNTIME_SEQ_H

#include <stdatomic.h>

#include "base/base.h"
#include "core/core.h"
#include "forebay/forebay.h"
#include "keys/keys.h"

typedef struct fby_keyring {
    _Atomic uint32_t refs;
    uint64_t cache_id, epoch;
    uint32_t block_tokens, groups;
    bool needs_scratch;  /* there are trailing groups */
    fby_hasher_t hasher; /* with the fingerprint of this epoch */
    /* Of a client: called, from any thread, when a sequence with this serial is gone. NULL otherwise. */
    void (*gone)(void *arg, uint64_t serial);
    void *gone_arg; /* outlives every sequence */
} fby_keyring_t;

typedef struct fby_seq_data {
    _Atomic uint32_t refs;
    struct fby_seq_data *base; /* whose hashes these are; NULL: its own */
    struct fby_seq_data *next; /* on a list of dead ones */
    uint8_t *present;          /* a session's scratch, zeroed at birth; NULL otherwise */
    size_t capacity;
    fby_hash_t hashes[];
} fby_seq_data_t;

/* The new keyring has one reference. FBY_E_CONFIG, -ENOMEM. */
int fby_keyring_create(const fby_fingerprint_fields_t *model, fby_hash_kind_t kind, const void *secret,
                       size_t secret_length, uint64_t cache_id, fby_keyring_t **out);
/* The same around a hasher that a server described. -ENOMEM. */
int fby_keyring_adopt(const fby_hasher_t *hasher, uint64_t epoch, uint32_t block_tokens, uint32_t groups,
                      uint64_t cache_id, fby_keyring_t **out);
fby_keyring_t *fby_keyring_ref(fby_keyring_t *keyring);
void fby_keyring_unref(fby_keyring_t *keyring);

/* Takes a reference of its own on the keyring. Errors as fby_seq_create. */
int fby_seq_make(fby_keyring_t *keyring, const uint32_t *tokens, size_t n, const fby_ns_part_t *ns, size_t ns_parts,
                 fby_seq_t **out);
const fby_keyring_t *fby_seq_keyring(const fby_seq_t *seq);

/* Of a server: a sequence whose hashes somebody else computed. Takes a reference of its own on the keyring. -ENOMEM. */
int fby_seq_make_hashed(fby_keyring_t *keyring, fby_seq_t **out);
/* Hashes of the blocks [from, from + count), of which those below fby_seq_blocks() must be known already, and the length
   in tokens that goes with the last. -EINVAL: a gap, or tokens that do not fit the blocks. -ENOMEM. */
int fby_seq_extend_hashed(fby_seq_t *seq, size_t from, const fby_hash_t *hashes, size_t count, size_t tokens);
/* Of a client: a number that no other sequence of this process has, and the hashes so far. */
uint64_t fby_seq_serial(const fby_seq_t *seq);
const fby_hash_t *fby_seq_hashes(const fby_seq_t *seq);

/* The sequence as the core sees it. view->ref is one reference that the caller now owns. -ENOMEM with scratch only. */
int fby_seq_view(const fby_seq_t *seq, bool with_scratch, fby_core_seq_t *view);

void fby_seq_data_ref(fby_seq_data_t *data);
/* Drops one; true when it was the last: then the caller frees it, now or later. */
bool fby_seq_data_drop(fby_seq_data_t *data);
void fby_seq_data_free(fby_seq_data_t *data);
/* Both. */
void fby_seq_data_unref(fby_seq_data_t *data);

#endif
