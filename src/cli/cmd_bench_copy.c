/* cmd_bench_copy.c - `forebay bench copy`: its options, and its exit code. */
#include <stdio.h>

#include "base/log.h"
#include "cli/args.h"
#include "cli/bench_commands.h"
#include "cli/bench_copy.h"
#include "cli/commands.h"

enum { ROUNDS = 15, THREADS_MOST = 256, LEAST_BYTES = 8 << 20 };

static const char examples[] = "  forebay bench copy --layouts\n"
                               "  forebay bench copy --layouts --json --rounds 31\n"
                               "  forebay bench copy --threads 8 --size 4GiB\n";

static int run(const fby_usage_t *usage, const fby_bench_copy_options_t *options)
{
    fby_bench_copy_t bench;
    int code = FBY_EXIT_OK;
    if (fby_bench_copy_run(options, &bench) != 0) {
        fprintf(stderr, "%s: %s\n", usage->command, fby_last_error());
        code = FBY_EXIT_FAILED;
    } else { /* wrong bytes are shown, not hidden */
        fby_bench_copy_print(&bench);
        code = fby_bench_copy_is_right(&bench, usage->command) ? FBY_EXIT_OK : FBY_EXIT_FAILED;
    }
    fby_bench_copy_close(&bench);
    return code;
}

int fby_bench_copy_command(int argc, char **argv)
{
    fby_bench_copy_options_t options = {
        .bytes = UINT64_C(512) << 20, .rounds = ROUNDS, .threads = FBY_BENCH_COPY_GOAL_THREADS, .seed = 1};
    const fby_arg_t args[] = {
        {"layouts", FBY_ARG_FLAG, &options.all_layouts, NULL,
         "every layout: layer-first, packed, MLA (layer-first alone)", 0, 0, NULL},
        {"size", FBY_ARG_SIZE, &options.bytes, "SIZE", "bytes of a copy; the command needs twice that (512MiB)",
         LEAST_BYTES, UINT64_C(1) << 50, NULL},
        {"threads", FBY_ARG_WHOLE, &options.threads, "N", "threads that copy; goals are for 2 (2)", 1, THREADS_MOST,
         NULL},
        {"rounds", FBY_ARG_WHOLE, &options.rounds, "N", "rounds, after one that warms up (15)", 1, 10000, NULL},
        {"seed", FBY_ARG_WHOLE, &options.seed, "N", "of the orders and the intervals (1)", 0, UINT64_MAX, NULL},
        {"json", FBY_ARG_FLAG, &options.as_json, NULL, "prints one JSON object", 0, 0, NULL},
    };
    const fby_usage_t usage = {
        "forebay bench copy",
        "",
        "Loads blocks from a pool into tensors as a rank does, with checksums and without, and copies as many bytes "
        "with\n"
        "plain non-temporal stores, in rounds of random order. Every byte is checked before the rounds, a sample in\n"
        "them; exit code 1 when one is wrong. Store and GPU are not used.",
        examples,
        args,
        FBY_ARRAY_LEN(args),
        0,
        0};
    char **positional;
    size_t count;
    int code = fby_args_parse(&usage, argc, argv, &positional, &count);
    return code == FBY_ARGS_GO ? run(&usage, &options) : code;
}
