#include "fixture.h"

#include "stores/file_format.h"

static void a_superblock_reads_back(void **state)
{
    static uint8_t bytes[FBY_HEADER_BYTES];
    static fby_super_t written, read;
    uint32_t version = 0;
    written.models = FBY_SUPER_MODELS;
    for (uint32_t i = 0; i < written.models; i++) {
        memset(written.model[i].name, (int)i, 16);
        written.model[i].epoch = UINT64_MAX - i;
    }
    fby_super_write(&written, bytes);
    assert_int_equal(fby_super_parse(bytes, &read, &version), FBY_FORMAT_OK);
    assert_int_equal(version, FBY_FILE_VERSION);
    assert_memory_equal(&read, &written, sizeof(read));
}

static void a_segment_header_reads_back(void **state)
{
    static uint8_t bytes[FBY_HEADER_BYTES];
    fby_segment_header_t header = {4160, 8192, 1000}, read;
    uint32_t version;
    fby_segment_header_write(&header, bytes);
    assert_int_equal(fby_segment_header_parse(bytes, &read, &version), FBY_FORMAT_OK);
    assert_memory_equal(&read, &header, sizeof(read));
    assert_int_equal(fby_segment_file_bytes(&read), 4096 + 8192000);
}

static void a_change_of_any_byte_is_damage(void **state)
{
    static uint8_t bytes[FBY_HEADER_BYTES];
    fby_segment_header_t header = {4160, 8192, 1000}, read;
    uint32_t version;
    fby_segment_header_write(&header, bytes);
    for (uint32_t i = 0; i < FBY_HEADER_BYTES; i++) {
        bytes[i] ^= 0x40;
        bool newer = i >= 8 && i < 12; /* the version itself: 1 becomes something larger */
        assert_int_equal(fby_segment_header_parse(bytes, &read, &version),
                         newer ? FBY_FORMAT_NEWER : FBY_FORMAT_DAMAGED);
        bytes[i] ^= 0x40;
    }
}

static void impossible_geometry_is_damage_even_when_it_is_sealed(void **state)
{
    static const fby_segment_header_t wrong[] = {
        {64, 128, 1},    /* no payload */
        {4160, 4096, 1}, /* objects overlap */
        {4160, 4161, 1}, /* no alignment */
        {4160, 8192, 0}, /* no slot */
    };
    static uint8_t bytes[FBY_HEADER_BYTES];
    fby_segment_header_t read;
    uint32_t version;
    for (size_t i = 0; i < FBY_ARRAY_LEN(wrong); i++) {
        fby_segment_header_write(&wrong[i], bytes);
        assert_int_equal(fby_segment_header_parse(bytes, &read, &version), FBY_FORMAT_DAMAGED);
    }
    fby_segment_header_write(&(fby_segment_header_t){4160, 0xFFFFFFC0, UINT32_MAX}, bytes);
    assert_int_equal(fby_segment_header_parse(bytes, &read, &version),
                     FBY_FORMAT_DAMAGED); /* longer than a file can be */
}

static void a_superblock_with_too_many_models_is_damage(void **state)
{
    static uint8_t bytes[FBY_HEADER_BYTES];
    static fby_super_t super;
    uint32_t version;
    super.models = FBY_SUPER_MODELS;
    fby_super_write(&super, bytes);
    bytes[12] = FBY_SUPER_MODELS + 1;
    assert_int_equal(fby_super_parse(bytes, &super, &version), FBY_FORMAT_DAMAGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_superblock_reads_back),
        cmocka_unit_test(a_segment_header_reads_back),
        cmocka_unit_test(a_change_of_any_byte_is_damage),
        cmocka_unit_test(impossible_geometry_is_damage_even_when_it_is_sealed),
        cmocka_unit_test(a_superblock_with_too_many_models_is_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
