#include "group_rig.h"

#include "rank/decision.h"

static rig_message_t written(const fby_decision_t *decision)
{
    fby_writer_t writer = {0};
    fby_decision_write(&writer, decision);
    rig_message_t bytes = {.bytes = malloc(writer.used), .length = writer.used};
    assert_non_null(bytes.bytes);
    writer = (fby_writer_t){.bytes = bytes.bytes, .capacity = bytes.length};
    fby_decision_write(&writer, decision);
    assert_int_equal(writer.used, bytes.length);
    return bytes;
}

static int read_back(const uint8_t *bytes, size_t length, fby_decision_room_t *room, fby_decision_t *out, size_t *left)
{
    fby_reader_t reader = {.at = bytes, .end = bytes + length};
    int rc = fby_decision_read(&reader, room, out);
    *left = fby_read_left(&reader);
    return rc;
}

static void test_what_was_written_is_read(void **state)
{
    (void)state;
    uint64_t random = 1;
    fby_decision_room_t room = {0};
    for (int i = 0; i < 1000; i++) {
        rig_decision_t made;
        fby_decision_t read;
        size_t left;
        rig_decision_random(&made, &random);
        assert_int_equal(fby_decision_check(&made.decision), 0);
        rig_message_t bytes = written(&made.decision);
        assert_int_equal(read_back(bytes.bytes, bytes.length, &room, &read, &left), 0);
        assert_int_equal(left, 0);
        rig_decisions_equal(&made.decision, &read);
        rig_message_free(&bytes);
        rig_decision_free(&made);
    }
    fby_decision_room_free(&room);
}

static void test_a_decision_that_is_cut_is_refused(void **state)
{
    (void)state;
    uint64_t random = 2;
    fby_decision_room_t room = {0};
    for (int i = 0; i < 30; i++) {
        rig_decision_t made;
        fby_decision_t read;
        size_t left;
        rig_decision_random(&made, &random);
        rig_message_t bytes = written(&made.decision);
        for (size_t cut = 0; cut < bytes.length; cut += 1 + cut / 1000) {
            rig_message_t part = rig_message_copy(bytes.bytes, cut);
            assert_int_equal(read_back(part.bytes, cut, &room, &read, &left), FBY_E_FORMAT);
            rig_message_free(&part);
        }
        rig_message_free(&bytes);
        rig_decision_free(&made);
    }
    fby_decision_room_free(&room);
}

