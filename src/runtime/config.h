/*
 * config.h - the configuration object behind fby_config_t: layers of texts.
 *
 * DESIGN
 *   Each key has one entry per layer (file, environment); the default is the table's. The effective value is the first
 *   of file, environment, default that is there. Entries hold canonical text, checked when it was assigned, so that
 *   resolving cannot fail on a single value. store.options.* has names of the driver's choice and is kept as a list.
 *   Changes are made on a copy and swapped in when all of them were right: a failed call changes nothing.
 */
#ifndef FBY_RUNTIME_CONFIG_H
#define FBY_RUNTIME_CONFIG_H

#include "base/base.h"
#include "forebay/forebay.h"
#include "runtime/config_value.h"

#define FBY_OPTIONS_PREFIX "store.options."

enum { FBY_WHERE_BYTES = 288, FBY_OPTION_NAME_BYTES = 64, FBY_OPTIONS_MOST = 64 };

typedef enum fby_layer { FBY_LAYER_FILE, FBY_LAYER_ENVIRONMENT, FBY_LAYER_COUNT } fby_layer_t;

typedef struct fby_entry {
    char *text;  /* NULL: not in this layer */
    char *where; /* for messages: "forebay.yaml:12", "environment FOREBAY_HASH", "" */
} fby_entry_t;

typedef struct fby_option_entry {
    char *key; /* with the prefix: "store.options.directory" */
    fby_entry_t layer[FBY_LAYER_COUNT];
} fby_option_entry_t;

struct fby_config {
    fby_entry_t layer[FBY_LAYER_COUNT][FBY_KEY_COUNT];
    fby_option_entry_t options[FBY_OPTIONS_MOST]; /* sorted by key */
    uint32_t option_count;
    /* Values that follow from others while nobody set them; fby_config_derive() keeps them current. "": not derived. */
    char derived[FBY_KEY_COUNT][24];
};

/* How a scalar was written: only a file's plain scalars have a type of their own. */
typedef enum fby_style { FBY_STYLE_TEXT, FBY_STYLE_PLAIN, FBY_STYLE_QUOTED } fby_style_t;

/* Assigns one value. `where` stands in messages and is copied. FBY_E_CONFIG with the detail set, -ENOMEM. */
int fby_config_assign(fby_config_t *config, fby_layer_t layer, const char *key, const char *text, fby_style_t style,
                      const char *where);
/* Reads every FOREBAY_* of `environment` ("NAME=value", NULL-terminated) into the environment layer. */
int fby_config_environment(fby_config_t *config, char *const *environment);
/* A copy; NULL when out of memory. */
fby_config_t *fby_config_copy(const fby_config_t *config);
/* Recomputes what follows from other values. */
void fby_config_derive(fby_config_t *config);

/* Effective canonical text of a key, secrets included. *entry (may be NULL): where it was set; NULL for a default. */
const char *fby_config_text(const fby_config_t *config, fby_key_id_t id, const fby_entry_t **entry);
/* The effective value. */
void fby_config_value(const fby_config_t *config, fby_key_id_t id, fby_value_t *value);
/* Whether somebody set it. */
bool fby_config_is_set(const fby_config_t *config, fby_key_id_t id);
const fby_entry_t *fby_option_effective(const fby_option_entry_t *option);

/* "file.yaml:3: " or "": the head of a message. */
const char *fby_where_head(const char *where, char out[FBY_WHERE_BYTES]);
/* Sets the detail for a key that does not exist, with a suggestion. Returns FBY_E_CONFIG. */
int fby_config_unknown_key(const char *where, const char *key);
/* Sets the detail for a wrong value of a known key: "WHERE: KEY: VALUE WHY; accepted: ...". Returns FBY_E_CONFIG. */
int fby_config_wrong_value(const char *where, const fby_key_t *key, const char *text, const char *why);

#endif
