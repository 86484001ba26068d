/* The first message of a runtime: each field that is wrong is refused by name, and the runtime is told. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/rig.h"
#include "agent/side.h"
#include "unit.h"

/* Sends what the rig has; expects the refusal here and the same text as FAILED there. Closes the rig. */
static void refused_with(rig_t *rig, int fds, const char *part)
{
    char error[512];
    fby_agent_t *agent = NULL;
    fby_wire_failed_t failed;
    rig_send(rig, fds);
    assert_int_equal(fby_agent_accept(rig->agent, &agent, error, sizeof(error)), FBY_E_FORMAT);
    assert_null(agent);
    if (strstr(error, part) == NULL) {
        fail_msg("'%s' does not say '%s'", error, part);
    }
    assert_int_equal(rig_receive(rig, &failed, sizeof(failed)), sizeof(failed));
    assert_int_equal(failed.head.type, FBY_WIRE_FAILED);
    assert_int_equal(failed.code, FBY_E_CONFIG);
    assert_string_equal(failed.text, error);
    rig_close(rig);
}

/* A right HELLO with one field changed. */
#define REFUSED(field, value, part)                                                                                    \
    do {                                                                                                               \
        rig_t rig_;                                                                                                    \
        rig_open(&rig_);                                                                                               \
        rig_hello(&rig_)->field = (value);                                                                             \
        refused_with(&rig_, FBY_WIRE_FDS, (part));                                                                     \
    } while (0)

static void each_wrong_field_is_named(void **state)
{
    REFUSED(head.magic, 1, "hello: magic is 00000001");
    REFUSED(head.version, 2, "hello: version is 2; this agent speaks 1");
    REFUSED(head.type, FBY_WIRE_PING, "hello: type is 4");
    REFUSED(head.bytes, 17, "hello: bytes is 17");
    REFUSED(spec.size, 4, "hello: spec.size is 4");
    REFUSED(spec.groups, 9, "hello: spec.groups is 9; accepted: at most 8");
    REFUSED(spec.alignment, 48, "hello: spec.alignment is 48");
    REFUSED(text_bytes, 5, "hello: text_bytes is 5");
    REFUSED(texts, 1, "hello: texts is 1; 2 NUL-terminated ones came");
    REFUSED(texts, 0, "hello: texts is 0");
    REFUSED(pool_bytes, 0, "hello: pool_bytes is 0");
    REFUSED(ring_bytes, 4096, "hello: ring_bytes is 4096");
}

static void texts_have_to_end(void **state)
{
    rig_t rig;
    rig_open(&rig);
    rig.packet[rig.packet_bytes - 1] = 'x';
    refused_with(&rig, FBY_WIRE_FDS, "hello: texts is 2; 1 NUL-terminated ones came");
    rig_open(&rig);
    rig_texts(&rig, (const char *const[]){"", "a=b", NULL});
    refused_with(&rig, FBY_WIRE_FDS, "hello: the driver's name is empty");
    rig_open(&rig);
    rig_texts(&rig, (const char *const[]){NULL});
    refused_with(&rig, FBY_WIRE_FDS, "hello: texts is 0");
}

static void a_short_message_is_refused(void **state)
{
    rig_t rig;
    rig_open(&rig);
    rig.packet_bytes = 8;
    refused_with(&rig, FBY_WIRE_FDS, "hello: 8 bytes are no message");
    rig_open(&rig);
    rig.packet_bytes = sizeof(fby_wire_head_t);
    rig_hello(&rig)->head.bytes = sizeof(fby_wire_head_t);
    refused_with(&rig, FBY_WIRE_FDS, "hello: bytes is 16, 16 came");
}

/* Replaces one of the rig's descriptors. */
static void swap_fd(rig_t *rig, int index, int fd)
{
    assert_true(fd >= 0);
    close(rig->fds[index]);
    rig->fds[index] = fd;
}

static int unsealed(off_t bytes)
{
    int fd = memfd_create("unsealed", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, bytes), 0);
    return fd;
}

