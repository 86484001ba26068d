/* decision.c - checking, writing and reading one decision. */
#include "rank/decision.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { HAS_PLACES = 0x40, HAS_DEVICE_BLOCKS = 0x80, GROUP_MASK = 0x3F };

_Static_assert(FBY_MAX_GROUPS <= GROUP_MASK + 1, "a group fits beside the flags");

const char *fby_decision_name(uint32_t kind)
{
    switch (kind) {
#define FBY_X(name, number, text)                                                                                      \
    case FBY_DECISION_##name:                                                                                          \
        return text;
        FBY_DECISION_MAP(FBY_X)
#undef FBY_X
    default:
        return "unknown";
    }
}

/* ---- Checking ---------------------------------------------------------------------------------------------------- */

static int check_range(const fby_block_range_t *range, uint32_t kind)
{
    if (range->group >= FBY_MAX_GROUPS) {
        return fby_group_refuse("decision.range.group", range->group, "0 to 7");
    }
    if (range->blocks > FBY_DECISION_BLOCKS) {
        return fby_group_refuse("decision.range.blocks", range->blocks, "at most 131072");
    }
    if (range->first_block > UINT64_MAX - range->blocks) {
        return fby_group_refuse("decision.range.first_block", range->first_block, "what has its end below 2^64");
    }
    if (fby_decision_is_copy(kind) && range->blocks > 0 && (range->place == NULL || range->device_block == NULL)) {
        fby_error_set("decision.range.%s is NULL; accepted for %s: one per block",
                      range->place == NULL ? "place" : "device_block", fby_decision_name(kind));
        return -EINVAL;
    }
    for (uint64_t i = 0; range->place != NULL && i < range->blocks; i++) {
        if (range->place[i] == FBY_NO_PLACE) {
            return fby_group_refuse("decision.range.place", range->place[i], "no FBY_NO_PLACE");
        }
    }
    return 0;
}

