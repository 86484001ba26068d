/*
 * test_agents.c - sessions over a store in agents: what hangs is fenced, what was beside it is begun once more, what is
 * left behind comes free by itself. The store is `file` wrapped by `fault`: its objects outlive an agent.
 */
#include <signal.h>
#include <unistd.h>

#include "agent/fence_rig.h"
#include "api/rig.h"

enum { ONE_BLOCK = 17, FOUR_BLOCKS = 65 };

static char *directory;
static rig_t rig;

/* ---- Opening ---- */

#define MOST_SETTINGS 16

static void open_over(const char *driver, const char *script, const char *const *more)
{
    char dir_setting[512], script_setting[512], driver_setting[512];
    const char *settings[MOST_SETTINGS] = {driver_setting, dir_setting, "store.host=agent",
                                           "store.breaker_failures=1000", "pool.bytes=1MiB"};
    size_t count = 5;
    snprintf(driver_setting, sizeof(driver_setting), "store.driver=%s", driver);
    snprintf(dir_setting, sizeof(dir_setting), "store.options.dir=%s", directory);
    if (script != NULL) {
        snprintf(script_setting, sizeof(script_setting), "store.options.script=%s", script);
        settings[count++] = script_setting;
    }
    while (*more != NULL) {
        assert_true(count < MOST_SETTINGS - 1);
        settings[count++] = *more++;
    }
    settings[count] = NULL;
    rig_open(&rig, settings);
}

#define OPEN(script, ...) open_over("fault:file", script, (const char *const[]){__VA_ARGS__, NULL})

/* Fills the store with the sequences of these seeds, through an agent, and tells the key of each one's first block. */
static void fill(const uint64_t *seeds, const size_t *tokens, size_t count, char keys[][FBY_KEY_BYTES])
{
    open_over("file", NULL, (const char *const[]){NULL});
    for (size_t i = 0; i < count; i++) {
        fby_seq_t *seq = rig_seq(&rig, seeds[i], tokens[i]);
        rig_put_stored(&rig, seq, (tokens[i] - 1) / RIG_BLOCK_TOKENS);
        assert_int_equal(fby_seq_key(seq, 0, 0, keys[i], FBY_KEY_BYTES), 0);
        fby_seq_unref(seq);
    }
    rig_close(&rig);
}

static int setup(void **state)
{
    directory = fixture_directory();
    return 0;
}

static int teardown(void **state)
{
    fixture_remove_directory(directory);
    return 0;
}

/* ---- Sessions ---- */

typedef struct reading {
    fby_seq_t *seq;
    fby_session_t session;
} reading_t;

