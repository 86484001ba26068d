/*
 * calls.h - the public calls that take a cache, as a table: a cache of this process answers them itself, one behind a
 * socket asks its server (src/client).
 *
 * dispatch.c makes the public functions. Both sets of functions take the same arguments and follow forebay.h.
 */
#ifndef FBY_API_CALLS_H
#define FBY_API_CALLS_H

#include "forebay/forebay.h"
#include "forebay/rank.h"
#include "forebay/server.h"

/* X(name, parameters, arguments): int fby_NAME. The first parameter is `cache`. */
#define FBY_CALL_MAP(X)                                                                                                \
    X(cache_close, (fby_cache_t * cache, double limit_s, fby_close_report_t *report), (cache, limit_s, report))        \
    X(cache_reset, (fby_cache_t * cache, double wait_s, int bump_epoch), (cache, wait_s, bump_epoch))                  \
    X(cache_model, (fby_cache_t * cache, fby_model_t * model), (cache, model))                                         \
    X(cache_stats, (fby_cache_t * cache, fby_stats_t * stats), (cache, stats))                                         \
    X(cache_health, (fby_cache_t * cache, fby_health_t * health), (cache, health))                                     \
    X(cache_metrics, (fby_cache_t * cache, char *text, size_t capacity, size_t *needed),                               \
      (cache, text, capacity, needed))                                                                                 \
    X(cache_check, (fby_cache_t * cache), (cache))                                                                     \
    X(cache_pool, (fby_cache_t * cache, fby_pool_t * pool), (cache, pool))                                             \
    X(seq_create,                                                                                                      \
      (fby_cache_t * cache, const uint32_t *tokens, size_t n, const fby_ns_part_t *ns, size_t ns_parts,                \
       fby_seq_t **out),                                                                                               \
      (cache, tokens, n, ns, ns_parts, out))                                                                           \
    X(session_start, (fby_cache_t * cache, fby_seq_t * seq, const fby_session_options_t *options, fby_session_t *out), \
      (cache, seq, options, out))                                                                                      \
    X(session_poll, (fby_cache_t * cache, fby_session_t session, fby_snapshot_t * snapshot),                           \
      (cache, session, snapshot))                                                                                      \
    X(session_progress,                                                                                                \
      (fby_cache_t * cache, const fby_session_t *sessions, const uint8_t *demand, size_t n,                            \
       fby_snapshot_t *snapshots),                                                                                     \
      (cache, sessions, demand, n, snapshots))                                                                         \
    X(session_demand, (fby_cache_t * cache, fby_session_t session), (cache, session))                                  \
    X(session_stop, (fby_cache_t * cache, fby_session_t session), (cache, session))                                    \
    X(session_wait, (fby_cache_t * cache, fby_session_t session, double timeout_s, fby_snapshot_t *snapshot),          \
      (cache, session, timeout_s, snapshot))                                                                           \
    X(session_take, (fby_cache_t * cache, fby_session_t session, fby_hold_t * out), (cache, session, out))             \
    X(session_release, (fby_cache_t * cache, fby_session_t session), (cache, session))                                 \
    X(session_event_fd, (fby_cache_t * cache, fby_session_t session), (cache, session))                                \
    X(lookup, (fby_cache_t * cache, fby_seq_t * seq, unsigned flags, fby_hold_t *hold, uint64_t *tokens),              \
      (cache, seq, flags, hold, tokens))                                                                               \
    X(hold_info, (fby_cache_t * cache, fby_hold_t hold, uint64_t * tokens, uint64_t * blocks, uint64_t * first_block), \
      (cache, hold, tokens, blocks, first_block))                                                                      \
    X(hold_slots,                                                                                                      \
      (fby_cache_t * cache, fby_hold_t hold, uint32_t group, uint64_t from, uint64_t to, const void **out),            \
      (cache, hold, group, from, to, out))                                                                             \
    X(hold_places, (fby_cache_t * cache, fby_hold_t hold, uint32_t group, uint64_t from, uint64_t to, uint64_t * out), \
      (cache, hold, group, from, to, out))                                                                             \
    X(hold_trim, (fby_cache_t * cache, fby_hold_t hold, uint64_t tokens, uint64_t * now_tokens),                       \
      (cache, hold, tokens, now_tokens))                                                                               \
    X(hold_readers, (fby_cache_t * cache, fby_hold_t hold, uint32_t add), (cache, hold, add))                          \
    X(hold_release, (fby_cache_t * cache, fby_hold_t hold), (cache, hold))                                             \
    X(put_begin,                                                                                                       \
      (fby_cache_t * cache, fby_seq_t * seq, uint64_t from_block, uint64_t to_block, fby_put_t * out,                  \
       uint64_t * first_missing, uint64_t * staged_from, uint64_t * staged_to),                                        \
      (cache, seq, from_block, to_block, out, first_missing, staged_from, staged_to))                                  \
    X(put_next,                                                                                                        \
      (fby_cache_t * cache, fby_put_t put, fby_seq_t * seq, uint64_t from_block, uint64_t to_block,                    \
       uint64_t * first_missing, uint64_t * staged_from, uint64_t * staged_to),                                        \
      (cache, put, seq, from_block, to_block, first_missing, staged_from, staged_to))                                  \
    X(put_slots, (fby_cache_t * cache, fby_put_t put, uint32_t group, uint64_t from, uint64_t to, void **out),         \
      (cache, put, group, from, to, out))                                                                              \
    X(put_places, (fby_cache_t * cache, fby_put_t put, uint32_t group, uint64_t from, uint64_t to, uint64_t * out),    \
      (cache, put, group, from, to, out))                                                                              \
    X(put_commit, (fby_cache_t * cache, fby_put_t put, uint64_t valid_tokens, fby_put_result_t * result),              \
      (cache, put, valid_tokens, result))                                                                              \
    X(put_wait_store, (fby_cache_t * cache, fby_put_t put, double timeout_s, uint64_t *stored, uint64_t *failed),      \
      (cache, put, timeout_s, stored, failed))                                                                         \
    X(put_event_fd, (fby_cache_t * cache, fby_put_t put), (cache, put))                                                \
    X(put_abort, (fby_cache_t * cache, fby_put_t put), (cache, put))                                                   \
    X(put_release, (fby_cache_t * cache, fby_put_t put), (cache, put))                                                 \
    X(cache_connected, (fby_cache_t * cache), (cache))                                                                 \
    X(server_info,                                                                                                     \
      (fby_cache_t * cache, fby_server_info_t * info, fby_server_client_t * clients, size_t capacity, size_t * count), \
      (cache, info, clients, capacity, count))                                                                         \
    X(subscribe, (fby_cache_t * cache, uint32_t capacity, fby_subscription_t * *out), (cache, capacity, out))

typedef struct fby_calls {
#define FBY_X(name, parameters, arguments) int(*name) parameters;
    FBY_CALL_MAP(FBY_X)
#undef FBY_X
    uint64_t (*cache_epoch)(fby_cache_t *cache);
    int (*subscription_next)(fby_subscription_t *subscription, fby_event_t *event);
    int (*subscription_fd)(fby_subscription_t *subscription);
    void (*unsubscribe)(fby_subscription_t *subscription);
} fby_calls_t;

#define FBY_X(name, parameters, arguments) int fby_local_##name parameters;
FBY_CALL_MAP(FBY_X)
#undef FBY_X
uint64_t fby_local_cache_epoch(fby_cache_t *cache);
int fby_local_subscription_next(fby_subscription_t *subscription, fby_event_t *event);
int fby_local_subscription_fd(fby_subscription_t *subscription);
void fby_local_unsubscribe(fby_subscription_t *subscription);

/* Of a cache in this process. */
extern const fby_calls_t fby_local_calls;

#endif
