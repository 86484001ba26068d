/* sequence.c - which hashes the server knows, and the keys they are made with. */
#include <errno.h>
#include <stdlib.h>

#include "client/client.h"

/* Sequences that are gone are told of when there are so many, or so many bytes of their hashes lie at the server. */
enum { DROPS_AT_ONCE = 16, DROP_BYTES = 1 << 20, MOST_TURNS = 4 };

_Static_assert(sizeof(fby_hash_t) == 16, "hashes go over the socket as they are");

/* ---- Keys ------------------------------------------------------------------------------------------------------- */

int fby_client_take_keyring(fby_client_t *client, const fby_msg_keyring_t *said)
{
    fby_hasher_t hasher;
    fby_keyring_t *made;
    if (said->secret_length > sizeof(said->secret)) {
        return FBY_E_FORMAT;
    }
    int rc = fby_hasher_init(&hasher, (fby_hash_kind_t)said->kind, said->fingerprint,
                             said->secret_length > 0 ? said->secret : NULL, said->secret_length);
    if (rc != 0) {
        return rc;
    }
    rc = fby_keyring_adopt(&hasher, said->epoch, client->model.block_tokens, client->model.groups, client->id, &made);
    if (rc != 0) {
        return rc;
    }
    made->gone = fby_client_sequence_gone;
    made->gone_arg = client->cache; /* never freed */
    pthread_mutex_lock(&client->objects_lock);
    fby_keyring_t *old = client->keyring;
    bool is_same = old != NULL && old->epoch == made->epoch;
    client->keyring = is_same ? old : made;
    pthread_mutex_unlock(&client->objects_lock);
    fby_keyring_unref(is_same ? made : old);
    return 0;
}

static bool keys_are_old(fby_client_t *client)
{
    const fby_link_t *link = fby_client_read(client);
    bool is_there = link != NULL && fby_board_is_kept(link->board);
    uint64_t epoch = is_there ? atomic_load_explicit(&link->board->epoch, memory_order_acquire) : 0;
    fby_client_unread(client);
    pthread_mutex_lock(&client->objects_lock);
    bool are_old = is_there && epoch != client->keyring->epoch;
    pthread_mutex_unlock(&client->objects_lock);
    return are_old;
}

int fby_client_keyring(fby_client_t *client, fby_keyring_t **out)
{
    if (keys_are_old(client)) {
        fby_msg_keyring_t said;
        int rc = fby_client_call(client, FBY_REQUEST_KEYRING, NULL, &said, sizeof(said));
        rc = rc >= 0 ? fby_client_take_keyring(client, &said) : rc;
        if (rc < 0 && rc != -ENOTCONN) {
            return rc;
        }
    }
    pthread_mutex_lock(&client->objects_lock);
    *out = fby_keyring_ref(client->keyring);
    pthread_mutex_unlock(&client->objects_lock);
    return 0;
}

int fby_client_check_sequence(const fby_client_t *client, const fby_seq_t *seq)
{
    if (seq == NULL) {
        return fby_call_null("seq");
    }
    if (fby_seq_keyring(seq)->cache_id != client->id) {
        fby_error_set("the sequence belongs to another cache");
        return -EINVAL;
    }
    return 0;
}

int fby_client_seq_create(fby_cache_t *cache, const uint32_t *tokens, size_t n, const fby_ns_part_t *ns,
                          size_t ns_parts, fby_seq_t **out)
{
    fby_client_t *client;
    fby_keyring_t *keyring;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (out == NULL || (tokens == NULL && n > 0) || (ns == NULL && ns_parts > 0)) {
        return fby_call_end(cache, fby_call_null(out == NULL ? "out" : tokens == NULL && n > 0 ? "tokens" : "ns"));
    }
    rc = fby_client_keyring(client, &keyring);
    if (rc == 0) {
        rc = fby_seq_make(keyring, tokens, n, ns, ns_parts, out);
        fby_keyring_unref(keyring);
    }
    return fby_call_end(cache, rc);
}

/* ---- Gone ------------------------------------------------------------------------------------------------------- */

static void queue_drop(fby_client_t *client, uint64_t serial)
{
    pthread_mutex_lock(&client->objects_lock);
    uint64_t known = client->known.entry != NULL ? fby_handles_remove(&client->known, serial) : 0;
    if (known > 0 && client->drop_count == client->drop_room) {
        size_t room = client->drop_room * 2 + DROPS_AT_ONCE;
        uint64_t *larger = realloc(client->drops, room * sizeof(*larger));
        client->drops = larger != NULL ? larger : client->drops;
        client->drop_room = larger != NULL ? room : client->drop_room;
    }
    if (known > 0 && client->drop_count < client->drop_room) {
        client->drops[client->drop_count++] = serial;
        client->drop_bytes += known * sizeof(fby_hash_t);
    }
    pthread_mutex_unlock(&client->objects_lock);
}

/* Sequences outlive the cache: this goes inside like a call, but leaves no detail behind. */
void fby_client_sequence_gone(void *arg, uint64_t serial)
{
    fby_cache_t *cache = arg;
    if (fby_cache_is_forked(cache)) {
        return;
    }
    atomic_fetch_add(&cache->users, 1);
    if (!atomic_load(&cache->closing)) {
        queue_drop(cache->client, serial);
    }
    (void)fby_call_end(cache, 0);
}

