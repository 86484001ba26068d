/*
 * handles.h - what the runtime keeps per put and per hold, found by handle: a hash table of fixed size.
 *
 * Linear probing at half load, deletion by moving back, no allocation after init. The caller guards it.
 */
#ifndef FBY_RUNTIME_HANDLES_H
#define FBY_RUNTIME_HANDLES_H

#include "base/base.h"

typedef struct fby_handle_entry {
    uint64_t handle; /* 0: free */
    uint64_t value;
} fby_handle_entry_t;

typedef struct fby_handles {
    fby_handle_entry_t *entry;
    uint32_t mask, count, most;
} fby_handles_t;

/* Room for `most` handles at once. -ENOMEM. */
int fby_handles_init(fby_handles_t *handles, uint32_t most);
void fby_handles_free(fby_handles_t *handles);
/* The value's place, or NULL. Valid until the next put or remove. */
uint64_t *fby_handles_find(const fby_handles_t *handles, uint64_t handle);
/* Adds or overwrites; false when full. */
bool fby_handles_set(fby_handles_t *handles, uint64_t handle, uint64_t value);
/* Removes and returns the value, or 0. */
uint64_t fby_handles_remove(fby_handles_t *handles, uint64_t handle);

#endif
