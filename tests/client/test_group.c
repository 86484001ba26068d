/* test_group.c - ranks over a server: each with a connection of its own. */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "client/served.h"
#include "forebay/group.h"

enum { RANKS = 3, CARD_BYTES = 1024 };

typedef struct rank {
    const served_t *served;
    rig_t rig;
    uint32_t number, ranks;
    const char *dtype;
    double limit_s;
    int rc;
    fby_ranks_t formed;
    char detail[256];
} rank_t;

static int join(rank_t *rank)
{
    char card[CARD_BYTES];
    fby_card_t *made;
    size_t bytes;
    assert_int_equal(fby_card_create(rank->number, rank->ranks, 7 + rank->number, &made), 0);
    assert_int_equal(fby_card_set(made, "model.kv_dtype", rank->dtype, 0), 0);
    assert_int_equal(fby_card_encode(made, card, sizeof(card), &bytes), 0);
    fby_card_free(made);
    rank->formed.size = sizeof(rank->formed);
    return fby_group_join(rank->rig.cache, "engine", rank->number, rank->ranks, card, bytes, rank->limit_s,
                          &rank->formed);
}

static void *be_a_rank(void *arg)
{
    rank_t *rank = arg;
    served_connect(rank->served, &rank->rig, RIG_PATIENCE_S);
    rank->rc = join(rank);
    snprintf(rank->detail, sizeof(rank->detail), "%s", fby_last_error());
    return NULL;
}

/* All of them at once. */
static void join_all(const served_t *served, rank_t ranks[RANKS], const char *odd_dtype)
{
    pthread_t threads[RANKS];
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i] = (rank_t){.served = served,
                            .number = i,
                            .ranks = RANKS,
                            .dtype = i == 2 ? odd_dtype : "f16",
                            .limit_s = RIG_PATIENCE_S};
        assert_int_equal(pthread_create(&threads[i], NULL, be_a_rank, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void close_all(rank_t ranks[RANKS])
{
    for (uint32_t i = 0; i < RANKS; i++) {
        fby_cache_close(ranks[i].rig.cache, 0, NULL);
    }
}

static void messages_arrive_in_order_each_once(void **state)
{
    (void)state;
    served_t served;
    rank_t ranks[RANKS];
    char bytes[16];
    size_t n = 0;
    SERVED_OPEN(&served, NULL);
    join_all(&served, ranks, "f16");
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(ranks[i].rc, 0);
        assert_int_equal(ranks[i].formed.rank, i);
        assert_int_equal(ranks[i].formed.ranks, RANKS);
        assert_true(ranks[i].formed.incarnation != 0);
        assert_true(ranks[i].formed.incarnation == ranks[0].formed.incarnation);
    }
    assert_int_equal(fby_group_send(ranks[0].rig.cache, "first", 5), 0);
    assert_int_equal(fby_group_send(ranks[0].rig.cache, "second", 6), 0);
    assert_int_equal(fby_group_send(ranks[1].rig.cache, "no", 2), FBY_E_STATE);
    for (uint32_t i = 0; i < RANKS; i++) {
        fby_cache_t *cache = ranks[i].rig.cache;
        /* what does not fit is not lost */
        assert_int_equal(fby_group_receive(cache, bytes, 2, &n, RIG_PATIENCE_S), -ENOSPC);
        assert_int_equal(n, 5);
        assert_int_equal(fby_group_receive(cache, bytes, sizeof(bytes), &n, RIG_PATIENCE_S), 0);
        assert_int_equal(n, 5);
        assert_memory_equal(bytes, "first", 5);
        assert_int_equal(fby_group_receive(cache, bytes, sizeof(bytes), &n, 0), 0);
        assert_memory_equal(bytes, "second", 6);
        assert_int_equal(fby_group_receive(cache, bytes, sizeof(bytes), &n, 0), -ETIMEDOUT);
        assert_int_equal(fby_group_receive(cache, bytes, sizeof(bytes), &n, 0.01), -ETIMEDOUT);
    }
    close_all(ranks);
    served_close(&served);
}

static void ranks_that_differ_hear_the_same(void **state)
{
    (void)state;
    served_t served;
    rank_t ranks[RANKS];
    SERVED_OPEN(&served, NULL);
    join_all(&served, ranks, "bf16");
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(ranks[i].rc, FBY_E_CONFIG);
        assert_non_null(strstr(ranks[i].detail, "model.kv_dtype"));
        assert_string_equal(ranks[i].detail, ranks[0].detail);
    }
    close_all(ranks);
    served_close(&served);
}

