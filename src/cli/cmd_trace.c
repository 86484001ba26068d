/* cmd_trace.c - `forebay trace gen` and `forebay trace info`. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/trace.h"
#include "forebay/forebay.h"

static int failed(const char *command)
{
    fprintf(stderr, "%s: %s\n", command, fby_last_error());
    return FBY_EXIT_FAILED;
}

/* ---- gen --------------------------------------------------------------------------------------------------------- */

static const char gen_examples[] = "  forebay trace gen --requests 2000 --seed 7 --output trace.jsonl\n"
                                   "  forebay trace gen --rate 10 --turns 8 --shared-prefix 4096 | head -3\n";

/* The file, or stdout for NULL and "-". NULL with errno. */
static FILE *open_output(const char *path)
{
    return path == NULL || strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
}

static int write_trace(const fby_trace_t *trace, const char *path)
{
    FILE *out = open_output(path);
    if (out == NULL) {
        fprintf(stderr, "forebay trace gen: --output: \"%s\" cannot be written: %s\n", path, strerror(errno));
        return FBY_EXIT_FAILED;
    }
    fby_trace_write(trace, out);
    bool is_whole = out == stdout || (fflush(out) == 0 && !ferror(out));
    if (!is_whole) {
        fprintf(stderr, "forebay trace gen: --output: \"%s\" cannot be written: %s\n", path, strerror(errno));
    }
    if (out != stdout) {
        is_whole = fclose(out) == 0 && is_whole;
    }
    return is_whole ? FBY_EXIT_OK : FBY_EXIT_FAILED;
}

static void print_written(const fby_trace_t *trace, const char *path, uint64_t seed)
{
    fby_json_t json;
    fby_json_init(&json, stdout);
    fby_json_object(&json, NULL);
    fby_json_text(&json, "trace", path);
    fby_json_u64(&json, "seed", seed);
    fby_json_u64(&json, "requests", trace->requests);
    fby_json_u64(&json, "block_refs", trace->block_refs);
    fby_json_u64(&json, "unique_blocks", trace->unique_blocks);
    fby_json_end(&json);
}

/* What the table of options cannot say. FBY_ARGS_GO or an exit code. */
static int check_gen(const fby_usage_t *usage, const fby_trace_recipe_t *recipe, const char *output, bool as_json)
{
    if (recipe->rate_per_s < 0.01) {
        return fby_usage_fault(usage, "--rate: %g is too small; accepted: a number from 0.01 to 1000000",
                               recipe->rate_per_s);
    }
    if (as_json && (output == NULL || strcmp(output, "-") == 0)) {
        return fby_usage_fault(usage,
                               "--json: the trace itself goes to standard output; accepted: --json with --output FILE");
    }
    return FBY_ARGS_GO;
}

