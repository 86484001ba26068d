/* "Did you mean": near words are found, far ones are not offered. */
#include "runtime/suggest.h"
#include "unit.h"

static const char *nearest(const char *word)
{
    static const char *const offered[] = {"config", "trace", "replay", "demo", "prefetch.timeout_max_s"};
    fby_suggest_t suggest;
    fby_suggest_init(&suggest, word);
    for (size_t i = 0; i < FBY_ARRAY_LEN(offered); i++) {
        fby_suggest_offer(&suggest, offered[i]);
    }
    return suggest.best;
}

static void one_slip_finds_the_word(void **state)
{
    assert_string_equal(nearest("confg"), "config");   /* a letter left out */
    assert_string_equal(nearest("connfig"), "config"); /* one too many */
    assert_string_equal(nearest("config"), "config");
    assert_string_equal(nearest("tracr"), "trace"); /* another one */
    assert_string_equal(nearest("domo"), "demo");
    assert_string_equal(nearest("edmo"), "demo"); /* two swapped */
    assert_string_equal(nearest("prefetch.timout_max"), "prefetch.timeout_max_s");
}

static void far_words_are_not_offered(void **state)
{
    assert_null(nearest("serve"));
    assert_null(nearest("domino"));
    assert_null(nearest(""));
    assert_null(nearest("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(one_slip_finds_the_word),
                                     cmocka_unit_test(far_words_are_not_offered)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
