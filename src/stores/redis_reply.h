/*
 * redis_reply.h - one reply of the Redis protocol (RESP2) as a state machine over bytes. Pure: no socket, no memory.
 *
 * A bulk string of exactly the length that is expected goes to the sink; one of another length is passed over, so that
 * the connection stays usable. A reader that owns the socket asks fby_reply_direct() where the next bytes may be
 * received, and so has no second copy.
 *
 * INVARIANT  nothing is ever written outside [sink, sink + sink_bytes), whatever the bytes are.
 */
#ifndef FBY_STORES_REDIS_REPLY_H
#define FBY_STORES_REDIS_REPLY_H

#include "base/base.h"

#define FBY_REPLY_LINE_MOST 1024u                 /* a longer line is no reply of a server that means well */
#define FBY_REPLY_BULK_MOST (UINT64_C(512) << 20) /* Redis' own limit of a string */
#define FBY_REPLY_DEPTH_MOST 4u

typedef enum fby_reply_type {
    FBY_REPLY_NONE, /* its first line is not complete */
    FBY_REPLY_STATUS,
    FBY_REPLY_ERROR,
    FBY_REPLY_INTEGER,
    FBY_REPLY_BULK,
    FBY_REPLY_NIL,
    FBY_REPLY_ARRAY
} fby_reply_type_t;

typedef enum fby_reply_state {
    FBY_REPLY_LINE,     /* in a line, up to its CR LF */
    FBY_REPLY_PAYLOAD,  /* in the bytes of a bulk string */
    FBY_REPLY_BULK_END, /* in the CR LF behind them */
    FBY_REPLY_DONE,
    FBY_REPLY_BROKEN /* not the protocol, or beyond a limit: nothing behind it can be understood */
} fby_reply_state_t;

typedef struct fby_reply {
    fby_reply_state_t state;
    fby_reply_type_t type; /* of the outermost value */
    int64_t value;         /* integer; length of the bulk string; elements of the array */
    bool stored;           /* the bulk string had the expected length and went to the sink */
    uint32_t line_length;
    char line[FBY_REPLY_LINE_MOST + 1]; /* of a status or an error: its text, NUL-terminated, without the sign */
    /* The reader's own. */
    uint8_t *sink;
    uint64_t sink_bytes, left;
    uint64_t bulk_most;
    uint32_t elements_left;              /* of all arrays together */
    uint32_t open[FBY_REPLY_DEPTH_MOST]; /* elements to come in each open array */
    uint32_t depth;
} fby_reply_t;

/* For a plain value: arrays are refused. sink may be NULL: every bulk string is passed over. */
void fby_reply_begin(fby_reply_t *reply, void *sink, uint64_t sink_bytes);
/* For a value that may hold arrays: only its end is looked for. */
void fby_reply_begin_tree(fby_reply_t *reply, uint64_t bulk_most, uint32_t elements_most);
/* Takes bytes up to the reply's end, and returns how many. Takes none when the reply is done or broken. */
size_t fby_reply_feed(fby_reply_t *reply, const void *bytes, size_t n);
/* Where the next bytes of the stream belong, and how many fit; NULL: feed them. */
void *fby_reply_direct(const fby_reply_t *reply, size_t *room);
/* Says that n bytes were put there. */
void fby_reply_took(fby_reply_t *reply, size_t n);

static inline bool fby_reply_is_over(const fby_reply_t *reply)
{
    return reply->state == FBY_REPLY_DONE || reply->state == FBY_REPLY_BROKEN;
}

/* The result code of an error reply's text ("OOM command not allowed ..."). */
int fby_redis_error_code(const char *line);
/* Whether the error is of this kind: its first word. */
bool fby_redis_error_is(const char *line, const char *word);

#endif
