/* bench_server_python.c - the same from Python, where the package is there. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench_server.h"

enum { ANSWER_BYTES = 512, NOT_THERE = 3 };

/* argv: socket, samples, tokens. Prints medians in microseconds: a poll (of 64 each), a start with its release apart. */
static const char script[] = "import sys, time, statistics\n"
                             "try:\n"
                             "    import forebay\n"
                             "except ImportError as error:\n"
                             "    print(error)\n"
                             "    sys.exit(3)\n"
                             "path, samples, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])\n"
                             "now = time.perf_counter_ns\n"
                             "with forebay.connect(path) as cache:\n"
                             "    sequence = cache.sequence(range(tokens))\n"
                             "    polls, starts = [], []\n"
                             "    with cache.start(sequence) as session:\n"
                             "        session.wait(30.0)\n"
                             "        poll = session.poll\n"
                             "        for _ in range(samples):\n"
                             "            began = now()\n"
                             "            for _ in range(64):\n"
                             "                poll()\n"
                             "            polls.append((now() - began) / 64000)\n"
                             "    for _ in range(samples):\n"
                             "        began = now()\n"
                             "        session = cache.start(sequence)\n"
                             "        starts.append((now() - began) / 1000)\n"
                             "        session.release()\n"
                             "    print(statistics.median(polls), statistics.median(starts))\n";

_Noreturn static void become_python(const fby_bench_server_t *bench, int out)
{
    char samples[24], tokens[24];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(samples, sizeof(samples), "%llu", (unsigned long long)bench->options->samples);
    snprintf(tokens, sizeof(tokens), "%d", FBY_BENCH_BLOCKS * FBY_BENCH_BLOCK_TOKENS + 1);
    if (dup2(out, STDOUT_FILENO) == STDOUT_FILENO) {
        execlp(bench->options->python, bench->options->python, "-c", script, bench->process.socket, samples, tokens,
               (char *)NULL);
    }
    _exit(127);
}

/* Everything it prints, cut to fit; waits for its end. */
static int ask(const fby_bench_server_t *bench, char answer[ANSWER_BYTES])
{
    int fd[2], status = 0;
    size_t length = 0;
    if (pipe2(fd, O_CLOEXEC) != 0) {
        return -1;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        become_python(bench, fd[1]);
    }
    close(fd[1]);
    for (ssize_t got = 1; pid > 0 && got > 0 && length + 1 < ANSWER_BYTES; length += got > 0 ? (size_t)got : 0) {
        while ((got = read(fd[0], answer + length, ANSWER_BYTES - 1 - length)) < 0 && errno == EINTR) {}
    }
    answer[length] = '\0';
    close(fd[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void fby_bench_python(fby_bench_server_t *bench)
{
    char answer[ANSWER_BYTES] = "";
    bench->python_poll_us = bench->python_start_us = NAN;
    if (bench->options->python == NULL) {
        snprintf(bench->python_note, sizeof(bench->python_note), "no --python was given");
        return;
    }
    int code = ask(bench, answer);
    answer[strcspn(answer, "\n")] = '\0';
    if (code == 0 && sscanf(answer, "%lf %lf", &bench->python_poll_us, &bench->python_start_us) == 2) {
        return;
    }
    bench->python_poll_us = bench->python_start_us = NAN;
    if (code == 127) {
        snprintf(bench->python_note, sizeof(bench->python_note), "%.100s cannot be run", bench->options->python);
    } else if (code == NOT_THERE) {
        snprintf(bench->python_note, sizeof(bench->python_note), "%.60s has no package: %.100s", bench->options->python,
                 answer);
    } else if (code < 0) {
        snprintf(bench->python_note, sizeof(bench->python_note), "%.100s was ended by a signal",
                 bench->options->python);
    } else {
        snprintf(bench->python_note, sizeof(bench->python_note), "%.60s ended with status %d; it says why above",
                 bench->options->python, code);
    }
}
