/* ask.c - requests and answers, and what happens when none comes. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/client.h"

/* A try to connect again must not hold up an engine's step. */
#define AGAIN_LIMIT_NS (200 * FBY_MS)

int fby_client_begin_any(fby_cache_t *cache, fby_client_t **client)
{
    fby_runtime_t *none;
    int rc = fby_call_begin_any(cache, &none);
    *client = rc == 0 ? cache->client : NULL;
    return rc;
}

static bool is_poisoned(fby_client_t *client)
{
    const fby_link_t *link = fby_client_read(client);
    bool poisoned = link != NULL && fby_board_is_kept(link->board) &&
                    atomic_load_explicit(&link->board->poisoned, memory_order_relaxed) != 0;
    fby_client_unread(client);
    return poisoned;
}

int fby_client_begin(fby_cache_t *cache, fby_client_t **client)
{
    int rc = fby_client_begin_any(cache, client);
    if (rc == 0 && is_poisoned(*client)) {
        fby_error_set("an internal invariant of the server broke; its log says which");
        return fby_call_end(cache, FBY_E_POISONED);
    }
    return rc;
}

uint64_t fby_client_deadline(uint64_t timeout_ns)
{
    return fby_add_sat(fby_clock_now(&fby_clock_monotonic), timeout_ns);
}

/* ---- Away ------------------------------------------------------------------------------------------------------- */

int fby_client_away(const fby_client_t *client)
{
    fby_error_set("server %s: away", client->path);
    return -ENOTCONN;
}

void fby_client_lose(fby_client_t *client, const char *why)
{
    char path[160];
    fby_link_t *link = atomic_exchange(&client->link, NULL);
    if (link == NULL) {
        return;
    }
    client->was_client = link->welcome.client;
    client->was_secret = link->welcome.secret;
    fby_link_shut(link);
    fby_link_unref(client, link);
    fby_client_forget_sequences(client);
    fby_client_drop_stash(client);
    fby_log(FBY_LOG_WARN, "server_away", "path=%s why=\"%s\"", fby_log_quote(path, sizeof(path), client->path), why);
}

/* The link, unless nobody keeps it any more. */
static fby_link_t *present_link(fby_client_t *client)
{
    fby_link_t *link = atomic_load(&client->link);
    if (link != NULL && !fby_board_is_kept(link->board)) {
        fby_client_lose(client, "it ended");
        link = NULL;
    }
    return link;
}

static bool is_same_shape(const fby_model_t *was, const fby_model_t *is)
{
    bool is_same = was->block_tokens == is->block_tokens && was->groups == is->groups;
    for (uint32_t g = 0; is_same && g < was->groups; g++) {
        is_same = strncmp(was->group[g].name, is->group[g].name, sizeof(was->group[g].name)) == 0 &&
                  was->group[g].payload_bytes == is->group[g].payload_bytes &&
                  was->group[g].slot_bytes == is->group[g].slot_bytes &&
                  was->group[g].trailing == is->group[g].trailing;
    }
    return is_same;
}

/* An epoch changes the fingerprint: comparable are that of the first connection and that of the keys in use. */
static bool is_same_model(fby_client_t *client, const fby_msg_welcome_t *welcome)
{
    const uint8_t *now = welcome->keyring.fingerprint;
    pthread_mutex_lock(&client->objects_lock);
    const fby_hasher_t *hasher = &client->keyring->hasher;
    bool is_same = is_same_shape(&client->model, &welcome->model) && hasher->kind == welcome->keyring.kind &&
                   hasher->secret_length == welcome->keyring.secret_length &&
                   memcmp(hasher->secret, welcome->keyring.secret, hasher->secret_length) == 0 &&
                   (memcmp(now, client->fingerprint, sizeof(client->fingerprint)) == 0 ||
                    memcmp(now, hasher->fingerprint, sizeof(hasher->fingerprint)) == 0);
    pthread_mutex_unlock(&client->objects_lock);
    return is_same;
}

static void connect_again(fby_client_t *client)
{
    char path[160];
    fby_link_t *link;
    const fby_link_self_t self = {client->name, client->was_client, client->was_secret};
    uint64_t limit = FBY_MIN(client->call_timeout_ns, AGAIN_LIMIT_NS);
    if (fby_link_open(client->path, &self, fby_client_deadline(limit), client->buffer, &link) != 0) {
        return;
    }
    fby_log_quote(path, sizeof(path), client->path);
    if (!is_same_model(client, &link->welcome) || fby_client_take_keyring(client, &link->welcome.keyring) != 0) {
        if (!client->told_changed) {
            fby_log(FBY_LOG_ERROR, "server_changed", "path=%s why=\"its model or its keys are others than before\"",
                    path);
        }
        client->told_changed = true;
        fby_link_shut(link);
        fby_link_free(link);
        return;
    }
    client->told_changed = false;
    atomic_store(&client->link, link);
    fby_log(FBY_LOG_WARN, "server_back", "path=%s client=%llu", path, (unsigned long long)link->welcome.client);
}

static void tell_ends(fby_client_t *client);

bool fby_client_reach(fby_client_t *client)
{
    if (present_link(client) == NULL) {
        uint64_t now = fby_clock_now(&fby_clock_monotonic);
        if (now < client->next_attempt) {
            return false;
        }
        connect_again(client);
        tell_ends(client);
        client->next_attempt = fby_client_deadline(client->reconnect_ns);
    }
    return atomic_load(&client->link) != NULL;
}

