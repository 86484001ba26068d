/*
 * card.h - the fields of one rank's card, in the order of their names.
 *
 * Body of the message, per field: flags u8 | bytes of the name u8 | name | bytes of the value u8 | value. Names ascend,
 * none twice, so that equal cards are equal bytes.
 */
#ifndef FBY_RANK_CARD_H
#define FBY_RANK_CARD_H

#include "rank/message.h"

typedef struct fby_card_field {
    uint32_t flags;
    char name[FBY_CARD_NAME_BYTES + 1];
    char value[FBY_CARD_VALUE_BYTES + 1];
} fby_card_field_t;

struct fby_card {
    uint32_t rank, ranks;
    uint64_t incarnation;
    uint32_t fields;
    fby_card_field_t field[FBY_CARD_FIELDS];
};

/* Reads a card. *protocol, *card's rank, ranks and incarnation are set as soon as the frame is whole: when protocol
   is not ours the fields are not read, and that is no error. Errors: FBY_E_FORMAT, FBY_E_CHECKSUM. */
int fby_card_decode(const void *bytes, size_t n, fby_card_t *card, uint8_t *protocol);

#endif
