/* test_perform.c - what is said: one line per session, rate-limited, and nothing of prompts or namespaces. */
#include <fcntl.h>
#include <unistd.h>

#include "api/rig.h"
#include "base/base.h"

static char heard[1 << 16];

/* Everything that is logged while `talk` runs. */
static void listen_to(void (*talk)(rig_t *), const char *const *settings)
{
    char path[] = "/tmp/forebay-log-XXXXXX";
    rig_t rig;
    int file = mkstemp(path), stderr_copy = dup(STDERR_FILENO);
    assert_true(file >= 0 && stderr_copy >= 0);
    unlink(path);
    fflush(stderr);
    dup2(file, STDERR_FILENO);
    rig_open(&rig, settings);
    talk(&rig);
    rig_close(&rig);
    dup2(stderr_copy, STDERR_FILENO);
    close(stderr_copy);
    ssize_t n = pread(file, heard, sizeof(heard) - 1, 0);
    heard[n > 0 ? n : 0] = '\0';
    close(file);
}

static unsigned lines_with(const char *text)
{
    unsigned count = 0;
    for (const char *at = heard; (at = strstr(at, text)) != NULL; at++) {
        count++;
    }
    return count;
}

static void one_labelled_session(rig_t *rig)
{
    fby_session_t session;
    fby_seq_t *seq;
    fby_session_options_t options = FBY_SESSION_OPTIONS_INIT;
    const fby_ns_part_t secret = {.type = FBY_NS_TENANT, .data = "hush-hush", .length = 9};
    uint32_t tokens[40] = {0x5EC2E7};
    assert_int_equal(fby_seq_create(rig->cache, tokens, 40, &secret, 1, &seq), 0);
    options.label = "request \"17\"\nforged=1";
    assert_int_equal(fby_session_start(rig->cache, seq, &options, &session), 0);
    rig_wait(rig, session);
    fby_session_release(rig->cache, session);
    fby_seq_unref(seq);
    rig_quiet(rig);
}

static void a_session_is_one_line_without_secrets(void **state)
{
    (void)state;
    listen_to(one_labelled_session, (const char *const[]){"log.level=info", NULL});
    assert_int_equal(lines_with("event=session "), 1);
    assert_non_null(strstr(heard, "label=\"request \\\"17\\\"\\nforged=1\""));
    assert_non_null(strstr(heard, "outcome=empty"));
    assert_non_null(strstr(heard, "reason=complete"));
    assert_null(strstr(heard, "hush"));
    assert_null(strstr(heard, "6210279")); /* the token */
}

static void one_session_that_ends_within_its_start(rig_t *rig)
{
    fby_session_t session;
    fby_seq_t *seq = rig_seq(rig, 1, 65);
    fby_session_options_t options = FBY_SESSION_OPTIONS_INIT;
    options.label = "at once";
    options.stop_mode = FBY_STOP_DETACH;
    options.min_tokens = 1000;
    assert_int_equal(fby_session_start(rig->cache, seq, &options, &session), 0);
    fby_session_release(rig->cache, session);
    fby_seq_unref(seq);
}

static void a_session_that_ends_within_its_start_has_its_own_label(void **state)
{
    (void)state;
    listen_to(one_session_that_ends_within_its_start, (const char *const[]){"log.level=info", NULL});
    assert_non_null(strstr(heard, "label=\"at once\" "));
    assert_non_null(strstr(heard, "stop_mode=detach"));
    assert_non_null(strstr(heard, "reason=below_threshold"));
}

static void json_lines_are_objects(void **state)
{
    (void)state;
    listen_to(one_labelled_session, (const char *const[]){"log.level=info", "log.format=json", NULL});
    assert_non_null(strstr(heard, "\"event\":\"session\""));
    assert_non_null(strstr(heard, "\"delivered_tokens\":0"));
}

static void many_sessions(rig_t *rig)
{
    for (int i = 0; i < 500; i++) {
        fby_seq_t *seq = rig_seq(rig, (uint64_t)i, 40);
        fby_session_t session = rig_start(rig, seq, FBY_POLICY_TIMEOUT, FBY_STOP_DRAIN, 0);
        fby_session_release(rig->cache, session);
        fby_seq_unref(seq);
    }
}

static void many_sessions_are_few_lines(void **state)
{
    (void)state;
    listen_to(many_sessions, (const char *const[]){"log.level=info", NULL});
    assert_in_range(lines_with("event=session "), 1, 400);
    assert_true(lines_with("reason=deadline") >= 1);
}

static void a_quiet_level_says_nothing(void **state)
{
    (void)state;
    listen_to(many_sessions, (const char *const[]){"log.level=error", NULL});
    assert_string_equal(heard, "");
}

static void one_corrupt_block(rig_t *rig)
{
    fby_seq_t *seq = rig_seq(rig, 1, 65);
    rig_store_blocks(rig, seq, 0, 4);
    rig_script_block(rig, seq, 2, "get", "corrupt(7)");
    fby_session_t session = rig_start(rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    rig_wait(rig, session);
    fby_session_release(rig->cache, session);
    fby_seq_unref(seq);
    rig_quiet(rig);
}

static void a_wrong_object_is_named_by_kind(void **state)
{
    (void)state;
    listen_to(one_corrupt_block, (const char *const[]){"log.level=warn", NULL});
    assert_int_equal(lines_with("event=wrong_objects"), 1);
    assert_non_null(strstr(heard, "=1 "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_is_one_line_without_secrets),
        cmocka_unit_test(json_lines_are_objects),
        cmocka_unit_test(many_sessions_are_few_lines),
        cmocka_unit_test(a_quiet_level_says_nothing),
        cmocka_unit_test(a_wrong_object_is_named_by_kind),
        cmocka_unit_test(a_session_that_ends_within_its_start_has_its_own_label),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
