/* test_protocol.c - exact lengths in both directions: what is a byte off is no message. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/protocol.h"
#include "unit.h"

static _Alignas(8) uint8_t message[FBY_MSG_MOST], body[4096], elements[FBY_MSG_MOST];

static void fill(uint8_t *bytes, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)unit_random(&seed);
    }
}

static int setup(void **state)
{
    fill(body, sizeof(body), 1);
    fill(elements, sizeof(elements), 2);
    return 0;
}

static void every_request_comes_back_as_it_was_built(void **state)
{
    for (uint32_t type = 1; type < FBY_REQUEST_COUNT; type++) {
        const fby_request_shape_t *shape = fby_request_shape(type);
        const uint32_t counts[] = {0, FBY_MIN(shape->most, 1), shape->most};
        for (size_t i = 0; i < FBY_ARRAY_LEN(counts); i++) {
            fby_request_view_t view;
            size_t length = fby_request_build((fby_request_t)type, 7, body, elements, counts[i], message);
            assert_int_equal(length, sizeof(fby_msg_head_t) + shape->body + counts[i] * shape->element);
            assert_true(fby_request_parse(message, length, &view));
            assert_int_equal(view.type, type);
            assert_int_equal(view.serial, 7);
            assert_int_equal(view.count, counts[i]);
            assert_memory_equal(view.body, body, shape->body);
            assert_memory_equal(view.elements, elements, counts[i] * shape->element);
        }
        assert_int_equal(fby_request_build((fby_request_t)type, 7, body, elements, shape->most + 1, message), 0);
    }
}

/* The head says the length it would have: so only the length itself is wrong. */
static void reseal(size_t length)
{
    fby_msg_head_t head;
    memcpy(&head, message, sizeof(head));
    head.bytes = (uint32_t)length;
    memcpy(message, &head, sizeof(head));
}

static void every_other_length_is_no_request(void **state)
{
    for (uint32_t type = 1; type < FBY_REQUEST_COUNT; type++) {
        const fby_request_shape_t *shape = fby_request_shape(type);
        fby_request_view_t view;
        size_t least = sizeof(fby_msg_head_t) + shape->body;
        size_t whole = fby_request_build((fby_request_t)type, 7, body, elements, FBY_MIN(shape->most, 2), message);
        for (size_t length = 0; length <= whole + 64; length++) {
            bool fits = length >= least && (shape->element == 0 ? length == least
                                                                : (length - least) % shape->element == 0 &&
                                                                      (length - least) / shape->element <= shape->most);
            reseal(length);
            assert_int_equal(fby_request_parse(message, length, &view), fits);
        }
        reseal(whole + 1); /* the head and the length differ */
        assert_false(fby_request_parse(message, whole, &view));
    }
}

static void a_count_beyond_the_most_is_no_request(void **state)
{
    fby_request_view_t view;
    size_t least = sizeof(fby_msg_head_t) + sizeof(fby_msg_none_t);
    (void)fby_request_build(FBY_REQUEST_SEQ_DROP, 1, NULL, elements, 1, message);
    reseal(least + (size_t)FBY_MSG_DROPS * 8);
    assert_true(fby_request_parse(message, least + (size_t)FBY_MSG_DROPS * 8, &view));
    reseal(least + (size_t)(FBY_MSG_DROPS + 1) * 8);
    assert_false(fby_request_parse(message, least + (size_t)(FBY_MSG_DROPS + 1) * 8, &view));
}

static void another_magic_version_or_type_is_no_request(void **state)
{
    static const struct {
        size_t at;
        uint8_t change;
    } changes[] = {{0, 1}, {3, 0x80}, {4, 1}, {5, 1}, {7, 0xff}};
    fby_request_view_t view;
    size_t length = fby_request_build(FBY_REQUEST_STATS, 1, NULL, NULL, 0, message);
    for (size_t i = 0; i < FBY_ARRAY_LEN(changes); i++) {
        message[changes[i].at] ^= changes[i].change;
        assert_false(fby_request_parse(message, length, &view));
        message[changes[i].at] ^= changes[i].change;
    }
    assert_true(fby_request_parse(message, length, &view));
    assert_null(fby_request_shape(FBY_REQUEST_NONE));
    assert_null(fby_request_shape(FBY_REQUEST_COUNT));
}

