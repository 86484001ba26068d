#include "fixture.h"

#include <unistd.h>

#include "base/clock.h"
#include "stores/redis_options.h"

static fby_redis_config_t config;
static char error[512];

/* Up to 8 options, then NULL. */
static int read_options(const char *const *list)
{
    error[0] = '\0';
    return fby_redis_config_read(list, &config, error, sizeof(error));
}
#define READ(...) read_options((const char *const[]){__VA_ARGS__, NULL})

static void refuses(const char *part, const char *const *list)
{
    if (read_options(list) != FBY_E_CONFIG || strstr(error, part) == NULL) {
        fail_msg("expected '%s', got: %s", part, error);
    }
}
#define REFUSES(part, ...) refuses(part, (const char *const[]){__VA_ARGS__, NULL})

static void nothing_given_is_a_server_on_this_machine(void **state)
{
    assert_int_equal(read_options(NULL), 0);
    assert_int_equal(config.seed_count, 1);
    assert_string_equal(config.seeds[0].host, "127.0.0.1");
    assert_int_equal(config.seeds[0].port, 6379);
    assert_string_equal(config.prefix, "fby:");
    assert_int_equal(config.connections, 16);
    assert_int_equal(config.timeout_ns, 5 * FBY_SECOND);
    assert_int_equal(config.connect_timeout_ns, FBY_SECOND);
    assert_true(config.tls_verify);
    assert_false(config.tls || config.cluster || config.has_password);
    assert_int_equal(config.db + config.ttl_s, 0);
}

static void everything_can_be_set(void **state)
{
    assert_int_equal(READ("host=redis.test", "port=7000", "username=u", "password=p", "db=2", "prefix=x", "ttl_s=60",
                          "timeout_ms=2.5", "connect_timeout_ms=7", "connections=3", "tls=on", "tls_ca=/ca",
                          "tls_cert=/cert", "tls_key=/key", "tls_server_name=n", "tls_verify=off"),
                     0);
    assert_string_equal(config.seeds[0].host, "redis.test");
    assert_int_equal(config.seeds[0].port, 7000);
    assert_string_equal(config.username, "u");
    assert_string_equal(config.password, "p");
    assert_int_equal(config.db, 2);
    assert_string_equal(config.prefix, "x");
    assert_int_equal(config.ttl_s, 60);
    assert_int_equal(config.timeout_ns, 2500000);
    assert_int_equal(config.connect_timeout_ns, 7000000);
    assert_int_equal(config.connections, 3);
    assert_string_equal(config.tls_ca, "/ca");
    assert_string_equal(config.tls_cert, "/cert");
    assert_string_equal(config.tls_key, "/key");
    assert_string_equal(config.tls_server_name, "n");
    assert_true(config.tls && !config.tls_verify);
}

static void seeds_of_a_cluster_are_a_list(void **state)
{
    assert_int_equal(READ("cluster=on", "seeds=a:1+[::1]:2, b.test:3"), 0);
    assert_int_equal(config.seed_count, 3);
    assert_string_equal(config.seeds[1].host, "::1");
    assert_int_equal(config.seeds[1].port, 2);
    assert_string_equal(config.seeds[2].host, "b.test");
    assert_int_equal(READ("cluster=on", "host=a", "seeds=b:3"), 0);
    assert_int_equal(config.seed_count, 2);
    REFUSES("option seeds is 'a'", "cluster=on", "seeds=a");
    REFUSES("option seeds is '::1:2'", "cluster=on", "seeds=::1:2");
    REFUSES("option seeds is 'a:1+b:0'", "cluster=on", "seeds=a:1+b:0");
    REFUSES("1 to 16", "cluster=on",
            "seeds=a:1+a:2+a:3+a:4+a:5+a:6+a:7+a:8+a:9+a:10+a:11+a:12+a:13+a:14+a:15+a:16+a:17");
    REFUSES("only with cluster=on", "seeds=a:1");
    REFUSES("option seeds is ''", "cluster=on", "seeds=");
}

