/*
 * group.h - ranks of one group, each on a connection of its own. The server carries what forebay/group.h encodes; what it
 * looks at are cards, to compare them, and reports, to fold them.
 *
 *   WAITING  its card is there, others' are not
 *   IN       all cards were there and equal
 *   OUT      what it was told at last stands: a failed join, or that somebody joined again since
 *
 * A rank that is lost leaves the others IN: they hear of it in RECEIVE, once, in order, and verdicts do not wait for it. When
 * any rank joins again all others are OUT until they do, too.
 */
#ifndef FBY_SERVER_GROUP_H
#define FBY_SERVER_GROUP_H

#include "forebay/group.h"
#include "server/internal.h"

enum {
    FBY_GROUP_BACKLOG = 1 << 20, /* bytes of messages that a rank has not read */
    FBY_GROUP_MAIL = 64,         /* bytes that any message is counted as beside its own */
    FBY_GROUP_VERDICTS = 1024,
    FBY_GROUP_EVENTS = 8, /* descriptors of one rank that wait */
    FBY_GROUP_TEXT = 1024
};

typedef struct fby_group_bytes { /* one message, in the inboxes of several ranks */
    uint32_t refs;
    uint32_t count;
    uint8_t bytes[];
} fby_group_bytes_t;

typedef struct fby_group_mail {
    struct fby_group_mail *next;
    fby_group_bytes_t *message; /* NULL: `lost` is */
    uint32_t lost;
} fby_group_mail_t;

typedef enum fby_member_state { FBY_MEMBER_WAITING, FBY_MEMBER_IN, FBY_MEMBER_OUT } fby_member_state_t;

typedef struct fby_member {
    struct fby_group *group;
    fby_peer_t *peer;
    uint32_t rank;
    fby_member_state_t state;
    uint64_t deadline; /* of its join */
    int code;          /* of it, once it is over; text: why */
    char text[FBY_GROUP_TEXT];
    void *card;
    size_t card_bytes;
    fby_group_mail_t *mail, **mail_end;
    uint64_t mail_bytes;
    fby_event_fd_t *events;
    uint32_t event_count;
} fby_member_t;

typedef struct fby_group {
    struct fby_group *next;
    char name[FBY_MSG_NAME];
    uint32_t ranks, members, waiting;
    fby_ranks_t formed;    /* once all were IN */
    uint32_t broken_by;    /* who joined again, or was lost, last */
    uint8_t *lost;         /* by rank: since it formed */
    fby_member_t **member; /* by rank; NULL: not there */
    uint64_t highest;      /* decision anybody reported or asked about */
    fby_verdict_t *verdict[FBY_GROUP_VERDICTS];
    uint64_t number[FBY_GROUP_VERDICTS];
} fby_group_t;

/* Something changed for this rank, or for all. */
void fby_member_signal(fby_member_t *member);
void fby_group_signal(fby_group_t *group);
/* One more reference of message, or a lost rank. False: out of memory. */
bool fby_member_post(fby_member_t *member, fby_group_bytes_t *message, uint32_t lost);
/* The oldest mail is over. */
void fby_member_read(fby_member_t *member);
/* The verdict on a decision, made if it has to be. NULL with *code: -ENOENT (too old), -EAGAIN (far ahead), -ENOMEM. */
fby_verdict_t *fby_group_verdict_of(fby_group_t *group, uint64_t number, int *code);

#endif
