/*
 * follower.c - a rank's end of the log.
 *
 * INVARIANTS
 *   NUMBERS  next is the next one to give out; [next, arrived) are all there; seen is one more than the greatest that
 *            was heard of, kept or not; next <= arrived <= seen.
 *   KEPT     decision i in [next, next + window) is in entry[i % window], encoded, or that is empty. bytes is their sum:
 *            at most window_bytes, but that the decision `next` is always taken, so that the log goes on.
 *   ONCE     what is below next, or kept, is dropped when it comes again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "rank/decision.h"
#include "rank/open.h"
#include "stores/object.h"

typedef struct kept {
    uint8_t *bytes;
    size_t length;
} kept_t;

struct fby_follower {
    fby_ranks_t ranks;
    uint64_t next, arrived, seen;
    uint64_t bytes;
    uint64_t acknowledged;
    bool ended, leader_lost;
    kept_t *entry; /* [window] */
    kept_t given;  /* what the decision that was given out last points to, */
    fby_decision_room_t given_room;
    fby_decision_room_t check_room; /* and what messages are read into before they are believed */
    fby_open_table_t open;
    fby_open_t *told; /* whose result the engine looks at */
};

static kept_t *entry_of(const fby_follower_t *follower, uint64_t number)
{
    return &follower->entry[number % follower->ranks.window];
}

