/* cmd_serve.c - `forebay serve`: a cache that answers other processes until a signal ends it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "forebay/server.h"
#include "runtime/config.h"
#include "runtime/config_value.h"

enum { PATH_BYTES = 4096, READY_FD_MOST = 65535 };

typedef struct serve {
    const fby_usage_t *usage;
    const char *file;   /* NULL: environment and options only */
    const char *listen; /* NULL: as configured */
    fby_texts_t set;
    uint64_t ready_fd; /* FBY_NEVER: none */
    fby_config_t *config;
    fby_cache_t *cache;
    int signals; /* signalfd of those that end the server */
    /* The stop, on a thread of its own: meanwhile a second signal is heard. */
    double limit_s;
    int closed; /* eventfd: readable when the thread is done */
    int status; /* of fby_cache_close */
} serve_t;

static int failed(const serve_t *serve, int status)
{
    fprintf(stderr, "%s: %s\n", serve->usage->command,
            *fby_last_error() != '\0' ? fby_last_error() : fby_strerror(status));
    return FBY_EXIT_FAILED;
}

/* ---- Configuration ----------------------------------------------------------------------------------------------- */

static int set_texts(serve_t *serve)
{
    char key[128];
    int status = 0;
    for (size_t i = 0; i < serve->set.count && status == 0; i++) {
        const char *equals = strchr(serve->set.item[i], '=');
        snprintf(key, sizeof(key), "%.*s", (int)(equals - serve->set.item[i]), serve->set.item[i]);
        status = fby_config_set(serve->config, key, equals + 1);
    }
    return status;
}

/* The configuration takes absolute paths only: a file of it means the same wherever the server is started. */
static int set_listen(serve_t *serve)
{
    char path[2 * PATH_BYTES], directory[PATH_BYTES];
    if (serve->listen == NULL) {
        return 0;
    }
    bool is_whole = *serve->listen == '/' || strcmp(serve->listen, "off") == 0;
    if (!is_whole && getcwd(directory, sizeof(directory)) == NULL) {
        return -errno;
    }
    snprintf(path, sizeof(path), "%s%s%s", is_whole ? "" : directory, is_whole ? "" : "/", serve->listen);
    return fby_config_set(serve->config, "server.listen", path);
}

/* The exit code, or FBY_ARGS_GO. */
static int configure(serve_t *serve)
{
    fby_value_t limit;
    int status = fby_config_create(&serve->config);
    status = status == 0 && serve->file != NULL ? fby_config_load(serve->config, serve->file) : status;
    status = status == 0 ? set_texts(serve) : status;
    status = status == 0 ? set_listen(serve) : status;
    status = status == 0 ? fby_config_check(serve->config) : status;
    if (status != 0) {
        return failed(serve, status);
    }
    if (strcmp(fby_config_text(serve->config, FBY_KEY_SERVER_LISTEN, NULL), "off") == 0) {
        return fby_usage_fault(serve->usage,
                               "server.listen is off; accepted: --listen PATH, or a configuration that sets it");
    }
    fby_config_value(serve->config, FBY_KEY_SERVER_STOP_LIMIT_S, &limit);
    serve->limit_s = (double)limit.number / 1e9;
    return FBY_ARGS_GO;
}

/* ---- Ready ------------------------------------------------------------------------------------------------------- */

/* Whoever waits on the descriptor sees a line and then its end; agents must not keep it open. */
static bool keep_ready_fd(const serve_t *serve)
{
    int fd = (int)serve->ready_fd, flags = serve->ready_fd == FBY_NEVER ? 0 : fcntl(fd, F_GETFD);
    return flags >= 0 && (serve->ready_fd == FBY_NEVER || fcntl(fd, F_SETFD, flags | FD_CLOEXEC) == 0);
}

static void say_ready(const serve_t *serve)
{
    const char *path = fby_config_text(serve->config, FBY_KEY_SERVER_LISTEN, NULL);
    const char *pool = fby_config_text(serve->config, FBY_KEY_POOL_BYTES, NULL);
    fby_model_t model = {.size = sizeof(model)};
    fby_cache_model(serve->cache, &model);
    printf("forebay %s serves %s (process %d, pool %s, model %s)\n", fby_version(), path, (int)getpid(), pool,
           model.fingerprint);
    fflush(stdout); /* a closed pipe is reported when the command ends */
    if (serve->ready_fd != FBY_NEVER) {
        ssize_t written = write((int)serve->ready_fd, "ready\n", 6);
        (void)written; /* nobody reads any more: nothing to tell */
        close((int)serve->ready_fd);
    }
}

/* ---- Stop -------------------------------------------------------------------------------------------------------- */

static void *close_cache(void *arg)
{
    serve_t *serve = arg;
    serve->status = fby_cache_close(serve->cache, serve->limit_s, NULL);
    eventfd_write(serve->closed, 1);
    return NULL;
}

static bool next_signal(const serve_t *serve, struct signalfd_siginfo *info)
{
    return read(serve->signals, info, sizeof(*info)) == (ssize_t)sizeof(*info);
}

