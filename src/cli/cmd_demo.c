/* cmd_demo.c - `forebay demo`: the tour. A prefix is stored, lost from CPU memory, and fetched back in every way. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/args.h"
#include "cli/cmd_demo.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/table.h"

enum { RUNS = FBY_POLICY_COUNT * FBY_STOP_MODE_COUNT };

static const char examples[] = "  forebay demo\n"
                               "  forebay demo --json\n"
                               "  forebay demo --tokens 32768 --queue 0.5 --store file:/mnt/nvme/forebay-demo\n"
                               "  FOREBAY_STORE=fault:mem:latency_ms=5,bandwidth=50MB forebay demo --store env\n";

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* A run ends within a second or so; then the scratch directory is removed as after a whole demo. */
static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

static void print_json(const fby_demo_t *demo, const fby_demo_run_t *runs)
{
    fby_json_t json;
    fby_json_init(&json, stdout);
    fby_json_object(&json, NULL);
    fby_json_text(&json, "store", demo->store.text);
    fby_json_array(&json, "runs");
    for (size_t i = 0; i < RUNS; i++) {
        const fby_demo_run_t *run = &runs[i];
        fby_json_object(&json, NULL);
        fby_json_text(&json, "policy", fby_policy_name(run->policy));
        fby_json_text(&json, "stop_mode", fby_stop_mode_name(run->stop_mode));
        fby_json_text(&json, "outcome", fby_outcome_name(run->answer.outcome));
        fby_json_text(&json, "reason", fby_reason_name(run->answer.reason));
        fby_json_u64(&json, "found_tokens", run->answer.found_tokens);
        fby_json_u64(&json, "planned_tokens", run->answer.planned_tokens);
        fby_json_u64(&json, "loaded_tokens", run->answer.loaded_tokens);
        fby_json_u64(&json, "delivered_tokens", run->answer.delivered_tokens);
        fby_json_u64(&json, "graphs_submitted", run->submitted);
        fby_json_u64(&json, "graphs_at_seal", run->answer.sealed_submit_seq);
        fby_json_real(&json, "stop_to_answer_us", (double)run->stop_ns / 1000.0);
        fby_json_bool(&json, "verified", run->wrong_blocks == 0);
        fby_json_end(&json);
    }
    fby_json_end(&json);
    fby_json_end(&json);
}

static void print_row(fby_table_t *table, const fby_demo_run_t *run)
{
    fby_table_cell(table, "%s", fby_policy_name(run->policy));
    fby_table_cell(table, "%s", fby_stop_mode_name(run->stop_mode));
    fby_table_cell(table, "%s", fby_reason_name(run->answer.reason));
    fby_table_cell(table, "%" PRIu64, run->answer.found_tokens);
    fby_table_cell(table, "%" PRIu64, run->answer.planned_tokens);
    fby_table_cell(table, "%" PRIu64, run->answer.loaded_tokens);
    fby_table_cell(table, "%" PRIu64, run->answer.delivered_tokens);
    fby_table_cell(table, "%" PRIu64, run->answer.sealed_submit_seq);
    fby_table_cell(table, "%" PRIu64, run->submitted);
    fby_table_cell(table, "%" PRIu64, run->recalled);
    fby_table_cell(table, "%.3f ms", (double)run->stop_ns / (double)FBY_MS);
    fby_table_cell(table, "%" PRIu64, run->cached_tokens);
    if (run->wrong_blocks > 0) {
        fby_table_cell(table, "%" PRIu64 " BLOCKS WRONG", run->wrong_blocks);
    } else {
        fby_table_cell(table, "%.1f MiB", (double)run->right_bytes / (1 << 20));
    }
}

