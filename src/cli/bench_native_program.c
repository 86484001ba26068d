/*
 * bench_native_program.c - a native client in a process of its own: Mooncake's Python client, or what --native names.
 *
 * The program inherits descriptor 3, the memory to read into, and one socket per worker from descriptor 4 on. The first
 * socket carries one line of JSON: {"memory_bytes", "object_bytes", "stride", "workers", "blocks", "options": {NAME:
 * VALUE}, "prompts": [[KEY]]}. The program answers it with `ready` or with `error TEXT`, as one line. From then on a
 * line on a worker's socket is the number of a prompt: its block i is read to (worker x blocks + i) x stride, and the
 * answer is the line `NANOSECONDS ok` or `NANOSECONDS TEXT-OF-WHAT-FAILED`. It ends when the sockets end.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/host.h"
#include "base/log.h"
#include "cli/bench_native.h"
#include "cli/json.h"

#define MOONCAKE_PROGRAM "forebay-native-mooncake"
enum { MEMORY_FD = 3, FIRST_SOCKET_FD = 4, HIGH_FD = 64, PATH_BYTES = 4096, LINE_BYTES = 512, LIMIT_MS = 120000 };

typedef struct own {
    pid_t pid;
    FILE **in;    /* by worker: answers */
    int *sockets; /* by worker: our ends; owned by `in` once that is open */
} own_t;

static int failed_call(const char *what, int error)
{
    fby_error_set("the native client: %s: %s", what, strerror(error));
    return -error;
}

/* ---- Starting ---------------------------------------------------------------------------------------------------- */

typedef struct start {
    char path[PATH_BYTES];
    const char *argv[4];
    int high[HIGH_FD]; /* copies above what the child uses; the first is the memory */
    uint32_t count;
} start_t;

static int name_program(const fby_bench_native_t *native, start_t *start)
{
    char error[512] = "";
    if (native->command != NULL) {
        start->argv[0] = "/bin/sh";
        start->argv[1] = "-c";
        start->argv[2] = native->command;
        return 0;
    }
    int status = fby_agent_find(MOONCAKE_PROGRAM, start->path, sizeof(start->path), error, sizeof(error));
    if (status != 0) {
        fby_error_set("the native client: %s", error);
        return status;
    }
    start->argv[0] = fby_bench_native_option(native, "python", "python3");
    start->argv[1] = start->path;
    return 0;
}

static int lift(start_t *start, int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high < 0) {
        return failed_call("descriptors", errno);
    }
    start->high[start->count++] = high;
    return 0;
}

static int make_sockets(const fby_bench_native_t *native, own_t *own, start_t *start)
{
    int status = lift(start, native->memory_fd);
    for (uint32_t i = 0; i < native->workers && status == 0; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
            return failed_call("socketpair", errno);
        }
        own->sockets[i] = pair[0];
        status = lift(start, pair[1]);
        close(pair[1]);
    }
    return status;
}

static int spawn(own_t *own, start_t *start)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (uint32_t i = 0; i < start->count; i++) {
        posix_spawn_file_actions_adddup2(&actions, start->high[i], MEMORY_FD + (int)i);
    }
    int error = posix_spawnp(&own->pid, start->argv[0], &actions, NULL, (char *const *)start->argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        own->pid = 0;
        return failed_call(start->argv[0], error);
    }
    return 0;
}

/* ---- Talking ----------------------------------------------------------------------------------------------------- */

static int ended(void)
{
    fby_error_set("the native client ended without an answer; what it said is above");
    return FBY_E_CONNECTION;
}

static int write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = send(fd, text, length, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) {
            return ended();
        }
        text += n > 0 ? n : 0;
        length -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* One line without its end, or an error when none comes in time. */
static int read_line(const own_t *own, uint32_t worker, char line[LINE_BYTES])
{
    struct pollfd ready = {.fd = own->sockets[worker], .events = POLLIN};
    int n;
    do {
        n = poll(&ready, 1, LIMIT_MS);
    } while (n < 0 && errno == EINTR);
    if (n == 0) {
        fby_error_set("the native client: no answer in %d s", LIMIT_MS / 1000);
        return -ETIMEDOUT;
    }
    if (fgets(line, LINE_BYTES, own->in[worker]) == NULL) {
        return ended();
    }
    line[strcspn(line, "\n")] = '\0';
    return 0;
}

