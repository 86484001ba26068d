/*
 * group.h - the contract for engines with several ranks: one leader decides, the ranks follow.
 *
 *        fby_card_create, _set, _encode -> (all cards to all ranks) -> fby_cards_compare -> fby_ranks_t
 *        fby_leader_decide, _encode     -> (one message to all)     -> fby_follower_receive, _next
 *        fby_verdict_receive            <- (one report per rank)    <- fby_follower_report
 *        fby_verdict_encode             -> (one message to all)     -> fby_follower_receive, _result
 *        fby_leader_receive             <- (once in a while)        <- fby_follower_acknowledge
 *
 * The bytes travel over the engine's own channel or over a Forebay server. Nothing here opens a socket, reads a clock,
 * takes a lock, makes a thread or a random number: who waits, how long, and whom to take for dead is the caller's
 * choice.
 *
 * WORDS
 *   The *leader* is whoever owns the cache: a rank, or a process of its own. A *follower* is a rank's end of the log; a
 *   rank that shares the leader's process has one too. The *incarnation* is one number for one life of the group, made
 *   from the random numbers on all cards. When any process starts again, all exchange cards again, get a new
 *   incarnation, and make new objects: messages of another one are refused (FBY_E_STALE), and the detail says of which.
 *
 * MESSAGES    little-endian, at most FBY_MESSAGE_BYTES, with length and checksum: a message that was cut, lengthened or
 *             changed is refused and changes nothing. That is against mistakes, not against malice. docs/ranks.md has
 *             the format.
 * ERRORS      as in forebay.h. Any call that takes an object or a struct may answer -EINVAL (NULL, out of range, `size`
 *             not set: which field), any that takes a message FBY_E_FORMAT (not such a message; what is wrong),
 *             FBY_E_CHECKSUM (it was changed on the way) and FBY_E_STALE (of another incarnation). fby_last_error()
 *             names it.
 * ENCODING    *needed (may be NULL) becomes the bytes of the message, also with -ENOSPC: the capacity is too small.
 *             buffer may be NULL when capacity is 0. 0 bytes: there is nothing to send. Nothing else changes with
 *             -ENOSPC.
 * THREADS     one object is used by one thread at a time; different objects do not touch each other. All is *quick*.
 * MEMORY      what goes in is copied. Objects are the caller's to free; NULL is fine to free.
 */
#ifndef FOREBAY_GROUP_H
#define FOREBAY_GROUP_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Version of the messages; on every one of them, and on the card. */
#define FBY_GROUP_PROTOCOL 1
/** Most ranks of one group. */
#define FBY_MOST_RANKS 65536u
/** No message is longer. */
#define FBY_MESSAGE_BYTES (16u << 20)
/** "no rank". */
#define FBY_NO_RANK UINT32_MAX

/** The ranks that act together: what every leader, follower and verdict is made with, equal on all but for `rank`.
    fby_cards_compare fills ranks and incarnation; all else 0 is fine. */
typedef struct fby_ranks {
    uint32_t size;
    uint32_t ranks;        /**< 1 to FBY_MOST_RANKS */
    uint32_t rank;         /**< this one, below ranks; a leader and a verdict do not look at it */
    uint32_t window;       /**< decisions that are kept until acknowledged (leader) or applied (follower), and loads and
                                saves without a verdict (follower); 0: 1024. At most 65536 */
    uint64_t window_bytes; /**< bytes of them, encoded; 0: 64 MiB */
    uint64_t incarnation;  /**< not 0 */
    uint64_t first_number; /**< of the log; 0: 1 */
} fby_ranks_t;

/* ---- Messages, to whoever carries them --------------------------------------------------------------------------- */

/* X(name, number, text) */
#define FBY_MESSAGE_MAP(X)                                                                                             \
    X(CARD, 1, "card")                       /* of a rank, to all */                                                   \
    X(DECISIONS, 2, "decisions")             /* of the leader, to all */                                               \
    X(REPORT, 3, "report")                   /* of a rank, to the leader */                                            \
    X(VERDICT, 4, "verdict")                 /* of the leader, to all */                                               \
    X(ACKNOWLEDGEMENT, 5, "acknowledgement") /* of a rank, to the leader */
enum {
#define FBY_X(name, number, text) FBY_MESSAGE_##name = (number),
    FBY_MESSAGE_MAP(FBY_X)
#undef FBY_X
};
/** "card", ...; "unknown" outside the table. Never NULL; static storage. */
const char *fby_message_name(uint32_t type);

