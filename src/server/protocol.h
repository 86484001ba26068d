/*
 * protocol.h - what goes over the server's socket. SOCK_SEQPACKET: one message, one call; every request has one answer,
 * in order. Bytes of blocks never go here: they lie in the pool, which both sides map.
 *
 *   client -> server   HELLO
 *   server -> client   answer: WELCOME with the descriptors of pool and board; or a code and a text, then it closes
 *   client -> server   a request of FBY_REQUEST_MAP, with at most one outstanding
 *   server -> client   its answer
 *
 * A request is a head, a body of fixed length, and up to `most` elements of fixed length. An answer is an answer head, then
 * with a code >= 0 a body and elements, with a code < 0 the detail as text without NUL. A message that is not of its exact
 * length, or a request before HELLO, ends the connection: no client of ours sends such a thing.
 * Numbers are in host order; both ends are on one machine. Waits are never requests: EVENT gives a descriptor to wait on.
 */
#ifndef FBY_SERVER_PROTOCOL_H
#define FBY_SERVER_PROTOCOL_H

#include <sys/types.h>

#include "base/base.h"
#include "forebay/forebay.h"
#include "forebay/rank.h"
#include "forebay/server.h"
#include "keys/keys.h"

#define FBY_MSG_MAGIC 0x53594246u /* "FBYS" */
#define FBY_MSG_VERSION 1u

enum {
    FBY_MSG_MOST = 65536,  /* bytes of any message */
    FBY_MSG_FDS = 2,       /* descriptors of any message */
    FBY_MSG_HASHES = 2048, /* hashes of any message */
    FBY_MSG_PLACES = 4096, /* places of any answer */
    FBY_MSG_DEMANDS = 2048,
    FBY_MSG_DROPS = 1024,
    FBY_MSG_EVENTS = 128,
    FBY_MSG_CLIENTS = 256,
    FBY_MSG_BYTES = 61440, /* of opaque bytes: cards, decisions, reports */
    FBY_MSG_NAME = 48,
};

/* A sequence that the server does not know so far: the answer's body says from which block on it wants the hashes. */
#define FBY_MSG_E_RESEND (-2900)

typedef struct fby_msg_head {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t bytes;  /* of the whole message */
    uint32_t serial; /* the answer repeats it */
} fby_msg_head_t;

typedef struct fby_msg_answer {
    fby_msg_head_t head;
    int32_t code;
    uint32_t count; /* elements behind the body */
} fby_msg_answer_t;

/* ---- Bodies of requests: behind the head ---- */

/* Structs travel as they are: both ends must have the same. */
#define FBY_MSG_STRUCT_BYTES                                                                                           \
    ((uint32_t)(sizeof(fby_stats_t) + sizeof(fby_health_t) + sizeof(fby_event_t) + sizeof(fby_model_t) +               \
                sizeof(fby_pool_t) + sizeof(fby_put_result_t) + sizeof(fby_server_info_t) +                            \
                sizeof(fby_server_client_t)))

typedef struct fby_msg_hello {
    uint32_t snapshot_bytes, struct_bytes; /* sizeof(fby_snapshot_t), FBY_MSG_STRUCT_BYTES */
    uint64_t was_client, was_secret;       /* after a reconnect: who this process was before; 0 */
    char name[FBY_MSG_NAME];
} fby_msg_hello_t;

/* A sequence as the client knows it, and the hashes [from, from + count) that the server may lack, as the elements. */
typedef struct fby_msg_seq {
    uint64_t id;    /* the client's; never used twice by one client */
    uint64_t epoch; /* of the weights */
    uint64_t tokens;
    uint32_t blocks; /* once these hashes are there; so from + count <= blocks */
    uint32_t from;
    uint32_t count;
    uint32_t reserved0;
} fby_msg_seq_t;

typedef struct fby_msg_start {
    fby_msg_seq_t seq;
    int32_t policy, stop_mode, predictive;
    uint32_t reserved0;
    double timeout_budget_s;
    uint64_t candidate_start_token, have_blocks, min_tokens;
    char label[FBY_MSG_NAME];
} fby_msg_start_t;

