#include "unit.h"

#include <errno.h>

#include "forebay/forebay.h"
#include "keys/keys.h"

#define PART(type, text)                                                                                               \
    {                                                                                                                  \
        type, text, sizeof(text) - 1                                                                                   \
    }

static void bytes_of(const fby_ns_part_t *parts, size_t n, uint8_t *out, size_t capacity, size_t *length)
{
    assert_int_equal(fby_namespace_encode(parts, n, out, capacity, length), 0);
}

static void the_empty_namespace_is_a_count_of_zero(void **state)
{
    uint8_t out[8];
    size_t length;
    bytes_of(NULL, 0, out, sizeof(out), &length);
    assert_int_equal(length, 4);
    assert_memory_equal(out, "\0\0\0\0", 4);
}

static void each_part_is_type_length_and_bytes(void **state)
{
    const fby_ns_part_t parts[] = {PART(FBY_NS_ADAPTER, "ab"), PART(FBY_NS_TENANT, "")};
    static const uint8_t want[] = {2, 0, 0, 0, 1, 2, 0, 0, 0, 'a', 'b', 3, 0, 0, 0, 0};
    uint8_t out[64];
    size_t length;
    bytes_of(parts, 2, out, sizeof(out), &length);
    assert_int_equal(length, sizeof(want));
    assert_memory_equal(out, want, sizeof(want));
}

static void an_empty_salt_is_unset(void **state)
{
    const fby_ns_part_t with[] = {PART(FBY_NS_SALT, ""), PART(FBY_NS_TEXT, "t"), {FBY_NS_SALT, NULL, 0}};
    const fby_ns_part_t without[] = {PART(FBY_NS_TEXT, "t")};
    uint8_t a[64], b[64];
    size_t a_length, b_length;
    bytes_of(with, 3, a, sizeof(a), &a_length);
    bytes_of(without, 1, b, sizeof(b), &b_length);
    assert_int_equal(a_length, b_length);
    assert_memory_equal(a, b, a_length);
}

static void an_empty_adapter_is_a_value_of_its_own(void **state)
{
    const fby_ns_part_t empty[] = {{FBY_NS_ADAPTER, NULL, 0}};
    uint8_t out[64];
    size_t length;
    bytes_of(empty, 1, out, sizeof(out), &length);
    assert_int_equal(length, 9);
    assert_memory_equal(out, "\1\0\0\0\1\0\0\0\0", 9);
}

static void the_size_can_be_asked_for(void **state)
{
    const fby_ns_part_t parts[] = {PART(FBY_NS_TEXT, "abc")};
    size_t length = 0;
    assert_int_equal(fby_namespace_encode(parts, 1, NULL, 0, &length), 0);
    assert_int_equal(length, 12);
}

static void a_buffer_too_small_is_refused_untouched(void **state)
{
    const fby_ns_part_t parts[] = {PART(FBY_NS_TEXT, "abc")};
    uint8_t out[12] = {0xEE, 0xEE};
    size_t length = 77;
    assert_int_equal(fby_namespace_encode(parts, 1, out, 11, &length), -ENOSPC);
    assert_int_equal(length, 77);
    assert_int_equal(out[0], 0xEE);
}

static void what_is_no_part_is_refused(void **state)
{
    const fby_ns_part_t zero[] = {PART((fby_ns_type_t)0, "a")}, five[] = {PART((fby_ns_type_t)5, "a")};
    const fby_ns_part_t no_data[] = {{FBY_NS_TEXT, NULL, 1}}, huge[] = {{FBY_NS_TEXT, "a", (size_t)UINT32_MAX + 1}};
    uint8_t out[64];
    size_t length;
    assert_int_equal(fby_namespace_encode(zero, 1, out, sizeof(out), &length), -EINVAL);
    assert_int_equal(fby_namespace_encode(five, 1, out, sizeof(out), &length), -EINVAL);
    assert_int_equal(fby_namespace_encode(no_data, 1, out, sizeof(out), &length), -EINVAL);
    assert_int_equal(fby_namespace_encode(huge, 1, out, sizeof(out), &length), -EINVAL);
    assert_int_equal(fby_namespace_encode(NULL, 1, out, sizeof(out), &length), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_empty_namespace_is_a_count_of_zero),
        cmocka_unit_test(each_part_is_type_length_and_bytes),
        cmocka_unit_test(an_empty_salt_is_unset),
        cmocka_unit_test(an_empty_adapter_is_a_value_of_its_own),
        cmocka_unit_test(the_size_can_be_asked_for),
        cmocka_unit_test(a_buffer_too_small_is_refused_untouched),
        cmocka_unit_test(what_is_no_part_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
