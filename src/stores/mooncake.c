/*
 * mooncake.c - Mooncake Store: its options, and the table of its C back end.
 *
 * Outside of an agent a handle is only its settings: whoever opens it learns what is wrong with the options and that
 * the driver needs an agent. The wheel's back end is another program (fby_store_agent_program).
 */
#include "stores/mooncake.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "stores/stores.h"

struct fby_store {
    fby_mooncake_client_t *client; /* NULL: not in an agent */
    uint64_t lease_ns;
};

/* ---- Options ---- */

static bool is_environment(const char *option)
{
    return strncmp(option, "env.", 4) == 0 && strchr(option, '=') != NULL;
}

static int check_environment(const fby_options_t *options)
{
    for (const char *const *at = options->list; at != NULL && *at != NULL; at++) {
        if (!is_environment(*at)) {
            continue;
        }
        const char *name = *at + 4;
        size_t length = strcspn(name, "=");
        bool good = length > 0 && length < 64 && !isdigit((unsigned char)name[0]);
        for (size_t i = 0; i < length; i++) {
            good = good && (isalnum((unsigned char)name[i]) || name[i] == '_');
        }
        if (!good) {
            return fby_option_fail(options, FBY_E_CONFIG,
                                   "option '%.80s' names no variable; accepted: env.NAME=VALUE with a NAME of up to 63 "
                                   "letters, digits and '_'",
                                   *at);
        }
    }
    return 0;
}

/* Names that are known, leaving out the variables, whose names are the user's. */
static int check_names(const fby_options_t *options)
{
    static const char *const names[] = {"backend",  "library", "python",   "master",   "metadata",
                                        "protocol", "devices", "hostname", "replicas", "local_buffer",
                                        "lease_ms", "prefix",  NULL};
    size_t n = 0;
    for (const char *const *at = options->list; at != NULL && *at != NULL; at++) {
        n++;
    }
    const char **rest = calloc(n + 1, sizeof(*rest));
    if (rest == NULL) {
        return fby_option_fail(options, -ENOMEM, "out of memory");
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_environment(options->list[i])) {
            rest[kept++] = options->list[i];
        }
    }
    fby_options_t plain = *options;
    plain.list = rest;
    bool known = fby_options_known(&plain, names);
    free(rest);
    return known ? check_environment(options) : FBY_E_CONFIG;
}

/* "http://...", with one of the NULL-terminated schemes. */
static bool has_scheme(const char *text, const char *const *schemes)
{
    for (; *schemes != NULL; schemes++) {
        size_t length = strlen(*schemes);
        if (strncmp(text, *schemes, length) == 0 && strncmp(text + length, "://", 3) == 0 && text[length + 3] != '\0') {
            return true;
        }
    }
    return false;
}

/* HOST:PORT or [ADDRESS]:PORT, or HOST alone where the port may be left out. */
static bool is_address(const char *text, bool needs_port)
{
    const char *end = text[0] == '[' ? strchr(text, ']') : text + strcspn(text, ":");
    uint64_t port;
    if (end == NULL || end == text || strpbrk(text, " ,/\t\n") != NULL) {
        return false;
    }
    end += *end == ']';
    if (*end == '\0') {
        return !needs_port;
    }
    return *end == ':' && fby_text_u64(end + 1, strlen(end + 1), &port) && port > 0 && port < 65536;
}

static int read_addresses(const fby_options_t *options, fby_mooncake_settings_t *settings)
{
    static const char *const master_schemes[] = {"etcd", "redis", "k8s", NULL};
    static const char *const metadata_schemes[] = {"http", "https", "etcd", "redis", NULL};
    const char *master = fby_option_get(options, "master");
    const char *metadata = fby_option_get(options, "metadata");
    settings->master = master != NULL ? master : "127.0.0.1:50051";
    settings->metadata = metadata != NULL ? metadata : "P2PHANDSHAKE";
    settings->hostname = fby_option_get(options, "hostname");
    if (!is_address(settings->master, true) && !has_scheme(settings->master, master_schemes)) {
        return fby_option_bad(options, "master", settings->master,
                              "HOST:PORT of the master, or etcd://, redis:// or k8s:// and where its leader is noted");
    }
    if (strcmp(settings->metadata, "P2PHANDSHAKE") != 0 && !has_scheme(settings->metadata, metadata_schemes)) {
        return fby_option_bad(options, "metadata", settings->metadata,
                              "P2PHANDSHAKE, or the http://, https://, etcd:// or redis:// address of a server");
    }
    if (settings->hostname != NULL && !is_address(settings->hostname, false)) {
        return fby_option_bad(options, "hostname", settings->hostname, "HOST or HOST:PORT of this client");
    }
    return 0;
}

