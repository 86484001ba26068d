/*
 * leader.c - the leader's end of the log.
 *
 * INVARIANTS
 *   NUMBERS  decisions [first, next) are kept, decision i in entry[i % window]; next - first <= window.
 *   KEPT     first is one more than the least that a rank which is not lost has acknowledged; all lost: next.
 *   BYTES    bytes is the sum over the kept entries, at most window_bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "rank/decision.h"

typedef struct log_entry {
    uint8_t *bytes;
    size_t length;
} log_entry_t;

typedef struct log_rank {
    uint64_t has; /* all decisions up to this one */
    bool lost;
} log_rank_t;

struct fby_leader {
    fby_ranks_t ranks;
    uint64_t first, next;
    uint64_t bytes;
    bool ended;
    log_entry_t *entry; /* [window] */
    log_rank_t *rank;   /* [ranks] */
};

static log_entry_t *entry_of(const fby_leader_t *leader, uint64_t number)
{
    return &leader->entry[number % leader->ranks.window];
}

int fby_leader_create(const fby_ranks_t *ranks, fby_leader_t **out)
{
    fby_ranks_t taken;
    int rc = fby_ranks_take(ranks, false, &taken);
    if (rc != 0) {
        return rc;
    }
    if (out == NULL) {
        return fby_group_refuse("out", 0, "a place for the leader");
    }
    fby_leader_t *leader = calloc(1, sizeof(*leader));
    log_entry_t *entry = calloc(taken.window, sizeof(*entry));
    log_rank_t *rank = calloc(taken.ranks, sizeof(*rank));
    if (leader == NULL || entry == NULL || rank == NULL) {
        free(rank);
        free(entry);
        free(leader);
        return fby_group_no_memory("leader", taken.window * sizeof(*entry) + taken.ranks * sizeof(*rank));
    }
    *leader = (fby_leader_t){.ranks = taken, .entry = entry, .rank = rank};
    leader->first = leader->next = taken.first_number;
    for (uint32_t i = 0; i < taken.ranks; i++) {
        rank[i].has = taken.first_number - 1;
    }
    *out = leader;
    return 0;
}

void fby_leader_free(fby_leader_t *leader)
{
    if (leader == NULL) {
        return;
    }
    for (uint32_t i = 0; i < leader->ranks.window; i++) {
        free(leader->entry[i].bytes);
    }
    free(leader->rank);
    free(leader->entry);
    free(leader);
}

static int leader_usable(const fby_leader_t *leader)
{
    return leader != NULL ? 0 : fby_group_refuse("leader", 0, "not NULL");
}

/* ---- Deciding ---------------------------------------------------------------------------------------------------- */

static uint32_t slowest_rank(const fby_leader_t *leader)
{
    uint32_t slowest = FBY_NONE;
    for (uint32_t i = 0; i < leader->ranks.ranks; i++) {
        if (!leader->rank[i].lost && (slowest == FBY_NONE || leader->rank[i].has < leader->rank[slowest].has)) {
            slowest = i;
        }
    }
    return slowest;
}

static int check_life(const fby_leader_t *leader, uint32_t kind)
{
    if (leader->ended) {
        fby_error_set("the log ended with decision %llu", (unsigned long long)leader->next - 1);
        return FBY_E_STATE;
    }
    for (uint32_t i = 0; fby_decision_is_copy(kind) && i < leader->ranks.ranks; i++) {
        if (leader->rank[i].lost) {
            fby_error_set("%s: rank %u is lost; exchange cards again", fby_decision_name(kind), i);
            return -ECONNRESET;
        }
    }
    return 0;
}

static int check_room(const fby_leader_t *leader, uint64_t length)
{
    if (length > leader->ranks.window_bytes) {
        return fby_group_refuse("bytes of the decision", length, "at most ranks.window_bytes");
    }
    if (leader->next - leader->first < leader->ranks.window && leader->bytes + length <= leader->ranks.window_bytes) {
        return 0;
    }
    const uint32_t slowest = slowest_rank(leader); /* somebody is not lost, or nothing would be kept */
    fby_error_set("the log holds %llu decisions (at most %u) of %llu bytes (at most %llu): rank %u acknowledged up to "
                  "%llu of %llu",
                  (unsigned long long)(leader->next - leader->first), leader->ranks.window,
                  (unsigned long long)leader->bytes, (unsigned long long)leader->ranks.window_bytes, slowest,
                  (unsigned long long)leader->rank[slowest].has, (unsigned long long)leader->next - 1);
    return FBY_E_BUDGET;
}

/* Forgets what every rank has. */
static void forget(fby_leader_t *leader)
{
    const uint32_t slowest = slowest_rank(leader);
    const uint64_t first = slowest != FBY_NONE ? leader->rank[slowest].has + 1 : leader->next;
    for (; leader->first < first; leader->first++) {
        log_entry_t *entry = entry_of(leader, leader->first);
        leader->bytes -= entry->length;
        free(entry->bytes);
        *entry = (log_entry_t){0};
    }
}

static int append(fby_leader_t *leader, const fby_decision_t *decision, size_t length)
{
    fby_writer_t writer = {.bytes = malloc(length), .capacity = length};
    if (writer.bytes == NULL) {
        return fby_group_no_memory("decision", length);
    }
    fby_decision_write(&writer, decision);
    *entry_of(leader, leader->next) = (log_entry_t){.bytes = writer.bytes, .length = length};
    leader->bytes += length;
    leader->next++;
    leader->ended = decision->kind == FBY_DECISION_END;
    forget(leader); /* with all ranks lost nobody will ask for it */
    return 0;
}

