#include "group_rig.h"

enum { LOGGED = 5, WINDOW = 8 };

/* A leader with some decisions, one message for each, and a follower. */
typedef struct pair {
    fby_leader_t *leader;
    fby_follower_t *follower;
    rig_message_t message[LOGGED + 1]; /* by number */
} pair_t;

static void pair_open(pair_t *pair)
{
    fby_ranks_t group = rig_ranks(1, 2);
    group.window = WINDOW;
    *pair = (pair_t){0};
    assert_int_equal(fby_leader_create(&group, &pair->leader), 0);
    assert_int_equal(fby_follower_create(&group, &pair->follower), 0);
    for (uint64_t i = 1; i <= LOGGED; i++) {
        rig_decide(pair->leader, FBY_DECISION_LOAD, 100 + i);
    }
    for (uint64_t i = 1; i <= LOGGED; i++) {
        pair->message[i] = rig_one_decision(pair->leader, i);
    }
}

static void pair_close(pair_t *pair)
{
    for (uint64_t i = 1; i <= LOGGED; i++) {
        rig_message_free(&pair->message[i]);
    }
    fby_leader_free(pair->leader);
    fby_follower_free(pair->follower);
}

static int receive(fby_follower_t *follower, const rig_message_t *message)
{
    return fby_follower_receive(follower, message->bytes, message->length);
}

static uint64_t next_number(fby_follower_t *follower, int *rc)
{
    fby_decision_t decision = {.size = sizeof(decision)};
    *rc = fby_follower_next(follower, &decision);
    return *rc == 0 ? decision.number : 0;
}

static void expect_next(fby_follower_t *follower, uint64_t number)
{
    int rc;
    assert_int_equal(next_number(follower, &rc), number);
    assert_int_equal(rc, 0);
}

static void expect_missing(fby_follower_t *follower, uint64_t from, uint64_t to)
{
    uint64_t seen_from = 0, seen_to = 0;
    assert_int_equal(fby_follower_missing(follower, &seen_from, &seen_to), 0);
    assert_int_equal(seen_from, from);
    assert_int_equal(seen_to, to);
}

static fby_result_t result_of(uint64_t number, int code)
{
    return (fby_result_t){.size = sizeof(fby_result_t), .number = number, .code = code};
}

/* ---- Order ------------------------------------------------------------------------------------------------------- */

static void test_a_decision_arrives_as_it_was_made(void **state)
{
    (void)state;
    uint64_t random = 7;
    fby_leader_t *leader = NULL;
    fby_follower_t *follower = NULL;
    const fby_ranks_t group = rig_ranks(0, 1);
    assert_int_equal(fby_leader_create(&group, &leader), 0);
    assert_int_equal(fby_follower_create(&group, &follower), 0);
    for (uint64_t i = 1; i <= 200; i++) {
        rig_decision_t made;
        fby_decision_t came = {.size = sizeof(came)};
        uint64_t number = 0;
        rig_decision_random(&made, &random);
        assert_int_equal(fby_leader_decide(leader, &made.decision, &number), 0);
        rig_message_t message = rig_decisions(leader, number);
        assert_int_equal(receive(follower, &message), 0);
        rig_message_free(&message);
        assert_int_equal(fby_follower_next(follower, &came), 0);
        assert_int_equal(came.number, i);
        rig_decisions_equal(&made.decision, &came);
        rig_decision_free(&made);
    }
    fby_follower_free(follower);
    fby_leader_free(leader);
}

/* order: LOGGED numbers. Between any two arrivals the follower gives out whatever is next. */
static void arrive_in_order(const uint64_t *order, bool drain_between, bool twice)
{
    pair_t pair;
    uint64_t expected = 1;
    int rc;
    pair_open(&pair);
    for (uint32_t i = 0; i < LOGGED; i++) {
        assert_int_equal(receive(pair.follower, &pair.message[order[i]]), 0);
        if (twice) {
            assert_int_equal(receive(pair.follower, &pair.message[order[i / 2]]), 0);
        }
        for (uint64_t number; drain_between && (number = next_number(pair.follower, &rc)) != 0;) {
            assert_int_equal(number, expected++);
        }
    }
    while (expected <= LOGGED) {
        expect_next(pair.follower, expected++);
    }
    assert_int_equal(next_number(pair.follower, &rc), 0);
    assert_int_equal(rc, -EAGAIN);
    pair_close(&pair);
}

