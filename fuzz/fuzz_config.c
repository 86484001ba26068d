/*
 * fuzz_config.c - any text as a configuration: it is refused with a message and nothing changes, or every value that it
 * set reads back as the same value.
 *
 * The environment is left out on purpose: create reads it, and a run must depend on its input only.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/config.h"
#include "runtime/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static void set_again(void *arg, const char *key, const char *value, const char *origin)
{
    fby_config_t *config = arg;
    const char *again;
    bool is_hidden = strcmp(value, "(set)") == 0;
    if (strcmp(origin, "file") == 0 && !is_hidden && strcmp(value, "unset") != 0) {
        char *copy = strdup(value);
        CHECK(copy != NULL && fby_config_set(config, key, copy) == 0);
        CHECK(fby_config_get(config, key, &again, NULL) == 0 && strcmp(again, copy) == 0);
        free(copy);
    }
}

static void check_unchanged(void *arg, const char *key, const char *value, const char *origin)
{
    CHECK(strcmp(origin, "file") != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fby_config_t *config = NULL;
    fby_settings_t settings;
    CHECK(fby_config_create(&config) == 0);
    int status = fby_config_parse(config, (const char *)data, size, "input");
    if (status != 0) {
        CHECK(status == FBY_E_CONFIG && *fby_last_error() != '\0');
        fby_config_each(config, check_unchanged, NULL);
    } else {
        fby_config_t *copy = fby_config_copy(config);
        CHECK(copy != NULL);
        fby_config_each(config, set_again, copy);
        fby_config_free(copy);
        if (fby_settings_resolve(config, &settings) == 0) {
            fby_settings_free(&settings);
        } else {
            CHECK(*fby_last_error() != '\0');
        }
    }
    fby_config_free(config);
    return 0;
}
