/* doctor_store.c - the configuration, the programs of agents, and what holds for every driver. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/host.h"
#include "cli/doctor.h"
#include "runtime/config.h"
#include "stores/stores.h"

/* ---- Configuration ----------------------------------------------------------------------------------------------- */

void fby_check_config(fby_doctor_t *doctor)
{
    if (doctor->config_error != NULL) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "what the message says; the store is not looked at until then",
                          "%s", doctor->config_error);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s is right", doctor->config_path);
    }
}

/* ---- Programs ---------------------------------------------------------------------------------------------------- */

/* As the runtime looks for it. */
static int find(const fby_doctor_t *doctor, const char *name, char path[PATH_MAX], char *error, size_t error_size)
{
    const char *directory = fby_config_text(doctor->config, FBY_KEY_STORE_AGENT_DIR, NULL);
    if (strcmp(directory, "unset") == 0) {
        return fby_agent_find(name, path, PATH_MAX, error, error_size);
    }
    int length = snprintf(path, PATH_MAX, "%s/%s", directory, name);
    int status = length >= PATH_MAX ? -ENAMETOOLONG : access(path, R_OK) != 0 ? -errno : 0;
    if (status != 0) {
        snprintf(error, error_size, "%.200s is not in store.agent_dir %.400s: %s", name, directory, strerror(-status));
    }
    return status;
}

/* Without a store, what is missing is missed only when one needs it. */
static void find_program(fby_doctor_t *doctor, const char *name)
{
    char path[PATH_MAX], error[2048] = "";
    if (find(doctor, name, path, error, sizeof(error)) == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s", path);
    } else {
        fby_doctor_report(doctor, doctor->has_store ? FBY_VERDICT_FAIL : FBY_VERDICT_WARN,
                          "install forebay whole, or name its directory in store.agent_dir or FOREBAY_LIBEXEC", "%s",
                          error);
    }
}

void fby_check_agent_program(fby_doctor_t *doctor)
{
    char *list[FBY_DOCTOR_OPTIONS];
    fby_store_program_t program = {.name = NULL};
    fby_doctor_options_make(doctor, list);
    bool other =
        doctor->has_store && fby_store_agent_program(fby_doctor_driver(doctor), (const char *const *)list, &program);
    find_program(doctor, other ? program.name : "forebay-agent");
    fby_doctor_options_free(list);
}

void fby_check_agent_library(fby_doctor_t *doctor)
{
    find_program(doctor, "libforebay-agent.so");
}

/* ---- Driver ------------------------------------------------------------------------------------------------------ */

size_t fby_doctor_options_make(const fby_doctor_t *doctor, char *list[FBY_DOCTOR_OPTIONS])
{
    const char *name, *value;
    size_t count = 0;
    memset(list, 0, FBY_DOCTOR_OPTIONS * sizeof(*list));
    for (size_t i = 0; count < FBY_DOCTOR_OPTIONS - 2 && (name = fby_doctor_option_at(doctor, i, &value)) != NULL;
         i++) {
        if (asprintf(&list[count], "%s=%s", name, value) < 0) {
            list[count] = NULL;
            break;
        }
        count++;
    }
    return count;
}

void fby_doctor_options_free(char *list[FBY_DOCTOR_OPTIONS])
{
    for (size_t i = 0; list[i] != NULL; i++) {
        explicit_bzero(list[i], strlen(list[i])); /* may hold a password */
        free(list[i]);
    }
}

/* Opening these two touches nothing: mem is empty, mooncake reads its options and no more outside of an agent. */
static bool opens_without_effect(const fby_store_driver_t *driver)
{
    return driver == &fby_store_mem || driver == &fby_store_mooncake;
}

void fby_check_driver(fby_doctor_t *doctor)
{
    const fby_store_spec_t spec = {.size = sizeof(spec), .alignment = 4096};
    const char *name = fby_config_text(doctor->config, FBY_KEY_STORE_DRIVER, NULL);
    char *list[FBY_DOCTOR_OPTIONS], error[512] = "";
    fby_store_t *store = NULL;
    int status = 0;
    const fby_store_driver_t *driver = fby_store_find(name, error, sizeof(error));
    if (driver != NULL && opens_without_effect(driver)) {
        fby_doctor_options_make(doctor, list);
        status = driver->open(&spec, (const char *const *)list, &store, error, sizeof(error));
        fby_doctor_options_free(list);
    }
    if (store != NULL) {
        driver->close(store);
    }
    if (driver == NULL || status != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "what the message says", "%s", error);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s", name);
    }
}
