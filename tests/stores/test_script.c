#include "fixture.h"

#include "stores/script.h"

static fby_script_t parsed(const char *text)
{
    fby_script_t script;
    char error[256] = "";
    int status = fby_script_parse(text, &script, error, sizeof(error));
    if (status != 0) {
        fail_msg("%s", error);
    }
    return script;
}

static void refused(const char *text, const char *message)
{
    fby_script_t script = {.count = 77};
    char error[256] = "";
    assert_int_equal(fby_script_parse(text, &script, error, sizeof(error)), FBY_E_CONFIG);
    assert_int_equal(script.count, 77);
    if (strstr(error, message) == NULL) {
        fail_msg("'%s' gave: %s", text, error);
    }
}

static void rules_of_every_kind_are_read(void **state)
{
    fby_script_t script = parsed(" get : abc* : nth=3 : err(CONNECTION) ;\n put|remove:*:delay(10)+hang; *:*:p=0.5:ok;"
                                 "bandwidth(200MB); latency(2.5); seed(9);;");
    assert_int_equal(script.count, 3);
    assert_int_equal(script.bandwidth, 200000000);
    assert_int_equal(script.latency_ns, 2500000);
    assert_int_equal(script.random, 9);
    assert_false(fby_script_idle(&script));
    fby_script_free(&script);
}

static void every_effect_and_shorthand_is_accepted(void **state)
{
    fby_script_t script =
        parsed("get:*:ok;get:*:miss;get:*:err(FULL);get:*:refuse(EAGAIN);get:*:short(64);get:*:zero;"
               "get:*:not_ready;get:*:processing;get:*:corrupt(9);get:*:delay(1);get:*:hang;get:*:lost;"
               "get:*:drop_reply;exists:*:lease(50);exists:*:lease_silent(20);get:*:reorder;"
               "get:*:duplicate_reply;get:*:fail_tail;get:*:fail_tail(TIMEOUT);get:*:fail_all_but_first;"
               "get:*:random(0.25);get:*:random(0.25,EIO);put:*:full");
    assert_int_equal(script.count, 23);
    assert_int_equal(fby_script_lease_ns(&script), 20000000);
    fby_script_free(&script);
}

static void nothing_is_an_idle_script(void **state)
{
    fby_script_t script = parsed(" ; ");
    assert_true(fby_script_idle(&script));
    fby_script_free(&script);
    script = parsed(NULL);
    assert_true(fby_script_idle(&script));
    fby_script_free(&script);
}

static void what_is_wrong_is_named_with_what_is_accepted(void **state)
{
    refused("get:*:explode", "unknown effect 'explode'; accepted: ok, miss, err");
    refused("fetch:*:ok", "unknown operation 'fetch'; accepted: *, exists, get, put, remove");
    refused("get:*:err(NOPE)", "wrong code 'NOPE'; accepted: MISSING");
    refused("get:*:err", "wrong code");
    refused("get:*:delay(soon)", "wrong time 'soon'");
    refused("get:*:delay(-1)", "wrong time");
    refused("get:*:ok(1)", "unexpected argument '1'");
    refused("get:*:short(x)", "wrong size");
    refused("get:*:hang(", "unbalanced parentheses");
    refused("get:*:nth=0:ok", "wrong range '0'");
    refused("get:*:nth=5-3:ok", "wrong range '5-3'");
    refused("get:*:often=2:ok", "unknown condition 'often'; accepted: nth=");
    refused("get:*:p=1.5:ok", "wrong chance '1.5'");
    refused("get:*:at=end:ok", "wrong place 'end'; accepted: first, rest, tail");
    refused("get:*:miss+zero", "a second outcome 'zero'");
    refused("get:*", "no effect");
    refused("get::ok", "wrong key pattern");
    refused("get:*:", "unknown effect ''");
    refused("get:*:random", "wrong chance");
    refused("bandwidth(fast)", "wrong bandwidth 'fast'");
    refused("speed(3)", "unknown setting 'speed'");
    refused("get:*:ok; put:*:bad", "script item 'put:*:bad'");
}

/* Decides calls for key k; nth and call as given. */
static uint32_t decided(fby_script_t *script, fby_verb_t verb, const char *key, uint64_t nth, uint64_t call)
{
    fby_script_moment_t moment = {.verb = verb, .key = key, .nth = nth, .call = call, .position = 0, .batch = 1};
    return fby_script_decide(script, &moment).flags;
}

