#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/log.h"

static int pipe_ends[2];

static int setup(void **state)
{
    assert_int_equal(pipe(pipe_ends), 0);
    return 0;
}

static int teardown(void **state)
{
    fby_log_setup(FBY_LOG_WARN, FBY_LOG_LOGFMT, STDERR_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    return 0;
}

/* What was written since the last call. A byte of its own marks the end, so the read never blocks. */
static const char *written(void)
{
    static char text[65536];
    size_t n = 0;
    assert_int_equal(write(pipe_ends[1], "\x04", 1), 1);
    do {
        ssize_t got = read(pipe_ends[0], text + n, sizeof(text) - n - 1);
        assert_true(got > 0);
        n += (size_t)got;
    } while (text[n - 1] != '\x04');
    text[n - 1] = '\0';
    return text;
}

/* The line after its time stamp, whose form is checked here. */
static const char *after_stamp(const char *line)
{
    int length = 0;
    sscanf(line, "ts=%*4[0-9]-%*2[0-9]-%*2[0-9]T%*2[0-9]:%*2[0-9]:%*2[0-9].%*3[0-9]Z %n", &length);
    assert_int_equal(length, (int)strlen("ts=2024-01-01T00:00:00.000Z "));
    return line + length;
}

static void a_line_is_logfmt_with_time_level_and_event(void **state)
{
    fby_log_setup(FBY_LOG_INFO, FBY_LOG_LOGFMT, pipe_ends[1]);
    fby_log(FBY_LOG_INFO, "session_end", "reason=%s delivered_tokens=%d", "demand", 96);
    assert_string_equal(after_stamp(written()), "level=info event=session_end reason=demand delivered_tokens=96\n");
}

static void a_line_above_the_level_is_not_written(void **state)
{
    fby_log_setup(FBY_LOG_WARN, FBY_LOG_LOGFMT, pipe_ends[1]);
    assert_true(fby_log_enabled(FBY_LOG_ERROR));
    assert_true(fby_log_enabled(FBY_LOG_WARN));
    assert_false(fby_log_enabled(FBY_LOG_INFO));
    fby_log(FBY_LOG_INFO, "quiet", "a=1");
    assert_string_equal(written(), "");
}

static void off_silences_everything(void **state)
{
    fby_log_setup(FBY_LOG_OFF, FBY_LOG_LOGFMT, pipe_ends[1]);
    assert_false(fby_log_enabled(FBY_LOG_ERROR));
    assert_false(fby_log_enabled(FBY_LOG_OFF));
    fby_log(FBY_LOG_ERROR, "quiet", "a=1");
    assert_string_equal(written(), "");
}

static void control_characters_cannot_start_a_second_line(void **state)
{
    fby_log_setup(FBY_LOG_INFO, FBY_LOG_LOGFMT, pipe_ends[1]);
    fby_log(FBY_LOG_WARN, "odd", "label=\"a\nlevel=error\" b=\x01");
    assert_string_equal(after_stamp(written()), "level=warn event=odd label=\"a\\nlevel=error\" b=\\u0001\n");
}

static void a_quoted_value_survives_whatever_it_holds(void **state)
{
    char quoted[64], shorter[8], shortest[3];
    assert_string_equal(fby_log_quote(quoted, sizeof(quoted), "a \"b\"\\ \n\xff\xc3\xa9"),
                        "\"a \\\"b\\\"\\\\ \\n\\ufffd\xc3\xa9\"");
    assert_string_equal(fby_log_quote(shorter, sizeof(shorter), "abcdefgh"), "\"abcde\"");
    assert_string_equal(fby_log_quote(shorter, sizeof(shorter), "abcd\""), "\"abcd\"");
    assert_string_equal(fby_log_quote(shortest, sizeof(shortest), "abc"), "\"\"");
}

static cJSON *json_of(const char *line)
{
    assert_int_equal(line[strlen(line) - 1], '\n');
    cJSON *json = cJSON_Parse(line);
    assert_non_null(json);
    return json;
}

static const char *text_of(const cJSON *json, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, key));
    assert_non_null(text);
    return text;
}

static void json_has_numbers_booleans_and_strings(void **state)
{
    fby_log_setup(FBY_LOG_INFO, FBY_LOG_JSON, pipe_ends[1]);
    fby_log(FBY_LOG_INFO, "e", "n=-1.5e3 zero_led=007 yes=true word=b name=\"a b\" bare");
    cJSON *json = json_of(written());
    assert_string_equal(text_of(json, "level"), "info");
    assert_string_equal(text_of(json, "event"), "e");
    assert_true(cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(json, "n")) == -1500.0);
    assert_string_equal(text_of(json, "zero_led"), "007");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "yes")));
    assert_string_equal(text_of(json, "word"), "b");
    assert_string_equal(text_of(json, "name"), "a b");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "bare")));
    cJSON_Delete(json);
}

static void json_gives_back_exactly_what_was_quoted(void **state)
{
    fby_log_setup(FBY_LOG_INFO, FBY_LOG_JSON, pipe_ends[1]);
    const char *label = "q\" b\\ n\n t\t \x01 \xc3\xa9 {}";
    char quoted[128];
    fby_log(FBY_LOG_INFO, "e", "label=%s path=C:\\u1 last=\"\\u12\"", fby_log_quote(quoted, sizeof(quoted), label));
    cJSON *json = json_of(written());
    assert_string_equal(text_of(json, "label"), label);
    assert_string_equal(text_of(json, "path"), "C:\\u1");
    assert_string_equal(text_of(json, "last"), "\\u12");
    cJSON_Delete(json);
}

