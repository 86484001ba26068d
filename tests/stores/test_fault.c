#include "fixture.h"

#include "stores/mem.h"
#include "stores/stores.h"

#define BYTES (4096 + 64)

static fby_store_spec_t spec;
static fby_store_t *beneath;            /* the mem store that is wrapped, by its name */
static const fby_store_driver_t *fault; /* through which stories call it that need nothing beneath */

static int setup(void **state)
{
    spec = fixture_spec(4096);
    fault = fixture_host(&fby_store_fault);
    beneath = fixture_open(&fby_store_mem, &spec, "name=beneath", NULL);
    fixture_put(&fby_store_mem, beneath, &spec, 1);
    return 0;
}

static int teardown(void **state)
{
    fixture_host(&fby_store_mem)->close(beneath);
    return 0;
}

static void without_a_script_calls_go_straight_through(void **state)
{
    fixture_needs_process();
    fby_store_t *store = fixture_open(&fby_store_fault, &spec, "inner=mem", "name=beneath", NULL);
    assert_true(store->direct);
    assert_int_equal(fixture_get(&fby_store_fault, store, &spec, 1), BYTES);
    assert_int_equal(fixture_put(&fby_store_fault, store, &spec, 2), BYTES);
    assert_int_equal(fby_mem_calls(beneath, FBY_VERB_GET, NULL), 1);
    assert_int_equal(fby_mem_calls(store, FBY_VERB_GET, NULL), 0); /* not even counted */
    fby_store_fault.close(store);
}

static void with_a_script_only_what_it_names_is_touched(void **state)
{
    fixture_needs_process();
    fby_store_t *store =
        fixture_open(&fby_store_fault, &spec, "inner=mem", "name=beneath", "script=get:*:nth=2:err(CONNECTION)", NULL);
    assert_int_equal(fixture_get(&fby_store_fault, store, &spec, 1), BYTES);
    assert_int_equal(fixture_get(&fby_store_fault, store, &spec, 1), FBY_E_CONNECTION);
    assert_int_equal(fixture_exists(&fby_store_fault, store, 1), 1);
    assert_int_equal(fby_mem_calls(store, FBY_VERB_GET, NULL), 2);
    assert_int_equal(fby_mem_calls(beneath, FBY_VERB_GET, NULL), 1); /* the failed one never reached it */
    fby_store_fault.close(store);
}

static void a_script_works_wherever_the_driver_runs(void **state)
{
    fby_store_t *store =
        fixture_open(&fby_store_fault, &spec, "inner=mem",
                     "script=get:*:nth=2:err(CONNECTION); get:*:nth=3:short(10); exists:*:nth=2:miss", NULL);
    assert_int_equal(fixture_put(&fby_store_fault, store, &spec, 5), BYTES);
    assert_int_equal(fixture_get(&fby_store_fault, store, &spec, 5), BYTES);
    assert_int_equal(fixture_get(&fby_store_fault, store, &spec, 5), FBY_E_CONNECTION);
    assert_int_equal(fixture_get(&fby_store_fault, store, &spec, 5), 10);
    assert_int_equal(fixture_exists(&fby_store_fault, store, 5), 1);
    assert_int_equal(fixture_exists(&fby_store_fault, store, 5), 0);
    fault->close(store);
}

static void options_for_the_inner_driver_pass_on_and_its_errors_come_back(void **state)
{
    fixture_refused(&fby_store_fault, &spec, FBY_E_CONFIG, "store driver mem: 'bogus=1'", "inner=mem", "bogus=1", NULL);
    fixture_refused(&fby_store_fault, &spec, FBY_E_CONFIG, "no store driver 'nope'; accepted: mem, file", "inner=nope",
                    NULL);
    fixture_refused(&fby_store_fault, &spec, FBY_E_CONFIG, "option inner is missing", NULL);
    fixture_refused(&fby_store_fault, &spec, FBY_E_CONFIG, "unknown effect 'x'", "inner=mem", "script=get:*:x", NULL);
    fixture_refused(&fby_store_fault, &spec, FBY_E_CONFIG, "option latency_ms is '-1'", "inner=mem", "latency_ms=-1",
                    NULL);
}

static void a_wrapped_driver_is_found_by_name(void **state)
{
    fixture_needs_process();
    char error[256];
    const fby_store_driver_t *driver = fby_store_find("fault:mem", error, sizeof(error));
    assert_non_null(driver);
    assert_string_equal(driver->name, "fault:mem");
    fby_store_t *store = fixture_open(driver, &spec, "name=beneath", NULL);
    assert_int_equal(fixture_exists(driver, store, 1), 1);
    driver->close(store);
}

static void capabilities_are_the_inner_drivers_and_the_scripts_lease(void **state)
{
    fixture_needs_process();
    fby_store_caps_t caps;
    fby_store_t *store =
        fixture_open(&fby_store_fault, &spec, "inner=mem", "async=0", "max_batch=9", "script=exists:*:lease(3)", NULL);
    fby_store_fault.capabilities(store, &caps);
    assert_false(caps.async || caps.cancellable);
    assert_int_equal(caps.max_batch, 9);
    assert_int_equal(caps.probe_lease_ns, 3000000);
    assert_int_equal(fby_store_fault.submit(store, 0, NULL, 0, 1), -ENOSYS);
    fby_store_fault.close(store);
}

static int count_visit(void *arg, const char *key, uint32_t bytes, const void *trailer)
{
    ++*(int *)arg;
    return 0;
}

static void tools_pass_through(void **state)
{
    fixture_needs_process();
    char text[128];
    int seen = 0;
    uint64_t freed;
    fby_store_t *store = fixture_open(&fby_store_fault, &spec, "inner=mem", "name=beneath", "script=*:*:miss", NULL);
    assert_int_equal(fby_store_fault.visit(store, count_visit, &seen), 0);
    assert_int_equal(seen, 1);
    assert_int_equal(fby_store_fault.health(store, text, sizeof(text)), 0);
    assert_string_equal(text, "ok: 1 objects, 4160 bytes");
    assert_int_equal(fby_store_fault.gc(store, &freed, text, sizeof(text)), -ENOSYS);
    assert_int_equal(fby_store_fault.raise_epoch(store, 9), 0);
    assert_int_equal(fby_store_fault.register_region(store, text, sizeof(text)), 0);
    assert_int_equal(fby_store_fault.unregister_region(store, text), 0);
    fby_store_fault.close(store);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(without_a_script_calls_go_straight_through),
        STORY(with_a_script_only_what_it_names_is_touched),
        STORY(a_script_works_wherever_the_driver_runs),
        STORY(options_for_the_inner_driver_pass_on_and_its_errors_come_back),
        STORY(a_wrapped_driver_is_found_by_name),
        STORY(capabilities_are_the_inner_drivers_and_the_scripts_lease),
        STORY(tools_pass_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
