#include "cli/store_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/settings.h"

#define WRAPPER "fault:"
#define MASK "(set)"

static const char *const hosts[] = {
#define FBY_X(name, text) text,
    FBY_STORE_HOST_MAP(FBY_X)
#undef FBY_X
};

static bool is_host(const char *word)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(hosts); i++) {
        if (strcmp(hosts[i], word) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- Items ------------------------------------------------------------------------------------------------------- */

static bool is_escape(const char *at)
{
    return at[0] == '\\' && at[1] != '\0' && strchr(",()\\", at[1]) != NULL;
}

/* Bytes of the item up to the next comma that separates, or to the end. */
static size_t item_length(const char *item)
{
    int depth = 0;
    const char *at = item;
    for (; *at != '\0' && (*at != ',' || depth > 0); at++) {
        if (is_escape(at)) {
            at++;
        } else {
            depth += (*at == '(') - (*at == ')');
            depth = FBY_MAX(depth, 0);
        }
    }
    return (size_t)(at - item);
}

static void unescape(char *value)
{
    char *to = value;
    for (const char *at = value; *at != '\0'; at++) {
        at += is_escape(at);
        *to++ = *at;
    }
    *to = '\0';
}

static char *driver_start(char *text)
{
    return strncmp(text, WRAPPER, strlen(WRAPPER)) == 0 ? text + strlen(WRAPPER) : text;
}

/* ---- Masking ----------------------------------------------------------------------------------------------------- */

bool fby_store_option_is_secret(const char *name)
{
    return strcasestr(name, "password") != NULL || strcasestr(name, "secret") != NULL ||
           strcasestr(name, "token") != NULL;
}

/* Behind a secret, an item without '=' may be the rest of one that holds a comma. */
static bool hides(const char *item, size_t length, bool after_secret)
{
    const char *equals = memchr(item, '=', length);
    char name[128];
    if (equals == NULL) {
        return after_secret;
    }
    snprintf(name, sizeof(name), "%.*s", (int)FBY_MIN((size_t)(equals - item), sizeof(name) - 1), item);
    return fby_store_option_is_secret(name);
}

/* A copy that may be printed, to be freed; NULL when out of memory. */
static char *mask(char *text)
{
    char *rest = strchr(driver_start(text), ':'), *out = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&out, &size);
    if (stream == NULL) {
        return NULL;
    }
    int head = rest == NULL ? (int)strlen(text) : (int)(rest + 1 - text);
    fprintf(stream, "%.*s", head, text);
    bool after_secret = false;
    for (const char *item = text + head; *item != '\0';) {
        size_t length = item_length(item);
        bool hidden = hides(item, length, after_secret);
        const char *equals = memchr(item, '=', length);
        int shown = !hidden ? (int)length : equals == NULL ? 0 : (int)(equals + 1 - item);
        fprintf(stream, "%.*s%s%s", shown, item, hidden ? MASK : "", item[length] == ',' ? "," : "");
        after_secret = hidden;
        item += length + (item[length] == ',');
    }
    return fclose(stream) == 0 ? out : NULL;
}

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

/* `text` and `part` must be masked. */
static int wrong(const char *text, const char *part, const char *why)
{
    char quoted[192], part_quoted[96];
    fby_log_quote(quoted, sizeof(quoted), text);
    if (part == NULL) {
        fby_error_set("store %s %s; accepted: " FBY_STORE_ACCEPTED, quoted, why);
    } else {
        fby_error_set("store %s: %s %s; accepted: " FBY_STORE_ACCEPTED, quoted,
                      fby_log_quote(part_quoted, sizeof(part_quoted), part), why);
    }
    return FBY_E_CONFIG;
}

static bool keeps_files(const char *driver)
{
    return strcmp(driver, "file") == 0 || strcmp(driver, WRAPPER "file") == 0;
}

static int take_option(fby_store_text_t *out, char *item, bool after_secret)
{
    char *equals = strchr(item, '=');
    bool is_directory = equals == NULL && out->options == 0 && *item != '\0' && keeps_files(out->driver);
    if (equals == item || (equals == NULL && !is_directory)) {
        return wrong(out->text, equals == NULL && after_secret ? MASK : item, "is not key=value");
    }
    if (equals != NULL) {
        *equals = '\0';
    }
    if (out->options == FBY_STORE_TEXT_OPTIONS) {
        return wrong(out->text, is_directory ? "dir" : item, "is one option too many");
    }
    char *value = is_directory ? item : equals + 1;
    unescape(value);
    out->option[out->options].name = is_directory ? "dir" : item;
    out->option[out->options++].value = value;
    return 0;
}

/* Cuts "@HOST" off the driver. */
static int take_host(fby_store_text_t *out, char *driver)
{
    char *at = strrchr(driver, '@');
    if (at == NULL || (strchr(driver, '/') != NULL && !is_host(at + 1))) {
        return 0;
    }
    if (!is_host(at + 1)) {
        return wrong(out->text, at + 1, "is no host: auto, inline, thread and agent are");
    }
    *at = '\0';
    out->host = at + 1;
    return 0;
}

/* Cuts the copy into driver, host and options. */
static int cut(fby_store_text_t *out)
{
    char *driver = driver_start(out->copy), *item = strchr(driver, ':');
    if (item != NULL) {
        *item++ = '\0';
    }
    int status = take_host(out, driver);
    out->driver = out->copy;
    if (status == 0 && *driver == '\0') {
        return wrong(out->text, NULL, "names no driver");
    }
    bool more = item != NULL && *item != '\0', after_secret = false;
    while (more && status == 0) {
        size_t length = item_length(item);
        more = item[length] == ',';
        item[length] = '\0';
        status = take_option(out, item, after_secret);
        after_secret = fby_store_option_is_secret(item); /* cut at its '=' by now */
        item += length + 1;
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
    out->copy = strdup(meant);
    out->text = out->copy != NULL ? mask(out->copy) : NULL;
    int status = out->text == NULL ? -ENOMEM : cut(out);
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
    status = status == 0 && store->host != NULL ? fby_config_set(config, "store.host", store->host) : status;
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
