/* cmd_bench.c - `forebay bench`: measurements that compare within one run. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/args.h"
#include "cli/bench_commands.h"
#include "cli/bench_compare.h"
#include "cli/bench_store.h"
#include "cli/commands.h"
#include "stores/object.h"

enum { BLOCKS_MOST = 4096, SERIAL_REQUESTS = 4, ROUNDS = 15, STOPS = 40, ALL_LOADS = (1 << FBY_BENCH_LOAD_COUNT) - 1 };
enum { ALL_ARMS = (1 << FBY_BENCH_ARM_COUNT) - 1 };

static const char examples[] =
    "  forebay bench compare --store file:/var/tmp/forebay-bench\n"
    "  forebay bench compare --store mem --rounds 5 --tokens 4096 --json\n"
    "  scripts/with-store mooncake --size 2GiB -- forebay bench compare --store env --rounds 30\n"
    "  forebay bench compare --store redis:host=127.0.0.1,port=6379 --arms native,whole,chunk32 --load serial\n";

static void interrupt(int number)
{
    (void)number;
    fby_bench_interrupted = 1;
}

/* A measurement ends within seconds; then agents and clients are ended as after a whole run. */
static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int failed(const fby_usage_t *usage)
{
    fprintf(stderr, "%s: %s\n", usage->command, fby_last_error());
    return FBY_EXIT_FAILED;
}

static int compare(const fby_usage_t *usage, const fby_bench_options_t *options)
{
    fby_bench_t bench;
    int status = fby_bench_run(options, &bench);
    int code = status == 0 ? FBY_EXIT_OK : failed(usage);
    if (code == FBY_EXIT_OK) { /* wrong bytes are shown, not hidden */
        code = fby_bench_print(&bench) == 0 ? FBY_EXIT_OK : failed(usage);
        code = fby_bench_is_right(&bench, usage->command) ? code : FBY_EXIT_FAILED;
    }
    fby_bench_close(&bench);
    return code;
}

/* NULL, or what is wrong with the options together. Static text. */
static const char *options_fault(const fby_bench_options_t *options)
{
    if (options->store == NULL) {
        return "--store is missing; accepted: " FBY_STORE_ACCEPTED;
    }
    if (options->tokens % options->block_tokens != 0 || options->tokens / options->block_tokens > BLOCKS_MOST) {
        return "--tokens is not a multiple of --block-tokens, or more than 4096 of them";
    }
    for (size_t i = 0; i < options->set.count; i++) {
        if (strchr(options->set.item[i], '=') == NULL) {
            return "--set has no '='; accepted: --set KEY=VALUE";
        }
    }
    return NULL;
}

/* Without a slow store nothing is stopped, unless it was asked for. */
static int settle(const fby_usage_t *usage, fby_bench_options_t *options)
{
    fby_store_text_t store = {.copy = NULL}, slow = {.copy = NULL};
    if (fby_store_text_parse(options->store, &store) != 0) {
        return fby_usage_fault(usage, "--store: %s", fby_last_error());
    }
    bool has_slow = options->slow != NULL || fby_bench_can_slow(&store);
    fby_store_text_free(&store);
    if (options->slow != NULL && fby_store_text_parse(options->slow, &slow) != 0) {
        return fby_usage_fault(usage, "--slow: %s", fby_last_error());
    }
    fby_store_text_free(&slow);
    if (options->stops == FBY_NEVER) {
        options->stops = has_slow ? STOPS : 0;
    } else if (options->stops > 0 && !has_slow) {
        return fby_usage_fault(usage,
                               "--stops: this store cannot be slowed from here; accepted: --slow STORE, the same "
                               "store behind a slow link, or --stops 0");
    }
    return FBY_ARGS_GO;
}

