#include "runtime/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime/suggest.h"

/* ---- Entries ----------------------------------------------------------------------------------------------------- */

static void entry_clear(fby_entry_t *entry)
{
    free(entry->text);
    free(entry->where);
    *entry = (fby_entry_t){0};
}

static int entry_set(fby_entry_t *entry, const char *text, const char *where)
{
    fby_entry_t made = {strdup(text), strdup(where)};
    if (made.text == NULL || made.where == NULL) {
        entry_clear(&made);
        return -ENOMEM;
    }
    entry_clear(entry);
    *entry = made;
    return 0;
}

static int entry_copy(fby_entry_t *to, const fby_entry_t *from)
{
    return from->text == NULL ? 0 : entry_set(to, from->text, from->where);
}

const char *fby_where_head(const char *where, char out[FBY_WHERE_BYTES])
{
    snprintf(out, FBY_WHERE_BYTES, "%s%s", where, *where != '\0' ? ": " : "");
    return out;
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static const char *last_part(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot != NULL ? dot + 1 : key;
}

/* A key that lacks its unit ("timeout_max") or carries another one ("timeout_max_ms"). */
static const fby_key_t *key_without_unit(const char *key)
{
    static const char *const units[] = {"_s", "_bytes", "_tokens_per_s", "_tokens", "_blocks"};
    static const char *const others[] = {"",         "_ms",      "_us", "_ns", "_sec", "_secs",
                                         "_seconds", "_minutes", "_kb", "_mb", "_gb"};
    char stem[128], candidate[160];
    for (size_t o = 0; o < FBY_ARRAY_LEN(others); o++) {
        size_t length = strlen(key), tail = strlen(others[o]);
        if (length >= sizeof(stem) || length <= tail || strcmp(key + length - tail, others[o]) != 0) {
            continue;
        }
        snprintf(stem, sizeof(stem), "%.*s", (int)(length - tail), key);
        for (size_t u = 0; u < FBY_ARRAY_LEN(units); u++) {
            snprintf(candidate, sizeof(candidate), "%s%s", stem, units[u]);
            fby_key_id_t id = fby_key_find(candidate);
            if (id != FBY_KEY_COUNT) {
                return &fby_keys[id];
            }
        }
    }
    return NULL;
}

static const char *nearest_key(const char *key)
{
    fby_suggest_t suggest;
    fby_suggest_init(&suggest, key);
    for (size_t i = 0; i < FBY_KEY_COUNT; i++) {
        if (strcmp(last_part(fby_keys[i].name), last_part(key)) == 0) {
            return fby_keys[i].name;
        }
        fby_suggest_offer(&suggest, fby_keys[i].name);
    }
    return suggest.best;
}

int fby_config_unknown_key(const char *where, const char *key)
{
    char head[FBY_WHERE_BYTES], quoted[128];
    fby_where_head(where, head);
    fby_log_quote(quoted, sizeof(quoted), key);
    const fby_key_t *with_unit = key_without_unit(key);
    const char *nearest = with_unit != NULL ? NULL : nearest_key(key);
    if (with_unit != NULL) {
        fby_error_set("%sunknown key %s: the unit belongs to the name; did you mean %s?", head, quoted,
                      with_unit->name);
    } else if (nearest != NULL) {
        fby_error_set("%sunknown key %s; did you mean %s?", head, quoted, nearest);
    } else {
        fby_error_set("%sunknown key %s; accepted: the keys that `forebay config show` prints", head, quoted);
    }
    return FBY_E_CONFIG;
}

int fby_config_wrong_value(const char *where, const fby_key_t *key, const char *text, const char *why)
{
    char head[FBY_WHERE_BYTES], quoted[96], accepts[320];
    fby_value_accepts(key, accepts, sizeof(accepts));
    fby_error_set("%s%s: %s %s; accepted: %s", fby_where_head(where, head), key->name,
                  fby_value_quote(key, text, quoted, sizeof(quoted)), why, accepts);
    return FBY_E_CONFIG;
}

/* ---- Assigning --------------------------------------------------------------------------------------------------- */

/* Where an option of that name stands or would stand. */
static uint32_t option_place(const fby_config_t *config, const char *key, bool *found)
{
    uint32_t i = 0;
    while (i < config->option_count && strcmp(config->options[i].key, key) < 0) {
        i++;
    }
    *found = i < config->option_count && strcmp(config->options[i].key, key) == 0;
    return i;
}

/* Makes room for an option at its place; NULL when out of memory. */
static fby_option_entry_t *option_insert(fby_config_t *config, uint32_t place, const char *key)
{
    char *copy = strdup(key);
    if (copy == NULL) {
        return NULL;
    }
    fby_option_entry_t *option = &config->options[place];
    memmove(option + 1, option, (config->option_count - place) * sizeof(*option));
    *option = (fby_option_entry_t){.key = copy};
    config->option_count++;
    return option;
}

static bool option_name_is_good(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && strchr("_-.", name[i]) == NULL) {
            return false;
        }
    }
    return length > 0 && length < FBY_OPTION_NAME_BYTES;
}