static void each_permutation(uint64_t *order, uint32_t fixed)
{
    if (fixed == LOGGED) {
        for (uint32_t how = 0; how < 4; how++) {
            arrive_in_order(order, (how & 1) != 0, (how & 2) != 0);
        }
        return;
    }
    for (uint32_t i = fixed; i < LOGGED; i++) {
        const uint64_t first = order[fixed];
        order[fixed] = order[i];
        order[i] = first;
        each_permutation(order, fixed + 1);
        order[i] = order[fixed];
        order[fixed] = first;
    }
}

static void test_every_order_of_arrival_gives_the_same_log_once(void **state)
{
    (void)state;
    uint64_t order[LOGGED];
    for (uint32_t i = 0; i < LOGGED; i++) {
        order[i] = i + 1;
    }
    each_permutation(order, 0);
}

static void test_a_gap_is_named(void **state)
{
    (void)state;
    pair_t pair;
    int rc;
    pair_open(&pair);
    expect_missing(pair.follower, 1, 1);
    assert_int_equal(receive(pair.follower, &pair.message[5]), 0);
    expect_missing(pair.follower, 1, 5);
    assert_int_equal(receive(pair.follower, &pair.message[1]), 0);
    assert_int_equal(receive(pair.follower, &pair.message[3]), 0);
    expect_missing(pair.follower, 2, 3);
    expect_next(pair.follower, 1);
    assert_int_equal(next_number(pair.follower, &rc), 0);
    assert_int_equal(rc, -ENODATA);
    assert_string_equal(fby_last_error(), "decisions 2 to 2 are missing, and 5 is known of");
    assert_int_equal(receive(pair.follower, &pair.message[2]), 0);
    expect_missing(pair.follower, 4, 5);
    assert_int_equal(receive(pair.follower, &pair.message[4]), 0);
    expect_missing(pair.follower, 6, 6);
    pair_close(&pair);
}

static void test_a_gap_is_asked_for_until_it_came(void **state)
{
    (void)state;
    pair_t pair;
    uint8_t buffer[64];
    size_t needed = 0;
    uint64_t has = 0;
    pair_open(&pair);
    assert_int_equal(receive(pair.follower, &pair.message[3]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fby_follower_acknowledge(pair.follower, buffer, sizeof(buffer), &needed), 0);
        assert_int_equal(fby_leader_receive(pair.leader, buffer, needed, NULL, &has), 0);
        assert_int_equal(has, 0);
    }
    rig_message_t again = rig_decisions(pair.leader, has + 1);
    assert_int_equal(receive(pair.follower, &again), 0);
    rig_message_free(&again);
    assert_int_equal(fby_follower_acknowledge(pair.follower, buffer, sizeof(buffer), &needed), 0);
    assert_int_equal(fby_leader_receive(pair.leader, buffer, needed, NULL, &has), 0);
    assert_int_equal(has, LOGGED);
    pair_close(&pair);
}

