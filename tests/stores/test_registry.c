#include "fixture.h"

#include "stores/stores.h"

static char error[512];

/* The plug-ins lie where the build put them: kind 0 is right, the others are wrong in one way each. */
static const fby_store_driver_t *plugin(int kind)
{
    char path[512];
    const char *folder = getenv("FOREBAY_PLUGINS");
    assert_non_null(folder);
    snprintf(path, sizeof(path), "%s/store_plugin_%d.so", folder, kind);
    error[0] = '\0';
    return fby_store_find(path, error, sizeof(error));
}

static void built_in_drivers_are_found_by_name(void **state)
{
    assert_ptr_equal(fby_store_find("mem", error, sizeof(error)), &fby_store_mem);
    assert_ptr_equal(fby_store_find("file", error, sizeof(error)), &fby_store_file);
    assert_ptr_equal(fby_store_find("redis", error, sizeof(error)), &fby_store_redis);
    assert_ptr_equal(fby_store_find("mooncake", error, sizeof(error)), &fby_store_mooncake);
    assert_ptr_equal(fby_store_find("fault", error, sizeof(error)), &fby_store_fault);
    assert_string_equal(fby_store_find("fault:file", error, sizeof(error))->name, "fault:file");
}

static void an_unknown_name_is_named_with_those_there_are(void **state)
{
    assert_null(fby_store_find("reddis", error, sizeof(error)));
    assert_non_null(
        strstr(error, "no store driver 'reddis'; accepted: mem, file, redis, mooncake, fault:mem, fault:file"));
    assert_null(fby_store_find("fault:", error, sizeof(error)));
    assert_null(fby_store_find("", error, sizeof(error)));
    assert_null(fby_store_find("fault:/x/y.so", error, sizeof(error)));
    assert_non_null(strstr(error, "option inner=/x/y.so"));
    assert_null(fby_store_find("fault:mooncake", error, sizeof(error)));
    assert_non_null(strstr(error, "runs in a process of its own"));
}

static void a_plug_in_is_loaded_and_works_wrapped_too(void **state)
{
    fby_store_spec_t spec = fixture_spec(4096);
    char option[600];
    const fby_store_driver_t *driver = plugin(0);
    if (driver == NULL) {
        fail_msg("%s", error);
    }
    assert_non_null(driver);
    assert_string_equal(driver->name, "plugin");
    snprintf(option, sizeof(option), "inner=%s/store_plugin_0.so", getenv("FOREBAY_PLUGINS"));
    fby_store_t *store = fixture_open(&fby_store_fault, &spec, option, NULL);
    fby_store_caps_t caps;
    fby_store_fault.capabilities(store, &caps);
    assert_int_equal(caps.max_batch, 123);
    assert_int_equal(fixture_get(&fby_store_fault, store, &spec, 1), FBY_E_MISSING);
    fby_store_fault.close(store);
}

static void a_wrong_plug_in_is_refused_by_what_is_wrong(void **state)
{
    assert_null(plugin(1));
    assert_non_null(strstr(error, "lacks put"));
    assert_null(plugin(2));
    assert_non_null(strstr(error, "has ABI 2"));
    assert_non_null(strstr(error, "accepted: ABI 1"));
    assert_null(plugin(3));
    assert_non_null(strstr(error, "table of"));
    assert_null(plugin(4));
    assert_non_null(strstr(error, "does not export fby_store_driver_1"));
    assert_null(plugin(5));
    assert_non_null(strstr(error, "lacks one of submit, reap, cancel, wake"));
    assert_null(plugin(99));
    assert_non_null(strstr(error, "cannot be loaded"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_drivers_are_found_by_name),
        cmocka_unit_test(an_unknown_name_is_named_with_those_there_are),
        cmocka_unit_test(a_plug_in_is_loaded_and_works_wrapped_too),
        cmocka_unit_test(a_wrong_plug_in_is_refused_by_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
