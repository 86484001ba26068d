/*
 * message.h - what travels between leader and ranks: one header, a body of varints, one checksum.
 *
 * Little-endian:
 *   0 magic "FBYG" u32 | 4 protocol u8 | 5 type u8 | 6 zero u16 | 8 length u32 | 12 rank u32 | 16 ranks u32 |
 *   20 count u32 | 24 incarnation u64 | 32 number u64 | 40 body | length - 8 XXH3-64 of all before it
 *
 * Magic, protocol, length, rank and checksum stay where they are in every later protocol, so that a card of another one
 * can be told from one that was damaged.
 */
#ifndef FBY_RANK_MESSAGE_H
#define FBY_RANK_MESSAGE_H

#include "base/base.h"
#include "forebay/group.h"

/* Numbers of decisions stay below it, so that sums of a number and a count never wrap. */
#define FBY_LAST_NUMBER (UINT64_C(1) << 62)

enum { FBY_MESSAGE_HEAD = 40, FBY_MESSAGE_FRAME = FBY_MESSAGE_HEAD + 8 };

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* Writes what fits and counts all, so that one function both measures and encodes. */
typedef struct fby_writer {
    uint8_t *bytes;
    size_t capacity;
    size_t used; /* may pass capacity: then nothing more was written */
} fby_writer_t;

void fby_write(fby_writer_t *writer, const void *bytes, size_t n);
void fby_write_u8(fby_writer_t *writer, uint8_t value);
void fby_write_u64(fby_writer_t *writer, uint64_t value);
/* LEB128. */
void fby_write_varint(fby_writer_t *writer, uint64_t value);
/* The difference to *before, which becomes value: neighbours in a list are close to each other. */
void fby_write_delta(fby_writer_t *writer, uint64_t *before, uint64_t value);

void fby_message_begin(fby_writer_t *writer, const fby_message_t *head);
/* Length and checksum. *needed (may be NULL) is set. 0, -ENOSPC, FBY_E_BUDGET (over FBY_MESSAGE_BYTES); with detail. */
int fby_message_end(fby_writer_t *writer, size_t *needed);

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Reads zeros once it is `bad`: ask at the end, and before anything is sized by what was read. */
typedef struct fby_reader {
    const uint8_t *at, *end;
    bool bad; /* something was cut short, or a number was not written in its shortest form */
} fby_reader_t;

uint8_t fby_read_u8(fby_reader_t *reader);
uint64_t fby_read_u64(fby_reader_t *reader);
uint64_t fby_read_varint(fby_reader_t *reader);
uint64_t fby_read_delta(fby_reader_t *reader, uint64_t *before);
/* n bytes where they lie, or NULL. */
const void *fby_read(fby_reader_t *reader, size_t n);
static inline size_t fby_read_left(const fby_reader_t *reader)
{
    return (size_t)(reader->end - reader->at);
}

/* Frame and header; *protocol (may be NULL) is set as soon as the frame is whole, also when it is not ours. The body is
   reader's. FBY_E_FORMAT, FBY_E_CHECKSUM; with detail. */
int fby_message_open(const void *bytes, size_t n, fby_message_t *head, uint8_t *protocol, fby_reader_t *body);
/* The same for a message of this type within this group: FBY_E_STALE for another incarnation, FBY_E_FORMAT for another
   type (named), another number of ranks, or a rank that the group does not have. */
int fby_message_accept(const fby_ranks_t *ranks, const void *bytes, size_t n, uint32_t type, fby_message_t *head,
                       fby_reader_t *body);
/* FBY_E_FORMAT when the body is bad or has bytes left. */
int fby_message_closed(const fby_reader_t *body, const char *what);

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* "FIELD is VALUE; accepted: ..." as detail; -EINVAL. */
int fby_group_refuse(const char *field, uint64_t value, const char *accepted);
/* Checks ranks and fills in what 0 stands for. with_rank: `rank` must be one of them. -EINVAL. */
int fby_ranks_take(const fby_ranks_t *ranks, bool with_rank, fby_ranks_t *out);
/* A struct of the caller's to be filled: *size is its first member. Copies no more than it says. */
void fby_group_output(void *to, const void *from, size_t bytes);
int fby_group_no_memory(const char *what, uint64_t bytes);

#endif
