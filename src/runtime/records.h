/* records.h - what the runtime keeps beside the core's objects: descriptors of sessions, sealing facts of puts. */
#ifndef FBY_RUNTIME_RECORDS_H
#define FBY_RUNTIME_RECORDS_H

#include "base/base.h"
#include "core/core.h"
#include "runtime/seq.h"

/* A descriptor of ours that becomes readable when a session is answered; the caller has another one of the same. */
typedef struct fby_session_fd {
    struct fby_session_fd *next;
    int fd;
} fby_session_fd_t;

/* Makes the pair: ours in *out, the caller's in *theirs. -errno. */
int fby_session_fd_create(fby_session_fd_t **out, int *theirs);
/* Signals every descriptor of the list, closes and frees it. */
void fby_session_fds_end(fby_session_fd_t *list);

/* What sealing the slots of a put needs. */
typedef struct fby_put_record {
    fby_seq_data_t *data; /* one reference */
    const fby_hash_t *hashes;
    uint8_t fingerprint[16];
    uint32_t from, to; /* staged full blocks */
    uint32_t end;      /* boundary whose trailing payloads are staged with them, or alone */
    bool busy;         /* a commit is writing trailers: nothing else may be done to the put */
} fby_put_record_t;

/* A reference of its own on the view's data. NULL: out of memory. */
fby_put_record_t *fby_put_record_create(const fby_core_seq_t *view, const fby_keyring_t *keyring);
void fby_put_record_free(fby_put_record_t *record);

#endif
