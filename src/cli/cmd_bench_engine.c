/* cmd_bench_engine.c - `forebay bench engine`: its options, and its exit code. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "cli/args.h"
#include "cli/bench_commands.h"
#include "cli/bench_engine.h"
#include "cli/commands.h"

enum { ROUNDS = 9, TOKENS = 2000, BLOCK_TOKENS = 32, ROUNDS_MOST = 1000, TOKENS_MOST = 1 << 20, THREADS_MOST = 1024 };

static const char examples[] =
    "  scripts/with-engine vllm build/forebay bench engine --python python --tiny --rounds 1\n"
    "  scripts/with-engine vllm build/forebay bench engine --python python --model build-cache/models/gemma3-270m "
    "--json\n";

static int run(const fby_usage_t *usage, const fby_bench_engine_options_t *options)
{
    fby_bench_engine_t *bench = malloc(sizeof(*bench));
    int code = FBY_EXIT_FAILED;
    if (bench == NULL) {
        fprintf(stderr, "%s: out of memory\n", usage->command);
        return code;
    }
    if (fby_bench_engine_run(options, bench) != 0) {
        fprintf(stderr, "%s: %s\n", usage->command, fby_last_error());
    } else {
        fby_bench_engine_print(options, bench);
        code = FBY_EXIT_OK;
    }
    free(bench);
    return code;
}

int fby_bench_engine_command(int argc, char **argv)
{
    fby_bench_engine_options_t options = {
        .python = "python3", .rounds = ROUNDS, .tokens = TOKENS, .block_tokens = BLOCK_TOKENS, .seed = 1};
    const fby_arg_t args[] = {
        {"model", FBY_ARG_TEXT, &options.model, "DIR", "a directory with a model as vLLM loads it", 0, 0, NULL},
        {"tiny", FBY_ARG_FLAG, &options.is_tiny, NULL, "a seeded model of two layers in its place: shows that it works",
         0, 0, NULL},
        {"python", FBY_ARG_TEXT, &options.python, "COMMAND", "an interpreter with vLLM and forebay (python3)", 0, 0,
         NULL},
        {"rounds", FBY_ARG_WHOLE, &options.rounds, "N", "rounds, after one that warms up (9)", 1, ROUNDS_MOST, NULL},
        {"tokens", FBY_ARG_WHOLE, &options.tokens, "N",
         "length of the prompt whose first token is timed; the goal is for 2000 (2000)", 2, TOKENS_MOST, NULL},
        {"block-tokens", FBY_ARG_WHOLE, &options.block_tokens, "N", "tokens of the engine's blocks (32)", 1, 65536,
         NULL},
        {"dtype", FBY_ARG_TEXT, &options.dtype, "NAME", "as vLLM takes it (the model's own)", 0, 0, NULL},
        {"threads", FBY_ARG_WHOLE, &options.threads, "N",
         "computing threads of an engine, bound to no core; 0: vLLM's choice, one if --tiny (0)", 0, THREADS_MOST,
         NULL},
        {"seed", FBY_ARG_WHOLE, &options.seed, "N", "of prompts, orders and intervals (1)", 0, UINT64_MAX, NULL},
        {"json", FBY_ARG_FLAG, &options.as_json, NULL, "prints one JSON object", 0, 0, NULL},
    };
    const fby_usage_t usage = {"forebay bench engine",
                               "",
                               "Measures inside vLLM, with the package's connector: what being asked costs the "
                               "scheduler, what saving costs,\n"
                               "and how much sooner the first token of a restored prompt comes. The interpreter "
                               "measures; engines are\n"
                               "processes that take turns in one run.",
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
    if ((options.model == NULL) != options.is_tiny) {
        return fby_usage_fault(&usage,
                               "%s; accepted: --model DIR, a directory with a model as vLLM loads it, or --tiny",
                               options.is_tiny ? "--model and --tiny are both given" : "--model is missing");
    }
    return run(&usage, &options);
}
