/* test_redis_part.c - replies that a good server never gives: cut, late, wrong, endless. No byte lands outside. */
#include "redis_fake.h"
#include "redis_server.h"

#define DRIVER (&fby_store_redis)
#define BYTES (4096 + 64)
#define HEAD "$4160\r\n"

static fby_store_spec_t spec;
static uint8_t *buffer; /* two slots */
static fby_store_op_t ops[2];
static char object_reply[sizeof(HEAD) - 1 + BYTES + 2];

static int setup(void **state)
{
    spec = fixture_spec(4096);
    buffer = fixture_buffer(&spec, 2);
    fixture_fill(&spec, 1, 0, buffer);
    memcpy(object_reply, HEAD, sizeof(HEAD) - 1);
    memcpy(object_reply + sizeof(HEAD) - 1, buffer, BYTES);
    memcpy(object_reply + sizeof(HEAD) - 1 + BYTES, "\r\n", 2);
    memset(buffer, 0xEE, (size_t)spec.slot_bytes[0] * 2);
    ops[0] = fixture_op(&spec, 1, 0, buffer);
    ops[1] = fixture_op(&spec, 2, 0, buffer + spec.slot_bytes[0]);
    return 0;
}

static int teardown(void **state)
{
    /* Nothing ever stands behind the expected length, whatever came. */
    for (uint32_t at = BYTES; at < spec.slot_bytes[0]; at++) {
        assert_int_equal(buffer[at], 0xEE);
        assert_int_equal(buffer[spec.slot_bytes[0] + at], 0xEE);
    }
    free(buffer);
    return 0;
}

/* Reads ops[0 .. n) from a server that says this, the first time to what open asks. */
static unsigned read_from(const fake_step_t *steps, uint32_t n)
{
    fake_t fake;
    fake_start(&fake, steps);
    fby_store_t *store = fixture_open(DRIVER, &spec, redis_port(&fake), "timeout_ms=300", NULL);
    assert_int_equal(DRIVER->get(store, ops, n), 0);
    DRIVER->close(store);
    fake_stop(&fake);
    return fake.connections;
}

static void a_reply_in_single_bytes_is_whole(void **state)
{
    const fake_step_t steps[] = {
        FAKE_TEXT(":0\r\n"),
        {.bytes = object_reply, .length = sizeof(object_reply), .one_by_one = true},
        {.bytes = NULL},
    };
    read_from(steps, 1);
    assert_int_equal(ops[0].result, BYTES);
    assert_true(fixture_holds(&spec, 1, 0, buffer));
}

static void a_stall_in_the_middle_ends_with_timeout(void **state)
{
    const fake_step_t steps[] = {
        FAKE_TEXT(":0\r\n"),
        FAKE_TEXT("$-1\r\n"),
        {.bytes = object_reply, .length = 1000, .stalls = true},
        {.bytes = NULL},
    };
    fixture_key(2, 0, ops[0].key);
    fixture_key(1, 0, ops[1].key);
    read_from(steps, 2);
    assert_int_equal(ops[0].result, FBY_E_MISSING); /* what was answered stays answered */
    assert_int_equal(ops[1].result, FBY_E_TIMEOUT);
}

static void no_answer_at_all_ends_with_timeout(void **state)
{
    const fake_step_t steps[] = {FAKE_TEXT(":0\r\n"), {.bytes = "", .length = 0, .stalls = true}, {.bytes = NULL}};
    assert_int_equal(read_from(steps, 2), 1);
    assert_int_equal(ops[0].result, FBY_E_TIMEOUT);
    assert_int_equal(ops[1].result, FBY_E_TIMEOUT);
}

static void a_connection_that_timed_out_is_never_used_again(void **state)
{
    const fake_step_t steps[] = {
        FAKE_TEXT(":0\r\n"),
        {.bytes = object_reply, .length = 1000, .stalls = true},
        {.bytes = object_reply, .length = sizeof(object_reply)},
        {.bytes = NULL},
    };
    fake_t fake;
    fake_start(&fake, steps);
    fby_store_t *store = fixture_open(DRIVER, &spec, redis_port(&fake), "timeout_ms=300", NULL);
    assert_int_equal(DRIVER->get(store, ops, 1), 0);
    assert_int_equal(ops[0].result, FBY_E_TIMEOUT);
    assert_int_equal(DRIVER->get(store, ops, 1), 0);
    assert_int_equal(ops[0].result, BYTES);
    assert_true(fixture_holds(&spec, 1, 0, buffer));
    DRIVER->close(store);
    fake_stop(&fake);
    assert_int_equal(fake.connections, 2);
}

