#include "runtime/seq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { MOST_BLOCKS = 1 << 30, SPARE_BLOCKS = 16 };

struct fby_seq {
    _Atomic uint32_t refs;
    fby_keyring_t *keyring;
    fby_seq_data_t *data;
    size_t blocks;
    uint64_t tokens;
    uint64_t serial;     /* no other sequence of this process has it */
    fby_hash_t root;     /* h[-1] */
    uint32_t tail_count; /* tokens behind the last whole block */
    uint32_t tail[];     /* block_tokens of them fit */
};

static _Atomic uint64_t serials;

int fby_keyring_adopt(const fby_hasher_t *hasher, uint64_t epoch, uint32_t block_tokens, uint32_t groups,
                      uint64_t cache_id, fby_keyring_t **out)
{
    fby_keyring_t *keyring = calloc(1, sizeof(*keyring));
    if (keyring == NULL) {
        return -ENOMEM;
    }
    atomic_init(&keyring->refs, 1);
    keyring->hasher = *hasher;
    keyring->epoch = epoch;
    keyring->block_tokens = block_tokens;
    keyring->groups = groups;
    keyring->cache_id = cache_id;
    *out = keyring;
    return 0;
}

int fby_keyring_create(const fby_fingerprint_fields_t *model, fby_hash_kind_t kind, const void *secret,
                       size_t secret_length, uint64_t cache_id, fby_keyring_t **out)
{
    uint8_t fingerprint[16];
    int rc = fby_fingerprint(model, fingerprint);
    if (rc != 0) {
        return rc;
    }
    fby_keyring_t *keyring = calloc(1, sizeof(*keyring));
    if (keyring == NULL) {
        return -ENOMEM;
    }
    rc = fby_hasher_init(&keyring->hasher, kind, fingerprint, secret, secret_length);
    if (rc != 0) {
        free(keyring);
        return rc;
    }
    atomic_init(&keyring->refs, 1);
    keyring->cache_id = cache_id;
    keyring->epoch = model->weights_epoch;
    keyring->block_tokens = model->block_tokens;
    keyring->groups = model->groups;
    for (uint32_t g = 0; g < model->groups; g++) {
        keyring->needs_scratch = keyring->needs_scratch || model->group[g].trailing > 0;
    }
    *out = keyring;
    return 0;
}

fby_keyring_t *fby_keyring_ref(fby_keyring_t *keyring)
{
    atomic_fetch_add_explicit(&keyring->refs, 1, memory_order_relaxed);
    return keyring;
}

void fby_keyring_unref(fby_keyring_t *keyring)
{
    if (keyring != NULL && atomic_fetch_sub_explicit(&keyring->refs, 1, memory_order_acq_rel) == 1) {
        free(keyring);
    }
}

/* ---- Data ------------------------------------------------------------------------------------------------------- */

static fby_seq_data_t *data_create(size_t capacity)
{
    fby_seq_data_t *data = malloc(sizeof(*data) + capacity * sizeof(fby_hash_t));
    if (data != NULL) {
        *data = (fby_seq_data_t){.capacity = capacity};
        atomic_init(&data->refs, 1);
    }
    return data;
}

void fby_seq_data_ref(fby_seq_data_t *data)
{
    atomic_fetch_add_explicit(&data->refs, 1, memory_order_relaxed);
}

bool fby_seq_data_drop(fby_seq_data_t *data)
{
    return data != NULL && atomic_fetch_sub_explicit(&data->refs, 1, memory_order_acq_rel) == 1;
}

void fby_seq_data_free(fby_seq_data_t *data)
{
    fby_seq_data_t *base = data->base;
    free(data);
    fby_seq_data_unref(base);
}

void fby_seq_data_unref(fby_seq_data_t *data)
{
    if (fby_seq_data_drop(data)) {
        fby_seq_data_free(data);
    }
}

