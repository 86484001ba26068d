/*
 * replay_store.h - a store named by one text, as `demo --store` and `replay --store` take it.
 *
 *   mem                            in this process
 *   file:DIRECTORY                 short for file:dir=DIRECTORY
 *   DRIVER:key=value,key=value     any driver with its options; a comma inside ( ) belongs to the value
 *   fault:DRIVER:key=value,...     likewise, behind the fault wrapper
 *   env                            what FOREBAY_STORE holds: any of the above
 */
#ifndef FBY_CLI_REPLAY_STORE_H
#define FBY_CLI_REPLAY_STORE_H

#include "base/base.h"
#include "forebay/forebay.h"

#define FBY_STORE_ACCEPTED "mem, file:DIRECTORY, DRIVER:key=value,key=value, fault:DRIVER:key=value,..., or env"
enum { FBY_STORE_TEXT_OPTIONS = 32 };

typedef struct fby_store_text {
    char *text; /* as given, or as FOREBAY_STORE has it */
    char *copy; /* the same, cut: what the pointers below point into */
    const char *driver;
    struct {
        const char *name, *value;
    } option[FBY_STORE_TEXT_OPTIONS];
    uint32_t options;
} fby_store_text_t;

/* FBY_E_CONFIG with a detail that names the text, the part and what is accepted; -ENOMEM. */
int fby_store_text_parse(const char *text, fby_store_text_t *out);
void fby_store_text_free(fby_store_text_t *store);
/* Sets store.driver and store.options.*. Errors of fby_config_set(). */
int fby_store_text_apply(const fby_store_text_t *store, fby_config_t *config);

#endif
