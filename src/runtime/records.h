/* records.h - what the runtime keeps beside the core's objects: descriptors of sessions, sealing facts of puts. */
#ifndef FBY_RUNTIME_RECORDS_H
#define FBY_RUNTIME_RECORDS_H

#include "base/base.h"
#include "core/core.h"
#include "runtime/seq.h"

enum {
    FBY_MOST_EVENT_FDS = 64,   /* of one session or put */
    FBY_MOST_RESET_FDS = 1024, /* of everybody */
};

/* A descriptor of ours that becomes readable when something has happened, once; the caller has another one of the same. */
typedef struct fby_event_fd {
    struct fby_event_fd *next;
    int fd;
} fby_event_fd_t;

/* Makes the pair: ours in *out, the caller's in *theirs. -errno. */
int fby_event_fd_create(fby_event_fd_t **out, int *theirs);
/* All of one list to another: under the lock to those that are signalled after it. */
void fby_event_fds_move(fby_event_fd_t **from, fby_event_fd_t **to);
/* Takes *one, which becomes NULL. Who closed its end needs none any more: such go to `gone`, to be ended outside the lock.
   -EMFILE: `most` are in use; *one stays the caller's. */
int fby_event_fds_add(fby_event_fd_t **list, uint32_t most, fby_event_fd_t **one, fby_event_fd_t **gone);
/* Signals every descriptor of the list, closes and frees it. */
void fby_event_fds_end(fby_event_fd_t *list);

/* What sealing the slots of a put needs. */
typedef struct fby_put_record {
    fby_seq_data_t *data; /* one reference */
    const fby_hash_t *hashes;
    uint8_t fingerprint[16];
    uint32_t from, to;   /* staged full blocks */
    uint32_t end;        /* boundary whose trailing payloads are staged with them, or alone */
    bool busy;           /* a commit is writing trailers: nothing else may be done to the put */
    fby_event_fd_t *fds; /* for the end of its store writes */
} fby_put_record_t;

/* Blocks [*from, *to) whose payloads of one group are sealed when the blocks below `valid` are committed. trailing: the
   group's rule, 0 for `all`; such a group may have payloads before the staged blocks, or alone. */
static inline void fby_put_seal_range(const fby_put_record_t *record, uint32_t trailing, uint32_t valid, uint32_t *from,
                                      uint32_t *to)
{
    uint32_t window = record->end - FBY_MIN(trailing, record->end);
    *from = trailing > 0 ? FBY_MIN(record->from, window) : record->from;
    *to = FBY_MIN(valid, trailing > 0 ? FBY_MAX(record->to, record->end) : record->to);
}

/* A reference of its own on the view's data. NULL: out of memory. */
fby_put_record_t *fby_put_record_create(const fby_core_seq_t *view, const fby_keyring_t *keyring);
void fby_put_record_free(fby_put_record_t *record);

#endif
