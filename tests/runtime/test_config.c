/* The configuration object: precedence and origin, one key at a time, what is shown. */
#include <errno.h>

#include "runtime/config.h"
#include "unit.h"

static fby_config_t *config_new(void)
{
    fby_config_t *config = NULL;
    assert_int_equal(fby_config_create(&config), 0);
    return config;
}

static void assert_effective(const fby_config_t *config, const char *key, const char *value, const char *origin)
{
    const char *got_value = NULL, *got_origin = NULL;
    assert_int_equal(fby_config_get(config, key, &got_value, &got_origin), 0);
    assert_string_equal(got_value, value);
    assert_string_equal(got_origin, origin);
}

static void file_wins_over_environment_wins_over_default(void **state)
{
    assert_int_equal(setenv("FOREBAY_PREFETCH_POLICY", "timeout", 1), 0);
    assert_int_equal(setenv("FOREBAY_HASH", "xxh3", 1), 0);
    fby_config_t *config = config_new();
    assert_effective(config, "prefetch.policy", "timeout", "environment");
    assert_effective(config, "hash", "xxh3", "environment");
    assert_effective(config, "prefetch.stop_mode", "drain", "default");

    static const char file[] = "prefetch: {policy: best_effort}\n";
    assert_int_equal(fby_config_parse(config, file, sizeof(file) - 1, "t"), 0);
    assert_effective(config, "prefetch.policy", "best_effort", "file");
    assert_effective(config, "hash", "xxh3", "environment");

    assert_int_equal(fby_config_set(config, "hash", "sha256"), 0);
    assert_effective(config, "hash", "sha256", "file");
    fby_config_free(config);
    unsetenv("FOREBAY_PREFETCH_POLICY");
    unsetenv("FOREBAY_HASH");
}

static void options_of_the_driver_have_names_of_its_own(void **state)
{
    assert_int_equal(setenv("FOREBAY_STORE_OPTIONS_DIRECTORY", "/from/environment", 1), 0);
    assert_int_equal(setenv("FOREBAY_STORE_OPTIONS_CAPACITY", "1GiB", 1), 0);
    fby_config_t *config = config_new();
    assert_effective(config, "store.options.directory", "/from/environment", "environment");
    assert_int_equal(fby_config_set(config, "store.options.directory", "/from/a=file"), 0);
    assert_effective(config, "store.options.directory", "/from/a=file", "file");
    assert_effective(config, "store.options.capacity", "1GiB", "environment");
    assert_int_equal(fby_config_set(config, "store.options.password", "hunter2"), 0);
    assert_effective(config, "store.options.password", "(set)", "file");
    assert_int_equal(fby_config_set(config, "store.options.", "x"), FBY_E_CONFIG);
    fby_config_free(config);
    unsetenv("FOREBAY_STORE_OPTIONS_DIRECTORY");
    unsetenv("FOREBAY_STORE_OPTIONS_CAPACITY");
}

static void too_many_options_are_refused(void **state)
{
    fby_config_t *config = config_new();
    char key[64];
    for (int i = 0; i < FBY_OPTIONS_MOST; i++) {
        snprintf(key, sizeof(key), "store.options.o%d", i);
        assert_int_equal(fby_config_set(config, key, "1"), 0);
    }
    assert_int_equal(fby_config_set(config, "store.options.one_more", "1"), FBY_E_CONFIG);
    assert_string_equal(fby_last_error(), "store.options.one_more: too many options; accepted: at most 64");
    assert_int_equal(fby_config_set(config, "store.options.o63", "2"), 0);
    assert_effective(config, "store.options.o63", "2", "file");
    fby_config_free(config);
}

typedef struct bad_variable {
    const char *name, *value, *message;
} bad_variable_t;

