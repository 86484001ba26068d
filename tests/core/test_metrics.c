/* test_metrics.c - what the core tells those who count: queues, durations of graphs, the policy of an answer. */
#include "story.h"

typedef struct watch {
    fby_histogram_t graph_time;
    uint32_t answered[FBY_POLICY_COUNT];
} watch_t;

static void note_answer(void *arg, const fby_core_event_t *event)
{
    watch_t *watch = arg;
    if (event->type == FBY_CORE_ANSWERED)
        watch->answered[event->policy]++;
}

static rig_t *open_watched(watch_t *watch, rig_seq_t **seq)
{
    rig_config_t config;
    story_traces(&config);
    config.core.graph_time = &watch->graph_time;
    config.on_event = note_answer;
    config.on_event_arg = watch;
    rig_t *rig = rig_open(&config);
    *seq = rig_seq(rig, 0, 1, 161);
    return rig;
}

static void assert_queued(const rig_t *rig, uint32_t queries, uint32_t graphs, uint32_t writes)
{
    fby_core_queued_t queued;
    fby_core_queued(rig->core, &queued);
    assert_int_equal(queued.queries, queries);
    assert_int_equal(queued.graphs, graphs);
    assert_int_equal(queued.writes, writes);
}

static void queues_hold_what_no_lane_has_taken(void **state)
{
    (void)state;
    watch_t watch = {0};
    rig_seq_t *seq;
    rig_t *rig = open_watched(&watch, &seq);
    assert_queued(rig, 0, 0, 0);
    const rig_seq_t *prompt[] = {seq, rig_seq(rig, 0, 2, 161)};
    fby_session_t session[2];
    for (int i = 0; i < 2; i++)
        session[i] = rig_start(rig, prompt[i], BEST_EFFORT, DRAIN, FBY_NEVER);
    assert_queued(rig, 2, 0, 0);
    story_answer(rig, 10);
    assert_queued(rig, 0, 4, 0); /* a window of two chunks each */
    story_begin(rig);
    assert_queued(rig, 0, 0, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rig_demand(rig, session[i]), 0);
        story_ok(rig, prompt[i], 0);
        story_ok(rig, prompt[i], 2);
    }
    story_quiesce(rig);
    rig_close(rig);
}

static void a_graph_takes_from_begun_to_ended_and_a_recalled_one_takes_nothing(void **state)
{
    (void)state;
    watch_t watch = {0};
    rig_seq_t *seq;
    rig_t *rig = open_watched(&watch, &seq);
    fby_session_t s = rig_start(rig, seq, BEST_EFFORT, RECALL, FBY_NEVER);
    story_answer(rig, 10);
    story_at(rig, 5); /* waits in the queue */
    assert_int_not_equal(rig_begin(rig, false, FBY_STEP_BLOCKS), FBY_NONE);
    story_at(rig, 12);
    assert_int_equal(rig_demand(rig, s), 0); /* recalls the second chunk */
    story_ok(rig, seq, 0);
    assert_int_equal(story_stats(rig).graphs, 2);
    assert_int_equal(story_stats(rig).graphs_recalled, 1);
    assert_int_equal(fby_histogram_count(&watch.graph_time), 1);
    assert_int_equal(watch.graph_time.sum_ns, 7 * RIG_MS);
    story_quiesce(rig);
    rig_close(rig);
}

static void an_answer_comes_with_the_policy_of_its_session(void **state)
{
    (void)state;
    watch_t watch = {0};
    rig_seq_t *seq;
    rig_t *rig = open_watched(&watch, &seq);
    story_resident(rig, seq, 10); /* so that each is answered within its start */
    rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    rig_start(rig, seq, TIMEOUT, DRAIN, RIG_S);
    rig_start(rig, seq, TIMEOUT, DRAIN, RIG_S);
    rig_start(rig, seq, BEST_EFFORT, DRAIN, FBY_NEVER);
    assert_int_equal(watch.answered[WAIT_COMPLETE], 1);
    assert_int_equal(watch.answered[TIMEOUT], 2);
    assert_int_equal(watch.answered[BEST_EFFORT], 1);
    story_quiesce(rig);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_hold_what_no_lane_has_taken),
        cmocka_unit_test(a_graph_takes_from_begun_to_ended_and_a_recalled_one_takes_nothing),
        cmocka_unit_test(an_answer_comes_with_the_policy_of_its_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