static int command_gen(int argc, char **argv)
{
    fby_trace_recipe_t recipe = FBY_TRACE_RECIPE_INIT;
    const char *output = NULL;
    bool as_json = false;
    const fby_arg_t args[] = {
        {"requests", FBY_ARG_WHOLE, &recipe.requests, "N", "how many (1000)", 1, 10000000, NULL},
        {"seed", FBY_ARG_WHOLE, &recipe.seed, "N", "the same seed gives the same trace (1)", 0, UINT64_MAX, NULL},
        {"rate", FBY_ARG_REAL, &recipe.rate_per_s, "R", "requests per second on average (4)", 0, 1000000, NULL},
        {"shared-prefix", FBY_ARG_WHOLE, &recipe.shared_tokens, "TOKENS", "system prompt that all begin with (1024)", 0,
         1 << 22, NULL},
        {"turns", FBY_ARG_REAL, &recipe.turns, "N", "turns of a conversation on average (4)", 1, 10000, NULL},
        {"think", FBY_ARG_REAL, &recipe.think_s, "SECONDS", "pause between turns on average (30)", 0, 1000000, NULL},
        {"input", FBY_ARG_WHOLE, &recipe.input_tokens, "TOKENS", "new tokens of a turn on average (2000)", 1, 1 << 20,
         NULL},
        {"output-tokens", FBY_ARG_WHOLE, &recipe.output_tokens, "TOKENS", "answer of a turn on average (350)", 1,
         1 << 20, NULL},
        {"max-input", FBY_ARG_WHOLE, &recipe.most_input_tokens, "TOKENS", "longest prompt (131072)", 1,
         FBY_TRACE_MOST_TOKENS, NULL},
        {"output", FBY_ARG_TEXT, &output, "FILE", "where to write; - or none: standard output", 0, 0, NULL},
        {"json", FBY_ARG_FLAG, &as_json, NULL, "with --output: prints what was written as one JSON object", 0, 0, NULL},
    };
    const fby_usage_t usage = {"forebay trace gen",
                               "",
                               "Makes a synthetic trace of conversations, in Mooncake's JSON lines.",
                               gen_examples,
                               args,
                               FBY_ARRAY_LEN(args),
                               0,
                               0};
    char **positional;
    size_t count;
    int code = fby_args_parse(&usage, argc, argv, &positional, &count);
    code = code == FBY_ARGS_GO ? check_gen(&usage, &recipe, output, as_json) : code;
    if (code != FBY_ARGS_GO) {
        return code;
    }
    fby_trace_t trace;
    if (fby_trace_generate(&recipe, &trace) != 0) {
        fprintf(stderr, "forebay trace gen: out of memory for %" PRIu64 " requests\n", recipe.requests);
        return FBY_EXIT_FAILED;
    }
    code = write_trace(&trace, output);
    if (as_json && code == FBY_EXIT_OK) {
        print_written(&trace, output, recipe.seed);
    }
    fby_trace_free(&trace);
    return code;
}

/* ---- info -------------------------------------------------------------------------------------------------------- */

static const char info_examples[] = "  forebay trace info trace.jsonl\n"
                                    "  forebay trace info trace.jsonl --lru 1000,10000,30000,50000 --json\n";

/* Everything that info prints. */
typedef struct info {
    const fby_trace_t *trace;
    double duration_s;
    uint64_t input_tokens, output_tokens;
    fby_trace_hits_t infinite;
    fby_wholes_t lru_blocks;
    fby_trace_hits_t lru[FBY_ARG_LIST_MOST];
} info_t;

static double ratio(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0.0;
}

static int collect(info_t *info)
{
    const fby_trace_t *trace = info->trace;
    fby_progress_t progress;
    info->duration_s = (double)trace->request[trace->requests - 1].timestamp_ms / 1000.0;
    for (uint32_t i = 0; i < trace->requests; i++) {
        info->input_tokens += trace->request[i].input_tokens;
        info->output_tokens += trace->request[i].output_tokens;
    }
    fby_trace_infinite_hits(trace, &info->infinite);
    fby_progress_begin(&progress, "lru", info->lru_blocks.count);
    int status = 0;
    for (size_t i = 0; i < info->lru_blocks.count && status == 0; i++) {
        fby_progress_step(&progress, i);
        status = fby_trace_lru_hits(trace, (uint32_t)info->lru_blocks.item[i], &info->lru[i]);
    }
    fby_progress_end(&progress);
    return status;
}

static void print_json(const info_t *info, const char *path)
{
    fby_json_t json;
    fby_json_init(&json, stdout);
    fby_json_object(&json, NULL);
    fby_json_text(&json, "trace", path);
    fby_json_u64(&json, "requests", info->trace->requests);
    fby_json_real(&json, "duration_s", info->duration_s);
    fby_json_u64(&json, "input_tokens", info->input_tokens);
    fby_json_u64(&json, "output_tokens", info->output_tokens);
    fby_json_u64(&json, "block_refs", info->trace->block_refs);
    fby_json_u64(&json, "unique_blocks", info->trace->unique_blocks);
    fby_json_real(&json, "infinite_hit_ratio_blocks", ratio(info->infinite.blocks, info->infinite.total_blocks));
    fby_json_real(&json, "infinite_hit_ratio_tokens", ratio(info->infinite.tokens, info->infinite.total_tokens));
    fby_json_object(&json, "lru_hit_ratio");
    for (size_t i = 0; i < info->lru_blocks.count; i++) {
        char key[24];
        snprintf(key, sizeof(key), "%" PRIu64, info->lru_blocks.item[i]);
        fby_json_real(&json, key, ratio(info->lru[i].blocks, info->lru[i].total_blocks));
    }
    fby_json_end(&json);
    fby_json_end(&json);
}

