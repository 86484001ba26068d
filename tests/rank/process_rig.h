/*
 * process_rig.h - ranks as real processes, an engine's channel between them and the leader, and what a rank does.
 *
 * Every process of a story is forked by the test, before any of them makes a thread. A packet is one message of a
 * SOCK_SEQPACKET pair. Nothing here is cmocka's: a process that finds something wrong says so and ends with 1.
 */
#ifndef FBY_TESTS_RANK_PROCESS_RIG_H
#define FBY_TESTS_RANK_PROCESS_RIG_H

#include "forebay/group.h"
#include "forebay/rank.h"
#include "rig.h"

enum {
    MOST_RANKS = 8,
    STORY_BLOCKS = 6,
    STORY_TOKENS = 16,
    STORY_WINDOW = 16,
    PACKET_BYTES = 65536,
    PATIENCE_MS = 30000
};

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            story_wrong(__FILE__, __LINE__, #condition);                                                               \
        }                                                                                                              \
    } while (0)
_Noreturn void story_wrong(const char *file, int line, const char *what);

/* ---- Channel ----------------------------------------------------------------------------------------------------- */

typedef enum packet_kind {
    PACKET_CARD = 1, /* rank -> leader */
    PACKET_CARDS,    /* leader -> ranks: those of all, each behind its length; 0: it did not come in time */
    PACKET_TEXT,     /* rank -> leader: what the rank thinks of the cards */
    PACKET_POOL,     /* leader -> ranks, with the descriptor */
    PACKET_LOG,      /* a message of group.h, either way */
    PACKET_GO,       /* leader -> a slow rank: apply what came */
    PACKET_AGAIN,    /* leader -> ranks: exchange cards again */
    PACKET_BYE       /* rank -> leader: farewell_t */
} packet_kind_t;

typedef struct packet {
    uint32_t kind;
    size_t length;
    uint8_t bytes[PACKET_BYTES];
    int descriptor; /* -1: none */
} packet_t;

/* False: nobody is there any more. */
bool packet_send(int channel, packet_kind_t kind, const void *bytes, size_t length, int descriptor);
/* *Blocks*, at most PATIENCE_MS. False: nobody is there any more. */
bool packet_receive(int channel, packet_t *packet);

/* ---- Stories ----------------------------------------------------------------------------------------------------- */

typedef enum story_kind {
    STORY_PLAIN,       /* all goes well */
    STORY_KILLED,      /* the odd rank dies in a load */
    STORY_RESTARTED,   /* and another process takes its place */
    STORY_SLOW,        /* the odd rank applies nothing until it is told to */
    STORY_LEADER_DEAD, /* the leader dies while a load is under way */
    STORY_MISMATCH,    /* the odd rank has another dtype */
    STORY_ABSENT       /* the odd rank shows no card */
} story_kind_t;

typedef struct story {
    story_kind_t kind;
    fby_layout_kind_t layout;
    uint32_t ranks, odd;
    uint64_t seed;
} story_t;

enum { TAG_SAVE = 1000, TAG_LOAD = 2000, TAG_FATAL = 3000, TAG_NOTHING = 4000 };

/* What a rank saw since the last exchange. */
typedef struct farewell {
    uint64_t applied, log; /* decisions, and a checksum of them in the order they were applied */
    uint64_t stale;        /* messages of another incarnation that were refused */
    uint64_t ended, lost;  /* results: all, and those with the code of a lost rank */
} farewell_t;

/* Tensors of one rank: the same shapes for all ranks of a story, strides of its own. */
void story_engine(const story_t *story, uint32_t rank, rig_engine_t *engine);
uint64_t story_shard_offset(const story_t *story, uint32_t rank, uint64_t shard_bytes);
uint64_t story_payload_bytes(const story_t *story, uint64_t shard_bytes);
/* What the rank computes for a block: with mla the same on all ranks. */
void story_content(const story_t *story, uint32_t rank, uint64_t block, uint8_t *out, uint64_t shard_bytes);
/* Any number, not 0: of this process and moment. */
uint64_t story_random(void);

/* The life of the leader's process: channel[rank] goes to that rank, spare to the process that takes the odd
   one's place. */
_Noreturn void story_lead(const story_t *story, const int *channel, int spare);
/* The life of a rank's process. */
_Noreturn void story_rank(const story_t *story, uint32_t rank, int channel, bool restarted);

#endif
