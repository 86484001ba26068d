#include "server/sequences.h"

#include <stdlib.h>

/* What a sequence takes beside its hashes, about. */
enum { LEAST_BUCKETS = 64, SEQUENCE_BYTES = 256 };

void fby_sequences_init(fby_sequences_t *sequences, uint64_t limit)
{
    *sequences = (fby_sequences_t){.limit = limit};
}

uint64_t fby_sequence_bytes(uint64_t blocks)
{
    return fby_add_sat(SEQUENCE_BYTES, fby_mul_sat(blocks, sizeof(fby_hash_t)));
}

static fby_kept_sequence_t **bucket_of(const fby_sequences_t *sequences, uint64_t id)
{
    return &sequences->bucket[(uint32_t)((id * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & sequences->mask];
}

/* ---- By use ----------------------------------------------------------------------------------------------------- */

static void use_unlink(fby_sequences_t *sequences, fby_kept_sequence_t *kept)
{
    *(kept->older == NULL ? &sequences->oldest : &kept->older->newer) = kept->newer;
    *(kept->newer == NULL ? &sequences->newest : &kept->newer->older) = kept->older;
}

static void use_link(fby_sequences_t *sequences, fby_kept_sequence_t *kept)
{
    kept->older = sequences->newest;
    kept->newer = NULL;
    *(kept->older == NULL ? &sequences->oldest : &kept->older->newer) = kept;
    sequences->newest = kept;
}

/* ---- All -------------------------------------------------------------------------------------------------------- */

fby_kept_sequence_t *fby_sequences_find(fby_sequences_t *sequences, uint64_t id)
{
    fby_kept_sequence_t *kept = sequences->bucket != NULL ? *bucket_of(sequences, id) : NULL;
    while (kept != NULL && kept->id != id) {
        kept = kept->chain;
    }
    if (kept != NULL && kept != sequences->newest) {
        use_unlink(sequences, kept);
        use_link(sequences, kept);
    }
    return kept;
}

/* More buckets than sequences, unless there is no memory for it: then chains grow. */
static void buckets_grow(fby_sequences_t *sequences)
{
    uint32_t size = sequences->bucket != NULL ? (sequences->mask + 1) * 2 : LEAST_BUCKETS;
    if ((sequences->bucket != NULL && sequences->count <= sequences->mask) || size == 0) {
        return;
    }
    fby_kept_sequence_t **bucket = calloc(size, sizeof(fby_kept_sequence_t *));
    if (bucket == NULL) {
        return;
    }
    free(sequences->bucket);
    sequences->bucket = bucket;
    sequences->mask = size - 1;
    for (fby_kept_sequence_t *kept = sequences->oldest; kept != NULL; kept = kept->newer) {
        fby_kept_sequence_t **at = bucket_of(sequences, kept->id);
        kept->chain = *at;
        *at = kept;
    }
}

static void forget(fby_sequences_t *sequences, fby_kept_sequence_t *kept)
{
    fby_kept_sequence_t **at = bucket_of(sequences, kept->id);
    while (*at != kept) {
        at = &(*at)->chain;
    }
    *at = kept->chain;
    use_unlink(sequences, kept);
    sequences->count--;
    sequences->bytes -= kept->bytes;
    fby_seq_unref(kept->seq);
    free(kept);
}

void fby_sequences_grown(fby_sequences_t *sequences, fby_kept_sequence_t *kept)
{
    uint64_t bytes = fby_sequence_bytes(fby_seq_blocks(kept->seq));
    sequences->bytes += bytes - kept->bytes;
    kept->bytes = bytes;
    while (sequences->bytes > sequences->limit && sequences->oldest != kept) {
        forget(sequences, sequences->oldest);
    }
}

fby_kept_sequence_t *fby_sequences_add(fby_sequences_t *sequences, uint64_t id, fby_keyring_t *keyring)
{
    buckets_grow(sequences);
    if (sequences->bucket == NULL) {
        return NULL;
    }
    fby_kept_sequence_t *kept = calloc(1, sizeof(*kept));
    if (kept == NULL || fby_seq_make_hashed(keyring, &kept->seq) != 0) {
        free(kept);
        return NULL;
    }
    fby_kept_sequence_t **at = bucket_of(sequences, id);
    kept->id = id;
    kept->chain = *at;
    *at = kept;
    use_link(sequences, kept);
    sequences->count++;
    fby_sequences_grown(sequences, kept); /* what an empty one takes counts, too */
    return kept;
}

void fby_sequences_drop(fby_sequences_t *sequences, uint64_t id)
{
    fby_kept_sequence_t *kept = fby_sequences_find(sequences, id);
    if (kept != NULL) {
        forget(sequences, kept);
    }
}

void fby_sequences_free(fby_sequences_t *sequences)
{
    for (fby_kept_sequence_t *next, *kept = sequences->oldest; kept != NULL; kept = next) {
        next = kept->newer;
        fby_seq_unref(kept->seq);
        free(kept);
    }
    free(sequences->bucket);
    *sequences = (fby_sequences_t){.limit = sequences->limit};
}
