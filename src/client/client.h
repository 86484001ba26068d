/*
 * client.h - the client's end of the socket: a cache whose calls ask a server.
 *
 * No thread of its own. A call takes `lock`, sends its request and receives the answer; what waits does so outside, on a
 * descriptor that the server gave.
 *
 * INVARIANTS
 *   LINK     one connection with what came along: board, pool. `link` is the present one, NULL while the server is away.
 *            It is replaced under `lock`. References: one of the client, one of each hold and put made over it, one of each
 *            thread that uses it outside the lock; so addresses of a hold stay valid until its release, also when the
 *            server is gone.
 *   READERS  who reads `link` without a lock counts itself in `readers` meanwhile. A link that nobody references is freed
 *            when that is 0: later readers find another one.
 *   LOCKS    `lock`, then `objects_lock`; the latter is a leaf, and nothing waits in it.
 */
#ifndef FBY_CLIENT_CLIENT_H
#define FBY_CLIENT_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/call.h"
#include "api/calls.h"
#include "forebay/rank.h"
#include "forebay/server.h"
#include "runtime/board.h"
#include "runtime/handles.h"
#include "runtime/records.h"
#include "runtime/seq.h"
#include "server/protocol.h"

/* ---- A connection ----------------------------------------------------------------------------------------------- */

typedef struct fby_link {
    _Atomic uint32_t refs;
    int socket; /* -1 in a child of fork() */
    int pool_fd;
    const fby_board_t *board;
    uint64_t instance; /* of the server: no two that live at once have the same */
    uint8_t *pool;
    fby_msg_welcome_t welcome;
    struct fby_link *next;                    /* retired ones of a client */
    struct fby_link *open_next, *open_before; /* open sockets of this process */
} fby_link_t;

/* Who says hello. */
typedef struct fby_link_self {
    const char *name;
    uint64_t was_client, was_secret;
} fby_link_self_t;

/* Connects, says hello and maps what came along; at most until `deadline`. One reference. `buffer`: FBY_MSG_MOST bytes,
   8-byte aligned. Errors as fby_connect, with detail. */
int fby_link_open(const char *path, const fby_link_self_t *self, uint64_t deadline, void *buffer, fby_link_t **out);
/* Both ends learn that it is over; memory stays. */
void fby_link_shut(fby_link_t *link);
/* Closes and unmaps everything. */
void fby_link_free(fby_link_t *link);
/* Sends what `buffer` holds and receives the answer there; at most until `deadline`. Length of the answer, or -errno;
   -ENOTCONN: the other end is gone. Descriptors that come along are the caller's. */
ssize_t fby_link_exchange(const fby_link_t *link, void *buffer, size_t length, uint64_t deadline, int fd[FBY_MSG_FDS],
                          size_t *fds);
void fby_close_all(const int *fd, size_t fds);

/* ---- A client --------------------------------------------------------------------------------------------------- */

/* A hold or a put that this process has not given back. */
typedef struct fby_object {
    fby_link_t *link;         /* one reference */
    uint64_t readers;         /* of a hold */
    fby_put_record_t *record; /* of a put; NULL: a hold */
} fby_object_t;

/* A put that ended here while the server was away, which may fence its slots until it hears of it. */
typedef struct fby_ended_put {
    uint64_t put, client, secret; /* the connection it was made over */
} fby_ended_put_t;

typedef struct fby_client {
    /* ---- constant ---- */
    fby_cache_t *cache;
    uint64_t id; /* of its keyrings */
    char *path;
    char name[FBY_MSG_NAME];
    uint64_t call_timeout_ns, reconnect_ns;
    int closing_fd; /* readable once the cache closes */
    fby_model_t model;
    uint8_t fingerprint[16]; /* of the epoch at the first connection */

    fby_link_t *_Atomic link;
    _Atomic uint32_t readers;
    _Atomic uint64_t last_away; /* of the handles made while away */

    /* ---- guarded by lock ---- */
    pthread_mutex_t lock;
    void *buffer; /* of requests and answers */
    uint32_t serial;
    uint64_t next_attempt;
    bool told_changed; /* the log says that the server has another model */
    uint64_t was_client, was_secret;
    fby_ended_put_t *ended;
    size_t ended_count, ended_room;
    void *stash; /* a group's message that did not fit; NULL: none */
    size_t stash_bytes;

    /* ---- guarded by objects_lock ---- */
    pthread_mutex_t objects_lock;
    fby_keyring_t *keyring;
    fby_handles_t objects; /* handle -> fby_object_t * */
    fby_handles_t known;   /* serial of a sequence -> blocks the server has, plus 1 */
    uint64_t *drops;       /* serials of sequences that are gone */
    size_t drop_count, drop_room;
    uint64_t drop_bytes;
    fby_link_t *retired;
} fby_client_t;

/* Goes inside: 0, or as fby_call_begin. The caller ends with fby_call_end. */
int fby_client_begin(fby_cache_t *cache, fby_client_t **client);
/* For calls that a poisoned server answers too. */
int fby_client_begin_any(fby_cache_t *cache, fby_client_t **client);

/* The link, read without a lock; end with fby_client_unread. NULL: away. */
const fby_link_t *fby_client_read(fby_client_t *client);
void fby_client_unread(fby_client_t *client);
fby_link_t *fby_link_ref(fby_link_t *link);
void fby_link_unref(fby_client_t *client, fby_link_t *link);

/* At close, when nobody is inside: those that somebody read when they were retired. */
void fby_client_free_retired(fby_client_t *client);

/* ---- Under the lock ---- */

