#include "cli/store_target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/settings.h"
#include "stores/stores.h"

enum { OPTIONS_MOST = FBY_ARG_LIST_MOST + 4 };

const char *fby_store_choice_fault(const fby_store_choice_t *choice)
{
    bool has_driver = choice->driver != NULL || choice->options.count > 0 || choice->directory != NULL;
    if (choice->config != NULL && has_driver) {
        return "--config stands beside another way to name the store; accepted: --config, or DIRECTORY, or --driver "
               "with --option";
    }
    if (choice->config == NULL && !has_driver) {
        return "no store is named; accepted: DIRECTORY, --driver with --option, or --config FILE";
    }
    if (choice->directory != NULL && choice->driver != NULL && strcmp(choice->driver, "file") != 0) {
        return "DIRECTORY belongs to the driver file; accepted: --driver with --option dir=DIRECTORY";
    }
    for (size_t i = 0; i < choice->options.count; i++) {
        if (strchr(choice->options.item[i], '=') == NULL) {
            return "--option has no '='; accepted: --option KEY=VALUE";
        }
    }
    return NULL;
}

/* A driver that writes files takes the option; others would refuse it. */
static bool knows_readonly(const char *driver)
{
    return strcmp(driver, "file") == 0 || strcmp(driver, "fault:file") == 0;
}

/* A spec without groups says that a tool looks: nothing will be put, and no weights epoch is checked or raised. */
static int open_driver(const char *name, const char *const *options, fby_store_target_t *out)
{
    const fby_store_spec_t spec = {.size = sizeof(spec), .alignment = FBY_STORE_TARGET_ALIGNMENT};
    char error[512] = "";
    const fby_store_driver_t *driver = fby_store_find(name, error, sizeof(error));
    if (driver == NULL) {
        fby_error_set("%s", error);
        return FBY_E_CONFIG;
    }
    fby_store_t *store = NULL;
    int status = driver->open(&spec, options, &store, error, sizeof(error));
    if (status < 0) {
        fby_error_set("%s", *error != '\0' ? error : fby_strerror(status));
        return status;
    }
    *out = (fby_store_target_t){driver, store};
    return 0;
}

static int open_configured(const char *path, bool writes, fby_store_target_t *out)
{
    fby_config_t *config = NULL;
    fby_settings_t settings;
    const char *options[OPTIONS_MOST + 1];
    size_t count = 0;
    int status = fby_config_create(&config);
    status = status == 0 ? fby_config_load(config, path) : status;
    status = status == 0 ? fby_settings_resolve(config, &settings) : status;
    fby_config_free(config);
    if (status != 0) {
        return status;
    }
    while (settings.store.options[count] != NULL && count < OPTIONS_MOST - 1) {
        options[count] = settings.store.options[count];
        count++;
    }
    if (!writes && knows_readonly(settings.store.driver)) {
        options[count++] = "readonly=true";
    }
    options[count] = NULL;
    status = open_driver(settings.store.driver, options, out);
    fby_settings_free(&settings);
    return status;
}

int fby_store_target_open(const fby_store_choice_t *choice, bool writes, fby_store_target_t *out)
{
    if (choice->config != NULL) {
        return open_configured(choice->config, writes, out);
    }
    const char *name = choice->driver != NULL ? choice->driver : "file", *options[OPTIONS_MOST + 1];
    char *directory = NULL;
    size_t count = 0;
    if (choice->directory != NULL && asprintf(&directory, "dir=%s", choice->directory) < 0) {
        return -ENOMEM;
    }
    if (directory != NULL) {
        options[count++] = directory;
    }
    for (size_t i = 0; i < choice->options.count; i++) {
        options[count++] = choice->options.item[i];
    }
    if (!writes && knows_readonly(name)) {
        options[count++] = "readonly=true";
    }
    options[count] = NULL;
    int status = open_driver(name, options, out);
    free(directory);
    return status;
}

void fby_store_target_close(fby_store_target_t *target)
{
    target->driver->close(target->store);
    *target = (fby_store_target_t){0};
}