typedef struct fby_msg_lookup {
    fby_msg_seq_t seq;
    uint32_t flags;
    uint32_t reserved0;
} fby_msg_lookup_t;

typedef struct fby_msg_put {
    fby_msg_seq_t seq;
    uint64_t put; /* 0: begin; else the next range of this one */
    uint64_t from, to;
} fby_msg_put_t;

/* Most calls: about one object. What the fields mean stands at the request. */
typedef struct fby_msg_object {
    uint64_t handle;
    uint64_t from, to;
    uint32_t group;
    uint32_t flags;
} fby_msg_object_t;

typedef struct fby_msg_demand {
    uint64_t session;
} fby_msg_demand_t;

/* Code of GROUP_RECEIVE in place of a message: number[0] is a rank that is lost. */
enum { FBY_GROUP_LOST = 1 };

enum { FBY_EVENT_OF_SESSION = 1, FBY_EVENT_OF_PUT, FBY_EVENT_OF_RESET, FBY_EVENT_OF_GROUP };

typedef struct fby_msg_join {
    uint32_t rank, ranks;
    uint64_t limit_ns;
    char group[FBY_MSG_NAME];
} fby_msg_join_t;

typedef struct fby_msg_none {
    uint64_t reserved0;
} fby_msg_none_t;

/* ---- Bodies of answers: behind the answer head ---- */

typedef struct fby_msg_keyring {
    uint64_t epoch;
    uint32_t kind; /* fby_hash_kind_t */
    uint32_t secret_length;
    uint8_t secret[64];
    uint8_t fingerprint[16];
} fby_msg_keyring_t;

typedef struct fby_msg_welcome {
    uint64_t client, secret;
    uint32_t verify; /* trailers that the client seals hold checksums: 0, 1 */
    uint32_t reserved0;
    fby_model_t model;
    fby_pool_t pool; /* descriptor: the first that came along; the board's is the second */
    fby_msg_keyring_t keyring;
} fby_msg_welcome_t;

typedef struct fby_msg_numbers {
    uint64_t number[4];
} fby_msg_numbers_t;

/*
 * X(NAME, body, element bytes, most elements, answer body, answer element bytes, most of them)
 * Codes, and what is not obvious in the fields:
 */
