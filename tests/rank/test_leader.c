#include "group_rig.h"

static fby_leader_t *leader_of(uint32_t ranks, uint32_t window)
{
    fby_leader_t *leader = NULL;
    fby_ranks_t group = rig_ranks(0, ranks);
    group.window = window;
    assert_int_equal(fby_leader_create(&group, &leader), 0);
    return leader;
}

static int decide(fby_leader_t *leader, uint32_t kind)
{
    const fby_decision_t decision = {.size = sizeof(decision), .kind = kind};
    return fby_leader_decide(leader, &decision, NULL);
}

static void test_decisions_are_numbered_without_gaps(void **state)
{
    (void)state;
    fby_leader_t *leader = leader_of(2, 0);
    assert_int_equal(fby_leader_next(leader), 1);
    for (uint64_t i = 1; i <= 5; i++) {
        assert_int_equal(rig_decide(leader, FBY_DECISION_LOAD, i), i);
    }
    assert_int_equal(fby_leader_next(leader), 6);
    fby_leader_free(leader);
    fby_leader_free(NULL);
    fby_ranks_t later = rig_ranks(0, 2);
    later.first_number = 100;
    assert_int_equal(fby_leader_create(&later, &leader), 0);
    assert_int_equal(rig_decide(leader, FBY_DECISION_STOP, 0), 100);
    fby_leader_free(leader);
}

static void test_a_refused_decision_takes_no_number(void **state)
{
    (void)state;
    fby_leader_t *leader = leader_of(1, 0);
    uint64_t number = 77;
    const fby_decision_t bad = {.size = sizeof(bad), .kind = 9};
    assert_int_equal(fby_leader_decide(leader, &bad, &number), -EINVAL);
    assert_int_equal(number, 77);
    assert_int_equal(rig_decide(leader, FBY_DECISION_STOP, 0), 1);
    fby_leader_free(leader);
}

static void test_a_step_with_nothing_new_costs_no_message(void **state)
{
    (void)state;
    fby_leader_t *leader = leader_of(2, 0);
    size_t needed = 77;
    uint64_t next = 0;
    assert_int_equal(fby_leader_encode(leader, 1, NULL, 0, &needed, &next), 0);
    assert_int_equal(needed, 0);
    assert_int_equal(next, 1);
    rig_decide(leader, FBY_DECISION_LOAD, 0);
    assert_int_equal(fby_leader_encode(leader, 2, NULL, 0, &needed, &next), 0);
    assert_int_equal(needed, 0);
    assert_int_equal(next, 2);
    fby_leader_free(leader);
}

static void test_one_message_holds_what_is_new(void **state)
{
    (void)state;
    fby_leader_t *leader = leader_of(4, 0);
    for (uint64_t i = 1; i <= 5; i++) {
        rig_decide(leader, FBY_DECISION_LOAD, i);
    }
    rig_message_t message = rig_decisions(leader, 3);
    fby_message_t about = {.size = sizeof(about)};
    assert_int_equal(fby_message_parse(message.bytes, message.length, &about), 0);
    assert_int_equal(about.type, FBY_MESSAGE_DECISIONS);
    assert_int_equal(about.rank, FBY_NO_RANK);
    assert_int_equal(about.ranks, 4);
    assert_int_equal(about.incarnation, 0xABCDEF);
    assert_int_equal(about.number, 3);
    assert_int_equal(about.count, 3);
    rig_message_free(&message);
    fby_leader_free(leader);
}

static void test_a_small_channel_gets_several_messages(void **state)
{
    (void)state;
    fby_leader_t *leader = leader_of(1, 0);
    fby_follower_t *follower = NULL;
    const fby_ranks_t group = rig_ranks(0, 1);
    uint8_t buffer[200];
    size_t needed = 0;
    uint64_t messages = 0;
    assert_int_equal(fby_follower_create(&group, &follower), 0);
    for (uint64_t i = 1; i <= 20; i++) {
        rig_decide(leader, FBY_DECISION_STOP, i);
    }
    assert_int_equal(fby_leader_encode(leader, 1, buffer, 60, &needed, NULL), -ENOSPC);
    rig_message_t all = rig_decisions(leader, 1);
    assert_int_equal(needed, all.length);
    rig_message_free(&all);
    for (uint64_t from = 1; from < fby_leader_next(leader); messages++) {
        const uint64_t before = from;
        assert_int_equal(fby_leader_encode(leader, from, buffer, sizeof(buffer), &needed, &from), 0);
        assert_true(from > before && needed <= sizeof(buffer));
        assert_int_equal(fby_follower_receive(follower, buffer, needed), 0);
    }
    assert_true(messages > 2 && messages < 20);
    for (uint64_t i = 1; i <= 20; i++) {
        fby_decision_t decision = {.size = sizeof(decision)};
        assert_int_equal(fby_follower_next(follower, &decision), 0);
        assert_int_equal(decision.tag, i);
    }
    fby_follower_free(follower);
    fby_leader_free(leader);
}

