/* test_hostile.c - traffic that no client of ours sends: it ends that connection only, and nobody else notices. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/call.h"
#include "core/handle.h"
#include "runtime/records.h"
#include "wire.h"

/* ---- Other clients' things -------------------------------------------------------------------------------------- */

/* One of each kind, of one client. */
typedef struct things {
    fby_session_t session;
    fby_hold_t hold;
    fby_put_t put;
    uint64_t subscription;
} things_t;

static things_t things_of(served_t *served, wire_t *wire)
{
    things_t things;
    uint64_t tokens, from, end;
    fby_seq_t *seq = rig_seq(&served->rig, 1, 16 * 8 + 1), *fresh = rig_seq(&served->rig, 2, 16 * 8 + 1);
    rig_put_stored(&served->rig, seq, 8);
    assert_int_equal(wire_start(wire, seq, 1, 0, &things.session), 0);
    (void)wire_await_answer(wire, things.session);
    assert_int_equal(wire_lookup(wire, seq, 1, 0, &things.hold, &tokens), 0);
    assert_int_equal(wire_put(wire, fresh, 2, 8, &things.put, &from, &end), 0);
    assert_int_equal(wire_object(wire, FBY_REQUEST_SUBSCRIBE, 0, 10, 0, 0), 0);
    things.subscription = ((const fby_msg_numbers_t *)wire->answer.body)->number[0];
    close(wire->fd[0]);
    fby_seq_unref(seq);
    fby_seq_unref(fresh);
    return things;
}

typedef struct attempt {
    fby_request_t type;
    size_t which; /* offset of the handle */
    uint32_t flags;
} attempt_t;

static const attempt_t attempts[] = {
    {FBY_REQUEST_STOP, offsetof(things_t, session), 0},
    {FBY_REQUEST_RELEASE, offsetof(things_t, session), 0},
    {FBY_REQUEST_DEMAND, offsetof(things_t, session), 0},
    {FBY_REQUEST_TAKE, offsetof(things_t, session), 0},
    {FBY_REQUEST_EVENT, offsetof(things_t, session), FBY_EVENT_OF_SESSION},
    {FBY_REQUEST_HOLD_INFO, offsetof(things_t, hold), 0},
    {FBY_REQUEST_HOLD_PLACES, offsetof(things_t, hold), 0},
    {FBY_REQUEST_HOLD_TRIM, offsetof(things_t, hold), 0},
    {FBY_REQUEST_HOLD_READERS, offsetof(things_t, hold), 0},
    {FBY_REQUEST_HOLD_RELEASE, offsetof(things_t, hold), 0},
    {FBY_REQUEST_PUT_PLACES, offsetof(things_t, put), 0},
    {FBY_REQUEST_PUT_COMMIT, offsetof(things_t, put), 0},
    {FBY_REQUEST_PUT_STORED, offsetof(things_t, put), 0},
    {FBY_REQUEST_PUT_END, offsetof(things_t, put), 0},
    {FBY_REQUEST_EVENT, offsetof(things_t, put), FBY_EVENT_OF_PUT},
    {FBY_REQUEST_GROUP_DONE, offsetof(things_t, hold), 0},
    {FBY_REQUEST_GROUP_DONE, offsetof(things_t, put), 0},
    {FBY_REQUEST_EVENTS, offsetof(things_t, subscription), 0},
    {FBY_REQUEST_UNSUBSCRIBE, offsetof(things_t, subscription), 0},
};

/* Every attempt with what a function makes of the handle. */
static void attempt_all(wire_t *wire, const things_t *things, uint64_t (*change)(uint64_t handle))
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(attempts); i++) {
        uint64_t handle;
        memcpy(&handle, (const char *)things + attempts[i].which, sizeof(handle));
        int code = wire_object(wire, attempts[i].type, change(handle), 0, 0, attempts[i].flags);
        if (code != FBY_E_STALE) {
            fail_msg("%s: %d", fby_request_shape(attempts[i].type)->name, code);
        }
        assert_int_equal(wire->fds, 0);
        assert_true(wire->answer.text_bytes > 0);
    }
}

static uint64_t as_it_is(uint64_t handle)
{
    return handle;
}
static uint64_t another_place(uint64_t handle)
{
    return handle ^ 1;
}
static uint64_t another_generation(uint64_t handle)
{
    return handle + (UINT64_C(1) << FBY_HANDLE_GENERATION_SHIFT);
}
static uint64_t beyond_the_table(uint64_t handle)
{
    return handle | FBY_HANDLE_INDEX_MASK;
}
static uint64_t none(uint64_t handle)
{
    return 0;
}

