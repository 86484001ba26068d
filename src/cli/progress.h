/* progress.h - a progress bar on stderr, only when it is a terminal. Silent otherwise. */
#ifndef FBY_CLI_PROGRESS_H
#define FBY_CLI_PROGRESS_H

#include "base/base.h"

typedef struct fby_progress {
    const char *label;
    uint64_t total;   /* 0: unknown, a count is shown */
    uint64_t next_ns; /* when to draw again */
    bool is_shown;
} fby_progress_t;

void fby_progress_begin(fby_progress_t *progress, const char *label, uint64_t total);
/* Cheap enough for every step: draws at most ten times a second. */
void fby_progress_step(fby_progress_t *progress, uint64_t done);
/* Wipes the bar. */
void fby_progress_end(fby_progress_t *progress);

#endif
