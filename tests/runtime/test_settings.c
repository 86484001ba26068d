/* From configuration to plain values: what is missing, what contradicts, what the runtime reads, which policy wins. */
#include "runtime/config.h"
#include "runtime/settings.h"
#include "unit.h"

static const char model[] = "model:\n"
                            "  id: org/model\n"
                            "  revision: main\n"
                            "  kv_dtype: bf16\n"
                            "  block_tokens: 16\n"
                            "  layer_set: all\n"
                            "  layout: layer-first\n"
                            "  weights_epoch: 7\n"
                            "  tp_size: 2\n"
                            "  cp_size: 1\n"
                            "  pp_size: 3\n"
                            "  groups:\n"
                            "  - {name: kv, payload_bytes: 4096, rule: all}\n"
                            "  - {name: state, payload_bytes: 1000, rule: trailing(4)}\n";

static fby_config_t *config_with_model(void)
{
    fby_config_t *config = NULL;
    assert_int_equal(fby_config_create(&config), 0);
    if (fby_config_parse(config, model, sizeof(model) - 1, "m.yaml") != 0) {
        fail_msg("%s", fby_last_error());
    }
    return config;
}

static void defaults_resolve_to_the_documented_values(void **state)
{
    fby_config_t *config = config_with_model();
    fby_settings_t s;
    assert_int_equal(fby_settings_resolve(config, &s), 0);
    fby_config_free(config); /* the settings live on their own */

    assert_false(s.prefetch.enabled);
    assert_int_equal(s.prefetch.policy, FBY_POLICY_WAIT_COMPLETE);
    assert_int_equal(s.prefetch.stop_mode, FBY_STOP_DRAIN);
    assert_false(s.prefetch.predictive);
    assert_int_equal(s.prefetch.chunk_max_blocks, 128);
    assert_int_equal(s.prefetch.max_inflight_chunks, 2);
    assert_int_equal(s.prefetch.timeout_base_ns, 2 * FBY_SECOND);
    assert_int_equal(s.prefetch.timeout_per_ki_token_ns, 100 * FBY_MS);
    assert_int_equal(s.prefetch.timeout_max_ns, 30 * FBY_SECOND);
    assert_true(s.prefetch.timeout_budget_ns == FBY_NEVER);
    assert_int_equal(s.prefetch.min_tokens, 0);
    assert_int_equal(s.prefetch.max_sessions, 128);
    assert_int_equal(s.prefetch.max_reserved_bytes, UINT64_C(512) << 20);
    assert_int_equal(s.prefetch.max_pinned_bytes, UINT64_C(2) << 30);
    assert_int_equal(s.prefetch.result_ttl_ns, 60 * FBY_SECOND);
    assert_int_equal(s.prefetch.quarantine_limit_bytes, UINT64_C(256) << 20);
    assert_true(s.prefetch.recompute_tokens_per_s == 0);
    assert_int_equal(s.prefetch.query_batch_blocks, 256);
    assert_int_equal(s.prefetch.query_timeout_ns, 5 * FBY_SECOND);
    assert_int_equal(s.prefetch.io_timeout_ns, 30 * FBY_SECOND);
    assert_int_equal(s.prefetch.no_progress_timeout_ns, 5 * FBY_SECOND);
    assert_int_equal(s.prefetch.drain_limit_ns, 30 * FBY_SECOND);
    assert_int_equal(s.hash.kind, FBY_HASH_SHA256);
    assert_int_equal(s.hash.secret_length, 0);
    assert_int_equal(s.pool.bytes, UINT64_C(1) << 30);
    assert_int_equal(s.pool.max_hold_bytes, UINT64_C(512) << 20);
    assert_int_equal(s.pool.write_pinned_bytes, UINT64_C(256) << 20);
    assert_true(s.pool.numa_node == FBY_NONE);
    assert_true(s.pool.prefault);
    assert_int_equal(s.pool.eviction, FBY_EVICT_LRU);
    assert_string_equal(s.store.driver, "file");
    assert_string_equal(s.store.options[0], "model=org/model@main"); /* what the file store keeps epochs by */
    assert_null(s.store.options[1]);
    assert_int_equal(s.store.read_lanes, 0);
    assert_int_equal(s.store.verify, FBY_VERIFY_ON);
    assert_int_equal(s.store.write, FBY_STORE_WRITE_THROUGH);
    assert_int_equal(s.log.level, FBY_LOG_INFO);
    fby_settings_free(&s);
}