/* -ENOTCONN, with detail. */
int fby_client_away(const fby_client_t *client);
/* One request and its answer, which stays in the buffer until the next. *fd (may be NULL) becomes the descriptor that came
   along, or -1. The answer's code; below 0 with its text as detail; -ENOTCONN with detail while away. */
int fby_client_ask(fby_client_t *client, fby_request_t type, const void *body, const void *elements, uint32_t count,
                   fby_answer_view_t *answer, int *fd);
/* For calls that make something new: connects again when the server is away and it is time to. True: it is there. */
bool fby_client_reach(fby_client_t *client);
/* The server is gone, or as good as that. */
void fby_client_lose(fby_client_t *client, const char *why);
/* Tells the server that nobody here writes to a put of a former connection any more: now, or once it is back. */
int fby_client_end_former(fby_client_t *client, const fby_link_t *former, fby_put_t put);
/* Adopts what the server says about keys. -ENOMEM, FBY_E_CONFIG. */
int fby_client_take_keyring(fby_client_t *client, const fby_msg_keyring_t *keyring);
/* As ask, for requests with a sequence: `about` lies in body. Sends ahead what does not fit. */
int fby_client_ask_sequence(fby_client_t *client, fby_request_t type, const void *body, fby_msg_seq_t *about,
                            const fby_seq_t *seq, fby_answer_view_t *answer);

/* ---- Takes the lock ---- */

/* One request; the answer's body to `out` (NULL: not wanted) unless the code is below 0. */
int fby_client_call(fby_client_t *client, fby_request_t type, const void *body, void *out, size_t bytes);
/* The same about one object of kind `what`: detail as in forebay.h's calls; away is FBY_E_STALE. */
int fby_client_call_object(fby_client_t *client, fby_request_t type, const fby_msg_object_t *about, const char *what,
                           void *out, size_t bytes);
/* rc of a call about an object: the server's detail stays unless it is only the code's text. */
int fby_client_about(int rc, const char *what, uint64_t handle);
/* A descriptor for the end of something, FBY_EVENT_OF_*, and the link it came over with a reference (link may be NULL). */
int fby_client_event(fby_client_t *client, uint32_t of, uint64_t handle, int *fd, fby_link_t **link);
/* Waits for a descriptor of fby_client_event. 0: look again; -ETIMEDOUT, FBY_E_CLOSED (this cache closes), -ENOTCONN. */
int fby_client_await(fby_client_t *client, const fby_link_t *link, int fd, uint64_t deadline);
/* now + timeout, of a caller's. */
uint64_t fby_client_deadline(uint64_t timeout_ns);

/* ---- Objects ---- */

/* Remembers a hold or a put of the present link; under `lock`. The record becomes the object's. -ENOMEM. */
int fby_client_keep(fby_client_t *client, uint64_t handle, fby_put_record_t *record);
/* The same for a hold, 0 for none, which goes back to the server when it cannot be remembered. */
int fby_client_keep_hold(fby_client_t *client, fby_hold_t hold);
/* One reader less; with the last the object is forgotten. all: whatever it has. */
void fby_client_forget(fby_client_t *client, uint64_t handle, bool all);
/* The link it was made over, with a reference; NULL: not known. */
fby_link_t *fby_client_link_of(fby_client_t *client, uint64_t handle);
void fby_client_add_readers(fby_client_t *client, uint64_t handle, uint32_t add);
/* Was it made over a connection that is no more? */
bool fby_client_is_former(fby_client_t *client, uint64_t handle);
/* Addresses of places, over the link that the object was made with. */
void *fby_link_address(const fby_link_t *link, uint64_t place);
/* All of them, at close. */
void fby_client_forget_all(fby_client_t *client);

/* ---- Sequences ---- */

/* The keyring in force, with a reference; asks when the epoch rose. */
int fby_client_keyring(fby_client_t *client, fby_keyring_t **out);
/* 0, or -EINVAL: it is another cache's. */
int fby_client_check_sequence(const fby_client_t *client, const fby_seq_t *seq);
/* Of a keyring: a sequence is gone. arg: the cache. */
void fby_client_sequence_gone(void *cache, uint64_t serial);
/* A new server knows nothing. */
void fby_client_forget_sequences(fby_client_t *client);

/* A table that grows. False: no memory. */
bool fby_table_set(fby_handles_t *table, uint64_t key, uint64_t value);
uint64_t fby_table_get(const fby_handles_t *table, uint64_t key);

/* Under the lock: forgets a message that was received and not taken. */
void fby_client_drop_stash(fby_client_t *client);

/* ---- Handles made while away: type 0, so no server's ---- */

enum { FBY_AWAY_SESSION = 1, FBY_AWAY_HOLD = 2, FBY_AWAY_PUT = 3 };
uint64_t fby_away_make(fby_client_t *client, unsigned kind);
bool fby_away_is(uint64_t handle, unsigned kind);
/* Terminal, with 0 tokens. */
void fby_away_snapshot(fby_session_t session, fby_snapshot_t *snapshot);
/* Readable at once. -errno. */
int fby_away_event_fd(void);

#define FBY_X(name, parameters, arguments) int fby_client_##name parameters;
FBY_CALL_MAP(FBY_X)
#undef FBY_X
uint64_t fby_client_cache_epoch(fby_cache_t *cache);
int fby_client_subscription_next(fby_subscription_t *subscription, fby_event_t *event);
int fby_client_subscription_fd(fby_subscription_t *subscription);
void fby_client_unsubscribe(fby_subscription_t *subscription);

extern const fby_calls_t fby_client_calls;

#endif
