/* cmd_bench_server.c - `forebay bench server`: its options, and its exit code. */
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/args.h"
#include "cli/bench_commands.h"
#include "cli/bench_compare.h"
#include "cli/bench_server.h"
#include "cli/commands.h"

enum { ROUNDS = 15, SAMPLES = 2000, SAMPLES_MOST = 1000000 };

static const char examples[] = "  forebay bench server\n"
                               "  forebay bench server --python python3 --json\n"
                               "  forebay bench server --clients 8 --idle 1 --load 0.5 --rounds 3\n";

static void interrupt(int number)
{
    (void)number;
    fby_bench_interrupted = 1;
}

/* A round ends within a second; then server and clients are ended as after a whole run. */
static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int run(const fby_usage_t *usage, const fby_bench_server_options_t *options)
{
    fby_bench_server_t bench;
    int status = fby_bench_server_run(options, &bench);
    if (status == 0) {
        fby_bench_server_print(&bench);
    } else {
        fprintf(stderr, "%s: %s\n", usage->command,
                *fby_last_error() != '\0' ? fby_last_error() : fby_strerror(status));
    }
    fby_bench_server_close(&bench);
    return status == 0 ? FBY_EXIT_OK : FBY_EXIT_FAILED;
}

int fby_bench_server_command(int argc, char **argv)
{
    fby_bench_server_options_t options = {.rounds = ROUNDS,
                                          .samples = SAMPLES,
                                          .clients = FBY_BENCH_GOAL_CLIENTS,
                                          .seed = 1,
                                          .idle_ns = FBY_BENCH_GOAL_IDLE_S * FBY_SECOND,
                                          .load_ns = 2 * FBY_SECOND};
    const fby_arg_t args[] = {
        {"python", FBY_ARG_TEXT, &options.python, "COMMAND", "an interpreter with the package, to be timed as well", 0,
         0, NULL},
        {"clients", FBY_ARG_WHOLE, &options.clients, "N", "clients beside the one that is timed; goals are for 64 (64)",
         1, FBY_BENCH_CLIENTS_MOST, NULL},
        {"rounds", FBY_ARG_WHOLE, &options.rounds, "N", "rounds, after one that warms up (15)", 1, 10000, NULL},
        {"samples", FBY_ARG_WHOLE, &options.samples, "N", "polls (64 each) and calls of a round (2000)", 1,
         SAMPLES_MOST, NULL},
        {"idle", FBY_ARG_SECONDS, &options.idle_ns, "SECONDS", "how long nobody does anything; goals are for 10 (10)",
         0, 0, NULL},
        {"load", FBY_ARG_SECONDS, &options.load_ns, "SECONDS", "how long everybody calls (2)", 0, 0, NULL},
        {"seed", FBY_ARG_WHOLE, &options.seed, "N", "of the intervals (1)", 0, UINT64_MAX, NULL},
        {"json", FBY_ARG_FLAG, &options.as_json, NULL, "prints one JSON object", 0, 0, NULL},
    };
    const fby_usage_t usage = {"forebay bench server",
                               "",
                               "Starts a server and clients, a process each, and times what one client pays: a poll, "
                               "which asks nobody, and a\n"
                               "call, which is one message and its answer (a lookup of 64 blocks). Then all are "
                               "silent, then all call at once.",
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
    if (options.load_ns == 0) {
        return fby_usage_fault(&usage, "--load is 0; accepted: seconds above 0");
    }
    catch_interrupts();
    return run(&usage, &options);
}