static void test_what_all_ranks_have_is_forgotten(void **state)
{
    (void)state;
    fby_leader_t *leader = leader_of(3, 0);
    for (uint64_t i = 1; i <= 5; i++) {
        rig_decide(leader, FBY_DECISION_LOAD, i);
    }
    assert_int_equal(fby_leader_acknowledge(leader, 0, 5), 0);
    assert_int_equal(fby_leader_acknowledge(leader, 1, 3), 0);
    rig_message_t message = rig_decisions(leader, 1); /* rank 2 has none */
    rig_message_free(&message);
    assert_int_equal(fby_leader_acknowledge(leader, 2, 4), 0);
    assert_int_equal(fby_leader_encode(leader, 3, NULL, 0, NULL, NULL), FBY_E_STALE);
    assert_string_equal(fby_last_error(), "decision 3 is forgotten; the log begins with 4");
    message = rig_decisions(leader, 4);
    rig_message_free(&message);
    assert_int_equal(fby_leader_acknowledge(leader, 2, 1), 0); /* an old one that comes late takes nothing back */
    assert_int_equal(fby_leader_acknowledge(leader, 1, 5), 0);
    assert_int_equal(fby_leader_encode(leader, 4, NULL, 0, NULL, NULL), FBY_E_STALE);
    message = rig_decisions(leader, 5);
    rig_message_free(&message);
    assert_int_equal(fby_leader_acknowledge(leader, 1, 6), -EINVAL);
    assert_int_equal(fby_leader_acknowledge(leader, 3, 1), -EINVAL);
    assert_int_equal(fby_leader_encode(leader, 7, NULL, 0, NULL, NULL), -EINVAL);
    fby_leader_free(leader);
}

static void test_a_slow_rank_is_named_when_the_window_is_full(void **state)
{
    (void)state;
    fby_leader_t *leader = leader_of(4, 8);
    for (uint64_t i = 1; i <= 8; i++) {
        rig_decide(leader, FBY_DECISION_STOP, i);
    }
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_int_equal(fby_leader_acknowledge(leader, rank, rank == 2 ? 3 : 8), 0);
    }
    for (uint64_t i = 9; i <= 11; i++) {
        assert_int_equal(rig_decide(leader, FBY_DECISION_STOP, i), i);
    }
    assert_int_equal(decide(leader, FBY_DECISION_STOP), FBY_E_BUDGET);
    rig_assert_detail("the log holds 8 decisions (at most 8)");
    rig_assert_detail("rank 2 acknowledged up to 3 of 11");
    assert_int_equal(fby_leader_next(leader), 12);
    assert_int_equal(fby_leader_acknowledge(leader, 2, 4), 0);
    assert_int_equal(rig_decide(leader, FBY_DECISION_STOP, 0), 12);
    fby_leader_free(leader);
}

static void test_the_window_is_bounded_in_bytes_too(void **state)
{
    (void)state;
    fby_leader_t *leader = NULL;
    fby_ranks_t group = rig_ranks(0, 1);
    uint8_t extra[FBY_DECISION_EXTRA] = {0};
    group.window_bytes = 3000;
    assert_int_equal(fby_leader_create(&group, &leader), 0);
    const fby_decision_t decision = {
        .size = sizeof(decision), .kind = FBY_DECISION_STOP, .extra = extra, .extra_bytes = sizeof(extra)};
    assert_int_equal(fby_leader_decide(leader, &decision, NULL), 0);
    assert_int_equal(fby_leader_decide(leader, &decision, NULL), 0);
    assert_int_equal(fby_leader_decide(leader, &decision, NULL), FBY_E_BUDGET);
    rig_assert_detail("(at most 3000): rank 0 acknowledged up to 0 of 2");
    assert_int_equal(fby_leader_acknowledge(leader, 0, 1), 0);
    assert_int_equal(fby_leader_decide(leader, &decision, NULL), 0);
    fby_leader_free(leader);
    group.window_bytes = 1000;
    assert_int_equal(fby_leader_create(&group, &leader), 0);
    assert_int_equal(fby_leader_decide(leader, &decision, NULL), -EINVAL);
    fby_leader_free(leader);
}

