/* test_check.c - the checks themselves: each planted corruption is found and named, and a poisoned core does nothing. */
#include "core/internal.h"
#include "drive.h"

/* A reads two chunks of ten blocks, B is answered and leased, C is put and held, D is staged. */
typedef struct scene {
    rig_t *rig;
    fby_core_t *core;
    fby_sess_t *reading, *leased;
    fby_entry_t *first, *second; /* of the reading session */
    fby_hold_t hold;
    rig_seq_t *seq;
} scene_t;

static fby_sess_t *session_of(rig_t *rig, fby_session_t handle)
{
    uint32_t slot;
    assert_true(fby_core_session_slot(rig->core, handle, &slot));
    return &rig->core->sessions[slot];
}

static scene_t open_scene(void)
{
    rig_config_t config;
    rig_config_defaults(&config);
    rig_t *rig = rig_open(&config);
    rig_seq_t *seq = rig_seq(rig, 0, 1, 10 * 16 + 1), *other = rig_seq(rig, 0, 2, 65), *put = rig_seq(rig, 0, 3, 65);
    fby_session_t b = rig_start(rig, other, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 4);
    drive_reads(rig);
    fby_session_t a = rig_start(rig, seq, WAIT_COMPLETE, DRAIN, FBY_NEVER);
    story_answer(rig, 10);
    story_begin(rig);
    scene_t scene = {.rig = rig, .core = rig->core, .seq = seq};
    uint64_t tokens;
    story_resident(rig, put, 2);
    assert_int_equal(rig_lookup(rig, put, &scene.hold, &tokens), 0);
    fby_put_t staged;
    assert_int_equal(rig_put_begin(rig, put, 2, 4, &staged), 0);
    scene.reading = session_of(rig, a);
    scene.leased = session_of(rig, b);
    scene.first = &scene.core->entries[scene.reading->ledger_head];
    scene.second = &scene.core->entries[scene.first->next];
    return scene;
}

static void close_scene(scene_t *scene)
{
    drive_reads(scene->rig);
    story_quiesce(scene->rig);
    rig_close(scene->rig);
}

static void reserved(scene_t *s)
{
    s->core->reserved += BLOCK;
}
static void reserved_limit(scene_t *s)
{
    s->core->config.max_reserved_bytes = 7 * BLOCK;
}
static void pinned_limit(scene_t *s)
{
    s->core->config.max_pinned_bytes = 11 * BLOCK;
}
static void granted_limit(scene_t *s)
{
    s->core->config.max_pinned_bytes = 13 * BLOCK;
}
static void write_limit(scene_t *s)
{
    s->core->config.write_pinned_bytes = BLOCK;
}
static void running(scene_t *s)
{
    s->core->running++;
}
static void parked(scene_t *s)
{
    s->core->parked++;
}
static void grants(scene_t *s)
{
    s->core->unused_blocks--;
}
static void leases(scene_t *s)
{
    s->core->leases--;
}
static void ledgers(scene_t *s)
{
    s->core->unsettled++;
}
static void old_ledgers(scene_t *s)
{
    s->core->old_unsettled++;
}
static void write_bytes(scene_t *s)
{
    s->core->write_bytes -= BLOCK;
}
static void private_bytes(scene_t *s)
{
    s->core->private_hold += BLOCK;
}
static void sealed_submits(scene_t *s)
{
    s->leased->submitted++;
}
static void committed(scene_t *s)
{
    s->reading->committed = s->reading->resolved + 1;
}
static void target(scene_t *s)
{
    s->reading->target = s->reading->cursor - 1;
}
static void window(scene_t *s)
{
    s->reading->window++;
}
static void pending(scene_t *s)
{
    s->first->pending--;
}
static void hole(scene_t *s)
{
    s->second->begin++;
}
static void foreign(scene_t *s)
{
    s->second->session ^= 1;
}
static void terminal(scene_t *s)
{
    s->reading->state = FBY_TERMINAL;
}
static void unanswered(scene_t *s)
{
    s->leased->answered = 0;
}
static void lease_end(scene_t *s)
{
    s->leased->lease_end--;
}
static void violation(scene_t *s)
{
    s->rig->slots.violations++;
}

