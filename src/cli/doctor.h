/*
 * doctor.h - `forebay doctor`: checks of the machine, the configuration, our programs and the store.
 *
 * A new check is one function and one row of FBY_DOCTOR_MAP. A check reports what it found, with what to change where
 * something should be; it may report more than once, and says nothing else. Checks run in the order of the table: one
 * may leave something for later ones (a connection), whose `applies` says whether it is there.
 */
#ifndef FBY_CLI_DOCTOR_H
#define FBY_CLI_DOCTOR_H

#include "base/base.h"
#include "forebay/forebay.h"
#include "runtime/config_keys.h"

/* X(section, name, applies, run): bool fby_applies_APPLIES(doctor), void fby_check_RUN(doctor) */
#define FBY_DOCTOR_MAP(X)                                                                                              \
    X("machine", "memory", always, memory)                                                                             \
    X("machine", "locked memory", always, locked_memory)                                                               \
    X("machine", "huge pages", always, huge_pages)                                                                     \
    X("machine", "cores", always, cores)                                                                               \
    X("machine", "open files", always, open_files)                                                                     \
    X("machine", "io_uring", uring, uring)                                                                             \
    X("machine", "pidfd", pidfd, pidfd)                                                                                \
    X("machine", "seccomp", agents, seccomp)                                                                           \
    X("machine", "PID namespace", agents, pid_namespace)                                                               \
    X("configuration", "file", config, config)                                                                         \
    X("server", "directory", server, server_directory)                                                                 \
    X("server", "socket", server, server_socket)                                                                       \
    X("server", "access", server, server_access)                                                                       \
    X("server", "clients", server, server_files)                                                                       \
    X("server", "messages", server, server_messages)                                                                   \
    X("server", "memory", server, server_memory)                                                                       \
    X("programs", "agent", agents, agent_program)                                                                      \
    X("programs", "agent library", agent_library, agent_library)                                                       \
    X("store", "driver", store, driver)                                                                                \
    X("store", "directory", file, directory)                                                                           \
    X("store", "space", file, space)                                                                                   \
    X("store", "engine", file, file_engine)                                                                            \
    X("store", "connection", redis, redis_connection)                                                                  \
    X("store", "server", redis_open, redis_server)                                                                     \
    X("store", "memory limit", redis_open, redis_memory)                                                               \
    X("store", "persistence", redis_open, redis_persistence)                                                           \
    X("store", "access", redis_open, redis_access)                                                                     \
    X("store", "TLS", redis, redis_tls)                                                                                \
    X("store", "interpreter", wheel, wheel)                                                                            \
    X("store", "master", mooncake, mooncake_master)                                                                    \
    X("store", "master's health", metrics, mooncake_health)                                                            \
    X("store", "storage nodes", mooncake, mooncake_nodes)                                                              \
    X("store", "transfer", mooncake, mooncake_transfer)                                                                \
    X("store", "object size", mooncake, mooncake_object_size)                                                          \
    X("store", "batch", mooncake, mooncake_batch)                                                                      \
    X("store", "lease", mooncake, mooncake_lease)                                                                      \
    X("store", "open ports", mooncake, mooncake_ports)

typedef enum fby_verdict { FBY_VERDICT_OK, FBY_VERDICT_WARN, FBY_VERDICT_FAIL, FBY_VERDICTS } fby_verdict_t;

typedef struct fby_finding {
    fby_verdict_t verdict;
    const char *section, *check;
    char *found;        /* owned */
    const char *advice; /* static; NULL where nothing is to be changed */
} fby_finding_t;

typedef struct fby_doctor {
    fby_config_t *config;
    const char *config_path;        /* NULL: none was given */
    char *config_error;             /* NULL: none was given, or it is right */
    bool has_store;                 /* one was named: by text, or by configuration */
    const char *metrics;            /* HOST:PORT of the Mooncake master's pages, or NULL */
    struct fby_doctor_redis *redis; /* open connection, or NULL */
    const char *section, *check;    /* that runs now */
    fby_finding_t *finding;
    size_t findings, capacity;
    size_t count[FBY_VERDICTS];
    size_t missing_directories; /* of a file store */
    bool failed;                /* out of memory once */
} fby_doctor_t;

typedef struct fby_doctor_check {
    const char *section, *name;
    bool (*applies)(const fby_doctor_t *doctor);
    void (*run)(fby_doctor_t *doctor);
} fby_doctor_check_t;

#define FBY_X(section, name, applies, run)                                                                             \
    bool fby_applies_##applies(const fby_doctor_t *doctor);                                                            \
    void fby_check_##run(fby_doctor_t *doctor);
FBY_DOCTOR_MAP(FBY_X)
#undef FBY_X

/* Runs every check that applies. Zeroed but for config, config_path, config_error, has_store and metrics before. */
void fby_doctor_run(fby_doctor_t *doctor);
/* Frees what fby_doctor_run() made. */
void fby_doctor_free(fby_doctor_t *doctor);
/* One finding of the check that runs. `advice`: what to change, static text, or NULL. No secret may be in either. */
void fby_doctor_report(fby_doctor_t *doctor, fby_verdict_t verdict, const char *advice, const char *format, ...)
    FBY_PRINTF(4, 5);

/* ---- What the checks ask of the configuration -------------------------------------------------------------------- */

/* Effective number of a key; 0 when unset. */
uint64_t fby_doctor_number(const fby_doctor_t *doctor, fby_key_id_t id);
/* Bytes of the whole pool; 0 without a configuration: then nobody has said. */
uint64_t fby_doctor_pool_bytes(const fby_doctor_t *doctor);
/* Name of the driver, without "fault:". */
const char *fby_doctor_driver(const fby_doctor_t *doctor);
/* Value of an option of the driver, or NULL. Secrets as they are. */
const char *fby_doctor_option(const fby_doctor_t *doctor, const char *name);
bool fby_doctor_option_is(const fby_doctor_t *doctor, const char *name, const char *value);
/* Index from 0; NULL behind the last. *value likewise. */
const char *fby_doctor_option_at(const fby_doctor_t *doctor, size_t i, const char **value);
/* The options as "key=value" texts, NULL-terminated, with room for one more; to be freed. Returns how many. */
enum { FBY_DOCTOR_OPTIONS = 66 };
size_t fby_doctor_options_make(const fby_doctor_t *doctor, char *list[FBY_DOCTOR_OPTIONS]);
void fby_doctor_options_free(char *list[FBY_DOCTOR_OPTIONS]);

#endif