static void every_answer_comes_back_as_it_was_built(void **state)
{
    for (uint32_t type = 1; type < FBY_REQUEST_COUNT; type++) {
        const fby_request_shape_t *shape = fby_request_shape(type);
        fby_answer_view_t view;
        size_t length = fby_answer_build((fby_request_t)type, 9, 1, body, elements, shape->answer_most, NULL, message);
        assert_int_equal(length, sizeof(fby_msg_answer_t) + shape->answer_body +
                                     (size_t)shape->answer_most * shape->answer_element);
        assert_true(fby_answer_parse((fby_request_t)type, message, length, &view));
        assert_int_equal(view.code, 1);
        assert_int_equal(view.serial, 9);
        assert_int_equal(view.count, shape->answer_most);
        assert_memory_equal(view.body, body, shape->answer_body);
        assert_memory_equal(view.elements, elements, (size_t)view.count * shape->answer_element);
        assert_false(fby_answer_parse((fby_request_t)(type % (FBY_REQUEST_COUNT - 1) + 1), message, length, &view));
    }
}

static void a_failure_has_its_text_and_no_body(void **state)
{
    fby_answer_view_t view;
    size_t length = fby_answer_build(FBY_REQUEST_START, 3, FBY_E_STALE, body, elements, 1, "what it was", message);
    assert_true(fby_answer_parse(FBY_REQUEST_START, message, length, &view));
    assert_int_equal(view.code, FBY_E_STALE);
    assert_int_equal(view.text_bytes, 11);
    assert_memory_equal(view.text, "what it was", 11);
    assert_null(view.body);
    assert_int_equal(view.count, 0);
    length = fby_answer_build(FBY_REQUEST_START, 3, -ENOMEM, NULL, NULL, 0, NULL, message);
    assert_true(fby_answer_parse(FBY_REQUEST_START, message, length, &view));
    assert_int_equal(view.text_bytes, 0);
}

static void resend_has_its_body(void **state)
{
    fby_answer_view_t view;
    const fby_msg_numbers_t numbers = {{17}};
    size_t length = fby_answer_build(FBY_REQUEST_START, 3, FBY_MSG_E_RESEND, &numbers, NULL, 0, "unused", message);
    assert_true(fby_answer_parse(FBY_REQUEST_START, message, length, &view));
    assert_int_equal(((const fby_msg_numbers_t *)view.body)->number[0], 17);
    assert_false(fby_answer_parse(FBY_REQUEST_START, message, length - 1, &view));
}

/* ---- Sockets ---------------------------------------------------------------------------------------------------- */

static void descriptors_come_along_and_are_close_on_exec(void **state)
{
    int pair[2], fd[FBY_MSG_FDS];
    size_t fds;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fby_message_send(pair[0], body, 100, pair, 2, 0), 100);
    assert_int_equal(fby_message_receive(pair[1], message, sizeof(message), fd, &fds, 0), 100);
    assert_int_equal(fds, 2);
    assert_memory_equal(message, body, 100);
    for (size_t i = 0; i < fds; i++) {
        assert_true((fcntl(fd[i], F_GETFD) & FD_CLOEXEC) != 0);
        close(fd[i]);
    }
    assert_int_equal(fby_message_receive(pair[1], message, sizeof(message), fd, &fds, MSG_DONTWAIT), -EAGAIN);
    close(pair[0]);
    assert_int_equal(fby_message_receive(pair[1], message, sizeof(message), fd, &fds, 0), 0);
    assert_int_equal(fby_message_send(pair[1], body, 100, NULL, 0, 0), -EPIPE);
    close(pair[1]);
}

static void too_many_descriptors_or_bytes_are_refused_and_none_stays_open(void **state)
{
    int pair[2], fd[FBY_MSG_FDS];
    size_t fds;
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control = {.head = {CMSG_LEN(3 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec part = {body, 100};
    struct msghdr three = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const int given[3] = {pair[0], pair[0], pair[0]};
    memcpy(CMSG_DATA(&control.head), given, sizeof(given));
    int before = dup(pair[0]);
    close(before);
    assert_int_equal(sendmsg(pair[0], &three, 0), 100);
    assert_int_equal(fby_message_receive(pair[1], message, sizeof(message), fd, &fds, 0), -EMSGSIZE);
    assert_int_equal(fds, 0);
    assert_int_equal(fby_message_send(pair[0], body, 100, pair, 2, 0), 100);
    assert_int_equal(fby_message_receive(pair[1], message, 99, fd, &fds, 0), -EMSGSIZE);
    assert_int_equal(fds, 0);
    int after = dup(pair[0]); /* the lowest free number: nothing was left open */
    assert_int_equal(after, before);
    close(after);
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_comes_back_as_it_was_built),
        cmocka_unit_test(every_other_length_is_no_request),
        cmocka_unit_test(a_count_beyond_the_most_is_no_request),
        cmocka_unit_test(another_magic_version_or_type_is_no_request),
        cmocka_unit_test(every_answer_comes_back_as_it_was_built),
        cmocka_unit_test(a_failure_has_its_text_and_no_body),
        cmocka_unit_test(resend_has_its_body),
        cmocka_unit_test(descriptors_come_along_and_are_close_on_exec),
        cmocka_unit_test(too_many_descriptors_or_bytes_are_refused_and_none_stays_open),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
