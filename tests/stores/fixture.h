/* fixture.h - objects, buffers and directories for tests of stores. */
#ifndef FBY_TESTS_STORES_FIXTURE_H
#define FBY_TESTS_STORES_FIXTURE_H

#include "unit.h"

#include <errno.h>

#include "forebay/store.h"
#include "stores/object.h"

/* Two groups: `payload` bytes, and half of them. Buffers are slots of whole 4 KiB blocks. */
fby_store_spec_t fixture_spec(uint32_t payload);
/* Key of object number i; its bytes and its trailer are a function of spec, i and group too. */
void fixture_key(uint64_t i, uint32_t group, char key[FBY_KEY_BYTES]);
fby_object_id_t fixture_id(const fby_store_spec_t *spec, uint64_t i, uint32_t group);
/* Fills a buffer of spec->slot_bytes[group] with the sealed object. */
void fixture_fill(const fby_store_spec_t *spec, uint64_t i, uint32_t group, void *buffer);
/* Whether the buffer holds exactly that object. */
bool fixture_holds(const fby_store_spec_t *spec, uint64_t i, uint32_t group, const void *buffer);
/* An aligned buffer of `slots` slots, painted 0xEE; free() it. */
uint8_t *fixture_buffer(const fby_store_spec_t *spec, uint32_t slots);

/* An op on object i; the buffer may be NULL. */
fby_store_op_t fixture_op(const fby_store_spec_t *spec, uint64_t i, uint32_t group, void *buffer);
/* Blocking put, get and exists of one object of group 0; the result of the key. get also checks the bytes of a hit. */
int64_t fixture_put(const fby_store_driver_t *driver, fby_store_t *store, const fby_store_spec_t *spec, uint64_t i);
int64_t fixture_get(const fby_store_driver_t *driver, fby_store_t *store, const fby_store_spec_t *spec, uint64_t i);
int64_t fixture_exists(const fby_store_driver_t *driver, fby_store_t *store, uint64_t i);
int64_t fixture_remove(const fby_store_driver_t *driver, fby_store_t *store, uint64_t i);

/*
 * With FOREBAY_TEST_HOST=agent in the environment, fixture_open opens the driver in agents: a test runs the same stories
 * there by calling the store through fixture_host(driver). Buffers are the test's own and go through the lanes' bounce
 * areas. A story that looks into the store, or behind its back, begins with fixture_needs_process(): it is skipped there.
 */
const fby_store_driver_t *fixture_host(const fby_store_driver_t *driver);
bool fixture_hosted(void);
void fixture_needs_process(void);

/* Opens or fails the test with the driver's message. Up to 8 options, then NULL. */
fby_store_t *fixture_open(const fby_store_driver_t *driver, const fby_store_spec_t *spec, ...)
    __attribute__((sentinel));
/* Expects the open to fail with `code` and the message to contain `part`. */
void fixture_refused(const fby_store_driver_t *driver, const fby_store_spec_t *spec, int code, const char *part, ...)
    __attribute__((sentinel));

/* A new empty directory, and its end with all that is in it. */
char *fixture_directory(void);
void fixture_remove_directory(char *path);
/* "dir=PATH"; static storage, four at a time. */
const char *fixture_dir_option(const char *path);

#endif
