/*
 * internal.h - the server from inside: its thread, its connections, one handler per request.
 *
 * Everything here belongs to the server's thread, which holds `lock` while it works (but not while it asks
 * for metrics), so that others may look (describe).
 * Counters are atomics: metrics are asked for from within a call, too.
 */
#ifndef FBY_SERVER_INTERNAL_H
#define FBY_SERVER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/log.h"
#include "runtime/board.h"
#include "server/listener.h"
#include "server/owned.h"
#include "server/protocol.h"
#include "server/sequences.h"
#include "server/server.h"

typedef struct fby_peer fby_peer_t;
typedef struct fby_work fby_work_t;

/* ---- What the loop waits for ---- */

typedef enum fby_watch_kind {
    FBY_WATCH_LISTENER,
    FBY_WATCH_WAKE,
    FBY_WATCH_SOCKET,
    FBY_WATCH_PROCESS
} fby_watch_kind_t;
typedef struct fby_watch {
    fby_watch_kind_t kind;
    fby_peer_t *peer;
} fby_watch_t;

/* ---- A connection ---- */

typedef enum fby_peer_state {
    FBY_PEER_NEW,     /* has not said HELLO */
    FBY_PEER_OPEN,    /* asks and is answered */
    FBY_PEER_RESTING, /* the helper thread works on its request */
    FBY_PEER_LEAVING, /* closes once its last answer is out */
    FBY_PEER_ENDED    /* no socket any more; its process could still write, or it is about to be freed */
} fby_peer_state_t;

/* What a rank was granted and has not finished with. */
typedef struct fby_grant {
    struct fby_grant *next;
    uint64_t handle;
} fby_grant_t;

typedef struct fby_peer_subscription {
    struct fby_peer_subscription *next;
    uint64_t id;
    fby_subscription_t *subscription;
} fby_peer_subscription_t;

enum { FBY_PEER_OF_TEST = -1 }; /* in place of a pid: a peer without socket and process */

struct fby_peer {
    fby_server_t *server;
    fby_peer_t *prev, *next; /* on the server's list, by age */
    fby_peer_t *next_dead;
    fby_watch_t socket_watch, process_watch;
    int socket, pidfd; /* -1: none */
    int32_t pid;
    uint32_t uid;
    fby_peer_state_t state;
    bool dead;     /* freed at the end of the round */
    bool gone;     /* its process is */
    bool bye;      /* it said so: it writes no more */
    bool allowed;  /* its user is */
    bool welcomed; /* counted as a client */
    uint64_t number, secret, connected_ns;
    char name[FBY_MSG_NAME];

    fby_owned_list_t sessions, holds, puts;
    fby_owned_list_t fenced; /* puts that wait for the end of its process */
    uint64_t pinned_bytes, fenced_bytes;
    fby_sequences_t sequences;
    fby_peer_subscription_t *subscriptions;
    uint32_t subscription_count;
    uint64_t subscription_ids;
    fby_grant_t *grants;
    struct fby_member *member; /* of a group; NULL: none */
    uint64_t calls, refused;

    /* an answer that could not be sent so far: nothing is read until it is */
    void *unsent;
    size_t unsent_bytes;
    int unsent_fd[FBY_MSG_FDS];
    size_t unsent_fds;
};

/* ---- The server ---- */

#define FBY_COUNTER_MAP(X)                                                                                             \
    X(accepted) X(refused_user) X(refused_version) X(refused_number) X(violations) X(deaths) X(calls) X(limit_refused)
typedef struct fby_server_counts {
#define FBY_X(name) _Atomic uint64_t name;
    FBY_COUNTER_MAP(FBY_X)
#undef FBY_X
    _Atomic uint64_t fenced_bytes;
    _Atomic uint32_t clients;
} fby_server_counts_t;

struct fby_server {
    fby_cache_t *cache;
    fby_runtime_t *runtime;
    const fby_settings_t *settings;
    fby_listener_t listener;
    int epoll, wake;
    int spare; /* given up for a moment when descriptors run out, to turn a connection away */
    fby_watch_t listener_watch, wake_watch;
    pthread_t thread;
    fby_board_link_t link; /* the thread's */
    bool any_user;
    uint32_t uid[FBY_MOST_UIDS], uids;
    uint64_t opened_ns;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { FBY_SERVER_STARTING, FBY_SERVER_RUNNING, FBY_SERVER_FAILED } phase;
    int failure;
    bool stopping;
    uint64_t stop_deadline;

    fby_peer_t *first, *last; /* by age */
    fby_peer_t *dead;
    uint32_t waiting; /* connections that have not said HELLO */
    uint64_t numbers;
    fby_owned_table_t sessions, holds, puts;
    struct fby_group *groups;
    fby_work_t *work; /* NULL: no helper thread so far */
    fby_server_counts_t counts;
    fby_log_limit_t violation_limit, accept_limit, fence_limit;
    _Alignas(64) uint8_t in[FBY_MSG_MOST], out[FBY_MSG_MOST], elements[FBY_MSG_MOST];
};

