/* test_redis_tls.c - TLS against a real server with certificates made here. */
#include "redis_server.h"

#include <unistd.h>

#define DRIVER (&fby_store_redis)
#define HOST fixture_host(DRIVER)
#define BYTES (4096 + 64)

static redis_server_t server;
static fby_store_spec_t spec;
static char *directory; /* of the certificates */

/* An authority, and a server's and a client's certificate by it; another authority that signed neither. */
static const char make_certificates[] =
    "cd '%s' && exec >/dev/null 2>&1\n"
    "authority() { openssl req -x509 -newkey rsa:2048 -nodes -keyout $1.key -out $1.crt -days 2 -subj /CN=$1; }\n"
    "signed() { openssl req -newkey rsa:2048 -nodes -keyout $1.key -out $1.csr -subj /CN=$1 &&\n"
    "  printf 'subjectAltName=%%s\\n' $2 >$1.ext &&\n"
    "  openssl x509 -req -in $1.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile $1.ext -out $1.crt; }\n"
    "authority ca && authority other && signed server DNS:redis.test,IP:127.0.0.1 && signed client DNS:client.test\n";

/* "NAME=directory/file"; static storage, eight at a time. */
static const char *file_option(const char *name, const char *file)
{
    static char options[8][600];
    static unsigned next;
    char *option = options[next++ % 8];
    snprintf(option, sizeof(options[0]), "%s=%s/%s", name, directory, file);
    return option;
}

static const char *path_of(const char *file)
{
    return strchr(file_option("path", file), '=') + 1;
}

#define TLS_PORT redis_option("port", server.tls_port)

static int setup(void **state)
{
    spec = fixture_spec(4096);
    redis_server_ask(&server, "FLUSHALL");
    redis_server_ask(&server, "CONFIG SET tls-auth-clients no");
    return 0;
}

static void objects_travel_over_tls(void **state)
{
    fby_store_t *store = fixture_open(DRIVER, &spec, TLS_PORT, "tls=on", file_option("tls_ca", "ca.crt"), NULL);
    char text[256];
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    assert_int_equal(fixture_exists(DRIVER, store, 1), 1);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), BYTES);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 2), FBY_E_MISSING);
    assert_int_equal(HOST->health(store, text, sizeof(text)), 0);
    assert_non_null(strstr(text, ", tls"));
    assert_int_equal(fixture_remove(DRIVER, store, 1), 1);
    HOST->close(store);
}

static void large_batches_travel_over_tls(void **state)
{
    enum { OBJECTS = 40 };
    const fby_store_spec_t large = fixture_spec(300 * 1000);
    fby_store_t *store = fixture_open(DRIVER, &large, TLS_PORT, "tls=on", file_option("tls_ca", "ca.crt"), NULL);
    uint8_t *buffer = fixture_buffer(&large, OBJECTS);
    fby_store_op_t ops[OBJECTS];
    for (uint32_t i = 0; i < OBJECTS; i++) {
        ops[i] = fixture_op(&large, i, 0, buffer + (size_t)i * large.slot_bytes[0]);
        fixture_fill(&large, i, 0, ops[i].buffer);
    }
    assert_int_equal(HOST->put(store, ops, OBJECTS), 0);
    memset(buffer, 0xEE, (size_t)large.slot_bytes[0] * OBJECTS);
    assert_int_equal(HOST->get(store, ops, OBJECTS), 0);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        assert_int_equal(ops[i].result, large.object_bytes[0]);
        assert_true(fixture_holds(&large, i, 0, ops[i].buffer));
        assert_int_equal(((uint8_t *)ops[i].buffer)[large.object_bytes[0]], 0xEE);
    }
    free(buffer);
    HOST->close(store);
}

static void a_restart_is_not_noticed_over_tls(void **state)
{
    fby_store_t *store = fixture_open(DRIVER, &spec, TLS_PORT, "tls=on", file_option("tls_ca", "ca.crt"), NULL);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    redis_server_kill(&server);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_CONNECTION);
    redis_server_again(&server);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    HOST->close(store);
}

static void an_authority_that_did_not_sign_it_is_refused(void **state)
{
    fixture_refused(DRIVER, &spec, FBY_E_CONFIG, "its certificate is not trusted", TLS_PORT, "tls=on",
                    file_option("tls_ca", "other.crt"), NULL);
    fixture_refused(DRIVER, &spec, FBY_E_CONFIG, "its certificate is not trusted", TLS_PORT, "tls=on", NULL);
}

