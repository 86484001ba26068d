#include "runtime/board.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "core/handle.h"

/* F_SEAL_FUTURE_WRITE came with Linux 5.1: before it, a peer could map the board for writing (docs/security.md). */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#define LENGTH_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static int fail(const char *what, uint64_t bytes)
{
    int rc = -errno;
    fby_error_set("snapshots: %s of %llu bytes: %s", what, (unsigned long long)bytes, fby_strerror(rc));
    return rc;
}

/* The writable mapping exists already: later ones are refused. */
static int seal(int descriptor)
{
    int rc = fcntl(descriptor, F_ADD_SEALS, LENGTH_SEALS | F_SEAL_FUTURE_WRITE);
    if (rc != 0 && errno == EINVAL) {
        rc = fcntl(descriptor, F_ADD_SEALS, LENGTH_SEALS);
    }
    return rc;
}

int fby_board_open(uint32_t places, fby_board_t **out, int *descriptor)
{
    uint64_t bytes = fby_board_bytes(places);
    int result, fd = memfd_create("forebay-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return fail("memfd", bytes);
    }
    if (ftruncate(fd, (off_t)bytes) != 0) {
        result = fail("memory", bytes);
        goto no_memory;
    }
    fby_board_t *board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (board == MAP_FAILED) {
        result = fail("mapping", bytes);
        goto no_memory;
    }
    if (seal(fd) != 0) {
        result = fail("seal", bytes);
        munmap(board, bytes);
        goto no_memory;
    }
    board->magic = FBY_BOARD_MAGIC;
    board->version = FBY_BOARD_VERSION;
    board->bytes = bytes;
    board->places = places;
    board->snapshot_bytes = sizeof(fby_snapshot_t);
    *out = board;
    *descriptor = fd;
    return 0;

no_memory:
    close(fd);
    return result;
}

void fby_board_close(fby_board_t *board, int descriptor)
{
    if (board != NULL) {
        munmap(board, board->bytes);
        close(descriptor);
    }
}

int fby_board_poll(const fby_board_t *board, uint64_t owner, fby_session_t session, fby_snapshot_t *snapshot)
{
    uint32_t place = fby_handle_index(session);
    if (fby_handle_type(session) != FBY_HANDLE_SESSION || place >= board->places ||
        !fby_handle_is_of(session, atomic_load_explicit(&board->generation, memory_order_acquire))) {
        return FBY_E_STALE; /* never one, or of before a reset */
    }
    if (owner != FBY_BOARD_ANY && atomic_load_explicit(fby_board_owner(board, place), memory_order_acquire) != owner) {
        return FBY_E_STALE;
    }
    fby_latch_read(&board->latch[place], snapshot);
    return snapshot->handle == session ? 0 : FBY_E_STALE;
}

/* ---- Alive ------------------------------------------------------------------------------------------------------ */

int fby_board_keep(fby_board_t *board, fby_board_link_t *link)
{
    link->entry.next = &link->head.list;
    link->head.list.next = &link->entry;
    link->head.list_op_pending = NULL;
    link->head.futex_offset = (long)((char *)&board->keeper - (char *)&link->entry);
    if (syscall(SYS_set_robust_list, &link->head, sizeof(link->head)) != 0) {
        return fail("robust list", sizeof(link->head));
    }
    atomic_store_explicit(&board->keeper, (uint32_t)gettid(), memory_order_release);
    return 0;
}

void fby_board_leave(fby_board_t *board, fby_board_link_t *link)
{
    atomic_store_explicit(&board->keeper, 0, memory_order_release);
    link->head.list.next = &link->head.list;
}

/* ---- Somebody else's -------------------------------------------------------------------------------------------- */

static int refuse(const char *what, uint64_t is, uint64_t accepted)
{
    fby_error_set("snapshots of the server: %s is %llu; accepted: %llu", what, (unsigned long long)is,
                  (unsigned long long)accepted);
    return FBY_E_FORMAT;
}

static int board_check(const fby_board_t *board, uint64_t bytes)
{
    if (board->magic != FBY_BOARD_MAGIC || board->version != FBY_BOARD_VERSION) {
        return refuse("version", board->version, FBY_BOARD_VERSION);
    }
    if (board->snapshot_bytes != sizeof(fby_snapshot_t)) {
        return refuse("snapshot_bytes", board->snapshot_bytes, sizeof(fby_snapshot_t));
    }
    if (board->bytes != bytes || board->places > FBY_HANDLE_INDEX_MASK || fby_board_bytes(board->places) != bytes) {
        return refuse("bytes", board->bytes, bytes);
    }
    return 0;
}

int fby_board_map(int descriptor, const fby_board_t **out)
{
    struct stat about;
    if (fstat(descriptor, &about) != 0) {
        return fail("descriptor", 0);
    }
    int seals = fcntl(descriptor, F_GET_SEALS);
    if (seals < 0 || (seals & LENGTH_SEALS) != LENGTH_SEALS) {
        return refuse("seals", (uint64_t)FBY_MAX(seals, 0), LENGTH_SEALS);
    }
    uint64_t bytes = (uint64_t)about.st_size;
    if (bytes < sizeof(fby_board_t)) {
        return refuse("bytes", bytes, sizeof(fby_board_t));
    }
    fby_board_t *board = mmap(NULL, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    if (board == MAP_FAILED) {
        return fail("mapping", bytes);
    }
    int rc = board_check(board, bytes);
    if (rc != 0) {
        munmap(board, bytes);
        return rc;
    }
    *out = board;
    return 0;
}

void fby_board_unmap(const fby_board_t *board)
{
    if (board != NULL) {
        munmap((void *)(uintptr_t)board, board->bytes);
    }
}
