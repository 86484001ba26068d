#include "unit.h"

#include <errno.h>
#include <limits.h>

#include "base/base.h"
#include "base/log.h"
#include "forebay/forebay.h"

static void every_own_code_has_its_name_and_text(void **state)
{
#define FBY_X(name, number, text)                                                                                      \
    assert_int_equal(FBY_E_##name, -(number));                                                                         \
    assert_string_equal(fby_errname(FBY_E_##name), #name);                                                             \
    assert_string_equal(fby_strerror(FBY_E_##name), text);
    FBY_ERROR_MAP(FBY_X)
#undef FBY_X
}

static void own_codes_are_all_different(void **state)
{
    static const int codes[] = {
#define FBY_X(name, number, text) number,
        FBY_ERROR_MAP(FBY_X)
#undef FBY_X
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(codes); i++) {
        for (size_t k = i + 1; k < FBY_ARRAY_LEN(codes); k++) {
            assert_int_not_equal(codes[i], codes[k]);
        }
    }
}

static void system_codes_are_known_too(void **state)
{
    assert_string_equal(fby_errname(-EINVAL), "EINVAL");
    assert_string_equal(fby_strerror(-EINVAL), "Invalid argument");
    assert_string_equal(fby_errname(-ENOSPC), "ENOSPC");
}

static void success_and_nonsense_have_texts(void **state)
{
    assert_string_equal(fby_strerror(0), "success");
    assert_string_equal(fby_errname(0), "OK");
    assert_string_equal(fby_strerror(5), "success");
    assert_string_equal(fby_strerror(-4000), "unknown error");
    assert_string_equal(fby_errname(-4000), "UNKNOWN");
    assert_string_equal(fby_errname(INT_MIN), "UNKNOWN");
    assert_string_equal(fby_strerror(INT_MIN), "unknown error");
}

static void every_enum_value_has_its_name(void **state)
{
#define FBY_X(name, text) assert_string_equal(fby_state_name(FBY_##name), text);
    FBY_STATE_MAP(FBY_X)
#undef FBY_X
#define FBY_X(name, text) assert_string_equal(fby_outcome_name(FBY_OUTCOME_##name), text);
    FBY_OUTCOME_MAP(FBY_X)
#undef FBY_X
#define FBY_X(name, text) assert_string_equal(fby_reason_name(FBY_REASON_##name), text);
    FBY_REASON_MAP(FBY_X)
#undef FBY_X
#define FBY_X(name, text) assert_string_equal(fby_policy_name(FBY_POLICY_##name), text);
    FBY_POLICY_MAP(FBY_X)
#undef FBY_X
#define FBY_X(name, text) assert_string_equal(fby_stop_mode_name(FBY_STOP_##name), text);
    FBY_STOP_MODE_MAP(FBY_X)
#undef FBY_X
}

static void a_value_out_of_range_is_unknown(void **state)
{
    assert_string_equal(fby_state_name(FBY_STATE_COUNT), "unknown");
    assert_string_equal(fby_reason_name((fby_reason_t)-1), "unknown");
}

static void the_version_is_the_three_numbers(void **state)
{
    char expected[32];
    snprintf(expected, sizeof(expected), "%d.%d.%d", FBY_VERSION_MAJOR, FBY_VERSION_MINOR, FBY_VERSION_PATCH);
    assert_string_equal(fby_version(), expected);
}

static void the_last_error_is_the_detail_that_was_set(void **state)
{
    fby_error_set("pool.bytes is %d; at least %d is accepted", 1, 4096);
    assert_string_equal(fby_last_error(), "pool.bytes is 1; at least 4096 is accepted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_own_code_has_its_name_and_text),
        cmocka_unit_test(own_codes_are_all_different),
        cmocka_unit_test(system_codes_are_known_too),
        cmocka_unit_test(success_and_nonsense_have_texts),
        cmocka_unit_test(every_enum_value_has_its_name),
        cmocka_unit_test(a_value_out_of_range_is_unknown),
        cmocka_unit_test(the_version_is_the_three_numbers),
        cmocka_unit_test(the_last_error_is_the_detail_that_was_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