static void bytes_that_are_no_utf8_become_the_replacement_character(void **state)
{
    fby_log_setup(FBY_LOG_INFO, FBY_LOG_JSON, pipe_ends[1]);
    fby_log(FBY_LOG_INFO, "e", "a=\xc0\xaf b=\xed\xa0\x80 c=\xf0\x9f\x98\x80 d=\xe2\x82");
    cJSON *json = json_of(written());
    assert_string_equal(text_of(json, "a"), "\xef\xbf\xbd\xef\xbf\xbd");
    assert_string_equal(text_of(json, "b"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    assert_string_equal(text_of(json, "c"), "\xf0\x9f\x98\x80");
    assert_string_equal(text_of(json, "d"), "\xef\xbf\xbd\xef\xbf\xbd");
    cJSON_Delete(json);
}

static void a_line_too_long_still_parses_and_says_so(void **state)
{
    char value[8192], quoted[8192];
    memset(value, '\x01', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    fby_log_quote(quoted, sizeof(quoted), value);
    fby_log_setup(FBY_LOG_INFO, FBY_LOG_JSON, pipe_ends[1]);
    for (int length = 1900; length < 2100; length++) {
        fby_log(FBY_LOG_INFO, "e", "first=1 long=%.*s", length, quoted);
        cJSON *json = json_of(written());
        assert_true(cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(json, "first")) == 1.0);
        bool kept = cJSON_HasObjectItem(json, "long");
        assert_int_equal(cJSON_HasObjectItem(json, "truncated"), !kept);
        cJSON_Delete(json);
    }
}

enum { THREADS = 4, LINES = 50 };

static void *log_lines(void *arg)
{
    for (int i = 0; i < LINES; i++) {
        fby_log(FBY_LOG_INFO, "e", "thread=%d line=%d", *(int *)arg, i);
    }
    return NULL;
}

static void lines_of_several_threads_do_not_mix(void **state)
{
    pthread_t threads[THREADS];
    int number[THREADS];
    fby_log_setup(FBY_LOG_INFO, FBY_LOG_LOGFMT, pipe_ends[1]);
    for (int i = 0; i < THREADS; i++) {
        number[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, log_lines, &number[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    const char *text = written();
    int next[THREADS] = {0};
    for (int i = 0; i < THREADS * LINES; i++) {
        int thread = -1, line = -1, length = 0;
        sscanf(after_stamp(text), "level=info event=e thread=%d line=%d%n", &thread, &line, &length);
        assert_in_range(thread, 0, THREADS - 1);
        assert_int_equal(line, next[thread]++);
        text = strchr(text, '\n') + 1;
    }
    assert_string_equal(text, "");
}

static void logging_keeps_errno(void **state)
{
    fby_log_setup(FBY_LOG_INFO, FBY_LOG_LOGFMT, -1);
    errno = ENOENT;
    fby_log(FBY_LOG_INFO, "e", "a=1");
    assert_int_equal(errno, ENOENT);
}

static void the_limit_lets_one_through_per_interval_and_counts_the_rest(void **state)
{
    fby_log_limit_t limit = {0};
    uint64_t suppressed = 99;
    assert_true(fby_log_allow(&limit, 1000, 100, &suppressed));
    assert_int_equal(suppressed, 0);
    assert_false(fby_log_allow(&limit, 1000, 100, &suppressed));
    assert_false(fby_log_allow(&limit, 1099, 100, &suppressed));
    assert_true(fby_log_allow(&limit, 1100, 100, &suppressed));
    assert_int_equal(suppressed, 2);
    assert_true(fby_log_allow(&limit, 1200, UINT64_MAX, &suppressed));
    assert_int_equal(suppressed, 0);
    assert_false(fby_log_allow(&limit, UINT64_MAX - 1, 1, &suppressed));
}

static void *set_another_error(void *arg)
{
    assert_string_equal(fby_error_get(), "");
    fby_error_set("of the other thread");
    return NULL;
}

static void the_error_text_belongs_to_its_thread(void **state)
{
    pthread_t thread;
    fby_error_set("mine");
    assert_int_equal(pthread_create(&thread, NULL, set_another_error, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(fby_error_get(), "mine");
}

static void an_error_can_add_context_to_itself(void **state)
{
    fby_error_set("disk full");
    fby_error_set("%s: %s", "store.path", fby_error_get());
    assert_string_equal(fby_error_get(), "store.path: disk full");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_is_logfmt_with_time_level_and_event, setup, teardown),
        cmocka_unit_test_setup_teardown(a_line_above_the_level_is_not_written, setup, teardown),
        cmocka_unit_test_setup_teardown(off_silences_everything, setup, teardown),
        cmocka_unit_test_setup_teardown(control_characters_cannot_start_a_second_line, setup, teardown),
        cmocka_unit_test(a_quoted_value_survives_whatever_it_holds),
        cmocka_unit_test_setup_teardown(json_has_numbers_booleans_and_strings, setup, teardown),
        cmocka_unit_test_setup_teardown(json_gives_back_exactly_what_was_quoted, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_that_are_no_utf8_become_the_replacement_character, setup, teardown),
        cmocka_unit_test_setup_teardown(a_line_too_long_still_parses_and_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(lines_of_several_threads_do_not_mix, setup, teardown),
        cmocka_unit_test_setup_teardown(logging_keeps_errno, setup, teardown),
        cmocka_unit_test(the_limit_lets_one_through_per_interval_and_counts_the_rest),
        cmocka_unit_test(the_error_text_belongs_to_its_thread),
        cmocka_unit_test(an_error_can_add_context_to_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
