/* away.c - handles made while the server is away: values that every call takes and that cost nothing. */
#include <errno.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "client/client.h"
#include "core/handle.h"

/* 2 bits of type 0 | 2 of kind | 60 of the monotonic time of the call, made unique. */
#define KIND_SHIFT 60
#define TIME_MASK ((UINT64_C(1) << KIND_SHIFT) - 1)

uint64_t fby_away_make(fby_client_t *client, unsigned kind)
{
    uint64_t before = atomic_load(&client->last_away), now;
    do {
        now = FBY_MAX(fby_clock_now(&fby_clock_monotonic), before + 1);
    } while (!atomic_compare_exchange_weak(&client->last_away, &before, now));
    return (uint64_t)kind << KIND_SHIFT | (now & TIME_MASK);
}

bool fby_away_is(uint64_t handle, unsigned kind)
{
    return handle >> KIND_SHIFT == kind;
}

void fby_away_snapshot(fby_session_t session, fby_snapshot_t *snapshot)
{
    uint64_t at = session & TIME_MASK;
    *snapshot = (fby_snapshot_t){
        .size = sizeof(*snapshot),
        .state = FBY_TERMINAL,
        .handle = session,
        .version = 1,
        .answered = 1,
        .outcome = FBY_OUTCOME_FAILED,
        .reason = FBY_REASON_STORE_ERROR,
        .error = -ENOTCONN,
        .lease_valid = 1,
        .planned_final = 1,
        .created_ns = at,
        .sealed_ns = at,
        .answered_ns = at,
        .terminal_ns = at,
    };
}

int fby_away_event_fd(void)
{
    int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd >= 0 ? fd : -errno;
}