static void a_wrong_variable_stops_the_start(void **state)
{
    static const bad_variable_t rows[] = {
        {"FOREBAY_PREFETCH_POLICY", "eager",
         "environment FOREBAY_PREFETCH_POLICY: prefetch.policy: \"eager\" is not known; accepted: one of "
         "wait_complete, "
         "timeout, best_effort, break_even"},
        {"FOREBAY_PREFETCH_ENABLED", "",
         "environment FOREBAY_PREFETCH_ENABLED: prefetch.enabled: \"\" is not a truth value; accepted: true or false"},
        {"FOREBAY_PREFETCH_POLCY", "timeout",
         "environment: unknown variable \"FOREBAY_PREFETCH_POLCY\"; did you mean FOREBAY_PREFETCH_POLICY?"},
        {"FOREBAY_POOL_WHATEVER_THIS_IS", "1",
         "environment: unknown variable \"FOREBAY_POOL_WHATEVER_THIS_IS\"; accepted: FOREBAY_ and a key in capitals "
         "with '_' "
         "for '.'"},
        {"FOREBAY_SECRET", "a\tb",
         "environment FOREBAY_SECRET: secret: (a hidden value) has a control character; accepted: 1 to 64 bytes of "
         "text "
         "without control characters, or unset"},
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        fby_config_t *config = NULL;
        assert_int_equal(setenv(rows[i].name, rows[i].value, 1), 0);
        assert_int_equal(fby_config_create(&config), FBY_E_CONFIG);
        assert_null(config);
        assert_string_equal(fby_last_error(), rows[i].message);
        unsetenv(rows[i].name);
    }
}

static void variables_of_tools_are_left_alone(void **state)
{
    static const char *const names[] = {"FOREBAY_STORE", "FOREBAY_TRACES", "FOREBAY_SOMETHING_ELSE", "FOREBAY_",
                                        "FOREBAYX"};
    for (size_t i = 0; i < FBY_ARRAY_LEN(names); i++) {
        assert_int_equal(setenv(names[i], "x", 1), 0);
        fby_config_free(config_new());
        unsetenv(names[i]);
    }
}

static void unknown_keys_are_named(void **state)
{
    fby_config_t *config = config_new();
    const char *value = "untouched";
    assert_int_equal(fby_config_set(config, "prefetch.timeout_max", "30"), FBY_E_CONFIG);
    assert_string_equal(fby_last_error(),
                        "unknown key \"prefetch.timeout_max\": the unit belongs to the name; did you mean "
                        "prefetch.timeout_max_s?");
    assert_int_equal(fby_config_set(config, "prefetch", "30"), FBY_E_CONFIG);
    assert_int_equal(fby_config_set(config, "", "30"), FBY_E_CONFIG);
    assert_int_equal(fby_config_get(config, "prefetch.polcy", &value, NULL), -ENOENT);
    assert_string_equal(value, "untouched");
    fby_config_free(config);
}

static void lists_can_be_set_from_text(void **state)
{
    fby_config_t *config = config_new();
    assert_int_equal(fby_config_set(config, "model.groups", "kv:4096:all"), 0);
    assert_effective(config, "model.groups", "kv:4KiB:all", "file");
    assert_int_equal(fby_config_set(config, "model.groups", "[{name: a, payload_bytes: 1MiB, rule: trailing(2)}]"), 0);
    assert_effective(config, "model.groups", "a:1MiB:trailing(2)", "file");
    assert_int_equal(fby_config_set(config, "model.groups", "[{name: a}]\nhash: xxh3"), FBY_E_CONFIG);
    assert_effective(config, "hash", "sha256", "default");
    assert_int_equal(fby_config_set(config, "pool.group_bytes", "{a: 1MiB}"), 0);
    assert_effective(config, "pool.group_bytes", "a=1MiB", "file");
    fby_config_free(config);
}

