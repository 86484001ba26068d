/* fault.h - opening the fault wrapper over a driver that is named by the caller and not by an option. */
#ifndef FBY_STORES_FAULT_H
#define FBY_STORES_FAULT_H

#include "forebay/store.h"

/* As fby_store_fault.open; option inner= wins over `inner`, which may be NULL. */
int fby_fault_open(const char *inner, const fby_store_spec_t *spec, const char *const *options, fby_store_t **out,
                   char *error, size_t error_size);

#endif
