/*
 * store_target.h - the store that a command was pointed at: by directory, text, driver and options, or configuration.
 *
 * The driver runs inside the command, whatever store.host says: a store in an agent of its own would look no different.
 * A driver that may not run there is refused with what to do instead.
 */
#ifndef FBY_CLI_STORE_TARGET_H
#define FBY_CLI_STORE_TARGET_H

#include "cli/args.h"
#include "forebay/store.h"
#include "runtime/config_value.h"

#define FBY_STORE_TARGET_ALIGNMENT 4096u /* of buffers that objects are read into */

typedef struct fby_store_choice {
    const char *config, *text, *driver, *directory; /* NULL: not given */
    fby_texts_t options;                            /* "key=value" */
} fby_store_choice_t;

typedef struct fby_store_target {
    const fby_store_driver_t *driver;
    fby_store_t *store;
} fby_store_target_t;

/* NULL, or what is wrong with the combination. Static text. */
const char *fby_store_choice_fault(const fby_store_choice_t *choice);
/* Opens it; read-only where the driver knows the difference, unless `writes`. A code with the detail set. */
int fby_store_target_open(const fby_store_choice_t *choice, bool writes, fby_store_target_t *out);
void fby_store_target_close(fby_store_target_t *target);

#endif
