#include "group_rig.h"

enum { MOST = 8, NUMBER = 1 };

/* All ranks of a group with one open load, and the leader's verdict on it. */
typedef struct hall {
    fby_ranks_t group;
    fby_leader_t *leader;
    fby_follower_t *follower[MOST];
    fby_verdict_t *verdict;
} hall_t;

static void hall_open(hall_t *hall, uint32_t ranks)
{
    *hall = (hall_t){.group = rig_ranks(0, ranks)};
    assert_int_equal(fby_leader_create(&hall->group, &hall->leader), 0);
    rig_decide(hall->leader, FBY_DECISION_LOAD, 55);
    rig_message_t message = rig_decisions(hall->leader, NUMBER);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        fby_decision_t decision = {.size = sizeof(decision)};
        hall->group.rank = rank;
        assert_int_equal(fby_follower_create(&hall->group, &hall->follower[rank]), 0);
        assert_int_equal(fby_follower_receive(hall->follower[rank], message.bytes, message.length), 0);
        assert_int_equal(fby_follower_next(hall->follower[rank], &decision), 0);
    }
    assert_int_equal(fby_verdict_create(&hall->group, NUMBER, &hall->verdict), 0);
    rig_message_free(&message);
}

static void hall_close(hall_t *hall)
{
    for (uint32_t rank = 0; rank < hall->group.ranks; rank++) {
        fby_follower_free(hall->follower[rank]);
    }
    fby_verdict_free(hall->verdict);
    fby_leader_free(hall->leader);
}

static void report(hall_t *hall, uint32_t rank, int code, const fby_failed_block_t *failed, uint64_t count)
{
    const fby_result_t result = {
        .size = sizeof(result), .number = NUMBER, .code = code, .failed = failed, .failed_count = count};
    rig_message_t message = rig_report(hall->follower[rank], &result);
    assert_int_equal(fby_verdict_receive(hall->verdict, message.bytes, message.length), 0);
    rig_message_free(&message);
}

static void expect(const fby_result_t *result, int code, uint32_t rank, const fby_failed_block_t *failed,
                   uint64_t count)
{
    assert_int_equal(result->number, NUMBER);
    assert_int_equal(result->code, code);
    assert_int_equal(result->rank, rank);
    assert_int_equal(result->failed_count, count);
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(result->failed[i].group, failed[i].group);
        assert_int_equal(result->failed[i].block, failed[i].block);
    }
}

/* What the leader has and what every rank gets that reported. */
static void expect_everywhere(hall_t *hall, uint32_t dead, int code, uint32_t rank, const fby_failed_block_t *failed,
                              uint64_t count)
{
    fby_result_t result = {.size = sizeof(result)};
    assert_int_equal(fby_verdict_result(hall->verdict, &result), 0);
    expect(&result, code, rank, failed, count);
    rig_message_t message = rig_verdict(hall->verdict);
    for (uint32_t i = 0; i < hall->group.ranks; i++) {
        if (i != dead) {
            assert_int_equal(fby_follower_receive(hall->follower[i], message.bytes, message.length), 0);
            assert_int_equal(fby_follower_result(hall->follower[i], &result), 0);
            assert_int_equal(result.tag, 55);
            expect(&result, code, rank, failed, count);
        }
    }
    rig_message_free(&message);
}

static void expect_pending(const hall_t *hall, const char *detail)
{
    fby_result_t result = {.size = sizeof(result)};
    assert_int_equal(fby_verdict_result(hall->verdict, &result), -EAGAIN);
    assert_string_equal(fby_last_error(), detail);
    assert_int_equal(fby_verdict_encode(hall->verdict, NULL, 0, NULL), -EAGAIN);
}