/* A second signal ends the process where it is: what was lent dies with it, the next server replaces the socket. */
static void wait_closed(const serve_t *serve)
{
    struct pollfd fds[] = {{.fd = serve->closed, .events = POLLIN}, {.fd = serve->signals, .events = POLLIN}};
    struct signalfd_siginfo info;
    for (;;) {
        if (poll(fds, FBY_ARRAY_LEN(fds), -1) < 0) {
            continue;
        }
        if ((fds[0].revents & POLLIN) != 0) {
            return;
        }
        if ((fds[1].revents & POLLIN) != 0 && next_signal(serve, &info)) {
            fprintf(stderr, "%s: %s again: ends at once\n", serve->usage->command, strsignal((int)info.ssi_signo));
            _exit(FBY_EXIT_FAILED);
        }
    }
}

static int stop(serve_t *serve)
{
    pthread_t thread;
    serve->closed = eventfd(0, EFD_CLOEXEC);
    if (serve->closed >= 0 && pthread_create(&thread, NULL, close_cache, serve) == 0) {
        wait_closed(serve);
        pthread_join(thread, NULL);
    } else {
        serve->status = fby_cache_close(serve->cache, serve->limit_s, NULL);
    }
    if (serve->closed >= 0) {
        close(serve->closed);
    }
    return serve->status == 0 ? FBY_EXIT_OK : failed(serve, serve->status);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

/* Until the cache is open a signal ends the process as by default: opening may wait long for a store. */
static int hear_signals(serve_t *serve)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    serve->signals = signalfd(-1, &set, SFD_CLOEXEC);
    return serve->signals >= 0 && sigprocmask(SIG_BLOCK, &set, NULL) == 0 ? 0 : -errno;
}

/* Every client takes a few: the soft limit is for programs that use select(). What cannot be raised is doctor's to say. */
static void raise_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int run(serve_t *serve)
{
    struct signalfd_siginfo info;
    raise_files();
    signal(SIGHUP, SIG_IGN); /* nothing is read again, and a terminal that closes does not end a server */
    int status = fby_cache_open(serve->config, &serve->cache);
    if (status != 0) {
        return failed(serve, status);
    }
    status = hear_signals(serve);
    if (status != 0) {
        fprintf(stderr, "%s: signals: %s\n", serve->usage->command, fby_strerror(status));
        fby_cache_close(serve->cache, 0, NULL);
        return FBY_EXIT_FAILED;
    }
    say_ready(serve);
    while (!next_signal(serve, &info)) {}
    int code = stop(serve);
    close(serve->signals);
    return code;
}

static int checked_run(serve_t *serve)
{
    for (size_t i = 0; i < serve->set.count; i++) {
        if (strchr(serve->set.item[i], '=') == NULL) {
            return fby_usage_fault(serve->usage, "--set has no '='; accepted: --set KEY=VALUE");
        }
    }
    if (!keep_ready_fd(serve)) {
        return fby_usage_fault(serve->usage, "--ready-fd: descriptor %" PRIu64 " is not open", serve->ready_fd);
    }
    int code = configure(serve);
    code = code == FBY_ARGS_GO ? run(serve) : code;
    fby_config_free(serve->config);
    return code;
}

static const char examples[] = "  forebay serve forebay.yaml\n"
                               "  forebay serve forebay.yaml --listen /run/forebay/socket\n"
                               "  forebay serve forebay.yaml --set pool.bytes=64GiB --set server.mode=0660\n";

int fby_cmd_serve(int argc, char **argv)
{
    serve_t serve = {.ready_fd = FBY_NEVER};
    const fby_arg_t args[] = {
        {"listen", FBY_ARG_TEXT, &serve.listen, "PATH", "the socket (server.listen of the configuration)", 0, 0, NULL},
        {"set", FBY_ARG_TEXTS, &serve.set, "KEY=VALUE", "a configuration key, over the file's; may be repeated", 0, 0,
         NULL},
        {"ready-fd", FBY_ARG_WHOLE, &serve.ready_fd, "N", "writes a line to this descriptor when ready, and closes it",
         0, READY_FD_MOST, NULL},
    };
    const fby_usage_t usage = {
        "forebay serve",
        "[FILE]",
        "Opens a cache and answers other processes on a Unix socket until SIGTERM or SIGINT. Prints one line when\n"
        "ready, and tells systemd. A stop waits for sessions under way, server.stop_limit_s at most; a second signal\n"
        "ends it at once. Exit code 0 after an orderly stop. Logs go to stderr.",
        examples,
        args,
        FBY_ARRAY_LEN(args),
        0,
        1};
    char **positional;
    size_t count;
    int code = fby_args_parse(&usage, argc, argv, &positional, &count);
    if (code != FBY_ARGS_GO) {
        return code;
    }
    serve.usage = &usage;
    serve.file = count > 0 ? positional[0] : NULL;
    return checked_run(&serve);
}
