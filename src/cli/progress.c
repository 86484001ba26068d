#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { BAR_WIDTH = 30 };

void fby_progress_begin(fby_progress_t *progress, const char *label, uint64_t total)
{
    *progress = (fby_progress_t){.label = label, .total = total, .is_shown = isatty(STDERR_FILENO) == 1};
}

static void draw(const fby_progress_t *progress, uint64_t done)
{
    char bar[BAR_WIDTH + 1];
    if (progress->total == 0) {
        fprintf(stderr, "\r%s %" PRIu64 "\033[K", progress->label, done);
        return;
    }
    double share = FBY_MIN((double)done / (double)progress->total, 1.0);
    size_t full = (size_t)(share * BAR_WIDTH);
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', full);
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r%s [%s] %3.0f %%\033[K", progress->label, bar, share * 100);
}

void fby_progress_step(fby_progress_t *progress, uint64_t done)
{
    if (!progress->is_shown) {
        return;
    }
    uint64_t now = fby_clock_now(&fby_clock_monotonic);
    if (now >= progress->next_ns) {
        progress->next_ns = now + 100 * FBY_MS;
        draw(progress, done);
        fflush(stderr);
    }
}

void fby_progress_end(fby_progress_t *progress)
{
    if (progress->is_shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    progress->is_shown = false;
}