void fby_client_forget_sequences(fby_client_t *client)
{
    pthread_mutex_lock(&client->objects_lock);
    fby_handles_free(&client->known);
    client->drop_count = 0;
    client->drop_bytes = 0;
    pthread_mutex_unlock(&client->objects_lock);
}

/* One message of them; false: there are none. Under the lock. */
static bool send_drops(fby_client_t *client, bool now)
{
    uint64_t serials[FBY_MSG_DROPS];
    fby_answer_view_t answer;
    pthread_mutex_lock(&client->objects_lock);
    bool due =
        client->drop_count > 0 && (now || client->drop_count >= DROPS_AT_ONCE || client->drop_bytes >= DROP_BYTES);
    size_t n = due ? FBY_MIN(client->drop_count, (size_t)FBY_MSG_DROPS) : 0;
    client->drop_count -= n;
    if (n > 0) {
        memcpy(serials, client->drops + client->drop_count, n * sizeof(*serials));
    }
    client->drop_bytes = client->drop_count > 0 ? client->drop_bytes : 0;
    pthread_mutex_unlock(&client->objects_lock);
    return n > 0 && fby_client_ask(client, FBY_REQUEST_SEQ_DROP, NULL, serials, (uint32_t)n, &answer, NULL) >= 0;
}

/* ---- Known ------------------------------------------------------------------------------------------------------ */

static size_t known_blocks(fby_client_t *client, const fby_seq_t *seq)
{
    pthread_mutex_lock(&client->objects_lock);
    uint64_t known = fby_table_get(&client->known, fby_seq_serial(seq));
    pthread_mutex_unlock(&client->objects_lock);
    return known > 0 ? FBY_MIN((size_t)known - 1, fby_seq_blocks(seq)) : 0;
}

/* Without memory it is not noted, and sent again next time. */
static void note_known(fby_client_t *client, const fby_seq_t *seq, uint64_t blocks)
{
    pthread_mutex_lock(&client->objects_lock);
    (void)fby_table_set(&client->known, fby_seq_serial(seq), blocks + 1);
    pthread_mutex_unlock(&client->objects_lock);
}

/* The hashes [from, to), of which the server has those before. */
static fby_msg_seq_t describe(const fby_seq_t *seq, size_t from, size_t to)
{
    const fby_keyring_t *keyring = fby_seq_keyring(seq);
    bool is_all = to == fby_seq_blocks(seq);
    return (fby_msg_seq_t){
        .id = fby_seq_serial(seq),
        .epoch = keyring->epoch,
        .tokens = is_all ? fby_seq_tokens(seq) : (uint64_t)to * keyring->block_tokens,
        .blocks = (uint32_t)to,
        .from = (uint32_t)from,
        .count = (uint32_t)(to - from),
    };
}

/* One request with hashes. What the server then knows is noted. */
static int ask_piece(fby_client_t *client, fby_request_t type, const void *body, const fby_msg_seq_t *about,
                     const fby_seq_t *seq, fby_answer_view_t *answer)
{
    const fby_hash_t *hashes = about->count > 0 ? fby_seq_hashes(seq) + about->from : NULL;
    int rc = fby_client_ask(client, type, body, hashes, about->count, answer, NULL);
    if (rc == FBY_MSG_E_RESEND) {
        note_known(client, seq, FBY_MIN(((const fby_msg_numbers_t *)answer->body)->number[0], fby_seq_blocks(seq)));
    } else if (rc >= 0) {
        note_known(client, seq, about->blocks);
    }
    return rc;
}

/* Until what is left fits in one message. */
static int send_ahead(fby_client_t *client, const fby_seq_t *seq, fby_answer_view_t *answer)
{
    int rc = 0;
    for (size_t known = known_blocks(client, seq); rc >= 0 && fby_seq_blocks(seq) - known > FBY_MSG_HASHES;
         known += FBY_MSG_HASHES) {
        const fby_msg_seq_t about = describe(seq, known, known + FBY_MSG_HASHES);
        rc = ask_piece(client, FBY_REQUEST_SEQ, &about, &about, seq, answer);
    }
    return rc;
}

int fby_client_ask_sequence(fby_client_t *client, fby_request_t type, const void *body, fby_msg_seq_t *about,
                            const fby_seq_t *seq, fby_answer_view_t *answer)
{
    int rc = FBY_MSG_E_RESEND;
    (void)send_drops(client, false);
    for (int turn = 0; turn < MOST_TURNS; turn++) {
        rc = send_ahead(client, seq, answer);
        if (rc >= 0) {
            size_t blocks = fby_seq_blocks(seq), known = known_blocks(client, seq);
            *about = describe(seq, known, blocks);
            rc = ask_piece(client, type, body, about, seq, answer);
        }
        /* a limit may be that of sequences which are gone here and not yet there */
        if (rc != FBY_MSG_E_RESEND && (rc >= 0 || rc == -ENOTCONN || !send_drops(client, true))) {
            return rc;
        }
    }
    if (rc == FBY_MSG_E_RESEND) {
        fby_client_lose(client, "it forgets sequences");
        rc = -ENOTCONN;
    }
    return rc;
}