int fby_leader_decide(fby_leader_t *leader, const fby_decision_t *decision, uint64_t *number)
{
    fby_writer_t measure = {0};
    int rc = leader_usable(leader);
    rc = rc != 0 ? rc : fby_decision_check(decision);
    rc = rc != 0 ? rc : check_life(leader, decision->kind);
    if (rc != 0) {
        return rc;
    }
    fby_decision_write(&measure, decision);
    rc = check_room(leader, measure.used);
    rc = rc != 0 ? rc : append(leader, decision, measure.used);
    if (rc == 0 && number != NULL) {
        *number = leader->next - 1;
    }
    return rc;
}

uint64_t fby_leader_next(const fby_leader_t *leader)
{
    return leader != NULL ? leader->next : 0;
}

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

/* Decisions [from, end) that fit in capacity, and the bytes of their message. */
static uint64_t fitting(const fby_leader_t *leader, uint64_t from, size_t capacity, size_t *bytes)
{
    uint64_t end = from;
    *bytes = FBY_MESSAGE_FRAME;
    while (end < leader->next && *bytes + entry_of(leader, end)->length <= capacity) {
        *bytes += entry_of(leader, end)->length;
        end++;
    }
    return end;
}

static int encode_range(const fby_leader_t *leader, uint64_t from, uint64_t end, void *buffer, size_t capacity,
                        size_t *needed)
{
    fby_writer_t writer = {.bytes = buffer, .capacity = capacity};
    const fby_message_t head = {
        .type = FBY_MESSAGE_DECISIONS,
        .rank = FBY_NO_RANK,
        .ranks = leader->ranks.ranks,
        .incarnation = leader->ranks.incarnation,
        .number = from,
        .count = end - from,
    };
    fby_message_begin(&writer, &head);
    for (uint64_t i = from; i < end; i++) {
        fby_write(&writer, entry_of(leader, i)->bytes, entry_of(leader, i)->length);
    }
    return fby_message_end(&writer, needed);
}

/* NULL, or why nothing can be encoded from there. */
static int check_from(const fby_leader_t *leader, uint64_t from)
{
    if (from > leader->next) {
        return fby_group_refuse("from_number", from, "at most what fby_leader_next gives");
    }
    if (from < leader->first) {
        fby_error_set("decision %llu is forgotten; the log begins with %llu", (unsigned long long)from,
                      (unsigned long long)leader->first);
        return FBY_E_STALE;
    }
    return 0;
}

int fby_leader_encode(const fby_leader_t *leader, uint64_t from_number, void *buffer, size_t capacity, size_t *needed,
                      uint64_t *next)
{
    size_t bytes = 0;
    int rc = leader_usable(leader);
    rc = rc != 0 ? rc : check_from(leader, from_number);
    if (rc != 0) {
        return rc;
    }
    if (buffer == NULL && capacity > 0) {
        return fby_group_refuse("buffer", 0, "not NULL");
    }
    uint64_t end = fitting(leader, from_number, FBY_MIN(capacity, (size_t)FBY_MESSAGE_BYTES), &bytes);
    if (from_number == leader->next) {
        bytes = 0;
    } else if (end == from_number) {
        end = fitting(leader, from_number, FBY_MESSAGE_BYTES, &bytes);
        rc = -ENOSPC;
        fby_error_set("capacity is %zu; the message takes up to %zu bytes", capacity, bytes);
    } else {
        rc = encode_range(leader, from_number, end, buffer, capacity, &bytes);
    }
    if (needed != NULL) {
        *needed = bytes;
    }
    if (rc == 0 && next != NULL) {
        *next = end;
    }
    return rc;
}

/* ---- What ranks have --------------------------------------------------------------------------------------------- */

static int check_rank(const fby_leader_t *leader, uint32_t rank)
{
    int rc = leader_usable(leader);
    return rc != 0 ? rc : rank < leader->ranks.ranks ? 0 : fby_group_refuse("rank", rank, "below ranks.ranks");
}

int fby_leader_acknowledge(fby_leader_t *leader, uint32_t rank, uint64_t number)
{
    int rc = check_rank(leader, rank);
    if (rc != 0) {
        return rc;
    }
    if (number >= leader->next) {
        return fby_group_refuse("number", number, "below what fby_leader_next gives");
    }
    const bool may_forget = leader->rank[rank].has + 1 == leader->first;
    leader->rank[rank].has = FBY_MAX(leader->rank[rank].has, number);
    if (may_forget) { /* else somebody slower holds all of it */
        forget(leader);
    }
    return 0;
}

int fby_leader_receive(fby_leader_t *leader, const void *bytes, size_t n, uint32_t *rank, uint64_t *number)
{
    fby_message_t head;
    fby_reader_t body;
    int rc = leader_usable(leader);
    rc = rc != 0 ? rc : fby_message_accept(&leader->ranks, bytes, n, FBY_MESSAGE_ACKNOWLEDGEMENT, &head, &body);
    rc = rc != 0 ? rc : fby_message_closed(&body, "acknowledgement");
    if (rc == 0 && (head.count != 0 || head.number >= leader->next)) {
        fby_error_set("acknowledgement of rank %u up to decision %llu; the last one is %llu", head.rank,
                      (unsigned long long)head.number, (unsigned long long)leader->next - 1);
        rc = FBY_E_FORMAT;
    }
    rc = rc != 0 ? rc : fby_leader_acknowledge(leader, head.rank, head.number);
    if (rc == 0 && rank != NULL) {
        *rank = head.rank;
    }
    if (rc == 0 && number != NULL) {
        *number = head.number;
    }
    return rc;
}

int fby_leader_lost(fby_leader_t *leader, uint32_t rank)
{
    int rc = check_rank(leader, rank);
    if (rc == 0) {
        leader->rank[rank].lost = true;
        forget(leader);
    }
    return rc;
}
