/* A store named by one text: driver and options, short forms, the environment, and what is wrong with a text. */
#include "cli/store_text.h"
#include "unit.h"

static void expect(const char *text, const char *driver, uint32_t options, const char *const *pairs)
{
    fby_store_text_t store;
    if (fby_store_text_parse(text, &store) != 0) {
        fail_msg("%s refused: %s", text, fby_last_error());
    }
    assert_string_equal(store.driver, driver);
    assert_int_equal(store.options, options);
    for (uint32_t i = 0; i < options; i++) {
        assert_string_equal(store.option[i].name, pairs[2 * i]);
        assert_string_equal(store.option[i].value, pairs[2 * i + 1]);
    }
    fby_store_text_free(&store);
}

#define EXPECT(text, driver, ...)                                                                                      \
    do {                                                                                                               \
        const char *const pairs[] = {__VA_ARGS__, NULL};                                                               \
        expect(text, driver, (sizeof(pairs) / sizeof(*pairs) - 1) / 2, pairs);                                         \
    } while (0)

static void driver_and_options(void **state)
{
    expect("mem", "mem", 0, NULL);
    EXPECT("mem:latency_ms=2,bandwidth=1GiB", "mem", "latency_ms", "2", "bandwidth", "1GiB");
    EXPECT("fault:file:dir=/d,latency_ms=1", "fault:file", "dir", "/d", "latency_ms", "1");
    expect("fault:mem", "fault:mem", 0, NULL);
    EXPECT("/usr/lib/x.so:a=b:c", "/usr/lib/x.so", "a", "b:c");
    EXPECT("mem:name=", "mem", "name", "");
}

static void a_directory_needs_no_key(void **state)
{
    EXPECT("file:/var/cache", "file", "dir", "/var/cache");
    EXPECT("file:/var/cache,capacity=1GiB", "file", "dir", "/var/cache", "capacity", "1GiB");
    EXPECT("fault:file:/var/cache,seed=3", "fault:file", "dir", "/var/cache", "seed", "3");
    EXPECT("file:dir=/a=b", "file", "dir", "/a=b");
}

static void a_comma_in_parentheses_belongs_to_the_value(void **state)
{
    EXPECT("mem:script=get:*:short(1,2)+delay(3);put:*:miss,seed=1", "mem", "script",
           "get:*:short(1,2)+delay(3);put:*:miss", "seed", "1");
}

static void a_value_reaches_to_the_next_comma(void **state)
{
    EXPECT("mooncake:master=127.0.0.1:50051,metadata=P2PHANDSHAKE,python=/opt/venv/bin/python,env.MC_X=1", "mooncake",
           "master", "127.0.0.1:50051", "metadata", "P2PHANDSHAKE", "python", "/opt/venv/bin/python", "env.MC_X", "1");
    EXPECT("mooncake:metadata=http://[::1]:8080/metadata?a=b", "mooncake", "metadata",
           "http://[::1]:8080/metadata?a=b");
    EXPECT("redis:host=127.0.0.1,port=6379,password=p@ss:w/rd=1", "redis", "host", "127.0.0.1", "port", "6379",
           "password", "p@ss:w/rd=1");
}

static void a_backslash_makes_a_separator_ordinary(void **state)
{
    EXPECT("redis:password=a\\,b\\(c\\\\,port=1", "redis", "password", "a,b(c\\", "port", "1");
    EXPECT("mem:name=a\\b", "mem", "name", "a\\b");
    EXPECT("mem:name=a),seed=3", "mem", "name", "a)", "seed", "3");
}

static void a_colon_with_nothing_behind_it_is_no_option(void **state)
{
    expect("mem:", "mem", 0, NULL);
    expect("file:", "file", 0, NULL);
}

static void expect_host(const char *text, const char *driver, const char *host)
{
    fby_store_text_t store;
    assert_int_equal(fby_store_text_parse(text, &store), 0);
    assert_string_equal(store.driver, driver);
    if (host == NULL) {
        assert_null(store.host);
    } else {
        assert_string_equal(store.host, host);
    }
    fby_store_text_free(&store);
}

static void a_host_stands_behind_the_driver(void **state)
{
    expect_host("mem@agent", "mem", "agent");
    expect_host("mem@agent:", "mem", "agent");
    expect_host("redis@thread:host=h,password=a@agent", "redis", "thread");
    expect_host("fault:file@inline:/d@x", "fault:file", "inline");
    expect_host("redis:password=a@agent", "redis", NULL);
    expect_host("/opt/a@b/x.so:a=b", "/opt/a@b/x.so", NULL);
    expect_host("/opt/a@b/x.so@agent:a=b", "/opt/a@b/x.so", "agent");
}

static void expect_printed(const char *text, const char *printed)
{
    fby_store_text_t store;
    assert_int_equal(fby_store_text_parse(text, &store), 0);
    assert_string_equal(store.text, printed);
    fby_store_text_free(&store);
}

static void secrets_are_never_printed(void **state)
{
    expect_printed("redis:host=h,password=hush,port=1", "redis:host=h,password=(set),port=1");
    expect_printed("redis@agent:tls_key_password=a\\,b,port=1", "redis@agent:tls_key_password=(set),port=1");
    expect_printed("mooncake:env.MY_TOKEN=x,master=m:1", "mooncake:env.MY_TOKEN=(set),master=m:1");
    expect_printed("mem@agent:", "mem@agent:");
}

