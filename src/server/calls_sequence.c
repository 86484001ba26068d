/*
 * calls_sequence.c - hashes that clients send: each block's once, whatever it is used for.
 *
 * A request names its sequence and brings the hashes that the server may lack. When more are lacking (they were never sent,
 * or went for want of room) the answer is RESEND with the number of blocks known, and the client sends from there.
 */
#include <errno.h>

#include "base/log.h"
#include "server/internal.h"

static bool is_sane(const fby_msg_seq_t *about, const fby_request_view_t *request)
{
    return about->id != 0 && about->count == request->count && about->from <= UINT32_MAX - about->count &&
           about->from + about->count <= about->blocks;
}

static fby_keyring_t *keyring_now(fby_runtime_t *runtime)
{
    pthread_mutex_lock(&runtime->lock);
    fby_keyring_t *keyring = fby_keyring_ref(runtime->keyring);
    pthread_mutex_unlock(&runtime->lock);
    return keyring;
}

/* The sequence, new if it has to be. */
static int sequence_get(fby_peer_t *peer, const fby_msg_seq_t *about, fby_kept_sequence_t **out)
{
    *out = fby_sequences_find(&peer->sequences, about->id);
    if (*out != NULL && fby_seq_keyring((*out)->seq)->epoch == about->epoch) {
        return 0;
    }
    fby_keyring_t *keyring = keyring_now(peer->server->runtime);
    int rc = keyring->epoch == about->epoch && *out == NULL ? 0 : FBY_E_STALE;
    if (rc == 0) {
        *out = fby_sequences_add(&peer->sequences, about->id, keyring);
        rc = *out != NULL ? 0 : -ENOMEM;
    } else {
        fby_error_set("sequence of epoch %016llx: %s", (unsigned long long)about->epoch, fby_strerror(rc));
    }
    fby_keyring_unref(keyring);
    return rc;
}

/* Blocks that are still to come have no tokens yet: then the length is that of whole blocks. */
static int sequence_extend(fby_kept_sequence_t *kept, const fby_msg_seq_t *about, const fby_hash_t *hashes)
{
    uint64_t block_tokens = fby_seq_keyring(kept->seq)->block_tokens;
    uint64_t blocks = FBY_MAX(fby_seq_blocks(kept->seq), (size_t)about->from + about->count);
    uint64_t tokens = blocks == about->blocks ? about->tokens : blocks * block_tokens;
    return fby_seq_extend_hashed(kept->seq, about->from, hashes, about->count, tokens);
}

int fby_peer_sequence(fby_peer_t *peer, const fby_msg_seq_t *about, const fby_request_view_t *request, fby_seq_t **out,
                      uint64_t *known)
{
    fby_kept_sequence_t *kept;
    if (!is_sane(about, request)) {
        return FBY_CALL_VIOLATION;
    }
    if (fby_sequence_bytes(about->blocks) > peer->sequences.limit) {
        return fby_call_over(peer, "server.client_sequence_bytes", peer->sequences.limit);
    }
    int rc = sequence_get(peer, about, &kept);
    if (rc != 0) {
        return rc;
    }
    *known = fby_seq_blocks(kept->seq);
    if (about->from > *known) {
        return FBY_MSG_E_RESEND;
    }
    if (*known > about->blocks) { /* not what this client means by the number any more */
        fby_sequences_drop(&peer->sequences, about->id);
        *known = 0;
        return FBY_MSG_E_RESEND;
    }
    rc = sequence_extend(kept, about, request->elements);
    if (rc != 0) {
        return rc;
    }
    fby_sequences_grown(&peer->sequences, kept);
    *known = fby_seq_blocks(kept->seq);
    *out = kept->seq;
    return *known == about->blocks ? 0 : FBY_MSG_E_RESEND;
}

int fby_call_SEQ(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    fby_seq_t *seq;
    return fby_peer_sequence(peer, request->body, request, &seq, &reply->body.numbers.number[0]);
}

int fby_call_SEQ_DROP(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const uint64_t *id = request->elements;
    for (uint32_t i = 0; i < request->count; i++) {
        fby_sequences_drop(&peer->sequences, id[i]);
    }
    return 0;
}
