/* test_breaker.c - closed, open, one probe, longer back-off, closed again. */
#include "runtime/breaker.h"
#include "unit.h"

enum { BACKOFF = 100, MOST = 350 };

static fby_breaker_t fresh(void)
{
    fby_breaker_t breaker;
    fby_breaker_init(&breaker, 3, BACKOFF, MOST);
    return breaker;
}

/* Asks and tells; returns the permit. */
static fby_permit_t one_call(fby_breaker_t *breaker, bool reached, uint64_t now)
{
    fby_permit_t permit = fby_breaker_ask(breaker, now);
    if (permit != FBY_PERMIT_REFUSED) {
        fby_breaker_tell(breaker, permit, reached, now);
    }
    return permit;
}

static void failures_in_a_row_open_it(void **state)
{
    (void)state;
    fby_breaker_t breaker = fresh();
    one_call(&breaker, false, 1);
    one_call(&breaker, false, 2);
    one_call(&breaker, true, 3); /* the row is broken */
    one_call(&breaker, false, 4);
    one_call(&breaker, false, 5);
    assert_int_equal(breaker.state, FBY_BREAKER_CLOSED);
    fby_permit_t permit = fby_breaker_ask(&breaker, 6);
    assert_true(fby_breaker_tell(&breaker, permit, false, 6));
    assert_int_equal(breaker.state, FBY_BREAKER_OPEN);
    assert_int_equal(fby_breaker_ask(&breaker, 7), FBY_PERMIT_REFUSED);
    assert_int_equal(fby_breaker_wait_ns(&breaker, 7), 99);
}

static void the_first_operation_after_the_back_off_is_the_probe(void **state)
{
    (void)state;
    fby_breaker_t breaker = fresh();
    fby_breaker_trip(&breaker, 0);
    assert_int_equal(fby_breaker_ask(&breaker, 99), FBY_PERMIT_REFUSED);
    assert_int_equal(fby_breaker_ask(&breaker, 100), FBY_PERMIT_PROBE);
    assert_int_equal(breaker.state, FBY_BREAKER_PROBING);
    assert_int_equal(fby_breaker_ask(&breaker, 100), FBY_PERMIT_REFUSED);
    assert_false(fby_breaker_tell(&breaker, FBY_PERMIT_PROBE, true, 120));
    assert_int_equal(breaker.state, FBY_BREAKER_CLOSED);
    assert_int_equal(one_call(&breaker, true, 121), FBY_PERMIT_NORMAL);
}

static void a_failed_probe_opens_it_for_longer_up_to_a_limit(void **state)
{
    (void)state;
    static const uint64_t waits[] = {200, 350, 350};
    fby_breaker_t breaker = fresh();
    uint64_t now = 1000;
    fby_breaker_trip(&breaker, now);
    for (size_t i = 0; i < FBY_ARRAY_LEN(waits); i++) {
        now = breaker.retry_at;
        assert_int_equal(one_call(&breaker, false, now), FBY_PERMIT_PROBE);
        assert_int_equal(fby_breaker_wait_ns(&breaker, now), waits[i]);
    }
    now = breaker.retry_at;
    one_call(&breaker, true, now);
    fby_breaker_trip(&breaker, now);
    assert_int_equal(fby_breaker_wait_ns(&breaker, now), BACKOFF); /* a good probe forgives */
}

static void what_was_begun_before_it_opened_changes_nothing(void **state)
{
    (void)state;
    fby_breaker_t breaker = fresh();
    fby_permit_t early = fby_breaker_ask(&breaker, 0);
    fby_breaker_trip(&breaker, 1);
    uint64_t retry_at = breaker.retry_at;
    assert_false(fby_breaker_tell(&breaker, early, true, 2));
    assert_int_equal(breaker.state, FBY_BREAKER_OPEN);
    assert_false(fby_breaker_tell(&breaker, early, false, 3));
    assert_int_equal(breaker.retry_at, retry_at);
    /* and a permit that is spent never counts */
    fby_breaker_ask(&breaker, retry_at);
    assert_false(fby_breaker_tell(&breaker, FBY_PERMIT_SPENT, false, retry_at));
    assert_int_equal(breaker.state, FBY_BREAKER_PROBING);
}

static void tripping_says_whether_it_was_closed(void **state)
{
    (void)state;
    fby_breaker_t breaker = fresh();
    assert_true(fby_breaker_trip(&breaker, 0));
    assert_false(fby_breaker_trip(&breaker, 1));
    assert_int_equal(breaker.opened, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_in_a_row_open_it),
        cmocka_unit_test(the_first_operation_after_the_back_off_is_the_probe),
        cmocka_unit_test(a_failed_probe_opens_it_for_longer_up_to_a_limit),
        cmocka_unit_test(what_was_begun_before_it_opened_changes_nothing),
        cmocka_unit_test(tripping_says_whether_it_was_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
