#include "fixture.h"

#include "keys/keys.h"

/* Payload as the golden files hold it: byte i is (i * 7 + i / 251) mod 256. */
static void golden_payload(uint8_t *payload, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        payload[i] = (uint8_t)(i * 7 + i / 251);
    }
}

typedef struct golden {
    const char *file;
    uint32_t payload_bytes, segment_bytes, group;
    bool with_checksum;
} golden_t;

static const golden_t goldens[] = {
    {"object-one-segment.bin", 192, 65536, 0, true}, {"object-five-segments.bin", 300, 64, 1, true},
    {"object-many-segments.bin", 1000, 8, 7, true},  {"object-no-checksum.bin", 192, 65536, 0, false},
    {"object-unaligned.bin", 77, 16, 3, true},
};

static fby_object_id_t golden_id(const golden_t *golden)
{
    fby_object_id_t id = {
        .group = golden->group, .payload_bytes = golden->payload_bytes, .segment_bytes = golden->segment_bytes};
    for (uint8_t i = 0; i < 16; i++) {
        ((uint8_t *)&id.hash)[i] = (uint8_t)(0x10 + i);
        id.fingerprint[i] = (uint8_t)(0xF0 - i);
    }
    return id;
}

static void objects_are_byte_for_byte_the_golden_files(void **state)
{
    const char *root = getenv("FOREBAY_SOURCE_ROOT") != NULL ? getenv("FOREBAY_SOURCE_ROOT") : ".";
    for (size_t i = 0; i < FBY_ARRAY_LEN(goldens); i++) {
        uint8_t object[2048], expected[2048];
        char path[512];
        fby_object_id_t id = golden_id(&goldens[i]);
        golden_payload(object, id.payload_bytes);
        fby_object_seal(object, &id, goldens[i].with_checksum);
        snprintf(path, sizeof(path), "%s/tests/golden/%s", root, goldens[i].file);
        if (getenv("FOREBAY_WRITE_GOLDEN") != NULL) {
            FILE *out = fopen(path, "wb");
            assert_non_null(out);
            assert_int_equal(fwrite(object, 1, id.payload_bytes + 64, out), id.payload_bytes + 64);
            fclose(out);
        }
        FILE *in = fopen(path, "rb");
        assert_non_null(in);
        assert_int_equal(fread(expected, 1, sizeof(expected), in), id.payload_bytes + 64);
        fclose(in);
        assert_memory_equal(object, expected, id.payload_bytes + 64);
    }
}

/* Every field at its documented place, written out by hand. */
static void the_trailer_has_its_fields_where_the_specification_says(void **state)
{
    fby_object_id_t id = golden_id(&goldens[1]);
    uint8_t object[512];
    golden_payload(object, id.payload_bytes);
    fby_object_seal(object, &id, false);
    static const uint8_t expected[64] = {
        'F',  'B',  'Y',  '1',  1,    0,    1,    1,    0x2C, 0x01, 0,    0,    64,   0,    0,    0,
        0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x1B, 0x1C, 0x1D, 0x1E, 0x1F,
        0xF0, 0xEF, 0xEE, 0xED, 0xEC, 0xEB, 0xEA, 0xE9, 0xE8, 0xE7, 0xE6, 0xE5, 0xE4, 0xE3, 0xE2, 0xE1,
    };
    assert_memory_equal(object + 300, expected, 56);
    uint64_t check = fby_checksum_segment(expected, 56);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(object[300 + 56 + i], (uint8_t)(check >> 8 * i));
    }
}

static void a_sealed_object_verifies(void **state)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(goldens); i++) {
        uint8_t object[2048];
        fby_object_id_t id = golden_id(&goldens[i]);
        golden_payload(object, id.payload_bytes);
        fby_object_seal(object, &id, goldens[i].with_checksum);
        assert_int_equal(fby_object_verify(object, &id, true), FBY_OBJECT_OK);
    }
}

static void a_reader_with_another_segment_size_still_verifies(void **state)
{
    uint8_t object[512];
    fby_object_id_t id = golden_id(&goldens[1]);
    golden_payload(object, id.payload_bytes);
    fby_object_seal(object, &id, true);
    id.segment_bytes = FBY_SEGMENT_BYTES;
    assert_int_equal(fby_object_verify(object, &id, true), FBY_OBJECT_OK);
}

/* The checksum is a fold over pieces: equal to folding the pieces' own sums, however many there are. */
static void pieces_can_be_summed_apart(void **state)
{
    static uint8_t payload[1000 * 64];
    uint64_t sums[1000];
    golden_payload(payload, sizeof(payload));
    for (uint32_t pieces = 1; pieces <= 1000; pieces = pieces * 3 + 1) {
        uint32_t bytes = pieces * 64 - 5;
        for (uint32_t i = 0; i < pieces; i++) {
            sums[i] = fby_checksum_segment(payload + i * 64, i + 1 < pieces ? 64 : 59);
        }
        assert_int_equal(fby_checksum(payload, bytes, 64), fby_checksum_fold(sums, pieces));
    }
}