int fby_decision_check(const fby_decision_t *decision)
{
    uint64_t blocks = 0;
    if (decision == NULL || decision->size != sizeof(*decision)) {
        return fby_group_refuse("decision.size", decision != NULL ? decision->size : 0, "the size of fby_decision_t");
    }
    if (decision->kind < FBY_DECISION_LOAD || decision->kind > FBY_DECISION_END) {
        return fby_group_refuse("decision.kind", decision->kind, "1 to 6");
    }
    if (decision->ranges > FBY_DECISION_RANGES) {
        return fby_group_refuse("decision.ranges", decision->ranges, "at most 64");
    }
    if (decision->extra_bytes > FBY_DECISION_EXTRA) {
        return fby_group_refuse("decision.extra_bytes", decision->extra_bytes, "at most 1024");
    }
    if ((decision->ranges > 0 && decision->range == NULL) || (decision->extra_bytes > 0 && decision->extra == NULL)) {
        fby_error_set("decision.%s is NULL", decision->ranges > 0 && decision->range == NULL ? "range" : "extra");
        return -EINVAL;
    }
    for (uint32_t i = 0; i < decision->ranges; i++) {
        int rc = check_range(&decision->range[i], decision->kind);
        if (rc != 0) {
            return rc;
        }
        blocks += decision->range[i].blocks;
    }
    return blocks <= FBY_DECISION_BLOCKS
               ? 0
               : fby_group_refuse("blocks of all ranges of the decision", blocks, "at most 131072");
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static void write_list(fby_writer_t *writer, const uint64_t *list, uint64_t n)
{
    uint64_t before = 0;
    for (uint64_t i = 0; list != NULL && i < n; i++) {
        fby_write_delta(writer, &before, list[i]);
    }
}

static void write_range(fby_writer_t *writer, const fby_block_range_t *range)
{
    fby_write_u8(writer, (uint8_t)(range->group | (range->place != NULL ? HAS_PLACES : 0) |
                                   (range->device_block != NULL ? HAS_DEVICE_BLOCKS : 0)));
    fby_write_varint(writer, range->first_block);
    fby_write_varint(writer, range->blocks);
    write_list(writer, range->place, range->blocks);
    write_list(writer, range->device_block, range->blocks);
}

void fby_decision_write(fby_writer_t *writer, const fby_decision_t *decision)
{
    fby_write_u8(writer, (uint8_t)decision->kind);
    fby_write_u64(writer, decision->tag);
    fby_write_varint(writer, decision->tokens);
    fby_write_u64(writer, decision->object);
    fby_write_varint(writer, decision->extra_bytes);
    fby_write_varint(writer, decision->ranges);
    for (uint32_t i = 0; i < decision->ranges; i++) {
        write_range(writer, &decision->range[i]);
    }
    fby_write(writer, decision->extra, decision->extra_bytes);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

void fby_decision_room_free(fby_decision_room_t *room)
{
    free(room->words);
    room->words = NULL;
    room->capacity = room->used = 0;
}

static int room_grow(fby_decision_room_t *room, size_t more)
{
    if (more <= room->capacity - room->used) {
        return 0;
    }
    const size_t capacity = FBY_MAX(2 * room->capacity, room->used + more);
    uint64_t *words = realloc(room->words, capacity * sizeof(*words));
    if (words == NULL) {
        return fby_group_no_memory("decision", capacity * sizeof(*words));
    }
    room->words = words;
    room->capacity = capacity;
    return 0;
}

static int refuse_bytes(const char *what)
{
    fby_error_set("decision: %s", what);
    return FBY_E_FORMAT;
}

/* Entries of one list go behind those of the lists before it; *at is where they begin. */
static void read_list(fby_reader_t *reader, fby_decision_room_t *room, uint64_t n, size_t *at)
{
    uint64_t before = 0;
    *at = room->used;
    for (uint64_t i = 0; i < n; i++) {
        room->words[room->used++] = fby_read_delta(reader, &before);
    }
}

/* at[0] and at[1]: where the range's lists begin among the words; FBY_NO_LIST: it has none. */
#define FBY_NO_LIST SIZE_MAX
static int read_range(fby_reader_t *reader, fby_decision_room_t *room, fby_block_range_t *out, size_t at[2])
{
    const uint8_t head = fby_read_u8(reader);
    const uint64_t lists = (uint64_t)((head & HAS_PLACES) != 0) + (uint64_t)((head & HAS_DEVICE_BLOCKS) != 0);
    *out = (fby_block_range_t){.group = head & GROUP_MASK};
    out->first_block = fby_read_varint(reader);
    out->blocks = fby_read_varint(reader);
    at[0] = at[1] = FBY_NO_LIST;
    /* An entry takes a byte or more: what was not sent is not allocated. */
    if (reader->bad || out->blocks > FBY_DECISION_BLOCKS || out->blocks * lists > fby_read_left(reader)) {
        return refuse_bytes("a range of blocks is cut short");
    }
    int rc = room_grow(room, (size_t)(out->blocks * lists));
    if (rc != 0) {
        return rc;
    }
    if ((head & HAS_PLACES) != 0) {
        read_list(reader, room, out->blocks, &at[0]);
    }
    if ((head & HAS_DEVICE_BLOCKS) != 0) {
        read_list(reader, room, out->blocks, &at[1]);
    }
    return 0;
}

static int read_ranges(fby_reader_t *reader, fby_decision_room_t *room, uint32_t ranges)
{
    size_t at[FBY_DECISION_RANGES][2];
    room->used = 0;
    int rc = room_grow(room, 1); /* an empty list has an address too */
    for (uint32_t i = 0; rc == 0 && i < ranges; i++) {
        rc = read_range(reader, room, &room->range[i], at[i]);
    }
    for (uint32_t i = 0; rc == 0 && i < ranges; i++) { /* not before the words stay where they are */
        room->range[i].place = at[i][0] != FBY_NO_LIST ? room->words + at[i][0] : NULL;
        room->range[i].device_block = at[i][1] != FBY_NO_LIST ? room->words + at[i][1] : NULL;
    }
    return rc;
}

int fby_decision_read(fby_reader_t *reader, fby_decision_room_t *room, fby_decision_t *out)
{
    fby_decision_t read = {.size = sizeof(read)};
    read.kind = fby_read_u8(reader);
    read.tag = fby_read_u64(reader);
    read.tokens = fby_read_varint(reader);
    read.object = fby_read_u64(reader);
    const uint64_t extra_bytes = fby_read_varint(reader), ranges = fby_read_varint(reader);
    if (reader->bad || extra_bytes > FBY_DECISION_EXTRA || ranges > FBY_DECISION_RANGES) {
        return refuse_bytes("its head is cut short, or it has more ranges or bytes than a decision may have");
    }
    read.ranges = (uint32_t)ranges;
    read.extra_bytes = (uint32_t)extra_bytes;
    int rc = read_ranges(reader, room, read.ranges);
    if (rc != 0) {
        return rc;
    }
    read.range = read.ranges > 0 ? room->range : NULL;
    read.extra = read.extra_bytes > 0 ? fby_read(reader, read.extra_bytes) : NULL;
    if (reader->bad) {
        return refuse_bytes("cut short, or a number in another form than its shortest");
    }
    if (fby_decision_check(&read) != 0) { /* the detail says what */
        return FBY_E_FORMAT;
    }
    *out = read;
    return 0;
}
