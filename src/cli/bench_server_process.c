/* bench_server_process.c - the server of the benchmark: this program again, as `forebay serve`. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/bench_server.h"

enum { READY_LIMIT_MS = 30000, WORDS = 8 };

/* A model of small blocks: bytes of blocks never go through the socket. */
static const char *const settings[] = {
    "model.id=forebay-bench", "model.revision=1",          "model.kv_dtype=bytes",     "model.layer_set=all",
    "model.layout=bench",     "model.weights_epoch=0",     "model.tp_size=1",          "model.cp_size=1",
    "model.pp_size=1",        "model.block_tokens=16",     "model.groups=kv:4KiB:all", "prefetch.enabled=true",
    "pool.bytes=64MiB",       "pool.max_hold_bytes=64MiB", "store.driver=mem",         "store.write=off",
    "log.level=warn",
};

static int set_error(const char *what, int number)
{
    fby_error_set("%s: %s", what, strerror(number));
    return -number;
}

/* Only what a child of fork() may do. Does not return. */
_Noreturn static void become_server(const char *const *words)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen("/dev/null", "w", stdout) != NULL) { /* the ready line is no figure */
        execv("/proc/self/exe", (char *const *)words);
    }
    _exit(127);
}

static int wait_ready(fby_bench_process_t *process, int ready)
{
    struct pollfd fd = {.fd = ready, .events = POLLIN};
    char byte;
    int status;
    while ((status = poll(&fd, 1, READY_LIMIT_MS)) < 0 && errno == EINTR) {}
    if (status > 0 && read(ready, &byte, 1) == 1) {
        return 0;
    }
    fby_error_set("the server was not ready in %d s, or ended; what it said stands above", READY_LIMIT_MS / 1000);
    return -ETIMEDOUT;
}

static int start(fby_bench_process_t *process, const char *number, int ready[2])
{
    const char *words[WORDS + 2 * FBY_ARRAY_LEN(settings)] = {"forebay",       "serve",      "--listen",
                                                              process->socket, "--ready-fd", number};
    size_t count = 6;
    for (size_t i = 0; i < FBY_ARRAY_LEN(settings); i++) {
        words[count++] = "--set";
        words[count++] = settings[i];
    }
    fflush(NULL);
    process->pid = fork();
    if (process->pid == 0) {
        close(ready[0]);
        become_server(words);
    }
    if (process->pid < 0) {
        process->pid = 0;
        return set_error("fork", errno);
    }
    return 0;
}

int fby_bench_process_start(fby_bench_process_t *out)
{
    char number[16];
    int ready[2];
    *out = (fby_bench_process_t){.pid = 0};
    int status = fby_scratch_make(out->directory);
    if (status != 0) {
        return status;
    }
    snprintf(out->socket, sizeof(out->socket), "%s/s", out->directory);
    if (pipe(ready) != 0) { /* the server inherits it */
        return set_error("pipe", errno);
    }
    snprintf(number, sizeof(number), "%d", ready[1]);
    status = start(out, number, ready);
    close(ready[1]);
    status = status == 0 ? wait_ready(out, ready[0]) : status;
    close(ready[0]);
    return status;
}

void fby_bench_process_stop(fby_bench_process_t *process)
{
    if (process->pid > 0) {
        kill(process->pid, SIGTERM);
        while (waitpid(process->pid, NULL, 0) < 0 && errno == EINTR) {}
        process->pid = 0;
    }
    fby_scratch_remove(process->directory);
    process->directory[0] = '\0';
}

/* ---- What it costs ----------------------------------------------------------------------------------------------- */

static int add_thread(pid_t pid, const char *thread, uint64_t *out)
{
    char path[64], line[256];
    uint64_t number;
    snprintf(path, sizeof(path), "/proc/%d/task/%.20s/status", (int)pid, thread);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return errno == ENOENT ? 0 : set_error(path, errno); /* a thread that ended meanwhile */
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "voluntary_ctxt_switches: %" SCNu64, &number) == 1 ||
            sscanf(line, "nonvoluntary_ctxt_switches: %" SCNu64, &number) == 1) {
            *out += number;
        }
    }
    fclose(file);
    return 0;
}

int fby_bench_process_switches(pid_t pid, uint64_t *out)
{
    char path[64];
    int status = 0;
    *out = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return set_error(path, errno);
    }
    for (const struct dirent *entry; status == 0 && (entry = readdir(directory)) != NULL;) {
        status = entry->d_name[0] != '.' ? add_thread(pid, entry->d_name, out) : 0;
    }
    closedir(directory);
    return status;
}