static int assign_option(fby_config_t *config, fby_layer_t layer, const char *key, const char *text, const char *where)
{
    char head[FBY_WHERE_BYTES], quoted[96];
    fby_where_head(where, head);
    if (!option_name_is_good(key + strlen(FBY_OPTIONS_PREFIX))) {
        fby_error_set(
            "%s%s is not the name of an option; accepted: store.options. and 1 to 63 letters, digits, '_', '-', '.'",
            head, fby_log_quote(quoted, sizeof(quoted), key));
        return FBY_E_CONFIG;
    }
    if (strchr(text, '\n') != NULL || strlen(text) >= FBY_VALUE_TEXT_BYTES * 8) {
        fby_error_set("%s%s: the value has a line break or is too long; accepted: one line of less than 8192 bytes",
                      head, key);
        return FBY_E_CONFIG;
    }
    bool found;
    uint32_t place = option_place(config, key, &found);
    if (!found && config->option_count == FBY_OPTIONS_MOST) {
        fby_error_set("%s%s: too many options; accepted: at most %d", head, key, FBY_OPTIONS_MOST);
        return FBY_E_CONFIG;
    }
    fby_option_entry_t *option = found ? &config->options[place] : option_insert(config, place, key);
    return option == NULL ? -ENOMEM : entry_set(&option->layer[layer], text, where);
}

/* What YAML and JSON themselves say a plain scalar is. */
static const char *plain_kind(const char *text)
{
    static const char *const words[][2] = {{"", "is empty"},
                                           {"~", "is empty"},
                                           {"null", "is empty"},
                                           {"true", "is a truth value"},
                                           {"false", "is a truth value"}};
    char why[FBY_WHY_BYTES];
    double number;
    for (size_t i = 0; i < FBY_ARRAY_LEN(words); i++) {
        if (strcasecmp(text, words[i][0]) == 0) {
            return words[i][1];
        }
    }
    return fby_read_real(text[0] == '-' ? text + 1 : text, &number, why) ? "is a number" : NULL;
}

/* NULL, or why a file's scalar has the wrong type for the key. */
static const char *style_fault(const fby_key_t *key, const char *text, fby_style_t style)
{
    bool is_text = key->type == FBY_TYPE_TEXT || key->type == FBY_TYPE_SECRET;
    bool takes_quotes = is_text || key->type == FBY_TYPE_ENUM || key->type == FBY_TYPE_SIZE ||
                        key->type == FBY_TYPE_GROUPS || key->type == FBY_TYPE_GROUP_BYTES;
    if (style == FBY_STYLE_QUOTED && !takes_quotes && strcmp(text, "unset") != 0) {
        return "is text in quotes";
    }
    const char *kind = style == FBY_STYLE_PLAIN ? plain_kind(text) : NULL;
    if (kind != NULL && (is_text || strcmp(kind, "is empty") == 0)) {
        return kind;
    }
    return NULL;
}

