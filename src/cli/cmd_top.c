/* cmd_top.c - `forebay top`: a live view of a server. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/top_screen.h"
#include "cli/top_view.h"

#define CALL_LIMIT_S 2.0 /* a server that is frozen keeps the user waiting for so long */

typedef struct top {
    const fby_usage_t *usage;
    const char *path;
    uint64_t interval_ns;
    bool once, as_json;
    fby_cache_t *cache; /* NULL: nobody answers */
    fby_view_limits_t limit;
    fby_view_t *now, *before; /* what was seen last, and before that */
    size_t seen;              /* views of this connection */
    uint64_t away_ns;         /* since when nobody answers; 0: somebody does */
    char why[256];            /* nobody answers */
} top_t;

/* ---- Asking ------------------------------------------------------------------------------------------------------ */

static int connect_server(top_t *top)
{
    fby_connect_options_t options = FBY_CONNECT_OPTIONS_INIT;
    options.call_timeout_s = CALL_LIMIT_S;
    options.name = "forebay top";
    int status = fby_connect(top->path, &options, &top->cache);
    if (status != 0) {
        top->cache = NULL;
        return status;
    }
    top->seen = 0;
    return fby_view_limits_read(top->cache, &top->limit);
}

/* The next view. A connection that failed is given up and made anew next time: the next server may have another model. */
static int look(top_t *top)
{
    fby_view_t *old = top->before;
    int status = top->cache == NULL ? connect_server(top) : 0;
    status = status == 0 ? fby_view_take(top->cache, &top->limit, old) : status;
    if (status == 0) {
        top->before = top->now;
        top->now = old;
        top->seen++;
        top->away_ns = 0;
        return 0;
    }
    snprintf(top->why, sizeof(top->why), "%s", *fby_last_error() != '\0' ? fby_last_error() : fby_strerror(status));
    top->away_ns = top->away_ns != 0 ? top->away_ns : fby_clock_now(&fby_clock_monotonic);
    if (top->cache != NULL) {
        fby_cache_close(top->cache, 0, NULL);
        top->cache = NULL;
    }
    return status;
}

/* ---- Showing ----------------------------------------------------------------------------------------------------- */

static void print(const top_t *top, FILE *out, size_t width, size_t clients)
{
    if (top->away_ns != 0) {
        char age[32], why[sizeof(top->why)];
        fprintf(out, "NO ANSWER from %s for %s: %s\n", top->path,
                fby_view_age(fby_clock_now(&fby_clock_monotonic) - top->away_ns, age),
                fby_view_clean(top->why, sizeof(why), why));
        fprintf(out, "It is looked for again. What was seen last:\n\n");
    }
    fby_view_print(out, top->path, top->now, top->seen > 1 && top->away_ns == 0 ? top->before : NULL, width, clients);
}

/* Clients get the lines that the rest leaves. */
static void draw(const top_t *top, const fby_screen_t *screen)
{
    size_t clients = 0;
    for (int pass = 0; pass < 2; pass++) {
        char *text = NULL;
        size_t length = 0, lines = 0;
        FILE *out = open_memstream(&text, &length);
        if (out == NULL) {
            return;
        }
        fprintf(out, "q leaves, space asks now; every %g s\n", (double)top->interval_ns / (double)FBY_SECOND);
        print(top, out, screen->width, clients);
        if (fclose(out) != 0) {
            free(text);
            return;
        }
        for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
            lines++;
        }
        if (pass == 1) {
            fby_screen_draw(screen, text);
        }
        free(text);
        clients = fby_sub_sat(screen->height, lines + 1);
    }
}

/* Returns the signal that ended it; 0: the user did. */
static int show_live(top_t *top, fby_screen_t *screen)
{
    fby_screen_event_t event = FBY_SCREEN_SIZE;
    uint64_t next_ns = fby_clock_now(&fby_clock_monotonic) + top->interval_ns;
    while (event != FBY_SCREEN_LEAVE) {
        if (event != FBY_SCREEN_SIZE) {
            look(top);
            next_ns = fby_clock_now(&fby_clock_monotonic) + top->interval_ns;
        }
        draw(top, screen);
        event = fby_screen_wait(screen, next_ns);
    }
    return screen->signal;
}

