/* test_events.c - subscriptions: what happens to blocks and sessions, in order, and what did not fit. */
#include <errno.h>
#include <poll.h>

#include "api/rig.h"

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, timeout_ms) == 1;
}

static fby_event_t next_event(fby_subscription_t *subscription)
{
    fby_event_t event = {.size = sizeof(event)};
    int rc;
    while ((rc = fby_subscription_next(subscription, &event)) == -EAGAIN) {
        assert_true(is_readable(fby_subscription_fd(subscription), 20000));
    }
    assert_int_equal(rc, 0);
    return event;
}

/* I08: 40 blocks are added by prefetch and put, removals match, the set equals what is resident. */
static void every_publication_and_removal_is_told(void **state)
{
    (void)state;
    rig_t rig;
    fby_subscription_t *subscription;
    RIG_OPEN(&rig, NULL);
    assert_int_equal(fby_subscribe(rig.cache, 1000, &subscription), 0);
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS), *p8 = rig_seq(&rig, 2, 8 * 16 + 1);
    rig_store_blocks(&rig, p32, 0, 32);
    fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    rig_wait(&rig, session);
    for (uint64_t block = 0; block < 32; block++) {
        fby_event_t event = next_event(subscription);
        assert_int_equal(event.type, FBY_EVENT_PUBLISHED);
        assert_int_equal(event.block, block);
    }
    fby_event_t event = next_event(subscription);
    assert_int_equal(event.type, FBY_EVENT_SESSION);
    assert_int_equal(event.session, session);
    assert_int_equal(event.result.outcome, FBY_OUTCOME_COMPLETE);
    assert_int_equal(event.result.delivered_tokens, 512);
    fby_session_release(rig.cache, session);

    rig_put_stored(&rig, p8, 8);
    for (uint64_t block = 0; block < 8; block++) {
        assert_int_equal(next_event(subscription).type, FBY_EVENT_PUBLISHED);
    }
    assert_false(is_readable(fby_subscription_fd(subscription), 0));
    assert_int_equal(rig_stats(&rig).blocks_published, 40);

    assert_int_equal(fby_cache_reset(rig.cache, RIG_PATIENCE_S, 0), FBY_RESET_DONE);
    assert_int_equal(next_event(subscription).type, FBY_EVENT_RESET);
    uint64_t removed = 0;
    while (removed < 40) {
        assert_int_equal(next_event(subscription).type, FBY_EVENT_REMOVED);
        removed++;
    }
    assert_int_equal(fby_subscription_next(subscription, &event), -EAGAIN);
    fby_unsubscribe(subscription);
    fby_seq_unref(p32);
    fby_seq_unref(p8);
    rig_close(&rig);
}

static void an_overflow_says_how_many_were_lost(void **state)
{
    (void)state;
    rig_t rig;
    fby_subscription_t *subscription;
    RIG_OPEN(&rig, NULL);
    assert_int_equal(fby_subscribe(rig.cache, 10, &subscription), 0);
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_put_stored(&rig, p32, 32);
    fby_event_t event = next_event(subscription);
    assert_int_equal(event.type, FBY_EVENT_LOST);
    assert_int_equal(event.block, 22);
    for (uint64_t block = 22; block < 32; block++) {
        event = next_event(subscription);
        assert_int_equal(event.type, FBY_EVENT_PUBLISHED);
        assert_int_equal(event.block, block);
    }
    fby_unsubscribe(subscription);
    fby_seq_unref(p32);
    rig_close(&rig);
}

static void a_subscription_outlives_its_cache(void **state)
{
    (void)state;
    rig_t rig;
    fby_subscription_t *subscription;
    fby_event_t event = {.size = sizeof(event)};
    RIG_OPEN(&rig, NULL);
    assert_int_equal(fby_subscribe(rig.cache, 10, &subscription), 0);
    rig_close(&rig);
    assert_true(is_readable(fby_subscription_fd(subscription), 0));
    assert_int_equal(fby_subscription_next(subscription, &event), FBY_E_CLOSED);
    fby_unsubscribe(subscription);
}

static void bad_subscriptions_are_refused(void **state)
{
    (void)state;
    rig_t rig;
    fby_subscription_t *some[33] = {0};
    RIG_OPEN(&rig, NULL);
    assert_int_equal(fby_subscribe(rig.cache, 0, &some[0]), -EINVAL);
    assert_int_equal(fby_subscribe(rig.cache, 1, NULL), -EINVAL);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(fby_subscribe(rig.cache, 1, &some[i]), 0);
    }
    assert_int_equal(fby_subscribe(rig.cache, 1, &some[32]), -EBUSY);
    fby_unsubscribe(some[5]);
    assert_int_equal(fby_subscribe(rig.cache, 1, &some[5]), 0);
    for (int i = 0; i < 32; i++) {
        fby_unsubscribe(some[i]);
    }
    fby_unsubscribe(NULL);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_publication_and_removal_is_told),
        cmocka_unit_test(an_overflow_says_how_many_were_lost),
        cmocka_unit_test(a_subscription_outlives_its_cache),
        cmocka_unit_test(bad_subscriptions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