static void shares_follow_what_they_are_shares_of(void **state)
{
    fby_config_t *config = config_new();
    assert_effective(config, "pool.max_hold_bytes", "512MiB", "default");
    assert_effective(config, "pool.write_pinned_bytes", "256MiB", "default");
    assert_effective(config, "prefetch.quarantine_limit", "256MiB", "default");

    assert_int_equal(fby_config_set(config, "pool.bytes", "64MiB"), 0);
    assert_int_equal(fby_config_set(config, "prefetch.max_reserved_bytes", "4MiB"), 0);
    assert_effective(config, "pool.max_hold_bytes", "32MiB", "default");
    assert_effective(config, "pool.write_pinned_bytes", "16MiB", "default");
    assert_effective(config, "prefetch.quarantine_limit", "2MiB", "default");

    assert_int_equal(fby_config_set(config, "pool.max_hold_bytes", "64MiB"), 0);
    assert_effective(config, "pool.max_hold_bytes", "64MiB", "file");
    assert_int_equal(fby_config_set(config, "pool.bytes", "128MiB"), 0);
    assert_effective(config, "pool.max_hold_bytes", "64MiB", "file");
    assert_int_equal(fby_config_set(config, "pool.max_hold_bytes", "unset"), 0);
    assert_effective(config, "pool.max_hold_bytes", "64MiB", "file");
    fby_config_free(config);

    config = config_new();
    assert_int_equal(fby_config_set(config, "pool.group_bytes", "kv=48MiB,state=16MiB"), 0);
    assert_effective(config, "pool.bytes", "64MiB", "default");
    assert_effective(config, "pool.max_hold_bytes", "32MiB", "default");
    fby_config_free(config);
}

static void a_secret_is_never_shown(void **state)
{
    fby_config_t *config = config_new();
    assert_effective(config, "secret", "unset", "default");
    assert_int_equal(fby_config_set(config, "secret", "a deployment secret"), 0);
    assert_effective(config, "secret", "(set)", "file");
    fby_config_free(config);
}

typedef struct rows {
    char text[8192];
    size_t count;
} rows_t;

static void add_row(void *arg, const char *key, const char *value, const char *origin)
{
    rows_t *rows = arg;
    size_t length = strlen(rows->text);
    snprintf(rows->text + length, sizeof(rows->text) - length, "%s=%s (%s)\n", key, value, origin);
    rows->count++;
}

