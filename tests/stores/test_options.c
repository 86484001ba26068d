#include "fixture.h"

#include "stores/options.h"

static char error[256];

static fby_options_t given(const char *const *list)
{
    error[0] = '\0';
    return (fby_options_t){list, "test", error, sizeof(error)};
}

static void the_last_occurrence_wins(void **state)
{
    fby_options_t options = given((const char *[]){"a=1", "ab=2", "a=3", NULL});
    assert_string_equal(fby_option_get(&options, "a"), "3");
    assert_null(fby_option_get(&options, "b"));
}

static void an_absent_option_leaves_the_default(void **state)
{
    fby_options_t options = given(NULL);
    uint32_t number = 5;
    uint64_t size = 6;
    assert_int_equal(fby_option_u32(&options, "n", 0, 10, &number), 0);
    assert_int_equal(fby_option_size(&options, "s", 0, &size), 0);
    assert_int_equal(number, 5);
    assert_int_equal(size, 6);
}

static void sizes_take_units_and_nothing_else(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},           {"4096", 4096}, {"1B", 1}, {"64KiB", 65536}, {"2GiB", UINT64_C(2) << 30},
                {"3GB", 3000000000}};
    static const char *const bad[] = {
        "", "KiB", "-1", "1.5GiB", "1 KiB", "1kib", "0x10", "99999999999999999999", "99999999999TiB"};
    uint64_t bytes;
    for (size_t i = 0; i < FBY_ARRAY_LEN(good); i++) {
        assert_true(fby_text_size(good[i].text, strlen(good[i].text), &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < FBY_ARRAY_LEN(bad); i++) {
        assert_false(fby_text_size(bad[i], strlen(bad[i]), &bytes));
    }
}

static void times_are_decimal_milliseconds(void **state)
{
    static const char *const bad[] = {"", ".", "1.", ".5", "-1", "1e3", "0.1234567", "1000000001", "nan", "inf"};
    uint64_t ns;
    assert_true(fby_text_ms("0.25", 4, &ns));
    assert_int_equal(ns, 250000);
    assert_true(fby_text_ms("20", 2, &ns));
    assert_int_equal(ns, 20000000);
    for (size_t i = 0; i < FBY_ARRAY_LEN(bad); i++) {
        assert_false(fby_text_ms(bad[i], strlen(bad[i]), &ns));
    }
}

static void a_wrong_value_is_named_with_what_is_accepted(void **state)
{
    static const char *const words[] = {"none", "data", NULL};
    fby_options_t options = given((const char *[]){"depth=0", "sync=full", "on=maybe", "size=-3", NULL});
    uint32_t number = 1;
    uint64_t size = 1;
    bool flag;
    assert_int_equal(fby_option_u32(&options, "depth", 1, 64, &number), FBY_E_CONFIG);
    assert_string_equal(error, "store driver test: option depth is '0'; accepted: a whole number from 1 to 64");
    assert_int_equal(fby_option_word(&options, "sync", words, &number), FBY_E_CONFIG);
    assert_string_equal(error, "store driver test: option sync is 'full'; accepted: none, data");
    assert_int_equal(fby_option_bool(&options, "on", &flag), FBY_E_CONFIG);
    assert_non_null(strstr(error, "'maybe'"));
    assert_int_equal(fby_option_size(&options, "size", 0, &size), FBY_E_CONFIG);
    assert_non_null(strstr(error, "'-3'"));
    assert_int_equal(number, 1);
}

static void an_unknown_option_is_named_with_those_that_are_known(void **state)
{
    static const char *const names[] = {"dir", "sync", NULL};
    fby_options_t options = given((const char *[]){"dir=/x", "synk=data", NULL});
    assert_false(fby_options_known(&options, names));
    assert_string_equal(
        error, "store driver test: 'synk=data' is not an option of it (as name=value); accepted names: dir, sync");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_occurrence_wins),
        cmocka_unit_test(an_absent_option_leaves_the_default),
        cmocka_unit_test(sizes_take_units_and_nothing_else),
        cmocka_unit_test(times_are_decimal_milliseconds),
        cmocka_unit_test(a_wrong_value_is_named_with_what_is_accepted),
        cmocka_unit_test(an_unknown_option_is_named_with_those_that_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
