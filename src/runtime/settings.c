#include "runtime/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config.h"
#include "stores/object.h"

/* What an unset value of a key becomes; 0 where nothing stands here. */
static uint64_t unset_mark(fby_key_id_t id)
{
    switch (id) {
    case FBY_KEY_PREFETCH_TIMEOUT_BUDGET_S:
        return FBY_NEVER;
    case FBY_KEY_POOL_NUMA_NODE:
        return FBY_NONE;
    default:
        return 0;
    }
}

/* The low `size` bytes of a number into a member of an integer or enum type. */
static void store_number(void *member, size_t size, uint64_t value)
{
    uint8_t byte = (uint8_t)value;
    uint32_t word = (uint32_t)value;
    memcpy(member, size == 1 ? (void *)&byte : size == 4 ? (void *)&word : (void *)&value, size);
}

static void store_groups(fby_settings_t *out, const fby_value_t *value)
{
    out->model.groups = value->parts;
    for (uint32_t i = 0; i < value->parts; i++) {
        fby_fp_group_t *group = &out->model.group[i];
        memcpy(group->name, value->part[i].name, sizeof(group->name));
        group->payload_bytes = (uint32_t)value->part[i].bytes;
        group->trailing = value->part[i].trailing;
    }
}

/* model.groups stands before pool.group_bytes in the table, so the names are there already. */
static void store_group_bytes(fby_settings_t *out, const fby_value_t *value)
{
    for (uint32_t i = 0; i < value->parts; i++) {
        for (uint32_t group = 0; group < out->model.groups; group++) {
            if (strcmp(out->model.group[group].name, value->part[i].name) == 0) {
                out->pool.group_bytes[group] = value->part[i].bytes;
            }
        }
    }
}

static void resolve_key(const fby_config_t *config, fby_key_id_t id, fby_settings_t *out)
{
    const fby_key_t *key = &fby_keys[id];
    const char *text = fby_config_text(config, id, NULL);
    char *member = (char *)out + key->offset;
    fby_value_t value;
    fby_config_value(config, id, &value);
    switch (key->type) {
    case FBY_TYPE_TEXT:
        memcpy(member, value.unset ? "" : text, value.unset ? 1 : strlen(text) + 1);
        break;
    case FBY_TYPE_SECRET:
        out->hash.secret_length = value.unset ? 0 : (uint32_t)strlen(text);
        memcpy(out->hash.secret, text, out->hash.secret_length);
        break;
    case FBY_TYPE_GROUPS:
        store_groups(out, &value);
        break;
    case FBY_TYPE_GROUP_BYTES:
        store_group_bytes(out, &value);
        break;
    case FBY_TYPE_RATE:
    case FBY_TYPE_RATIO:
        memcpy(member, &value.real, sizeof(value.real));
        break;
    default:
        store_number(member, key->size, value.unset ? unset_mark(id) : value.number);
        break;
    }
}

static bool has_option(const fby_settings_t *settings, const char *prefix)
{
    for (size_t i = 0; settings->store.options[i] != NULL; i++) {
        if (strncmp(settings->store.options[i], prefix, strlen(prefix)) == 0) {
            return true;
        }
    }
    return false;
}

/* The file store keeps the highest weights epoch per model: models that share a directory must not share that. */
static int name_model(fby_settings_t *settings, uint32_t at)
{
    const char *driver = settings->store.driver;
    bool file = strcmp(driver, "file") == 0 || strcmp(driver, "fault:file") == 0;
    if (!file || has_option(settings, "model=")) {
        return 0;
    }
    const fby_fingerprint_fields_t *model = &settings->model;
    if (asprintf(&settings->store.options[at], "model=%.120s@%.120s", model->model_id, model->revision) < 0) {
        settings->store.options[at] = NULL;
        return -ENOMEM;
    }
    return 0;
}

static int resolve_options(const fby_config_t *config, fby_settings_t *out)
{
    out->store.options = calloc(config->option_count + 2, sizeof(*out->store.options));
    if (out->store.options == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < config->option_count; i++) {
        const fby_option_entry_t *option = &config->options[i];
        const char *name = option->key + strlen(FBY_OPTIONS_PREFIX);
        if (asprintf(&out->store.options[i], "%s=%s", name, fby_option_effective(option)->text) < 0) {
            out->store.options[i] = NULL;
            return -ENOMEM;
        }
    }
    return name_model(out, config->option_count);
}

int fby_settings_resolve(const fby_config_t *config, fby_settings_t *out)
{
    fby_settings_t settings;
    memset(&settings, 0, sizeof(settings));
    int status = fby_config_check(config);
    if (status != 0) {
        return status;
    }
    for (size_t id = 0; id < FBY_KEY_COUNT; id++) {
        resolve_key(config, (fby_key_id_t)id, &settings);
    }
    status = resolve_options(config, &settings);
    if (status != 0) {
        fby_settings_free(&settings);
        return status;
    }
    *out = settings;
    return 0;
}

void fby_settings_free(fby_settings_t *settings)
{
    for (size_t i = 0; settings->store.options != NULL && settings->store.options[i] != NULL; i++) {
        free(settings->store.options[i]);
    }
    free(settings->store.options);
    settings->store.options = NULL;
    explicit_bzero(settings->hash.secret, sizeof(settings->hash.secret));
}

fby_policy_t fby_settings_policy(const fby_config_t *config, int32_t engine_argument, const char **origin)
{
    const char *from;
    fby_value_t value;
    fby_config_get(config, "prefetch.policy", NULL, &from);
    fby_config_value(config, FBY_KEY_PREFETCH_POLICY, &value);
    fby_policy_t policy = (fby_policy_t)value.number;
    if (strcmp(from, "default") == 0 && engine_argument >= 0 && engine_argument < FBY_POLICY_COUNT) {
        policy = (fby_policy_t)engine_argument;
        from = "argument";
    }
    if (origin != NULL) {
        *origin = from;
    }
    return policy;
}

uint64_t fby_settings_slot_bytes(const fby_settings_t *settings, uint32_t group, uint32_t alignment)
{
    return fby_align_up((uint64_t)settings->model.group[group].payload_bytes + FBY_TRAILER_BYTES, alignment);
}