typedef struct fby_message {
    uint32_t size;
    uint32_t type;        /**< FBY_MESSAGE_... */
    uint32_t rank;        /**< the sender; FBY_NO_RANK: the leader */
    uint32_t ranks;       /**< of its group */
    uint64_t incarnation; /**< of its group; card: of its rank */
    /** decisions: the first; report, verdict: which decision; acknowledgement: all up to this one; card: 0 */
    uint64_t number;
    uint64_t count; /**< decisions: how many; report, verdict: failed blocks; card: fields; acknowledgement: 0 */
} fby_message_t;
/** What a message is, from length, checksum and header; its contents may still be refused. Set message->size first.
    FBY_E_FORMAT, FBY_E_CHECKSUM. */
int fby_message_parse(const void *bytes, size_t n, fby_message_t *message);

/* ---- Start-up: cards --------------------------------------------------------------------------------------------- */

#define FBY_CARD_FIELDS 256u      /**< most fields of a card */
#define FBY_CARD_NAME_BYTES 63u   /**< longest name of a field */
#define FBY_CARD_VALUE_BYTES 255u /**< longest value */
#define FBY_CARD_BYTES 98304u     /**< no card is longer */

/** What one rank is configured as: named fields with text values. */
typedef struct fby_card fby_card_t;

enum {
    /** This field may differ from rank to rank, or be missing. Fields are compared with those of rank 0, unless both
        cards, or the only one of them that has it, say this. */
    FBY_CARD_PER_RANK = 1
};

/** A card of rank `rank` of `ranks`. `incarnation`: a random number, drawn for this exchange, not 0.
    Errors: -EINVAL, -ENOMEM. */
int fby_card_create(uint32_t rank, uint32_t ranks, uint64_t incarnation, fby_card_t **out);
void fby_card_free(fby_card_t *card); /**< NULL is fine */
/** Sets a field, or sets it again. name: 1 to 63 of [A-Za-z0-9._-]; value: at most 255 bytes, no control characters.
    flags: FBY_CARD_PER_RANK, or 0. Errors: -EINVAL (which, and what is accepted), -ENOSPC (256 fields), -ENOMEM. */
int fby_card_set(fby_card_t *card, const char *name, const char *value, unsigned flags);
/** A number, in decimal. */
int fby_card_set_number(fby_card_t *card, const char *name, uint64_t value, unsigned flags);
/** 32 hex digits of XXH3-128 over any bytes: tokens, a layout, a file. Write numbers little-endian. */
int fby_card_set_digest(fby_card_t *card, const char *name, const void *bytes, size_t n, unsigned flags);
/** model.fingerprint, model.block_tokens, model.groups, model.group.N.name, .payload_bytes, .slot_bytes, .trailing. */
int fby_card_set_model(fby_card_t *card, const fby_model_t *model);
/** pool.bytes, pool.groups, pool.fingerprint, and pool.group.N.slot_bytes, .payload_bytes, .first, .slots, .offset. */
int fby_card_set_pool(fby_card_t *card, const fby_pool_t *pool);
/** Errors: -ENOSPC. */
int fby_card_encode(const fby_card_t *card, void *buffer, size_t capacity, size_t *needed);

/** Compares the cards of all n ranks, in any order; the answer and its text depend on the cards only, so all ranks that
    saw the same cards get the same. A card that did not come in time is NULL with length 0.
    Equal: *out (may be NULL; set out->size first) gets ranks and incarnation; its other fields stay.
    FBY_E_CONFIG: `text` says why, as does fby_last_error(), which may be cut. In this order: a rank number out of
    range, a rank with two cards, ranks without a card that can be read ("no readable card of rank 2: 1 missing"), then
    protocol, ranks, and the fields in the order of their names, up to the first that differs, with all ranks' values:
    "model.kv_dtype: rank 0 bf16, rank 1 f16", or "(not set)".
    text may be NULL when capacity is 0; what does not fit is cut, and it ends in NUL.
    Errors: -EINVAL, -ENOMEM, FBY_E_CONFIG. */
int fby_cards_compare(const void *const *cards, const size_t *lengths, uint32_t n, fby_ranks_t *out, char *text,
                      size_t capacity);

/* ---- Decisions --------------------------------------------------------------------------------------------------- */

/* X(name, number, text): what all ranks do. */
#define FBY_DECISION_MAP(X)                                                                                            \
    X(LOAD, 1, "load")       /* copy slots to device blocks, then report */                                            \
    X(SAVE, 2, "save")       /* copy device blocks to slots, then report */                                            \
    X(RELEASE, 3, "release") /* the object is given up: nothing of it is touched any more */                           \
    X(STOP, 4, "stop")       /* the request ends */                                                                    \
    X(RESET, 5, "reset")     /* every object from before is stale */                                                   \
    X(END, 6, "end")         /* the last decision of the log */
