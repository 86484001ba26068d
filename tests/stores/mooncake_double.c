/*
 * mooncake_double.c - a conformance double. This is not Mooncake, and nothing measured on it says anything of Mooncake.
 *
 * It exports the 19 functions of Mooncake Store's C interface over a directory, so that the driver's C back end can be
 * tested where no library with that interface is installed. What it imitates is what was seen of the real one:
 *   - the first put of a key wins, a later one succeeds and changes nothing; a put without bytes stores nothing
 *   - a missing object is -704; no bytes, a buffer that is too small, or one that is not registered: -600
 *   - of equal keys in one get only the last buffer is filled, and all of them succeed
 *   - a hit of exists or get is a lease: remove without force answers -706 until it ends
 *   - more than 1,024 keys in a call break the client for ever
 *   - a batch call on a client whose set-up failed crashes
 *   - creating a client blocks four signals in the calling thread
 *
 * Environment, read when a client is created: MOONCAKE_DOUBLE_DIR, the directory; MOONCAKE_DOUBLE_LEASE_MS (5000).
 * Files in the directory: objects/, calls (a line per call), and switches that a test makes and removes:
 *   down    set-up fails, calls answer -900
 *   code    a number: what every key of a call is answered
 *   call    a number: what a batch call returns as a whole
 *   hang    gets scribble into their buffers until it is gone
 *   late    a number: gets answer it, and a thread goes on to scribble into a buffer of theirs
 *   slow    a number: milliseconds that a get takes
 *
 * MOONCAKE_DOUBLE_LACKS=1 leaves get_size and remove_all out, 2 all but create.
 */
#include "mooncake_double.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "stores/mooncake.h"

#ifndef MOONCAKE_DOUBLE_LACKS
#define MOONCAKE_DOUBLE_LACKS 0
#endif

#define FBY_X(type, name, arguments) __attribute__((visibility("default"))) type mooncake_store_##name arguments;
FBY_MOONCAKE_MAP(FBY_X)
#undef FBY_X

#if MOONCAKE_DOUBLE_LACKS < 2

static client_t *clients;

/* ---- What goes before every call ---- */

/* A client that was not set up is a null pointer in the real one. */
static void crash_unless_ready(const client_t *client)
{
    if (!client->ready) {
        abort();
    }
}

/* The code that a switch or the client's state gives to every key of a call; 0: none. */
static int common_code(client_t *client, size_t n)
{
    client->broken = client->broken || n > MOST_KEYS;
    if (client->broken) {
        return CODE_TRANSFER;
    }
    return is_switched(client, "down") ? CODE_RPC : switch_number(client, "code");
}

static bool is_registered(client_t *client, const void *buffer, size_t bytes)
{
    bool found = false;
    pthread_mutex_lock(&client->lock);
    for (size_t i = 0; i < MOST_BUFFERS && !found; i++) {
        uintptr_t base = (uintptr_t)client->buffers[i].base, at = (uintptr_t)buffer;
        found = base != 0 && at >= base && at + bytes <= base + client->buffers[i].bytes;
    }
    pthread_mutex_unlock(&client->lock);
    return found;
}

/* ---- Life ---- */

/* Says what the environment was when the library was loaded. */
__attribute__((constructor)) static void loaded(void)
{
    const char *slice = getenv("MC_TCP_SLICE_SIZE");
    client_t at_load = {0};
    const char *directory = getenv("MOONCAKE_DOUBLE_DIR");
    if (directory != NULL) {
        snprintf(at_load.directory, sizeof(at_load.directory), "%s", directory);
        note(&at_load, "loaded", slice != NULL ? (size_t)atol(slice) : 0);
    }
}

#endif

void *mooncake_store_create(void)
{
#if MOONCAKE_DOUBLE_LACKS < 2
    const char *directory = getenv("MOONCAKE_DOUBLE_DIR");
    const char *lease = getenv("MOONCAKE_DOUBLE_LEASE_MS");
    client_t *client = calloc(1, sizeof(*client));
    sigset_t taken;
    if (directory == NULL || client == NULL) {
        abort();
    }
    sigemptyset(&taken);
    sigaddset(&taken, SIGINT);
    sigaddset(&taken, SIGTERM);
    sigaddset(&taken, SIGHUP);
    sigaddset(&taken, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &taken, NULL);
    snprintf(client->directory, sizeof(client->directory), "%s", directory);
    client->lease_ms = lease != NULL ? atol(lease) : 5000;
    pthread_mutex_init(&client->lock, NULL);
    make_objects(client);
    client->next = clients;
    clients = client;
    note(client, "create", 0);
    return client;
#else
    return NULL;
#endif
}

