#include "stores/redis_part.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum {
    COMMAND_BYTES = 320,     /* upper bound of one command without its payload */
    SEND_PIECES = 64,        /* pieces of one sendmsg */
    LARGE_BYTES = 16 * 1024, /* of an object whose reply is received straight into the slot */
    SMALL_AHEAD = 256        /* received beyond such an object: the next reply's first line, and little to copy */
};
enum { REDIRECTS_MOST = 5 };

static const char *const commands[] = {
#define FBY_X(verb, command) command,
    FBY_REDIS_VERB_MAP(FBY_X)
#undef FBY_X
};

/* ---- Commands ---- */

static size_t add_end(char *text, size_t at)
{
    text[at] = '\r';
    text[at + 1] = '\n';
    return at + 2;
}

/* A bulk string. COMMAND_BYTES bounds what is added for one item. */
static size_t add_bulk(char *text, size_t at, const char *bytes, size_t length)
{
    at += (size_t)snprintf(text + at, 16, "$%zu\r\n", length);
    memcpy(text + at, bytes, length);
    return add_end(text, at + length);
}

static size_t add_word(char *text, size_t at, const char *word)
{
    return add_bulk(text, at, word, strlen(word));
}

static void add_piece(fby_redis_part_t *part, void *data, size_t bytes)
{
    if (bytes > 0) {
        part->out[part->out_count++] = (struct iovec){data, bytes};
    }
}

/* Payloads are sent from the slot: the text is cut around them. *from is where the open piece of text begins. */
static size_t add_command(fby_redis_part_t *part, const fby_redis_item_t *item, size_t at, size_t *from)
{
    const fby_redis_config_t *config = &part->redis->config;
    char key[FBY_REDIS_KEY_BYTES], number[16], *text = part->text;
    bool is_put = part->verb == FBY_REDIS_PUT, is_trailer = part->verb == FBY_REDIS_TRAILER;
    size_t key_length = fby_redis_key(part->redis, item->op->key, key);
    unsigned words = is_put ? (config->ttl_s > 0 ? 6 : 4) : is_trailer ? 4 : 2;
    if (item->asking) {
        at = add_word(text, at + (size_t)snprintf(text + at, 8, "*1\r\n"), "ASKING");
    }
    at += (size_t)snprintf(text + at, 16, "*%u\r\n", words);
    at = add_word(text, at, commands[part->verb]);
    at = add_bulk(text, at, key, key_length);
    if (is_trailer) {
        at = add_word(text, add_word(text, at, "-64"), "-1");
    }
    if (is_put) {
        at += (size_t)snprintf(text + at, 16, "$%u\r\n", item->op->bytes);
        add_piece(part, text + *from, at - *from);
        add_piece(part, item->op->buffer, item->op->bytes);
        *from = at;
        at = add_word(text, add_end(text, at), "NX");
        if (config->ttl_s > 0) {
            snprintf(number, sizeof(number), "%u", config->ttl_s);
            at = add_word(text, add_word(text, at, "EX"), number);
        }
    }
    return at;
}

static void reply_begin(fby_redis_part_t *part)
{
    void *sink = NULL;
    uint64_t bytes = 0;
    if (part->answered < part->count) {
        const fby_redis_item_t *item = part->items[part->answered];
        bool is_own = !item->asking || part->asked;
        sink = is_own && (part->verb == FBY_REDIS_GET || part->verb == FBY_REDIS_TRAILER) ? item->op->buffer : NULL;
        bytes = part->verb == FBY_REDIS_GET ? item->op->bytes : FBY_REDIS_TRAILER_BYTES;
    }
    fby_reply_begin(&part->reply, sink, bytes);
}

int fby_redis_part_begin(fby_redis_part_t *part, uint64_t now_ns)
{
    size_t at = 0, from = 0;
    part->text = malloc((size_t)part->count * COMMAND_BYTES);
    part->out = calloc((size_t)part->count * 2 + 1, sizeof(*part->out));
    if (part->text == NULL || part->out == NULL) {
        part->status = FBY_E_CONNECTION;
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < part->count; i++) {
        at = add_command(part, part->items[i], at, &from);
    }
    add_piece(part, part->text + from, at - from);
    part->progress_ns = now_ns;
    reply_begin(part);
    return 0;
}