static void others_handles_and_guessed_ones_are_stale(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *owner = wire_connect(served.path), *other = wire_connect(served.path);
    things_t things = things_of(&served, owner);
    fby_snapshot_t snapshot;
    attempt_all(other, &things, as_it_is);
    attempt_all(other, &things, another_place);
    attempt_all(owner, &things, another_generation);
    attempt_all(owner, &things, beyond_the_table);
    attempt_all(owner, &things, none);
    assert_int_equal(fby_board_poll(other->board, other->welcome.client, things.session, &snapshot), FBY_E_STALE);
    const fby_msg_demand_t demand = {things.session};
    assert_int_equal(wire_call(other, FBY_REQUEST_PROGRESS, NULL, &demand, 1), 0);
    /* and nothing happened to any of it */
    assert_int_equal(wire_object(owner, FBY_REQUEST_HOLD_INFO, things.hold, 0, 0, 0), 0);
    assert_int_equal(wire_object(owner, FBY_REQUEST_PUT_PLACES, things.put, 0, 8, 0), 0);
    assert_int_equal(wire_object(owner, FBY_REQUEST_EVENTS, things.subscription, 0, 0, 0), 0);
    assert_int_equal(wire_object(owner, FBY_REQUEST_TAKE, things.session, 0, 0, 0), 0);
    assert_int_equal(served_info(&served).violations, 0);
    wire_close(other);
    wire_close(owner);
    served_close(&served);
}

static void of_another_kind_is_stale(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *owner = wire_connect(served.path);
    things_t things = things_of(&served, owner);
    assert_int_equal(wire_object(owner, FBY_REQUEST_STOP, things.hold, 0, 0, 0), FBY_E_STALE);
    assert_int_equal(wire_object(owner, FBY_REQUEST_HOLD_RELEASE, things.put, 0, 0, 0), FBY_E_STALE);
    assert_int_equal(wire_object(owner, FBY_REQUEST_PUT_END, things.session, 0, 0, 0), FBY_E_STALE);
    wire_close(owner);
    served_close(&served);
}

/* ---- Malformed -------------------------------------------------------------------------------------------------- */

/* After each the connection is closed; a witness is served as before. */
typedef struct malformed {
    const char *name;
    void (*send)(wire_t *wire);
} malformed_t;

static void send_bytes(wire_t *wire, size_t length)
{
    wire_send(wire, wire->out, length);
}

static size_t stats_request(wire_t *wire)
{
    return fby_request_build(FBY_REQUEST_STATS, 1, NULL, NULL, 0, wire->out);
}

