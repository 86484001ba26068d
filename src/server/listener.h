/*
 * listener.h - the socket in the file system: made so that nobody ever sees it with another mode, replaced when its server
 * is gone, left alone when it is not, removed at the end if it is still ours.
 *
 * PATH.lock says whether a server lives: the kernel lets the lock go with the process, however that ends.
 */
#ifndef FBY_SERVER_LISTENER_H
#define FBY_SERVER_LISTENER_H

#include <sys/stat.h>

#include "base/base.h"

typedef struct fby_listener {
    int socket, lock;
    dev_t device; /* of the socket's file */
    ino_t inode;
    char path[108];
} fby_listener_t;

/* -EADDRINUSE (somebody listens there), FBY_E_CONFIG (too long, or something that is no socket is there), -errno; with
   detail. */
int fby_listener_open(const char *path, unsigned mode, fby_listener_t *out);
/* Takes no more connections; the file stays. Harmless the second time. */
void fby_listener_shut(fby_listener_t *listener);
void fby_listener_close(fby_listener_t *listener);

#endif
