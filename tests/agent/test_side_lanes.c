/* Batches at the agent's end: what a program sees of them, in both forms, and what is not let through. */
#include <errno.h>
#include <unistd.h>

#include "agent/rig.h"
#include "agent/side.h"
#include "unit.h"

static fby_agent_t *accepted(int control_fd)
{
    char error[512];
    fby_agent_t *agent;
    void *pool;
    size_t bytes;
    const fby_store_caps_t caps = {.size = sizeof(caps)};
    bool ready = fby_agent_accept(control_fd, &agent, error, sizeof(error)) == 0 &&
                 fby_agent_map(agent, &pool, &bytes) == 0 && bytes == RIG_POOL_BYTES &&
                 fby_agent_ready(agent, &caps, "test") == 0;
    if (!ready) {
        _exit(90);
    }
    return agent;
}

/* A store of one byte per buffer: PUT answers the first byte, GET fills with 'g' + index. */
static void fill_batch(fby_agent_batch_t *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        fby_store_op_t *op = &batch->ops[i];
        if (batch->op == FBY_RING_GET) {
            memset(op->buffer, 'g' + (int)i, op->bytes);
            op->result = op->bytes;
        } else if (batch->op == FBY_RING_PUT) {
            op->result = *(const uint8_t *)op->buffer;
        } else if (batch->op == FBY_RING_EXISTS) {
            op->result = op->buffer == NULL ? (int64_t)strlen(op->key) + op->group : FBY_E_SIZE;
        } else if (batch->op == FBY_RING_HEALTH) {
            snprintf(batch->text, FBY_RING_TEXT_BYTES, "fine");
            op->result = 0;
        } else if (batch->op == FBY_RING_EPOCH) {
            op->result = (int64_t)batch->epoch;
        } /* REMOVE is forgotten */
    }
}

/* What take said at last; 0 would be wrong. */
static int serve(int control_fd)
{
    fby_agent_t *agent = accepted(control_fd);
    fby_agent_batch_t batch;
    int status;
    if (fby_agent_take(agent, RIG_LANES, &batch) != -EINVAL) {
        return 91;
    }
    while ((status = fby_agent_take(agent, 0, &batch)) == 0) {
        fill_batch(&batch);
        fby_agent_answer(agent, 0, &batch);
    }
    return status == -ESHUTDOWN ? 10 : status == FBY_E_FORMAT ? 11 : 92;
}

static void start(rig_t *rig, int (*body)(int control_fd))
{
    fby_wire_ready_t ready;
    rig_open(rig);
    rig_send(rig, FBY_WIRE_FDS);
    rig_fork(rig, body);
    rig_receive_ready(rig, &ready);
    assert_string_equal(ready.version, "test");
    assert_int_equal(rig->confined, 0);
}

static void every_operation_reaches_the_program(void **state)
{
    rig_t rig;
    int64_t results[2];
    start(&rig, serve);
    fby_ring_entry_t pair[2] = {rig_entry(FBY_RING_GET, "a", 0, RIG_SLOT_BYTES),
                                rig_entry(FBY_RING_GET, "b", RIG_POOL_BYTES - RIG_SLOT_BYTES, 100)};
    assert_true(rig_call(&rig, 0, pair, 2, results));
    assert_int_equal(results[0], RIG_SLOT_BYTES);
    assert_int_equal(results[1], 100);
    assert_int_equal(rig.pool[0], 'g');
    assert_int_equal(rig.pool[RIG_SLOT_BYTES - 1], 'g');
    assert_int_equal(rig.pool[RIG_SLOT_BYTES], 0);
    assert_int_equal(rig.pool[RIG_POOL_BYTES - RIG_SLOT_BYTES + 99], 'h');

    rig.lanes[0].bounce[RIG_SLOT_BYTES] = 77;
    pair[0] = rig_entry(FBY_RING_PUT, "a", RIG_SLOT_BYTES, 5);
    pair[0].flags = FBY_RING_BOUNCE;
    assert_true(rig_call(&rig, 0, pair, 1, results));
    assert_int_equal(results[0], 77);

    pair[0] = rig_entry(FBY_RING_EXISTS, "abcde", FBY_RING_NO_BUFFER, 0);
    pair[1] = rig_entry(FBY_RING_EXISTS, "012345678901234567890123456789012345678", FBY_RING_NO_BUFFER, 0);
    pair[1].group = 7;
    assert_true(rig_call(&rig, 0, pair, 2, results));
    assert_int_equal(results[0], 5);
    assert_int_equal(results[1], 46);

    pair[0] = rig_entry(FBY_RING_REMOVE, "a", FBY_RING_NO_BUFFER, 0);
    assert_true(rig_call(&rig, 0, pair, 1, results));
    assert_int_equal(results[0], FBY_E_INVALID); /* forgotten is not done */

    pair[0] = rig_entry(FBY_RING_HEALTH, "", FBY_RING_NO_BUFFER, 0);
    assert_true(rig_call(&rig, 0, pair, 1, results));
    assert_int_equal(results[0], 0);
    assert_string_equal((char *)rig.lanes[0].bounce, "fine");
    pair[0] = rig_entry(FBY_RING_EPOCH, "", 1234567, 0);
    assert_true(rig_call(&rig, 0, pair, 1, results));
    assert_int_equal(results[0], 1234567);

    rig_say(&rig, FBY_WIRE_CLOSE);
    assert_int_equal(rig_wait(&rig), 10);
    rig_close(&rig);
}

