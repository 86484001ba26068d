/* Leader and ranks as processes: a real cache, cards, a scrambled log, copies into every layout, and what may die. */
#include "process_rig.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Stories ----------------------------------------------------------------------------------------------------- */

static void expect_end(int status, int killed_by)
{
    if (killed_by != 0) {
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == killed_by);
    } else {
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

/* Who a process is: a rank's number, or one of these. */
enum { SPARE = MOST_RANKS, LEADER };

/* pair[i]: [0] the leader's end, [1] that of rank i or of the spare process. */
static pid_t fork_one(const story_t *story, int (*pair)[2], uint32_t who)
{
    const bool leader = who == LEADER;
    int channel[MOST_RANKS];
    pid_t child = fork();
    assert_true(child >= 0);
    if (child != 0) {
        return child;
    }
    for (uint32_t i = 0; i <= SPARE; i++) {
        if (leader || i != who) {
            close(pair[i][1]);
        }
        if (!leader) {
            close(pair[i][0]);
        }
        if (i < MOST_RANKS) {
            channel[i] = pair[i][0];
        }
    }
    if (leader) {
        story_lead(story, channel, pair[SPARE][0]);
    }
    story_rank(story, who == SPARE ? story->odd : who, pair[who][1], who == SPARE);
}

static void tell(const story_t *story)
{
    int pair[SPARE + 1][2];
    pid_t child[LEADER + 1] = {0};
    int status[LEADER + 1];
    const bool spare = story->kind == STORY_RESTARTED;
    const bool rank_dies = story->kind == STORY_KILLED || spare;
    for (uint32_t i = 0; i <= SPARE; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair[i]), 0);
    }
    for (uint32_t rank = 0; rank < story->ranks; rank++) {
        child[rank] = fork_one(story, pair, rank);
    }
    child[SPARE] = spare ? fork_one(story, pair, SPARE) : 0;
    child[LEADER] = fork_one(story, pair, LEADER);
    for (uint32_t i = 0; i <= SPARE; i++) {
        close(pair[i][0]);
        close(pair[i][1]);
    }
    for (uint32_t i = 0; i <= LEADER; i++) { /* all of them, before anything fails: each gives up by itself */
        status[i] = 0;
        assert_true(child[i] == 0 || waitpid(child[i], &status[i], 0) == child[i]);
    }
    expect_end(status[LEADER], story->kind == STORY_LEADER_DEAD ? SIGKILL : 0);
    expect_end(status[SPARE], 0);
    for (uint32_t rank = 0; rank < story->ranks; rank++) {
        expect_end(status[rank], rank_dies && rank == story->odd ? SIGKILL : 0);
    }
}

static void tell_in_every_layout(story_kind_t kind, uint32_t least_ranks)
{
    for (uint32_t ranks = least_ranks; ranks <= MOST_RANKS; ranks *= 2) {
        for (uint32_t layout = 0; layout < FBY_LAYOUT_COUNT; layout++) {
            const story_t story = {.kind = kind,
                                   .layout = (fby_layout_kind_t)layout,
                                   .ranks = ranks,
                                   .odd = (layout + 1) % ranks,
                                   .seed = 100 * ranks + layout};
            tell(&story);
        }
    }
}

static void test_ranks_copy_exact_bytes_in_the_order_of_the_log(void **state)
{
    (void)state;
    tell_in_every_layout(STORY_PLAIN, 1);
}

static void test_the_loss_of_a_rank_reaches_all(void **state)
{
    (void)state;
    tell_in_every_layout(STORY_KILLED, 2);
}

static void test_a_restarted_rank_joins_after_cards_were_exchanged_again(void **state)
{
    (void)state;
    tell_in_every_layout(STORY_RESTARTED, 2);
}

static void test_a_slow_rank_holds_the_log_and_is_named(void **state)
{
    (void)state;
    tell_in_every_layout(STORY_SLOW, 2);
}

static void test_with_the_leader_gone_every_rank_ends_its_load(void **state)
{
    (void)state;
    tell_in_every_layout(STORY_LEADER_DEAD, 1);
}

static void test_all_ranks_name_the_field_that_differs(void **state)
{
    (void)state;
    tell_in_every_layout(STORY_MISMATCH, 2);
}

static void test_all_ranks_name_the_rank_that_is_absent(void **state)
{
    (void)state;
    tell_in_every_layout(STORY_ABSENT, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_copy_exact_bytes_in_the_order_of_the_log),
        cmocka_unit_test(test_the_loss_of_a_rank_reaches_all),
        cmocka_unit_test(test_a_restarted_rank_joins_after_cards_were_exchanged_again),
        cmocka_unit_test(test_a_slow_rank_holds_the_log_and_is_named),
        cmocka_unit_test(test_with_the_leader_gone_every_rank_ends_its_load),
        cmocka_unit_test(test_all_ranks_name_the_field_that_differs),
        cmocka_unit_test(test_all_ranks_name_the_rank_that_is_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
