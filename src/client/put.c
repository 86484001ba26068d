/* put.c - calls on puts. Trailers are sealed here, in the caller's thread: the server never touches a payload. */
#include <errno.h>
#include <unistd.h>

#include "client/client.h"
#include "stores/object.h"

typedef struct put_range {
    uint64_t from, to;
    uint64_t *first_missing, *staged_from, *staged_to;
} put_range_t;

static void range_fill(const put_range_t *range, uint64_t missing, uint64_t from, uint64_t to)
{
    uint64_t *outs[] = {range->first_missing, range->staged_from, range->staged_to};
    const uint64_t values[] = {missing, from, to};
    for (size_t i = 0; i < FBY_ARRAY_LEN(outs); i++) {
        if (outs[i] != NULL) {
            *outs[i] = values[i];
        }
    }
}

/* ---- Records ---------------------------------------------------------------------------------------------------- */

static fby_object_t *put_of(const fby_client_t *client, fby_put_t put)
{
    fby_object_t *object = (fby_object_t *)(uintptr_t)fby_table_get(&client->objects, put);
    return object != NULL && object->record != NULL ? object : NULL;
}

/* Marks the put, so that nobody else changes it meanwhile. former_too: also one of a connection that is no more.
   FBY_E_STALE, FBY_E_STATE. */
static int put_claim(fby_client_t *client, fby_put_t put, bool former_too, fby_put_record_t **record)
{
    int rc = FBY_E_STALE;
    pthread_mutex_lock(&client->objects_lock);
    const fby_object_t *object = put_of(client, put);
    if (object != NULL && (former_too || object->link == atomic_load(&client->link))) {
        rc = object->record->busy ? FBY_E_STATE : 0;
    }
    if (rc == 0) {
        object->record->busy = true;
        *record = object->record;
    }
    pthread_mutex_unlock(&client->objects_lock);
    return rc;
}

/* Lets it go; a record of another range takes the place of the former one. */
static void put_settle(fby_client_t *client, fby_put_t put, fby_put_record_t *next)
{
    pthread_mutex_lock(&client->objects_lock);
    fby_object_t *object = put_of(client, put);
    fby_put_record_t *old = next;
    if (object != NULL) {
        object->record->busy = false;
        if (next != NULL) {
            old = object->record;
            object->record = next;
        }
    }
    pthread_mutex_unlock(&client->objects_lock);
    fby_put_record_free(old);
}

static fby_put_record_t *record_create(const fby_seq_t *seq)
{
    fby_core_seq_t view;
    if (fby_seq_view(seq, false, &view) != 0) {
        return NULL;
    }
    fby_put_record_t *record = fby_put_record_create(&view, fby_seq_keyring(seq));
    fby_seq_data_unref(view.ref);
    return record;
}

static void record_fill(fby_put_record_t *record, const put_range_t *range, const fby_msg_numbers_t *said)
{
    uint64_t missing = said->number[1], from = said->number[2], to = said->number[3];
    record->from = (uint32_t)from;
    record->to = (uint32_t)to;
    record->end = (uint32_t)(to > from ? to : FBY_MIN(missing, range->to));
}

/* ---- Begin ------------------------------------------------------------------------------------------------------ */

/* Asks for a range. A new put (*put == 0) is remembered with the record and becomes *put. */
static int put_ask(fby_client_t *client, const fby_seq_t *seq, const put_range_t *range, fby_put_record_t *record,
                   fby_put_t *put, fby_msg_numbers_t *said)
{
    fby_answer_view_t answer;
    fby_msg_put_t about = {.put = *put, .from = range->from, .to = range->to};
    bool is_new = *put == 0;
    pthread_mutex_lock(&client->lock);
    int rc = -ENOTCONN;
    if (!is_new || fby_client_reach(client)) {
        rc = fby_client_ask_sequence(client, FBY_REQUEST_PUT_BEGIN, &about, &about.seq, seq, &answer);
    }
    if (rc >= 0) {
        *said = *(const fby_msg_numbers_t *)answer.body;
        record_fill(record, range, said);
        rc = is_new ? fby_client_keep(client, said->number[0], record) : 0;
        if (rc != 0) {
            const fby_msg_object_t end = {.handle = said->number[0]};
            (void)fby_client_ask(client, FBY_REQUEST_PUT_END, &end, NULL, 0, &answer, NULL);
        }
    }
    pthread_mutex_unlock(&client->lock);
    if (rc == 0 && is_new) {
        *put = said->number[0];
    }
    return rc;
}

