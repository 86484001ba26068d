/* A view as lines and as JSON: what fits in a line, what is short enough to be exact, what a terminal must not see. */
#include <string.h>

#include "base/clock.h"
#include "cli/top_view.h"
#include "unit.h"

#define CLIENTS "\n\nclient  " /* where their table begins */

static fby_view_t quiet(void)
{
    return (fby_view_t){
        .taken_ns = 10 * FBY_SECOND,
        .model = {.block_tokens = 16, .groups = 1, .fingerprint = "00ff"},
        .health = {.healthy = 1},
        .server = {.pid = 17, .age_ns = 3 * 3600 * FBY_SECOND, .clients = 1, .version = "0.1.0"},
        .clients = 1,
        .client = {{.client = 5, .pid = 99, .uid = 1000, .name = "a\x1b[2Jb\xC3\xBC"}},
    };
}

static char page[1 << 16];

static char *lines_of(const fby_view_t *view, const fby_view_t *before, size_t width, size_t clients)
{
    FILE *out = fmemopen(page, sizeof(page), "w");
    fby_view_print(out, "/run/s", view, before, width, clients);
    fclose(out);
    return page;
}

static size_t widest(const char *text)
{
    size_t most = 0;
    while (*text != '\0') {
        size_t bytes = strcspn(text, "\n");
        most = FBY_MAX(most, bytes);
        text += bytes + (text[bytes] == '\n');
    }
    return most;
}

static void figures_are_aligned_and_exact_while_they_are_short(void **state)
{
    fby_view_t view = quiet();
    view.stats.sessions_running_gauge = 3;
    view.stats.sessions = 9999999;
    view.stats.tokens_found = 10000000;
    view.stats.tokens_delivered = 7500000;
    view.stats.tokens_loaded = 5000000;
    view.stats.reserved_bytes_gauge = 1536;
    view.limit.reserved = UINT64_C(512) << 20;
    char *text = lines_of(&view, NULL, 80, 9);
    assert_true(strncmp(text,
                        "forebay 0.1.0  /run/s\n"
                        "process 17, up 3 h, 1 client\n"
                        "healthy; breaker closed\n\n"
                        "sessions running                          3  parked                           0\n"
                        "         started                    9999999  leases                           0\n",
                        strlen("forebay 0.1.0  /run/s\n") + 28 + 25 + 1 + 2 * 80) == 0);
    assert_non_null(strstr(text, "found                       10.00M"));
    assert_non_null(strstr(text, "delivered/found              75.0%  from memory                  33.3%\n"));
    assert_non_null(strstr(text, "budgets  reserved          1.5KiB of 512MiB  pinned                          0B\n"));
}

static void what_terminals_obey_is_not_printed(void **state)
{
    fby_view_t view = quiet();
    view.health.healthy = 0;
    strcpy(view.health.message, "bad\x1b]0;x\a\nnews");
    char *text = lines_of(&view, NULL, 80, 9);
    assert_null(strpbrk(text, "\x1b\a"));
    assert_non_null(strstr(text, "NOT HEALTHY; breaker closed; bad?]0;x??news\n"));
    assert_non_null(strstr(text, "  a?[2Jb??\n"));
}

static void lines_are_as_wide_as_asked_for(void **state)
{
    fby_view_t view = quiet();
    view.clients = 0;
    view.server.clients = 0;
    static const size_t widths[] = {FBY_VIEW_LEAST_WIDTH, 79, 80, 114, 115, 116, 200};
    size_t lines_before = SIZE_MAX;
    for (size_t i = 0; i < FBY_ARRAY_LEN(widths); i++) {
        char *text = lines_of(&view, NULL, widths[i], 0);
        size_t lines = 0;
        assert_non_null(strstr(text, CLIENTS));
        *strstr(text, CLIENTS) = '\0';
        assert_true(widest(text) <= widths[i]);
        for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
            lines++;
        }
        assert_true(lines <= lines_before); /* wider: never more lines */
        lines_before = lines;
    }
}

static void rates_are_of_what_grew_since(void **state)
{
    fby_view_t before = quiet(), view = quiet();
    view.taken_ns = before.taken_ns + 2 * FBY_SECOND;
    before.stats.sessions = 10;
    view.stats.sessions = 34;
    before.stats.bytes_read = 0;
    view.stats.bytes_read = UINT64_C(4) << 30;
    before.stats.graphs = 50; /* a server that was restarted */
    view.stats.graphs = 3;
    char *text = lines_of(&view, &before, 80, 9);
    assert_non_null(strstr(text, "started                   34 +12/s"));
    assert_non_null(strstr(text, "read                  4GiB +2GiB/s"));
    assert_non_null(strstr(text, "graphs                           3"));
    text = lines_of(&view, &view, 80, 9); /* no time passed: no rate, no division */
    assert_null(strchr(text, '+'));
}

static void clients_that_do_not_fit_are_counted(void **state)
{
    fby_view_t view = quiet();
    view.server.clients = 300;
    view.clients = FBY_VIEW_CLIENTS;
    char *text = lines_of(&view, NULL, 80, 2);
    assert_non_null(strstr(text, "\nand 298 more\n"));
}

static void ages_and_sizes(void **state)
{
    char out[32];
    assert_string_equal(fby_view_age(119 * FBY_SECOND, out), "119 s");
    assert_string_equal(fby_view_age(120 * FBY_SECOND, out), "2 min");
    assert_string_equal(fby_view_age(7200 * FBY_SECOND, out), "2 h");
    assert_string_equal(fby_view_age(172800 * FBY_SECOND, out), "2 d");
    assert_string_equal(fby_view_bytes(1023, out), "1023B");
    assert_string_equal(fby_view_bytes(1024, out), "1KiB");
    assert_string_equal(fby_view_bytes(1536, out), "1.5KiB");
    assert_string_equal(fby_view_bytes(UINT64_MAX, out), "16EiB");
}

static void json_has_null_where_nothing_is_known(void **state)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    fby_view_t view = quiet();
    fby_json_t json;
    fby_json_init(&json, out);
    view.limit.pinned = 7;
    fby_view_json(&json, "/run/s", &view);
    fby_view_json(&json, "/run/s", NULL);
    fclose(out);
    assert_non_null(
        strstr(text, "\"budgets\":{\"reserved\":{\"value\":0,\"of\":null},\"pinned\":{\"value\":0,\"of\":7},"));
    assert_non_null(strstr(text, "\"hits\":{\"delivered_ratio\":null,\"memory_ratio\":null}"));
    assert_non_null(strstr(text, "\"name\":\"a?[2Jb??\",\"client\":5,\"process\":99,\"user\":1000,"));
    assert_non_null(strstr(text, "}\n{\"socket\":\"/run/s\",\"connected\":false}\n"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_aligned_and_exact_while_they_are_short),
        cmocka_unit_test(what_terminals_obey_is_not_printed),
        cmocka_unit_test(lines_are_as_wide_as_asked_for),
        cmocka_unit_test(rates_are_of_what_grew_since),
        cmocka_unit_test(clients_that_do_not_fit_are_counted),
        cmocka_unit_test(ages_and_sizes),
        cmocka_unit_test(json_has_null_where_nothing_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