static void the_first_rule_that_holds_decides(void **state)
{
    fby_script_t script = parsed("get:a*b?:miss;get:*:nth=2-3:zero;get:*:call=9-:not_ready;put:*:ok");
    assert_int_equal(decided(&script, FBY_VERB_GET, "axxbx", 2, 1), FBY_EFFECT_MISS);
    assert_int_equal(decided(&script, FBY_VERB_GET, "abb", 2, 1), FBY_EFFECT_MISS);
    assert_int_equal(decided(&script, FBY_VERB_GET, "ab", 2, 1), FBY_EFFECT_ZERO);
    assert_int_equal(decided(&script, FBY_VERB_GET, "k", 1, 1), 0);
    assert_int_equal(decided(&script, FBY_VERB_GET, "k", 3, 1), FBY_EFFECT_ZERO);
    assert_int_equal(decided(&script, FBY_VERB_GET, "k", 4, 1), 0);
    assert_int_equal(decided(&script, FBY_VERB_GET, "k", 4, 100), FBY_EFFECT_NOT_READY);
    assert_int_equal(decided(&script, FBY_VERB_PUT, "abb", 1, 1), FBY_EFFECT_OK);
    assert_int_equal(decided(&script, FBY_VERB_EXISTS, "abb", 1, 1), 0);
    fby_script_free(&script);
}

static void a_rule_fires_only_so_many_times(void **state)
{
    fby_script_t script = parsed("get:*:times=2:miss");
    assert_int_equal(decided(&script, FBY_VERB_GET, "a", 1, 1), FBY_EFFECT_MISS);
    assert_int_equal(decided(&script, FBY_VERB_GET, "b", 1, 2), FBY_EFFECT_MISS);
    assert_int_equal(decided(&script, FBY_VERB_GET, "c", 1, 3), 0);
    fby_script_free(&script);
}

static void places_of_a_batch_are_told_apart(void **state)
{
    fby_script_t tail = parsed("get:*:fail_tail"), rest = parsed("get:*:fail_all_but_first(FULL)");
    for (uint32_t batch = 1; batch <= 5; batch++) {
        for (uint32_t at = 0; at < batch; at++) {
            fby_script_moment_t moment = {
                .verb = FBY_VERB_GET, .key = "k", .nth = 1, .call = 1, .position = at, .batch = batch};
            assert_int_equal(fby_script_decide(&tail, &moment).flags != 0, at >= batch / 2);
            fby_effect_t effect = fby_script_decide(&rest, &moment);
            assert_int_equal(effect.flags != 0, at > 0);
            assert_int_equal(effect.code, at > 0 ? FBY_E_FULL : 0);
        }
    }
    fby_script_free(&tail);
    fby_script_free(&rest);
}

static void chance_is_a_function_of_the_seed(void **state)
{
    fby_script_t a = parsed("seed(5);get:*:random(0.3)"), b = parsed("seed(5);get:*:random(0.3)"),
                 c = parsed("seed(6);get:*:random(0.3)");
    uint32_t fired = 0, differ = 0;
    for (int i = 0; i < 10000; i++) {
        uint32_t flags = decided(&a, FBY_VERB_GET, "k", 1, 1);
        assert_int_equal(flags, decided(&b, FBY_VERB_GET, "k", 1, 1));
        differ += flags != decided(&c, FBY_VERB_GET, "k", 1, 1);
        fired += flags != 0;
    }
    assert_in_range(fired, 2800, 3200);
    assert_true(differ > 0);
    fby_script_free(&a);
    fby_script_free(&b);
    fby_script_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_of_every_kind_are_read),
        cmocka_unit_test(every_effect_and_shorthand_is_accepted),
        cmocka_unit_test(nothing_is_an_idle_script),
        cmocka_unit_test(what_is_wrong_is_named_with_what_is_accepted),
        cmocka_unit_test(the_first_rule_that_holds_decides),
        cmocka_unit_test(a_rule_fires_only_so_many_times),
        cmocka_unit_test(places_of_a_batch_are_told_apart),
        cmocka_unit_test(chance_is_a_function_of_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