static void test_it_waits_for_every_rank(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= MOST; ranks *= 2) {
        hall_t hall;
        hall_open(&hall, ranks);
        for (uint32_t rank = 0; rank < ranks; rank++) {
            fby_result_t result = {.size = sizeof(result)};
            assert_int_equal(fby_verdict_result(hall.verdict, &result), -EAGAIN);
            report(&hall, rank, 0, NULL, 0);
        }
        expect_everywhere(&hall, FBY_NO_RANK, 0, FBY_NO_RANK, NULL, 0);
        hall_close(&hall);
    }
}

static void test_who_is_waited_for_is_named(void **state)
{
    (void)state;
    hall_t hall;
    hall_open(&hall, 4);
    report(&hall, 2, 0, NULL, 0);
    expect_pending(&hall, "decision 1 waits for 3 of 4 ranks: 0, 1, 3");
    hall_close(&hall);
    fby_verdict_t *verdict = NULL;
    const fby_ranks_t group = rig_ranks(0, 20);
    fby_result_t result = {.size = sizeof(result)};
    assert_int_equal(fby_verdict_create(&group, 3, &verdict), 0);
    assert_int_equal(fby_verdict_result(verdict, &result), -EAGAIN);
    assert_string_equal(fby_last_error(), "decision 3 waits for 20 of 20 ranks: 0, 1, 2, 3, 4, 5, 6, 7, ...");
    fby_verdict_free(verdict);
    fby_verdict_free(NULL);
}

static void test_one_failure_is_everybodys(void **state)
{
    (void)state;
    const fby_failed_block_t failed[2] = {{.group = 0, .block = 4}, {.group = 2, .block = 3}};
    for (uint32_t ranks = 1; ranks <= MOST; ranks *= 2) {
        for (uint32_t odd = 0; odd < ranks; odd++) {
            hall_t hall;
            hall_open(&hall, ranks);
            for (uint32_t rank = 0; rank < ranks; rank++) {
                report(&hall, rank, rank == odd ? FBY_E_CHECKSUM : 0, failed, rank == odd ? 2 : 0);
            }
            expect_everywhere(&hall, FBY_NO_RANK, FBY_E_CHECKSUM, odd, failed, 2);
            hall_close(&hall);
        }
    }
}

static void test_failed_blocks_are_joined_in_any_order_of_reports(void **state)
{
    (void)state;
    static const uint32_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const fby_failed_block_t low[2] = {{.group = 0, .block = 3}, {.group = 0, .block = 9}};
    const fby_failed_block_t high[3] = {{.group = 1, .block = 0}, {.group = 0, .block = 9}, {.group = 0, .block = 4}};
    const fby_failed_block_t both[4] = {
        {.group = 0, .block = 3}, {.group = 0, .block = 4}, {.group = 0, .block = 9}, {.group = 1, .block = 0}};
    for (int i = 0; i < 6; i++) {
        hall_t hall;
        hall_open(&hall, 3);
        for (int j = 0; j < 3; j++) {
            const uint32_t rank = orders[i][j];
            const fby_failed_block_t *failed = rank == 1 ? low : high;
            const int code = rank == 0 ? 0 : rank == 1 ? -EIO : FBY_E_CHECKSUM;
            report(&hall, rank, code, failed, rank == 0 ? 0 : rank == 1 ? 2 : 3);
        }
        expect_everywhere(&hall, FBY_NO_RANK, -EIO, 1, both, 4);
        hall_close(&hall);
    }
}

static void test_a_failure_without_blocks_takes_all_of_them(void **state)
{
    (void)state;
    const fby_failed_block_t failed = {.block = 4};
    for (uint32_t whole = 0; whole < 3; whole++) {
        hall_t hall;
        hall_open(&hall, 3);
        for (uint32_t rank = 0; rank < 3; rank++) {
            report(&hall, rank, -EIO, &failed, rank == whole ? 0 : 1);
        }
        expect_everywhere(&hall, FBY_NO_RANK, -EIO, 0, NULL, 0);
        hall_close(&hall);
    }
}