static void kept_drop(kept_t *kept)
{
    free(kept->bytes);
    *kept = (kept_t){0};
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

int fby_follower_create(const fby_ranks_t *ranks, fby_follower_t **out)
{
    fby_ranks_t taken;
    int rc = fby_ranks_take(ranks, true, &taken);
    if (rc != 0) {
        return rc;
    }
    if (out == NULL) {
        return fby_group_refuse("out", 0, "a place for the follower");
    }
    fby_follower_t *follower = calloc(1, sizeof(*follower));
    kept_t *entry = calloc(taken.window, sizeof(*entry));
    if (follower == NULL || entry == NULL) {
        free(entry);
        free(follower);
        return fby_group_no_memory("follower", sizeof(*follower) + taken.window * sizeof(*entry));
    }
    follower->ranks = taken;
    follower->entry = entry;
    follower->next = follower->arrived = follower->seen = taken.first_number;
    follower->acknowledged = taken.first_number - 1;
    follower->open.most = taken.window;
    *out = follower;
    return 0;
}

static void drop_all_kept(fby_follower_t *follower)
{
    for (uint32_t i = 0; i < follower->ranks.window; i++) {
        kept_drop(&follower->entry[i]);
    }
    follower->bytes = 0;
}

void fby_follower_free(fby_follower_t *follower)
{
    if (follower == NULL) {
        return;
    }
    drop_all_kept(follower);
    kept_drop(&follower->given);
    fby_decision_room_free(&follower->given_room);
    fby_decision_room_free(&follower->check_room);
    fby_open_free(&follower->open);
    fby_open_drop(follower->told);
    free(follower->entry);
    free(follower);
}

static int follower_usable(const fby_follower_t *follower)
{
    if (follower == NULL) {
        return fby_group_refuse("follower", 0, "not NULL");
    }
    if (follower->leader_lost) {
        fby_error_set("the leader of incarnation %016llx is lost", (unsigned long long)follower->ranks.incarnation);
        return -EOWNERDEAD;
    }
    return 0;
}

int fby_follower_leader_lost(fby_follower_t *follower)
{
    int rc = follower_usable(follower);
    if (rc != 0) {
        return rc == -EOWNERDEAD ? 0 : rc;
    }
    follower->leader_lost = true;
    drop_all_kept(follower);
    fby_open_end_all(&follower->open, -EOWNERDEAD);
    return 0;
}

/* ---- Decisions come ---------------------------------------------------------------------------------------------- */

/* Reads one decision without keeping it, and where its bytes lie. */
static int look_at(fby_follower_t *follower, fby_reader_t *body, uint64_t number, kept_t *out)
{
    fby_decision_t decision;
    out->bytes = (uint8_t *)(uintptr_t)body->at; /* the message's: only read */
    int rc = fby_decision_read(body, &follower->check_room, &decision);
    if (rc != 0) {
        return rc;
    }
    out->length = (size_t)(body->at - out->bytes);
    const kept_t *kept = entry_of(follower, number);
    if (number >= follower->next && number - follower->next < follower->ranks.window && kept->bytes != NULL &&
        (kept->length != out->length || memcmp(kept->bytes, out->bytes, out->length) != 0)) {
        fby_error_set("decision %llu came twice, with different contents", (unsigned long long)number);
        return FBY_E_FORMAT;
    }
    return 0;
}

/* The whole message, before anything of it counts. */
static int check_decisions(fby_follower_t *follower, const fby_message_t *head, fby_reader_t body)
{
    kept_t ignored;
    int rc = 0;
    if (head->number == 0 || head->number > FBY_LAST_NUMBER || head->count == 0) {
        fby_error_set("decisions from %llu on, %llu of them; accepted: 1 or more, from 1 to 2^62",
                      (unsigned long long)head->number, (unsigned long long)head->count);
        return FBY_E_FORMAT;
    }
    for (uint64_t i = 0; rc == 0 && i < head->count; i++) {
        rc = look_at(follower, &body, head->number + i, &ignored);
    }
    return rc != 0 ? rc : fby_message_closed(&body, "decisions");
}

static int keep(fby_follower_t *follower, uint64_t number, const kept_t *from)
{
    if (number < follower->next) {
        return 0;
    }
    const bool in_window = number - follower->next < follower->ranks.window;
    kept_t *kept = entry_of(follower, number);
    if (in_window && kept->bytes != NULL) {
        return 0;
    }
    if (!in_window || (number != follower->next && follower->bytes + from->length > follower->ranks.window_bytes)) {
        fby_error_set(
            "decision %llu is beyond the window: %llu is the next to apply, %u decisions or %llu bytes are kept",
            (unsigned long long)number, (unsigned long long)follower->next, follower->ranks.window,
            (unsigned long long)follower->ranks.window_bytes);
        return FBY_E_BUDGET;
    }
    kept->bytes = malloc(from->length);
    if (kept->bytes == NULL) {
        return fby_group_no_memory("decision", from->length);
    }
    memcpy(kept->bytes, from->bytes, from->length);
    kept->length = from->length;
    follower->bytes += from->length;
    return 0;
}

static void advance_arrived(fby_follower_t *follower)
{
    while (follower->arrived - follower->next < follower->ranks.window &&
           entry_of(follower, follower->arrived)->bytes != NULL) {
        follower->arrived++;
    }
}

static int receive_decisions(fby_follower_t *follower, const fby_message_t *head, fby_reader_t *body)
{
    int rc = check_decisions(follower, head, *body);
    if (rc != 0) {
        return rc;
    }
    for (uint64_t i = 0; rc == 0 && i < head->count; i++) {
        kept_t at;
        rc = look_at(follower, body, head->number + i, &at);
        rc = rc != 0 ? rc : keep(follower, head->number + i, &at);
    }
    follower->seen = FBY_MAX(follower->seen, head->number + head->count);
    advance_arrived(follower);
    return rc;
}

static int receive_verdict(fby_follower_t *follower, const fby_message_t *head, fby_reader_t *body)
{
    fby_ending_t ending;
    int rc = fby_ending_decode(&follower->ranks, head, body, &ending);
    if (rc != 0) {
        return rc;
    }
    fby_open_t *open = fby_open_find(&follower->open, head->number);
    if ((open != NULL && open->state == FBY_OPEN_BEGUN) || head->number >= follower->next) {
        fby_error_set("the verdict on decision %llu came before this rank's report: rank %u was taken for lost",
                      (unsigned long long)head->number, follower->ranks.rank);
        rc = FBY_E_STATE;
    } else if (open != NULL && open->state == FBY_OPEN_REPORTED) {
        fby_open_end(&follower->open, open, &ending);
    }
    fby_ending_free(&ending);
    return rc;
}

int fby_follower_receive(fby_follower_t *follower, const void *bytes, size_t n)
{
    fby_message_t head;
    fby_reader_t body;
    int rc = follower_usable(follower);
    rc = rc != 0 ? rc : fby_message_open(bytes, n, &head, NULL, &body);
    if (rc != 0) {
        return rc;
    }
    const bool verdict = head.type == FBY_MESSAGE_VERDICT;
    rc = fby_message_accept(&follower->ranks, bytes, n, verdict ? FBY_MESSAGE_VERDICT : FBY_MESSAGE_DECISIONS, &head,
                            &body);
    if (rc != 0) {
        return rc;
    }
    return verdict ? receive_verdict(follower, &head, &body) : receive_decisions(follower, &head, &body);
}

/* ---- Decisions go ------------------------------------------------------------------------------------------------ */

int fby_follower_missing(const fby_follower_t *follower, uint64_t *from, uint64_t *to)
{
    int rc = follower_usable(follower);
    if (rc != 0) {
        return rc;
    }
    if (from == NULL || to == NULL) {
        return fby_group_refuse(from == NULL ? "from" : "to", 0, "a place for a number");
    }
    const uint64_t window_end = follower->next + follower->ranks.window, end = FBY_MIN(follower->seen, window_end);
    uint64_t gap_end = follower->arrived;
    while (gap_end < end && entry_of(follower, gap_end)->bytes == NULL) {
        gap_end++;
    }
    *from = follower->arrived;
    *to = gap_end < window_end ? gap_end : follower->seen; /* nothing is kept beyond the window */
    return 0;
}

/* Why there is no next decision. */
static int nothing_next(const fby_follower_t *follower)
{
    uint64_t from, to;
    (void)fby_follower_missing(follower, &from, &to);
    if (from == to) {
        fby_error_set("decision %llu did not come yet", (unsigned long long)follower->next);
        return -EAGAIN;
    }
    fby_error_set("decisions %llu to %llu are missing, and %llu is known of", (unsigned long long)from,
                  (unsigned long long)to - 1, (unsigned long long)follower->seen - 1);
    return -ENODATA;
}

static int give_out(fby_follower_t *follower, fby_decision_t *out)
{
    kept_t *kept = entry_of(follower, follower->next);
    fby_reader_t reader = {.at = kept->bytes, .end = kept->bytes + kept->length};
    int rc = fby_decision_read(&reader, &follower->given_room, out);
    if (rc == 0 && fby_decision_is_copy(out->kind)) {
        rc = fby_open_add(&follower->open, follower->next, out->kind, out->tag);
    }
    if (rc != 0) {
        return rc;
    }
    out->number = follower->next;
    kept_drop(&follower->given);
    follower->given = *kept;
    *kept = (kept_t){0};
    follower->bytes -= follower->given.length;
    follower->next++;
    follower->ended = out->kind == FBY_DECISION_END;
    advance_arrived(follower);
    return 0;
}

int fby_follower_next(fby_follower_t *follower, fby_decision_t *decision)
{
    fby_decision_t full;
    int rc = follower_usable(follower);
    if (rc != 0) {
        return rc;
    }
    if (decision == NULL || decision->size < sizeof(decision->size)) {
        return fby_group_refuse("decision.size", 0, "the size of fby_decision_t");
    }
    if (follower->ended) {
        fby_error_set("the log ended with decision %llu", (unsigned long long)follower->next - 1);
        return FBY_E_STATE;
    }
    if (follower->next == follower->arrived) {
        return nothing_next(follower);
    }
    rc = give_out(follower, &full);
    if (rc == 0) {
        fby_group_output(decision, &full, sizeof(full));
    }
    return rc;
}

int fby_follower_acknowledge(fby_follower_t *follower, void *buffer, size_t capacity, size_t *needed)
{
    fby_writer_t writer = {.bytes = buffer, .capacity = capacity};
    int rc = follower_usable(follower);
    if (rc != 0) {
        return rc;
    }
    if (buffer == NULL && capacity > 0) {
        return fby_group_refuse("buffer", 0, "not NULL");
    }
    const uint64_t number = follower->arrived - 1;
    if (number == follower->acknowledged && follower->arrived == follower->seen) {
        if (needed != NULL) {
            *needed = 0;
        }
        return 0;
    }
    const fby_message_t head = {
        .type = FBY_MESSAGE_ACKNOWLEDGEMENT,
        .rank = follower->ranks.rank,
        .ranks = follower->ranks.ranks,
        .incarnation = follower->ranks.incarnation,
        .number = number,
    };
    fby_message_begin(&writer, &head);
    rc = fby_message_end(&writer, needed);
    if (rc == 0) {
        follower->acknowledged = number;
    }
    return rc;
}

/* ---- Reports and results ----------------------------------------------------------------------------------------- */

/* An open decision that may still get this report. */
static int report_allowed(const fby_open_t *open, uint64_t number, uint64_t report)
{
    if (open == NULL) {
        fby_error_set("decision %llu is not an open load or save", (unsigned long long)number);
        return -ENOENT;
    }
    if (open->state != FBY_OPEN_BEGUN && open->report != report) {
        fby_error_set("decision %llu was reported otherwise before", (unsigned long long)number);
        return FBY_E_STATE;
    }
    return 0;
}

/* What tells one report from another. */
static uint64_t report_sum(const fby_ending_t *ending)
{
    const uint64_t parts[2] = {
        (uint64_t)(-ending->code),
        fby_checksum_segment(ending->failed.count > 0 ? (const void *)ending->failed.block : "",
                             ending->failed.count * sizeof(*ending->failed.block)),
    };
    return fby_checksum_fold(parts, FBY_ARRAY_LEN(parts));
}

int fby_follower_report(fby_follower_t *follower, const fby_result_t *result, void *buffer, size_t capacity,
                        size_t *needed)
{
    fby_ending_t ending;
    int rc = follower_usable(follower);
    rc = rc != 0 ? rc : fby_ending_take(result, follower->ranks.rank, &ending);
    if (rc != 0) {
        return rc;
    }
    fby_open_t *open = fby_open_find(&follower->open, result->number);
    const uint64_t report = report_sum(&ending);
    rc = report_allowed(open, result->number, report);
    rc = rc != 0 ? rc
                 : fby_ending_encode(&follower->ranks, FBY_MESSAGE_REPORT, follower->ranks.rank, result->number,
                                     &ending, buffer, capacity, needed);
    if (rc == 0 && open->state == FBY_OPEN_BEGUN) {
        open->state = FBY_OPEN_REPORTED;
        open->report = report;
    }
    fby_ending_free(&ending);
    return rc;
}

int fby_follower_result(fby_follower_t *follower, fby_result_t *result)
{
    if (follower == NULL || result == NULL || result->size < sizeof(result->size)) {
        return fby_group_refuse(follower == NULL ? "follower" : "result.size", 0, "the size of fby_result_t");
    }
    fby_open_t *open = fby_open_take(&follower->open);
    if (open == NULL) {
        fby_error_set("no verdict came");
        return -EAGAIN;
    }
    fby_open_drop(follower->told);
    follower->told = open;
    const fby_result_t full = {
        .size = sizeof(full),
        .code = open->ending.code,
        .number = open->number,
        .tag = open->tag,
        .kind = open->kind,
        .rank = open->ending.rank,
        .failed_count = open->ending.failed.count,
        .failed = open->ending.failed.block,
    };
    fby_group_output(result, &full, sizeof(full));
    return 0;
}
