/* doctor.c - runs the table of checks, keeps what they found, and answers what they ask of the configuration. */
#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/doctor_redis.h"
#include "runtime/config.h"
#include "runtime/settings.h"

static const fby_doctor_check_t checks[] = {
#define FBY_X(section, name, applies, run) {section, name, fby_applies_##applies, fby_check_##run},
    FBY_DOCTOR_MAP(FBY_X)
#undef FBY_X
};

void fby_doctor_run(fby_doctor_t *doctor)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(checks); i++) {
        if (checks[i].applies(doctor)) {
            doctor->section = checks[i].section;
            doctor->check = checks[i].name;
            checks[i].run(doctor);
        }
    }
}

void fby_doctor_free(fby_doctor_t *doctor)
{
    fby_doctor_redis_close(doctor->redis);
    for (size_t i = 0; i < doctor->findings; i++) {
        free(doctor->finding[i].found);
    }
    free(doctor->finding);
    doctor->redis = NULL;
    doctor->finding = NULL;
    doctor->findings = doctor->capacity = 0;
}

void fby_doctor_report(fby_doctor_t *doctor, fby_verdict_t verdict, const char *advice, const char *format, ...)
{
    va_list arguments;
    char *found = NULL;
    doctor->count[verdict]++;
    if (doctor->findings == doctor->capacity) {
        size_t capacity = doctor->capacity * 2 + 32;
        fby_finding_t *grown = reallocarray(doctor->finding, capacity, sizeof(*grown));
        doctor->failed |= grown == NULL;
        if (grown == NULL) {
            return;
        }
        doctor->finding = grown;
        doctor->capacity = capacity;
    }
    va_start(arguments, format);
    int length = vasprintf(&found, format, arguments);
    va_end(arguments);
    doctor->failed |= length < 0;
    doctor->finding[doctor->findings++] =
        (fby_finding_t){verdict, doctor->section, doctor->check, length < 0 ? NULL : found, advice};
}

/* ---- The configuration ------------------------------------------------------------------------------------------- */

uint64_t fby_doctor_number(const fby_doctor_t *doctor, fby_key_id_t id)
{
    fby_value_t value;
    fby_config_value(doctor->config, id, &value);
    return value.unset ? 0 : value.number;
}

uint64_t fby_doctor_pool_bytes(const fby_doctor_t *doctor)
{
    fby_value_t groups;
    uint64_t bytes = 0;
    if (doctor->config_path == NULL || doctor->config_error != NULL) {
        return 0;
    }
    fby_config_value(doctor->config, FBY_KEY_POOL_GROUP_BYTES, &groups);
    for (uint32_t i = 0; !groups.unset && i < groups.parts; i++) {
        bytes += groups.part[i].bytes;
    }
    return bytes > 0 ? bytes : fby_doctor_number(doctor, FBY_KEY_POOL_BYTES);
}

const char *fby_doctor_driver(const fby_doctor_t *doctor)
{
    const char *driver = fby_config_text(doctor->config, FBY_KEY_STORE_DRIVER, NULL);
    return strncmp(driver, "fault:", 6) == 0 ? driver + 6 : driver;
}

const char *fby_doctor_option_at(const fby_doctor_t *doctor, size_t i, const char **value)
{
    if (i >= doctor->config->option_count) {
        return NULL;
    }
    const fby_option_entry_t *option = &doctor->config->options[i];
    *value = fby_option_effective(option)->text;
    return option->key + strlen(FBY_OPTIONS_PREFIX);
}

const char *fby_doctor_option(const fby_doctor_t *doctor, const char *name)
{
    const char *value, *found;
    for (size_t i = 0; (found = fby_doctor_option_at(doctor, i, &value)) != NULL; i++) {
        if (strcmp(found, name) == 0) {
            return value;
        }
    }
    return NULL;
}

bool fby_doctor_option_is(const fby_doctor_t *doctor, const char *name, const char *value)
{
    const char *given = fby_doctor_option(doctor, name);
    return given != NULL && strcmp(given, value) == 0;
}

/* ---- Which checks apply ------------------------------------------------------------------------------------------ */

static bool has_driver(const fby_doctor_t *doctor, const char *driver)
{
    return doctor->has_store && strcmp(fby_doctor_driver(doctor), driver) == 0;
}

bool fby_applies_always(const fby_doctor_t *doctor)
{
    return true;
}

bool fby_applies_config(const fby_doctor_t *doctor)
{
    return doctor->config_path != NULL;
}

bool fby_applies_store(const fby_doctor_t *doctor)
{
    return doctor->has_store;
}

bool fby_applies_uring(const fby_doctor_t *doctor)
{
    return !doctor->has_store || has_driver(doctor, "file");
}

/* Without a store any may come. */
bool fby_applies_agents(const fby_doctor_t *doctor)
{
    return !doctor->has_store || has_driver(doctor, "mooncake") ||
           fby_doctor_number(doctor, FBY_KEY_STORE_HOST) == FBY_HOST_AGENT;
}

bool fby_applies_file(const fby_doctor_t *doctor)
{
    return has_driver(doctor, "file");
}

bool fby_applies_redis(const fby_doctor_t *doctor)
{
    return has_driver(doctor, "redis");
}

bool fby_applies_redis_open(const fby_doctor_t *doctor)
{
    return doctor->redis != NULL;
}

bool fby_applies_mooncake(const fby_doctor_t *doctor)
{
    return has_driver(doctor, "mooncake");
}

bool fby_applies_wheel(const fby_doctor_t *doctor)
{
    return has_driver(doctor, "mooncake") && !fby_doctor_option_is(doctor, "backend", "library");
}

bool fby_applies_agent_library(const fby_doctor_t *doctor)
{
    return !doctor->has_store || fby_applies_wheel(doctor);
}

bool fby_applies_metrics(const fby_doctor_t *doctor)
{
    return has_driver(doctor, "mooncake") && doctor->metrics != NULL;
}
