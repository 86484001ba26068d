/* Every kind of wrong value for every type, and the canonical text of right ones. */
#include <locale.h>
#include <string.h>

#include "runtime/config_value.h"
#include "unit.h"

typedef struct bad_row {
    const char *key, *text, *why;
} bad_row_t;

static const bad_row_t bad_rows[] = {
    {"prefetch.enabled", "", "is not a truth value"},
    {"prefetch.enabled", "yes", "is not a truth value"},
    {"prefetch.enabled", "1", "is not a truth value"},
    {"prefetch.enabled", "TRUE", "is not a truth value"},
    {"prefetch.enabled", "nan", "is not a truth value"},
    {"prefetch.enabled", "unset", "is not a truth value"},

    {"prefetch.chunk_max_blocks", "", "is empty"},
    {"prefetch.chunk_max_blocks", "0", "is too small"},
    {"prefetch.chunk_max_blocks", "65537", "is too large"},
    {"prefetch.chunk_max_blocks", "99999999999999999999999", "is too large"},
    {"prefetch.chunk_max_blocks", "-1", "is negative"},
    {"prefetch.chunk_max_blocks", "-0", "is negative"},
    {"prefetch.chunk_max_blocks", "+1", "is not a whole number"},
    {"prefetch.chunk_max_blocks", "1.5", "is not a whole number"},
    {"prefetch.chunk_max_blocks", "1e3", "is not a whole number"},
    {"prefetch.chunk_max_blocks", "0x10", "is not a whole number"},
    {"prefetch.chunk_max_blocks", "010", "has a leading zero"},
    {"prefetch.chunk_max_blocks", " 1", "is not a whole number"},
    {"prefetch.chunk_max_blocks", "1 ", "is not a whole number"},
    {"prefetch.chunk_max_blocks", "1_000", "is not a whole number"},
    {"prefetch.chunk_max_blocks", "many", "is not a whole number"},
    {"prefetch.chunk_max_blocks", "true", "is not a whole number"},
    {"prefetch.chunk_max_blocks", "nan", "is not a number"},
    {"prefetch.chunk_max_blocks", "inf", "is infinite"},
    {"prefetch.chunk_max_blocks", "unset", "is not a whole number"},
    {"prefetch.min_tokens", "-5", "is negative"},
    {"prefetch.min_tokens", "18446744073709551616", "is too large"},
    {"model.weights_epoch", "9223372036854775808", "is too large"},

    {"pool.bytes", "", "is empty"},
    {"pool.bytes", "4095", "is too small"},
    {"pool.bytes", "-1GiB", "is negative"},
    {"pool.bytes", "1.5GiB", "is not a whole number of a unit"},
    {"pool.bytes", "1GB", "has an unknown unit"},
    {"pool.bytes", "1 GiB", "has an unknown unit"},
    {"pool.bytes", "1gib", "has an unknown unit"},
    {"pool.bytes", "1GiBs", "has an unknown unit"},
    {"pool.bytes", "GiB", "is not a whole number of a unit"},
    {"pool.bytes", "01GiB", "has a leading zero"},
    {"pool.bytes", "1025TiB", "is too large"},
    {"pool.bytes", "18446744073709551615TiB", "is too large"},
    {"pool.bytes", "99999999999999999999999999TiB", "is too large"},
    {"pool.bytes", ".nan", "is not a number"},
    {"pool.bytes", ".inf", "is infinite"},
    {"pool.bytes", "all", "is not a whole number of a unit"},

    {"prefetch.timeout_base_s", "", "is empty"},
    {"prefetch.timeout_base_s", "-0.1", "is negative"},
    {"prefetch.timeout_base_s", "-.5", "is negative"},
    {"prefetch.timeout_base_s", "nan", "is not a number"},
    {"prefetch.timeout_base_s", "NaN", "is not a number"},
    {"prefetch.timeout_base_s", "-nan", "is not a number"},
    {"prefetch.timeout_base_s", ".nan", "is not a number"},
    {"prefetch.timeout_base_s", "inf", "is infinite"},
    {"prefetch.timeout_base_s", "-Infinity", "is infinite"},
    {"prefetch.timeout_base_s", "1e999", "is too large"},
    {"prefetch.timeout_base_s", "1e10", "is too large"},
    {"prefetch.timeout_base_s", "2s", "has a unit, but the unit is in the name: seconds"},
    {"prefetch.timeout_base_s", "200ms", "has a unit, but the unit is in the name: seconds"},
    {"prefetch.timeout_base_s", "0x2", "has a unit, but the unit is in the name: seconds"},
    {"prefetch.timeout_base_s", "2,5", "is not a number"},
    {"prefetch.timeout_base_s", ".", "is not a number"},
    {"prefetch.timeout_base_s", "1e", "has a unit, but the unit is in the name: seconds"},
    {"prefetch.timeout_base_s", "soon", "is not a number"},
    {"prefetch.result_ttl_s", "0", "is not above 0"},
    {"prefetch.result_ttl_s", "1e-12", "is not above 0"},

    {"prefetch.recompute_tokens_per_s", "0", "is not above 0"},
    {"prefetch.recompute_tokens_per_s", "-1", "is negative"},
    {"prefetch.recompute_tokens_per_s", "1e13", "is too large"},
    {"prefetch.recompute_tokens_per_s", "fast", "is not a number"},
    {"pool.evict_start", "1.01", "is too large"},
    {"pool.evict_start", "90%", "is not a number"},

    {"prefetch.policy", "", "is empty"},
    {"prefetch.policy", "Timeout", "is not known"},
    {"prefetch.policy", "time_out", "is not known"},
    {"pool.eviction", "arc", "is not known"},
    {"log.level", "verbose", "is not known"},

    {"model.kv_dtype", "", "is empty"},
    {"model.kv_dtype", "a-name-of-32-bytes-that-is-too-lo", "is too long"},
    {"model.kv_dtype", "fp\n16", "has a control character"},
    {"secret", "12345678901234567890123456789012345678901234567890123456789012345", "is too long"},

    {"model.groups", "", "is empty"},
    {"model.groups", "kv", "is not name:payload:rule"},
    {"model.groups", "kv:4096", "is not name:payload:rule"},
    {"model.groups", "kv:0:all", "has a size that is too small"},
    {"model.groups", "kv:2GiB:all", "has a size that is too large"},
    {"model.groups", "kv:-1:all", "has a size that is negative"},
    {"model.groups", ":1:all", "has a group name that is not 1 to 31 characters long"},
    {"model.groups", "k v:1:all", "has a group name with a character that is no letter, digit, '_', '-' or '.'"},
    {"model.groups", "kv:1:some", "has a rule that is neither all nor trailing(n)"},
    {"model.groups", "kv:1:trailing", "has a rule that is neither all nor trailing(n)"},
    {"model.groups", "kv:1:trailing(", "has a rule that is neither all nor trailing(n)"},
    {"model.groups", "kv:1:trailing()", "has a rule trailing(n) whose n is not a whole number from 1 to 1048576"},
    {"model.groups", "kv:1:trailing(0)", "has a rule trailing(n) whose n is not a whole number from 1 to 1048576"},
    {"model.groups", "kv:1:trailing(-1)", "has a rule trailing(n) whose n is not a whole number from 1 to 1048576"},
    {"model.groups", "kv:1:trailing(99999999999999)", "has a rule that is neither all nor trailing(n)"},
    {"model.groups", "kv:1:all,kv:2:all", "names a group twice"},
    {"model.groups", "kv:1:all,", "is not name:payload:rule"},
    {"model.groups", "a:1:all,b:1:all,c:1:all,d:1:all,e:1:all,f:1:all,g:1:all,h:1:all,i:1:all",
     "has more than 8 groups"},
    {"pool.group_bytes", "kv", "is not name=size"},
    {"pool.group_bytes", "kv=1XB", "has a size that has an unknown unit"},
};