static void lease_unanswered(scene_t *s)
{
    s->reading->lease = 1;
    s->core->leases++;
}

static void ledger_bytes(scene_t *s) /* the sum is right, the parts are not */
{
    s->reading->inflight_bytes -= BLOCK;
    s->leased->inflight_bytes += BLOCK;
}

static void two_owners(scene_t *s)
{
    uint32_t slot = s->core->own[fby_own_entry(s->core, s->reading->ledger_head)].next;
    s->core->items[slot].entry = s->first->next;
}

static void not_staging(scene_t *s) /* an item's slot that the table calls private, with every sum adjusted to that */
{
    uint32_t slot = s->core->own[fby_own_entry(s->core, s->reading->ledger_head)].next;
    fby_slot_move(&s->rig->slots, slot, FBY_SLOT_STAGING, FBY_SLOT_PRIVATE, 0);
    s->core->private_hold += BLOCK;
    s->core->reserved -= BLOCK;
    s->reading->inflight_bytes -= BLOCK;
}

static void poisoned(scene_t *s)
{
    s->core->poisoned = true;
    strcpy(s->core->poison, "V1 told so");
}

static const struct corruption {
    void (*plant)(scene_t *scene);
    const char *found; /* how the report begins */
} corruptions[] = {
    {reserved_limit, "V3 reserved over its limit (id 0: 32768, 28672)"},
    {pinned_limit, "V4 pinned + reserved over the limit"},
    {granted_limit, "V4 pinned + reserved + granted over the limit"},
    {write_limit, "write budget"},
    {violation, "V7 a slot made an illegal move"},
    {reserved, "V3 reserved is not the sum of ledgers and quarantine (id 0: 32768, 36864)"},
    {grants, "unused grants (id 0: 2, 1)"},
    {running, "running and parked"},
    {parked, "running and parked"},
    {leases, "leases and ledgers"},
    {ledgers, "leases and ledgers"},
    {old_ledgers, "old ledgers"},
    {write_bytes, "write bytes are not what the slots say"},
    {private_bytes, "private bytes"},
    {sealed_submits, "V1 submitted after the seal"},
    {committed, "V2 start<=committed<=resolved<=cursor"},
    {target, "V2 cursor<=target<=proven"},
    {terminal, "V5 terminal with a ledger"},
    {unanswered, "V5 terminal unanswered"},
    {lease_unanswered, "V6 lease before the answer"},
    {lease_end, "V6 lease end"},
    {foreign, "V9 foreign ledger entry"},
    {hole, "V2 the ledger has a hole"},
    {two_owners, "V9 an item has two owners"},
    {not_staging, "V7 an item is not staging"},
    {pending, "V9 pending items"},
    {ledger_bytes, "V3 ledger bytes"},
    {window, "window"},
    {poisoned, "poisoned: V1 told so"},
};

static void each_planted_corruption_is_found_and_named(void **state)
{
    (void)state;
    scene_t scene = open_scene();
    size_t bytes = fby_core_bytes(&scene.rig->config.core), slots = fby_slots_bytes(scene.rig->slots.total);
    fby_slots_t table = scene.rig->slots;
    uint8_t *core = malloc(bytes), *slot = malloc(slots);
    assert_true(core && slot);
    memcpy(core, scene.core, bytes);
    memcpy(slot, table.slot, slots);
    for (unsigned i = 0; i < FBY_ARRAY_LEN(corruptions); i++) {
        char why[200] = "";
        assert_true(fby_core_check(scene.core, why, sizeof(why)));
        corruptions[i].plant(&scene);
        assert_false(fby_core_check(scene.core, why, sizeof(why)));
        why[FBY_MIN(strlen(corruptions[i].found), sizeof(why) - 1)] = 0;
        assert_string_equal(why, corruptions[i].found);
        memcpy(scene.core, core, bytes);
        memcpy(table.slot, slot, slots);
        scene.rig->slots = table;
    }
    free(core);
    free(slot);
    close_scene(&scene);
}