static inline void fby_count(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

/* ---- Answers ---- */

/* What a handler returns beside codes of answers: */
enum {
    FBY_CALL_VIOLATION = INT32_MIN, /* no client sends such a thing: the connection ends */
    FBY_CALL_LATER                  /* the helper thread answers */
};

/* What a handler makes. Its code is what it returns; with a failure the detail is fby_last_error. */
typedef struct fby_reply {
    union {
        uint64_t alignment;
#define FBY_X(name, body, element, most, answer, answer_element, answer_most) answer name;
        FBY_REQUEST_MAP(FBY_X)
#undef FBY_X
        fby_msg_numbers_t numbers;
    } body;              /* zeroed */
    void *elements;      /* room for the longest answer */
    uint32_t count;      /* of them */
    int fd[FBY_MSG_FDS]; /* the reply's own: closed once they are sent */
    size_t fds;
} fby_reply_t;

/* calls.c: whatever the request, exactly one of these happens: an answer, a violation, later. Without sockets, so that it
   can be fuzzed. With the server's lock held. */
int fby_peer_call(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply);

typedef int fby_handler_t(fby_peer_t *peer, const fby_request_view_t *request, fby_reply_t *reply);
#define FBY_X(name, body, element, most, answer, answer_element, answer_most) fby_handler_t fby_call_##name;
FBY_REQUEST_MAP(FBY_X)
#undef FBY_X

/* FBY_E_STALE: no such thing, or another client's. */
int fby_call_stale(const char *what, uint64_t handle);
/* FBY_E_CLOSED while the server stops: what exists can be taken, read and given back, nothing begins. */
int fby_call_stopping(const fby_peer_t *peer);
/* FBY_E_BUDGET: the client has as many as the key allows. */
int fby_call_over(fby_peer_t *peer, const char *key, uint64_t value);
/* calls_cache.c */
void fby_keyring_describe(fby_server_t *server, fby_msg_keyring_t *out);
/* calls_sequence.c: the sequence that a request names, with what came along. 0: *out is the server's, until the next call
   on the peer's sequences. FBY_MSG_E_RESEND: *known blocks are there. */
int fby_peer_sequence(fby_peer_t *peer, const fby_msg_seq_t *about, const fby_request_view_t *request, fby_seq_t **out,
                      uint64_t *known);
/* calls_session.c: sessions that ended by themselves count no more. */
void fby_peer_sweep_sessions(fby_peer_t *peer);
/* calls_hold.c: what a prefix covers in all groups. */
uint64_t fby_covered_bytes(const fby_server_t *server, uint64_t first_block, uint64_t blocks);

/* ---- peer.c ---- */

/* Takes both descriptors. NULL: out of memory, and they are not taken. */
fby_peer_t *fby_peer_create(fby_server_t *server, int socket, int pidfd, int32_t pid, uint32_t uid);
void fby_peer_readable(fby_peer_t *peer);
void fby_peer_writable(fby_peer_t *peer);
/* Sends, or keeps until the socket takes it. The reply's descriptors are closed. */
void fby_peer_answer(fby_peer_t *peer, fby_request_t type, uint32_t serial, int code, fby_reply_t *reply,
                     const char *text);
/* What the loop waits for: a request, or room for what is unsent. */
void fby_peer_interest(fby_peer_t *peer);
fby_peer_t *fby_peer_find(fby_server_t *server, uint64_t number);

/* ---- death.c ---- */

/* The connection ends: everything it had goes, once. The peer stays while its process could still write. */
void fby_peer_end(fby_peer_t *peer);
void fby_peer_process_gone(fby_peer_t *peer);
/* Everything it had, but not the connection. Again: nothing. */
void fby_peer_release(fby_peer_t *peer);
/* A connection of the same process: what an ended one was granted is the peer's from now on. */
void fby_peer_inherit(fby_peer_t *peer, fby_peer_t *former);
/* An ended one that nothing waits for any more is buried. */
void fby_peer_settle(fby_peer_t *peer);
/* Freed at the end of the round. */
void fby_peer_bury(fby_peer_t *peer);
/* At the end of a round. */
void fby_peers_reap(fby_server_t *server);
/* Its client ends a put. owner_done: it cannot write to the slots any more. */
int fby_peer_put_end(fby_peer_t *peer, fby_owned_t *put, bool owner_done);
/* The owner of an abandoned put cannot write to it any more. */
void fby_server_put_owner_done(fby_server_t *server, fby_owned_t *put);
/* One of the ranks that were granted the put cannot. */
void fby_server_put_writer_done(fby_server_t *server, fby_put_t put);

/* ---- accept.c ---- */
void fby_server_accept(fby_server_t *server);
/* A descriptor that can be given up. */
int fby_server_spare(void);
int fby_server_watch(fby_server_t *server, int fd, uint32_t events, fby_watch_t *watch);

/* ---- server.c ---- */
/* Everything but socket and thread. For tests, too. */
int fby_server_create(fby_cache_t *cache, fby_runtime_t *runtime, fby_server_t **out);
void fby_server_free(fby_server_t *server);
/* As describe, with the lock held. */
void fby_server_fill(fby_server_t *server, fby_server_info_t *info, fby_server_client_t *clients, size_t capacity,
                     size_t *count);

/* ---- work.c: what does I/O ---- */
/* A reset that raises the epoch, for this peer's request. -errno. */
int fby_work_reset(fby_peer_t *peer, uint32_t serial);
/* Its connection ended: what was not begun so far is not done, so that no more waits than there are connections. */
void fby_work_cancel(const fby_peer_t *peer);
/* Answers what is done. */
void fby_work_settle(fby_server_t *server);
/* Ends the helper; what still runs at the deadline is left to itself. NULL is fine. */
void fby_work_close(fby_work_t *work, uint64_t deadline);

/* ---- group.c ---- */
/* Ends joins that are late; when to look again. */
uint64_t fby_groups_tick(fby_server_t *server, uint64_t now);
/* The peer's rank is lost; what it was granted stays with the peer. */
void fby_group_leave(fby_peer_t *peer);
/* Readable when something has changed for this rank. -errno, FBY_E_STATE. */
int fby_group_event_fd(fby_peer_t *peer);

#endif