static void an_end_in_the_middle_is_a_connection_failure(void **state)
{
    const fake_step_t steps[] = {
        FAKE_TEXT(":0\r\n"),
        {.bytes = object_reply, .length = 1000, .closes = true},
        {.bytes = NULL},
    };
    assert_int_equal(read_from(steps, 2), 1); /* it was not asked again: a part of the answer had come */
    assert_int_equal(ops[0].result, FBY_E_CONNECTION);
    assert_int_equal(ops[1].result, FBY_E_CONNECTION);
}

static void an_idle_connection_that_ended_unseen_is_tried_once_more(void **state)
{
    const fake_step_t steps[] = {
        FAKE_TEXT(":0\r\n"),
        {.bytes = "", .length = 0, .closes = true}, /* takes the command, says nothing */
        {.bytes = object_reply, .length = sizeof(object_reply)},
        {.bytes = NULL},
    };
    assert_int_equal(read_from(steps, 1), 2);
    assert_int_equal(ops[0].result, BYTES);
    assert_true(fixture_holds(&spec, 1, 0, buffer));
}

static void it_is_tried_once_more_only(void **state)
{
    const fake_step_t steps[] = {
        FAKE_TEXT(":0\r\n"),
        {.bytes = "", .length = 0, .closes = true},
        {.bytes = "", .length = 0, .closes = true},
        {.bytes = object_reply, .length = sizeof(object_reply)},
        {.bytes = NULL},
    };
    assert_int_equal(read_from(steps, 1), 2);
    assert_int_equal(ops[0].result, FBY_E_CONNECTION);
}

static void what_is_no_reply_to_the_command_ends_the_connection(void **state)
{
    static const char *const wrong[] = {
        ":7\r\n",
        "+OK\r\n",
        "*1\r\n$1\r\nx\r\n",
        "$-2\r\n",
        "$99999999999\r\n",
        "$4160x\r\n",
        "%1\r\n+a\r\n:1\r\n",
        "hello\r\n",
        "\r\n",
        "$99999999999999999999\r\n",
        "*-1\r\n",
        "$4160\n",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const fake_step_t steps[] = {
            FAKE_TEXT(":0\r\n"),
            {.bytes = wrong[i], .length = strlen(wrong[i])},
            {.bytes = NULL},
        };
        read_from(steps, 1);
        assert_int_equal(ops[0].result, FBY_E_CONNECTION);
        assert_int_equal(buffer[0], 0xEE);
    }
}

static void a_payload_without_its_end_is_not_believed(void **state)
{
    object_reply[sizeof(object_reply) - 2] = 'x';
    const fake_step_t steps[] = {
        FAKE_TEXT(":0\r\n"),
        {.bytes = object_reply, .length = sizeof(object_reply)},
        {.bytes = NULL},
    };
    read_from(steps, 1);
    assert_int_equal(ops[0].result, FBY_E_CONNECTION);
}

static void an_endless_line_ends_the_connection(void **state)
{
    static char line[100000];
    memset(line, 'x', sizeof(line));
    line[0] = '-';
    const fake_step_t steps[] = {FAKE_TEXT(":0\r\n"), {.bytes = line, .length = sizeof(line)}, {.bytes = NULL}};
    read_from(steps, 1);
    assert_int_equal(ops[0].result, FBY_E_CONNECTION);
}

