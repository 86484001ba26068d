/*
 * served.h - servers that may die: each in a process of its own, behind a socket in a private folder.
 *
 * The geometry is that of api/rig.h; rig.cache is a connected cache, and the rig's calls that need no store go over it.
 */
#ifndef FBY_TESTS_CLIENT_SERVED_H
#define FBY_TESTS_CLIENT_SERVED_H

#include <sys/types.h>

#include "api/rig.h"
#include "forebay/server.h"

typedef struct served {
    pid_t pid;    /* 0: none */
    int to, from; /* its stdin and stdout */
    char folder[40], path[56];
} served_t;

/* The folder, and a server in it. Settings are "key=value", NULL ends. */
#define SERVED_OPEN(served, ...) served_open((served), (const char *const[]){__VA_ARGS__, NULL})
void served_open(served_t *served, const char *const *settings);
/* A server on the same path; returns when it answers. */
#define SERVED_START(served, ...) served_start((served), (const char *const[]){__VA_ARGS__, NULL})
void served_start(served_t *served, const char *const *settings);
void served_kill(served_t *served);
/* Until it has stopped, or goes on. */
void served_freeze(served_t *served);
void served_thaw(served_t *served);
/* An orderly end, which must succeed. */
void served_stop(served_t *served);
/* Stops what there is, and removes the folder. */
void served_close(served_t *served);

/* A connected cache in rig->cache, that tries again at once. */
void served_connect(const served_t *served, rig_t *rig, double call_timeout_s);
/* Starts sessions until one of them is a server's: the connection is there again. */
void served_await_back(rig_t *rig);

#endif
