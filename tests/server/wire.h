/*
 * wire.h - a served cache, and clients that speak to it message by message: also what no client of ours would say.
 */
#ifndef FBY_TESTS_SERVER_WIRE_H
#define FBY_TESTS_SERVER_WIRE_H

#include <sys/types.h>

#include "api/rig.h"
#include "runtime/board.h"
#include "server/protocol.h"
#include "server/server.h"

typedef struct served {
    rig_t rig;
    fby_server_t *server;
    char directory[64], path[96];
} served_t;

/* A cache, and a server over it that the test opens by itself, on a socket in a directory of its own; settings as for
   RIG_OPEN. */
#define SERVED_OPEN(served, ...) served_open((served), (const char *const[]){__VA_ARGS__, NULL})
void served_open(served_t *served, const char *const *settings);
void served_close(served_t *served);
/* The server alone: opened and closed again. */
void served_serve(served_t *served);
void served_stop(served_t *served, double limit_s);
/* Nothing hangs in the store any more, nor will. */
void served_unhang(served_t *served);
fby_server_info_t served_info(served_t *served);

typedef struct wire {
    int socket;
    uint32_t serial;
    fby_msg_welcome_t welcome;
    const fby_board_t *board;
    uint8_t *pool;
    _Alignas(8) uint8_t out[FBY_MSG_MOST];
    _Alignas(8) uint8_t in[FBY_MSG_MOST];
    fby_answer_view_t answer; /* the last one */
    int fd[FBY_MSG_FDS];      /* that came with it: the test's to close */
    size_t fds;
} wire_t;

/* A connection that has said nothing. */
wire_t *wire_open(const char *path);
/* HELLO, and what it brings is mapped; or the code. */
int wire_hello(wire_t *wire);
/* Both; must succeed. */
wire_t *wire_connect(const char *path);
void wire_close(wire_t *wire);

/* Sends one request and takes its answer; the code. */
int wire_call(wire_t *wire, fby_request_t type, const void *body, const void *elements, uint32_t count);
/* About one object. */
int wire_object(wire_t *wire, fby_request_t type, uint64_t handle, uint64_t from, uint64_t to, uint32_t flags);
void wire_send(wire_t *wire, const void *bytes, size_t length);
/* Waits until the server has closed the connection. */
void wire_await_end(wire_t *wire);

/* Of a sequence of the rig's cache: id, hashes from block `from` on. */
fby_msg_seq_t wire_seq(const fby_seq_t *seq, uint64_t id, uint32_t from);
int wire_start(wire_t *wire, const fby_seq_t *seq, uint64_t id, uint32_t from, fby_session_t *session);
int wire_lookup(wire_t *wire, const fby_seq_t *seq, uint64_t id, unsigned flags, fby_hold_t *hold, uint64_t *tokens);
int wire_put(wire_t *wire, const fby_seq_t *seq, uint64_t id, uint64_t to, fby_put_t *put, uint64_t *from,
             uint64_t *end);
/* Fills and seals what the put staged, through the client's own mapping. */
void wire_fill(wire_t *wire, fby_put_t put, const fby_seq_t *seq, uint64_t from, uint64_t to);
fby_snapshot_t wire_await_answer(wire_t *wire, fby_session_t session);

/* The same prompt as rig_seq makes, without the cache: as a client hashes it. */
fby_seq_t *wire_own_seq(wire_t *wire, uint64_t seed, size_t tokens);

/*
 * Processes of their own: this program again, which runs one story on a connection, tells the test what it has to know, and
 * then lives until it is killed.
 */
typedef struct wire_story {
    const char *name;
    void (*run)(wire_t *wire);
} wire_story_t;
/* In the story: to the test. */
void wire_say(const void *bytes, size_t length);
/* First thing in main: runs a story and does not return if this is such a process. */
void wire_main(int argc, char **argv, const wire_story_t *stories, size_t n);

typedef struct wire_child {
    pid_t pid;
    int said;
} wire_child_t;
wire_child_t wire_child(const char *path, const char *story);
/* Reads exactly what the child said. */
void wire_child_hear(wire_child_t *child, void *bytes, size_t length);
void wire_child_kill(wire_child_t *child);

/* Open descriptors of this process. */
unsigned wire_descriptors(void);

#endif
