/* The value of metrics.listen. */
#include "unit.h"

#include "runtime/config.h"
#include "runtime/listen.h"

static void addresses_are_read_and_shown_alike(void **state)
{
    static const char *const cases[][2] = {
        {"127.0.0.1:9400", "127.0.0.1:9400"},   {"0.0.0.0:0", "0.0.0.0:0"},
        {"localhost:65535", "127.0.0.1:65535"}, {":9400", "127.0.0.1:9400"},
        {"[::1]:9400", "[::1]:9400"},           {"[2001:db8:1:2:3:4:5:6]:80", "[2001:db8:1:2:3:4:5:6]:80"},
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(cases); i++) {
        fby_listen_t listen;
        char text[64];
        assert_true(fby_listen_parse(cases[i][0], &listen));
        assert_true(listen.on);
        assert_string_equal(fby_listen_text(&listen.address, text, sizeof(text)), cases[i][1]);
    }
}

static void off_is_off(void **state)
{
    fby_listen_t listen;
    assert_true(fby_listen_parse("off", &listen));
    assert_false(listen.on);
}

static void what_is_no_address_is_refused(void **state)
{
    static const char *const cases[] = {
        "",
        "9400",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0:1",
        "example.com:1",
        "::1:9400",
        "[::1:9400",
        "[]:9400",
        "[127.0.0.1]:1",
        "on",
        "OFF",
        "127.0.0.1:1 ",
        "unix:/run/page",
        "[:9400",
        "256.0.0.1:1",
        "127.0.0.1:0x50",
        "[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]:1",
        "a-host-name-that-is-longer-than-any-numeric-address-could-ever-become-to-be:1",
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(cases); i++) {
        fby_listen_t listen;
        if (fby_listen_parse(cases[i], &listen)) {
            fail_msg("accepted: %s", cases[i]);
        }
    }
}

static void a_configuration_names_key_value_and_what_is_accepted(void **state)
{
    static const char *const settings[][2] = {
        {"model.id", "m"},
        {"model.revision", "1"},
        {"model.kv_dtype", "f16"},
        {"model.layer_set", "all"},
        {"model.layout", "plain"},
        {"model.weights_epoch", "1"},
        {"model.block_tokens", "16"},
        {"model.tp_size", "1"},
        {"model.cp_size", "1"},
        {"model.pp_size", "1"},
        {"model.groups", "full:4096:all"},
        {"metrics.listen", "somewhere:9400"},
    };
    fby_config_t *config;
    assert_int_equal(fby_config_create(&config), 0);
    for (size_t i = 0; i < FBY_ARRAY_LEN(settings); i++) {
        assert_int_equal(fby_config_set(config, settings[i][0], settings[i][1]), 0);
    }
    assert_int_equal(fby_config_check(config), FBY_E_CONFIG);
    assert_string_equal(fby_last_error(),
                        "metrics.listen: somewhere:9400 is no address; accepted: " FBY_LISTEN_ACCEPTED);
    assert_int_equal(fby_config_set(config, "metrics.listen", "[::]:9400"), 0);
    assert_int_equal(fby_config_check(config), 0);
    fby_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read_and_shown_alike),
        cmocka_unit_test(off_is_off),
        cmocka_unit_test(what_is_no_address_is_refused),
        cmocka_unit_test(a_configuration_names_key_value_and_what_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