/* *put == 0: a new one; else one that is claimed, and let go here. */
static int put_stage(fby_client_t *client, const fby_seq_t *seq, const put_range_t *range, fby_put_t *put)
{
    fby_msg_numbers_t said = {{0}};
    bool is_new = *put == 0;
    fby_put_record_t *record = record_create(seq);
    int rc = record != NULL ? put_ask(client, seq, range, record, put, &said) : -ENOMEM;
    if (rc != 0) {
        fby_put_record_free(record);
        record = NULL;
    }
    if (!is_new) {
        put_settle(client, *put, record);
    }
    if (rc == 0) {
        range_fill(range, said.number[1], said.number[2], said.number[3]);
    }
    return rc;
}

int fby_client_put_begin(fby_cache_t *cache, fby_seq_t *seq, uint64_t from_block, uint64_t to_block, fby_put_t *out,
                         uint64_t *first_missing, uint64_t *staged_from, uint64_t *staged_to)
{
    fby_client_t *client;
    const put_range_t range = {from_block, to_block, first_missing, staged_from, staged_to};
    fby_put_t put = 0;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    rc = out == NULL ? fby_call_null("out") : fby_client_check_sequence(client, seq);
    rc = rc == 0 ? fby_call_range(seq, range.from, range.to) : rc;
    rc = rc == 0 ? put_stage(client, seq, &range, &put) : rc;
    if (rc == -ENOTCONN) {
        put = fby_away_make(client, FBY_AWAY_PUT);
        range_fill(&range, 0, from_block, from_block);
        rc = 0;
    }
    if (rc == 0) {
        *out = put; // NOLINT(clang-analyzer-core.NullDereference): checked above, rc says so
    }
    return fby_call_end(cache, rc);
}

static int put_next(fby_client_t *client, fby_put_t put, fby_seq_t *seq, const put_range_t *range)
{
    fby_put_record_t *claimed;
    int rc = put_claim(client, put, false, &claimed);
    return fby_client_about(rc == 0 ? put_stage(client, seq, range, &put) : rc, "put", put);
}

int fby_client_put_next(fby_cache_t *cache, fby_put_t put, fby_seq_t *seq, uint64_t from_block, uint64_t to_block,
                        uint64_t *first_missing, uint64_t *staged_from, uint64_t *staged_to)
{
    fby_client_t *client;
    const put_range_t range = {from_block, to_block, first_missing, staged_from, staged_to};
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    rc = put == 0 ? fby_call_about(FBY_E_STALE, "put", put) : fby_client_check_sequence(client, seq);
    rc = rc == 0 ? fby_call_range(seq, range.from, range.to) : rc;
    if (rc == 0 && fby_away_is(put, FBY_AWAY_PUT)) {
        range_fill(&range, 0, from_block, from_block);
        return fby_call_end(cache, 0);
    }
    rc = rc == 0 ? put_next(client, put, seq, &range) : rc;
    return fby_call_end(cache, rc);
}

/* ---- Slots ------------------------------------------------------------------------------------------------------ */

/* Up to FBY_MSG_PLACES of them: as they are to `places`, or as addresses to `out`. */
static int places_piece(fby_client_t *client, const fby_msg_object_t *about, uint64_t *places, void **out)
{
    fby_answer_view_t answer;
    pthread_mutex_lock(&client->lock);
    int rc = fby_client_ask(client, FBY_REQUEST_PUT_PLACES, about, NULL, 0, &answer, NULL);
    const fby_link_t *link = atomic_load(&client->link);
    rc = rc >= 0 && answer.count != about->to - about->from ? FBY_E_FORMAT : rc;
    for (uint32_t i = 0; rc >= 0 && i < answer.count; i++) {
        uint64_t place = ((const uint64_t *)answer.elements)[i];
        if (places != NULL) {
            places[i] = place;
        } else {
            out[i] = fby_link_address(link, place);
        }
    }
    pthread_mutex_unlock(&client->lock);
    return FBY_MIN(rc, 0);
}

static int put_places(fby_client_t *client, fby_put_t put, uint32_t group, uint64_t from, uint64_t to, uint64_t *places,
                      void **out)
{
    int rc = 0;
    for (uint64_t at = from; rc == 0 && at < to;) {
        uint64_t end = FBY_MIN(to, at + FBY_MSG_PLACES);
        const fby_msg_object_t about = {.handle = put, .from = at, .to = end, .group = group};
        rc = places_piece(client, &about, places != NULL ? places + (at - from) : NULL,
                          out != NULL ? out + (at - from) : NULL);
        at = end;
    }
    return fby_client_about(rc, "put", put);
}