/* One take in the flat form, answered with what was seen; then the end. */
static int serve_flat(int control_fd)
{
    fby_agent_t *agent = accepted(control_fd);
    fby_agent_flat_t flat;
    int status;
    while ((status = fby_agent_take_flat(agent, 1, &flat)) == 0) {
        if (flat.op == FBY_RING_HEALTH) {
            snprintf(flat.text, FBY_RING_TEXT_BYTES, "%u/%u", flat.count, flat.keys_bytes);
            flat.results[0] = 3;
        } else if (flat.op == FBY_RING_EPOCH) {
            flat.results[0] = (int64_t)flat.epoch;
        } else {
            bool same = flat.keys_bytes == strlen(flat.keys) && flat.results[0] == FBY_E_INVALID;
            for (uint32_t i = 0; i < flat.count; i++) {
                char *buffer = (char *)(uintptr_t)flat.addresses[i];
                if (flat.op == FBY_RING_GET) {
                    snprintf(buffer, flat.sizes[i], "%s", flat.keys);
                }
                flat.results[i] = same ? (int64_t)i + 1000 * flat.duplicates : -1;
            }
        }
        fby_agent_answer_flat(agent, 1, &flat);
    }
    return status == -ESHUTDOWN ? 10 : status == FBY_E_FORMAT ? 11 : 92;
}

static void the_flat_form_has_joined_keys_and_finds_duplicates(void **state)
{
    rig_t rig;
    int64_t results[RIG_DEPTH];
    fby_ring_entry_t entries[RIG_DEPTH];
    start(&rig, serve_flat);
    for (uint32_t round = 0; round < 200; round++) {
        bool twice = round % 2 != 0;
        for (uint32_t i = 0; i < RIG_DEPTH; i++) {
            char key[FBY_KEY_BYTES];
            snprintf(key, sizeof(key), "%032u-%u", twice && i == RIG_DEPTH - 1 ? round % 7 : i, 0u);
            entries[i] = rig_entry(FBY_RING_GET, key, i * RIG_SLOT_BYTES, RIG_SLOT_BYTES);
            memset(entries[i].key + strlen(key) + 1, (int)(round + i), FBY_KEY_BYTES - strlen(key) - 1); /* rubbish */
        }
        assert_true(rig_call(&rig, 1, entries, RIG_DEPTH, results));
        for (uint32_t i = 0; i < RIG_DEPTH; i++) {
            assert_int_equal(results[i], twice ? 1000 + i : i);
        }
    }
    entries[0] = rig_entry(FBY_RING_GET, "one", 0, RIG_SLOT_BYTES);
    entries[1] = rig_entry(FBY_RING_GET, "two", RIG_SLOT_BYTES, RIG_SLOT_BYTES);
    assert_true(rig_call(&rig, 1, entries, 2, results));
    assert_string_equal((char *)rig.pool, "one\ntwo");
    for (uint32_t i = 0; i < RIG_DEPTH; i++) { /* keys of full length fill the room for them */
        char key[FBY_KEY_BYTES];
        snprintf(key, sizeof(key), "%039u", i);
        entries[i] = rig_entry(FBY_RING_EXISTS, key, FBY_RING_NO_BUFFER, 0);
    }
    assert_true(rig_call(&rig, 1, entries, RIG_DEPTH, results));
    assert_int_equal(results[RIG_DEPTH - 1], RIG_DEPTH - 1);
    entries[0] = rig_entry(FBY_RING_HEALTH, "", FBY_RING_NO_BUFFER, 0);
    assert_true(rig_call(&rig, 1, entries, 1, results));
    assert_int_equal(results[0], 3);
    assert_string_equal((char *)rig.lanes[1].bounce, "1/0");
    entries[0] = rig_entry(FBY_RING_EPOCH, "", 5, 0);
    assert_true(rig_call(&rig, 1, entries, 1, results));
    assert_int_equal(results[0], 5);
    rig_say(&rig, FBY_WIRE_CLOSE);
    assert_int_equal(rig_wait(&rig), 10);
    rig_close(&rig);
}

