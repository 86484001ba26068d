#include "unit.h"

#include "base/heap.h"

enum { IDS = 64 };

typedef struct rig {
    fby_heap_t heap;
    void *memory;
    /* The model: what is in, with which key. */
    bool in[IDS];
    uint64_t key[IDS];
} rig_t;

static int setup(void **state)
{
    rig_t *rig = test_calloc(1, sizeof(*rig));
    rig->memory = test_malloc(fby_heap_bytes(IDS));
    fby_heap_init(&rig->heap, IDS, rig->memory);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_t *rig = *state;
    test_free(rig->memory);
    test_free(rig);
    return 0;
}

static uint32_t model_top(const rig_t *rig)
{
    uint32_t best = FBY_NONE;
    for (uint32_t id = 0; id < IDS; id++) {
        if (rig->in[id] && (best == FBY_NONE || rig->key[id] < rig->key[best])) {
            best = id;
        }
    }
    return best;
}

static void an_empty_heap_has_no_top(void **state)
{
    rig_t *rig = *state;
    assert_int_equal(fby_heap_top(&rig->heap), FBY_NONE);
    assert_int_equal(fby_heap_top_key(&rig->heap), FBY_NEVER);
    assert_false(fby_heap_has(&rig->heap, 0));
}

static void equal_keys_leave_in_the_order_of_their_ids(void **state)
{
    rig_t *rig = *state;
    for (uint32_t id = 10; id-- > 0;) {
        fby_heap_set(&rig->heap, id, 7);
    }
    for (uint32_t id = 0; id < 10; id++) {
        assert_int_equal(fby_heap_top(&rig->heap), id);
        fby_heap_remove(&rig->heap, id);
    }
    assert_int_equal(rig->heap.count, 0);
}

static void setting_an_id_again_moves_it(void **state)
{
    rig_t *rig = *state;
    fby_heap_set(&rig->heap, 1, 10);
    fby_heap_set(&rig->heap, 2, 20);
    fby_heap_set(&rig->heap, 1, 30);
    assert_int_equal(fby_heap_top(&rig->heap), 2);
    assert_int_equal(rig->heap.count, 2);
    fby_heap_set(&rig->heap, 1, 5);
    assert_int_equal(fby_heap_top(&rig->heap), 1);
    assert_int_equal(fby_heap_top_key(&rig->heap), 5);
}

static void removing_what_is_absent_changes_nothing(void **state)
{
    rig_t *rig = *state;
    fby_heap_set(&rig->heap, 3, 1);
    fby_heap_remove(&rig->heap, 4);
    assert_int_equal(rig->heap.count, 1);
    assert_int_equal(fby_heap_top(&rig->heap), 3);
}

static void keys_at_the_edges_keep_their_order(void **state)
{
    rig_t *rig = *state;
    fby_heap_set(&rig->heap, 0, UINT64_MAX);
    fby_heap_set(&rig->heap, 1, UINT64_MAX - 1);
    fby_heap_set(&rig->heap, 2, 0);
    assert_int_equal(fby_heap_top(&rig->heap), 2);
    fby_heap_remove(&rig->heap, 2);
    assert_int_equal(fby_heap_top(&rig->heap), 1);
}

static void random_operations_agree_with_the_model(void **state)
{
    rig_t *rig = *state;
    uint64_t seed = 20240229;
    for (int step = 0; step < 200000; step++) {
        uint32_t id = unit_below(&seed, IDS);
        if (unit_below(&seed, 3) == 0) {
            fby_heap_remove(&rig->heap, id);
            rig->in[id] = false;
        } else {
            rig->key[id] = unit_below(&seed, 40); /* few values: many ties */
            rig->in[id] = true;
            fby_heap_set(&rig->heap, id, rig->key[id]);
        }
        assert_int_equal(fby_heap_has(&rig->heap, id), rig->in[id]);
        uint32_t top = model_top(rig);
        assert_int_equal(fby_heap_top(&rig->heap), top);
        assert_int_equal(fby_heap_top_key(&rig->heap), top == FBY_NONE ? FBY_NEVER : rig->key[top]);
    }
}

static void a_heap_of_nothing_needs_no_memory(void **state)
{
    fby_heap_t heap;
    assert_int_equal(fby_heap_bytes(0), 0);
    fby_heap_init(&heap, 0, NULL);
    assert_int_equal(fby_heap_top(&heap), FBY_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_empty_heap_has_no_top, setup, teardown),
        cmocka_unit_test_setup_teardown(equal_keys_leave_in_the_order_of_their_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(setting_an_id_again_moves_it, setup, teardown),
        cmocka_unit_test_setup_teardown(removing_what_is_absent_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(keys_at_the_edges_keep_their_order, setup, teardown),
        cmocka_unit_test_setup_teardown(random_operations_agree_with_the_model, setup, teardown),
        cmocka_unit_test(a_heap_of_nothing_needs_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