static void test_after_the_loss_of_a_rank_nothing_is_loaded(void **state)
{
    (void)state;
    fby_leader_t *leader = leader_of(3, 2);
    rig_decide(leader, FBY_DECISION_LOAD, 0);
    rig_decide(leader, FBY_DECISION_LOAD, 0);
    assert_int_equal(fby_leader_acknowledge(leader, 0, 2), 0);
    assert_int_equal(fby_leader_acknowledge(leader, 2, 2), 0);
    assert_int_equal(decide(leader, FBY_DECISION_STOP), FBY_E_BUDGET);
    assert_int_equal(fby_leader_lost(leader, 1), 0); /* the log does not wait for it any more */
    assert_int_equal(decide(leader, FBY_DECISION_LOAD), -ECONNRESET);
    assert_string_equal(fby_last_error(), "load: rank 1 is lost; exchange cards again");
    assert_int_equal(decide(leader, FBY_DECISION_SAVE), -ECONNRESET);
    assert_int_equal(decide(leader, FBY_DECISION_RELEASE), 0);
    assert_int_equal(decide(leader, FBY_DECISION_STOP), 0);
    assert_int_equal(fby_leader_lost(leader, 3), -EINVAL);
    assert_int_equal(fby_leader_lost(leader, 0), 0);
    assert_int_equal(fby_leader_lost(leader, 2), 0);
    assert_int_equal(decide(leader, FBY_DECISION_END), 0); /* for nobody */
    fby_leader_free(leader);
}

static void test_nothing_follows_the_end(void **state)
{
    (void)state;
    fby_leader_t *leader = leader_of(1, 0);
    rig_decide(leader, FBY_DECISION_END, 0);
    assert_int_equal(decide(leader, FBY_DECISION_STOP), FBY_E_STATE);
    assert_string_equal(fby_last_error(), "the log ended with decision 1");
    fby_leader_free(leader);
}

static void acknowledge(fby_leader_t *leader, fby_follower_t *follower)
{
    uint8_t buffer[64];
    size_t needed = 0;
    assert_int_equal(fby_follower_acknowledge(follower, buffer, sizeof(buffer), &needed), 0);
    assert_true(needed == 0 || fby_leader_receive(leader, buffer, needed, NULL, NULL) == 0);
}

/* Ranks that drift: each takes in what came whenever it likes to. The traffic and the log are the same for all. */
static void test_ten_thousand_steps_cost_the_same_messages_on_all_ranks(void **state)
{
    (void)state;
    enum { RANKS = 4, STEPS = 10000, MOST_OPEN = 100 };
    fby_leader_t *leader = leader_of(RANKS, MOST_OPEN);
    fby_follower_t *follower[RANKS];
    uint64_t random = 11, from = 1, messages = 0, quiet = 0, applied[RANKS] = {0}, tags[RANKS] = {0};
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        fby_ranks_t group = rig_ranks(rank, RANKS);
        group.window = MOST_OPEN;
        assert_int_equal(fby_follower_create(&group, &follower[rank]), 0);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        uint8_t buffer[4096];
        size_t needed = 0;
        for (uint32_t n = unit_below(&random, 8) < 5 ? 0 : unit_below(&random, 3); n > 0; n--) {
            rig_decide(leader, FBY_DECISION_RELEASE + unit_below(&random, 3), unit_random(&random));
        }
        assert_int_equal(fby_leader_encode(leader, from, buffer, sizeof(buffer), &needed, &from), 0);
        assert_int_equal(from, fby_leader_next(leader)); /* one message a step, or none */
        messages += needed > 0;
        quiet += needed == 0;
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            fby_decision_t decision = {.size = sizeof(decision)};
            assert_true(needed == 0 || fby_follower_receive(follower[rank], buffer, needed) == 0);
            while ((unit_below(&random, 4) != 0 || step % 10 == 9) &&
                   fby_follower_next(follower[rank], &decision) == 0) {
                applied[rank]++;
                tags[rank] = tags[rank] * 31 + decision.tag;
            }
            acknowledge(leader, follower[rank]);
        }
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(applied[rank], fby_leader_next(leader) - 1);
        assert_int_equal(tags[rank], tags[0]);
        fby_follower_free(follower[rank]);
    }
    assert_true(messages > 1000 && quiet > 5000 && messages + quiet == STEPS);
    fby_leader_free(leader);
}

