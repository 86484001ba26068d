/* cmd_config.c - `forebay config check` and `forebay config show`. */
#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/table.h"
#include "forebay/forebay.h"

/* Environment, then the file when there is one. NULL after a message on stderr. */
static fby_config_t *read_config(const char *command, const char *path)
{
    fby_config_t *config = NULL;
    int status = fby_config_create(&config);
    if (status == 0 && path != NULL) {
        status = fby_config_load(config, path);
    }
    if (status != 0) {
        fprintf(stderr, "%s: %s\n", command, *fby_last_error() != '\0' ? fby_last_error() : fby_strerror(status));
        fby_config_free(config);
        return NULL;
    }
    return config;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

/* Settings that are right but do nothing. */
static void collect_notes(const fby_config_t *config, const char *notes[4], size_t *count)
{
    const char *enabled, *policy, *listen, *mode;
    *count = 0;
    if (fby_config_get(config, "prefetch.enabled", &enabled, NULL) != 0 ||
        fby_config_get(config, "prefetch.policy", &policy, NULL) != 0 ||
        fby_config_get(config, "server.listen", &listen, NULL) != 0 ||
        fby_config_get(config, "server.mode", NULL, &mode) != 0) {
        return;
    }
    if (strcmp(enabled, "false") == 0 && strcmp(policy, "wait_complete") != 0) {
        notes[(*count)++] =
            "prefetch.enabled is false: sessions under this prefetch.policy will be refused with NOT_ENABLED";
    }
    if (strcmp(listen, "off") == 0 && strcmp(mode, "default") != 0) {
        notes[(*count)++] = "server.listen is off: server.mode does nothing";
    }
}

static void print_check_json(const char *path, const char *error, const char *const *notes, size_t count)
{
    fby_json_t json;
    fby_json_init(&json, stdout);
    fby_json_object(&json, NULL);
    fby_json_text(&json, "file", path);
    fby_json_bool(&json, "ok", error == NULL);
    if (error != NULL) {
        fby_json_text(&json, "error", error);
    } else {
        fby_json_null(&json, "error");
    }
    fby_json_array(&json, "notes");
    for (size_t i = 0; i < count; i++) {
        fby_json_text(&json, NULL, notes[i]);
    }
    fby_json_end(&json);
    fby_json_end(&json);
}

static int command_check(int argc, char **argv)
{
    bool as_json = false;
    const fby_arg_t args[] = {{"json", FBY_ARG_FLAG, &as_json, NULL, "prints one JSON object", 0, 0, NULL}};
    const fby_usage_t usage = {
        "forebay config check",
        "FILE",
        "Reads a configuration as a cache would, and says what is wrong. Opens and allocates nothing.",
        "  forebay config check forebay.yaml\n",
        args,
        FBY_ARRAY_LEN(args),
        1,
        1};
    char **positional;
    size_t count, note_count = 0;
    const char *notes[4];
    int code = fby_args_parse(&usage, argc, argv, &positional, &count);
    if (code != FBY_ARGS_GO) {
        return code;
    }
    const char *path = positional[0], *error = NULL;
    fby_config_t *config = read_config("forebay config check", path);
    if (config == NULL) {
        error = fby_last_error();
    } else if (fby_config_check(config) != 0) {
        error = fby_last_error();
        fprintf(stderr, "forebay config check: %s\n", error);
    } else {
        collect_notes(config, notes, &note_count);
    }
    if (as_json) {
        print_check_json(path, error, notes, note_count);
    } else if (error == NULL) {
        printf("%s: right\n", path);
        for (size_t i = 0; i < note_count; i++) {
            printf("note: %s\n", notes[i]);
        }
    }
    fby_config_free(config);
    return error == NULL ? FBY_EXIT_OK : FBY_EXIT_FAILED;
}

/* ---- show -------------------------------------------------------------------------------------------------------- */

static void add_row(void *arg, const char *key, const char *value, const char *origin)
{
    fby_table_cell(arg, "%s", key);
    fby_table_cell(arg, "%s", value);
    fby_table_cell(arg, "%s", origin);
}

static void add_json(void *arg, const char *key, const char *value, const char *origin)
{
    fby_json_object(arg, key);
    fby_json_text(arg, "value", value);
    fby_json_text(arg, "origin", origin);
    fby_json_end(arg);
}

static int command_show(int argc, char **argv)
{
    bool as_json = false;
    const fby_arg_t args[] = {{"json", FBY_ARG_FLAG, &as_json, NULL, "prints one JSON object, by key", 0, 0, NULL}};
    const fby_usage_t usage = {
        "forebay config show",
        "[FILE]",
        "Prints the effective value of every key and where it comes from: file, environment, default.",
        "  forebay config show\n"
        "  FOREBAY_PREFETCH_POLICY=timeout forebay config show forebay.yaml --json\n",
        args,
        FBY_ARRAY_LEN(args),
        0,
        1};
    static const char *const titles[] = {"key", "value", "origin"};
    static const bool right[] = {false, false, false};
    char **positional;
    size_t count;
    int code = fby_args_parse(&usage, argc, argv, &positional, &count);
    if (code != FBY_ARGS_GO) {
        return code;
    }
    fby_config_t *config = read_config("forebay config show", count > 0 ? positional[0] : NULL);
    if (config == NULL) {
        return FBY_EXIT_FAILED;
    }
    if (as_json) {
        fby_json_t json;
        fby_json_init(&json, stdout);
        fby_json_object(&json, NULL);
        fby_config_each(config, add_json, &json);
        fby_json_end(&json);
    } else {
        fby_table_t table;
        fby_table_init(&table, FBY_ARRAY_LEN(titles), titles, right);
        fby_config_each(config, add_row, &table);
        fby_table_print(&table, stdout);
        fby_table_free(&table);
    }
    fby_config_free(config);
    return FBY_EXIT_OK;
}

int fby_cmd_config(int argc, char **argv)
{
    static const fby_command_t commands[] = {
        {"check", command_check, "says what is wrong with a configuration"},
        {"show", command_show, "prints every effective value and its origin"},
        {NULL, NULL, NULL},
    };
    return fby_commands_run("forebay config", "Configuration: file over environment over default.", commands, argc,
                            argv);
}
