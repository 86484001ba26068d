/*
 * supervise.c - the life and death of a store's agents: one thread that sleeps in poll().
 *
 *   start -> READY                      calls may come
 *   kill, or death by itself -> DYING   off its seat; its calls wait
 *   pidfd readable -> reaped -> proof -> GONE   its calls end; the seat is filled again
 *
 * The proof is the pidfd (the whole thread group has left its memory) and, that nothing else held the pool, the filter
 * that refuses new processes or the PID namespace that ended with it. The pidfd says so however the child was reaped.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/host_internal.h"
#include "base/log.h"

enum { MOST_POLLED = 256 }; /* three seats with two each, and processes whose death is awaited */

#define START_LIMIT_NS (30 * FBY_SECOND)
#define PONG_LIMIT_NS (3 * FBY_SECOND)
#define FIRST_BACKOFF_NS (100 * FBY_MS)
#define MOST_BACKOFF_NS (10 * FBY_SECOND)
#define PATIENCE_NS (2 * FBY_SECOND) /* for a death, before the seat is filled beside it */
#define STEADY_NS (30 * FBY_SECOND)  /* lived that long: the next death is the first again */

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

void fby_supervisor_wake(struct fby_store *store)
{
    const uint64_t one = 1;
    (void)!write(store->wake, &one, sizeof(one));
}

/* ---- Log -------------------------------------------------------------------------------------------------------- */

/* Under the lock; the supervisor logs it when it has let go. */
static void say(struct fby_store *store, fby_log_level_t level, const char *event, const char *format, ...)
    FBY_PRINTF(4, 5);
static void say(struct fby_store *store, fby_log_level_t level, const char *event, const char *format, ...)
{
    if (store->lines == FBY_HOST_LINES) {
        store->lines_lost++;
        return;
    }
    fby_host_line_t *line = &store->line[store->lines++];
    va_list arguments;
    line->level = level;
    line->event = event;
    va_start(arguments, format);
    vsnprintf(line->text, sizeof(line->text), format, arguments);
    va_end(arguments);
}

/* Outside the lock. `lines` is the caller's room for what was said. */
static void speak(const fby_host_line_t *lines, uint32_t count, uint32_t lost)
{
    for (uint32_t i = 0; i < count; i++) {
        fby_log(lines[i].level, lines[i].event, "%s", lines[i].text);
    }
    if (lost > 0) {
        fby_log(FBY_LOG_WARN, "agent_lines_lost", "count=%u", lost);
    }
}

/* ---- Death ------------------------------------------------------------------------------------------------------ */

static void note(struct fby_store *store, const fby_process_t *process, const char *why)
{
    snprintf(store->stats.last, sizeof(store->stats.last), "%s agent: %s", process->seat->name, why);
}

/* The first death after a while is followed by a start at once; then the pause doubles. */
static void seat_plan(struct fby_store *store, fby_process_t *process, uint64_t now)
{
    fby_seat_t *seat = process->seat;
    if (process->answered_once && now - process->started_at >= STEADY_NS) {
        seat->strikes = 0;
    }
    uint32_t doublings = FBY_MIN(seat->strikes, 16u);
    uint64_t pause = doublings == 0 ? 0 : FBY_MIN(FIRST_BACKOFF_NS << (doublings - 1), MOST_BACKOFF_NS);
    seat->strikes++;
    seat->restart_at = store->stop ? FBY_NEVER : now + pause;
    seat->down = doublings >= 2 || process->state == FBY_PROCESS_STARTING;
}

static void process_depart(struct fby_store *store, fby_process_t *process, uint64_t now)
{
    seat_plan(store, process, now);
    process->seat->current = NULL;
    process->state = FBY_PROCESS_DYING;
    process->next = store->departed;
    store->departed = process;
    pthread_cond_broadcast(&store->changed);
}

/* Whoever opens the store hears of the first failure; all are counted. */
static void start_failed(struct fby_store *store, const fby_process_t *process, int code, const char *text)
{
    if (process->state != FBY_PROCESS_STARTING) {
        return;
    }
    store->stats.failed_starts++;
    if (store->start_code == 0) {
        store->start_code = code;
        snprintf(store->start_text, sizeof(store->start_text), "its agent did not start: %s", text);
    }
}

