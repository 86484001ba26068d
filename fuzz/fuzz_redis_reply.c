/*
 * fuzz_redis_reply.c - any bytes as replies of a Redis server: in any pieces they mean the same, nothing is written
 * outside the sink, and every reply ends or wants more.
 *
 * Input: length of the sink (u8), size of a piece (u8), kind (u8: odd, a tree), then the stream.
 */
#include <stdlib.h>
#include <string.h>

#include "stores/redis_reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void begin(fby_reply_t *reply, uint8_t *sink, size_t sink_bytes, bool is_tree)
{
    memset(sink, 0xEE, sink_bytes);
    if (is_tree) {
        fby_reply_begin_tree(reply, 64, 64);
    } else {
        fby_reply_begin(reply, sink, sink_bytes);
    }
}

/* One reply, in pieces, payloads in place where the reader says so. How many bytes it took. */
static size_t read_pieces(fby_reply_t *reply, const uint8_t *bytes, size_t n, size_t piece)
{
    size_t at = 0;
    while (at < n && !fby_reply_is_over(reply)) {
        size_t room = 0, some = FBY_MIN(piece, n - at);
        void *direct = fby_reply_direct(reply, &room);
        if (direct != NULL) {
            some = FBY_MIN(some, room);
            memcpy(direct, bytes + at, some);
            fby_reply_took(reply, some);
            at += some;
            continue;
        }
        size_t used = fby_reply_feed(reply, bytes + at, some);
        if (used > some || (used < some && !fby_reply_is_over(reply))) {
            abort(); /* it stopped in the middle */
        }
        at += used;
    }
    return at;
}

static bool same(const fby_reply_t *a, const fby_reply_t *b)
{
    return a->state == b->state && a->type == b->type && a->value == b->value && a->stored == b->stored &&
           (a->state != FBY_REPLY_DONE || strcmp(a->line, b->line) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) {
        return 0;
    }
    size_t sink_bytes = data[0], piece = (size_t)data[1] + 1;
    bool is_tree = (data[2] & 1) != 0;
    uint8_t *whole_sink = malloc(sink_bytes + 1), *sink = malloc(sink_bytes + 1);
    if (whole_sink == NULL || sink == NULL) {
        free(whole_sink);
        free(sink);
        return 0;
    }
    whole_sink[sink_bytes] = sink[sink_bytes] = 0x77; /* stays */
    data += 3;
    size -= 3;
    while (size > 0) {
        fby_reply_t whole, cut;
        begin(&whole, whole_sink, sink_bytes, is_tree);
        begin(&cut, sink, sink_bytes, is_tree);
        size_t used = fby_reply_feed(&whole, data, size);
        if (read_pieces(&cut, data, size, piece) != used || !same(&whole, &cut) ||
            memcmp(whole_sink, sink, sink_bytes + 1) != 0 || sink[sink_bytes] != 0x77) {
            abort();
        }
        if (whole.state == FBY_REPLY_DONE && whole.type == FBY_REPLY_ERROR) {
            (void)fby_redis_error_code(whole.line);
        }
        if (whole.state != FBY_REPLY_DONE) {
            break;
        }
        data += used;
        size -= used;
    }
    free(whole_sink);
    free(sink);
    return 0;
}
