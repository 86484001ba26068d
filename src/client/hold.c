/* hold.c - calls on holds. */
#include <errno.h>

#include "client/client.h"
#include "core/handle.h"

/* ---- Lookup ----------------------------------------------------------------------------------------------------- */

static int lookup(fby_client_t *client, fby_seq_t *seq, unsigned flags, fby_hold_t *hold, uint64_t *tokens)
{
    fby_answer_view_t answer;
    fby_msg_lookup_t about = {.flags = flags};
    uint64_t length = 0;
    fby_hold_t made = 0;
    int rc = -ENOTCONN;
    pthread_mutex_lock(&client->lock);
    if (fby_client_reach(client)) {
        rc = fby_client_ask_sequence(client, FBY_REQUEST_LOOKUP, &about, &about.seq, seq, &answer);
    }
    if (rc >= 0) {
        const fby_msg_numbers_t *said = answer.body;
        made = (flags & FBY_LOOKUP_ADVISORY) != 0 ? 0 : said->number[0];
        length = said->number[1];
        rc = fby_client_keep_hold(client, made);
    }
    pthread_mutex_unlock(&client->lock);
    if (rc == -ENOTCONN) {
        made = (flags & FBY_LOOKUP_ADVISORY) != 0 ? 0 : fby_away_make(client, FBY_AWAY_HOLD);
        rc = 0;
    }
    if (rc == 0 && hold != NULL) {
        *hold = made;
    }
    if (rc == 0 && tokens != NULL) {
        *tokens = length;
    }
    return rc;
}

int fby_client_lookup(fby_cache_t *cache, fby_seq_t *seq, unsigned flags, fby_hold_t *hold, uint64_t *tokens)
{
    fby_client_t *client;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if ((flags & ~(unsigned)FBY_LOOKUP_ADVISORY) != 0) {
        fby_error_set("flags is 0x%x; accepted: 0 or FBY_LOOKUP_ADVISORY", flags);
        rc = -EINVAL;
    } else if (hold == NULL && !(flags & FBY_LOOKUP_ADVISORY)) {
        rc = fby_call_null("hold");
    }
    rc = rc == 0 ? fby_client_check_sequence(client, seq) : rc;
    rc = rc == 0 ? lookup(client, seq, flags, hold, tokens) : rc;
    return fby_call_end(cache, rc);
}

/* ---- Looking ---------------------------------------------------------------------------------------------------- */

static int hold_info(fby_client_t *client, fby_hold_t hold, fby_msg_numbers_t *info)
{
    const fby_msg_object_t about = {.handle = hold};
    *info = (fby_msg_numbers_t){{0}};
    return fby_away_is(hold, FBY_AWAY_HOLD)
               ? 0
               : fby_client_call_object(client, FBY_REQUEST_HOLD_INFO, &about, "hold", info, sizeof(*info));
}

int fby_client_hold_info(fby_cache_t *cache, fby_hold_t hold, uint64_t *tokens, uint64_t *blocks, uint64_t *first_block)
{
    fby_client_t *client;
    fby_msg_numbers_t info;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    rc = hold_info(client, hold, &info);
    uint64_t *outs[] = {tokens, blocks, first_block};
    for (size_t i = 0; rc == 0 && i < FBY_ARRAY_LEN(outs); i++) {
        if (outs[i] != NULL) {
            *outs[i] = info.number[i];
        }
    }
    return fby_call_end(cache, rc);
}

static int range_wrong(const fby_client_t *client, uint32_t group, uint64_t from, uint64_t to, uint64_t first,
                       uint64_t end)
{
    fby_error_set("blocks [%llu, %llu) of group %u: the hold has blocks [%llu, %llu), the model %u groups",
                  (unsigned long long)from, (unsigned long long)to, group, (unsigned long long)first,
                  (unsigned long long)end, client->model.groups);
    return -EINVAL;
}

/* What is asked for in several messages is checked as a whole first: nothing is written unless all of it is. */
static int range_check(fby_client_t *client, fby_hold_t hold, uint32_t group, uint64_t from, uint64_t to)
{
    fby_msg_numbers_t info;
    int rc = hold_info(client, hold, &info);
    if (rc == 0 && (group >= client->model.groups || from > to || to > info.number[1] || from < info.number[2])) {
        rc = range_wrong(client, group, from, to, info.number[2], info.number[1]);
    }
    return rc;
}