static void every_flipped_bit_of_the_payload_is_found(void **state)
{
    uint8_t object[512];
    fby_object_id_t id = golden_id(&goldens[1]);
    golden_payload(object, id.payload_bytes);
    fby_object_seal(object, &id, true);
    for (uint32_t bit = 0; bit < id.payload_bytes * 8; bit++) {
        object[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(fby_object_verify(object, &id, true), FBY_OBJECT_SUM);
        assert_int_equal(fby_object_verify(object, &id, false), FBY_OBJECT_OK);
        object[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void every_flipped_bit_of_the_trailer_is_found_without_the_payload(void **state)
{
    uint8_t object[512], flags;
    uint64_t checksum;
    fby_object_id_t id = golden_id(&goldens[1]), found;
    golden_payload(object, id.payload_bytes);
    fby_object_seal(object, &id, true);
    for (uint32_t bit = 0; bit < 64 * 8; bit++) {
        uint32_t byte = bit / 8;
        fby_object_fault_t expected = byte < 4 ? FBY_OBJECT_MAGIC : byte < 6 ? FBY_OBJECT_VERSION : FBY_OBJECT_SUM;
        object[300 + byte] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(fby_trailer_parse(object + 300, &found, &checksum, &flags), expected);
        assert_int_equal(fby_object_verify(object, &id, false), expected);
        object[300 + byte] ^= (uint8_t)(1u << bit % 8);
    }
}

/* Whole objects, but not the one that was asked for. */
static void each_thing_that_can_be_wrong_is_told_apart(void **state)
{
    uint8_t object[512];
    fby_object_id_t id = golden_id(&goldens[1]), other;
    golden_payload(object, id.payload_bytes);
    fby_object_seal(object, &id, true);
    other = id;
    other.hash.w[1] ^= 1;
    assert_int_equal(fby_object_verify(object, &other, true), FBY_OBJECT_KEY);
    other = id;
    other.group = 2;
    assert_int_equal(fby_object_verify(object, &other, true), FBY_OBJECT_KEY);
    other = id;
    other.fingerprint[15] ^= 1;
    assert_int_equal(fby_object_verify(object, &other, true), FBY_OBJECT_FINGERPRINT);
    other = id;
    other.payload_bytes = 299; /* a trailer at the right place that speaks of another length */
    fby_object_seal(object, &other, true);
    memmove(object + 300, object + 299, 64);
    assert_int_equal(fby_object_verify(object, &id, true), FBY_OBJECT_LENGTH);
}

static void a_newer_version_is_told_from_damage(void **state)
{
    uint8_t object[512], flags;
    uint64_t checksum;
    fby_object_id_t id = golden_id(&goldens[0]), found;
    golden_payload(object, id.payload_bytes);
    fby_object_seal(object, &id, true);
    object[192 + 4] = FBY_FORMAT_VERSION + 1;
    assert_int_equal(fby_object_verify(object, &id, true), FBY_OBJECT_VERSION);
    assert_int_equal(fby_trailer_parse(object + 192, &found, &checksum, &flags), FBY_OBJECT_VERSION);
    assert_string_equal(fby_object_fault_name(FBY_OBJECT_VERSION), "version");
}

/* Sealed, so that only the lengths are wrong. */
static void lengths_that_cannot_be_are_refused(void **state)
{
    static const uint32_t wrong[][2] = {{0, 64}, {64, 0}};
    uint8_t object[512], flags;
    uint64_t checksum;
    fby_object_id_t id = golden_id(&goldens[0]), found;
    for (size_t i = 0; i < FBY_ARRAY_LEN(wrong); i++) {
        id.payload_bytes = wrong[i][0];
        id.segment_bytes = wrong[i][1];
        fby_object_seal(object, &id, false);
        assert_int_equal(fby_trailer_parse(object + id.payload_bytes, &found, &checksum, &flags), FBY_OBJECT_LENGTH);
    }
}

static void without_a_checksum_an_object_is_unverified_but_usable(void **state)
{
    uint8_t object[512];
    fby_object_id_t id = golden_id(&goldens[0]);
    golden_payload(object, id.payload_bytes);
    fby_object_seal(object, &id, false);
    object[0] ^= 1;
    assert_int_equal(fby_object_verify(object, &id, true), FBY_OBJECT_OK);
}

static void every_fault_has_a_name(void **state)
{
    for (int fault = 0; fault < FBY_OBJECT_FAULT_COUNT; fault++) {
        assert_string_not_equal(fby_object_fault_name((fby_object_fault_t)fault), "unknown");
    }
    assert_string_equal(fby_object_fault_name(FBY_OBJECT_FAULT_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_byte_for_byte_the_golden_files),
        cmocka_unit_test(the_trailer_has_its_fields_where_the_specification_says),
        cmocka_unit_test(a_sealed_object_verifies),
        cmocka_unit_test(a_reader_with_another_segment_size_still_verifies),
        cmocka_unit_test(pieces_can_be_summed_apart),
        cmocka_unit_test(every_flipped_bit_of_the_payload_is_found),
        cmocka_unit_test(every_flipped_bit_of_the_trailer_is_found_without_the_payload),
        cmocka_unit_test(each_thing_that_can_be_wrong_is_told_apart),
        cmocka_unit_test(a_newer_version_is_told_from_damage),
        cmocka_unit_test(lengths_that_cannot_be_are_refused),
        cmocka_unit_test(without_a_checksum_an_object_is_unverified_but_usable),
        cmocka_unit_test(every_fault_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
