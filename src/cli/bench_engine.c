/* bench_engine.c - the interpreter that measures: started twice, first to see whether it has what is needed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/bench_engine.h"

enum { WORDS = 24, NUMBER_BYTES = 24, NOT_THERE = 3, CANNOT_RUN = 127 };

#define ADVICE                                                                                                         \
    "scripts/install-engine vllm makes an environment with vLLM, and scripts/with-engine vllm COMMAND runs a command " \
    "in it, with forebay: --python python is then its interpreter"

/* Prints the first package that is not there. Importing vLLM would take many seconds. */
static const char check[] = "import importlib.util, sys\n"
                            "for name in ('vllm', 'forebay', 'forebay.engines'):\n"
                            "    if importlib.util.find_spec(name) is None:\n"
                            "        print(name)\n"
                            "        sys.exit(3)\n";

typedef struct command {
    const char *word[WORDS];
    size_t count;
    char number[WORDS / 2][NUMBER_BYTES];
    size_t numbers;
} command_t;

static void add(command_t *command, const char *word)
{
    command->word[command->count++] = word;
}

static void add_number(command_t *command, const char *option, uint64_t value)
{
    char *text = command->number[command->numbers++];
    snprintf(text, NUMBER_BYTES, "%" PRIu64, value);
    add(command, option);
    add(command, text);
}

static void make_command(const fby_bench_engine_options_t *options, command_t *out)
{
    *out = (command_t){.count = 0};
    add(out, options->python);
    add(out, "-m");
    add(out, "forebay.engines.bench");
    add(out, "--lines");
    if (options->is_tiny) {
        add(out, "--tiny");
    } else {
        add(out, "--model");
        add(out, options->model);
    }
    add_number(out, "--rounds", options->rounds);
    add_number(out, "--tokens", options->tokens);
    add_number(out, "--block-tokens", options->block_tokens);
    add_number(out, "--seed", options->seed);
    if (options->threads != 0) {
        add_number(out, "--threads", options->threads);
    }
    if (options->dtype != NULL) {
        add(out, "--dtype");
        add(out, options->dtype);
    }
}

/* Only what a child of fork() may do. It ends its engines when it is told to, also when we are gone. */
_Noreturn static void become(const char *const *words, int out)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (dup2(out, STDOUT_FILENO) == STDOUT_FILENO) {
        execvp(words[0], (char *const *)words);
    }
    _exit(CANNOT_RUN);
}

/* Everything that fd gives, NUL-terminated. Bytes beyond the capacity are read and dropped: the writer must end. */
static bool read_all(int fd, char *out, size_t capacity)
{
    char more[512];
    size_t length = 0;
    ssize_t got;
    bool fits = true;
    for (;;) {
        bool has_room = length + 1 < capacity;
        got = has_room ? read(fd, out + length, capacity - 1 - length) : read(fd, more, sizeof(more));
        if (got == 0 || (got < 0 && errno != EINTR)) {
            break;
        }
        if (got > 0) {
            length += has_room ? (size_t)got : 0;
            fits = fits && has_room;
        }
    }
    out[length] = '\0';
    return fits;
}

/* The exit status; -signal when one ended it, or a negative errno with the error set in *failed. */
static int run_words(const char *const *words, char *said, size_t capacity, int *failed)
{
    int fd[2], status = 0;
    *failed = 0;
    if (pipe2(fd, O_CLOEXEC) != 0) {
        *failed = -errno;
        return 0;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        become(words, fd[1]);
    }
    *failed = pid < 0 ? -errno : 0;
    close(fd[1]);
    bool fits = pid < 0 || read_all(fd[0], said, capacity);
    close(fd[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (!fits) {
        *failed = -EMSGSIZE;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* 0, or the error set. `said` is what a program printed that found a package missing. */
static int judge_end(const fby_bench_engine_options_t *options, int code, int failed, const char *said)
{
    if (failed != 0) {
        fby_error_set("%s: %s", options->python, strerror(-failed));
        return failed;
    }
    if (code == 0) {
        return 0;
    }
    if (code == CANNOT_RUN) {
        fby_error_set("%s cannot be run; %s", options->python, ADVICE);
    } else if (code == NOT_THERE) {
        fby_error_set("%s has no package %.*s; %s", options->python, (int)strcspn(said, "\n"), said, ADVICE);
    } else if (code < 0) {
        fby_error_set("%s was ended by signal %d", options->python, -code);
    } else {
        fby_error_set("%s ended with status %d; it says why above", options->python, code);
    }
    return -ECHILD;
}

int fby_bench_engine_run(const fby_bench_engine_options_t *options, fby_bench_engine_t *out)
{
    const char *const checking[] = {options->python, "-c", check, NULL};
    command_t command;
    int failed;
    out->figures = out->facts = out->notes = 0;
    int code = run_words(checking, out->said, sizeof(out->said), &failed);
    int status = judge_end(options, code, failed, out->said);
    if (status != 0) {
        return status;
    }
    make_command(options, &command);
    code = run_words(command.word, out->said, sizeof(out->said), &failed);
    status = judge_end(options, code, failed, out->said);
    return status != 0 ? status : fby_bench_engine_parse(out);
}
