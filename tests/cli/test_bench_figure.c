/* Figures: a goal is met on its own side, and the JSON has one form with a goal and without. */
#include <math.h>

#include "cli/bench_figure.h"
#include "unit.h"

static bool is_met(const char *op, double value, double goal)
{
    fby_bench_figure_t figure = {.value = value, .op = op, .goal = goal};
    fby_bench_figure_judge(&figure);
    return figure.met;
}

static void a_goal_is_met_at_its_value_and_beyond(void **state)
{
    assert_true(is_met(">=", 0.85, 0.85));
    assert_true(is_met(">=", 2, 0.85));
    assert_false(is_met(">=", 0.84, 0.85));
    assert_true(is_met("<=", 40, 40));
    assert_true(is_met("<=", 0, 40));
    assert_false(is_met("<=", 40.5, 40));
}

static void what_is_no_number_meets_nothing(void **state)
{
    assert_false(is_met(">=", NAN, 0));
    assert_false(is_met("<=", NAN, 0));
    assert_false(is_met(NULL, 1, 0));
}

static void json_has_every_member_with_a_goal_and_without(void **state)
{
    const fby_bench_figure_t figures[] = {
        {.name = "ratio", .value = 0.5, .lo = 0.25, .hi = 0.75, .unit = "ratio", .op = ">=", .goal = 0.85},
        {.name = "speed", .value = 12, .lo = NAN, .hi = NAN, .unit = "GB/s"},
    };
    char *text;
    size_t length;
    fby_json_t json;
    FILE *file = open_memstream(&text, &length);
    assert_non_null(file);
    fby_json_init(&json, file);
    fby_json_object(&json, NULL);
    fby_bench_figures_json(&json, figures, 2);
    fby_json_end(&json);
    fclose(file);
    assert_string_equal(text, "{\"figures\":[{\"name\":\"ratio\",\"value\":0.5,\"unit\":\"ratio\",\"op\":\">=\","
                              "\"goal\":0.85,\"met\":false,\"lo\":0.25,\"hi\":0.75},"
                              "{\"name\":\"speed\",\"value\":12,\"unit\":\"GB/s\",\"op\":null,\"goal\":null,"
                              "\"met\":null,\"lo\":null,\"hi\":null}]}\n");
    free(text);
}

static void the_machine_fits_where_it_is_put(void **state)
{
    char whole[FBY_BENCH_MACHINE_BYTES], few[8];
    fby_bench_machine(whole, sizeof(whole));
    assert_non_null(strstr(whole, " cores, "));
    memset(few, 'x', sizeof(few));
    fby_bench_machine(few, sizeof(few));
    assert_int_equal(strlen(few), 7);
    assert_memory_equal(few, whole, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_goal_is_met_at_its_value_and_beyond),
        cmocka_unit_test(what_is_no_number_meets_nothing),
        cmocka_unit_test(json_has_every_member_with_a_goal_and_without),
        cmocka_unit_test(the_machine_fits_where_it_is_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
