/* stores.h - the built-in drivers, the registry, and the fault wrapper. */
#ifndef FBY_STORES_H
#define FBY_STORES_H

#include "forebay/store.h"

extern const fby_store_driver_t fby_store_mem;
extern const fby_store_driver_t fby_store_file;
/* Wraps another driver: option "inner=NAME" and "script=..."; other options pass on. Free when the script is empty. */
extern const fby_store_driver_t fby_store_fault;
extern const fby_store_driver_t fby_store_redis;
/* Needs isolation: outside of an agent it checks its options and does nothing else. */
extern const fby_store_driver_t fby_store_mooncake;

/* A built-in by name, "fault:NAME" for a wrapped one, or a path with a '/' to a shared object (ABI and size checked,
   every function that is not optional must be there). NULL with a message: what was asked for, and what there is. */
const fby_store_driver_t *fby_store_find(const char *name, char *error, size_t error_size);

/* Set once by an agent's main: drivers that need isolation may start their clients in this process. */
extern bool fby_store_isolated;
/* The program that serves this driver in an agent, when it is not forebay-agent: argv[0] is an interpreter (searched in
   PATH), the name of argv[1] is one of our own programs. False: forebay-agent. */
typedef struct fby_store_program {
    const char *interpreter; /* points into options, or is constant */
    const char *name;
} fby_store_program_t;
bool fby_store_agent_program(const char *driver, const char *const *options, fby_store_program_t *out);

#endif