#define FBY_REQUEST_MAP(X)                                                                                             \
    X(HELLO, fby_msg_hello_t, 0, 0, fby_msg_welcome_t, 0, 0)                                                           \
    X(SEQ, fby_msg_seq_t, 16, FBY_MSG_HASHES, fby_msg_numbers_t, 0, 0)  /* RESEND: number[0] blocks it has */          \
    X(SEQ_DROP, fby_msg_none_t, 8, FBY_MSG_DROPS, fby_msg_none_t, 0, 0) /* ids; unknown ones are fine */               \
    X(KEYRING, fby_msg_none_t, 0, 0, fby_msg_keyring_t, 0, 0)                                                          \
    X(START, fby_msg_start_t, 16, FBY_MSG_HASHES, fby_msg_numbers_t, 0, 0) /* session; RESEND as SEQ */                \
    X(PROGRESS, fby_msg_none_t, 8, FBY_MSG_DEMANDS, fby_msg_none_t, 0, 0)  /* demands; snapshots are on the board */   \
    X(STOP, fby_msg_object_t, 0, 0, fby_msg_none_t, 0, 0)                                                              \
    X(RELEASE, fby_msg_object_t, 0, 0, fby_msg_none_t, 0, 0)                                                           \
    X(DEMAND, fby_msg_object_t, 0, 0, fby_msg_none_t, 0, 0)                                                            \
    X(TAKE, fby_msg_object_t, 0, 0, fby_msg_numbers_t, 0, 0)                 /* hold */                                \
    X(EVENT, fby_msg_object_t, 0, 0, fby_msg_none_t, 0, 0)                   /* flags: of what; one descriptor */      \
    X(LOOKUP, fby_msg_lookup_t, 16, FBY_MSG_HASHES, fby_msg_numbers_t, 0, 0) /* hold, tokens; RESEND as SEQ */         \
    X(HOLD_INFO, fby_msg_object_t, 0, 0, fby_msg_numbers_t, 0, 0)            /* tokens, blocks, first_block */         \
    X(HOLD_PLACES, fby_msg_object_t, 0, 0, fby_msg_none_t, 8, FBY_MSG_PLACES)                                          \
    X(HOLD_TRIM, fby_msg_object_t, 0, 0, fby_msg_numbers_t, 0, 0) /* from: tokens -> tokens */                         \
    X(HOLD_READERS, fby_msg_object_t, 0, 0, fby_msg_none_t, 0, 0) /* from: how many */                                 \
    X(HOLD_RELEASE, fby_msg_object_t, 0, 0, fby_msg_none_t, 0, 0)                                                      \
    X(PUT_BEGIN, fby_msg_put_t, 16, FBY_MSG_HASHES, fby_msg_numbers_t, 0, 0) /* put, missing, from, to; RESEND */      \
    X(PUT_PLACES, fby_msg_object_t, 0, 0, fby_msg_none_t, 8, FBY_MSG_PLACES)                                           \
    X(PUT_COMMIT, fby_msg_object_t, 0, 0, fby_put_result_t, 0, 0)  /* from: valid tokens; sealed already */            \
    X(PUT_STORED, fby_msg_object_t, 0, 0, fby_msg_numbers_t, 0, 0) /* stored, failed; -ETIMEDOUT: not yet */           \
    X(PUT_END, fby_msg_object_t, 0, 0, fby_msg_none_t, 0, 0)       /* of a former connection: from, to: who, secret */ \
    X(SUBSCRIBE, fby_msg_object_t, 0, 0, fby_msg_numbers_t, 0, 0)  /* from: capacity -> id; a descriptor */            \
    X(EVENTS, fby_msg_object_t, 0, 0, fby_msg_none_t, sizeof(fby_event_t), FBY_MSG_EVENTS) /* handle: id */            \
    X(UNSUBSCRIBE, fby_msg_object_t, 0, 0, fby_msg_none_t, 0, 0)                           /* handle: id */            \
    X(RESET, fby_msg_object_t, 0, 0, fby_msg_keyring_t, 0, 0) /* flags: bump; code: FBY_RESET_* */                     \
    X(RESETTING, fby_msg_none_t, 0, 0, fby_msg_none_t, 0, 0)  /* code: FBY_RESET_* */                                  \
    X(STATS, fby_msg_none_t, 0, 0, fby_stats_t, 0, 0)                                                                  \
    X(HEALTH, fby_msg_none_t, 0, 0, fby_health_t, 0, 0)                                                                \
    X(METRICS, fby_msg_none_t, 0, 0, fby_msg_numbers_t, 0, 0) /* bytes; a sealed memfd */                              \
    X(CHECK, fby_msg_none_t, 0, 0, fby_msg_none_t, 0, 0)      /* -EPERM without server.allow_check */                  \
    X(INFO, fby_msg_none_t, 0, 0, fby_server_info_t, sizeof(fby_server_client_t), FBY_MSG_CLIENTS)                     \
    X(BYE, fby_msg_none_t, 0, 0, fby_msg_none_t, 0, 0)                    /* an orderly end: no death is counted */    \
    X(GROUP_JOIN, fby_msg_join_t, 1, FBY_MSG_BYTES, fby_msg_none_t, 0, 0) /* then EVENT, GROUP_JOINED */               \
    X(GROUP_JOINED, fby_msg_none_t, 0, 0, fby_msg_numbers_t, 0, 0)        /* incarnation; -EAGAIN: not yet */          \
    X(GROUP_SEND, fby_msg_none_t, 1, FBY_MSG_BYTES, fby_msg_none_t, 0, 0)                                              \
    X(GROUP_RECEIVE, fby_msg_none_t, 0, 0, fby_msg_numbers_t, 1, FBY_MSG_BYTES) /* lost rank; -EAGAIN: nothing */      \
    X(GROUP_REPORT, fby_msg_none_t, 1, FBY_MSG_BYTES, fby_msg_none_t, 0, 0)                                            \
    X(GROUP_VERDICT, fby_msg_object_t, 0, 0, fby_msg_none_t, 1, FBY_MSG_BYTES) /* handle: number; -EAGAIN */           \
    X(GROUP_GRANT, fby_msg_object_t, 0, 0, fby_msg_none_t, 0, 0)               /* a hold or a put */                   \
    X(GROUP_DONE, fby_msg_object_t, 0, 0, fby_msg_none_t, 0, 0)

