/* group.c - ranks over the server: joining, the leader's messages, reports and verdicts, what a rank was granted. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/client.h"
#include "forebay/group.h"

/* The client of a connected cache, inside. FBY_E_STATE otherwise. */
static int group_begin(fby_cache_t *cache, fby_client_t **client)
{
    if (cache == NULL) {
        (void)fby_call_null("cache");
        return -EINVAL;
    }
    if (cache->calls != &fby_client_calls) {
        fby_error_set("the cache is not one of fby_connect");
        return FBY_E_STATE;
    }
    return fby_client_begin(cache, client);
}

static int bytes_check(const void *bytes, size_t n)
{
    if (bytes == NULL && n > 0) {
        return fby_call_null("bytes");
    }
    if (n > FBY_MSG_BYTES) {
        fby_error_set("n is %zu; accepted: at most %d bytes", n, FBY_MSG_BYTES);
        return -EINVAL;
    }
    return 0;
}

void fby_client_drop_stash(fby_client_t *client)
{
    free(client->stash);
    client->stash = NULL;
}

/* ---- Asking until there is something ---------------------------------------------------------------------------- */

/* What is asked for: -EAGAIN until it is there. */
typedef struct group_want {
    fby_request_t type;
    const void *body;
    void *bytes; /* where elements go; NULL: nowhere */
    size_t capacity;
    size_t *n;
    uint64_t *incarnation; /* joined: NULL otherwise */
} group_want_t;

/* A message leaves the server once. What does not fit waits here for a caller with more room. */
static int stash(fby_client_t *client, const fby_answer_view_t *answer)
{
    client->stash = malloc(answer->count);
    if (client->stash == NULL) {
        return -ENOMEM;
    }
    memcpy(client->stash, answer->elements, answer->count);
    client->stash_bytes = answer->count;
    return 0;
}

static int take_bytes(const group_want_t *want, const void *bytes, size_t n)
{
    *want->n = n;
    if (n > want->capacity) {
        fby_error_set("capacity is %zu; accepted: %zu or more", want->capacity, n);
        return -ENOSPC;
    }
    if (n > 0) {
        memcpy(want->bytes, bytes, n);
    }
    return 0;
}

static int take_stash(fby_client_t *client, const group_want_t *want)
{
    int rc = take_bytes(want, client->stash, client->stash_bytes);
    if (rc == 0) {
        free(client->stash);
        client->stash = NULL;
    }
    return rc;
}

static int take_answer(fby_client_t *client, const group_want_t *want, const fby_answer_view_t *answer)
{
    if (want->incarnation != NULL) {
        *want->incarnation = ((const fby_msg_numbers_t *)answer->body)->number[0];
    }
    if (want->n == NULL) {
        return 0;
    }
    if (want->type == FBY_REQUEST_GROUP_RECEIVE && answer->code == FBY_GROUP_LOST) {
        *want->n = ((const fby_msg_numbers_t *)answer->body)->number[0];
        fby_error_set("group: rank %zu is lost", *want->n);
        return -ECONNRESET;
    }
    int rc = take_bytes(want, answer->elements, answer->count);
    if (rc == -ENOSPC && want->type == FBY_REQUEST_GROUP_RECEIVE) {
        int kept = stash(client, answer);
        rc = kept == 0 ? rc : kept;
    }
    return rc;
}

static int group_ask(fby_client_t *client, const group_want_t *want)
{
    fby_answer_view_t answer;
    int rc;
    pthread_mutex_lock(&client->lock);
    if (want->type == FBY_REQUEST_GROUP_RECEIVE && client->stash != NULL) {
        rc = take_stash(client, want);
    } else {
        rc = fby_client_ask(client, want->type, want->body, NULL, 0, &answer, NULL);
        rc = rc >= 0 ? take_answer(client, want, &answer) : rc;
    }
    pthread_mutex_unlock(&client->lock);
    return rc;
}

/* Its descriptor is asked for before the question, so that nothing is missed in between. */
static int group_await(fby_client_t *client, const group_want_t *want, uint64_t deadline)
{
    int rc = group_ask(client, want);
    bool is_late = false;
    while (rc == -EAGAIN && !is_late) {
        fby_link_t *link;
        int fd;
        rc = fby_client_event(client, FBY_EVENT_OF_GROUP, 0, &fd, &link);
        if (rc != 0) {
            return rc;
        }
        rc = group_ask(client, want);
        if (rc == -EAGAIN) {
            int waited = fby_client_await(client, link, fd, deadline);
            is_late = waited == -ETIMEDOUT;
            rc = waited == 0 || is_late ? group_ask(client, want) : waited;
        }
        close(fd);
        fby_link_unref(client, link);
    }
    if (rc == -EAGAIN) {
        fby_error_set("group: %s", fby_strerror(-ETIMEDOUT));
        rc = -ETIMEDOUT;
    }
    return rc;
}

/* ---- Join ------------------------------------------------------------------------------------------------------- */

static int join_check(const char *group, uint32_t rank, uint32_t ranks, const void *card, size_t bytes)
{
    if (group == NULL || card == NULL) {
        return fby_call_null(group == NULL ? "group" : "card");
    }
    size_t length = strnlen(group, FBY_MSG_NAME);
    if (length == 0 || length >= FBY_MSG_NAME) {
        fby_error_set("group is a name of %zu bytes or more; accepted: 1 to %d", length, FBY_MSG_NAME - 1);
        return -EINVAL;
    }
    if (ranks == 0 || ranks > FBY_MOST_RANKS || rank >= ranks) {
        fby_error_set("rank is %u of %u; accepted: 0 to ranks - 1, and at most %u ranks", rank, ranks, FBY_MOST_RANKS);
        return -EINVAL;
    }
    return bytes_check(card, bytes);
}

