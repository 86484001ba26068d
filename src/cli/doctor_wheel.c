/* doctor_wheel.c - the interpreter that runs Mooncake's client, and the wheel in it. Asked in a process of its own. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/doctor.h"

#define TESTED_VERSION "0.3.13.post1"
enum { ANSWER_BYTES = 4096, LIMIT_S = 30 };

/* Line by line: the interpreter's version, the wheel's, and what its import said ("" when it went well). */
static const char question[] = "import sys\n"
                               "from importlib import metadata\n"
                               "print(sys.version.split()[0])\n"
                               "names = [d for d in metadata.distributions() if (d.metadata['Name'] or "
                               "'').lower().startswith('mooncake-transfer-engine')]\n"
                               "print(names[0].version if names else '')\n"
                               "try:\n"
                               "    from mooncake.store import MooncakeDistributedStore\n"
                               "    print('')\n"
                               "except BaseException as problem:\n"
                               "    print(f'{type(problem).__name__}: {problem}'.replace('\\n', ' '))\n";

/* In the child: what the store's options put into the agent's environment belongs here, too. */
static void set_environment(const fby_doctor_t *doctor)
{
    const char *name, *value;
    for (size_t i = 0; (name = fby_doctor_option_at(doctor, i, &value)) != NULL; i++) {
        if (strncmp(name, "env.", 4) == 0) {
            setenv(name + 4, value, 1);
        }
    }
}

/* The process, with its stdout on *fd; -1 and errno. One that cannot be executed ends with 127. */
static pid_t ask(const fby_doctor_t *doctor, const char *python, int *fd)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        signal(SIGPIPE, SIG_DFL);
        dup2(null, STDIN_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        set_environment(doctor);
        execlp(python, python, "-c", question, (char *)NULL);
        _exit(127);
    }
    int error = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        errno = error;
        return -1;
    }
    *fd = ends[0];
    return pid;
}

/* Reads until the end or the limit. False: the limit. */
static bool read_answer(int fd, char answer[ANSWER_BYTES])
{
    uint64_t end_ns = fby_clock_now(&fby_clock_monotonic) + fby_ns_from_s(LIMIT_S);
    size_t length = 0;
    bool ended = false;
    while (!ended && length < ANSWER_BYTES - 1) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        uint64_t now = fby_clock_now(&fby_clock_monotonic);
        int count = now >= end_ns ? 0 : poll(&ready, 1, (int)((end_ns - now) / FBY_MS) + 1);
        if (count == 0) {
            break;
        }
        ssize_t got = count > 0 ? read(fd, answer + length, ANSWER_BYTES - 1 - length) : -1;
        length += got > 0 ? (size_t)got : 0;
        ended = got == 0 || (got < 0 && errno != EINTR);
    }
    answer[length] = '\0';
    return ended || length == ANSWER_BYTES - 1;
}

/* The exit status, or -1 when it had to be ended. */
static int finish(pid_t pid, bool answered)
{
    int status = 0;
    if (!answered) {
        kill(pid, SIGKILL);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return answered && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void report_wheel(fby_doctor_t *doctor, const char *version, const char *problem)
{
    static const char install[] = "PYTHON -m pip install mooncake-transfer-engine-non-cuda==" TESTED_VERSION
                                  ", with PYTHON as the option python names it";
    if (*problem != '\0' && *version == '\0') {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, install, "Mooncake's wheel is not installed in it: %s", problem);
    } else if (*problem != '\0') {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL,
                          "what it needs, as Debian packages: libibverbs1 libnuma1 libcurl4 libstdc++6",
                          "the wheel %s is installed and does not load: %s", version, problem);
    } else if (strcmp(version, TESTED_VERSION) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, install,
                          "the wheel loads; its version is %s, tested was " TESTED_VERSION,
                          *version != '\0' ? version : "not known");
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "the wheel " TESTED_VERSION " loads");
    }
}

void fby_check_wheel(fby_doctor_t *doctor)
{
    static const char advice[] = "python=PATH of an interpreter (3.10 or newer) that has Mooncake's wheel";
    const char *given = fby_doctor_option(doctor, "python"), *python = given != NULL ? given : "python3";
    char answer[ANSWER_BYTES], *rest = answer;
    int fd;
    pid_t pid = ask(doctor, python, &fd);
    if (pid < 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, NULL, "no process can be started: %s", strerror(errno));
        return;
    }
    bool answered = read_answer(fd, answer);
    close(fd);
    int status = finish(pid, answered);
    const char *interpreter = strsep(&rest, "\n"), *version = strsep(&rest, "\n"), *problem = strsep(&rest, "\n");
    if (status == 127) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, advice, "%.200s cannot be run", python);
    } else if (!answered) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, advice, "%.200s did not answer in %d s", python, LIMIT_S);
    } else if (status != 0 || problem == NULL) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, advice, "%.200s ended with status %d before it said what it has",
                          python, status);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%.200s, Python %s", python, interpreter);
        report_wheel(doctor, version, problem);
    }
}