static void test_a_dead_rank_is_not_waited_for(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= MOST; ranks *= 2) {
        for (uint32_t dead = 0; dead < ranks; dead++) {
            hall_t hall;
            hall_open(&hall, ranks);
            for (uint32_t rank = 0; rank < ranks; rank++) {
                if (rank != dead) {
                    report(&hall, rank, 0, NULL, 0);
                }
            }
            assert_int_equal(fby_verdict_lost(hall.verdict, dead), 0);
            assert_int_equal(fby_verdict_lost(hall.verdict, dead), 0);
            expect_everywhere(&hall, dead, -ECONNRESET, dead, NULL, 0);
            hall_close(&hall);
        }
    }
}

static void test_what_a_rank_reported_before_it_died_counts(void **state)
{
    (void)state;
    hall_t hall;
    hall_open(&hall, 2);
    report(&hall, 1, 0, NULL, 0);
    assert_int_equal(fby_verdict_lost(hall.verdict, 1), 0);
    report(&hall, 0, 0, NULL, 0);
    expect_everywhere(&hall, 1, 0, FBY_NO_RANK, NULL, 0);
    hall_close(&hall);
}

static void test_a_report_after_the_loss_is_refused(void **state)
{
    (void)state;
    hall_t hall;
    hall_open(&hall, 2);
    const fby_result_t result = {.size = sizeof(result), .number = NUMBER};
    rig_message_t late = rig_report(hall.follower[1], &result);
    assert_int_equal(fby_verdict_lost(hall.verdict, 1), 0);
    assert_int_equal(fby_verdict_receive(hall.verdict, late.bytes, late.length), FBY_E_STALE);
    assert_string_equal(fby_last_error(), "report of rank 1 on decision 1: that rank was declared lost");
    assert_int_equal(fby_verdict_lost(hall.verdict, 2), -EINVAL);
    rig_message_free(&late);
    hall_close(&hall);
}

static void test_a_second_report_is_dropped(void **state)
{
    (void)state;
    hall_t hall;
    hall_open(&hall, 2);
    report(&hall, 1, -EIO, NULL, 0);
    report(&hall, 1, -EIO, NULL, 0);
    expect_pending(&hall, "decision 1 waits for 1 of 2 ranks: 0");
    report(&hall, 0, 0, NULL, 0);
    expect_everywhere(&hall, FBY_NO_RANK, -EIO, 1, NULL, 0);
    hall_close(&hall);
}

static void test_reports_of_others_are_refused(void **state)
{
    (void)state;
    hall_t hall;
    fby_verdict_t *other = NULL;
    hall_open(&hall, 2);
    const fby_result_t result = {.size = sizeof(result), .number = NUMBER};
    rig_message_t message = rig_report(hall.follower[1], &result);
    assert_int_equal(fby_verdict_create(&hall.group, 2, &other), 0);
    assert_int_equal(fby_verdict_receive(other, message.bytes, message.length), -EINVAL);
    assert_string_equal(fby_last_error(), "decision of the report is 1; accepted: that of the verdict");
    fby_verdict_free(other);
    hall.group.incarnation++;
    assert_int_equal(fby_verdict_create(&hall.group, NUMBER, &other), 0);
    assert_int_equal(fby_verdict_receive(other, message.bytes, message.length), FBY_E_STALE);
    rig_assert_detail("report of rank 1 is of incarnation 0000000000abcdef; this group's is 0000000000abcdf0");
    fby_verdict_free(other);
    assert_int_equal(fby_verdict_create(&hall.group, 0, &other), -EINVAL);
    rig_message_free(&message);
    hall_close(&hall);
}

/* ---- Damage ------------------------------------------------------------------------------------------------------ */