static void test_a_slow_rank_keeps_no_more_than_its_window(void **state)
{
    (void)state;
    pair_t pair;
    uint8_t buffer[64];
    size_t needed = 0;
    pair_open(&pair);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(fby_leader_acknowledge(pair.leader, rank, LOGGED), 0);
    }
    for (uint64_t i = 6; i <= 12; i++) {
        rig_decide(pair.leader, FBY_DECISION_STOP, i);
    }
    rig_message_t late = rig_decisions(pair.leader, 6);
    assert_int_equal(receive(pair.follower, &late), FBY_E_BUDGET);
    rig_assert_detail("decision 9 is beyond the window: 1 is the next to apply, 8 decisions");
    for (uint64_t i = 1; i <= 5; i++) {
        assert_int_equal(receive(pair.follower, &pair.message[i]), 0);
    }
    expect_missing(pair.follower, 9, 13);
    assert_int_equal(fby_follower_acknowledge(pair.follower, buffer, sizeof(buffer), &needed), 0);
    for (uint64_t i = 1; i <= 8; i++) {
        expect_next(pair.follower, i);
    }
    assert_int_equal(receive(pair.follower, &late), 0);
    for (uint64_t i = 9; i <= 12; i++) {
        expect_next(pair.follower, i);
    }
    rig_message_free(&late);
    pair_close(&pair);
}

static void test_bytes_are_bounded_but_the_next_decision_is_always_taken(void **state)
{
    (void)state;
    fby_follower_t *follower = NULL;
    pair_t pair;
    fby_ranks_t group = rig_ranks(1, 2);
    group.window_bytes = 60; /* one decision of this test takes about 40 */
    pair_open(&pair);
    assert_int_equal(fby_follower_create(&group, &follower), 0);
    assert_int_equal(receive(follower, &pair.message[3]), 0);
    assert_int_equal(receive(follower, &pair.message[2]), FBY_E_BUDGET);
    assert_int_equal(receive(follower, &pair.message[1]), 0);
    expect_next(follower, 1);
    expect_missing(follower, 2, 3);
    assert_int_equal(receive(follower, &pair.message[2]), 0);
    expect_next(follower, 2);
    expect_next(follower, 3);
    fby_follower_free(follower);
    pair_close(&pair);
}

static void test_the_log_ends(void **state)
{
    (void)state;
    pair_t pair;
    int rc;
    pair_open(&pair);
    rig_decide(pair.leader, FBY_DECISION_END, 0);
    rig_message_t all = rig_decisions(pair.leader, 1);
    assert_int_equal(receive(pair.follower, &all), 0);
    for (uint64_t i = 1; i <= 6; i++) {
        expect_next(pair.follower, i);
    }
    assert_int_equal(next_number(pair.follower, &rc), 0);
    assert_int_equal(rc, FBY_E_STATE);
    assert_string_equal(fby_last_error(), "the log ended with decision 6");
    rig_message_free(&all);
    pair_close(&pair);
}

/* ---- Bad messages ------------------------------------------------------------------------------------------------ */

static void test_a_message_that_is_cut_anywhere_is_refused(void **state)
{
    (void)state;
    pair_t pair;
    pair_open(&pair);
    rig_message_t all = rig_decisions(pair.leader, 1);
    for (size_t cut = 0; cut < all.length; cut++) {
        rig_message_t part = rig_message_copy(all.bytes, cut);
        assert_int_equal(receive(pair.follower, &part), FBY_E_FORMAT);
        rig_message_free(&part);
    }
    expect_missing(pair.follower, 1, 1);
    assert_int_equal(receive(pair.follower, &all), 0);
    expect_next(pair.follower, 1);
    rig_message_free(&all);
    pair_close(&pair);
}

