#include "runtime/records.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int fby_session_fd_create(fby_session_fd_t **out, int *theirs)
{
    fby_session_fd_t *fd = calloc(1, sizeof(*fd));
    if (fd == NULL) {
        return -ENOMEM;
    }
    int rc = 0;
    fd->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd->fd < 0) {
        rc = -errno;
        goto no_fd;
    }
    /* The caller may close its own at any time: ours must never become somebody else's file. */
    *theirs = fcntl(fd->fd, F_DUPFD_CLOEXEC, 0);
    if (*theirs < 0) {
        rc = -errno;
        goto no_dup;
    }
    *out = fd;
    return 0;

no_dup:
    close(fd->fd);
no_fd:
    free(fd);
    return rc;
}

void fby_session_fds_end(fby_session_fd_t *list)
{
    uint64_t one = 1;
    while (list != NULL) {
        fby_session_fd_t *fd = list;
        list = fd->next;
        (void)!write(fd->fd, &one, sizeof(one));
        close(fd->fd);
        free(fd);
    }
}

fby_put_record_t *fby_put_record_create(const fby_core_seq_t *view, const fby_keyring_t *keyring)
{
    fby_put_record_t *record = calloc(1, sizeof(*record));
    if (record != NULL) {
        record->data = view->ref;
        record->hashes = view->hashes;
        memcpy(record->fingerprint, keyring->hasher.fingerprint, sizeof(record->fingerprint));
        fby_seq_data_ref(record->data);
    }
    return record;
}

void fby_put_record_free(fby_put_record_t *record)
{
    if (record != NULL) {
        fby_seq_data_unref(record->data);
        free(record);
    }
}