/* One object a line, until nobody reads them. */
static int print_lines(top_t *top)
{
    fby_json_t json;
    const struct timespec pause = {(time_t)(top->interval_ns / FBY_SECOND), (long)(top->interval_ns % FBY_SECOND)};
    fby_json_init(&json, stdout);
    for (;;) {
        fby_view_json(&json, top->path, top->away_ns == 0 ? top->now : NULL);
        if (fflush(stdout) != 0) {
            return FBY_EXIT_FAILED;
        }
        if (top->once) {
            return FBY_EXIT_OK;
        }
        nanosleep(&pause, NULL);
        look(top);
    }
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static int show(top_t *top)
{
    fby_screen_t screen;
    fby_log_setup(FBY_LOG_OFF, FBY_LOG_LOGFMT,
                  STDERR_FILENO); /* what would be logged is on the screen, not across it */
    if (look(top) != 0) {
        fprintf(stderr, "%s: %s\n", top->usage->command, top->why);
        return FBY_EXIT_FAILED;
    }
    if (top->as_json) {
        return print_lines(top);
    }
    if (top->once) {
        print(top, stdout, FBY_VIEW_STAT_WIDTH, FBY_VIEW_CLIENTS);
        return FBY_EXIT_OK;
    }
    int status = fby_screen_open(&screen);
    if (status == -ENOTTY) {
        return fby_usage_fault(top->usage, "stdin and stdout are no terminal; accepted: --once, --json");
    }
    if (status != 0) {
        fprintf(stderr, "%s: %s\n", top->usage->command, fby_strerror(status));
        return FBY_EXIT_FAILED;
    }
    int number = show_live(top, &screen);
    fby_screen_close(&screen);
    if (number != 0) {
        signal(number, SIG_DFL);
        raise(number); /* who waits for us sees why we ended */
    }
    return FBY_EXIT_OK;
}

int fby_cmd_top(int argc, char **argv)
{
    top_t top = {.interval_ns = FBY_SECOND};
    const fby_arg_t args[] = {
        {"once", FBY_ARG_FLAG, &top.once, NULL, "shows it once and ends, also without a terminal", 0, 0, NULL},
        {"json", FBY_ARG_FLAG, &top.as_json, NULL, "prints one JSON object a line", 0, 0, NULL},
        {"interval", FBY_ARG_SECONDS, &top.interval_ns, "SECONDS", "time from one look to the next (1)", 0, 0, NULL},
    };
    const fby_usage_t usage = {
        "forebay top",
        "SOCKET",
        "Shows what a server does, and goes on showing it: sessions, budgets, pool, store, hits, and who is\n"
        "connected. A server that goes away is looked for again. Keys: q leaves, space asks now.",
        "  forebay top /run/forebay/socket\n"
        "  forebay top /run/forebay/socket --interval 0.2\n"
        "  forebay top /run/forebay/socket --json --interval 10 >> forebay.log\n",
        args,
        FBY_ARRAY_LEN(args),
        1,
        1};
    char **positional;
    size_t count;
    int code = fby_args_parse(&usage, argc, argv, &positional, &count);
    if (code != FBY_ARGS_GO) {
        return code;
    }
    top.usage = &usage;
    top.path = positional[0];
    top.interval_ns = FBY_MAX(top.interval_ns, FBY_MS);
    top.now = calloc(1, sizeof(*top.now));
    top.before = calloc(1, sizeof(*top.before));
    code = FBY_EXIT_FAILED;
    if (top.now != NULL && top.before != NULL) {
        code = show(&top);
    } else {
        fprintf(stderr, "%s: out of memory\n", usage.command);
    }
    if (top.cache != NULL) {
        fby_cache_close(top.cache, 0, NULL);
    }
    free(top.now);
    free(top.before);
    return code;
}
