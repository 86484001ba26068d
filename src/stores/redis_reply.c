#include "stores/redis_reply.h"

#include <string.h>

#include "forebay/forebay.h"

static void begin(fby_reply_t *reply, uint64_t bulk_most, uint32_t elements_most)
{
    reply->state = FBY_REPLY_LINE;
    reply->type = FBY_REPLY_NONE;
    reply->value = 0;
    reply->stored = false;
    reply->line_length = 0;
    reply->line[0] = '\0';
    reply->sink = NULL;
    reply->sink_bytes = reply->left = 0;
    reply->bulk_most = bulk_most;
    reply->elements_left = elements_most;
    reply->depth = 0;
}

void fby_reply_begin(fby_reply_t *reply, void *sink, uint64_t sink_bytes)
{
    begin(reply, FBY_REPLY_BULK_MOST, 0);
    reply->sink = sink;
    reply->sink_bytes = sink_bytes;
}

void fby_reply_begin_tree(fby_reply_t *reply, uint64_t bulk_most, uint32_t elements_most)
{
    begin(reply, bulk_most, elements_most);
}

/* Strict: an optional '-', then 1 to 18 digits, so that it cannot overflow. */
static bool parse_integer(const char *text, uint32_t length, int64_t *value)
{
    uint32_t at = length > 0 && text[0] == '-' ? 1 : 0;
    int64_t sum = 0;
    if (length == at || length - at > 18) {
        return false;
    }
    for (uint32_t i = at; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        sum = sum * 10 + (text[i] - '0');
    }
    *value = at == 1 ? -sum : sum;
    return true;
}

/* One value ended; so do the arrays whose last element it was. */
static void value_ended(fby_reply_t *reply)
{
    while (reply->depth > 0 && --reply->open[reply->depth - 1] == 0) {
        reply->depth--;
    }
    reply->state = reply->depth == 0 ? FBY_REPLY_DONE : FBY_REPLY_LINE;
    if (reply->state == FBY_REPLY_LINE) {
        reply->line_length = 0;
    }
}

static void bulk_began(fby_reply_t *reply, int64_t length)
{
    if (length < -1 || (length > 0 && (uint64_t)length > reply->bulk_most)) {
        reply->state = FBY_REPLY_BROKEN;
    } else if (length == -1) {
        value_ended(reply);
    } else {
        reply->left = (uint64_t)length;
        reply->stored = reply->depth == 0 && reply->sink != NULL && reply->left == reply->sink_bytes;
        reply->state = length > 0 ? FBY_REPLY_PAYLOAD : FBY_REPLY_BULK_END;
    }
}

static void array_began(fby_reply_t *reply, int64_t elements)
{
    if (elements < -1 || elements > (int64_t)reply->elements_left ||
        (elements > 0 && reply->depth == FBY_REPLY_DEPTH_MOST)) {
        reply->state = FBY_REPLY_BROKEN;
    } else if (elements <= 0) {
        value_ended(reply);
    } else {
        reply->elements_left -= (uint32_t)elements;
        reply->open[reply->depth++] = (uint32_t)elements;
        reply->line_length = 0;
    }
}

static fby_reply_type_t type_of(char sign, int64_t number)
{
    switch (sign) {
    case '+':
        return FBY_REPLY_STATUS;
    case '-':
        return FBY_REPLY_ERROR;
    case ':':
        return FBY_REPLY_INTEGER;
    case '$':
        return number == -1 ? FBY_REPLY_NIL : FBY_REPLY_BULK;
    case '*':
        return number == -1 ? FBY_REPLY_NIL : FBY_REPLY_ARRAY;
    default:
        return FBY_REPLY_NONE;
    }
}

/* The line is complete: reply->line holds it with its sign, without CR LF. */
static void line_ended(fby_reply_t *reply)
{
    int64_t number = 0;
    char sign = reply->line_length > 0 ? reply->line[0] : '\0';
    bool is_number = sign == ':' || sign == '$' || sign == '*';
    if (is_number && !parse_integer(reply->line + 1, reply->line_length - 1, &number)) {
        reply->state = FBY_REPLY_BROKEN;
        return;
    }
    fby_reply_type_t type = type_of(sign, number);
    /* A plain value may not be an array, not even an empty one: nobody asked for it. */
    if (type == FBY_REPLY_NONE || (sign == '*' && reply->elements_left == 0 && reply->depth == 0)) {
        reply->state = FBY_REPLY_BROKEN;
        return;
    }
    if (reply->type == FBY_REPLY_NONE) {
        reply->type = type;
        reply->value = number;
    }
    if (sign == '$') {
        bulk_began(reply, number);
    } else if (sign == '*') {
        array_began(reply, number);
    } else {
        value_ended(reply);
    }
    if (reply->state == FBY_REPLY_DONE && (type == FBY_REPLY_STATUS || type == FBY_REPLY_ERROR)) {
        reply->line_length--;
        memmove(reply->line, reply->line + 1, reply->line_length);
        reply->line[reply->line_length] = '\0';
    }
}

