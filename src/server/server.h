/*
 * server.h - a cache that answers other processes: one thread behind the socket of server.listen.
 *
 * OWNERSHIP  every session, hold, put, subscription and sequence belongs to the connection it was made for. The server
 *            itself uses the cache by the public calls, like anybody else.
 * NOTHING WAITS  the thread makes only calls that answer at once. What can wait is a descriptor that the client waits on;
 *            what does I/O (a reset that raises the epoch) runs on a helper thread while its connection rests.
 * FAIR       one request per connection is under way; a round takes a bounded number of each. A client that does not read
 *            its answers is not read either.
 * DEATH      a closed socket ends everything that connection had, at once. What its process could still write, slots of
 *            puts, is fenced: it comes free when the pidfd taken at accept says that the process is gone, and, where ranks
 *            were granted the put, when each of them said so or is gone as well.
 */
#ifndef FBY_SERVER_SERVER_H
#define FBY_SERVER_SERVER_H

#include "forebay/forebay.h"
#include "forebay/server.h"
#include "runtime/runtime.h"

typedef struct fby_server fby_server_t;

/* Listens and makes the thread, unless server.listen is off: then *out is NULL. A socket that nobody listens on any more
   is replaced; one that somebody does is -EADDRINUSE. The mode of the socket is server.mode from its first moment on.
   Tells systemd (NOTIFY_SOCKET) when ready. -errno with detail. */
int fby_server_open(fby_cache_t *cache, fby_runtime_t *runtime, fby_server_t **out);
/* No new connections and no new sessions from now on; sessions under way go on until they are answered and taken, or
   limit_s passed. Then every connection is closed, the thread ends, the socket is removed. NULL is fine. *Blocks*. */
void fby_server_close(fby_server_t *server, double limit_s);
/* As fby_server_info. */
int fby_server_describe(fby_server_t *server, fby_server_info_t *info, fby_server_client_t *clients, size_t capacity,
                        size_t *count);

/* X(NAME, label): why connections were refused. */
#define FBY_SERVER_REFUSAL_MAP(X) X(USER, user) X(VERSION, version) X(NUMBER, number)
typedef enum fby_server_refusal {
#define FBY_X(name, text) FBY_SERVER_REFUSED_##name,
    FBY_SERVER_REFUSAL_MAP(FBY_X)
#undef FBY_X
        FBY_SERVER_REFUSED_COUNT
} fby_server_refusal_t;
/* The counters of info, without a lock; all 0 for NULL. What describes one moment (pid, age, stopping) is 0. */
void fby_server_counters(const fby_server_t *server, fby_server_info_t *info);
uint64_t fby_server_refused(const fby_server_t *server, fby_server_refusal_t reason);

#endif