int fby_seq_view(const fby_seq_t *seq, bool with_scratch, fby_core_seq_t *view)
{
    fby_seq_data_t *ref = seq->data;
    fby_seq_data_ref(ref);
    if (with_scratch && seq->keyring->needs_scratch && seq->blocks > 0) {
        fby_seq_data_t *own = calloc(1, sizeof(*own) + seq->blocks);
        if (own == NULL) {
            fby_seq_data_unref(ref);
            return -ENOMEM;
        }
        atomic_init(&own->refs, 1);
        own->base = ref;
        own->present = (uint8_t *)(own + 1);
        ref = own;
    }
    *view = (fby_core_seq_t){
        .hashes = seq->data->hashes,
        .blocks = (uint32_t)seq->blocks,
        .tokens = seq->tokens,
        .epoch = seq->keyring->epoch,
        .present = ref->present,
        .ref = ref,
    };
    return 0;
}

/* ---- Sequence --------------------------------------------------------------------------------------------------- */

/* Room for `blocks` hashes: the same array, or a larger copy. */
static int seq_reserve(fby_seq_t *seq, size_t blocks)
{
    if (seq->data != NULL && blocks <= seq->data->capacity) {
        return 0;
    }
    size_t capacity = blocks + SPARE_BLOCKS;
    if (seq->data != NULL) {
        capacity = FBY_MAX(capacity, seq->data->capacity * 2);
    }
    fby_seq_data_t *data = data_create(capacity);
    if (data == NULL) {
        return -ENOMEM;
    }
    if (seq->data != NULL) {
        memcpy(data->hashes, seq->data->hashes, seq->blocks * sizeof(fby_hash_t));
        fby_seq_data_unref(seq->data);
    }
    seq->data = data;
    return 0;
}

static void seq_hash(fby_seq_t *seq, const uint32_t *tokens, size_t blocks)
{
    const fby_hash_t *previous = seq->blocks > 0 ? &seq->data->hashes[seq->blocks - 1] : &seq->root;
    fby_chain_extend(&seq->keyring->hasher, previous, tokens, seq->keyring->block_tokens, blocks,
                     &seq->data->hashes[seq->blocks]);
    seq->blocks += blocks;
}

static int seq_grow(fby_seq_t *seq, const uint32_t *tokens, size_t n)
{
    uint32_t block_tokens = seq->keyring->block_tokens;
    size_t whole = (seq->tail_count + n) / block_tokens;
    if (n > (uint64_t)MOST_BLOCKS * block_tokens || whole > MOST_BLOCKS - seq->blocks) {
        fby_error_set("sequence of %zu more tokens: at most %d blocks are accepted", n, MOST_BLOCKS);
        return -EINVAL;
    }
    int rc = seq_reserve(seq, seq->blocks + whole);
    if (rc != 0) {
        return rc;
    }
    seq->tokens += n;
    if (seq->tail_count > 0 && n > 0) {
        size_t take = FBY_MIN(n, (size_t)(block_tokens - seq->tail_count));
        memcpy(seq->tail + seq->tail_count, tokens, take * sizeof(*tokens));
        seq->tail_count += (uint32_t)take;
        tokens += take;
        n -= take;
        if (seq->tail_count == block_tokens) {
            seq_hash(seq, seq->tail, 1);
            seq->tail_count = 0;
        }
    }
    if (n / block_tokens > 0) {
        seq_hash(seq, tokens, n / block_tokens);
    }
    size_t rest = n % block_tokens;
    if (rest > 0) {
        memcpy(seq->tail, tokens + (n - rest), rest * sizeof(*tokens));
        seq->tail_count = (uint32_t)rest;
    }
    return 0;
}

/* One without tokens. NULL: out of memory. */
static fby_seq_t *seq_create(fby_keyring_t *keyring, uint32_t tail_tokens)
{
    fby_seq_t *seq = calloc(1, sizeof(*seq) + (size_t)tail_tokens * sizeof(uint32_t));
    if (seq != NULL) {
        atomic_init(&seq->refs, 1);
        seq->keyring = fby_keyring_ref(keyring);
        seq->serial = atomic_fetch_add_explicit(&serials, 1, memory_order_relaxed) + 1;
    }
    return seq;
}

int fby_seq_make(fby_keyring_t *keyring, const uint32_t *tokens, size_t n, const fby_ns_part_t *ns, size_t ns_parts,
                 fby_seq_t **out)
{
    fby_seq_t *seq = seq_create(keyring, keyring->block_tokens);
    if (seq == NULL) {
        return -ENOMEM;
    }
    int rc = fby_chain_root(&keyring->hasher, ns, ns_parts, &seq->root);
    if (rc == 0) {
        rc = seq_grow(seq, tokens, n);
    }
    if (rc != 0) {
        fby_seq_unref(seq);
        return rc;
    }
    *out = seq;
    return 0;
}

