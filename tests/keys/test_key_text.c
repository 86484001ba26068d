#include "unit.h"

#include "forebay/store.h"
#include "keys/keys.h"

static const char *const example = "000102030405060708090a0b0c0d0eff-g3";

static fby_hash_t example_hash(void)
{
    static const uint8_t bytes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255};
    fby_hash_t hash;
    memcpy(hash.w, bytes, sizeof(bytes));
    return hash;
}

static void a_key_is_the_digest_in_memory_order_and_the_group(void **state)
{
    char text[FBY_KEY_TEXT_BYTES];
    fby_hash_t hash = example_hash();
    fby_key_text(&hash, 3, text);
    assert_string_equal(text, example);
    assert_int_equal(FBY_KEY_TEXT_BYTES, FBY_KEY_BYTES);
}

static void parsing_gives_hash_and_group_back(void **state)
{
    fby_hash_t hash, want = example_hash();
    uint32_t group = 99;
    assert_true(fby_key_parse(example, &hash, &group));
    assert_true(fby_hash_equal(&hash, &want));
    assert_int_equal(group, 3);
}

static void every_group_survives_the_round_trip(void **state)
{
    uint64_t seed = 3;
    for (uint32_t group = 0; group < FBY_MAX_GROUPS; group++) {
        fby_hash_t hash = {{unit_random(&seed), unit_random(&seed)}}, back;
        char text[FBY_KEY_TEXT_BYTES];
        uint32_t back_group;
        fby_key_text(&hash, group, text);
        assert_true(fby_key_parse(text, &back, &back_group));
        assert_true(fby_hash_equal(&hash, &back));
        assert_int_equal(back_group, group);
    }
}

static void anything_else_is_refused_and_nothing_written(void **state)
{
    static const char *const wrong[] = {
        "",
        "00",
        "000102030405060708090a0b0c0d0eff",
        "000102030405060708090a0b0c0d0eff-g",
        "000102030405060708090a0b0c0d0eff-g8",
        "000102030405060708090a0b0c0d0eff-g03",
        "000102030405060708090a0b0c0d0eff-g3 ",
        "000102030405060708090a0b0c0d0eff-h3",
        "000102030405060708090a0b0c0d0eff_g3",
        "000102030405060708090A0B0C0D0EFF-g3",
        "000102030405060708090a0b0c0d0ef-g3",
        "000102030405060708090a0b0c0d0efg-g3",
        " 00102030405060708090a0b0c0d0eff-g3",
        "000102030405060708090a0b0c0d0eff-g-1",
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(wrong); i++) {
        fby_hash_t hash = {{1, 2}};
        uint32_t group = 99;
        assert_false(fby_key_parse(wrong[i], &hash, &group));
        assert_int_equal(hash.w[0], 1);
        assert_int_equal(hash.w[1], 2);
        assert_int_equal(group, 99);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_is_the_digest_in_memory_order_and_the_group),
        cmocka_unit_test(parsing_gives_hash_and_group_back),
        cmocka_unit_test(every_group_survives_the_round_trip),
        cmocka_unit_test(anything_else_is_refused_and_nothing_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
