/* cmd_doctor.c - `forebay doctor`: says what is wrong with this machine, a configuration and a store. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/doctor.h"
#include "cli/json.h"
#include "cli/store_text.h"
#include "runtime/config.h"

static const char *const verdicts[FBY_VERDICTS] = {"ok", "warn", "fail"};

/* ---- Output ------------------------------------------------------------------------------------------------------ */

static void print_json(const fby_doctor_t *doctor)
{
    fby_json_t json;
    fby_json_init(&json, stdout);
    fby_json_object(&json, NULL);
    fby_json_bool(&json, "ok", doctor->count[FBY_VERDICT_FAIL] == 0);
    fby_json_u64(&json, "failed", doctor->count[FBY_VERDICT_FAIL]);
    fby_json_u64(&json, "warned", doctor->count[FBY_VERDICT_WARN]);
    fby_json_array(&json, "checks");
    for (size_t i = 0; i < doctor->findings; i++) {
        const fby_finding_t *finding = &doctor->finding[i];
        fby_json_object(&json, NULL);
        fby_json_text(&json, "section", finding->section);
        fby_json_text(&json, "check", finding->check);
        fby_json_text(&json, "result", verdicts[finding->verdict]);
        fby_json_text(&json, "found", finding->found != NULL ? finding->found : "");
        if (finding->advice != NULL) {
            fby_json_text(&json, "change", finding->advice);
        } else {
            fby_json_null(&json, "change");
        }
        fby_json_end(&json);
    }
    fby_json_end(&json);
    fby_json_end(&json);
}

static void print_text(const fby_doctor_t *doctor)
{
    const char *section = "";
    for (size_t i = 0; i < doctor->findings; i++) {
        const fby_finding_t *finding = &doctor->finding[i];
        if (strcmp(section, finding->section) != 0) {
            section = finding->section;
            printf("%s%s\n", i > 0 ? "\n" : "", section);
        }
        printf("  %-4s  %-15s  %s\n", verdicts[finding->verdict], finding->check,
               finding->found != NULL ? finding->found : "");
        if (finding->advice != NULL) {
            printf("  %-4s  %-15s  -> %s\n", "", "", finding->advice);
        }
    }
    printf("\n%zu ok, %zu to look at, %zu wrong\n", doctor->count[FBY_VERDICT_OK], doctor->count[FBY_VERDICT_WARN],
           doctor->count[FBY_VERDICT_FAIL]);
}

/* ---- What is looked at ------------------------------------------------------------------------------------------- */

/* A wrong configuration is a finding; what it says of the store is used as far as it could be read. */
static void load(fby_doctor_t *doctor, const char *path)
{
    int status = fby_config_load(doctor->config, path);
    status = status == 0 ? fby_config_check(doctor->config) : status;
    doctor->config_path = path;
    if (status != 0) {
        doctor->config_error = strdup(*fby_last_error() != '\0' ? fby_last_error() : fby_strerror(status));
    }
    doctor->has_store = status == 0;
}

/* Without a file and a text, a store may still be named by the environment. */
static bool environment_names_store(const fby_config_t *config)
{
    return fby_config_is_set(config, FBY_KEY_STORE_DRIVER) || config->option_count > 0;
}

static int prepare(fby_doctor_t *doctor, const char *path, const fby_store_text_t *store)
{
    int status = fby_config_create(&doctor->config);
    if (status == 0 && path != NULL) {
        load(doctor, path);
    } else if (status == 0 && store->text != NULL) {
        status = fby_store_text_apply(store, doctor->config);
        doctor->has_store = true;
    } else if (status == 0) {
        doctor->has_store = environment_names_store(doctor->config);
    }
    return status;
}

static int run(const fby_usage_t *usage, fby_doctor_t *doctor, const char *path, const fby_store_text_t *store,
               bool as_json)
{
    if (prepare(doctor, path, store) != 0) {
        fprintf(stderr, "%s: %s\n", usage->command, fby_last_error());
        return FBY_EXIT_FAILED;
    }
    if (doctor->metrics != NULL && !fby_applies_mooncake(doctor) && doctor->config_error == NULL) {
        return fby_usage_fault(usage,
                               "--metrics belongs to a store mooncake; accepted: with --store or --config of one");
    }
    fby_doctor_run(doctor);
    if (doctor->failed) {
        fprintf(stderr, "%s: out of memory: findings are missing\n", usage->command);
    }
    if (as_json) {
        print_json(doctor);
    } else {
        print_text(doctor);
    }
    return doctor->count[FBY_VERDICT_FAIL] == 0 && !doctor->failed ? FBY_EXIT_OK : FBY_EXIT_FAILED;
}

static const char examples[] = "  forebay doctor\n"
                               "  forebay doctor --config forebay.yaml\n"
                               "  forebay doctor --store redis:host=127.0.0.1,port=6379 --json\n"
                               "  forebay doctor --store mooncake:master=127.0.0.1:50051 --metrics 127.0.0.1:9003\n";

int fby_cmd_doctor(int argc, char **argv)
{
    const char *path = NULL, *text = NULL;
    bool as_json = false;
    fby_doctor_t doctor = {.config = NULL};
    fby_store_text_t store = {.copy = NULL};
    const fby_arg_t args[] = {
        {"config", FBY_ARG_TEXT, &path, "FILE", "checks this configuration, and the store that it names", 0, 0, NULL},
        {"store", FBY_ARG_TEXT, &text, "STORE", FBY_STORE_ACCEPTED, 0, 0, NULL},
        {"metrics", FBY_ARG_TEXT, &doctor.metrics, "HOST:PORT", "the HTTP pages of a Mooncake master, to be asked", 0,
         0, NULL},
        {"json", FBY_ARG_FLAG, &as_json, NULL, "prints one JSON object", 0, 0, NULL},
    };
    const fby_usage_t usage = {
        "forebay doctor",
        "",
        "Says what is wrong with this machine, a configuration and a store, and what to change. Changes nothing.\n"
        "Exit code 1 when something is wrong (fail); what should be looked at (warn) is none.",
        examples,
        args,
        FBY_ARRAY_LEN(args),
        0,
        0};
    char **positional;
    size_t count;
    int code = fby_args_parse(&usage, argc, argv, &positional, &count);
    if (code != FBY_ARGS_GO) {
        return code;
    }
    if (path != NULL && text != NULL) {
        return fby_usage_fault(&usage, "--config and --store both name a store; accepted: one of them");
    }
    if (text != NULL && fby_store_text_parse(text, &store) != 0) {
        return fby_usage_fault(&usage, "--store: %s", fby_last_error());
    }
    code = run(&usage, &doctor, path, &store, as_json);
    fby_doctor_free(&doctor);
    free(doctor.config_error);
    fby_config_free(doctor.config);
    fby_store_text_free(&store);
    return code;
}