static void every_wrong_value_says_what_is_wrong(void **state)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(bad_rows); i++) {
        const bad_row_t *row = &bad_rows[i];
        fby_value_t value;
        char why[FBY_WHY_BYTES] = "";
        bool good = fby_value_read(&fby_keys[fby_key_find(row->key)], row->text, &value, why);
        if (good || strcmp(why, row->why) != 0) {
            fail_msg("%s = \"%s\": %s, expected: %s", row->key, row->text, good ? "accepted" : why, row->why);
        }
    }
}

typedef struct good_row {
    const char *key, *text, *canonical;
    uint64_t number;
} good_row_t;

static const good_row_t good_rows[] = {
    {"prefetch.enabled", "true", "true", 1},
    {"prefetch.enabled", "false", "false", 0},
    {"prefetch.chunk_max_blocks", "65536", "65536", 65536},
    {"model.weights_epoch", "9223372036854775807", "9223372036854775807", INT64_MAX},
    {"prefetch.min_tokens", "0", "0", 0},
    {"pool.bytes", "536870912", "512MiB", UINT64_C(512) << 20},
    {"pool.bytes", "512MiB", "512MiB", UINT64_C(512) << 20},
    {"pool.bytes", "1024MiB", "1GiB", UINT64_C(1) << 30},
    {"pool.bytes", "4097B", "4097B", 4097},
    {"pool.bytes", "1024TiB", "1024TiB", UINT64_C(1) << 50},
    {"prefetch.timeout_base_s", "2.0", "2", UINT64_C(2000000000)},
    {"prefetch.timeout_base_s", "0", "0", 0},
    {"prefetch.timeout_base_s", "2.3", "2.3", UINT64_C(2300000000)},
    {"prefetch.timeout_base_s", ".25", "0.25", UINT64_C(250000000)},
    {"prefetch.timeout_base_s", "1e-3", "0.001", UINT64_C(1000000)},
    {"prefetch.timeout_base_s", "1e9", "1000000000", UINT64_C(1000000000000000000)},
    {"prefetch.timeout_budget_s", "unset", "unset", 0},
    {"prefetch.policy", "break_even", "break_even", FBY_POLICY_BREAK_EVEN},
    {"log.level", "off", "off", UINT64_MAX},
    {"model.id", "org/model 7B", "org/model 7B", 0},
    {"model.groups", "kv:65536:all,state:1000:trailing(4)", "kv:64KiB:all,state:1000B:trailing(4)", 0},
    {"pool.group_bytes", "kv=1024MiB,state=5", "kv=1GiB,state=5B", 0},
};

