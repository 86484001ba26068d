#include "cli/replay_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define WRAPPER "fault:"

static int wrong(const char *text, const char *part, const char *why)
{
    char quoted[128], part_quoted[96];
    fby_log_quote(quoted, sizeof(quoted), text);
    if (part == NULL) {
        fby_error_set("store %s %s; accepted: " FBY_STORE_ACCEPTED, quoted, why);
    } else {
        fby_error_set("store %s: %s %s; accepted: " FBY_STORE_ACCEPTED, quoted,
                      fby_log_quote(part_quoted, sizeof(part_quoted), part), why);
    }
    return FBY_E_CONFIG;
}

/* Ends the item at the next comma outside parentheses. The rest, or NULL after the last. */
static char *split(char *item)
{
    int depth = 0;
    for (char *at = item; *at != '\0'; at++) {
        depth += (*at == '(') - (*at == ')');
        if (*at == ',' && depth <= 0) {
            *at = '\0';
            return at + 1;
        }
    }
    return NULL;
}

static bool keeps_files(const char *driver)
{
    return strcmp(driver, "file") == 0 || strcmp(driver, WRAPPER "file") == 0;
}

static int take_option(fby_store_text_t *out, char *item)
{
    char *equals = strchr(item, '=');
    bool is_directory = equals == NULL && out->options == 0 && *item != '\0' && keeps_files(out->driver);
    if (out->options == FBY_STORE_TEXT_OPTIONS) {
        return wrong(out->text, item, "is one option too many");
    }
    if (equals == item || (equals == NULL && !is_directory)) {
        return wrong(out->text, item, "is not key=value");
    }
    if (equals != NULL) {
        *equals = '\0';
    }
    out->option[out->options].name = is_directory ? "dir" : item;
    out->option[out->options++].value = is_directory ? item : equals + 1;
    return 0;
}

/* Cuts the copy into driver and options. */
static int cut(fby_store_text_t *out)
{
    size_t wrapper = strlen(WRAPPER);
    char *from = strncmp(out->copy, WRAPPER, wrapper) == 0 ? out->copy + wrapper : out->copy;
    char *rest = strchr(from, ':');
    out->driver = out->copy;
    if (*from == '\0' || *from == ':') {
        return wrong(out->text, NULL, "names no driver");
    }
    if (rest == NULL) {
        return 0;
    }
    *rest++ = '\0';
    int status = 0;
    while (rest != NULL && status == 0) {
        char *item = rest;
        rest = split(item);
        status = take_option(out, item);
    }
    return status;
}

int fby_store_text_parse(const char *text, fby_store_text_t *out)
{
    const char *meant = strcmp(text, "env") == 0 ? getenv("FOREBAY_STORE") : text;
    *out = (fby_store_text_t){.text = NULL};
    if (meant == NULL || (meant != text && (*meant == '\0' || strcmp(meant, "env") == 0))) {
        return wrong(text, NULL, "reads FOREBAY_STORE, which holds no store");
    }
    out->text = strdup(meant);
    out->copy = strdup(meant);
    int status = out->text == NULL || out->copy == NULL ? -ENOMEM : cut(out);
    if (status == -ENOMEM) {
        fby_error_set("out of memory");
    }
    if (status != 0) {
        fby_store_text_free(out);
    }
    return status;
}

void fby_store_text_free(fby_store_text_t *store)
{
    free(store->text);
    free(store->copy);
    *store = (fby_store_text_t){0};
}

int fby_store_text_apply(const fby_store_text_t *store, fby_config_t *config)
{
    int status = fby_config_set(config, "store.driver", store->driver);
    for (uint32_t i = 0; i < store->options && status == 0; i++) {
        char key[128];
        int length = snprintf(key, sizeof(key), "store.options.%s", store->option[i].name);
        if (length < 0 || (size_t)length >= sizeof(key)) {
            return wrong(store->text, store->option[i].name, "is too long for the name of an option");
        }
        status = fby_config_set(config, key, store->option[i].value);
    }
    return status;
}