static void half_a_head(wire_t *wire)
{
    (void)stats_request(wire);
    send_bytes(wire, 7);
}
static void half_a_message(wire_t *wire)
{
    send_bytes(wire, stats_request(wire) / 2);
}
static void wrong_magic(wire_t *wire)
{
    size_t length = stats_request(wire);
    wire->out[0] ^= 1;
    send_bytes(wire, length);
}
static void wrong_version(wire_t *wire)
{
    size_t length = stats_request(wire);
    wire->out[4] ^= 1;
    send_bytes(wire, length);
}
static void unknown_type(wire_t *wire)
{
    size_t length = stats_request(wire);
    wire->out[6] = 0xff;
    send_bytes(wire, length);
}
static void too_long(wire_t *wire)
{
    send_bytes(wire, FBY_MSG_MOST);
}
static void longer_than_any(wire_t *wire)
{
    uint8_t *bytes = calloc(1, FBY_MSG_MOST + 1);
    wire_send(wire, bytes, FBY_MSG_MOST + 1);
    free(bytes);
}
static void empty(wire_t *wire)
{
    send_bytes(wire, 0);
}
static void hello_again(wire_t *wire)
{
    fby_msg_hello_t hello = {.snapshot_bytes = sizeof(fby_snapshot_t), .struct_bytes = FBY_MSG_STRUCT_BYTES};
    send_bytes(wire, fby_request_build(FBY_REQUEST_HELLO, 1, &hello, NULL, 0, wire->out));
}
static void descriptors(wire_t *wire)
{
    size_t length = stats_request(wire);
    int fd[2] = {0, 1};
    assert_int_equal(fby_message_send(wire->socket, wire->out, length, fd, 2, 0), length);
}
static void sequence_that_says_another_count(wire_t *wire)
{
    uint64_t hashes[4] = {0};
    const fby_msg_seq_t seq = {.id = 1, .epoch = 1, .blocks = 2, .tokens = 32, .count = 1};
    send_bytes(wire, fby_request_build(FBY_REQUEST_SEQ, 1, &seq, hashes, 2, wire->out));
}
static void sequence_beyond_its_blocks(wire_t *wire)
{
    uint64_t hashes[4] = {0};
    const fby_msg_seq_t seq = {.id = 1, .epoch = 1, .blocks = 2, .tokens = 32, .from = 1, .count = 2};
    send_bytes(wire, fby_request_build(FBY_REQUEST_SEQ, 1, &seq, hashes, 2, wire->out));
}
static void sequence_around_the_end(wire_t *wire)
{
    uint64_t hashes[4] = {0};
    const fby_msg_seq_t seq = {.id = 1, .epoch = 1, .blocks = UINT32_MAX, .from = UINT32_MAX, .count = 2};
    send_bytes(wire, fby_request_build(FBY_REQUEST_SEQ, 1, &seq, hashes, 2, wire->out));
}
static void sequence_without_a_number(wire_t *wire)
{
    const fby_msg_seq_t seq = {.epoch = 1};
    send_bytes(wire, fby_request_build(FBY_REQUEST_SEQ, 1, &seq, NULL, 0, wire->out));
}
static void more_places_than_fit(wire_t *wire)
{
    const fby_msg_object_t object = {.handle = 1, .to = FBY_MSG_PLACES + 1};
    send_bytes(wire, fby_request_build(FBY_REQUEST_HOLD_PLACES, 1, &object, NULL, 0, wire->out));
}
static void places_backwards(wire_t *wire)
{
    const fby_msg_object_t object = {.handle = 1, .from = 2, .to = 1};
    send_bytes(wire, fby_request_build(FBY_REQUEST_PUT_PLACES, 1, &object, NULL, 0, wire->out));
}
static void event_of_nothing_known(wire_t *wire)
{
    const fby_msg_object_t object = {.flags = 99};
    send_bytes(wire, fby_request_build(FBY_REQUEST_EVENT, 1, &object, NULL, 0, wire->out));
}
static void group_without_an_end(wire_t *wire)
{
    fby_msg_join_t join = {.ranks = 1};
    memset(join.group, 'g', sizeof(join.group));
    send_bytes(wire, fby_request_build(FBY_REQUEST_GROUP_JOIN, 1, &join, NULL, 0, wire->out));
}
static void rank_beyond_the_ranks(wire_t *wire)
{
    const fby_msg_join_t join = {.rank = 1, .ranks = 1, .group = "g"};
    send_bytes(wire, fby_request_build(FBY_REQUEST_GROUP_JOIN, 1, &join, NULL, 0, wire->out));
}

static const malformed_t malformed[] = {
#define MALFORMED(name)                                                                                                \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
    MALFORMED(half_a_head),
    MALFORMED(half_a_message),
    MALFORMED(wrong_magic),
    MALFORMED(wrong_version),
    MALFORMED(unknown_type),
    MALFORMED(too_long),
    MALFORMED(longer_than_any),
    MALFORMED(hello_again),
    MALFORMED(descriptors),
    MALFORMED(sequence_that_says_another_count),
    MALFORMED(sequence_beyond_its_blocks),
    MALFORMED(sequence_around_the_end),
    MALFORMED(sequence_without_a_number),
    MALFORMED(more_places_than_fit),
    MALFORMED(places_backwards),
    MALFORMED(event_of_nothing_known),
    MALFORMED(group_without_an_end),
    MALFORMED(rank_beyond_the_ranks),
};