static void process_end(struct fby_store *store, fby_process_t *process, const char *event, const char *why)
{
    start_failed(store, process, FBY_E_CONNECTION, why);
    char text[600];
    note(store, process, why);
    say(store, store->stop ? FBY_LOG_INFO : FBY_LOG_WARN, event, "driver=%s agent=%s pid=%d why=%s", store->driver,
        process->seat->name, (int)process->pid, fby_log_quote(text, sizeof(text), why));
    process_depart(store, process, fby_clock_now(&fby_clock_monotonic));
    syscall(SYS_pidfd_send_signal, process->pidfd, SIGKILL, NULL, 0);
    fby_supervisor_wake(store);
}

void fby_process_kill(struct fby_store *store, fby_process_t *process, const char *why)
{
    if (process->state < FBY_PROCESS_DYING) {
        store->stats.kills++;
        process_end(store, process, "agent_killed", why);
    }
}

static bool nothing_else_held_the_pool(const fby_process_t *process)
{
    const uint32_t filter = FBY_CONFINED_SECCOMP | FBY_CONFINED_NO_FORK;
    return !process->has_pool || process->namespaced || (process->confined & filter) == filter;
}

static void process_forget(struct fby_store *store, fby_process_t *process)
{
    for (fby_process_t **at = &store->departed; *at != NULL; at = &(*at)->next) {
        if (*at == process) {
            *at = process->next;
            break;
        }
    }
    fby_process_free(process);
}

void fby_process_release(struct fby_store *store, fby_process_t *process)
{
    if (process->state == FBY_PROCESS_GONE && process->calls == 0) {
        process_forget(store, process);
    }
}

/* Every call that waits on it ends now. */
static void process_gone(struct fby_store *store, fby_process_t *process)
{
    process->state = FBY_PROCESS_GONE;
    atomic_store_explicit(&process->gone, true, memory_order_seq_cst);
    for (uint32_t i = 0; i < process->lane_count; i++) {
        fby_ring_kick(process->lanes[i].ring.lane);
    }
    pthread_cond_broadcast(&store->changed);
    fby_process_release(store, process);
}

static void describe_death(const siginfo_t *info, char *text, size_t size)
{
    if (info->si_code == CLD_EXITED) {
        snprintf(text, size, info->si_status == 127 ? "its program could not be executed" : "it exited with status %d",
                 info->si_status);
    } else if (info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED) {
        snprintf(text, size, "it was ended by signal %d", info->si_status);
    } else {
        snprintf(text, size, "it ended");
    }
}

/* Its pidfd says that the whole thread group is dead. Whoever reaps it, we saw it. */
static void process_dead(struct fby_store *store, fby_process_t *process)
{
    siginfo_t info = {0};
    char why[96];
    (void)waitid((idtype_t)P_PIDFD, (id_t)process->pidfd, &info, WEXITED | WNOHANG | __WALL);
    process->reaped = true;
    describe_death(&info, why, sizeof(why));
    if (process->state < FBY_PROCESS_DYING) {
        if (!process->asked) {
            store->stats.deaths++;
            note(store, process, why);
            say(store, FBY_LOG_WARN, "agent_died", "driver=%s agent=%s pid=%d how=\"%s\"", store->driver,
                process->seat->name, (int)process->pid, why);
        }
        bool never = info.si_code == CLD_EXITED && info.si_status == 127;
        start_failed(store, process, never ? FBY_E_CONFIG : FBY_E_CONNECTION, why);
        process_depart(store, process, fby_clock_now(&fby_clock_monotonic));
    }
    if (nothing_else_held_the_pool(process)) {
        process_gone(store, process);
        return;
    }
    store->stats.unproven++;
    pthread_cond_broadcast(&store->changed);
    say(store, FBY_LOG_ERROR, "agent_not_fenced",
        "driver=%s agent=%s pid=%d why=\"neither a filter nor a PID namespace guards it: its slots stay in "
        "quarantine\"",
        store->driver, process->seat->name, (int)process->pid);
    if (process->calls == 0) {
        process_forget(store, process); /* `unproven` remembers it; nobody waits for it */
    }
}

