#include "wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/call.h"
#include "stores/object.h"

enum { PATIENCE_MS = 20000, MOST_SETTINGS = 24 };

/* ---- The cache -------------------------------------------------------------------------------------------------- */

void served_open(served_t *served, const char *const *settings)
{
    const char *all[MOST_SETTINGS] = {"server.allow_check=true"};
    for (size_t n = 1; *settings != NULL; settings++) {
        assert_in_range(n, 1, MOST_SETTINGS - 2);
        all[n++] = *settings;
    }
    rig_open(&served->rig, all);
    snprintf(served->directory, sizeof(served->directory), "/tmp/fby-served-XXXXXX");
    assert_non_null(mkdtemp(served->directory));
    snprintf(served->path, sizeof(served->path), "%s/s", served->directory);
    served_serve(served);
}

void served_serve(served_t *served)
{
    fby_runtime_t *runtime = served->rig.cache->runtime;
    snprintf(runtime->settings.server.listen, sizeof(runtime->settings.server.listen), "%s", served->path);
    int rc = fby_server_open(served->rig.cache, runtime, &served->server);
    if (rc != 0) {
        fail_msg("serve: %s", fby_last_error());
    }
}

void served_stop(served_t *served, double limit_s)
{
    fby_server_close(served->server, limit_s);
    served->server = NULL;
}

void served_close(served_t *served)
{
    served_stop(served, 0);
    rig_close(&served->rig);
    assert_int_equal(rmdir(served->directory), 0); /* nothing is left behind */
}

void served_unhang(served_t *served)
{
    rig_script(&served->rig, "");
    fby_mem_release(served->rig.store);
}

fby_server_info_t served_info(served_t *served)
{
    fby_server_info_t info = {.size = sizeof(info)};
    assert_int_equal(fby_server_describe(served->server, &info, NULL, 0, NULL), 0);
    return info;
}

/* ---- A client --------------------------------------------------------------------------------------------------- */

wire_t *wire_open(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    wire_t *wire = calloc(1, sizeof(*wire));
    assert_non_null(wire);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    wire->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_return_code(wire->socket, errno);
    assert_return_code(connect(wire->socket, (const struct sockaddr *)&address, sizeof(address)), errno);
    return wire;
}

static void await_readable(const wire_t *wire)
{
    struct pollfd one = {.fd = wire->socket, .events = POLLIN};
    assert_int_equal(poll(&one, 1, PATIENCE_MS), 1);
}

void wire_send(wire_t *wire, const void *bytes, size_t length)
{
    assert_int_equal(fby_message_send(wire->socket, bytes, length, NULL, 0, 0), length);
}

int wire_call(wire_t *wire, fby_request_t type, const void *body, const void *elements, uint32_t count)
{
    size_t length = fby_request_build(type, ++wire->serial, body, elements, count, wire->out);
    assert_true(length > 0);
    wire_send(wire, wire->out, length);
    await_readable(wire);
    ssize_t n = fby_message_receive(wire->socket, wire->in, sizeof(wire->in), wire->fd, &wire->fds, 0);
    assert_true(n > 0);
    assert_true(fby_answer_parse(type, wire->in, (size_t)n, &wire->answer));
    assert_int_equal(wire->answer.serial, wire->serial);
    return wire->answer.code;
}

int wire_object(wire_t *wire, fby_request_t type, uint64_t handle, uint64_t from, uint64_t to, uint32_t flags)
{
    const fby_msg_object_t object = {.handle = handle, .from = from, .to = to, .flags = flags};
    return wire_call(wire, type, &object, NULL, 0);
}

int wire_hello(wire_t *wire)
{
    const fby_msg_hello_t hello = {
        .snapshot_bytes = sizeof(fby_snapshot_t),
        .struct_bytes = FBY_MSG_STRUCT_BYTES,
        .was_client = wire->welcome.client,
        .was_secret = wire->welcome.secret,
        .name = "wire",
    };
    int code = wire_call(wire, FBY_REQUEST_HELLO, &hello, NULL, 0);
    if (code < 0) {
        return code;
    }
    assert_int_equal(wire->fds, 2);
    memcpy(&wire->welcome, wire->answer.body, sizeof(wire->welcome));
    assert_int_equal(fby_board_map(wire->fd[1], &wire->board), 0);
    wire->pool = mmap(NULL, wire->welcome.pool.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, wire->fd[0], 0);
    assert_ptr_not_equal(wire->pool, MAP_FAILED);
    close(wire->fd[0]);
    close(wire->fd[1]);
    return code;
}

