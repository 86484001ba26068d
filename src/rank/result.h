/*
 * result.h - how a decision ended, and which blocks must not be used: the body of reports and verdicts.
 *
 * minus the code varint | verdict: the rank varint | per failed block, ascending, none twice: group u8 | block varint
 * delta
 */
#ifndef FBY_RANK_RESULT_H
#define FBY_RANK_RESULT_H

#include "rank/message.h"

/* Ascending by group and block, none twice. Owned; zeroed is empty. */
typedef struct fby_failed_list {
    fby_failed_block_t *block;
    uint64_t count;
} fby_failed_list_t;

typedef struct fby_ending {
    int32_t code;
    uint32_t rank; /* whose code it is; FBY_NO_RANK */
    fby_failed_list_t failed;
} fby_ending_t;

void fby_ending_free(fby_ending_t *ending);

/* Copies, sorts and checks what a caller reports: code, failed_count, failed. -EINVAL, -ENOMEM. */
int fby_ending_take(const fby_result_t *result, uint32_t rank, fby_ending_t *out);
/* Makes *into the end of both: the code of the lower rank that failed, the union of the blocks. -ENOMEM: unchanged. */
int fby_ending_merge(fby_ending_t *into, const fby_ending_t *from);

/* A message of type report (of `sender`) or verdict. */
int fby_ending_encode(const fby_ranks_t *ranks, uint32_t type, uint32_t sender, uint64_t number,
                      const fby_ending_t *ending, void *buffer, size_t capacity, size_t *needed);
/* Reads one that fby_message_accept let through. FBY_E_FORMAT, -ENOMEM; then *out is untouched. */
int fby_ending_decode(const fby_ranks_t *ranks, const fby_message_t *head, fby_reader_t *body, fby_ending_t *out);

#endif