static void endpoints_are_written_as_they_are_read(void **state)
{
    fby_redis_endpoint_t endpoint;
    char text[FBY_REDIS_ENDPOINT_TEXT_BYTES];
    assert_true(fby_redis_endpoint_parse("[::1]:26", 8, &endpoint));
    assert_string_equal(fby_redis_endpoint_text(&endpoint, text, sizeof(text)), "[::1]:26");
    assert_true(fby_redis_endpoint_parse("host:65535", 10, &endpoint));
    assert_string_equal(fby_redis_endpoint_text(&endpoint, text, sizeof(text)), "host:65535");
    assert_false(fby_redis_endpoint_parse(":26", 3, &endpoint));
    assert_false(fby_redis_endpoint_parse("[]:26", 5, &endpoint));
    assert_false(fby_redis_endpoint_parse("a:65536", 7, &endpoint));
}

static void what_is_wrong_is_named_with_what_is_accepted(void **state)
{
    REFUSES("option port is '0'; accepted: a whole number from 1 to 65535", "port=0");
    REFUSES("option port is '65536'", "port=65536");
    REFUSES("option host is ''", "host=");
    REFUSES("option db is 'x'", "db=x");
    REFUSES("option timeout_ms is '0'; accepted: milliseconds from 1", "timeout_ms=0");
    REFUSES("option connect_timeout_ms is '0.5'", "connect_timeout_ms=0.5");
    REFUSES("option connections is '0'", "connections=0");
    REFUSES("option tls is 'maybe'", "tls=maybe");
    REFUSES("option prefix", "prefix=12345678901234567890123456789012345678901234567890123456789012345");
    REFUSES("'hots' is not an option of it; accepted names: host, port,", "hots=x");
}

static void what_contradicts_itself_is_refused(void **state)
{
    REFUSES("option unix is '/s'", "unix=/s", "host=a");
    REFUSES("option unix is '/s'", "unix=/s", "cluster=on");
    REFUSES("option unix is '/s'", "unix=/s", "tls=on");
    REFUSES("option db is '1'; accepted: 0 with cluster=on", "cluster=on", "db=1");
    REFUSES("option tls_ca is '/ca'; accepted: only with tls=on", "tls_ca=/ca");
    REFUSES("tls_cert and tls_key together", "tls=on", "tls_cert=/c");
    REFUSES("tls_cert and tls_key together", "tls=on", "tls_key=/k");
    REFUSES("option username is 'u'; accepted: together with password", "username=u");
    REFUSES("not both", "password=hidden", "password_file=/f");
}

static void a_path_must_fit_the_address_of_a_socket(void **state)
{
    char option[200] = "unix=/";
    memset(option + 6, 'x', 107);
    REFUSES("a path of 1 to 107 bytes", option);
    option[6 + 106] = '\0';
    assert_int_equal(READ(option), 0);
    assert_int_equal(config.seeds[0].port, 0);
}

static void passwords_are_never_in_a_message(void **state)
{
    char option[1200] = "password=";
    memset(option + 9, 'p', 1024);
    REFUSES("option password is '(a hidden value)'", option);
    assert_null(strstr(error, "ppp"));
    REFUSES("option password is '(a hidden value)'", "password=");
    REFUSES("'passwort' is not an option", "passwort=geheim");
    assert_null(strstr(error, "geheim"));
    REFUSES("an option has no '='", "geheim");
    assert_null(strstr(error, "geheim"));
    REFUSES("not both", "password=geheim", "password_file=/f");
    assert_null(strstr(error, "geheim"));
}

static void a_password_file_holds_one_line(void **state)
{
    char *directory = fixture_directory(), path[512], option[600];
    snprintf(path, sizeof(path), "%s/p", directory);
    snprintf(option, sizeof(option), "password_file=%s", path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("word with blanks\r\n", file);
    fclose(file);
    assert_int_equal(READ(option), 0);
    assert_string_equal(config.password, "word with blanks");
    assert_int_equal(truncate(path, 0), 0);
    REFUSES("1 to 1023 bytes", option);
    assert_int_equal(truncate(path, 5), 0); /* NULs */
    REFUSES("1 to 1023 bytes", option);
    fixture_remove_directory(directory);
    REFUSES("No such file or directory", option);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_given_is_a_server_on_this_machine),
        cmocka_unit_test(everything_can_be_set),
        cmocka_unit_test(seeds_of_a_cluster_are_a_list),
        cmocka_unit_test(endpoints_are_written_as_they_are_read),
        cmocka_unit_test(what_is_wrong_is_named_with_what_is_accepted),
        cmocka_unit_test(what_contradicts_itself_is_refused),
        cmocka_unit_test(a_path_must_fit_the_address_of_a_socket),
        cmocka_unit_test(passwords_are_never_in_a_message),
        cmocka_unit_test(a_password_file_holds_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