/* ---- Whose hashes come from elsewhere --------------------------------------------------------------------------- */

int fby_seq_make_hashed(fby_keyring_t *keyring, fby_seq_t **out)
{
    fby_seq_t *seq = seq_create(keyring, 0);
    int rc = seq != NULL ? seq_reserve(seq, 0) : -ENOMEM;
    if (rc != 0) {
        fby_seq_unref(seq);
        return rc;
    }
    *out = seq;
    return 0;
}

int fby_seq_extend_hashed(fby_seq_t *seq, size_t from, const fby_hash_t *hashes, size_t count, size_t tokens)
{
    uint32_t block_tokens = seq->keyring->block_tokens;
    size_t blocks = FBY_MAX(seq->blocks, from + count);
    if (from > seq->blocks || count > MOST_BLOCKS || blocks > MOST_BLOCKS || tokens / block_tokens != blocks ||
        tokens < seq->tokens) {
        fby_error_set("hashes of blocks [%zu, %zu) with %zu tokens: the sequence has %zu blocks of %u tokens", from,
                      from + count, tokens, seq->blocks, block_tokens);
        return -EINVAL;
    }
    int rc = seq_reserve(seq, blocks);
    if (rc != 0) {
        return rc;
    }
    size_t known = seq->blocks - from; /* hashes of blocks that were handed out do not change */
    if (count > known) {
        memcpy(&seq->data->hashes[seq->blocks], hashes + known, (count - known) * sizeof(*hashes));
    }
    seq->blocks = blocks;
    seq->tokens = tokens;
    return 0;
}

uint64_t fby_seq_serial(const fby_seq_t *seq)
{
    return seq->serial;
}

const fby_hash_t *fby_seq_hashes(const fby_seq_t *seq)
{
    return seq->data->hashes;
}

const fby_keyring_t *fby_seq_keyring(const fby_seq_t *seq)
{
    return seq->keyring;
}

int fby_seq_append(fby_seq_t *seq, const uint32_t *tokens, size_t n)
{
    if (seq == NULL || (tokens == NULL && n > 0)) {
        fby_error_set("%s is NULL", seq == NULL ? "seq" : "tokens");
        return -EINVAL;
    }
    return seq_grow(seq, tokens, n);
}

fby_seq_t *fby_seq_ref(fby_seq_t *seq)
{
    if (seq != NULL) {
        atomic_fetch_add_explicit(&seq->refs, 1, memory_order_relaxed);
    }
    return seq;
}

void fby_seq_unref(fby_seq_t *seq)
{
    if (seq != NULL && atomic_fetch_sub_explicit(&seq->refs, 1, memory_order_acq_rel) == 1) {
        if (seq->keyring->gone != NULL) {
            seq->keyring->gone(seq->keyring->gone_arg, seq->serial);
        }
        fby_seq_data_unref(seq->data);
        fby_keyring_unref(seq->keyring);
        free(seq);
    }
}

size_t fby_seq_tokens(const fby_seq_t *seq)
{
    return seq != NULL ? seq->tokens : 0;
}

size_t fby_seq_blocks(const fby_seq_t *seq)
{
    return seq != NULL ? seq->blocks : 0;
}

int fby_seq_key(const fby_seq_t *seq, size_t block, uint32_t group, char *out, size_t capacity)
{
    if (seq == NULL || out == NULL) {
        fby_error_set("%s is NULL", seq == NULL ? "seq" : "out");
        return -EINVAL;
    }
    if (block >= seq->blocks || group >= seq->keyring->groups) {
        fby_error_set("block %zu of group %u: the sequence has %zu whole blocks, the model %u groups", block, group,
                      seq->blocks, seq->keyring->groups);
        return -EINVAL;
    }
    char key[FBY_KEY_TEXT_BYTES];
    fby_key_text(&seq->data->hashes[block], group, key);
    size_t length = strlen(key) + 1;
    if (length > capacity) {
        fby_error_set("a key needs %zu bytes, there are %zu", length, capacity);
        return -ENOSPC;
    }
    memcpy(out, key, length);
    return 0;
}
