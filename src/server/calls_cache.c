/* calls_cache.c - requests about the cache and the server as a whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "server/internal.h"

/* ---- Hello ------------------------------------------------------------------------------------------------------ */

void fby_keyring_describe(fby_server_t *server, fby_msg_keyring_t *out)
{
    fby_runtime_t *runtime = server->runtime;
    pthread_mutex_lock(&runtime->lock);
    const fby_hasher_t *hasher = &runtime->keyring->hasher;
    *out = (fby_msg_keyring_t){
        .epoch = runtime->keyring->epoch,
        .kind = hasher->kind,
        .secret_length = (uint32_t)hasher->secret_length,
    };
    memcpy(out->secret, hasher->secret, FBY_MIN(hasher->secret_length, sizeof(out->secret)));
    memcpy(out->fingerprint, hasher->fingerprint, sizeof(out->fingerprint));
    pthread_mutex_unlock(&runtime->lock);
}

static int refuse(_Atomic uint64_t *counter, int code)
{
    fby_count(counter, 1);
    return code;
}

static int admit(fby_peer_t *peer, const fby_msg_hello_t *hello)
{
    fby_server_t *server = peer->server;
    uint32_t most = server->settings->server.max_clients;
    if (!peer->allowed) {
        fby_error_set("server.allow_uids is %s: user %u is not among them", server->settings->server.allow_uids,
                      peer->uid);
        return refuse(&server->counts.refused_user, -EACCES);
    }
    if (hello->snapshot_bytes != sizeof(fby_snapshot_t) || hello->struct_bytes != FBY_MSG_STRUCT_BYTES) {
        fby_error_set("the client's structs have %u and %u bytes; accepted: %zu and %u, of version %s",
                      hello->snapshot_bytes, hello->struct_bytes, sizeof(fby_snapshot_t), FBY_MSG_STRUCT_BYTES,
                      fby_version());
        return refuse(&server->counts.refused_version, FBY_E_FORMAT);
    }
    if (fby_call_stopping(peer) != 0) {
        return FBY_E_CLOSED;
    }
    if (atomic_load_explicit(&server->counts.clients, memory_order_relaxed) >= most) {
        fby_error_set("server.max_clients is %u: as many are connected", most);
        return refuse(&server->counts.refused_number, -EUSERS);
    }
    return 0;
}

/* Who this process was before: what is left of that connection ends now. What it was granted and could still write to, it
   may say it is done with. */
static void recognise(fby_peer_t *peer, const fby_msg_hello_t *hello)
{
    fby_peer_t *former = hello->was_client != 0 ? fby_peer_find(peer->server, hello->was_client) : NULL;
    if (former != NULL && former->secret == hello->was_secret && former->pid == peer->pid) {
        fby_peer_end(former);
        fby_peer_inherit(peer, former);
    }
}

/* It is shown on terminals and in logs: nothing but text. */
static void take_name(fby_peer_t *peer, const char name[FBY_MSG_NAME])
{
    for (size_t i = 0; i < sizeof(peer->name) - 1 && name[i] != '\0'; i++) {
        peer->name[i] = (char)(name[i] >= ' ' && name[i] <= '~' ? name[i] : '?');
    }
}

int fby_call_HELLO(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_hello_t *hello = request->body;
    fby_server_t *server = peer->server;
    fby_msg_welcome_t *welcome = &reply->body.HELLO;
    int rc = admit(peer, hello);
    if (rc != 0) {
        return rc;
    }
    welcome->model.size = sizeof(welcome->model);
    welcome->pool.size = sizeof(welcome->pool);
    rc = fby_cache_model(server->cache, &welcome->model);
    rc = rc == 0 ? fby_cache_pool(server->cache, &welcome->pool) : rc;
    if (rc != 0) {
        return rc;
    }
    int board = fcntl(server->runtime->board_fd, F_DUPFD_CLOEXEC, 0);
    if (board < 0 || getrandom(&peer->secret, sizeof(peer->secret), 0) != sizeof(peer->secret)) {
        rc = -errno;
        fby_error_set("a new client: %s", fby_strerror(rc));
        close(welcome->pool.descriptor);
        (void)(board >= 0 && close(board));
        return rc;
    }
    reply->fd[0] = welcome->pool.descriptor;
    reply->fd[1] = board;
    reply->fds = 2;
    recognise(peer, hello);
    peer->number = ++server->numbers;
    peer->welcomed = true;
    take_name(peer, hello->name);
    atomic_fetch_add_explicit(&server->counts.clients, 1, memory_order_relaxed);
    welcome->client = peer->number;
    welcome->secret = peer->secret;
    welcome->verify = server->settings->store.verify != FBY_VERIFY_OFF;
    welcome->pool.descriptor = -1;
    fby_keyring_describe(server, &welcome->keyring);
    return 0;
}