/* ---- Messages --------------------------------------------------------------------------------------------------- */

static void process_confined(struct fby_store *store, fby_process_t *process, const fby_wire_confined_t *confined)
{
    process->confined = confined->confined;
    process->has_pool = true;
    if (fby_process_send_pool(store, process) != 0) {
        fby_process_kill(store, process, "the pool could not be sent to it");
    }
}

static void process_ready(struct fby_store *store, fby_process_t *process, const fby_wire_ready_t *ready)
{
    process->state = FBY_PROCESS_READY;
    process->seat->down = false;
    process->seat->restart_at = FBY_NEVER;
    if (store->version[0] == '\0') {
        store->caps = ready->caps;
        store->caps.size = sizeof(store->caps);
        memcpy(store->version, ready->version, sizeof(store->version));
        store->version[sizeof(store->version) - 1] = '\0';
    }
    char version[2 * sizeof(store->version) + 3];
    say(store, FBY_LOG_INFO, "agent_ready", "driver=%s agent=%s pid=%d version=%s filter=%u namespace=%d",
        store->driver, process->seat->name, (int)process->pid, fby_log_quote(version, sizeof(version), store->version),
        process->confined, process->namespaced);
    pthread_cond_broadcast(&store->changed);
}

static void process_failed(struct fby_store *store, fby_process_t *process, fby_wire_failed_t *failed)
{
    failed->text[sizeof(failed->text) - 1] = '\0';
    store->start_code = failed->code < 0 ? failed->code : FBY_E_CONNECTION;
    snprintf(store->start_text, sizeof(store->start_text), "%s", failed->text);
    process_end(store, process, "agent_not_started", failed->text);
}

/* What an agent says is data: anything that does not fit ends the agent. */
static void process_message(struct fby_store *store, fby_process_t *process)
{
    union {
        fby_wire_head_t head;
        fby_wire_confined_t confined;
        fby_wire_ready_t ready;
        fby_wire_failed_t failed;
    } message;
    ssize_t n = recv(process->control, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        close(process->control);
        process->control = -1; /* it is dying, and its pidfd tells the rest; or it is deaf, and the limit ends it */
        process->pong_due = fby_clock_now(&fby_clock_monotonic) + PONG_LIMIT_NS;
        return;
    }
    bool sane = (size_t)n >= sizeof(message.head) && (size_t)n <= sizeof(message) &&
                message.head.bytes == (uint64_t)n && message.head.magic == FBY_WIRE_MAGIC;
    bool starting = process->state == FBY_PROCESS_STARTING;
    if (sane && message.head.version != FBY_WIRE_VERSION) {
        store->start_code = FBY_E_CONFIG;
        snprintf(store->start_text, sizeof(store->start_text), "its agent speaks version %u; accepted: %u",
                 message.head.version, FBY_WIRE_VERSION);
        fby_process_kill(store, process, store->start_text);
    } else if (sane && message.head.type == FBY_WIRE_CONFINED && (size_t)n == sizeof(message.confined) && starting &&
               !process->has_pool) {
        process_confined(store, process, &message.confined);
    } else if (sane && message.head.type == FBY_WIRE_READY && (size_t)n == sizeof(message.ready) && starting &&
               process->has_pool) {
        process_ready(store, process, &message.ready);
    } else if (sane && message.head.type == FBY_WIRE_FAILED && (size_t)n == sizeof(message.failed) && starting) {
        process_failed(store, process, &message.failed);
    } else if (sane && message.head.type == FBY_WIRE_PONG && process->pong_due != 0) {
        process->pong_due = 0;
    } else {
        fby_process_kill(store, process, "a message that makes no sense");
    }
}

/* ---- The thread ------------------------------------------------------------------------------------------------- */