static void more_replies_than_commands_end_the_connection(void **state)
{
    const fake_step_t steps[] = {
        FAKE_TEXT(":0\r\n"),
        FAKE_TEXT("$-1\r\n$-1\r\n"),
        {.bytes = object_reply, .length = sizeof(object_reply)},
        {.bytes = NULL},
    };
    fake_t fake;
    fake_start(&fake, steps);
    fby_store_t *store = fixture_open(DRIVER, &spec, redis_port(&fake), NULL);
    assert_int_equal(DRIVER->get(store, ops, 1), 0);
    assert_int_equal(ops[0].result, FBY_E_MISSING);
    assert_int_equal(DRIVER->get(store, ops, 1), 0); /* not the left-over reply */
    assert_int_equal(ops[0].result, BYTES);
    DRIVER->close(store);
    fake_stop(&fake);
    assert_int_equal(fake.connections, 2);
}

static void each_error_has_its_code(void **state)
{
    static const struct {
        const char *line;
        int code;
    } cases[] = {
        {"-LOADING Redis is loading the dataset in memory\r\n", FBY_E_CONNECTION},
        {"-MASTERDOWN Link with MASTER is down\r\n", FBY_E_CONNECTION},
        {"-CLUSTERDOWN The cluster is down\r\n", FBY_E_CONNECTION},
        {"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", FBY_E_CONNECTION},
        {"-READONLY You can't write against a read only replica.\r\n", FBY_E_CONNECTION},
        {"-ERR max number of clients reached\r\n", FBY_E_CONNECTION},
        {"-OOM command not allowed when used memory > 'maxmemory'.\r\n", FBY_E_FULL},
        {"-NOAUTH Authentication required.\r\n", FBY_E_INVALID},
        {"-NOPERM this user has no permissions to run the 'get' command\r\n", FBY_E_INVALID},
        {"-WRONGTYPE Operation against a key\r\n", FBY_E_INVALID},
        {"-MOVED 1234 127.0.0.1:1\r\n", FBY_E_INVALID}, /* without option cluster */
        {"-ERR unknown command 'GET'\r\n", FBY_E_INVALID},
        {"-LOADINGS\r\n", FBY_E_INVALID},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const fake_step_t steps[] = {
            FAKE_TEXT(":0\r\n"),
            {.bytes = cases[i].line, .length = strlen(cases[i].line)},
            {.bytes = object_reply, .length = sizeof(object_reply)},
            {.bytes = NULL},
        };
        fixture_key(2, 0, ops[0].key);
        fixture_key(1, 0, ops[1].key);
        assert_int_equal(read_from(steps, 2), 1);
        assert_int_equal(ops[0].result, cases[i].code);
        assert_int_equal(ops[1].result, BYTES); /* an error is an answer: the connection stays in step */
        assert_true(fixture_holds(&spec, 1, 0, ops[1].buffer));
    }
}

static void a_server_that_still_loads_may_be_opened(void **state)
{
    const fake_step_t steps[] = {
        FAKE_TEXT("-LOADING Redis is loading the dataset in memory\r\n"),
        FAKE_TEXT("-LOADING Redis is loading the dataset in memory\r\n"),
        {.bytes = object_reply, .length = sizeof(object_reply)},
        {.bytes = NULL},
    };
    fake_t fake;
    fake_start(&fake, steps);
    fby_store_t *store = fixture_open(DRIVER, &spec, redis_port(&fake), NULL);
    assert_int_equal(DRIVER->get(store, ops, 1), 0);
    assert_int_equal(ops[0].result, FBY_E_CONNECTION);
    assert_int_equal(DRIVER->get(store, ops, 1), 0);
    assert_int_equal(ops[0].result, BYTES);
    DRIVER->close(store);
    fake_stop(&fake);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(a_reply_in_single_bytes_is_whole),
        STORY(a_stall_in_the_middle_ends_with_timeout),
        STORY(no_answer_at_all_ends_with_timeout),
        STORY(a_connection_that_timed_out_is_never_used_again),
        STORY(an_end_in_the_middle_is_a_connection_failure),
        STORY(an_idle_connection_that_ended_unseen_is_tried_once_more),
        STORY(it_is_tried_once_more_only),
        STORY(what_is_no_reply_to_the_command_ends_the_connection),
        STORY(a_payload_without_its_end_is_not_believed),
        STORY(an_endless_line_ends_the_connection),
        STORY(more_replies_than_commands_end_the_connection),
        STORY(each_error_has_its_code),
        STORY(a_server_that_still_loads_may_be_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
