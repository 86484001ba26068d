/* test_mooncake.c - the options of driver `mooncake`, and what it is outside of an agent. */
#include "fixture.h"

#include "stores/mooncake.h"
#include "stores/stores.h"

static const char *double_option(void)
{
    static char option[600];
    const char *folder = getenv("FOREBAY_PLUGINS");
    assert_non_null(folder);
    snprintf(option, sizeof(option), "library=%s/mooncake_conformance_double.so", folder);
    return option;
}

static fby_mooncake_settings_t read_options(const char *const *list)
{
    char error[512] = "";
    const fby_options_t options = fby_options_make(list, "mooncake", error, sizeof(error));
    fby_mooncake_settings_t settings;
    if (fby_mooncake_read_options(&options, &settings) != 0) {
        fail_msg("%s", error);
    }
    return settings;
}

static void without_options_it_is_the_wheel_on_this_machine(void **state)
{
    fby_mooncake_settings_t settings = read_options(NULL);
    assert_true(settings.wheel);
    assert_string_equal(settings.master, "127.0.0.1:50051");
    assert_string_equal(settings.metadata, "P2PHANDSHAKE");
    assert_string_equal(settings.protocol, "tcp");
    assert_string_equal(settings.devices, "");
    assert_string_equal(settings.prefix, "");
    assert_null(settings.hostname);
    assert_int_equal(settings.local_buffer, 0);
    assert_int_equal(settings.replicas, 1);
    assert_int_equal(settings.lease_ns, 5000000000);
}

static void every_option_is_read(void **state)
{
    const char *list[] = {"backend=library",
                          double_option(),
                          "master=etcd://10.0.0.1:2379",
                          "metadata=http://m/meta",
                          "protocol=rdma",
                          "devices=mlx5_0,mlx5_1",
                          "hostname=[fe80::1]:1234",
                          "replicas=3",
                          "local_buffer=64MiB",
                          "lease_ms=1500",
                          "prefix=a/b.c:d-",
                          "env.MC_X=1=2",
                          "env.GLOG_minloglevel=",
                          NULL};
    fby_mooncake_settings_t settings = read_options(list);
    assert_false(settings.wheel);
    assert_string_equal(settings.library, double_option() + strlen("library="));
    assert_string_equal(settings.master, "etcd://10.0.0.1:2379");
    assert_string_equal(settings.metadata, "http://m/meta");
    assert_string_equal(settings.protocol, "rdma");
    assert_string_equal(settings.devices, "mlx5_0,mlx5_1");
    assert_string_equal(settings.hostname, "[fe80::1]:1234");
    assert_string_equal(settings.prefix, "a/b.c:d-");
    assert_int_equal(settings.replicas, 3);
    assert_int_equal(settings.local_buffer, 64 << 20);
    assert_int_equal(settings.lease_ns, 1500000000);
}

static void refused(const char *option, const char *part)
{
    fby_store_spec_t spec = fixture_spec(4032);
    fixture_refused(&fby_store_mooncake, &spec, FBY_E_CONFIG, part, option, NULL);
}

static void a_wrong_value_is_named_with_what_is_accepted(void **state)
{
    refused("masters=x", "accepted names: backend, library, python, master");
    refused("backend=jar", "option backend is 'jar'; accepted: wheel, library");
    refused("master=localhost", "option master is 'localhost'; accepted: HOST:PORT");
    refused("master=", "option master is ''");
    refused("master=h:0", "option master is 'h:0'");
    refused("master=h:65536", "option master is 'h:65536'");
    refused("master=:50051", "option master is ':50051'");
    refused("master=http://h:1", "option master is 'http://h:1'");
    refused("master=etcd://", "option master is 'etcd://'");
    refused("metadata=p2p", "option metadata is 'p2p'; accepted: P2PHANDSHAKE");
    refused("protocol=udp", "option protocol is 'udp'; accepted: tcp, rdma");
    refused("hostname=a b", "option hostname is 'a b'; accepted: HOST or HOST:PORT");
    refused("hostname=[::1", "option hostname is '[::1'");
    refused("replicas=0", "option replicas is '0'");
    refused("replicas=17", "option replicas is '17'");
    refused("local_buffer=1.5GiB", "option local_buffer is '1.5GiB'");
    refused("lease_ms=-1", "option lease_ms is '-1'");
    refused("prefix=a b", "option prefix is 'a b'; accepted: up to 64 letters");
    refused("prefix=0123456789012345678901234567890123456789012345678901234567890123456789", "option prefix is");
    refused("env.=1", "accepted: env.NAME=VALUE");
    refused("env.1A=1", "accepted: env.NAME=VALUE");
    refused("env.A-B=1", "accepted: env.NAME=VALUE");
    refused("env.AB", "is not an option of it");
}