static void test_every_bit_that_flips_is_seen(void **state)
{
    (void)state;
    pair_t pair;
    pair_open(&pair);
    rig_message_t all = rig_decisions(pair.leader, 1);
    for (size_t bit = 0; bit < 8 * all.length; bit++) {
        all.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int rc = receive(pair.follower, &all);
        assert_true(rc == FBY_E_CHECKSUM || rc == FBY_E_FORMAT);
        all.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    expect_missing(pair.follower, 1, 1);
    rig_message_free(&all);
    pair_close(&pair);
}

static void changed(pair_t *pair, size_t at, uint8_t value, int expected, const char *detail)
{
    rig_message_t bad = rig_message_copy(pair->message[1].bytes, pair->message[1].length);
    bad.bytes[at] = value;
    rig_message_seal(&bad);
    assert_int_equal(receive(pair->follower, &bad), expected);
    rig_assert_detail(detail);
    rig_message_free(&bad);
}

static void test_what_a_leader_does_not_send_is_named(void **state)
{
    (void)state;
    pair_t pair;
    pair_open(&pair);
    changed(&pair, 4, 2, FBY_E_FORMAT, "a message of protocol 2; this library speaks 1");
    changed(&pair, 5, 0, FBY_E_FORMAT, "a message of type 0;");
    changed(&pair, 5, FBY_MESSAGE_CARD, FBY_E_FORMAT, "card of the leader, where decisions is expected");
    changed(&pair, 12, 1, FBY_E_FORMAT, "decisions of rank 4294967041 of 2 ranks; accepted: the leader of 2");
    changed(&pair, 16, 4, FBY_E_FORMAT, "of 4 ranks; accepted: the leader of 2");
    changed(&pair, 20, 0, FBY_E_FORMAT, "decisions from 1 on, 0 of them;");
    changed(&pair, 20, 2, FBY_E_FORMAT, "cut short");
    changed(&pair, 24, 0, FBY_E_STALE,
            "decisions of the leader is of incarnation 0000000000abcd00; this group's is 0000000000abcdef");
    changed(&pair, 32, 0, FBY_E_FORMAT, "decisions from 0 on");
    changed(&pair, 39, 0x80, FBY_E_FORMAT, "accepted: 1 or more, from 1 to 2^62");
    changed(&pair, 40, 0, FBY_E_FORMAT, "decision.kind is 0;");
    expect_missing(pair.follower, 1, 1);
    pair_close(&pair);
}

static void test_nothing_of_a_message_counts_when_its_last_entry_is_bad(void **state)
{
    (void)state;
    pair_t pair;
    pair_open(&pair);
    rig_message_t all = rig_decisions(pair.leader, 1);
    all.bytes[20]++; /* one decision more than there is */
    rig_message_seal(&all);
    assert_int_equal(receive(pair.follower, &all), FBY_E_FORMAT);
    all.bytes[20] -= 2; /* and one less */
    rig_message_seal(&all);
    assert_int_equal(receive(pair.follower, &all), FBY_E_FORMAT);
    assert_string_equal(fby_last_error(), "decisions: bytes are left over behind the last entry");
    expect_missing(pair.follower, 1, 1);
    rig_message_free(&all);
    pair_close(&pair);
}

static void test_two_decisions_with_one_number_are_not_confused(void **state)
{
    (void)state;
    pair_t pair;
    pair_open(&pair);
    assert_int_equal(receive(pair.follower, &pair.message[2]), 0);
    rig_message_t other = rig_message_copy(pair.message[2].bytes, pair.message[2].length);
    other.bytes[41] ^= 1; /* its tag */
    rig_message_seal(&other);
    assert_int_equal(receive(pair.follower, &other), FBY_E_FORMAT);
    assert_string_equal(fby_last_error(), "decision 2 came twice, with different contents");
    rig_message_free(&other);
    pair_close(&pair);
}

/* ---- Reports, results, the leader's end -------------------------------------------------------------------------- */

/* Both ranks report; the verdict as a message. */
static rig_message_t verdict_of(pair_t *pair, uint64_t number, int code)
{
    fby_follower_t *other = NULL;
    fby_verdict_t *verdict = NULL;
    const fby_ranks_t group = rig_ranks(0, 2);
    const fby_result_t mine = result_of(number, code), fine = result_of(number, 0);
    int rc;
    assert_int_equal(fby_follower_create(&group, &other), 0);
    rig_message_t all = rig_decisions(pair->leader, 1);
    assert_int_equal(receive(other, &all), 0);
    rig_message_free(&all);
    while (next_number(other, &rc) != 0) {}
    assert_int_equal(fby_verdict_create(&group, number, &verdict), 0);
    rig_message_t reports[2] = {rig_report(other, &fine), rig_report(pair->follower, &mine)};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fby_verdict_receive(verdict, reports[i].bytes, reports[i].length), 0);
        rig_message_free(&reports[i]);
    }
    rig_message_t message = rig_verdict(verdict);
    fby_verdict_free(verdict);
    fby_follower_free(other);
    return message;
}