/* ---- Ask -------------------------------------------------------------------------------------------------------- */

static const char *why_lost(ssize_t rc)
{
    return rc == -ETIMEDOUT ? "it does not answer" : rc == -ENOTCONN ? "it ended" : fby_strerror((int)rc);
}

/* The one descriptor of an answer, or -1. */
static void keep_descriptor(int *out, const int fd[FBY_MSG_FDS], size_t fds)
{
    if (out != NULL) {
        *out = fds > 0 ? fd[0] : -1;
    }
    size_t from = out != NULL && fds > 0 ? 1 : 0;
    fby_close_all(fd + from, fds - from);
}

/* A server that is stopping takes nothing new: to us it is away already, though what it has can still be given back. */
static int judge(const fby_client_t *client, const fby_answer_view_t *answer)
{
    if (answer->code == FBY_E_CLOSED) {
        return fby_client_away(client);
    }
    if (answer->code < 0 && answer->code != FBY_MSG_E_RESEND) {
        fby_error_set("%.*s", (int)FBY_MIN(answer->text_bytes, (size_t)INT16_MAX), answer->text);
    }
    return answer->code;
}

int fby_client_ask(fby_client_t *client, fby_request_t type, const void *body, const void *elements, uint32_t count,
                   fby_answer_view_t *answer, int *fd)
{
    int came[FBY_MSG_FDS];
    size_t fds;
    const fby_link_t *link = present_link(client);
    if (link == NULL) {
        return fby_client_away(client);
    }
    uint32_t serial = ++client->serial;
    size_t length = fby_request_build(type, serial, body, elements, count, client->buffer);
    uint64_t deadline = fby_client_deadline(client->call_timeout_ns);
    ssize_t rc = fby_link_exchange(link, client->buffer, length, deadline, came, &fds);
    if (rc < 0) {
        fby_client_lose(client, why_lost(rc));
        return fby_client_away(client);
    }
    if (!fby_answer_parse(type, client->buffer, (size_t)rc, answer) || answer->serial != serial) {
        fby_close_all(came, fds);
        fby_client_lose(client, "its answer makes no sense");
        return fby_client_away(client);
    }
    keep_descriptor(fd, came, fds);
    return judge(client, answer);
}

/* ---- Ends that a server may not have heard of -------------------------------------------------------------------- */

static int tell_end(fby_client_t *client, const fby_ended_put_t *end)
{
    fby_answer_view_t answer;
    const fby_msg_object_t about = {.handle = end->put, .from = end->client, .to = end->secret};
    return FBY_MIN(fby_client_ask(client, FBY_REQUEST_PUT_END, &about, NULL, 0, &answer, NULL), 0);
}

/* Without memory its slots stay out of use until this process ends. */
static void tell_end_later(fby_client_t *client, const fby_ended_put_t *end)
{
    if (client->ended_count == client->ended_room) {
        size_t room = client->ended_room * 2 + 16;
        fby_ended_put_t *larger = realloc(client->ended, room * sizeof(*larger));
        if (larger == NULL) {
            return;
        }
        client->ended = larger;
        client->ended_room = room;
    }
    client->ended[client->ended_count++] = *end;
}

static void tell_ends(fby_client_t *client)
{
    while (client->ended_count > 0 && tell_end(client, &client->ended[client->ended_count - 1]) != -ENOTCONN) {
        client->ended_count--;
    }
}

int fby_client_end_former(fby_client_t *client, const fby_link_t *former, fby_put_t put)
{
    const fby_ended_put_t end = {put, former->welcome.client, former->welcome.secret};
    const fby_link_t *now = atomic_load(&client->link);
    if (now != NULL && now->instance != former->instance) {
        return FBY_E_STALE; /* that server is gone, and what it had */
    }
    int rc = now != NULL ? tell_end(client, &end) : -ENOTCONN;
    if (rc == -ENOTCONN) {
        tell_end_later(client, &end);
    }
    return rc;
}

int fby_client_call(fby_client_t *client, fby_request_t type, const void *body, void *out, size_t bytes)
{
    fby_answer_view_t answer;
    pthread_mutex_lock(&client->lock);
    int rc = fby_client_ask(client, type, body, NULL, 0, &answer, NULL);
    if (rc >= 0 && out != NULL) {
        memcpy(out, answer.body, FBY_MIN(bytes, (size_t)fby_request_shape(type)->answer_body));
    }
    pthread_mutex_unlock(&client->lock);
    return rc;
}

/* The server's text names its own view of the object; for these codes there is no more to say than the code. */
int fby_client_about(int rc, const char *what, uint64_t handle)
{
    rc = rc == -ENOTCONN ? FBY_E_STALE : rc;
    if (rc == FBY_E_STALE || rc == FBY_E_STATE || rc == -ETIMEDOUT || rc == FBY_E_CLOSED) {
        return fby_call_about(rc, what, handle);
    }
    return rc;
}

int fby_client_call_object(fby_client_t *client, fby_request_t type, const fby_msg_object_t *about, const char *what,
                           void *out, size_t bytes)
{
    return fby_client_about(fby_client_call(client, type, about, out, bytes), what, about->handle);
}