static void write_hello(const fby_bench_native_t *native, FILE *file)
{
    const fby_bench_set_t *set = native->set;
    fby_json_t json;
    fby_json_init(&json, file);
    fby_json_object(&json, NULL);
    fby_json_u64(&json, "memory_bytes", native->memory_bytes);
    fby_json_u64(&json, "object_bytes", set->object_bytes);
    fby_json_u64(&json, "stride", set->slot_bytes);
    fby_json_u64(&json, "workers", native->workers);
    fby_json_u64(&json, "blocks", set->blocks);
    fby_json_object(&json, "options");
    for (uint32_t i = 0; i < native->store->options; i++) {
        fby_json_text(&json, native->store->option[i].name, native->store->option[i].value);
    }
    fby_json_end(&json);
    fby_json_array(&json, "prompts");
    for (uint32_t i = 0; i < set->prompts; i++) {
        fby_json_array(&json, NULL);
        for (uint32_t k = 0; k < set->blocks; k++) {
            fby_json_text(&json, NULL, fby_bench_native_key(native, i, k));
        }
        fby_json_end(&json);
    }
    fby_json_end(&json);
    fby_json_end(&json);
}

static int say_hello(const fby_bench_native_t *native, const own_t *own)
{
    char *text = NULL, line[LINE_BYTES];
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    if (file == NULL) {
        return failed_call("memory", errno);
    }
    write_hello(native, file);
    int status = fclose(file) == 0 ? write_all(own->sockets[0], text, length) : failed_call("memory", ENOMEM);
    free(text);
    status = status == 0 ? read_line(own, 0, line) : status;
    if (status == 0 && strcmp(line, "ready") != 0) {
        fby_error_set("the native client: %s", strncmp(line, "error ", 6) == 0 ? line + 6 : line);
        status = FBY_E_CONNECTION;
    }
    return status;
}

/* ---- The client -------------------------------------------------------------------------------------------------- */

static int allocate(fby_bench_native_t *native)
{
    own_t *own = native->own = calloc(1, sizeof(*own));
    if (own == NULL || (own->in = calloc(native->workers, sizeof(FILE *))) == NULL ||
        (own->sockets = malloc(native->workers * sizeof(*own->sockets))) == NULL) {
        return failed_call("memory", ENOMEM);
    }
    memset(own->sockets, 0xff, native->workers * sizeof(*own->sockets)); /* -1 */
    return 0;
}

static int client_open(fby_bench_native_t *native)
{
    start_t start = {.count = 0};
    int status = allocate(native);
    own_t *own = native->own;
    status = status == 0 ? name_program(native, &start) : status;
    status = status == 0 ? make_sockets(native, own, &start) : status;
    status = status == 0 ? spawn(own, &start) : status;
    for (uint32_t i = 0; i < start.count; i++) {
        close(start.high[i]);
    }
    for (uint32_t i = 0; i < native->workers && status == 0; i++) {
        own->in[i] = fdopen(own->sockets[i], "r");
        status = own->in[i] != NULL ? 0 : failed_call("sockets", errno);
    }
    return status == 0 ? say_hello(native, own) : status;
}

static void close_worker(own_t *own, uint32_t i)
{
    if (own->in != NULL && own->in[i] != NULL) {
        fclose(own->in[i]);
    } else if (own->sockets != NULL && own->sockets[i] >= 0) {
        close(own->sockets[i]);
    }
}

/* The end of its sockets tells it to go; it is not waited for longer than a moment. */
static void await_end(pid_t pid)
{
    enum { STEPS = 200, STEP_MS = 10 };
    for (int i = 0; i < STEPS; i++) {
        if (waitpid(pid, NULL, WNOHANG) != 0) {
            return;
        }
        poll(NULL, 0, STEP_MS);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void client_close(fby_bench_native_t *native)
{
    own_t *own = native->own;
    if (own == NULL) {
        return;
    }
    for (uint32_t i = 0; i < native->workers && own->sockets != NULL; i++) {
        close_worker(own, i);
    }
    if (own->pid > 0) {
        await_end(own->pid);
    }
    free(own->in);
    free(own->sockets);
    free(own);
}

static int client_read(fby_bench_native_t *native, uint32_t worker, uint32_t prompt, uint64_t *ns)
{
    const own_t *own = native->own;
    char line[LINE_BYTES], *rest;
    int length = snprintf(line, sizeof(line), "%" PRIu32 "\n", prompt);
    int status = write_all(own->sockets[worker], line, (size_t)length);
    status = status == 0 ? read_line(own, worker, line) : status;
    if (status != 0) {
        return status;
    }
    *ns = strtoull(line, &rest, 10);
    if (strcmp(rest, " ok") != 0) {
        fby_error_set("the native client: %s", *rest != '\0' ? rest + 1 : "an empty answer");
        return FBY_E_CONNECTION;
    }
    return 0;
}

const fby_bench_client_t fby_bench_client_program = {"the client's batch call in a process of its own", client_open,
                                                     client_read, client_close};