typedef enum fby_request {
    FBY_REQUEST_NONE,
#define FBY_X(name, body, element, most, answer, answer_element, answer_most) FBY_REQUEST_##name,
    FBY_REQUEST_MAP(FBY_X)
#undef FBY_X
        FBY_REQUEST_COUNT
} fby_request_t;

/* The longest answer has to fit, too. */
#define FBY_X(name, body, element, most, answer, answer_element, answer_most)                                          \
    _Static_assert(sizeof(fby_msg_head_t) + sizeof(body) + (element) * (most) <= FBY_MSG_MOST, #name);                 \
    _Static_assert(sizeof(fby_msg_answer_t) + sizeof(answer) + (answer_element) * (answer_most) <= FBY_MSG_MOST, #name);
FBY_REQUEST_MAP(FBY_X)
#undef FBY_X

/* protocol.c: pure. */

typedef struct fby_request_shape {
    const char *name;
    uint32_t body, element, most;                      /* bytes, bytes, elements */
    uint32_t answer_body, answer_element, answer_most; /* likewise */
} fby_request_shape_t;
/* NULL: no such type. */
const fby_request_shape_t *fby_request_shape(uint32_t type);

/* A request as received: checked against its shape. body is NULL for none; everything points into `bytes`, which must be
   8-byte aligned. False when it is not a request. */
typedef struct fby_request_view {
    fby_request_t type;
    uint32_t serial, count; /* elements */
    const void *body, *elements;
} fby_request_view_t;
bool fby_request_parse(const void *bytes, size_t length, fby_request_view_t *out);
/* Length of the message, or 0 when count is too large. */
size_t fby_request_build(fby_request_t type, uint32_t serial, const void *body, const void *elements, uint32_t count,
                         void *out);

/* An answer as received, likewise. With code < 0 text is what went wrong: `text_bytes` of it, no NUL; body is set as well
   when code is FBY_MSG_E_RESEND. */
typedef struct fby_answer_view {
    uint32_t serial, count;
    int32_t code;
    const void *body, *elements;
    const char *text;
    size_t text_bytes;
} fby_answer_view_t;
bool fby_answer_parse(fby_request_t type, const void *bytes, size_t length, fby_answer_view_t *out);
/* code >= 0 or RESEND: body (NULL: zeros) and elements; else text (may be NULL). Length of the message. */
size_t fby_answer_build(fby_request_t type, uint32_t serial, int32_t code, const void *body, const void *elements,
                        uint32_t count, const char *text, void *out);

/* One message with up to FBY_MSG_FDS descriptors. Send: length, or -errno (-EAGAIN with MSG_DONTWAIT; never SIGPIPE).
   Receive: length; 0: the other end is gone; -EMSGSIZE: longer than capacity, or more descriptors than fit (all of them
   are closed); -errno. *fds becomes how many came, none when this process has no room for all of them; they are close-on-exec and the caller's. */
ssize_t fby_message_send(int socket, const void *bytes, size_t length, const int *fd, size_t fds, int flags);
ssize_t fby_message_receive(int socket, void *bytes, size_t capacity, int fd[FBY_MSG_FDS], size_t *fds, int flags);

#endif
