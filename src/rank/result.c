/* result.c - ends of decisions: taken from a caller, merged over ranks, written and read. */
#include "rank/result.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { MOST_CODE = 4095 };

void fby_ending_free(fby_ending_t *ending)
{
    free(ending->failed.block);
    *ending = (fby_ending_t){.rank = FBY_NO_RANK};
}

static int compare(const fby_failed_block_t *a, const fby_failed_block_t *b)
{
    if (a->group != b->group) {
        return a->group < b->group ? -1 : 1;
    }
    return a->block < b->block ? -1 : a->block > b->block;
}

static int compare_any(const void *a, const void *b)
{
    return compare(a, b);
}

/* ---- From a caller ----------------------------------------------------------------------------------------------- */

static int check_result(const fby_result_t *result)
{
    if (result == NULL || result->size != sizeof(*result)) {
        return fby_group_refuse("result.size", result != NULL ? result->size : 0, "the size of fby_result_t");
    }
    if (result->code > 0 || result->code < -MOST_CODE) {
        fby_error_set("result.code is %d; accepted: 0, or -1 to -4095", result->code);
        return -EINVAL;
    }
    if (result->failed_count > FBY_DECISION_BLOCKS || (result->failed_count > 0 && result->code == 0)) {
        return fby_group_refuse("result.failed_count", result->failed_count, "at most 131072, and 0 with code 0");
    }
    if (result->failed_count > 0 && result->failed == NULL) {
        return fby_group_refuse("result.failed", 0, "failed_count blocks");
    }
    for (uint64_t i = 0; i < result->failed_count; i++) {
        if (result->failed[i].group >= FBY_MAX_GROUPS) {
            return fby_group_refuse("result.failed.group", result->failed[i].group, "0 to 7");
        }
    }
    return 0;
}

static int list_take(const fby_failed_block_t *failed, uint64_t n, fby_failed_list_t *out)
{
    *out = (fby_failed_list_t){0};
    if (n == 0) {
        return 0;
    }
    out->block = malloc(n * sizeof(*out->block));
    if (out->block == NULL) {
        return fby_group_no_memory("failed blocks", n * sizeof(*out->block));
    }
    memcpy(out->block, failed, n * sizeof(*out->block));
    qsort(out->block, n, sizeof(*out->block), compare_any);
    for (uint64_t i = 0; i < n; i++) {
        out->block[i].reserved0 = 0;
        if (out->count == 0 || compare(&out->block[out->count - 1], &out->block[i]) != 0) {
            out->block[out->count++] = out->block[i];
        }
    }
    return 0;
}

int fby_ending_take(const fby_result_t *result, uint32_t rank, fby_ending_t *out)
{
    fby_failed_list_t failed;
    int rc = check_result(result);
    rc = rc != 0 ? rc : list_take(result->failed, result->failed_count, &failed);
    if (rc == 0) {
        *out = (fby_ending_t){.code = result->code, .rank = result->code != 0 ? rank : FBY_NO_RANK, .failed = failed};
    }
    return rc;
}

/* ---- Over ranks -------------------------------------------------------------------------------------------------- */

static uint64_t list_union(const fby_failed_list_t *a, const fby_failed_list_t *b, fby_failed_block_t *out)
{
    uint64_t i = 0, j = 0, n = 0;
    while (i < a->count || j < b->count) {
        int order = i == a->count ? 1 : j == b->count ? -1 : compare(&a->block[i], &b->block[j]);
        out[n++] = order <= 0 ? a->block[i] : b->block[j];
        i += order <= 0;
        j += order >= 0;
    }
    return n;
}

int fby_ending_merge(fby_ending_t *into, const fby_ending_t *from)
{
    if (from->code == 0) {
        return 0;
    }
    fby_failed_list_t merged = {0};
    /* A failure that names no block takes all of them along. */
    const bool named = from->failed.count > 0 && (into->code == 0 || into->failed.count > 0);
    if (named) {
        const uint64_t most = into->failed.count + from->failed.count;
        merged.block = malloc(most * sizeof(*merged.block));
        if (merged.block == NULL) {
            return fby_group_no_memory("failed blocks", most * sizeof(*merged.block));
        }
        merged.count = list_union(&into->failed, &from->failed, merged.block);
    }
    if (merged.count > FBY_DECISION_BLOCKS) { /* more than a decision has: some rank named others; believe none */
        free(merged.block);
        merged = (fby_failed_list_t){0};
    }
    free(into->failed.block);
    into->failed = merged;
    if (into->code == 0 || from->rank < into->rank) {
        into->code = from->code;
        into->rank = from->rank;
    }
    return 0;
}

