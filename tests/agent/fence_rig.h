/*
 * fence_rig.h - what tests of the fence need: stores on a driver or an agent that misbehaves, marks that they leave,
 * processes known by descriptors, and a host without the right to make PID namespaces.
 */
#ifndef FBY_TESTS_AGENT_FENCE_RIG_H
#define FBY_TESTS_AGENT_FENCE_RIG_H

#include "host_rig.h"

typedef struct fence_rig {
    host_rig_t host;
    char *directory; /* of marks */
} fence_rig_t;

/* A store on the evil driver (in the real agent), or on the evil agent. `namespaced`: in PID namespaces; else the host
   is not allowed to make any. Skips the test where that cannot be had. */
void fence_rig_driver(fence_rig_t *rig, const char *act, bool namespaced);
void fence_rig_agent(fence_rig_t *rig, const char *act, bool namespaced);
void fence_rig_close(fence_rig_t *rig);
/* Only the directory, where the store cannot be closed as usual. */
void fence_rig_forget(fence_rig_t *rig);

/* Waits for a mark (at most 20 s, then the test fails) and returns its number. fence_rig_marked only looks; -1: none. */
long fence_rig_mark(const fence_rig_t *rig, const char *name);
long fence_rig_marked(const fence_rig_t *rig, const char *name);
/* Waits until the mark's number has grown by `more` from what it is now. */
void fence_rig_grown(const fence_rig_t *rig, const char *name, long more);
void fence_rig_leave(const fence_rig_t *rig, const char *name); /* for an agent to see */
void fence_rig_unmark(const fence_rig_t *rig, const char *name);

/* Fences the call until it has an effect, as the runtime would once the call is with an agent. */
void fence_rig_fence(host_rig_call_t *call);
/* Fails unless every byte of the pool is `byte`. */
void fence_rig_painted(const fence_rig_t *rig, uint8_t byte);
/* `n` calls on the query lanes. */
void fence_rig_busy(fence_rig_t *rig, uint32_t n);

/* Stories that a thread sanitizer cannot follow: it has a thread of its own in each process, and none after a fork. */
void fence_rig_needs_no_tsan(void);

/* The right to make PID namespaces of threads that this thread starts from now on. False: it cannot be had. */
bool fence_rig_namespaces(bool allowed);
/* How many PID namespaces a process is in, as seen from ours: 1 or 2. */
unsigned fence_rig_depth(pid_t pid);
int fence_rig_pidfd(pid_t pid);
/* True when the process has ended, within 20 s. */
bool fence_rig_ended(int pidfd);
bool fence_rig_lives(int pidfd);
void fence_rig_pause(void);
/* How often the process's threads whose name begins so have gone to sleep. */
unsigned long fence_rig_sleeps(pid_t pid, const char *name);

#endif