static void test_a_verdict_ends_what_is_open_once(void **state)
{
    (void)state;
    pair_t pair;
    fby_result_t result = {.size = sizeof(result)};
    pair_open(&pair);
    assert_int_equal(receive(pair.follower, &pair.message[1]), 0);
    expect_next(pair.follower, 1);
    assert_int_equal(fby_follower_result(pair.follower, &result), -EAGAIN);
    rig_message_t verdict = verdict_of(&pair, 1, -EIO);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(receive(pair.follower, &verdict), 0); /* the second one is dropped */
    }
    assert_int_equal(fby_follower_result(pair.follower, &result), 0);
    assert_int_equal(result.number, 1);
    assert_int_equal(result.tag, 101);
    assert_int_equal(result.kind, FBY_DECISION_LOAD);
    assert_int_equal(result.code, -EIO);
    assert_int_equal(result.rank, 1);
    assert_int_equal(result.failed_count, 0);
    assert_int_equal(receive(pair.follower, &verdict), 0); /* so is one that comes later */
    assert_int_equal(fby_follower_result(pair.follower, &result), -EAGAIN);
    rig_message_free(&verdict);
    pair_close(&pair);
}

static void test_a_report_is_made_once_and_the_same_again(void **state)
{
    (void)state;
    pair_t pair;
    const fby_failed_block_t failed[3] = {{.group = 1, .block = 4}, {.group = 0, .block = 9}, {.group = 1, .block = 4}};
    fby_result_t result = result_of(1, -EIO);
    pair_open(&pair);
    assert_int_equal(fby_follower_report(pair.follower, &result, NULL, 0, NULL), -ENOENT);
    assert_int_equal(receive(pair.follower, &pair.message[1]), 0);
    assert_int_equal(fby_follower_report(pair.follower, &result, NULL, 0, NULL), -ENOENT); /* not applied yet */
    expect_next(pair.follower, 1);
    result.failed = failed;
    result.failed_count = 3;
    rig_message_t first = rig_report(pair.follower, &result), second = rig_report(pair.follower, &result);
    fby_message_t about = {.size = sizeof(about)};
    assert_int_equal(first.length, second.length);
    assert_memory_equal(first.bytes, second.bytes, first.length);
    assert_int_equal(fby_message_parse(first.bytes, first.length, &about), 0);
    assert_int_equal(about.type, FBY_MESSAGE_REPORT);
    assert_int_equal(about.rank, 1);
    assert_int_equal(about.number, 1);
    assert_int_equal(about.count, 2);
    result.code = -EFAULT;
    assert_int_equal(fby_follower_report(pair.follower, &result, NULL, 0, NULL), FBY_E_STATE);
    rig_message_free(&first);
    rig_message_free(&second);
    pair_close(&pair);
}

static void test_what_may_not_be_reported_is_named(void **state)
{
    (void)state;
    pair_t pair;
    const fby_failed_block_t failed = {.group = 8};
    pair_open(&pair);
    assert_int_equal(receive(pair.follower, &pair.message[1]), 0);
    expect_next(pair.follower, 1);
    fby_result_t result = result_of(1, 1);
    assert_int_equal(fby_follower_report(pair.follower, &result, NULL, 0, NULL), -EINVAL);
    rig_assert_detail("result.code is 1;");
    result.code = -4096;
    assert_int_equal(fby_follower_report(pair.follower, &result, NULL, 0, NULL), -EINVAL);
    result.code = 0;
    result.failed_count = 1;
    assert_int_equal(fby_follower_report(pair.follower, &result, NULL, 0, NULL), -EINVAL);
    rig_assert_detail("result.failed_count is 1;");
    result.code = -EIO;
    assert_int_equal(fby_follower_report(pair.follower, &result, NULL, 0, NULL), -EINVAL);
    rig_assert_detail("result.failed is 0;");
    result.failed = &failed;
    assert_int_equal(fby_follower_report(pair.follower, &result, NULL, 0, NULL), -EINVAL);
    rig_assert_detail("result.failed.group is 8;");
    pair_close(&pair);
}

