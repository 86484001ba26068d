#include "server/protocol.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const fby_request_shape_t shapes[FBY_REQUEST_COUNT] = {
#define FBY_X(name_, body_, element_, most_, answer_, answer_element_, answer_most_)                                   \
    [FBY_REQUEST_##                                                                                                    \
        name_] = {#name_, sizeof(body_), (element_), (most_), sizeof(answer_), (answer_element_), (answer_most_)},
    FBY_REQUEST_MAP(FBY_X)
#undef FBY_X
};

const fby_request_shape_t *fby_request_shape(uint32_t type)
{
    return type > FBY_REQUEST_NONE && type < FBY_REQUEST_COUNT ? &shapes[type] : NULL;
}

/* How many elements `bytes` are; false when they are no whole number of them, or too many. */
static bool elements_of(size_t bytes, uint32_t element, uint32_t most, uint32_t *count)
{
    *count = element > 0 ? (uint32_t)(bytes / element) : 0;
    return (size_t)*count * element == bytes && *count <= most;
}

static bool head_is(const fby_msg_head_t *head, size_t length)
{
    return head->magic == FBY_MSG_MAGIC && head->version == FBY_MSG_VERSION && head->bytes == length;
}

bool fby_request_parse(const void *bytes, size_t length, fby_request_view_t *out)
{
    const fby_msg_head_t *head = bytes;
    if (length < sizeof(*head) || length > FBY_MSG_MOST || !head_is(head, length)) {
        return false;
    }
    const fby_request_shape_t *shape = fby_request_shape(head->type);
    if (shape == NULL || length - sizeof(*head) < shape->body) {
        return false;
    }
    const uint8_t *body = (const uint8_t *)(head + 1);
    *out = (fby_request_view_t){
        .type = (fby_request_t)head->type,
        .serial = head->serial,
        .body = shape->body > 0 ? body : NULL,
        .elements = body + shape->body,
    };
    return elements_of(length - sizeof(*head) - shape->body, shape->element, shape->most, &out->count);
}

size_t fby_request_build(fby_request_t type, uint32_t serial, const void *body, const void *elements, uint32_t count,
                         void *out)
{
    const fby_request_shape_t *shape = fby_request_shape(type);
    if (shape == NULL || count > shape->most) {
        return 0;
    }
    size_t tail = (size_t)count * shape->element;
    size_t length = sizeof(fby_msg_head_t) + shape->body + tail;
    const fby_msg_head_t head = {FBY_MSG_MAGIC, FBY_MSG_VERSION, (uint16_t)type, (uint32_t)length, serial};
    uint8_t *at = out;
    memcpy(at, &head, sizeof(head));
    at += sizeof(head);
    if (body != NULL) {
        memcpy(at, body, shape->body);
    } else {
        memset(at, 0, shape->body);
    }
    if (tail > 0) {
        memcpy(at + shape->body, elements, tail);
    }
    return length;
}

/* ---- Answers ---------------------------------------------------------------------------------------------------- */

static bool has_body(int32_t code)
{
    return code >= 0 || code == FBY_MSG_E_RESEND;
}

bool fby_answer_parse(fby_request_t type, const void *bytes, size_t length, fby_answer_view_t *out)
{
    const fby_msg_answer_t *answer = bytes;
    const fby_request_shape_t *shape = fby_request_shape(type);
    if (shape == NULL || length < sizeof(*answer) || length > FBY_MSG_MOST || !head_is(&answer->head, length) ||
        answer->head.type != type) {
        return false;
    }
    const uint8_t *body = (const uint8_t *)(answer + 1);
    size_t rest = length - sizeof(*answer);
    *out = (fby_answer_view_t){.serial = answer->head.serial, .code = answer->code};
    if (!has_body(answer->code)) {
        out->text = (const char *)body;
        out->text_bytes = rest;
        return answer->count == 0;
    }
    if (rest < shape->answer_body) {
        return false;
    }
    out->body = body;
    out->elements = body + shape->answer_body;
    return elements_of(rest - shape->answer_body, shape->answer_element, shape->answer_most, &out->count) &&
           out->count == answer->count;
}