wire_t *wire_connect(const char *path)
{
    wire_t *wire = wire_open(path);
    assert_int_equal(wire_hello(wire), 0);
    return wire;
}

void wire_close(wire_t *wire)
{
    if (wire->board != NULL) {
        fby_board_unmap(wire->board);
        munmap(wire->pool, wire->welcome.pool.bytes);
    }
    close(wire->socket);
    free(wire);
}

void wire_await_end(wire_t *wire)
{
    ssize_t n;
    do {
        await_readable(wire);
        n = fby_message_receive(wire->socket, wire->in, sizeof(wire->in), wire->fd, &wire->fds, 0);
        for (size_t i = 0; n > 0 && i < wire->fds; i++) {
            close(wire->fd[i]);
        }
    } while (n > 0);
    assert_true(n == 0 || n == -ECONNRESET);
}

/* ---- Requests --------------------------------------------------------------------------------------------------- */

fby_msg_seq_t wire_seq(const fby_seq_t *seq, uint64_t id, uint32_t from)
{
    uint32_t blocks = (uint32_t)fby_seq_blocks(seq);
    return (fby_msg_seq_t){
        .id = id,
        .epoch = fby_seq_keyring(seq)->epoch,
        .tokens = fby_seq_tokens(seq),
        .blocks = blocks,
        .from = from,
        .count = blocks - from,
    };
}

int wire_start(wire_t *wire, const fby_seq_t *seq, uint64_t id, uint32_t from, fby_session_t *session)
{
    fby_msg_start_t start = {
        .seq = wire_seq(seq, id, from),
        .policy = FBY_POLICY_WAIT_COMPLETE,
        .stop_mode = FBY_UNSET,
        .predictive = FBY_UNSET,
        .timeout_budget_s = -1,
        .min_tokens = UINT64_MAX,
        .label = "wire",
    };
    int code = wire_call(wire, FBY_REQUEST_START, &start, fby_seq_hashes(seq) + from, start.seq.count);
    if (code == 0) {
        *session = ((const fby_msg_numbers_t *)wire->answer.body)->number[0];
    }
    return code;
}

int wire_lookup(wire_t *wire, const fby_seq_t *seq, uint64_t id, unsigned flags, fby_hold_t *hold, uint64_t *tokens)
{
    const fby_msg_lookup_t lookup = {.seq = wire_seq(seq, id, 0), .flags = flags};
    int code = wire_call(wire, FBY_REQUEST_LOOKUP, &lookup, fby_seq_hashes(seq), lookup.seq.count);
    if (code == 0) {
        const fby_msg_numbers_t *numbers = wire->answer.body;
        *hold = numbers->number[0];
        *tokens = numbers->number[1];
    }
    return code;
}

int wire_put(wire_t *wire, const fby_seq_t *seq, uint64_t id, uint64_t to, fby_put_t *put, uint64_t *from,
             uint64_t *end)
{
    const fby_msg_put_t about = {.seq = wire_seq(seq, id, 0), .to = to};
    int code = wire_call(wire, FBY_REQUEST_PUT_BEGIN, &about, fby_seq_hashes(seq), about.seq.count);
    if (code == 0) {
        const fby_msg_numbers_t *numbers = wire->answer.body;
        *put = numbers->number[0];
        *from = numbers->number[2];
        *end = numbers->number[3];
    }
    return code;
}