static void each_back_end_takes_its_own_options(void **state)
{
    fby_store_spec_t spec = fixture_spec(4032);
    refused("python=", "option python is ''; accepted: an interpreter");
    refused("library=/x/y.so", "option library is '/x/y.so'; accepted: nothing, unless backend=library");
    refused("backend=library", "option library is missing");
    fixture_refused(&fby_store_mooncake, &spec, FBY_E_CONFIG, "option python is 'python3'; accepted: nothing, unless",
                    "backend=library", double_option(), "python=python3", NULL);
    fixture_refused(&fby_store_mooncake, &spec, FBY_E_CONFIG,
                    "option library is '/no/such/file.so'; accepted: the path", "backend=library",
                    "library=/no/such/file.so", NULL);
    fixture_refused(&fby_store_mooncake, &spec, FBY_E_CONFIG, "option library is 'libmooncake_store.so'",
                    "backend=library", "library=libmooncake_store.so", NULL);
}

/* Neither a library nor a connection is touched: there is no master at that address, and no call is made. */
static void outside_of_an_agent_it_says_that_it_needs_one(void **state)
{
    fby_store_spec_t spec = fixture_spec(4032);
    fby_store_t *store =
        fixture_open(&fby_store_mooncake, &spec, "backend=library", double_option(), "master=127.0.0.1:1", NULL);
    fby_store_caps_t caps = {0};
    char text[128], page[4096];
    fby_store_mooncake.capabilities(store, &caps);
    assert_int_equal(caps.size, sizeof(caps));
    assert_true(caps.needs_isolation && caps.zero_copy && !caps.overwrite && !caps.async && !caps.cancellable);
    assert_int_equal(caps.max_batch, 1024);
    assert_int_equal(caps.preferred_bytes, 256 << 10);
    assert_int_equal(caps.probe_lease_ns, 5000000000);
    assert_true(caps.read_lanes == 1 || caps.read_lanes == 2); /* by the cores */
    fby_store_op_t op = fixture_op(&spec, 1, 0, page);
    assert_int_equal(fby_store_mooncake.exists(store, &op, 1), FBY_E_INVALID);
    assert_int_equal(fby_store_mooncake.get(store, &op, 1), FBY_E_INVALID);
    assert_int_equal(fby_store_mooncake.put(store, &op, 1), FBY_E_INVALID);
    assert_int_equal(fby_store_mooncake.remove(store, &op, 1), FBY_E_INVALID);
    assert_int_equal(fby_store_mooncake.health(store, text, sizeof(text)), -ENOTSUP);
    assert_non_null(strstr(text, "store.host agent"));
    assert_int_equal(fby_store_mooncake.register_region(store, page, sizeof(page)), 0);
    assert_int_equal(fby_store_mooncake.unregister_region(store, page), 0);
    fby_store_mooncake.close(store);
}

static void the_wheel_is_not_served_by_this_program(void **state)
{
    fby_store_isolated = true;
    refused("backend=wheel", "served by forebay-agent-mooncake");
    refused("master=h", "option master is 'h'"); /* options first: they are wrong anywhere */
    fby_store_isolated = false;
}

static void the_wheel_has_a_program_of_its_own(void **state)
{
    const char *const plain[] = {"master=h:1", NULL};
    const char *const python[] = {"backend=wheel", "python=/venv/bin/python", NULL};
    const char *const library[] = {"backend=library", "library=/l.so", NULL};
    fby_store_program_t program;
    assert_true(fby_store_agent_program("mooncake", NULL, &program));
    assert_true(fby_store_agent_program("mooncake", plain, &program));
    assert_string_equal(program.interpreter, "python3");
    assert_string_equal(program.name, "forebay-agent-mooncake");
    assert_true(fby_store_agent_program("mooncake", python, &program));
    assert_string_equal(program.interpreter, "/venv/bin/python");
    assert_false(fby_store_agent_program("mooncake", library, &program));
    assert_false(fby_store_agent_program("mem", python, &program));
    assert_false(fby_store_agent_program("/a/mooncake", plain, &program));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_options_it_is_the_wheel_on_this_machine),
        cmocka_unit_test(every_option_is_read),
        cmocka_unit_test(a_wrong_value_is_named_with_what_is_accepted),
        cmocka_unit_test(each_back_end_takes_its_own_options),
        cmocka_unit_test(outside_of_an_agent_it_says_that_it_needs_one),
        cmocka_unit_test(the_wheel_is_not_served_by_this_program),
        cmocka_unit_test(the_wheel_has_a_program_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