/* Places of [from, to), in pieces: as they are to `places`, or as addresses to `out`. */
static int hold_places(fby_client_t *client, fby_hold_t hold, uint32_t group, uint64_t from, uint64_t to,
                       uint64_t *places, const void **out)
{
    bool is_away = fby_away_is(hold, FBY_AWAY_HOLD);
    int rc = to - from > FBY_MSG_PLACES || from > to || is_away ? range_check(client, hold, group, from, to) : 0;
    for (uint64_t at = from; rc == 0 && !is_away && (at < to || at == from);) {
        fby_answer_view_t answer;
        uint64_t end = FBY_MIN(to, at + FBY_MSG_PLACES);
        const fby_msg_object_t about = {.handle = hold, .from = at, .to = end, .group = group};
        pthread_mutex_lock(&client->lock);
        rc = fby_client_ask(client, FBY_REQUEST_HOLD_PLACES, &about, NULL, 0, &answer, NULL);
        const fby_link_t *link = atomic_load(&client->link);
        rc = rc >= 0 && answer.count != end - at ? FBY_E_FORMAT : rc;
        for (uint64_t i = at; rc >= 0 && i < end; i++) {
            uint64_t place = ((const uint64_t *)answer.elements)[i - at];
            if (places != NULL) {
                places[i - from] = place;
            } else {
                out[i - from] = fby_link_address(link, place);
            }
        }
        pthread_mutex_unlock(&client->lock);
        at = FBY_MAX(end, at + 1);
        rc = FBY_MIN(rc, 0);
    }
    return fby_client_about(rc, "hold", hold);
}

int fby_client_hold_slots(fby_cache_t *cache, fby_hold_t hold, uint32_t group, uint64_t from, uint64_t to,
                          const void **out)
{
    fby_client_t *client;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (out == NULL && to > from) {
        rc = range_check(client, hold, group, from, to);
        return fby_call_end(cache, rc == 0 ? fby_call_null("out") : rc);
    }
    return fby_call_end(cache, hold_places(client, hold, group, from, to, NULL, out));
}

int fby_client_hold_places(fby_cache_t *cache, fby_hold_t hold, uint32_t group, uint64_t from, uint64_t to,
                           uint64_t *out)
{
    fby_client_t *client;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (from > to || to - from > UINT32_MAX || (out == NULL && to > from)) {
        fby_error_set("blocks [%llu, %llu) into %p: accepted are a rising range and an address",
                      (unsigned long long)from, (unsigned long long)to, (const void *)out);
        return fby_call_end(cache, -EINVAL);
    }
    uint64_t none;
    return fby_call_end(cache, hold_places(client, hold, group, from, to, out != NULL ? out : &none, NULL));
}

/* ---- Changing --------------------------------------------------------------------------------------------------- */

int fby_client_hold_trim(fby_cache_t *cache, fby_hold_t hold, uint64_t tokens, uint64_t *now_tokens)
{
    fby_client_t *client;
    fby_msg_numbers_t length = {{0}};
    const fby_msg_object_t about = {.handle = hold, .from = tokens};
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (!fby_away_is(hold, FBY_AWAY_HOLD)) {
        rc = fby_client_call_object(client, FBY_REQUEST_HOLD_TRIM, &about, "hold", &length, sizeof(length));
    }
    if (rc == 0 && now_tokens != NULL) {
        *now_tokens = length.number[0];
    }
    return fby_call_end(cache, rc);
}

int fby_client_hold_readers(fby_cache_t *cache, fby_hold_t hold, uint32_t add)
{
    fby_client_t *client;
    const fby_msg_object_t about = {.handle = hold, .from = add};
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (!fby_away_is(hold, FBY_AWAY_HOLD)) {
        rc = fby_client_call_object(client, FBY_REQUEST_HOLD_READERS, &about, "hold", NULL, 0);
        if (rc == 0) {
            fby_client_add_readers(client, hold, add);
        }
    }
    return fby_call_end(cache, rc);
}

/* A hold of a server that is gone ends here alone: its memory stayed mapped until now. */
static int hold_release(fby_client_t *client, fby_hold_t hold)
{
    const fby_msg_object_t about = {.handle = hold};
    if (fby_away_is(hold, FBY_AWAY_HOLD)) {
        return 0;
    }
    /* what another kind of handle stands for is not to be forgotten */
    bool is_other = fby_handle_type(hold) != FBY_HANDLE_HOLD;
    int rc = is_other || fby_client_is_former(client, hold)
                 ? fby_call_about(FBY_E_STALE, "hold", hold)
                 : fby_client_call_object(client, FBY_REQUEST_HOLD_RELEASE, &about, "hold", NULL, 0);
    if (!is_other && (rc == 0 || rc == FBY_E_STALE)) {
        fby_client_forget(client, hold, rc == FBY_E_STALE && !fby_client_is_former(client, hold));
    }
    return rc;
}

int fby_client_hold_release(fby_cache_t *cache, fby_hold_t hold)
{
    fby_client_t *client;
    int rc = fby_client_begin(cache, &client);
    return rc == 0 ? fby_call_end(cache, hold_release(client, hold)) : rc;
}
