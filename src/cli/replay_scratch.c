#include "cli/replay_scratch.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

int fby_scratch_make(char path[FBY_SCRATCH_BYTES])
{
    const char *parent = getenv("TMPDIR");
    parent = parent != NULL && *parent != '\0' ? parent : "/tmp";
    int length = snprintf(path, FBY_SCRATCH_BYTES, "%s/forebay-XXXXXX", parent);
    int error = length < 0 || length >= FBY_SCRATCH_BYTES ? ENAMETOOLONG : mkdtemp(path) == NULL ? errno : 0;
    if (error != 0) {
        fby_error_set("no directory can be made in \"%.256s\": %s; accepted: a TMPDIR that can be written to", parent,
                      strerror(error));
        path[0] = '\0';
    }
    return -error;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

void fby_scratch_remove(const char *path)
{
    if (*path != '\0') {
        nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    }
}