int fby_call_BYE(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    peer->bye = true;
    fby_peer_release(peer); /* before the answer: whoever has that finds nothing left */
    peer->state = FBY_PEER_LEAVING;
    return 0;
}

/* ---- Reset ------------------------------------------------------------------------------------------------------ */

int fby_call_KEYRING(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    fby_keyring_describe(peer->server, &reply->body.KEYRING);
    return 0;
}

int fby_call_RESET(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    const fby_msg_object_t *object = request->body;
    if (object->flags != 0) {
        int rc = fby_work_reset(peer, request->serial);
        return rc == 0 ? FBY_CALL_LATER : rc;
    }
    int rc = fby_cache_reset(peer->server->cache, 0, 0);
    fby_keyring_describe(peer->server, &reply->body.RESET);
    return rc;
}

int fby_call_RESETTING(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    fby_runtime_t *runtime = peer->server->runtime;
    pthread_mutex_lock(&runtime->lock);
    int code = fby_core_resetting(runtime->core) ? FBY_RESET_BUSY : FBY_RESET_DONE;
    pthread_mutex_unlock(&runtime->lock);
    return fby_is_poisoned(runtime) ? FBY_E_POISONED : code;
}

/* ---- Looking ---------------------------------------------------------------------------------------------------- */

int fby_call_STATS(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    reply->body.STATS.size = sizeof(reply->body.STATS);
    return fby_cache_stats(peer->server->cache, &reply->body.STATS);
}

int fby_call_HEALTH(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    reply->body.HEALTH.size = sizeof(reply->body.HEALTH);
    return fby_cache_health(peer->server->cache, &reply->body.HEALTH);
}

int fby_call_CHECK(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    if (!peer->server->settings->server.allow_check) {
        fby_error_set("server.allow_check is false: a check stops everybody");
        return -EPERM;
    }
    return fby_cache_check(peer->server->cache);
}

int fby_call_INFO(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    size_t count;
    fby_server_fill(peer->server, &reply->body.INFO, reply->elements, FBY_MSG_CLIENTS, &count);
    reply->count = (uint32_t)count;
    return 0;
}

/* The text, in a memfd that nobody can change any more. -errno. */
static int sealed_text(const char *text, size_t bytes)
{
    int fd = memfd_create("forebay-metrics", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -errno;
    }
    if (write(fd, text, bytes) != (ssize_t)bytes ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
        int rc = errno != 0 ? -errno : -EIO;
        close(fd);
        return rc;
    }
    return fd;
}

/* Room beside what the text took a moment ago: figures grow. */
enum { METRICS_SPARE = 4096, METRICS_ATTEMPTS = 4 };

/* NULL: it failed, with *code. */
static char *metrics_text(fby_cache_t *cache, int *code)
{
    char *text = NULL;
    size_t bytes = 0;
    *code = fby_cache_metrics(cache, NULL, 0, &bytes);
    for (int i = 0; *code == -ENOSPC && i < METRICS_ATTEMPTS; i++) {
        size_t capacity = bytes + METRICS_SPARE;
        free(text);
        text = malloc(capacity);
        *code = text != NULL ? fby_cache_metrics(cache, text, capacity, &bytes) : -ENOMEM;
    }
    if (*code != 0) {
        free(text);
        return NULL;
    }
    return text;
}

int fby_call_METRICS(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply)
{
    int rc;
    /* Metrics have the server's own among them, under the lock of the cache, which comes before ours. */
    pthread_mutex_unlock(&peer->server->lock);
    char *text = metrics_text(peer->server->cache, &rc);
    pthread_mutex_lock(&peer->server->lock);
    if (text == NULL) {
        return rc;
    }
    size_t bytes = strlen(text);
    int fd = sealed_text(text, bytes);
    free(text);
    if (fd >= 0) {
        reply->fd[reply->fds++] = fd;
        reply->body.METRICS.number[0] = bytes;
    }
    return FBY_MIN(fd, 0);
}