#if MOONCAKE_DOUBLE_LACKS < 2

void mooncake_store_destroy(void *store)
{
    client_t **link = &clients;
    while (*link != store) {
        link = &(*link)->next;
    }
    client_t *client = *link;
    *link = client->next;
    note(client, "destroy", 0);
    free(client);
}

int mooncake_store_setup(void *store, const char *hostname, const char *metadata, uint64_t segment,
                         uint64_t local_buffer, const char *protocol, const char *devices, const char *master)
{
    client_t *client = store;
    char line[512];
    snprintf(line, sizeof(line), "setup %s %s %s [%s] %s segment %llu", hostname, metadata, protocol, devices, master,
             (unsigned long long)segment);
    note(client, line, local_buffer);
    int code = switch_number(client, "code");
    if (is_switched(client, "down") || code != 0) {
        return code != 0 ? code : CODE_PARAMETERS;
    }
    client->ready = true;
    return 0;
}

int mooncake_store_init_all(void *store, const char *protocol, const char *devices, uint64_t segment)
{
    return mooncake_store_setup(store, "localhost", "P2PHANDSHAKE", segment, 0, protocol, devices, "localhost:50051");
}

/* Green through every failure, as the real one's for a client without a segment. */
int mooncake_store_health_check(void *store)
{
    return ((client_t *)store)->ready ? 0 : 1;
}

int mooncake_store_get_hostname(void *store, char *text, size_t text_bytes)
{
    return snprintf(text, text_bytes, "%s", "localhost") < (int)text_bytes ? 0 : -1;
}

/* ---- Memory ---- */

int mooncake_store_register_buffer(void *store, void *buffer, size_t bytes)
{
    client_t *client = store;
    size_t free_at = MOST_BUFFERS;
    uintptr_t at = (uintptr_t)buffer;
    bool overlaps = false;
    pthread_mutex_lock(&client->lock);
    for (size_t i = 0; i < MOST_BUFFERS; i++) {
        uintptr_t base = (uintptr_t)client->buffers[i].base;
        overlaps = overlaps || (base != 0 && at < base + client->buffers[i].bytes && base < at + bytes);
        free_at = base == 0 && free_at == MOST_BUFFERS ? i : free_at;
    }
    int code = overlaps || free_at == MOST_BUFFERS || bytes == 0 ? CODE_PARAMETERS : 0;
    if (code == 0) {
        client->buffers[free_at].base = buffer;
        client->buffers[free_at].bytes = bytes;
    }
    pthread_mutex_unlock(&client->lock);
    note(client, "register", bytes);
    return code;
}

int mooncake_store_unregister_buffer(void *store, void *buffer)
{
    client_t *client = store;
    int code = CODE_PARAMETERS;
    pthread_mutex_lock(&client->lock);
    for (size_t i = 0; i < MOST_BUFFERS && code != 0; i++) {
        if (client->buffers[i].base == buffer) {
            client->buffers[i].base = NULL;
            code = 0;
        }
    }
    pthread_mutex_unlock(&client->lock);
    return code;
}

/* ---- Batches ---- */

int mooncake_store_batch_put_from(void *store, const char **keys, void **buffers, const size_t *sizes, size_t n,
                                  const fby_mooncake_replication_t *replication, int *results)
{
    client_t *client = store;
    note(client, "batch_put_from", n);
    crash_unless_ready(client);
    int whole = switch_number(client, "call"), code = common_code(client, n);
    for (size_t i = 0; i < n && whole == 0; i++) {
        results[i] = code != 0                                                                    ? code
                     : replication->replicas == 0 || !is_registered(client, buffers[i], sizes[i]) ? CODE_PARAMETERS
                                                                                                  : 0;
        if (results[i] == 0) {
            results[i] = put_object(client, keys[i], buffers[i], sizes[i]);
        }
    }
    return whole;
}

/* Writes over the buffers again and again, as a transfer does that nobody waits for any more. */
static void scribble(const client_t *client, void **buffers, const size_t *sizes, size_t n, const char *until)
{
    for (unsigned round = 1; is_switched(client, until); round++) {
        for (size_t i = 0; i < n; i++) {
            memset(buffers[i], (int)(round % 251 + 1), sizes[i]);
        }
        sched_yield();
    }
}