static reading_t begin(uint64_t seed, size_t tokens)
{
    reading_t reading = {.seq = rig_seq(&rig, seed, tokens)};
    reading.session = rig_start(&rig, reading.seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    return reading;
}

static void expect_complete(reading_t *reading, uint64_t blocks)
{
    fby_snapshot_t result = rig_wait(&rig, reading->session);
    if (result.outcome != FBY_OUTCOME_COMPLETE) {
        fail_msg("outcome %u, reason %u, error %s, %llu blocks", result.outcome, result.reason,
                 fby_errname(result.error), (unsigned long long)result.delivered_blocks);
    }
    assert_int_equal(result.delivered_blocks, blocks);
    rig_take_and_verify(&rig, reading->session, reading->seq, blocks);
    fby_seq_unref(reading->seq);
}

static void expect_failed(reading_t *reading, uint32_t reason)
{
    fby_snapshot_t result = rig_wait(&rig, reading->session);
    assert_int_equal(result.reason, reason);
    assert_int_equal(result.outcome, FBY_OUTCOME_FAILED);
    assert_int_equal(result.delivered_tokens, 0);
    fby_session_release(rig.cache, reading->session);
    fby_seq_unref(reading->seq);
}

static void the_next_session_is_complete(uint64_t seed)
{
    reading_t next = begin(seed, FOUR_BLOCKS);
    expect_complete(&next, 4);
}

/* ---- Reads ---- */

/* Graphs of one block have one second, those of four have four: the first hangs, the second is slow and with the same
   agent. The first one's limit kills it; the second begins again on the next one and is delivered. */
static void a_hung_read_ends_alone(void **state)
{
    const uint64_t seeds[] = {1, 2, 3};
    const size_t tokens[] = {ONE_BLOCK, RIG_P32_TOKENS, FOUR_BLOCKS};
    char keys[3][FBY_KEY_BYTES], script[256];
    fill(seeds, tokens, 3, keys);
    snprintf(script, sizeof(script), "get:%s:hang; get:%s:delay(1500)", keys[0], keys[1]);
    /* one failure, the hung read's own: what ended with its agent does not count for the breaker */
    OPEN(script, "prefetch.io_timeout_s=10", "prefetch.no_progress_timeout_s=0.5", "prefetch.floor_bandwidth=8192B",
         "store.breaker_failures=2");
    rig_t other;
    RIG_OPEN(&other, "store.host=thread");
    fby_seq_t *undisturbed = rig_seq(&other, 9, RIG_P32_TOKENS);
    rig_store_blocks(&other, undisturbed, 0, 32);

    reading_t hung = begin(1, ONE_BLOCK), beside = begin(2, RIG_P32_TOKENS);
    expect_failed(&hung, FBY_REASON_IO_TIMEOUT);
    fby_session_t session = rig_start(&other, undisturbed, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&other, session).delivered_blocks, 32);
    fby_snapshot_t result = rig_wait(&rig, beside.session);
    assert_int_equal(result.submitted, 8);
    expect_complete(&beside, 32);
    RIG_AWAIT(rig_stats(&rig).quarantine_bytes_gauge == 0);
    fby_stats_t stats = rig_stats(&rig);
    assert_int_equal(stats.agent_kills, 1);
    assert_int_equal(stats.agent_deaths, 0);
    assert_int_equal(stats.agents_unproven, 0);
    assert_int_equal(stats.retries, 4); /* payloads */
    the_next_session_is_complete(3);
    rig_quiet(&rig);
    rig_close(&rig);
    fby_session_release(other.cache, session);
    fby_seq_unref(undisturbed);
    rig_quiet(&other);
    rig_close(&other);
}

static void the_limit_of_a_graph_fences_too(void **state)
{
    const uint64_t seeds[] = {1, 2};
    const size_t tokens[] = {FOUR_BLOCKS, FOUR_BLOCKS};
    char keys[2][FBY_KEY_BYTES], script[128];
    fill(seeds, tokens, 2, keys);
    snprintf(script, sizeof(script), "get:%s:hang", keys[0]);
    OPEN(script, "prefetch.io_timeout_s=1", "prefetch.no_progress_timeout_s=30");
    reading_t hung = begin(1, FOUR_BLOCKS);
    expect_failed(&hung, FBY_REASON_IO_TIMEOUT);
    rig_quiet(&rig);
    the_next_session_is_complete(2);
    rig_quiet(&rig);
    assert_int_equal(rig_stats(&rig).agent_kills, 1);
    rig_close(&rig);
}

static void an_agent_that_is_killed_in_the_middle_costs_nothing(void **state)
{
    const uint64_t seeds[] = {1};
    const size_t tokens[] = {RIG_P32_TOKENS};
    char keys[1][FBY_KEY_BYTES];
    pid_t agents[2];
    fill(seeds, tokens, 1, keys);
    /* its death says nothing about the store: the breaker that opens at the first failure stays closed */
    OPEN("get:*:delay(200)", "prefetch.io_timeout_s=20", "store.breaker_failures=1");
    reading_t reading = begin(1, RIG_P32_TOKENS);
    RIG_AWAIT(rig_poll(&rig, reading.session).delivered_blocks > 0);
    assert_int_equal(host_rig_agents(agents, 2), 1);
    assert_int_equal(kill(agents[0], SIGKILL), 0);
    expect_complete(&reading, 32);
    fby_stats_t stats = rig_stats(&rig);
    assert_int_equal(stats.agent_deaths, 1);
    assert_int_equal(stats.agent_kills, 0);
    assert_int_equal(stats.agent_starts, 2);
    rig_quiet(&rig);
    rig_close(&rig);
}

/* ---- Queries ---- */

