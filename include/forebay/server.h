/*
 * server.h - the contract for programs that use a cache of another process.
 *
 *        process of the cache:   fby_cache_open with server.listen set (or `forebay serve`)
 *        other processes:        fby_connect -> every call of forebay.h and rank.h -> fby_cache_close
 *
 * A cache whose configuration has server.listen answers on that Unix socket for as long as it is open. fby_connect gives a
 * cache that asks it: the same calls with the same meaning. docs/server.md has what differs:
 *
 *   COST        poll is local, lock-free and free of system calls. A *quick* call is one message and its answer. Tokens are
 *               hashed here, blocks that a put publishes are sealed here; neither is the server's work.
 *   OWNERSHIP   sessions, holds, puts and subscriptions belong to the connection that made them; those of others are
 *               FBY_E_STALE. They end with it: when this process closes the cache, or dies.
 *   AWAY        once the server is gone, or does not answer within call_timeout_s, nothing fails: handles of that server
 *               are FBY_E_STALE, new sessions are answered at once with 0 tokens (outcome failed, reason store_error,
 *               error -ENOTCONN), lookups give empty holds, puts stage nothing. One log line says so. Calls try to
 *               connect again, at most once per reconnect_s; when the server is back, with the same model, all goes on.
 *   FORK        as in forebay.h: a child connects for itself.
 */
#ifndef FOREBAY_SERVER_H
#define FOREBAY_SERVER_H

#include "forebay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Connect ---------------------------------------------------------------------------------------------------- */

/** Initialise with FBY_CONNECT_OPTIONS_INIT, then change what you mean to. */
typedef struct fby_connect_options {
    uint32_t size;
    uint32_t reserved0;
    double call_timeout_s; /**< above 0: a server that does not answer for so long is taken for gone */
    double reconnect_s;    /**< above 0: least time between two attempts to reach it again */
    const char *name; /**< of this program, for `forebay top` and logs; copied, at most 47 bytes. NULL: its command */
} fby_connect_options_t;
#define FBY_CONNECT_OPTIONS_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(fby_connect_options_t), 0, 5.0, 0.5, NULL                                                               \
    }

/** Connects to the server behind a socket and maps pool and snapshots. options may be NULL. *Blocks* for at most
    call_timeout_s. The caller closes the cache with fby_cache_close, which waits for nothing.
    Errors: -ENOENT, -ECONNREFUSED (no server there), -EACCES (the socket's mode, or the server does not take this user),
    -EUSERS (server.max_clients are there), FBY_E_FORMAT (a server of another version, or no Forebay server), -ETIMEDOUT,
    -EINVAL, -ENOMEM, -errno; the detail names the path and what is wrong. */
int fby_connect(const char *path, const fby_connect_options_t *options, fby_cache_t **out);

/** Is there a server behind this cache now? Lock-free, no system call, connects nothing. A cache of this process: 1.
    0 when it is away. -EINVAL. */
int fby_cache_connected(fby_cache_t *cache);

/* ---- Who is there ----------------------------------------------------------------------------------------------- */

typedef struct fby_server_client {
    uint64_t client; /**< its number; never used again by this server */
    int32_t pid;     /**< as the server sees it; 0: of another PID namespace */
    uint32_t uid;
    uint32_t sessions, holds, puts, subscriptions, sequences;
    uint32_t ended; /**< 1: its socket is closed, but the process still lives and could write to slots of its puts */
    uint64_t pinned_bytes; /**< what its holds cover, each counted in full */
    uint64_t sequence_bytes;
    uint64_t fenced_bytes; /**< slots that wait for the end of its process */
    uint64_t calls, refused;
    uint64_t connected_ns; /**< since when, as an age */
    char name[48];
} fby_server_client_t;

typedef struct fby_server_info {
    uint32_t size;
    uint32_t clients; /**< connected now */
    int32_t pid;
    uint32_t stopping;   /**< 1: a graceful stop is under way */
    uint64_t age_ns;     /**< since it began to listen */
    uint64_t accepted;   /**< connections so far */
    uint64_t refused;    /**< connections: user, version, number */
    uint64_t violations; /**< connections closed for traffic that no client sends */
    uint64_t deaths;     /**< connections that ended without saying so */
    uint64_t calls;
    uint64_t limit_refused; /**< calls over a limit per client */
    uint64_t fenced_bytes;  /**< slots of ended clients whose processes still live */
    char version[16];
} fby_server_info_t;
/** About the server behind a connected cache. Set info->size first. clients may be NULL with capacity 0; *count (may be
    NULL) becomes how many were written. Errors: FBY_E_STATE (a cache of this process without server.listen), -ENOTCONN
    (away). */
int fby_server_info(fby_cache_t *cache, fby_server_info_t *info, fby_server_client_t *clients, size_t capacity,
                    size_t *count);

/* ---- Ranks over the server -------------------------------------------------------------------------------------- */

/*
 * What group.h encodes may travel by the engine's own channel, or here. Each rank has a connection of its own; the leader
 * is rank 0 of a named group. All of these are for connected caches: FBY_E_STATE otherwise, -ENOTCONN while away.
 */
struct fby_ranks; /* group.h */
/** Joins a group with this rank's card (fby_card_encode) and *blocks* until all `ranks` are there or limit_s passed. The
    server compares the cards: 0 on all ranks, or on all ranks FBY_E_CONFIG with the same detail (fby_cards_compare), or
    -ETIMEDOUT with the ranks that are missing. -EEXIST: the group has a living rank of that number. A rank that died may
    join again; then all others get -ECONNRESET from their group calls until they joined again, too. out (may be NULL; set
    out->size first) becomes what leader, follower and verdicts of this life of the group are made with. */
int fby_group_join(fby_cache_t *cache, const char *group, uint32_t rank, uint32_t ranks, const void *card, size_t bytes,
                   double limit_s, struct fby_ranks *out);
/** Leader: what fby_leader_encode wrote. -ENOSPC: the slowest rank has 1 MiB still to read. */
int fby_group_send(fby_cache_t *cache, const void *bytes, size_t n);
/** Followers and leader: the next message of the leader into bytes[capacity], in order, each once; *n its length. *Blocks*
    up to timeout_s (negative: for ever): -ETIMEDOUT. -ECONNRESET: a rank is lost; *n becomes its number. -ENOSPC. */
int fby_group_receive(fby_cache_t *cache, void *bytes, size_t capacity, size_t *n, double timeout_s);
/** This rank's report on a decision (fby_follower_report). */
int fby_group_report(fby_cache_t *cache, const void *bytes, size_t n);
/** What all ranks reported on decision `number`, folded, for fby_follower_receive. *Blocks*, as receive. Reports of lost ranks
    are not waited for: the verdict names them. Kept for the last 1,024 decisions: -ENOENT before. */
int fby_group_verdict(fby_cache_t *cache, uint64_t number, void *bytes, size_t capacity, size_t *n, double timeout_s);
/** Leader: every joined rank becomes a reader of the hold, until it says fby_group_done or dies. Before the decision is
    sent. The hold's memory is free once the leader released it and all of them are done. */
int fby_group_grant_hold(fby_cache_t *cache, fby_hold_t hold);
/** Leader: every joined rank may write to the put's slots until it says fby_group_done or its process is gone. Till then
    commit is FBY_E_STATE, and the end of the put frees its slots only afterwards. */
int fby_group_grant_put(fby_cache_t *cache, fby_put_t put);
/** A rank has finished with a granted hold or put. FBY_E_STALE: it was not granted, or it is over. */
int fby_group_done(fby_cache_t *cache, uint64_t handle);

#ifdef __cplusplus
}
#endif
#endif