static void the_model_becomes_the_fingerprint_fields(void **state)
{
    fby_config_t *config = config_with_model();
    fby_settings_t s;
    assert_int_equal(fby_settings_resolve(config, &s), 0);
    assert_string_equal(s.model.model_id, "org/model");
    assert_string_equal(s.model.revision, "main");
    assert_string_equal(s.model.kv_dtype, "bf16");
    assert_string_equal(s.model.layer_set, "all");
    assert_string_equal(s.model.layout, "layer-first");
    assert_int_equal(s.model.weights_epoch, 7);
    assert_int_equal(s.model.block_tokens, 16);
    assert_int_equal(s.model.tp_size, 2);
    assert_int_equal(s.model.cp_size, 1);
    assert_int_equal(s.model.pp_size, 3);
    assert_int_equal(s.model.groups, 2);
    assert_string_equal(s.model.group[1].name, "state");
    assert_int_equal(s.model.group[1].payload_bytes, 1000);
    assert_int_equal(s.model.group[1].trailing, 4);
    assert_int_equal(fby_settings_slot_bytes(&s, 0, 4096), 8192);
    assert_int_equal(fby_settings_slot_bytes(&s, 1, 64), 1088);
    fby_settings_free(&s);
    fby_config_free(config);
}

static void set_values_arrive_resolved(void **state)
{
    static const char file[] =
        "prefetch: {enabled: true, policy: break_even, recompute_tokens_per_s: 8000.5, "
        "timeout_budget_s: 0, quarantine_limit: 1MiB}\n"
        "hash: xxh3\nsecret: \"0123456789abcdef\"\n"
        "pool: {group_bytes: {state: 1MiB, kv: 7MiB}, numa_node: 1, evict_start: 0.9, eviction: filo}\n"
        "store: {driver: \"fault:mem\", host: thread, read_lanes: 3, verify: on_load, write: back,\n"
        "  options: {script: \"get * delay(1)\", inner: mem}}\n"
        "log: {level: off, format: json}\n";
    fby_config_t *config = config_with_model();
    fby_settings_t s;
    assert_int_equal(fby_config_parse(config, file, sizeof(file) - 1, "f"), 0);
    if (fby_settings_resolve(config, &s) != 0) {
        fail_msg("%s", fby_last_error());
    }
    assert_true(s.prefetch.enabled);
    assert_int_equal(s.prefetch.policy, FBY_POLICY_BREAK_EVEN);
    assert_true(s.prefetch.recompute_tokens_per_s == 8000.5);
    assert_int_equal(s.prefetch.timeout_budget_ns, 0);
    assert_int_equal(s.prefetch.quarantine_limit_bytes, 1 << 20);
    assert_int_equal(s.hash.kind, FBY_HASH_XXH3);
    assert_int_equal(s.hash.secret_length, 16);
    assert_memory_equal(s.hash.secret, "0123456789abcdef", 16);
    assert_int_equal(s.pool.bytes, 8 << 20);
    assert_int_equal(s.pool.group_bytes[0], 7 << 20);
    assert_int_equal(s.pool.group_bytes[1], 1 << 20);
    assert_int_equal(s.pool.numa_node, 1);
    assert_true(s.pool.evict_start == 0.9);
    assert_int_equal(s.pool.eviction, FBY_EVICT_FILO);
    assert_int_equal(s.store.host, FBY_HOST_THREAD);
    assert_int_equal(s.store.read_lanes, 3);
    assert_int_equal(s.store.verify, FBY_VERIFY_ON_LOAD);
    assert_int_equal(s.store.write, FBY_STORE_WRITE_BACK);
    assert_string_equal(s.store.options[0], "inner=mem");
    assert_string_equal(s.store.options[1], "script=get * delay(1)");
    assert_null(s.store.options[2]);
    assert_int_equal(s.log.level, FBY_LOG_OFF);
    assert_int_equal(s.log.format, FBY_LOG_JSON);
    fby_settings_free(&s);
    fby_config_free(config);
}

