/* replay_scratch.h - a directory for one run, under TMPDIR or /tmp, and its removal with all that is in it. */
#ifndef FBY_CLI_REPLAY_SCRATCH_H
#define FBY_CLI_REPLAY_SCRATCH_H

#include "base/base.h"

enum { FBY_SCRATCH_BYTES = 512 };

/* -errno with the detail set; path[0] is '\0' then. */
int fby_scratch_make(char path[FBY_SCRATCH_BYTES]);
/* Harmless for "". */
void fby_scratch_remove(const char *path);

#endif