static size_t fill_body(const fby_request_shape_t *shape, const void *body, const void *elements, uint32_t count,
                        uint8_t *at)
{
    size_t tail = (size_t)count * shape->answer_element;
    if (body != NULL) {
        memcpy(at, body, shape->answer_body);
    } else {
        memset(at, 0, shape->answer_body);
    }
    if (tail > 0) {
        memcpy(at + shape->answer_body, elements, tail);
    }
    return shape->answer_body + tail;
}

size_t fby_answer_build(fby_request_t type, uint32_t serial, int32_t code, const void *body, const void *elements,
                        uint32_t count, const char *text, void *out)
{
    const fby_request_shape_t *shape = fby_request_shape(type);
    if (shape == NULL || (has_body(code) && count > shape->answer_most)) {
        return 0;
    }
    fby_msg_answer_t answer = {.head = {FBY_MSG_MAGIC, FBY_MSG_VERSION, (uint16_t)type, 0, serial}, .code = code};
    uint8_t *at = (uint8_t *)out + sizeof(answer);
    size_t length;
    if (has_body(code)) {
        answer.count = shape->answer_element > 0 ? count : 0;
        length = fill_body(shape, body, elements, answer.count, at);
    } else {
        length = text != NULL ? strnlen(text, FBY_MSG_MOST - sizeof(answer)) : 0;
        memcpy(at, text != NULL ? text : "", length);
    }
    answer.head.bytes = (uint32_t)(sizeof(answer) + length);
    memcpy(out, &answer, sizeof(answer));
    return answer.head.bytes;
}

/* ---- Sockets ---------------------------------------------------------------------------------------------------- */

typedef union control {
    struct cmsghdr head; /* for its alignment */
    char bytes[CMSG_SPACE(FBY_MSG_FDS * sizeof(int))];
} control_t;

ssize_t fby_message_send(int socket, const void *bytes, size_t length, const int *fd, size_t fds, int flags)
{
    control_t control = {0};
    struct iovec part = {(void *)(uintptr_t)bytes, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fds > FBY_MSG_FDS) {
        return -EINVAL;
    }
    if (fds > 0) {
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(fds * sizeof(int));
        memcpy(CMSG_DATA(&control.head), fd, fds * sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(fds * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(socket, &message, flags | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}

/* Descriptors that came along: into fd as far as there is room, else closed. How many came in all. */
static size_t take_descriptors(struct msghdr *message, int fd[FBY_MSG_FDS])
{
    size_t came = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++, came++) {
            int one;
            memcpy(&one, CMSG_DATA(c) + i * sizeof(int), sizeof(one));
            if (came < FBY_MSG_FDS) {
                fd[came] = one;
            } else {
                close(one);
            }
        }
    }
    return came;
}

ssize_t fby_message_receive(int socket, void *bytes, size_t capacity, int fd[FBY_MSG_FDS], size_t *fds, int flags)
{
    control_t control;
    struct iovec part = {bytes, capacity};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t received;
    *fds = 0;
    do {
        received = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received < 0) {
        return -errno;
    }
    size_t came = take_descriptors(&message, fd);
    /* cut short with room to spare: this process has no descriptor left, and the bytes are whole */
    bool no_room = (message.msg_flags & MSG_CTRUNC) != 0 && came < FBY_MSG_FDS;
    bool too_much = (message.msg_flags & MSG_TRUNC) != 0 || ((message.msg_flags & MSG_CTRUNC) != 0 && !no_room) ||
                    came > FBY_MSG_FDS;
    if (too_much || no_room || received == 0) {
        for (size_t i = 0; i < FBY_MIN(came, (size_t)FBY_MSG_FDS); i++) {
            close(fd[i]);
        }
        return too_much ? -EMSGSIZE : received;
    }
    *fds = came;
    return received;
}