static void malformed_traffic_closes_that_connection_only(void **state)
{
    served_t served;
    fby_hold_t hold;
    uint64_t tokens;
    SERVED_OPEN(&served, NULL);
    wire_t *witness = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_put_stored(&served.rig, seq, 32);
    unsigned before = wire_descriptors();
    for (size_t i = 0; i < FBY_ARRAY_LEN(malformed); i++) {
        wire_t *wire = wire_connect(served.path);
        assert_int_equal(wire_lookup(wire, seq, 1, 0, &hold, &tokens), 0);
        malformed[i].send(wire);
        wire_await_end(wire);
        wire_close(wire);
        assert_int_equal(wire_call(witness, FBY_REQUEST_HEALTH, NULL, NULL, 0), 0);
        if (served_info(&served).violations != i + 1) {
            fail_msg("%s", malformed[i].name);
        }
        assert_int_equal(rig_stats(&served.rig).holds_gauge, 0);
        assert_int_equal(wire_descriptors(), before); /* what came along is closed */
    }
    rig_quiet(&served.rig);
    fby_seq_unref(seq);
    wire_close(witness);
    served_close(&served);
}

/* ---- Floods and slow readers ------------------------------------------------------------------------------------ */

/* 10,000 requests and not one answer read: the server neither keeps answers nor stops answering others. */
static void a_flood_that_reads_nothing_waits_for_itself(void **state)
{
    served_t served;
    enum { FLOOD = 10000 };
    SERVED_OPEN(&served, NULL);
    wire_t *flood = wire_connect(served.path), *witness = wire_connect(served.path);
    uint32_t sent = 0, answered = 0;
    size_t length = stats_request(flood);
    while (fby_message_send(flood->socket, flood->out, length, NULL, 0, MSG_DONTWAIT) > 0 && sent < FLOOD) {
        sent++;
    }
    assert_in_range(sent, 1, FLOOD - 1); /* the sockets are full */
    for (int i = 0; i < 100; i++) {
        assert_int_equal(wire_call(witness, FBY_REQUEST_HEALTH, NULL, NULL, 0), 0);
    }
    /* now it reads, and every request has its answer, in order */
    while (answered < FLOOD) {
        while (sent < FLOOD && fby_message_send(flood->socket, flood->out, length, NULL, 0, MSG_DONTWAIT) > 0) {
            sent++;
        }
        struct pollfd one = {.fd = flood->socket, .events = POLLIN};
        assert_int_equal(poll(&one, 1, 20000), 1);
        ssize_t n = fby_message_receive(flood->socket, flood->in, sizeof(flood->in), flood->fd, &flood->fds, 0);
        assert_true(n > 0);
        assert_true(fby_answer_parse(FBY_REQUEST_STATS, flood->in, (size_t)n, &flood->answer));
        assert_int_equal(flood->answer.code, 0);
        answered++;
    }
    wire_close(flood);
    wire_close(witness);
    served_close(&served);
}

/* Answers with descriptors that nobody reads: none is lost, and none is left when the client goes. */
static void unread_descriptors_go_with_the_client(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    unsigned before = wire_descriptors();
    wire_t *wire = wire_connect(served.path);
    const fby_msg_object_t reset = {.flags = FBY_EVENT_OF_RESET};
    size_t length = fby_request_build(FBY_REQUEST_EVENT, 1, &reset, NULL, 0, wire->out);
    while (fby_message_send(wire->socket, wire->out, length, NULL, 0, MSG_DONTWAIT) > 0) {}
    RIG_AWAIT(served_info(&served).calls > 50);
    wire_close(wire);
    RIG_AWAIT(served_info(&served).clients == 0);
    assert_int_equal(wire_descriptors(), before);
    served_close(&served);
}

static void a_scribbled_page_harms_its_bytes_only(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_put_stored(&served.rig, seq, 32);
    memset(wire->pool, 0xA5, wire->welcome.pool.bytes); /* one trust domain for bytes */
    assert_int_equal(wire_call(wire, FBY_REQUEST_CHECK, NULL, NULL, 0), 0);
    assert_int_equal(rig_lookup(&served.rig, seq), 32);
    /* what the store gave back was verified on the way in: a reset forgets what was scribbled over */
    assert_int_equal(fby_cache_reset(served.rig.cache, 1, 0), FBY_RESET_DONE);
    fby_session_t session = rig_start(&served.rig, seq, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    (void)rig_wait(&served.rig, session);
    rig_take_and_verify(&served.rig, session, seq, 32);
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

static void memory_that_is_passed_cannot_shrink_or_be_mapped_to_forge_snapshots(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_open(served.path);
    const fby_msg_hello_t hello = {.snapshot_bytes = sizeof(fby_snapshot_t), .struct_bytes = FBY_MSG_STRUCT_BYTES};
    assert_int_equal(wire_call(wire, FBY_REQUEST_HELLO, &hello, NULL, 0), 0);
    for (size_t i = 0; i < 2; i++) {
        struct stat about;
        assert_int_equal(fstat(wire->fd[i], &about), 0);
        assert_int_equal(ftruncate(wire->fd[i], 0), -1);
        assert_int_equal(ftruncate(wire->fd[i], about.st_size + 4096), -1);
    }
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, wire->fd[1], 0), MAP_FAILED);
    close(wire->fd[0]);
    close(wire->fd[1]);
    wire_close(wire);
    served_close(&served);
}

