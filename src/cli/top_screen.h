/*
 * top_screen.h - a terminal that shows one page, and what ends a wait for it: a key, a size, a signal, the time.
 *
 * The terminal is as it was before on every exit: by key, by signal, by exit(), and when the process crashes.
 */
#ifndef FBY_CLI_TOP_SCREEN_H
#define FBY_CLI_TOP_SCREEN_H

#include "base/base.h"

typedef enum fby_screen_event {
    FBY_SCREEN_TIME,  /* until_ns came */
    FBY_SCREEN_SIZE,  /* the terminal has another size, or shows something else: draw again */
    FBY_SCREEN_NOW,   /* the user wants fresh figures */
    FBY_SCREEN_LEAVE, /* the user wants to leave, or the terminal is gone */
} fby_screen_event_t;

typedef struct fby_screen {
    size_t width, height;
    int signals; /* signalfd */
    int signal;  /* that ended the wait; 0: none */
} fby_screen_t;

/* Takes the terminal behind stdin and stdout; one screen per process. -ENOTTY: they are none. -errno. */
int fby_screen_open(fby_screen_t *out);
/* Gives the terminal back. */
void fby_screen_close(fby_screen_t *screen);
/* Shows the lines of a text, cut at the edges. */
void fby_screen_draw(const fby_screen_t *screen, const char *text);
/* Until something happens, until_ns (monotonic) at the latest. */
fby_screen_event_t fby_screen_wait(fby_screen_t *screen, uint64_t until_ns);

#endif