int fby_config_assign(fby_config_t *config, fby_layer_t layer, const char *key_name, const char *text,
                      fby_style_t style, const char *where)
{
    if (strncmp(key_name, FBY_OPTIONS_PREFIX, strlen(FBY_OPTIONS_PREFIX)) == 0) {
        return assign_option(config, layer, key_name, text, where);
    }
    fby_key_id_t id = fby_key_find(key_name);
    if (id == FBY_KEY_COUNT) {
        return fby_config_unknown_key(where, key_name);
    }
    const fby_key_t *key = &fby_keys[id];
    const char *meant = text;
    if (style == FBY_STYLE_PLAIN && fby_key_may_be_unset(key) &&
        (strcmp(text, "~") == 0 || strcmp(text, "null") == 0)) {
        meant = "unset";
    }
    const char *fault = style_fault(key, meant, style);
    if (fault != NULL) {
        return fby_config_wrong_value(where, key, text, fault);
    }
    fby_value_t value;
    char why[FBY_WHY_BYTES], canonical[FBY_VALUE_TEXT_BYTES];
    if (!fby_value_read(key, meant, &value, why)) {
        return fby_config_wrong_value(where, key, text, why);
    }
    fby_value_format(key, &value, meant, canonical);
    return entry_set(&config->layer[layer][id], canonical, where);
}

/* ---- Reading back ------------------------------------------------------------------------------------------------ */

static const fby_entry_t *effective_entry(const fby_config_t *config, fby_key_id_t id, const char **origin)
{
    static const char *const origins[] = {"file", "environment"};
    for (size_t layer = 0; layer < FBY_LAYER_COUNT; layer++) {
        if (config->layer[layer][id].text != NULL) {
            *origin = origins[layer];
            return &config->layer[layer][id];
        }
    }
    *origin = "default";
    return NULL;
}

const char *fby_config_text(const fby_config_t *config, fby_key_id_t id, const fby_entry_t **entry)
{
    const char *origin;
    const fby_entry_t *found = effective_entry(config, id, &origin);
    if (entry != NULL) {
        *entry = found;
    }
    bool has_value = found != NULL && strcmp(found->text, "unset") != 0;
    if (!has_value && config->derived[id][0] != '\0') {
        return config->derived[id];
    }
    return found != NULL ? found->text : fby_keys[id].default_text;
}

bool fby_config_is_set(const fby_config_t *config, fby_key_id_t id)
{
    const char *origin;
    const fby_entry_t *found = effective_entry(config, id, &origin);
    return found != NULL && strcmp(found->text, "unset") != 0;
}

void fby_config_value(const fby_config_t *config, fby_key_id_t id, fby_value_t *value)
{
    char why[FBY_WHY_BYTES];
    if (!fby_value_read(&fby_keys[id], fby_config_text(config, id, NULL), value, why)) {
        *value = (fby_value_t){.unset = true}; /* a required key that nobody set */
    }
}

const fby_entry_t *fby_option_effective(const fby_option_entry_t *option)
{
    return &option->layer[option->layer[FBY_LAYER_FILE].text != NULL ? FBY_LAYER_FILE : FBY_LAYER_ENVIRONMENT];
}

static void derive_share(fby_config_t *config, fby_key_id_t id, fby_key_id_t of, uint64_t divisor)
{
    fby_value_t whole;
    fby_config_value(config, of, &whole);
    fby_format_size(FBY_MAX(whole.number / divisor, 1), config->derived[id], sizeof(config->derived[id]));
}

void fby_config_derive(fby_config_t *config)
{
    fby_value_t groups;
    config->derived[FBY_KEY_POOL_BYTES][0] = '\0';
    if (fby_config_is_set(config, FBY_KEY_POOL_GROUP_BYTES) && !fby_config_is_set(config, FBY_KEY_POOL_BYTES)) {
        uint64_t sum = 0;
        fby_config_value(config, FBY_KEY_POOL_GROUP_BYTES, &groups);
        for (uint32_t i = 0; i < groups.parts; i++) {
            sum += groups.part[i].bytes;
        }
        fby_format_size(sum, config->derived[FBY_KEY_POOL_BYTES], sizeof(config->derived[0]));
    }
    derive_share(config, FBY_KEY_PREFETCH_QUARANTINE_LIMIT, FBY_KEY_PREFETCH_MAX_RESERVED_BYTES, 2);
    derive_share(config, FBY_KEY_POOL_MAX_HOLD_BYTES, FBY_KEY_POOL_BYTES, 2);
    derive_share(config, FBY_KEY_POOL_WRITE_PINNED_BYTES, FBY_KEY_POOL_BYTES, 4);
}