typedef struct late {
    const client_t *client;
    void *buffer;
    size_t bytes;
} late_t;

static void *write_late(void *arg)
{
    late_t late = *(late_t *)arg;
    free(arg);
    scribble(late.client, &late.buffer, &late.bytes, 1, "late");
    return NULL;
}

static void start_late(const client_t *client, void *buffer, size_t bytes)
{
    pthread_t thread;
    late_t *late = malloc(sizeof(*late));
    if (late == NULL) {
        abort();
    }
    *late = (late_t){client, buffer, bytes};
    if (pthread_create(&thread, NULL, write_late, late) != 0) {
        abort();
    }
    pthread_detach(thread);
}

static bool stands_again(const char **keys, size_t at, size_t n)
{
    for (size_t i = at + 1; i < n; i++) {
        if (strcmp(keys[i], keys[at]) == 0) {
            return true;
        }
    }
    return false;
}

int mooncake_store_batch_get_into(void *store, const char **keys, void **buffers, const size_t *sizes, size_t n,
                                  int64_t *results)
{
    client_t *client = store;
    note(client, "batch_get_into", n);
    crash_unless_ready(client);
    int whole = switch_number(client, "call"), code = common_code(client, n);
    if (whole != 0) {
        return whole;
    }
    scribble(client, buffers, sizes, n, "hang");
    long slow_ms = switch_number(client, "slow");
    nanosleep(&(struct timespec){.tv_sec = slow_ms / 1000, .tv_nsec = slow_ms % 1000 * 1000000}, NULL);
    if (is_switched(client, "late")) {
        start_late(client, buffers[0], sizes[0]);
        code = switch_number(client, "late");
    }
    for (size_t i = 0; i < n; i++) {
        results[i] = code != 0                                                       ? code
                     : sizes[i] == 0 || !is_registered(client, buffers[i], sizes[i]) ? CODE_PARAMETERS
                                                                                     : 0;
        if (results[i] == 0) {
            results[i] = get_object(client, keys[i], stands_again(keys, i, n) ? NULL : buffers[i], sizes[i]);
        }
    }
    return 0;
}

int mooncake_store_batch_is_exist(void *store, const char **keys, size_t n, int *results)
{
    client_t *client = store;
    note(client, "batch_is_exist", n);
    crash_unless_ready(client);
    int whole = switch_number(client, "call"), code = common_code(client, n);
    for (size_t i = 0; i < n && whole == 0; i++) {
        results[i] = code != 0 ? code : has_object(client, keys[i]);
    }
    return whole;
}

/* ---- Single keys: these answer -600 before set-up ---- */

static int single_code(client_t *client)
{
    return client->ready ? common_code(client, 1) : CODE_PARAMETERS;
}

int mooncake_store_put_from(void *store, const char *key, void *buffer, size_t bytes,
                            const fby_mooncake_replication_t *replication)
{
    int code = single_code(store);
    if (code == 0 && !is_registered(store, buffer, bytes)) {
        code = CODE_PARAMETERS;
    }
    return code != 0 ? code : put_object(store, key, buffer, bytes);
}

int mooncake_store_put(void *store, const char *key, const void *value, size_t bytes,
                       const fby_mooncake_replication_t *replication)
{
    int code = single_code(store);
    return code != 0 ? code : put_object(store, key, value, bytes);
}

int64_t mooncake_store_get_into(void *store, const char *key, void *buffer, size_t bytes)
{
    int code = single_code(store);
    if (code == 0 && !is_registered(store, buffer, bytes)) {
        code = CODE_PARAMETERS;
    }
    return code != 0 ? code : get_object(store, key, buffer, bytes);
}

int mooncake_store_is_exist(void *store, const char *key)
{
    int code = single_code(store);
    return code != 0 ? code : has_object(store, key);
}

int mooncake_store_remove(void *store, const char *key, int force)
{
    int code = single_code(store);
    return code != 0 ? code : remove_object(store, key, force != 0);
}

int64_t mooncake_store_remove_by_regex(void *store, const char *pattern, int force)
{
    return CODE_PARAMETERS; /* nobody here calls it */
}

#if MOONCAKE_DOUBLE_LACKS < 1

int64_t mooncake_store_get_size(void *store, const char *key)
{
    int code = single_code(store);
    return code != 0 ? code : object_size(store, key);
}

int64_t mooncake_store_remove_all(void *store, int force)
{
    return CODE_PARAMETERS; /* nobody here calls it */
}

#endif
#endif