/* In both forms: the batch is refused and no byte outside is touched. */
static void refused(fby_ring_entry_t first, uint32_t n)
{
    for (uint32_t lane = 0; lane < 2; lane++) {
        rig_t rig;
        int64_t results[2];
        fby_ring_entry_t pair[2] = {first, first};
        start(&rig, lane == 0 ? serve : serve_flat);
        assert_false(rig_call(&rig, lane, pair, n, results));
        assert_int_equal(rig_wait(&rig), 11);
        rig_close(&rig);
    }
}

static void a_buffer_outside_is_refused(void **state)
{
    refused(rig_entry(FBY_RING_GET, "a", RIG_POOL_BYTES, 1), 1);
    refused(rig_entry(FBY_RING_GET, "a", RIG_POOL_BYTES - 1, 2), 1);
    refused(rig_entry(FBY_RING_GET, "a", RIG_POOL_BYTES - 4095, 100), 1); /* less room than a slot */
    refused(rig_entry(FBY_RING_PUT, "a", 0, RIG_POOL_BYTES + 1), 1);
    refused(rig_entry(FBY_RING_PUT, "a", UINT64_MAX - 10, 4096), 1); /* would wrap */
    refused(rig_entry(FBY_RING_GET, "a", FBY_RING_NO_BUFFER, 0), 1);
    fby_ring_entry_t bounce = rig_entry(FBY_RING_GET, "a", RIG_BOUNCE_BYTES - 4095, 4096);
    bounce.flags = FBY_RING_BOUNCE;
    refused(bounce, 1);
    bounce.offset = 0;
    bounce.bytes = RIG_BOUNCE_BYTES + 1;
    refused(bounce, 1);
    refused(rig_entry(FBY_RING_EXISTS, "a", 0, 0), 1); /* a buffer where there is none */
}

static void other_malformed_entries_are_refused(void **state)
{
    fby_ring_entry_t entry = rig_entry(FBY_RING_EXISTS, "a", FBY_RING_NO_BUFFER, 0);
    entry.group = FBY_MAX_GROUPS;
    refused(entry, 1);
    entry.group = 0;
    entry.flags = 4;
    refused(entry, 1);
    entry.flags = 0;
    memset(entry.key, 'k', sizeof(entry.key)); /* never ends */
    refused(entry, 1);
    refused(rig_entry(FBY_RING_EXISTS, "", FBY_RING_NO_BUFFER, 0), 1);
    refused(rig_entry(FBY_RING_EXISTS, "a\nb", FBY_RING_NO_BUFFER, 0), 1);
    refused(rig_entry(FBY_RING_HEALTH, "", FBY_RING_NO_BUFFER, 0), 2); /* one at a time */
    refused(rig_entry(FBY_RING_EPOCH, "", 1, 0), 2);
    refused(rig_entry(FBY_RING_OP_COUNT, "a", FBY_RING_NO_BUFFER, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_reaches_the_program),
        cmocka_unit_test(the_flat_form_has_joined_keys_and_finds_duplicates),
        cmocka_unit_test(a_buffer_outside_is_refused),
        cmocka_unit_test(other_malformed_entries_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