/* Up to and with the LF. The CR waits in reply->line until its LF comes. */
static size_t feed_line(fby_reply_t *reply, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool after_cr = reply->line_length > 0 && reply->line[reply->line_length - 1] == '\r';
        if (after_cr != (bytes[i] == '\n') || (!after_cr && reply->line_length == FBY_REPLY_LINE_MOST)) {
            reply->state = FBY_REPLY_BROKEN;
            return i;
        }
        if (after_cr) {
            reply->line[--reply->line_length] = '\0';
            line_ended(reply);
            return i + 1;
        }
        reply->line[reply->line_length++] = (char)bytes[i];
    }
    return n;
}

static size_t feed_payload(fby_reply_t *reply, const uint8_t *bytes, size_t n)
{
    size_t room = (size_t)FBY_MIN((uint64_t)n, reply->left);
    if (reply->stored) {
        memcpy(reply->sink + (reply->sink_bytes - reply->left), bytes, room);
    }
    fby_reply_took(reply, room);
    return room;
}

/* `left` counts the bytes of CR LF that were seen. */
static size_t feed_bulk_end(fby_reply_t *reply, const uint8_t *bytes, size_t n)
{
    size_t i = 0;
    while (i < n && reply->state == FBY_REPLY_BULK_END) {
        if (bytes[i] != (reply->left == 0 ? '\r' : '\n')) {
            reply->state = FBY_REPLY_BROKEN;
        } else if (i++, reply->left++ == 1) {
            value_ended(reply);
        }
    }
    return i;
}

size_t fby_reply_feed(fby_reply_t *reply, const void *bytes, size_t n)
{
    const uint8_t *from = bytes;
    size_t at = 0;
    while (at < n && !fby_reply_is_over(reply)) {
        if (reply->state == FBY_REPLY_LINE) {
            at += feed_line(reply, from + at, n - at);
        } else if (reply->state == FBY_REPLY_PAYLOAD) {
            at += feed_payload(reply, from + at, n - at);
        } else {
            at += feed_bulk_end(reply, from + at, n - at);
        }
    }
    return at;
}

void *fby_reply_direct(const fby_reply_t *reply, size_t *room)
{
    if (reply->state != FBY_REPLY_PAYLOAD || !reply->stored) {
        return NULL;
    }
    *room = (size_t)reply->left;
    return reply->sink + (reply->sink_bytes - reply->left);
}

void fby_reply_took(fby_reply_t *reply, size_t n)
{
    reply->left -= n;
    if (reply->left == 0) {
        reply->state = FBY_REPLY_BULK_END; /* left counts on, from 0 */
    }
}

/* ---- Errors ---- */

/*
 * X(first word, code). A state of the whole server is CONNECTION, so that the breaker sees it and no key is remembered
 * as failed for it. What is not here is INVALID: the server understood and refuses.
 */
#define ERROR_MAP(X)                                                                                                   \
    X("OOM", FULL)                                                                                                     \
    X("MISCONF", FULL)                                                                                                 \
    X("LOADING", CONNECTION)                                                                                           \
    X("MASTERDOWN", CONNECTION)                                                                                        \
    X("CLUSTERDOWN", CONNECTION)                                                                                       \
    X("TRYAGAIN", CONNECTION)                                                                                          \
    X("READONLY", CONNECTION)                                                                                          \
    X("NOREPLICAS", CONNECTION)                                                                                        \
    X("BUSY", CONNECTION)                                                                                              \
    X("UNBLOCKED", CONNECTION)                                                                                         \
    X("ERR max number of clients reached", CONNECTION)

bool fby_redis_error_is(const char *line, const char *word)
{
    size_t length = strlen(word);
    return strncmp(line, word, length) == 0 && (line[length] == ' ' || line[length] == '\0');
}

int fby_redis_error_code(const char *line)
{
#define FBY_X(word, code)                                                                                              \
    if (fby_redis_error_is(line, word)) {                                                                              \
        return FBY_E_##code;                                                                                           \
    }
    ERROR_MAP(FBY_X)
#undef FBY_X
    return FBY_E_INVALID;
}
