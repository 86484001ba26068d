/*
 * mooncake.h - the C back end of driver `mooncake`: a library with Mooncake Store's C interface, loaded by path.
 *
 * mooncake.c reads the options and is the driver's table; mooncake_abi.c loads the library; mooncake_client.c and
 * mooncake_batch.c are one client of it. All but the reading of options happens only in an agent's process
 * (fby_store_isolated): creating a client blocks signals, starts threads, opens ports and registers an exit hook.
 */
#ifndef FBY_STORES_MOONCAKE_H
#define FBY_STORES_MOONCAKE_H

#include "forebay/store.h"
#include "stores/options.h"

enum { FBY_MOONCAKE_BATCH = 1024, FBY_MOONCAKE_PREFIX_MOST = 64 };

/* What the options say. Texts point into the options or are constant. */
typedef struct fby_mooncake_settings {
    bool wheel;
    const char *library;
    const char *master, *metadata, *protocol, *devices;
    const char *hostname; /* NULL: the address of this machine's route to the master */
    const char *prefix;
    uint64_t local_buffer, lease_ns;
    uint32_t replicas;
} fby_mooncake_settings_t;

/* 0, or FBY_E_CONFIG with a message. Opens nothing. */
int fby_mooncake_read_options(const fby_options_t *options, fby_mooncake_settings_t *settings);

/* ---- The library (mooncake_abi.c) ---- */

/* Same layout as `struct mooncake_replicate_config` of store_c.h: 32 bytes where pointers have 8. */
typedef struct fby_mooncake_replication {
    size_t replicas;
    int soft_pin;
    int hard_pin;
    const char **segments;
    size_t segment_count;
} fby_mooncake_replication_t;

/* X(type, name, arguments): every function that the interface has, whether it is called here or not: a library that
   lacks one is of another version, and then nothing is known of the others either. */
#define FBY_MOONCAKE_MAP(X)                                                                                            \
    X(void *, create, (void))                                                                                          \
    X(void, destroy, (void *store))                                                                                    \
    X(int, setup,                                                                                                      \
      (void *store, const char *hostname, const char *metadata, uint64_t segment, uint64_t local_buffer,               \
       const char *protocol, const char *devices, const char *master))                                                 \
    X(int, init_all, (void *store, const char *protocol, const char *devices, uint64_t segment))                       \
    X(int, health_check, (void *store))                                                                                \
    X(int, put,                                                                                                        \
      (void *store, const char *key, const void *value, size_t bytes, const fby_mooncake_replication_t *replication))  \
    X(int, put_from,                                                                                                   \
      (void *store, const char *key, void *buffer, size_t bytes, const fby_mooncake_replication_t *replication))       \
    X(int, batch_put_from,                                                                                             \
      (void *store, const char **keys, void **buffers, const size_t *sizes, size_t n,                                  \
       const fby_mooncake_replication_t *replication, int *results))                                                   \
    X(int64_t, get_into, (void *store, const char *key, void *buffer, size_t bytes))                                   \
    X(int, batch_get_into,                                                                                             \
      (void *store, const char **keys, void **buffers, const size_t *sizes, size_t n, int64_t *results))               \
    X(int, is_exist, (void *store, const char *key))                                                                   \
    X(int, batch_is_exist, (void *store, const char **keys, size_t n, int *results))                                   \
    X(int64_t, get_size, (void *store, const char *key))                                                               \
    X(int, get_hostname, (void *store, char *text, size_t text_bytes))                                                 \
    X(int, remove, (void *store, const char *key, int force))                                                          \
    X(int64_t, remove_by_regex, (void *store, const char *pattern, int force))                                         \
    X(int64_t, remove_all, (void *store, int force))                                                                   \
    X(int, register_buffer, (void *store, void *buffer, size_t bytes))                                                 \
    X(int, unregister_buffer, (void *store, void *buffer))

typedef struct fby_mooncake_abi {
#define FBY_X(type, name, arguments) type(*name) arguments;
    FBY_MOONCAKE_MAP(FBY_X)
#undef FBY_X
    char version[80]; /* of the file: what stands behind ".so.", else its build id; the interface itself has none */
} fby_mooncake_abi_t;

/* Loads and resolves. The library stays for the life of the process: its threads and exit hooks cannot be proven gone.
   FBY_E_CONFIG with a message that names every function that is missing. */