static void test_reports_and_verdicts_that_were_damaged_are_refused(void **state)
{
    (void)state;
    const fby_failed_block_t failed[2] = {{.group = 0, .block = 4}, {.group = 2, .block = 300}};
    hall_t hall;
    hall_open(&hall, 1);
    const fby_result_t result = {
        .size = sizeof(result), .number = NUMBER, .code = -EIO, .failed = failed, .failed_count = 2};
    rig_message_t message = rig_report(hall.follower[0], &result);
    for (size_t cut = 0; cut < message.length; cut++) {
        rig_message_t part = rig_message_copy(message.bytes, cut);
        assert_int_equal(fby_verdict_receive(hall.verdict, part.bytes, cut), FBY_E_FORMAT);
        rig_message_free(&part);
    }
    for (size_t bit = 0; bit < 8 * message.length; bit++) {
        message.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int rc = fby_verdict_receive(hall.verdict, message.bytes, message.length);
        assert_true(rc == FBY_E_FORMAT || rc == FBY_E_CHECKSUM);
        message.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(fby_verdict_receive(hall.verdict, message.bytes, message.length), 0);
    rig_message_free(&message);
    message = rig_verdict(hall.verdict);
    for (size_t cut = 0; cut < message.length; cut++) {
        rig_message_t part = rig_message_copy(message.bytes, cut);
        assert_int_equal(fby_follower_receive(hall.follower[0], part.bytes, cut), FBY_E_FORMAT);
        rig_message_free(&part);
    }
    for (size_t bit = 0; bit < 8 * message.length; bit++) {
        message.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int rc = fby_follower_receive(hall.follower[0], message.bytes, message.length);
        assert_true(rc == FBY_E_FORMAT || rc == FBY_E_CHECKSUM);
        message.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    rig_message_free(&message);
    expect_everywhere(&hall, FBY_NO_RANK, -EIO, 0, failed, 2);
    hall_close(&hall);
}

static void test_verdicts_that_no_leader_gives_are_refused(void **state)
{
    (void)state;
    const fby_failed_block_t failed[2] = {{.group = 1, .block = 4}, {.group = 2, .block = 5}};
    hall_t hall;
    hall_open(&hall, 2);
    report(&hall, 0, -EIO, failed, 2);
    report(&hall, 1, 0, NULL, 0);
    rig_message_t good = rig_verdict(hall.verdict);
    /* Behind 40 bytes of header: code 5, rank 0, group 1, block 4, group 2, block +1. */
    static const struct {
        size_t at;
        uint8_t value;
    } changes[] = {{12, 0}, {20, 3}, {20, 1}, {39, 0x80}, {40, 0}, {41, 2}, {42, 8}, {44, 1}, {44, 0}, {45, 0x80}};
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        rig_message_t bad = rig_message_copy(good.bytes, good.length);
        bad.bytes[changes[i].at] = changes[i].value;
        if (changes[i].at == 44 && changes[i].value == 1) {
            bad.bytes[45] = 1; /* group 1, block 3: behind group 1, block 4 */
        }
        rig_message_seal(&bad);
        assert_int_equal(fby_follower_receive(hall.follower[0], bad.bytes, bad.length), FBY_E_FORMAT);
        rig_message_free(&bad);
    }
    assert_int_equal(fby_follower_receive(hall.follower[0], good.bytes, good.length), 0);
    rig_message_free(&good);
    hall_close(&hall);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_waits_for_every_rank),
        cmocka_unit_test(test_who_is_waited_for_is_named),
        cmocka_unit_test(test_one_failure_is_everybodys),
        cmocka_unit_test(test_failed_blocks_are_joined_in_any_order_of_reports),
        cmocka_unit_test(test_a_failure_without_blocks_takes_all_of_them),
        cmocka_unit_test(test_a_dead_rank_is_not_waited_for),
        cmocka_unit_test(test_what_a_rank_reported_before_it_died_counts),
        cmocka_unit_test(test_a_report_after_the_loss_is_refused),
        cmocka_unit_test(test_a_second_report_is_dropped),
        cmocka_unit_test(test_reports_of_others_are_refused),
        cmocka_unit_test(test_reports_and_verdicts_that_were_damaged_are_refused),
        cmocka_unit_test(test_verdicts_that_no_leader_gives_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
