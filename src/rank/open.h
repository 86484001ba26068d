/*
 * open.h - the loads and saves that a rank has begun and whose common end was not told to the engine yet.
 *
 * INVARIANTS
 *   TABLE  ordered by number, none twice; at most `most`.
 *   STATE  BEGUN -> REPORTED -> ENDED, or from any to ENDED when the leader is lost. ENDED ones are in the queue, once,
 *          in the order in which they ended.
 */
#ifndef FBY_RANK_OPEN_H
#define FBY_RANK_OPEN_H

#include "rank/result.h"

typedef enum fby_open_state { FBY_OPEN_BEGUN, FBY_OPEN_REPORTED, FBY_OPEN_ENDED } fby_open_state_t;

typedef struct fby_open {
    uint64_t number, tag;
    uint32_t kind;
    fby_open_state_t state;
    uint64_t report; /* checksum of what was reported */
    fby_ending_t ending;
    struct fby_open *next; /* in the queue */
} fby_open_t;

typedef struct fby_open_table {
    fby_open_t **entry;
    uint32_t count, capacity, most;
    fby_open_t *first, *last; /* ENDED */
} fby_open_table_t;

void fby_open_free(fby_open_table_t *table);
/* number is above all others'. -EBUSY (full), -ENOMEM; with detail. */
int fby_open_add(fby_open_table_t *table, uint64_t number, uint32_t kind, uint64_t tag);
/* NULL: not open. */
fby_open_t *fby_open_find(const fby_open_table_t *table, uint64_t number);
/* Takes the ending's list. */
void fby_open_end(fby_open_table_t *table, fby_open_t *open, fby_ending_t *ending);
/* Every one that did not end ends with the code, all blocks. */
void fby_open_end_all(fby_open_table_t *table, int32_t code);
/* The first of the queue leaves the table; the caller frees it with fby_open_drop. NULL: none. */
fby_open_t *fby_open_take(fby_open_table_t *table);
void fby_open_drop(fby_open_t *open); /* NULL is fine */

#endif
