/* mooncake_rig.h - driver `mooncake` over the conformance double (mooncake_double.c), as if in an agent. */
#ifndef FBY_TESTS_STORES_MOONCAKE_RIG_H
#define FBY_TESTS_STORES_MOONCAKE_RIG_H

#include "fixture.h"

#include "stores/mooncake.h"
#include "stores/stores.h"

enum { RIG_SLOT = 4096 };

extern const fby_store_driver_t *const rig_driver;
extern fby_store_spec_t rig_spec;                 /* objects of 1,024 bytes */
extern char rig_library[600], rig_directory[300]; /* options: the double, and its directory */

/* A fresh directory per test. */
int rig_set_up(void **state);
int rig_tear_down(void **state);

/* The double's switches (mooncake_double.c) and its notes of calls. */
void rig_path(const char *name, char path[512]);
void rig_switch_on(const char *name, const char *text);
void rig_switch_off(const char *name);
/* Lines that begin with `call` since the last rig_forget_calls; the numbers at their ends in order. */
size_t rig_calls(const char *call, size_t *sizes, size_t most);
void rig_forget_calls(void);

/* `option` may be NULL. With a pool: objects that were read have no lease. */
fby_store_t *rig_open(const char *option);
fby_store_t *rig_open_with_pool(uint8_t **pool, uint32_t slots);
void rig_close_with_pool(fby_store_t *store, uint8_t *pool);
/* Ops on objects 0..n-1 of group 0, in the first n slots. */
void rig_ops(fby_store_op_t *ops, uint8_t *pool, uint32_t n);
/* A client of the double that was set up without the driver; the library's functions go to *abi. */
void *rig_bare_client(fby_mooncake_abi_t *abi);
/* Until another process or thread wrote something else there; at most 30 s. */
void rig_await_write(const volatile uint8_t *byte, uint8_t old);

#endif