/* Without the checksum of a message: what is read all the same is written to the same bytes. */
static void test_a_changed_decision_is_refused_or_is_another_one(void **state)
{
    (void)state;
    uint64_t random = 3;
    fby_decision_room_t room = {0};
    for (int i = 0; i < 40; i++) {
        rig_decision_t made;
        fby_decision_t read;
        size_t left;
        rig_decision_random(&made, &random);
        rig_message_t bytes = written(&made.decision);
        for (size_t bit = 0; bit < 8 * bytes.length; bit += 1 + bit / 800) { /* all of the head */
            bytes.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            if (read_back(bytes.bytes, bytes.length, &room, &read, &left) == 0) {
                rig_message_t again = written(&read);
                assert_int_equal(again.length, bytes.length - left);
                assert_memory_equal(again.bytes, bytes.bytes, again.length);
                rig_message_free(&again);
            }
            bytes.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        rig_message_free(&bytes);
        rig_decision_free(&made);
    }
    fby_decision_room_free(&room);
}

static void test_blocks_that_were_not_sent_are_not_allocated(void **state)
{
    (void)state;
    fby_decision_room_t room = {0};
    fby_decision_t read;
    size_t left;
    /* stop | tag | tokens | object | no bytes of the engine's | one range: places, first block 0, 131072 blocks | one */
    const uint8_t bytes[] = {4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x40, 0, 0x80, 0x80, 8, 2};
    assert_int_equal(read_back(bytes, sizeof(bytes), &room, &read, &left), FBY_E_FORMAT);
    assert_string_equal(fby_last_error(), "decision: a range of blocks is cut short");
    assert_int_equal(room.capacity, 1);
    fby_decision_room_free(&room);
}

static void test_numbers_have_one_form_only(void **state)
{
    (void)state;
    static const struct {
        uint8_t bytes[11];
        size_t length;
        uint64_t value;
        bool bad;
    } forms[] = {
        {{0}, 1, 0, false},
        {{0x7F}, 1, 127, false},
        {{0x80, 1}, 2, 128, false},
        {{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1}, 10, UINT64_MAX, false},
        {{0x80, 0}, 2, 0, true},
        {{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2}, 10, 0, true},
        {{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x81, 1}, 11, 0, true},
        {{0x80}, 1, 0, true},
        {{0}, 0, 0, true},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        fby_reader_t reader = {.at = forms[i].bytes, .end = forms[i].bytes + forms[i].length};
        assert_int_equal(fby_read_varint(&reader), forms[i].value);
        assert_int_equal(reader.bad, forms[i].bad);
    }
}

static void test_neighbours_are_short(void **state)
{
    (void)state;
    uint64_t place[100], device_block[100];
    for (uint64_t i = 0; i < 100; i++) {
        place[i] = (UINT64_C(1) << 40) + 4096 * i;
        device_block[i] = 100 - i;
    }
    const fby_block_range_t range = {.blocks = 100, .place = place, .device_block = device_block};
    const fby_decision_t decision = {.size = sizeof(decision), .kind = FBY_DECISION_LOAD, .ranges = 1, .range = &range};
    rig_message_t bytes = written(&decision);
    assert_in_range(bytes.length, 1, 100 * 3 + 40);
    rig_message_free(&bytes);
}

static void refused(fby_decision_t decision, const char *field)
{
    assert_int_equal(fby_decision_check(&decision), -EINVAL);
    rig_assert_detail(field);
}

static void refused_range(fby_block_range_t range, uint32_t kind, const char *field)
{
    refused((fby_decision_t){.size = sizeof(fby_decision_t), .kind = kind, .ranges = 1, .range = &range}, field);
}

static void test_what_may_not_be_decided_is_named(void **state)
{
    (void)state;
    const fby_decision_t good = {.size = sizeof(good), .kind = FBY_DECISION_STOP};
    const uint64_t list[2] = {1, FBY_NO_PLACE};
    fby_decision_t bad = good;
    assert_int_equal(fby_decision_check(&good), 0);
    assert_int_equal(fby_decision_check(NULL), -EINVAL);
    bad.size = 8;
    refused(bad, "decision.size is 8;");
    bad = good;
    bad.kind = 0;
    refused(bad, "decision.kind is 0; accepted: 1 to 6");
    bad.kind = 7;
    refused(bad, "decision.kind is 7;");
    bad = good;
    bad.ranges = FBY_DECISION_RANGES + 1;
    refused(bad, "decision.ranges is 65;");
    bad.ranges = 1;
    refused(bad, "decision.range is NULL");
    bad = good;
    bad.extra_bytes = FBY_DECISION_EXTRA + 1;
    refused(bad, "decision.extra_bytes is 1025;");
    bad.extra_bytes = 1;
    refused(bad, "decision.extra is NULL");
    refused_range((fby_block_range_t){.group = 8}, FBY_DECISION_STOP, "decision.range.group is 8;");
    refused_range((fby_block_range_t){.blocks = FBY_DECISION_BLOCKS + 1}, FBY_DECISION_STOP, "decision.range.blocks");
    refused_range((fby_block_range_t){.blocks = 2, .first_block = UINT64_MAX - 1}, FBY_DECISION_STOP, "first_block");
    refused_range((fby_block_range_t){.blocks = 1, .device_block = list}, FBY_DECISION_LOAD,
                  "decision.range.place is NULL; accepted for load");
    refused_range((fby_block_range_t){.blocks = 1, .place = list}, FBY_DECISION_SAVE,
                  "decision.range.device_block is NULL; accepted for save");
    refused_range((fby_block_range_t){.blocks = 2, .place = list}, FBY_DECISION_STOP, "no FBY_NO_PLACE");
    const fby_block_range_t halves[2] = {{.blocks = FBY_DECISION_BLOCKS}, {.blocks = 1}};
    bad = good;
    bad.ranges = 2;
    bad.range = halves;
    refused(bad, "blocks of all ranges of the decision is 131073;");
    bad.ranges = 1;
    assert_int_equal(fby_decision_check(&bad), 0);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(fby_decision_name(FBY_DECISION_LOAD), "load");
    assert_string_equal(fby_decision_name(FBY_DECISION_END), "end");
    assert_string_equal(fby_decision_name(0), "unknown");
    assert_string_equal(fby_message_name(FBY_MESSAGE_VERDICT), "verdict");
    assert_string_equal(fby_message_name(99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_written_is_read),
        cmocka_unit_test(test_a_decision_that_is_cut_is_refused),
        cmocka_unit_test(test_a_changed_decision_is_refused_or_is_another_one),
        cmocka_unit_test(test_blocks_that_were_not_sent_are_not_allocated),
        cmocka_unit_test(test_numbers_have_one_form_only),
        cmocka_unit_test(test_neighbours_are_short),
        cmocka_unit_test(test_what_may_not_be_decided_is_named),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