static void descriptors_have_to_be_what_they_stand_for(void **state)
{
    rig_t rig;
    for (int fds = 0; fds < FBY_WIRE_FDS; fds++) {
        char part[64];
        rig_open(&rig);
        snprintf(part, sizeof(part), "hello: descriptors is %d; accepted: 2", fds);
        refused_with(&rig, fds, part);
    }
    rig_open(&rig);
    swap_fd(&rig, 0, unsealed((off_t)rig.ring_bytes));
    refused_with(&rig, FBY_WIRE_FDS, "hello: ring is not a memory file that is sealed");
    rig_open(&rig);
    swap_fd(&rig, 1, open("/dev/null", O_RDONLY | O_CLOEXEC));
    refused_with(&rig, FBY_WIRE_FDS, "hello: host is not a pidfd");
}

static void a_wrong_ring_is_refused(void **state)
{
    rig_t rig;
    rig_open(&rig);
    ((fby_ring_header_t *)rig.ring)->version = 7;
    refused_with(&rig, FBY_WIRE_FDS, "ring: version is 7; accepted: 1");
}

static void what_is_no_control_socket_is_refused(void **state)
{
    char error[512];
    fby_agent_t *agent;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(fby_agent_accept(null, &agent, error, sizeof(error)), -ENOTSOCK);
    assert_non_null(strstr(error, "this program is started by Forebay"));
    close(null);
    rig_t rig;
    rig_open(&rig);
    close(rig.host);
    rig.host = -1;
    assert_int_equal(fby_agent_accept(rig.agent, &agent, error, sizeof(error)), -ECONNRESET);
    assert_string_equal(error, "the runtime closed the control socket");
    rig_close(&rig);
}

static int lowest_free(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}

static void a_refusal_keeps_no_descriptor(void **state)
{
    rig_t rig;
    char error[512];
    fby_agent_t *agent;
    rig_open(&rig);
    rig_hello(&rig)->head.magic = 0;
    int before = lowest_free();
    rig_send(&rig, FBY_WIRE_FDS);
    assert_int_equal(fby_agent_accept(rig.agent, &agent, error, sizeof(error)), FBY_E_FORMAT);
    assert_int_equal(lowest_free(), before);
    rig_close(&rig);
}

/* In a child: an agent that was accepted has a watcher, which ends its process. */
static int check_accepted(int control_fd)
{
    char error[512];
    fby_agent_t *agent;
    if (fby_agent_accept(control_fd, &agent, error, sizeof(error)) != 0) {
        return 1;
    }
    const char *const *options = fby_agent_options(agent);
    const fby_store_spec_t *spec = fby_agent_spec(agent);
    bool same = strcmp(fby_agent_driver(agent), "redis") == 0 && strcmp(options[0], "host=::1") == 0 &&
                strcmp(options[1], "port=") == 0 && options[2] == NULL && spec->groups == 1 &&
                spec->slot_bytes[0] == RIG_SLOT_BYTES && fby_agent_lanes(agent) == RIG_LANES &&
                fby_agent_depth(agent) == RIG_DEPTH;
    return same && (fcntl(control_fd, F_GETFD) & FD_CLOEXEC) != 0 ? 0 : 2;
}

static void a_right_hello_arrives_as_it_was_sent(void **state)
{
    rig_t rig;
    rig_open(&rig);
    rig_texts(&rig, (const char *const[]){"redis", "host=::1", "port=", NULL});
    rig_send(&rig, FBY_WIRE_FDS);
    rig_fork(&rig, check_accepted);
    assert_int_equal(rig_wait(&rig), 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_wrong_field_is_named),     cmocka_unit_test(texts_have_to_end),
        cmocka_unit_test(a_short_message_is_refused),    cmocka_unit_test(descriptors_have_to_be_what_they_stand_for),
        cmocka_unit_test(a_wrong_ring_is_refused),       cmocka_unit_test(what_is_no_control_socket_is_refused),
        cmocka_unit_test(a_refusal_keeps_no_descriptor), cmocka_unit_test(a_right_hello_arrives_as_it_was_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