typedef enum fby_decision_kind {
#define FBY_X(name, number, text) FBY_DECISION_##name = (number),
    FBY_DECISION_MAP(FBY_X)
#undef FBY_X
} fby_decision_kind_t;
/** "load", ...; "unknown" outside the table. Never NULL; static storage. */
const char *fby_decision_name(uint32_t kind);

#define FBY_DECISION_RANGES 64u     /**< most ranges of a decision */
#define FBY_DECISION_BLOCKS 131072u /**< most blocks in all its ranges */
#define FBY_DECISION_EXTRA 1024u    /**< most bytes of the engine's own */

/** Blocks [first_block, first_block + blocks) of a sequence in one group: what a fby_copy_list_t is made of. */
typedef struct fby_block_range {
    uint32_t group; /**< below FBY_MAX_GROUPS */
    uint32_t reserved0;
    uint64_t first_block;
    uint64_t blocks;
    const uint64_t *place;        /**< per block, none FBY_NO_PLACE; NULL: none given, not for load and save */
    const uint64_t *device_block; /**< per block; NULL: likewise */
} fby_block_range_t;

typedef struct fby_decision {
    uint32_t size;
    uint32_t kind;   /**< fby_decision_kind_t */
    uint64_t number; /**< given by the leader: read by nobody on the way in */
    uint64_t tag;    /**< the engine's own: its request */
    uint64_t tokens; /**< the length that the leader judged, for all */
    uint64_t object; /**< handle of the hold or put; 0: none */
    uint32_t ranges;
    uint32_t extra_bytes;
    const fby_block_range_t *range; /**< NULL when ranges is 0 */
    const void *extra;              /**< any bytes of the engine's; NULL when extra_bytes is 0 */
} fby_decision_t;

/* ---- Leader ------------------------------------------------------------------------------------------------------ */

/** The log, as far as a rank may still ask for it. */
typedef struct fby_leader fby_leader_t;

/** Errors: -EINVAL, -ENOMEM. */
int fby_leader_create(const fby_ranks_t *ranks, fby_leader_t **out);
void fby_leader_free(fby_leader_t *leader); /**< NULL is fine */
/** Adds a decision and gives it the next number; *number may be NULL.
    Errors: -EINVAL (which field, what is accepted), -ENOMEM, FBY_E_BUDGET (the window is full: which rank lags, and how
    far), -ECONNRESET (a load or save after fby_leader_lost: which rank), FBY_E_STATE (after `end`). */
int fby_leader_decide(fby_leader_t *leader, const fby_decision_t *decision, uint64_t *number);
/** The message with the decisions from from_number on, as many whole ones as fit in capacity and FBY_MESSAGE_BYTES.
    Nothing new: 0 bytes. *next (may be NULL) is where the next message begins: fby_leader_next when all went in.
    -ENOSPC: not even one fits; *needed is then enough for all that one message may hold.
    Errors: -EINVAL (beyond the next number), FBY_E_STALE (forgotten: what the log begins with). */
int fby_leader_encode(const fby_leader_t *leader, uint64_t from_number, void *buffer, size_t capacity, size_t *needed,
                      uint64_t *next);
/** The number that the next decision gets. */
uint64_t fby_leader_next(const fby_leader_t *leader);
/** `rank` has all decisions up to `number`: what all ranks have is forgotten. Smaller numbers than before do
    nothing. -EINVAL (no such rank, or a number not given yet). */
int fby_leader_acknowledge(fby_leader_t *leader, uint32_t rank, uint64_t number);
/** The same from a rank's message. *rank and *number (may be NULL) say whose it was and what it has: when number + 1 is
    below fby_leader_next, encode from there for that rank again. */
int fby_leader_receive(fby_leader_t *leader, const void *bytes, size_t n, uint32_t *rank, uint64_t *number);
/** `rank` is dead: the log does not wait for it any more, and loads and saves are refused, since nobody could do its
    part. Release, stop, reset and end are still decided. Tell fby_verdict_lost for what is under way. -EINVAL. */
int fby_leader_lost(fby_leader_t *leader, uint32_t rank);

/* ---- Reports and verdicts ---------------------------------------------------------------------------------------- */

/** A block that must not be used. */
typedef struct fby_failed_block {
    uint32_t group;
    uint32_t reserved0;
    uint64_t block; /**< its position in the sequence, as in the decision's range */
} fby_failed_block_t;

/** How a load or save ended, on one rank (in) or for all (out). */
typedef struct fby_result {
    uint32_t size;
    int32_t code;    /**< 0, or how it failed: -1 to -4095 */
    uint64_t number; /**< of the decision */
    uint64_t tag;    /**< out of a follower: the decision's; else 0 and read by nobody */
    uint32_t kind;   /**< out of a follower: the decision's; else likewise */
    uint32_t rank;   /**< out: the lowest that failed, whose code it is; FBY_NO_RANK: none, or the leader's loss */
    /** With a code and 0 failed blocks no block of the decision may be used. Out: the union over all ranks, ascending;
        0 when one of the ranks that failed named none. In: any order, at most FBY_DECISION_BLOCKS. */
    uint64_t failed_count;
    const fby_failed_block_t *failed;
} fby_result_t;

