/* test_redis_conn.c - who may log in, what a refusal looks like, and that no message ever holds a password. */
#include "redis_fake.h"
#include "redis_server.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

#define DRIVER (&fby_store_redis)
#define BYTES (4096 + 64)
#define PASSWORD "s3cret-Pa55"

static redis_server_t server;
static fby_store_spec_t spec;
static char lines[16384]; /* what was logged, and the message of the last refused open */
static int log_fd;

static int setup(void **state)
{
    spec = fixture_spec(4096);
    redis_server_ask(&server, "FLUSHALL");
    assert_int_equal(ftruncate(log_fd, 0), 0);
    assert_int_equal(lseek(log_fd, 0, SEEK_SET), 0);
    return 0;
}

/* What was logged since the test began. */
static const char *logged(void)
{
    ssize_t n = pread(log_fd, lines, sizeof(lines) - 1, 0);
    assert_true(n >= 0);
    lines[n] = '\0';
    return lines;
}

/* Opens, expects FBY_E_CONFIG, and gives the message. */
static const char *refusal(const char *const *options)
{
    static char error[512];
    fby_store_t *store = NULL;
    error[0] = '\0';
    assert_int_equal(DRIVER->open(&spec, options, &store, error, sizeof(error)), FBY_E_CONFIG);
    assert_null(store);
    assert_null(strstr(error, PASSWORD));
    assert_null(strstr(logged(), PASSWORD));
    return error;
}

static void the_right_password_opens(void **state)
{
    fby_store_t *store = fixture_open(DRIVER, &spec, redis_port(&server), "password=" PASSWORD, NULL);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), BYTES);
    DRIVER->close(store);
}

static void a_password_may_lie_in_a_file(void **state)
{
    char path[512], option[600];
    snprintf(path, sizeof(path), "%s/password", server.directory);
    snprintf(option, sizeof(option), "password_file=%s", path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(PASSWORD "\n", file);
    fclose(file);
    fby_store_t *store = fixture_open(DRIVER, &spec, redis_port(&server), option, NULL);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    DRIVER->close(store);
    unlink(path);
    fixture_refused(DRIVER, &spec, FBY_E_CONFIG, "No such file", redis_port(&server), option, NULL);
}

static void a_wrong_password_is_refused_at_open_without_naming_it(void **state)
{
    const char *const wrong[] = {redis_port(&server), "password=" PASSWORD "x", NULL};
    assert_non_null(strstr(refusal(wrong), "refuses the login (AUTH: WRONGPASS): username or password is wrong"));
    const char *const unknown[] = {redis_port(&server), "username=nobody", "password=" PASSWORD, NULL};
    assert_non_null(strstr(refusal(unknown), "AUTH: WRONGPASS"));
}

static void no_password_where_one_is_needed_is_refused_at_open(void **state)
{
    const char *const none[] = {redis_port(&server), NULL};
    assert_non_null(strstr(refusal(none), "NOAUTH Authentication required"));
}

static void a_server_that_repeats_the_password_is_not_quoted(void **state)
{
    const fake_step_t steps[] = {
        FAKE_TEXT("-ERR unknown command 'AUTH', with args beginning with: '" PASSWORD "'\r\n"),
        {.bytes = NULL},
    };
    fake_t fake;
    fake_start(&fake, steps);
    const char *const options[] = {redis_port(&fake), "password=" PASSWORD, NULL};
    assert_non_null(strstr(refusal(options), "refuses the login (AUTH: ERR)"));
    fake_stop(&fake);
}

static void a_misspelt_option_is_named_without_its_value(void **state)
{
    const char *const misspelt[] = {redis_port(&server), "pasword=" PASSWORD, NULL};
    assert_non_null(strstr(refusal(misspelt), "'pasword' is not an option of it"));
    const char *const torn[] = {redis_port(&server), "password=a", PASSWORD, NULL};
    assert_non_null(strstr(refusal(torn), "an option has no '='"));
}

static void a_user_with_the_documented_commands_can_do_everything(void **state)
{
    redis_server_ask(&server, "ACL SETUSER forebay reset on >" PASSWORD "2 ~fby:* +ping +select +strlen +get +getrange "
                              "+set +unlink +scan");
    fby_store_t *store =
        fixture_open(DRIVER, &spec, redis_port(&server), "username=forebay", "password=" PASSWORD "2", "db=3", NULL);
    char text[256];
    uint64_t freed;
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    assert_int_equal(fixture_exists(DRIVER, store, 1), 1);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), BYTES);
    assert_int_equal(DRIVER->health(store, text, sizeof(text)), 0);
    assert_int_equal(DRIVER->gc(store, &freed, text, sizeof(text)), 0);
    assert_int_equal(fixture_remove(DRIVER, store, 1), 1);
    DRIVER->close(store);
}

static void a_user_without_a_permission_is_told_which(void **state)
{
    redis_server_ask(&server, "ACL SETUSER reader reset on >" PASSWORD "2 ~fby:* +strlen +get");
    fby_store_t *store =
        fixture_open(DRIVER, &spec, redis_port(&server), "username=reader", "password=" PASSWORD "2", NULL);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), FBY_E_INVALID);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), FBY_E_INVALID);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_MISSING);
    DRIVER->close(store);
    const char *first = strstr(logged(), "event=store_refused driver=redis error=INVALID");
    assert_non_null(first);
    assert_non_null(strstr(first, "NOPERM"));
    assert_non_null(strstr(first, "set"));
    assert_null(strstr(first + 1, "event=store_refused")); /* once, not per key */
    assert_null(strstr(lines, PASSWORD));
    const char *const other_keys[] = {redis_port(&server), "username=reader", "password=" PASSWORD "2",
                                      "prefix=other:", NULL};
    assert_non_null(strstr(refusal(other_keys), "NOPERM"));
}

