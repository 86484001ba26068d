#include "fixture.h"

#include "stores/redis_reply.h"

static fby_reply_t reply;
static char sink[8];

/* Feeds a plain reply in pieces of `piece` bytes; how many bytes were taken. */
static size_t feed(const char *bytes, size_t piece, void *to, uint64_t expected)
{
    size_t length = strlen(bytes), at = 0;
    memset(sink, '.', sizeof(sink));
    fby_reply_begin(&reply, to, expected);
    while (at < length && !fby_reply_is_over(&reply)) {
        size_t n = FBY_MIN(piece, length - at);
        at += fby_reply_feed(&reply, bytes + at, n);
    }
    return at;
}

static void each_kind_of_reply_is_read_in_any_pieces(void **state)
{
    for (size_t piece = 1; piece < 40; piece++) {
        assert_int_equal(feed("+OK\r\n", piece, NULL, 0), 5);
        assert_int_equal(reply.type, FBY_REPLY_STATUS);
        assert_string_equal(reply.line, "OK");
        assert_int_equal(feed("-ERR no\r\n", piece, NULL, 0), 9);
        assert_int_equal(reply.type, FBY_REPLY_ERROR);
        assert_string_equal(reply.line, "ERR no");
        assert_int_equal(feed(":-12\r\n", piece, NULL, 0), 6);
        assert_int_equal(reply.type, FBY_REPLY_INTEGER);
        assert_int_equal(reply.value, -12);
        assert_int_equal(feed("$-1\r\n", piece, sink, 3), 5);
        assert_int_equal(reply.type, FBY_REPLY_NIL);
        assert_int_equal(feed("$3\r\na\r\n\r\n", piece, sink, 3), 9);
        assert_int_equal(reply.type, FBY_REPLY_BULK);
        assert_true(reply.stored && reply.state == FBY_REPLY_DONE);
        assert_memory_equal(sink, "a\r\n.....", 8);
        assert_int_equal(feed("$0\r\n\r\n", piece, sink, 0), 6);
        assert_int_equal(reply.state, FBY_REPLY_DONE);
    }
}

static void it_ends_where_the_reply_ends(void **state)
{
    assert_int_equal(feed(":1\r\n:2\r\n", 100, NULL, 0), 4);
    assert_int_equal(fby_reply_feed(&reply, ":2\r\n", 4), 0);
}

static void another_length_is_passed_over(void **state)
{
    for (size_t piece = 1; piece < 20; piece++) {
        assert_int_equal(feed("$5\r\nabcde\r\n", piece, sink, 4), 11);
        assert_true(reply.state == FBY_REPLY_DONE && !reply.stored);
        assert_int_equal(reply.value, 5);
        assert_memory_equal(sink, "........", 8);
        assert_int_equal(feed("$2\r\nab\r\n", piece, sink, 4), 8);
        assert_false(reply.stored);
        assert_memory_equal(sink, "........", 8);
    }
}

static void the_payload_can_be_received_in_place(void **state)
{
    size_t room = 99;
    assert_int_equal(feed("$6\r\nab", 100, sink, 6), 6);
    assert_ptr_equal(fby_reply_direct(&reply, &room), sink + 2);
    assert_int_equal(room, 4);
    memcpy(sink + 2, "cd", 2);
    fby_reply_took(&reply, 2);
    assert_ptr_equal(fby_reply_direct(&reply, &room), sink + 4);
    assert_int_equal(room, 2);
    memcpy(sink + 4, "ef", 2);
    fby_reply_took(&reply, 2);
    assert_null(fby_reply_direct(&reply, &room));
    assert_int_equal(fby_reply_feed(&reply, "\r\n", 2), 2);
    assert_int_equal(reply.state, FBY_REPLY_DONE);
    assert_memory_equal(sink, "abcdef..", 8);
    assert_int_equal(feed("$6\r\nab", 100, sink, 5), 6);
    assert_null(fby_reply_direct(&reply, &room)); /* what is passed over has no place */
}

static void what_is_not_the_protocol_is_broken(void **state)
{
    static const char *const wrong[] = {
        "\r\n",
        "x\r\n",
        "OK\r\n",
        "$\r\n",
        "$-\r\n",
        "$-2\r\n",
        "$1x\r\n",
        ": 1\r\n",
        ":1\n",
        ":1\rx",
        "$3\r\nabcde",
        "$3\r\nabc\rx",
        "*1\r\n",
        "*-1\r\n",
        "$536870913\r\n",
        "*0\r\n",
        ":1234567890123456789\r\n",
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(wrong); i++) {
        for (size_t piece = 1; piece < 30; piece++) {
            feed(wrong[i], piece, sink, 3);
            assert_int_equal(reply.state, FBY_REPLY_BROKEN);
        }
    }
}