static int group_check(const fby_client_t *client, uint32_t group, uint64_t from, uint64_t to)
{
    if (group >= client->model.groups || from > to || to >= FBY_NONE) {
        fby_error_set("blocks [%llu, %llu) of group %u: the model has %u groups", (unsigned long long)from,
                      (unsigned long long)to, group, client->model.groups);
        return -EINVAL;
    }
    return 0;
}

int fby_client_put_slots(fby_cache_t *cache, fby_put_t put, uint32_t group, uint64_t from, uint64_t to, void **out)
{
    fby_client_t *client;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    rc = group_check(client, group, from, to);
    if (rc == 0 && out == NULL && to > from) {
        rc = fby_call_null("out");
    } else if (rc == 0 && fby_away_is(put, FBY_AWAY_PUT)) {
        for (uint64_t i = 0; out != NULL && i < to - from; i++) {
            out[i] = NULL;
        }
    } else if (rc == 0) {
        rc = put_places(client, put, group, from, to, NULL, out);
    }
    return fby_call_end(cache, rc);
}

int fby_client_put_places(fby_cache_t *cache, fby_put_t put, uint32_t group, uint64_t from, uint64_t to, uint64_t *out)
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
    rc = group_check(client, group, from, to);
    if (rc == 0 && fby_away_is(put, FBY_AWAY_PUT)) {
        for (uint64_t i = 0; out != NULL && i < to - from; i++) {
            out[i] = FBY_NO_PLACE;
        }
    } else if (rc == 0) {
        rc = put_places(client, put, group, from, to, out, NULL);
    }
    return fby_call_end(cache, rc);
}

/* ---- Commit ----------------------------------------------------------------------------------------------------- */

enum { SEAL_BLOCKS = 256 };

/* Trailers of one group's blocks [from, to), to - from <= SEAL_BLOCKS. */
static int seal_step(fby_client_t *client, const fby_link_t *link, const fby_put_record_t *record, fby_put_t put,
                     fby_object_id_t *id, uint32_t from, uint32_t to)
{
    uint64_t places[SEAL_BLOCKS] = {0};
    const fby_msg_object_t about = {.handle = put, .from = from, .to = to, .group = id->group};
    uint64_t slot_bytes = id->payload_bytes + FBY_TRAILER_BYTES, bytes = link->welcome.pool.bytes;
    int rc = places_piece(client, &about, places, NULL);
    for (uint32_t i = from; i < to && rc == 0; i++) {
        uint64_t place = places[i - from];
        if (place < bytes && bytes - place >= slot_bytes) {
            id->hash = record->hashes[i];
            fby_object_seal(link->pool + place, id, link->welcome.verify != 0);
        }
    }
    return rc;
}

/* Writes the trailers of what is staged below `valid`. */
static int put_seal(fby_client_t *client, const fby_link_t *link, const fby_put_record_t *record, fby_put_t put,
                    uint32_t valid)
{
    const fby_model_t *model = &client->model;
    int rc = 0;
    for (uint32_t group = 0; group < model->groups; group++) {
        uint32_t from, to;
        fby_put_seal_range(record, model->group[group].trailing, valid, &from, &to);
        fby_object_id_t id = {
            .group = group,
            .payload_bytes = model->group[group].payload_bytes,
            .segment_bytes = FBY_SEGMENT_BYTES,
        };
        memcpy(id.fingerprint, record->fingerprint, sizeof(id.fingerprint));
        for (uint32_t at = from; at < to && rc == 0; at += SEAL_BLOCKS) {
            rc = seal_step(client, link, record, put, &id, at, FBY_MIN(to, at + SEAL_BLOCKS));
        }
    }
    return rc;
}

static int put_commit(fby_client_t *client, fby_put_t put, uint64_t valid_tokens, fby_put_result_t *result)
{
    fby_put_record_t *record;
    int rc = put_claim(client, put, false, &record);
    if (rc != 0) {
        return rc;
    }
    const fby_msg_object_t about = {.handle = put, .from = valid_tokens};
    uint64_t valid = FBY_MIN(valid_tokens / client->model.block_tokens, (uint64_t)FBY_NONE - 1);
    fby_link_t *link = fby_client_link_of(client, put);
    rc = put_seal(client, link, record, put, (uint32_t)valid);
    rc = rc == 0 ? fby_client_call(client, FBY_REQUEST_PUT_COMMIT, &about, result, sizeof(*result)) : rc;
    fby_link_unref(client, link);
    put_settle(client, put, NULL);
    return FBY_MIN(rc, 0);
}

