/* Requests wait in order for a slot, hold it to their last token, and are put at the end; times come out to the ns. */
#include "base/clock.h"
#include "cli/replay_engine.h"
#include "unit.h"

#define START (UINT64_C(5) * FBY_SECOND) /* the host's clock when the replay begins */

/* A host that notes what it was told and answers as it is told. */
typedef struct desk {
    fby_engine_t engine;
    char told[1024];
    uint64_t consumed[8];
    bool answers_at_demand, stores_at_once;
    int refuses_start;
} desk_t;

static void note(desk_t *desk, char what, uint32_t request, uint64_t now)
{
    size_t length = strlen(desk->told);
    snprintf(desk->told + length, sizeof(desk->told) - length, "%s%c%u@%u", length > 0 ? " " : "", what, request,
             (unsigned)((now - START) / FBY_MS));
}

static int on_start(void *arg, uint32_t request, uint64_t now)
{
    note(arg, 'a', request, now);
    return ((desk_t *)arg)->refuses_start;
}

static int on_demand(void *arg, uint32_t request, uint64_t now)
{
    note(arg, 'd', request, now);
    return ((desk_t *)arg)->answers_at_demand;
}

static int on_consume(void *arg, uint32_t request, uint64_t now)
{
    desk_t *desk = arg;
    note(desk, 'c', request, now);
    desk->engine.request[request].consumed = desk->consumed[request];
    return 0;
}

static int on_store(void *arg, uint32_t request, uint64_t now)
{
    desk_t *desk = arg;
    note(desk, 's', request, now);
    if (desk->stores_at_once) {
        fby_engine_stored(&desk->engine, request);
    }
    return 0;
}

static const fby_engine_host_t host = {on_start, on_demand, on_consume, on_store};

static fby_trace_request_t requests[] = {
    {.timestamp_ms = 10, .input_tokens = 1000, .output_tokens = 2},
    {.timestamp_ms = 10, .input_tokens = 500, .output_tokens = 1},
    {.timestamp_ms = 40, .input_tokens = 100, .output_tokens = 0},
};
static const fby_trace_t trace = {.request = requests, .requests = FBY_ARRAY_LEN(requests)};

/* 1 token of prefill per ms, 5 ms per output token. */
static void sit_down(desk_t *desk, uint32_t slots, bool serial, double speed)
{
    const fby_engine_config_t config = {
        .trace = &trace,
        .requests = trace.requests,
        .slots = slots,
        .serial = serial,
        .speed = speed,
        .prefill_tokens_per_s = 1000,
        .decode_ms = 5,
        .host = &host,
        .host_arg = desk,
    };
    assert_int_equal(fby_engine_init(&config, START, &desk->engine), 0);
}

static void run_all(desk_t *desk)
{
    while (fby_engine_next(&desk->engine) != FBY_NEVER) {
        assert_int_equal(fby_engine_run(&desk->engine, fby_engine_next(&desk->engine)), 0);
    }
}

static void one_slot_serves_in_order_of_arrival(void **state)
{
    desk_t desk = {.answers_at_demand = true, .stores_at_once = true};
    sit_down(&desk, 1, false, 1);
    run_all(&desk);
    assert_string_equal(desk.told,
                        "a0@10 d0@10 c0@10 a1@10 a2@40 s0@1020 d1@1020 c1@1020 s1@1525 d2@1525 c2@1525 s2@1625");
    assert_true(fby_engine_is_done(&desk.engine));
    assert_int_equal(desk.engine.request[0].first_token_ns - desk.engine.request[0].arrived_ns, 1000 * FBY_MS);
    assert_int_equal(desk.engine.request[1].first_token_ns - desk.engine.request[1].arrived_ns, 1510 * FBY_MS);
    fby_engine_free(&desk.engine);
}