static int read_prefix(const fby_options_t *options, fby_mooncake_settings_t *settings)
{
    const char *prefix = fby_option_get(options, "prefix");
    settings->prefix = prefix != NULL ? prefix : "";
    size_t length = strlen(settings->prefix);
    bool good = length <= FBY_MOONCAKE_PREFIX_MOST;
    for (size_t i = 0; good && i < length; i++) {
        good = isalnum((unsigned char)prefix[i]) || strchr("._:/@-", prefix[i]) != NULL;
    }
    return good ? 0 : fby_option_bad(options, "prefix", prefix, "up to 64 letters, digits and any of . _ : / @ -");
}

static int read_backend(const fby_options_t *options, fby_mooncake_settings_t *settings)
{
    static const char *const words[] = {"wheel", "library", NULL};
    uint32_t backend = 0;
    int status = fby_option_word(options, "backend", words, &backend);
    const char *python = fby_option_get(options, "python");
    settings->wheel = backend == 0;
    settings->library = fby_option_get(options, "library");
    if (status < 0) {
        return status;
    }
    if (settings->wheel && settings->library != NULL) {
        return fby_option_bad(options, "library", settings->library, "nothing, unless backend=library");
    }
    if (python != NULL && (!settings->wheel || python[0] == '\0')) {
        return fby_option_bad(options, "python", python,
                              settings->wheel ? "an interpreter" : "nothing, unless backend=wheel");
    }
    if (settings->wheel) {
        return 0;
    }
    if (settings->library == NULL) {
        return fby_option_fail(options, FBY_E_CONFIG,
                               "option library is missing; accepted with backend=library: the path of a library with "
                               "Mooncake Store's C interface");
    }
    if (strchr(settings->library, '/') == NULL || access(settings->library, R_OK) != 0) {
        return fby_option_bad(options, "library", settings->library,
                              "the path, with a '/' in it, of a library that can be read");
    }
    return 0;
}

int fby_mooncake_read_options(const fby_options_t *options, fby_mooncake_settings_t *settings)
{
    static const char *const protocols[] = {"tcp", "rdma", NULL};
    uint32_t protocol = 0;
    const char *devices = fby_option_get(options, "devices");
    /* The shortest default that a master was released with: a longer one would promise what it does not keep. */
    *settings = (fby_mooncake_settings_t){.lease_ns = UINT64_C(5000000000), .replicas = 1};
    int status = check_names(options);
    status = status < 0 ? status : read_backend(options, settings);
    status = status < 0 ? status : read_addresses(options, settings);
    status = status < 0 ? status : fby_option_word(options, "protocol", protocols, &protocol);
    status = status < 0 ? status : fby_option_size(options, "local_buffer", 0, &settings->local_buffer);
    status = status < 0 ? status : fby_option_u32(options, "replicas", 1, 16, &settings->replicas);
    status = status < 0 ? status : fby_option_ms(options, "lease_ms", &settings->lease_ns);
    status = status < 0 ? status : read_prefix(options, settings);
    settings->protocol = protocols[protocol];
    settings->devices = devices != NULL ? devices : "";
    return status;
}

bool fby_store_agent_program(const char *driver, const char *const *list, fby_store_program_t *out)
{
    const fby_options_t options = fby_options_make(list, driver, NULL, 0);
    const char *backend = fby_option_get(&options, "backend");
    const char *python = fby_option_get(&options, "python");
    if (strcmp(driver, "mooncake") != 0 || (backend != NULL && strcmp(backend, "wheel") != 0)) {
        return false;
    }
    *out = (fby_store_program_t){.interpreter = python != NULL ? python : "python3", .name = "forebay-agent-mooncake"};
    return true;
}