/* ---- The public object ------------------------------------------------------------------------------------------- */

fby_config_t *fby_config_copy(const fby_config_t *config)
{
    fby_config_t *copy = calloc(1, sizeof(*copy));
    int status = copy == NULL ? -ENOMEM : 0;
    for (size_t layer = 0; layer < FBY_LAYER_COUNT && status == 0; layer++) {
        for (size_t id = 0; id < FBY_KEY_COUNT && status == 0; id++) {
            status = entry_copy(&copy->layer[layer][id], &config->layer[layer][id]);
        }
        for (uint32_t i = 0; i < config->option_count && status == 0; i++) {
            const fby_option_entry_t *from = &config->options[i];
            bool is_new = i >= copy->option_count;
            fby_option_entry_t *to = is_new ? option_insert(copy, i, from->key) : &copy->options[i];
            status = to == NULL ? -ENOMEM : entry_copy(&to->layer[layer], &from->layer[layer]);
        }
    }
    if (status != 0) {
        fby_config_free(copy);
        return NULL;
    }
    memcpy(copy->derived, config->derived, sizeof(copy->derived));
    return copy;
}

int fby_config_create(fby_config_t **out)
{
    fby_config_t *config = calloc(1, sizeof(*config));
    if (config == NULL) {
        return -ENOMEM;
    }
    int status = fby_config_environment(config, environ);
    if (status != 0) {
        fby_config_free(config);
        return status;
    }
    fby_config_derive(config);
    *out = config;
    return 0;
}

void fby_config_free(fby_config_t *config)
{
    if (config == NULL) {
        return;
    }
    for (size_t layer = 0; layer < FBY_LAYER_COUNT; layer++) {
        for (size_t id = 0; id < FBY_KEY_COUNT; id++) {
            entry_clear(&config->layer[layer][id]);
        }
        for (uint32_t i = 0; i < config->option_count; i++) {
            entry_clear(&config->options[i].layer[layer]);
        }
    }
    for (uint32_t i = 0; i < config->option_count; i++) {
        free(config->options[i].key);
    }
    free(config);
}

/* Names under which the driver's world keeps secrets. */
static bool is_secret_option(const char *key)
{
    return strcasestr(key, "password") != NULL || strcasestr(key, "secret") != NULL || strcasestr(key, "token") != NULL;
}

static const char *option_shown(const fby_option_entry_t *option, const char **origin)
{
    const fby_entry_t *entry = fby_option_effective(option);
    *origin = entry == &option->layer[FBY_LAYER_FILE] ? "file" : "environment";
    return is_secret_option(option->key) ? "(set)" : entry->text;
}

static const char *key_shown(const fby_config_t *config, fby_key_id_t id, const char **origin)
{
    effective_entry(config, id, origin);
    const char *text = fby_config_text(config, id, NULL);
    if (*text == '\0') {
        return "unset";
    }
    return fby_keys[id].type == FBY_TYPE_SECRET && strcmp(text, "unset") != 0 ? "(set)" : text;
}

int fby_config_get(const fby_config_t *config, const char *key, const char **value, const char **origin)
{
    const char *from, *text = NULL;
    bool is_option = false;
    uint32_t place = option_place(config, key, &is_option);
    fby_key_id_t id = fby_key_find(key);
    if (is_option) {
        text = option_shown(&config->options[place], &from);
    } else if (id != FBY_KEY_COUNT) {
        text = key_shown(config, id, &from);
    } else {
        fby_config_unknown_key("", key);
        return -ENOENT;
    }
    if (value != NULL) {
        *value = text;
    }
    if (origin != NULL) {
        *origin = from;
    }
    return 0;
}

void fby_config_each(const fby_config_t *config,
                     void (*row)(void *arg, const char *key, const char *value, const char *origin), void *arg)
{
    const char *origin;
    for (size_t id = 0; id < FBY_KEY_COUNT; id++) {
        const char *text = key_shown(config, (fby_key_id_t)id, &origin);
        row(arg, fby_keys[id].name, text, origin);
        for (uint32_t i = 0; id == FBY_KEY_STORE_DRIVER && i < config->option_count; i++) {
            text = option_shown(&config->options[i], &origin);
            row(arg, config->options[i].key, text, origin);
        }
    }
}