/* A debug build asserts after every call, so that call must look at what it touched and at nothing else. */
static void the_step_check_looks_at_sums_and_touched_sessions(void **state)
{
    (void)state;
    scene_t scene = open_scene();
    char why[200] = "";
    scene.core->touched_count = 0;
    scene.reading->window++;
    assert_true(fby_core_check_step(scene.core, why, sizeof(why)));
    scene.core->touched[0] = (uint32_t)(scene.reading - scene.core->sessions);
    scene.core->touched_count = 1;
    assert_false(fby_core_check_step(scene.core, why, sizeof(why)));
    scene.reading->window--;
    assert_true(fby_core_check_step(scene.core, why, sizeof(why)));
    scene.core->config.max_reserved_bytes = BLOCK;
    assert_false(fby_core_check_step(scene.core, why, sizeof(why)));
    scene.core->config.max_reserved_bytes = 64 * BLOCK;
    scene.core->touched_count = 0;
    close_scene(&scene);
}

static void a_poisoned_core_says_so_and_changes_nothing(void **state)
{
    (void)state;
    scene_t scene = open_scene();
    fby_core_t *core = scene.core;
    size_t bytes = fby_core_bytes(&scene.rig->config.core);
    uint8_t *before = malloc(bytes);
    assert_non_null(before);
    assert_null(fby_core_poisoned(core));
    poisoned(&scene);
    memcpy(before, core, bytes);
    assert_string_equal(fby_core_poisoned(core), "V1 told so");
    uint64_t now = scene.rig->now + RIG_S, tokens;
    fby_core_start_t start;
    rig_start_defaults(&start);
    fby_session_t session;
    fby_hold_t hold;
    fby_put_t put = 0;
    fby_core_put_info_t info;
    fby_put_result_t result = {.size = sizeof(result)};
    fby_core_hold_info_t hold_info;
    fby_core_seq_t seq = {.hashes = scene.seq->hashes, .blocks = 10, .tokens = 161};
    start.seq = seq;
    assert_int_equal(fby_core_session_start(core, now, &start, &session), FBY_E_POISONED);
    assert_int_equal(fby_core_session_demand(core, now, scene.leased->handle), FBY_E_POISONED);
    assert_int_equal(fby_core_session_stop(core, now, scene.reading->handle), FBY_E_POISONED);
    assert_int_equal(fby_core_session_release(core, now, scene.leased->handle), FBY_E_POISONED);
    assert_int_equal(fby_core_session_take(core, now, scene.leased->handle, &hold), FBY_E_POISONED);
    assert_int_equal(fby_core_lookup(core, now, &seq, 0, &hold, &tokens), FBY_E_POISONED);
    assert_int_equal(fby_core_hold_info(core, scene.hold, &hold_info), FBY_E_POISONED);
    assert_int_equal(fby_core_hold_release(core, now, scene.hold), FBY_E_POISONED);
    assert_int_equal(fby_core_put_begin(core, now, &seq, 0, 4, &put, &info), FBY_E_POISONED);
    assert_int_equal(fby_core_put_commit(core, now, scene.rig->put[0].handle, 4, &result), FBY_E_POISONED);
    assert_int_equal(fby_core_put_end(core, now, scene.rig->put[0].handle), FBY_E_POISONED);
    assert_int_equal(fby_core_reset(core, now, false), FBY_E_POISONED);
    assert_int_equal(fby_core_wants(core), 0);
    assert_int_equal(fby_core_next_deadline(core), FBY_NEVER);
    fby_core_tick(core, now);
    fby_core_read_done(core, now, scene.rig->live[0][0], (int32_t[64]){0});
    fby_core_shutdown(core, now);
    assert_memory_equal(core, before, bytes);
    free(before);
    core->poisoned = false;
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_planted_corruption_is_found_and_named),
        cmocka_unit_test(the_step_check_looks_at_sums_and_touched_sessions),
        cmocka_unit_test(a_poisoned_core_says_so_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