void fby_redis_part_end(fby_redis_part_t *part)
{
    free(part->text);
    free(part->out);
    part->text = NULL;
    part->out = NULL;
}

/* ---- Answers ---- */

static void settle(fby_redis_item_t *item, int64_t result)
{
    item->op->result = result;
    item->pending = false;
}

/* Whether the error sends the key elsewhere: it stays pending. */
static bool redirected(fby_redis_part_t *part, fby_redis_item_t *item, const char *line)
{
    bool is_ask = fby_redis_error_is(line, "ASK");
    fby_redis_endpoint_t endpoint;
    uint32_t slot;
    if ((!is_ask && !fby_redis_error_is(line, "MOVED")) || part->redis->slot_node == NULL ||
        item->redirects == REDIRECTS_MOST || !fby_redis_redirect_parse(line, &part->node->endpoint, &slot, &endpoint)) {
        return false;
    }
    pthread_mutex_lock(&part->redis->lock);
    uint16_t node = fby_redis_node_index(part->redis, &endpoint);
    if (node != FBY_REDIS_NO_NODE && !is_ask) {
        part->redis->slot_node[slot] = node;
    }
    pthread_mutex_unlock(&part->redis->lock);
    if (node == FBY_REDIS_NO_NODE) {
        return false;
    }
    item->redirects++;
    item->asking = is_ask;
    item->node = node;
    part->doubtful = part->doubtful || !is_ask;
    return true;
}

static void answer_error(fby_redis_part_t *part, fby_redis_item_t *item)
{
    const char *line = part->reply.line;
    char where[FBY_REDIS_ENDPOINT_TEXT_BYTES];
    fby_redis_fault_t fault;
    if (redirected(part, item, line)) {
        return;
    }
    bool is_move = fby_redis_error_is(line, "MOVED") || fby_redis_error_is(line, "ASK");
    bool in_cluster = part->redis->slot_node != NULL;
    int code = is_move && in_cluster ? FBY_E_CONNECTION : fby_redis_error_code(line);
    fby_redis_endpoint_text(&part->node->endpoint, where, sizeof(where));
    fby_redis_fault(&fault, code, "%s answers %s: %.160s%s", where, commands[part->verb], line,
                    is_move && !in_cluster ? " (a cluster: option cluster=on)" : "");
    part->doubtful = part->doubtful || code == FBY_E_CONNECTION; /* CLUSTERDOWN, READONLY */
    if (code != FBY_E_FULL) {
        fby_redis_note(part->redis, &fault);
    }
    settle(item, code);
}

/* The result of a reply that is no error; false: no reply to this command. */
static bool answer_value(fby_redis_part_t *part, fby_redis_item_t *item)
{
    const fby_reply_t *reply = &part->reply;
    fby_redis_verb_t verb = part->verb;
    bool counts = verb == FBY_REDIS_EXISTS || verb == FBY_REDIS_LENGTH || verb == FBY_REDIS_REMOVE;
    if (counts != (reply->type == FBY_REPLY_INTEGER) || (counts && reply->value < 0)) {
        return false;
    }
    if (verb == FBY_REDIS_EXISTS) {
        settle(item, reply->value > 0);
    } else if (verb == FBY_REDIS_LENGTH) {
        settle(item, reply->value);
    } else if (verb == FBY_REDIS_REMOVE) {
        settle(item, reply->value > 0 ? 1 : FBY_E_MISSING);
    } else if (verb == FBY_REDIS_PUT) {
        settle(item, reply->type == FBY_REPLY_NIL ? FBY_E_EXISTS : (int64_t)item->op->bytes);
        return reply->type == FBY_REPLY_NIL || reply->type == FBY_REPLY_STATUS;
    } else {
        settle(item, reply->type == FBY_REPLY_NIL ? FBY_E_MISSING : reply->stored ? reply->value : FBY_E_SIZE);
        return reply->type == FBY_REPLY_NIL || reply->type == FBY_REPLY_BULK;
    }
    return true;
}

static void garbled(fby_redis_part_t *part)
{
    char where[FBY_REDIS_ENDPOINT_TEXT_BYTES];
    fby_redis_fault_t fault;
    fby_redis_endpoint_text(&part->node->endpoint, where, sizeof(where));
    part->status = fby_redis_fault(&fault, FBY_E_CONNECTION, "%s does not speak the Redis protocol, or not in step%s",
                                   where, part->conn->tls == NULL ? " (a TLS port needs option tls=on)" : "");
    fby_redis_note(part->redis, &fault);
}

