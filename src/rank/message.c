/* message.c - framing, varints, and the checks that all messages share. */
#include "rank/message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "stores/object.h"

#define MAGIC UINT32_C(0x47594246) /* "FBYG" read as little-endian */

enum {
    AT_MAGIC = 0,
    AT_PROTOCOL = 4,
    AT_TYPE = 5,
    AT_ZERO = 6,
    AT_LENGTH = 8,
    AT_RANK = 12,
    AT_RANKS = 16,
    AT_COUNT = 20,
    AT_INCARNATION = 24,
    AT_NUMBER = 32,
    CHECKSUM_BYTES = 8
};

#define DEFAULT_WINDOW 1024u
#define MOST_WINDOW 65536u
#define DEFAULT_WINDOW_BYTES (UINT64_C(64) << 20)

static void put_le(uint8_t *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint64_t get_le(const uint8_t *at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << 8 * i;
    }
    return value;
}

const char *fby_message_name(uint32_t type)
{
    switch (type) {
#define FBY_X(name, number, text)                                                                                      \
    case FBY_MESSAGE_##name:                                                                                           \
        return text;
        FBY_MESSAGE_MAP(FBY_X)
#undef FBY_X
    default:
        return "unknown";
    }
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

void fby_write(fby_writer_t *writer, const void *bytes, size_t n)
{
    if (n > 0 && writer->used <= writer->capacity && n <= writer->capacity - writer->used) {
        memcpy(writer->bytes + writer->used, bytes, n);
    }
    writer->used += n;
}

void fby_write_u8(fby_writer_t *writer, uint8_t value)
{
    fby_write(writer, &value, 1);
}

void fby_write_u64(fby_writer_t *writer, uint64_t value)
{
    uint8_t bytes[8];
    put_le(bytes, value, sizeof(bytes));
    fby_write(writer, bytes, sizeof(bytes));
}

void fby_write_varint(fby_writer_t *writer, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    while (value >= 0x80) {
        bytes[n++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    bytes[n++] = (uint8_t)value;
    fby_write(writer, bytes, n);
}

/* Zigzag, modulo 2^64: any value has a difference to any other. */
void fby_write_delta(fby_writer_t *writer, uint64_t *before, uint64_t value)
{
    const uint64_t difference = value - *before;
    fby_write_varint(writer, difference << 1 ^ (0 - (difference >> 63)));
    *before = value;
}

void fby_message_begin(fby_writer_t *writer, const fby_message_t *head)
{
    uint8_t bytes[FBY_MESSAGE_HEAD] = {0};
    put_le(bytes + AT_MAGIC, MAGIC, 4);
    bytes[AT_PROTOCOL] = FBY_GROUP_PROTOCOL;
    bytes[AT_TYPE] = (uint8_t)head->type;
    put_le(bytes + AT_RANK, head->rank, 4);
    put_le(bytes + AT_RANKS, head->ranks, 4);
    put_le(bytes + AT_COUNT, head->count, 4);
    put_le(bytes + AT_INCARNATION, head->incarnation, 8);
    put_le(bytes + AT_NUMBER, head->number, 8);
    fby_write(writer, bytes, sizeof(bytes));
}

int fby_message_end(fby_writer_t *writer, size_t *needed)
{
    const size_t length = writer->used + CHECKSUM_BYTES;
    if (length > FBY_MESSAGE_BYTES) {
        fby_error_set("the message takes %zu bytes; accepted: at most %u", length, FBY_MESSAGE_BYTES);
        return FBY_E_BUDGET;
    }
    if (needed != NULL) {
        *needed = length;
    }
    if (length > writer->capacity) {
        fby_error_set("capacity is %zu; the message takes %zu bytes", writer->capacity, length);
        return -ENOSPC;
    }
    put_le(writer->bytes + AT_LENGTH, length, 4);
    fby_write_u64(writer, fby_checksum_segment(writer->bytes, writer->used));
    return 0;
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

const void *fby_read(fby_reader_t *reader, size_t n)
{
    if (reader->bad || n > fby_read_left(reader)) {
        reader->bad = true;
        return NULL;
    }
    const void *at = reader->at;
    reader->at += n;
    return at;
}

uint8_t fby_read_u8(fby_reader_t *reader)
{
    const uint8_t *at = fby_read(reader, 1);
    return at != NULL ? *at : 0;
}

uint64_t fby_read_u64(fby_reader_t *reader)
{
    const uint8_t *at = fby_read(reader, 8);
    return at != NULL ? get_le(at, 8) : 0;
}

uint64_t fby_read_varint(fby_reader_t *reader)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = fby_read_u8(reader);
        if (reader->bad || (shift == 63 && byte > 1) || (shift > 0 && byte == 0)) {
            break; /* cut, over 64 bits, or a zero on top, which a shorter form would leave out */
        }
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            return value;
        }
    }
    reader->bad = true;
    return 0;
}

uint64_t fby_read_delta(fby_reader_t *reader, uint64_t *before)
{
    const uint64_t zigzag = fby_read_varint(reader);
    *before += zigzag >> 1 ^ (0 - (zigzag & 1));
    return *before;
}

/* The frame: what every protocol has. */
static int check_frame(const uint8_t *at, size_t n)
{
    if (at == NULL || n < FBY_MESSAGE_FRAME) {
        fby_error_set("a message of %zu bytes; accepted: %u or more", at != NULL ? n : 0, FBY_MESSAGE_FRAME);
        return FBY_E_FORMAT;
    }
    if (get_le(at + AT_MAGIC, 4) != MAGIC) {
        fby_error_set("not a message of a leader or a rank: it begins with 0x%08llx",
                      (unsigned long long)get_le(at + AT_MAGIC, 4));
        return FBY_E_FORMAT;
    }
    if (n > FBY_MESSAGE_BYTES || get_le(at + AT_LENGTH, 4) != n) {
        fby_error_set("the message is %zu bytes long and says %llu; accepted: at most %u", n,
                      (unsigned long long)get_le(at + AT_LENGTH, 4), FBY_MESSAGE_BYTES);
        return FBY_E_FORMAT;
    }
    if (get_le(at + n - CHECKSUM_BYTES, 8) != fby_checksum_segment(at, n - CHECKSUM_BYTES)) {
        fby_error_set("the checksum of a message of %zu bytes is wrong", n);
        return FBY_E_CHECKSUM;
    }
    return 0;
}

int fby_message_open(const void *bytes, size_t n, fby_message_t *head, uint8_t *protocol, fby_reader_t *body)
{
    const uint8_t *at = bytes;
    int rc = check_frame(at, n);
    if (rc != 0) {
        return rc;
    }
    *head = (fby_message_t){
        .size = sizeof(*head),
        .type = at[AT_TYPE],
        .rank = (uint32_t)get_le(at + AT_RANK, 4),
        .ranks = (uint32_t)get_le(at + AT_RANKS, 4),
        .incarnation = get_le(at + AT_INCARNATION, 8),
        .number = get_le(at + AT_NUMBER, 8),
        .count = get_le(at + AT_COUNT, 4),
    };
    *body = (fby_reader_t){.at = at + FBY_MESSAGE_HEAD, .end = at + n - CHECKSUM_BYTES};
    if (protocol != NULL) {
        *protocol = at[AT_PROTOCOL];
    }
    if (at[AT_PROTOCOL] != FBY_GROUP_PROTOCOL) {
        fby_error_set("a message of protocol %u; this library speaks %u", at[AT_PROTOCOL], FBY_GROUP_PROTOCOL);
        return FBY_E_FORMAT;
    }
    if (head->type < FBY_MESSAGE_CARD || head->type > FBY_MESSAGE_ACKNOWLEDGEMENT || get_le(at + AT_ZERO, 2) != 0) {
        fby_error_set("a message of type %u; accepted: %u to %u", head->type, FBY_MESSAGE_CARD,
                      FBY_MESSAGE_ACKNOWLEDGEMENT);
        return FBY_E_FORMAT;
    }
    return 0;
}

int fby_message_parse(const void *bytes, size_t n, fby_message_t *message)
{
    fby_message_t head;
    fby_reader_t body;
    if (message == NULL || message->size < sizeof(message->size)) {
        return fby_group_refuse("message.size", 0, "the size of fby_message_t");
    }
    int rc = fby_message_open(bytes, n, &head, NULL, &body);
    if (rc == 0) {
        fby_group_output(message, &head, sizeof(head));
    }
    return rc;
}

int fby_message_accept(const fby_ranks_t *ranks, const void *bytes, size_t n, uint32_t type, fby_message_t *head,
                       fby_reader_t *body)
{
    int rc = fby_message_open(bytes, n, head, NULL, body);
    if (rc != 0) {
        return rc;
    }
    const bool of_leader = type == FBY_MESSAGE_DECISIONS || type == FBY_MESSAGE_VERDICT;
    char sender[24] = "the leader";
    if (head->rank != FBY_NO_RANK) {
        snprintf(sender, sizeof(sender), "rank %u", head->rank);
    }
    if (head->type != type) {
        fby_error_set("%s of %s, where %s is expected", fby_message_name(head->type), sender, fby_message_name(type));
        return FBY_E_FORMAT;
    }
    if (head->incarnation != ranks->incarnation) {
        fby_error_set("%s of %s is of incarnation %016llx; this group's is %016llx", fby_message_name(type), sender,
                      (unsigned long long)head->incarnation, (unsigned long long)ranks->incarnation);
        return FBY_E_STALE;
    }
    if (head->ranks != ranks->ranks || (of_leader ? head->rank != FBY_NO_RANK : head->rank >= ranks->ranks)) {
        fby_error_set("%s of %s of %u ranks; accepted: %s of %u", fby_message_name(type), sender, head->ranks,
                      of_leader ? "the leader" : "a rank", ranks->ranks);
        return FBY_E_FORMAT;
    }
    return 0;
}

int fby_message_closed(const fby_reader_t *body, const char *what)
{
    if (!body->bad && body->at == body->end) {
        return 0;
    }
    fby_error_set("%s: %s", what,
                  body->bad ? "cut short, or a number in another form than its shortest"
                            : "bytes are left over behind the last entry");
    return FBY_E_FORMAT;
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

int fby_group_refuse(const char *field, uint64_t value, const char *accepted)
{
    fby_error_set("%s is %llu; accepted: %s", field, (unsigned long long)value, accepted);
    return -EINVAL;
}

int fby_group_no_memory(const char *what, uint64_t bytes)
{
    fby_error_set("%s: no memory for %llu bytes", what, (unsigned long long)bytes);
    return -ENOMEM;
}

int fby_ranks_take(const fby_ranks_t *ranks, bool with_rank, fby_ranks_t *out)
{
    if (ranks == NULL || ranks->size != sizeof(*ranks)) {
        return fby_group_refuse("ranks.size", ranks != NULL ? ranks->size : 0, "the size of fby_ranks_t");
    }
    if (ranks->ranks == 0 || ranks->ranks > FBY_MOST_RANKS) {
        return fby_group_refuse("ranks.ranks", ranks->ranks, "1 to 65536");
    }
    if (with_rank && ranks->rank >= ranks->ranks) {
        return fby_group_refuse("ranks.rank", ranks->rank, "below ranks.ranks");
    }
    if (ranks->window > MOST_WINDOW) {
        return fby_group_refuse("ranks.window", ranks->window, "0 (1024) to 65536");
    }
    if (ranks->incarnation == 0) {
        return fby_group_refuse("ranks.incarnation", 0, "what fby_cards_compare gave");
    }
    if (ranks->first_number > FBY_LAST_NUMBER) {
        return fby_group_refuse("ranks.first_number", ranks->first_number, "0 (1) to 2^62");
    }
    *out = *ranks;
    out->window = ranks->window != 0 ? ranks->window : DEFAULT_WINDOW;
    out->window_bytes = ranks->window_bytes != 0 ? ranks->window_bytes : DEFAULT_WINDOW_BYTES;
    out->first_number = ranks->first_number != 0 ? ranks->first_number : 1;
    return 0;
}

void fby_group_output(void *to, const void *from, size_t bytes)
{
    uint32_t size;
    memcpy(&size, to, sizeof(size));
    if (size > sizeof(size)) {
        memcpy((char *)to + sizeof(size), (const char *)from + sizeof(size), FBY_MIN(size, bytes) - sizeof(size));
    }
}
