/*
 * bench_server_crowd.c - many clients, a process each.
 *
 * Every client says once that it is there and once what it did, each in one write to a common pipe: shorter than PIPE_BUF,
 * so words never mix. A byte in the other pipe lets one go; its end tells them to leave.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/bench_server.h"

enum { WORD_LIMIT_MS = 60000 };

_Static_assert(sizeof(fby_bench_word_t) <= PIPE_BUF, "words would mix");

/* ---- In a client ------------------------------------------------------------------------------------------------- */

static void say(int words, int status, uint64_t calls)
{
    fby_bench_word_t word = {.status = status, .calls = calls};
    if (status != 0) {
        snprintf(word.text, sizeof(word.text), "%s",
                 *fby_last_error() != '\0' ? fby_last_error() : fby_strerror(status));
    }
    ssize_t written = write(words, &word, sizeof(word));
    (void)written; /* who started us is gone: so are we, soon */
}

_Noreturn static void be_client(const char *socket, uint64_t load_ns, int go, int words)
{
    fby_cache_t *cache;
    fby_seq_t *seq;
    fby_hold_t hold;
    uint64_t calls = 0;
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = fby_bench_client_connect(socket, &cache, &seq);
    status = status == 0 ? fby_lookup(cache, seq, 0, &hold, NULL) : status;
    say(words, status, 0);
    if (status == 0 && read(go, &byte, 1) == 1) {
        status = fby_bench_client_load(cache, seq, load_ns, &calls);
        say(words, status, calls);
    }
    _exit(0); /* the server takes back what is left */
}

/* ---- Here -------------------------------------------------------------------------------------------------------- */

static int hear(const fby_bench_crowd_t *crowd, fby_bench_word_t *word)
{
    struct pollfd fd = {.fd = crowd->words, .events = POLLIN};
    int ready;
    while ((ready = poll(&fd, 1, WORD_LIMIT_MS)) < 0 && errno == EINTR) {}
    if (ready <= 0 || read(crowd->words, word, sizeof(*word)) != (ssize_t)sizeof(*word)) {
        fby_error_set("a client ended, or said nothing for %d s", WORD_LIMIT_MS / 1000);
        return -ETIMEDOUT;
    }
    word->text[sizeof(word->text) - 1] = '\0';
    if (word->status != 0) {
        fby_error_set("a client: %s", word->text);
    }
    return word->status;
}

static int fork_all(fby_bench_crowd_t *crowd, const char *socket, uint64_t load_ns, int go, int words)
{
    fflush(NULL);
    for (uint64_t i = 0; i < crowd->clients; i++) {
        crowd->pid[i] = fork();
        if (crowd->pid[i] == 0) {
            close(crowd->go);
            close(crowd->words);
            be_client(socket, load_ns, go, words);
        }
        if (crowd->pid[i] < 0) {
            crowd->pid[i] = 0;
            fby_error_set("fork: %s", strerror(errno));
            return -errno;
        }
    }
    return 0;
}

int fby_bench_crowd_start(fby_bench_crowd_t *out, const char *socket, uint64_t clients, uint64_t load_ns)
{
    fby_bench_word_t word;
    int go[2], words[2];
    *out = (fby_bench_crowd_t){.clients = FBY_MIN(clients, (uint64_t)FBY_BENCH_CLIENTS_MOST), .go = -1, .words = -1};
    if (pipe(go) != 0) {
        fby_error_set("pipe: %s", strerror(errno));
        return -errno;
    }
    out->go = go[1];
    if (pipe(words) != 0) {
        fby_error_set("pipe: %s", strerror(errno));
        close(go[0]);
        return -EMFILE;
    }
    out->words = words[0];
    int status = fork_all(out, socket, load_ns, go[0], words[1]);
    close(go[0]);
    close(words[1]);
    for (uint64_t i = 0; i < out->clients && status == 0; i++) {
        status = hear(out, &word);
    }
    return status;
}

int fby_bench_crowd_go(fby_bench_crowd_t *crowd, uint64_t *calls)
{
    char bytes[FBY_BENCH_CLIENTS_MOST] = "";
    fby_bench_word_t word = {.status = 0};
    int status = 0;
    *calls = 0;
    if (write(crowd->go, bytes, crowd->clients) != (ssize_t)crowd->clients) {
        fby_error_set("the clients cannot be let go: %s", strerror(errno));
        return -EPIPE;
    }
    for (uint64_t i = 0; i < crowd->clients && status == 0; i++) {
        status = hear(crowd, &word);
        *calls += word.calls;
    }
    return status;
}

void fby_bench_crowd_stop(fby_bench_crowd_t *crowd)
{
    for (uint64_t i = 0; i < crowd->clients; i++) {
        if (crowd->pid[i] > 0) {
            kill(crowd->pid[i], SIGKILL); /* none of them has anything to finish */
            while (waitpid(crowd->pid[i], NULL, 0) < 0 && errno == EINTR) {}
        }
    }
    if (crowd->clients > 0 && crowd->go >= 0) {
        close(crowd->go);
    }
    if (crowd->clients > 0 && crowd->words >= 0) {
        close(crowd->words);
    }
    *crowd = (fby_bench_crowd_t){.go = -1, .words = -1};
}
