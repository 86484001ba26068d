/*
 * config_env.c - FOREBAY_* variables as configuration.
 *
 * "prefetch.policy" is FOREBAY_PREFETCH_POLICY: upper case, dots to underscores. An unknown name that begins like a
 * section of the configuration is an error, since it can only be a slip; any other FOREBAY_* variable belongs to a tool
 * (FOREBAY_STORE, FOREBAY_TRACES) and is left alone.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "runtime/config.h"
#include "runtime/suggest.h"

#define PREFIX "FOREBAY_"
#define OPTIONS_PREFIX "FOREBAY_STORE_OPTIONS_"

enum { NAME_BYTES = 128 };

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static void variable_of_key(const char *key, char out[NAME_BYTES])
{
    int length = snprintf(out, NAME_BYTES, PREFIX "%s", key);
    for (int i = 0; i < length && i < NAME_BYTES; i++) {
        out[i] = out[i] == '.' ? '_' : (char)toupper((unsigned char)out[i]);
    }
}

/* Key of a variable into out; false when no key has that name. */
static bool key_of_variable(const char *variable, char out[NAME_BYTES])
{
    char candidate[NAME_BYTES];
    for (size_t id = 0; id < FBY_KEY_COUNT; id++) {
        variable_of_key(fby_keys[id].name, candidate);
        if (strcmp(candidate, variable) == 0) {
            snprintf(out, NAME_BYTES, "%s", fby_keys[id].name);
            return true;
        }
    }
    if (!starts_with(variable, OPTIONS_PREFIX)) {
        return false;
    }
    int length = snprintf(out, NAME_BYTES, FBY_OPTIONS_PREFIX "%s", variable + strlen(OPTIONS_PREFIX));
    for (int i = 0; i < length && i < NAME_BYTES; i++) {
        out[i] = (char)tolower((unsigned char)out[i]);
    }
    return true;
}

static bool looks_like_ours(const char *variable)
{
    static const char *const sections[] = {"PREFETCH_", "MODEL_", "POOL_", "STORE_", "SERVER_", "METRICS_", "LOG_"};
    for (size_t i = 0; i < FBY_ARRAY_LEN(sections); i++) {
        if (starts_with(variable + strlen(PREFIX), sections[i])) {
            return true;
        }
    }
    return false;
}

static int unknown_variable(const char *variable)
{
    char quoted[96], nearest[NAME_BYTES] = "", candidate[NAME_BYTES];
    uint32_t nearest_distance = UINT32_MAX;
    for (size_t id = 0; id < FBY_KEY_COUNT; id++) {
        fby_suggest_t suggest;
        variable_of_key(fby_keys[id].name, candidate);
        fby_suggest_init(&suggest, variable);
        fby_suggest_offer(&suggest, candidate);
        if (suggest.best != NULL && suggest.best_distance < nearest_distance) {
            nearest_distance = suggest.best_distance;
            memcpy(nearest, candidate, sizeof(nearest));
        }
    }
    fby_log_quote(quoted, sizeof(quoted), variable);
    if (*nearest != '\0') {
        fby_error_set("environment: unknown variable %s; did you mean %s?", quoted, nearest);
    } else {
        fby_error_set("environment: unknown variable %s; accepted: FOREBAY_ and a key in capitals with '_' for '.'",
                      quoted);
    }
    return FBY_E_CONFIG;
}

int fby_config_environment(fby_config_t *config, char *const *environment)
{
    int status = 0;
    for (size_t i = 0; environment != NULL && environment[i] != NULL && status == 0; i++) {
        const char *equals = strchr(environment[i], '=');
        if (equals == NULL || !starts_with(environment[i], PREFIX)) {
            continue;
        }
        char variable[NAME_BYTES], key[NAME_BYTES], where[NAME_BYTES + 16];
        snprintf(variable, sizeof(variable), "%.*s", (int)FBY_MIN(equals - environment[i], NAME_BYTES - 1),
                 environment[i]);
        if (key_of_variable(variable, key)) {
            snprintf(where, sizeof(where), "environment %s", variable);
            status = fby_config_assign(config, FBY_LAYER_ENVIRONMENT, key, equals + 1, FBY_STYLE_TEXT, where);
        } else if (looks_like_ours(variable)) {
            status = unknown_variable(variable);
        }
    }
    return status;
}