static void a_line_has_a_longest_length(void **state)
{
    char line[FBY_REPLY_LINE_MOST + 8];
    memset(line, 'x', sizeof(line));
    line[0] = '-';
    memcpy(line + FBY_REPLY_LINE_MOST - 1, "\r\n", 3);
    feed(line, 100, NULL, 0);
    assert_int_equal(reply.state, FBY_REPLY_DONE);
    assert_int_equal(reply.line_length, FBY_REPLY_LINE_MOST - 2);
    memset(line, 'x', sizeof(line));
    line[0] = '-';
    line[sizeof(line) - 1] = '\0';
    feed(line, 100, NULL, 0);
    assert_int_equal(reply.state, FBY_REPLY_BROKEN);
}

static fby_reply_state_t tree(const char *bytes, size_t piece, uint64_t bulk_most, uint32_t elements_most)
{
    size_t length = strlen(bytes), at = 0;
    fby_reply_begin_tree(&reply, bulk_most, elements_most);
    while (at < length && !fby_reply_is_over(&reply)) {
        at += fby_reply_feed(&reply, bytes + at, FBY_MIN(piece, length - at));
    }
    return at == length ? reply.state : FBY_REPLY_BROKEN;
}

static void trees_end_with_their_last_leaf(void **state)
{
    for (size_t piece = 1; piece < 50; piece++) {
        assert_int_equal(tree("*2\r\n$1\r\n0\r\n*2\r\n*0\r\n*1\r\n:7\r\n", piece, 10, 10), FBY_REPLY_DONE);
        assert_int_equal(reply.type, FBY_REPLY_ARRAY);
        assert_int_equal(reply.value, 2);
        assert_int_equal(tree("*-1\r\n", piece, 10, 10), FBY_REPLY_DONE);
        assert_int_equal(reply.type, FBY_REPLY_NIL);
        assert_int_equal(tree("*2\r\n+a\r\n", piece, 10, 10), FBY_REPLY_LINE);
        assert_int_equal(tree("*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", piece, 10, 10), FBY_REPLY_DONE);
    }
}

static void trees_have_bounds(void **state)
{
    assert_int_equal(tree("*11\r\n", 9, 10, 10), FBY_REPLY_BROKEN);
    assert_int_equal(tree("*2\r\n*4\r\n*5\r\n", 9, 10, 10), FBY_REPLY_BROKEN); /* all together */
    assert_int_equal(tree("*1\r\n$11\r\n", 9, 10, 10), FBY_REPLY_BROKEN);
    assert_int_equal(tree("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", 9, 10, 10), FBY_REPLY_BROKEN);
    assert_int_equal(tree("*-2\r\n", 9, 10, 10), FBY_REPLY_BROKEN);
}

static void errors_are_known_by_their_whole_first_word(void **state)
{
    assert_int_equal(fby_redis_error_code("OOM command not allowed"), FBY_E_FULL);
    assert_int_equal(fby_redis_error_code("OOM"), FBY_E_FULL);
    assert_int_equal(fby_redis_error_code("OOMPH"), FBY_E_INVALID);
    assert_int_equal(fby_redis_error_code("LOADING x"), FBY_E_CONNECTION);
    assert_int_equal(fby_redis_error_code(""), FBY_E_INVALID);
    assert_true(fby_redis_error_is("MOVED 1 a:2", "MOVED"));
    assert_false(fby_redis_error_is("MOVEDX", "MOVED"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_reply_is_read_in_any_pieces),
        cmocka_unit_test(it_ends_where_the_reply_ends),
        cmocka_unit_test(another_length_is_passed_over),
        cmocka_unit_test(the_payload_can_be_received_in_place),
        cmocka_unit_test(what_is_not_the_protocol_is_broken),
        cmocka_unit_test(a_line_has_a_longest_length),
        cmocka_unit_test(trees_end_with_their_last_leaf),
        cmocka_unit_test(trees_have_bounds),
        cmocka_unit_test(errors_are_known_by_their_whole_first_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
