/* cmd_stat.c - `forebay stat`: one look at a server. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/top_view.h"

#define CALL_LIMIT_S 3.0

static int failed(const fby_usage_t *usage, int status)
{
    fprintf(stderr, "%s: %s\n", usage->command, *fby_last_error() != '\0' ? fby_last_error() : fby_strerror(status));
    return FBY_EXIT_FAILED;
}

static int take(const char *path, fby_view_t *view)
{
    fby_connect_options_t options = FBY_CONNECT_OPTIONS_INIT;
    fby_view_limits_t limit = {.reserved = 0};
    fby_cache_t *cache;
    options.call_timeout_s = CALL_LIMIT_S;
    options.name = "forebay stat";
    int status = fby_connect(path, &options, &cache);
    if (status != 0) {
        return status;
    }
    status = fby_view_limits_read(cache, &limit);
    status = status == 0 ? fby_view_take(cache, &limit, view) : status;
    fby_cache_close(cache, 0, NULL);
    return status;
}

static int show(const fby_usage_t *usage, const char *path, bool as_json)
{
    fby_json_t json;
    fby_view_t *view = malloc(sizeof(*view));
    if (view == NULL) {
        fprintf(stderr, "%s: out of memory\n", usage->command);
        return FBY_EXIT_FAILED;
    }
    int status = take(path, view), code = FBY_EXIT_OK;
    fby_json_init(&json, stdout);
    if (status != 0) {
        code = failed(usage, status);
    }
    if (as_json) {
        fby_view_json(&json, path, status == 0 ? view : NULL);
    } else if (status == 0) {
        fby_view_print(stdout, path, view, NULL, FBY_VIEW_STAT_WIDTH, FBY_VIEW_CLIENTS);
    }
    free(view);
    return code;
}

int fby_cmd_stat(int argc, char **argv)
{
    bool as_json = false;
    const fby_arg_t args[] = {{"json", FBY_ARG_FLAG, &as_json, NULL, "prints one JSON object", 0, 0, NULL}};
    const fby_usage_t usage = {
        "forebay stat",
        "SOCKET",
        "Shows what a server does at this moment: sessions, budgets, pool, store, hits, and who is connected.\n"
        "Exit code 1 when no server answers there.",
        "  forebay stat /run/forebay/socket\n"
        "  forebay stat /run/forebay/socket --json\n",
        args,
        FBY_ARRAY_LEN(args),
        1,
        1};
    char **positional;
    size_t count;
    int code = fby_args_parse(&usage, argc, argv, &positional, &count);
    return code == FBY_ARGS_GO ? show(&usage, positional[0], as_json) : code;
}