/* ---- Bytes ------------------------------------------------------------------------------------------------------- */

int fby_ending_encode(const fby_ranks_t *ranks, uint32_t type, uint32_t sender, uint64_t number,
                      const fby_ending_t *ending, void *buffer, size_t capacity, size_t *needed)
{
    fby_writer_t writer = {.bytes = buffer, .capacity = capacity};
    uint64_t before = 0;
    const fby_message_t head = {
        .type = type,
        .rank = sender,
        .ranks = ranks->ranks,
        .incarnation = ranks->incarnation,
        .number = number,
        .count = ending->failed.count,
    };
    if (buffer == NULL && capacity > 0) {
        return fby_group_refuse("buffer", 0, "not NULL");
    }
    fby_message_begin(&writer, &head);
    fby_write_varint(&writer, (uint64_t)(-ending->code));
    if (type == FBY_MESSAGE_VERDICT) {
        fby_write_varint(&writer, ending->rank);
    }
    for (uint64_t i = 0; i < ending->failed.count; i++) {
        fby_write_u8(&writer, (uint8_t)ending->failed.block[i].group);
        fby_write_delta(&writer, &before, ending->failed.block[i].block);
    }
    return fby_message_end(&writer, needed);
}

static bool read_failed(fby_reader_t *body, fby_failed_list_t *list)
{
    uint64_t before = 0;
    for (uint64_t i = 0; i < list->count; i++) {
        fby_failed_block_t *block = &list->block[i];
        *block = (fby_failed_block_t){.group = fby_read_u8(body)};
        block->block = fby_read_delta(body, &before);
        if (body->bad || block->group >= FBY_MAX_GROUPS || (i > 0 && compare(block - 1, block) >= 0)) {
            return false;
        }
    }
    return true;
}

/* Code, rank and count that fit each other. */
static bool head_is_fine(const fby_ranks_t *ranks, const fby_message_t *head, const fby_reader_t *body, uint64_t code,
                         uint64_t rank)
{
    return !body->bad && code <= MOST_CODE && head->number <= FBY_LAST_NUMBER &&
           (code != 0 ? rank < ranks->ranks : rank == FBY_NO_RANK && head->count == 0) &&
           head->count <= FBY_DECISION_BLOCKS && 2 * head->count <= fby_read_left(body);
}

int fby_ending_decode(const fby_ranks_t *ranks, const fby_message_t *head, fby_reader_t *body, fby_ending_t *out)
{
    const char *what = fby_message_name(head->type);
    fby_failed_list_t failed = {.count = head->count};
    const uint64_t code = fby_read_varint(body);
    const uint64_t rank = head->type == FBY_MESSAGE_VERDICT ? fby_read_varint(body)
                          : code != 0                       ? head->rank
                                                            : FBY_NO_RANK;
    if (!head_is_fine(ranks, head, body, code, rank)) {
        fby_error_set("%s on decision %llu: code %llu, rank %llu and %llu failed blocks do not fit each other", what,
                      (unsigned long long)head->number, (unsigned long long)code, (unsigned long long)rank,
                      (unsigned long long)head->count);
        return FBY_E_FORMAT;
    }
    failed.block = failed.count > 0 ? malloc(failed.count * sizeof(*failed.block)) : NULL;
    if (failed.count > 0 && failed.block == NULL) {
        return fby_group_no_memory("failed blocks", failed.count * sizeof(*failed.block));
    }
    if (!read_failed(body, &failed)) {
        fby_error_set("%s on decision %llu: failed blocks that do not ascend, or are cut short", what,
                      (unsigned long long)head->number);
        free(failed.block);
        return FBY_E_FORMAT;
    }
    int rc = fby_message_closed(body, what);
    if (rc != 0) {
        free(failed.block);
        return rc;
    }
    *out = (fby_ending_t){.code = -(int32_t)code, .rank = (uint32_t)rank, .failed = failed};
    return 0;
}
