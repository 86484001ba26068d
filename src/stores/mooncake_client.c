/* mooncake_client.c - one client of a Mooncake Store through its C interface: set-up, memory, health. */
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "stores/mooncake.h"

/* ---- Set-up ---- */

/* Before the library is loaded, since its static objects read the environment. */
static int set_environment(const fby_options_t *options)
{
    /* A set-up that fails is tried again by whoever supervises this process, not 20 times in here. Without the pool
       every object costs a connection. A master that hangs is known after 2 s instead of 30. Errors only on stderr. */
    static const char *const defaults[][2] = {
        {"MC_STORE_CLIENT_SETUP_RETRIES", "1"},
        {"MC_TCP_ENABLE_CONNECTION_POOL", "1"},
        {"MC_TCP_SLICE_SIZE", "1048576"},
        {"MC_RPC_TIMEOUT_MS", "2000"},
        {"GLOG_minloglevel", "2"},
        {"MC_LOG_LEVEL", "ERROR"},
        {"MC_YLT_LOG_LEVEL", "error"},
    };
    for (const char *const *at = options->list; at != NULL && *at != NULL; at++) {
        const char *equals = strchr(*at, '=');
        char name[64];
        if (strncmp(*at, "env.", 4) != 0 || equals == NULL) {
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)(equals - (*at + 4)), *at + 4);
        if (setenv(name, equals + 1, 1) != 0) {
            return fby_option_fail(options, -errno, "variable %s: %s", name, strerror(errno));
        }
    }
    for (size_t i = 0; i < FBY_ARRAY_LEN(defaults); i++) {
        if (setenv(defaults[i][0], defaults[i][1], 0) != 0) {
            return fby_option_fail(options, -errno, "variable %s: %s", defaults[i][0], strerror(errno));
        }
    }
    return 0;
}

/* Where the route to an address begins: connecting a datagram socket sends nothing. */
static bool local_address(const struct addrinfo *peer, char *host, size_t host_size)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof(own);
    char text[NI_MAXHOST];
    int fd = socket(peer->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    bool found = connect(fd, peer->ai_addr, peer->ai_addrlen) == 0 &&
                 getsockname(fd, (struct sockaddr *)&own, &length) == 0 &&
                 getnameinfo((struct sockaddr *)&own, length, text, sizeof(text), NULL, 0, NI_NUMERICHOST) == 0;
    close(fd);
    if (found) {
        snprintf(host, host_size, peer->ai_family == AF_INET6 ? "[%s]" : "%s", text);
    }
    return found;
}

/* The name under which peers find this client, when the options do not say: the address it reaches the master from. */
static void find_hostname(const char *master, char *host, size_t host_size)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
    struct addrinfo *peers = NULL;
    char peer[256];
    const char *port = strrchr(master, ':');
    bool found = false;
    snprintf(peer, sizeof(peer), "%.*s", port != NULL ? (int)(port - master) : 0, master);
    char *bare = peer[0] == '[' ? peer + 1 : peer;
    bare[strcspn(bare, "]")] = '\0';
    if (strstr(master, "://") == NULL && getaddrinfo(bare, port + 1, &hints, &peers) == 0) {
        for (const struct addrinfo *at = peers; at != NULL && !found; at = at->ai_next) {
            found = local_address(at, host, host_size);
        }
        freeaddrinfo(peers);
    }
    if (!found && gethostname(host, host_size) != 0) {
        snprintf(host, host_size, "127.0.0.1");
    }
    host[host_size - 1] = '\0';
}

/* Creating a client blocks SIGINT, SIGTERM, SIGHUP and SIGUSR1 in this thread for a thread of its own. Undone, so that
   they mean to this process what its main says. */
static int create_and_set_up(fby_mooncake_client_t *client, const fby_mooncake_settings_t *settings)
{
    sigset_t mask;
    char hostname[NI_MAXHOST + 2];
    snprintf(hostname, sizeof(hostname), "%s", settings->hostname != NULL ? settings->hostname : "");
    if (settings->hostname == NULL) {
        find_hostname(settings->master, hostname, sizeof(hostname));
    }
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    client->store = client->abi.create();
    /* No segment: this process only uses the store, it gives none of its memory to it. */
    int code = client->store == NULL
                   ? -1
                   : client->abi.setup(client->store, hostname, settings->metadata, 0, settings->local_buffer,
                                       settings->protocol, settings->devices, settings->master);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    return code;
}

int fby_mooncake_connect(const fby_mooncake_settings_t *settings, const fby_options_t *options,
                         fby_mooncake_client_t **out)
{
    enum { INVALID_VERSION = -300 };
    fby_mooncake_client_t *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return fby_option_fail(options, -ENOMEM, "out of memory");
    }
    client->replication.replicas = settings->replicas;
    client->prefix_length = strlen(settings->prefix);
    memcpy(client->prefix, settings->prefix, client->prefix_length);
    int status = set_environment(options);
    status = status < 0 ? status : fby_mooncake_load(settings->library, options, &client->abi);
    if (status < 0) {
        goto free_client;
    }
    int code = create_and_set_up(client, settings);
    if (code == 0) {
        *out = client;
        return 0;
    }
    /* The code does not say whether the master was not there (-600 for nearly all), so only what cannot pass is final.
       */
    status = code == INVALID_VERSION ? FBY_E_CONFIG : FBY_E_CONNECTION;
    fby_option_fail(options, status, "the client's set-up failed (%d) with master %.80s, metadata %.80s, protocol %s%s",
                    code, settings->master, settings->metadata, settings->protocol,
                    code == INVALID_VERSION ? "; accepted: a library of the master's version" : "");
    /* The library's half-made client is left as it is: this process ends, and what ending it would do is not known. */
free_client:
    free(client);
    return status;
}

/* Not destroyed: that takes up to a second, a call after it crashes, and the process ends next. A client that gives no
   memory leaves nothing behind at the master. */
void fby_mooncake_disconnect(fby_mooncake_client_t *client)
{
    free(client);
}

const char *fby_mooncake_version(const fby_mooncake_client_t *client)
{
    return client->abi.version;
}

/* ---- Memory ---- */

int fby_mooncake_register(fby_mooncake_client_t *client, void *base, size_t bytes)
{
    if (client->base != NULL) {
        return FBY_E_STATE; /* overlapping registrations are not allowed, and one is all that is needed */
    }
    int code = client->abi.register_buffer(client->store, base, bytes);
    if (code != 0) {
        return fby_mooncake_result(code < 0 ? code : -1);
    }
    client->base = base;
    client->bytes = bytes;
    return 0;
}

int fby_mooncake_unregister(fby_mooncake_client_t *client, void *base)
{
    if (client->base == NULL || client->base != base) {
        return FBY_E_STATE;
    }
    client->base = NULL;
    int code = client->abi.unregister_buffer(client->store, base);
    return code == 0 ? 0 : fby_mooncake_result(code < 0 ? code : -1);
}

/* ---- Health ---- */

int fby_mooncake_ask(fby_mooncake_client_t *client)
{
    char name[FBY_MOONCAKE_PREFIX_MOST + sizeof("forebay-health")];
    snprintf(name, sizeof(name), "%sforebay-health", client->prefix);
    int code = client->abi.is_exist(client->store, name);
    return code < 0 ? fby_mooncake_result(code) : 0;
}