/* ---- Many ------------------------------------------------------------------------------------------------------- */

static void sixty_four_clients_at_once(void **state)
{
    served_t served;
    enum { CLIENTS = 64 };
    wire_t *wire[CLIENTS];
    fby_session_t session[CLIENTS];
    SERVED_OPEN(&served, NULL);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_store_blocks(&served.rig, seq, 0, 32);
    for (int i = 0; i < CLIENTS; i++) {
        wire[i] = wire_connect(served.path);
        assert_int_equal(wire_start(wire[i], seq, 1, 0, &session[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(wire_await_answer(wire[i], session[i]).delivered_blocks, 32);
        assert_int_equal(wire_object(wire[i], FBY_REQUEST_TAKE, session[i], 0, 0, 0), 0);
    }
    assert_int_equal(served_info(&served).clients, CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        wire_close(wire[i]);
    }
    RIG_AWAIT(served_info(&served).clients == 0);
    rig_quiet(&served.rig);
    assert_int_equal(served_info(&served).deaths, CLIENTS);
    fby_seq_unref(seq);
    served_close(&served);
}

static void ten_thousand_connections_leave_nothing(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    unsigned before = wire_descriptors();
    for (int i = 0; i < 10000; i++) {
        wire_t *wire = wire_open(served.path);
        if (i % 4 == 0) {
            assert_int_equal(wire_hello(wire), 0);
        }
        wire_close(wire);
    }
    RIG_AWAIT(served_info(&served).accepted == 10000 && served_info(&served).clients == 0);
    RIG_AWAIT(wire_descriptors() == before);
    served_close(&served);
}

/* More that say nothing than are waited for: the oldest go, and whoever speaks is served. */
static void the_silent_do_not_keep_others_out(void **state)
{
    served_t served;
    enum { SILENT = 300 };
    wire_t *silent[SILENT];
    SERVED_OPEN(&served, NULL);
    for (int i = 0; i < SILENT; i++) {
        silent[i] = wire_open(served.path);
    }
    wire_t *wire = wire_connect(served.path);
    wire_await_end(silent[0]);
    assert_int_equal(fby_server_refused(served.server, FBY_SERVER_REFUSED_NUMBER), SILENT + 1 - 256);
    for (int i = 0; i < SILENT; i++) {
        wire_close(silent[i]);
    }
    wire_close(wire);
    served_close(&served);
}

static void nothing_but_hello_is_taken_first(void **state)
{
    served_t served;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_open(served.path);
    send_bytes(wire, stats_request(wire));
    wire_await_end(wire);
    wire_close(wire);
    wire = wire_connect(served.path);
    empty(wire); /* as if the other end were gone */
    wire_await_end(wire);
    wire_close(wire);
    assert_int_equal(served_info(&served).violations, 1);
    served_close(&served);
}

/* As many readers as can be counted: their end is one step, not as many. */
static void a_hold_of_many_readers_ends_at_once(void **state)
{
    served_t served;
    fby_hold_t hold;
    uint64_t tokens;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path), *other = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_put_stored(&served.rig, seq, 32);
    assert_int_equal(wire_lookup(wire, seq, 1, 0, &hold, &tokens), 0);
    assert_int_equal(wire_object(wire, FBY_REQUEST_HOLD_READERS, hold, UINT32_MAX - 1, 0, 0), 0);
    assert_int_equal(wire_object(wire, FBY_REQUEST_HOLD_READERS, hold, 1, 0, 0), -EINVAL);
    wire_close(wire);
    RIG_AWAIT(served_info(&served).clients == 1);
    assert_int_equal(wire_call(other, FBY_REQUEST_STATS, NULL, NULL, 0), 0);
    assert_int_equal(((const fby_stats_t *)other->answer.body)->holds_gauge, 0);
    fby_seq_unref(seq);
    wire_close(other);
    served_close(&served);
}

/* Somebody who waits for a moment, again and again, and closes what it waited on. */
static void descriptors_that_a_client_closed_are_not_kept(void **state)
{
    served_t served;
    fby_session_t session;
    enum { TURNS = 300, KEPT = 16 };
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_script(&served.rig, "exists:*:hang");
    assert_int_equal(wire_start(wire, seq, 1, 0, &session), 0);
    unsigned before = wire_descriptors();
    for (int i = 0; i < TURNS; i++) {
        assert_int_equal(wire_object(wire, FBY_REQUEST_EVENT, session, 0, 0, FBY_EVENT_OF_SESSION), 0);
        assert_int_equal(wire->fds, 1);
        close(wire->fd[0]);
    }
    assert_in_range(wire_descriptors(), before, before + KEPT);
    served_unhang(&served);
    (void)wire_await_answer(wire, session);
    RIG_AWAIT(wire_descriptors() <= before);
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

/* Nor does one who keeps them get any number: beyond some, it is told so. */
static void descriptors_of_one_session_are_bounded(void **state)
{
    served_t served;
    fby_session_t session;
    int fd[FBY_MOST_EVENT_FDS], code = 0;
    size_t n = 0;
    SERVED_OPEN(&served, NULL);
    wire_t *wire = wire_connect(served.path);
    fby_seq_t *seq = rig_seq(&served.rig, 1, RIG_P32_TOKENS);
    rig_script(&served.rig, "exists:*:hang");
    assert_int_equal(wire_start(wire, seq, 1, 0, &session), 0);
    while ((code = wire_object(wire, FBY_REQUEST_EVENT, session, 0, 0, FBY_EVENT_OF_SESSION)) == 0) {
        assert_in_range(n, 0, FBY_ARRAY_LEN(fd) - 1);
        fd[n++] = wire->fd[0];
    }
    assert_int_equal(code, -EMFILE);
    assert_int_equal(n, FBY_MOST_EVENT_FDS);
    close(fd[--n]);
    assert_int_equal(wire_object(wire, FBY_REQUEST_EVENT, session, 0, 0, FBY_EVENT_OF_SESSION), 0);
    close(wire->fd[0]);
    served_unhang(&served);
    (void)wire_await_answer(wire, session);
    while (n > 0) {
        struct pollfd one = {.fd = fd[--n], .events = POLLIN};
        assert_int_equal(poll(&one, 1, 20000), 1);
        close(one.fd);
    }
    fby_seq_unref(seq);
    wire_close(wire);
    served_close(&served);
}

/* Whoever comes when a last descriptor is left is turned away, not taken half. */
static void nobody_is_taken_whose_end_could_not_be_seen(void **state)
{
    served_t served;
    struct rlimit usual, tight;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char byte;
    SERVED_OPEN(&served, NULL);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", served.path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int lowest = dup(0);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    tight = (struct rlimit){(rlim_t)lowest + 1, usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    int rc = connect(fd, (const struct sockaddr *)&address, sizeof(address));
    RIG_AWAIT(served_info(&served).accepted == 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    assert_int_equal(rc, 0);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&end, 1, 5000), 1);
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    assert_int_equal(fby_server_refused(served.server, FBY_SERVER_REFUSED_NUMBER), 1);
    close(fd);
    served_close(&served);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_handles_and_guessed_ones_are_stale),
        cmocka_unit_test(of_another_kind_is_stale),
        cmocka_unit_test(malformed_traffic_closes_that_connection_only),
        cmocka_unit_test(nothing_but_hello_is_taken_first),
        cmocka_unit_test(a_flood_that_reads_nothing_waits_for_itself),
        cmocka_unit_test(unread_descriptors_go_with_the_client),
        cmocka_unit_test(a_scribbled_page_harms_its_bytes_only),
        cmocka_unit_test(memory_that_is_passed_cannot_shrink_or_be_mapped_to_forge_snapshots),
        cmocka_unit_test(sixty_four_clients_at_once),
        cmocka_unit_test(ten_thousand_connections_leave_nothing),
        cmocka_unit_test(the_silent_do_not_keep_others_out),
        cmocka_unit_test(a_hold_of_many_readers_ends_at_once),
        cmocka_unit_test(descriptors_that_a_client_closed_are_not_kept),
        cmocka_unit_test(descriptors_of_one_session_are_bounded),
        cmocka_unit_test(nobody_is_taken_whose_end_could_not_be_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