static void the_environment_is_read_on_demand(void **state)
{
    setenv("FOREBAY_STORE", "file:/from/env", 1);
    EXPECT("env", "file", "dir", "/from/env");
    fby_store_text_t store;
    assert_int_equal(fby_store_text_parse("env", &store), 0);
    assert_string_equal(store.text, "file:/from/env");
    fby_store_text_free(&store);
}

#define ACCEPTED                                                                                                       \
    "; accepted: mem, file:DIRECTORY, DRIVER[@HOST]:key=value,key=value, fault:DRIVER:key=value,..., or env"

static void refuse(const char *text, const char *message)
{
    fby_store_text_t store;
    assert_int_equal(fby_store_text_parse(text, &store), FBY_E_CONFIG);
    assert_string_equal(fby_last_error(), message);
    assert_null(store.text);
}

static void what_cannot_be_read_is_named(void **state)
{
    refuse("", "store \"\" names no driver" ACCEPTED);
    refuse(":a=b", "store \":a=b\" names no driver" ACCEPTED);
    refuse("fault:", "store \"fault:\" names no driver" ACCEPTED);
    refuse("mem:/d", "store \"mem:/d\": \"/d\" is not key=value" ACCEPTED);
    refuse("mem:,", "store \"mem:,\": \"\" is not key=value" ACCEPTED);
    refuse("@agent:a=b", "store \"@agent:a=b\" names no driver" ACCEPTED);
    refuse("mem@somewhere",
           "store \"mem@somewhere\": \"somewhere\" is no host: auto, inline, thread and agent are" ACCEPTED);
    refuse("file:a=b,/d", "store \"file:a=b,/d\": \"/d\" is not key=value" ACCEPTED);
    refuse("mem:=1", "store \"mem:=1\": \"=1\" is not key=value" ACCEPTED);
    refuse("redis:password=hu,sh,port=1",
           "store \"redis:password=(set),(set),port=1\": \"(set)\" is not key=value" ACCEPTED);
    unsetenv("FOREBAY_STORE");
    refuse("env", "store \"env\" reads FOREBAY_STORE, which holds no store" ACCEPTED);
    setenv("FOREBAY_STORE", "env", 1);
    refuse("env", "store \"env\" reads FOREBAY_STORE, which holds no store" ACCEPTED);
}

static void too_many_options(void **state)
{
    char text[512] = "mem:a=0";
    for (int i = 0; i < FBY_STORE_TEXT_OPTIONS - 1; i++) {
        strcat(text, ",a=1");
    }
    fby_store_text_t store;
    assert_int_equal(fby_store_text_parse(text, &store), 0);
    fby_store_text_free(&store);
    strcat(text, ",b=2");
    assert_int_equal(fby_store_text_parse(text, &store), FBY_E_CONFIG);
    assert_non_null(strstr(fby_last_error(), "\"b\" is one option too many"));
}

static void a_configuration_gets_driver_and_options(void **state)
{
    fby_store_text_t store;
    fby_config_t *config;
    const char *value;
    assert_int_equal(fby_store_text_parse("fault:file:/d,latency_ms=1", &store), 0);
    assert_int_equal(fby_config_create(&config), 0);
    assert_int_equal(fby_store_text_apply(&store, config), 0);
    assert_int_equal(fby_config_get(config, "store.driver", &value, NULL), 0);
    assert_string_equal(value, "fault:file");
    assert_int_equal(fby_config_get(config, "store.options.dir", &value, NULL), 0);
    assert_string_equal(value, "/d");
    assert_int_equal(fby_config_get(config, "store.options.latency_ms", &value, NULL), 0);
    assert_string_equal(value, "1");
    fby_config_free(config);
    fby_store_text_free(&store);
}

static void a_configuration_gets_the_host(void **state)
{
    fby_store_text_t store;
    fby_config_t *config;
    const char *value, *origin;
    assert_int_equal(fby_config_create(&config), 0);
    assert_int_equal(fby_store_text_parse("mem", &store), 0);
    assert_int_equal(fby_store_text_apply(&store, config), 0);
    fby_store_text_free(&store);
    assert_int_equal(fby_config_get(config, "store.host", &value, &origin), 0);
    assert_string_equal(origin, "default");
    assert_int_equal(fby_store_text_parse("mem@thread", &store), 0);
    assert_int_equal(fby_store_text_apply(&store, config), 0);
    fby_store_text_free(&store);
    assert_int_equal(fby_config_get(config, "store.host", &value, &origin), 0);
    assert_string_equal(value, "thread");
    fby_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(driver_and_options),
        cmocka_unit_test(a_directory_needs_no_key),
        cmocka_unit_test(a_comma_in_parentheses_belongs_to_the_value),
        cmocka_unit_test(a_value_reaches_to_the_next_comma),
        cmocka_unit_test(a_backslash_makes_a_separator_ordinary),
        cmocka_unit_test(a_colon_with_nothing_behind_it_is_no_option),
        cmocka_unit_test(a_host_stands_behind_the_driver),
        cmocka_unit_test(secrets_are_never_printed),
        cmocka_unit_test(the_environment_is_read_on_demand),
        cmocka_unit_test(what_cannot_be_read_is_named),
        cmocka_unit_test(too_many_options),
        cmocka_unit_test(a_configuration_gets_driver_and_options),
        cmocka_unit_test(a_configuration_gets_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