static void every_missing_model_field_is_named(void **state)
{
    fby_config_t *config = NULL;
    assert_int_equal(fby_config_create(&config), 0);
    assert_int_equal(fby_config_check(config), FBY_E_CONFIG);
    assert_string_equal(
        fby_last_error(),
        "missing: model.id, model.revision, model.kv_dtype, model.block_tokens, model.layer_set, model.layout, "
        "model.weights_epoch, model.tp_size, model.cp_size, model.pp_size, model.groups; accepted: a value for "
        "each, since all of them enter the fingerprint");
    fby_config_free(config);
}

static void each_missing_model_field_alone_is_an_error(void **state)
{
    for (size_t id = FBY_KEY_MODEL_ID; id <= FBY_KEY_MODEL_GROUPS; id++) {
        fby_config_t *config = NULL;
        assert_int_equal(fby_config_create(&config), 0);
        fby_config_t *full = config_with_model();
        for (size_t other = FBY_KEY_MODEL_ID; other <= FBY_KEY_MODEL_GROUPS; other++) {
            const char *value;
            assert_int_equal(fby_config_get(full, fby_keys[other].name, &value, NULL), 0);
            assert_true(other == id || fby_config_set(config, fby_keys[other].name, value) == 0);
        }
        char expected[160];
        snprintf(expected, sizeof(expected),
                 "missing: %s; accepted: a value for each, since all of them enter the fingerprint", fby_keys[id].name);
        assert_int_equal(fby_config_check(config), FBY_E_CONFIG);
        assert_string_equal(fby_last_error(), expected);
        fby_config_free(full);
        fby_config_free(config);
    }
}

typedef struct contradiction {
    const char *text, *message;
} contradiction_t;

static void contradictions_are_refused_before_anything_is_opened(void **state)
{
    static const contradiction_t rows[] = {
        {"model.groups: kv:4096:trailing(1)",
         "c.yaml:1: model.groups: kv:4KiB:trailing(1) has no group with rule all; accepted: at least one"},
        {"\nmodel.cp_size: 8",
         "c.yaml:2: model.cp_size: 8 is refused: no layout of this version supports context parallelism; "
         "accepted: 1"},
        {"hash: xxh3", "c.yaml:1: hash: xxh3 needs a deployment secret; accepted: secret of 16 to 64 bytes, or sha256"},
        {"hash: xxh3\nsecret: fifteen_letters",
         "c.yaml:1: hash: xxh3 needs a deployment secret; accepted: secret of 16 to 64 bytes, or sha256"},
        {"prefetch.policy: break_even",
         "c.yaml:1: prefetch.policy: break_even needs prefetch.recompute_tokens_per_s, which is "
         "unset; accepted: a number above 0 there"},
        {"prefetch.max_reserved_bytes: 20KiB", "c.yaml:1: prefetch.max_reserved_bytes: 20KiB holds no chunk of one "
                                               "block in each half of a window of 2; accepted: "
                                               "20896B or more, or a smaller prefetch.max_inflight_chunks"},
        {"prefetch.max_pinned_bytes: 5KiB",
         "c.yaml:1: prefetch.max_pinned_bytes: 5KiB is less than one block of the model with "
         "its trailers; accepted: 5224B to 1024TiB"},
        {"prefetch: {max_reserved_bytes: 1MiB, quarantine_limit: 2MiB}",
         "c.yaml:1: prefetch.quarantine_limit: 2MiB is more than prefetch.max_reserved_bytes; accepted: 1B to 1MiB"},
        {"pool.bytes: 5KiB", "c.yaml:1: pool.bytes: 5KiB is less than one block of the model with its trailers; "
                             "accepted: 5224B to 1024TiB"},
        {"pool: {bytes: 1MiB, max_hold_bytes: 2MiB}",
         "c.yaml:1: pool.max_hold_bytes: 2MiB is more than the pool; accepted: 1B to 1MiB"},
        {"pool: {bytes: 1MiB, write_pinned_bytes: 2MiB}",
         "c.yaml:1: pool.write_pinned_bytes: 2MiB is more than the pool; accepted: 1B to 1MiB"},
        {"pool: {bytes: 1MiB, group_bytes: {kv: 1MiB, state: 1MiB}}",
         "c.yaml:1: pool.group_bytes: kv=1MiB,state=1MiB stands beside pool.bytes; accepted: one of the two"},
        {"pool: {group_bytes: {kv: 1MiB}}",
         "c.yaml:1: pool.group_bytes: kv=1MiB does not name the groups of model.groups; "
         "accepted: a size for each of them"},
        {"pool: {group_bytes: {kv: 1MiB, other: 1MiB}}", "c.yaml:1: pool.group_bytes: kv=1MiB,other=1MiB does not name "
                                                         "the groups of model.groups; accepted: a size for each of "
                                                         "them"},
        {"store: {breaker_backoff_s: 61}",
         "c.yaml:1: store.breaker_backoff_s: 61 is more than store.breaker_backoff_max_s; accepted: at most that"},
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        fby_config_t *config = config_with_model();
        fby_settings_t untouched, settings;
        memset(&untouched, 0x5A, sizeof(untouched));
        memset(&settings, 0x5A, sizeof(settings));
        assert_int_equal(fby_config_parse(config, rows[i].text, strlen(rows[i].text), "c.yaml"), 0);
        assert_int_equal(fby_settings_resolve(config, &settings), FBY_E_CONFIG);
        assert_string_equal(fby_last_error(), rows[i].message);
        assert_memory_equal(&settings, &untouched, sizeof(settings));
        fby_config_free(config);
    }
}

