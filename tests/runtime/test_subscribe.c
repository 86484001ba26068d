/* test_subscribe.c - the ring behind a subscription: order, overflow, and when somebody must be told. */
#include <poll.h>

#include "runtime/subscribe.h"
#include "unit.h"

static fby_event_t numbered(uint64_t block)
{
    return (fby_event_t){.type = FBY_EVENT_PUBLISHED, .block = block};
}

static void events_come_out_in_order(void **state)
{
    (void)state;
    fby_subscription_t *ring;
    fby_event_t event;
    assert_int_equal(fby_subscription_create(NULL, 3, &ring), 0);
    assert_false(fby_subscription_pop(ring, &event));
    for (uint64_t i = 0; i < 30; i += 2) {
        event = numbered(i);
        assert_true(fby_subscription_push(ring, &event)); /* was empty: tell */
        event = numbered(i + 1);
        assert_false(fby_subscription_push(ring, &event));
        for (uint64_t k = 0; k < 2; k++) {
            assert_true(fby_subscription_pop(ring, &event));
            assert_int_equal(event.block, i + k);
        }
    }
    assert_false(fby_subscription_waiting(ring));
    fby_subscription_unref(ring);
}

static void the_oldest_give_way_and_are_counted(void **state)
{
    (void)state;
    fby_subscription_t *ring;
    fby_event_t event;
    assert_int_equal(fby_subscription_create(NULL, 2, &ring), 0);
    for (uint64_t i = 0; i < 7; i++) {
        event = numbered(i);
        fby_subscription_push(ring, &event);
    }
    assert_true(fby_subscription_pop(ring, &event));
    assert_int_equal(event.type, FBY_EVENT_LOST);
    assert_int_equal(event.block, 5);
    for (uint64_t i = 5; i < 7; i++) {
        assert_true(fby_subscription_pop(ring, &event));
        assert_int_equal(event.block, i);
    }
    assert_false(fby_subscription_pop(ring, &event));
    fby_subscription_unref(ring);
}

static void the_descriptor_is_a_level(void **state)
{
    (void)state;
    fby_subscription_t *ring;
    assert_int_equal(fby_subscription_create(NULL, 2, &ring), 0);
    struct pollfd one = {.fd = ring->fd, .events = POLLIN};
    assert_int_equal(poll(&one, 1, 0), 0);
    fby_subscription_signal(ring);
    fby_subscription_signal(ring);
    assert_int_equal(poll(&one, 1, 0), 1);
    fby_subscription_quiet(ring);
    assert_int_equal(poll(&one, 1, 0), 0);
    fby_subscription_quiet(ring); /* nothing to read: never blocks */
    fby_subscription_unref(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_out_in_order),
        cmocka_unit_test(the_oldest_give_way_and_are_counted),
        cmocka_unit_test(the_descriptor_is_a_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