int fby_mooncake_load(const char *path, const fby_options_t *options, fby_mooncake_abi_t *abi);

typedef enum fby_mooncake_late { FBY_MOONCAKE_NEVER, FBY_MOONCAKE_SLOWLY, FBY_MOONCAKE_ALWAYS } fby_mooncake_late_t;

/* X(code, result, late): Mooncake's codes. late: bytes may move after it: NEVER, ALWAYS, or when it came SLOWLY: a
   transfer that could not be made fails within about a second, one that was given up waited much longer. */
#define FBY_MOONCAKE_CODE_MAP(X)                                                                                       \
    X(-1, INVALID, ALWAYS)     /* internal, or an exception */                                                         \
    X(-10, INVALID, NEVER)     /* buffer overflow */                                                                   \
    X(-101, CONNECTION, NEVER) /* segment not found: its node is gone */                                               \
    X(-103, CONNECTION, NEVER) /* client not found: the master forgot this one */                                      \
    X(-200, FULL, NEVER)                                                                                               \
    X(-400, INVALID, NEVER)    /* key */                                                                               \
    X(-500, CONNECTION, NEVER) /* write */                                                                             \
    X(-600, INVALID, NEVER)    /* parameters; a buffer that is too small or not registered */                          \
    X(-601, INVALID, NEVER)    /* illegal client */                                                                    \
    X(-703, NOT_READY, NEVER)                                                                                          \
    X(-704, MISSING, NEVER)                                                                                            \
    X(-705, EXISTS, NEVER)                                                                                             \
    X(-706, LEASE, NEVER)   /* an unforced remove of what somebody reads */                                            \
    X(-707, LEASE, NEVER)   /* it ended before the read did */                                                         \
    X(-710, MISSING, NEVER) /* replica not found */                                                                    \
    X(-712, MISSING, NEVER) /* replica gone */                                                                         \
    X(-800, CONNECTION, SLOWLY)                                                                                        \
    X(-801, CHECKSUM, NEVER)                                                                                           \
    X(-900, CONNECTION, NEVER)                                                                                         \
    X(-901, TIMEOUT, NEVER)

/* One of FBY_E_MISSING .. FBY_E_INVALID for a negative code of Mooncake's. */
int fby_mooncake_result(int64_t code);
/* Whether a transfer that gave this code after `took_ns` may still touch its buffer. True for codes that are not
   known. */
bool fby_mooncake_late(int64_t code, uint64_t took_ns);

/* ---- One client (mooncake_client.c, mooncake_batch.c) ---- */

typedef struct fby_mooncake_client {
    fby_mooncake_abi_t abi;
    void *store;   /* the library's handle; set up, or there is no client */
    uint8_t *base; /* the registered region, or NULL */
    size_t bytes;
    fby_mooncake_replication_t replication;
    size_t prefix_length;
    char prefix[FBY_MOONCAKE_PREFIX_MOST + 1];
} fby_mooncake_client_t;

/* Creates and sets up. FBY_E_CONFIG, or FBY_E_CONNECTION when another try may succeed; then there is no client, so that
   nothing can be asked of one whose set-up failed: some versions crash on that. */
int fby_mooncake_connect(const fby_mooncake_settings_t *settings, const fby_options_t *options,
                         fby_mooncake_client_t **out);
void fby_mooncake_disconnect(fby_mooncake_client_t *client);
const char *fby_mooncake_version(const fby_mooncake_client_t *client);
/* The region that gets and puts move to and from without a copy; once. */
int fby_mooncake_register(fby_mooncake_client_t *client, void *base, size_t bytes);
int fby_mooncake_unregister(fby_mooncake_client_t *client, void *base);
/* Any number of ops and any thread, as in store.h. A transfer that may go on ends the process instead. */
int fby_mooncake_exists(fby_mooncake_client_t *client, fby_store_op_t *ops, uint32_t n);
int fby_mooncake_get(fby_mooncake_client_t *client, fby_store_op_t *ops, uint32_t n);
int fby_mooncake_put(fby_mooncake_client_t *client, fby_store_op_t *ops, uint32_t n);
int fby_mooncake_remove(fby_mooncake_client_t *client, fby_store_op_t *ops, uint32_t n);
/* Asks the master for a key that nobody writes: 0, or why it cannot be reached. (The interface's health check stays
   green through every failure of a client that gives no memory.) */
int fby_mooncake_ask(fby_mooncake_client_t *client);

#endif
