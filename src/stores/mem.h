/*
 * mem.h - what a test may ask of a mem store, and do to it behind its users' backs.
 *
 * Options: docs/stores.md. Opens with the same option name=X share objects, counters and script, so a test opens the
 * name once more for itself and keeps it open while caches over it come and go. Every function takes any handle of the
 * name; all are thread-safe. fby_mem_calls to fby_mem_await_hung also take a handle of the `fault` driver.
 */
#ifndef FBY_STORES_MEM_H
#define FBY_STORES_MEM_H

#include "stores/rig.h"

/* Keys asked for (a batch of 8 counts 8), refused calls included; key NULL: all keys. */
static inline uint64_t fby_mem_calls(fby_store_t *store, fby_verb_t verb, const char *key)
{
    return fby_rig_calls(store, verb, key);
}
/* Driver calls. */
static inline uint64_t fby_mem_batches(fby_store_t *store, fby_verb_t verb)
{
    return fby_rig_batches(store, verb);
}
/* Keys asked for and not answered yet: delayed, hanging and lost ones. */
static inline uint32_t fby_mem_outstanding(fby_store_t *store)
{
    return fby_rig_outstanding(store);
}
/* Lets everything that hangs now go on. */
static inline void fby_mem_release(fby_store_t *store)
{
    fby_rig_release(store);
}
/* Events to wait for; false: timeout_ns passed first. */
static inline bool fby_mem_await_calls(fby_store_t *store, fby_verb_t verb, const char *key, uint64_t calls,
                                       uint64_t timeout_ns)
{
    return fby_rig_await_calls(store, verb, key, calls, timeout_ns);
}
static inline bool fby_mem_await_hung(fby_store_t *store, uint32_t hung, uint64_t timeout_ns)
{
    return fby_rig_await_hung(store, hung, timeout_ns);
}

/* Replaces the script, bandwidth and latency for calls from now on; nth= and call= count from 1 again. Errors as
   fby_script_parse(). */
int fby_mem_script(fby_store_t *store, const char *text, char *error, size_t error_size);
/* Stores an object. -ENOMEM. */
int fby_mem_put(fby_store_t *store, const char *key, const void *object, uint32_t bytes);
/* Copies up to `capacity` bytes out; the object's length, or FBY_E_MISSING. */
int64_t fby_mem_read(fby_store_t *store, const char *key, void *buffer, uint32_t capacity);
/* Flips one bit (modulo the object's bits). FBY_E_MISSING. */
int fby_mem_corrupt(fby_store_t *store, const char *key, uint64_t bit);
/* FBY_E_MISSING. */
int fby_mem_remove(fby_store_t *store, const char *key);
uint64_t fby_mem_objects(fby_store_t *store);

#endif
