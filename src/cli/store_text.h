/*
 * store_text.h - a store named by one text: what `--store` takes, and what FOREBAY_STORE holds.
 *
 *   mem                            in this process
 *   file:DIRECTORY                 short for file:dir=DIRECTORY
 *   DRIVER:key=value,key=value     any driver with its options
 *   DRIVER@HOST:key=value,...      likewise, with store.host: auto, inline, thread, agent
 *   fault:DRIVER:key=value,...     likewise, behind the fault wrapper
 *   env                            what FOREBAY_STORE holds: any of the above
 *
 * A value reaches to the next comma: ':', '/', '=' and '@' are part of it, and so is a comma inside ( ). A backslash
 * before a comma, a parenthesis or a backslash makes it an ordinary character and is dropped. An '@' in the path of a
 * plug-in is part of the path unless one of the four words stands behind it.
 */
#ifndef FBY_CLI_STORE_TEXT_H
#define FBY_CLI_STORE_TEXT_H

#include "base/base.h"
#include "forebay/forebay.h"

#define FBY_STORE_ACCEPTED "mem, file:DIRECTORY, DRIVER[@HOST]:key=value,key=value, fault:DRIVER:key=value,..., or env"
enum { FBY_STORE_TEXT_OPTIONS = 32 };

typedef struct fby_store_text {
    char *text; /* as given, or as FOREBAY_STORE has it, secrets masked: fit to be printed */
    char *copy; /* the same with its secrets, cut: what the pointers below point into */
    const char *driver;
    const char *host; /* NULL: none named */
    struct {
        const char *name, *value;
    } option[FBY_STORE_TEXT_OPTIONS];
    uint32_t options;
} fby_store_text_t;

/* FBY_E_CONFIG with a detail that names the text, the part and what is accepted; -ENOMEM. */
int fby_store_text_parse(const char *text, fby_store_text_t *out);
void fby_store_text_free(fby_store_text_t *store);
/* Sets store.driver, store.host when one was named, and store.options.*. Errors of fby_config_set(). */
int fby_store_text_apply(const fby_store_text_t *store, fby_config_t *config);
/* Whether an option of that name holds a secret: password, secret or token in its name. */
bool fby_store_option_is_secret(const char *name);

#endif