static int group_join(fby_client_t *client, const fby_msg_join_t *join, const void *card, size_t bytes,
                      uint64_t deadline, uint64_t *incarnation)
{
    fby_answer_view_t answer;
    const group_want_t joined = {.type = FBY_REQUEST_GROUP_JOINED, .incarnation = incarnation};
    pthread_mutex_lock(&client->lock);
    (void)fby_client_reach(client);
    fby_client_drop_stash(client); /* of another membership */
    int rc = fby_client_ask(client, FBY_REQUEST_GROUP_JOIN, join, card, (uint32_t)bytes, &answer, NULL);
    pthread_mutex_unlock(&client->lock);
    return rc >= 0 ? group_await(client, &joined, deadline) : rc;
}

/* The server counts the limit, too, and says which ranks are missing: it is given a moment to say so. */
#define VERDICT_SLACK_NS UINT64_C(2000000000)

int fby_group_join(fby_cache_t *cache, const char *group, uint32_t rank, uint32_t ranks, const void *card, size_t bytes,
                   double limit_s, fby_ranks_t *out)
{
    fby_client_t *client;
    fby_msg_join_t join = {.rank = rank, .ranks = ranks};
    uint64_t incarnation = 0;
    int rc = group_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    rc = join_check(group, rank, ranks, card, bytes);
    rc = rc == 0 && out != NULL ? fby_call_sized("out", out) : rc;
    if (rc == 0 && !fby_call_seconds("limit_s", limit_s, false, &join.limit_ns)) {
        rc = -EINVAL;
    }
    if (rc == 0) {
        memcpy(join.group, group, strlen(group));
        uint64_t deadline = fby_client_deadline(fby_add_sat(join.limit_ns, VERDICT_SLACK_NS));
        rc = group_join(client, &join, card, bytes, deadline, &incarnation);
    }
    if (rc == 0 && out != NULL) {
        const fby_ranks_t formed = {.ranks = ranks, .rank = rank, .incarnation = incarnation};
        fby_call_output(out, &formed, sizeof(formed));
    }
    return fby_call_end(cache, rc);
}

/* ---- Messages --------------------------------------------------------------------------------------------------- */

static int group_give(fby_cache_t *cache, fby_request_t type, const void *bytes, size_t n)
{
    fby_client_t *client;
    fby_answer_view_t answer;
    int rc = group_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    rc = bytes_check(bytes, n);
    if (rc == 0) {
        pthread_mutex_lock(&client->lock);
        rc = fby_client_ask(client, type, NULL, bytes, (uint32_t)n, &answer, NULL);
        pthread_mutex_unlock(&client->lock);
    }
    return fby_call_end(cache, FBY_MIN(rc, 0));
}

int fby_group_send(fby_cache_t *cache, const void *bytes, size_t n)
{
    return group_give(cache, FBY_REQUEST_GROUP_SEND, bytes, n);
}

int fby_group_report(fby_cache_t *cache, const void *bytes, size_t n)
{
    return group_give(cache, FBY_REQUEST_GROUP_REPORT, bytes, n);
}

static int group_get(fby_cache_t *cache, const group_want_t *want, double timeout_s)
{
    fby_client_t *client;
    uint64_t timeout_ns;
    int rc = group_begin(cache, &client);
    if (rc != 0) {
        return rc;
    }
    if (want->n == NULL || (want->bytes == NULL && want->capacity > 0)) {
        rc = fby_call_null(want->n == NULL ? "n" : "bytes");
    } else if (!fby_call_seconds("timeout_s", timeout_s, true, &timeout_ns)) {
        rc = -EINVAL;
    } else {
        rc = group_await(client, want, fby_client_deadline(timeout_ns));
    }
    return fby_call_end(cache, rc);
}

int fby_group_receive(fby_cache_t *cache, void *bytes, size_t capacity, size_t *n, double timeout_s)
{
    const group_want_t want = {.type = FBY_REQUEST_GROUP_RECEIVE, .bytes = bytes, .capacity = capacity, .n = n};
    return group_get(cache, &want, timeout_s);
}

int fby_group_verdict(fby_cache_t *cache, uint64_t number, void *bytes, size_t capacity, size_t *n, double timeout_s)
{
    const fby_msg_object_t about = {.handle = number};
    const group_want_t want = {
        .type = FBY_REQUEST_GROUP_VERDICT, .body = &about, .bytes = bytes, .capacity = capacity, .n = n};
    return group_get(cache, &want, timeout_s);
}

/* ---- Grants ----------------------------------------------------------------------------------------------------- */

static int group_about(fby_cache_t *cache, fby_request_t type, uint64_t handle)
{
    fby_client_t *client;
    const fby_msg_object_t about = {.handle = handle};
    int rc = group_begin(cache, &client);
    return rc == 0 ? fby_call_end(cache, FBY_MIN(fby_client_call(client, type, &about, NULL, 0), 0)) : rc;
}

int fby_group_grant_hold(fby_cache_t *cache, fby_hold_t hold)
{
    return group_about(cache, FBY_REQUEST_GROUP_GRANT, hold);
}

int fby_group_grant_put(fby_cache_t *cache, fby_put_t put)
{
    return group_about(cache, FBY_REQUEST_GROUP_GRANT, put);
}

int fby_group_done(fby_cache_t *cache, uint64_t handle)
{
    return group_about(cache, FBY_REQUEST_GROUP_DONE, handle);
}
