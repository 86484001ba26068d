/* wait.c - waits: on a descriptor of the server's, and on everything that could end the wait otherwise. */
#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/client.h"

int fby_client_event(fby_client_t *client, uint32_t of, uint64_t handle, int *fd, fby_link_t **link)
{
    fby_answer_view_t answer;
    const fby_msg_object_t about = {.handle = handle, .flags = of};
    int came = -1;
    pthread_mutex_lock(&client->lock);
    int rc = fby_client_ask(client, FBY_REQUEST_EVENT, &about, NULL, 0, &answer, &came);
    if (rc >= 0 && came < 0) {
        fby_error_set("descriptor of the server: %s", fby_strerror(-EMFILE));
        rc = -EMFILE;
    }
    if (rc >= 0 && link != NULL) {
        *link = fby_link_ref(atomic_load(&client->link));
    }
    pthread_mutex_unlock(&client->lock);
    if (rc < 0 && came >= 0) {
        close(came);
    }
    if (rc >= 0) {
        *fd = came;
    }
    return FBY_MIN(rc, 0);
}

/* A server that does not run would keep the wait for ever: it is asked something now and then. */
static int is_it_there(fby_client_t *client)
{
    int rc = fby_client_call(client, FBY_REQUEST_RESETTING, NULL, NULL, 0);
    return rc == -ENOTCONN ? rc : 0;
}

int fby_client_await(fby_client_t *client, const fby_link_t *link, int fd, uint64_t deadline)
{
    uint64_t now = fby_clock_now(&fby_clock_monotonic);
    if (now >= deadline) {
        return -ETIMEDOUT;
    }
    uint64_t left = FBY_MIN(deadline - now, client->call_timeout_ns);
    struct timespec limit = {.tv_sec = (time_t)(left / FBY_SECOND), .tv_nsec = (long)(left % FBY_SECOND)};
    struct pollfd on[] = {{.fd = fd, .events = POLLIN},
                          {.fd = link->socket, .events = POLLRDHUP},
                          {.fd = client->closing_fd, .events = POLLIN}};
    int ready = ppoll(on, FBY_ARRAY_LEN(on), &limit, NULL);
    if (ready < 0) {
        return errno == EINTR ? 0 : -errno;
    }
    if (on[2].revents != 0) {
        fby_error_set("the cache is closed or closing");
        return FBY_E_CLOSED;
    }
    if (on[0].revents != 0) {
        return 0;
    }
    if (on[1].revents != 0) {
        return fby_client_away(client);
    }
    bool is_late = fby_clock_now(&fby_clock_monotonic) >= deadline;
    return is_late ? -ETIMEDOUT : is_it_there(client);
}