/* One reply is complete. */
static void answer(fby_redis_part_t *part)
{
    fby_redis_item_t *item = part->items[part->answered];
    bool is_error = part->reply.type == FBY_REPLY_ERROR;
    if (item->asking && !part->asked) {
        part->asked = true; /* refused or not: the key's own answer says what matters */
        if (!is_error && part->reply.type != FBY_REPLY_STATUS) {
            garbled(part);
        }
    } else {
        part->asked = false;
        if (is_error) {
            answer_error(part, item);
        } else if (!answer_value(part, item)) {
            item->pending = true;
            garbled(part);
            return;
        }
        part->answered++;
    }
    reply_begin(part);
}

/* ---- Bytes ---- */

static void send_some(fby_redis_part_t *part)
{
    while (part->out_at < part->out_count) {
        int pieces = (int)FBY_MIN(part->out_count - part->out_at, (uint32_t)SEND_PIECES);
        ssize_t moved = fby_redis_conn_send(part->conn, part->out + part->out_at, pieces);
        if (moved < 0) {
            part->status = moved == -EAGAIN ? 0 : FBY_E_CONNECTION;
            return;
        }
        part->progress_ns = fby_clock_now(&fby_clock_monotonic);
        for (size_t left = (size_t)moved; left > 0;) {
            struct iovec *piece = &part->out[part->out_at];
            size_t taken = FBY_MIN(left, piece->iov_len);
            piece->iov_base = (char *)piece->iov_base + taken;
            piece->iov_len -= taken;
            part->out_at += piece->iov_len == 0;
            left -= taken;
        }
    }
}

/* Understands what lies in the connection's buffer. */
static void consume(fby_redis_part_t *part)
{
    fby_redis_conn_t *conn = part->conn;
    while (conn->in_at < conn->in_end && part->status == 0) {
        if (part->answered == part->count) {
            garbled(part); /* more replies than commands */
            return;
        }
        conn->in_at += (uint32_t)fby_reply_feed(&part->reply, conn->in + conn->in_at, conn->in_end - conn->in_at);
        if (part->reply.state == FBY_REPLY_BROKEN) {
            garbled(part);
        } else if (part->reply.state == FBY_REPLY_DONE) {
            answer(part);
        }
    }
}

static size_t ahead(const fby_redis_part_t *part, const void *direct)
{
    bool drains = direct == NULL && part->reply.state == FBY_REPLY_PAYLOAD;
    bool is_large = part->verb == FBY_REDIS_GET && part->items[part->answered]->op->bytes >= LARGE_BYTES;
    return is_large && !drains ? SMALL_AHEAD : sizeof(part->conn->in);
}

static void receive_some(fby_redis_part_t *part)
{
    while (part->status == 0 && part->answered < part->count) {
        size_t room = 0;
        void *direct = fby_reply_direct(&part->reply, &room);
        ssize_t moved = fby_redis_conn_recv(part->conn, direct, room, ahead(part, direct));
        if (moved < 0) {
            part->status = moved == -EAGAIN ? 0 : FBY_E_CONNECTION;
            return;
        }
        part->received = true;
        part->progress_ns = fby_clock_now(&fby_clock_monotonic);
        if (direct != NULL) {
            fby_reply_took(&part->reply, FBY_MIN((size_t)moved, room));
        }
        consume(part);
    }
}

short fby_redis_part_events(const fby_redis_part_t *part)
{
    if (part->status != 0 || part->answered == part->count) {
        return 0;
    }
    return (short)(part->conn->recv_wait | (part->out_at < part->out_count ? part->conn->send_wait : 0));
}

void fby_redis_part_step(fby_redis_part_t *part, short events)
{
    bool failed = (events & (POLLERR | POLLHUP | POLLNVAL)) != 0;
    if (part->out_at < part->out_count && (failed || (events & part->conn->send_wait) != 0)) {
        send_some(part);
    }
    /* TLS may hold bytes that poll() knows nothing of; what was sent before a failure may have been answered. */
    if (failed || part->status != 0 || part->conn->tls != NULL || (events & part->conn->recv_wait) != 0) {
        int status = part->status;
        part->status = 0;
        receive_some(part);
        part->status = part->status != 0 ? part->status : part->answered < part->count ? status : 0;
    }
}