int fby_client_put_commit(fby_cache_t *cache, fby_put_t put, uint64_t valid_tokens, fby_put_result_t *result)
{
    fby_client_t *client;
    fby_put_result_t full = {.size = sizeof(full)};
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (result != NULL && fby_call_sized("result", result) != 0) {
        return fby_call_end(cache, -EINVAL);
    }
    if (!fby_away_is(put, FBY_AWAY_PUT)) {
        rc = fby_client_about(put_commit(client, put, valid_tokens, &full), "put", put);
    }
    if (rc == 0 && result != NULL) {
        fby_call_output(result, &full, sizeof(full));
    }
    return fby_call_end(cache, rc);
}

/* ---- After ------------------------------------------------------------------------------------------------------ */

static int put_stored(fby_client_t *client, fby_put_t put, fby_msg_numbers_t *counts)
{
    const fby_msg_object_t about = {.handle = put};
    return FBY_MIN(fby_client_call(client, FBY_REQUEST_PUT_STORED, &about, counts, sizeof(*counts)), 0);
}

static int put_wait(fby_client_t *client, fby_put_t put, uint64_t timeout_ns, fby_msg_numbers_t *counts)
{
    uint64_t deadline = fby_client_deadline(timeout_ns);
    fby_link_t *link = NULL;
    bool is_late = timeout_ns == 0;
    int fd = -1, rc;
    while ((rc = put_stored(client, put, counts)) == -ETIMEDOUT && !is_late) {
        rc = fd < 0 ? fby_client_event(client, FBY_EVENT_OF_PUT, put, &fd, &link) : 0;
        rc = rc == 0 ? fby_client_await(client, link, fd, deadline) : rc;
        is_late = rc == -ETIMEDOUT;
        if (rc != 0 && !is_late) {
            break;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    fby_link_unref(client, link);
    return fby_client_about(rc, "put", put);
}

int fby_client_put_wait_store(fby_cache_t *cache, fby_put_t put, double timeout_s, uint64_t *stored, uint64_t *failed)
{
    fby_client_t *client;
    fby_msg_numbers_t counts = {{0}};
    uint64_t timeout_ns;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (!fby_call_seconds("timeout_s", timeout_s, true, &timeout_ns)) {
        return fby_call_end(cache, -EINVAL);
    }
    if (!fby_away_is(put, FBY_AWAY_PUT)) {
        rc = put_wait(client, put, timeout_ns, &counts);
    }
    if (rc == 0 && stored != NULL) {
        *stored = counts.number[0];
    }
    if (rc == 0 && failed != NULL) {
        *failed = counts.number[1];
    }
    return fby_call_end(cache, rc);
}

int fby_client_put_event_fd(fby_cache_t *cache, fby_put_t put)
{
    fby_client_t *client;
    int fd = -1;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (fby_away_is(put, FBY_AWAY_PUT)) {
        return fby_call_end(cache, fby_away_event_fd());
    }
    rc = fby_client_event(client, FBY_EVENT_OF_PUT, put, &fd, NULL);
    return fby_call_end(cache, rc == 0 ? fd : fby_client_about(rc, "put", put));
}

/* ---- End -------------------------------------------------------------------------------------------------------- */

/* Of a former connection: this server may fence its slots until it hears that nobody here writes to them any more. */
static int end_former(fby_client_t *client, fby_put_t put)
{
    fby_link_t *former = fby_client_link_of(client, put);
    int rc = FBY_E_STALE;
    if (former != NULL) {
        pthread_mutex_lock(&client->lock);
        rc = fby_client_end_former(client, former, put);
        pthread_mutex_unlock(&client->lock);
    }
    fby_link_unref(client, former);
    fby_client_forget(client, put, true);
    return rc;
}

static int put_release(fby_client_t *client, fby_put_t put)
{
    fby_put_record_t *record;
    const fby_msg_object_t about = {.handle = put};
    int rc = put_claim(client, put, true, &record);
    if (rc != 0) {
        return rc;
    }
    if (fby_client_is_former(client, put)) {
        return end_former(client, put);
    }
    rc = FBY_MIN(fby_client_call(client, FBY_REQUEST_PUT_END, &about, NULL, 0), 0);
    if (rc == -ENOTCONN) { /* it may not have heard of it */
        return end_former(client, put);
    }
    put_settle(client, put, NULL);
    if (rc == 0 || rc == FBY_E_STALE) {
        fby_client_forget(client, put, true);
    }
    return rc;
}

int fby_client_put_release(fby_cache_t *cache, fby_put_t put)
{
    fby_client_t *client;
    int rc = fby_client_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (!fby_away_is(put, FBY_AWAY_PUT)) {
        rc = fby_client_about(put_release(client, put), "put", put);
    }
    return fby_call_end(cache, rc);
}

int fby_client_put_abort(fby_cache_t *cache, fby_put_t put)
{
    return fby_client_put_release(cache, put);
}
