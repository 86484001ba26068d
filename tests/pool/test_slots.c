#include "unit.h"

#include "pool/slots.h"

enum { FULL = 6, SNAPSHOTS = 3, TOTAL = FULL + SNAPSHOTS };

typedef struct rig {
    fby_slots_t slots;
    void *memory;
    uint32_t painted; /* calls of on_free */
    uint32_t last_painted;
} rig_t;

static void paint(void *arg, uint32_t slot)
{
    rig_t *rig = arg;
    rig->painted++;
    rig->last_painted = slot;
}

static int setup(void **state)
{
    static const uint32_t counts[] = {FULL, SNAPSHOTS};
    rig_t *rig = test_calloc(1, sizeof(*rig));
    rig->memory = test_calloc(1, fby_slots_bytes(TOTAL));
    fby_slots_init(&rig->slots, 2, counts, rig->memory);
    rig->slots.on_free = paint;
    rig->slots.on_free_arg = rig;
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

static void expect_sound(const rig_t *rig)
{
    char why[128] = "";
    if (!fby_slots_check(&rig->slots, why, sizeof(why))) {
        fail_msg("%s", why);
    }
}

static void expect_broken(const rig_t *rig, const char *reason)
{
    char why[128] = "";
    assert_false(fby_slots_check(&rig->slots, why, sizeof(why)));
    assert_non_null(strstr(why, reason));
}

/* Brings a slot of group 0 into a state by legal moves. */
static uint32_t slot_in(rig_t *rig, fby_slot_state_t state)
{
    uint32_t slot = fby_slot_take(&rig->slots, 0, 1);
    if (state == FBY_SLOT_FREE) {
        assert_true(fby_slot_move(&rig->slots, slot, FBY_SLOT_STAGING, FBY_SLOT_FREE, 0));
    } else if (state != FBY_SLOT_STAGING) {
        assert_true(fby_slot_move(&rig->slots, slot, FBY_SLOT_STAGING, state, 2));
    }
    return slot;
}

static void slots_start_free_lowest_first(void **state)
{
    rig_t *rig = *state;
    assert_int_equal(fby_slots_free(&rig->slots, 0), FULL);
    assert_int_equal(fby_slots_free(&rig->slots, 1), SNAPSHOTS);
    for (uint32_t i = 0; i < FULL; i++) {
        assert_int_equal(fby_slot_take(&rig->slots, 0, 10 + i), i);
        assert_int_equal(rig->slots.slot[i].owner, 10 + i);
        assert_int_equal(rig->slots.slot[i].state, FBY_SLOT_STAGING);
    }
    assert_int_equal(fby_slot_take(&rig->slots, 0, 0), FBY_NONE);
    assert_int_equal(fby_slot_take(&rig->slots, 1, 0), FULL);
    expect_sound(rig);
}

static void every_move_is_legal_or_refused(void **state)
{
    rig_t *rig = *state;
    /* Rows: from; columns: to, in the order free, staging, resident, private, quarantine, retired. */
    static const char *const legal[FBY_SLOT_STATE_COUNT] = {
        "......", "xxxxxx", "x....x", "x.xx.x", "x.....", "x...x.",
    };
    uint64_t violations = 0;
    for (uint32_t from = 0; from < FBY_SLOT_STATE_COUNT; from++) {
        for (uint32_t to = 0; to < FBY_SLOT_STATE_COUNT; to++) {
            uint32_t slot = slot_in(rig, (fby_slot_state_t)from);
            fby_slot_t before = rig->slots.slot[slot];
            bool moved = fby_slot_move(&rig->slots, slot, (fby_slot_state_t)from, (fby_slot_state_t)to, 9);
            assert_int_equal(moved, legal[from][to] == 'x');
            if (!moved) {
                assert_memory_equal(&before, &rig->slots.slot[slot], sizeof(before));
                assert_int_equal(rig->slots.violations, ++violations);
            } else if (to != FBY_SLOT_FREE) {
                assert_int_equal(rig->slots.slot[slot].owner, 9);
            }
            expect_sound(rig);
            teardown(state);
            setup(state);
            rig = *state;
            violations = 0;
        }
    }
}

static void a_second_free_is_refused_and_named(void **state)
{
    rig_t *rig = *state;
    uint32_t slot = fby_slot_take(&rig->slots, 0, 1);
    assert_true(fby_slot_move(&rig->slots, slot, FBY_SLOT_STAGING, FBY_SLOT_FREE, 0));
    assert_false(fby_slot_move(&rig->slots, slot, FBY_SLOT_STAGING, FBY_SLOT_FREE, 0));
    assert_int_equal(rig->slots.violations, 1);
    assert_string_equal(rig->slots.violation, "V7: slot 0 is free, refused staging -> free");
    assert_int_equal(fby_slots_free(&rig->slots, 0), FULL);
    assert_int_equal(rig->painted, 1);
    expect_sound(rig);
}

static void a_move_must_name_the_state_it_expects(void **state)
{
    rig_t *rig = *state;
    uint32_t slot = slot_in(rig, FBY_SLOT_RESIDENT);
    assert_false(fby_slot_move(&rig->slots, slot, FBY_SLOT_PRIVATE, FBY_SLOT_FREE, 0));
    assert_int_equal(rig->slots.slot[slot].state, FBY_SLOT_RESIDENT);
    assert_false(fby_slot_move(&rig->slots, TOTAL, FBY_SLOT_RESIDENT, FBY_SLOT_FREE, 0));
    assert_int_equal(rig->slots.violations, 2);
    assert_string_equal(rig->slots.violation, "V7: slot 0 is resident, refused private -> free");
}

static void freeing_bumps_the_generation_and_paints(void **state)
{
    rig_t *rig = *state;
    uint32_t slot = slot_in(rig, FBY_SLOT_QUARANTINE);
    assert_int_equal(rig->slots.slot[slot].generation, 0);
    assert_true(fby_slot_move(&rig->slots, slot, FBY_SLOT_QUARANTINE, FBY_SLOT_FREE, 0));
    assert_int_equal(rig->slots.slot[slot].generation, 1);
    assert_int_equal(rig->painted, 1);
    assert_int_equal(rig->last_painted, slot);
}

static void counters_follow_every_move(void **state)
{
    rig_t *rig = *state;
    slot_in(rig, FBY_SLOT_RESIDENT);
    slot_in(rig, FBY_SLOT_PRIVATE);
    slot_in(rig, FBY_SLOT_QUARANTINE);
    static const uint32_t expected[] = {FULL - 3, 0, 1, 1, 1, 0};
    for (uint32_t i = 0; i < FBY_SLOT_STATE_COUNT; i++) {
        assert_int_equal(rig->slots.in_state[0][i], expected[i]);
    }
    assert_int_equal(rig->slots.in_state[1][FBY_SLOT_FREE], SNAPSHOTS);
}

static void the_check_sees_corruption(void **state)
{
    rig_t *rig = *state;
    uint32_t slot = slot_in(rig, FBY_SLOT_RESIDENT);
    fby_slots_t whole = rig->slots;

    rig->slots.slot[slot].state = FBY_SLOT_FREE;
    expect_broken(rig, "counter says");
    rig->slots.slot[slot].state = FBY_SLOT_STATE_COUNT;
    expect_broken(rig, "has state");
    rig->slots.slot[slot].state = FBY_SLOT_RESIDENT;
    rig->slots.in_state[0][FBY_SLOT_FREE]--;
    expect_broken(rig, "counter says");
    rig->slots = whole;
    rig->slots.free_head[0] = slot; /* a slot in use on the free list */
    expect_broken(rig, "free list runs into");
    rig->slots = whole;
    rig->slots.free_head[0] = rig->slots.slot[rig->slots.free_head[0]].next; /* a leak */
    expect_broken(rig, "on the free list");
    rig->slots = whole;
    rig->slots.slot[FULL - 1].next = whole.free_head[0]; /* a circle */
    expect_broken(rig, "free list runs into");
    rig->slots.slot[FULL - 1].next = FBY_NONE;
    rig->slots.total++;
    expect_broken(rig, "the total says");
    rig->slots = whole;
    expect_sound(rig);
}

static void states_have_names(void **state)
{
    (void)state;
    assert_string_equal(fby_slot_state_name(FBY_SLOT_FREE), "free");
    assert_string_equal(fby_slot_state_name(FBY_SLOT_RETIRED), "retired");
    assert_string_equal(fby_slot_state_name(FBY_SLOT_STATE_COUNT), "unknown");
}

static void a_slot_costs_twelve_bytes(void **state)
{
    (void)state;
    assert_int_equal(sizeof(fby_slot_t), 12);
    assert_int_equal(fby_slots_bytes(16), 192);
    assert_int_equal(fby_slots_bytes(1), 64);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(slots_start_free_lowest_first),
        TEST(every_move_is_legal_or_refused),
        TEST(a_second_free_is_refused_and_named),
        TEST(a_move_must_name_the_state_it_expects),
        TEST(freeing_bumps_the_generation_and_paints),
        TEST(counters_follow_every_move),
        TEST(the_check_sees_corruption),
        TEST(states_have_names),
        TEST(a_slot_costs_twelve_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
