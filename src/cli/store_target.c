#include "cli/store_target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/store_text.h"
#include "runtime/settings.h"
#include "stores/stores.h"

enum { OPTIONS_MOST = FBY_ARG_LIST_MOST + 4 }; /* a configuration has no more either */

const char *fby_store_choice_fault(const fby_store_choice_t *choice)
{
    bool has_driver = choice->driver != NULL || choice->options.count > 0 || choice->directory != NULL;
    int ways = (choice->config != NULL) + (choice->text != NULL) + has_driver;
    if (ways > 1) {
        return "more than one way to name the store; accepted: one of DIRECTORY, --store TEXT, --driver with --option, "
               "--config FILE";
    }
    if (ways == 0) {
        return "no store is named; accepted: DIRECTORY, --store TEXT, --driver with --option, or --config FILE";
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

static int refuse_isolated(const char *name)
{
    fby_error_set("store driver %s runs in an agent only and cannot be looked at from here: its client can hang, and "
                  "tells nobody what the store holds. `forebay doctor` with the same --store or --config checks the "
                  "store; `forebay replay` and `forebay demo` check every byte that they read from it",
                  name);
    return -ENOTSUP;
}

/* A spec without groups says that a tool looks: nothing will be put, and no weights epoch is checked or raised. */
static int open_driver(const char *name, const char *const *options, fby_store_target_t *out)
{
    const fby_store_spec_t spec = {.size = sizeof(spec), .alignment = FBY_STORE_TARGET_ALIGNMENT};
    fby_store_caps_t caps = {.size = sizeof(caps)};
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
    driver->capabilities(store, &caps);
    if (caps.needs_isolation) {
        driver->close(store);
        return refuse_isolated(name);
    }
    *out = (fby_store_target_t){driver, store};
    return 0;
}

/* ---- The options of each way to name a store --------------------------------------------------------------------- */

/* "key=value" texts of our own. */
typedef struct named {
    char *item[OPTIONS_MOST + 1]; /* NULL-terminated */
    size_t count;
} named_t;

static int add(named_t *named, const char *key, const char *value)
{
    const char *equals = value != NULL ? "=" : "";
    if (named->count == OPTIONS_MOST) {
        fby_error_set("too many options; accepted: at most %d", OPTIONS_MOST);
        return FBY_E_CONFIG;
    }
    if (asprintf(&named->item[named->count], "%s%s%s", key, equals, value != NULL ? value : "") < 0) {
        named->item[named->count] = NULL;
        fby_error_set("out of memory");
        return -ENOMEM;
    }
    named->count++;
    return 0;
}

static int open_named(const char *driver, named_t *named, int status, bool writes, fby_store_target_t *out)
{
    if (status == 0 && !writes && knows_readonly(driver)) {
        status = add(named, "readonly", "true");
    }
    status = status == 0 ? open_driver(driver, (const char *const *)named->item, out) : status;
    for (size_t i = 0; i < named->count; i++) {
        explicit_bzero(named->item[i], strlen(named->item[i])); /* may hold a password */
        free(named->item[i]);
    }
    return status;
}

static int open_configured(const char *path, bool writes, fby_store_target_t *out)
{
    fby_config_t *config = NULL;
    fby_settings_t settings;
    named_t named = {.count = 0};
    int status = fby_config_create(&config);
    status = status == 0 ? fby_config_load(config, path) : status;
    status = status == 0 ? fby_settings_resolve(config, &settings) : status;
    fby_config_free(config);
    if (status != 0) {
        return status;
    }
    for (size_t i = 0; settings.store.options[i] != NULL && status == 0; i++) {
        status = add(&named, settings.store.options[i], NULL);
    }
    status = open_named(settings.store.driver, &named, status, writes, out);
    fby_settings_free(&settings);
    return status;
}

static int open_text(const char *text, bool writes, fby_store_target_t *out)
{
    fby_store_text_t store;
    named_t named = {.count = 0};
    int status = fby_store_text_parse(text, &store);
    if (status != 0) {
        return status;
    }
    for (uint32_t i = 0; i < store.options && status == 0; i++) {
        status = add(&named, store.option[i].name, store.option[i].value);
    }
    status = open_named(store.driver, &named, status, writes, out);
    fby_store_text_free(&store);
    return status;
}

int fby_store_target_open(const fby_store_choice_t *choice, bool writes, fby_store_target_t *out)
{
    if (choice->config != NULL) {
        return open_configured(choice->config, writes, out);
    }
    if (choice->text != NULL) {
        return open_text(choice->text, writes, out);
    }
    named_t named = {.count = 0};
    int status = choice->directory != NULL ? add(&named, "dir", choice->directory) : 0;
    for (size_t i = 0; i < choice->options.count && status == 0; i++) {
        status = add(&named, choice->options.item[i], NULL);
    }
    return open_named(choice->driver != NULL ? choice->driver : "file", &named, status, writes, out);
}

void fby_store_target_close(fby_store_target_t *target)
{
    target->driver->close(target->store);
    *target = (fby_store_target_t){0};
}