static void a_hung_query_is_an_error_of_its_session(void **state)
{
    const uint64_t seeds[] = {1, 2};
    const size_t tokens[] = {FOUR_BLOCKS, FOUR_BLOCKS};
    char keys[2][FBY_KEY_BYTES], script[128];
    fill(seeds, tokens, 2, keys);
    snprintf(script, sizeof(script), "exists:%s:hang", keys[0]);
    OPEN(script, "prefetch.query_timeout_s=0.5");
    reading_t hung = begin(1, FOUR_BLOCKS);
    expect_failed(&hung, FBY_REASON_QUERY_ERROR);
    RIG_AWAIT(rig_stats(&rig).agent_kills == 1);
    the_next_session_is_complete(2);
    rig_quiet(&rig);
    rig_close(&rig);
}

/* ---- Writes ---- */

/* A store that overwrites is asked before it is written to: the question hangs, and the write behind it would. */
static void a_hung_write_lets_go_of_its_slots(void **state)
{
    uint64_t stored, failed;
    const char *const settings[] = {"store.driver=fault:mem",
                                    "store.host=agent",
                                    "store.breaker_failures=1000",
                                    "store.options.script=exists|put:*:hang",
                                    "prefetch.io_timeout_s=1",
                                    "prefetch.no_progress_timeout_s=1",
                                    NULL};
    rig_open(&rig, settings);
    fby_seq_t *seq = rig_seq(&rig, 1, FOUR_BLOCKS);
    fby_put_t put = rig_put(&rig, seq, 4, NULL);
    fby_put_wait_store(rig.cache, put, RIG_PATIENCE_S, &stored, &failed);
    assert_int_equal(stored, 0);
    assert_int_equal(failed, 4);
    assert_int_equal(fby_put_release(rig.cache, put), 0);
    rig_quiet(&rig);
    assert_int_equal(rig_stats(&rig).agent_kills, 1);
    fby_seq_unref(seq);
    rig_close(&rig);
}

/* ---- The end ---- */

static void closing_ends_what_hangs(void **state)
{
    const uint64_t seeds[] = {1};
    const size_t tokens[] = {FOUR_BLOCKS};
    char keys[1][FBY_KEY_BYTES];
    pid_t agents[4];
    fby_close_report_t report = {.size = sizeof(report)};
    fill(seeds, tokens, 1, keys);
    OPEN("get:*:hang", "prefetch.io_timeout_s=3600", "prefetch.no_progress_timeout_s=3600");
    reading_t hung = begin(1, FOUR_BLOCKS);
    RIG_AWAIT(rig_stats(&rig).inflight_graphs_gauge == 1);
    assert_int_equal(fby_cache_close(rig.cache, 2, &report), 0);
    assert_int_equal(report.sessions_aborted, 1);
    assert_int_equal(report.operations_abandoned, 0);
    assert_int_equal(report.bytes_abandoned, 0);
    assert_int_equal(host_rig_agents(agents, 4), 0);
    fby_seq_unref(hung.seq);
    fby_store_mem.close(rig.store);
}

/* Without a filter and without a namespace nobody knows who else holds the pool: the slots stay, and closing says so. */
static void what_cannot_be_proven_stays_in_quarantine_and_is_abandoned(void **state)
{
    char agent_dir[512];
    fby_close_report_t report = {.size = sizeof(report)};
    snprintf(agent_dir, sizeof(agent_dir), "store.agent_dir=%s", getenv("FOREBAY_EVIL_AGENT"));
    fence_rig_namespaces(false);
    rig_open(&rig, (const char *const[]){"store.driver=mem", "store.host=agent", "store.options.act=rich", agent_dir,
                                         "store.breaker_failures=1000", "prefetch.io_timeout_s=0.5", NULL});
    fence_rig_namespaces(true);
    reading_t hung = begin(1, FOUR_BLOCKS);
    expect_failed(&hung, FBY_REASON_IO_TIMEOUT);
    RIG_AWAIT(rig_stats(&rig).agents_unproven == 1 && rig_stats(&rig).agents_gauge == FBY_AGENT_KINDS);
    uint64_t slots = rig_stats(&rig).quarantine_bytes_gauge;
    assert_int_equal(slots, UINT64_C(4) * 4160);
    assert_int_equal(rig_stats(&rig).reserved_bytes_gauge, slots);
    assert_int_equal(fby_cache_close(rig.cache, 1, &report), FBY_E_ABANDONED);
    assert_int_equal(report.operations_abandoned, 1);
    assert_int_equal(report.bytes_abandoned, slots);
    pid_t agents[8];
    RIG_AWAIT(host_rig_agents(agents, 8) == 0); /* those that had nothing to do leave all the same */
    fby_store_mem.close(rig.store);
}