static void right_values_have_one_canonical_text(void **state)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(good_rows); i++) {
        const good_row_t *row = &good_rows[i];
        const fby_key_t *key = &fby_keys[fby_key_find(row->key)];
        fby_value_t value, again;
        char why[FBY_WHY_BYTES] = "", canonical[FBY_VALUE_TEXT_BYTES], twice[FBY_VALUE_TEXT_BYTES];
        if (!fby_value_read(key, row->text, &value, why)) {
            fail_msg("%s = \"%s\" is refused: %s", row->key, row->text, why);
        }
        fby_value_format(key, &value, row->text, canonical);
        assert_string_equal(canonical, row->canonical);
        assert_int_equal(value.number, row->number);
        assert_true(fby_value_read(key, canonical, &again, why));
        fby_value_format(key, &again, canonical, twice);
        assert_string_equal(twice, canonical);
    }
}

static void every_default_is_right_and_canonical(void **state)
{
    for (size_t id = 0; id < FBY_KEY_COUNT; id++) {
        const fby_key_t *key = &fby_keys[id];
        fby_value_t value;
        char why[FBY_WHY_BYTES] = "", canonical[FBY_VALUE_TEXT_BYTES];
        if (*key->default_text == '\0' || strcmp(key->default_text, "derived") == 0) {
            continue;
        }
        if (!fby_value_read(key, key->default_text, &value, why)) {
            fail_msg("%s: default %s", key->name, why);
        }
        fby_value_format(key, &value, key->default_text, canonical);
        assert_string_equal(canonical, key->default_text);
    }
}

static void numbers_do_not_depend_on_the_locale(void **state)
{
    fby_value_t value;
    char why[FBY_WHY_BYTES];
    const char *had = setlocale(LC_ALL, "de_DE.UTF-8");
    assert_true(fby_value_read(&fby_keys[FBY_KEY_POOL_EVICT_RATIO], "0.25", &value, why));
    assert_true(value.real == 0.25);
    assert_false(fby_value_read(&fby_keys[FBY_KEY_POOL_EVICT_RATIO], "0,25", &value, why));
    setlocale(LC_ALL, "C");
    if (had == NULL) {
        print_message("no de_DE.UTF-8 here: checked in the C locale only\n");
    }
}

static void what_is_accepted_is_said_in_words(void **state)
{
    static const struct {
        fby_key_id_t id;
        const char *accepts;
    } rows[] = {
        {FBY_KEY_PREFETCH_ENABLED, "true or false"},
        {FBY_KEY_PREFETCH_CHUNK_MAX_BLOCKS, "a whole number from 1 to 65536"},
        {FBY_KEY_POOL_BYTES, "a size from 4KiB to 1024TiB in B, KiB, MiB, GiB or TiB, such as 512MiB"},
        {FBY_KEY_PREFETCH_POLICY, "one of wait_complete, timeout, best_effort, break_even"},
        {FBY_KEY_PREFETCH_TIMEOUT_BUDGET_S, "seconds from 0 to 1e9, such as 2.5, or unset"},
        {FBY_KEY_MODEL_KV_DTYPE, "text of 1 to 31 bytes without control characters"},
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        char accepts[320];
        fby_value_accepts(&fby_keys[rows[i].id], accepts, sizeof(accepts));
        assert_string_equal(accepts, rows[i].accepts);
    }
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(every_wrong_value_says_what_is_wrong), cmocka_unit_test(right_values_have_one_canonical_text),
        cmocka_unit_test(every_default_is_right_and_canonical), cmocka_unit_test(numbers_do_not_depend_on_the_locale),
        cmocka_unit_test(what_is_accepted_is_said_in_words),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
