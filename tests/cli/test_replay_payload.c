/* Made-up bytes: each block has its own, every wrong byte is seen, and equal ids mean equal tokens. */
#include "cli/replay_payload.h"
#include "cli/trace.h"
#include "unit.h"

enum { BYTES = 100 }; /* no multiple of a word: the last bytes count too */

static const fby_hash_t one = {{1, 2}}, other = {{2, 1}};

static void a_payload_is_recognised(void **state)
{
    uint8_t payload[BYTES], copy[BYTES];
    fby_payload_fill(payload, BYTES, &one, 0);
    assert_true(fby_payload_copy(copy, payload, BYTES, &one, 0));
    assert_memory_equal(copy, payload, BYTES);
    assert_false(fby_payload_copy(copy, payload, BYTES, &other, 0));
    assert_false(fby_payload_copy(copy, payload, BYTES, &one, 1));
}

static void any_flipped_bit_is_seen(void **state)
{
    uint8_t payload[BYTES], copy[BYTES];
    fby_payload_fill(payload, BYTES, &one, 3);
    for (size_t bit = 0; bit < 8 * BYTES; bit++) {
        payload[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(fby_payload_copy(copy, payload, BYTES, &one, 3));
        payload[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(fby_payload_copy(copy, payload, BYTES, &one, 3));
}

static void payloads_are_the_same_on_every_machine(void **state)
{
    static const uint8_t expected[8] = {0xad, 0x80, 0x15, 0xd7, 0x51, 0x2f, 0x2f, 0x78};
    uint8_t payload[sizeof(expected)];
    fby_payload_fill(payload, sizeof(payload), &one, 0);
    assert_memory_equal(payload, expected, sizeof(expected));
}

static void tokens_follow_from_the_id_alone(void **state)
{
    static const uint32_t first[] = {7, 8}, second[] = {9, 7};
    uint32_t a[2 * FBY_TRACE_BLOCK_TOKENS], b[2 * FBY_TRACE_BLOCK_TOKENS];
    fby_payload_tokens(first, 600, a);
    fby_payload_tokens(second, FBY_ARRAY_LEN(b), b);
    assert_memory_equal(a, b + FBY_TRACE_BLOCK_TOKENS, FBY_TRACE_BLOCK_TOKENS * sizeof(*a));
}

static void two_ids_share_no_block_of_any_size(void **state)
{
    uint32_t a[FBY_TRACE_BLOCK_TOKENS], b[FBY_TRACE_BLOCK_TOKENS];
    for (uint32_t id = 0; id < 200; id++) {
        const uint32_t next = id + 1;
        fby_payload_tokens(&id, FBY_ARRAY_LEN(a), a);
        fby_payload_tokens(&next, FBY_ARRAY_LEN(b), b);
        for (size_t i = 0; i < FBY_ARRAY_LEN(a); i++) {
            assert_int_not_equal(a[i], b[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_payload_is_recognised),
        cmocka_unit_test(any_flipped_bit_is_seen),
        cmocka_unit_test(payloads_are_the_same_on_every_machine),
        cmocka_unit_test(tokens_follow_from_the_id_alone),
        cmocka_unit_test(two_ids_share_no_block_of_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