/* Three sources of a policy by four values: the highest that speaks wins, and its name is told. */
static void the_effective_policy_comes_from_the_first_that_speaks(void **state)
{
    static const struct {
        bool in_file, in_environment;
        const char *origin;
    } sources[] = {{true, true, "file"}, {false, true, "environment"}, {false, false, "argument"}};
    for (size_t i = 0; i < FBY_ARRAY_LEN(sources); i++) {
        for (int32_t policy = 0; policy < FBY_POLICY_COUNT; policy++) {
            int32_t other = (policy + 1) % FBY_POLICY_COUNT, third = (policy + 2) % FBY_POLICY_COUNT;
            const char *name = fby_policy_name((fby_policy_t)policy), *origin = NULL;
            int32_t in_environment = sources[i].in_file ? other : policy;
            if (sources[i].in_environment) {
                setenv("FOREBAY_PREFETCH_POLICY", fby_policy_name((fby_policy_t)in_environment), 1);
            }
            fby_config_t *config = config_with_model();
            unsetenv("FOREBAY_PREFETCH_POLICY");
            if (sources[i].in_file) {
                assert_int_equal(fby_config_set(config, "prefetch.policy", name), 0);
            }
            int32_t argument = sources[i].in_environment ? third : policy;
            assert_int_equal(fby_settings_policy(config, argument, &origin), policy);
            assert_string_equal(origin, sources[i].origin);
            fby_config_free(config);
        }
    }
}

static void without_any_source_the_policy_is_wait_complete(void **state)
{
    fby_config_t *config = config_with_model();
    const char *origin = NULL;
    assert_int_equal(fby_settings_policy(config, FBY_UNSET, &origin), FBY_POLICY_WAIT_COMPLETE);
    assert_string_equal(origin, "default");
    fby_config_free(config);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(defaults_resolve_to_the_documented_values),
        cmocka_unit_test(the_model_becomes_the_fingerprint_fields),
        cmocka_unit_test(set_values_arrive_resolved),
        cmocka_unit_test(every_missing_model_field_is_named),
        cmocka_unit_test(each_missing_model_field_alone_is_an_error),
        cmocka_unit_test(contradictions_are_refused_before_anything_is_opened),
        cmocka_unit_test(the_effective_policy_comes_from_the_first_that_speaks),
        cmocka_unit_test(without_any_source_the_policy_is_wait_complete),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