static void print_hits(fby_table_t *table, const char *name, const fby_trace_hits_t *hits)
{
    fby_table_cell(table, "%s", name);
    fby_table_cell(table, "%.1f %%", 100 * ratio(hits->blocks, hits->total_blocks));
    fby_table_cell(table, "%.1f %%", 100 * ratio(hits->tokens, hits->total_tokens));
}

static void print_text(const info_t *info, const char *path)
{
    static const char *const titles[] = {"cache (blocks of 512 tokens)", "hit, blocks", "hit, tokens"};
    static const bool right[] = {false, true, true};
    const fby_trace_t *trace = info->trace;
    fby_table_t table;
    printf("%s: %" PRIu32 " requests over %.1f s, %.0f input and %.0f output tokens on average\n", path,
           trace->requests, info->duration_s, (double)info->input_tokens / trace->requests,
           (double)info->output_tokens / trace->requests);
    printf("%" PRIu64 " references to %" PRIu32 " blocks\n\n", trace->block_refs, trace->unique_blocks);
    fby_table_init(&table, FBY_ARRAY_LEN(titles), titles, right);
    for (size_t i = 0; i < info->lru_blocks.count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "lru, %" PRIu64, info->lru_blocks.item[i]);
        print_hits(&table, name, &info->lru[i]);
    }
    print_hits(&table, "infinite", &info->infinite);
    fby_table_print(&table, stdout);
    fby_table_free(&table);
}

static int command_info(int argc, char **argv)
{
    bool as_json = false;
    info_t info = {0};
    const fby_arg_t args[] = {
        {"lru", FBY_ARG_WHOLE_LIST, &info.lru_blocks, "N,...", "also hit ratios of an lru cache of so many blocks", 1,
         100000000, NULL},
        {"json", FBY_ARG_FLAG, &as_json, NULL, "prints one JSON object", 0, 0, NULL},
    };
    const fby_usage_t usage = {"forebay trace info",
                               "FILE",
                               "Checks a trace and says how much of it a cache could answer.",
                               info_examples,
                               args,
                               FBY_ARRAY_LEN(args),
                               1,
                               1};
    char **positional;
    size_t count;
    fby_trace_t trace;
    int code = fby_args_parse(&usage, argc, argv, &positional, &count);
    if (code != FBY_ARGS_GO) {
        return code;
    }
    if (fby_trace_load(positional[0], &trace) != 0) {
        return failed("forebay trace info");
    }
    info.trace = &trace;
    code = collect(&info) == 0 ? FBY_EXIT_OK : FBY_EXIT_FAILED;
    if (code != FBY_EXIT_OK) {
        fprintf(stderr, "forebay trace info: out of memory for an lru cache of that size\n");
    } else if (as_json) {
        print_json(&info, positional[0]);
    } else {
        print_text(&info, positional[0]);
    }
    fby_trace_free(&trace);
    return code;
}

int fby_cmd_trace(int argc, char **argv)
{
    static const fby_command_t commands[] = {
        {"gen", command_gen, "makes a synthetic trace of conversations"},
        {"info", command_info, "checks a trace and says how much of it a cache could answer"},
        {NULL, NULL, NULL},
    };
    return fby_commands_run("forebay trace", "Traces of requests in Mooncake's JSON lines.", commands, argc, argv);
}
