/* group_rig.h - groups of ranks, decisions, and messages that are changed on the way. */
#ifndef FBY_TESTS_RANK_GROUP_RIG_H
#define FBY_TESTS_RANK_GROUP_RIG_H

#include <errno.h>

#include "forebay/group.h"
#include "unit.h"

/* An encoded message, exactly as long as its memory, so that a sanitizer sees a read behind it. */
typedef struct rig_message {
    uint8_t *bytes;
    size_t length;
} rig_message_t;

void rig_message_free(rig_message_t *message);
rig_message_t rig_message_copy(const void *bytes, size_t length);
/* The checksum again, after a change. */
void rig_message_seal(rig_message_t *message);

fby_ranks_t rig_ranks(uint32_t rank, uint32_t ranks);
rig_message_t rig_card_message(const fby_card_t *card);
/* All of the leader's log from there on. length 0: nothing. */
rig_message_t rig_decisions(const fby_leader_t *leader, uint64_t from);
/* One message for each of the log's decisions. */
rig_message_t rig_one_decision(const fby_leader_t *leader, uint64_t number);
rig_message_t rig_report(fby_follower_t *follower, const fby_result_t *result);
rig_message_t rig_verdict(const fby_verdict_t *verdict);

/* What a decision points to. */
typedef struct rig_decision {
    fby_decision_t decision;
    fby_block_range_t range[FBY_DECISION_RANGES];
    uint64_t *words;
    uint8_t extra[FBY_DECISION_EXTRA];
} rig_decision_t;
/* Any decision that may be, but no `end`. Freed by rig_decision_free. */
void rig_decision_random(rig_decision_t *out, uint64_t *random);
void rig_decision_free(rig_decision_t *decision);
/* Fails the test where they differ in anything but the number. */
void rig_decisions_equal(const fby_decision_t *a, const fby_decision_t *b);

/* A load of one range with this tag. */
uint64_t rig_decide(fby_leader_t *leader, uint32_t kind, uint64_t tag);

/* The detail of the last failure has this in it. */
#define rig_assert_detail(piece)                                                                                       \
    do {                                                                                                               \
        if (strstr(fby_last_error(), (piece)) == NULL) {                                                               \
            fail_msg("the detail is \"%s\", without \"%s\"", fby_last_error(), (piece));                               \
        }                                                                                                              \
    } while (0)

#endif