static int command_compare(int argc, char **argv)
{
    fby_bench_options_t options = {
        .loads = ALL_LOADS,
        .arms = ALL_ARMS,
        .rounds = ROUNDS,
        .requests = SERIAL_REQUESTS,
        .tokens = 16384,
        .block_tokens = 64,
        .block_bytes = UINT64_C(256) << 10,
        .stops = FBY_NEVER,
        .seed = 1,
    };
    const fby_arg_t args[] = {
        {"store", FBY_ARG_TEXT, &options.store, "STORE", FBY_STORE_ACCEPTED, 0, 0, NULL},
        {"load", FBY_ARG_WORD_LIST, &options.loads, "LOADS",
         "serial, 8, 32: one request after the other, or that many with 4 at work (all)", 0, 0, fby_bench_load_names},
        {"arms", FBY_ARG_WORD_LIST, &options.arms, "ARMS", "native, whole, one_graph, chunk128, chunk32 (all)", 0, 0,
         fby_bench_arm_names},
        {"rounds", FBY_ARG_WHOLE, &options.rounds, "N", "rounds, after one that warms up (15)", 1, 10000, NULL},
        {"requests", FBY_ARG_WHOLE, &options.requests, "N", "requests of load serial per round and arm (4)", 1, 1000,
         NULL},
        {"tokens", FBY_ARG_WHOLE, &options.tokens, "N", "length of a prompt (16384)", 1, 1 << 20, NULL},
        {"block-tokens", FBY_ARG_WHOLE, &options.block_tokens, "N", "tokens of a block (64)", 1, 65536, NULL},
        {"block-bytes", FBY_ARG_SIZE, &options.block_bytes, "SIZE",
         "bytes of a block's object, its trailer of 64 included (256KiB)", 4 * FBY_TRAILER_BYTES, 64 << 20, NULL},
        {"stops", FBY_ARG_WHOLE, &options.stops, "N",
         "sessions stopped under each stop mode on a slowed store; 0: none (40, 0 where nothing can be slowed)", 0,
         100000, NULL},
        {"slow", FBY_ARG_TEXT, &options.slow, "STORE",
         "the same store behind a slow link (the driver behind the fault wrapper)", 0, 0, NULL},
        {"native", FBY_ARG_TEXT, &options.native, "COMMAND", "the native client as a program; docs/bench.md", 0, 0,
         NULL},
        {"set", FBY_ARG_TEXTS, &options.set, "KEY=VALUE", "a configuration key of every cache; may be repeated", 0, 0,
         NULL},
        {"seed", FBY_ARG_WHOLE, &options.seed, "N", "of the orders, the stops and the intervals (1)", 0, UINT64_MAX,
         NULL},
        {"json", FBY_ARG_FLAG, &options.as_json, NULL, "prints one JSON object", 0, 0, NULL},
    };
    const fby_usage_t usage = {
        "forebay bench compare",
        "",
        "Reads the same prompts from one store as a whole, in chunks, and with the store's own client, in rounds of\n"
        "random order. Writes its prompts into the store first (1 GiB by default) and leaves them there. Every byte\n"
        "is checked in the first round, a sample later; exit code 1 when one is wrong or a graph count is.",
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
    const char *wrong = options_fault(&options);
    if (wrong != NULL) {
        return fby_usage_fault(&usage, "%s", wrong);
    }
    code = settle(&usage, &options);
    if (code != FBY_ARGS_GO) {
        return code;
    }
    catch_interrupts();
    return compare(&usage, &options);
}

int fby_cmd_bench(int argc, char **argv)
{
    static const fby_command_t commands[] = {
        {"compare", command_compare, "whole task, one graph, chunks, and the store's own client"},
        {"copy", fby_bench_copy_command, "copies between slots and device memory, and plain copies of the same bytes"},
        {"engine", fby_bench_engine_command,
         "inside vLLM: being asked, saving, and the first token of a restored prompt"},
        {"server", fby_bench_server_command, "calls through a server's socket, for one client and for many"},
        {NULL, NULL, NULL},
    };
    return fby_commands_run("forebay bench", "Measurements that compare within one run.", commands, argc, argv);
}