static void test_a_rank_that_was_taken_for_lost_learns_it(void **state)
{
    (void)state;
    pair_t pair;
    fby_verdict_t *verdict = NULL;
    const fby_ranks_t group = rig_ranks(0, 2);
    pair_open(&pair);
    assert_int_equal(fby_verdict_create(&group, 1, &verdict), 0);
    assert_int_equal(fby_verdict_lost(verdict, 0), 0);
    assert_int_equal(fby_verdict_lost(verdict, 1), 0);
    rig_message_t message = rig_verdict(verdict);
    assert_int_equal(receive(pair.follower, &message), FBY_E_STATE); /* before it applied the decision, */
    assert_int_equal(receive(pair.follower, &pair.message[1]), 0);
    expect_next(pair.follower, 1);
    assert_int_equal(receive(pair.follower, &message), FBY_E_STATE); /* and before it reported */
    rig_assert_detail("the verdict on decision 1 came before this rank's report: rank 1 was taken for lost");
    rig_message_free(&message);
    fby_verdict_free(verdict);
    pair_close(&pair);
}

static void test_with_the_leader_all_that_is_open_ends(void **state)
{
    (void)state;
    pair_t pair;
    fby_result_t result = {.size = sizeof(result)};
    fby_decision_t decision = {.size = sizeof(decision)};
    uint64_t from, to;
    pair_open(&pair);
    for (uint64_t i = 1; i <= 4; i++) {
        assert_int_equal(receive(pair.follower, &pair.message[i]), 0);
    }
    for (uint64_t i = 1; i <= 3; i++) {
        expect_next(pair.follower, i); /* 4 is not applied, and will not be */
    }
    rig_message_t verdict = verdict_of(&pair, 2, 0);
    assert_int_equal(receive(pair.follower, &verdict), 0);
    assert_int_equal(fby_follower_leader_lost(pair.follower), 0);
    assert_int_equal(fby_follower_leader_lost(pair.follower), 0);
    const struct {
        uint64_t number;
        int code;
    } ends[] = {{2, 0}, {1, -EOWNERDEAD}, {3, -EOWNERDEAD}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fby_follower_result(pair.follower, &result), 0);
        assert_int_equal(result.number, ends[i].number);
        assert_int_equal(result.tag, 100 + ends[i].number);
        assert_int_equal(result.code, ends[i].code);
        assert_int_equal(result.rank, FBY_NO_RANK);
        assert_int_equal(result.failed_count, 0);
    }
    assert_int_equal(fby_follower_result(pair.follower, &result), -EAGAIN);
    assert_int_equal(fby_follower_next(pair.follower, &decision), -EOWNERDEAD);
    rig_assert_detail("the leader of incarnation 0000000000abcdef is lost");
    assert_int_equal(receive(pair.follower, &pair.message[5]), -EOWNERDEAD);
    assert_int_equal(receive(pair.follower, &verdict), -EOWNERDEAD);
    assert_int_equal(fby_follower_missing(pair.follower, &from, &to), -EOWNERDEAD);
    assert_int_equal(fby_follower_acknowledge(pair.follower, NULL, 0, NULL), -EOWNERDEAD);
    rig_message_free(&verdict);
    pair_close(&pair);
}

