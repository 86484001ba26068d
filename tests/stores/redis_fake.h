/*
 * redis_fake.h - a scripted server that speaks just enough of Redis' protocol to say the wrong thing: one thread, one
 * connection at a time. It is no Redis; what a real server can be made to do is tested on a real one.
 */
#ifndef FBY_TESTS_STORES_REDIS_FAKE_H
#define FBY_TESTS_STORES_REDIS_FAKE_H

#include "fixture.h"

#include <pthread.h>

/* What it does once a whole command has come. */
typedef struct fake_step {
    const char *bytes; /* sent; may hold NULs */
    size_t length;
    bool one_by_one; /* each byte in a segment of its own */
    bool stalls;     /* then says nothing more until the other side leaves */
    bool closes;     /* then ends the connection; the next one goes on with the next step */
} fake_step_t;

#define FAKE_TEXT(text)                                                                                                \
    {                                                                                                                  \
        .bytes = (text), .length = sizeof(text) - 1                                                                    \
    }

typedef struct fake {
    uint32_t port;
    int listener;
    pthread_t thread;
    const fake_step_t *steps; /* ends with bytes NULL: then every command is answered ":0" */
    unsigned connections;     /* accepted so far; read it after fake_stop */
} fake_t;

void fake_start(fake_t *fake, const fake_step_t *steps);
/* Close the store first. */
void fake_stop(fake_t *fake);

#endif
