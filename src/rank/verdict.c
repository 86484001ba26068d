/*
 * verdict.c - one decision's reports, folded.
 *
 * INVARIANTS
 *   waiting is the number of ranks that neither reported nor are lost; the verdict stands when it is 0 and does not
 *   change any more then. It depends on what each rank reported, not on the order.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "rank/result.h"

typedef enum verdict_seat { SEAT_WAITING, SEAT_REPORTED, SEAT_LOST } verdict_seat_t;

struct fby_verdict {
    fby_ranks_t ranks;
    uint64_t number;
    uint32_t waiting;
    fby_ending_t ending;
    uint8_t *seat; /* [ranks], verdict_seat_t */
};

int fby_verdict_create(const fby_ranks_t *ranks, uint64_t number, fby_verdict_t **out)
{
    fby_ranks_t taken;
    int rc = fby_ranks_take(ranks, false, &taken);
    if (rc != 0) {
        return rc;
    }
    if (number < taken.first_number || number > FBY_LAST_NUMBER || out == NULL) {
        return out == NULL ? fby_group_refuse("out", 0, "a place for the verdict")
                           : fby_group_refuse("number", number, "what fby_leader_decide gave");
    }
    fby_verdict_t *verdict = calloc(1, sizeof(*verdict));
    uint8_t *seat = calloc(taken.ranks, 1);
    if (verdict == NULL || seat == NULL) {
        free(seat);
        free(verdict);
        return fby_group_no_memory("verdict", sizeof(*verdict) + taken.ranks);
    }
    *verdict = (fby_verdict_t){
        .ranks = taken, .number = number, .waiting = taken.ranks, .ending = {.rank = FBY_NO_RANK}, .seat = seat};
    *out = verdict;
    return 0;
}

void fby_verdict_free(fby_verdict_t *verdict)
{
    if (verdict != NULL) {
        fby_ending_free(&verdict->ending);
        free(verdict->seat);
        free(verdict);
    }
}

static int verdict_usable(const fby_verdict_t *verdict)
{
    return verdict != NULL ? 0 : fby_group_refuse("verdict", 0, "not NULL");
}

static int take_seat(fby_verdict_t *verdict, uint32_t rank, verdict_seat_t seat, const fby_ending_t *ending)
{
    int rc = fby_ending_merge(&verdict->ending, ending);
    if (rc == 0) {
        verdict->seat[rank] = (uint8_t)seat;
        verdict->waiting--;
    }
    return rc;
}

int fby_verdict_receive(fby_verdict_t *verdict, const void *bytes, size_t n)
{
    fby_message_t head;
    fby_reader_t body;
    fby_ending_t ending;
    int rc = verdict_usable(verdict);
    rc = rc != 0 ? rc : fby_message_accept(&verdict->ranks, bytes, n, FBY_MESSAGE_REPORT, &head, &body);
    rc = rc != 0 ? rc : fby_ending_decode(&verdict->ranks, &head, &body, &ending);
    if (rc != 0) {
        return rc;
    }
    if (head.number != verdict->number) {
        rc = fby_group_refuse("decision of the report", head.number, "that of the verdict");
    } else if (verdict->seat[head.rank] == SEAT_LOST) {
        fby_error_set("report of rank %u on decision %llu: that rank was declared lost", head.rank,
                      (unsigned long long)head.number);
        rc = FBY_E_STALE;
    } else if (verdict->seat[head.rank] == SEAT_WAITING) {
        rc = take_seat(verdict, head.rank, SEAT_REPORTED, &ending);
    }
    fby_ending_free(&ending);
    return rc;
}

int fby_verdict_lost(fby_verdict_t *verdict, uint32_t rank)
{
    int rc = verdict_usable(verdict);
    if (rc != 0) {
        return rc;
    }
    if (rank >= verdict->ranks.ranks) {
        return fby_group_refuse("rank", rank, "below ranks.ranks");
    }
    if (verdict->seat[rank] != SEAT_WAITING) {
        return 0;
    }
    const fby_ending_t ending = {.code = -ECONNRESET, .rank = rank};
    return take_seat(verdict, rank, SEAT_LOST, &ending);
}

/* -EAGAIN, and who is waited for. */
static int standing(const fby_verdict_t *verdict)
{
    enum { NAMED = 8 };
    char text[NAMED * 16] = "";
    size_t used = 0;
    uint32_t named = 0;
    int rc = verdict_usable(verdict);
    if (rc != 0 || verdict->waiting == 0) {
        return rc;
    }
    for (uint32_t rank = 0; rank < verdict->ranks.ranks && named < NAMED; rank++) {
        if (verdict->seat[rank] == SEAT_WAITING) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%u", named > 0 ? ", " : "", rank);
            named++;
        }
    }
    fby_error_set("decision %llu waits for %u of %u ranks: %s%s", (unsigned long long)verdict->number, verdict->waiting,
                  verdict->ranks.ranks, text, named < verdict->waiting ? ", ..." : "");
    return -EAGAIN;
}

int fby_verdict_result(const fby_verdict_t *verdict, fby_result_t *result)
{
    int rc = standing(verdict);
    if (rc != 0) {
        return rc;
    }
    if (result == NULL || result->size < sizeof(result->size)) {
        return fby_group_refuse("result.size", 0, "the size of fby_result_t");
    }
    const fby_result_t full = {
        .size = sizeof(full),
        .code = verdict->ending.code,
        .number = verdict->number,
        .rank = verdict->ending.rank,
        .failed_count = verdict->ending.failed.count,
        .failed = verdict->ending.failed.block,
    };
    fby_group_output(result, &full, sizeof(full));
    return 0;
}

int fby_verdict_encode(const fby_verdict_t *verdict, void *buffer, size_t capacity, size_t *needed)
{
    int rc = standing(verdict);
    return rc != 0 ? rc
                   : fby_ending_encode(&verdict->ranks, FBY_MESSAGE_VERDICT, FBY_NO_RANK, verdict->number,
                                       &verdict->ending, buffer, capacity, needed);
}