static void every_key_is_shown_once_in_order(void **state)
{
    static const char expected[] = "prefetch.enabled=false (default)\n"
                                   "prefetch.policy=wait_complete (default)\n"
                                   "prefetch.stop_mode=drain (default)\n"
                                   "prefetch.predictive=false (default)\n"
                                   "prefetch.chunk_max_blocks=128 (default)\n"
                                   "prefetch.max_inflight_chunks=2 (default)\n"
                                   "prefetch.timeout_base_s=2 (default)\n"
                                   "prefetch.timeout_per_ki_token_s=0.1 (default)\n"
                                   "prefetch.timeout_max_s=30 (default)\n"
                                   "prefetch.timeout_budget_s=unset (default)\n"
                                   "prefetch.min_tokens=0 (default)\n"
                                   "prefetch.max_sessions=128 (default)\n"
                                   "prefetch.max_reserved_bytes=512MiB (default)\n"
                                   "prefetch.max_pinned_bytes=2GiB (default)\n"
                                   "prefetch.result_ttl_s=60 (default)\n"
                                   "prefetch.quarantine_limit=256MiB (default)\n"
                                   "prefetch.recompute_tokens_per_s=unset (default)\n"
                                   "prefetch.query_batch_blocks=256 (default)\n"
                                   "prefetch.query_timeout_s=5 (default)\n"
                                   "prefetch.io_timeout_s=30 (default)\n"
                                   "prefetch.no_progress_timeout_s=5 (default)\n"
                                   "prefetch.drain_limit_s=30 (default)\n"
                                   "prefetch.floor_bandwidth=16MiB (default)\n"
                                   "model.id=m (file)\n"
                                   "model.revision=unset (default)\n"
                                   "model.kv_dtype=unset (default)\n"
                                   "model.block_tokens=unset (default)\n"
                                   "model.layer_set=unset (default)\n"
                                   "model.layout=unset (default)\n"
                                   "model.weights_epoch=unset (default)\n"
                                   "model.tp_size=unset (default)\n"
                                   "model.cp_size=unset (default)\n"
                                   "model.pp_size=unset (default)\n"
                                   "model.groups=unset (default)\n"
                                   "hash=sha256 (default)\n"
                                   "secret=(set) (file)\n"
                                   "pool.bytes=1GiB (default)\n"
                                   "pool.group_bytes=unset (default)\n"
                                   "pool.huge_pages=false (default)\n"
                                   "pool.numa_node=unset (default)\n"
                                   "pool.lock=false (default)\n"
                                   "pool.prefault=true (default)\n"
                                   "pool.max_hold_bytes=512MiB (default)\n"
                                   "pool.write_pinned_bytes=256MiB (default)\n"
                                   "pool.eviction=lru (default)\n"
                                   "pool.evict_start=unset (default)\n"
                                   "pool.evict_ratio=0.05 (default)\n"
                                   "pool.paint=false (default)\n"
                                   "store.driver=file (default)\n"
                                   "store.options.a=2 (file)\n"
                                   "store.options.b=1 (file)\n"
                                   "store.host=auto (default)\n"
                                   "store.agent_dir=unset (default)\n"
                                   "store.query_lanes=unset (default)\n"
                                   "store.read_lanes=unset (default)\n"
                                   "store.write_lanes=unset (default)\n"
                                   "store.batch=unset (default)\n"
                                   "store.verify=on (default)\n"
                                   "store.write=through (default)\n"
                                   "store.breaker_failures=3 (default)\n"
                                   "store.breaker_backoff_s=1 (default)\n"
                                   "store.breaker_backoff_max_s=60 (default)\n"
                                   "store.negative_ttl_s=5 (default)\n"
                                   "server.listen=off (default)\n"
                                   "server.mode=0600 (default)\n"
                                   "server.allow_uids=own (default)\n"
                                   "server.max_clients=1024 (default)\n"
                                   "server.client_sessions=4096 (default)\n"
                                   "server.client_holds=4096 (default)\n"
                                   "server.client_puts=1024 (default)\n"
                                   "server.client_pinned_bytes=1TiB (default)\n"
                                   "server.client_sequence_bytes=64MiB (default)\n"
                                   "server.stop_limit_s=10 (default)\n"
                                   "server.allow_check=false (default)\n"
                                   "metrics.listen=off (default)\n"
                                   "log.level=info (default)\n"
                                   "log.format=logfmt (default)\n";
    fby_config_t *config = config_new();
    rows_t rows = {0};
    assert_int_equal(fby_config_set(config, "store.options.b", "1"), 0);
    assert_int_equal(fby_config_set(config, "store.options.a", "2"), 0);
    assert_int_equal(fby_config_set(config, "model.id", "m"), 0);
    assert_int_equal(fby_config_set(config, "secret", "hush"), 0);
    fby_config_each(config, add_row, &rows);
    assert_string_equal(rows.text, expected);
    assert_int_equal(rows.count, FBY_KEY_COUNT + 2);
    fby_config_free(config);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(file_wins_over_environment_wins_over_default),
        cmocka_unit_test(options_of_the_driver_have_names_of_its_own),
        cmocka_unit_test(too_many_options_are_refused),
        cmocka_unit_test(a_wrong_variable_stops_the_start),
        cmocka_unit_test(variables_of_tools_are_left_alone),
        cmocka_unit_test(unknown_keys_are_named),
        cmocka_unit_test(lists_can_be_set_from_text),
        cmocka_unit_test(shares_follow_what_they_are_shares_of),
        cmocka_unit_test(a_secret_is_never_shown),
        cmocka_unit_test(every_key_is_shown_once_in_order),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