static void a_reset_raises_the_epoch_in_the_agent_too(void **state)
{
    const uint64_t seeds[] = {1};
    const size_t tokens[] = {FOUR_BLOCKS};
    char keys[1][FBY_KEY_BYTES];
    fill(seeds, tokens, 1, keys);
    OPEN(NULL, NULL);
    fby_seq_t *before = rig_seq(&rig, 1, FOUR_BLOCKS);
    assert_int_equal(fby_cache_reset(rig.cache, RIG_PATIENCE_S, 1), FBY_RESET_DONE);
    assert_int_equal(fby_cache_epoch(rig.cache), 2);
    fby_session_options_t options = FBY_SESSION_OPTIONS_INIT;
    fby_session_t session;
    assert_int_equal(fby_session_start(rig.cache, before, &options, &session), FBY_E_STALE);
    fby_seq_unref(before);
    fby_seq_t *after = rig_seq(&rig, 1, FOUR_BLOCKS); /* the old objects are not its own */
    session = rig_start(&rig, after, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).delivered_blocks, 0);
    fby_session_release(rig.cache, session);
    rig_put_stored(&rig, after, 4);
    fby_seq_unref(after);
    rig_quiet(&rig);
    rig_close(&rig);

    /* the directory keeps it */
    fby_cache_t *lower = NULL;
    char dir_setting[512];
    snprintf(dir_setting, sizeof(dir_setting), "store.options.dir=%s", directory);
    fby_config_t *config =
        rig_config(&rig, (const char *const[]){"store.driver=file", dir_setting, "store.host=agent", NULL});
    assert_true(fby_cache_open(config, &lower) < 0);
    assert_non_null(strstr(fby_last_error(), "epoch"));
    fby_config_free(config);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static void *reset_with_epoch(void *arg)
{
    static int rc;
    rc = fby_cache_reset(rig.cache, RIG_PATIENCE_S, 1);
    return &rc;
}

static void closing_ends_a_reset_that_hangs_in_an_agent(void **state)
{
    char driver[512], mark[512];
    pthread_t thread;
    void *rc;
    fby_close_report_t report = {.size = sizeof(report)};
    snprintf(driver, sizeof(driver), "%s/evil_driver.so", getenv("FOREBAY_EVIL_DRIVER"));
    snprintf(mark, sizeof(mark), "%s/in", directory);
    open_over(driver, NULL, (const char *const[]){"store.options.act=hang_epoch", NULL});
    assert_int_equal(pthread_create(&thread, NULL, reset_with_epoch, NULL), 0);
    RIG_AWAIT(access(mark, F_OK) == 0);
    assert_int_equal(fby_cache_close(rig.cache, 2, &report), 0);
    assert_int_equal(report.operations_abandoned, 0);
    pthread_join(thread, &rc);
    assert_true(*(int *)rc < 0);
    fby_store_mem.close(rig.store);
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    const struct CMUnitTest tests[] = {
        STORY(a_hung_read_ends_alone),
        STORY(the_limit_of_a_graph_fences_too),
        STORY(an_agent_that_is_killed_in_the_middle_costs_nothing),
        STORY(a_hung_query_is_an_error_of_its_session),
        STORY(a_hung_write_lets_go_of_its_slots),
        STORY(closing_ends_what_hangs),
        STORY(what_cannot_be_proven_stays_in_quarantine_and_is_abandoned),
        STORY(a_reset_raises_the_epoch_in_the_agent_too),
        STORY(closing_ends_a_reset_that_hangs_in_an_agent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