static void ping(fby_process_t *process, uint64_t now)
{
    const fby_wire_head_t head = fby_wire_make(FBY_WIRE_PING, sizeof(head));
    process->ping_wanted = false;
    if (process->pong_due == 0 && send(process->control, &head, sizeof(head), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
        process->pong_due = now + PONG_LIMIT_NS;
    }
}

/* Limits of the process on a seat. Returns the next one. */
static uint64_t process_limits(struct fby_store *store, fby_process_t *process, uint64_t now)
{
    uint64_t start_due = process->state == FBY_PROCESS_STARTING ? process->started_at + START_LIMIT_NS : FBY_NEVER;
    if (now >= start_due) {
        store->start_code = FBY_E_CONNECTION;
        snprintf(store->start_text, sizeof(store->start_text), "its agent did not say READY within %llu s",
                 (unsigned long long)(START_LIMIT_NS / FBY_SECOND));
        fby_process_kill(store, process, "not ready in time");
        return now;
    }
    if (process->ping_wanted && process->control >= 0) {
        ping(process, now);
    }
    if (process->pong_due == 0 || now < process->pong_due) {
        return FBY_MIN(start_due, process->pong_due == 0 ? FBY_NEVER : process->pong_due);
    }
    fby_process_kill(store, process, process->control < 0 ? "it closed its control socket" : "no answer to a ping");
    return now;
}

/* Whether a death of this seat is still to be proven and may be waited for. */
static bool seat_awaits_proof(const struct fby_store *store, const fby_seat_t *seat, uint64_t now)
{
    for (const fby_process_t *process = store->departed; process != NULL; process = process->next) {
        if (process->seat == seat && process->state == FBY_PROCESS_DYING && !process->reaped &&
            (store->caps.one_process || now < seat->restart_at + PATIENCE_NS)) {
            return true;
        }
    }
    return false;
}

/* Fills a seat when that is due. The start is done without the lock: it maps and clones. */
static uint64_t seat_fill(struct fby_store *store, fby_seat_t *seat, uint64_t now)
{
    if (store->stop || seat->restart_at == FBY_NEVER) {
        return FBY_NEVER;
    }
    if (now < seat->restart_at) {
        return seat->restart_at;
    }
    if (seat_awaits_proof(store, seat, now)) { /* its pidfd wakes this thread */
        return store->caps.one_process ? FBY_NEVER : seat->restart_at + PATIENCE_NS;
    }
    char error[512] = "";
    fby_process_t *process = NULL;
    seat->restart_at = FBY_NEVER;
    pthread_mutex_unlock(&store->lock);
    int rc = fby_process_start(store, seat, &process, error, sizeof(error));
    pthread_mutex_lock(&store->lock);
    if (process != NULL) {
        seat->current = process;
        store->stats.starts++;
        if (rc != 0) { /* it runs, but what it has to know did not reach it */
            store->start_code = rc;
            snprintf(store->start_text, sizeof(store->start_text), "%s", error);
            fby_process_kill(store, process, error);
        } else if (store->stop) { /* whoever closes did not see it yet */
            fby_process_kill(store, process, "the store closes");
        }
        return 0; /* look again: it may be off the seat already */
    }
    store->start_code = rc;
    snprintf(store->start_text, sizeof(store->start_text), "%s", error);
    store->stats.failed_starts++;
    char text[600];
    say(store, FBY_LOG_ERROR, "agent_not_started", "driver=%s agent=%s why=%s", store->driver, seat->name,
        fby_log_quote(text, sizeof(text), error));
    seat->down = true;
    seat->strikes++;
    seat->restart_at = now + FBY_MIN(FIRST_BACKOFF_NS << FBY_MIN(seat->strikes, 16u), MOST_BACKOFF_NS);
    pthread_cond_broadcast(&store->changed);
    return seat->restart_at;
}

/* Does what is due; returns when to come back. */
static uint64_t supervise(struct fby_store *store)
{
    uint64_t now = fby_clock_now(&fby_clock_monotonic), next = FBY_NEVER;
    for (uint32_t i = 0; i < store->seat_count; i++) {
        fby_seat_t *seat = &store->seats[i];
        uint64_t at = seat->current != NULL ? process_limits(store, seat->current, now) : seat_fill(store, seat, now);
        next = FBY_MIN(next, at);
    }
    return next;
}

typedef struct watched {
    struct pollfd fds[MOST_POLLED];
    fby_process_t *of[MOST_POLLED];
    nfds_t count;
} watched_t;

static void watch(watched_t *watched, int fd, fby_process_t *process)
{
    if (fd >= 0 && watched->count < MOST_POLLED) {
        watched->fds[watched->count] = (struct pollfd){.fd = fd, .events = POLLIN};
        watched->of[watched->count++] = process;
    }
}

static void watch_all(struct fby_store *store, watched_t *watched)
{
    watched->count = 0;
    watch(watched, store->wake, NULL);
    for (uint32_t i = 0; i < store->seat_count; i++) {
        fby_process_t *process = store->seats[i].current;
        if (process != NULL) {
            watch(watched, process->control, process);
            watch(watched, process->pidfd, process);
        }
    }
    for (fby_process_t *process = store->departed; process != NULL; process = process->next) {
        if (!process->reaped) {
            watch(watched, process->pidfd, process);
        }
    }
}

/* Control sockets first: what an agent said before it died. Only this thread frees a process that is not reaped yet, so
   those watched are still there. */
static void hear(struct fby_store *store, watched_t *watched)
{
    uint64_t count;
    for (nfds_t i = 0; i < watched->count; i++) {
        fby_process_t *process = watched->of[i];
        if (watched->fds[i].revents == 0) {
            continue;
        }
        if (process == NULL) {
            (void)!read(store->wake, &count, sizeof(count));
        } else if (watched->fds[i].fd == process->pidfd) {
            process_dead(store, process);
        } else if (process->state < FBY_PROCESS_DYING) {
            process_message(store, process);
        }
    }
}

bool fby_supervisor_has_living(const struct fby_store *store)
{
    for (uint32_t i = 0; i < store->seat_count; i++) {
        if (store->seats[i].current != NULL) {
            return true;
        }
    }
    for (const fby_process_t *process = store->departed; process != NULL; process = process->next) {
        if (!process->reaped) {
            return true;
        }
    }
    return false;
}

static int timeout_ms(uint64_t until)
{
    if (until == FBY_NEVER) {
        return -1;
    }
    uint64_t ns = fby_sub_sat(until, fby_clock_now(&fby_clock_monotonic));
    return (int)FBY_MIN((ns + FBY_MS - 1) / FBY_MS, UINT64_C(60000));
}

/* Lets the lock go, says what is to be said, and waits for something to happen until then. */
static int poll_unlocked(struct fby_store *store, watched_t *watched, uint64_t until)
{
    fby_host_line_t lines[FBY_HOST_LINES];
    uint32_t count = store->lines, lost = store->lines_lost;
    memcpy(lines, store->line, count * sizeof(lines[0]));
    store->lines = store->lines_lost = 0;
    pthread_mutex_unlock(&store->lock);
    speak(lines, count, lost);
    int n = poll(watched->fds, watched->count, timeout_ms(until));
    pthread_mutex_lock(&store->lock);
    return n;
}

/* What the last turn had to say; nobody else touches the lines any more. */
static void last_words(struct fby_store *store)
{
    speak(store->line, store->lines, store->lines_lost);
    store->lines = store->lines_lost = 0;
}

static void *supervisor_main(void *arg)
{
    struct fby_store *store = arg;
    watched_t watched;
    pthread_mutex_lock(&store->lock);
    while (!store->stop || fby_supervisor_has_living(store)) {
        uint64_t until = supervise(store);
        watch_all(store, &watched);
        int n = poll_unlocked(store, &watched, until);
        if (n > 0) {
            hear(store, &watched);
        }
    }
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
    last_words(store);
    return NULL;
}

int fby_supervisor_start(struct fby_store *store)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&store->supervisor, NULL, supervisor_main, store);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) {
        pthread_setname_np(store->supervisor, "fby-agents");
        store->supervisor_started = true;
    }
    return -rc;
}
