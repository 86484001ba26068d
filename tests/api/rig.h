/*
 * rig.h - a cache over a scripted mem store, through the public API, with content that can be told apart.
 *
 * Geometry of cases: block = 16 tokens = 4096 bytes; the pool has 64 blocks; chunk 4, window 2. Block i of a sequence
 * holds a stream derived from its key, so that a wrong, stale or shifted byte never passes. Freed slots are painted 0xEE.
 */
#ifndef FBY_TESTS_API_RIG_H
#define FBY_TESTS_API_RIG_H

#include "forebay/forebay.h"
#include "stores/mem.h"
#include "stores/stores.h"
#include "unit.h"

enum { RIG_BLOCK_TOKENS = 16, RIG_PAYLOAD = 4096, RIG_POOL_BLOCKS = 64, RIG_P32_TOKENS = 513 };
/* Longest wait for something that happens at once: only a fault lasts so long. */
#define RIG_PATIENCE_S 20.0
#define RIG_PATIENCE_NS UINT64_C(20000000000)

typedef struct rig {
    fby_cache_t *cache;  /* what stories call */
    fby_cache_t *served; /* the cache of this process that it asks, with FOREBAY_TEST_HOST=server; else NULL */
    fby_store_t *store;  /* a handle of our own on the cache's mem store: keeps it, scripts it, counts */
    char name[48];
    char folder[48]; /* of the socket */
} rig_t;

/* Settings are "key=value", later ones win, NULL ends. They come on top of the geometry, prefetch.enabled=true and a
   mem store of a name of its own (unless they name a driver: then rig->store is not the cache's). */
#define RIG_OPEN(rig, ...) rig_open((rig), (const char *const[]){__VA_ARGS__, NULL})
void rig_open(rig_t *rig, const char *const *settings);
/* Closes the cache (unless closed already) and the store. */
void rig_close(rig_t *rig);
/* The cache alone is closed and opened again over the same store. */
void rig_reopen(rig_t *rig, const char *const *settings);
/* With FOREBAY_TEST_HOST=agent in the environment every cache of the rig opens its store in agents, unless its settings
   name a host. A story that scripts, counts or reopens the mem store of this process begins with rig_needs_process(): it
   is skipped there. */
bool rig_hosted(void);
void rig_needs_process(void);
/* With FOREBAY_TEST_HOST=server the rig's cache listens on a socket of its own, and rig->cache is connected to it. */
bool rig_is_served(void);
/* The cache with the runtime. */
fby_cache_t *rig_real(const rig_t *rig);
fby_config_t *rig_config(const rig_t *rig, const char *const *settings);

/* A prompt of its own per seed. */
fby_seq_t *rig_seq(rig_t *rig, uint64_t seed, size_t tokens);
/* What block i of a group must hold. */
void rig_content(const fby_seq_t *seq, size_t block, uint32_t group, uint8_t *payload, size_t bytes);
/* Puts blocks [from, to) into the store behind the cache's back. */
void rig_store_blocks(rig_t *rig, const fby_seq_t *seq, size_t from, size_t to);
/* Puts blocks [0, to) through the API; returns after commit. */
fby_put_t rig_put(rig_t *rig, fby_seq_t *seq, uint64_t to, fby_put_result_t *result);
/* put, wait for the store, release */
void rig_put_stored(rig_t *rig, fby_seq_t *seq, uint64_t to);
void rig_script(rig_t *rig, const char *text);
/* A script rule on one block: "verb:KEY:rest". */
void rig_script_block(rig_t *rig, const fby_seq_t *seq, size_t block, const char *verb, const char *effect);

fby_session_t rig_start(rig_t *rig, fby_seq_t *seq, fby_policy_t policy, fby_stop_mode_t mode, double budget_s);
fby_snapshot_t rig_wait(rig_t *rig, fby_session_t session);
fby_snapshot_t rig_poll(rig_t *rig, fby_session_t session);
/* Takes the result and compares every byte of [0, blocks) with what it must be; releases. */
void rig_take_and_verify(rig_t *rig, fby_session_t session, const fby_seq_t *seq, uint64_t blocks);
void rig_verify_hold(rig_t *rig, fby_hold_t hold, const fby_seq_t *seq, uint64_t blocks);
uint64_t rig_lookup(rig_t *rig, fby_seq_t *seq);
fby_stats_t rig_stats(rig_t *rig);
/* Q: nothing reserved, pinned, in flight, running, leased, held; each slot free or resident; every invariant holds. Waits
   for what is on its way. */
void rig_quiet(rig_t *rig);
/* Waits until the condition holds, looking again whenever something may have changed; fails after the patience. */
#define RIG_AWAIT(condition)                                                                                           \
    do {                                                                                                               \
        for (int rig_turn_ = 0; !(condition); rig_turn_++) {                                                           \
            assert_in_range(rig_turn_, 0, 20000);                                                                      \
            rig_pause();                                                                                               \
        }                                                                                                              \
    } while (0)
void rig_pause(void);
/* Threads of this process. */
unsigned rig_threads(void);

#endif
