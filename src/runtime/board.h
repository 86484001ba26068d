/*
 * board.h - what other processes may read of a cache without asking: its snapshots, and whether it is alive.
 *
 * One memfd: this head, then per session slot a latch and an owner. The cache writes it; whoever got the descriptor maps it read-only
 * (it is sealed against growing, shrinking, and new writable mappings) and polls sessions there without a lock and
 * without a system call. All of it is type-stable: a place is reused, never freed, so a reader checks whose it is.
 *
 * ALIVE   `keeper` is a robust futex word: it holds the thread id of the server's thread while that lives. When the
 *         thread dies, however it dies, the kernel sets FUTEX_OWNER_DIED there; so a reader needs one load to know.
 * OWNER   0: of the process of the cache itself; else the client that a server made the session for.
 */
#ifndef FBY_RUNTIME_BOARD_H
#define FBY_RUNTIME_BOARD_H

#include <linux/futex.h>
#include <stdatomic.h>

#include "base/base.h"
#include "core/latch.h"

#define FBY_BOARD_MAGIC 0x42594246u /* "FBYB" */
#define FBY_BOARD_VERSION 1u        /* also of fby_snapshot_t as it lies in a latch */

typedef struct fby_board {
    uint32_t magic, version;
    uint64_t bytes; /* of the mapping */
    uint32_t places, snapshot_bytes;
    _Atomic uint32_t generation; /* of the core; grows with every reset */
    _Atomic uint32_t keeper;
    _Atomic uint32_t poisoned;
    _Atomic uint64_t epoch;           /* of the weights */
    _Alignas(64) fby_latch_t latch[]; /* `places` of them, then as many owners */
} fby_board_t;

static inline uint64_t fby_board_bytes(uint32_t places)
{
    return sizeof(fby_board_t) + (uint64_t)places * (sizeof(fby_latch_t) + sizeof(uint64_t));
}

static inline _Atomic uint64_t *fby_board_owner(const fby_board_t *board, uint32_t place)
{
    return (_Atomic uint64_t *)(uintptr_t)&board->latch[board->places] + place;
}

#define FBY_BOARD_ANY UINT64_MAX
/* The session's snapshot, if the handle is known and of this owner (or ANY). Lock-free. FBY_E_STALE. */
int fby_board_poll(const fby_board_t *board, uint64_t owner, fby_session_t session, fby_snapshot_t *snapshot);

/* Somebody keeps the board: what it says is as of now. */
static inline bool fby_board_is_kept(const fby_board_t *board)
{
    uint32_t keeper = atomic_load_explicit(&board->keeper, memory_order_acquire);
    return (keeper & FUTEX_TID_MASK) != 0 && (keeper & FUTEX_OWNER_DIED) == 0;
}

/* Makes, maps and seals one. *descriptor is the board's own. -errno with detail. */
int fby_board_open(uint32_t places, fby_board_t **out, int *descriptor);
/* Unmaps; closes the descriptor. NULL is fine. */
void fby_board_close(fby_board_t *board, int descriptor);
/* The calling thread keeps the board from now until fby_board_leave or its death. `link` is the thread's own memory and
   stays until then. No thread keeps two boards, and it uses no robust mutex of pthread. -errno. */
typedef struct fby_board_link {
    struct robust_list_head head;
    struct robust_list entry;
} fby_board_link_t;
int fby_board_keep(fby_board_t *board, fby_board_link_t *link);
void fby_board_leave(fby_board_t *board, fby_board_link_t *link);
/* Maps somebody else's, read-only, after checking all that is read later: length, seals, head. FBY_E_FORMAT, -errno. */
int fby_board_map(int descriptor, const fby_board_t **out);
void fby_board_unmap(const fby_board_t *board);

#endif