static void a_certificate_for_another_name_is_refused(void **state)
{
    const char *authority = file_option("tls_ca", "ca.crt");
    fixture_refused(DRIVER, &spec, FBY_E_CONFIG, "ostname mismatch", TLS_PORT, "tls=on", authority,
                    "tls_server_name=elsewhere.test", NULL);
    fby_store_t *store = fixture_open(DRIVER, &spec, TLS_PORT, "tls=on", authority, "tls_server_name=redis.test", NULL);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    HOST->close(store);
}

static void verification_can_be_turned_off(void **state)
{
    fby_store_t *store = fixture_open(DRIVER, &spec, TLS_PORT, "tls=on", "tls_verify=off", NULL);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    HOST->close(store);
}

static void a_server_may_want_a_certificate_of_ours(void **state)
{
    const char *authority = file_option("tls_ca", "ca.crt");
    redis_server_ask(&server, "CONFIG SET tls-auth-clients yes");
    fby_store_t *store =
        fixture_open(DRIVER, &spec, TLS_PORT, "tls=on", authority, file_option("tls_cert", "client.crt"),
                     file_option("tls_key", "client.key"), NULL);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    HOST->close(store);
    store = fixture_open(DRIVER, &spec, TLS_PORT, "tls=on", authority, NULL);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_CONNECTION);
    HOST->close(store);
}

static void files_that_do_not_fit_are_named(void **state)
{
    const char *key = file_option("tls_key", "server.key");
    fixture_refused(DRIVER, &spec, FBY_E_CONFIG, "option tls_ca is '/nonexistent'", TLS_PORT, "tls=on",
                    "tls_ca=/nonexistent", NULL);
    fixture_refused(DRIVER, &spec, FBY_E_CONFIG, "option tls_cert is", TLS_PORT, "tls=on",
                    file_option("tls_cert", "ca.key"), key, NULL);
    fixture_refused(DRIVER, &spec, FBY_E_CONFIG, "option tls_key is", TLS_PORT, "tls=on",
                    file_option("tls_cert", "client.crt"), key, NULL);
}

static void tls_on_a_plain_port_and_the_other_way_round_are_told(void **state)
{
    char text[256];
    fby_store_t *store = /* the server waits for the end of what it takes for a command */
        fixture_open(DRIVER, &spec, redis_port(&server), "tls=on", "connect_timeout_ms=200", NULL);
    assert_int_equal(HOST->health(store, text, sizeof(text)), FBY_E_TIMEOUT);
    assert_non_null(strstr(text, "(a plain port? option tls=off)"));
    HOST->close(store);
    store = fixture_open(DRIVER, &spec, TLS_PORT, NULL); /* the server hangs up without a word */
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_CONNECTION);
    HOST->close(store);
}

#define STORY(name) cmocka_unit_test_setup(name, setup)

static int start(void **state)
{
    char script[4096], certificate[600], key[600], authority[600];
    directory = fixture_directory();
    snprintf(script, sizeof(script), make_certificates, directory);
    if (system("command -v openssl >/dev/null 2>&1") != 0) {
        printf("skipped: there is no openssl command\n");
        exit(77);
    }
    assert_int_equal(system(script), 0);
    snprintf(certificate, sizeof(certificate), "%s", path_of("server.crt"));
    snprintf(key, sizeof(key), "%s", path_of("server.key"));
    snprintf(authority, sizeof(authority), "%s", path_of("ca.crt"));
    redis_server_start(&server, "--tls-cert-file", strdup(certificate), "--tls-key-file", strdup(key),
                       "--tls-ca-cert-file", strdup(authority), "--tls-auth-clients", "no", NULL);
    return 0;
}

static int stop(void **state)
{
    for (size_t i = 1; i <= 5; i += 2) {
        free((char *)(uintptr_t)server.arguments[i]);
    }
    redis_server_stop(&server);
    fixture_remove_directory(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(objects_travel_over_tls),
        STORY(large_batches_travel_over_tls),
        STORY(a_restart_is_not_noticed_over_tls),
        STORY(an_authority_that_did_not_sign_it_is_refused),
        STORY(a_certificate_for_another_name_is_refused),
        STORY(verification_can_be_turned_off),
        STORY(a_server_may_want_a_certificate_of_ours),
        STORY(files_that_do_not_fit_are_named),
        STORY(tls_on_a_plain_port_and_the_other_way_round_are_told),
    };
    redis_server_needed();
    return cmocka_run_group_tests(tests, start, stop);
}
