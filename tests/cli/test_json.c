/* JSON that every reader takes, with the same digits everywhere. */
#include <math.h>

#include "cli/json.h"
#include "unit.h"

static char *text;
static size_t length;
static fby_json_t json;

static void begin(void)
{
    FILE *file = open_memstream(&text, &length);
    assert_non_null(file);
    fby_json_init(&json, file);
}

static void assert_written(const char *expected)
{
    fclose(json.file);
    assert_string_equal(text, expected);
    free(text);
}

static void members_keep_the_order_of_the_calls(void **state)
{
    begin();
    fby_json_object(&json, NULL);
    fby_json_u64(&json, "b", UINT64_MAX);
    fby_json_array(&json, "a");
    fby_json_bool(&json, NULL, true);
    fby_json_null(&json, NULL);
    fby_json_object(&json, NULL);
    fby_json_end(&json);
    fby_json_end(&json);
    fby_json_object(&json, "o");
    fby_json_text(&json, "k", "v");
    fby_json_end(&json);
    fby_json_end(&json);
    assert_written("{\"b\":18446744073709551615,\"a\":[true,null,{}],\"o\":{\"k\":\"v\"}}\n");
}

static void texts_are_escaped(void **state)
{
    begin();
    fby_json_array(&json, NULL);
    fby_json_text(&json, NULL, "a\"b\\c\n\x01\x7F");
    fby_json_text(&json, NULL, "gr\xC3\xBC\xC3\x9F \xF0\x9F\x8C\x8A");
    fby_json_text(&json, NULL, "bad \xFF\xC3");
    fby_json_end(&json);
    assert_written("[\"a\\\"b\\\\c\\u000a\\u0001\\u007f\",\"gr\xC3\xBC\xC3\x9F \xF0\x9F\x8C\x8A\",\"bad "
                   "\xEF\xBF\xBD\xEF\xBF\xBD\"]\n");
}

static void numbers_are_short_and_exact(void **state)
{
    static const struct {
        double number;
        const char *text;
    } rows[] = {
        {0.1, "[0.1]\n"},           {1.0, "[1]\n"},         {1.0 / 3, "[0.3333333333333333]\n"},
        {3536.999, "[3536.999]\n"}, {1e300, "[1e+300]\n"},  {-2.5, "[-2.5]\n"},
        {NAN, "[null]\n"},          {INFINITY, "[null]\n"}, {0.1 + 0.2, "[0.30000000000000004]\n"},
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        begin();
        fby_json_array(&json, NULL);
        fby_json_real(&json, NULL, rows[i].number);
        fby_json_end(&json);
        assert_written(rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(members_keep_the_order_of_the_calls),
        cmocka_unit_test(texts_are_escaped),
        cmocka_unit_test(numbers_are_short_and_exact),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