static void test_acknowledgements_come_as_messages(void **state)
{
    (void)state;
    fby_leader_t *leader = leader_of(2, 0);
    fby_follower_t *follower = NULL;
    const fby_ranks_t group = rig_ranks(1, 2);
    uint8_t buffer[64];
    size_t needed = 0;
    uint32_t rank = 0;
    uint64_t number = 0;
    assert_int_equal(fby_follower_create(&group, &follower), 0);
    assert_int_equal(fby_follower_acknowledge(follower, NULL, 0, &needed), 0);
    assert_int_equal(needed, 0); /* nothing to say */
    rig_decide(leader, FBY_DECISION_LOAD, 0);
    rig_decide(leader, FBY_DECISION_LOAD, 0);
    rig_message_t message = rig_decisions(leader, 1);
    assert_int_equal(fby_follower_receive(follower, message.bytes, message.length), 0);
    assert_int_equal(fby_follower_acknowledge(follower, buffer, 10, &needed), -ENOSPC);
    assert_int_equal(fby_follower_acknowledge(follower, buffer, sizeof(buffer), &needed), 0);
    assert_int_equal(fby_leader_receive(leader, buffer, needed, &rank, &number), 0);
    assert_int_equal(rank, 1);
    assert_int_equal(number, 2);
    for (size_t bit = 0; bit < 8 * needed; bit++) {
        buffer[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int rc = fby_leader_receive(leader, buffer, needed, NULL, NULL);
        assert_true(rc == FBY_E_FORMAT || rc == FBY_E_CHECKSUM);
        buffer[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(fby_follower_acknowledge(follower, buffer, sizeof(buffer), &needed), 0);
    assert_int_equal(needed, 0); /* said already */
    assert_int_equal(fby_leader_receive(leader, message.bytes, message.length, NULL, NULL), FBY_E_FORMAT);
    rig_assert_detail("decisions of the leader, where acknowledgement is expected");
    rig_message_free(&message);
    fby_follower_free(follower);
    fby_leader_free(leader);
}

static void test_acknowledgements_of_another_incarnation_are_refused(void **state)
{
    (void)state;
    fby_leader_t *leader = leader_of(2, 0), *old = NULL;
    fby_follower_t *follower = NULL;
    fby_ranks_t group = rig_ranks(1, 2);
    uint8_t buffer[64];
    size_t needed = 0;
    group.incarnation = 5;
    assert_int_equal(fby_follower_create(&group, &follower), 0);
    assert_int_equal(fby_leader_create(&group, &old), 0);
    rig_decide(old, FBY_DECISION_STOP, 0);
    rig_message_t message = rig_decisions(old, 1);
    assert_int_equal(fby_follower_receive(follower, message.bytes, message.length), 0);
    assert_int_equal(fby_follower_acknowledge(follower, buffer, sizeof(buffer), &needed), 0);
    assert_int_equal(fby_leader_receive(leader, buffer, needed, NULL, NULL), FBY_E_STALE);
    assert_string_equal(fby_last_error(), "acknowledgement of rank 1 is of incarnation 0000000000000005; this group's "
                                          "is 0000000000abcdef");
    rig_message_free(&message);
    fby_follower_free(follower);
    fby_leader_free(old);
    fby_leader_free(leader);
}

static void test_wrong_groups_are_named(void **state)
{
    (void)state;
    fby_leader_t *leader = NULL;
    fby_ranks_t group = rig_ranks(9, 2); /* a leader is no rank */
    assert_int_equal(fby_leader_create(&group, &leader), 0);
    fby_leader_free(leader);
    group.incarnation = 0;
    assert_int_equal(fby_leader_create(&group, &leader), -EINVAL);
    rig_assert_detail("ranks.incarnation is 0;");
    group = rig_ranks(0, 65537);
    assert_int_equal(fby_leader_create(&group, &leader), -EINVAL);
    group = rig_ranks(0, 1);
    group.window = 65537;
    assert_int_equal(fby_leader_create(&group, &leader), -EINVAL);
    group = rig_ranks(0, 1);
    group.size = 4;
    assert_int_equal(fby_leader_create(&group, &leader), -EINVAL);
    assert_int_equal(fby_leader_create(NULL, &leader), -EINVAL);
    assert_int_equal(fby_leader_decide(NULL, NULL, NULL), -EINVAL);
    assert_int_equal(fby_leader_next(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decisions_are_numbered_without_gaps),
        cmocka_unit_test(test_a_refused_decision_takes_no_number),
        cmocka_unit_test(test_a_step_with_nothing_new_costs_no_message),
        cmocka_unit_test(test_one_message_holds_what_is_new),
        cmocka_unit_test(test_a_small_channel_gets_several_messages),
        cmocka_unit_test(test_what_all_ranks_have_is_forgotten),
        cmocka_unit_test(test_a_slow_rank_is_named_when_the_window_is_full),
        cmocka_unit_test(test_the_window_is_bounded_in_bytes_too),
        cmocka_unit_test(test_after_the_loss_of_a_rank_nothing_is_loaded),
        cmocka_unit_test(test_nothing_follows_the_end),
        cmocka_unit_test(test_ten_thousand_steps_cost_the_same_messages_on_all_ranks),
        cmocka_unit_test(test_acknowledgements_come_as_messages),
        cmocka_unit_test(test_acknowledgements_of_another_incarnation_are_refused),
        cmocka_unit_test(test_wrong_groups_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
