#include "cli/top_screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"

#define ENTER "\x1b[?1049h\x1b[?25l" /* the other screen, no cursor */
#define LEAVE "\x1b[?25h\x1b[?1049l"
#define HOME "\x1b[H"
#define END_OF_LINE "\x1b[K\r\n"
#define END_OF_PAGE "\x1b[J"

enum { LEAST_WIDTH = 20, LEAST_HEIGHT = 4, USUAL_WIDTH = 80, USUAL_HEIGHT = 24 };

static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static const int crashes[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};

/* What a signal handler needs, so process-wide. */
static struct termios before;
static volatile sig_atomic_t taken;

/* ---- The terminal ------------------------------------------------------------------------------------------------ */

static void put(const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(STDOUT_FILENO, text, length);
        if (written < 0 && errno != EINTR) {
            return; /* a terminal that is gone is noticed where keys are read */
        }
        text += written > 0 ? written : 0;
        length -= written > 0 ? (size_t)written : 0;
    }
}

/* Calls only what a signal handler may. */
static void restore(void)
{
    if (taken) {
        taken = 0;
        put(LEAVE, sizeof(LEAVE) - 1);
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
}

static void crash(int number)
{
    restore();
    raise(number); /* SA_RESETHAND: as without us */
}

/* Keys come one by one and are not shown. Ctrl-C and its like stay signals. */
static void take(void)
{
    struct termios raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    taken = 1;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    put(ENTER, sizeof(ENTER) - 1);
}

static void measure(fby_screen_t *screen)
{
    struct winsize size = {.ws_col = 0};
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
    screen->width = is_known ? FBY_MAX((size_t)size.ws_col, (size_t)LEAST_WIDTH) : USUAL_WIDTH;
    screen->height = is_known ? FBY_MAX((size_t)size.ws_row, (size_t)LEAST_HEIGHT) : USUAL_HEIGHT;
}

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

static void fill_set(sigset_t *set)
{
    sigemptyset(set);
    for (size_t i = 0; i < FBY_ARRAY_LEN(ends); i++) {
        sigaddset(set, ends[i]);
    }
    sigaddset(set, SIGTSTP);
    sigaddset(set, SIGCONT);
    sigaddset(set, SIGWINCH);
}

int fby_screen_open(fby_screen_t *out)
{
    struct sigaction action = {.sa_handler = crash, .sa_flags = (int)SA_RESETHAND | SA_NODEFER};
    sigset_t set;
    *out = (fby_screen_t){.signals = -1};
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before) != 0) {
        return -ENOTTY;
    }
    fill_set(&set);
    out->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (out->signals < 0) {
        return -errno;
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (size_t i = 0; i < FBY_ARRAY_LEN(crashes); i++) {
        sigaction(crashes[i], &action, NULL);
    }
    atexit(restore);
    take();
    measure(out);
    return 0;
}

/* Signals that are pending take effect now, with the terminal as it was. */
void fby_screen_close(fby_screen_t *screen)
{
    sigset_t set;
    restore();
    fill_set(&set);
    close(screen->signals);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static fby_screen_event_t obey(fby_screen_t *screen, int number)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(ends); i++) {
        if (ends[i] == number) {
            screen->signal = number;
            return FBY_SCREEN_LEAVE;
        }
    }
    if (number == SIGTSTP) {
        restore();
        kill(getpid(), SIGSTOP);
    }
    if (!taken || number == SIGCONT) { /* the shell may have changed the terminal meanwhile */
        take();
    }
    measure(screen);
    return FBY_SCREEN_SIZE;
}

/* ---- Showing and waiting ----------------------------------------------------------------------------------------- */

void fby_screen_draw(const fby_screen_t *screen, const char *text)
{
    char *page = NULL;
    size_t length = 0, line = 0;
    FILE *out = open_memstream(&page, &length);
    if (out == NULL) {
        return;
    }
    fputs(HOME, out);
    for (; *text != '\0' && line + 1 < screen->height; line++) {
        size_t bytes = strcspn(text, "\n");
        fprintf(out, "%.*s" END_OF_LINE, (int)FBY_MIN(bytes, screen->width), text);
        text += bytes + (text[bytes] == '\n');
    }
    fputs(END_OF_PAGE, out);
    if (fclose(out) == 0) {
        put(page, length);
    }
    free(page);
}

static fby_screen_event_t read_key(void)
{
    char key;
    ssize_t got = read(STDIN_FILENO, &key, 1);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
        return FBY_SCREEN_LEAVE;
    }
    if (got == 1 && (key == 'q' || key == 'Q')) {
        return FBY_SCREEN_LEAVE;
    }
    return got == 1 && key == ' ' ? FBY_SCREEN_NOW : FBY_SCREEN_SIZE;
}

fby_screen_event_t fby_screen_wait(fby_screen_t *screen, uint64_t until_ns)
{
    struct pollfd fds[] = {{.fd = screen->signals, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
    struct signalfd_siginfo info;
    for (;;) {
        uint64_t left = fby_sub_sat(until_ns, fby_clock_now(&fby_clock_monotonic));
        struct timespec limit = {(time_t)(left / FBY_SECOND), (long)(left % FBY_SECOND)};
        int ready = ppoll(fds, FBY_ARRAY_LEN(fds), &limit, NULL);
        if (ready == 0) {
            return FBY_SCREEN_TIME;
        }
        if (ready > 0 && fds[0].revents != 0 && read(screen->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            return obey(screen, (int)info.ssi_signo);
        }
        if (ready > 0 && fds[1].revents != 0) {
            return read_key();
        }
    }
}