/* ---- The driver ---- */

static int mooncake_open(const fby_store_spec_t *spec, const char *const *list, fby_store_t **out, char *error,
                         size_t error_size)
{
    const fby_options_t options = fby_options_make(list, "mooncake", error, error_size);
    fby_mooncake_settings_t settings;
    (void)spec;
    int status = fby_mooncake_read_options(&options, &settings);
    if (status < 0) {
        return status;
    }
    if (fby_store_isolated && settings.wheel) {
        return fby_option_fail(&options, FBY_E_CONFIG,
                               "backend wheel is served by forebay-agent-mooncake, not by this program; accepted here: "
                               "backend=library");
    }
    fby_store_t *store = calloc(1, sizeof(*store));
    if (store == NULL) {
        return fby_option_fail(&options, -ENOMEM, "out of memory");
    }
    store->lease_ns = settings.lease_ns;
    if (fby_store_isolated) {
        status = fby_mooncake_connect(&settings, &options, &store->client);
    }
    if (status < 0) {
        free(store);
        return status;
    }
    *out = store;
    return 0;
}

static void mooncake_close(fby_store_t *store)
{
    if (store->client != NULL) {
        fby_mooncake_disconnect(store->client);
    }
    free(store);
}

/* That this process may use: the agent of the wheel counts the same. */
static int cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static void mooncake_capabilities(fby_store_t *store, fby_store_caps_t *caps)
{
    *caps = (fby_store_caps_t){
        .size = sizeof(*caps),
        .zero_copy = 1,
        .needs_isolation = 1,
        .persistent = 0, /* a master without a snapshot forgets everything */
        .read_after_write = 1,
        .max_batch = FBY_MOONCAKE_BATCH,
        .preferred_bytes = UINT64_C(256) << 10,
        .probe_lease_ns = store->lease_ns,
        .read_lanes = cores() <= 2 ? 1 : 2, /* a waiting call spins, and takes a core */
    };
}

static int mooncake_register(fby_store_t *store, void *base, size_t bytes)
{
    return store->client != NULL ? fby_mooncake_register(store->client, base, bytes) : 0;
}

static int mooncake_unregister(fby_store_t *store, void *base)
{
    return store->client != NULL ? fby_mooncake_unregister(store->client, base) : 0;
}

/* X(call): the batch calls. */
#define BATCH_MAP(X) X(exists) X(get) X(put) X(remove)

#define FBY_X(call)                                                                                                    \
    static int mooncake_##call(fby_store_t *store, fby_store_op_t *ops, uint32_t n)                                    \
    {                                                                                                                  \
        return store->client != NULL ? fby_mooncake_##call(store->client, ops, n) : FBY_E_INVALID;                     \
    }
BATCH_MAP(FBY_X)
#undef FBY_X

static int mooncake_health(fby_store_t *store, char *text, size_t text_size)
{
    if (store->client == NULL) {
        snprintf(text, text_size, "Mooncake's client runs in a process of its own only: store.host agent");
        return -ENOTSUP;
    }
    int status = fby_mooncake_ask(store->client);
    if (status < 0) {
        snprintf(text, text_size, "Mooncake's master: %s", fby_strerror(status));
        return status;
    }
    snprintf(text, text_size, "ok: library of %s", fby_mooncake_version(store->client));
    return 0;
}

const fby_store_driver_t fby_store_mooncake = {
    .abi = FBY_STORE_ABI,
    .size = sizeof(fby_store_driver_t),
    .name = "mooncake",
    .open = mooncake_open,
    .close = mooncake_close,
    .capabilities = mooncake_capabilities,
    .register_region = mooncake_register,
    .unregister_region = mooncake_unregister,
    .exists = mooncake_exists,
    .get = mooncake_get,
    .put = mooncake_put,
    .remove = mooncake_remove,
    .health = mooncake_health,
};