void wire_fill(wire_t *wire, fby_put_t put, const fby_seq_t *seq, uint64_t from, uint64_t to)
{
    fby_object_id_t id = {.payload_bytes = RIG_PAYLOAD, .segment_bytes = FBY_SEGMENT_BYTES};
    memcpy(id.fingerprint, wire->welcome.keyring.fingerprint, sizeof(id.fingerprint));
    assert_int_equal(wire_object(wire, FBY_REQUEST_PUT_PLACES, put, from, to, 0), 0);
    assert_int_equal(wire->answer.count, to - from);
    for (uint64_t block = from; block < to; block++) {
        uint64_t place;
        memcpy(&place, (const uint64_t *)wire->answer.elements + (block - from), sizeof(place));
        assert_true(place < wire->welcome.pool.bytes);
        rig_content(seq, block, 0, wire->pool + place, RIG_PAYLOAD);
        id.hash = fby_seq_hashes(seq)[block];
        fby_object_seal(wire->pool + place, &id, true);
    }
}

fby_snapshot_t wire_await_answer(wire_t *wire, fby_session_t session)
{
    fby_snapshot_t snapshot;
    assert_int_equal(wire_object(wire, FBY_REQUEST_EVENT, session, 0, 0, FBY_EVENT_OF_SESSION), 0);
    assert_int_equal(wire->fds, 1);
    struct pollfd event = {.fd = wire->fd[0], .events = POLLIN};
    assert_int_equal(poll(&event, 1, PATIENCE_MS), 1);
    close(wire->fd[0]);
    assert_int_equal(fby_board_poll(wire->board, wire->welcome.client, session, &snapshot), 0);
    assert_int_equal(snapshot.answered, 1);
    return snapshot;
}

/* ---- Processes -------------------------------------------------------------------------------------------------- */

enum { SAY = 3 };

fby_seq_t *wire_own_seq(wire_t *wire, uint64_t seed, size_t tokens)
{
    const fby_msg_keyring_t *about = &wire->welcome.keyring;
    fby_hasher_t hasher;
    fby_keyring_t *keyring;
    fby_seq_t *seq;
    uint32_t *text = malloc(tokens * sizeof(*text));
    assert_non_null(text);
    for (size_t i = 0; i < tokens; i++) {
        text[i] = (uint32_t)unit_random(&seed);
    }
    assert_int_equal(
        fby_hasher_init(&hasher, (fby_hash_kind_t)about->kind, about->fingerprint, about->secret, about->secret_length),
        0);
    assert_int_equal(fby_keyring_adopt(&hasher, about->epoch, RIG_BLOCK_TOKENS, 1, 0, &keyring), 0);
    assert_int_equal(fby_seq_make(keyring, text, tokens, NULL, 0, &seq), 0);
    fby_keyring_unref(keyring);
    free(text);
    return seq;
}

void wire_say(const void *bytes, size_t length)
{
    assert_int_equal(write(SAY, bytes, length), length);
}

void wire_main(int argc, char **argv, const wire_story_t *stories, size_t n)
{
    if (argc != 3) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(argv[1], stories[i].name) == 0) {
            stories[i].run(wire_connect(argv[2]));
            for (;;) {
                pause();
            }
        }
    }
    exit(2);
}

wire_child_t wire_child(const char *path, const char *story)
{
    int ends[2];
    assert_return_code(pipe2(ends, O_CLOEXEC), errno);
    pid_t pid = fork();
    assert_return_code(pid, errno);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (ends[1] == SAY ? fcntl(SAY, F_SETFD, 0) == 0 : dup2(ends[1], SAY) == SAY) {
            execl("/proc/self/exe", "child", story, path, NULL);
        }
        _exit(127);
    }
    close(ends[1]);
    return (wire_child_t){pid, ends[0]};
}

void wire_child_hear(wire_child_t *child, void *bytes, size_t length)
{
    struct pollfd end = {.fd = child->said, .events = POLLIN};
    assert_int_equal(poll(&end, 1, PATIENCE_MS), 1);
    assert_int_equal(read(child->said, bytes, length), length);
}

void wire_child_kill(wire_child_t *child)
{
    int status;
    assert_return_code(kill(child->pid, SIGKILL), errno);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    assert_true(WIFSIGNALED(status));
    close(child->said);
}

unsigned wire_descriptors(void)
{
    unsigned n = 0;
    DIR *all = opendir("/proc/self/fd");
    assert_non_null(all);
    while (readdir(all) != NULL) {
        n++;
    }
    closedir(all);
    return n - 3; /* two dots, and its own */
}