static void test_open_decisions_are_bounded(void **state)
{
    (void)state;
    fby_leader_t *leader = NULL;
    fby_follower_t *follower = NULL;
    fby_ranks_t group = rig_ranks(0, 1);
    fby_decision_t decision = {.size = sizeof(decision)};
    group.window = 20;
    assert_int_equal(fby_leader_create(&group, &leader), 0);
    assert_int_equal(fby_follower_create(&group, &follower), 0);
    for (uint64_t i = 1; i <= 21; i++) {
        rig_decide(leader, FBY_DECISION_SAVE, i);
        rig_message_t message = rig_decisions(leader, i);
        assert_int_equal(receive(follower, &message), 0);
        assert_int_equal(fby_leader_acknowledge(leader, 0, i), 0);
        rig_message_free(&message);
        if (i <= 20) {
            expect_next(follower, i);
        }
    }
    assert_int_equal(fby_follower_next(follower, &decision), -EBUSY);
    rig_assert_detail("20 loads and saves are without a verdict");
    const fby_result_t result = result_of(7, 0);
    fby_verdict_t *verdict = NULL;
    rig_message_t report = rig_report(follower, &result);
    assert_int_equal(fby_verdict_create(&group, 7, &verdict), 0);
    assert_int_equal(fby_verdict_receive(verdict, report.bytes, report.length), 0);
    rig_message_t message = rig_verdict(verdict);
    assert_int_equal(receive(follower, &message), 0);
    fby_result_t end = {.size = sizeof(end)};
    assert_int_equal(fby_follower_result(follower, &end), 0);
    assert_int_equal(end.number, 7);
    expect_next(follower, 21);
    rig_message_free(&message);
    rig_message_free(&report);
    fby_verdict_free(verdict);
    fby_follower_free(follower);
    fby_leader_free(leader);
}

static void test_wrong_arguments_are_named(void **state)
{
    (void)state;
    fby_follower_t *follower = NULL;
    fby_ranks_t group = rig_ranks(2, 2);
    assert_int_equal(fby_follower_create(&group, &follower), -EINVAL);
    rig_assert_detail("ranks.rank is 2; accepted: below ranks.ranks");
    group = rig_ranks(0, 2);
    group.first_number = UINT64_MAX;
    assert_int_equal(fby_follower_create(&group, &follower), -EINVAL);
    group = rig_ranks(0, 2);
    assert_int_equal(fby_follower_create(&group, NULL), -EINVAL);
    assert_int_equal(fby_follower_receive(NULL, NULL, 0), -EINVAL);
    assert_int_equal(fby_follower_leader_lost(NULL), -EINVAL);
    assert_int_equal(fby_follower_create(&group, &follower), 0);
    assert_int_equal(fby_follower_receive(follower, NULL, 100), FBY_E_FORMAT);
    assert_int_equal(fby_follower_next(follower, NULL), -EINVAL);
    assert_int_equal(fby_follower_result(follower, NULL), -EINVAL);
    assert_int_equal(fby_follower_missing(follower, NULL, NULL), -EINVAL);
    fby_follower_free(follower);
    fby_follower_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_decision_arrives_as_it_was_made),
        cmocka_unit_test(test_every_order_of_arrival_gives_the_same_log_once),
        cmocka_unit_test(test_a_gap_is_named),
        cmocka_unit_test(test_a_gap_is_asked_for_until_it_came),
        cmocka_unit_test(test_a_slow_rank_keeps_no_more_than_its_window),
        cmocka_unit_test(test_bytes_are_bounded_but_the_next_decision_is_always_taken),
        cmocka_unit_test(test_the_log_ends),
        cmocka_unit_test(test_a_message_that_is_cut_anywhere_is_refused),
        cmocka_unit_test(test_every_bit_that_flips_is_seen),
        cmocka_unit_test(test_what_a_leader_does_not_send_is_named),
        cmocka_unit_test(test_nothing_of_a_message_counts_when_its_last_entry_is_bad),
        cmocka_unit_test(test_two_decisions_with_one_number_are_not_confused),
        cmocka_unit_test(test_a_verdict_ends_what_is_open_once),
        cmocka_unit_test(test_a_report_is_made_once_and_the_same_again),
        cmocka_unit_test(test_what_may_not_be_reported_is_named),
        cmocka_unit_test(test_a_rank_that_was_taken_for_lost_learns_it),
        cmocka_unit_test(test_with_the_leader_all_that_is_open_ends),
        cmocka_unit_test(test_open_decisions_are_bounded),
        cmocka_unit_test(test_wrong_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