static void who_waits_in_vain_hears_who_is_missing(void **state)
{
    (void)state;
    served_t served;
    SERVED_OPEN(&served, NULL);
    rank_t rank = {.served = &served, .number = 1, .ranks = RANKS, .dtype = "f16", .limit_s = 0.05};
    be_a_rank(&rank);
    assert_int_equal(rank.rc, -ETIMEDOUT);
    assert_non_null(strstr(rank.detail, "0"));
    assert_non_null(strstr(rank.detail, "2"));
    rank.number = RANKS;
    char byte = 0;
    assert_int_equal(fby_group_join(rank.rig.cache, "engine", RANKS, RANKS, &byte, 1, 1, NULL), -EINVAL);
    assert_int_equal(fby_group_join(rank.rig.cache, "", 0, RANKS, &byte, 1, 1, NULL), -EINVAL);
    assert_int_equal(fby_group_join(rank.rig.cache, NULL, 0, RANKS, &byte, 1, 1, NULL), -EINVAL);
    assert_int_equal(fby_group_join(rank.rig.cache, "engine", 0, RANKS, &byte, 1, -1, NULL), -EINVAL);
    fby_cache_close(rank.rig.cache, 0, NULL);
    served_close(&served);
}

/* A rank that is gone is told to all others, whether they ask later or wait already. */
static void *receive_for_ever(void *arg)
{
    rank_t *rank = arg;
    char bytes[16];
    size_t n = 99;
    rank->rc = fby_group_receive(rank->rig.cache, bytes, sizeof(bytes), &n, -1);
    rank->number = (uint32_t)n;
    return NULL;
}

static void a_lost_rank_is_told_to_all(void **state)
{
    (void)state;
    served_t served;
    rank_t ranks[RANKS];
    pthread_t thread;
    SERVED_OPEN(&served, NULL);
    join_all(&served, ranks, "f16");
    assert_int_equal(pthread_create(&thread, NULL, receive_for_ever, &ranks[1]), 0);
    fby_cache_close(ranks[2].rig.cache, 0, NULL);
    pthread_join(thread, NULL);
    assert_int_equal(ranks[1].rc, -ECONNRESET);
    assert_int_equal(ranks[1].number, 2);
    receive_for_ever(&ranks[0]);
    assert_int_equal(ranks[0].rc, -ECONNRESET);
    assert_int_equal(ranks[0].number, 2);
    close_all(ranks);
    served_close(&served);
}

static void waits_of_a_group_end_with_the_server(void **state)
{
    (void)state;
    served_t served;
    rank_t ranks[RANKS];
    pthread_t thread;
    char byte = 0;
    size_t n;
    SERVED_OPEN(&served, NULL);
    join_all(&served, ranks, "f16");
    assert_int_equal(pthread_create(&thread, NULL, receive_for_ever, &ranks[1]), 0);
    served_kill(&served);
    pthread_join(thread, NULL);
    assert_int_equal(ranks[1].rc, -ENOTCONN);
    assert_int_equal(fby_group_send(ranks[0].rig.cache, &byte, 1), -ENOTCONN);
    assert_int_equal(fby_group_report(ranks[0].rig.cache, &byte, 1), -ENOTCONN);
    assert_int_equal(fby_group_verdict(ranks[0].rig.cache, 1, &byte, 1, &n, -1), -ENOTCONN);
    close_all(ranks);
    served_close(&served);
}

/* The memory of a hold stays until the last rank that was granted it has finished. */
static void a_granted_hold_lasts_until_all_ranks_are_done(void **state)
{
    (void)state;
    served_t served;
    rank_t ranks[RANKS];
    fby_hold_t hold;
    SERVED_OPEN(&served, NULL);
    join_all(&served, ranks, "f16");
    rig_t *leader = &ranks[0].rig;
    fby_seq_t *seq = rig_seq(leader, 1, 40);
    rig_put_stored(leader, seq, 2);
    assert_int_equal(fby_lookup(leader->cache, seq, 0, &hold, NULL), 0);
    assert_int_equal(fby_group_grant_hold(leader->cache, hold), 0);
    assert_int_equal(fby_hold_release(leader->cache, hold), 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(rig_stats(leader).holds_gauge, 1);
        assert_int_equal(fby_group_done(ranks[i].rig.cache, hold), 0);
        assert_int_equal(fby_group_done(ranks[i].rig.cache, hold), FBY_E_STALE);
    }
    assert_int_equal(rig_stats(leader).holds_gauge, 0);
    fby_seq_unref(seq);
    close_all(ranks);
    served_close(&served);
}

static void a_cache_of_this_process_has_no_group(void **state)
{
    (void)state;
    rig_t rig;
    char byte = 0;
    size_t n;
    RIG_OPEN(&rig, NULL);
    assert_int_equal(fby_group_join(rig.cache, "engine", 0, 1, &byte, 1, 1, NULL), FBY_E_STATE);
    assert_int_equal(fby_group_send(rig.cache, &byte, 1), FBY_E_STATE);
    assert_int_equal(fby_group_receive(rig.cache, &byte, 1, &n, 0), FBY_E_STATE);
    assert_int_equal(fby_group_done(rig.cache, 5), FBY_E_STATE);
    assert_int_equal(fby_group_done(NULL, 5), -EINVAL);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_order_each_once),
        cmocka_unit_test(ranks_that_differ_hear_the_same),
        cmocka_unit_test(who_waits_in_vain_hears_who_is_missing),
        cmocka_unit_test(a_lost_rank_is_told_to_all),
        cmocka_unit_test(waits_of_a_group_end_with_the_server),
        cmocka_unit_test(a_granted_hold_lasts_until_all_ranks_are_done),
        cmocka_unit_test(a_cache_of_this_process_has_no_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
