/*
 * owned.h - whose a session, hold or put is: one entry per place of the core's table.
 *
 * The core reuses a place only when the object before is over, so an entry never outlives its object by more than that:
 * nothing has to be swept for the table to stay bounded. Entries of one connection that still count are on a list.
 */
#ifndef FBY_SERVER_OWNED_H
#define FBY_SERVER_OWNED_H

#include "base/base.h"

typedef struct fby_owned_list {
    uint32_t first, last; /* FBY_NONE: empty */
    uint32_t count;
} fby_owned_list_t;

typedef struct fby_owned {
    uint64_t handle;        /* 0: none */
    uint64_t client;        /* its number; 0: nobody's */
    uint64_t bytes;         /* hold: what it covers; put: what waits for its fence */
    fby_owned_list_t *list; /* NULL: on none */
    uint32_t prev, next;
    uint32_t readers; /* hold: of its client */
    uint32_t writers; /* put: ranks that may still write to it */
    bool abandoned;   /* put: the core waits for its fence */
    bool owner_done;  /* put: its client cannot write any more */
} fby_owned_t;

typedef struct fby_owned_table {
    fby_owned_t *entry;
    uint32_t places;
    unsigned type; /* FBY_HANDLE_* */
} fby_owned_table_t;

#define FBY_OWNED_LIST_INIT                                                                                            \
    {                                                                                                                  \
        FBY_NONE, FBY_NONE, 0                                                                                          \
    }

/* -ENOMEM. */
int fby_owned_init(fby_owned_table_t *table, unsigned type, uint32_t places);
void fby_owned_free(fby_owned_table_t *table);
/* The entry if the handle is there and this client's (0: anybody's), else NULL. */
fby_owned_t *fby_owned_find(const fby_owned_table_t *table, uint64_t handle, uint64_t client);
/* What had the place before is over. The handle is one the core just gave. */
fby_owned_t *fby_owned_add(fby_owned_table_t *table, fby_owned_list_t *list, uint64_t handle, uint64_t client);
/* Off its list, still the client's. Harmless when on none. */
void fby_owned_unlink(fby_owned_table_t *table, fby_owned_t *owned);
void fby_owned_link(fby_owned_table_t *table, fby_owned_list_t *list, fby_owned_t *owned);
/* Nobody's any more. */
void fby_owned_forget(fby_owned_table_t *table, fby_owned_t *owned);
/* The first on the list, or NULL; the next on the same, or NULL. */
fby_owned_t *fby_owned_first(const fby_owned_table_t *table, const fby_owned_list_t *list);
fby_owned_t *fby_owned_next(const fby_owned_table_t *table, const fby_owned_t *owned);

#endif