/** The leader's count of the reports on one decision. */
typedef struct fby_verdict fby_verdict_t;

/** Errors: -EINVAL, -ENOMEM. */
int fby_verdict_create(const fby_ranks_t *ranks, uint64_t number, fby_verdict_t **out);
void fby_verdict_free(fby_verdict_t *verdict); /**< NULL is fine */
/** Takes the report of a rank on this decision (fby_message_parse tells whose and on which). A second one of the same
    rank is dropped.
    Errors: -EINVAL (on another decision), FBY_E_STALE (also: of a rank that was declared lost), -ENOMEM. */
int fby_verdict_receive(fby_verdict_t *verdict, const void *bytes, size_t n);
/** `rank` is dead: nobody waits for its report. If it had not come, the rank failed with -ECONNRESET, all
    blocks. -EINVAL. */
int fby_verdict_lost(fby_verdict_t *verdict, uint32_t rank);
/** 0 once every rank reported or is lost: then no rank touches slots or device blocks of the decision any more, a dead
    one as far as its process is gone. Set result->size first; result->failed lives until the verdict's next call.
    -EAGAIN: the detail names who is waited for. */
int fby_verdict_result(const fby_verdict_t *verdict, fby_result_t *result);
/** The message to all ranks. Errors: -EAGAIN (as above), -ENOSPC. */
int fby_verdict_encode(const fby_verdict_t *verdict, void *buffer, size_t capacity, size_t *needed);

/* ---- Follower ---------------------------------------------------------------------------------------------------- */

/** A rank's end of the log. A load or save that fby_follower_next gave is *open* until fby_follower_result gave
    its end. */
typedef struct fby_follower fby_follower_t;

/** Errors: -EINVAL, -ENOMEM. */
int fby_follower_create(const fby_ranks_t *ranks, fby_follower_t **out);
void fby_follower_free(fby_follower_t *follower); /**< NULL is fine */
/** Takes decisions and verdicts, in any order of arrival; what came before is dropped. Decisions beyond the window are
    not kept and stay missing: FBY_E_BUDGET names the first; all before it were taken.
    Errors: FBY_E_BUDGET, FBY_E_STATE (the verdict on a decision that this rank did not report: it was taken for lost),
    -EOWNERDEAD (after fby_follower_leader_lost), -ENOMEM (what was not taken stays missing). */
int fby_follower_receive(fby_follower_t *follower, const void *bytes, size_t n);
/** The next decision, in the order of numbers, each once. Set decision->size first. What its pointers point to lives
    until the next call of fby_follower_next or _free.
    Errors: -EAGAIN (none yet), -ENODATA (a gap: the detail names it; ask for it), -EBUSY (as many open ones as the
    window has), FBY_E_STATE (the log ended), -EOWNERDEAD, -ENOMEM. */
int fby_follower_next(fby_follower_t *follower, fby_decision_t *decision);
/** The first gap, [*from, *to): decisions that did not come while later ones did. None: *from == *to. */
int fby_follower_missing(const fby_follower_t *follower, uint64_t *from, uint64_t *to);
/** The message "this rank has all decisions up to ...": send it once in a while, at the latest each quarter of a
    window, and when something is missing. 0 bytes: nothing came since the last one that was encoded,
    and nothing is missing. */
int fby_follower_acknowledge(fby_follower_t *follower, void *buffer, size_t capacity, size_t *needed);
/** The message with this rank's report on an open decision, after its copy ended. result: code, number, failed.
    Encoding it again is fine and gives the same.
    Errors: -ENOSPC, -EINVAL, -ENOENT (not open), FBY_E_STATE (reported otherwise before), -ENOMEM. */
int fby_follower_report(fby_follower_t *follower, const fby_result_t *result, void *buffer, size_t capacity,
                        size_t *needed);
/** How an open decision ended for all ranks, each once, in the order of arrival. Set result->size first; result->failed
    lives until the next call of fby_follower_result or _free. -EAGAIN: none yet. */
int fby_follower_result(fby_follower_t *follower, fby_result_t *result);
/** The leader is dead: decisions that were not applied are dropped, and every open one ends with -EOWNERDEAD, all
    blocks (fby_follower_result). Slots may still be read and written by copies under way: end those first, then use
    nothing of them. All other calls answer -EOWNERDEAD. Idempotent. */
int fby_follower_leader_lost(fby_follower_t *follower);

#ifdef __cplusplus
}
#endif
#endif
