#include "runtime/records.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int fby_event_fd_create(fby_event_fd_t **out, int *theirs)
{
    int pair[2];
    fby_event_fd_t *fd = calloc(1, sizeof(*fd));
    if (fd == NULL) {
        return -ENOMEM;
    }
    /* A pair of sockets: the caller may close its end at any time, and it becomes readable when this process dies, too. */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        int rc = -errno;
        free(fd);
        return rc;
    }
    fd->fd = pair[0];
    *theirs = pair[1];
    *out = fd;
    return 0;
}

/* The other end may read the word; readable it stays, since this end is closed. */
void fby_event_fds_end(fby_event_fd_t *list)
{
    const uint64_t one = 1;
    while (list != NULL) {
        fby_event_fd_t *fd = list;
        list = fd->next;
        (void)send(fd->fd, &one, sizeof(one), MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd->fd);
        free(fd);
    }
}

void fby_event_fds_move(fby_event_fd_t **from, fby_event_fd_t **to)
{
    while (*from != NULL) {
        fby_event_fd_t *fd = *from;
        *from = fd->next;
        fd->next = *to;
        *to = fd;
    }
}

enum { FEW = 16 };

/* Those whose other end is closed. */
static void move_closed(fby_event_fd_t **list, uint32_t count, fby_event_fd_t **gone)
{
    struct pollfd one[FBY_MOST_RESET_FDS];
    uint32_t n = 0, i = 0;
    for (const fby_event_fd_t *fd = *list; fd != NULL && n < FBY_ARRAY_LEN(one); fd = fd->next) {
        one[n++] = (struct pollfd){.fd = fd->fd}; /* an end that is gone shows without being asked for */
    }
    if (n < count || poll(one, n, 0) <= 0) {
        return;
    }
    for (fby_event_fd_t **at = list; *at != NULL; i++) {
        fby_event_fd_t *fd = *at;
        if ((one[i].revents & (POLLHUP | POLLERR)) == 0) {
            at = &fd->next;
            continue;
        }
        *at = fd->next;
        fd->next = *gone;
        *gone = fd;
    }
}

static uint32_t length_of(const fby_event_fd_t *list)
{
    uint32_t n = 0;
    for (; list != NULL; list = list->next) {
        n++;
    }
    return n;
}

int fby_event_fds_add(fby_event_fd_t **list, uint32_t most, fby_event_fd_t **one, fby_event_fd_t **gone)
{
    uint32_t count = length_of(*list);
    /* at each doubling, so that those who keep theirs are not looked at each time */
    if (count >= most || (count >= FEW && (count & (count - 1)) == 0)) {
        move_closed(list, count, gone);
        if (length_of(*list) >= most) {
            return -EMFILE;
        }
    }
    (*one)->next = *list;
    *list = *one;
    *one = NULL;
    return 0;
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
        fby_event_fds_end(record->fds);
        fby_seq_data_unref(record->data);
        free(record);
    }
}
