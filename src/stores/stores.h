/* stores.h - the built-in drivers, the registry, and the fault wrapper. */
#ifndef FBY_STORES_H
#define FBY_STORES_H

#include "forebay/store.h"

extern const fby_store_driver_t fby_store_mem;
extern const fby_store_driver_t fby_store_file;
/* Wraps another driver: option "inner=NAME" and "script=..."; other options pass on. Free when the script is empty. */
extern const fby_store_driver_t fby_store_fault;

/* A built-in by name, "fault:NAME" for a wrapped one, or a path with a '/' to a shared object (ABI and size checked,
   every function that is not optional must be there). NULL with a message: what was asked for, and what there is. */
const fby_store_driver_t *fby_store_find(const char *name, char *error, size_t error_size);

#endif