static void what_was_delivered_is_not_computed(void **state)
{
    desk_t desk = {.answers_at_demand = true, .stores_at_once = true, .consumed = {900, 500, 0}};
    sit_down(&desk, 3, false, 1);
    run_all(&desk);
    assert_int_equal(desk.engine.request[0].first_token_ns - START, 110 * FBY_MS);
    assert_int_equal(desk.engine.request[1].first_token_ns - START, 10 * FBY_MS);
    fby_engine_free(&desk.engine);
}

static void a_candidate_keeps_its_slot_while_it_waits_for_the_answer(void **state)
{
    desk_t desk = {.stores_at_once = true};
    sit_down(&desk, 1, false, 1);
    assert_int_equal(fby_engine_run(&desk.engine, START + 40 * FBY_MS), 0);
    assert_string_equal(desk.told, "a0@40 d0@40 a1@40 a2@40");
    assert_true(fby_engine_next(&desk.engine) == FBY_NEVER);
    assert_int_equal(fby_engine_answered(&desk.engine, 1, START + 50 * FBY_MS),
                     0); /* still in the queue: no candidate */
    assert_int_equal(fby_engine_answered(&desk.engine, 0, START + 60 * FBY_MS), 0);
    assert_int_equal(fby_engine_answered(&desk.engine, 0, START + 61 * FBY_MS), 0); /* told twice: consumed once */
    assert_string_equal(desk.told, "a0@40 d0@40 a1@40 a2@40 c0@60");
    assert_int_equal(fby_engine_next(&desk.engine) - START, 1060 * FBY_MS);
    fby_engine_free(&desk.engine);
}

static void serial_arrivals_follow_the_store_write_before(void **state)
{
    desk_t desk = {.answers_at_demand = true};
    sit_down(&desk, 2, true, 1);
    run_all(&desk);
    assert_string_equal(desk.told, "a0@0 d0@0 c0@0 s0@1010");
    fby_engine_stored(&desk.engine, 0);
    assert_int_equal(fby_engine_run(&desk.engine, START + 2000 * FBY_MS), 0);
    assert_string_equal(desk.told, "a0@0 d0@0 c0@0 s0@1010 a1@2000 d1@2000 c1@2000");
    fby_engine_free(&desk.engine);
}

static void speed_compresses_arrivals_and_engine_alike(void **state)
{
    desk_t desk = {.answers_at_demand = true, .stores_at_once = true};
    sit_down(&desk, 1, false, 10);
    run_all(&desk);
    assert_string_equal(desk.told, "a0@1 d0@1 c0@1 a1@1 a2@4 s0@102 d1@102 c1@102 s1@152 d2@152 c2@152 s2@162");
    fby_engine_free(&desk.engine);
}

static void an_endless_output_is_cut(void **state)
{
    desk_t desk = {.answers_at_demand = true, .stores_at_once = true};
    requests[2].output_tokens = UINT32_MAX;
    sit_down(&desk, 3, false, 1);
    run_all(&desk);
    requests[2].output_tokens = 0;
    assert_non_null(strstr(desk.told, "s2@41100")); /* 40 + 100 + 8192 x 5 */
    fby_engine_free(&desk.engine);
}

static void a_host_that_fails_ends_the_run(void **state)
{
    desk_t desk = {.refuses_start = FBY_E_CLOSED};
    sit_down(&desk, 1, false, 1);
    assert_int_equal(fby_engine_run(&desk.engine, START + 10 * FBY_MS), FBY_E_CLOSED);
    assert_string_equal(desk.told, "a0@10");
    fby_engine_free(&desk.engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_slot_serves_in_order_of_arrival),
        cmocka_unit_test(what_was_delivered_is_not_computed),
        cmocka_unit_test(a_candidate_keeps_its_slot_while_it_waits_for_the_answer),
        cmocka_unit_test(serial_arrivals_follow_the_store_write_before),
        cmocka_unit_test(speed_compresses_arrivals_and_engine_alike),
        cmocka_unit_test(an_endless_output_is_cut),
        cmocka_unit_test(a_host_that_fails_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