static void print_text(const fby_demo_t *demo, const fby_demo_run_t *runs)
{
    static const char *const titles[] = {"policy",         "stop mode", "reason",  "found",  "planned",
                                         "loaded",         "delivered", "at seal", "graphs", "recalled",
                                         "stop to answer", "cached",    "verified"};
    static const bool right[] = {false, false, false, true, true, true, true, true, true, true, true, true, true};
    fby_table_t table;
    printf("Store: %s\n", demo->store.text);
    printf("For each row a prompt of %" PRIu64 " tokens (%" PRIu64
           " blocks, %.1f MiB) was stored, lost from CPU memory, and fetched\n"
           "back while a request waited %.0f ms in the queue; the timeout policy had %.0f ms.\n\n",
           demo->options.tokens, demo->blocks, (double)demo->blocks * demo->payload_bytes / (1 << 20),
           (double)demo->options.queue_ns / (double)FBY_MS, (double)demo->budget_ns / (double)FBY_MS);
    fby_table_init(&table, FBY_ARRAY_LEN(titles), titles, right);
    for (size_t i = 0; i < RUNS; i++) {
        print_row(&table, &runs[i]);
    }
    fby_table_print(&table, stdout);
    fby_table_free(&table);
    printf("\nCompare `delivered` by policy: wait_complete takes all there is however long that lasts, while timeout, "
           "best_effort\n"
           "(at the end of the queue) and break_even (once loading is slower than computing, %.0f tokens/s here) stop "
           "early.\n"
           "Compare `stop to answer` by stop mode: drain waits for every graph that was submitted, recall takes back "
           "those the\n"
           "store had not begun, and detach answers at once and leaves the rest to finish for the cache (`cached`).\n",
           demo->recompute_tokens_per_s);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static int failed(const fby_usage_t *usage)
{
    fprintf(stderr, "%s: %s\n", usage->command, fby_last_error());
    return FBY_EXIT_FAILED;
}

static int fetch_all(const fby_usage_t *usage, fby_demo_t *demo, fby_demo_run_t *runs)
{
    fby_progress_t progress;
    int status = 0;
    size_t done = 0;
    fby_progress_begin(&progress, "demo", RUNS);
    for (; done < RUNS && status == 0 && !interrupted; done++) {
        fby_progress_step(&progress, done);
        status = fby_demo_fetch(demo, (fby_policy_t)(done / FBY_STOP_MODE_COUNT),
                                (fby_stop_mode_t)(done % FBY_STOP_MODE_COUNT), &runs[done]);
    }
    fby_progress_end(&progress);
    if (status == 0 && interrupted) {
        fprintf(stderr, "%s: interrupted after %zu of %d runs\n", usage->command, done, RUNS);
        return FBY_EXIT_FAILED;
    }
    return status == 0 ? FBY_EXIT_OK : failed(usage);
}

static int run(const fby_usage_t *usage, const fby_demo_options_t *options, bool as_json)
{
    fby_demo_t demo;
    fby_demo_run_t runs[RUNS] = {0};
    int code = fby_demo_open(options, &demo) == 0 ? FBY_EXIT_OK : failed(usage);
    code = code == FBY_EXIT_OK ? fetch_all(usage, &demo, runs) : code;
    for (size_t i = 0; i < RUNS && code == FBY_EXIT_OK; i++) {
        if (runs[i].wrong_blocks > 0) {
            fprintf(stderr, "%s: %" PRIu64 " delivered blocks of policy %s with stop mode %s are not what was stored\n",
                    usage->command, runs[i].wrong_blocks, fby_policy_name(runs[i].policy),
                    fby_stop_mode_name(runs[i].stop_mode));
            code = FBY_EXIT_FAILED;
        }
    }
    /* wrong bytes are shown, not hidden */
    bool is_whole = code == FBY_EXIT_OK || runs[RUNS - 1].answer.answered;
    if (is_whole && as_json) {
        print_json(&demo, runs);
    } else if (is_whole) {
        print_text(&demo, runs);
    }
    fby_demo_close(&demo);
    return code;
}

int fby_cmd_demo(int argc, char **argv)
{
    fby_demo_options_t options = {.tokens = 8192, .queue_ns = 200 * FBY_MS};
    bool as_json = false;
    const fby_arg_t args[] = {
        {"store", FBY_ARG_TEXT, &options.store, "STORE", FBY_STORE_ACCEPTED " (a slow file store in a new directory)",
         0, 0, NULL},
        {"tokens", FBY_ARG_WHOLE, &options.tokens, "N", "length of the prompt (8192)", 256, 131072, NULL},
        {"queue", FBY_ARG_SECONDS, &options.queue_ns, "SECONDS", "how long the request waits in the queue (0.2)", 0, 0,
         NULL},
        {"json", FBY_ARG_FLAG, &as_json, NULL, "prints one JSON object", 0, 0, NULL},
    };
    const fby_usage_t usage = {
        "forebay demo",
        "",
        "Stores a prefix, loses it from CPU memory, and fetches it back under every policy and stop mode while\n"
        "a request waits in a queue. Every delivered byte is compared; exit code 1 when one is wrong.",
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
    fby_store_text_t store = {.copy = NULL};
    if (options.store != NULL && fby_store_text_parse(options.store, &store) != 0) {
        return fby_usage_fault(&usage, "--store: %s", fby_last_error());
    }
    fby_store_text_free(&store);
    catch_interrupts();
    return run(&usage, &options, as_json);
}
