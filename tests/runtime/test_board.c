/* test_board.c - snapshots that other processes read: read-only for them, and a death that shows without asking. */
#include "runtime/board.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "core/handle.h"
#include "unit.h"

enum { PLACES = 8, OWNER = 5 };

static fby_session_t handle_of(uint32_t place, uint32_t object, uint32_t generation)
{
    return (uint64_t)FBY_HANDLE_SESSION << FBY_HANDLE_TYPE_SHIFT |
           (uint64_t)(generation & FBY_HANDLE_EPOCH_MASK) << FBY_HANDLE_EPOCH_SHIFT |
           (uint64_t)object << FBY_HANDLE_GENERATION_SHIFT | place;
}

static void write_session(fby_board_t *board, uint32_t place, uint64_t owner, fby_session_t session)
{
    fby_snapshot_t snapshot = {.size = sizeof(snapshot), .handle = session, .delivered_tokens = 48};
    fby_latch_write(&board->latch[place], &snapshot);
    atomic_store(fby_board_owner(board, place), owner);
}

static void a_session_is_read_by_its_owner_only(void **state)
{
    (void)state;
    fby_board_t *board;
    const fby_board_t *seen;
    int fd;
    fby_snapshot_t snapshot;
    assert_int_equal(fby_board_open(PLACES, &board, &fd), 0);
    assert_int_equal(fby_board_map(fd, &seen), 0);
    atomic_store(&board->generation, 7);
    fby_session_t session = handle_of(PLACES - 1, 3, 7);
    write_session(board, PLACES - 1, OWNER, session);

    assert_int_equal(fby_board_poll(seen, OWNER, session, &snapshot), 0);
    assert_int_equal(snapshot.delivered_tokens, 48);
    assert_int_equal(fby_board_poll(seen, FBY_BOARD_ANY, session, &snapshot), 0);
    const struct {
        const char *what;
        uint64_t owner, session;
    } strangers[] = {
        {"another owner", OWNER + 1, session},
        {"the object before it", OWNER, handle_of(PLACES - 1, 2, 7)},
        {"the generation before it", OWNER, handle_of(PLACES - 1, 3, 6)},
        {"an empty place", OWNER, handle_of(0, 0, 7)},
        {"a place that does not exist", OWNER, handle_of(PLACES, 3, 7)},
        {"a hold", OWNER, session ^ (uint64_t)(FBY_HANDLE_SESSION ^ FBY_HANDLE_HOLD) << FBY_HANDLE_TYPE_SHIFT},
        {"nothing", OWNER, 0},
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(strangers); i++) {
        if (fby_board_poll(seen, strangers[i].owner, strangers[i].session, &snapshot) != FBY_E_STALE) {
            fail_msg("%s was answered", strangers[i].what);
        }
    }
    atomic_store(&board->generation, 8); /* a reset */
    assert_int_equal(fby_board_poll(seen, OWNER, session, &snapshot), FBY_E_STALE);
    fby_board_unmap(seen);
    fby_board_close(board, fd);
}

static void nobody_else_may_write_to_it(void **state)
{
    (void)state;
    fby_board_t *board;
    int fd;
    assert_int_equal(fby_board_open(PLACES, &board, &fd), 0);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(errno, EPERM);
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    void *shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    assert_int_equal(mprotect(shared, 4096, PROT_READ | PROT_WRITE), -1);
    munmap(shared, 4096);
    board->poisoned = 1; /* its own mapping can still be written */
    fby_board_close(board, fd);
}

static void another_form_is_refused(void **state)
{
    (void)state;
    const fby_board_t *seen;
    int fd = memfd_create("board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    uint32_t head[4] = {FBY_BOARD_MAGIC, FBY_BOARD_VERSION + 1, 0, 0};
    assert_int_equal(ftruncate(fd, 8192), 0);
    assert_int_equal(pwrite(fd, head, sizeof(head), 0), (ssize_t)sizeof(head));
    assert_int_equal(fby_board_map(fd, &seen), FBY_E_FORMAT); /* could shrink under its reader */
    assert_non_null(strstr(fby_last_error(), "seals"));
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    assert_int_equal(fby_board_map(fd, &seen), FBY_E_FORMAT);
    assert_string_equal(fby_last_error(), "snapshots of the server: version is 2; accepted: 1");
    head[1] = FBY_BOARD_VERSION;
    assert_int_equal(pwrite(fd, head, sizeof(head), 0), (ssize_t)sizeof(head));
    assert_int_equal(fby_board_map(fd, &seen), FBY_E_FORMAT); /* another snapshot */
    close(fd);
    assert_int_equal(fby_board_map(-1, &seen), -EBADF);
}

/* The child keeps the board, says so, and dies without a word. */
static void a_killed_keeper_shows_at_once(void **state)
{
    (void)state;
    fby_board_t *board;
    const fby_board_t *seen;
    int fd, pipes[2];
    char ready;
    assert_int_equal(fby_board_open(PLACES, &board, &fd), 0);
    assert_int_equal(fby_board_map(fd, &seen), 0);
    assert_false(fby_board_is_kept(seen));
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        fby_board_link_t link;
        bool kept = fby_board_keep(board, &link) == 0;
        (void)!write(pipes[1], kept ? "k" : "f", 1);
        for (;;) {
            pause();
        }
    }
    assert_int_equal(read(pipes[0], &ready, 1), 1);
    assert_int_equal(ready, 'k');
    assert_true(fby_board_is_kept(seen));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(fby_board_is_kept(seen));
    close(pipes[0]);
    close(pipes[1]);
    fby_board_unmap(seen);
    fby_board_close(board, fd);
}

static void a_keeper_that_leaves_is_seen_to(void **state)
{
    (void)state;
    fby_board_t *board;
    fby_board_link_t link;
    int fd;
    assert_int_equal(fby_board_open(PLACES, &board, &fd), 0);
    assert_int_equal(fby_board_keep(board, &link), 0);
    assert_true(fby_board_is_kept(board));
    fby_board_leave(board, &link);
    assert_false(fby_board_is_kept(board));
    fby_board_close(board, fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_is_read_by_its_owner_only),
        cmocka_unit_test(nobody_else_may_write_to_it),
        cmocka_unit_test(another_form_is_refused),
        cmocka_unit_test(a_killed_keeper_shows_at_once),
        cmocka_unit_test(a_keeper_that_leaves_is_seen_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
