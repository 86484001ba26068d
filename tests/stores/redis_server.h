/*
 * redis_server.h - real redis-servers for tests: on loopback, with a port and a directory of their own, nothing kept,
 * ended by their pid; they die with the test.
 */
#ifndef FBY_TESTS_STORES_REDIS_SERVER_H
#define FBY_TESTS_STORES_REDIS_SERVER_H

#include "fixture.h"

#include <sys/types.h>

#include "stores/stores.h"

enum { REDIS_SERVER_ARGUMENTS = 24 };

typedef struct redis_server {
    pid_t pid; /* 0: not running */
    uint32_t port, tls_port, bus_port;
    char *directory;
    const char *password; /* for redis_server_ask; NULL: none */
    const char *arguments[REDIS_SERVER_ARGUMENTS + 1];
} redis_server_t;

/* Exits with 77 and says why when there is no redis-server. Call it first in main(). */
void redis_server_needed(void);
/* Starts one with further arguments ("--maxmemory", "8mb", NULL) and waits until it answers. */
void redis_server_start(redis_server_t *server, ...) __attribute__((sentinel));
/* Ends it at once; port, directory and arguments stay for redis_server_again. */
void redis_server_kill(redis_server_t *server);
void redis_server_again(redis_server_t *server);
void redis_server_signal(const redis_server_t *server, int signal);
void redis_server_stop(redis_server_t *server);
/* A port nobody listens on. */
uint32_t redis_server_free_port(void);

/* One command with blanks between its words; fails the test on an error reply. The integer, or the length of a text. */
int64_t redis_server_ask(const redis_server_t *server, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The text of the reply, an error's too; static storage. */
const char *redis_server_text(const redis_server_t *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* SET of raw bytes under "fby:" and the key of object i of group 0. */
void redis_server_set(const redis_server_t *server, uint64_t i, const void *bytes, size_t length);

/* "NAME=number"; static storage, eight at a time. */
const char *redis_option(const char *name, uint64_t number);
#define redis_port(server) redis_option("port", (server)->port)

#endif
