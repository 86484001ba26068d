/*
 * decision.h - one decision as bytes. It says by itself where it ends; its number is its position in the log.
 *
 * kind u8 | tag u64 | tokens varint | object u64 | bytes of the engine's varint | ranges varint | per range: group and
 * flags u8 | first block varint | blocks varint | places, device blocks: each a varint delta to the one before | the
 * engine's bytes
 */
#ifndef FBY_RANK_DECISION_H
#define FBY_RANK_DECISION_H

#include "rank/message.h"

/* What a decision that was read points to. Zeroed to begin with; freed by fby_decision_room_free. */
typedef struct fby_decision_room {
    fby_block_range_t range[FBY_DECISION_RANGES];
    uint64_t *words; /* places and device blocks of all ranges */
    size_t capacity, used;
} fby_decision_room_t;

void fby_decision_room_free(fby_decision_room_t *room);

/* Whether such a decision may be; all but its number. -EINVAL: field, value, accepted. */
int fby_decision_check(const fby_decision_t *decision);
/* Of a decision that was checked. */
void fby_decision_write(fby_writer_t *writer, const fby_decision_t *decision);
/* Reads one and checks it. *out points into room and, for the engine's bytes, into the message.
   FBY_E_FORMAT, -ENOMEM. */
int fby_decision_read(fby_reader_t *reader, fby_decision_room_t *room, fby_decision_t *out);

static inline bool fby_decision_is_copy(uint32_t kind)
{
    return kind == FBY_DECISION_LOAD || kind == FBY_DECISION_SAVE;
}

#endif