static void a_password_that_is_changed_later_makes_calls_invalid(void **state)
{
    redis_server_ask(&server, "ACL SETUSER late reset on >" PASSWORD "2 ~fby:* +strlen +get +set");
    fby_store_t *store =
        fixture_open(DRIVER, &spec, redis_port(&server), "username=late", "password=" PASSWORD "2", NULL);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    redis_server_ask(&server, "ACL SETUSER late resetpass >other");
    redis_server_ask(&server, "CLIENT KILL USER late");
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_INVALID);
    assert_non_null(strstr(logged(), "refuses the login (AUTH: WRONGPASS)"));
    assert_null(strstr(lines, PASSWORD));
    redis_server_ask(&server, "ACL SETUSER late resetpass >" PASSWORD "2");
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), BYTES); /* with the same handle */
    DRIVER->close(store);
}

static void another_database_holds_other_keys(void **state)
{
    fby_store_t *three = fixture_open(DRIVER, &spec, redis_port(&server), "password=" PASSWORD, "db=3", NULL);
    fby_store_t *none = fixture_open(DRIVER, &spec, redis_port(&server), "password=" PASSWORD, NULL);
    fixture_put(DRIVER, three, &spec, 1);
    assert_int_equal(fixture_get(DRIVER, three, &spec, 1), BYTES);
    assert_int_equal(fixture_get(DRIVER, none, &spec, 1), FBY_E_MISSING);
    DRIVER->close(three);
    DRIVER->close(none);
    const char *const beyond[] = {redis_port(&server), "password=" PASSWORD, "db=99", NULL};
    assert_non_null(strstr(refusal(beyond), "database 99 (option db)"));
}

static void a_unix_socket_serves_too(void **state)
{
    redis_server_t local;
    char path[512], option[600];
    char *directory = fixture_directory();
    snprintf(path, sizeof(path), "%s/redis.sock", directory);
    snprintf(option, sizeof(option), "unix=%s", path);
    redis_server_start(&local, "--unixsocket", path, NULL);
    fby_store_t *store = fixture_open(DRIVER, &spec, option, NULL);
    assert_int_equal(fixture_put(DRIVER, store, &spec, 1), BYTES);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), BYTES);
    DRIVER->close(store);
    redis_server_stop(&local);
    fixture_remove_directory(directory);
}

static void a_server_that_is_not_there_is_no_error_of_open(void **state)
{
    char text[256];
    fby_store_t *store = fixture_open(DRIVER, &spec, redis_option("port", redis_server_free_port()), NULL);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_CONNECTION);
    assert_int_equal(fixture_exists(DRIVER, store, 1), FBY_E_CONNECTION);
    assert_int_equal(DRIVER->health(store, text, sizeof(text)), FBY_E_CONNECTION);
    assert_non_null(strstr(text, "cannot be reached: Connection refused"));
    DRIVER->close(store);
    store = fixture_open(DRIVER, &spec, "unix=/nonexistent/redis.sock", NULL);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_CONNECTION);
    DRIVER->close(store);
}

static void a_server_that_takes_connections_and_says_nothing_is_a_timeout(void **state)
{
    const fake_step_t steps[] = {
        {.bytes = "", .length = 0, .stalls = true}, {.bytes = "", .length = 0, .stalls = true}, {.bytes = NULL}};
    fake_t fake;
    fake_start(&fake, steps);
    fby_store_t *store =
        fixture_open(DRIVER, &spec, redis_port(&fake), "password=" PASSWORD, "connect_timeout_ms=100", NULL);
    assert_int_equal(fixture_get(DRIVER, store, &spec, 1), FBY_E_TIMEOUT);
    DRIVER->close(store);
    fake_stop(&fake);
}

#define STORY(name) cmocka_unit_test_setup(name, setup)

static int start(void **state)
{
    log_fd = memfd_create("log", MFD_CLOEXEC);
    assert_true(log_fd >= 0);
    fby_log_setup(FBY_LOG_WARN, FBY_LOG_LOGFMT, log_fd);
    redis_server_start(&server, "--requirepass", PASSWORD, NULL);
    return 0;
}

static int stop(void **state)
{
    redis_server_stop(&server);
    close(log_fd);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(the_right_password_opens),
        STORY(a_password_may_lie_in_a_file),
        STORY(a_wrong_password_is_refused_at_open_without_naming_it),
        STORY(no_password_where_one_is_needed_is_refused_at_open),
        STORY(a_server_that_repeats_the_password_is_not_quoted),
        STORY(a_misspelt_option_is_named_without_its_value),
        STORY(a_user_with_the_documented_commands_can_do_everything),
        STORY(a_user_without_a_permission_is_told_which),
        STORY(a_password_that_is_changed_later_makes_calls_invalid),
        STORY(another_database_holds_other_keys),
        STORY(a_unix_socket_serves_too),
        STORY(a_server_that_is_not_there_is_no_error_of_open),
        STORY(a_server_that_takes_connections_and_says_nothing_is_a_timeout),
    };
    redis_server_needed();
    return cmocka_run_group_tests(tests, start, stop);
}
